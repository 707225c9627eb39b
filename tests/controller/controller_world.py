"""A controller for tests: its cloud is in memory, and its workers speak the real protocol over loopback."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Self

import anyio
import attrs

from iriscw.cloud.drivers.fake import FakeCloud
from iriscw.cloud.model import LABEL_INCARNATION, Capacity
from iriscw.config.load import build_config
from iriscw.controller.assembly import Controller
from iriscw.controller.tokens import ControllerTokens
from iriscw.jobs.registry import RegistryLimits
from iriscw.proto.iriscw import v1
from iriscw.rpc.client import RpcChannel
from iriscw.rpc.tokens import Secret, read_token_file
from waiting import until

GIB = 1 << 30
CLIENTS = "/iriscw.v1.ControllerService/"
WORKERS = "/iriscw.v1.WorkerService/"
CONFIG = {
    "name": "test",
    "platform": {"local": {}, "autoscaler": {"scale_down_delay": "10m"}},
    "controller": {"local": {"port": 0}},
    "scale_groups": {"cpu": {"max_slices": 2, "resources": {"cpu": 4, "ram": "4GiB"}}},
}


@attrs.define
class Drivers:
    """A fake cloud as a platform's drivers."""

    cloud: FakeCloud

    @property
    def node_pools(self):
        return self.cloud.node_pools

    @property
    def pods(self):
        return self.cloud.pod_driver

    def connection(self, pod, uid):
        raise NotImplementedError


class World:
    """A controller on a state folder that outlives it, a fake cloud that outlives both, and a client."""

    def __init__(
        self, state: Path, *, limits: RegistryLimits | None = None, cloud: FakeCloud | None = None, config=CONFIG
    ) -> None:
        self.described = config
        self.state = state
        self.limits = limits
        self.cloud = cloud or FakeCloud(budget=Capacity(100_000, 100 * GIB, 0, 0, ""), cluster="test")
        self.controller: Controller
        self.client: RpcChannel
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.controller = Controller(
            build_config(self.described), state_dir=self.state, drivers=Drivers(self.cloud), limits=self.limits
        )
        await self._stack.enter_async_context(self.controller)
        self.client = await self._stack.enter_async_context(self.channel(self.controller.admin_token))
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def restart(self) -> None:
        """Close the controller in order and open another one on the same folder."""
        await self._stack.aclose()
        self._stack = AsyncExitStack()
        await self.__aenter__()

    def channel(self, token: Secret | None) -> RpcChannel:
        """A channel to the controller's door."""
        return RpcChannel(self.controller.address, token)

    @property
    def tokens(self) -> ControllerTokens:
        """What derives the tokens of workers and jobs."""
        return ControllerTokens(read_token_file(self.state / "secrets" / "cluster-secret"), [])

    async def call(self, method: str, request: object, reply: type, **more: object):
        """One unary call as the admin."""
        return await self.client.unary(CLIENTS + method, request, reply, **more)

    async def submit(self, key: str = "k1", **more: object) -> v1.SubmitJobResponse:
        """Submit a command."""
        return await self.call("SubmitJob", submission(key, **more), v1.SubmitJobResponse)

    async def status(self, job_id: str) -> v1.JobStatus:
        """Describe a job."""
        return await self.call("GetJob", v1.GetJobRequest(job=v1.JobRef(job_id=job_id)), v1.JobStatus)

    async def until_over(self, job_id: str) -> list[v1.JobStatus]:
        """Watch a job to its end; give all statuses."""
        request = v1.WatchJobRequest(job=v1.JobRef(job_id=job_id))
        with anyio.fail_after(20):
            return await self.stream("WatchJob", request, v1.JobStatus)

    async def stream(self, method: str, request: object, reply: type) -> list:
        """All answers of a stream."""
        async with self.client.server_stream(CLIENTS + method, request, reply) as replies:
            return [each async for each in replies]

    async def logs(self, job_id: str, **more: object) -> dict[int, bytes]:
        """The whole log of each task."""
        request = v1.FetchLogsRequest(job=v1.JobRef(job_id=job_id), **more)
        found: dict[int, bytes] = {}
        for batch in await self.stream("FetchLogs", request, v1.LogBatch):
            found[batch.task_index] = found.get(batch.task_index, b"") + batch.data
        return found

    @asynccontextmanager
    async def worker(self, **more: object) -> AsyncIterator["FakeWorker"]:
        """A worker in the first pod of the cloud, as soon as there is one."""
        await until(lambda: self.cloud.pods)
        pod = next(iter(self.cloud.pods.values()))
        incarnation = pod.labels[LABEL_INCARNATION]
        worker_id = pod.name.removesuffix(f"-{incarnation}")
        async with FakeWorker(self, worker_id, incarnation, **more) as worker:
            yield worker


def submission(key: str, **more: object) -> v1.SubmitJobRequest:
    """A submission of one command."""
    values = {
        "name": "job",
        "replicas": 1,
        "entrypoint": v1.Entrypoint(command=v1.Command(argv=["true"])),
        "resources": v1.Amount(cpu_milli=100, memory_bytes=1 << 20),
        "idempotency_key": key,
    }
    return v1.SubmitJobRequest(**{**values, **more})


