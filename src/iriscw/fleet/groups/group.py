"""One scale group: what it promised, and what it sees of it.

Theory of operation. The group is the durable actor of the fleet. Its promises (:mod:`iriscw.fleet.records`)
say which slices exist; everything else here (:class:`GroupSight`) is seen, not remembered, and starts empty with
each incarnation. It acts on nothing before it is *open*: both watches have listed what exists, and no
request of an earlier controller can land any more (INV-F8). Then each slice is briefed, and what belongs to
no slice becomes an orphan (INV-F2).

The group passes on what is seen to the slice it belongs to, and keeps a copy, because a slice that restarts
must be briefed without listing the world again. What to do about size is decided in
:mod:`iriscw.fleet.groups.scaling`, at most once per batch of messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import attrs

from iriscw.cloud.model import LABEL_SLICE, NodePool, Pod
from iriscw.fleet.groups.experience import Experience
from iriscw.fleet.groups.publishing import publish
from iriscw.fleet.groups.renewal import Renewal
from iriscw.fleet.messages import SliceGone, WorkersMissed
from iriscw.fleet.model import Availability, GroupConfig, GroupRow, SliceRow, SliceState, Trouble, slice_of
from iriscw.fleet.orphans import Orphans
from iriscw.fleet.pacing import (
    CREATES_BURST,
    CREATES_PER_MINUTE,
    REMOVALS_BURST,
    REMOVALS_PER_MINUTE,
    TokenBucket,
)
from iriscw.fleet.policy import Policy, default_policy
from iriscw.fleet.records import Promises, SliceDeleted, SliceDoomed, SlicePoolCreated, SlicePromise, compact, evolve
from iriscw.fleet.signals import (
    Evaluate,
    GroupReported,
    GroupStarted,
    PodSeen,
    PodVanished,
    PoolSeen,
    PoolVanished,
    SliceBriefed,
    SliceReported,
    SliceRowChanged,
    SlicesWanted,
    Takeover,
)
from iriscw.fleet.slices.slice import PlaceSpec, SliceSeed
from iriscw.runtime.behavior import ChildSpec
from iriscw.runtime.vocabulary import (
    ActorPath,
    Command,
    Context,
    Continue,
    SetTimer,
    Spawn,
    StopChild,
    StopReason,
    Tell,
)

SliceSpec = Callable[[SliceSeed], ChildSpec]
"""Makes the child that stands for a slice: given by the assembly of actors."""


@attrs.frozen
class GroupSeed:
    """What a group is born with."""

    config: GroupConfig
    cluster: str
    scheduler: ActorPath
    links: ActorPath
    takeover_delay: int
    piece: SliceSpec = attrs.field(eq=False, repr=False)
    place: PlaceSpec = attrs.field(eq=False, repr=False)
    policy: Policy = attrs.field(default=default_policy, eq=False, repr=False)

    def slice(self, slice_id: str) -> ChildSpec:
        """Return the child that stands for a slice."""
        return self.piece(SliceSeed(self.config, self.cluster, slice_id, self.scheduler, self.links, self.place))


@attrs.frozen
class Closure:
    """Why a group asks for no slices; ``until`` is monotonic ns, None if only people can end it."""

    trouble: Trouble
    reason: str
    until: int | None
    retry_at: int | None
    """``until`` for people: wall-clock ns."""


@attrs.define
class CordonRound:
    """A question to the scheduler that is not answered yet."""

    slice_id: str
    round: int
    useless: bool = False
    """Whether the slice shall go because nothing that waits could use it."""


@attrs.define
class GroupSight:
    """What a group sees and what it is doing. Times are monotonic ns."""

    pools_listed: bool = False
    pods_listed: bool = False
    takeover_over: bool = False
    opened: bool = False
    evaluating: bool = False
    """Whether a look at the group's size waits in the mailbox already."""
    pools: dict[str, NodePool] = attrs.field(factory=dict)
    """The pool of each slice, promised or not, by slice id."""
    pods: dict[str, dict[str, Pod]] = attrs.field(factory=dict)
    """By slice id and name."""
    started: dict[str, None] = attrs.field(factory=dict)
    """Slices whose actors wait for a briefing, or had one."""
    reports: dict[str, SliceReported | None] = attrs.field(factory=dict)
    born: dict[str, int] = attrs.field(factory=dict)
    """When this incarnation asked for a slice that is not ready yet: what boots take is learned from those
    only."""
    readied: dict[str, int] = attrs.field(factory=dict)
    """When each slice first became ready."""
    dismissals: dict[str, str] = attrs.field(factory=dict)
    """Doomed slices that were not told yet, with the reason, in order."""
    orphans: Orphans = attrs.field(factory=Orphans)
    experience: Experience = attrs.field(factory=Experience)
    creates: TokenBucket = attrs.field(factory=lambda: TokenBucket.per_minute(CREATES_BURST, CREATES_PER_MINUTE))
    removals: TokenBucket = attrs.field(factory=lambda: TokenBucket.per_minute(REMOVALS_BURST, REMOVALS_PER_MINUTE))
    wanted: SlicesWanted = attrs.field(factory=lambda: SlicesWanted(0))
    closure: Closure | None = None
    failures: dict[Trouble, int] = attrs.field(factory=dict)
    """How often the group was closed in a row, by cause."""
    last_request: int | None = None
    unwanted_since: int | None = None
    """Since when slices on their way have been too many."""
    cordon: CordonRound | None = None
    last_round: int = 0
    renewal: Renewal = attrs.field(factory=Renewal)
    quiet_until: int = 0
    """No cordon before: the scheduler may not know yet what runs."""
    told: GroupReported | None = None
    policy_failures: int = 0
    """How often the policy failed, and the default one decided."""
    policy_reported: int | None = None
    """When that was last published."""


