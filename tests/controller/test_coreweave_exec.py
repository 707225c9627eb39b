"""Commands beside tasks on ``coreweave``: into the worker's pod, or the task's own, of a served simulation.

The inside of a container is this machine: a process stands for the attempt, and what is run in a pod runs here.
"""

import asyncio
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import pytest
from controller_world import CLIENTS, submission
from coreweave_world import PODS, GpuWorker, Handed, configuration, serving

from iriscw.cloud.drivers.kube.access import find_access
from iriscw.cloud.drivers.kube.task_pods import open_task_pods
from iriscw.cloud.kube.tasks import TaskOwner, TaskPod, TaskPods
from iriscw.cloud.model import Capacity
from iriscw.jobs.errors import CommandKilled, TaskNotRunning
from iriscw.proto.iriscw import v1
from iriscw.rpc.client import RpcChannel
from waiting import until

sys.path.insert(0, str(Path(__file__).parents[1] / "cloud" / "drivers" / "kube"))

from local_streams import LocalStreams

GROUP = {"task_runtime": "pod", "task_image": "registry.test/task:1"}


class Streams(LocalStreams):
    """Notes in which container of which pod something was run."""

    def __init__(self, folder):
        super().__init__(folder)
        self.entered = []

    async def exec(self, command, streams, now):
        self.entered.append((command.pod["metadata"]["name"], command.container))
        return await super().exec(command, streams, now)


@contextmanager
def attempt(folder, uid):
    """A process that has what an attempt's program has."""
    folder.mkdir()
    environment = {"IRIS_ATTEMPT_UID": uid, "IRIS_TASK_ID": "t/0", "SECRET": "a b", "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(["sleep", "600"], env=environment, cwd=folder) as process:
        try:
            yield process
        finally:
            process.kill()


async def run(channel, job_id, *argv):
    """Run a command; give its outputs and its code."""
    request = v1.ExecTaskRequest(job=v1.JobRef(job_id=job_id), argv=[*argv])
    async with channel.server_stream(CLIENTS + "ExecTask", request, v1.ExecTaskReply) as replies:
        said = [reply async for reply in replies]
    outputs = (b"".join(getattr(each, name) or b"" for each in said) for name in ("stdout", "stderr"))
    return *outputs, said[-1].exit_code


@asynccontextmanager
async def running(tmp_path, streams, **group):
    """A controller with a worker that has an attempt."""
    async with serving(tmp_path, streams) as cluster:
        config = configuration(cluster.kubeconfig, **group)
        async with (
            cluster.controller(config) as controller,
            RpcChannel(controller.address, controller.admin_token) as channel,
        ):
            request = submission("k1", resources=v1.Amount(cpu_milli=100, memory_bytes=1 << 20))
            job = await channel.unary(CLIENTS + "SubmitJob", request, v1.SubmitJobResponse)
            (pod,) = await cluster.until(PODS, lambda found: found and found[0]["status"].get("phase") == "Running")
            told = {each["name"]: each for each in pod["spec"]["containers"][0]["env"]}
            token = await cluster.token_of(pod["metadata"]["name"])
            names = (told[name]["value"] for name in ("IRIS_WORKER_ID", "IRIS_INCARNATION"))
            async with GpuWorker(Handed(controller, token), *names, manual=True) as worker:
                await until(lambda: worker.runs)
                while True:
                    tasks = v1.ListTasksRequest(job=v1.JobRef(job_id=job.job_id))
                    page = await channel.unary(CLIENTS + "ListTasks", tasks, v1.ListTasksResponse)
                    if page.tasks[0].state is v1.TaskState.RUNNING:
                        break
                    await anyio.sleep(0.01)
                yield cluster, channel, job.job_id, worker, await cluster.one(PODS)


SCRIPT = 'pwd; echo "$SECRET"; echo err >&2; exit 3'


async def test_beside_a_process_of_the_worker(tmp_path):
    """In its pod: where the attempt is, and only while it is."""
    (tmp_path / "pods").mkdir()
    streams = Streams(tmp_path / "pods")
    async with running(tmp_path, streams) as (_, channel, job_id, worker, pod), asyncio.timeout(60):
        (uid,) = worker.runs
        with pytest.raises(TaskNotRunning):
            await run(channel, job_id, "true")
        with attempt(tmp_path / "work", uid) as process:
            found = await run(channel, job_id, "sh", "-c", SCRIPT)
            assert found == (f"{tmp_path}/work\na b\n".encode(), b"err\n", 3)
            ending = asyncio.create_task(run(channel, job_id, "sh", "-c", "touch begun; exec sleep 600"))
            await until((tmp_path / "work" / "begun").exists)
            process.kill()
            with pytest.raises(CommandKilled):
                await ending
    assert set(streams.entered) == {(pod["metadata"]["name"], "worker")}
    assert not any("a b" in word for argv in streams.argvs for word in argv)


async def test_in_the_pod_that_a_task_has(tmp_path):
    """It is found by the attempt; without one nothing is run anywhere else."""
    (tmp_path / "pods").mkdir()
    streams = Streams(tmp_path / "pods")
    async with running(tmp_path, streams, **GROUP) as (cluster, channel, job_id, worker, pod), asyncio.timeout(60):
        (uid,) = worker.runs
        with pytest.raises(TaskNotRunning):
            await run(channel, job_id, "true")
        assert not streams.entered
        labels = pod["metadata"]["labels"]
        owner = TaskOwner(
            pod["metadata"]["name"],
            pod["metadata"]["uid"],
            pod["spec"]["nodeName"],
            labels["iris-worker-id"],
            labels["iris-incarnation"],
        )
        pods = TaskPods(
            cluster=labels["iris-cluster"],
            namespace="iris",
            image="registry.test/task:1",
            cache_dir="/var/cache/iris",
            node_cache_dir="/mnt/local/iris",
            promise=Capacity(4000, 4 << 30),
        )
        async with open_task_pods(pods, owner, await find_access(cluster.kubeconfig)) as own:
            made = await own.create(TaskPod(uid, "t/0", "w/a", "w/tasks", ("python3",), Capacity(100, 1 << 20)))
            await cluster.until(
                PODS,
                lambda found: found[0]["status"]["phase"] == "Running",
                f"iris-managed=task,iris-cluster={labels['iris-cluster']}",
            )
            with attempt(tmp_path / "work", uid):
                assert (await run(channel, job_id, "sh", "-c", SCRIPT))[1:] == (b"err\n", 3)
        assert streams.entered == [(made.name, "task")]
