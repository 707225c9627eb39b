"""One job before an honest scheduler, honest workers, a log store and agents: the walks that laws about jobs hold on.

What the job says is done: clocks tick, logs are awaited, room is given back, workers forget; whoever walks says what
comes next. The mailbox of a worker's link may be full for a while: then the job gets back what it told it. In walks
that allow it the job's actor dies between any two steps, and the next one begins with its records, or a snapshot.
"""

from __future__ import annotations

from functools import partial

from jobs_world import job_context

from iriscw.jobs.job.decisions import JobDecisions
from iriscw.jobs.job.ledger import JobLedger, compact, evolve
from iriscw.jobs.messages import (
    AttemptsLost,
    AttemptsObserved,
    AttemptsOver,
    DesiredOn,
    JobAdvanced,
    JobAwake,
    JobChanged,
    JobDone,
    JobReport,
    JobWithdrawn,
    LinkNeedsDesired,
    Placed,
    Placement,
    ReleaseAttempts,
    ReportJob,
    RunAttempts,
    StopAttempts,
    TaskChanged,
    TerminateJob,
)
from iriscw.jobs.model import AttemptEnd, AwaitLogs, Ending, Observation, Suspension, TaskState
from iriscw.jobs.suspension.effects import (
    CheckpointStored,
    DropCheckpoint,
    FreezeAttempt,
    Frozen,
    FrozenAttempt,
    StoreCheckpoint,
    ThawAttempt,
    Thawed,
    ThawedAttempt,
)
from iriscw.jobs.suspension.messages import (
    ContinueAttempts,
    PlaceSuspended,
    ResumeTask,
    SuspendAttempts,
    SuspendedPlaced,
    SuspendedUnwanted,
    SuspendTask,
    WithdrawGrants,
)
from iriscw.jobs.suspension.model import Stage
from iriscw.runtime.vocabulary import (
    Cancel,
    CancelTimer,
    Completed,
    Continue,
    Decision,
    Emit,
    Failed,
    Refuse,
    Reply,
    ReplyTo,
    Run,
    SetTimer,
    Tell,
    Undelivered,
)

WORKERS = ("w0", "w1")


ANSWERS = {
    FreezeAttempt: (
        FrozenAttempt(Frozen.FROZEN, "ck", "node"),
        FrozenAttempt(Frozen.UNDONE, reason="no"),
        FrozenAttempt(Frozen.UNKNOWN),
        OSError("no agent"),
    ),
    ThawAttempt: (
        ThawedAttempt(Thawed.THAWED),
        ThawedAttempt(Thawed.UNDONE),
        ThawedAttempt(Thawed.REFUSED),
        OSError("no agent"),
    ),
    StoreCheckpoint: (CheckpointStored("s3://c"), CheckpointStored(reason="no"), OSError("no agent")),
    DropCheckpoint: (None, OSError("no agent")),
}
"""What may become of what agents are asked for."""


def latest(ledger, uid):
    """Return a live attempt."""
    return ledger.tasks[ledger.live[uid]].attempt


