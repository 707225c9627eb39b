"""The demo's course: from nothing to a result and back to nothing, with a worker and the controller killed in between.

Every claim is a check: that there was no slice at first, that the killed worker took a running attempt with it and the
task was tried again, that no attempt ended with the killed controller, that the merged result is what a direct
computation gives, that the slices went, and that neither a process nor a file is left. The demo succeeds if all of
them hold.
"""

from __future__ import annotations

import contextlib
import logging
import re
import signal
import sysconfig
import time
from collections.abc import Collection, Iterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import attrs

from iriscw.cli.demo.controllers import DemoFleet, FirstController
from iriscw.cli.demo.leftovers import files_in, processes_in
from iriscw.cli.demo.picture import Killed
from iriscw.cli.demo.view import DemoView
from iriscw.cli.demo.workload import Index, index_files, index_share, merge, sources, summary
from iriscw.cli.outcome import CheckFailed, run_async
from iriscw.client.client import Client, connect
from iriscw.client.job import Job
from iriscw.client.model import LogLine, TaskStatus
from iriscw.cluster import worker_processes_in
from iriscw.jobs.model import TaskState
from iriscw.processes.identity import send_signal
from iriscw.resources import Resources
from iriscw.rpc.tokens import read_token_file

LOOK_EVERY_S: Final = 0.25
"""How often the slices are looked at: nothing streams them."""

TO_ZERO_WITHIN_S: Final = 20.0
"""The delay before idle slices go, a few times over."""

GONE_WITHIN_S: Final = 5.0
"""Until the last processes are reaped after the cluster has closed."""

COMPARED_FILES: Final = 10
"""Files that this process indexes between two looks at the view and at Ctrl-C: a few tenths of a second."""

AT_WORK: Final = (TaskState.ASSIGNED, TaskState.BUILDING, TaskState.RUNNING)

NOT_RUNNING: Final = (TaskState.PENDING, TaskState.ASSIGNED, TaskState.BUILDING)

_BYTES = re.compile(r"(\d+) bytes$")


@attrs.frozen
class Options:
    """What can be chosen."""

    fleet: DemoFleet = attrs.field(factory=DemoFleet)
    replicas: int = 4
    seconds: float = 4.0
    """How long a task works at least: long enough to be killed midway."""
    root: Path = attrs.field(factory=lambda: Path(sysconfig.get_path("stdlib")))


@attrs.define
class Checks:
    """What was claimed, and whether it held."""

    view: DemoView
    failed: list[str] = attrs.field(factory=list)

    def that(self, holds: bool, claim: str, found: object = "", *, tasks: Collection[int] = (), part: str = "") -> None:
        """Note whether a claim holds; ``tasks`` and ``part`` are what it is about, for the view."""
        shown = claim + (f" ({found})" if not holds and found else "")
        self.view.checked(shown, holds=holds, tasks=tasks, part=part)
        if not holds:
            self.failed.append(claim)


def play(view: DemoView, options: Options) -> None:
    """Run the demo. Blocks.

    Raises:
        CheckFailed: a claim did not hold; the text names all such.
        IriscwError: something did not work at all.
    """
    checks = Checks(view)
    began_s = time.monotonic()
    with contextlib.closing(FirstController.start(options.fleet)) as first, _warnings_told(view):
        run_async(_play_on, first, view, options, checks)
    run_async(_nothing_left, first.folder, checks)
    view.say(f"{time.monotonic() - began_s:.1f} s for the first act")
    if checks.failed:
        raise CheckFailed("; ".join(f"not so: {claim}" for claim in checks.failed))


async def _play_on(first: FirstController, view: DemoView, options: Options, checks: Checks) -> None:
    """Play it with a client that both controllers serve, from no slice to no slice."""
    token = read_token_file(first.token_file)
    async with connect(first.address, token) as client, AsyncExitStack() as stack:
        view.part("controller", f"{first.address}  pid {first.process.pid}")
        view.say(f"a controller listens on {first.address}")
        checks.that(not await client.slices(), "there is no slice at first")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch_slices, client, view)
            parts = await _run_job(client, first, stack, view, options, checks)
            await _compare(parts, options, view, checks)
            await _back_to_zero(client, view, checks)
            tasks.cancel_scope.cancel()


async def _watch_slices(client: Client, view: DemoView) -> None:
    while True:
        view.slices(await client.slices())
        await anyio.sleep(LOOK_EVERY_S)


@contextlib.contextmanager
def _warnings_told(view: DemoView) -> Iterator[None]:
    """Have what clients warn of, such as a controller that is away, be a step of the story."""
    teller = _Teller(view)
    log = logging.getLogger("iriscw.client")
    log.addHandler(teller)
    try:
        yield
    finally:
        log.removeHandler(teller)


class _Teller(logging.Handler):
    def __init__(self, view: DemoView) -> None:
        super().__init__(logging.WARNING)
        self._view = view

    def emit(self, record: logging.LogRecord) -> None:
        self._view.say(record.getMessage())


@attrs.define
class _Watched:
    """What is known of the job while it runs."""

    view: DemoView
    first_work: anyio.Event = attrs.field(factory=anyio.Event)
    worker: LogLine | None = None
    bytes_by_attempt: dict[tuple[int, int], int] = attrs.field(factory=dict)
    began_s: float = 0.0

    def line(self, line: LogLine) -> None:
        self.view.log(line)
        self.began_s = self.began_s or time.monotonic()
        found = _BYTES.search(line.text)
        if found is None:
            return
        self.bytes_by_attempt[line.task_index, line.attempt_number] = int(found[1])
        elapsed_s = time.monotonic() - self.began_s
        if elapsed_s > LOOK_EVERY_S:
            self.view.throughput(sum(self.bytes_by_attempt.values()) / elapsed_s)
        if not self.first_work.is_set():
            self.worker = line
            self.first_work.set()


