"""A throttle admits its rate and its burst, and never more."""

import pytest
from hypothesis import given, strategies as st

from iriscw._errors import InvalidArgument
from iriscw_sims.objects.throttle import Throttle

SECOND = 1_000_000_000


@given(st.integers(1, 50), st.integers(1, 5), st.lists(st.integers(0, SECOND // 10), max_size=60))
def test_in_any_span_no_more_than_the_rate_and_the_burst(rate, burst, gaps):
    """And whoever comes when there is room is admitted."""
    throttle, now, admitted = Throttle(rate, burst), 0, []
    for gap in gaps:
        now += gap
        if throttle.admit(now):
            admitted.append(now)
        else:
            assert sum(at > now - burst * SECOND // rate for at in admitted) >= burst
    for number, at in enumerate(admitted):
        for later in range(number, len(admitted)):
            assert later - number + 1 <= burst + (admitted[later] - at) * rate / SECOND + 1e-6


def test_a_burst_comes_back():
    """After silence as many may come at once as before."""
    throttle = Throttle(10, 3)
    assert [throttle.admit(0) for _ in range(4)] == [True, True, True, False]
    assert [throttle.admit(SECOND) for _ in range(4)] == [True, True, True, False]


def test_no_rate_is_no_limit():
    """A rate of 0 admits everything; other nonsense is refused."""
    throttle = Throttle(0, 1)
    assert all(throttle.admit(0) for _ in range(1000))
    for rate, burst in ((-1, 1), (1, 0)):
        with pytest.raises(InvalidArgument):
            Throttle(rate, burst)
