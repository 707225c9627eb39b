"""What a scale group does on each message: the decisions, bound to :mod:`iriscw.fleet.groups.group` (what it
sees) and :mod:`iriscw.fleet.groups.scaling` (what it does about it).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iriscw.cloud.model import NodePool, Removed, Upserted
from iriscw.fleet.groups.group import (
    Group,
    look,
    pod_removed,
    pod_seen,
    pods_listed,
    pool_removed,
    pool_seen,
    pools_listed,
    slice_broken,
    slice_started,
    try_open,
    workers_missed,
)
from iriscw.fleet.groups.scaling import cordoned, evaluate, slice_reported, withdraw_cordon
from iriscw.fleet.messages import ReopenGroup, SchedulerStarted, WorkersMissed
from iriscw.fleet.signals import (
    CordonAnswered,
    Evaluate,
    Overdue,
    PodsListed,
    PoolsListed,
    SliceReported,
    SliceStarted,
    SlicesWanted,
    Takeover,
    TryAgain,
)
from iriscw.runtime.vocabulary import (
    SECOND,
    CancelTimer,
    Command,
    Completed,
    Context,
    DecisionFunction,
    Failed,
    Outcome,
    SetTimer,
    Tell,
    Terminated,
    Undelivered,
)

RETELL_DELAY = 1 * SECOND
"""Before what found a full mailbox is told again."""


def on_pools_listed(group: Group, message: PoolsListed, ctx: Context) -> Outcome:
    """Take the complete list of pools."""
    return tuple(pools_listed(group, message.pools, ctx))


def on_pods_listed(group: Group, message: PodsListed, ctx: Context) -> Outcome:
    """Take the complete list of pods."""
    return tuple(pods_listed(group, message.pods, ctx))


def on_upserted(group: Group, message: Upserted, ctx: Context) -> Outcome:
    """Take note of one pool or pod."""
    thing = message.object
    seen = pool_seen(group, thing, ctx) if isinstance(thing, NodePool) else pod_seen(group, thing, ctx)
    return tuple(seen)


def on_removed(group: Group, message: Removed, ctx: Context) -> Outcome:
    """Take note that one pool or pod is gone."""
    thing = message.object
    gone = pool_removed(group, thing, ctx) if isinstance(thing, NodePool) else pod_removed(group, thing, ctx)
    return tuple(gone)


def on_takeover(group: Group, message: Takeover, ctx: Context) -> Outcome:
    """Nobody else can act any more."""
    group.sight.takeover_over = True
    return tuple(try_open(group, ctx))


def on_wanted(group: Group, message: SlicesWanted, ctx: Context) -> Outcome:
    """Take note of the demand that was routed here."""
    if group.sight.wanted == message:
        return None
    group.sight.wanted = message
    return tuple(look(group))


def on_slice_started(group: Group, message: SliceStarted, ctx: Context) -> Outcome:
    """Brief a slice."""
    return tuple(slice_started(group, message.slice_id, ctx))


def on_slice_reported(group: Group, message: SliceReported, ctx: Context) -> Outcome:
    """Take note of how a slice stands."""
    return slice_reported(group, message, ctx)


def on_terminated(group: Group, message: Terminated, ctx: Context) -> Outcome:
    """A slice's actor is gone: as told, or for good."""
    return tuple(slice_broken(group, message.path.name, message.reason, ctx))


def on_overdue(group: Group, message: Overdue, ctx: Context) -> Outcome:
    """The scheduler did not answer."""
    return tuple(withdraw_cordon(group, ctx))


def on_scheduler_started(group: Group, message: SchedulerStarted, ctx: Context) -> Outcome:
    """Tell a new scheduler of all workers; until it has heard of what runs on them, nothing is removed."""
    sight = group.sight
    sight.cordon = None
    sight.quiet_until = ctx.now + group.config.timing.scale_down_delay
    told: list[Command] = [Tell(ctx.path / name, SchedulerStarted()) for name in sight.started]
    return (CancelTimer("cordon"), *told)


def on_workers_missed(group: Group, message: WorkersMissed, ctx: Context) -> Outcome:
    """The scheduler misses workers of slices of this group."""
    return tuple(workers_missed(group, message.places, ctx))


def on_reopen(group: Group, message: ReopenGroup, ctx: Context) -> Outcome:
    """An operator has changed what closed the group."""
    group.sight.closure = None
    group.sight.failures.clear()
    group.sight.last_request = None
    return tuple(look(group))


def on_completed(group: Group, message: Completed, ctx: Context) -> Outcome:
    """The deletion of an orphan was acknowledged; until it is seen to be gone it is asked for again."""
    sight, timing = group.sight, group.config.timing
    return tuple(sight.orphans.answered(_orphan_name(message), None, timing, ctx.rng))


def on_failed(group: Group, message: Failed, ctx: Context) -> Outcome:
    """The deletion of an orphan failed."""
    sight, timing = group.sight, group.config.timing
    return (*sight.orphans.answered(_orphan_name(message), message.error, timing, ctx.rng), *look(group))


def _orphan_name(message: Completed | Failed) -> str:
    assert isinstance(message.key, tuple)
    assert message.key[0] == "orphan"
    return str(message.key[1])


def on_try_again(group: Group, message: TryAgain, ctx: Context) -> Outcome:
    """Put an orphan back in line, or tell again what found a full mailbox."""
    if message.what == "retell":
        group.sight.told = None
    else:
        group.sight.orphans.try_again(message.what)
    return tuple(look(group))


def on_undelivered(group: Group, message: Undelivered, ctx: Context) -> Outcome:
    """Bring a slice up to date that had no room for a message; a cordon is left to its deadline."""
    if isinstance(message.message, WorkersMissed):
        return None  # The scheduler asks again.
    name = message.to.name
    if message.to.parent == ctx.path:
        return (SetTimer(("again", name), RETELL_DELAY, SliceStarted(name)),)
    return (SetTimer("retell", RETELL_DELAY, TryAgain("retell")),)


RULES: Mapping[type[Any], DecisionFunction] = {
    PoolsListed: on_pools_listed,
    PodsListed: on_pods_listed,
    Upserted: on_upserted,
    Removed: on_removed,
    Takeover: on_takeover,
    SlicesWanted: on_wanted,
    SliceStarted: on_slice_started,
    SliceReported: on_slice_reported,
    Evaluate: evaluate,
    CordonAnswered: cordoned,
    Overdue: on_overdue,
    SchedulerStarted: on_scheduler_started,
    WorkersMissed: on_workers_missed,
    ReopenGroup: on_reopen,
    Terminated: on_terminated,
    Completed: on_completed,
    Failed: on_failed,
    TryAgain: on_try_again,
    Undelivered: on_undelivered,
}
"""The decision for each message a group accepts."""
