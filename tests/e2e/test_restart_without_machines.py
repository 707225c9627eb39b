"""A controller that closes in order takes its machines with it; the next one on the same folder goes on."""

import sys
from contextlib import aclosing
from pathlib import Path

import anyio

from iriscw.client.submission import Command
from iriscw.cluster import Cluster
from iriscw.jobs.model import TaskState
from iriscw.resources import Resources

SMALL = Resources(cpu="250m", memory="64MiB")
PATIENCE_S = 30
"""Shorter than the grace for workers that may still live: a loss that is certain waits for no clock."""

WAITING = "import pathlib,sys,time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.05)"


async def test_running_tasks_are_placed_again_when_their_machines_are_gone(tmp_path: Path):
    """The attempt counts as lost as soon as the new controller has listed what exists; the job ends well."""
    marker = tmp_path / "marker"
    folder = tmp_path / "cluster"
    async with Cluster.local(nodes=1, boot_delay=0.0, workdir=folder) as first:
        command = Command((sys.executable, "-c", WAITING, str(marker)))
        job = await first.client.submit(command, name="waits", resources=SMALL)
        with anyio.fail_after(PATIENCE_S):
            async with aclosing(job.watch()) as statuses:
                async for status in statuses:
                    if status.tasks == {TaskState.RUNNING: 1}:
                        break
    marker.touch()
    async with Cluster.local(nodes=1, boot_delay=0.0, workdir=folder) as second:
        with anyio.fail_after(PATIENCE_S):
            again = await second.client.job(job.id)
            await again.wait()
            ended = await again.status()
            assert (ended.tasks, ended.preemptions, ended.failures) == ({TaskState.SUCCEEDED: 1}, 1, 0)
