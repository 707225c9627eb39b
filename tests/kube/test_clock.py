"""Times as the API writes them."""

import pytest
from hypothesis import given, strategies as st

from iriscw_sims.kube.clock import micro, parsed, written

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