@attrs.define
class Group:
    """The state of a group's actor: compared by its promises alone, which is what replay must give."""

    seed: GroupSeed = attrs.field(eq=False)
    promises: Promises = attrs.field(factory=dict)
    sight: GroupSight = attrs.field(factory=GroupSight, eq=False, repr=False)

    @property
    def config(self) -> GroupConfig:
        """The group's settings."""
        return self.seed.config


def apply(group: Group, fact: object) -> None:
    """Apply a record to the promises."""
    evolve(group.promises, fact)


def snapshot(group: Group) -> Iterable[object]:
    """Return records that make equal promises."""
    return compact(group.promises)


def resume(group: Group, ctx: Context) -> tuple[Command, ...]:
    """Begin anew with what is promised: start its slices, ask for the lists, and wait until open."""
    group.sight = sight = GroupSight()
    sight.reports = dict.fromkeys(group.promises)
    sight.dismissals = {name: promise.doomed for name, promise in group.promises.items() if promise.doomed}
    commands: list[Command] = [Tell(ctx.path.parent, GroupStarted(group.config.name))]
    commands += [Spawn(group.seed.slice(slice_id)) for slice_id in group.promises]
    commands.append(SetTimer("takeover", group.seed.takeover_delay, Takeover()))
    return tuple(commands)


def look(group: Group) -> list[Command]:
    """Have the group's size looked at, once for all messages that wait now."""
    if group.sight.evaluating or not group.sight.opened:
        return []
    group.sight.evaluating = True
    return [Continue(Evaluate())]


# Opening and briefing


def try_open(group: Group, ctx: Context) -> list[Command]:
    """Open, once all is listed and nobody else can act any more: brief the slices and find the orphans."""
    sight = group.sight
    if sight.opened or not (sight.pools_listed and sight.pods_listed and sight.takeover_over):
        return []
    sight.opened = True
    for slice_id in [*sight.pools, *sight.pods]:
        if slice_id not in group.promises:
            _orphan(group, slice_id)
    return [*(brief(group, slice_id, ctx) for slice_id in sight.started), *look(group)]


def brief(group: Group, slice_id: str, ctx: Context) -> Command:
    """Tell a slice all that is known of it."""
    sight, promise = group.sight, group.promises[slice_id]
    estimate = group.config.timing.boot_estimate
    return Tell(
        ctx.path / slice_id,
        SliceBriefed(
            requested_at=promise.requested_at_ns,
            pool_uid=promise.pool_uid,
            doomed=promise.doomed,
            pool=sight.pools.get(slice_id),
            pods=tuple(pod for _, pod in sorted(sight.pods.get(slice_id, {}).items())),
            boot_estimate=sight.experience.boot_estimate(estimate),
            slow_after=sight.experience.slow_after(estimate),
        ),
    )


