"""What a controller meets from outside, as one process of its own: scripted workers, and a client.

A worker is a channel and a stream, with the real calls and messages; it keeps its orders and runs nothing. The process
reads one JSON object a line from standard input, does what it says, and answers with one:

==================================  ====================================================  =============================
``{"do": ...}``                     what                                                  the answer, beside ``wall_s``
==================================  ====================================================  =============================
``dial`` ``address`` ``workers``    all workers dial; answered when all are in sync
``submit`` ``tasks`` ``jobs``       the client submits as many jobs of as many tasks      ``job_ids``
``expect`` ``orders``               waits until so many attempts were ordered             ``messages``, ``orders``
``report``                          each attempt that was not yet is said to run          ``reports``
``list`` ``pages``                  the client reads the first page of 1,000 so often     ``rows``, ``longest_s``
``beat`` ``seconds`` ``rate``       so many heartbeats a second of all workers together   ``sent``
``dial_echo`` ``port``              as many connections to who echoes bytes
``dial_grpclib`` ``port``           as many streams of grpclib's own server
``beat_others``, as ``beat``        the same bytes, or messages, to whom was dialled last ``sent``
==================================  ====================================================  =============================
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import anyio
import anyio.to_thread
import attrs

from iriscw._errors import OperationError
from iriscw.bench.echoing import ECHOES, HOST, ROUTE
from iriscw.bench.plane import GIB, MeasurementFailed
from iriscw.bench.turns import allow_descriptors
from iriscw.proto.iriscw import v1
from iriscw.rpc.client import BidiCall, RpcChannel
from iriscw.rpc.tokens import Secret

CLIENTS = "/iriscw.v1.ControllerService/"
CONNECT = "/iriscw.v1.WorkerService/Connect"

STREAM_TIMEOUT_S = 3_600.0
PAGE = 1_000
DIALLING = 64
"""Workers between their call and their welcome. A storm of all of them is measured elsewhere."""

FRAME_BYTES = 20
"""Of a heartbeat on the wire: the heads of HTTP/2's frame and of gRPC's, and a sequence of some thousands."""

SUBMITTERS = 32
"""Submissions on their way at a time."""


@attrs.define(eq=False)
class OrderKeeper:
    """One worker that only keeps its orders."""

    outside: Outsiders
    worker_id: str
    incarnation: str
    slots: int
    channel: RpcChannel
    rng: random.Random
    attempts: dict[str, bool] = attrs.field(factory=dict)
    """By uid: whether it was reported to run."""
    call: BidiCall[v1.WorkerMessage, v1.ControllerMessage] | None = None
    sequence: int = 0
    welcomed: bool = False

    async def stay(self) -> None:
        """Dial until welcomed, as often as it takes, then take orders."""
        while True:
            pause_s = self.rng.uniform(0.1, 0.2)
            await self.outside.dialling.acquire()
            try:
                async with self.channel.bidi(
                    CONNECT, v1.WorkerMessage, v1.ControllerMessage, timeout_s=STREAM_TIMEOUT_S
                ) as self.call:
                    await self.call.send(v1.WorkerMessage(hello=self._hello()))
                    first = await self.call.receive()
                    if first is not None and first.welcome is not None:
                        self.welcomed = True
                        self.outside.dialling.release()
                        await self._obey(self.call)
                    elif first is not None and first.refused is not None:
                        pause_s += first.refused.retry_after_ms / 1e3 * self.rng.uniform(1, 1.5)
            except OperationError:
                if self.welcomed:
                    raise
            finally:
                if not self.welcomed:
                    self.outside.dialling.release()
            if self.welcomed:
                raise MeasurementFailed(f"the stream of {self.worker_id} ended")
            await anyio.sleep(pause_s)

    def _hello(self) -> v1.Hello:
        return v1.Hello(
            protocol_version=1,
            worker_id=self.worker_id,
            incarnation=self.incarnation,
            python_version="3.11",
            capacity=v1.Amount(cpu_milli=self.slots * 1000, memory_bytes=self.slots * GIB),
            attributes={"python": v1.AttributeValue(text="3.11")},
            address="127.0.0.1:1",
            takes_batches=True,
        )

    async def _obey(self, call: BidiCall[v1.WorkerMessage, v1.ControllerMessage]) -> None:
        outside = self.outside
        async for message in call:
            if message.heartbeat_ack is not None:
                outside.heard()
                continue
            outside.messages += 1
            if message.batch is not None:
                self._take([each.run for each in message.batch.messages if each.run is not None])
            elif message.desired_set is not None:
                await call.send(v1.WorkerMessage(observed_set=v1.ObservedSet(round=message.desired_set.round)))
                outside.in_sync += 1
                self._take(message.desired_set.attempts)
            elif message.run is not None:
                self._take([message.run])
            outside.moved.set()

    def _take(self, runs: list[v1.RunAttempt]) -> None:
        for run in runs:
            self.attempts.setdefault(run.attempt_uid, False)
        self.outside.orders += len(runs)

    async def report(self) -> int:
        """Say of each attempt that it runs."""
        assert self.call is not None
        fresh = [uid for uid, reported in self.attempts.items() if not reported]
        for uid in fresh:
            self.attempts[uid] = True
            seen = v1.AttemptObserved(
                attempt_uid=uid,
                state=v1.TaskState.RUNNING,
                was_started=True,
                started_at_ms=int(time.time() * 1e3),
                host="127.0.0.1",
            )
            await self.call.send(v1.WorkerMessage(observed=seen))
        return len(fresh)

    async def beat(self) -> None:
        """Send a sign of life."""
        assert self.call is not None
        self.sequence += 1
        await self.call.send(v1.WorkerMessage(heartbeat=v1.Heartbeat(sequence=self.sequence)))


class Outsiders:
    """All workers, and the client."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self._tasks = tasks
        self._workers: list[OrderKeeper] = []
        self._client: RpcChannel
        self._others: Sequence[_Echoed | _Acknowledged] = ()
        self.in_sync = self.orders = self.messages = self.acknowledged = 0
        self.moved = anyio.Event()
        self.dialling = anyio.Semaphore(DIALLING)

    async def _until(self, wanted: int, what: str) -> None:
        while getattr(self, what) < wanted:
            self.moved = anyio.Event()
            await self.moved.wait()

    async def dial(self, address: str, admin: str, workers: list[list[str]], slots: int) -> dict[str, Any]:
        """Let all workers dial. ``workers`` are their ids, incarnations and tokens."""
        allow_descriptors(len(workers) + ECHOES)
        self._client = RpcChannel(address, Secret(admin))
        for number, (worker_id, incarnation, token) in enumerate(workers):
            channel, rng = RpcChannel(address, Secret(token)), random.Random(number)  # noqa: S311 - spreads dials
            worker = OrderKeeper(self, worker_id, incarnation, slots, channel, rng)
            self._workers.append(worker)
            self._tasks.start_soon(worker.stay)
        await self._until(len(workers), "in_sync")
        return {}

    async def submit(self, tasks: int, jobs: int) -> dict[str, Any]:
        """Submit jobs that are all alike."""
        job_ids: list[str] = []

        async def some(first: int) -> None:
            for number in range(first, jobs, SUBMITTERS):
                request = v1.SubmitJobRequest(
                    name=f"job-{tasks}-{number}",
                    replicas=tasks,
                    entrypoint=v1.Entrypoint(command=v1.Command(argv=["true"])),
                    resources=v1.Amount(cpu_milli=1000, memory_bytes=GIB),
                    idempotency_key=f"{self.orders}-{number}-{tasks}",
                )
                reply = await self._client.unary(CLIENTS + "SubmitJob", request, v1.SubmitJobResponse)
                job_ids.append(reply.job_id)

        async with anyio.create_task_group() as submitters:
            for first in range(SUBMITTERS):
                submitters.start_soon(some, first)
        return {"job_ids": job_ids}

    async def expect(self, orders: int) -> dict[str, Any]:
        """Wait until so many attempts were ordered."""
        await self._until(orders, "orders")
        return {"orders": self.orders, "messages": self.messages}

    async def report(self) -> dict[str, Any]:
        """Let each worker say that what it was ordered runs."""
        return {"reports": sum([await worker.report() for worker in self._workers])}

    async def list(self, pages: int) -> dict[str, Any]:
        """Read the first page so often."""
        rows, longest_s = 0, 0.0
        for _ in range(pages):
            began = time.perf_counter()
            request = v1.ListJobsRequest(page_size=PAGE)
            reply = await self._client.unary(CLIENTS + "ListJobs", request, v1.ListJobsResponse)
            longest_s = max(longest_s, time.perf_counter() - began)
            rows = len(reply.jobs)
        return {"rows": rows, "longest_s": longest_s}

    async def beat(self, seconds: float, rate: float) -> dict[str, Any]:
        """Let the workers beat, one after the other, evenly over the time."""
        return await self._evenly([worker.beat for worker in self._workers], seconds, rate)

    async def _evenly(
        self, senders: Sequence[Callable[[], Awaitable[None]]], seconds: float, rate: float
    ) -> dict[str, Any]:
        before, began, sent = self.acknowledged, time.perf_counter(), 0
        total = int(seconds * rate)
        while sent < total:
            due = min(total, int((time.perf_counter() - began) * rate) + 1)
            while sent < due:
                await senders[sent % len(senders)]()
                sent += 1
            await anyio.sleep(1 / rate)
        await self._until(before + total, "acknowledged")
        return {"sent": sent}

    def heard(self) -> None:
        """Count an answer."""
        self.acknowledged += 1
        self.moved.set()

    async def dial_echo(self, port: int) -> dict[str, Any]:
        """Have as many connections to who echoes bytes as there are workers."""
        loop = asyncio.get_running_loop()
        made = [await loop.create_connection(lambda: _Echoed(self.heard), HOST, port) for _ in self._workers[:ECHOES]]
        return await self._warm([protocol for _, protocol in made])

    async def dial_grpclib(self, port: int) -> dict[str, Any]:
        """Have as many streams of grpclib's server as there are workers."""
        callers = [_Acknowledged(self.heard, RpcChannel(f"http://{HOST}:{port}")) for _ in self._workers[:ECHOES]]
        for caller in callers:
            await self._tasks.start(caller.stay)
        return await self._warm(callers)

    async def _warm(self, others: Sequence[_Echoed | _Acknowledged]) -> dict[str, Any]:
        """Let each beat once, so that what a first message costs is over."""
        self._others, before = others, self.acknowledged
        for each in others:
            await each.beat()
        await self._until(before + len(others), "acknowledged")
        return {}

    async def beat_others(self, seconds: float, rate: float) -> dict[str, Any]:
        """Do as the workers do, with whom was dialled last."""
        return await self._evenly([each.beat for each in self._others], seconds, rate)


