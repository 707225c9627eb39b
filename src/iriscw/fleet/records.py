"""What a scale group promises in the journal: which slices exist, and which of them go.

A slice's record comes before anything of it exists outside (INV-F1), and is dropped when nothing is left.
Everything else about a slice is read from the cloud.
"""

from __future__ import annotations

import attrs

from iriscw.journal.records import record
from iriscw.runtime.vocabulary import message


@record("fleet.slice_requested", version=1)
@message
class SliceRequested:
    """A slice was promised: its pool may exist from now on. Wall-clock ns."""

    slice_id: str
    requested_at_ns: int


@record("fleet.slice_pool_created", version=1)
@message
class SlicePoolCreated:
    """The slice's pool was seen, with this uid: a slice without it has lost it, and is not created again."""

    slice_id: str
    pool_uid: str


@record("fleet.slice_doomed", version=1)
@message
class SliceDoomed:
    """It was decided that the slice goes; nothing turns that back."""

    slice_id: str
    reason: str


@record("fleet.slice_deleted", version=1)
@message
class SliceDeleted:
    """Neither pool nor pods of the slice are left."""

    slice_id: str


@attrs.define
class SlicePromise:
    """What is promised about one slice."""

    requested_at_ns: int
    pool_uid: str = ""
    doomed: str = ""


Promises = dict[str, SlicePromise]
"""By slice id, in the order of their requests."""


def evolve(promises: Promises, fact: object) -> None:
    """Apply a record. Total: what names an unknown slice changes nothing."""
    match fact:
        case SliceRequested():
            promises[fact.slice_id] = SlicePromise(fact.requested_at_ns)
        case SlicePoolCreated():
            if fact.slice_id in promises:
                promises[fact.slice_id].pool_uid = fact.pool_uid
        case SliceDoomed():
            if fact.slice_id in promises:
                promises[fact.slice_id].doomed = fact.reason
        case SliceDeleted():
            promises.pop(fact.slice_id, None)


def compact(promises: Promises) -> list[object]:
    """Return records from which the same promises follow."""
    records: list[object] = []
    for slice_id, promise in promises.items():
        records.append(SliceRequested(slice_id, promise.requested_at_ns))
        if promise.pool_uid:
            records.append(SlicePoolCreated(slice_id, promise.pool_uid))
        if promise.doomed:
            records.append(SliceDoomed(slice_id, promise.doomed))
    return records
