"""What is built on calls: the worker's stream to the controller, and the client's contact with it, under faults."""

import contextlib
import logging
import random
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import anyio
import pytest
from hypothesis import example, given, strategies as st
from transport_world import FOUND_AND_SHRUNK, LIMITS, NOTICE_S, faults_of_any_kind, seeds

from profiles import examples

sys.path.insert(0, str(Path(__file__).parents[2] / "worker"))  # for worker_world

import errno
import os

from worker_world import TOKEN, Controller, authenticate

from iriscw.client.calls import PATIENCE_S, MethodCalls
from iriscw.client.contact import QUIET_S
from iriscw.cloud.model import Attributes, Capacity
from iriscw.dialling.messages import Connected, Dial, Disconnected
from iriscw.dialling.stream import WELCOME_TIMEOUT_S
from iriscw.jobs.model import AttemptEnd, Ending, Observation, TaskState
from iriscw.proto.iriscw import v1
from iriscw.rpc.client import BACKOFF_LONGEST_S, RpcChannel
from iriscw.rpc.context import call_context
from iriscw.rpc.errors import RpcDeadline, RpcUnavailable
from iriscw.rpc.server import RpcServer
from iriscw.runtime import ActorSystem, Behavior, ChildSpec
from iriscw.runtime.edge.driver import SystemClock
from iriscw.runtime.vocabulary import Tell
from iriscw.worker import session
from iriscw.worker.drivers.desk import DeskEntry
from iriscw.worker.drivers.stream import ControllerStream, Identity
from iriscw.worker.effects import HoldLease
from iriscw.worker.messages import (
    SESSION,
    AttemptReleased,
    AttemptReport,
    ForgetAttempt,
    Holding,
    Resync,
    RunAttempt,
    StopAll,
    StopAttempt,
)
from iriscw.worker.session import LONGEST_PAUSE_NS, Session
from iriscw_sims.transport.loop import Threads
from iriscw_sims.transport.network import Fault, FaultKind, Network
from iriscw_sims.transport.run import simulate
from raised import that

SECOND = 1_000_000_000
SYNCED_S = 2 * NOTICE_S + WELCOME_TIMEOUT_S + LIMITS.connect_timeout_s + 2 * LONGEST_PAUSE_NS / SECOND
"""After the last fault: what is left of it is noticed, and at most one dial fails."""


class Quiet:
    """Stands in for the watch of files: these do not grow."""

    @contextmanager
    def watching(self, _: Path, *, arrivals: bool = False) -> Iterator["Quiet"]:
        yield self

    def rearm(self) -> None:
        """Nothing to notice."""

    async def wait(self) -> None:
        await anyio.sleep_forever()


class Attempts:
    """Stands in for the registry: what it is told to run has ended at once, and left a log."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        self.log = random.Random(size).randbytes(size)
        self.path = folder / f"log-{size}"
        self.path.write_bytes(self.log)
        self.held: dict[str, DeskEntry] = {}
        self.observed: dict[str, Observation] = {}
        self.started: list[str] = []
        self.doing: dict[str, str] = {}

    @property
    def stdout(self) -> Path:
        """As a running attempt has it."""
        return self.path

    def behavior(self) -> Behavior:
        return Behavior(
            initial=lambda: self,
            on={
                Resync: Attempts.resync,
                RunAttempt: Attempts.run,
                StopAttempt: Attempts.nothing,
                StopAll: Attempts.nothing,
                ForgetAttempt: Attempts.forget,
            },
            name="attempts",
        )

    def resync(self, _message, _ctx):
        reports = (Tell(SESSION, AttemptReport(seen)) for seen in self.observed.values())
        return (Tell(SESSION, Holding(tuple(self.observed))), *reports)

    def run(self, message: RunAttempt, _ctx):
        uid = message.order.uid
        if uid in self.observed:
            return None
        self.started.append(uid)
        held = self.held[uid] = DeskEntry(self)  # type: ignore[arg-type]
        held.ended.set()
        end = AttemptEnd(Ending.SUCCEEDED, exit_code=0)
        self.observed[uid] = Observation(uid, TaskState.RUNNING, end, started=True, log_offset=len(self.log))
        return (Tell(SESSION, AttemptReport(self.observed[uid])),)

    def forget(self, message: ForgetAttempt, _ctx):
        self.observed.pop(message.uid, None)
        return (Tell(SESSION, AttemptReleased(message.uid)),)

    def nothing(self, _message, _ctx):
        return None


class Worker:
    """A worker's session as it is in production, between a stand-in for its attempts and a real channel."""

    def __init__(self, channel: RpcChannel, folder: Path, size: int) -> None:
        self.attempts = Attempts(folder, size)
        self.events: list[object] = []
        specifications = mock.Mock(hashes=())
        identity = Identity("w1", "i1", Capacity(cpu_milli=1000), Attributes())
        stream = ControllerStream(channel, identity, lambda: "w1:1", specifications, self.attempts, Quiet())  # type: ignore[arg-type]
        to_controller = Behavior(
            initial=Session,
            on=session.rules(),
            resume=session.resume,
            effects={HoldLease: self._hold_lease},
            sessions={Dial: stream.serve},
            name="session",
        )
        children = (ChildSpec("attempts", self.attempts.behavior()), ChildSpec("session", to_controller))
        self.root = Behavior(children=children, name="worker")

    async def _hold_lease(self, _: HoldLease) -> None:
        """Nothing runs that has to know."""

    def count(self, kind: type) -> int:
        return sum(1 for event in self.events if isinstance(event, kind))


