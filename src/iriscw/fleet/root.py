"""``/fleet``: watches the cloud, routes demand to groups, and answers what users ask.

Theory of operation. There is one watch of all pools and one of all pods, whatever the number of slices;
what they bring is passed on by the labels it carries. Things of a group that is not configured (any more)
belong to no slice and are reclaimed here. Whatever is not labelled as ours, or carries the controller, is
never even passed on (INV-F2).

A group that starts anew asks for lists by saying so; the watches are then opened again, once for all that
ask in the same batch. A watch that ends is opened again with growing pauses; meanwhile nothing is concluded
from its silence.

Rows of all slices are kept here, so that a question of a user touches neither groups nor drivers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from iriscw.cloud.effects import WatchNodePools, WatchPods
from iriscw.cloud.lifecycle import judge_error
from iriscw.cloud.model import (
    LABEL_CLUSTER,
    LABEL_GROUP,
    LABEL_MANAGED,
    LABEL_ROLE,
    ROLE_CONTROLLER,
    Attributes,
    NodePool,
    Pod,
    Relisted,
    Removed,
    Upserted,
)
from iriscw.fleet.choosing import Asking
from iriscw.fleet.explaining import explain_demand
from iriscw.fleet.groups.group import empty_row
from iriscw.fleet.messages import (
    MAX_DEMAND_ENTRIES,
    ActivityChanged,
    Cordoned,
    DemandChanged,
    DemandEntry,
    DemandRouted,
    DescribeFleet,
    ExplainDemand,
    ReopenGroup,
    RoutingFailed,
    SchedulerStarted,
    WorkersMissed,
)
from iriscw.fleet.model import (
    Availability,
    FleetConfig,
    FleetDescription,
    GroupConfig,
    NoSuchGroup,
    SliceRow,
    SliceState,
    Timing,
    slice_name,
    slice_of,
)
from iriscw.fleet.newest import NewestSlices, Prospect
from iriscw.fleet.offers import GroupOffer, spreads
from iriscw.fleet.orphans import Orphans, Thing
from iriscw.fleet.pacing import REMOVALS_BURST, REMOVALS_PER_MINUTE, TokenBucket, backoff
from iriscw.fleet.policy import RoutingPolicy, default_routing
from iriscw.fleet.routing import Routing, route
from iriscw.fleet.signals import (
    Evaluate,
    GroupReported,
    GroupStarted,
    PodsListed,
    PoolsListed,
    Relist,
    SliceRowChanged,
    SlicesWanted,
    Takeover,
    TryAgain,
)
from iriscw.fleet.useless import IdleSlice, is_choosy
from iriscw.runtime.vocabulary import (
    SECOND,
    Arrived,
    Close,
    Closed,
    Command,
    Completed,
    Context,
    Continue,
    DecisionFunction,
    Emit,
    Failed,
    Open,
    Outcome,
    Refuse,
    Reply,
    SetTimer,
    Tell,
    Terminated,
    Undelivered,
    replace,
)

POOLS = "pools"
PODS = "pods"

WATCH_INBOUND = 256
"""Items of a watch that wait here: a burst of changes is passed on in one turn each; the watch waits for the rest."""

RELIST_DELAY = 1 * SECOND
"""Before everything is listed again because a group had no room for what a watch brought."""


POLICY_REPORTS_EVERY = 60 * SECOND
"""Between two reports that the routing policy fails: each failure is counted anyway."""

STARTING = "starting: `iriscw pools` says what it waits for"
"""What tasks are told of a group that has not reported yet: it does not change meanwhile, so demand is routed once."""


@attrs.define
class Watching:
    """One watch."""

    opened: bool = False
    listed: bool = False
    retries: int = 0
    error: str = ""


@attrs.define
class Fleet:
    """What ``/fleet`` knows: plain state, told anew by its groups after a restart."""

    config: FleetConfig
    reports: dict[str, GroupReported] = attrs.field(factory=dict)
    rows: dict[str, SliceRow] = attrs.field(factory=dict)
    workers: dict[str, tuple[Attributes, ...]] = attrs.field(factory=dict)
    """What the workers of each slice in ``rows`` that is ready are like."""
    newest: NewestSlices = attrs.field(factory=NewestSlices)
    watches: dict[str, Watching] = attrs.field(factory=lambda: {POOLS: Watching(), PODS: Watching()})
    demand: tuple[DemandEntry, ...] = ()
    wanted: dict[str, SlicesWanted] = attrs.field(factory=dict)
    """What each group was told last."""
    routed: tuple[tuple[str, str], ...] | None = None
    """What the scheduler was told last."""
    relisting: bool = False
    routing: bool = False
    takeover_over: bool = False
    policy: RoutingPolicy = attrs.field(default=default_routing, eq=False, repr=False)
    """Says which groups demand may go to."""
    since: dict[str, int] = attrs.field(factory=dict)
    """Since when each demand is there, by its id: monotonic ns."""
    decided: Routing | None = None
    """How demand was routed last."""
    offered: dict[str, GroupOffer] = attrs.field(factory=dict)
    """What each group offered then."""
    policy_failures: int = 0
    policy_reported: int | None = None
    """When a failure of the policy was last published."""
    orphans: Orphans = attrs.field(factory=Orphans)
    removals: TokenBucket = attrs.field(factory=lambda: TokenBucket.per_minute(REMOVALS_BURST, REMOVALS_PER_MINUTE))

    @property
    def timing(self) -> Timing:
        """The delays that concern no single group."""
        return self.config.groups[0].timing if self.config.groups else Timing()

    @property
    def labels(self) -> dict[str, str]:
        """The labels of everything that is ours."""
        return {LABEL_MANAGED: "true", LABEL_CLUSTER: self.config.cluster}

    def has(self, group: str) -> bool:
        """Whether a group is configured."""
        return any(each.name == group for each in self.config.groups)

    def ours(self, thing: Thing) -> bool:
        """Whether a pool or pod may be touched at all (INV-F2)."""
        labels = thing.labels
        return (
            labels.get(LABEL_MANAGED) == "true"
            and labels.get(LABEL_CLUSTER) == self.config.cluster
            and labels.get(LABEL_ROLE) != ROLE_CONTROLLER
        )


def resume(fleet: Fleet, ctx: Context) -> tuple[Command, ...]:
    """Open the watches, and wait until no earlier controller's request can land any more."""
    fleet.relisting = True
    return (SetTimer("takeover", fleet.config.takeover_delay, Takeover()), Continue(Relist()))


