"""The testing tool for tiering policies: the same each time, and a policy that fails fails the test."""

import pytest

from iriscw.checkpoint.tiering.policies import ByWorth, LeastRecentlyUsed
from iriscw.testing.tiering import TRACE_NAMES, replayed


class SmallOnes(ByWorth):
    """The one of the documentation."""

    def worth(self, view, checkpoint, tier):
        return -checkpoint.size_bytes


class Raises(SmallOnes):
    """Fails when something is fetched, or later."""

    def admit(self, view, size_bytes):
        raise LookupError("no idea")


class RaisesLater(SmallOnes):
    """Fails when it is asked what to move."""

    def balance(self, view):
        raise LookupError("no idea")


@pytest.mark.slow
def test_the_example_of_the_page_holds():
    """It moves less than LRU, and nothing of it is refused."""
    mine, lru = replayed(SmallOnes()), replayed(LeastRecentlyUsed())
    assert mine.refused == 0
    assert mine.moved_bytes < lru.moved_bytes


@pytest.mark.parametrize("policy", [Raises(), RaisesLater()])
def test_a_policy_that_fails_fails_the_test(policy):
    """In both of its methods."""
    with pytest.raises(AssertionError):
        replayed(policy, requests=5)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("trace", TRACE_NAMES)
def test_each_trace_has_its_name(trace):
    """Each request finds its checkpoint somewhere."""
    assert sum(replayed(SmallOnes(), trace=trace, requests=20 + 60 * 3).hits.values()) >= 180


def test_there_is_no_other_trace():
    """A wrong name is an error."""
    with pytest.raises(KeyError):
        replayed(SmallOnes(), trace="none")
