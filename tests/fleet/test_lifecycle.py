"""The tables of slices and pods: complete, and shaped as the prose says."""

from __future__ import annotations

import pytest

from iriscw.fleet.lifecycle import (
    COMING,
    GOING,
    POD_TABLE,
    SLICE_TABLE,
    PodEvent,
    SliceEvent,
    next_pod_state,
    next_slice_state,
)
from iriscw.fleet.model import PodState, SliceState


def test_every_pair_is_decided():
    """Each pair of state and event has a next state, or a reason why nothing follows."""
    assert set(SLICE_TABLE) == {(state, event) for state in SliceState for event in SliceEvent}
    assert set(POD_TABLE) == {(state, event) for state in PodState for event in PodEvent}
    for table in (SLICE_TABLE, POD_TABLE):
        for (state, _), following in table.items():
            assert following is not state
            assert not isinstance(following, str) or following


def reach(table, start):
    found, todo = {start}, [start]
    while todo:
        here = todo.pop()
        for (state, _), following in table.items():
            if state is here and not isinstance(following, str) and following not in found:
                found.add(following)
                todo.append(following)
    return found


def test_every_state_can_be_reached():
    """No state of the tables is dead."""
    assert reach(SLICE_TABLE, SliceState.REQUESTED) == set(SliceState)
    assert reach(POD_TABLE, PodState.VACANT) == set(PodState)


@pytest.mark.parametrize("state", [*COMING, SliceState.READY, SliceState.FAILED])
def test_what_was_dismissed_never_comes_back(state):
    """A slice goes only by the group's word, and from there leads no way back."""
    assert next_slice_state(state, SliceEvent.DISMISSED) is SliceState.DRAINING
    entries = {
        (state, event) for (state, event), following in SLICE_TABLE.items() if following in GOING and state not in GOING
    }
    assert {event for _, event in entries} == {SliceEvent.DISMISSED}
    assert reach(SLICE_TABLE, SliceState.DRAINING) == set(GOING)


def test_ready_needs_all_workers():
    """Only one event makes a slice ready, and only in one state (INV-F6)."""
    entries = [pair for pair, following in SLICE_TABLE.items() if following is SliceState.READY]
    assert entries == [(SliceState.INITIALIZING, SliceEvent.WORKERS_READY)]
    assert next_slice_state(SliceState.READY, SliceEvent.WORKERS_MISSING) is SliceState.INITIALIZING


def test_a_place_is_vacant_only_when_the_pod_is_gone():
    """A successor is asked for only when the predecessor is known to be gone (INV-J2)."""
    entries = {pair[1] for pair, following in POD_TABLE.items() if following is PodState.VACANT}
    assert entries == {PodEvent.POD_GONE}
    assert next_pod_state(PodState.ENDING, PodEvent.REGISTERED) is None
    assert reach(POD_TABLE, PodState.REMOVING) == {PodState.REMOVING, PodState.REMOVED}
