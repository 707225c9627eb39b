"""What users pay for the control plane, end to end: ``iriscw bench end-to-end``.

Here nothing is left out: the real controller with its journal on a disk, its stores and its doors, and workers and a
client in another process that call over loopback (:mod:`iriscw.bench.outside`). Only the cloud is in memory, and
attempts run nothing. The other figures of the control plane (:mod:`iriscw.bench.control_plane`) measure its decisions
alone.

Figures are CPU time of the controller: of its event loop's thread (``loop_cpu``), and of the whole process, with the
threads that write (``process_cpu``). A *turn* is what the loop does between two looks at its sockets, in thread CPU
time, collections of garbage apart. Wall time is given as well; on a shared machine it says little.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import math
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self

import anyio
import anyio.abc
import attrs
from anyio.streams.buffered import BufferedByteReceiveStream

from iriscw.bench.echoing import ECHOES, acknowledging, echoing
from iriscw.bench.plane import GIB, Figures, MeasurementFailed
from iriscw.bench.turns import TurnWatch, allow_descriptors
from iriscw.cloud.drivers.fake import FakeCloud, FakeNodePoolDriver, FakePodDriver
from iriscw.cloud.model import LABEL_INCARNATION, Capacity
from iriscw.cloud.ports import Connection
from iriscw.config.load import build_config
from iriscw.controller.assembly import Controller
from iriscw.controller.tokens import ControllerTokens
from iriscw.rpc.tokens import read_token_file

GOALS: Figures = {
    "dispatch_process_cpu_s": 0.6,
    "dispatch_wall_s": 1.0,
    "page_loop_cpu_ms": 10.0,
    "page_longest_turn_ms": 20.0,
    "heartbeats_core_share": 0.05,
    "longest_turn_ms_of_5000_workers": 50.0,
}
"""On two cores that nobody shares."""

PAGES = 5
BEATS_PER_S = 1_000.0
"""What 5,000 workers send that beat every five seconds."""

BEAT_S = 5.0
PATIENCE_S = 900.0
"""5,000 workers dial in within minutes, also where other programs want the machine."""

LOOK_S = 0.01
TIMEOUTS = {"worker_timeout": "1h", "init_timeout": "1h"}
"""Workers are silent but when their heartbeats are measured."""

AUTOSCALER = {"startup_grace_period": "1h"}
"""The local platform gives a slice up after 40 s. 5,000 workers do not dial in so fast on a busy machine, and then all
their pods are replaced: what was measured was a fleet that is made anew."""

MAX_LINE_BYTES = 1 << 26


@attrs.define
class _Drivers:
    """The fake cloud as a platform's drivers."""

    cloud: FakeCloud

    @property
    def node_pools(self) -> FakeNodePoolDriver:
        return self.cloud.node_pools

    @property
    def pods(self) -> FakePodDriver:
        return self.cloud.pod_driver

    def connection(self, pod: str, uid: str) -> Connection:
        raise MeasurementFailed("no pod is dialled here")


class Measured:
    """Figures of what happens in a block."""

    def __init__(self, watch: TurnWatch) -> None:
        self._watch = watch
        self.loop_cpu_s = self.process_cpu_s = self.longest_turn_ms = self.longest_collection_ms = 0.0

    def __enter__(self) -> Self:
        gc.collect()
        self._watch.clear()
        self._loop, self._process = time.thread_time(), time.process_time()
        return self

    def __exit__(self, *error: object) -> None:
        self.loop_cpu_s = time.thread_time() - self._loop
        self.process_cpu_s = time.process_time() - self._process
        self.longest_turn_ms = 1e3 * max(self._watch.turns_s[1:], default=0.0)  # the first holds the collection above
        self.longest_collection_ms = 1e3 * max(self._watch.collections_s, default=0.0)

    def figures(self) -> Figures:
        """Give them by name."""
        return {
            "loop_cpu_s": self.loop_cpu_s,
            "process_cpu_s": self.process_cpu_s,
            "longest_turn_ms": self.longest_turn_ms,
            "longest_collection_ms": self.longest_collection_ms,
        }


