"""What the scheduler tells the fleet: how much lives on each worker, and what cannot be placed.

Both are states of which only the latest matters, so a message replaces an earlier one that still waits. Activity is
told of some workers at a time (INV-R10). Demand is told when it has changed, at most once in ``DEMAND_INTERVAL``; what
only the wrong Python or an old iriscw stands against is left out, since more workers of the same image would not help.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from iriscw.fleet.messages import MAX_DEMAND_ENTRIES, ActivityChanged, DemandChanged, DemandEntry, DemandRouted
from iriscw.fleet.model import SLICE_ID
from iriscw.jobs.messages import NeverPlaced, Pass, SchedulerFigures
from iriscw.jobs.scheduling import resuming
from iriscw.jobs.scheduling.reasons import could_run, lacks_only_software
from iriscw.jobs.scheduling.state import DEMAND_INTERVAL, Scheduler, demand_id, statistics
from iriscw.jobs.step_limits import STEP_WORKERS
from iriscw.runtime.vocabulary import ActorPath, Command, Context, Outcome, Reply, SetTimer, Tell


def tell_activity(state: Scheduler, fleet: ActorPath) -> Iterator[Command]:
    """Tell how much lives on workers where that changed, some at a time."""
    for worker_id in list(islice(state.active, STEP_WORKERS)):
        del state.active[worker_id]
        host = state.inventory.hosts.get(worker_id)
        if host is not None:
            changed = ActivityChanged(worker_id, host.info.incarnation, len(host.commitments))
            yield Tell(fleet, changed, conflate=("activity", worker_id))


def tell_demand(state: Scheduler, fleet: ActorPath, ctx: Context) -> Iterator[Command]:
    """Tell what cannot be placed, if that changed; soon, if it was told just now."""
    if not state.demand_changed:
        return
    soon = state.told_at + DEMAND_INTERVAL - ctx.now
    if soon > 0:
        yield SetTimer("demand-soon", soon, Pass())
        return
    state.demand_changed = False
    entries = tuple(islice(chain(_entries(state), resuming.demand(state)), MAX_DEMAND_ENTRIES))
    if entries != state.told:
        if entries or state.told is not None:  # what an earlier one told is taken back in passing
            state.told_at = ctx.now
        state.told = entries
        yield Tell(fleet, DemandChanged(entries), conflate="demand")


def _entries(state: Scheduler) -> Iterator[DemandEntry]:
    for shape in state.queues.blocked.values():
        if lacks_only_software(state.inventory, shape.wish):
            continue
        count = shape.count - state.claims.counts.get(shape.key, 0)
        if count <= 0:
            continue  # others give way to it
        gang_size = count if shape.gang is not None else 1
        yield DemandEntry(
            demand_id(shape),
            shape.wish.demand,
            shape.wish.constraints,
            count,
            gang_size,
            int(shape.band),
            shape.gang or SLICE_ID,
        )


def tell_never(state: Scheduler, ctx: Context) -> Iterator[Command]:
    """Tell jobs that nobody will ever run them, once: no group of the configuration can, and no worker that is there.

    Only those that were submitted under this configuration: after a restart one that lacks a group may be a slip, for
    which no job should end.
    """
    if not state.never or state.syncing:
        return
    for shape in state.queues.blocked.values():
        if demand_id(shape) not in state.never or could_run(state.inventory, shape.wish):
            continue
        for job in shape.jobs:
            if job.accepted_here and not job.told_never and not job.live and not job.reporting:
                job.told_never = True
                yield Tell(ctx.path.parent / job.job_id, NeverPlaced(state.routed[demand_id(shape)]))


def demand_routed(state: Scheduler, message: DemandRouted, ctx: Context) -> Outcome:
    """Keep what the fleet does about each demand; have jobs give up what nobody will ever run."""
    state.routed = dict(message.reasons)
    state.never = dict.fromkeys(message.never)
    return tuple(tell_never(state, ctx))


def figures(state: Scheduler, message: SchedulerFigures, ctx: Context) -> Outcome:
    """Return figures."""
    return None if ctx.reply_to is None else (Reply(statistics(state, message.workers)),)
