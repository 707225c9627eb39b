"""The scheduler before honest jobs, links and an honest fleet: the walks that laws about placement hold on.

What it says is heard by all: jobs take what they are given, links sync, the fleet notes demand and activity; whoever
walks says what comes next.
"""

from __future__ import annotations

from collections import Counter

from jobs_world import FakeContext, command_spec, worker_info

from iriscw.cloud.model import Capacity
from iriscw.fleet.messages import (
    ActivityChanged,
    Cordon,
    Cordoned,
    DemandChanged,
    SliceGone,
    Uncordon,
    WorkerLost,
    WorkerReady,
    WorkersMissed,
)
from iriscw.jobs.messages import (
    AttemptsLost,
    AttemptsOver,
    JobAwake,
    JobIntroduced,
    JobReport,
    JobsKnown,
    JobWithdrawn,
    LinkExpects,
    LinkGone,
    LinksAwake,
    LinkStarted,
    LinkSynced,
    LinkUnwanted,
    LinkWanted,
    LiveAttempt,
    Placed,
    ReportJob,
)
from iriscw.jobs.schedule import Scheduler
from iriscw.jobs.scheduler import SchedulerDecisions
from iriscw.runtime.vocabulary import ActorPath, CancelTimer, Continue, SetTimer, Tell

SMALL, LARGE = Capacity(1000, 1 << 30), Capacity(3000, 1 << 30)
SPECS = {
    "a": command_spec("a", replicas=3, demand=SMALL),
    "b": command_spec("b", replicas=2, demand=LARGE),
    "c": command_spec("c", replicas=2, demand=SMALL),
    "g": command_spec("g", replicas=2, demand=LARGE, group_by="slice-id"),
}
WORKERS = {f"slice-{number}-{number}": number for number in range(3)}
CPUS = 4


