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

from collections.abc import Iterator
from itertools import islice
from typing import Any

import attrs

from iriscw.jobs.job import gangs, queries as job_queries, reports, views
from iriscw.jobs.job.desired_attempts import desired_on, latest_attempt, link_of, run_order, scheduler_of, stops
from iriscw.jobs.job.ends import Ends, await_logs, conclude, end_attempt, of_earlier_life, stop_all
from iriscw.jobs.job.ledger import JobLedger, Place
from iriscw.jobs.keeping.decisions import CopyDecisions
from iriscw.jobs.lifecycle import ADVANCE, verdict_of
from iriscw.jobs.meeting.decisions import heard, list_endpoints
from iriscw.jobs.meeting.messages import ListEndpoints
from iriscw.jobs.meeting.places import places_of
from iriscw.jobs.messages import (
    AttemptsLost,
    AttemptsObserved,
    AttemptsOver,
    DescribeJob,
    Disband,
    Due,
    JobAdvanced,
    JobAwake,
    JobChanged,
    JobDone,
    JobWithdrawn,
    LinkNeedsDesired,
    ListTasks,
    NeverPlaced,
    Placed,
    ReportJob,
    ReportRest,
    ResumeRest,
    RunAttempts,
    Settle,
    StartRest,
    StopAttempts,
    StopRest,
    TaskChanged,
    TerminateJob,
)
from iriscw.jobs.model import (
    Assembly,
    AttemptEnd,
    AwaitLogs,
    Ending,
    JobState,
    Observation,
    RunOrder,
    Suspension,
    TaskState,
)
from iriscw.jobs.records import (
    AttemptAdvanced,
    AttemptEquipped,
    AttemptOverran,
    AttemptPlaced,
    GangAssembly,
    JobEnded,
    LogsSettled,
    VerdictReached,
    WorkerReturned,
    WorkerSuspected,
)
from iriscw.jobs.settings import DEFAULT_SETTINGS, JobSettings
from iriscw.jobs.step_limits import STEP_ATTEMPTS
from iriscw.jobs.suspension.decisions import SuspendDecisions
from iriscw.jobs.suspension.effects import FreezeAttempt, Frozen, FrozenAttempt
from iriscw.jobs.suspension.messages import EndAway
from iriscw.jobs.traits import Fault
from iriscw.runtime.vocabulary import (
    SECOND,
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
    RequestFailed,
    SetTimer,
    Tell,
    Undelivered,
)

AGAIN = 1 * SECOND
"""How long a job waits before it tells a full mailbox again."""

TALLY_EVERY = 1 * SECOND
"""How often listings learn what the tasks are up to, at most: a job of 100,000 tasks has as many changes a second."""


