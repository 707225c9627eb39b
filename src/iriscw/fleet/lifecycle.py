"""The lives of slices and of worker pods, as tables.

Theory of operation, slice. A slice is promised in its group's journal (REQUESTED), asks for its pool
(CREATING), waits for machines (BOOTING), puts a worker pod on each (INITIALIZING), and is READY once all
its workers are registered: never before, and no longer when one is lost (INV-F6). Its end has two phases,
so that nothing is left behind: DRAINING ends the pods, DELETING the pool; it is GONE when both are. FAILED
waits for the group, which alone may decide that a slice goes, because it must write that down first.

::

    requested -> creating -> booting <-> initializing <-> ready
        |            |          |             |             |
        +------------+----------+-------------+-------------+--> failed
        +------------+----------+-------------+-------------+-------+--> draining -> deleting -> gone

Theory of operation, worker pod. A place (VACANT) asks for a pod (CREATING), waits for its worker
(STARTING), and is REGISTERED while the worker is in contact. A pod that ended, was lost or never registered
is deleted (ENDING), and only when it is known to be gone the place is VACANT again: a place never has two
pods that may run (INV-J2). REMOVING is ENDING without a successor.

Every pair of state and event stands in the tables: with the next state, or with the reason why nothing
follows.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeAlias

from iriscw.fleet.model import PodState, SliceState


class SliceEvent(enum.Enum):
    """What can happen to a slice."""

    ASKED = "the pool was asked for"
    ACKNOWLEDGED = "the pool exists"
    NODES_READY = "all nodes are ready"
    NODES_MISSING = "not all nodes are ready"
    WORKERS_READY = "all workers are registered"
    WORKERS_MISSING = "not all workers are registered"
    GAVE_UP = "it cannot become or stay ready"
    DISMISSED = "the group wrote down that it goes"
    PODS_OVER = "all pods are gone, or their grace is over"
    POOL_GONE = "the pool is known to be gone"
    ALL_GONE = "neither pool nor pods are left"


class PodEvent(enum.Enum):
    """What can happen to a worker's place."""

    ASKED = "a pod was asked for"
    ACKNOWLEDGED = "the pod exists"
    REGISTERED = "its worker was accepted"
    GIVEN_UP = "the pod ended, failed or lost contact"
    DISMISSED = "the slice goes"
    POD_GONE = "the pod is known to be gone"


SliceTable: TypeAlias = Mapping[tuple[SliceState, SliceEvent], "SliceState | str"]
PodTable: TypeAlias = Mapping[tuple[PodState, PodEvent], "PodState | str"]

_S, _E = SliceState, SliceEvent
_ALIVE = (_S.REQUESTED, _S.CREATING, _S.BOOTING, _S.INITIALIZING, _S.READY)
_ENDING = (_S.DRAINING, _S.DELETING)
_BEFORE_POOL = (_S.REQUESTED, _S.CREATING)
_BEFORE_PODS = (*_BEFORE_POOL, _S.BOOTING)

IS_OVER = "it is gone"
IS_ENDING = "its end has begun and nothing turns it back"
HAS_FAILED = "it failed; only its group decides what follows"
NO_POOL_YET = "no pool is known yet"
NO_PODS_YET = "pods come after the nodes"
KNOWN = "nothing new"