# Watching


def group_started(fleet: Fleet, message: GroupStarted, ctx: Context) -> Outcome:
    """Have everything listed for a group that knows nothing, and tell it anew what is wanted of it."""
    fleet.wanted.pop(message.group, None)
    fleet.reports.pop(message.group, None)
    for slice_id in [name for name, row in fleet.rows.items() if row.group == message.group]:
        del fleet.rows[slice_id], fleet.workers[slice_id]
    commands = _reroute(fleet)
    if not fleet.relisting:
        fleet.relisting = True
        commands.append(Continue(Relist()))
    return tuple(commands)


def relist(fleet: Fleet, message: Relist, ctx: Context) -> Outcome:
    """Open both watches anew."""
    fleet.relisting = False
    return tuple(command for key in fleet.watches for command in _open(fleet, key))


def _open(fleet: Fleet, key: str) -> list[Command]:
    watching = fleet.watches[key]
    commands: list[Command] = [Close(key)] if watching.opened else []
    watching.opened = True
    session = WatchNodePools(fleet.labels) if key == POOLS else WatchPods(fleet.labels)
    return [*commands, Open(key, session, inbound=WATCH_INBOUND)]


def closed(fleet: Fleet, message: Closed, ctx: Context) -> Outcome:
    """Open a watch that ended again after a while."""
    watching = fleet.watches[str(message.key)]
    watching.opened = False
    watching.retries += 1
    watching.error = judge_error(message.error).text if message.error is not None else "the watch ended"
    timing = fleet.timing
    delay = backoff(watching.retries, timing.retry_backoff, timing.retry_backoff_max, ctx.rng)
    return (SetTimer(("watch", message.key), delay, TryAgain(str(message.key))),)


