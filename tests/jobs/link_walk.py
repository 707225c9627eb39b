"""One worker's link between honest jobs and an honest worker: the walks that laws about links hold on."""

from __future__ import annotations

import attrs
from jobs_world import command_spec, job_context

from iriscw.jobs.links.link import Link, LinkDecisions
from iriscw.jobs.messages import (
    AttemptsObserved,
    Desired,
    DesiredOn,
    LinkExpects,
    LinkStarted,
    LinkSynced,
    ReleaseAttempts,
    RunAttempts,
    StopAttempts,
)
from iriscw.jobs.model import (
    AttemptEnd,
    Ending,
    Observation,
    Observed,
    Orders,
    Resumption,
    RunOrder,
    StreamUp,
    Suspension,
    TaskState,
)
from iriscw.jobs.suspension.messages import ContinueAttempts, SuspendAttempts, WithdrawGrants
from iriscw.runtime.vocabulary import ActorPath, Arrived, CancelTimer, Close, Closed, Feed, Open, SetTimer, Tell

JOBS = ("job-a", "job-b")
SPEC = command_spec()


@attrs.define
class Wanted:
    """An attempt that lives, as its job has it."""

    order: RunOrder
    started: bool = False
    stop: Ending | None = None
    freeze: bool = False
    asked: bool = False
    """Whether it ever was to be frozen, since it is with this worker."""
    withdraw: bool = False
    """Whether its grant is to be taken back."""
    gone: bool = False
    """Whether its worker has said that nothing of it runs."""


