"""Times as the API writes them."""

import pytest
from hypothesis import given, strategies as st

from iriscw_sims.kube.clock import go_duration, micro, parsed, written, written_micro

SECOND = 1_000_000_000


@given(st.integers(0, 4_000_000_000))
def test_what_is_written_is_read_back(second):
    """Law: a time to the second survives."""
    assert parsed(written(second * SECOND + 999_999_999)) == second * SECOND


def test_times_with_zones_and_fractions():
    """Zones are taken off, fractions kept to the nanosecond."""
    assert parsed("1970-01-01T01:00:00.5+01:00") == SECOND // 2
    assert parsed("1970-01-01T00:00:00-00:30") == 1800 * SECOND


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01T00:00:00Z", "2026-01-01", "2026-01-01T00:00:00"])
def test_what_is_no_time(text):
    """Other texts are none."""
    assert parsed(text) is None


def test_times_to_the_microsecond_need_six_digits():
    """Go's layout of a MicroTime takes exactly six."""
    assert micro("2026-01-02T03:04:05.678901+00:00") == "2026-01-02T03:04:05.678901Z"
    assert micro("2026-01-02T03:04:05Z") is None
    assert micro("2026-01-02T03:04:05.5Z") is None


@given(st.integers(0, 2**62))
def test_microseconds_are_written_as_they_are_read(now):
    """Cut off below."""
    assert parsed(written_micro(now)) == now // 1000 * 1000
    assert micro(written_micro(now)) == written_micro(now)


@given(st.integers(-(2**63), 2**63 - 1))
def test_go_durations_have_64_bits(seconds):
    """What fits is what it is; what does not wraps around, by whole turns."""
    span = go_duration(seconds)
    assert -(2**63) <= span < 2**63
    assert (span - seconds * 10**9) % 2**64 == 0
    assert abs(seconds) > 2**63 // 10**9 or span == seconds * 10**9
