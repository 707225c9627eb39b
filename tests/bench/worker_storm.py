"""All workers dial at once: what a controller's loop does for others meanwhile.

The controller's side is the real door (:class:`RpcServer`, :class:`WorkerDoor`, its stores) on real sockets, before a
fleet that knows every worker. The workers are one other process, this file run as a program: a channel each, the
real calls and messages. When they all have theirs ready they dial at once, and do what a refusal says.

Turns of the controller's loop are counted, and each one's thread CPU time is taken, by the selector that begins and
ends them. What a client feels is measured the same way: how much CPU the loop spent from a client's question to its
answer. Collections of garbage are taken out of both (:mod:`iriscw.bench.turns`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import attrs

from iriscw._errors import OperationError
from iriscw.bench.plane import GIB, Figures, MeasurementFailed
from iriscw.bench.turns import TurnWatch, allow_descriptors
from iriscw.cloud.model import Capacity
from iriscw.controller.admission import AdmissionGate
from iriscw.controller.doors.workers import WelcomeSettings, WorkerDoor
from iriscw.controller.errors import NoSuchBundle
from iriscw.controller.granted_attempts import HeldAttempts
from iriscw.controller.heartbeats import Heartbeats
from iriscw.controller.stores.archive import Archive
from iriscw.controller.stores.logs import LogStore
from iriscw.controller.stores.payloads import Payloads
from iriscw.controller.stores.results import ResultStore
from iriscw.controller.stores.stores import Stores
from iriscw.controller.tokens import ControllerTokens
from iriscw.fleet.messages import Accepted, WorkerDialled, WorkerHungUp, WorkerSeen
from iriscw.fleet.model import GroupConfig, WorkerInfo
from iriscw.objects.drivers.opening import open_store
from iriscw.proto.iriscw import v1
from iriscw.rpc.client import RpcChannel
from iriscw.rpc.http1 import HttpResponse, Route
from iriscw.rpc.limits import RpcLimits
from iriscw.rpc.server import RpcServer
from iriscw.rpc.tokens import Secret, mint_token
from iriscw.runtime import ActorSystem, Behavior, ChildSpec
from iriscw.runtime.vocabulary import Reply

GROUP, SLICE = "storm", "iris-storm-1"
CONNECT = "/iriscw.v1.WorkerService/Connect"
GET_BUNDLE = "/iriscw.v1.WorkerService/GetBundle"

UNBOUNDED = 1 << 20
"""As good as no bound: the same storm without a gate."""

PATIENCE_S = 300.0
"""After which a storm has failed; 5,000 workers take half a minute of a slow machine."""

SLOW_TURN_S = 0.025
"""Thread CPU time of a turn that a client would notice; nothing is asserted of it but ratios."""

PROBE_INTERVAL_S = 0.01
"""Between an answer and the next question."""

CAPACITY = Capacity(cpu_milli=4_000, memory_bytes=4 * GIB)


@attrs.define
class Waits:
    """What a client waited for its answers, in CPU time of the loop."""

    cpu_s: Callable[[], float]
    answers: int = 0
    longest_s: float = 0.0

    def add(self, began_s: float) -> None:
        """Count one."""
        self.answers += 1
        self.longest_s = max(self.longest_s, self.cpu_s() - began_s)


def storm(workers: int, *, gated: bool = True, waiting: int | None = None) -> Figures:
    """Have ``workers`` dial at once; with ``gated=False`` nothing bounds what the controller does in a turn.

    Raises:
        TooFewDescriptors: the system does not allow for so many sockets.
        MeasurementFailed: not every worker was welcomed.
    """
    allow_descriptors(workers)
    watch = TurnWatch()
    with watch.collections(), asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(watch)) as runner:
        return runner.run(_storm(workers, watch, gated=gated, waiting=waiting))


async def _storm(workers: int, watch: TurnWatch, *, gated: bool, waiting: int | None) -> Figures:
    gate = AdmissionGate() if gated else AdmissionGate(UNBOUNDED, UNBOUNDED)
    if waiting is not None:
        gate = AdmissionGate(waiting=waiting)
    limits = RpcLimits() if gated else RpcLimits(connections_per_turn=UNBOUNDED, accepts_per_turn=1024)
    secret, admin = mint_token(), mint_token()
    health, calls = Waits(watch.cpu_s), Waits(watch.cpu_s)
    async with AsyncExitStack() as stack:
        server, door = await _controller(stack, workers, gate, limits, secret, admin)
        port = server.address.port
        channel = await stack.enter_async_context(RpcChannel(f"http://127.0.0.1:{port}", admin))
        await _call(channel)
        dialling = await stack.enter_async_context(_workers(workers, port, secret))
        tasks = await stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(_ask_health, port, health)
        tasks.start_soon(_ask_calls, channel, calls)
        watch.clear()
        began_s = watch.cpu_s()
        with anyio.fail_after(PATIENCE_S):
            report = await dialling.storm()
        cpu_s, turns_s = watch.cpu_s() - began_s, sorted(watch.turns_s)
        tasks.cancel_scope.cancel()
        if len(door.switchboard) != workers or report["welcomed"] != workers:
            raise MeasurementFailed(f"{len(door.switchboard)} of {workers} workers are connected: {report}")
        admission, rpc = gate.statistics(), server.statistics()
    return {
        "workers": workers,
        "cpu_ms_per_worker": 1e3 * cpu_s / workers,
        "cpu_s": cpu_s,
        "turns": len(turns_s),
        "slow_turns": sum(1 for turn in turns_s if turn > SLOW_TURN_S),
        "longest_turn_ms": 1e3 * turns_s[-1],
        "longest_collection_ms": 1e3 * max(watch.collections_s, default=0.0),
        "most_begun_in_turn": rpc.most_begun_in_turn,
        "most_waiting": admission.most_waiting,
        "turned_away": admission.turned_away,
        "retries": report["refused"],
        "redials": report["broken"],
        "health_answers": health.answers,
        "health_longest_cpu_ms": 1e3 * health.longest_s,
        "call_answers": calls.answers,
        "call_longest_cpu_ms": 1e3 * calls.longest_s,
        "answer_longest_cpu_ms": 1e3 * max(health.longest_s, calls.longest_s),
    }


# The controller's side


async def _controller(
    stack: AsyncExitStack, workers: int, gate: AdmissionGate, limits: RpcLimits, secret: Secret, admin: Secret
) -> tuple[RpcServer, WorkerDoor]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    tokens = ControllerTokens(secret, [admin])
    (folder / "objects").mkdir()
    objects = open_store(f"file://{folder}/objects")
    stack.push_async_callback(objects.aclose)
    logs = await LogStore.open(folder / "logs")
    results = await ResultStore.open(folder / "results")
    stores = Stores(logs, results, Payloads(objects, ""), objects, "bundles", Archive(objects, ["states"]))
    group = GroupConfig(name=GROUP, per_worker=CAPACITY)
    settings = WelcomeSettings("storm", {GROUP: group}, {}, heartbeats=Heartbeats(60_000, 60_000), lease_ms=600_000)
    system = ActorSystem(_fleet(workers), name="storm")
    held = HeldAttempts(folder / "held")
    door = WorkerDoor(settings, stores, held=held, tokens=tokens, actors=lambda: system, gate=gate)
    await stack.enter_async_context(system)
    health = Route(lambda: HttpResponse(200, "text/plain", b"ok\n"), public=True)
    server = RpcServer([door], authenticate=tokens.authenticate, routes={"/health": health}, limits=limits)
    await stack.enter_async_context(server)
    await server.listen_tcp("127.0.0.1", 0)
    return server, door


def _fleet(workers: int) -> Behavior:
    """Return a tree that has an actor where each worker's would be, which takes it as it is."""
    worker = Behavior(on={WorkerDialled: _dialled, WorkerSeen: _ignore, WorkerHungUp: _ignore}, name="worker")
    pods = tuple(ChildSpec(f"{SLICE}-{index}", worker) for index in range(workers))
    slices = Behavior(children=(ChildSpec(SLICE, Behavior(children=pods, name="slice")),), name="group")
    fleet = Behavior(children=(ChildSpec(GROUP, slices),), name="fleet")
    return Behavior(children=(ChildSpec("fleet", fleet),), name="storm")


