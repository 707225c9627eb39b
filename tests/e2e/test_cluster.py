"""Jobs on a real local cluster, from submission to nothing left."""

import os
import signal
import sys
from contextlib import AsyncExitStack, aclosing

import anyio
import pytest

from iriscw.cli.demo.leftovers import files_in, processes_in
from iriscw.client.client import connect
from iriscw.client.errors import JobExists, JobFailed, NoSuchJob
from iriscw.client.submission import Command
from iriscw.cluster import Cluster, ClusterNotRunning
from iriscw.errors import UsageError
from iriscw.jobs.model import JobState, TaskState
from iriscw.processes.identity import send_signal
from iriscw.resources import Resources
from iriscw.rpc.errors import NeedsAsyncio, Unauthenticated
from iriscw.task.context import context

SMALL = Resources(cpu="250m", memory="64MiB")
PATIENCE_S = 60
"""A cluster on a busy machine; each step takes a second or two otherwise."""


def square_of_index(base):
    """Use the context and print."""
    index = context().index
    sys.stdout.write(f"task {index}\n")
    return (base + index) ** 2


def fail(text):
    """Raise from a frame of its own."""
    raise ValueError(text)


async def test_callables_return_in_task_order(cluster):
    """Values come back in the order of the tasks, and the log has what they printed."""
    job = await cluster.client.submit(square_of_index, 10, name="squares", replicas=3, resources=SMALL)
    with anyio.fail_after(PATIENCE_S):
        lines = sorted([str(line) async for line in job.logs(follow=True)])
        assert await job.result() == [100, 121, 144]
    assert lines == ["task 0", "task 1", "task 2"]
    assert (await job.status()).tasks == {TaskState.SUCCEEDED: 3}


async def test_a_traceback_reaches_the_submitter(cluster):
    """A callable that raises makes the job fail, and its result an error with the traceback."""
    job = await cluster.client.submit(fail, "too small", name="fails", resources=SMALL)
    with anyio.fail_after(PATIENCE_S), pytest.raises(JobFailed, match="ValueError: too small") as caught:
        await job.result()
    assert "in fail" in str(caught.value)
    assert (caught.value.state, caught.value.task_index) == ("FAILED", 0)


async def test_commands_see_their_task(cluster):
    """A command has the documented variables; its exit code is the task's."""
    script = 'echo "$IRIS_TASK_INDEX/$IRIS_NUM_TASKS $GREETING"; exit 7'
    command = Command(["sh", "-c", script])
    job = await cluster.client.submit(command, name="sh", resources=SMALL, environment={"GREETING": "hi"})
    with anyio.fail_after(PATIENCE_S):
        assert (await job.wait()).state is JobState.FAILED
    assert [str(line) async for line in job.logs()] == ["0/1 hi"]
    [task] = await job.tasks()
    assert task.attempts[0].exit_code == 7


async def test_a_job_is_stopped(cluster):
    """Ending a job ends its process, and its name can be used again."""
    sleeper = Command(["sh", "-c", "echo up; exec sleep 1000"])
    job = await cluster.client.submit(sleeper, name="sleeper", resources=SMALL)
    with pytest.raises(JobExists):
        await cluster.client.submit(sleeper, name="sleeper", resources=SMALL)
    assert (await cluster.client.submit(sleeper, name="sleeper", resources=SMALL, existing="keep")).id == job.id
    with anyio.fail_after(PATIENCE_S):
        async with aclosing(job.logs(follow=True)) as lines:
            assert str(await anext(lines)) == "up"
        await job.terminate("enough")
        status = await job.wait()
    assert status.state is JobState.KILLED
    assert [seen.id for seen in await cluster.client.jobs(states=[JobState.KILLED])] == [job.id]


async def test_a_killed_worker_costs_a_preemption(cluster):
    """A worker that dies takes its attempt with it; the task is tried again and succeeds."""
    script = '[ "$(cat "$0" 2>/dev/null)" ] && exit 0; echo began > "$0"; echo began; exec sleep 1000'
    marker = cluster.workdir / "marker"
    job = await cluster.client.submit(Command(["sh", "-c", script, str(marker)]), name="once", resources=SMALL)
    with anyio.fail_after(PATIENCE_S):
        async with aclosing(job.logs(follow=True)) as lines:
            assert str(await anext(lines)) == "began"
        [task] = await job.tasks()
        send_signal((await cluster.worker_processes())[task.worker_id], signal.SIGKILL)
        assert (await job.wait()).state is JobState.SUCCEEDED
    [task] = await job.tasks()
    assert (task.preemptions, task.failures, task.attempts[0].number) == (1, 0, 1)


def submit_another():
    """Inside a task: find the controller without being told, and run a child."""

    async def child():
        async with connect() as client:
            job = await client.submit(os.getcwd, name="child", resources=Resources(cpu="100m", memory="64MiB"))
            return (await job.status()).parent_job_id

    return anyio.run(child)


