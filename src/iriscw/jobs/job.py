"""Decisions of ``/jobs/<job_id>``: one job with its tasks and attempts.

Facts first, consequences after: a decision that learns something about attempts records it, frees their room
and tells itself to :class:`~iriscw.jobs.messages.Settle`. Settling looks at the ledger as the records made
it, and reaches the verdict, ends the job, shows its new state and sets its clocks. A crash between the two
loses nothing: every new incarnation settles first.

**Identity.** An observation counts only if the ledger has a live attempt of that uid on that worker
incarnation. Whatever else a worker says changes nothing (INV-J2).

**Lost workers.** If the worker is fenced its attempts are over. If not, they are over when it has been silent
for ``lease_grace_ns`` on the attentive clock, longer than the lease after which a worker kills its attempts
by itself. Any observation in between takes the suspicion back.

**Logs.** A terminal end whose log is not yet stored is recorded at once (its room is free), but shown only
when the log store has the last byte (``AwaitLogs``) or has given up: then the task says that its log is
incomplete. The log of an attempt that ended with its worker is never waited for, and never called complete
(INV-J8).

**Clocks.** Deadlines are journaled as readings of the wall clock; while the actor lives they are timers,
monotonic delays of what is left, never more than the whole timeout. So a wall clock that jumps ahead may end
a wait early only across a restart, and one that jumps back prolongs it at most once.

* ``timeout_ns`` runs from when the controller first saw the attempt RUNNING. Workers enforce nothing.
* ``scheduling_timeout_ns`` runs for each task from its submission, or from when it began to wait again.

**Listings.** The registry is told each new state at once, and what else changed of the tasks at most once a
second: the first change now, those of the next second when it is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from iriscw.jobs import views
from iriscw.jobs.ledger import Ledger, Place, live_attempts
from iriscw.jobs.lifecycle import ADVANCE, LOST, judge, verdict_of
from iriscw.jobs.messages import (
    AttemptsLost,
    AttemptsObserved,
    AttemptsOver,
    DescribeJob,
    Desired,
    DesiredOn,
    Due,
    ExplainPending,
    JobAdvanced,
    JobAwake,
    JobChanged,
    JobDone,
    JobReport,
    JobWithdrawn,
    LinkNeedsDesired,
    ListTasks,
    LiveAttempt,
    Placed,
    ReleaseAttempts,
    ReportJob,
    RunAttempts,
    Settle,
    StopAttempts,
    TaskChanged,
    TerminateJob,
)
from iriscw.jobs.model import (
    MAX_FAULTS_CHARS,
    TASK_TERMINAL,
    Attempt,
    AwaitLogs,
    Ending,
    JobState,
    Observation,
    RunOrder,
    TaskState,
    job_uid,
)
from iriscw.jobs.records import (
    AttemptAdvanced,
    AttemptEnded,
    AttemptOverran,
    AttemptPlaced,
    JobEnded,
    LogsSettled,
    VerdictReached,
    WorkerReturned,
    WorkerSuspected,
)
from iriscw.runtime.vocabulary import (
    SECOND,
    ActorPath,
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
    Replied,
    Reply,
    ReplyTo,
    Request,
    RequestFailed,
    Run,
    SetTimer,
    Tell,
    Undelivered,
)

AGAIN = 1 * SECOND
"""How long a job waits before it tells a full mailbox again."""

TALLY_EVERY = 1 * SECOND
"""How often listings learn what the tasks are up to, at most: a job of 100,000 tasks has as many changes a second."""

EXPLAIN_TIMEOUT = 2 * SECOND
"""How long a description waits for the scheduler's reason."""

OWN_STATE = "the scheduler is starting; it gives its reasons in a moment"


@attrs.frozen
class JobSettings:
    """What the decisions of jobs may be tuned by; all times in ns."""

    lease_grace_ns: int = 60 * SECOND
    """Silence after which an attempt of an unfenced worker is over. Longer than the worker's own lease."""
    logs_bound_ns: int = 30 * SECOND
    """How long the end of a task waits for its last log line."""


