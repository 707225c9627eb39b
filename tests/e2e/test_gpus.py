"""GPUs of one machine on a real local cluster, with a stand-in for ``nvidia-smi``."""

import os
import uuid
from contextlib import aclosing

import anyio
import pytest

from iriscw.client.submission import Command
from iriscw.cluster import Cluster
from iriscw.config.load import build_config
from iriscw.jobs.model import TaskState
from iriscw.resources import Resources
from iriscw.task.context import context

PATIENCE_S = 60
SMI = """#!/bin/sh
for number in 0 1 2 3; do
    echo "NVIDIA H100 80GB HBM3, GPU-{name}-$number, 81559, $number"
done
"""
WAITS = Command(["sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES $IRIS_GPU_INDICES"; exec sleep 600'])


def seen():
    """Return what a task is told, and what CUDA would show it."""
    return context().gpus, os.environ["CUDA_VISIBLE_DEVICES"], os.environ["NVIDIA_VISIBLE_DEVICES"]


@pytest.fixture
def name(tmp_path, monkeypatch):
    """Four GPUs that no other test knows; give what their UUIDs begin with."""
    name = uuid.uuid4().hex[:8]
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvidia-smi").write_text(SMI.replace("{name}", name))
    (tmp_path / "bin" / "nvidia-smi").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    return f"GPU-{name}-"


def config(port=0, **groups):
    """A cluster of this machine with groups of so many GPUs for each worker."""
    resources = {"cpu": 1, "ram": "1GiB"}
    made = {}
    for group, count in groups.items():
        kind = {"accelerator_type": "gpu", "accelerator_variant": "H100"} if count else {"accelerator_type": "cpu"}
        made[group] = {
            **kind,
            "num_vms": 1,
            "min_slices": 0,
            "max_slices": 3,
            "resources": {**resources, "gpu_count": count},
        }
    return build_config(
        {
            "name": "gpus",
            "platform": {"local": {"boot_delay": "0s"}},
            "controller": {"local": {"port": port}},
            "scale_groups": made,
        }
    )


@pytest.mark.slow
async def test_each_task_has_its_own_gpus(tmp_path, name):
    """Two workers of two GPUs, tasks of one and of none: nobody sees another's, and the listing says whose each is."""
    small = Resources(cpu="100m", memory="64MiB", gpu=1)
    async with Cluster.open(config(own=2), workdir=tmp_path / "work", keep_machines=False) as cluster:
        job = await cluster.client.submit(WAITS, name="four", replicas=4, resources=small)
        with anyio.fail_after(PATIENCE_S):
            said = {}
            async for line in job.logs(follow=True):
                said[line.task_index] = str(line)
                if len(said) == 4:
                    break
        tasks = await job.tasks()
        gpus = [task.attempts[0].gpus for task in tasks]
        assert sorted(gpus) == [(f"{name}{number}",) for number in range(4)]
        assert [said[number] for number in range(4)] == [f"{own} {own[-1]}" for (own,) in gpus]
        assert len({task.worker_id for task in tasks}) == 2
        await job.terminate()
        with anyio.fail_after(PATIENCE_S):
            await job.wait()
        assert [task.attempts[0].gpus for task in await job.tasks()] == gpus
        none = await cluster.client.submit(seen, name="none", resources=Resources(cpu="100m", memory="64MiB"))
        with anyio.fail_after(PATIENCE_S):
            assert await none.result() == [((), "", "void")]


@pytest.mark.slow
async def test_the_assignment_outlives_the_controller(tmp_path, name):
    """The next controller knows it of what runs and of what has ended; another cluster gets none of these GPUs."""
    small = Resources(cpu="100m", memory="64MiB", gpu=2)
    async with Cluster.open(config(own=4), workdir=tmp_path / "work", keep_machines=True) as cluster:
        port = int(cluster.address.rpartition(":")[2])
        over = await cluster.client.submit(seen, name="over", resources=small)
        with anyio.fail_after(PATIENCE_S):
            ((gpus, shown, _),) = await over.result()
        runs = await cluster.client.submit(WAITS, name="runs", resources=small)
        with anyio.fail_after(PATIENCE_S):
            async with aclosing(runs.logs(follow=True)) as lines:
                await anext(lines)
        before = [(await job.tasks())[0].attempts[0].gpus for job in (over, runs)]
    assert (shown, before[0]) == (",".join(gpus), gpus)
    assert len(before[1]) == 2
    async with (
        Cluster.open(config(port, own=4), workdir=tmp_path / "work", keep_machines=False) as cluster,
        Cluster.open(config(own=3), workdir=tmp_path / "other", keep_machines=False) as other,
    ):
        jobs = [await cluster.client.job(job.id) for job in (over, runs)]
        assert [(await job.tasks())[0].attempts[0].gpus for job in jobs] == before
        waits = await other.client.submit(seen, name="waits", resources=small)
        with anyio.fail_after(PATIENCE_S):
            await _said(other, tmp_path / "other", "3 GPUs were promised, and 0 of 4 here are free")
        await jobs[1].terminate()
        assert not (await waits.status()).is_over


async def _said(cluster, folder, text):
    """Wait until a worker of a cluster has said so as it ended."""
    while not any(text in log.read_text() for log in (folder / "platform").rglob("pod.log")):  # noqa: ASYNC110 - a file
        await anyio.sleep(0.1)


@pytest.mark.slow
async def test_gpus_that_nobody_promised_are_nobodys(tmp_path, name):
    """A group without GPUs gets no task that wants one, though the machine has four; it says why."""
    async with Cluster.open(config(cpu=0), workdir=tmp_path / "work", keep_machines=False) as cluster:
        warm = await cluster.client.submit(seen, name="warm", resources=Resources(cpu="100m", memory="64MiB"))
        with anyio.fail_after(PATIENCE_S):
            assert await warm.result() == [((), "", "void")]
        wants = await cluster.client.submit(WAITS, name="wants", resources=Resources(cpu="100m", memory="64MiB", gpu=1))
        with anyio.fail_after(PATIENCE_S):
            async with aclosing(wants.watch()) as watched:
                async for status in watched:
                    if status.reason:
                        break
        assert status.tasks == {TaskState.UNSCHEDULABLE: 1}
        assert "no scale group can ever run this" in status.reason
