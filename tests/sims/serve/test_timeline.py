"""Simulated time: it follows the clock, and passes no timer that has not run."""

import pytest
from hypothesis import given, strategies as st

from iriscw_sims.serve import timeline as module
from iriscw_sims.serve.timeline import Clock, Timeline, TooManyTimers
from raised import that

SECOND = 1_000_000_000


class Hands:
    """A clock whose hands the test moves."""

    def __init__(self, speed=1.0, start=0):
        self.ns = 5 * SECOND
        self.timeline = Timeline(Clock(start, lambda: self.ns, speed))

    def run(self):
        """Let everything happen that is due."""
        while (timer := self.timeline.take()) is not None:
            timer.run()


def test_time_follows_the_clock_at_its_speed():
    """A real second is sixty simulated ones, from the given start on."""
    hands = Hands(speed=60, start=100 * SECOND)
    assert hands.timeline.now == 100 * SECOND
    hands.ns += 2 * SECOND
    assert hands.timeline.catch_up() == 220 * SECOND
    assert hands.timeline.clock.real_s(120 * SECOND) == 2.0


def test_a_timer_sees_its_own_moment():
    """However late it runs, it is the moment it was set for; what it sets counts from there."""
    hands, seen = Hands(), []

    def ring():
        seen.append(hands.timeline.now)
        hands.timeline.after(SECOND, lambda: seen.append(hands.timeline.now))

    hands.timeline.after(SECOND, ring)
    hands.ns += 10 * SECOND
    hands.run()
    assert seen == [SECOND, 2 * SECOND]
    assert hands.timeline.now == 10 * SECOND


def test_time_passes_no_timer_that_did_not_run():
    """A machine that is too slow has a slower simulation, and says by how much."""
    hands = Hands()
    hands.timeline.after(SECOND, lambda: None)
    hands.ns += 10 * SECOND
    assert hands.timeline.catch_up() == SECOND
    assert hands.timeline.behind == 9 * SECOND
    hands.run()
    assert hands.timeline.behind == 0


@given(st.lists(st.integers(-5, 50), max_size=30))
def test_timers_run_in_order(delays):
    """By moment, and those of the same moment as they were set; what lies in the past is due now."""
    hands, seen = Hands(), []
    for number, delay in enumerate(delays):
        hands.timeline.after(delay, seen.append, (max(0, delay), number))
    hands.ns += 100
    hands.run()
    assert seen == sorted(seen)
    assert len(seen) == len(delays)


def test_the_next_timer_is_known_in_real_seconds():
    """That is how long one may sleep; 0 if it is overdue, nothing if there is none."""
    hands = Hands(speed=10)
    assert hands.timeline.next_s() is None
    hands.timeline.after(20 * SECOND, lambda: None)
    assert hands.timeline.next_s() == 2.0
    hands.ns += 60 * SECOND
    assert hands.timeline.next_s() == 0.0


def test_who_waits_for_the_next_timer_hears_of_a_sooner_one():
    """Of that one only: the others are found when it is due."""
    hands, heard = Hands(), []
    hands.timeline.sooner = lambda: heard.append(hands.timeline.next_s())
    for delay_s in (10, 20, 5, 5, 7):
        hands.timeline.after(delay_s * SECOND, lambda: None)
    assert heard == [10.0, 5.0]


def test_timers_are_bounded(monkeypatch):
    """One that runs away is told so."""
    monkeypatch.setattr(module, "TIMERS_LIMIT", 3)
    hands = Hands()
    for _ in range(3):
        hands.timeline.after(1, lambda: None)
    with pytest.raises(TooManyTimers, check=that(comes_from="timeline.Timeline.after", names="3")):
        hands.timeline.after(1, lambda: None)
    assert hands.timeline.waiting == 3
