"""What the tests of jobs share: values, a fake context, and a world of scripted workers."""

import itertools
from random import Random

import attrs

from iriscw.cloud.model import Attributes, Capacity
from iriscw.fleet.messages import SchedulerStarted, WorkerReady
from iriscw.fleet.model import WorkerInfo
from iriscw.jobs.actor import JobsConfig, jobs_child
from iriscw.jobs.messages import SubmitJob
from iriscw.jobs.model import (
    AwaitLogs,
    Ending,
    Entrypoint,
    EntrypointKind,
    JobSpec,
    Observation,
    Observed,
    Orders,
    StreamUp,
    TaskState,
    WorkerStream,
)
from iriscw.runtime.behavior import Behavior, ChildSpec
from iriscw.runtime.vocabulary import SECOND, ActorPath, ReplyTo, Tell
from iriscw.testing.simulation import SimSystem

GIB = 1 << 30

LEASE_S = 45
"""After this without a stream a scripted worker kills its attempts; the jobs wait for 60 s."""


def command_spec(name="count", **fields):
    """Give a specification of a job that runs a command."""
    fields.setdefault("demand", Capacity(cpu_milli=1000, memory_bytes=GIB))
    return JobSpec(name, Entrypoint(EntrypointKind.COMMAND, "0" * 64), **fields)


def worker_info(number, *, cpus=4, slice_id=None, incarnation="a", **attributes):
    """Give a worker with ``cpus`` CPUs and as many GiB."""
    slice_id = slice_id or f"slice-{number}"
    pairs = {"worker-id": f"{slice_id}-{number}", "slice-id": slice_id, "python": "3.11", **attributes}
    capacity = Capacity(cpus * 1000, cpus * GIB)
    return WorkerInfo(
        f"{slice_id}-{number}", incarnation, slice_id, "cpu", capacity, Attributes(pairs), f"10.0.0.{number}"
    )


@attrs.define
class FakeContext:
    """A context for decisions that are called directly."""

    path: ActorPath = attrs.field(default="/jobs/job-a", converter=ActorPath)
    incarnation: int = 0
    now: int = 0
    attentive: int = 0
    wall: int = 1_000 * SECOND
    rng: Random = attrs.field(factory=lambda: Random(0))
    reply_to: ReplyTo | None = None
    sim: bool = True
    ids: itertools.count = attrs.field(factory=itertools.count)

    def await_journal(self):
        """Go on: this journal takes everything."""

    def new_id(self, prefix=""):
        """Give the next id."""
        number = next(self.ids)
        letters = "abcdefghijklmnopqrstuvwxyz234567"
        return prefix + "".join(letters[number >> 5 * place & 31] for place in range(12))


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
                if known.ending is None:
                    self.becomes(attrs.evolve(known, ending=Ending.WORKER_LOST))

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
            if order.uid in self.forgotten:
                gone = attrs.evolve(self.forgotten.pop(order.uid), ending=Ending.MISSING)
                self.attempts[order.uid] = gone
                self.handle.send(Observed((gone,)))
            elif order.uid not in self.attempts:
                self.attempts[order.uid] = Observation(order.uid, TaskState.ASSIGNED)
                self.tasks[order.uid] = (order.job_id, order.index)
                for after_s, scripted in self.world.script(order):
                    seen = attrs.evolve(scripted, uid=order.uid)
                    self.world.sim.simulation.call_after(round(after_s * SECOND), self.becomes, seen)
        for stop in orders.stop:
            known = self.attempts.get(stop.uid)
            if known is not None and known.ending is None:
                self.becomes(attrs.evolve(known, ending=stop.ending))
        if orders.complete:
            wanted = dict.fromkeys([order.uid for order in orders.run] + [stop.uid for stop in orders.stop])
            for known in list(self.attempts.values()):
                if known.uid not in wanted and known.ending is None:
                    self.becomes(attrs.evolve(known, ending=Ending.KILLED))
        for uid in orders.release:
            if uid in self.attempts:
                self.forgotten[uid] = self.attempts.pop(uid)

    def becomes(self, seen):
        """Let an attempt be in another state, and say so."""
        known = self.attempts.get(seen.uid)
        if known is None or known.ending is not None or self.info.worker_id not in self.world.workers:
            return
        if seen.state is TaskState.RUNNING and not known.started:
            seen = attrs.evolve(seen, started=True)
        if seen.started and not known.started:
            self.starts.append(seen.uid)
        if seen.ending is not None:
            self.world.truth[seen.uid] = seen.ending
        self.attempts[seen.uid] = seen
        if self.handle is not None:
            self.handle.send(Observed((seen,)))

    @property
    def running(self):
        """The uids of attempts that have a process."""
        return [seen.uid for seen in self.attempts.values() if seen.started and seen.ending is None]


def succeed(order):
    """Run for a second and end well."""
    return [
        (0.1, Observation("", TaskState.BUILDING)),
        (0.2, Observation("", TaskState.RUNNING, started=True)),
        (1.2, Observation("", TaskState.RUNNING, Ending.SUCCEEDED, True, 0)),
    ]


class World:
    """A controller with jobs only, workers that do as told, and a fleet that notes what it hears."""

    def __init__(self, seed=0, config=None, script=succeed):
        self.script = script
        self.workers = {}
        self.heard = []
        self.log_waits = []
        self.truth = {}
        self.logs_stored = None
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

    def perform(self, operation):
        """Carry out an effect or session."""
        effect = operation.effect
        if isinstance(effect, WorkerStream):
            worker = self.workers.get(effect.worker_id)
            if worker is not None and worker.connected and worker.info.incarnation == effect.incarnation:
                worker.attach(operation)
        elif isinstance(effect, AwaitLogs):
            self.log_waits.append(operation)
            if self.logs_stored is not None:
                operation.complete(self.logs_stored)

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
        """Give what the fleet heard of one kind."""
        return [message for message in self.heard if type(message) is kind]
