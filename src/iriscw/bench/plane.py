"""A control plane to measure: the real actors of jobs, the real dispatcher, and workers that follow a script.

Time is virtual, so nothing waits and every run takes the same decisions. What is left is the work of the controller
itself: decisions, messages, and the encoding of records, which also a real journal does on the controller's thread.
Unlike the simulation that looks for faults, this one keeps no trace and takes cells in the order in which they became
ready, a step at a time, as the real edge does.
"""

from __future__ import annotations

import gc
import heapq
import time
from typing import Any, Self, TypeAlias

import attrs

from iriscw._errors import InternalError
from iriscw.cloud.model import Attributes, Capacity
from iriscw.fleet.messages import WorkerReady
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
    RunOrder,
    StreamUp,
    TaskState,
    WorkerStream,
)
from iriscw.jobs.registry import RegistryLimits
from iriscw.runtime.behavior import Behavior, ChildSpec
from iriscw.runtime.dispatcher import Dispatcher
from iriscw.runtime.tree import FailureReport
from iriscw.runtime.vocabulary import MILLISECOND, SECOND
from iriscw.testing.simulation import SimOperation, SimSystem, Simulation

Figures: TypeAlias = dict[str, float]
"""What was measured, by name; units last."""

GIB = 1 << 30
TASK = Capacity(cpu_milli=1000, memory_bytes=GIB)
"""What each task takes of its worker."""

COMMIT_NS = 5 * MILLISECOND
"""Virtual time of a commit: a good network disk."""

