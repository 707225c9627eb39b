"""Noise does not break a claim that is right, and does not save one that is wrong."""

import pytest
from ratios import RUNS, compare

from raised import that


class Side:
    """Costs ``cost`` and, in each run, some noise."""

    def __init__(self, cost, noise=(), log=None):
        self.cost, self.noise, self.log = cost, list(noise), log if log is not None else []

    def __call__(self):
        self.log.append(self.cost)
        return {"cpu_s": self.cost + (self.noise.pop(0) if self.noise else 0), "run": len(self.log)}


def test_a_claim_that_holds_is_run_once():
    """On a quiet machine each side runs once, and its figures are given."""
    one, other = Side(1), Side(9)
    assert compare(one, other, {"cpu_s": 10}) == ({"cpu_s": 1, "run": 1}, {"cpu_s": 9, "run": 1})


def test_noise_is_run_again_in_turns():
    """While noise is in the way both sides run again, in turns; what is given is still the first run."""
    log = []
    one, other = Side(1, log=log), Side(9, noise=[5, 3], log=log)
    first = compare(one, other, {"cpu_s": 10})
    assert log == [1, 9, 1, 9, 1, 9]
    assert [figures["cpu_s"] for figures in first] == [1, 14]


def test_a_wrong_claim_fails_every_time():
    """A cost that is too high fails after all runs, and says by how much."""
    log = []
    with pytest.raises(AssertionError, check=that(names=("cpu_s", "11", "10"))):
        compare(Side(1, log=log), Side(11, noise=[1, 0], log=log), {"cpu_s": 10})
    assert len(log) == 2 * RUNS >= 6


def test_the_sides_need_not_be_least_in_the_same_run():
    """Each side's least counts, whichever run it is from."""
    compare(Side(1, noise=[0, 5]), Side(9, noise=[5, 0]), {"cpu_s": 10}, runs=2)