async def _run_job(
    client: Client, first: FirstController, stack: AsyncExitStack, view: DemoView, options: Options, checks: Checks
) -> list[Index]:
    """Run the job, kill a worker and the controller under it, and give what its tasks returned."""
    job = await client.submit(
        index_share,
        str(options.root),
        options.seconds,
        name="index-stdlib",
        replicas=options.replicas,
        resources=Resources(cpu=1, memory="256MiB"),
    )
    view.say(f"{job.id}: {options.replicas} tasks index the Python sources in {options.root}")
    watched = _Watched(view)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_follow_logs, job, watched)
        tasks.start_soon(_follow_status, job, view)
        await watched.first_work.wait()
        assert watched.worker is not None
        await _kill_worker(client, first.folder, job, watched.worker.task_index, view, checks)
        before = {task.index: _latest(task) for task in await job.tasks() if task.state in AT_WORK}
        await _kill_controller(first, view)
        await stack.enter_async_context(options.fleet.cluster(first.folder))
        view.part("controller", f"{first.address}  the next one, in this process")
        view.say("the next controller has taken the cluster over from the journal")
        parts: list[Index] = await job.result()
        after = {task.index: _latest(task) for task in await job.tasks()}
        kept = bool(before) and all(after[index] == number for index, number in before.items())
        claim = f"{len(before)} tasks at work went on without a controller, the same attempts"
        checks.that(kept, claim, f"{after}, were {before}", part="controller")
    return parts


async def _kill_controller(first: FirstController, view: DemoView) -> None:
    """Kill it with all that it knows and has not written down."""
    first.process.kill()
    await anyio.to_thread.run_sync(first.process.wait)
    view.killed(Killed("controller", first.address, first.process.pid))


async def _follow_logs(job: Job, watched: _Watched) -> None:
    async with aclosing(job.logs(follow=True)) as lines:
        async for line in lines:
            watched.line(line)


async def _follow_status(job: Job, view: DemoView) -> None:
    async with aclosing(job.watch()) as statuses:
        async for status in statuses:
            view.job(status, await job.tasks())


async def _kill_worker(client: Client, folder: Path, job: Job, index: int, view: DemoView, checks: Checks) -> None:
    """Kill the worker on which task ``index`` is at work, and see what ran on it tried again."""
    tasks = await job.tasks()
    before = tasks[index]
    process = (await anyio.to_thread.run_sync(worker_processes_in, folder, [before.worker_id]))[before.worker_id]
    workers = [worker for each in await client.slices() for worker in each.workers]
    incarnation = next(each.incarnation for each in workers if each.worker_id == before.worker_id)
    lost = {task.index: _latest(task) for task in tasks if task.worker_id == before.worker_id and task.state in AT_WORK}
    send_signal(process, signal.SIGKILL)
    view.killed(Killed("worker", before.worker_id, process.pid, incarnation, frozenset(lost.items())))
    async with aclosing(job.watch()) as statuses:
        async for status in statuses:
            tasks = await job.tasks()
            for task in tasks:
                if task.index in lost and _latest(task) > lost[task.index] and task.state not in NOT_RUNNING:
                    view.say(f"task {task.index}: attempt {_latest(task)} on {task.worker_id}")
                    del lost[task.index]
            if not lost or status.is_over:
                break
    after = tasks[index]
    checks.that(
        _latest(after) > _latest(before), f"task {index} is tried again after its worker was killed", after.state.value
    )
    checks.that(after.preemptions >= 1 and after.failures == 0, "the loss is not counted as a failure of the task")


def _latest(task: TaskStatus) -> int:
    """Return the number of a task's latest attempt; -1 if there was none."""
    return task.attempts[0].number if task.attempts else -1


async def _compare(parts: list[Index], options: Options, view: DemoView, checks: Checks) -> None:
    merged = merge(parts)
    for line in summary(merged):
        view.say(line)
    paths = await anyio.to_thread.run_sync(sources, options.root)
    view.say(f"the same {len(paths)} files, indexed in this process ...")
    direct: Index = {}
    for begin in range(0, len(paths), COMPARED_FILES):
        some = paths[begin : begin + COMPARED_FILES]
        direct |= await anyio.to_thread.run_sync(index_files, options.root, some)
        view.progress(f"{len(direct)} of {len(paths)} files indexed here", len(direct), len(paths))
    view.progress("")
    checks.that(merged == direct, "the merged result is what a direct computation gives", tasks=range(len(parts)))


async def _back_to_zero(client: Client, view: DemoView, checks: Checks) -> None:
    left = await client.slices()
    with anyio.move_on_after(TO_ZERO_WITHIN_S):
        while left:
            await anyio.sleep(LOOK_EVERY_S)
            left = await client.slices()
    view.slices(left)
    checks.that(not left, "idle slices are given back, to zero", len(left))


async def _nothing_left(folder: Path, checks: Checks) -> None:
    processes = await anyio.to_thread.run_sync(processes_in, folder)
    with anyio.move_on_after(GONE_WITHIN_S):
        while processes:
            await anyio.sleep(LOOK_EVERY_S)
            processes = await anyio.to_thread.run_sync(processes_in, folder)
    checks.that(not processes, "no process is left", "; ".join(processes))
    files = await anyio.to_thread.run_sync(files_in, folder)
    checks.that(not files, "no file is left", "; ".join(files[:3]))