class Walk:
    """A link, the jobs that use it, and the worker behind its stream."""

    def __init__(self) -> None:
        self.ctx = job_context(path=ActorPath("/jobs/links/w"))
        self.decisions = LinkDecisions(stop_grace_ns=7)
        self.rules = self.decisions.rules()
        self.clocks: dict[object, SetTimer] = {}
        self.jobs: dict[str, dict[str, Wanted]] = {job: {} for job in JOBS}
        self.worker: dict[str, Observation] = {}
        """What the worker has: one that ended until it may forget it."""
        self.stopping: dict[str, None] = {}
        """Attempts that the worker was told to stop."""
        self.had: dict[str, Resumption] = {}
        """The grant by which the worker has, or had, each attempt that came back."""
        self.away: dict[str, tuple[str, RunOrder]] = {}
        """Attempts that the worker was to let go: they may be with another one, or with none."""
        self.up = False
        self.listening = False
        """Whether the link waits for a stream."""
        self.serial = 0
        self.ended: list[str] = []
        self.born()

    def born(self) -> None:
        """Have the link's actor begin, or begin anew, while the worker lives on."""
        self.link = Link("w", "a")
        self.clocks, self.up, self.listening = {}, False, False
        self._do(self.decisions.resume(self.link, self.ctx))

    def send(self, message) -> None:
        """Have the link decide, and take what it says for done."""
        self._do(tuple(self.rules[type(message)](self.link, message, self.ctx) or ()))

    def _do(self, commands) -> None:
        for each in commands:
            match each:
                case SetTimer():
                    self.clocks[each.key] = each
                case CancelTimer():
                    self.clocks.pop(each.key, None)
                case Feed(item=Orders()):
                    assert self.up, "fed while there is no stream"
                    self._obey(each.item)
                case Close():
                    self.up = self.listening = False
                case Open():
                    assert not self.listening
                    self.listening = True
                case Tell(message=AttemptsObserved()):
                    self._heard(each.to.name, each.message.observations)
                case Tell():
                    assert isinstance(each.message, LinkStarted | LinkSynced)

    def _obey(self, orders) -> None:
        for order in orders.run:
            self._run(order)
        for stop in orders.stop:
            assert stop.grace_ns == 7
            if stop.uid in self.worker:
                self.stopping[stop.uid] = None
        for uid in orders.suspend:
            seen = self.worker.get(uid)
            if seen is not None and seen.started and seen.ending is None and seen.suspension is Suspension.NONE:
                self.worker[uid] = attrs.evolve(seen, suspension=Suspension.SUSPENDING)
        for uid in orders.go_on:
            seen = self.worker.get(uid)
            if seen is not None and seen.suspension is Suspension.SUSPENDING:
                self.worker[uid] = attrs.evolve(seen, suspension=Suspension.NONE)
        for uid, grant in orders.withdraw:
            seen = self.worker.get(uid)
            if seen is not None and seen.suspension is Suspension.RESUMING and self.had[uid].grant == grant:
                self.worker[uid] = attrs.evolve(seen, suspension=Suspension.SUSPENDED, withdrawn=grant)
        for uid in orders.release:
            if uid in self.worker:
                suspended = self.worker[uid].suspension is Suspension.SUSPENDED
                assert suspended or self.worker[uid].ending is not None, f"{uid} forgotten while it runs"
            self.worker.pop(uid, None)
        if orders.complete:
            named = {each.uid for each in (*orders.run, *orders.stop)}
            alive = {uid for uid, seen in self.worker.items() if seen.ending is None}
            wanted = {uid for job in JOBS for uid, each in self.jobs[job].items() if each.stop is None}
            assert alive & wanted <= named, "not named, so it is stopped"

    def _run(self, order) -> None:
        seen = self.worker.get(order.uid)
        if order.resumption is None:
            assert order.uid not in self.away, "started anew elsewhere"
            self.worker.setdefault(order.uid, Observation(order.uid, TaskState.ASSIGNED))
        elif seen is None or (seen.suspension is Suspension.SUSPENDED and self.had.get(order.uid) != order.resumption):
            self.had[order.uid] = order.resumption
            resuming = Observation(order.uid, TaskState.RUNNING, started=True, suspension=Suspension.RESUMING)
            self.worker[order.uid] = resuming
            self.stopping.pop(order.uid, None)

    def _heard(self, job_id, observations) -> None:
        mine = self.jobs[job_id]
        released = []
        for seen in observations:
            if seen.uid in mine:
                runs = seen.suspension in (Suspension.NONE, Suspension.SUSPENDING)
                mine[seen.uid].started |= seen.state is TaskState.RUNNING and runs
                resumption = mine[seen.uid].order.resumption
                given_back = resumption is not None and seen.withdrawn == resumption.grant
                mine[seen.uid].gone |= seen.suspension is Suspension.SUSPENDED and (mine[seen.uid].freeze or given_back)
                if seen.ending is not None:
                    del mine[seen.uid]
                    self.ended.append(seen.uid)
            if seen.ending is not None or (seen.uid in self.away and seen.uid not in mine):
                released.append(seen.uid)
        if released:
            self.send(ReleaseAttempts("a", tuple(released)))

    # What may come next

    def brief(self) -> None:
        """Have the scheduler say whose attempts are here."""
        self.send(LinkExpects("a", tuple(job for job in JOBS if self.jobs[job])))

    def want(self, job) -> None:
        """Have a job want one more attempt."""
        self.serial += 1
        order = RunOrder(f"u{self.serial}", job, "0", 0, 1, SPEC)
        self.jobs[job][order.uid] = Wanted(order)
        self.send(RunAttempts("a", (order,)))

    def stop(self, job, uid) -> None:
        """Have a job stop an attempt."""
        wanted = self.jobs[job][uid]
        wanted.stop = wanted.stop or Ending.KILLED
        self.send(StopAttempts("a", (uid,), Ending.KILLED))

    def suspend(self, job, uid, *, freeze) -> None:
        """Have a job let an attempt be frozen, or take that back."""
        self.jobs[job][uid].freeze = freeze
        self.jobs[job][uid].asked = True
        kind = SuspendAttempts if freeze else ContinueAttempts
        self.send(kind("a", (uid,)))

    def give_back(self, job, uid) -> None:
        """Have a job have the grant of an attempt be taken back."""
        self.jobs[job][uid].withdraw = True
        self.send(WithdrawGrants("a", (uid,)))

    def leave(self, job, uid) -> None:
        """Have a job take an attempt from this worker that has said that nothing of it runs."""
        self.away[uid] = (job, self.jobs[job].pop(uid).order)
        self.send(ReleaseAttempts("a", (uid,)))

    def come_back(self, uid) -> None:
        """Have one come back to this worker."""
        self.serial += 1
        job, order = self.away.pop(uid)
        order = attrs.evolve(order, resumption=Resumption(f"g{self.serial}", f"/{uid}"))
        self.jobs[job][uid] = Wanted(order)
        self.send(RunAttempts("a", (order,)))

    def speak(self, job) -> None:
        """Have a job say all that it wants."""
        wanted = self.jobs[job].values()
        desired = tuple(Desired(each.order, each.started, each.stop, each.freeze, each.withdraw) for each in wanted)
        self.send(DesiredOn(job, "a", desired))

    def connect(self) -> None:
        """Have the worker begin a stream."""
        self.up = True
        self.send(Arrived("stream", StreamUp(tuple(self.worker.values()))))

    def hang_up(self, error=None) -> None:
        """Have the stream end."""
        self.up = self.listening = False
        self.send(Closed("stream", error))

    def say(self, uid, **changes) -> None:
        """Have something happen to an attempt; the worker says so if it can."""
        self.worker[uid] = attrs.evolve(self.worker[uid], **changes)
        if self.up:
            self.send(Arrived("stream", Observed((self.worker[uid],))))

    def ring(self, key) -> None:
        """Let a clock ring."""
        self.send(self.clocks.pop(key).message)

    def choices(self):
        """Yield all that may come next: a name and a function."""
        yield "briefed", self.brief
        yield "begins anew", self.born
        for job in JOBS:
            yield f"{job} speaks", lambda job=job: self.speak(job)
            yield f"{job} wants one", lambda job=job: self.want(job)
            for uid in self.jobs[job]:
                yield f"{job} stops {uid}", lambda job=job, uid=uid: self.stop(job, uid)
            for uid, wanted in self.jobs[job].items():
                if wanted.gone and wanted.stop is None:
                    yield f"{uid} leaves", lambda job=job, uid=uid: self.leave(job, uid)
                elif wanted.started and wanted.stop is None:
                    freeze = not wanted.freeze
                    yield (
                        f"{uid} may be frozen: {freeze}",
                        lambda job=job, uid=uid, freeze=freeze: self.suspend(job, uid, freeze=freeze),
                    )
                if wanted.order.resumption is not None and not wanted.started and wanted.stop is None:
                    yield f"{uid} is given back", lambda job=job, uid=uid: self.give_back(job, uid)
        for uid in self.away:
            yield f"{uid} comes back", lambda uid=uid: self.come_back(uid)
        if self.up:
            yield "stream ends", self.hang_up
            yield "stream fails", lambda: self.hang_up(OSError("reset"))
        elif self.listening:
            yield "stream begins", self.connect
        for uid, seen in self.worker.items():
            if seen.suspension is Suspension.SUSPENDING:
                yield f"{uid} is gone", lambda uid=uid: self.say(uid, suspension=Suspension.SUSPENDED)
            if seen.suspension is Suspension.RESUMING:
                yield f"{uid} is back", lambda uid=uid: self.say(uid, suspension=Suspension.NONE)
            if seen.ending is None and seen.suspension is not Suspension.SUSPENDED:
                running = {"state": TaskState.RUNNING, "started": True}
                yield f"{uid} runs", lambda uid=uid, running=running: self.say(uid, **running)
                over = {**running, "end": AttemptEnd(Ending.KILLED if uid in self.stopping else Ending.SUCCEEDED)}
                over["suspension"] = Suspension.NONE
                yield f"{uid} ends", lambda uid=uid, over=over: self.say(uid, **over)
        for key in self.clocks:
            yield f"ring {key}", lambda key=key: self.ring(key)

    def settle(self) -> None:
        """Heal: all have spoken, the stream is there, what is to stop ends."""
        self.brief()
        for job in JOBS:
            self.speak(job)
        if not self.listening:
            self.ring("open")
        if not self.up:
            self.connect()
        for uid in [uid for uid in self.stopping if uid in self.worker and self.worker[uid].ending is None]:
            over = {"state": TaskState.RUNNING, "started": True, "end": AttemptEnd(Ending.KILLED)}
            self.say(uid, **over, suspension=Suspension.NONE)
