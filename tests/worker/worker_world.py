"""A controller double that speaks the real protocol over a real door, and workers that dial it."""

import hashlib
import os
import random
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from iriscw.cloud.model import Capacity
from iriscw.proto.iriscw import v1
from iriscw.rpc.server import RpcServer
from iriscw.rpc.tokens import Principal, Role, Secret
from iriscw.runtime.vocabulary import ActorPath
from iriscw.task.payload import make_payload
from iriscw.worker.assembly import Worker, WorkerSettings

TOKEN = Secret("the-token-of-the-worker")
JOB_TOKEN = "the-token-of-the-job"
WAIT_S = 20.0

ENDED = (
    v1.TaskState.SUCCEEDED,
    v1.TaskState.FAILED,
    v1.TaskState.KILLED,
    v1.TaskState.PREEMPTED,
    v1.TaskState.WORKER_FAILED,
    v1.TaskState.COSCHED_FAILED,
    v1.TaskState.MISSING,
)


def authenticate(token: str) -> Principal | None:
    return Principal(Role.WORKER) if TOKEN.matches(token) else None


class Controller(v1.WorkerServiceBase):
    """The double. Its fields are what it was told; tests script it through its methods."""

    def __init__(self) -> None:
        self.port = 0
        self.lease_ms = 0
        self.heartbeat_ms = 100
        self.window_bytes = 1 << 20
        self.refuse: v1.Refused | None = None
        self.ack_logs = True
        self.ack_heartbeats = True
        self.desired: dict[str, v1.RunAttempt] = {}
        self.specifications: dict[bytes, bytes] = {}
        self.bundles: dict[str, bytes] = {}
        self.bundle_calls = 0
        self.hellos: list[v1.Hello] = []
        self.sets: list[v1.ObservedSet] = []
        self.observed: dict[str, v1.AttemptObserved] = {}
        self.history: list[v1.AttemptObserved] = []
        self.logs: dict[str, bytearray] = {}
        self.log_bytes: dict[str, int] = {}
        self.told: list[v1.ProgressReport] = []
        self.keep_logs = True
        self.logs_at_end: dict[str, int] = {}
        self.results: dict[str, bytearray] = {}
        self.goodbyes: list[str] = []
        self.largest_chunk = 0
        self.outgoing = None
        self.stream_scope: anyio.CancelScope | None = None
        self.changed = anyio.Event()

    # What tests say

    async def until(self, done: Callable[[], object], wait_s: float = WAIT_S) -> None:
        with anyio.fail_after(wait_s):
            while not done():
                await self.changed.wait()

    async def send(self, **message: object) -> None:
        assert self.outgoing is not None
        await self.outgoing.send(v1.ControllerMessage(**message))

    async def run(self, uid: str, *, token: str = JOB_TOKEN, environment=None, tell: bool = True, **spec) -> None:
        """Have an attempt of a job of its own run."""
        content = specification(**spec)
        digest = hashlib.sha256(content).digest()
        self.specifications[digest] = content
        order = v1.RunAttempt(
            attempt_uid=uid,
            specification_hash=digest,
            task_id="job-a/0",
            task_index=0,
            attempt_number=0,
            environment=environment or {},
            token=token,
        )
        self.desired[uid] = order
        if tell and self.outgoing is not None:
            await self.send(specification=v1.Specification(hash=digest, content=content))
            await self.send(run=order)

    async def stop(self, uid: str, grace_ms: int = 5000, reason: v1.StopReason = v1.StopReason.KILLED) -> None:
        await self.send(stop=v1.StopAttempt(attempt_uid=uid, reason=reason, grace_ms=grace_ms))

    async def forget(self, uid: str) -> None:
        self.desired.pop(uid, None)
        await self.send(forget=v1.ForgetAttempt(attempt_uid=uid))

    async def ended(self, uid: str, wait_s: float = WAIT_S) -> v1.AttemptObserved:
        await self.until(lambda: uid in self.observed and self.observed[uid].state in ENDED, wait_s)
        return self.observed[uid]

    async def running(self, uid: str) -> v1.AttemptObserved:
        await self.until(lambda: uid in self.observed and self.observed[uid].was_started)
        return self.observed[uid]

    def cut(self) -> None:
        """Break the stream."""
        assert self.stream_scope is not None
        self.stream_scope.cancel()

    def log(self, uid: str) -> str:
        return bytes(self.logs.get(uid, b"")).decode()

    # The service

    async def connect(self, messages: AsyncIterator[v1.WorkerMessage]) -> AsyncIterator[v1.ControllerMessage]:
        hello = (await anext(messages)).hello
        assert hello is not None
        self.hellos.append(hello)
        self._wake()
        if self.refuse is not None:
            yield v1.ControllerMessage(refused=self.refuse)
            return
        outgoing, queue = anyio.create_memory_object_stream[v1.ControllerMessage](10_000)
        try:
            with anyio.CancelScope() as scope:
                self.stream_scope = scope
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._read, messages, outgoing)
                    yield v1.ControllerMessage(
                        welcome=v1.Welcome(
                            protocol_version=1,
                            session_id=f"stream-{len(self.hellos)}",
                            heartbeat_interval_ms=self.heartbeat_ms,
                            lease_ms=self.lease_ms,
                            window_bytes=self.window_bytes,
                            progress_interval_ms=20,
                        )
                    )
                    for digest, content in self.specifications.items():
                        if digest not in hello.specification_hashes:
                            yield v1.ControllerMessage(specification=v1.Specification(hash=digest, content=content))
                    wanted = list(self.desired.values())
                    yield v1.ControllerMessage(desired_set=v1.DesiredSet(round=1, attempts=wanted))
                    self.outgoing = outgoing
                    self._wake()
                    with outgoing, queue:
                        async for message in queue:
                            yield message
                    tasks.cancel_scope.cancel()
        finally:
            if self.outgoing is outgoing:
                self.outgoing = None
            self._wake()

    async def _read(self, messages: AsyncIterator[v1.WorkerMessage], outgoing) -> None:
        async for message in messages:
            await self._take(message, outgoing)
            self._wake()
        await outgoing.aclose()

    async def _take(self, message: v1.WorkerMessage, outgoing) -> None:
        if message.heartbeat is not None and self.ack_heartbeats:
            ack = v1.HeartbeatAck(sequence=message.heartbeat.sequence)
            await outgoing.send(v1.ControllerMessage(heartbeat_ack=ack))
        elif message.observed_set is not None:
            self.sets.append(message.observed_set)
            for seen in message.observed_set.attempts:
                self._observe(seen)
        elif message.observed is not None:
            self._observe(message.observed)
        elif message.goodbye is not None:
            self.goodbyes.append(message.goodbye.reason)
            outgoing.close()
        elif message.progress is not None:
            self.told += message.progress.reports
            self._wake()
        elif message.log is not None:
            await self._take_log(message.log, outgoing)
        elif message.result is not None:
            whole = self.results.setdefault(message.result.attempt_uid, bytearray())
            if message.result.offset == len(whole):
                whole += message.result.data
            ack = v1.ResultAck(attempt_uid=message.result.attempt_uid, offset=len(whole))
            await outgoing.send(v1.ControllerMessage(result_ack=ack))

    async def _take_log(self, chunk: v1.LogChunk, outgoing) -> None:
        uid, data = chunk.attempt_uid, chunk.data
        end = self.log_bytes.setdefault(uid, 0)
        self.largest_chunk = max(self.largest_chunk, len(data))
        new = data[end - chunk.offset :] if chunk.offset <= end else b""
        self.log_bytes[uid] += len(new)
        if self.keep_logs:
            self.logs.setdefault(uid, bytearray()).extend(new)
        if self.ack_logs:
            ack = v1.LogAck(attempt_uid=uid, offset=self.log_bytes[uid])
            await outgoing.send(v1.ControllerMessage(log_ack=ack))

    def _observe(self, seen: v1.AttemptObserved) -> None:
        self.observed[seen.attempt_uid] = seen
        self.history.append(seen)
        if seen.state in ENDED:
            self.logs_at_end.setdefault(seen.attempt_uid, self.log_bytes.get(seen.attempt_uid, 0))

    def _wake(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    async def get_bundle(self, message: v1.GetBundleRequest) -> AsyncIterator[v1.BundleChunk]:
        self.bundle_calls += 1
        content = self.bundles[message.bundle_id]
        for offset in range(message.offset, len(content), 1000):
            yield v1.BundleChunk(offset=offset, data=content[offset : offset + 1000], total_bytes=len(content))


def specification(argv=(), function=None, args=(), python="", bundle="", environment=None, gpus=0, **more):
    """Encode a specification of a program (``argv``, or Python code as one text) or of a callable."""
    if isinstance(argv, str):
        argv = (sys.executable, "-I", "-S", "-u", "-c", argv)
    if function is None:
        entrypoint = v1.Entrypoint(command=v1.Command(argv=list(argv)))
    else:
        version = python or f"{sys.version_info.major}.{sys.version_info.minor}"
        callable_ = v1.Callable(payload=make_payload(function, args, {}), python_version=version)
        entrypoint = v1.Entrypoint(callable=callable_)
    return bytes(
        v1.TaskSpecification(
            job_id="job-a",
            job_uid="0" * 16,
            entrypoint=entrypoint,
            resources=v1.Amount(cpu_milli=100, gpu_count=gpus),
            environment=environment or {},
            bundle_id=bundle,
            num_tasks=1,
            **more,
        )
    )


def settings(cache_dir: Path, address: object, **changes: object) -> WorkerSettings:
    values = {
        "controller": str(address),
        "worker_id": "worker-1",
        "incarnation": "life-1",
        "token": TOKEN,
        "cache_dir": cache_dir,
        "capacity": Capacity(1000, 1 << 30, 1 << 30),
        "port": 0,
        "grace_s": 2.0,
        "flush_s": 5.0,
    }
    return WorkerSettings(**{**values, **changes})


@asynccontextmanager
async def serving(controller: Controller, port: int = 0) -> AsyncIterator[RpcServer]:
    """Open the double's door."""
    async with RpcServer([controller], authenticate=authenticate) as server:
        controller.port = (await server.listen_tcp("127.0.0.1", port)).port
        yield server


@asynccontextmanager
async def world(cache_dir: Path, controller: Controller | None = None, **changes) -> AsyncIterator[tuple]:
    """Give a controller and a worker that is connected to it."""
    controller = controller or Controller()
    async with serving(controller) as server, Worker(settings(cache_dir, server.address, **changes)) as worker:
        await controller.until(lambda: controller.outgoing is not None)
        yield controller, worker


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


class Ctx:
    """A context for decisions: the clocks stand where a test puts them."""

    def __init__(self, now: int = 0, seed: int = 0) -> None:
        self.path = ActorPath("/attempts")
        self.incarnation = 0
        self.now = self.attentive = self.wall = now
        self.rng = random.Random(seed)
        self.reply_to = None
        self.sim = True

    def at(self, now: int) -> "Ctx":
        self.now = self.attentive = self.wall = now
        return self
