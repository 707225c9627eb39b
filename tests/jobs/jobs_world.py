"""What the tests of jobs share: values, a fake context, and a world of scripted workers."""

import attrs

from iriscw.cloud.model import Attributes, Capacity
from iriscw.fleet.messages import SchedulerStarted, WorkerReady
from iriscw.fleet.model import WorkerInfo
from iriscw.jobs.actor import JobsConfig, jobs_child
from iriscw.jobs.messages import SubmitJob
from iriscw.jobs.model import (
    AttemptEnd,
    AwaitLogs,
    Ending,
    Entrypoint,
    EntrypointKind,
    JobSpec,
    Observation,
    Observed,
    Orders,
    StreamUp,
    Suspension,
    TaskState,
    WorkerStream,
)
from iriscw.jobs.suspension.effects import (
    DropCheckpoint,
    FreezeAttempt,
    Frozen,
    FrozenAttempt,
    StoreCheckpoint,
    ThawAttempt,
    Thawed,
    ThawedAttempt,
)
from iriscw.jobs.suspension.messages import FollowRepositories, NodeRepositories
from iriscw.jobs.traits import Fault
from iriscw.runtime.behavior import Behavior, ChildSpec
from iriscw.runtime.vocabulary import SECOND, ActorPath, Tell
from iriscw.testing.contexts import FakeContext
from iriscw.testing.simulation import SimSystem

GIB = 1 << 30

LEASE_S = 45
"""After this without a stream a scripted worker kills its attempts; the jobs wait for 60 s."""


def command_spec(name="count", **fields):
    """Return a specification of a job that runs a command."""
    fields.setdefault("demand", Capacity(cpu_milli=1000, memory_bytes=GIB))
    return JobSpec(name, Entrypoint(EntrypointKind.COMMAND, "0" * 64), **fields)


def worker_info(number, *, cpus=4, slice_id=None, incarnation="a", node="node", **attributes):
    """Return a worker with ``cpus`` CPUs and as many GiB."""
    slice_id = slice_id or f"slice-{number}"
    pairs = {"worker-id": f"{slice_id}-{number}", "slice-id": slice_id, "python": "3.11", **attributes}
    capacity = Capacity(cpus * 1000, cpus * GIB)
    return WorkerInfo(
        f"{slice_id}-{number}", incarnation, slice_id, "cpu", capacity, Attributes(pairs), f"10.0.0.{number}", node
    )


def job_context(path="/jobs/job-a", **clocks):
    """Return a context of a job's decisions: its clocks begin at 0."""
    return FakeContext(path, **{"now": 0, "attentive": 0, "wall": 1_000 * SECOND, **clocks})