def arrived(fleet: Fleet, message: Arrived, ctx: Context) -> Outcome:
    """Pass on what a watch brought, by group."""
    watching = fleet.watches[str(message.key)]
    watching.retries, watching.error = 0, ""
    match message.item:
        case Relisted(objects=objects):
            watching.listed = True
            return tuple(_listed(fleet, str(message.key), objects, ctx))
        case Upserted(object=thing) if fleet.ours(thing):
            group = thing.labels.get(LABEL_GROUP, "")
            if fleet.has(group):
                return (Tell(ctx.path / group, message.item),)
            fleet.orphans.found(thing)
            return tuple(_reclaim(fleet, ctx))
        case Removed(object=thing) if fleet.ours(thing):
            group = thing.labels.get(LABEL_GROUP, "")
            if fleet.has(group):
                return (Tell(ctx.path / group, message.item),)
            fleet.orphans.gone(thing)
    return None


def _listed(fleet: Fleet, key: str, objects: tuple[Thing, ...], ctx: Context) -> list[Command]:
    ours = [thing for thing in objects if fleet.ours(thing)]
    by_group: dict[str, list[Any]] = {group.name: [] for group in fleet.config.groups}
    strangers: list[Thing] = []
    for thing in ours:
        by_group.get(thing.labels.get(LABEL_GROUP, ""), strangers).append(thing)
    fleet.orphans.listed(NodePool if key == POOLS else Pod, tuple(strangers))
    for thing in strangers:
        fleet.orphans.found(thing)
    commands: list[Command] = []
    for name, things in by_group.items():
        listed = PoolsListed(tuple(things)) if key == POOLS else PodsListed(tuple(things))
        commands.append(Tell(ctx.path / name, listed))
    return commands + _reclaim(fleet, ctx)


# Things of groups that are not configured


def takeover(fleet: Fleet, message: Takeover, ctx: Context) -> Outcome:
    """Nobody else can act any more."""
    fleet.takeover_over = True
    return tuple(_reclaim(fleet, ctx))


def _reclaim(fleet: Fleet, ctx: Context) -> list[Command]:
    if not fleet.takeover_over or not fleet.orphans.waiting:
        return []
    commands = fleet.orphans.ask(fleet.removals.take(len(fleet.orphans.waiting), ctx.now))
    if fleet.orphans.waiting:
        commands.append(SetTimer("reclaim", fleet.removals.wait(ctx.now), TryAgain("reclaim")))
    return commands


def completed(fleet: Fleet, message: Completed, ctx: Context) -> Outcome:
    """The deletion of an orphan was acknowledged; until it is seen to be gone it is asked for again."""
    return tuple(fleet.orphans.answered(_orphan_name(message), None, fleet.timing, ctx.rng))


def failed(fleet: Fleet, message: Failed, ctx: Context) -> Outcome:
    """The deletion of an orphan failed."""
    return tuple(fleet.orphans.answered(_orphan_name(message), message.error, fleet.timing, ctx.rng))


def _orphan_name(message: Completed | Failed) -> str:
    assert isinstance(message.key, tuple)
    assert message.key[0] == "orphan"
    return str(message.key[1])


def try_again(fleet: Fleet, message: TryAgain, ctx: Context) -> Outcome:
    """Do again what failed."""
    if message.what in fleet.watches:
        return () if fleet.watches[message.what].opened else tuple(_open(fleet, message.what))
    if message.what.startswith("orphan "):
        fleet.orphans.try_again(message.what)
    if message.what == "route":
        fleet.wanted.clear()
        fleet.routed = None
        return tuple(_reroute(fleet))
    return tuple(_reclaim(fleet, ctx))


# Demand


def demand_changed(fleet: Fleet, message: DemandChanged, ctx: Context) -> Outcome:
    """Take note of all that cannot be placed."""
    fleet.demand = message.entries
    waiting = (entry.demand_id for entry in message.entries if entry.count > 0)
    fleet.since = {demand_id: fleet.since.get(demand_id, ctx.now) for demand_id in waiting}
    return tuple(_reroute(fleet))


def group_reported(fleet: Fleet, message: GroupReported, ctx: Context) -> Outcome:
    """Take note of how a group stands."""
    fleet.reports[message.row.group] = message
    return tuple(_reroute(fleet))


def _reroute(fleet: Fleet) -> list[Command]:
    """Have demand routed, once for all messages that wait now."""
    if fleet.routing:
        return []
    fleet.routing = True
    return [Continue(Evaluate())]