class Walk:
    """A scheduler, and what jobs, links and fleet know."""

    def __init__(self) -> None:
        self.ctx = FakeContext(path="/jobs/scheduler")
        self.rules = SchedulerDecisions(ActorPath("/fleet")).rules()
        self.state = Scheduler()
        self.clocks: dict[object, SetTimer] = {}
        self.jobs: dict[str, dict[str, tuple[int, str, str]]] = {}
        """Of each job its live attempts: index, worker and incarnation by uid."""
        self.pending: dict[str, dict[int, None]] = {}
        self.closed: dict[str, None] = {}
        """Jobs that have been withdrawn."""
        self.workers: dict[str, str] = {}
        """The incarnation of each worker that the fleet has announced and not called fenced."""
        self.linked: dict[str, str] = {}
        self.activity: dict[str, tuple[str, int]] = {}
        self.demand: dict[str, int] = {}
        self.cordons: dict[str, int] = {}
        self.answers: list[Cordoned] = []
        self.asked: dict[str, int] = {}
        """Jobs that were asked for a report, and the token."""
        self.missed: dict[tuple[str, str], None] = {}
        self.lost: list[AttemptsLost] = []
        self.expects: dict[str, LinkExpects] = {}
        self.serial = 0
        self._do(SchedulerDecisions(ActorPath("/fleet")).resume(self.state, self.ctx))
        self.send(JobsKnown(()))

    def send(self, message) -> None:
        """Have the scheduler decide, and take what it says for done."""
        self._do(self.rules[type(message)](self.state, message, self.ctx) or ())

    def _do(self, commands) -> None:
        further = []
        for each in commands:
            match each:
                case SetTimer():
                    self.clocks[each.key] = each
                case CancelTimer():
                    self.clocks.pop(each.key, None)
                case Continue():
                    further.append(each.message)
                case Tell():
                    self._told(each.to.name, each.message)
        for message in further:
            self.send(message)

    def _told(self, name, message) -> None:
        match message:
            case Placed(placements=placements):
                for each in placements:
                    assert each.index in self.pending[name], "placed twice"
                    assert self.workers.get(each.worker_id) == each.incarnation, "placed where nobody is"
                    assert self.linked.get(each.worker_id) == each.incarnation, "placed where nobody can be told"
                    del self.pending[name][each.index]
                    self.jobs[name][each.uid] = (each.index, each.worker_id, each.incarnation)
            case ActivityChanged(worker_id=worker_id, incarnation=incarnation, live_attempts=count):
                self.activity[worker_id] = (incarnation, count)
            case DemandChanged(entries=entries):
                self.demand = {each.demand_id: each.count for each in entries}
            case Cordoned():
                self.answers.append(message)
            case ReportJob(token=token):
                self.asked[name] = token
            case WorkersMissed(places=places):
                self.missed = dict.fromkeys(places)
            case AttemptsLost():
                self.lost.append(message)
            case LinkExpects():
                self.expects[name] = message
            case LinkWanted() | LinkUnwanted():
                assert name == "links"

    # What may come next

    def introduce(self, name) -> None:
        """Have a job be accepted."""
        spec = SPECS[name]
        self.jobs[name], self.pending[name] = {}, dict.fromkeys(range(spec.replicas))
        self.send(JobIntroduced(name, len(self.jobs), spec))

    def over(self, name, uids, *, again) -> None:
        """Have attempts of a job be over; their tasks wait again, or not."""
        ranges = []
        for uid in uids:
            index, _, _ = self.jobs[name].pop(uid)
            if again and name not in self.closed:
                self.pending[name][index] = None
                ranges.append((index, index + 1))
        if SPECS[name].group_by is not None and ranges:
            ranges = [(index, index + 1) for index in self.pending[name]] if not self.jobs[name] else []
        self.send(AttemptsOver(name, tuple(uids), tuple(ranges)))

    def withdraw(self, name) -> None:
        """Have a job be stopped."""
        self.closed[name] = None
        self.pending[name].clear()
        self.send(JobWithdrawn(name))

    def announce(self, worker, *, fresh) -> None:
        """Have the fleet announce a worker, and its link be ready."""
        if fresh or worker not in self.workers:
            self.serial += 1
            self.workers[worker] = f"i{self.serial}"
            self.linked.pop(worker, None)
        self.cordons.pop(worker, None)
        self.send(WorkerReady(self.info(worker)))

    def info(self, worker):
        """Give what the fleet says of a worker."""
        return worker_info(WORKERS[worker], cpus=CPUS, incarnation=self.workers[worker])

    def link(self, worker) -> None:
        """Have a link begin and sync."""
        incarnation = self.workers[worker]
        self.linked.pop(worker, None)
        self.send(LinkStarted(worker, incarnation))
        self.linked[worker] = incarnation
        self.send(LinkSynced(worker, incarnation))

    def unlink(self, worker) -> None:
        """Have a link be gone."""
        self.send(LinkGone(worker, self.linked.pop(worker)))

    def lose(self, worker, *, fenced) -> None:
        """Have the fleet call a worker lost."""
        incarnation = self.workers[worker]
        if fenced:
            del self.workers[worker]
            self.linked.pop(worker, None)
        self.send(WorkerLost(worker, incarnation, "gone", fenced))

    def cordon(self, worker) -> None:
        """Have the fleet ask about a worker's slice."""
        self.serial += 1
        self.cordons[worker] = self.serial
        self.send(Cordon(f"slice-{WORKERS[worker]}", (worker,), self.serial))

    def uncordon(self, worker) -> None:
        """Have the fleet open it again."""
        self.send(Uncordon(f"slice-{WORKERS[worker]}", self.cordons.pop(worker)))

    def drop_slice(self, worker) -> None:
        """Have a slice be gone."""
        self.workers.pop(worker, None)
        self.linked.pop(worker, None)
        self.send(SliceGone(f"slice-{WORKERS[worker]}"))

    def report(self, name) -> None:
        """Have a job answer what it was asked."""
        token = self.asked.pop(name)
        live = tuple(LiveAttempt(uid, *where) for uid, where in self.jobs[name].items())
        gang = SPECS[name].group_by is not None and live
        waits = () if gang else tuple((index, index + 1) for index in self.pending[name])
        self.send(JobReport(name, token, 0, SPECS[name], name not in self.closed, waits, live))

    def awake(self, name) -> None:
        """Have a job's actor begin anew."""
        self.send(JobAwake(name))

    def restart(self) -> None:
        """Have the scheduler begin anew: it knows nothing, and asks for everything."""
        self.state = Scheduler()
        self.clocks, self.asked, self.cordons, self.linked = {}, {}, {}, {}
        self._do(SchedulerDecisions(ActorPath("/fleet")).resume(self.state, self.ctx))
        self.send(JobsKnown(tuple(self.jobs)))
        for worker in self.workers:
            self.send(WorkerReady(self.info(worker)))

    def awake_links(self) -> None:
        """Have all links be gone."""
        self.linked = {}
        self.send(LinksAwake())

    def ring(self, key) -> None:
        """Let a clock ring, at its time."""
        clock = self.clocks.pop(key)
        self.ctx.now += clock.delay
        self.send(clock.message)

    def choices(self):
        """Give all that may come next: a name and a function."""
        yield "restart", self.restart
        yield "links awake", self.awake_links
        for name, spec in SPECS.items():
            if name not in self.jobs:
                yield f"introduce {name}", lambda name=name: self.introduce(name)
                continue
            if name not in self.closed:
                yield f"withdraw {name}", lambda name=name: self.withdraw(name)
                yield f"{name} begins anew", lambda name=name: self.awake(name)
            if name in self.asked:
                yield f"{name} reports", lambda name=name: self.report(name)
            if self.jobs[name]:
                whole = spec.group_by is not None
                uids = list(self.jobs[name]) if whole else [next(iter(self.jobs[name]))]
                for again in (True, False):
                    yield (
                        f"{name}: one is over, again: {again}",
                        lambda name=name, uids=uids, again=again: self.over(name, uids, again=again),
                    )
        for worker in WORKERS:
            yield f"{worker} is announced", lambda worker=worker: self.announce(worker, fresh=False)
            yield f"slice of {worker} goes", lambda worker=worker: self.drop_slice(worker)
            if worker not in self.workers:
                continue
            yield f"{worker} is another", lambda worker=worker: self.announce(worker, fresh=True)
            yield f"{worker} links", lambda worker=worker: self.link(worker)
            for fenced in (False, True):
                yield (
                    f"{worker} is lost, fenced: {fenced}",
                    lambda worker=worker, fenced=fenced: self.lose(worker, fenced=fenced),
                )
            if worker in self.linked:
                yield f"{worker} unlinks", lambda worker=worker: self.unlink(worker)
            yield f"{worker} is closed", lambda worker=worker: self.cordon(worker)
            if worker in self.cordons:
                yield f"{worker} is opened", lambda worker=worker: self.uncordon(worker)
        for key in self.clocks:
            yield f"ring {key}", lambda key=key: self.ring(key)

    def settle(self) -> None:
        """Heal: all jobs report, all workers are there and open."""
        for name in list(self.asked):
            self.report(name)
        for worker in WORKERS:
            self.announce(worker, fresh=False)
            self.link(worker)
        for name in list(self.asked):
            self.report(name)
        while "demand-soon" in self.clocks:
            self.ring("demand-soon")

    def taken(self) -> Counter:
        """Give how many attempts live on each worker, as jobs have it."""
        return Counter(where[1:] for attempts in self.jobs.values() for where in attempts.values())