def whole(workers: int, tasks: int, jobs: int, beat_s: float = BEAT_S) -> dict[str, Figures]:
    """Run a cluster; give its figures by group.

    Args:
        workers: that dial, each of which has room for its share of the tasks.
        tasks: of one job, which takes all that room.
        jobs: of one task each, which wait then and are listed.
        beat_s: how long heartbeats are measured.

    Raises:
        TooFewDescriptors: the system does not allow for so many sockets.
        MeasurementFailed: the cluster did not do what was to be measured.
    """
    allow_descriptors(workers + ECHOES)
    watch = TurnWatch()
    with watch.collections(), asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(watch)) as runner:
        return runner.run(_whole(workers, tasks, jobs, beat_s, watch))


async def _whole(workers: int, tasks: int, jobs: int, beat_s: float, watch: TurnWatch) -> dict[str, Figures]:
    slots = math.ceil(tasks / workers)
    found: dict[str, Figures] = {}
    size: Figures = {"workers": workers, "tasks": tasks}
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        outside = await stack.enter_async_context(_outside())
        with Measured(watch) as boot:
            controller, cloud = await _controller(stack, folder, workers, slots)
        with Measured(watch) as dial:
            await _dial(outside, cloud, do="dial", slots=slots, **_identities(controller, cloud, folder))
        found["start"] = {**size, **boot.figures()}
        found["dial"] = {**size, **dial.figures()}

        with Measured(watch) as dispatch:
            began = time.perf_counter()
            await outside.ask(do="submit", tasks=tasks, jobs=1)
            ordered = await outside.ask(do="expect", orders=tasks)
            wall_s = time.perf_counter() - began
        messages = {"messages_per_worker": ordered["messages"] / workers, "wall_s": wall_s}
        found["dispatch"] = {**size, **messages, **dispatch.figures()}

        records = controller.statistics().journal.durable
        with Measured(watch) as reports:
            answer = await outside.ask(do="report")
            wanted = records + answer["reports"]
            await _until(lambda: controller.statistics().journal.durable >= wanted)
        found["running"] = {**size, **reports.figures()}

        await outside.ask(do="submit", tasks=1, jobs=jobs)
        for name, times in (("fresh_page", 1), ("page", PAGES)):  # the second one is of jobs that have not changed
            with Measured(watch) as pages:
                listed = await outside.ask(do="list", pages=times)
            page = {"page_loop_cpu_ms": 1e3 * pages.loop_cpu_s / times, "longest_wall_ms": 1e3 * listed["longest_s"]}
            found[name] = {"workers": workers, "rows": listed["rows"], **page, **pages.figures()}

        found["heartbeats"] = {"workers": workers, **await _beats(outside, watch, beat_s)}
    return found


async def _beats(outside: _Outside, watch: TurnWatch, beat_s: float) -> Figures:
    """Measure heartbeats, and what the same bytes cost others on this loop."""

    async def measured(do: str) -> tuple[Figures, Measured]:
        with Measured(watch) as part:
            began = time.perf_counter()
            answer = await outside.ask(do=do, seconds=beat_s, rate=BEATS_PER_S)
            wall_s = time.perf_counter() - began
        share = part.loop_cpu_s / answer["sent"] * BEATS_PER_S
        return {"beats_per_s": answer["sent"] / wall_s, "core_share": share}, part

    found, beats = await measured("beat")
    others = {}
    for name, dial, serving in (("echo", "dial_echo", echoing), ("grpclib", "dial_grpclib", acknowledging)):
        async with serving() as port:
            await outside.ask(do=dial, port=port)
            others[f"{name}_core_share"] = (await measured("beat_others"))[0]["core_share"]
    return {**found, **others, **beats.figures()}


async def _dial(outside: _Outside, cloud: FakeCloud, **what: Any) -> None:
    """Let all workers dial in.

    Raises:
        MeasurementFailed: the fleet gave some of them up meanwhile, so it was another fleet that was measured.
    """
    try:
        await outside.ask(**what)
    finally:
        if cloud.calls["pods.delete"]:
            raise MeasurementFailed(f"{cloud.calls['pods.delete']} pods were given up while their workers dialled in")