def route_demand(fleet: Fleet, message: Evaluate, ctx: Context) -> Outcome:
    """Route all demand, and tell only what has changed."""
    fleet.routing = False
    demand = fleet.demand[:MAX_DEMAND_ENTRIES]
    offered = offers(fleet)
    fleet.offered = {each.config.name: each for each in offered}
    doubts = fleet.newest.doubts(demand, _prospects(fleet), ctx.now, ctx.wall)
    commands: list[Command] = []
    if fleet.policy is default_routing:
        routing = route(demand, offered, doubts)
    else:
        asking = Asking(fleet.policy, fleet.offered, fleet.since, ctx.now, ctx.wall)
        routing = route(demand, offered, doubts, asking.choose)
        commands += _asked(fleet, asking, ctx)
    fleet.decided = routing
    due = fleet.newest.next_trial(ctx.now)
    if due is not None:
        commands.append(SetTimer("trial", due, Evaluate()))
    for group, count in routing.wanted.items():
        renew, useless = routing.renew[group], routing.useless[group]
        wanted = SlicesWanted(count, routing.spread[group], routing.unfit[group], renew, useless)
        if fleet.wanted.get(group) != wanted:
            fleet.wanted[group] = wanted
            commands.append(Tell(ctx.path / group, wanted, conflate="wanted"))
    reasons = _reasons(fleet, routing)
    if reasons != fleet.routed:
        fleet.routed = reasons
        commands.append(Tell(fleet.config.scheduler, DemandRouted(reasons, routing.never), conflate="routed"))
    return tuple(commands)


def _asked(fleet: Fleet, asking: Asking, ctx: Context) -> list[Command]:
    """Ask again after a while, since a policy may go by how long demand waits; report that it failed."""
    commands: list[Command] = []
    if fleet.since:
        commands.append(SetTimer("ask", fleet.timing.evaluation_interval, Evaluate()))
    if not asking.failures:
        return commands
    fleet.policy_failures += asking.failures
    if fleet.policy_reported is None or ctx.now - fleet.policy_reported >= POLICY_REPORTS_EVERY:
        fleet.policy_reported = ctx.now
        commands.append(Emit(RoutingFailed(asking.error)))
    return commands


def _prospects(fleet: Fleet) -> Iterator[Prospect]:
    for group in fleet.config.groups:
        report = fleet.reports.get(group.name)
        if report is not None:
            yield Prospect(group, report.row.boot_estimate, report.renewing)


def _reasons(fleet: Fleet, routing: Routing) -> tuple[tuple[str, str], ...]:
    beyond = f"more than {MAX_DEMAND_ENTRIES} kinds of tasks wait; this one is routed when others are placed"
    return (*routing.reasons, *((entry.demand_id, beyond) for entry in fleet.demand[MAX_DEMAND_ENTRIES:]))


def starting(fleet: Fleet) -> str:
    """Say what a group waits for that has not reported yet."""
    if not all(watching.listed for watching in fleet.watches.values()):
        return "starting: the cloud was not listed yet"
    if not fleet.takeover_over:
        return (
            "starting: an earlier controller's calls may still take effect, so pools are made only "
            f"{fleet.config.takeover_delay / SECOND:g} s after the start (twice api_timeout)"
        )
    return "starting"


def offers(fleet: Fleet) -> list[GroupOffer]:
    """Return what each group can take; one quota that is used up closes all groups that share it."""
    used_up, idle = _used_up(fleet), _idle(fleet)
    result = []
    for group in fleet.config.groups:
        if group.name not in fleet.reports:
            # Demand may name a group that is only starting: it says what it can take once it has looked.
            result.append(GroupOffer(group, Availability.COOLDOWN, STARTING))
            continue
        report = _as_shared(fleet, group, used_up)
        row, state = report.row, report.availability
        result.append(
            GroupOffer(
                group,
                state,
                row.reason,
                report.absorbing,
                report.room,
                report.waiting,
                expected_at=report.expected_at,
                boot_estimate=report.row.boot_estimate,
                idle=report.idle,
                later=0 if state is Availability.INVALID else max(0, group.max_slices - report.row.slices),
                known=idle.get(group.name, ()),
                going=report.going,
                fresh=report.fresh,
                retry_at=row.retry_at,
                ready=row.ready,
            )
        )
    return result


