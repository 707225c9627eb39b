"""How often workers beat: bounded in sum, bounded for each, and told when it is news."""

from hypothesis import given, strategies as st

from iriscw.controller.heartbeats import MAX_HEARTBEATS_PER_S, Heartbeats

CLOUD = Heartbeats(12_000, 24_000)
"""Of workers that are lost after a minute."""

sizes = st.integers(0, 100_000)
intervals = st.builds(lambda shortest, more: Heartbeats(shortest, shortest + more), *[st.integers(1, 100_000)] * 2)


def test_a_fleet_at_rest() -> None:
    """Small fleets beat as often as ever, larger ones as often in sum, the largest at the longest interval."""
    assert [CLOUD.interval_ms(workers) for workers in (0, 1, 1_000, 3_000)] == [12_000] * 4
    assert [CLOUD.interval_ms(workers) for workers in (4_000, 5_000, 6_000)] == [16_000, 20_000, 24_000]
    assert [workers / CLOUD.interval_ms(workers) for workers in (4_000, 5_000, 6_000)] == [
        MAX_HEARTBEATS_PER_S / 1e3
    ] * 3
    assert CLOUD.interval_ms(12_000) == 24_000


@given(intervals, sizes, sizes)
def test_the_interval_is_bounded_and_grows_with_the_fleet(beats: Heartbeats, few: int, more: int) -> None:
    """For each worker by the shortest and the longest; in sum, as far as the longest allows."""
    few, more = sorted((few, more))
    interval_ms = beats.interval_ms(more)
    assert beats.shortest_ms <= beats.interval_ms(few) <= interval_ms <= beats.longest_ms
    if interval_ms < beats.longest_ms:
        assert 1_000 * more < beats.per_s * (interval_ms + 1)


@given(intervals, sizes, sizes)
def test_what_is_told_is_good_enough(beats: Heartbeats, before: int, after: int) -> None:
    """Once told, nothing is news until the fleet has changed; what is not told differs by an eighth at most."""
    told_ms = beats.interval_ms(before)
    assert beats.news_ms(told_ms, before) == 0
    news_ms = beats.news_ms(told_ms, after)
    assert news_ms in (0, beats.interval_ms(after))
    assert abs((news_ms or told_ms) - beats.interval_ms(after)) <= told_ms / 8
    assert beats.news_ms(beats.interval_ms(after), after) == 0


def test_progress_is_told_less_often_by_many() -> None:
    """Each second by a few, and as often in sum by many as they beat."""
    assert [CLOUD.progress_ms(workers) for workers in (0, 1, 250, 1_000, 5_000)] == [1_000, 1_000, 1_000, 4_000, 20_000]


def test_workers_that_come_and_go_are_no_news() -> None:
    """Of 5,000 workers a few hundred may come or go before anybody is told another interval."""
    told_ms = CLOUD.interval_ms(5_000)
    assert not any(CLOUD.news_ms(told_ms, workers) for workers in range(4_500, 5_500))
    assert CLOUD.news_ms(told_ms, 4_300)
    assert CLOUD.news_ms(told_ms, 5_700)