@attrs.define(eq=False)
class ScriptedWorker:
    """A worker that keeps the promises of ``jobs/ports.py`` and runs what ``script`` says.

    ``script(order)`` gives a list of ``(after_s, Observation)``; the observations' uids are filled in.
    """

    world: object
    info: WorkerInfo
    attempts: dict = attrs.field(factory=dict)
    forgotten: dict = attrs.field(factory=dict)
    handle: object = None
    connected: bool = True
    starts: list = attrs.field(factory=list)
    silence: int = 0
    known: bool = True
    tasks: dict = attrs.field(factory=dict)
    granted: object = None
    """The last order that brought an attempt back."""
    had: dict = attrs.field(factory=dict)
    """The grant by which it has, or had, each of those."""

    def attach(self, handle):
        """Begin a stream."""
        self.handle = handle
        self.silence += 1
        handle.on_fed = self.fed
        handle.on_cancel = self.detach
        handle.send(StreamUp(tuple(self.attempts.values())))
        self.fed()

    def detach(self):
        """Lose the stream."""
        self.handle = None

    def hang_up(self):
        """End the stream from this side; after ``LEASE_S`` without another one, kill all attempts."""
        handle, self.handle = self.handle, None
        if handle is not None:
            handle.complete()
        self.silence += 1
        self.world.sim.simulation.call_after(LEASE_S * SECOND, self.lease_over, self.silence)

    def lease_over(self, silence):
        """Kill all attempts, unless a stream began since."""
        if self.handle is None and silence == self.silence:
            for known in list(self.attempts.values()):
                if known.ending is None and known.suspension is not Suspension.SUSPENDED:
                    self.world.bodies.revoke(known.uid, self.name)
                    self.becomes(attrs.evolve(known, end=AttemptEnd(Ending.WORKER_LOST), suspension=Suspension.NONE))

    def fed(self):
        """Do what is ordered."""
        if self.handle is None:
            return
        for item in self.handle.take_fed():
            if isinstance(item, Orders):
                self.obey(item)

    def obey(self, orders):
        """Carry out orders."""
        for order in orders.run:
            if order.resumption is not None:
                self.take_over(order)
            elif order.uid in self.forgotten:
                gone = attrs.evolve(self.forgotten.pop(order.uid), end=AttemptEnd(Ending.MISSING))
                self.attempts[order.uid] = gone
                self.handle.send(Observed((gone,)))
            elif order.uid not in self.attempts:
                self.attempts[order.uid] = Observation(order.uid, TaskState.ASSIGNED)
                self.tasks[order.uid] = (order.job_id, order.index)
                for after_s, scripted in self.world.script(order):
                    seen = attrs.evolve(scripted, uid=order.uid)
                    self.world.sim.simulation.call_after(round(after_s * SECOND), self.world.lives, seen)
        for stop in orders.stop:
            known = self.attempts.get(stop.uid)
            if known is not None and known.ending is None:
                self.world.bodies.revoke(stop.uid, self.name)
                self.becomes(attrs.evolve(known, end=AttemptEnd(stop.ending), suspension=Suspension.NONE, folder=""))
        for uid in orders.suspend:
            known = self.attempts.get(uid)
            if known is not None and known.ending is None and known.suspension is Suspension.NONE and known.started:
                self.becomes(attrs.evolve(known, suspension=Suspension.SUSPENDING, folder=f"/{uid}"))
            elif known is not None and known.suspension is Suspension.SUSPENDING:
                self.say(known)
        for uid in orders.go_on:
            known = self.attempts.get(uid)
            if known is not None and known.ending is None and known.suspension is Suspension.SUSPENDING:
                self.becomes(attrs.evolve(known, suspension=Suspension.NONE, folder=""))
        for uid, grant in orders.withdraw:
            known = self.attempts.get(uid)
            if known is not None and known.suspension is Suspension.RESUMING and self.had.get(uid) == grant:
                self.world.bodies.revoke(uid, self.name)
                self.becomes(attrs.evolve(known, suspension=Suspension.SUSPENDED, folder="", withdrawn=grant))
        if orders.complete:
            wanted = dict.fromkeys([order.uid for order in orders.run] + [stop.uid for stop in orders.stop])
            for known in list(self.attempts.values()):
                if known.uid not in (*wanted, *orders.release) and known.ending is None:
                    self.world.bodies.revoke(known.uid, self.name)
                    self.becomes(attrs.evolve(known, end=AttemptEnd(Ending.KILLED), suspension=Suspension.NONE))
        for uid in orders.release:
            known = self.attempts.get(uid)
            if known is not None and (known.ending is not None or known.suspension is Suspension.SUSPENDED):
                self.forgotten[uid] = self.attempts.pop(uid)

    @property
    def name(self):
        """Return who this is."""
        return self.info.worker_id, self.info.incarnation

    def take_over(self, order):
        """Offer the grant, once, unless it was taken back."""
        known = self.attempts.get(order.uid)
        had = order.resumption.grant == self.had.get(order.uid)
        here = known is not None and (known.suspension is not Suspension.SUSPENDED or had)
        if not here and self.world.bodies.offer(order.uid, order.resumption.grant, self):
            resuming = Observation(
                order.uid,
                TaskState.RUNNING,
                started=True,
                suspension=Suspension.RESUMING,
                folder=order.resumption.folder,
                gpus=tuple(self.world.other_gpus.get(uuid, uuid) for uuid in order.resumption.gpus),
                life=order.resumption.grant if order.resumption.anew else "",
            )
            self.forgotten.pop(order.uid, None)
            self.granted = order
            self.had[order.uid] = order.resumption.grant
            self.tasks[order.uid] = (order.job_id, order.index)
            self.attempts[order.uid] = resuming
            self.say(resuming)
        elif not here:
            gone = Observation(
                order.uid, TaskState.RUNNING, AttemptEnd(Ending.WORKER_LOST, fault=Fault("", "GrantRefused")), True
            )
            self.attempts[order.uid] = gone
            self.say(gone)

    def say(self, seen):
        """Tell the controller, if it listens."""
        if self.handle is not None:
            self.handle.send(Observed((seen,)))

    def becomes(self, seen):
        """Let an attempt be in another state, and say so."""
        known = self.attempts.get(seen.uid)
        if known is None or known.ending is not None or self.world.workers.get(self.info.worker_id) is not self:
            return
        if seen.state is TaskState.RUNNING and not known.started:
            seen = attrs.evolve(seen, started=True)
        if seen.started and not known.started:
            self.starts.append(seen.uid)
            self.world.starts.append(seen.uid)
        if seen.ending is not None:
            self.world.truth[seen.uid] = seen.ending
        self.attempts[seen.uid] = seen
        if self.handle is not None:
            self.handle.send(Observed((seen,)))

    @property
    def running(self):
        """The uids of attempts that have a process."""
        return [
            seen.uid
            for seen in self.attempts.values()
            if seen.started and seen.ending is None and seen.suspension in (Suspension.NONE, Suspension.SUSPENDING)
        ]


