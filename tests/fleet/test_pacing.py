"""Backoff and token buckets."""

from __future__ import annotations

from random import Random

from hypothesis import given, strategies as st

from iriscw.fleet.pacing import TokenBucket, backoff


@given(st.integers(1, 100), st.integers(1, 10**10), st.integers(0, 10**12), st.integers())
def test_backoff_doubles_within_its_bounds(count, first, more, seed):
    """Each wait lies in the upper quarter of the doubled one, and never above the longest."""
    longest = first + more
    plain = min(longest, first * 2 ** (count - 1))
    wait = backoff(count, first, longest, Random(seed))
    assert plain - plain // 4 <= wait <= plain or wait == 1


def test_backoff_spreads():
    """Many that failed together do not return together."""
    rng = Random(1)
    assert len({backoff(1, 10**9, 10**10, rng) for _ in range(100)}) > 90


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 40))), st.integers(1, 8), st.integers(1, 10))
def test_a_bucket_never_gives_more_than_its_rate(asks, burst, interval):
    """Within any run at most the burst and one per interval are taken; a wait of 0 means there is one."""
    bucket = TokenBucket(burst, interval)
    now = taken = 0
    for pause, count in asks:
        now += pause
        assert (bucket.wait(now) == 0) == (bucket.available(now) > 0)
        before = bucket.available(now)
        got = bucket.take(count, now)
        assert got == min(count, before)
        taken += got
        assert taken <= burst + now // interval
        wait = bucket.wait(now)
        if wait:
            assert bucket.available(now + wait - 1) == 0
            assert bucket.available(now + wait) == 1
            now += wait


@given(st.lists(st.integers(0, 40), min_size=1), st.integers(2, 8), st.integers(1, 10))
def test_a_bucket_gives_all_of_its_rate(pauses, burst, interval):
    """Who takes whatever there is gets the burst and then one per interval, however often it comes: fractions count."""
    bucket = TokenBucket(burst, interval)
    assert bucket.take(burst, 0) == burst
    now = taken = 0
    for pause in pauses:
        now += min(pause, interval * (burst - 1))  # so it never stands full, where what falls in is lost
        taken += bucket.take(burst, now)
        assert taken == now // interval


def test_a_full_bucket_saves_nothing_up():
    """Time that passes while it is full, or fills it, does not count for the next token."""
    bucket = TokenBucket(2, 10)
    bucket.take(1, 0)
    assert bucket.take(2, 15) == 2
    assert bucket.wait(15) == 10
