"""Requests leave in order, a burst at once, and never more than the rate allows."""

import pytest
from hypothesis import given, strategies as st
from kube_shell import SECOND

from iriscw._errors import InvalidArgument
from iriscw.cloud.kube.limits import RateLimit


@given(
    st.floats(0.01, 1000),
    st.integers(1, 50),
    st.lists(st.integers(0, 2 * SECOND), min_size=1, max_size=60),
)
def test_never_more_than_burst_and_rate_nor_less(qps, burst, gaps):
    """In any window at most ``burst`` and what the rate allows within it; and each leaves as soon as it may."""
    limit, now, asked, left = RateLimit(qps, burst), 5, [], []
    for gap in gaps:
        now += gap
        asked.append(now)
        left.append(now + limit.take(now))
    assert left == sorted(left), "order is kept"
    interval = round(SECOND / qps)
    for last, leaves in enumerate(left):
        for first in range(last + 1):
            assert last - first + 1 <= burst + (leaves - left[first]) // interval
        allowed = [left[first] + (last - first + 1 - burst) * interval for first in range(last)]
        assert leaves == max(asked[last], *allowed, 0), "it waits for nothing else"


@given(st.floats(0.01, 1000), st.integers(1, 5), st.lists(st.integers(0, 2 * SECOND), min_size=1, max_size=20))
def test_to_look_takes_nothing(qps, burst, gaps):
    """How long the next place is away is told as often as one likes, and is what taking it tells."""
    limit, now = RateLimit(qps, burst), 5
    for gap in gaps:
        now += gap
        looks = [limit.wait(now) for _ in range(3)]
        assert [limit.take(now)] * 3 == looks


@given(st.floats(0.1, 1000), st.integers(1, 50))
def test_a_rested_limit_lets_a_burst_go_at_once(qps, burst):
    """And makes the next one wait; after a rest it is whole again."""
    limit = RateLimit(qps, burst)
    for now in (0, 10**15):
        assert [limit.take(now) for _ in range(burst)] == [0] * burst
        assert limit.take(now) == round(SECOND / qps)


@pytest.mark.parametrize(("qps", "burst"), [(0, 1), (-1, 1), (1, 0), (2e6, 1), (float("nan"), 1)])
def test_limits_that_cannot_be(qps, burst):
    """They are the caller's mistake."""
    with pytest.raises(InvalidArgument):
        RateLimit(qps, burst)
