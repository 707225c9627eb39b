"""What the ends of attempts come to: gathered over one decision, carried out together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from iriscw.jobs.job import views
from iriscw.jobs.job.desired_attempts import latest_attempt, link_of, scheduler_of, stops
from iriscw.jobs.job.ledger import JobLedger, Place
from iriscw.jobs.keeping.copies import copy_key, dropped, left_of
from iriscw.jobs.keeping.going_back import BACK_LIMIT_NS, is_passed_over, may_go_back, passed_over
from iriscw.jobs.keeping.messages import BackOverdue, GoesBack, PassedOver
from iriscw.jobs.keeping.records import CheckpointPassedOver, CopyFailed, WentBack
from iriscw.jobs.lifecycle import LOST, Judgement, judge
from iriscw.jobs.messages import AttemptsOver, Disband, Refusal, ReleaseAttempts, Settle, StopRest
from iriscw.jobs.model import (
    MAX_FAULTS_CHARS,
    TASK_TERMINAL,
    Assembly,
    AttemptEnd,
    AwaitLogs,
    Ending,
    Observation,
    TaskState,
)
from iriscw.jobs.records import AttemptEnded, GangAssembly, LogsSettled
from iriscw.jobs.scheduling.refusals import rest_of
from iriscw.jobs.step_limits import STEP_ATTEMPTS
from iriscw.jobs.suspension.effects import DropCheckpoint
from iriscw.jobs.suspension.messages import PlaceSuspended, SuspensionChanged
from iriscw.jobs.suspension.model import Stage
from iriscw.jobs.suspension.moves import (
    Move,
    after,
    drop_of,
    left,
    log_end_unknown,
    view_of,
    waiting_for,
    went_back,
)
from iriscw.jobs.traits import kept_fault
from iriscw.runtime.vocabulary import (
    SECOND,
    Cancel,
    CancelTimer,
    Command,
    Context,
    Continue,
    Decision,
    Emit,
    Outcome,
    Run,
    SetTimer,
    Tell,
)


@attrs.define
class Ends:
    """What one decision finds out about attempts: that they ended, mostly. Over with :func:`conclude`."""

    records: list[Any] = attrs.field(factory=list)
    commands: list[Command] = attrs.field(factory=list)
    uids: list[str] = attrs.field(factory=list)
    """Attempts that take no room any more."""
    pending: list[tuple[int, int]] = attrs.field(factory=list)
    resting: list[tuple[int, int]] = attrs.field(factory=list)
    """Tasks that rest before they wait again: index, ns."""
    began: list[str] = attrs.field(factory=list)
    refused: Refusal | None = None
    released: dict[Place, list[str]] = attrs.field(factory=dict)
    faults_chars: int = 0
    stops_gang: bool = False
    unjudged: int = 0
    """How many members of a gang say that they failed, which has to wait for the others' ends."""
    waiting: list[Command] = attrs.field(factory=list)
    """What the scheduler is told of suspended attempts, behind what takes no room any more."""
    moves: dict[str, Move] = attrs.field(factory=dict)
    """What the records gathered so far make of the suspensions of attempts, by uid."""


def await_logs(uid: str, index: int, offset: int, bound_ns: int) -> Run:
    """Have the log store be asked for the last line of an attempt's log."""
    return Run(("logs", index, uid), AwaitLogs(uid, offset, bound_ns))


def move_of(ledger: JobLedger, uid: str, ends: Ends) -> Move | None:
    """Return what is known of an attempt's suspensions, as of the records gathered so far."""
    return ends.moves.get(uid) or ledger.moves.get(uid)


def step(ledger: JobLedger, index: int, uid: str, ends: Ends, ctx: Context, *records: Any) -> Move:
    """Record what is new about a suspension, and publish it; give what it is then."""
    before = move_of(ledger, uid, ends)
    then = ends.moves[uid] = after(before, records)
    ends.records += records
    view = view_of(index, uid, then)
    if before is None or view != view_of(index, uid, before):
        ends.commands.append(Emit(SuspensionChanged(ledger.job_id, view, ctx.wall)))
    over = left(before, then, ctx.wall)
    if over is not None:
        ends.commands.append(Emit(over))
    return then


def end_attempt(
    ledger: JobLedger, index: int, ending: Ending, seen: Observation, ends: Ends, ctx: Context, logs_bound_ns: int
) -> None:
    """Record that an attempt is over, and what that makes of its task."""
    task = ledger.tasks[index]
    attempt = latest_attempt(ledger, index)
    started = seen.started or attempt.started_wall_ns > 0
    judged = judge(
        ledger.spec,
        None if ledger.verdict is None else ledger.verdict.state,
        ending,
        started=started,
        failures=task.failures,
        preemptions=task.preemptions,
        unstarted=task.unstarted,
    )
    move = move_of(ledger, seen.uid, ends)
    passed = is_passed_over(move)
    if passed and ledger.verdict is None:  # the end that counts is that of the life before
        judged = Judgement(TaskState.PENDING)
    # One that overran its timeout begins from nothing, also if its worker is lost before it is stopped.
    back = not attempt.overran and may_go_back(ledger, ending, judged, seen.exit_code)
    if back and _goes_back(ledger, index, ending, seen, judged, ends, ctx):
        return
    _record_end(ledger, index, ending, seen, judged, ends, ctx, logs_bound_ns)


