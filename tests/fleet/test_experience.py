"""What a group learns from boots and short lives."""

from __future__ import annotations

import pytest

from iriscw.fleet.groups.experience import CHURN_WINDOW, SHORT_LIFE, Experience
from iriscw.runtime.vocabulary import SECOND


def test_estimate_is_the_median_of_what_was_seen():
    """One slow boot does not move the estimate; without any the default stands."""
    known = Experience()
    assert known.boot_estimate(7) == 7
    for seconds in (20, 22, 900):
        known.booted(seconds * SECOND)
    assert known.boot_estimate(7) == 22 * SECOND
    assert known.slow_after(7) == 33 * SECOND


@pytest.mark.parametrize(
    ("short", "allowed"), [(0, 40), (19, 40), (20, 20), (49, 20), (50, 4), (79, 4), (80, 0), (100, 0)]
)
def test_churn_limits_growth_step_by_step(short, allowed):
    """The share of short lives allows all, half, a tenth, nothing; a bound belongs to the step that it begins."""
    known = Experience()
    for index in range(100):
        known.ended(SECOND, lived=SECOND if index < short else SHORT_LIFE, failed=True)
    assert known.allowed(40, 2 * SECOND) == allowed


def test_few_samples_say_nothing():
    """Two bad lives are bad luck."""
    known = Experience()
    known.ended(0, lived=0, failed=True)
    known.ended(0, lived=0, failed=True)
    assert known.churn_percent(1) == 0


def test_what_was_let_go_is_no_churn_and_windows_end():
    """A slice that nobody needed any more did not fail; what lies behind the window is forgotten."""
    known = Experience()
    for _ in range(3):
        known.ended(0, lived=1, failed=False)
    assert known.churn_percent(1) == 0
    for _ in range(3):
        known.ended(10, lived=1, failed=True)
    assert known.churn_percent(11) == 50
    assert known.churn_percent(9 + CHURN_WINDOW) == 100, "those that ended first are forgotten"
    assert known.churn_percent(10 + CHURN_WINDOW) == 0
