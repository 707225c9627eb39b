"""Bugs that show only when the API is away, refuses or is not listened to break an invariant in the simulated world."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]

sys.path.insert(0, str(HERE))

from api_bugs import API_BUGS  # noqa: E402
from driver_bugs import DRIVER_BUGS  # noqa: E402
from lessons import LESSONS  # noqa: E402
from planted import MUTANTS  # noqa: E402
from test_mutants import hunt, planted  # noqa: E402

BY_NAME = {bug.name: bug for bug in API_BUGS}
QUICK = ("an-outage-is-taken-for-the-loss-of-everything", "a-lack-of-machines-is-never-seen")
"""Found within a few seeds: what `make test` runs."""


def find(name, folder):
    """Plant the bug called ``name``, and find it."""
    bug = BY_NAME[name]
    found = hunt(planted(bug, folder), bug.seeds, bug.first)
    violations = found["runs"][-1]["violations"]
    assert violations, f"{len(found['runs'])} seeds did not notice {name}"
    sys.stdout.write(f"{name}: {len(found['runs'])} seeds: {violations[0][:120]}\n")


def test_no_bug_is_planted_twice():
    """Each name is of one bug."""
    names = [bug.name for bug in (*MUTANTS, *LESSONS, *DRIVER_BUGS, *API_BUGS)]
    assert len(names) == len({*names})


@pytest.mark.parametrize("name", BY_NAME)
def test_the_texts_to_replace_are_there(name):
    """Every planted bug still fits the sources."""
    for module, old, _ in BY_NAME[name].edits:
        text = (ROOT / "src" / "iriscw" / module).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{text.count(old)} places in {module} read {old!r}"


@pytest.mark.parametrize("name", QUICK)
def test_a_slice_of_them_is_found(name, tmp_path):
    """Some are looked for whenever tests run."""
    find(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in BY_NAME if name not in QUICK])
def test_each_is_found(name, tmp_path):
    """All others are found too."""
    find(name, tmp_path)