SCRIPT = (
    (SECOND // 10, TaskState.BUILDING, None),
    (SECOND // 5, TaskState.RUNNING, None),
    (2 * SECOND, TaskState.RUNNING, Ending.SUCCEEDED),
)
"""What a worker reports of an attempt, one by one: when after its order, in which state, with which ending."""

FLEET_CAPACITY = 100_000
"""The mailbox of the fleet's stand-in: activity of each worker at once, many times over."""

PATIENCE_S = 3_600.0
"""Virtual seconds after which a measurement has failed: jobs take seconds."""


class MeasurementFailed(InternalError):
    """The control plane did not do what was to be measured: a figure of it would be worth nothing."""


def command(name: str, tasks: int = 1, **fields: Any) -> JobSpec:
    """Return the specification of a job of ``tasks`` tasks that run a command."""
    fields.setdefault("demand", TASK)
    return JobSpec(name, Entrypoint(EntrypointKind.COMMAND, "0" * 64), replicas=tasks, **fields)


class QuietSimulation(Simulation):
    """Virtual time without a trace, cells in their order, and whole steps."""

    def __init__(self) -> None:
        super().__init__(0)
        self.dispatcher = Dispatcher(self.clock, virtual=True)

    def note(self, *what: Any) -> None:
        """Keep nothing."""

    def step(self) -> bool:
        """Run one step of the dispatcher, or one event of the world; False if there is nothing to do now."""
        if self.dispatcher.busy:
            self.dispatcher.step()
        elif self._events and self._events[0][0] <= self.clock.ns:
            _, _, function, args = heapq.heappop(self._events)
            function(*args)
        else:
            return False
        for system in self.systems:
            system.sync()
        return True


class QuietSystem(SimSystem):
    """A system that counts its events instead of keeping them."""

    def publish(self, event: Any) -> None:
        """Stop the measurement at a decision that failed: its figures would be worth nothing.

        Raises:
            MeasurementFailed: the event is the report of a failure.
        """
        if type(event) is FailureReport:
            raise MeasurementFailed(f"{event.path} failed at {type(event.cause).__name__}: {event.error!r}")


@attrs.frozen
class Counts:
    """Operations of a control plane. All but ``cpu_s`` are the same in every run.

    Args:
        decisions: calls of a decision function.
        messages: messages from actor to actor, and from outside.
        records: facts that were journaled, snapshots included.
        bytes_journaled: paths and payloads of these.
        commits: syncs of the journal.
        cpu_s: thread CPU time, that of the scripted world included.
    """

    decisions: int
    messages: int
    records: int
    bytes_journaled: int
    commits: int
    cpu_s: float

    def since(self, before: Counts) -> Counts:
        """Return what was added since ``before``."""
        mine, theirs = attrs.astuple(self), attrs.astuple(before)
        return Counts(*(after - earlier for after, earlier in zip(mine, theirs, strict=True)))

    def figures(self) -> Figures:
        """Return the counts without the time, by name."""
        return {
            "decisions": self.decisions,
            "messages": self.messages,
            "records": self.records,
            "bytes_journaled": self.bytes_journaled,
        }


@attrs.define(eq=False)
class ScriptedWorker:
    """A worker with one stream, which keeps what it was ordered to run until it is told to forget."""

    plane: ControlPlane
    info: WorkerInfo
    attempts: dict[str, Observation] = attrs.field(factory=dict)
    handle: SimOperation | None = None

    def attach(self, handle: SimOperation) -> None:
        """Begin a stream."""
        self.handle = handle
        handle.on_fed = self.fed
        self._send(StreamUp(tuple(self.attempts.values())))
        self.fed()

    def hang_up(self) -> None:
        """End the stream; the link opens another one."""
        handle, self.handle = self.handle, None
        if handle is not None:
            handle.complete()

    def fed(self) -> None:
        """Take the orders that have come."""
        if self.handle is not None:
            for item in self.handle.take_fed():
                if type(item) is Orders:
                    self._obey(item)

    def _obey(self, orders: Orders) -> None:
        for order in orders.run:
            if order.uid not in self.attempts:
                self._start(order)
        for stop in orders.stop:
            self.report(stop.uid, TaskState.RUNNING, stop.ending)
        for uid in orders.release:
            self.attempts.pop(uid, None)

    def _start(self, order: RunOrder) -> None:
        plane = self.plane
        plane.orders += 1
        self.attempts[order.uid] = Observation(order.uid, TaskState.ASSIGNED)
        if plane.runs:
            for after_ns, state, ending in SCRIPT:
                plane.simulation.call_after(after_ns, self.report, order.uid, state, ending)

    def report(self, uid: str, state: TaskState, ending: Ending | None) -> None:
        """Tell that an attempt is in another state."""
        known = self.attempts.get(uid)
        if known is None or known.ending is not None:
            return
        end = None if ending is None else AttemptEnd(ending)
        seen = self.attempts[uid] = Observation(uid, state, end, state is TaskState.RUNNING)
        self._send(Observed((seen,)))

    def _send(self, item: StreamUp | Observed) -> None:
        if self.handle is not None and not self.handle.send(item):
            raise MeasurementFailed(f"{self.info.worker_id} has more to say than its link takes at a time")


class ControlPlane:
    """``/jobs`` and all below it, a stand-in for the fleet, and scripted workers.

    Args:
        runs: whether workers carry attempts out by ``SCRIPT``; otherwise they only keep the orders.
        finished: jobs that stay listed after their end.
    """

    def __init__(self, *, runs: bool = True, finished: int = 1_000) -> None:
        self.runs = runs
        self.orders = 0
        """Attempts that workers were ordered to run, each counted when its order reached the session."""
        self.workers: dict[str, ScriptedWorker] = {}
        self.heard = 0
        """Messages to the fleet."""
        self.simulation = QuietSimulation()
        fleet = Behavior(decide=self._hear, initial=list, name="fleet")
        jobs = jobs_child(self, self, JobsConfig(limits=RegistryLimits(finished=finished)))
        root = Behavior(children=(ChildSpec("fleet", fleet, capacity=FLEET_CAPACITY), jobs), name="root")
        self.system = QuietSystem(
            root, simulation=self.simulation, perform=self._perform, sync_ns=lambda rng: COMMIT_NS
        )
        self.system.tree.trace = None
        self.system.run_until_idle()

    def _hear(self, state: Any, message: Any, ctx: Any) -> None:
        self.heard += 1

    async def serve(self, session: WorkerStream, port: object) -> None:
        """Never called: the simulation performs sessions."""

    async def await_logs(self, effect: AwaitLogs) -> int:
        """Never called: the script writes no logs."""
        return effect.offset

    def _perform(self, operation: SimOperation) -> None:
        effect = operation.effect
        if type(effect) is WorkerStream:
            self.workers[effect.worker_id].attach(operation)

    def add_workers(self, number: int, slots: int) -> None:
        """Have ``number`` workers register, each with room for ``slots`` tasks."""
        capacity = Capacity(slots * TASK.cpu_milli, slots * TASK.memory_bytes)
        for index in range(len(self.workers), len(self.workers) + number):
            worker_id = f"slice-{index}-0"
            pairs: dict[str, str | int] = {"worker-id": worker_id, "slice-id": f"slice-{index}", "python": "3.11"}
            info = WorkerInfo(worker_id, "1", f"slice-{index}", "cpu", capacity, Attributes(pairs), "10.0.0.1:10001")
            self.workers[worker_id] = ScriptedWorker(self, info)
            self.system.tell("/jobs/scheduler", WorkerReady(info))
        self.system.advance(1)

    def submit(self, name: str, tasks: int, **fields: Any) -> str:
        """Submit a job of ``tasks`` tasks; give its id when it is accepted. ``fields`` go into its specification."""
        return str(self.system.ask("/jobs", SubmitJob(command(name, tasks, **fields), f"key-{name}")).job_id)

    def finish(self, job_id: str) -> None:
        """Let time pass until a job has ended and all that follows is done.

        Raises:
            MeasurementFailed: it does not end.
        """
        registry = self.system.state("/jobs")

        def over() -> bool:
            entry = registry.entries.get(job_id)
            return entry is None or entry.ended

        if not self.simulation.run_until(over, PATIENCE_S):
            raise MeasurementFailed(f"{job_id} did not end")
        self.system.advance(1)

    def dispatched(self, orders: int) -> None:
        """Let time pass until ``orders`` attempts altogether were ordered of the workers.

        Raises:
            MeasurementFailed: they are not.
        """
        if not self.simulation.run_until(lambda: self.orders >= orders, PATIENCE_S):
            raise MeasurementFailed(f"{self.orders} of {orders} attempts were ordered")

    def count(self) -> Counts:
        """Return the operations so far."""
        cpu_s = time.thread_time()
        tree = self.system.statistics()
        journal = self.system.journal.statistics()
        return Counts(
            tree.delivered + tree.answers_delivered,
            tree.sent,
            journal.durable,
            journal.bytes_written,
            journal.commits,
            cpu_s,
        )


class Stopwatch:
    """Thread CPU time of a block, after a full collection of garbage so that blocks do not pay for each other."""

    def __init__(self) -> None:
        self.cpu_s = 0.0
        self._began = 0.0

    def __enter__(self) -> Self:
        gc.collect()
        self._began = time.thread_time()
        return self

    def __exit__(self, *error: object) -> None:
        self.cpu_s = time.thread_time() - self._began
