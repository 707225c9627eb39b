"""One slice: a node pool, and a worker on each of its nodes.

Theory of operation. A slice is an actor of its own, ``/fleet/<group>/<slice id>``, with plain state: what
must survive is in its group's journal, the rest is in the cloud. It begins by asking its group for a
briefing and acts on nothing before. From then on three things drive it: what is seen of its pool
(:func:`pool_seen`), what its workers' places report (:func:`pod_reported`), and deadlines. All of them
become events of :data:`iriscw.fleet.lifecycle.SLICE_TABLE`; :func:`move` applies one and gives what
entering the next state takes.

The end of a slice is in :mod:`iriscw.fleet.slices.ending`. A slice that cannot become or stay ready says FAILED
and waits: only its group may decide that it goes, because that is written down first.

Deadlines start anew with each incarnation: a restart of the controller, or time spent in the cloud's queue
for machines, must not condemn a slice that was doing well.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from iriscw.cloud.effects import CreateNodePool, DeletePod, ListNodePools
from iriscw.cloud.lifecycle import PoolHealth, judge_pool
from iriscw.cloud.model import (
    LABEL_CLUSTER,
    LABEL_GROUP,
    LABEL_MANAGED,
    LABEL_SLICE,
    LABEL_WORKER,
    NodePool,
    NodePoolSpec,
    Pod,
)
from iriscw.fleet.lifecycle import COMING, SliceEvent, next_slice_state
from iriscw.fleet.messages import Cordon, Uncordon, WorkerReady
from iriscw.fleet.model import (
    GroupConfig,
    PodState,
    SliceRow,
    SliceState,
    Trouble,
    WorkerInfo,
    slice_of,
    worker_name,
)
from iriscw.fleet.pods import PodSeed
from iriscw.fleet.signals import Overdue, PodReported, PodSeen, SliceReported, SliceStarted
from iriscw.runtime.behavior import ChildSpec
from iriscw.runtime.vocabulary import (
    ActorPath,
    CancelTimer,
    Command,
    Context,
    Run,
    SetTimer,
    Spawn,
    Tell,
)

MAX_POD_FAILURES = 5
"""Worker pods that may fail at one place in a row before the slice as a whole is replaced."""

UNANSWERED = (Trouble.API, Trouble.FORBIDDEN)
"""Troubles of calls, not of what they are about: they end with the first answer."""

PlaceSpec = Callable[[PodSeed], ChildSpec]
"""Makes the child that stands for a worker's place: given by the assembly of actors, so that decisions stay
pure."""


@attrs.frozen
class SliceSeed:
    """What a slice is born with."""

    config: GroupConfig
    cluster: str
    slice_id: str
    scheduler: ActorPath
    links: ActorPath
    place: PlaceSpec = attrs.field(eq=False, repr=False)

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the slice's pool."""
        return {
            LABEL_MANAGED: "true",
            LABEL_CLUSTER: self.cluster,
            LABEL_GROUP: self.config.name,
            LABEL_SLICE: self.slice_id,
        }

    @property
    def pool(self) -> NodePoolSpec:
        """The pool that should exist."""
        config = self.config
        return NodePoolSpec(
            name=self.slice_id,
            instance_type=config.instance_type,
            target_nodes=config.num_vms,
            labels=self.labels,
            region=config.region,
            compute_class=config.compute_class,
            per_node=config.per_worker,
        )