def _dialled(state: Any, message: WorkerDialled, ctx: Any) -> Any:
    info = WorkerInfo(
        message.worker_id,
        message.incarnation,
        SLICE,
        GROUP,
        message.capacity,
        message.attributes,
        message.address,
    )
    return (Reply(Accepted(info)),)


def _ignore(state: Any, message: Any, ctx: Any) -> Any:
    return None


# Clients


async def _ask_health(port: int, waits: Waits) -> None:
    """Ask, each time on a new connection, as probes do.

    On a machine that is busy elsewhere the door may give a connection up before this loop has come to say anything on
    it. Then it is asked again, and the question is as old as it was.
    """
    while True:
        began_s = waits.cpu_s()
        answer = b""
        while not answer:
            with contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.EndOfStream):
                async with await anyio.connect_tcp("127.0.0.1", port) as probe:
                    await probe.send(b"GET /health HTTP/1.1\r\nHost: storm\r\nConnection: close\r\n\r\n")
                    answer = await probe.receive()
        if b" 200 " not in answer:
            raise MeasurementFailed(f"/health answered {answer[:64]!r}")
        waits.add(began_s)
        await anyio.sleep(PROBE_INTERVAL_S)


async def _ask_calls(channel: RpcChannel, waits: Waits) -> None:
    while True:
        began_s = waits.cpu_s()
        await _call(channel)
        waits.add(began_s)
        await anyio.sleep(PROBE_INTERVAL_S)


