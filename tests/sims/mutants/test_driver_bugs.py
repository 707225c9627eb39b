"""The driver for Kubernetes runs in the simulated world, so its planted bugs break an invariant there."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]

sys.path.insert(0, str(HERE))

from driver_bugs import DRIVER_BUGS  # noqa: E402
from lessons import LESSONS  # noqa: E402
from planted import MUTANTS  # noqa: E402
from test_mutants import hunt, planted  # noqa: E402

BY_NAME = {bug.name: bug for bug in DRIVER_BUGS}
QUICK = ("bookmarks-are-ignored", "the-rate-limit-is-ignored")
"""Found within a few seeds: what `make test` runs."""


def find(name, folder):
    """Plant the bug called ``name``, and find it."""
    bug = BY_NAME[name]
    found = hunt(planted(bug, folder), bug.seeds, bug.first, bug.fails_with)
    violations = found["runs"][-1]["violations"]
    assert violations, f"{len(found['runs'])} seeds did not notice {name}"
    sys.stdout.write(f"{name}: {len(found['runs'])} seeds: {violations[0][:120]}\n")


def test_all_named_bugs_together_are_forty_at_least():
    """Of fleet and jobs, of lessons, of the driver: no name twice."""
    names = [bug.name for bug in (*MUTANTS, *LESSONS, *DRIVER_BUGS)]
    assert len(names) == len({*names}) >= 40


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