async def test_a_task_is_a_client(cluster):
    """Inside a task connect() needs no argument, and the new job knows its parent."""
    job = await cluster.client.submit(submit_another, name="parent", resources=SMALL)
    with anyio.fail_after(PATIENCE_S):
        assert await job.result() == [job.id]


async def test_a_policy_keeps_a_node_warm():
    """Without any job there is the node that the policy wants, and no other."""
    async with Cluster.local(nodes=2, boot_delay=0.0, policy=lambda view: 1) as cluster:
        with anyio.fail_after(PATIENCE_S):
            while cluster.statistics().workers_connected == 0:  # noqa: ASYNC110 - what is waited for has no event
                await anyio.sleep(0.05)
        assert cluster.statistics().workers_connected == 1


async def test_nothing_is_left_and_two_fit():
    """Two clusters in one process do not disturb each other, and both leave nothing, busy or not."""
    async with Cluster.local(nodes=1, boot_delay=0.0) as one, Cluster.local(nodes=1, boot_delay=0.0) as two:
        assert one.address != two.address
        folders = [one.workdir, two.workdir]
        job = await one.client.submit(Command(["sh", "-c", "echo up; exec sleep 1000"]), name="busy", resources=SMALL)
        with anyio.fail_after(PATIENCE_S):
            async with aclosing(job.logs(follow=True)) as lines:
                assert str(await anext(lines)) == "up"
        assert processes_in(folders[0])
        assert await two.client.jobs() == []
        with pytest.raises(NoSuchJob):
            await two.client.job(job.id)
        async with connect(two.address, one.admin_token) as stranger:
            with pytest.raises(Unauthenticated):
                await stranger.status()
        assert two.statistics().workers_connected == 0
    with pytest.raises(ClusterNotRunning):
        _ = one.client
    assert [processes_in(folder) for folder in folders] == [[], []]
    assert [files_in(folder) for folder in folders] == [[], []]


async def test_a_folder_that_was_given_stays(tmp_path):
    """With a folder of the user's own a later cluster knows the jobs of the earlier one."""
    async with Cluster.local(nodes=1, boot_delay=0.0, workdir=tmp_path) as first:
        job = await first.client.submit(square_of_index, 2, name="kept", resources=SMALL)
        with anyio.fail_after(PATIENCE_S):
            assert await job.result() == [4]
    async with Cluster.local(nodes=1, boot_delay=0.0, workdir=tmp_path) as second:
        again = await second.client.job(job.id)
        assert (again.seen.state, await again.result()) == (JobState.SUCCEEDED, [4])


async def test_a_client_outlives_the_controller(tmp_path):
    """A client that waits when the controller goes finds the next one on the same address, and misses nothing."""
    made = Cluster.local(nodes=1, boot_delay=0.0, workdir=tmp_path).config
    script = "while ! [ -e " + str(tmp_path / "go") + " ]; do sleep 0.1; done; echo end"
    ended, statuses = anyio.Event(), []

    async def wait(job):
        statuses.append(await job.wait())
        ended.set()

    with anyio.fail_after(2 * PATIENCE_S):
        async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
            async with Cluster.open(made, workdir=tmp_path, keep_machines=True) as first:
                client = await stack.enter_async_context(connect(first.address, first.admin_token))
                command = Command(["sh", "-c", f"echo begin; {script}"])
                job = await client.submit(command, name="long", resources=SMALL)
                tasks.start_soon(wait, job)
                async with aclosing(job.logs(follow=True)) as lines:
                    assert str(await anext(lines)) == "begin"
            (tmp_path / "go").touch()
            async with Cluster.open(made, workdir=tmp_path):  # on the same port, as it was free
                assert [str(line) async for line in job.logs(follow=True)][-1] == "end"
                await ended.wait()
    assert [status.state for status in statuses] == [JobState.SUCCEEDED]


async def test_an_error_in_the_block_is_the_users():
    """What the block raises comes out as it is, and everything is cleaned up."""
    folders = []

    async def block():
        async with Cluster.local(nodes=1) as cluster:
            folders.append(cluster.workdir)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await block()
    assert files_in(folders[0]) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"nodes": 0}, "nodes"),
        ({"nodes": "2"}, "nodes"),
        ({"boot_delay": -1}, "boot_delay"),
        ({"memory": "1 cup"}, "1 cup"),
    ],
)
def test_slips_are_named(options, said):
    """An option that cannot be is refused before anything starts."""
    with pytest.raises(UsageError, match=said):
        Cluster.local(**options)


def test_other_loops_are_refused():
    """On trio a cluster says that it needs asyncio, before it makes anything."""
    cluster = Cluster.local(nodes=1)

    async def use():
        async with cluster:
            pass

    with pytest.raises(NeedsAsyncio, match="asyncio"):
        anyio.run(use, backend="trio")
    with pytest.raises(ClusterNotRunning):
        _ = cluster.workdir
