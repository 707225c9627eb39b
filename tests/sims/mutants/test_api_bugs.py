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
from planting import find  # noqa: E402

BY_NAME = {bug.name: bug for bug in API_BUGS}
QUICK = ("a-lack-of-machines-is-never-seen",)
"""Found within a few seeds: what `make test` runs."""


def test_no_bug_is_planted_twice():
    """Each name is of one bug."""
    names = [bug.name for bug in (*MUTANTS, *LESSONS, *DRIVER_BUGS, *API_BUGS)]
    assert len(names) == len({*names})


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_a_slice_of_them_is_found(name, tmp_path):
    """Some are looked for whenever tests run."""
    find(BY_NAME[name], tmp_path)


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [name for name in BY_NAME if name not in QUICK])
def test_each_is_found(name, tmp_path):
    """All others are found too."""
    find(BY_NAME[name], tmp_path)
