"""One job before an honest scheduler, honest workers and a log store: the walks that laws about jobs hold on.

What the job says is done: clocks tick, logs are awaited, room is given back, workers forget; whoever walks says what
comes next. The mailbox of a worker's link may be full for a while: then the job gets back what it told it.
"""

from __future__ import annotations

from jobs_world import FakeContext

from iriscw.jobs.job import JobDecisions
from iriscw.jobs.ledger import Ledger, evolve
from iriscw.jobs.messages import (
    AttemptsLost,
    AttemptsObserved,
    AttemptsOver,
    DesiredOn,
    JobAdvanced,
    JobChanged,
    JobDone,
    JobWithdrawn,
    Placed,
    Placement,
    ReleaseAttempts,
    RunAttempts,
    StopAttempts,
    TaskChanged,
    TerminateJob,
)
from iriscw.jobs.model import Ending, Observation, TaskState
from iriscw.runtime.vocabulary import (
    CancelTimer,
    Completed,
    Continue,
    Decision,
    Emit,
    Failed,
    Run,
    SetTimer,
    Tell,
    Undelivered,
)

WORKERS = ("w0", "w1")


class Walk:
    """A job, its clocks and calls, and what scheduler, registry, workers and listeners know of it."""

    def __init__(self, spec) -> None:
        self.ctx = FakeContext()
        self.decisions = JobDecisions()
        self.rules = self.decisions.rules()
        self.ledger = Ledger("job-a", 0, spec, self.ctx.wall)
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
                    self.calls[each.key] = each.effect
                case Continue():
                    further.append(each.message)
                case Emit(event=event):
                    (self.tasks if isinstance(event, TaskChanged) else self.states).append(event)
                case Tell() if each.to.name in self.full:
                    further.append(Undelivered(each.to, each.message))
                case Tell():
                    self._told(each.to.name, each.message)
        for message in further:
            self.send(message)

    def _told(self, name, message) -> None:
        match message:
            case AttemptsOver(uids=uids, pending=pending):
                for uid in uids:
                    self.room.pop(uid, None)
                if not self.withdrawn:
                    self.waiting.update((index, None) for first, end in pending for index in range(first, end))
            case JobWithdrawn():
                self.withdrawn = True
                self.waiting.clear()
            case RunAttempts(orders=orders):
                self.orders.update((order.uid, "run") for order in orders)
            case StopAttempts(uids=uids):
                self.orders.update((uid, "stop") for uid in uids if uid in self.orders)
            case ReleaseAttempts(uids=uids):
                for uid in uids:
                    self.orders.pop(uid, None)
            case DesiredOn(incarnation=incarnation, attempts=attempts):
                assert {each.order.uid for each in attempts} <= {*self.ledger.live}
                for uid in [uid for uid in self.orders if self.where[uid] == (name, incarnation)]:
                    del self.orders[uid]
                self.orders.update((each.order.uid, "run" if each.stop is None else "stop") for each in attempts)
            case JobAdvanced():
                self.advanced = message
            case JobDone():
                self.done.append(message)
            case _:
                assert name in ("scheduler", "jobs") or name in WORKERS, message

    # What may come next

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

    def ring(self, key) -> None:
        """Let a clock ring, at its time."""
        clock = self.clocks.pop(key)
        self.ctx.wall += clock.delay
        self.send(clock.message)

    def choices(self):
        """Give all that may come next: a name and a function."""
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
                    seen = Observation(uid, TaskState.RUNNING, ending, True, log_offset=offset)
                    yield f"{uid} {ending.value} {offset}", lambda uid=uid, seen=seen: self.see(uid, seen)
        for worker in WORKERS:
            for fenced in (False, True):
                lost = AttemptsLost(worker, "a", fenced, "gone")
                yield f"{worker} lost, fenced: {fenced}", lambda lost=lost: self.send(lost)
        for key in self.calls:
            for stored in (True, False, None):
                yield f"{key} stored: {stored}", lambda key=key, stored=stored: self.answer(key, stored)
        for worker in WORKERS:
            if worker in self.full:
                yield f"{worker} has room", lambda worker=worker: self.full.pop(worker)
            else:
                yield f"{worker} is full", lambda worker=worker: self.full.update({worker: None})
        for key in self.clocks:
            yield f"ring {key}", lambda key=key: self.ring(key)

    def late(self):
        """Give the clocks at which a link is told again what it had no room for."""
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
                self.answer(next(iter(self.calls)), True)
            elif self.ledger.live:
                uid = next(iter(self.ledger.live))
                stopped = self.orders.get(uid) == "stop" or not self.ledger.open
                ending = Ending.KILLED if stopped else Ending.SUCCEEDED
                self.see(uid, Observation(uid, TaskState.RUNNING, ending, True))
            elif self.waiting:
                self.place(next(iter(self.waiting)), "w0")
            else:
                return
        raise AssertionError(f"it never comes to rest: {self.ledger}")