@attrs.define(eq=False)
class Bodies:
    """Checkpoints, leaves, and those who freeze and thaw: the machine's own view, which outlives controllers.

    ``orders`` has what became of each freeze by its key, ``images`` the attempt of each checkpoint that is there,
    ``leaves`` the state of each grant: who offers it, whether it was taken or withdrawn.
    """

    world: object
    orders: dict = attrs.field(factory=dict)
    images: dict = attrs.field(factory=dict)
    leaves: dict = attrs.field(factory=dict)
    offered: dict = attrs.field(factory=dict)
    dropped: dict = attrs.field(factory=dict)
    thaws: list = attrs.field(factory=list)

    def holder(self, uid):
        """Return the worker on which an attempt has processes."""
        return next((worker for worker in self.world.workers.values() if uid in worker.running), None)

    def freeze(self, effect, outcome):
        """Freeze, or not: once for each key."""
        if effect.key in self.orders:
            return self.orders[effect.key]
        worker = self.holder(effect.uid)
        if outcome is not Frozen.UNDONE and (worker is None or effect.key in self.dropped):
            outcome = Frozen.UNDONE
        if outcome is Frozen.UNDONE:
            answer = FrozenAttempt(outcome, reason="it could not be frozen")
        else:
            known = worker.attempts[effect.uid]
            assert known.suspension is Suspension.SUSPENDING, "frozen although its worker did not know"
            self.images[effect.key] = effect.uid
            checkpoint = f"ck-{effect.key}" if outcome is Frozen.FROZEN else ""
            answer = FrozenAttempt(outcome, checkpoint, "node" if checkpoint else "", "" if checkpoint else "lost")
            worker.becomes(attrs.evolve(known, suspension=Suspension.SUSPENDED, folder=f"/{effect.uid}"))
        self.orders[effect.key] = answer
        return answer

    def offer(self, uid, grant, worker):
        """Put a grant on offer, unless it was before."""
        if grant in self.leaves:
            return self.leaves[grant] == worker.name and self.offered.get(uid) == grant
        self.leaves[grant] = worker.name
        self.offered[uid] = grant
        return True

    def revoke(self, uid, name):
        """Take back what a worker offers."""
        grant = self.offered.get(uid)
        if grant is not None and self.leaves[grant] == name:
            del self.offered[uid]

    def thaw(self, effect, outcome):
        """Bring it back, if there is leave."""
        self.thaws.append(effect.uid)
        grant = self.offered.get(effect.uid)
        if outcome is Thawed.REFUSED:
            return ThawedAttempt(outcome, "GateRefused: files: /lib/x is another one")
        if outcome is Thawed.DAMAGED:
            return ThawedAttempt(outcome, "ChunkDamaged: a pack is damaged")
        if outcome is Thawed.UNDONE or grant is None or effect.checkpoint[3:] not in self.images:
            return ThawedAttempt(Thawed.UNDONE, "no grant")
        worker = self.world.workers.get(self.leaves[grant][0])
        known = None if worker is None else worker.attempts.get(effect.uid)
        if worker is None or worker.name != self.leaves[grant] or known is None:
            return ThawedAttempt(Thawed.UNDONE, "its worker is gone")
        if known.suspension is Suspension.RESUMING and known.ending is None:
            del self.offered[effect.uid]
            worker.becomes(attrs.evolve(known, suspension=Suspension.NONE, folder=""))
        return ThawedAttempt(outcome, "" if outcome is Thawed.THAWED else "nobody can say")

    def drop(self, effect):
        """Remove a checkpoint."""
        self.dropped[effect.key] = None
        self.images.pop(effect.key, None)


