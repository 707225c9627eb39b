"""What a slice does on each message: the decisions, bound to the moves of :mod:`iriscw.fleet.slices.slice` and
:mod:`iriscw.fleet.slices.ending`. Every decision that may have changed something ends with a report to the group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iriscw.cloud.effects import CreateNodePool, DeleteNodePool, DeletePod, ListNodePools, ListPods
from iriscw.cloud.lifecycle import CallRefusal, RefusalJudgement, judge_error
from iriscw.cloud.model import LABEL_WORKER, NodePool
from iriscw.fleet.lifecycle import COMING, GOING
from iriscw.fleet.messages import (
    ActivityChanged,
    Cordon,
    Cordoned,
    SchedulerStarted,
    Uncordon,
    WorkerReady,
    WorkersMissed,
)
from iriscw.fleet.model import PodState, SliceState, Trouble, slice_of
from iriscw.fleet.pacing import backoff
from iriscw.fleet.signals import (
    CordonAnswered,
    Dismiss,
    Overdue,
    PodBriefed,
    PodReported,
    PodSeen,
    PodStarted,
    PodVanished,
    PoolSeen,
    PoolVanished,
    RemovePod,
    SliceBriefed,
    TryAgain,
)
from iriscw.fleet.slices.ending import delete, delete_again, dismiss, overdue, pods_over, pool_is_gone, proceed
from iriscw.fleet.slices.missed import list_failed, pods_listed, workers_missed
from iriscw.fleet.slices.slice import (
    UNANSWERED,
    Slice,
    announce,
    ask_for_pool,
    boot_clock,
    check_workers,
    close,
    create,
    give_up,
    judge,
    look_for_pool,
    lose_places,
    pod_shown,
    report,
    set_idle,
    stop_clocks,
)
from iriscw.runtime.vocabulary import (
    SECOND,
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


def briefed(piece: Slice, message: SliceBriefed, ctx: Context) -> Outcome:
    """Begin, or go on where the cloud shows that an earlier incarnation was."""
    if piece.briefed:
        return None
    piece.briefed = True
    piece.requested_at, piece.since = message.requested_at, ctx.wall
    piece.boot_estimate, piece.slow_after = message.boot_estimate, message.slow_after
    piece.pool_uid = message.pool_uid
    commands: list[Command] = []
    for pod in message.pods:
        commands += pod_shown(piece, pod, ctx)
    if piece.places:
        # An earlier incarnation may have shown them to the scheduler: closed until the slice is whole again.
        commands += close(piece, tuple(piece.places), ctx)
    if message.doomed:
        if message.pool is not None:
            piece.pool, piece.pool_uid = message.pool, message.pool.uid
        commands += give_up(piece, ctx, Trouble.NONE, message.doomed)
    elif message.pool is not None:
        commands += _observe(piece, message.pool, ctx)
    elif piece.pool_uid:
        commands.append(look_for_pool(piece))
    else:
        commands += create(piece, ctx)
    return (*commands, report(piece, ctx))


def _observe(piece: Slice, pool: NodePool, ctx: Context) -> list[Command]:
    """Take note of the pool as it is, whoever showed it."""
    other = bool(piece.pool_uid) and piece.pool_uid != pool.uid
    fresh = other or piece.pool_gone
    piece.pool, piece.pool_uid, piece.pool_gone = pool, pool.uid, False
    if piece.state in GOING:
        # Fresh is one that a create brought after its answer was given up on, or that took the name of one that is
        # gone. One that is still going, or that is looked for, has its deletion under way.
        fresh = fresh and piece.state is SliceState.DELETING
        return delete(piece) if fresh else []
    if piece.state is SliceState.FAILED:
        return []
    if other and piece.state is not SliceState.REQUESTED:
        return give_up(piece, ctx, Trouble.WORKERS, "the node pool was replaced from outside")
    return judge(piece, pool, ctx)


def pool_seen(piece: Slice, message: PoolSeen, ctx: Context) -> Outcome:
    """Take note of the pool, or of a change of it."""
    if not piece.briefed:
        return None
    return (*_observe(piece, message.pool, ctx), report(piece, ctx))


def pool_vanished(piece: Slice, message: PoolVanished, ctx: Context) -> Outcome:
    """Take note that the pool is gone."""
    if not piece.briefed or piece.pool_uid != message.uid:
        return None
    return (*pool_is_gone(piece, ctx), report(piece, ctx))


# Answers of the cloud. A later `Run` under the key "pool" waits for the earlier one, so what is answered
# may be older than the state: each answer is judged by the state there is now.


def completed(piece: Slice, message: Completed, ctx: Context) -> Outcome:
    """Act on a call that went well."""
    match message.effect:
        case CreateNodePool():
            piece.retries, piece.asking = 0, False
            commands = _learn(piece, message.value, ctx)
            if piece.state is SliceState.DELETING:
                commands = delete(piece)
            return (*commands, report(piece, ctx))
        case ListNodePools():
            return (*_listed(piece, message.value, ctx), report(piece, ctx))
        case ListPods():
            return tuple(pods_listed(piece, message.value))
        case DeleteNodePool() if piece.state is SliceState.DELETING and piece.pool_uid:
            return (delete_again(piece, ctx), report(piece, ctx))
    return None


def _learn(piece: Slice, pool: NodePool, ctx: Context) -> list[Command]:
    """Take note of a pool that an answer shows, unless the watch was faster: the answer is older then."""
    if piece.pool is not None and piece.pool.uid == pool.uid:
        return []
    return _observe(piece, pool, ctx)


def _listed(piece: Slice, pools: tuple[NodePool, ...], ctx: Context) -> list[Command]:
    if not pools:
        return pool_is_gone(piece, ctx)
    commands = _learn(piece, pools[0], ctx)
    if piece.state is SliceState.DELETING:
        commands += delete(piece)
    return commands


def failed(piece: Slice, message: Failed, ctx: Context) -> Outcome:
    """Act on a call that failed."""
    judgement = judge_error(message.error)
    match message.effect:
        case CreateNodePool():
            piece.asking = False
            return (*_create_failed(piece, judgement, ctx), report(piece, ctx))
        case DeleteNodePool(uid=uid) if judgement.refusal is CallRefusal.ABSENT:
            return (*pool_is_gone(piece, ctx), report(piece, ctx)) if uid == piece.pool_uid else None
        case ListNodePools() if piece.state not in (SliceState.REQUESTED, SliceState.DELETING):
            return None  # the pool was seen meanwhile
        case ListPods():
            return (list_failed(piece, judgement, ctx),)
        case DeletePod():
            return None  # a stray: the watch shows it again if it is still there
    return (_later(piece, judgement, ctx), report(piece, ctx))


def _create_failed(piece: Slice, judgement: RefusalJudgement, ctx: Context) -> list[Command]:
    if piece.state is SliceState.DELETING and not piece.pool_gone:
        return delete(piece)
    if piece.state is not SliceState.CREATING:
        return []  # the pool was seen meanwhile, or the slice goes and will look for it
    match judgement.refusal:
        case CallRefusal.QUOTA:
            return give_up(piece, ctx, Trouble.QUOTA, judgement.text)
        case CallRefusal.INVALID | CallRefusal.ABSENT:
            return give_up(piece, ctx, Trouble.INVALID, judgement.text)
        case CallRefusal.CONFLICT:
            return give_up(piece, ctx, Trouble.NAME_TAKEN, judgement.text)
        case CallRefusal.CAPACITY:
            later = _later(piece, judgement, ctx)
            piece.trouble = Trouble.CAPACITY
            return [later, *stop_clocks()]
    resumed = boot_clock(piece) if piece.trouble is Trouble.CAPACITY else []
    return [_later(piece, judgement, ctx), *resumed]


def _later(piece: Slice, judgement: RefusalJudgement, ctx: Context) -> Command:
    """Repeat the call after a while: nothing is concluded from an API that does not answer."""
    timing = piece.seed.config.timing
    piece.retries += 1
    piece.reason = judgement.text
    if piece.trouble in (Trouble.NONE, Trouble.CAPACITY, Trouble.SLOW_BOOT, *UNANSWERED):
        piece.trouble = Trouble.FORBIDDEN if judgement.refusal is CallRefusal.FORBIDDEN else Trouble.API
    delay = backoff(piece.retries, timing.retry_backoff, timing.retry_backoff_max, ctx.rng)
    return SetTimer("pool", max(delay, judgement.retry_after), TryAgain("pool"))


def try_again(piece: Slice, message: TryAgain, ctx: Context) -> Outcome:
    """Repeat the call that the present state needs."""
    if message.what == "retell":
        told = announce(piece) if piece.state is SliceState.READY else []
        if piece.state in GOING:
            told += [Tell(ctx.path / name, RemovePod()) for name in piece.places]
        return (*told, report(piece, ctx))
    if message.what == "missed":
        piece.missed = ()
        return None
    match piece.state:
        case SliceState.CREATING:
            return (ask_for_pool(piece),)
        case SliceState.DELETING if not piece.pool_gone:
            return tuple(delete(piece))
        case SliceState.REQUESTED:
            return (look_for_pool(piece),)
    return None


# Deadlines


def deadline(piece: Slice, message: Overdue, ctx: Context) -> Outcome:
    """Act on something that should have been over by now."""
    commands: list[Command] = []
    match message.what:
        case "slow":
            if piece.state in COMING and piece.trouble is Trouble.NONE:
                piece.trouble = Trouble.SLOW_BOOT
        case "pods":
            if piece.state is SliceState.DRAINING:
                commands += pods_over(piece, ctx)
        case "deletion":
            commands += overdue(piece, ctx)
        case _:
            commands += _too_slow(piece, message.what, ctx)
    return (*commands, report(piece, ctx))


_TOO_SLOW: Mapping[str, tuple[tuple[SliceState, ...], Trouble, str]] = {
    "requesting": ((SliceState.CREATING,), Trouble.API, "the cloud did not acknowledge the node pool within"),
    "boot": ((SliceState.CREATING, SliceState.BOOTING), Trouble.SLOW_BOOT, "its nodes did not boot within"),
    "init": ((SliceState.INITIALIZING,), Trouble.WORKERS, "its workers did not register within"),
    "startup": (COMING, Trouble.SLOW_BOOT, "it did not become ready within"),
}
"""Each deadline: the states it applies to, what it means, and what users read."""


def _too_slow(piece: Slice, what: str, ctx: Context) -> list[Command]:
    states, trouble, text = _TOO_SLOW[what]
    if piece.state not in states:
        return []
    if piece.trouble is Trouble.FORBIDDEN:
        trouble = piece.trouble
    timing = piece.seed.config.timing
    spans = {
        "requesting": timing.requesting_timeout,
        "boot": timing.boot_timeout,
        "init": timing.init_timeout,
        "startup": timing.startup_grace,
    }
    last = f" ({piece.reason})" if piece.reason else ""
    return give_up(piece, ctx, trouble, f"{text} {spans[what] // SECOND} s{last}")


# The places


def place_started(piece: Slice, message: PodStarted, ctx: Context) -> Outcome:
    """Brief a place that began, or began anew."""
    worker_id = message.worker_id
    lose_places(piece, worker_id)
    where = ctx.path / worker_id
    began_anew = piece.state is SliceState.READY
    pods = tuple(pod for _, pod in sorted(piece.pods.get(worker_id, {}).items()))
    commands: list[Command] = [Tell(where, PodBriefed(pods))]
    if piece.state in GOING:
        commands.append(Tell(where, RemovePod()))
    if began_anew:
        commands += [*check_workers(piece, ctx), report(piece, ctx)]
    return tuple(commands)


def pod_reported(piece: Slice, message: PodReported, ctx: Context) -> Outcome:
    """Take note of how a place stands."""
    if message.worker_id not in piece.places:
        return None
    before = piece.places[message.worker_id]
    piece.places[message.worker_id] = message
    changed = (
        before is None
        or before.info is None
        or before.info.incarnation != (message.info.incarnation if message.info else "")
    )
    if changed and message.worker_id in piece.live:
        # Attempts belong to an incarnation: those of an earlier one are over, or never to be trusted again.
        piece.live_total -= piece.live.pop(message.worker_id)
    commands: list[Command] = []
    if piece.state in GOING:
        commands += proceed(piece, ctx)
    elif piece.state in (SliceState.INITIALIZING, SliceState.READY):
        again = piece.state is SliceState.READY and changed and message.info is not None
        commands += check_workers(piece, ctx)
        if again and piece.state is SliceState.READY and message.info is not None:
            commands.append(Tell(piece.seed.scheduler, WorkerReady(message.info)))
    set_idle(piece, ctx)
    return (*commands, report(piece, ctx))


def pod_seen(piece: Slice, message: PodSeen, ctx: Context) -> Outcome:
    """Pass a pod on to its place."""
    return tuple(pod_shown(piece, message.pod, ctx)) if piece.briefed else None


def pod_vanished(piece: Slice, message: PodVanished, ctx: Context) -> Outcome:
    """Pass on that a pod is gone."""
    worker_id = message.pod.labels.get(LABEL_WORKER, "")
    if not piece.briefed or worker_id not in piece.places:
        return None
    piece.pods.get(worker_id, {}).pop(message.pod.name, None)
    return (Tell(ctx.path / worker_id, message),)


def place_ended(piece: Slice, message: Terminated, ctx: Context) -> Outcome:
    """Note that a place failed for good: its worker is not known any more, and the slice is replaced."""
    name = message.path.name
    if name not in piece.places:
        return None
    text = f"{name} failed: {message.reason.value}"
    # Its pods are left to the group, which reclaims whatever belongs to no slice.
    piece.places[name] = PodReported(name, PodState.REMOVED, None, text, 0)
    piece.live_total -= piece.live.pop(name, 0)
    commands = give_up(piece, ctx, Trouble.WORKERS, text)
    if piece.state in GOING:
        commands += proceed(piece, ctx)
    return (*commands, report(piece, ctx))


# The scheduler


def activity(piece: Slice, message: ActivityChanged, ctx: Context) -> Outcome:
    """Keep the idle clock."""
    told = piece.places.get(message.worker_id)
    if told is None or told.info is None or told.info.incarnation != message.incarnation:
        return None
    assert slice_of(message.worker_id) == piece.seed.slice_id
    piece.live_total += message.live_attempts - piece.live.get(message.worker_id, 0)
    piece.live[message.worker_id] = message.live_attempts
    piece.used = piece.used or message.live_attempts > 0
    set_idle(piece, ctx)
    return (report(piece, ctx),)


def scheduler_started(piece: Slice, message: SchedulerStarted, ctx: Context) -> Outcome:
    """Tell a new scheduler of the workers here."""
    return tuple(announce(piece)) if piece.state is SliceState.READY else None


def cordoned(piece: Slice, message: Cordoned, ctx: Context) -> Outcome:
    """Pass the scheduler's answer to the group, whose reports of this slice may be old."""
    answer = CordonAnswered(
        slice_id=piece.seed.slice_id,
        live_attempts=message.live_attempts,
        round=message.round,
        idle_since=piece.idle_since,
        at=ctx.now,
    )
    return (Tell(ctx.path.parent, answer),)


