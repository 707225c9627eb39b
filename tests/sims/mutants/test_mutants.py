"""The simulated world bites: each planted bug of fleet and jobs breaks an invariant within some hundred seeds."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SLICE = ("quota-taken-for-capacity",)
"""Found within a few seeds: what `make test` runs."""

sys.path.insert(0, str(HERE))

from planted import MUTANTS  # noqa: E402
from planting import find  # noqa: E402

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


@pytest.mark.slow
@pytest.mark.parametrize("name", SLICE)
def test_a_slice_of_the_planted_bugs_is_found(name, tmp_path):
    """Some planted bugs are found whenever tests run."""
    find(BY_NAME[name], tmp_path)


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [name for name in BY_NAME if name not in SLICE])
def test_each_planted_bug_is_found(name, tmp_path):
    """All others are found too."""
    find(BY_NAME[name], tmp_path)