class _Echoed(asyncio.Protocol):
    """One connection whose bytes come back."""

    def __init__(self, heard: Callable[[], None]) -> None:
        self._heard = heard

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        for _ in range(0, len(data), FRAME_BYTES):
            self._heard()

    async def beat(self) -> None:
        self._transport.write(bytes(FRAME_BYTES))


@attrs.define(eq=False)
class _Acknowledged:
    """One stream of grpclib's server."""

    heard: Callable[[], None]
    channel: RpcChannel
    call: BidiCall[v1.WorkerMessage, v1.ControllerMessage] | None = None
    sequence: int = 0

    async def stay(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        with contextlib.suppress(OperationError):  # the server ends first
            async with self.channel.bidi(
                ROUTE, v1.WorkerMessage, v1.ControllerMessage, timeout_s=STREAM_TIMEOUT_S
            ) as self.call:
                task_status.started()
                async for _ in self.call:
                    self.heard()

    async def beat(self) -> None:
        assert self.call is not None
        self.sequence += 1
        await self.call.send(v1.WorkerMessage(heartbeat=v1.Heartbeat(sequence=self.sequence)))


async def _serve() -> None:
    async with anyio.create_task_group() as tasks:
        outside = Outsiders(tasks)
        while line := await anyio.to_thread.run_sync(sys.stdin.readline):
            asked = json.loads(line)
            began = time.perf_counter()
            answer = await getattr(outside, asked.pop("do"))(**asked)
            sys.stdout.write(json.dumps({**answer, "wall_s": time.perf_counter() - began}) + "\n")
            sys.stdout.flush()
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(_serve)