def _goes_back(
    ledger: JobLedger, index: int, ending: Ending, seen: Observation, judged: Judgement, ends: Ends, ctx: Context
) -> bool:
    """Have an attempt that is to be tried again go back to a checkpoint, if there is one.

    One that was on its way back, and that nobody could bring back, goes to the one before, and counts against nothing.
    """
    uid = seen.uid
    copies, move = ledger.copies.get(uid), move_of(ledger, uid, ends)
    if copies is None:
        return False
    bad = passed_over(copies, move)
    for each in bad:
        drop = dropped(uid, each)
        ends.records.append(CheckpointPassedOver(index, uid, each.number, seen.reason, ctx.wall))
        ends.commands.append(Emit(PassedOver(ledger.job_id, index, uid, each.checkpoint, seen.reason, ctx.wall)))
        ends.commands.append(Run(("drop", drop.key), drop))
    kept = tuple(each for each in copies.kept if each not in bad)
    if not kept:
        return False
    if copies.under_way:  # once complete it would take the place of the one that is gone back to
        drop = DropCheckpoint(copy_key(uid, copies.number))
        ends.records.append(CopyFailed(index, uid, "what it was made of has ended", True, ctx.wall))
        ends.commands += (CancelTimer(("copy", uid)), Cancel(("copy", index, uid)), Run(("drop", drop.key), drop))
    attempt, to = latest_attempt(ledger, index), kept[-1]
    record = WentBack(
        index=index,
        uid=uid,
        number=to.number,
        checkpoint=to.checkpoint,
        node=to.node,
        end=AttemptEnd(ending, seen.exit_code, kept_fault(seen.reason, "")),
        failure=judged.failure,
        preemption=judged.preemption,
        log_offset=max(seen.log_offset, 0 if move is None else move.log_offset),
        wall_ns=ctx.wall,
    )
    if move is not None:
        _end_move(uid, index, move, ends, ctx)
    then = ends.moves[uid] = went_back(move, to, record)
    ends.records.append(record)
    ends.uids.append(uid)
    ends.began.append(uid)
    if uid in ledger.live:
        ends.released.setdefault((attempt.worker_id, attempt.incarnation), []).append(uid)
    over = left(move, then, ctx.wall)
    ends.commands += () if over is None else (Emit(over),)
    ends.commands += (
        Emit(SuspensionChanged(ledger.job_id, view_of(index, uid, then), ctx.wall)),
        Emit(GoesBack(ledger.job_id, index, uid, to.checkpoint, then.reason, ctx.wall)),
        SetTimer(("back", uid), BACK_LIMIT_NS, BackOverdue(index, uid, then.number)),
    )
    place = PlaceSuspended(ledger.job_id, waiting_for(uid, index, then, ctx.wall))
    ends.waiting.append(Tell(scheduler_of(ctx), place))
    return True


def of_earlier_life(ledger: JobLedger, seen: Observation) -> bool:
    """Tell whether a worker speaks of a life of an attempt that was over before it went on from its checkpoint."""
    move = ledger.moves.get(seen.uid)
    return move is not None and move.anew and seen.life != move.grant


def _drop_copies(ledger: JobLedger, index: int, uid: str, ends: Ends) -> None:
    """Have what is kept of an attempt that is over be removed."""
    copies = ledger.copies.get(uid)
    if copies is None:
        return
    ends.commands += (CancelTimer(("copy due", uid)), CancelTimer(("copy", uid)), CancelTimer(("back", uid)))
    ends.commands.append(Cancel(("copy", index, uid)))
    gone = [each.number for each in ends.records if isinstance(each, CheckpointPassedOver) and each.uid == uid]
    for drop in left_of(uid, copies, gone):
        ends.commands.append(Run(("drop", drop.key), drop))


