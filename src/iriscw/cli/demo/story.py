"""The demo's course: from nothing to a result and back to nothing, with a worker killed in between.

Every claim is a check: that there was no slice at first, that the killed worker took a running attempt with it and the
task was tried again, that the merged result is what a direct computation gives, that the slices went, and that neither
a process nor a file is left. The demo succeeds if all of them hold.
"""

from __future__ import annotations

import re
import signal
import sysconfig
import time
from contextlib import aclosing
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import attrs

from iriscw.cli.demo.leftovers import files_in, processes_in
from iriscw.cli.demo.view import View
from iriscw.cli.demo.workload import Index, index_files, index_share, merge, sources, summary
from iriscw.cli.outcome import CheckFailed
from iriscw.client.job import Job
from iriscw.client.model import LogLine, TaskStatus
from iriscw.cluster import Cluster
from iriscw.jobs.model import TaskState
from iriscw.processes.identity import send_signal
from iriscw.resources import Resources

LOOK_EVERY_S: Final = 0.25
"""How often the slices are looked at: nothing streams them."""

TO_ZERO_WITHIN_S: Final = 20.0
"""The delay before idle slices go, a few times over."""

GONE_WITHIN_S: Final = 5.0
"""Until the last processes are reaped after the cluster has closed."""

COMPARED_FILES: Final = 10
"""Files that this process indexes between two looks at the view and at Ctrl-C: a few tenths of a second."""

AT_WORK: Final = (TaskState.ASSIGNED, TaskState.BUILDING, TaskState.RUNNING)

_BYTES = re.compile(r"(\d+) bytes$")


@attrs.frozen
class Options:
    """What can be chosen."""

    nodes: int = 2
    replicas: int = 4
    seconds: float = 4.0
    """How long a task works at least: long enough to be killed midway."""
    boot_delay_s: float = 0.3
    scale_down_delay_s: float = 2.0
    root: Path = attrs.field(factory=lambda: Path(sysconfig.get_path("stdlib")))


@attrs.define
class Checks:
    """What was claimed, and whether it held."""

    view: View
    failed: list[str] = attrs.field(factory=list)

    def that(self, holds: bool, claim: str, found: object = "") -> None:
        """Note whether a claim holds."""
        self.view.say(f"{'ok' if holds else 'NOT SO'}: {claim}" + (f" ({found})" if not holds and found else ""))
        if not holds:
            self.failed.append(claim)


async def play(view: View, options: Options) -> None:
    """Run the demo.

    Raises:
        CheckFailed: a claim did not hold; the text names all such.
        IriscwError: something did not work at all.
    """
    checks = Checks(view)
    began_s = time.monotonic()
    async with Cluster.local(
        nodes=options.nodes,
        cpu=2,
        memory="1GiB",
        boot_delay=options.boot_delay_s,
        scale_down_delay=options.scale_down_delay_s,
    ) as cluster:
        folder = cluster.workdir
        view.say(f"a controller listens on {cluster.address}")
        checks.that(not await cluster.client.slices(), "there is no slice at first")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch_slices, cluster, view)
            parts = await _run_job(cluster, view, options, checks)
            await _compare(parts, options, view, checks)
            await _back_to_zero(cluster, view, checks)
            tasks.cancel_scope.cancel()
    await _nothing_left(folder, checks)
    view.say(f"{time.monotonic() - began_s:.1f} s in all")
    if checks.failed:
        raise CheckFailed("; ".join(f"not so: {claim}" for claim in checks.failed))


async def _watch_slices(cluster: Cluster, view: View) -> None:
    while True:
        view.slices(await cluster.client.slices())
        await anyio.sleep(LOOK_EVERY_S)


@attrs.define
class _Watched:
    """What is known of the job while it runs."""

    view: View
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


async def _run_job(cluster: Cluster, view: View, options: Options, checks: Checks) -> list[Index]:
    """Run the job, kill a worker under it, and give what its tasks returned."""
    job = await cluster.client.submit(
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
        await _kill_worker(cluster, job, watched.worker.task_index, view, checks)
        parts: list[Index] = await job.result()
    return parts


async def _follow_logs(job: Job, watched: _Watched) -> None:
    async with aclosing(job.logs(follow=True)) as lines:
        async for line in lines:
            watched.line(line)


async def _follow_status(job: Job, view: View) -> None:
    async with aclosing(job.watch()) as statuses:
        async for status in statuses:
            view.job(status)


async def _kill_worker(cluster: Cluster, job: Job, index: int, view: View, checks: Checks) -> None:
    """Kill the worker on which task ``index`` is at work, and see what ran on it tried again."""
    tasks = await job.tasks()
    before = tasks[index]
    process = (await cluster.worker_processes())[before.worker_id]
    send_signal(process, signal.SIGKILL)
    view.say(f"SIGKILL to worker {before.worker_id} (pid {process.pid}) while task {index} is at work on it")
    lost = {task.index: _latest(task) for task in tasks if task.worker_id == before.worker_id and task.state in AT_WORK}
    async with aclosing(job.watch()) as statuses:
        async for status in statuses:
            tasks = await job.tasks()
            for task in tasks:
                if task.index in lost and _latest(task) > lost[task.index]:
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
    """Give the number of a task's latest attempt; -1 if there was none."""
    return task.attempts[0].number if task.attempts else -1


async def _compare(parts: list[Index], options: Options, view: View, checks: Checks) -> None:
    merged = merge(parts)
    view.say(f"merged: {summary(merged)}")
    paths = await anyio.to_thread.run_sync(sources, options.root)
    view.say(f"the same {len(paths)} files, indexed in this process ...")
    direct: Index = {}
    for begin in range(0, len(paths), COMPARED_FILES):
        some = paths[begin : begin + COMPARED_FILES]
        direct |= await anyio.to_thread.run_sync(index_files, options.root, some)
        view.progress(f"{len(direct)} of {len(paths)} files indexed here")
    view.progress("")
    checks.that(merged == direct, "the merged result is what a direct computation gives")


async def _back_to_zero(cluster: Cluster, view: View, checks: Checks) -> None:
    left = await cluster.client.slices()
    with anyio.move_on_after(TO_ZERO_WITHIN_S):
        while left:
            await anyio.sleep(LOOK_EVERY_S)
            left = await cluster.client.slices()
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