@attrs.define
class Slice:
    """A slice as its actor knows it. Times are monotonic ns, those that users see wall-clock ns."""

    seed: SliceSeed
    state: SliceState = SliceState.REQUESTED
    trouble: Trouble = Trouble.NONE
    reason: str = ""
    briefed: bool = False
    requested_at: int = 0
    since: int = 0
    ready_at: int | None = None
    ready_since: int | None = None
    boot_estimate: int = 0
    slow_after: int = 0
    pool: NodePool | None = None
    pool_uid: str = ""
    """The pool last seen or acknowledged; "" if none ever was, or it is known to be gone."""
    pool_gone: bool = False
    """Whether the pool is known to be gone."""
    places: dict[str, PodReported | None] = attrs.field(factory=dict)
    """The last report of each place that was started, by worker id."""
    pods: dict[str, dict[str, Pod]] = attrs.field(factory=dict)
    """Pods as last seen, by worker id and name: for the briefing of a place that restarts."""
    live: dict[str, int] = attrs.field(factory=dict)
    """Attempts that live on each worker."""
    live_total: int = 0
    idle_since: int | None = None
    idle_since_wall: int | None = None
    used: bool = False
    cordon: int | None = None
    """The round in which the slice, being incomplete, closed itself to new work."""
    asking: bool = False
    """Whether a create is under way. Nothing else is asked of the pool until its answer is here, so that no
    slice is taken for gone while its pool may still come."""
    retries: int = 0
    stuck: bool = False
    missed: tuple[tuple[str, str], ...] = ()
    """Workers the scheduler misses whose pods are being looked for."""

    def check(self) -> None:
        """Assert what must always hold."""
        assert (self.ready_since is not None) == (self.state is SliceState.READY)
        assert not (self.pool_gone and self.pool_uid)
        assert self.live_total == sum(self.live.values())
        assert self.idle_since is None or (self.state is SliceState.READY and self.live_total == 0)
        if self.state is SliceState.READY:
            # INV-F6: never ready but as a whole.
            assert self.registered == self.seed.config.num_vms, "ready without all its workers"

    @property
    def registered(self) -> int:
        """How many workers are registered."""
        return sum(1 for each in self.places.values() if each is not None and each.info is not None)

    @property
    def workers(self) -> tuple[str, ...]:
        """The workers that are registered, in order of their places."""
        return tuple(name for name, each in self.places.items() if each is not None and each.info is not None)

    @property
    def infos(self) -> list[WorkerInfo]:
        """The registrations of these."""
        return [each.info for each in self.places.values() if each is not None and each.info is not None]

    def row(self) -> SliceRow:
        """Return what users see."""
        expected = self.requested_at + self.boot_estimate if self.state in COMING else None
        return SliceRow(
            slice_id=self.seed.slice_id,
            group=self.seed.config.name,
            state=self.state,
            trouble=self.trouble,
            reason=self.reason,
            requested_at=self.requested_at,
            since=self.since,
            ready_at=self.ready_at,
            expected_at=None if self.trouble is Trouble.CAPACITY else expected,
            idle_since=self.idle_since_wall,
            live_attempts=self.live_total,
            workers=self.workers,
            num_vms=self.seed.config.num_vms,
        )


def resume(piece: Slice, ctx: Context) -> tuple[Command, ...]:
    """Ask for the briefing: all that a fresh slice owes."""
    return (Tell(ctx.path.parent, SliceStarted(piece.seed.slice_id)),)


def report(piece: Slice, ctx: Context) -> Command:
    """Tell the group the whole truth about this slice."""
    piece.check()
    told = SliceReported(
        row=piece.row(),
        pool_uid=piece.pool_uid,
        idle_since=piece.idle_since,
        ready_since=piece.ready_since,
        used=piece.used,
        stuck=piece.stuck,
        bare=not piece.places,
        workers=tuple(info.attributes for info in piece.infos) if piece.state is SliceState.READY else (),
    )
    return Tell(ctx.path.parent, told, conflate="slice")


# Moving


def move(piece: Slice, event: SliceEvent, ctx: Context, reason: str = "") -> list[Command]:
    """Apply an event to the table, and give what leaving one state and entering the next take."""
    following = next_slice_state(piece.state, event)
    if following is None:
        return []
    left, piece.state = piece.state, following
    piece.since = ctx.wall
    piece.reason = reason
    commands: list[Command] = []
    if left is SliceState.READY:
        piece.ready_since = piece.idle_since = piece.idle_since_wall = None
        # A slice that goes has its workers reported as lost, one by one.
        commands += close(piece, piece.workers, ctx) if following is not SliceState.DRAINING else []
    match following:
        case SliceState.CREATING:
            timing = piece.seed.config.timing
            commands.append(SetTimer("stage", timing.requesting_timeout, Overdue("requesting")))
            commands.append(SetTimer("startup", timing.startup_grace, Overdue("startup")))
            commands.append(ask_for_pool(piece))
        case SliceState.BOOTING:
            commands += boot_clock(piece)
        case SliceState.INITIALIZING:
            piece.trouble = Trouble.NONE
            timing = piece.seed.config.timing
            commands.append(SetTimer("stage", timing.init_timeout, Overdue("init")))
            commands += _fill_places(piece)
            commands += check_workers(piece, ctx)
        case SliceState.READY:
            commands += _open(piece, ctx)
        case SliceState.FAILED:
            commands += stop_clocks()
    return commands


