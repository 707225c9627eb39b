"""Promises: what the journal says about slices."""

from __future__ import annotations

from hypothesis import given, strategies as st

from iriscw.fleet.records import (
    SliceDeleted,
    SliceDoomed,
    SlicePoolCreated,
    SliceRequested,
    compact,
    evolve,
)

names = st.sampled_from(["a", "b", "c"])
facts = st.one_of(
    st.builds(SliceRequested, names, st.integers(0, 100)),
    st.builds(SlicePoolCreated, names, st.sampled_from(["u1", "u2"])),
    st.builds(SliceDoomed, names, st.sampled_from(["old", "failed"])),
    st.builds(SliceDeleted, names),
)


def replay(records):
    promises = {}
    for each in records:
        evolve(promises, each)
    return promises


@given(st.lists(facts, max_size=30))
def test_evolving_is_total_and_a_snapshot_says_the_same(history):
    """No history of facts fails, and the compacted one makes equal promises in the same order."""
    promises = replay(history)
    again = replay(compact(promises))
    assert again == promises
    assert list(again) == list(promises)


def test_facts_about_the_unknown_change_nothing():
    """A fact about a slice that is not promised makes no promise."""
    assert replay([SlicePoolCreated("a", "u"), SliceDoomed("a", "x"), SliceDeleted("a")]) == {}