def play_worker(seed: int, faults, play, folder: Path, *, size: int = 300_000):
    """Run a play with a controller's double, a worker and the network between them."""

    async def main(network: Network):
        controller = Controller()
        controller.heartbeat_ms, controller.lease_ms = 1000, 3_600_000
        with mock.patch.object(SystemClock, "now", staticmethod(lambda: network.loop.now_ns)):
            async with RpcServer([controller], authenticate=authenticate) as server:
                await server.listen_tcp("127.0.0.1", 0)
                async with RpcChannel(server.address, TOKEN, rng=random.Random(seed)) as channel:
                    worker = Worker(channel, folder, size)
                    async with ActorSystem(worker.root, seed=str(seed), on_event=worker.events.append):
                        network.schedule(faults)
                        return await play(network, controller, worker)

    return simulate(main, seed=seed, threads=Threads.INLINE)


def order(uid: str) -> v1.RunAttempt:
    """What the controller says of an attempt that is to run."""
    return v1.RunAttempt(attempt_uid=uid, specification_hash=b"\1" * 32, task_id="job-a/0", token="t")


@examples(15, FOUND_AND_SHRUNK)
@given(seeds, faults_of_any_kind, st.lists(st.integers(0, 60), min_size=1, max_size=4))
@example(seed=0, faults=[Fault(FaultKind.HALF_OPEN_UP, 0.006, 0.001)], moments=[0])  # closed with much still to be sent
def test_a_broken_stream_is_opened_again_and_syncs(tmp_path_factory, seed, faults, moments) -> None:
    """Whatever breaks, soon after the last fault the worker has run every order once, and the controller has each end
    and each log whole: nothing twice, nothing missing.
    """
    folder = tmp_path_factory.mktemp("worker")

    async def play(network: Network, controller: Controller, worker: Worker) -> None:
        for number, moment in enumerate(sorted(moments)):
            await anyio.sleep_until(moment)
            controller.desired[f"u{number}"] = order(f"u{number}")
            if controller.outgoing is not None:
                await controller.send(run=order(f"u{number}"))
        last_fault_s = max((fault.at_s + fault.duration_s for fault in faults), default=0)
        log = worker.attempts.log
        with anyio.fail_after(max(0, last_fault_s - anyio.current_time()) + SYNCED_S):
            while any(
                uid not in controller.observed or controller.log_bytes.get(uid) != len(log)
                for uid in controller.desired
            ):
                await controller.changed.wait()
        assert sorted(worker.attempts.started) == sorted(controller.desired)
        for uid in controller.desired:
            assert bytes(controller.logs[uid]) == log
        assert worker.count(Connected) <= network.dials
        assert worker.count(Disconnected) <= len(controller.hellos) + 2 * network.dials

    play_worker(seed, faults, play, folder)


def test_redials_are_paced(tmp_path: Path) -> None:
    """While nobody answers, the worker dials with growing, jittered pauses of at most 5 seconds, and says why."""

    async def play(network: Network, controller: Controller, worker: Worker) -> None:
        with anyio.fail_after(5):
            await controller.until(lambda: controller.sets)
        network.strike(Fault(FaultKind.REFUSE, 0, duration_s=600))
        for connection in network.open_connections():
            connection.break_off()
        before = network.dials
        await anyio.sleep(590)
        assert 590 / 5 <= network.dials - before <= 590 / 2.5 + 10
        errors = [event.error for event in worker.events if isinstance(event, Disconnected)]
        assert all(error.startswith("RpcUnavailable: ") for error in errors)
        with anyio.fail_after(20):
            await controller.until(lambda: len(controller.sets) > 2)

    play_worker(1, (), play, tmp_path)


