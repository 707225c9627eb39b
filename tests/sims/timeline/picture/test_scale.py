"""Where times stand."""

import pytest
from hypothesis import given, strategies as st

from iriscw_sims.timeline.picture.scale import MAX_FINE_TICKS, MAX_TICKS, Scale, at_zoom, length, short

SECOND = 1_000_000_000
TIMES = st.integers(0, 400 * 86_400 * SECOND)


def test_moments_stand_in_percent():
    """The beginning is 0, the end 100; what lies outside stands at the edge."""
    scale = Scale.over(10 * SECOND, 20 * SECOND)
    assert [scale.share(at * SECOND) for at in (0, 10, 15, 20, 99)] == [0, 0, 50, 100, 100]


def test_a_run_of_no_time_has_a_width():
    """Nothing is divided by zero."""
    assert Scale.over(5, 5).share(5) == 0


@given(TIMES, TIMES)
def test_ticks_are_few_and_within(one, other):
    """A screen has room for them, and with a closer view for the finer ones."""
    scale = Scale.over(min(one, other), max(one, other))
    ticks = list(scale.ticks())
    assert len(ticks) <= MAX_FINE_TICKS + 1
    assert sum(coarse for _, coarse in ticks) <= MAX_TICKS + 1
    assert all(scale.began <= at <= scale.ended for at, _ in ticks)


def test_texts_wait_for_their_room():
    """What is too narrow is shown from a zoom on, or never."""
    scale = Scale.over(0, SECOND)
    assert [scale.zoom_for(share, 50) for share in (50, 5, 3, 1, 0.001)] == [1, 2, 4, 8, None]
    assert [at_zoom(zoom) for zoom in (1, 8)] == ["", "z8"]


@pytest.mark.parametrize(
    ("at_s", "written"), [(0, "0 s"), (59, "59 s"), (80, "1:20"), (7_261, "2:01:01"), (273_600, "3 d 04:00")]
)
def test_the_axis_is_short(at_s, written):
    """Moments on the axis have no more than they need."""
    assert short(at_s * SECOND) == written


@pytest.mark.parametrize(
    ("ns", "written"),
    [
        (250_000_000, "0.25 s"),
        (12_400_000_000, "12.4 s"),
        (60 * SECOND, "1 min"),
        (101 * SECOND, "1 min 41 s"),
        (7_200 * SECOND, "2 h"),
        (90_061 * SECOND, "1 d 1 h"),
    ],
)
def test_lengths_are_for_people(ns, written):
    """As precise as they are read."""
    assert length(ns) == written