def _identities(controller: Controller, cloud: FakeCloud, folder: Path) -> dict[str, Any]:
    tokens = ControllerTokens(read_token_file(folder / "state" / "secrets" / "cluster-secret"), [])
    workers = []
    for pod in cloud.pods.values():
        incarnation = pod.labels[LABEL_INCARNATION]
        worker_id = pod.name.removesuffix(f"-{incarnation}")
        workers.append((worker_id, incarnation, tokens.worker_token(worker_id, incarnation).reveal()))
    return {"address": str(controller.address), "admin": controller.admin_token.reveal(), "workers": workers}


async def _controller(stack: AsyncExitStack, folder: Path, workers: int, slots: int) -> tuple[Controller, FakeCloud]:
    """Open a controller, and wait until it has a pod for every worker."""
    vms = workers if workers < 1_000 else math.gcd(workers, 100)  # slices come 16 a minute
    slices = workers // vms
    config = build_config(
        {
            "name": "bench",
            "platform": {
                "local": {"node_cpu": slots, "node_memory": f"{slots}GiB"},
                "timeouts": TIMEOUTS,
                "autoscaler": AUTOSCALER,
            },
            "controller": {"local": {"port": 0}},
            "scale_groups": {
                f"cpu{first}": {
                    "num_vms": vms,
                    "min_slices": min(16, slices - first),
                    "max_slices": min(16, slices - first),
                    "resources": {"cpu": slots, "ram": f"{slots}GiB"},
                }
                for first in range(0, slices, 16)
            },
        }
    )
    room = slots * workers
    cloud = FakeCloud(budget=Capacity(room * 1000, room * GIB, 0, 0, ""), cluster="bench")
    controller = Controller(config, state_dir=folder / "state", drivers=_Drivers(cloud))
    await stack.enter_async_context(controller)
    await _until(lambda: len(cloud.pods) == workers and all(pod.address for pod in cloud.pods.values()))
    return controller, cloud


async def _until(condition: Callable[[], bool]) -> None:
    """Look until something holds that has no event for somebody who only looks."""
    with anyio.fail_after(PATIENCE_S):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(LOOK_S)


@attrs.define
class _Outside:
    """The other process, seen from the controller's."""

    process: anyio.abc.Process
    answers: BufferedByteReceiveStream

    async def ask(self, **what: Any) -> dict[str, Any]:
        """Have something done; give the answer.

        Raises:
            MeasurementFailed: the process has ended.
        """
        assert self.process.stdin is not None
        with anyio.fail_after(PATIENCE_S):
            await self.process.stdin.send(json.dumps(what).encode() + b"\n")
            try:
                line = await self.answers.receive_until(b"\n", MAX_LINE_BYTES)
            except anyio.IncompleteRead:
                raise MeasurementFailed("the process of the workers has ended; it said why") from None
        answer: dict[str, Any] = json.loads(line)
        return answer


@asynccontextmanager
async def _outside() -> AsyncIterator[_Outside]:
    async with await anyio.open_process([sys.executable, "-m", "iriscw.bench.outside"], stderr=None) as process:
        assert process.stdout is not None
        try:
            yield _Outside(process, BufferedByteReceiveStream(process.stdout))
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


@attrs.frozen
class WholeSizes:
    """At which sizes the figures are taken.

    Args:
        clusters: workers and tasks, from small to large.
        jobs: of the listing.
    """

    clusters: tuple[tuple[int, int], ...] = ((79, 5_000), (1_000, 5_000), (5_000, 5_000))
    jobs: int = 1_000


FULL = WholeSizes()
QUICK = WholeSizes(clusters=((79, 5_000),))


def run(progress: Callable[[str], None], sizes: WholeSizes = FULL) -> dict[str, Any]:
    """Measure everything and give the report of ``iriscw bench end-to-end -o json``.

    Raises:
        TooFewDescriptors: the system does not allow for so many sockets.
        MeasurementFailed: a cluster did not do what was to be measured.
    """
    figures: dict[str, list[Figures]] = {}
    for workers, tasks in sizes.clusters:
        progress(f"{workers} workers, {tasks} tasks")
        for name, row in whole(workers, tasks, sizes.jobs).items():
            figures.setdefault(name, []).append(row)
    return {"figures": figures, "goals": GOALS}