def _record_end(
    ledger: JobLedger,
    index: int,
    ending: Ending,
    seen: Observation,
    judged: Judgement,
    ends: Ends,
    ctx: Context,
    logs_bound_ns: int,
) -> None:
    task = ledger.tasks[index]
    attempt = latest_attempt(ledger, index)
    started = seen.started or attempt.started_wall_ns > 0
    reason, timeout_ns = seen.reason, ledger.spec.timeout_ns
    if ending is Ending.TIMED_OUT and timeout_ns:  # its worker knows only that it was told to end it
        reason = f"TaskTimeout: it ran for its timeout of {timeout_ns / SECOND:g} s"
    final = judged.then in TASK_TERMINAL
    logs_due = final and ending not in LOST and seen.log_offset > seen.logs_stored
    room = ledger.faults_chars + ends.faults_chars + len(seen.details) <= MAX_FAULTS_CHARS
    end = AttemptEnd(ending, seen.exit_code, kept_fault(reason, seen.details if room else ""))
    ends.faults_chars += len(end.details)
    ends.records.append(
        AttemptEnded(
            index=index,
            uid=seen.uid,
            end=end,
            then=judged.then,
            wall_ns=ctx.wall,
            failure=judged.failure,
            preemption=judged.preemption,
            unstarted=judged.unstarted,
            log_offset=seen.log_offset,
            logs_due=logs_due,
        )
    )
    ends.uids.append(seen.uid)
    _drop_copies(ledger, index, seen.uid, ends)
    move = move_of(ledger, seen.uid, ends)
    unknown_log = False
    if move is not None:
        unknown_log = log_end_unknown(move, seen)
        _end_move(seen.uid, index, move, ends, ctx)
    if unknown_log and not logs_due and ending not in LOST:
        ends.records.append(LogsSettled(index, seen.uid, complete=False))
    # Also one that has none any more: its last worker may be silent, and was not told.
    ends.released.setdefault((attempt.worker_id, attempt.incarnation), []).append(seen.uid)
    if started:
        ends.began.append(seen.uid)
    elif ending is Ending.REFUSED and not seen.unstartable:
        ends.refused = Refusal(attempt.worker_id, attempt.incarnation, seen.reason)
    rest = rest_of(task.unstarted + 1) if judged.unstarted and not seen.unstartable else 0
    if ledger.gang:
        ledger.rest_ns = max(ledger.rest_ns, rest)
    elif judged.then is TaskState.PENDING and rest:
        ends.resting.append((index, rest))
    elif judged.then is TaskState.PENDING:
        ends.pending.append((index, index + 1))
    if ledger.gang and judged.then is not TaskState.SUCCEEDED:
        ends.stops_gang = True
    if logs_due:
        ends.commands.append(await_logs(seen.uid, index, seen.log_offset, logs_bound_ns))
    else:
        change = views.task_changed(
            ledger,
            index,
            judged.then,
            seen.uid,
            attempt.worker_id,
            log_offset=seen.log_offset,
            logs_complete=ending not in LOST and not unknown_log,
            wall_ns=ctx.wall,
        )
        ends.commands.append(Emit(change))


def _end_move(uid: str, index: int, move: Move, ends: Ends, ctx: Context) -> None:
    """Give up what is under way for the suspension of an attempt, and have its checkpoint removed."""
    if move.stage is Stage.RUNS:
        return
    ends.commands += (Cancel(("freeze", index, uid)), Cancel(("thaw", index, uid)), Cancel(("store", index, uid)))
    ends.commands += (CancelTimer(("move", uid)), CancelTimer(("thaw", uid)))
    over = left(move, None, ctx.wall)
    if over is not None:
        ends.commands.append(Emit(over))
    drop = drop_of(uid, move)
    if drop is not None:
        ends.commands.append(Run(("drop", drop.key), drop))


def conclude(ledger: JobLedger, ends: Ends, ctx: Context) -> Outcome:
    """Free the room, let the worker forget, and settle."""
    commands = ends.commands
    if ends.uids:
        over = AttemptsOver(
            ledger.job_id, tuple(ends.uids), tuple(ends.pending), began=tuple(ends.began), refused=ends.refused
        )
        commands.append(Tell(scheduler_of(ctx), over))
    commands += ends.waiting
    for index, rest_ns in ends.resting:
        commands.append(Tell(scheduler_of(ctx), AttemptsOver(ledger.job_id, (), ((index, index + 1),), rest_ns)))
    for (worker_id, incarnation), uids in ends.released.items():
        commands.append(Tell(link_of(ctx, worker_id), ReleaseAttempts(incarnation, tuple(uids))))
    if ends.stops_gang and ledger.open:
        _break_gang(ledger, ends, ctx)
    if ends.records or ends.unjudged:
        commands.append(Continue(Settle(ledger.shown())))
    if not commands:
        return None
    return Decision(records=tuple(ends.records), commands=tuple(commands))


def _break_gang(ledger: JobLedger, ends: Ends, ctx: Context) -> None:
    """Have the other members of a gang stopped, once; those that were never ordered are taken back."""
    if ledger.assembly is Assembly.GATHERING:
        ends.records.insert(0, GangAssembly(Assembly.DISBANDING))
        ends.commands.append(Continue(Disband()))
    elif ledger.assembly is Assembly.NONE and not ledger.broken and len(ledger.unjudged) == ends.unjudged:
        over_now = dict.fromkeys((*ends.uids, *ledger.unjudged))
        siblings = tuple(uid for uid in ledger.live if uid not in over_now)
        ends.commands += stop_all(ledger, siblings, Ending.GANG_STOPPED, ctx)


def stop_all(ledger: JobLedger, uids: tuple[str, ...], ending: Ending, ctx: Context) -> Iterator[Command]:
    """Have live attempts stopped, some now and the rest in further steps."""
    yield from stops(ledger, uids[:STEP_ATTEMPTS], ending, ctx)
    if len(uids) > STEP_ATTEMPTS:
        yield Continue(StopRest(uids, STEP_ATTEMPTS, ending))