class JobDecisions:
    """The decisions, for one set of settings."""

    def __init__(self, settings: JobSettings = DEFAULT_SETTINGS) -> None:
        self.settings = settings
        self.suspending = SuspendDecisions(settings)
        self.copying = CopyDecisions(settings)

    def rules(self) -> dict[type, DecisionFunction]:
        """Return the decision for each message."""
        return {
            Placed: self.placed,
            NeverPlaced: self.never_placed,
            AttemptsObserved: self.observed,
            AttemptsLost: self.lost,
            LinkNeedsDesired: self.link_needs_desired,
            ReportJob: self.report,
            TerminateJob: self.terminate,
            StopRest: self.stop_rest,
            StartRest: self.start_rest,
            ReportRest: reports.report_part,
            ResumeRest: self.resume_rest,
            Disband: self.disband,
            Settle: self.settle,
            Due: self.due,
            Completed: self.completed,
            Failed: self.failed,
            Undelivered: self.undelivered,
            DescribeJob: job_queries.ask_reason,
            ListTasks: job_queries.ask_reason,
            Replied: job_queries.explained,
            RequestFailed: job_queries.unexplained,
            ListEndpoints: list_endpoints,
            **self.suspending.rules(),
            **self.copying.rules(),
        }

    # Placement

    def placed(self, ledger: JobLedger, message: Placed, ctx: Context) -> Outcome:
        """Record the attempts and have them run; give back what is of no use."""
        if gangs.in_parts(message):
            return gangs.part_placed(ledger, message, ctx)
        taken: dict[int, None] = {}
        records = []
        declined = []
        orders: dict[Place, list[RunOrder]] = {}
        changes = []
        gang = places_of(ledger, message.placements)
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
                run_order(ledger, each.index, each.uid, number, gang.get(each.index))
            )
            changes.append(
                views.task_changed(ledger, each.index, TaskState.ASSIGNED, each.uid, each.worker_id, wall_ns=ctx.wall)
            )
        commands: list[Command] = [
            Tell(link_of(ctx, worker_id), RunAttempts(incarnation, tuple(run)))
            for (worker_id, incarnation), run in orders.items()
        ]
        if records:
            ledger.heard = ""
        if declined:
            commands.append(Tell(scheduler_of(ctx), AttemptsOver(ledger.job_id, tuple(declined))))
        commands += map(Emit, changes)
        if records and not ledger.telling:
            commands.append(SetTimer("tally", TALLY_EVERY, Due("tally")))
        return Decision(records=tuple(records), commands=tuple(commands))

    def never_placed(self, ledger: JobLedger, message: NeverPlaced, ctx: Context) -> Outcome:
        """Give up what waits for ever. What has an attempt was placed since."""
        if not ledger.open or not ledger.counts[TaskState.PENDING] or ledger.live or ledger.away:
            return None
        return self._reach(ledger, JobState.UNSCHEDULABLE, TaskState.UNSCHEDULABLE, message.reason, ctx)

    def start_rest(self, ledger: JobLedger, message: StartRest, ctx: Context) -> Outcome:
        """Go on starting a gang that is whole."""
        return gangs.start_rest(ledger, message, ctx)

    def report(self, ledger: JobLedger, message: ReportJob, ctx: Context) -> Outcome:
        """Tell the scheduler all that it needs. A gang that gathers will not become whole any more."""
        commands = reports.report(ledger, message.token, ctx)
        if ledger.assembly is not Assembly.GATHERING:
            return commands
        return Decision(records=(GangAssembly(Assembly.DISBANDING),), commands=(*commands, Continue(Disband())))

    # Observations

    def observed(self, ledger: JobLedger, message: AttemptsObserved, ctx: Context) -> Outcome:
        """Record what is new about live attempts of that worker."""
        place = (message.worker_id, message.incarnation)
        here = ledger.places.get(place, {})
        ends = Ends()
        stray = []
        for seen in message.observations:
            index = here.get(seen.uid)
            if index is None:
                stray.append(seen)
                continue
            if of_earlier_life(ledger, seen):
                continue
            self._equip(ledger, index, seen, ends)
            if gangs.must_wait(ledger, seen):
                ledger.unjudged[seen.uid] = seen
                ends.unjudged += 1
                ends.stops_gang = True
            elif seen.ending is not None:
                heard(ledger, index, seen, ends)
                ended = gangs.because_of(ledger, self.suspending.ended(ledger, seen))
                self._end(ledger, index, ended, ends, ctx)
            else:
                self._advance(ledger, index, seen, ends, ctx)
                heard(ledger, index, seen, ends)
                self.suspending.heard(ledger, index, seen, ends, ctx)
                self.copying.heard(ledger, index, seen, ends, ctx)
        if place in ledger.suspects:
            ends.records.append(WorkerReturned(*place))
            ends.commands.append(CancelTimer(("lease", *place)))
        self._disown(ledger, place, stray, ends, ctx)
        return conclude(ledger, ends, ctx)

    def _disown(self, ledger: JobLedger, place: Place, stray: list[Observation], ends: Ends, ctx: Context) -> None:
        """Have attempts stopped and forgotten that are none of ours any more. One that has moved is only forgotten."""
        lives = [seen.uid for seen in stray if seen.uid in ledger.live or seen.uid in ledger.away]
        over = [seen.uid for seen in stray if seen.ending is not None or seen.uid in lives]
        alive = tuple(seen.uid for seen in stray if seen.ending is None and seen.uid not in lives)
        if over:
            ends.released.setdefault(place, []).extend(over)
        if alive:
            stop = StopAttempts(place[1], alive, Ending.KILLED)
            ends.commands.append(Tell(link_of(ctx, place[0]), stop))

    def _advance(self, ledger: JobLedger, index: int, seen: Observation, ends: Ends, ctx: Context) -> None:
        attempt = latest_attempt(ledger, index)
        if ADVANCE.get(seen.state, -1) <= ADVANCE[attempt.state]:
            return
        ends.records.append(AttemptAdvanced(index, seen.uid, seen.state, ctx.wall))
        change = views.task_changed(ledger, index, seen.state, seen.uid, attempt.worker_id, wall_ns=ctx.wall)
        ends.commands.append(Emit(change))

    def _equip(self, ledger: JobLedger, index: int, seen: Observation, ends: Ends) -> None:
        """Write down which GPUs an attempt has. Until it runs again, those of a suspended one are what it had."""
        if seen.suspension is Suspension.NONE and seen.gpus and seen.gpus != latest_attempt(ledger, index).gpus:
            ends.records.append(AttemptEquipped(index, seen.uid, seen.gpus))

    def _end(self, ledger: JobLedger, index: int, seen: Observation, ends: Ends, ctx: Context) -> None:
        assert seen.ending is not None
        end_attempt(ledger, index, seen.ending, seen, ends, ctx, self.settings.logs_bound_ns)

    def stop_rest(self, ledger: JobLedger, message: StopRest, ctx: Context) -> Outcome:
        """Go on stopping what still lives."""
        end = message.first + STEP_ATTEMPTS
        live = [uid for uid in message.uids[message.first : end] if uid in ledger.live]
        more = (Continue(StopRest(message.uids, end, message.ending)),) if end < len(message.uids) else ()
        return (*stops(ledger, live, message.ending, ctx), *more)

    def disband(self, ledger: JobLedger, message: Disband, ctx: Context) -> Outcome:
        """Take back some members of a gang that does not become whole: no order of theirs has ever left."""
        if ledger.assembly is not Assembly.DISBANDING:
            return None
        ends = Ends()
        for uid, index in islice(ledger.live.items(), STEP_ATTEMPTS):
            seen = Observation(
                uid, TaskState.ASSIGNED, AttemptEnd(Ending.GANG_STOPPED, fault=Fault("", gangs.NOT_WHOLE))
            )
            self._end(ledger, index, seen, ends, ctx)
        ends.released.clear()
        if len(ends.uids) < len(ledger.live):
            ends.commands.append(Continue(Disband()))
        return conclude(ledger, ends, ctx)

    # Lost workers

    def lost(self, ledger: JobLedger, message: AttemptsLost, ctx: Context) -> Outcome:
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

    def _give_up(self, ledger: JobLedger, place: Place, reason: str, ctx: Context) -> Outcome:
        ends = Ends()
        here = ledger.places.get(place, {})
        for uid, index in islice(here.items(), STEP_ATTEMPTS):
            attempt = latest_attempt(ledger, index)
            if self.suspending.deserted(ledger, index, uid, reason, ends, ctx):
                continue
            seen = Observation(uid, attempt.state, AttemptEnd(Ending.WORKER_LOST, fault=Fault("", reason)))
            self._end(ledger, index, self.suspending.ended(ledger, seen), ends, ctx)
        if len(here) > STEP_ATTEMPTS:
            ends.commands.append(Tell(ctx.path, AttemptsLost(*place, True, reason)))  # outlives this incarnation
        elif place in ledger.suspects:
            ends.records.append(WorkerReturned(*place))
            ends.commands.append(CancelTimer(("lease", *place)))
        return conclude(ledger, ends, ctx)

    def link_needs_desired(self, ledger: JobLedger, message: LinkNeedsDesired, ctx: Context) -> Outcome:
        """Tell a link all that this job wants of its worker, even if that is nothing."""
        return (desired_on(ledger, (message.worker_id, message.incarnation), ctx),)

    # Ends

    def terminate(self, ledger: JobLedger, message: TerminateJob, ctx: Context) -> Outcome:
        """Stop the job, unless its end is decided already."""
        answer = () if ctx.reply_to is None else (Reply(None),)
        if not ledger.open or verdict_of(ledger.spec, ledger.counts) is not None:
            return answer
        reached = self._reach(ledger, JobState.KILLED, TaskState.KILLED, message.reason, ctx)
        return attrs.evolve(reached, commands=(*reached.commands, *answer))

    def _reach(self, ledger: JobLedger, state: JobState, waiting: TaskState, reason: str, ctx: Context) -> Decision:
        records: list[Any] = [VerdictReached(state, waiting, reason, ctx.wall)]
        commands: list[Command] = [Tell(scheduler_of(ctx), JobWithdrawn(ledger.job_id)), CancelTimer("scheduling")]
        if ledger.assembly is Assembly.GATHERING:
            records.append(GangAssembly(Assembly.DISBANDING))
            commands.append(Continue(Disband()))
        elif ledger.assembly is Assembly.NONE:
            ending = Ending.GANG_STOPPED if waiting is TaskState.COSCHED_FAILED else Ending.KILLED
            commands += stop_all(ledger, tuple(ledger.live), ending, ctx)
            commands += (Continue(EndAway()),) if ledger.away else ()
        commands.append(Continue(Settle(ledger.shown())))
        return Decision(records=tuple(records), commands=tuple(commands))

    def settle(self, ledger: JobLedger, message: Settle, ctx: Context) -> Outcome:
        """Do what follows from the ledger as it is now."""
        if ledger.ended is not None:
            return None
        if ledger.unjudged and len(ledger.unjudged) == len(ledger.live):
            return self._judge_gang(ledger, ctx)
        if ledger.verdict is None:
            verdict = verdict_of(ledger.spec, ledger.counts)
            if verdict is None:
                return self._go_on(ledger, message, ctx)
            reason = views.reason_of(ledger, verdict)
            if ledger.live or ledger.away or ledger.due or ledger.counts[TaskState.PENDING]:
                waiting = views.waiting_state(ledger.spec, verdict)
                return self._reach(ledger, verdict, waiting, reason, ctx)
        else:
            verdict, reason = ledger.verdict.state, ledger.verdict.reason
        if ledger.live or ledger.away or ledger.due:
            return self._show(ledger, message, ctx)
        return Decision(
            records=(JobEnded(verdict, reason, ctx.wall),),
            commands=(
                Tell(ctx.path.parent, JobDone(ledger.job_id, verdict, reason, ctx.wall, views.tally(ledger))),
                Tell(scheduler_of(ctx), JobWithdrawn(ledger.job_id)),
                CancelTimer("timeout"),
                CancelTimer("scheduling"),
                CancelTimer("tally"),
                Emit(JobChanged(ledger.job_id, verdict, reason, ctx.wall)),
            ),
        )

    def _judge_gang(self, ledger: JobLedger, ctx: Context) -> Outcome:
        """Record the ends of members that said they failed, now that all others are over."""
        ends = Ends()
        lost = gangs.lost_member(ledger)
        for seen in islice(ledger.unjudged.values(), STEP_ATTEMPTS):
            self._end(ledger, ledger.live[seen.uid], gangs.believed(seen, lost), ends, ctx)
        return conclude(ledger, ends, ctx)

    def _go_on(self, ledger: JobLedger, message: Settle, ctx: Context) -> tuple[Command, ...]:
        commands = [*self._show(ledger, message, ctx), *self._clocks(ledger, ctx)]
        if ledger.gang and not ledger.live and not ledger.fresh and not ledger.requeued:
            ledger.requeued = True  # a thousand members that end at once settle a thousand times
            rest_ns, ledger.rest_ns = ledger.rest_ns, 0
            over = AttemptsOver(ledger.job_id, (), ledger.pending_ranges(), rest_ns)
            commands.append(Tell(scheduler_of(ctx), over))
        return tuple(commands)

    def _show(self, ledger: JobLedger, message: Settle, ctx: Context) -> tuple[Command, ...]:
        state = ledger.shown()
        if state is message.before:
            return self._tell(ledger, ctx)
        return (*self._tell(ledger, ctx, now=True), Emit(JobChanged(ledger.job_id, state, "", ctx.wall)))

    def _tell(self, ledger: JobLedger, ctx: Context, *, now: bool = False) -> tuple[Command, ...]:
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

    def _clocks(self, ledger: JobLedger, ctx: Context) -> Iterator[Command]:
        """Set the timers for what is due next."""
        timeout = ledger.spec.timeout_ns
        if ledger.timed:
            started = next(iter(ledger.timed.values()))
            yield SetTimer("timeout", _left(started, timeout, ctx), Due("timeout"))
        timeout = ledger.spec.scheduling_timeout_ns
        if timeout and (ledger.untouched or ledger.waiting) and ledger.open:
            since = _waiting_since(ledger)
            yield SetTimer("scheduling", _left(since, timeout, ctx), Due("scheduling"))

    def due(self, ledger: JobLedger, message: Due, ctx: Context) -> Outcome:
        """A timer's time has come."""
        if message.what == "link":  # of a job that has ended, too: its workers keep what they were not let forget
            return (desired_on(ledger, (message.worker_id, message.incarnation), ctx),)
        if ledger.ended is not None:
            return (_done(ledger, ctx),)
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
            case "scheduler":
                return (Tell(scheduler_of(ctx), JobAwake(ledger.job_id)),)
            case "tally":
                ledger.telling = False
                return self._tell(ledger, ctx)
            case _:
                return self._tell(ledger, ctx, now=True)

    def _overdue(self, ledger: JobLedger, ctx: Context) -> Outcome:
        timeout = ledger.spec.timeout_ns
        overran: list[str] = []
        for uid, started in ledger.timed.items():
            if _left(started, timeout, ctx) > 0 or len(overran) == STEP_ATTEMPTS:
                break  # the clock is set again by what follows
            overran.append(uid)
        records = tuple(AttemptOverran(ledger.live[uid], uid, ctx.wall) for uid in overran)
        stopped = stops(ledger, overran, Ending.TIMED_OUT, ctx)
        return Decision(records=records, commands=(*stopped, Continue(Settle(ledger.shown()))))

    def _unplaced(self, ledger: JobLedger, ctx: Context) -> Outcome:
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

    def completed(self, ledger: JobLedger, message: Completed, ctx: Context) -> Outcome:
        """Show a task's end, if it is that: its log is stored, as far as it will be."""
        if isinstance(message.effect, AwaitLogs):
            return self._settle_logs(ledger, message.key, message.value >= message.effect.offset, ctx)
        if isinstance(message.effect, FreezeAttempt) and message.effect.leave_running:
            return self.copying.ended(ledger, message.key, message.value, ctx)
        return self.suspending.completed(ledger, message, ctx)

    def failed(self, ledger: JobLedger, message: Failed, ctx: Context) -> Outcome:
        """Show a task's end all the same, if it is that: the log store cannot tell."""
        if isinstance(message.effect, AwaitLogs):
            return self._settle_logs(ledger, message.key, False, ctx)
        if isinstance(message.effect, FreezeAttempt) and message.effect.leave_running:
            undone = FrozenAttempt(Frozen.UNDONE, reason=f"{type(message.error).__name__}: {message.error}")
            return self.copying.ended(ledger, message.key, undone, ctx)
        return self.suspending.failed(ledger, message, ctx)

    def _settle_logs(self, ledger: JobLedger, key: Any, complete: bool, ctx: Context) -> Outcome:
        _, index, uid = key
        if ledger.due.get(index) != uid:
            return None
        task = ledger.tasks[index]
        attempt = latest_attempt(ledger, index)
        change: TaskChanged = views.task_changed(
            ledger,
            index,
            task.state,
            uid,
            attempt.worker_id,
            log_offset=attempt.log_offset,
            logs_complete=complete,
            wall_ns=ctx.wall,
        )
        return Decision(
            records=(LogsSettled(index, uid, complete),),
            commands=(Emit(change), Continue(Settle(ledger.shown()))),
        )

    # Starting, and full mailboxes

    def undelivered(self, ledger: JobLedger, message: Undelivered, ctx: Context) -> Outcome:
        """Tell all again in a while: to a link what it should run, to the scheduler to ask.

        What a link is told is for one incarnation of its worker, and so is all that is told again instead.
        """
        lost: Any = message.message
        if message.to == ctx.path:
            return (SetTimer(("again", repr(lost)), AGAIN, lost),)
        if message.to.parent.name == "links":
            place = (message.to.name, lost.incarnation)
            return (SetTimer(("link", *place), AGAIN, Due("link", *place)),)
        what = "scheduler" if message.to == scheduler_of(ctx) else "registry"
        return (SetTimer(what, AGAIN, Due(what)),)

    def resume(self, ledger: JobLedger, ctx: Context) -> Iterator[Command]:
        """Take up all that the ledger owes: placement, links, leases, logs, clocks, and the end."""
        ledger.told, ledger.telling = None, False
        if ledger.ended is not None:
            yield _done(ledger, ctx)
            yield from self.suspending.resume(ledger, ctx)
            return
        if not ledger.fresh or ctx.incarnation:
            yield Tell(scheduler_of(ctx), JobAwake(ledger.job_id))
        if ledger.assembly is Assembly.DISBANDING:
            yield Continue(Disband())
        yield from self.suspending.resume(ledger, ctx)
        yield from self.copying.resume(ledger, ctx)
        places = dict.fromkeys((*ledger.places, *ledger.suspects))
        yield from self._resume(ledger, ResumeRest(tuple(places), tuple(ledger.due), 0), ctx)
        yield Continue(Settle(ledger.shown()))

    def _resume(self, ledger: JobLedger, rest: ResumeRest, ctx: Context) -> Iterator[Command]:
        """Take up a part of it: some workers and their leases, and after these some logs."""
        first, last, budget = rest.first, len(rest.places), STEP_ATTEMPTS
        while first < last and budget > 0:
            place = rest.places[first]
            first += 1
            budget -= 1 + len(ledger.places.get(place, ()))
            yield desired_on(ledger, place, ctx)
            if place in ledger.suspects:
                yield self._lease(place)
        while last <= first < last + len(rest.due) and budget > 0:
            index = rest.due[first - last]
            first += 1
            budget -= 1
            if index in ledger.due:
                offset = latest_attempt(ledger, index).log_offset
                yield await_logs(ledger.due[index], index, offset, self.settings.logs_bound_ns)
        if first < last + len(rest.due):
            yield Continue(ResumeRest(rest.places, rest.due, first))

    def resume_rest(self, ledger: JobLedger, message: ResumeRest, ctx: Context) -> Outcome:
        """Go on taking up."""
        return tuple(self._resume(ledger, message, ctx))


def _done(ledger: JobLedger, ctx: Context) -> Command:
    end = ledger.ended
    assert end is not None
    return Tell(ctx.path.parent, JobDone(ledger.job_id, end.state, end.reason, end.wall_ns, views.tally(ledger)))


def _left(since_wall_ns: int, timeout_ns: int, ctx: Context) -> int:
    return min(max(since_wall_ns + timeout_ns - ctx.wall, 0), timeout_ns)


def _waiting_since(ledger: JobLedger) -> int:
    """Return when the task that waits longest began to."""
    if ledger.untouched:
        return ledger.submitted_wall_ns
    return ledger.tasks[next(iter(ledger.waiting))].since_wall_ns