DEFAULT_SETTINGS = JobSettings()


def _scheduler(ctx: Context) -> ActorPath:
    return ctx.path.parent / "scheduler"


def _link(ctx: Context, worker_id: str) -> ActorPath:
    return ctx.path.parent / "links" / worker_id


def run_order(ledger: Ledger, index: int, uid: str, number: int) -> RunOrder:
    """Give the order that has an attempt run."""
    return RunOrder(uid, ledger.job_id, job_uid(ledger.job_id), index, number, ledger.spec)


@attrs.define
class _Ends:
    """What the ends of some attempts come to, gathered over one decision."""

    records: list[Any] = attrs.field(factory=list)
    commands: list[Command] = attrs.field(factory=list)
    uids: list[str] = attrs.field(factory=list)
    pending: list[tuple[int, int]] = attrs.field(factory=list)
    released: dict[str, list[str]] = attrs.field(factory=dict)
    faults_chars: int = 0
    stops_gang: bool = False


class JobDecisions:
    """The decisions, for one set of settings."""

    def __init__(self, settings: JobSettings = DEFAULT_SETTINGS) -> None:
        self.settings = settings

    def rules(self) -> dict[type, DecisionFunction]:
        """Give the decision for each message."""
        return {
            Placed: self.placed,
            AttemptsObserved: self.observed,
            AttemptsLost: self.lost,
            LinkNeedsDesired: self.link_needs_desired,
            ReportJob: self.report,
            TerminateJob: self.terminate,
            Settle: self.settle,
            Due: self.due,
            Completed: self.logs_stored,
            Failed: self.logs_failed,
            Undelivered: self.undelivered,
            DescribeJob: self.ask_reason,
            ListTasks: self.ask_reason,
            Replied: self.explained,
            RequestFailed: self.unexplained,
        }

    # Placement

    def placed(self, ledger: Ledger, message: Placed, ctx: Context) -> Outcome:
        """Record the attempts and have them run; give back what is of no use."""
        taken: dict[int, None] = {}
        records = []
        declined = []
        orders: dict[Place, list[RunOrder]] = {}
        changes = []
        for each in message.placements:
            usable = ledger.open and ledger.state_of(each.index) is TaskState.PENDING
            if not usable or each.index in taken:
                declined.append(each.uid)
                continue
            taken[each.index] = None
            task = ledger.tasks.get(each.index)
            number = 1 if task is None or task.attempt is None else task.attempt.number + 1
            records.append(AttemptPlaced(each.index, each.uid, number, each.worker_id, each.incarnation, ctx.wall))
            orders.setdefault((each.worker_id, each.incarnation), []).append(
                run_order(ledger, each.index, each.uid, number)
            )
            changes.append(
                views.task_changed(ledger, each.index, TaskState.ASSIGNED, each.uid, each.worker_id, wall_ns=ctx.wall)
            )
        commands: list[Command] = [
            Tell(_link(ctx, worker_id), RunAttempts(incarnation, tuple(run)))
            for (worker_id, incarnation), run in orders.items()
        ]
        if records:
            ledger.heard = ""
        if declined:
            commands.append(Tell(_scheduler(ctx), AttemptsOver(ledger.job_id, tuple(declined))))
        commands += map(Emit, changes)
        if records and not ledger.telling:
            commands.append(SetTimer("tally", TALLY_EVERY, Due("tally")))
        return Decision(records=tuple(records), commands=tuple(commands))

    def report(self, ledger: Ledger, message: ReportJob, ctx: Context) -> Outcome:
        """Tell the scheduler all that it needs."""
        live = tuple(
            LiveAttempt(attempt.uid, index, attempt.worker_id, attempt.incarnation)
            for index, attempt in live_attempts(ledger)
        )
        waits = ledger.gang and bool(ledger.live)
        pending = () if waits else ledger.pending_ranges()
        report = JobReport(ledger.job_id, message.token, ledger.order, ledger.spec, ledger.open, pending, live)
        return (Tell(_scheduler(ctx), report),)

    # Observations

    def observed(self, ledger: Ledger, message: AttemptsObserved, ctx: Context) -> Outcome:
        """Record what is new about live attempts of that worker."""
        place = (message.worker_id, message.incarnation)
        here = ledger.places.get(place, {})
        ends = _Ends()
        stray = []
        for seen in message.observations:
            index = here.get(seen.uid)
            if index is None:
                stray.append(seen)
            elif seen.ending is not None:
                self._end(ledger, index, seen.ending, seen, ends, ctx)
            else:
                self._advance(ledger, index, seen, ends, ctx)
        if place in ledger.suspects:
            ends.records.append(WorkerReturned(*place))
            ends.commands.append(CancelTimer(("lease", *place)))
        self._disown(ledger, message.worker_id, stray, ends, ctx)
        return self._conclude(ledger, ends, ctx)

    def _disown(self, ledger: Ledger, worker_id: str, stray: list[Observation], ends: _Ends, ctx: Context) -> None:
        """Have attempts stopped and forgotten that are none of ours any more."""
        over = [seen.uid for seen in stray if seen.ending is not None]
        alive = tuple(seen.uid for seen in stray if seen.ending is None)
        if over:
            ends.released.setdefault(worker_id, []).extend(over)
        if alive:
            stop = StopAttempts(ledger.job_id, alive, Ending.KILLED)
            ends.commands.append(Tell(_link(ctx, worker_id), stop))

    def _advance(self, ledger: Ledger, index: int, seen: Observation, ends: _Ends, ctx: Context) -> None:
        attempt = _attempt(ledger, index)
        if ADVANCE.get(seen.state, -1) <= ADVANCE[attempt.state]:
            return
        ends.records.append(AttemptAdvanced(index, seen.uid, seen.state, ctx.wall))
        change = views.task_changed(ledger, index, seen.state, seen.uid, attempt.worker_id, wall_ns=ctx.wall)
        ends.commands.append(Emit(change))

    def _end(self, ledger: Ledger, index: int, ending: Ending, seen: Observation, ends: _Ends, ctx: Context) -> None:
        task = ledger.tasks[index]
        attempt = _attempt(ledger, index)
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
        final = judged.then in TASK_TERMINAL
        logs_due = final and ending not in LOST and seen.log_offset > seen.logs_stored
        room = ledger.faults_chars + ends.faults_chars + len(seen.fault) <= MAX_FAULTS_CHARS
        fault = seen.fault if room else ""
        ends.faults_chars += len(fault)
        ends.records.append(
            AttemptEnded(
                index=index,
                uid=seen.uid,
                ending=ending,
                then=judged.then,
                wall_ns=ctx.wall,
                failure=judged.failure,
                preemption=judged.preemption,
                unstarted=judged.unstarted,
                exit_code=seen.exit_code,
                reason=seen.reason,
                log_offset=seen.log_offset,
                logs_due=logs_due,
                fault=fault,
            )
        )
        ends.uids.append(seen.uid)
        ends.released.setdefault(attempt.worker_id, []).append(seen.uid)
        if judged.then is TaskState.PENDING and not ledger.gang:
            ends.pending.append((index, index + 1))
        if ledger.gang and judged.then is not TaskState.SUCCEEDED:
            ends.stops_gang = True
        if logs_due:
            ends.commands.append(self._await_logs(seen.uid, index, seen.log_offset))
        else:
            change = views.task_changed(
                ledger,
                index,
                judged.then,
                seen.uid,
                attempt.worker_id,
                exit_code=seen.exit_code,
                reason=seen.reason,
                log_offset=seen.log_offset,
                logs_complete=ending not in LOST,
                wall_ns=ctx.wall,
            )
            ends.commands.append(Emit(change))

    def _await_logs(self, uid: str, index: int, offset: int) -> Run:
        return Run(("logs", index, uid), AwaitLogs(uid, offset, self.settings.logs_bound_ns))

    def _conclude(self, ledger: Ledger, ends: _Ends, ctx: Context) -> Outcome:
        """Free the room, let the worker forget, and settle."""
        commands = ends.commands
        if ends.uids:
            over = AttemptsOver(ledger.job_id, tuple(ends.uids), tuple(ends.pending))
            commands.append(Tell(_scheduler(ctx), over))
        for worker_id, uids in ends.released.items():
            commands.append(Tell(_link(ctx, worker_id), ReleaseAttempts(tuple(uids))))
        if ends.stops_gang and not ledger.broken and ledger.open:
            over_now = dict.fromkeys(ends.uids)
            siblings = [uid for uid in ledger.live if uid not in over_now]
            commands += self._stops(ledger, siblings, Ending.GANG_STOPPED, ctx)
        if ends.records:
            commands.append(Continue(Settle(ledger.shown())))
        if not commands:
            return None
        return Decision(records=tuple(ends.records), commands=tuple(commands))

    def _stops(self, ledger: Ledger, uids: Iterable[str], ending: Ending, ctx: Context) -> Iterator[Command]:
        by_worker: dict[str, list[str]] = {}
        for uid in uids:
            worker_id = _attempt(ledger, ledger.live[uid]).worker_id
            by_worker.setdefault(worker_id, []).append(uid)
        for worker_id, stopped in by_worker.items():
            yield Tell(_link(ctx, worker_id), StopAttempts(ledger.job_id, tuple(stopped), ending))

    # Lost workers

    def lost(self, ledger: Ledger, message: AttemptsLost, ctx: Context) -> Outcome:
        """End the attempts there, or wait for the lease of a worker that may still run them."""
        place = (message.worker_id, message.incarnation)
        if place not in ledger.places:
            return None
        if message.fenced:
            return self._give_up(ledger, place, message.reason, ctx)
        if place in ledger.suspects:
            return None
        return Decision(records=(WorkerSuspected(*place, message.reason, ctx.wall),), commands=(self._lease(place),))

    def _lease(self, place: Place) -> SetTimer:
        return SetTimer(("lease", *place), self.settings.lease_grace_ns, Due("lease", *place), attentive=True)

    def _give_up(self, ledger: Ledger, place: Place, reason: str, ctx: Context) -> Outcome:
        ends = _Ends()
        for uid, index in ledger.places.get(place, {}).items():
            attempt = _attempt(ledger, index)
            seen = Observation(uid, attempt.state, Ending.WORKER_LOST, reason=reason)
            self._end(ledger, index, Ending.WORKER_LOST, seen, ends, ctx)
        if place in ledger.suspects:
            ends.records.append(WorkerReturned(*place))
            ends.commands.append(CancelTimer(("lease", *place)))
        return self._conclude(ledger, ends, ctx)

    def link_needs_desired(self, ledger: Ledger, message: LinkNeedsDesired, ctx: Context) -> Outcome:
        """Tell a link all that this job wants of its worker, even if that is nothing."""
        return (self._desired_on(ledger, (message.worker_id, message.incarnation), ctx),)

    def _desired_on(self, ledger: Ledger, place: Place, ctx: Context) -> Command:
        desired = []
        for uid, index in ledger.places.get(place, {}).items():
            attempt = _attempt(ledger, index)
            order = run_order(ledger, index, uid, attempt.number)
            desired.append(Desired(order, attempt.started_wall_ns > 0, _stop_for(ledger, attempt)))
        return Tell(_link(ctx, place[0]), DesiredOn(ledger.job_id, place[1], tuple(desired)))

    # Ends

    def terminate(self, ledger: Ledger, message: TerminateJob, ctx: Context) -> Outcome:
        """Stop the job, unless its end is decided already."""
        answer = () if ctx.reply_to is None else (Reply(None),)
        if not ledger.open or verdict_of(ledger.spec, ledger.counts) is not None:
            return answer
        reached = self._reach(ledger, JobState.KILLED, TaskState.KILLED, message.reason, ctx)
        return attrs.evolve(reached, commands=(*reached.commands, *answer))

    def _reach(self, ledger: Ledger, state: JobState, waiting: TaskState, reason: str, ctx: Context) -> Decision:
        record = VerdictReached(state, waiting, reason, ctx.wall)
        gang_over = waiting is TaskState.COSCHED_FAILED
        commands = [
            Tell(_scheduler(ctx), JobWithdrawn(ledger.job_id)),
            CancelTimer("scheduling"),
            *self._stops(ledger, ledger.live, Ending.GANG_STOPPED if gang_over else Ending.KILLED, ctx),
            Continue(Settle(ledger.shown())),
        ]
        return Decision(records=(record,), commands=tuple(commands))

    def settle(self, ledger: Ledger, message: Settle, ctx: Context) -> Outcome:
        """Do what follows from the ledger as it is now."""
        if ledger.ended is not None:
            return None
        if ledger.verdict is None:
            verdict = verdict_of(ledger.spec, ledger.counts)
            if verdict is None:
                return self._go_on(ledger, message, ctx)
            reason = views.reason_of(ledger, verdict)
            if ledger.live or ledger.due or ledger.counts[TaskState.PENDING]:
                waiting = views.waiting_state(ledger.spec, verdict)
                return self._reach(ledger, verdict, waiting, reason, ctx)
        else:
            verdict, reason = ledger.verdict.state, ledger.verdict.reason
        if ledger.live or ledger.due:
            return self._show(ledger, message, ctx)
        return Decision(
            records=(JobEnded(verdict, reason, ctx.wall),),
            commands=(
                Tell(ctx.path.parent, JobDone(ledger.job_id, verdict, reason, ctx.wall, views.tally(ledger))),
                Tell(_scheduler(ctx), JobWithdrawn(ledger.job_id)),
                CancelTimer("timeout"),
                CancelTimer("scheduling"),
                CancelTimer("tally"),
                Emit(JobChanged(ledger.job_id, verdict, reason, ctx.wall)),
            ),
        )

    def _go_on(self, ledger: Ledger, message: Settle, ctx: Context) -> tuple[Command, ...]:
        commands = [*self._show(ledger, message, ctx), *self._clocks(ledger, ctx)]
        if ledger.gang and not ledger.live and not ledger.fresh:
            over = AttemptsOver(ledger.job_id, (), ledger.pending_ranges())
            commands.append(Tell(_scheduler(ctx), over))
        return tuple(commands)

    def _show(self, ledger: Ledger, message: Settle, ctx: Context) -> tuple[Command, ...]:
        state = ledger.shown()
        if state is message.before:
            return self._tell(ledger, ctx)
        return (*self._tell(ledger, ctx, now=True), Emit(JobChanged(ledger.job_id, state, "", ctx.wall)))

    def _tell(self, ledger: Ledger, ctx: Context, *, now: bool = False) -> tuple[Command, ...]:
        """Tell the registry what listings show: ``now``, or if it has changed and was not told within the second."""
        if ledger.fresh or (ledger.telling and not now):
            return ()  # of an untouched job the registry knows all there is
        tally = views.tally(ledger)
        if tally == ledger.told and not now:
            return ()
        ledger.told = tally
        told = Tell(ctx.path.parent, JobAdvanced(ledger.job_id, ledger.shown(), tally), conflate="advanced")
        if ledger.telling:
            return (told,)
        ledger.telling = True
        return (told, SetTimer("tally", TALLY_EVERY, Due("tally")))

    # Clocks

    def _clocks(self, ledger: Ledger, ctx: Context) -> Iterator[Command]:
        """Set the timers for what is due next."""
        timeout = ledger.spec.timeout_ns
        if ledger.timed:
            started = next(iter(ledger.timed.values()))
            yield SetTimer("timeout", _left(started, timeout, ctx), Due("timeout"))
        timeout = ledger.spec.scheduling_timeout_ns
        if timeout and (ledger.untouched or ledger.waiting) and ledger.open:
            since = _waiting_since(ledger)
            yield SetTimer("scheduling", _left(since, timeout, ctx), Due("scheduling"))

    def due(self, ledger: Ledger, message: Due, ctx: Context) -> Outcome:
        """A timer's time has come."""
        if ledger.ended is not None:
            return tuple(self.resume(ledger, ctx))
        match message.what:
            case "lease":
                place = (message.worker_id, message.incarnation)
                if place not in ledger.suspects:
                    return None
                reason = f"{ledger.suspects[place]}; silent for longer than its lease"
                return self._give_up(ledger, place, reason, ctx)
            case "timeout":
                return self._overdue(ledger, ctx)
            case "scheduling":
                return self._unplaced(ledger, ctx)
            case "link":
                return (self._desired_on(ledger, (message.worker_id, message.incarnation), ctx),)
            case "scheduler":
                return (Tell(_scheduler(ctx), JobAwake(ledger.job_id)),)
            case "tally":
                ledger.telling = False
                return self._tell(ledger, ctx)
            case _:
                return self._tell(ledger, ctx, now=True)

    def _overdue(self, ledger: Ledger, ctx: Context) -> Outcome:
        timeout = ledger.spec.timeout_ns
        overran = []
        for uid, started in ledger.timed.items():
            if _left(started, timeout, ctx) > 0:
                break
            overran.append(uid)
        records = tuple(AttemptOverran(ledger.live[uid], uid, ctx.wall) for uid in overran)
        stops = self._stops(ledger, overran, Ending.TIMED_OUT, ctx)
        return Decision(records=records, commands=(*stops, Continue(Settle(ledger.shown()))))

    def _unplaced(self, ledger: Ledger, ctx: Context) -> Outcome:
        timeout = ledger.spec.scheduling_timeout_ns
        if not ledger.open or not (ledger.untouched or ledger.waiting):
            return None
        if _left(_waiting_since(ledger), timeout, ctx) > 0:
            return tuple(self._clocks(ledger, ctx))
        number = ledger.counts[TaskState.PENDING]
        reason = f"no worker took {number} of {ledger.spec.replicas} tasks within {timeout / SECOND:g} s"
        if ledger.heard:  # nobody is asked now: a thousand jobs may be given up at once
            reason += f"; last heard: {ledger.heard}"
        return self._reach(ledger, JobState.UNSCHEDULABLE, TaskState.UNSCHEDULABLE, reason, ctx)

    # Logs

    def logs_stored(self, ledger: Ledger, message: Completed, ctx: Context) -> Outcome:
        """Show a task's end: its log is stored, as far as it will be."""
        return self._settle_logs(ledger, message.key, message.value >= message.effect.offset, ctx)

    def logs_failed(self, ledger: Ledger, message: Failed, ctx: Context) -> Outcome:
        """Show a task's end all the same: the log store cannot tell."""
        return self._settle_logs(ledger, message.key, False, ctx)

    def _settle_logs(self, ledger: Ledger, key: Any, complete: bool, ctx: Context) -> Outcome:
        _, index, uid = key
        if ledger.due.get(index) != uid:
            return None
        task = ledger.tasks[index]
        attempt = _attempt(ledger, index)
        change: TaskChanged = views.task_changed(
            ledger,
            index,
            task.state,
            uid,
            attempt.worker_id,
            exit_code=attempt.exit_code,
            reason=attempt.reason,
            log_offset=attempt.log_offset,
            logs_complete=complete,
            wall_ns=ctx.wall,
        )
        return Decision(
            records=(LogsSettled(index, uid, complete),),
            commands=(Emit(change), Continue(Settle(ledger.shown()))),
        )

    # Questions

    def ask_reason(self, ledger: Ledger, message: DescribeJob | ListTasks, ctx: Context) -> Outcome:
        """Answer at once, or with the scheduler's reason if tasks wait."""
        slot = ctx.reply_to
        if slot is None:
            return None
        if not ledger.open or not ledger.counts[TaskState.PENDING]:
            return (Reply(views.answer(ledger, message, "")),)
        # The question itself is the key: the answer needs it, and a durable actor keeps no notes.
        listing = (message.start, message.limit) if isinstance(message, ListTasks) else ()
        key = ("why", slot.slot, *listing)
        return (Request(_scheduler(ctx), ExplainPending(ledger.job_id), key, EXPLAIN_TIMEOUT),)

    def explained(self, ledger: Ledger, message: Replied, ctx: Context) -> Outcome:
        """Pass the scheduler's reason on, and note it: if the tasks are given up, it is the best there is to say."""
        ledger.heard = str(message.value)
        return (_answer(ledger, message.key, ledger.heard),)

    def unexplained(self, ledger: Ledger, message: RequestFailed, ctx: Context) -> Outcome:
        """Answer without a reason of the scheduler: it has just started."""
        return (_answer(ledger, message.key, OWN_STATE),)

    # Starting, and full mailboxes

    def undelivered(self, ledger: Ledger, message: Undelivered, ctx: Context) -> Outcome:
        """Tell all again in a while: to a link what it should run, to the scheduler to ask."""
        if message.to.parent.name == "links":
            worker_id = message.to.name
            incarnation = next((inc for worker, inc in ledger.places if worker == worker_id), "")
            return (SetTimer(("link", worker_id), AGAIN, Due("link", worker_id, incarnation)),)
        what = "scheduler" if message.to == _scheduler(ctx) else "registry"
        return (SetTimer(what, AGAIN, Due(what)),)

    def resume(self, ledger: Ledger, ctx: Context) -> Iterator[Command]:
        """Take up all that the ledger owes: placement, links, leases, logs, clocks, and the end."""
        ledger.told, ledger.telling = None, False
        if ledger.ended is not None:
            end = ledger.ended
            done = JobDone(ledger.job_id, end.state, end.reason, end.wall_ns, views.tally(ledger))
            yield Tell(ctx.path.parent, done)
            return
        if not ledger.fresh or ctx.incarnation:
            yield Tell(_scheduler(ctx), JobAwake(ledger.job_id))
        for place in ledger.places:
            yield self._desired_on(ledger, place, ctx)
        for place in ledger.suspects:
            yield self._lease(place)
        for index, uid in ledger.due.items():
            yield self._await_logs(uid, index, _attempt(ledger, index).log_offset)
        yield Continue(Settle(ledger.shown()))