def slice_started(group: Group, slice_id: str, ctx: Context) -> list[Command]:
    """Brief a slice that began, or began anew; one that is doomed is dismissed again."""
    promise = group.promises.get(slice_id)
    if promise is None:
        return []
    sight = group.sight
    sight.started[slice_id] = None
    sight.reports[slice_id] = None
    if promise.doomed:
        sight.dismissals[slice_id] = promise.doomed
    return [brief(group, slice_id, ctx), *look(group)] if sight.opened else []


# What the cloud shows


def pools_listed(group: Group, pools: tuple[NodePool, ...], ctx: Context) -> list[Command]:
    """Take the complete list of the group's pools: what is not in it is gone."""
    sight = group.sight
    before = sight.pools
    sight.pools = {}
    commands: list[Command] = []
    sight.orphans.listed(NodePool, pools)
    for pool in pools:
        commands += pool_seen(group, pool, ctx)
    for slice_id, pool in before.items():
        now = sight.pools.get(slice_id)
        if (now is None or now.uid != pool.uid) and slice_id in group.promises:
            commands.append(Tell(ctx.path / slice_id, PoolVanished(pool.uid)))
    sight.pools_listed = True
    return commands + try_open(group, ctx) + look(group)


def pool_seen(group: Group, pool: NodePool, ctx: Context) -> list[Command]:
    """Pass a pool on to its slice; without one it is an orphan."""
    sight, slice_id = group.sight, pool.labels.get(LABEL_SLICE, "")
    if slice_id in group.promises and pool.name == slice_id:
        sight.pools[slice_id] = pool
        return [Tell(ctx.path / slice_id, PoolSeen(pool), conflate="pool")] if sight.opened else []
    if sight.opened:
        sight.orphans.found(pool)
        return look(group)
    sight.pools[slice_id] = pool
    return []


def pool_removed(group: Group, pool: NodePool, ctx: Context) -> list[Command]:
    """Pass on that a pool is gone."""
    sight, slice_id = group.sight, pool.labels.get(LABEL_SLICE, "")
    if sight.orphans.gone(pool):
        return look(group)
    known = sight.pools.get(slice_id)
    if known is None or known.uid != pool.uid:
        return []
    del sight.pools[slice_id]
    return [Tell(ctx.path / slice_id, PoolVanished(pool.uid))] if slice_id in group.promises else []


def pods_listed(group: Group, pods: tuple[Pod, ...], ctx: Context) -> list[Command]:
    """Take the complete list of the group's pods: what is not in it is gone."""
    sight = group.sight
    before = [pod for each in sight.pods.values() for pod in each.values()]
    sight.pods = {}
    commands: list[Command] = []
    sight.orphans.listed(Pod, pods)
    for pod in pods:
        commands += pod_seen(group, pod, ctx)
    for pod in before:
        slice_id = pod.labels.get(LABEL_SLICE, "")
        now = sight.pods.get(slice_id, {}).get(pod.name)
        if (now is None or now.uid != pod.uid) and slice_id in group.promises:
            commands.append(Tell(ctx.path / slice_id, PodVanished(pod)))
    sight.pods_listed = True
    return commands + try_open(group, ctx) + look(group)


def pod_seen(group: Group, pod: Pod, ctx: Context) -> list[Command]:
    """Pass a pod on to its slice; without one it is an orphan."""
    sight, slice_id = group.sight, pod.labels.get(LABEL_SLICE, "")
    if slice_id not in group.promises and sight.opened:
        sight.orphans.found(pod)
        return look(group)
    sight.pods.setdefault(slice_id, {})[pod.name] = pod
    if not sight.opened:
        return []
    return [Tell(ctx.path / slice_id, PodSeen(pod), conflate=("pod", pod.name))]


def pod_removed(group: Group, pod: Pod, ctx: Context) -> list[Command]:
    """Pass on that a pod is gone."""
    sight, slice_id = group.sight, pod.labels.get(LABEL_SLICE, "")
    if sight.orphans.gone(pod):
        return look(group)
    known = sight.pods.get(slice_id, {}).get(pod.name)
    if known is None or known.uid != pod.uid:
        return []
    del sight.pods[slice_id][pod.name]
    return [Tell(ctx.path / slice_id, PodVanished(pod))] if slice_id in group.promises else []