def _used_up(fleet: Fleet) -> dict[str, str]:
    """Return which quotas are used up, each with the group that was refused."""
    return {
        group.quota_pool: group.name
        for group in fleet.config.groups
        if group.quota_pool and _availability(fleet, group.name) is Availability.QUOTA_EXCEEDED
    }


def _as_shared(fleet: Fleet, group: GroupConfig, used_up: Mapping[str, str]) -> GroupReported:
    """Return how a group stands that shares its quota: closed while that is used up, whoever was refused."""
    report = fleet.reports[group.name]
    refused = used_up.get(group.quota_pool, "")
    if not refused:
        return report
    row = replace(report.row, quota_used_up_by=refused)
    if not report.availability.accepts:
        return replace(report, row=row)
    state = Availability.QUOTA_EXCEEDED
    reason = f"it shares the quota {group.quota_pool!r} with {refused!r}"
    retry_at = fleet.reports[refused].row.retry_at
    row = replace(row, availability=state, reason=reason, retry_at=retry_at)
    return replace(report, row=row, availability=state, room=0)


def _idle(fleet: Fleet) -> dict[str, tuple[IdleSlice, ...]]:
    """Return the idle slices of each group, the longest idle first, where it matters which ones they are.

    It does where a gang that spreads may be waiting on them, and where they may be of no use to anything that waits.
    Those that only just became ready come last, so that the first ones are those that groups count as idle.
    """
    if not any(is_choosy(entry) for entry in fleet.demand) or not any(each.idle for each in fleet.reports.values()):
        return {}
    found: dict[str, list[tuple[int, str]]] = {}
    for slice_id, row in fleet.rows.items():
        if row.state is SliceState.READY and row.idle_since is not None:
            found.setdefault(row.group, []).append((row.idle_since, slice_id))
    return {
        group: tuple(IdleSlice(slice_id, fleet.workers[slice_id]) for _, slice_id in sorted(idle))
        for group, idle in found.items()
    }


def _idle_workers(fleet: Fleet, slice_id: str) -> tuple[Attributes, ...] | None:
    """Return what the workers of a slice are like if it is ready and idle."""
    row = fleet.rows.get(slice_id)
    idle = row is not None and row.state is SliceState.READY and row.idle_since is not None
    return fleet.workers[slice_id] if idle else None


def _spreading(fleet: Fleet) -> bool:
    return any(spreads(entry) for entry in fleet.demand)


def _availability(fleet: Fleet, group: str) -> Availability | None:
    report = fleet.reports.get(group)
    return None if report is None else report.availability


# What the scheduler tells, passed on to whom it concerns


def activity(fleet: Fleet, message: ActivityChanged, ctx: Context) -> Outcome:
    """Pass on how many attempts live on a worker."""
    slice_id = slice_of(message.worker_id)
    row = fleet.rows.get(slice_id)
    if row is None:
        return None
    return (Tell(ctx.path / row.group / slice_id, message, conflate=("activity", message.worker_id)),)


def cordoned(fleet: Fleet, message: Cordoned, ctx: Context) -> Outcome:
    """Pass on the answer to a cordon, by way of the slice, which knows since when it is idle."""
    row = fleet.rows.get(message.slice_id)
    return (Tell(ctx.path / row.group / message.slice_id, message),) if row is not None else None


def scheduler_started(fleet: Fleet, message: SchedulerStarted, ctx: Context) -> Outcome:
    """Have a new scheduler told of all workers, and of what is done about its demand."""
    fleet.routed = None
    told: list[Command] = [Tell(ctx.path / group.name, SchedulerStarted()) for group in fleet.config.groups]
    return (*told, *_reroute(fleet))


def workers_missed(fleet: Fleet, message: WorkersMissed, ctx: Context) -> Outcome:
    """Have each group say what became of its workers.

    Nobody vouches for workers of a group that is not configured, nor for a name that two groups could have given.
    """
    missed: dict[str, list[tuple[str, str]]] = {}
    for place in message.places:
        slice_id = slice_of(place[0])
        unique = slice_id.rpartition("-")[2]
        owners = [group.name for group in fleet.config.groups if slice_name(group.name, unique) == slice_id]
        if len(owners) == 1:
            missed.setdefault(owners[0], []).append(place)
    return tuple(
        Tell(ctx.path / group, WorkersMissed(tuple(places)), conflate="missed") for group, places in missed.items()
    )


