"""Whether a worker that dials may register, as a pure judgement.

A worker is who its incarnation says, never who its address says: machines get addresses that others had
before. So the first question is whether this incarnation is the one that holds the place; everyone else is
fenced off for good. The second is whether the worker keeps its group's promise: work is placed by what
groups promise, so a worker with less would fail tasks one by one instead of failing once, by name. GPUs beyond the
promise are not counted.
"""

from __future__ import annotations

import attrs

from iriscw.cloud.model import Attributes
from iriscw.fleet.messages import WorkerDialled
from iriscw.fleet.model import SLICE_ID, WORKER_ID, GroupConfig, PodState, WorkerInfo, WorkerRefused

HOLDING = (PodState.CREATING, PodState.STARTING, PodState.REGISTERED)
"""States in which a place has an incarnation that may register."""


def judge_dial(
    dial: WorkerDialled, *, config: GroupConfig, slice_id: str, state: PodState, incarnation: str, briefed: bool
) -> WorkerInfo | WorkerRefused:
    """Return the registration, or why there is none.

    Args:
        dial: what the worker says of itself.
        config: the group that makes the promise.
        slice_id: the slice of this place.
        state: of the place.
        incarnation: who holds the place.
        briefed: whether it is known yet which pods exist here.
    """
    if not briefed:
        return WorkerRefused("the controller has just started and does not know its pods yet: dial again")
    if state not in HOLDING or dial.incarnation != incarnation:
        return WorkerRefused(
            f"worker {dial.worker_id} is fenced off: its incarnation {dial.incarnation!r} does not hold this place",
            fenced=True,
        )
    promised = config.per_worker
    short = dial.capacity.lacking(promised)
    if short:
        details = ", ".join(
            f"{name} {getattr(dial.capacity, _FIELDS[name])} < {getattr(promised, _FIELDS[name])}"
            if name != "gpu_class"
            else f"gpu_class {dial.capacity.gpu_class!r} is not {promised.gpu_class!r}"
            for name in short
        )
        return WorkerRefused(f"worker {dial.worker_id} has less than scale group {config.name!r} promises: {details}")
    # More than was promised is nobody's to place work on: it may be another worker's of the same machine.
    gpu_class = dial.capacity.gpu_class if promised.gpu_count else ""
    capacity = attrs.evolve(dial.capacity, gpu_count=promised.gpu_count, gpu_class=gpu_class)
    known = Attributes({SLICE_ID: slice_id, WORKER_ID: dial.worker_id, "group": config.name})
    return WorkerInfo(
        worker_id=dial.worker_id,
        incarnation=incarnation,
        slice_id=slice_id,
        group=config.name,
        capacity=capacity,
        attributes=dial.attributes.merged(config.attributes).merged(known),
        address=dial.address,
        node=dial.node,
    )


_FIELDS = {"cpu": "cpu_milli", "memory": "memory_bytes", "disk": "disk_bytes", "gpu": "gpu_count"}
