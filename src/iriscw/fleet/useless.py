"""Which idle slices nothing that waits could use, as their workers registered: pure.

Theory of operation. All slices of a group promise the same, so what fits one fits all, but for what only a running
worker says of itself (:data:`iriscw.fleet.model.DECIDED_BY_WORKERS`): which Python it has, say. After a new image a
group may be full of slices that run the old one, kept by ``min_slices``, while all that waits asks for the new. Of an
idle slice that any of the waiting demand could run on nothing is said here: it is on its way there, or is kept for the
rest of a gang.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from iriscw.cloud.model import Attributes, Capacity
from iriscw.fleet.messages import DemandEntry
from iriscw.fleet.model import DECIDED_BY_WORKERS, SLICE_ID, WORKER_ID


@attrs.frozen
class IdleSlice:
    """A slice that is ready, and on which nothing runs."""

    slice_id: str
    workers: tuple[Attributes, ...]
    """What each of its workers is like."""


def is_choosy(entry: DemandEntry) -> bool:
    """Tell whether slices of one group may differ in whether this could run there."""
    by_worker = entry.gang_by not in (SLICE_ID, WORKER_ID) and entry.gang_size > 1
    return by_worker or any(each.required and each.key in DECIDED_BY_WORKERS for each in entry.constraints)


def useless(fitting: Sequence[DemandEntry], idle: Sequence[IdleSlice], worker: Capacity) -> tuple[str, ...]:
    """Return the slices on which none of the demand could run, in the order in which they come.

    Args:
        fitting: what waits, and could run on some slice of the group.
        idle: slices of the group whose workers are known.
        worker: what each worker of the group promises.
    """
    if not fitting:
        return ()
    asked = dict.fromkeys(each.key for entry in fitting for each in entry.constraints if each.required)
    asked |= dict.fromkeys(entry.gang_by for entry in fitting if entry.gang_size > 1)
    judged: dict[tuple[Attributes, ...], bool] = {}
    found = []
    for each in idle:
        kind = tuple(
            Attributes({name: value for name, value in worker.pairs if name in asked}) for worker in each.workers
        )
        if kind not in judged:
            judged[kind] = any(could_run(kind, entry, worker) for entry in fitting)
        if not judged[kind]:
            found.append(each.slice_id)
    return tuple(found)


def could_run(workers: Sequence[Attributes], entry: DemandEntry, worker: Capacity) -> bool:
    """Whether tasks of one demand could run on a slice with these workers while nothing else does."""
    required = [each for each in entry.constraints if each.required]
    able = [each for each in workers if all(constraint.satisfied(each) for constraint in required)]
    if entry.gang_size == 1 or entry.gang_by == WORKER_ID:
        return bool(able)
    if entry.gang_by == SLICE_ID:
        return len(able) * worker.times(entry.demand) >= entry.gang_size
    values = dict.fromkeys(each.get(entry.gang_by) for each in workers)
    return len(able) == len(workers) and len(values) == 1 and None not in values