def _slice_rows() -> dict[tuple[SliceState, SliceEvent], SliceState | str]:
    rows: dict[tuple[SliceState, SliceEvent], SliceState | str] = {}
    for event in _E:
        rows[_S.GONE, event] = IS_OVER
        rows[_S.FAILED, event] = HAS_FAILED
        for state in _ENDING:
            rows[state, event] = IS_ENDING
        for state in _ALIVE:
            rows[state, event] = KNOWN
    for state in _BEFORE_POOL:
        for event in (_E.NODES_READY, _E.NODES_MISSING, _E.POOL_GONE):
            rows[state, event] = NO_POOL_YET
        rows[state, _E.ACKNOWLEDGED] = _S.BOOTING
    for state in _BEFORE_PODS:
        for event in (_E.WORKERS_READY, _E.WORKERS_MISSING):
            rows[state, event] = NO_PODS_YET
    for state in _ALIVE:
        rows[state, _E.GAVE_UP] = _S.FAILED
        rows[state, _E.DISMISSED] = _S.DRAINING
        for event in (_E.PODS_OVER, _E.ALL_GONE):
            rows[state, event] = "it is not being removed"
    for state in (_S.BOOTING, _S.INITIALIZING, _S.READY):
        rows[state, _E.POOL_GONE] = _S.FAILED
    rows[_S.REQUESTED, _E.ASKED] = _S.CREATING
    # Adoption: the journal knows a pool that is not there any more.
    rows[_S.REQUESTED, _E.POOL_GONE] = _S.FAILED
    rows[_S.BOOTING, _E.NODES_READY] = _S.INITIALIZING
    rows[_S.INITIALIZING, _E.NODES_MISSING] = _S.BOOTING
    rows[_S.INITIALIZING, _E.WORKERS_READY] = _S.READY
    rows[_S.READY, _E.NODES_MISSING] = "its workers are in contact, which says more"
    rows[_S.READY, _E.WORKERS_MISSING] = _S.INITIALIZING
    rows[_S.FAILED, _E.DISMISSED] = _S.DRAINING
    rows[_S.DRAINING, _E.PODS_OVER] = _S.DELETING
    rows[_S.DELETING, _E.ALL_GONE] = _S.GONE
    rows[_S.DELETING, _E.POOL_GONE] = "pods are left"
    return rows


SLICE_TABLE: SliceTable = _slice_rows()
"""The next state, or why there is none, for every pair."""

_P, _Q = PodState, PodEvent


def _pod_rows() -> dict[tuple[PodState, PodEvent], PodState | str]:
    rows: dict[tuple[PodState, PodEvent], PodState | str] = {}
    for event in _Q:
        for state in _P:
            rows[state, event] = KNOWN
        rows[_P.ENDING, event] = "the pod is fenced off"
        rows[_P.REMOVING, event] = "the pod is fenced off"
        rows[_P.REMOVED, event] = "the place is gone"
    for event in (_Q.REGISTERED, _Q.GIVEN_UP):
        rows[_P.VACANT, event] = "there is no pod"
    rows[_P.VACANT, _Q.ASKED] = _P.CREATING
    # Adoption: the pod was made by an earlier incarnation of this actor.
    rows[_P.VACANT, _Q.ACKNOWLEDGED] = _P.STARTING
    rows[_P.VACANT, _Q.DISMISSED] = _P.REMOVED
    rows[_P.CREATING, _Q.ACKNOWLEDGED] = _P.STARTING
    # The worker may dial before the answer to the create is here.
    rows[_P.CREATING, _Q.REGISTERED] = _P.REGISTERED
    rows[_P.CREATING, _Q.POD_GONE] = "the answer to the create decides"
    rows[_P.STARTING, _Q.REGISTERED] = _P.REGISTERED
    for state in (_P.CREATING, _P.STARTING, _P.REGISTERED):
        rows[state, _Q.GIVEN_UP] = _P.ENDING
        rows[state, _Q.DISMISSED] = _P.REMOVING
    for state in (_P.STARTING, _P.REGISTERED, _P.ENDING):
        rows[state, _Q.POD_GONE] = _P.VACANT
    rows[_P.ENDING, _Q.DISMISSED] = _P.REMOVING
    rows[_P.REMOVING, _Q.POD_GONE] = _P.REMOVED
    return rows


POD_TABLE: PodTable = _pod_rows()
"""The next state, or why there is none, for every pair."""


def next_slice_state(state: SliceState, event: SliceEvent) -> SliceState | None:
    """Return the state that follows, or None if nothing does."""
    following = SLICE_TABLE[state, event]
    return following if isinstance(following, SliceState) else None


def next_pod_state(state: PodState, event: PodEvent) -> PodState | None:
    """Return the state that follows, or None if nothing does."""
    following = POD_TABLE[state, event]
    return following if isinstance(following, PodState) else None


COMING = (_S.REQUESTED, _S.CREATING, _S.BOOTING, _S.INITIALIZING)
"""States on the way to READY, in order of progress."""

GOING = (_S.DRAINING, _S.DELETING, _S.GONE)
"""States from which no slice comes back."""
