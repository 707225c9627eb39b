"""Slices and scale groups as messages of the wire. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iriscw.cloud.wire import amount
from iriscw.fleet.model import (
    Availability,
    GroupConfig,
    GroupDemand,
    GroupRow,
    RoutedDemand,
    SliceRow,
    SliceState,
)
from iriscw.proto.iriscw import v1
from iriscw.runtime.vocabulary import MILLISECOND

NOBODYS: Mapping[str, tuple[str, ...]] = {}

_SLICE_STATES = {
    SliceState.REQUESTED: v1.SliceState.REQUESTING,
    SliceState.CREATING: v1.SliceState.REQUESTING,
    SliceState.BOOTING: v1.SliceState.BOOTING,
    SliceState.INITIALIZING: v1.SliceState.INITIALIZING,
    SliceState.READY: v1.SliceState.READY,
    SliceState.DRAINING: v1.SliceState.DRAINING,
    SliceState.DELETING: v1.SliceState.DELETING,
    SliceState.GONE: v1.SliceState.DELETING,
    SliceState.FAILED: v1.SliceState.FAILED,
}
_AVAILABILITIES = {
    Availability.AVAILABLE: v1.PoolAvailability.AVAILABLE,
    Availability.COOLDOWN: v1.PoolAvailability.COOLDOWN,
    Availability.AT_MAX: v1.PoolAvailability.AT_MAX_SLICES,
    Availability.BACKOFF: v1.PoolAvailability.BACKOFF,
    Availability.CHURNING: v1.PoolAvailability.BACKOFF,
    Availability.QUOTA_EXCEEDED: v1.PoolAvailability.QUOTA_EXCEEDED,
    Availability.NO_CAPACITY: v1.PoolAvailability.NO_CAPACITY,
    Availability.INVALID: v1.PoolAvailability.INVALID_SPEC,
}


def slice_status(row: SliceRow, workers: list[v1.WorkerStatus]) -> v1.SliceStatus:
    """Write a slice."""
    return v1.SliceStatus(
        slice_id=row.slice_id,
        scale_group=row.group,
        state=_SLICE_STATES[row.state],
        reason=row.reason,
        created_at_ms=_ms(row.requested_at),
        ready_at_ms=_ms(row.ready_at),
        idle_since_ms=_ms(row.idle_since),
        workers=workers,
        expected_at_ms=_ms(row.expected_at),
    )


def pool_status(
    row: GroupRow,
    group: GroupConfig | None,
    slices: tuple[SliceRow, ...],
    demand: GroupDemand | None = None,
    jobs: Mapping[str, tuple[str, ...]] = NOBODYS,
) -> v1.PoolStatus:
    """Write a scale group with counts of its slices, and the demand that it could run; ``jobs`` are whose it is."""
    counts: dict[v1.SliceState, int] = {}
    for each in slices:
        if each.group == row.group:
            state = _SLICE_STATES[each.state]
            counts[state] = counts.get(state, 0) + 1
    details: dict[str, Any] = {}
    if group is not None:
        details = {"node": amount(group.per_worker), "num_vms": group.num_vms, "priority": group.priority}
        details["quota_pool"] = group.quota_pool
    if demand is not None:
        details |= {"routed_tasks": demand.tasks, "demand_count": demand.demands}
        details["demand"] = [_demand(each, jobs.get(each.demand_id, ())) for each in demand.told]
    return v1.PoolStatus(
        scale_group=row.group,
        availability=_AVAILABILITIES[row.availability],
        reason=row.reason,
        min_slices=row.min_slices,
        max_slices=row.max_slices,
        target_slices=max(row.wanted, row.min_slices),
        slices=[v1.SliceCount(state=state, count=count) for state, count in counts.items()],
        quota_used_up_by=row.quota_used_up_by,
        **details,
    )


def _demand(told: RoutedDemand, job_ids: tuple[str, ...]) -> v1.PoolDemand:
    return v1.PoolDemand(
        demand_id=told.demand_id,
        each=amount(told.each),
        tasks=told.tasks,
        takes=told.takes,
        why=told.why,
        before=[v1.PoolPassed(scale_group=group, why=why) for group, why in told.before],
        since_ms=_ms(told.since),
        job_ids=list(job_ids),
    )


def _ms(wall_ns: int | None) -> int:
    return (wall_ns or 0) // MILLISECOND