def dismissed(piece: Slice, message: Dismiss, ctx: Context) -> Outcome:
    """Begin the end."""
    if not piece.briefed:
        return None  # the briefing says that it is doomed, and the group dismisses it again
    return (*dismiss(piece, ctx, message.reason), report(piece, ctx))


def undelivered(piece: Slice, message: Undelivered, ctx: Context) -> Outcome:
    """Tell again later what is true then."""
    if isinstance(message.message, Cordon | Uncordon):
        return (SetTimer("cordon", RETELL_DELAY, message.message),)
    return (SetTimer("retell", RETELL_DELAY, TryAgain("retell")),)


def tell_cordon(piece: Slice, message: Cordon | Uncordon, ctx: Context) -> Outcome:
    """Tell a cordon or its end that found the scheduler's mailbox full, if it is still what is meant."""
    if isinstance(message, Cordon) and message.round != piece.cordon:
        return None
    return (Tell(piece.seed.scheduler, message),)


RULES: Mapping[type[Any], DecisionFunction] = {
    SliceBriefed: briefed,
    PoolSeen: pool_seen,
    PoolVanished: pool_vanished,
    Completed: completed,
    Failed: failed,
    TryAgain: try_again,
    Overdue: deadline,
    PodStarted: place_started,
    PodReported: pod_reported,
    PodSeen: pod_seen,
    PodVanished: pod_vanished,
    Terminated: place_ended,
    ActivityChanged: activity,
    SchedulerStarted: scheduler_started,
    WorkersMissed: workers_missed,
    Cordoned: cordoned,
    Dismiss: dismissed,
    Undelivered: undelivered,
    Cordon: tell_cordon,
    Uncordon: tell_cordon,
}
"""The decision for each message a slice accepts."""