def boot_clock(piece: Slice) -> list[Command]:
    """Start the boot's clocks: with the pool's acknowledgement, and anew when the wait for machines is
    over.
    """
    timing = piece.seed.config.timing
    return [
        SetTimer("stage", timing.boot_timeout, Overdue("boot")),
        SetTimer("startup", timing.startup_grace, Overdue("startup")),
        SetTimer("slow", piece.slow_after, Overdue("slow")),
    ]


def stop_clocks() -> list[Command]:
    """Stop all clocks of the way to READY."""
    return [CancelTimer("stage"), CancelTimer("startup"), CancelTimer("slow")]


def give_up(piece: Slice, ctx: Context, trouble: Trouble, reason: str) -> list[Command]:
    """Say that this slice cannot become or stay ready."""
    commands = move(piece, SliceEvent.GAVE_UP, ctx, reason)
    if commands:
        piece.trouble = trouble
    return commands


def _open(piece: Slice, ctx: Context) -> list[Command]:
    """Return the slice to the scheduler, as a whole."""
    piece.trouble, piece.retries = Trouble.NONE, 0
    piece.ready_at, piece.ready_since = ctx.wall, ctx.now
    set_idle(piece, ctx)
    commands = [*stop_clocks(), *announce(piece)]
    if piece.cordon is not None:
        commands.append(Tell(piece.seed.scheduler, Uncordon(piece.seed.slice_id, piece.cordon)))
        piece.cordon = None
    return commands


def announce(piece: Slice) -> list[Command]:
    """Tell the scheduler of each worker."""
    assert piece.state is SliceState.READY
    return [Tell(piece.seed.scheduler, WorkerReady(info), conflate=("ready", info.worker_id)) for info in piece.infos]


def close(piece: Slice, workers: tuple[str, ...], ctx: Context) -> list[Command]:
    """Take these workers from the scheduler: an incomplete slice gets no new work; what runs on it goes on."""
    if not workers:
        return []
    piece.cordon = ctx.now
    return [Tell(piece.seed.scheduler, Cordon(piece.seed.slice_id, workers, ctx.now))]


def set_idle(piece: Slice, ctx: Context) -> None:
    """Start or stop the idle clock, as the attempts that live here say."""
    if piece.state is not SliceState.READY or piece.live_total:
        piece.idle_since = piece.idle_since_wall = None
    elif piece.idle_since is None:
        piece.idle_since, piece.idle_since_wall = ctx.now, ctx.wall


# The pool


def create(piece: Slice, ctx: Context) -> list[Command]:
    """Ask for the pool."""
    assert not piece.pool_uid, "a pool that exists is not created again"
    return move(piece, SliceEvent.ASKED, ctx, "the node pool was asked for")


def ask_for_pool(piece: Slice) -> Command:
    """Ask for the pool, for the first time or again: that is idempotent."""
    piece.asking = True
    return Run("pool", CreateNodePool(piece.seed.pool))


def look_for_pool(piece: Slice) -> Command:
    """Read from the API whether the pool exists: past what the watch has not brought yet."""
    return Run("pool", ListNodePools(piece.seed.labels))


def judge(piece: Slice, pool: NodePool, ctx: Context) -> list[Command]:
    """Act on what the pool shows, in the states that lead to READY and in READY."""
    judgement = judge_pool(pool)
    commands = move(piece, SliceEvent.ACKNOWLEDGED, ctx, judgement.text)
    if judgement.health is PoolHealth.GOING:
        text = "the node pool is being deleted from outside"
        return commands + give_up(piece, ctx, Trouble.WORKERS, text)
    if pool.target_nodes != piece.seed.config.num_vms:
        # Its own size would be reached, and the slice's never: it would wait for workers that no node is there for.
        text = f"the node pool was resized from outside: {pool.target_nodes} nodes, not {piece.seed.config.num_vms}"
        return commands + give_up(piece, ctx, Trouble.WORKERS, text)
    if judgement.health is PoolHealth.READY:
        piece.trouble = Trouble.NONE if piece.state is SliceState.BOOTING else piece.trouble
        return commands + move(piece, SliceEvent.NODES_READY, ctx, "all nodes are ready; workers start")
    commands += move(piece, SliceEvent.NODES_MISSING, ctx, judgement.text)
    if piece.state is SliceState.BOOTING:
        commands += _judge_boot(piece, judgement.health, judgement.text, ctx)
    return commands