class Walk:
    """A job, its clocks and calls, and what scheduler, registry, workers and listeners know of it.

    Args:
        spec: of the job.
        suspends: whether its tasks are suspended and resumed.
        dies: whether its actor does.
    """

    def __init__(self, spec, *, suspends=False, dies=False) -> None:
        self.suspends, self.dies = suspends, dies
        self.records: list[object] = []
        self.returns: dict[str, int] = {}
        """The scheduler's: suspended attempts for which it looks for a worker."""
        self.bodies: dict[str, Suspension] = {}
        """How each attempt is that its worker was told to run."""
        self.freezable: dict[str, None] = {}
        """Those that their workers were told to let be frozen."""
        self.withdrawing: dict[str, None] = {}
        """Those whose grants their workers were told to take back."""
        self.has: dict[str, str] = {}
        """The grant that each attempt was given last."""
        self.leaves: dict[str, tuple[str, str]] = {}
        """Whom each grant was given to."""
        self.thawed: dict[str, None] = {}
        """Attempts of which it was said that they are back."""
        self.answers: list[object] = []
        self.keys = 0
        self.ctx = job_context()
        self.decisions = JobDecisions()
        self.rules = self.decisions.rules()
        self.ledger = JobLedger("job-a", 0, spec, self.ctx.wall)
        self.clocks: dict[object, SetTimer] = {}
        self.calls: dict[object, object] = {}
        self.room: dict[str, int] = {}
        """The scheduler's: the index by the uid of an attempt that holds room."""
        self.waiting = dict.fromkeys(range(spec.replicas))
        """Tasks that the scheduler may place."""
        self.withdrawn = False
        self.orders: dict[str, str] = {}
        """What each attempt's worker was told last: run, stop; nothing once it is to be forgotten."""
        self.where: dict[str, tuple[str, str]] = {}
        self.full: dict[str, None] = {}
        """Workers whose links have no room."""
        self.advanced: JobAdvanced | None = None
        self.done: list[JobDone] = []
        self.tasks: list[TaskChanged] = []
        self.states: list[JobChanged] = []
        self.serial = 0
        self._do(tuple(self.decisions.resume(self.ledger, self.ctx)))

    def send(self, message) -> None:
        """Have the job decide, and take what it says for done."""
        self.ctx.wall += 1
        outcome = self.rules[type(message)](self.ledger, message, self.ctx)
        if isinstance(outcome, Decision):
            for record in outcome.records:
                evolve(self.ledger, record)
                self.records.append(record)
            outcome = outcome.commands
        self._do(outcome or ())

    def _do(self, commands) -> None:
        further = []
        for each in commands:
            match each:
                case SetTimer():
                    self.clocks[each.key] = each
                case CancelTimer():
                    self.clocks.pop(each.key, None)
                case Run():
                    self._is_allowed(each.effect)
                    self.calls[each.key] = each.effect
                case Cancel():
                    self.calls.pop(each.key, None)
                case Reply() | Refuse():
                    self.answers.append(each)
                case Continue():
                    further.append(each.message)
                case Emit(event=TaskChanged()):
                    self.tasks.append(each.event)
                case Emit(event=JobChanged()):
                    self.states.append(each.event)
                case Tell() if each.to.name in self.full:
                    further.append(Undelivered(each.to, each.message))
                case Tell():
                    further += self._told(each.to.name, each.message)
        for message in further:
            self.send(message)

    def _told(self, name, message):
        """Take note of what others are told; give what they ask for that."""
        match message:
            case AttemptsOver(uids=uids, pending=pending):
                for uid in uids:
                    self.room.pop(uid, None)
                    self.returns.pop(uid, None)
                if not self.withdrawn:
                    self.waiting.update((index, None) for first, end in pending for index in range(first, end))
            case JobWithdrawn():
                self.withdrawn = True
                self.waiting.clear()
                self.returns.clear()
            case PlaceSuspended(attempt=attempt):
                assert attempt.uid not in self.room, "its old room is not given back"
                self.returns[attempt.uid] = attempt.index
            case SuspendedUnwanted(uid=uid):
                self.returns.pop(uid, None)
            case JobAwake():
                return (ReportJob(1),)
            case JobReport(live=live, suspended=suspended, pending=pending):
                self.room = {each.uid: each.index for each in live}
                self.returns = {each.uid: each.index for each in suspended}
                self.waiting = {index: None for first, end in pending for index in range(first, end)}
            case RunAttempts(orders=orders):
                for order in orders:
                    self._order(order, "run")
            case StopAttempts(uids=uids):
                self.orders.update((uid, "stop") for uid in uids if uid in self.orders)
            case SuspendAttempts(uids=uids):
                self.freezable.update((uid, None) for uid in uids if uid in self.orders)
            case WithdrawGrants(uids=uids):
                self.withdrawing.update((uid, None) for uid in uids if uid in self.orders)
            case ContinueAttempts(uids=uids):
                self._go_on(uids)
            case ReleaseAttempts(uids=uids):
                for uid in uids:
                    if self.where[uid][0] == name:
                        self._forget(uid)
            case DesiredOn(incarnation=incarnation, attempts=attempts):
                wanted = {each.order.uid for each in attempts}
                assert wanted <= {*self.ledger.live}
                for uid in [uid for uid in self.orders if self.where[uid] == (name, incarnation)]:
                    if uid not in wanted:
                        self._forget(uid)
                for each in attempts:
                    self._order(each.order, "run" if each.stop is None else "stop")
                    if each.suspend:
                        self.freezable[each.order.uid] = None
                    else:
                        self._go_on((each.order.uid,))
                    if each.withdraw:
                        self.withdrawing[each.order.uid] = None
            case JobAdvanced():
                self.advanced = message
            case JobDone():
                self.done.append(message)
            case _:
                assert name in ("scheduler", "jobs") or name in WORKERS, message
        return ()

    def _is_allowed(self, effect) -> None:
        """Nobody freezes what its worker was not told, nor thaws what nobody has a grant for."""
        if isinstance(effect, FreezeAttempt) and effect.uid in self.ledger.live:
            assert self.bodies[effect.uid] in (Suspension.SUSPENDING, Suspension.SUSPENDED)
        if isinstance(effect, ThawAttempt):
            assert self.bodies[effect.uid] in (Suspension.RESUMING, Suspension.NONE)

    def _order(self, order, what) -> None:
        uid, leave = order.uid, order.resumption
        if leave is not None:
            assert self.leaves.setdefault(leave.grant, self.where[uid]) == self.where[uid], "one leave for two"
        before = self.bodies.get(uid)
        again = leave is not None and self.has.get(uid) == leave.grant
        if leave is not None and (before is None or (before is Suspension.SUSPENDED and not again)) and what == "run":
            self.bodies[uid], self.has[uid] = Suspension.RESUMING, leave.grant
            self.withdrawing.pop(uid, None)
        elif before is None:
            self.bodies[uid] = Suspension.NONE
        self.orders[uid] = what

    def _go_on(self, uids) -> None:
        for uid in uids:
            self.freezable.pop(uid, None)
            if self.bodies.get(uid) is Suspension.SUSPENDING:
                self.bodies[uid] = Suspension.NONE

    def _forget(self, uid) -> None:
        for table in (self.orders, self.freezable, self.bodies, self.withdrawing):
            table.pop(uid, None)

    # What may come next

    def ask(self, kind, index, key="") -> None:
        """Ask something of the job; it answers."""
        self.keys += 1
        self.ctx.reply_to, before = ReplyTo(self.keys), len(self.answers)
        self.send(kind(index, key or f"k{self.keys}"))
        self.ctx.reply_to = None
        assert len(self.answers) == before + 1, "asked and not answered"

    def die(self, *, snapshot) -> None:
        """Have the controller be killed, and another one begin: links are new, too, and ask what is wanted."""
        begun = JobLedger(self.ledger.job_id, self.ledger.order, self.ledger.spec, self.ledger.submitted_wall_ns)
        for record in [*compact(self.ledger)] if snapshot else self.records:
            evolve(begun, record)
        self.ledger = begun
        self.clocks, self.calls, self.full = {}, {}, {}
        self.ctx.incarnation += 1
        self._do(tuple(self.decisions.resume(self.ledger, self.ctx)))
        for worker in WORKERS:
            self.send(LinkNeedsDesired(worker, "a"))

    def return_to(self, uid, worker) -> None:
        """Have the scheduler find a worker for a suspended attempt."""
        index = self.returns.pop(uid)
        self.room[uid] = index
        before = self.where[uid]
        self.where[uid] = (worker, "a")
        self.send(SuspendedPlaced(index, uid, worker, "a"))
        if uid not in self.room:
            self.where[uid] = before

    def word(self, uid, suspension) -> None:
        """Have a worker say where an attempt stands between running and not."""
        gives_back = suspension is Suspension.SUSPENDED and self.bodies[uid] is Suspension.RESUMING
        self.bodies[uid] = suspension
        withdrawn = self.has[uid] if gives_back else ""
        folder = "" if suspension is Suspension.NONE else f"/{uid}"
        self.see(
            uid,
            Observation(
                uid, TaskState.RUNNING, started=True, suspension=suspension, folder=folder, withdrawn=withdrawn
            ),
        )

    def place(self, index, worker) -> None:
        """Have the scheduler place a task."""
        self.serial += 1
        uid = f"u{self.serial}"
        del self.waiting[index]
        self.room[uid] = index
        self.where[uid] = (worker, "a")
        self.send(Placed((Placement(index, uid, worker, "a"),)))

    def see(self, uid, seen) -> None:
        """Have a worker say something about its attempt."""
        self.send(AttemptsObserved(*self.where[uid], (seen,)))

    def answer(self, key, stored) -> None:
        """Answer the log store."""
        effect = self.calls.pop(key)
        if stored is None:
            self.send(Failed(key, effect, OSError("no log store")))
        else:
            self.send(Completed(key, effect, effect.offset if stored else 0))

    def conclude(self, key, value) -> None:
        """Say what became of a freeze or a thaw, or that something was removed; an error: it cannot be."""
        effect = self.calls.pop(key)
        if value == ThawedAttempt(Thawed.THAWED):
            self.thawed[effect.uid] = None
        if isinstance(value, Exception):
            self.send(Failed(key, effect, value))
        else:
            self.send(Completed(key, effect, value))

    def ring(self, key) -> None:
        """Let a clock ring, at its time."""
        clock = self.clocks.pop(key)
        self.ctx.wall += clock.delay
        self.send(clock.message)

    def choices(self):
        """Yield all that may come next: a name and a function."""
        yield "terminate", lambda: self.send(TerminateJob("job-a", "enough"))
        for index in self.waiting:
            for worker in WORKERS:
                yield f"place {index} on {worker}", lambda index=index, worker=worker: self.place(index, worker)
        for uid in self.ledger.live:
            for state in (TaskState.BUILDING, TaskState.RUNNING):
                seen = Observation(uid, state, started=state is TaskState.RUNNING)
                yield f"{uid} {state.value}", lambda uid=uid, seen=seen: self.see(uid, seen)
            for ending in (Ending.SUCCEEDED, Ending.FAILED, Ending.WORKER_LOST, Ending.KILLED):
                for offset in (0, 3):
                    seen = Observation(uid, TaskState.RUNNING, AttemptEnd(ending), True, log_offset=offset)
                    yield f"{uid} {ending.value} {offset}", lambda uid=uid, seen=seen: self.see(uid, seen)
        for worker in WORKERS:
            for fenced in (False, True):
                lost = AttemptsLost(worker, "a", fenced, "gone")
                yield f"{worker} lost, fenced: {fenced}", lambda lost=lost: self.send(lost)
        for key, effect in self.calls.items():
            if isinstance(effect, AwaitLogs):
                for stored in (True, False, None):
                    yield f"{key} stored: {stored}", lambda key=key, stored=stored: self.answer(key, stored)
            else:
                for value in ANSWERS[type(effect)]:
                    yield f"{key}: {value}", lambda key=key, value=value: self.conclude(key, value)
        if self.suspends:
            yield from self.moves()
        if self.dies:
            for snapshot in (False, True):
                yield f"dies, snapshot: {snapshot}", lambda snapshot=snapshot: self.die(snapshot=snapshot)
        for worker in WORKERS:
            if worker in self.full:
                yield f"{worker} has room", lambda worker=worker: self.full.pop(worker)
            else:
                yield f"{worker} is full", lambda worker=worker: self.full.update({worker: None})
        for key in self.clocks:
            yield f"ring {key}", lambda key=key: self.ring(key)

    def moves(self):
        """Yield what may come next of suspending and resuming."""
        for index in range(self.ledger.spec.replicas):
            yield f"suspend {index}", lambda index=index: self.ask(SuspendTask, index)
            store = partial(SuspendTask, store=True)
            yield f"suspend {index} to store it", lambda index=index, store=store: self.ask(store, index)
            yield f"resume {index}", lambda index=index: self.ask(ResumeTask, index)
            yield f"resume {index} again", lambda index=index: self.ask(ResumeTask, index, "same")
        for uid in self.returns:
            for worker in WORKERS:
                yield f"{uid} returns to {worker}", lambda uid=uid, worker=worker: self.return_to(uid, worker)
        for uid, body in self.bodies.items():
            for then in self.next_words(uid, body):
                yield f"{uid} says {then}", lambda uid=uid, then=then: self.word(uid, then)
        for uid in self.ledger.away:
            for worker in WORKERS:
                stray = Observation(uid, TaskState.RUNNING, started=True, suspension=Suspension.SUSPENDED)
                said = AttemptsObserved(worker, "a", (stray,))
                yield f"{worker} still has {uid}", lambda said=said: self.send(said)

    def next_words(self, uid, body):
        """Return what the worker of an attempt may say of it next."""
        if uid not in self.ledger.live:
            return ()
        if body is Suspension.NONE:
            running = latest(self.ledger, uid).state is TaskState.RUNNING
            return (Suspension.SUSPENDING,) if running and uid in self.freezable else ()
        if body is Suspension.SUSPENDING:
            return (Suspension.SUSPENDING, Suspension.SUSPENDED)
        if body is Suspension.RESUMING:
            thawing = any(isinstance(each, ThawAttempt) and each.uid == uid for each in self.calls.values())
            gives_back = (Suspension.SUSPENDED,) if uid in self.withdrawing else ()
            return (Suspension.RESUMING, *gives_back, *((Suspension.NONE,) if thawing else ()))
        return (Suspension.SUSPENDED,)

    def late(self):
        """Return the clocks at which a link is told again what it had no room for."""
        return [key for key in self.clocks if key[0] == "link"]

    def catch_up(self) -> None:
        """Have all links take what they had no room for."""
        self.full.clear()
        for key in self.late():
            self.ring(key)

    def settle(self) -> None:
        """Heal the world: there is room, tasks are placed and succeed, what is to stop stops, logs are stored."""
        self.full.clear()
        for _ in range(500):
            if self.late():
                self.catch_up()
            elif self.calls:
                key, effect = next(iter(self.calls.items()))
                if isinstance(effect, AwaitLogs):
                    self.answer(key, True)
                elif isinstance(effect, ThawAttempt):
                    self.conclude(key, ThawedAttempt(Thawed.THAWED))
                    self.word(effect.uid, Suspension.NONE)
                else:
                    self.conclude(key, ANSWERS[type(effect)][0])
            elif moving := [uid for uid, body in self.bodies.items() if self._moves_on(uid, body)]:
                body = self.bodies[moving[0]]
                gone = body is Suspension.SUSPENDING or moving[0] in self.withdrawing
                self.word(moving[0], Suspension.SUSPENDED if gone else body)
            elif self.returns:
                self.return_to(next(iter(self.returns)), "w0")
            elif self.ledger.away and self.ledger.open:
                self.ask(ResumeTask, next(iter(self.ledger.away.values())))
            elif self.ledger.live:
                uid = next(iter(self.ledger.live))
                stopped = self.orders.get(uid) == "stop" or not self.ledger.open
                ending = Ending.KILLED if stopped else Ending.SUCCEEDED
                self.see(uid, Observation(uid, TaskState.RUNNING, AttemptEnd(ending), True))
            elif self.waiting:
                self.place(next(iter(self.waiting)), "w0")
            else:
                return
        raise AssertionError(f"it never comes to rest: {self.ledger}")

    def _moves_on(self, uid, body) -> bool:
        """Whether an honest worker has something to say of an attempt that is suspended or resumed."""
        if uid not in self.ledger.live or self.orders.get(uid) == "stop":
            return False
        stage = self.ledger.moves[uid].stage if uid in self.ledger.moves else Stage.RUNS
        back = stage is Stage.RESUMING and (uid in self.withdrawing or not self.ledger.moves[uid].thawing)
        waits = stage is Stage.FROZEN or back
        return body is not Suspension.NONE and waits
