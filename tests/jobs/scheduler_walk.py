"""The scheduler before honest jobs, links and an honest fleet: the walks that laws about placement hold on.

What it says is heard by all: jobs take what they are given, links sync, the fleet notes demand and activity; whoever
walks says what comes next. A job reports what it has one by one, and other things happen in between; that a suspended
attempt has a worker it reads later.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from jobs_world import command_spec, job_context, worker_info

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
from iriscw.jobs.scheduling.scheduler import SchedulerDecisions
from iriscw.jobs.scheduling.state import Scheduler
from iriscw.jobs.suspension.messages import PlaceSuspended, SuspendedAttempt, SuspendedPlaced, SuspendedUnwanted
from iriscw.runtime.vocabulary import ActorPath, CancelTimer, Continue, SetTimer, Tell

SMALL, LARGE = Capacity(1000, 1 << 30), Capacity(3000, 1 << 30)
SPECS = {
    "a": command_spec("a", replicas=3, demand=SMALL),
    "b": command_spec("b", replicas=2, demand=LARGE),
    "c": command_spec("c", replicas=2, demand=SMALL),
    "g": command_spec("g", replicas=2, demand=LARGE, group_by="slice-id"),
}
WORKERS = {f"slice-{number}-{number}": number for number in range(3)}
NODES = {worker: f"node-{number % 2}" for worker, number in WORKERS.items()}
CPUS = 4


class Walk:
    """A scheduler, and what jobs, links and fleet know."""

    def __init__(self) -> None:
        self.ctx = job_context(path="/jobs/scheduler")
        self.rules = SchedulerDecisions(ActorPath("/fleet")).rules()
        self.state = Scheduler()
        self.clocks: dict[object, SetTimer] = {}
        self.jobs: dict[str, dict[str, tuple[int, str, str]]] = {}
        """Of each job its live attempts: index, worker and incarnation by uid."""
        self.pending: dict[str, dict[int, None]] = {}
        self.away: dict[str, dict[str, SuspendedAttempt]] = defaultdict(dict)
        """Of each job its suspended attempts by uid."""
        self.wanted: dict[str, None] = {}
        """Those that are to go on."""
        self.mail: dict[str, list[SuspendedPlaced]] = defaultdict(list)
        """What each job was told of such and has not read."""
        self.late: dict[str, list[SuspendedPlaced]] = defaultdict(list)
        """The same, of attempts that have ended meanwhile: no room is held for them, and they are declined, too."""
        self.parts: dict[str, list[str]] = {}
        """Of each job that reports, the attempts that it has not reported yet."""
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
            case SuspendedPlaced(uid=uid, worker_id=worker_id, incarnation=incarnation):
                assert name not in self.asked, "placed while its job reports"
                assert NODES[worker_id] == self.away[name][uid].node, "placed where its checkpoint is not"
                assert self.linked.get(worker_id) == incarnation, "placed where nobody can be told"
                assert uid not in {each.uid for each in self.mail[name]}, "placed twice"
                self.mail[name].append(message)
            case ActivityChanged(worker_id=worker_id, incarnation=incarnation, live_attempts=count):
                self.activity[worker_id] = (incarnation, count)
            case DemandChanged(entries=entries):
                self.demand = {each.demand_id: each.count for each in entries}
            case Cordoned():
                self.answers.append(message)
            case ReportJob(token=token):
                self.asked[name] = token
                self.parts.pop(name, None)
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
        """Have a job be stopped; what is suspended ends at once."""
        self.closed[name] = None
        self.pending[name].clear()
        self.send(JobWithdrawn(name))
        if self.away[name]:
            gone = tuple(self.away[name])
            self.away[name].clear()
            mail, self.mail[name] = self.mail[name], []
            for told in mail:
                (self.late if told.uid in gone else self.mail)[name].append(told)
            self.send(AttemptsOver(name, gone))

    def suspend(self, name, uid) -> None:
        """Have an attempt be suspended."""
        index, worker, _ = self.jobs[name].pop(uid)
        self.away[name][uid] = SuspendedAttempt(uid, index, NODES[worker])
        self.wanted.pop(uid, None)
        self.send(AttemptsOver(name, (uid,)))

    def want(self, name, uid) -> None:
        """Have a suspended attempt be asked to go on."""
        self.wanted[uid] = None
        self.send(PlaceSuspended(name, self.away[name][uid]))

    def unwant(self, name, uid) -> None:
        """Have one be asked to stay."""
        del self.wanted[uid]
        self.send(SuspendedUnwanted(name, uid))

    def read(self, name) -> None:
        """Have a job take the workers that it was told of, or decline them."""
        mail, self.mail[name], self.late[name] = self.mail[name] + self.late[name], [], []
        for told in mail:
            if told.uid in self.away[name] and told.uid in self.wanted:
                del self.away[name][told.uid]
                self.jobs[name][told.uid] = (told.index, told.worker_id, told.incarnation)
            else:
                self.send(AttemptsOver(name, (told.uid,)))

    def announce(self, worker, *, fresh) -> None:
        """Have the fleet announce a worker, and its link be ready."""
        if fresh or worker not in self.workers:
            self.serial += 1
            self.workers[worker] = f"i{self.serial}"
            self.linked.pop(worker, None)
        self.cordons.pop(worker, None)
        self.send(WorkerReady(self.info(worker)))

    def info(self, worker):
        """Return what the fleet says of a worker."""
        return worker_info(WORKERS[worker], cpus=CPUS, incarnation=self.workers[worker], node=NODES[worker])

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
        """Have a job answer what it was asked, to the end."""
        token = self.asked[name]
        while self.asked.get(name) == token:
            self.report_part(name)

    def report_part(self, name) -> None:
        """Have a job answer what it was asked: with one attempt, if any is left; with what waits at the end."""
        self.read(name)
        rest = self.parts.setdefault(name, [*self.jobs[name], *self.away[name]])
        uids = [rest.pop(0)] if rest else []
        token, more = self.asked[name], bool(rest)
        live = tuple(LiveAttempt(uid, *self.jobs[name][uid]) for uid in uids if uid in self.jobs[name])
        away = tuple(self.away[name][uid] for uid in uids if uid in self.away[name] and uid in self.wanted)
        gang = SPECS[name].group_by is not None and self.jobs[name]
        waits = () if gang or more else tuple((index, index + 1) for index in self.pending[name])
        if not more:
            del self.asked[name], self.parts[name]
        self.send(JobReport(name, token, 0, SPECS[name], name not in self.closed, waits, live, more, away))

    def awake(self, name) -> None:
        """Have a job's actor begin anew."""
        self.send(JobAwake(name))

    def restart(self) -> None:
        """Have the scheduler begin anew: it knows nothing, and asks for everything."""
        self.state = Scheduler()
        self.clocks, self.asked, self.cordons, self.linked, self.parts = {}, {}, {}, {}, {}
        for name in [*self.mail]:  # it had told that before
            self.read(name)
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
        """Yield all that may come next: a name and a function."""
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
                yield f"{name} reports", lambda name=name: self.report_part(name)
            if self.mail[name] or self.late[name]:
                yield f"{name} reads", lambda name=name: self.read(name)
            for uid in self.away[name]:
                if uid in self.wanted:
                    yield f"{uid} is to stay", lambda name=name, uid=uid: self.unwant(name, uid)
                else:
                    yield f"{uid} is to go on", lambda name=name, uid=uid: self.want(name, uid)
            for uid in self.jobs[name] if spec.group_by is None and name not in self.closed else ():
                yield f"{uid} is suspended", lambda name=name, uid=uid: self.suspend(name, uid)
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
        while self.asked:
            self.report(next(iter(self.asked)))
        for worker in WORKERS:
            self.announce(worker, fresh=False)
            self.link(worker)
        while self.asked or any((*self.mail.values(), *self.late.values())):
            for name in [*self.mail]:
                self.read(name)
            for name in [*self.asked]:
                self.report(name)
        while "demand-soon" in self.clocks:
            self.ring("demand-soon")

    def taken(self) -> Counter:
        """Return how many attempts live on each worker, as jobs have it."""
        told = [(each.worker_id, each.incarnation) for mail in self.mail.values() for each in mail]
        return Counter(told + [where[1:] for attempts in self.jobs.values() for where in attempts.values()])

    def waits(self, name):
        """Return the suspended attempts of a job that wait for a worker."""
        told = {each.uid for each in self.mail[name]}
        return [each for uid, each in self.away[name].items() if uid in self.wanted and uid not in told]
