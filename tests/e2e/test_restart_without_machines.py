"""A job runs, its controller ends, and so do its machines; the next controller on the same journal goes on.

Nobody saw the machines go, and nobody is left who could tell: the new controller concludes it from what exists. Every
task loses the attempt that it had, which counts as a preemption and never as a failure, and the job ends well, sooner
than a worker would be given up that may still live.
"""

import contextlib
import shutil
import signal
import sys
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for kill_cluster

from kill_cluster import controller_process

from iriscw.client.submission import Command
from iriscw.cloud.drivers.local.folder import Folder
from iriscw.cloud.drivers.local.platform import POD_MARKER
from iriscw.cluster import Cluster
from iriscw.jobs.model import JobState, TaskState
from iriscw.processes.identity import ProcessGone, send_signal
from iriscw.processes.sweep import marked_processes
from iriscw.resources import Resources

pytestmark = pytest.mark.slow

TASKS = 2
ALONE = Resources(cpu="1500m", memory="64MiB")
"""So large that each task has a machine of its own."""

PATIENCE_S = 60
"""For two boots and a restart on a machine with much else to do; a worker that may still live is waited for longer:
a minute until it is missed, and its lease after that."""

WAITING = "import pathlib,sys,time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.05)"


async def begin(client, marker):
    """Submit a job that waits for ``marker``, and return its id when all its tasks run."""
    command = Command((sys.executable, "-c", WAITING, str(marker)))
    job = await client.submit(command, name="waits", replicas=TASKS, resources=ALONE)
    with anyio.fail_after(PATIENCE_S):
        async with aclosing(job.watch()) as statuses:
            async for status in statuses:
                if status.tasks == {TaskState.RUNNING: TASKS}:
                    return job.id
    raise AssertionError("the job ended")


async def ends_well(client, job_id):
    """The job succeeds; each task lost one attempt to the infrastructure and none to itself."""
    job = await client.job(job_id)
    with anyio.fail_after(PATIENCE_S):
        await job.wait()
    ended = await job.status()
    assert (ended.state, ended.preemptions, ended.failures) == (JobState.SUCCEEDED, TASKS, 0)
    tasks = [(task.state, task.preemptions, task.failures) for task in await job.tasks()]
    assert tasks == [(TaskState.SUCCEEDED, 1, 0)] * TASKS


def end_processes(root):
    """Kill every process of the local machines below ``root``, as a power cut does. Blocks."""
    _, pods = Folder(root).load()
    assert len(pods) == TASKS
    left = [pod.uid for pod in pods]
    while left:
        for uid in left:
            for identity in marked_processes({POD_MARKER: uid}):
                with contextlib.suppress(ProcessGone):
                    send_signal(identity, signal.SIGKILL)
        left = [uid for uid in left if marked_processes({POD_MARKER: uid})]


def delete_machines(root):
    """Leave nothing of the local machines below ``root``: no process and no record. Blocks."""
    end_processes(root)
    shutil.rmtree(root / "pools")


def delete_pods(root):
    """Leave nothing of the pods below ``root``; their pools stay, and their nodes. Blocks."""
    end_processes(root)
    for pods in (root / "pools").glob("*/pods"):
        shutil.rmtree(pods)
        pods.mkdir()


@asynccontextmanager
async def local_cluster(folder, *, keep_machines):
    """Yield a cluster in ``folder`` whose machines are deleted when it closes, or kept."""
    described = Cluster.local(nodes=TASKS, cpu=2, boot_delay=0.0, workdir=folder)
    async with Cluster.open(described.config, workdir=folder, keep_machines=keep_machines) as cluster:
        yield cluster


LOSSES = [
    pytest.param(delete_machines, id="machines-deleted"),
    pytest.param(delete_pods, id="pods-deleted"),
    pytest.param(end_processes, id="power-cut"),
]


async def test_a_controller_that_closed_and_took_its_machines_with_it(tmp_path: Path):
    """An embedded cluster deletes its machines when its block ends."""
    marker, folder = tmp_path / "marker", tmp_path / "cluster"
    async with local_cluster(folder, keep_machines=False) as first:
        job_id = await begin(first.client, marker)
    marker.touch()
    async with local_cluster(folder, keep_machines=False) as second:
        await ends_well(second.client, job_id)


@pytest.mark.parametrize("lose", LOSSES)
async def test_a_controller_that_closed_before_its_machines_went(tmp_path: Path, lose):
    """A controller that leaves its machines running finds none of them, or only what they were."""
    marker, folder = tmp_path / "marker", tmp_path / "cluster"
    async with local_cluster(folder, keep_machines=True) as first:
        job_id = await begin(first.client, marker)
    await anyio.to_thread.run_sync(lose, folder / "platform")
    marker.touch()
    async with local_cluster(folder, keep_machines=False) as second:
        await ends_well(second.client, job_id)


@pytest.mark.parametrize("lose", LOSSES)
async def test_a_controller_that_was_killed_before_its_machines_went(tmp_path: Path, lose):
    """The same after ``kill -9``: what is on the disk is enough."""
    marker = tmp_path / "marker"
    async with controller_process(tmp_path, nodes=TASKS) as controller:
        async with controller.client() as client:
            job_id = await begin(client, marker)
        assert await controller.kill() == -signal.SIGKILL
        await anyio.to_thread.run_sync(lose, controller.state_dir / "platform")
        marker.touch()
        await controller.start()
        async with controller.client() as client:
            await ends_well(client, job_id)