def _orphan(group: Group, slice_id: str) -> None:
    """Give up what was kept for a slice that is not promised (any more)."""
    sight = group.sight
    pool = sight.pools.pop(slice_id, None)
    if pool is not None:
        sight.orphans.found(pool)
    for pod in sight.pods.pop(slice_id, {}).values():
        sight.orphans.found(pod)


# What slices report


def dooming(group: Group, slice_id: str, reason: str, ctx: Context, *, failed: bool) -> list[object]:
    """Return the record that a slice goes, and put it in line to be told."""
    sight, promise = group.sight, group.promises[slice_id]
    if promise.doomed:
        return []
    sight.dismissals[slice_id] = reason
    ready_since = sight.readied.pop(slice_id, None)
    if ready_since is not None:
        sight.experience.ended(ctx.now, lived=ctx.now - ready_since, failed=failed)
    return [SliceDoomed(slice_id, reason)]


def pool_created(promise: SlicePromise, report: SliceReported) -> list[object]:
    """Return the record of a pool that was not known yet."""
    if not report.pool_uid or report.pool_uid == promise.pool_uid:
        return []
    return [SlicePoolCreated(report.row.slice_id, report.pool_uid)]


def slice_gone(group: Group, slice_id: str, ctx: Context) -> tuple[list[object], list[Command]]:
    """Forget a slice of which nothing is left."""
    sight = group.sight
    tables: tuple[dict[str, Any], ...] = (sight.reports, sight.started, sight.born, sight.readied, sight.dismissals)
    for table in tables:
        table.pop(slice_id, None)
    _orphan(group, slice_id)
    row = Tell(ctx.path.parent, SliceRowChanged(slice_id, None), conflate=("row", slice_id))
    told = Tell(group.seed.scheduler, SliceGone(slice_id))
    return [SliceDeleted(slice_id)], [StopChild(slice_id), row, told]


def workers_missed(group: Group, places: tuple[tuple[str, str], ...], ctx: Context) -> list[Command]:
    """Tell again which slices are gone, and have the others say what became of their workers.

    Certain only once open: nothing promised, nothing seen, nothing can land.
    """
    sight = group.sight
    if not sight.opened:
        return []
    leftover = {orphan.thing.labels.get(LABEL_SLICE, ""): None for orphan in sight.orphans.known.values()}
    by_slice: dict[str, list[tuple[str, str]]] = {}
    for place in places:
        by_slice.setdefault(slice_of(place[0]), []).append(place)
    commands: list[Command] = []
    for slice_id, missed in by_slice.items():
        if slice_id in sight.started:
            commands.append(Tell(ctx.path / slice_id, WorkersMissed(tuple(missed)), conflate="missed"))
        left = slice_id in leftover or sight.pools.get(slice_id) or sight.pods.get(slice_id)
        if slice_id not in group.promises and not left:
            commands.append(Tell(group.seed.scheduler, SliceGone(slice_id)))
    return commands


def slice_broken(group: Group, slice_id: str, reason: StopReason, ctx: Context) -> list[Command]:
    """Show a slice whose actor is quarantined: it stays as it is until an operator looks."""
    promise = group.promises.get(slice_id)
    if promise is None or reason is not StopReason.QUARANTINED:
        return []
    row = SliceRow(
        slice_id=slice_id,
        group=group.config.name,
        state=SliceState.FAILED,
        trouble=Trouble.WORKERS,
        reason="iriscw failed to look after this slice; it was put into quarantine and waits for an operator",
        requested_at=promise.requested_at_ns,
        since=ctx.wall,
        num_vms=group.config.num_vms,
    )
    before = group.sight.reports.get(slice_id)
    report = SliceReported(row, promise.pool_uid, None, None, True, False, False)
    group.sight.reports[slice_id] = report
    shown = Tell(ctx.path.parent, SliceRowChanged(slice_id, row), conflate=("row", slice_id))
    return [*publish(before, report, promise, ctx), shown, *look(group)]


def empty_row(config: GroupConfig, reason: str) -> GroupRow:
    """Return the row of a group that has not reported yet, and why."""
    return GroupRow(
        config.name,
        Availability.COOLDOWN,
        reason,
        0,
        0,
        0,
        config.min_slices,
        config.max_slices,
        config.timing.boot_estimate,
    )