def _judge_boot(piece: Slice, health: PoolHealth, text: str, ctx: Context) -> list[Command]:
    """Keep quota, capacity, invalid specification and plain booting apart (INV-F5)."""
    match health:
        case PoolHealth.INVALID:
            return give_up(piece, ctx, Trouble.INVALID, text)
        case PoolHealth.NO_QUOTA:
            return give_up(piece, ctx, Trouble.QUOTA, text)
        case PoolHealth.NO_CAPACITY:
            waited, piece.trouble, piece.reason = piece.trouble, Trouble.CAPACITY, text
            return [] if waited is Trouble.CAPACITY else stop_clocks()
    piece.reason = text
    waited = piece.trouble
    if waited in (Trouble.CAPACITY, *UNANSWERED):  # machines came; or the pool is there, though nobody answered
        piece.trouble = Trouble.NONE
    return boot_clock(piece) if waited is Trouble.CAPACITY else []


# The places


def _start_place(piece: Slice, index: int) -> list[Command]:
    worker_id = worker_name(piece.seed.slice_id, index)
    if worker_id in piece.places:
        return []
    piece.places[worker_id] = None
    seed = piece.seed
    place = PodSeed(seed.config, seed.cluster, seed.slice_id, index, seed.scheduler, seed.links)
    return [Spawn(seed.place(place))]


def _fill_places(piece: Slice) -> list[Command]:
    """Start all places at once: a slice's pods are asked for only when all its nodes are there (gang
    admission).
    """
    return [command for index in range(piece.seed.config.num_vms) for command in _start_place(piece, index)]


def pod_shown(piece: Slice, pod: Pod, ctx: Context) -> list[Command]:
    """Pass a pod on to its place. One that belongs to no place of this slice is deleted."""
    worker_id = pod.labels.get(LABEL_WORKER, "")
    index = place_index(piece, worker_id)
    if index is None:
        return [Run(("stray", pod.name), DeletePod(pod.name, pod.uid))]
    piece.pods.setdefault(worker_id, {})[pod.name] = pod
    started = _start_place(piece, index)
    return started or [Tell(ctx.path / worker_id, PodSeen(pod), conflate=("pod", pod.name))]


def place_index(piece: Slice, worker_id: str) -> int | None:
    """Return the index of a worker's place in this slice, or None if it has none."""
    text = worker_id.rpartition("-")[2]
    if slice_of(worker_id) != piece.seed.slice_id or not text.isdecimal():
        return None
    index = int(text)
    return index if index < piece.seed.config.num_vms and str(index) == text else None


def check_workers(piece: Slice, ctx: Context) -> list[Command]:
    """Compare the workers that are registered with those the slice should have."""
    total = piece.seed.config.num_vms
    count = piece.registered
    assert count <= total
    if count == total:
        return move(piece, SliceEvent.WORKERS_READY, ctx)
    text = f"{count} of {total} workers are registered"
    commands = move(piece, SliceEvent.WORKERS_MISSING, ctx, text)
    failures = [each for each in piece.places.values() if each is not None and each.failures >= MAX_POD_FAILURES]
    if failures and piece.state is SliceState.INITIALIZING:
        commands += give_up(
            piece,
            ctx,
            Trouble.WORKERS,
            f"{failures[0].worker_id} failed {failures[0].failures} times: {failures[0].reason}",
        )
    elif piece.state is SliceState.INITIALIZING:
        told = [each for each in piece.places.values() if each is not None and each.info is None and each.reason]
        told.sort(key=lambda each: not each.refused)  # what people have to do something about comes first
        piece.reason = f"{text}; {told[0].worker_id}: {told[0].reason}" if told else text
        if any(each.refused for each in told):
            piece.trouble = Trouble.FORBIDDEN
        elif any(each is not None and each.failures for each in piece.places.values()):
            piece.trouble = Trouble.WORKERS
        elif piece.trouble is Trouble.FORBIDDEN:
            piece.trouble = Trouble.NONE
    return commands


def lose_places(piece: Slice, worker_id: str) -> None:
    """Forget a place's registration: its actor began anew or is gone."""
    if worker_id in piece.places:
        piece.places[worker_id] = None


def places_over(piece: Slice) -> bool:
    """Whether no place has a pod left."""
    return all(each is not None and each.state is PodState.REMOVED for each in piece.places.values())