# What people ask


def row_changed(fleet: Fleet, message: SliceRowChanged, ctx: Context) -> Outcome:
    """Keep what users see of a slice."""
    before = _idle_workers(fleet, message.slice_id)
    if message.row is None:
        fleet.rows.pop(message.slice_id, None)
        fleet.workers.pop(message.slice_id, None)
    else:
        fleet.rows[message.slice_id] = message.row
        fleet.workers[message.slice_id] = message.workers
    # Groups tell how many are idle; which ones are matters only to a gang that spreads over them, and where some go
    # because they are of no use.
    changed = _idle_workers(fleet, message.slice_id) != before
    by_name = _spreading(fleet) or any(each.renew for each in fleet.wanted.values())
    news = message.row is not None and fleet.newest.note(message.row, message.workers, ctx.now)
    chosen = news and any(is_choosy(entry) for entry in fleet.demand)
    return tuple(_reroute(fleet)) if chosen or (changed and by_name) else None


def describe(fleet: Fleet, message: DescribeFleet, ctx: Context) -> Outcome:
    """Answer from memory."""
    used_up, reason = _used_up(fleet), starting(fleet)
    groups = [
        _as_shared(fleet, group, used_up).row if group.name in fleet.reports else empty_row(group, reason)
        for group in fleet.config.groups
    ]
    description = FleetDescription(
        groups=tuple(sorted(groups, key=lambda row: row.group)),
        slices=tuple(row for _, row in sorted(fleet.rows.items())),
        synced=all(watching.listed for watching in fleet.watches.values()),
        watch_error="; ".join(f"{key}: {each.error}" for key, each in fleet.watches.items() if each.error),
        routing_failures=fleet.policy_failures,
    )
    return (Reply(description),)


def explain(fleet: Fleet, message: ExplainDemand, ctx: Context) -> Outcome:
    """Say which demand was routed to which group, and why the groups before it did not take it."""
    routing = fleet.decided
    if routing is None:
        return (Reply(()),)
    since = {demand_id: ctx.wall - ctx.now + at for demand_id, at in fleet.since.items()}
    known = [group for group in message.groups if group in fleet.offered]
    return (Reply(explain_demand(known, routing, fleet.offered, since)),)


def reopen(fleet: Fleet, message: ReopenGroup, ctx: Context) -> Outcome:
    """Pass on that an operator has changed what closed a group."""
    if not fleet.has(message.group):
        return (Refuse(NoSuchGroup(f"there is no scale group {message.group!r}")),)
    return (Tell(ctx.path / message.group, message), Reply(None))


def terminated(fleet: Fleet, message: Terminated, ctx: Context) -> Outcome:
    """A group's actor is gone: it offers nothing more."""
    fleet.reports.pop(message.path.name, None)
    return tuple(_reroute(fleet))


def undelivered(fleet: Fleet, message: Undelivered, ctx: Context) -> Outcome:
    """Bring up to date whoever had no room: lists for groups, the present routing for the scheduler."""
    if isinstance(message.message, WorkersMissed):
        return None  # The scheduler asks again.
    if message.to.parent == ctx.path and not isinstance(message.message, SlicesWanted):
        return (SetTimer("relist", RELIST_DELAY, Relist()),)
    return (SetTimer("route", RELIST_DELAY, TryAgain("route")),)


RULES: Mapping[type[Any], DecisionFunction] = {
    GroupStarted: group_started,
    Relist: relist,
    Takeover: takeover,
    Arrived: arrived,
    Closed: closed,
    TryAgain: try_again,
    Completed: completed,
    Failed: failed,
    DemandChanged: demand_changed,
    GroupReported: group_reported,
    Evaluate: route_demand,
    ActivityChanged: activity,
    Cordoned: cordoned,
    SchedulerStarted: scheduler_started,
    WorkersMissed: workers_missed,
    SliceRowChanged: row_changed,
    DescribeFleet: describe,
    ExplainDemand: explain,
    ReopenGroup: reopen,
    Terminated: terminated,
    Undelivered: undelivered,
}
"""The decision for each message ``/fleet`` accepts."""