# The client


class Jobs(v1.ControllerServiceBase):
    """A controller with one job, which ends when told to."""

    def __init__(self) -> None:
        self.submitted: dict[str, int] = {}
        self.state = v1.JobState.RUNNING
        self.changed = anyio.Event()

    async def submit_job(self, message: v1.SubmitJobRequest) -> v1.SubmitJobResponse:
        key = call_context().idempotency_key
        self.submitted[key] = self.submitted.get(key, 0) + 1
        return v1.SubmitJobResponse(job_id="job-1", job_uid="uid-1", created=True)

    async def get_job(self, message: v1.GetJobRequest) -> v1.JobStatus:
        return v1.JobStatus(job_id="job-1", job_uid="uid-1", state=self.state, priority=v1.PriorityBand.BATCH)

    async def watch_job(self, message: v1.WatchJobRequest) -> AsyncIterator[v1.JobStatus]:
        while True:
            changed = self.changed
            yield await self.get_job(v1.GetJobRequest())
            if self.state is not v1.JobState.RUNNING:
                return
            await changed.wait()

    def end(self) -> None:
        self.state = v1.JobState.SUCCEEDED
        self.changed.set()


def play_client(seed: int, faults, play):
    """Run a play with a controller's double and the calls of a client."""

    async def main(network: Network):
        jobs = Jobs()
        async with RpcServer([jobs], authenticate=authenticate) as server:
            await server.listen_tcp("127.0.0.1", 0)
            async with RpcChannel(server.address, TOKEN, rng=random.Random(seed)) as channel:
                calls = MethodCalls(channel)
                calls._rng = random.Random(seed)
                network.schedule(faults)
                return await play(network, jobs, calls)

    return simulate(main, seed=seed, horizon_s=3600)


@examples(25, FOUND_AND_SHRUNK)
@given(seeds, faults_of_any_kind, st.integers(0, 90))
def test_a_watch_survives(seed, faults, ends_at) -> None:
    """A watch goes on over whatever breaks, gives the end once, and gives nothing twice; a submission with a key is
    answered, or ends with an error that says it may be repeated.
    """

    async def play(network: Network, jobs: Jobs, calls: MethodCalls) -> None:
        request = v1.SubmitJobRequest(name="a", idempotency_key="k")
        with contextlib.suppress(RpcUnavailable, RpcDeadline):
            submitted = await calls.ask("SubmitJob", request, v1.SubmitJobResponse, key="k")
            assert submitted.job_id == "job-1"
        network.loop.call_later(ends_at, jobs.end)
        last_fault_s = max((fault.at_s + fault.duration_s for fault in faults), default=0)
        with anyio.fail_after(max(ends_at, last_fault_s) + PATIENCE_S + NOTICE_S):
            seen = [status.is_over async for status in calls.watch(v1.JobRef(job_id="job-1"))]
        assert seen in ([False, True], [True])

    play_client(seed, faults, play)


def test_patience_ends_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """A controller that stays away is told of once, after a second; a stream is tried for two minutes without progress,
    each time anew; a unary call for one.
    """
    caplog.set_level(logging.WARNING, "iriscw.client")

    async def play(network: Network, jobs: Jobs, calls: MethodCalls) -> None:
        watch = calls.watch(v1.JobRef(job_id="job-1"))
        await anext(watch)
        network.strike(Fault(FaultKind.REFUSE, 0, duration_s=1000))
        network.strike(Fault(FaultKind.BREAK, 0))
        began = anyio.current_time()
        with pytest.raises(RpcUnavailable, check=that(names=os.strerror(errno.ECONNREFUSED))):
            await anext(watch)
        assert PATIENCE_S - BACKOFF_LONGEST_S <= anyio.current_time() - began <= PATIENCE_S
        assert [record.message[:20] for record in caplog.records] == ["iriscw: cannot reach"]
        began = anyio.current_time()
        with pytest.raises(RpcUnavailable):
            await calls.ask("GetJob", v1.GetJobRequest(job=v1.JobRef(job_id="job-1")), v1.JobStatus)
        assert QUIET_S < 60 - BACKOFF_LONGEST_S <= anyio.current_time() - began <= 60
        assert len(caplog.records) == 2

    play_client(3, (), play)