def succeed(order):
    """Run for a second and end well."""
    return [
        (0.1, Observation("", TaskState.BUILDING)),
        (0.2, Observation("", TaskState.RUNNING, started=True)),
        (1.2, Observation("", TaskState.RUNNING, AttemptEnd(Ending.SUCCEEDED, exit_code=0), True)),
    ]


class World:
    """A controller with jobs only, workers that do as told, and a fleet that notes what it hears."""

    def __init__(self, seed=0, config=None, script=succeed):
        self.script = script
        self.workers = {}
        self.heard = []
        self.log_waits = []
        self.truth = {}
        self.starts = []
        """The uids whose programs began, on whichever worker."""
        self.bodies = Bodies(self)
        self.freezes = []
        """Effects on attempts that wait for an answer."""
        self.logs_stored = None
        self.repositories = {}
        """The URL of each node's repository."""
        self.follower = None
        """Who listens to that."""
        self.other_gpus = {}
        """Which GPU an attempt gets in whose place when it is brought back."""
        spec = jobs_child(self, self, config or JobsConfig())
        fleet = Behavior(decide=self._hear, initial=list)
        root = Behavior(children=(ChildSpec("fleet", fleet, capacity=100_000), spec), name="root")
        self.sim = SimSystem(root, seed=seed, perform=self.perform)
        self.sim.run_until_idle()

    def _hear(self, state, message, ctx):
        self.heard.append(message)
        if isinstance(message, SchedulerStarted):
            ready = [worker.info for worker in self.workers.values() if worker.known]
            return tuple(Tell(ActorPath("/jobs/scheduler"), WorkerReady(info)) for info in ready)
        return None

    async def serve(self, session, port):
        """Never called: the simulation performs sessions."""

    async def await_logs(self, effect):
        """Never called: the simulation performs effects."""

    def lives(self, seen, tries=4_000):
        """Let an attempt come to what its script says, on whichever worker has it; while none has, it waits."""
        for worker in self.workers.values():
            known = worker.attempts.get(seen.uid)
            if known is None or known.ending is not None:
                continue
            if known.suspension in (Suspension.NONE, Suspension.SUSPENDING):
                stays = known.suspension if seen.ending is None else Suspension.NONE
                worker.becomes(attrs.evolve(seen, suspension=stays, folder=known.folder or seen.folder))
                return
        if tries and seen.uid in self.bodies.images.values() and seen.uid not in self.truth:
            self.sim.simulation.call_after(SECOND, self.lives, seen, tries - 1)

    def perform(self, operation):
        """Carry out an effect or session."""
        effect = operation.effect
        if isinstance(effect, (FreezeAttempt, StoreCheckpoint, ThawAttempt, DropCheckpoint)):
            self.freezes.append(operation)
        if isinstance(effect, FollowRepositories):
            self.follower = operation
            operation.send(NodeRepositories(tuple(self.repositories.items())))
        if isinstance(effect, WorkerStream):
            worker = self.workers.get(effect.worker_id)
            if worker is not None and worker.connected and worker.info.incarnation == effect.incarnation:
                worker.attach(operation)
        elif isinstance(effect, AwaitLogs):
            self.log_waits.append(operation)
            if self.logs_stored is not None:
                operation.complete(self.logs_stored)

    def share(self, **repositories):
        """Have nodes have these repositories, and no others any."""
        self.repositories = repositories
        self.follower.send(NodeRepositories(tuple(repositories.items())))
        self.sim.run_until_idle()

    def add(self, *infos):
        """Have workers come up, and let everybody take note."""
        for info in infos:
            self.add_now(info)
        self.sim.run_until_idle()

    def add_now(self, info):
        """Have a worker come up."""
        self.workers[info.worker_id] = ScriptedWorker(self, info)
        self.sim.tell("/jobs/scheduler", WorkerReady(info))

    def reconnect(self, worker_id):
        """Have a worker dial in again."""
        worker = self.workers[worker_id]
        worker.connected = True
        for operation in list(self.sim.pending.values()):
            effect = operation.effect
            if isinstance(effect, WorkerStream) and effect.worker_id == worker_id and worker.handle is None:
                worker.attach(operation)

    def submit(self, spec, key=None, **fields):
        """Submit a job; give its id."""
        key = key or f"key-{spec.name}"
        return self.sim.ask("/jobs", SubmitJob(spec, key, **fields)).job_id

    def told(self, kind):
        """Return what the fleet heard of one kind."""
        return [message for message in self.heard if type(message) is kind]
