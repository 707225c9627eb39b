"""Policies compared on traces: Greedy-Dual beside LRU, and both beside one that knows the future."""

import pytest

from iriscw.checkpoint.tiering.policies import GreedyDual, LeastRecentlyUsed
from iriscw_sims.tiering.pictures import PAGE, PICTURE, drawn, replayed, rows_of
from iriscw_sims.tiering.replay import replay
from iriscw_sims.tiering.traces import TRACES, zipf

REQUESTS = 260
ROWS = rows_of(PAGE.read_text("utf-8"))


def waited(make):
    """Return how long requests waited on a trace, by policy, as the page has it."""
    return {row.policy: row.waited_h for row in ROWS if row.trace == make.__name__}


@pytest.mark.parametrize("make", TRACES)
def test_greedy_dual_is_not_much_worse_anywhere(make):
    """A seventh at the worst; and who knows the future waits least."""
    hours = waited(make)
    assert hours["Greedy-Dual"] <= 1.15 * hours["LRU"]
    assert hours["clairvoyant"] < min(hours["LRU"], hours["Greedy-Dual"])


@pytest.mark.slow
def test_greedy_dual_is_better_with_mixed_sizes():
    """Where popularity lasts: on the page, and on a trace that is replayed now."""
    assert waited(zipf)["Greedy-Dual"] < waited(zipf)["LRU"]
    trace = zipf(1, REQUESTS)
    lru, greedy = (replay(trace, policy) for policy in (LeastRecentlyUsed(), GreedyDual()))
    assert greedy.waited_s < lru.waited_s
    assert lru.refused == greedy.refused == 0


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("make", TRACES)
def test_the_table_is_what_the_replays_give(make):
    """``python -m iriscw_sims.tiering.pictures`` writes it."""
    assert replayed(make, "Greedy-Dual") in ROWS


def test_a_replay_is_the_same_each_time():
    """From the seed alone."""
    assert zipf(7, 60) == zipf(7, 60)
    assert replay(zipf(7, 60), GreedyDual()) == replay(zipf(7, 60), GreedyDual())


def test_the_picture_is_drawn_from_the_table():
    """``python -m iriscw_sims.tiering.pictures`` writes both."""
    assert len(ROWS) == 3 * len(TRACES)
    assert all(str(row) in PAGE.read_text("utf-8") for row in ROWS)
    assert PICTURE.read_text("utf-8") == drawn(ROWS)
