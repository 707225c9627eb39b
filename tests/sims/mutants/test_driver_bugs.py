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
from planting import find  # noqa: E402

BY_NAME = {bug.name: bug for bug in DRIVER_BUGS}
QUICK = ("bookmarks-are-ignored",)
"""Found within a few seeds: what `make test` runs."""


def test_all_named_bugs_together_are_forty_at_least():
    """Of fleet and jobs, of lessons, of the driver: no name twice."""
    names = [bug.name for bug in (*MUTANTS, *LESSONS, *DRIVER_BUGS)]
    assert len(names) == len({*names}) >= 40


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
