"""The names of chances, and how they go together with those of the plan."""

from iriscw_sims.coreweave.fault_points import FAULT_POINTS, NAMES
from iriscw_sims.swarm import RATES


def test_names_are_told_once():
    """Each with a rate in thousandths."""
    assert len({*NAMES}) == len(NAMES)
    assert all(0 < most <= 1000 for _, most in FAULT_POINTS)


def test_a_name_that_a_plan_has_too_has_the_same_rate():
    """So that either may be drawn from."""
    planned = dict(RATES)
    both = [(name, most) for name, most in FAULT_POINTS if name in planned]
    assert both
    assert both == [(name, planned[name]) for name, _ in both]