def _attempt(ledger: Ledger, index: int) -> Attempt:
    attempt = ledger.tasks[index].attempt
    assert attempt is not None
    return attempt


def _stop_for(ledger: Ledger, attempt: Attempt) -> Ending | None:
    """Say with which ending a live attempt is being stopped, if it is."""
    if ledger.verdict is not None:
        gang_over = ledger.verdict.waiting is TaskState.COSCHED_FAILED
        return Ending.GANG_STOPPED if gang_over else Ending.KILLED
    if attempt.overran:
        return Ending.TIMED_OUT
    return Ending.GANG_STOPPED if ledger.broken else None


def _left(since_wall_ns: int, timeout_ns: int, ctx: Context) -> int:
    return min(max(since_wall_ns + timeout_ns - ctx.wall, 0), timeout_ns)


def _waiting_since(ledger: Ledger) -> int:
    """Give when the task that waits longest began to."""
    if ledger.untouched:
        return ledger.submitted_wall_ns
    return ledger.tasks[next(iter(ledger.waiting))].since_wall_ns


def _answer(ledger: Ledger, key: Any, reason: str) -> Command:
    _, slot, *listing = key
    question = ListTasks(*listing) if listing else DescribeJob()
    return Reply(views.answer(ledger, question, reason), to=ReplyTo(slot))
