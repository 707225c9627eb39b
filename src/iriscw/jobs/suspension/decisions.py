"""How a job suspends an attempt and has it go on: the decisions about stages (see :mod:`iriscw.jobs.suspension.model`).

*Who says what.* Somebody asks (``SuspendTask``, ``ResumeTask``), the worker says how its attempt is, those who freeze
say what became of that, the scheduler finds a worker, and the job decides.

=========== ==================================================== ====================================================
found in    and then                                             so
=========== ==================================================== ====================================================
RUNS        it is asked for                                      ASKED; its worker is told
ASKED       its worker says SUSPENDING                           FREEZING; a freeze is ordered
ASKED       its worker is lost                                   it ends, as any other
FREEZING    it is frozen                                         FROZEN; SUSPENDED, if its worker has said so or is gone
FREEZING    the freeze is undone, or nobody can say              RUNS; its worker is told to go on
FREEZING    its worker is gone for good                          what became of its freeze is waited for: frozen is
                                                                 SUSPENDED if its folder was told, all else lost
FROZEN      its worker says SUSPENDED                            SUSPENDED; its worker may forget it
FROZEN      its worker is gone for good                          SUSPENDED if its folder was told, else lost
SUSPENDED   it is to be stored                                   its agent moves the checkpoint to the repository
SUSPENDED   it did not come there                                stored again after a while, if it is not to go on
SUSPENDED   that has it                                          any worker of a machine with that repository is one
                                                                 *there*; not stored: those of its machine, as before
SUSPENDED   it is to go on, and a worker there has room          RESUMING under a new grant; the worker is told
RESUMING    its worker says RESUMING and tells the folder        a thaw is ordered
RESUMING    its worker says that it runs                         RUNS; its checkpoint is removed
RESUMING    the thaw is undone, or nobody can say                tried again after a while, ``THAWS`` times; then given
                                                                 up, or, if the repository has it, as the next
RESUMING    its machine cannot bring it back, as that is         its worker is told to take the grant back
RESUMING    its worker says that the grant was not taken         SUSPENDED, and that machine not tried for a while
RESUMING    its worker is gone for good, and so is what came     SUSPENDED, if the repository has it, and another
            back                                                 machine is tried; else lost
any         its worker says SUSPENDED, and nobody has frozen it  given up
not RUNS    its worker says that it has ended                    it has; its checkpoint is removed
SUSPENDED,  the job has its verdict                              it ends at once; nobody has it
FREEZING
without a
worker
others      the job has its verdict, its time is over            its worker is told to stop it
=========== ==================================================== ====================================================

*Never two.* A worker gets one grant, in the record that names it; no other worker is named for the attempt after that,
until it runs there and was suspended again, or that worker has said that it took this grant back before anybody had
taken it. Before, nobody is named until the one that had it has said that nothing of it runs, or is gone for good: and
then what is frozen is the whole of it. So it does not matter how often a checkpoint is thawed, and by whom: without a
grant that was not taken nothing comes of it.

*A try to bring it back that failed* leaves the grant on offer, so the next one is made on the same worker.

*The way back.* Taking a grant and taking it back are one rename each of one file, so one of them succeeds, and only the
worker that has it says which: no silence, no loss of a worker and no thaw that failed counts as that word. It names the
grant, so a worker where it was suspended before, and that has not heard of the grant, says nothing by saying SUSPENDED.
If the grant was taken, it runs there, whatever became of its thaw.

*A gang* is not suspended, nor a part of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from iriscw.jobs.errors import TaskNotRunning
from iriscw.jobs.job.desired_attempts import latest_attempt, link_of, run_order, scheduler_of, stop_for
from iriscw.jobs.job.ends import Ends, conclude, end_attempt, move_of, step
from iriscw.jobs.job.ledger import JobLedger
from iriscw.jobs.keeping.going_back import BACK_LIMIT_NS, RETURNS
from iriscw.jobs.keeping.messages import BackOverdue
from iriscw.jobs.messages import AttemptsOver, RunAttempts, StopAttempts
from iriscw.jobs.model import AttemptEnd, Ending, Observation, Suspension, TaskState
from iriscw.jobs.settings import JobSettings
from iriscw.jobs.step_limits import STEP_ATTEMPTS
from iriscw.jobs.suspension.effects import (
    CheckpointStored,
    FreezeAttempt,
    Frozen,
    FrozenAttempt,
    StoreCheckpoint,
    ThawAttempt,
    Thawed,
    ThawedAttempt,
)
from iriscw.jobs.suspension.messages import (
    CheckpointLeft,
    ContinueAttempts,
    EndAway,
    FindSuspended,
    MoveOverdue,
    PlaceAgain,
    PreemptAttempts,
    ResumeMoves,
    ResumeTask,
    StoreAgain,
    SuspendAttempts,
    SuspendedPlaced,
    SuspendedUnwanted,
    SuspendTask,
    SuspensionView,
    ThawAgain,
    WithdrawGrants,
)
from iriscw.jobs.suspension.model import SUSPENDING, Stage
from iriscw.jobs.suspension.moves import (
    THAWS,
    Move,
    drop_of,
    freeze_key,
    grant_of,
    thaw_key,
    thawed_on,
    times_doubted,
    to_be_stored,
    view_of,
    waits_for_worker,
)
from iriscw.jobs.suspension.placing import MAX_REASON_CHARS, pause_ns, placed, stored_by_agent, tried_again
from iriscw.jobs.suspension.records import (
    AttemptDeserted,
    AttemptFreezing,
    AttemptFrozen,
    AttemptGivenUp,
    AttemptResumed,
    AttemptResuming,
    AttemptSuspended,
    AttemptThawing,
    AttemptUnplaced,
    AttemptVacated,
    CheckpointDropped,
    ResumptionWanted,
    SuspensionAsked,
    SuspensionUndone,
    ThawRefused,
    ThawUndone,
)
from iriscw.jobs.suspension.refusals import not_now, not_suspendable, over
from iriscw.jobs.suspension.storing import StoreDecisions
from iriscw.jobs.suspension.yielding import YieldDecisions, limit_ns, limit_of, preempted
from iriscw.jobs.traits import Fault
from iriscw.runtime.vocabulary import (
    Cancel,
    CancelTimer,
    Command,
    Completed,
    Context,
    Continue,
    Decision,
    DecisionFunction,
    Emit,
    Failed,
    Outcome,
    Refuse,
    Reply,
    Run,
    SetTimer,
    Tell,
    replace,
)

GONE = "its processes are gone, and nobody froze them"


class SuspendDecisions:
    """The decisions, for one set of settings."""

    def __init__(self, settings: JobSettings) -> None:
        self.settings = settings
        self.storing = StoreDecisions(settings)
        self.yielding = YieldDecisions(settings)

    def rules(self) -> dict[type, DecisionFunction]:
        """Return the decision for each message."""
        return {
            SuspendTask: self.suspend,
            ResumeTask: self.resume_task,
            FindSuspended: self.find_suspended,
            SuspendedPlaced: self.placed,
            EndAway: self.end_away,
            MoveOverdue: self.overdue,
            ThawAgain: self.thaw_again,
            PlaceAgain: self.place_again,
            StoreAgain: self.storing.again,
            ResumeMoves: self.resume_rest,
            BackOverdue: self.back_overdue,
            PreemptAttempts: self.yielding.preempt,
        }

    # What is asked

    def suspend(self, ledger: JobLedger, message: SuspendTask, ctx: Context) -> Outcome:
        """Promise that the attempt of a task will be suspended."""
        if ctx.reply_to is None:
            return None
        error = not_suspendable(ledger, message.index)
        attempt = ledger.holder(message.index)
        if error is not None or attempt is None:
            return (Refuse(error or TaskNotRunning(f"task {message.index} of {ledger.job_id} has no attempt")),)
        move = ledger.moves.get(attempt.uid)
        index, uid = message.index, attempt.uid
        if move is not None and (move.key == message.key or move.stage in (*SUSPENDING, Stage.SUSPENDED)):
            return self._stays(ledger, index, uid, move, message.key, ctx)
        error = not_now(ledger, attempt, move)
        if error is not None:
            return (Refuse(error),)
        asked = SuspensionAsked(
            index, uid, message.key, message.tier, message.force, message.labels, ctx.wall, message.store
        )
        ends = Ends()
        then = step(ledger, index, uid, ends, ctx, asked)
        tell = Tell(link_of(ctx, attempt.worker_id), SuspendAttempts(attempt.incarnation, (uid,)))
        answer = Reply(view_of(index, uid, then))
        commands = (*ends.commands, tell, limit_of(self.settings, index, uid, then, ctx), answer)
        return Decision(records=tuple(ends.records), commands=commands)

    def _stays(self, ledger: JobLedger, index: int, uid: str, move: Move, key: str, ctx: Context) -> Outcome:
        """Answer with what is; of one that was to go on, and is asked for again, that it will not."""
        if not move.wanted or key == move.key:
            return (Reply(view_of(index, uid, move)),)
        ends = Ends()
        then = step(ledger, index, uid, ends, ctx, ResumptionWanted(index, uid, key, False, ctx.wall))
        unwanted = Tell(scheduler_of(ctx), SuspendedUnwanted(ledger.job_id, uid))
        commands = (*ends.commands, unwanted, *self.storing.later(index, uid, then), Reply(view_of(index, uid, then)))
        return Decision(records=tuple(ends.records), commands=commands)

    def resume_task(self, ledger: JobLedger, message: ResumeTask, ctx: Context) -> Outcome:
        """Promise that the attempt of a task will go on."""
        if ctx.reply_to is None:
            return None
        index = message.index
        error = over(ledger, index)
        attempt = ledger.holder(index)
        if error is not None or attempt is None:
            return (Refuse(error or TaskNotRunning(f"task {index} of {ledger.job_id} has no attempt")),)
        uid, move = attempt.uid, ledger.moves.get(attempt.uid)
        if move is None:
            return (Reply(SuspensionView(index, uid, Suspension.NONE)),)
        here = (*SUSPENDING, Stage.SUSPENDED)
        if move.wanted or move.stage not in here or message.key == move.resume_key or not ledger.open:
            return (Reply(view_of(index, uid, move)),)
        ends = Ends()
        then = step(ledger, index, uid, ends, ctx, ResumptionWanted(index, uid, message.key, True, ctx.wall))
        commands = (*ends.commands, *placed(ledger, index, uid, then, ctx), Reply(view_of(index, uid, then)))
        return Decision(records=tuple(ends.records), commands=commands)

    def find_suspended(self, ledger: JobLedger, message: FindSuspended, ctx: Context) -> Outcome:
        """Say whose checkpoint this is."""
        if ctx.reply_to is None:
            return None
        for uid, move in ledger.moves.items():
            if move.checkpoint == message.checkpoint:
                return (Reply(view_of(ledger.live.get(uid, ledger.away.get(uid, -1)), uid, move)),)
        return (Reply(None),)

    # What the worker says

    def heard(self, ledger: JobLedger, index: int, seen: Observation, ends: Ends, ctx: Context) -> None:
        """Take note of what its worker says about a live attempt, as far as suspensions go."""
        move = move_of(ledger, seen.uid, ends)
        if move is None:
            if seen.suspension is Suspension.SUSPENDED:
                self._give_up(ledger, index, seen.uid, GONE, ends, ctx)
            return
        match move.stage, seen.suspension:
            case Stage.ASKED, Suspension.SUSPENDING if self._may_freeze(ledger, index, seen.uid):
                freezing = AttemptFreezing(
                    index, seen.uid, seen.folder, ctx.wall, seen.ports, seen.process_started_wall_ns, seen.host
                )
                then = step(ledger, index, seen.uid, ends, ctx, freezing)
                ends.commands.append(self._freeze(ledger, index, seen.uid, then))
            case ((Stage.RUNS | Stage.ASKED), Suspension.SUSPENDED):
                self._give_up(ledger, index, seen.uid, GONE, ends, ctx)
            case ((Stage.FREEZING | Stage.FROZEN), Suspension.SUSPENDED) if not move.vacated:
                self._vacated(ledger, index, seen, move, ends, ctx)
            case Stage.RESUMING, Suspension.RESUMING if seen.folder and not move.thawing:
                had = latest_attempt(ledger, index).gpus
                others = tuple(pair for pair in zip(had, seen.gpus, strict=False) if pair[0] != pair[1])
                then = step(ledger, index, seen.uid, ends, ctx, AttemptThawing(index, seen.uid, ctx.wall, others))
                ends.commands.append(self._thaw(index, seen.uid, then))
            case Stage.RESUMING, Suspension.SUSPENDED if seen.withdrawn and seen.withdrawn == move.grant:
                self._unplaced(ledger, index, seen, move, ends, ctx)
            case Stage.RESUMING, Suspension.NONE if seen.state is TaskState.RUNNING:
                self._resumed(ledger, index, seen.uid, move, ends, ctx)
            case _:
                pass

    def _may_freeze(self, ledger: JobLedger, index: int, uid: str) -> bool:
        """Whether it is not being stopped, and no copy of it is under way, whose end has this asked again."""
        copies = ledger.copies.get(uid)
        return stop_for(ledger, latest_attempt(ledger, index)) is None and not (copies and copies.under_way)

    def _vacated(self, ledger: JobLedger, index: int, seen: Observation, move: Move, ends: Ends, ctx: Context) -> None:
        vacated = AttemptVacated(
            index,
            seen.uid,
            seen.folder,
            seen.ports,
            seen.process_started_wall_ns,
            seen.log_offset,
            ctx.wall,
            seen.host,
        )
        then = step(ledger, index, seen.uid, ends, ctx, vacated)
        if then.stage is Stage.FROZEN:
            self._suspended(ledger, index, seen.uid, ends, ctx)

    def _suspended(self, ledger: JobLedger, index: int, uid: str, ends: Ends, ctx: Context) -> None:
        """Have it without a worker, if it is not being stopped, and if its files are known."""
        attempt = latest_attempt(ledger, index)
        move = move_of(ledger, uid, ends)
        assert move is not None
        if stop_for(ledger, attempt) is not None and not move.away:
            return  # its worker has the last word
        if not move.folder:
            self._lost(ledger, index, uid, "nobody can say where its files are", ends, ctx)
            return
        then = step(ledger, index, uid, ends, ctx, AttemptSuspended(index, uid, ctx.wall))
        ends.uids.append(uid)
        if not move.away:
            ends.released.setdefault((attempt.worker_id, attempt.incarnation), []).append(uid)
        ends.commands.append(CancelTimer(("move", uid)))
        if then.storing:
            ends.commands.append(stored_by_agent(index, uid, then))
        ends.waiting += placed(ledger, index, uid, then, ctx)

    def _unplaced(self, ledger: JobLedger, index: int, seen: Observation, move: Move, ends: Ends, ctx: Context) -> None:
        """Have it without a worker again: its worker has taken the grant back."""
        attempt, uid, why = latest_attempt(ledger, index), seen.uid, seen.withdrawn_reason
        if stop_for(ledger, attempt) is not None:
            return  # its worker has the last word
        reason = f"{thawed_on(move)} did not take it: {why}" if why else ""
        then = self._without_worker(ledger, index, uid, reason, ends, ctx, lost=False)
        ends.released.setdefault((attempt.worker_id, attempt.incarnation), []).append(uid)
        if then.back and then.returns >= RETURNS:
            why = f"{then.node} did not take it, {then.returns} times: {move.reason}"
            self._pass_over(ledger, index, uid, why, ends, ctx)
        else:
            ends.waiting += placed(ledger, index, uid, then, ctx)

    def _without_worker(
        self, ledger: JobLedger, index: int, uid: str, reason: str, ends: Ends, ctx: Context, *, lost: bool
    ) -> Move:
        """Take note that nobody has the grant any more, and that its machine is not to be tried for a while."""
        move = move_of(ledger, uid, ends)
        assert move is not None
        node = thawed_on(move)
        until = ctx.wall + pause_ns(self.settings, times_doubted(move, node))
        unplaced = AttemptUnplaced(index, uid, node, until, ctx.wall, reason[:MAX_REASON_CHARS], lost)
        then = step(ledger, index, uid, ends, ctx, unplaced)
        ends.uids.append(uid)
        ends.commands += (CancelTimer(("move", uid)), CancelTimer(("thaw", uid)), Cancel(("thaw", index, uid)))
        return then

    def _pass_over(self, ledger: JobLedger, index: int, uid: str, reason: str, ends: Ends, ctx: Context) -> None:
        """Have one without a worker go back to the checkpoint before, or end, so that it begins from nothing."""
        attempt = latest_attempt(ledger, index)
        move = move_of(ledger, uid, ends)
        assert move is not None
        end = AttemptEnd(Ending.WORKER_LOST, fault=Fault("", reason[:MAX_REASON_CHARS]))
        seen = Observation(uid, attempt.state, end, started=True, log_offset=move.log_offset)
        end_attempt(ledger, index, Ending.WORKER_LOST, seen, ends, ctx, self.settings.logs_bound_ns)

    def back_overdue(self, ledger: JobLedger, message: BackOverdue, ctx: Context) -> Outcome:
        """Nobody has brought it back: the machine that has the checkpoint may be gone."""
        move = ledger.moves.get(message.uid)
        waits = move is not None and move.back and move.number == message.number and waits_for_worker(move)
        if move is None or not waits or not ledger.open:
            return None
        ends = Ends()
        limit_s = BACK_LIMIT_NS / 1_000_000_000
        reason = f"no worker on {move.node} had room for it within {limit_s:g} s"
        self._pass_over(ledger, message.index, message.uid, reason, ends, ctx)
        unwanted = Tell(scheduler_of(ctx), SuspendedUnwanted(ledger.job_id, message.uid))
        ends.commands.append(unwanted)
        return conclude(ledger, ends, ctx)

    def _resumed(self, ledger: JobLedger, index: int, uid: str, move: Move, ends: Ends, ctx: Context) -> None:
        drop = drop_of(uid, move)
        step(ledger, index, uid, ends, ctx, AttemptResumed(index, uid, ctx.wall))
        ends.commands += (CancelTimer(("move", uid)), CancelTimer(("thaw", uid)), Cancel(("thaw", index, uid)))
        if drop is not None:  # a checkpoint to which it went back is kept
            ends.commands.append(Run(("drop", drop.key), drop))
        self.yielding.go_on(ledger, index, uid, ends, ctx)

    def ended(self, ledger: JobLedger, seen: Observation) -> Observation:
        """Say how an attempt ended that its worker says has: one that was given up is lost, for the reason of that.

        A worker that had it only to bring it back knows nothing of the log that it wrote elsewhere.
        """
        move = ledger.moves.get(seen.uid)
        if move is not None and seen.log_offset < move.log_offset:
            seen = replace(seen, log_offset=move.log_offset)
        if move is not None and move.stopped_to_yield and seen.ending in (Ending.PREEMPTED, Ending.KILLED):
            return preempted(seen, move.yields_to)
        if move is None or not move.given_up or seen.ending not in (Ending.KILLED, Ending.MISSING, Ending.WORKER_LOST):
            return seen
        return Observation(
            seen.uid,
            seen.state,
            AttemptEnd(Ending.WORKER_LOST, fault=Fault("", move.given_up)),
            started=True,
            log_offset=seen.log_offset,
            logs_stored=seen.logs_stored,
        )

    # What becomes of one whose worker is gone

    def deserted(self, ledger: JobLedger, index: int, uid: str, reason: str, ends: Ends, ctx: Context) -> bool:
        """Take note that the worker of a live attempt is gone for good. Tell whether it may live on without one."""
        move = move_of(ledger, uid, ends)
        if move is None or stop_for(ledger, latest_attempt(ledger, index)) is not None:
            return False
        if move.stage is Stage.RESUMING and move.repository:  # the machine is gone, and the checkpoint is not
            then = self._without_worker(ledger, index, uid, f"{thawed_on(move)}: {reason}", ends, ctx, lost=True)
            ends.waiting += placed(ledger, index, uid, then, ctx)
            return True
        if move.stage not in (Stage.FREEZING, Stage.FROZEN) or (move.stage is Stage.FROZEN and not move.folder):
            return False
        step(ledger, index, uid, ends, ctx, AttemptDeserted(index, uid, reason, ctx.wall))
        if move.stage is Stage.FROZEN:
            self._suspended(ledger, index, uid, ends, ctx)
        else:
            ends.uids.append(uid)
        return True

    def _lost(self, ledger: JobLedger, index: int, uid: str, reason: str, ends: Ends, ctx: Context) -> None:
        seen = Observation(
            uid, TaskState.RUNNING, AttemptEnd(Ending.WORKER_LOST, fault=Fault("", reason)), started=True
        )
        end_attempt(ledger, index, Ending.WORKER_LOST, seen, ends, ctx, self.settings.logs_bound_ns)

    def _give_up(self, ledger: JobLedger, index: int, uid: str, reason: str, ends: Ends, ctx: Context) -> None:
        """Have its worker stop it, once; without a worker it is lost at once."""
        attempt = latest_attempt(ledger, index)
        move = move_of(ledger, uid, ends)
        if move is not None and move.away:
            self._lost(ledger, index, uid, reason, ends, ctx)
        elif stop_for(ledger, attempt) is None:
            step(ledger, index, uid, ends, ctx, AttemptGivenUp(index, uid, reason, ctx.wall))
            stop = StopAttempts(attempt.incarnation, (uid,), Ending.KILLED)
            ends.commands.append(Tell(link_of(ctx, attempt.worker_id), stop))

    def end_away(self, ledger: JobLedger, message: EndAway, ctx: Context) -> Outcome:
        """End what has no worker, some at a time: the job has its verdict, and nobody has to be asked."""
        if ledger.verdict is None:
            return None
        ends = Ends()
        for uid, index in islice(ledger.away.items(), STEP_ATTEMPTS):
            ending = stop_for(ledger, latest_attempt(ledger, index)) or Ending.KILLED
            offset = ledger.moves[uid].log_offset
            seen = Observation(uid, TaskState.RUNNING, AttemptEnd(ending), started=True, log_offset=offset)
            end_attempt(ledger, index, ending, seen, ends, ctx, self.settings.logs_bound_ns)
        if len(ends.uids) < len(ledger.away):
            ends.commands.append(Continue(EndAway()))
        return conclude(ledger, ends, ctx)

    # Freezing

    def _freeze(self, ledger: JobLedger, index: int, uid: str, move: Move) -> Command:
        attempt = latest_attempt(ledger, index)
        effect = FreezeAttempt(
            key=freeze_key(uid, move),
            uid=uid,
            job_id=ledger.job_id,
            index=index,
            worker_id=attempt.worker_id,
            incarnation=attempt.incarnation,
            tier=move.tier,
            force=move.force,
            labels=move.labels,
            gpus=attempt.gpus,
            carries_folder=move.store,
        )
        return Run(("freeze", index, uid), effect)

    def completed(self, ledger: JobLedger, message: Completed, ctx: Context) -> Outcome:
        """Somebody has frozen or thawed an attempt, or not."""
        match message.value:
            case FrozenAttempt():
                return self._freeze_ended(ledger, message.key, message.value, ctx)
            case ThawedAttempt(outcome=outcome, reason=reason):
                return self._thaw_ended(ledger, message.key, outcome, reason, ctx)
            case CheckpointStored():
                return self.storing.ended(ledger, message.key, message.value, ctx)
        return Decision(records=(CheckpointDropped(message.effect.key),))

    def failed(self, ledger: JobLedger, message: Failed, ctx: Context) -> Outcome:
        """It cannot be carried out at all, and nothing of it was."""
        reason = f"{type(message.error).__name__}: {message.error}"[:MAX_REASON_CHARS]
        match message.effect:
            case FreezeAttempt():
                return self._freeze_ended(ledger, message.key, FrozenAttempt(Frozen.UNDONE, reason=reason), ctx)
            case ThawAttempt():
                return self._thaw_ended(ledger, message.key, Thawed.UNDONE, reason, ctx)
            case StoreCheckpoint():
                return self.storing.ended(ledger, message.key, CheckpointStored(reason=reason), ctx)
        drop = message.effect
        left = CheckpointLeft(ledger.job_id, drop.key, drop.checkpoint, drop.node, reason, ctx.wall)
        return Decision(records=(CheckpointDropped(drop.key, reason),), commands=(Emit(left),))

    def _freeze_ended(self, ledger: JobLedger, key: Any, value: FrozenAttempt, ctx: Context) -> Outcome:
        _, index, uid = key
        ends = Ends()
        move = ledger.moves.get(uid)
        if move is None or move.stage is not Stage.FREEZING:
            return None
        reason = value.reason[:MAX_REASON_CHARS] or f"the freeze is {value.outcome.value}"
        if value.outcome is Frozen.FROZEN:
            frozen = AttemptFrozen(index, uid, value.checkpoint, value.node, ctx.wall)
            then = step(ledger, index, uid, ends, ctx, frozen)
            if then.vacated or then.away:
                self._suspended(ledger, index, uid, ends, ctx)
        elif move.away:
            self._lost(ledger, index, uid, f"{move.reason}; {reason}", ends, ctx)
        elif move.vacated:
            self._give_up(ledger, index, uid, f"its processes are gone, and {reason}", ends, ctx)
        else:
            self._undo(ledger, index, uid, reason, ends, ctx, drop=value.outcome is Frozen.UNKNOWN)
        return conclude(ledger, ends, ctx)

    def _undo(
        self, ledger: JobLedger, index: int, uid: str, reason: str, ends: Ends, ctx: Context, *, drop: bool
    ) -> None:
        """Have it run on."""
        attempt = latest_attempt(ledger, index)
        left = drop_of(uid, move_of(ledger, uid, ends)) if drop else None
        step(ledger, index, uid, ends, ctx, SuspensionUndone(index, uid, reason, left is not None, ctx.wall))
        ends.commands += (CancelTimer(("move", uid)), Cancel(("freeze", index, uid)))
        if left is not None:
            ends.commands.append(Run(("drop", left.key), left))
        if stop_for(ledger, attempt) is None:
            go_on = ContinueAttempts(attempt.incarnation, (uid,))
            ends.commands.append(Tell(link_of(ctx, attempt.worker_id), go_on))
            self.yielding.go_on(ledger, index, uid, ends, ctx)

    # Going on

    def placed(self, ledger: JobLedger, message: SuspendedPlaced, ctx: Context) -> Outcome:
        """Record who may have it, and tell that one; give the room back if it is of no use."""
        index, uid = message.index, message.uid
        move = ledger.moves.get(uid)
        if not ledger.open or move is None or uid not in ledger.away or not waits_for_worker(move):
            return (Tell(scheduler_of(ctx), AttemptsOver(ledger.job_id, (uid,))),)
        attempt = latest_attempt(ledger, index)
        ends = Ends()
        grant = grant_of(uid, move)
        named = AttemptResuming(index, uid, message.worker_id, message.incarnation, grant, ctx.wall, message.node)
        then = step(ledger, index, uid, ends, ctx, named)
        order = run_order(ledger, index, uid, attempt.number, None, then)
        tell = Tell(link_of(ctx, message.worker_id), RunAttempts(message.incarnation, (order,)))
        commands = (*ends.commands, tell, limit_of(self.settings, index, uid, then, ctx))
        return Decision(records=tuple(ends.records), commands=commands)

    def _thaw(self, index: int, uid: str, move: Move) -> Command:
        effect = ThawAttempt(thaw_key(uid, move), uid, move.checkpoint, thawed_on(move), move.gpus, move.repository)
        return Run(("thaw", index, uid), effect)

    def _thaw_ended(self, ledger: JobLedger, key: Any, outcome: Thawed, reason: str, ctx: Context) -> Outcome:
        """Try again in a while, or give it up. That it is back its worker says."""
        _, index, uid = key
        move = ledger.moves.get(uid)
        if outcome is Thawed.THAWED or move is None or move.stage is not Stage.RESUMING or uid not in ledger.live:
            return None
        if stop_for(ledger, latest_attempt(ledger, index)) is not None:
            return None  # its worker takes the grant back
        if move.returning:
            return None
        ends = Ends()
        reason = reason[:MAX_REASON_CHARS] or f"the thaw is {outcome.value}"
        if outcome is Thawed.REFUSED:
            self._refused(ledger, index, uid, f"{thawed_on(move)} did not take it: {reason}", ends, ctx)
            return conclude(ledger, ends, ctx)
        then = step(ledger, index, uid, ends, ctx, ThawUndone(index, uid, reason, ctx.wall))
        why = f"it could not be brought back, {then.tries} times: {reason}"
        if then.tries >= THAWS and move.repository and outcome is not Thawed.DAMAGED:
            self._refused(ledger, index, uid, f"on {thawed_on(move)} {why}", ends, ctx)
        elif then.tries >= THAWS:
            self._give_up(ledger, index, uid, why, ends, ctx)
        else:
            again = ThawAgain(index, uid, then.number)
            ends.commands.append(SetTimer(("thaw", uid), self.settings.thaw_pause_ns, again))
        return conclude(ledger, ends, ctx)

    def _refused(self, ledger: JobLedger, index: int, uid: str, reason: str, ends: Ends, ctx: Context) -> None:
        """Have its worker take the grant back, so that another machine may be tried."""
        attempt, said = latest_attempt(ledger, index), reason[:MAX_REASON_CHARS]
        step(ledger, index, uid, ends, ctx, ThawRefused(index, uid, said, ctx.wall))
        withdraw = WithdrawGrants(attempt.incarnation, (uid,))
        ends.commands.append(Tell(link_of(ctx, attempt.worker_id), withdraw))

    def thaw_again(self, ledger: JobLedger, message: ThawAgain, ctx: Context) -> Outcome:
        """Try once more."""
        move = ledger.moves.get(message.uid)
        if move is None or move.stage is not Stage.RESUMING or move.number != message.number or move.returning:
            return None
        if stop_for(ledger, latest_attempt(ledger, message.index)) is not None:
            return None
        return (self._thaw(message.index, message.uid, move),)

    def place_again(self, ledger: JobLedger, message: PlaceAgain, ctx: Context) -> Outcome:
        """Have a machine be tried again that did not take it."""
        move = ledger.moves.get(message.uid)
        if move is None or move.number != message.number or not ledger.open:
            return None
        return tuple(placed(ledger, message.index, message.uid, move, ctx))

    # Clocks, and a new incarnation

    def overdue(self, ledger: JobLedger, message: MoveOverdue, ctx: Context) -> Outcome:
        """It takes too long: undo what can be undone, and give up what cannot."""
        index, uid = message.index, message.uid
        move = ledger.moves.get(uid)
        if move is None or move.number != message.number or move.stage in (Stage.RUNS, Stage.SUSPENDED):
            return None
        ends = Ends()
        reason = f"not done within {limit_ns(self.settings, move) / 1_000_000_000:g} s"
        if move.stage in (Stage.ASKED, Stage.FREEZING) and not move.away and not move.vacated:
            self._undo(ledger, index, uid, reason, ends, ctx, drop=move.stage is Stage.FREEZING)
        elif self._may_give_back(ledger, index, move):
            self._refused(ledger, index, uid, f"{thawed_on(move)} did not bring it back: {reason}", ends, ctx)
            ends.commands.append(SetTimer(("move", uid), self.settings.suspend_limit_ns, message))
        else:
            self._give_up(ledger, index, uid, reason, ends, ctx)
        return conclude(ledger, ends, ctx)

    def _may_give_back(self, ledger: JobLedger, index: int, move: Move) -> bool:
        """Whether it comes back, and loses nothing by going to another worker. One that leaves has no grant."""
        returns = move.stage is Stage.RESUMING and (move.repository or not move.thawing)
        return bool(returns) and stop_for(ledger, latest_attempt(ledger, index)) is None

    def resume(self, ledger: JobLedger, ctx: Context) -> Iterator[Command]:
        """Take up all that suspensions owe."""
        if ledger.away and ledger.verdict is not None:
            yield Continue(EndAway())
        if ledger.moves or ledger.drops:
            yield from self._resume(ledger, ResumeMoves(tuple(ledger.moves), tuple(ledger.drops), 0), ctx)

    def resume_rest(self, ledger: JobLedger, message: ResumeMoves, ctx: Context) -> Outcome:
        """Go on taking up."""
        return tuple(self._resume(ledger, message, ctx))

    def _resume(self, ledger: JobLedger, rest: ResumeMoves, ctx: Context) -> Iterator[Command]:
        end = rest.first + STEP_ATTEMPTS
        number = len(rest.uids)
        for uid in rest.uids[rest.first : end]:
            index = ledger.live.get(uid, ledger.away.get(uid))
            if index is not None:
                yield from self._owed(ledger, index, uid, ledger.moves[uid], ctx)
        for key in rest.drops[max(0, rest.first - number) : max(0, end - number)]:
            if key in ledger.drops:
                yield Run(("drop", key), ledger.drops[key])
        if end < number + len(rest.drops):
            yield Continue(ResumeMoves(rest.uids, rest.drops, end))

    def _owed(self, ledger: JobLedger, index: int, uid: str, move: Move, ctx: Context) -> Iterator[Command]:
        if move.stage in (*SUSPENDING, Stage.RESUMING):
            yield limit_of(self.settings, index, uid, move, ctx)
        if stop_for(ledger, latest_attempt(ledger, index)) is not None:
            return
        if move.stage is Stage.FREEZING:
            yield self._freeze(ledger, index, uid, move)
        elif move.stage is Stage.RESUMING and move.thawing and not move.returning:
            yield self._thaw(index, uid, move)
        elif move.storing:
            yield stored_by_agent(index, uid, move)
        elif to_be_stored(move):
            yield from self.storing.later(index, uid, move)
        elif waits_for_worker(move):  # the scheduler asks for what waits; the clocks are ours
            yield from tried_again(index, uid, move, ctx)
            if move.back:
                left_ns = min(max(move.since_wall_ns + BACK_LIMIT_NS - ctx.wall, 0), BACK_LIMIT_NS)
                yield SetTimer(("back", uid), left_ns, BackOverdue(index, uid, move.number))
