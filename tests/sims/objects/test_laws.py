"""Whatever goes wrong on the way: what is heard is true, what was acknowledged has happened, one of many wins."""

import pytest
from hypothesis import given, strategies as st
from laws import ALL_RATES, check_history, check_race

from iriscw_sims.objects.fault_points import NAMES
from profiles import examples

RATES = st.dictionaries(st.sampled_from(NAMES), st.sampled_from((50, 200, 400)), max_size=6)
SEEDS = st.integers(0, 10**6)


@given(SEEDS, RATES)
@examples(50)
def test_what_is_heard_is_true(seed, rates):
    """Each request lands once at most and is heard of once; what is read is what was there, or a prefix of it."""
    check_history(seed, rates)


@given(SEEDS, RATES, st.booleans())
@examples(50)
def test_one_of_many_creates(seed, rates, in_parts):
    """A conditional create wins once, though its replies are lost and it is sent again."""
    check_race(seed, rates, in_parts=in_parts)


def test_every_fault_point_comes_true():
    """A few histories with all rates reach all of them."""
    seen = {}
    for seed in range(6):
        world = check_history(seed, dict.fromkeys(NAMES, 100))
        seen |= dict.fromkeys(line[2] for line in world.trace if line[1] == "fault")
        world = check_race(seed, dict.fromkeys(NAMES, 100), in_parts=True)
        seen |= dict.fromkeys(line[2] for line in world.trace if line[1] == "fault")
    assert sorted(seen) == sorted(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(100), range(100, 200)], ids=str)
def test_many_histories(seeds):
    """At the highest rates of a plan."""
    for seed in seeds:
        check_history(seed, ALL_RATES, 60)
        check_race(seed, ALL_RATES, 8, in_parts=seed % 2)