async def _call(channel: RpcChannel) -> None:
    """Make the cheapest call that goes to a store: for a bundle that is not there."""
    request = v1.GetBundleRequest(bundle_id="0" * 64)
    try:
        async with channel.server_stream(GET_BUNDLE, request, v1.BundleChunk) as chunks:
            async for _ in chunks:
                raise MeasurementFailed("there is a bundle that nobody stored")
    except NoSuchBundle:
        return


# The workers' process


@attrs.define
class Dialling:
    """The process of the workers, seen from the controller's."""

    process: anyio.abc.Process

    async def storm(self) -> dict[str, int]:
        """Let all dial; give what they met when all are welcomed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        await self.process.stdin.send(b"dial\n")
        line = await self.process.stdout.receive()
        report: dict[str, int] = json.loads(line)
        return report


@asynccontextmanager
async def _workers(count: int, port: int, secret: Secret) -> AsyncIterator[Dialling]:
    command = [sys.executable, __file__, str(count), str(port)]
    async with await anyio.open_process(command, stderr=None) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        await process.stdin.send(f"{secret.reveal()}\n".encode())
        await process.stdout.receive()  # ready
        try:
            yield Dialling(process)
        finally:
            process.kill()


@attrs.define
class _Worker:
    """A worker that only stays connected."""

    index: int
    channel: RpcChannel
    tally: dict[str, int]
    rng: random.Random

    async def stay(self, all_welcomed: anyio.Event, count: int) -> None:
        """Dial until welcomed, as often as it takes; then keep the stream."""
        hello = v1.WorkerMessage(
            hello=v1.Hello(
                protocol_version=1,
                worker_id=f"{SLICE}-{self.index}",
                incarnation="1",
                python_version="3.11",
                capacity=v1.Amount(cpu_milli=CAPACITY.cpu_milli, memory_bytes=CAPACITY.memory_bytes),
                address="127.0.0.1:1",
            )
        )
        while True:
            pause_s = self.rng.uniform(0.1, 0.2)
            try:
                async with self.channel.bidi(CONNECT, v1.WorkerMessage, v1.ControllerMessage) as call:
                    await call.send(hello)
                    first = await call.receive()
                    if first is not None and first.welcome is not None:
                        self.tally["welcomed"] += 1
                        if self.tally["welcomed"] == count:
                            all_welcomed.set()
                        await anyio.sleep_forever()
                    elif first is not None and first.refused is not None:
                        self.tally["refused"] += 1
                        pause_s += first.refused.retry_after_ms / 1e3 * self.rng.uniform(1, 1.5)
            except OperationError:
                self.tally["broken"] += 1
            await anyio.sleep(pause_s)


async def _dial_all(count: int, port: int) -> None:
    tokens = ControllerTokens(Secret(sys.stdin.readline().strip()), [])
    tally = dict.fromkeys(("welcomed", "refused", "broken"), 0)
    workers = []
    for index in range(count):
        token = tokens.worker_token(f"{SLICE}-{index}", "1")
        channel = RpcChannel(f"http://127.0.0.1:{port}", token)
        workers.append(_Worker(index, channel, tally, random.Random(index)))
    _say("ready")
    await anyio.to_thread.run_sync(sys.stdin.readline)
    all_welcomed = anyio.Event()
    async with anyio.create_task_group() as tasks:
        for worker in workers:
            tasks.start_soon(worker.stay, all_welcomed, count)
        await all_welcomed.wait()
        _say(json.dumps(tally))
        await anyio.sleep_forever()  # until the other side has looked, and kills this process


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> None:
    """Be the workers: ``<count> <port>``, the cluster's secret and then a line to begin on standard input."""
    count, port = (int(each) for each in (arguments if arguments is not None else sys.argv[1:]))
    allow_descriptors(count)
    anyio.run(_dial_all, count, port)


if __name__ == "__main__":
    main()