class FakeWorker:
    """Speaks the protocol, runs nothing: by default each attempt says one line and succeeds.

    Args:
        world: where the controller is.
        worker_id: who it is.
        incarnation: which life of it.
        manual: do nothing with orders but remember them.
        result: what each attempt returns; None for nothing.
        node: the machine that it says it is on.
        takes_batches: whether it says that it does, as all do but those of an older release.
        memory: attempts that an earlier connection had, by uid, as they were last reported.
    """

    def __init__(
        self,
        world,
        worker_id,
        incarnation,
        *,
        manual=False,
        result=None,
        memory=None,
        node="",
        takes_batches=True,
    ) -> None:
        self.world, self.worker_id, self.incarnation = world, worker_id, incarnation
        self.manual, self.result, self.node = manual, result, node
        self.takes_batches = takes_batches
        self.held: dict[str, v1.AttemptObserved] = {} if memory is None else memory
        self.runs: dict[str, v1.RunAttempt] = {}
        self.specifications: list[v1.TaskSpecification] = []
        self.stops: list[v1.StopAttempt] = []
        self.forgotten: list[str] = []
        self.received: list[v1.ControllerMessage] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        token = self.world.tokens.worker_token(self.worker_id, self.incarnation)
        channel = await self._stack.enter_async_context(self.world.channel(token))
        for _ in range(40):
            self.call = await self._stack.enter_async_context(
                channel.bidi(WORKERS + "Connect", v1.WorkerMessage, v1.ControllerMessage)
            )
            await self.call.send(v1.WorkerMessage(hello=self.hello()))
            first = await self.call.receive()
            self.received.append(first)
            if first.refused is None or first.refused.retry_after_ms == 0:
                break
            await anyio.sleep(0.1)
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(tasks.cancel_scope.cancel)
        tasks.start_soon(self._serve)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    def hello(self) -> v1.Hello:
        return v1.Hello(
            protocol_version=1,
            worker_id=self.worker_id,
            incarnation=self.incarnation,
            python_version="3.11",
            capacity=v1.Amount(cpu_milli=4000, memory_bytes=4 * GIB),
            attributes={"python": v1.AttributeValue(text="3.11")},
            address="127.0.0.1:1",
            node=self.node,
            takes_batches=self.takes_batches,
        )

    async def _serve(self) -> None:
        async for received in self.call:
            self.received.append(received)
            for message in received.batch.messages if received.batch is not None else (received,):
                await self._take(message)

    async def _take(self, message: v1.ControllerMessage) -> None:
        if message.specification is not None:
            content = message.specification.content
            assert hashlib.sha256(content).digest() == message.specification.hash
            self.specifications.append(v1.TaskSpecification.parse(content))
        elif message.desired_set is not None:
            observed = v1.ObservedSet(round=message.desired_set.round, attempts=list(self.held.values()))
            await self.call.send(v1.WorkerMessage(observed_set=observed))
            for run in message.desired_set.attempts:
                await self._run(run)
        elif message.run is not None:
            await self._run(message.run)
        elif message.stop is not None:
            self.stops.append(message.stop)
        elif message.forget is not None:
            self.forgotten.append(message.forget.attempt_uid)
            self.held.pop(message.forget.attempt_uid, None)

    async def _run(self, run: v1.RunAttempt) -> None:
        self.runs[run.attempt_uid] = run
        if run.attempt_uid in self.held:
            return
        await self.observe(run.attempt_uid, v1.TaskState.RUNNING)
        if not self.manual:
            await self.write(run.attempt_uid, 0, f"task {run.task_index}\n".encode())
            end = len(f"task {run.task_index}\n")
            await self.finish(run.attempt_uid, log_end_offset=end)

    async def observe(self, uid: str, state: v1.TaskState, **more: object) -> None:
        """Report an attempt."""
        self.held[uid] = v1.AttemptObserved(attempt_uid=uid, state=state, was_started=True, **more)
        await self.call.send(v1.WorkerMessage(observed=self.held[uid]))

    async def write(self, uid: str, offset: int, data: bytes) -> None:
        """Send log bytes."""
        await self.call.send(v1.WorkerMessage(log=v1.LogChunk(attempt_uid=uid, offset=offset, data=data)))

    async def finish(self, uid: str, state: v1.TaskState = v1.TaskState.SUCCEEDED, **more: object) -> None:
        """Report the end of an attempt, and send its result."""
        reference = None
        if self.result is not None:
            digest = hashlib.sha256(self.result).digest()
            reference = v1.ResultRef(size_bytes=len(self.result), sha256=digest, python_version="3.11")
        await self.observe(uid, state, exit=v1.ProcessExit(code=0), result=reference, **more)
        if self.result is not None:
            half = len(self.result) // 2
            for offset, data in ((0, self.result[:half]), (half, self.result[half:])):
                chunk = v1.ResultChunk(attempt_uid=uid, offset=offset, data=data)
                await self.call.send(v1.WorkerMessage(result=chunk))


async def get(world: World, path: str, token: str = "") -> tuple[int, bytes]:
    """Send one HTTP/1.1 request to the controller; give the status and the body."""
    address = world.controller.address
    reader, writer = await asyncio.open_connection(address.host, address.port)
    line = f"Authorization: Bearer {token}\r\n" if token else ""
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{line}\r\n".encode())
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body
