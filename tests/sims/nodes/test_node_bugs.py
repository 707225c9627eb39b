"""The world of nodes bites: each planted bug of agent, freeze and thaw breaks an invariant within a number of seeds."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SLICE = ("killed-before-it-is-published",)
"""Found within a few seeds: what `make test` runs."""

sys.path[:0] = [str(HERE), str(HERE.parent / "mutants")]

from node_bugs import MUTANTS  # noqa: E402
from planting import find  # noqa: E402

BUGS = {mutant.name: mutant for mutant in MUTANTS}


@pytest.mark.slow
@pytest.mark.parametrize("name", SLICE)
def test_a_slice_of_the_planted_bugs_is_found(name, tmp_path):
    """Some planted bugs are found whenever tests run."""
    find(BUGS[name], tmp_path, nodes=True)


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [name for name in BUGS if name not in SLICE])
def test_each_planted_bug_is_found(name, tmp_path):
    """The others are found too."""
    find(BUGS[name], tmp_path, nodes=True)
