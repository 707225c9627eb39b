"""Jobs on a real local cluster, from submission to nothing left."""

import asyncio
import ctypes
import errno
import functools
import os
import signal
import subprocess
import sys
from contextlib import AsyncExitStack, aclosing

import anyio
import pytest

from iriscw._errors import JournalLost, UsageError
from iriscw.cli.demo.leftovers import files_in, processes_in
from iriscw.client.client import connect
from iriscw.client.errors import JobExists, JobFailed, NoSuchJob, NotConnected
from iriscw.client.submission import Command
from iriscw.cluster import Cluster, ClusterNotRunning
from iriscw.jobs.model import JobState, TaskState
from iriscw.processes.identity import send_signal
from iriscw.resources import Resources
from iriscw.rpc.errors import NeedsAsyncio, Unauthenticated, WrongLoop
from iriscw.task.context import context
from raised import that

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


async def test_callables_return_in_task_order(shared_cluster):
    """Values come back in the order of the tasks, and the log has what they printed."""
    job = await shared_cluster.client.submit(square_of_index, 10, name="squares", replicas=3, resources=SMALL)
    with anyio.fail_after(PATIENCE_S):
        lines = sorted([str(line) async for line in job.logs(follow=True)])
        assert await job.result() == [100, 121, 144]
    assert lines == ["task 0", "task 1", "task 2"]
    assert (await job.status()).tasks == {TaskState.SUCCEEDED: 3}


async def test_a_traceback_reaches_the_submitter(shared_cluster):
    """A callable that raises makes the job fail, and its result an error with the traceback."""
    job = await shared_cluster.client.submit(fail, "too small", name="fails", resources=SMALL)
    with anyio.fail_after(PATIENCE_S), pytest.raises(JobFailed, check=that(names="ValueError")) as caught:
        await job.result()
    assert "in fail" in str(caught.value)
    assert (caught.value.state, caught.value.task_index) == ("FAILED", 0)


async def test_commands_see_their_task(shared_cluster):
    """A command has the documented variables; its exit code is the task's."""
    script = 'echo "$IRIS_TASK_INDEX/$IRIS_NUM_TASKS $GREETING"; exit 7'
    command = Command(["sh", "-c", script])
    job = await shared_cluster.client.submit(command, name="sh", resources=SMALL, environment={"GREETING": "hi"})
    with anyio.fail_after(PATIENCE_S):
        assert (await job.wait()).state is JobState.FAILED
    assert [str(line) async for line in job.logs()] == ["0/1 hi"]
    [task] = await job.tasks()
    assert task.attempts[0].exit_code == 7


def makes_a_ring():
    """Ask for an io_uring, and have a child ask for one: give what the kernel says."""
    code = "import ctypes; c = ctypes.CDLL(None, use_errno=True); c.syscall(425, 0, None); print(ctypes.get_errno())"
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall(425, 0, None)
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    return ctypes.get_errno(), int(child.stdout)


@pytest.mark.slow
async def test_a_freezable_task_gets_no_io_uring(shared_cluster):
    """From the submission to the kernel: the call is answered as if there were none, below the task as well."""
    job = await shared_cluster.client.submit(makes_a_ring, name="ring", resources=SMALL, freezable=True)
    with anyio.fail_after(PATIENCE_S):
        assert await job.result() == [(errno.ENOSYS, errno.ENOSYS)]


async def test_a_job_is_stopped(shared_cluster):
    """Ending a job ends its process, and its name can be used again."""
    sleeper = Command(["sh", "-c", "echo up; exec sleep 1000"])
    job = await shared_cluster.client.submit(sleeper, name="sleeper", resources=SMALL)
    with pytest.raises(JobExists):
        await shared_cluster.client.submit(sleeper, name="sleeper", resources=SMALL)
    assert (await shared_cluster.client.submit(sleeper, name="sleeper", resources=SMALL, existing="keep")).id == job.id
    with anyio.fail_after(PATIENCE_S):
        async with aclosing(job.logs(follow=True)) as lines:
            assert str(await anext(lines)) == "up"
        await job.terminate("enough")
        status = await job.wait()
    assert status.state is JobState.KILLED
    assert [seen.id for seen in await shared_cluster.client.jobs(states=[JobState.KILLED])] == [job.id]


@pytest.mark.slow
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


@pytest.mark.slow
async def test_a_task_is_a_client(cluster):
    """Inside a task connect() needs no argument, and the new job knows its parent."""
    job = await cluster.client.submit(submit_another, name="parent", resources=SMALL)
    with anyio.fail_after(PATIENCE_S):
        assert await job.result() == [job.id]


def submit_two_and_wait(detached_name, bound_name):
    """Inside a task: submit a child that is detached and one that is not, and wait for ever."""

    async def children():
        async with connect() as client:
            sleep = Command(["sleep", "1000"])
            await client.submit(sleep, name=detached_name, resources=SMALL, detached=True)
            await client.submit(sleep, name=bound_name, resources=SMALL)
            sys.stdout.write("submitted\n")
            sys.stdout.flush()
            await anyio.sleep_forever()

    anyio.run(children)


@pytest.mark.slow
async def test_children_end_with_their_parent(cluster):
    """A parent that is killed takes the jobs of its tasks with it, but those that are detached."""
    parent = await cluster.client.submit(submit_two_and_wait, "free", "bound", name="parent", resources=SMALL)
    with anyio.fail_after(PATIENCE_S):
        async with aclosing(parent.logs(follow=True)) as lines:
            assert str(await anext(lines)) == "submitted"
        free, bound = [await cluster.client.job(name) for name in ("free", "bound")]
        await parent.terminate("enough")
        assert (await bound.wait()).state is JobState.KILLED
        assert parent.id in (await bound.status()).reason
        assert not (await free.status()).is_over


def namespaces(depth):
    """Inside a task: give its namespace, and that of a child's child, if one is asked for."""

    async def below():
        async with connect() as client:
            job = await client.submit(namespaces, depth - 1, name=f"depth-{depth}", resources=SMALL)
            return (await job.result())[0]

    return [context().namespace, *(anyio.run(below) if depth else ())]


@pytest.mark.slow
async def test_a_namespace_is_the_root_job(cluster):
    """A job that nobody's task submitted is its own namespace, and that of all that descend from it."""
    job = await cluster.client.submit(namespaces, 2, name="top", resources=SMALL)
    with anyio.fail_after(PATIENCE_S):
        assert await job.result() == [[job.id] * 3]


@pytest.mark.slow
async def test_a_policy_keeps_a_node_warm():
    """Without any job there is the node that the policy wants, and no other."""
    async with Cluster.local(nodes=2, boot_delay=0.0, policy=lambda view: 1) as cluster:
        with anyio.fail_after(PATIENCE_S):
            while cluster.statistics().workers_connected == 0:  # noqa: ASYNC110 - what is waited for has no event
                await anyio.sleep(0.05)
        assert cluster.statistics().workers_connected == 1


@pytest.mark.slow
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


@pytest.mark.slow
async def test_a_folder_that_was_given_stays(tmp_path):
    """With a folder of the user's own a later cluster knows the jobs of the earlier one."""
    async with Cluster.local(nodes=1, boot_delay=0.0, workdir=tmp_path) as first:
        job = await first.client.submit(square_of_index, 2, name="kept", resources=SMALL)
        with anyio.fail_after(PATIENCE_S):
            assert await job.result() == [4]
    async with Cluster.local(nodes=1, boot_delay=0.0, workdir=tmp_path) as second:
        again = await second.client.job(job.id)
        assert (again.seen.state, await again.result()) == (JobState.SUCCEEDED, [4])


@pytest.mark.slow
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


async def test_a_cluster_is_left_by_another_task():
    """As fixtures of test frameworks and cells of a notebook do it; what is raised in between is their affair."""
    cluster = Cluster.local(nodes=1)
    await asyncio.create_task(cluster.__aenter__())
    folder = cluster.workdir
    assert await asyncio.create_task(cluster.client.jobs()) == []
    mine = ExceptionGroup("mine", [ExceptionGroup("inner", [ValueError(1)])])
    await asyncio.create_task(cluster.__aexit__(type(mine), mine, None))
    assert files_in(folder) == []
    with pytest.raises(ClusterNotRunning):
        _ = cluster.client


async def test_the_hosts_groups_come_out_as_they_were():
    """A group of one is not unwrapped: that the cluster uses groups, too, is nobody's business."""
    mine = ExceptionGroup("mine", [ExceptionGroup("inner", [ValueError(1)])])
    with pytest.raises(ExceptionGroup) as caught:
        async with Cluster.local(nodes=1):
            raise mine
    assert caught.value is mine


async def test_what_ends_the_controller_reaches_the_block():
    """The host's code is cancelled, and the block raises what happened, by name."""

    async def host():
        async with Cluster.local(nodes=1) as cluster:
            cluster._controller.system._tree.lose(JournalLost("the disk failed"))
            await anyio.sleep(PATIENCE_S)

    with pytest.raises(JournalLost):
        await host()
    await anyio.lowlevel.checkpoint()


async def test_another_loop_is_named_at_once(shared_cluster):
    """A client and its jobs belong to the loop of their block; elsewhere they say so instead of waiting for ever."""
    job = await shared_cluster.client.submit(Command(["true"]), name="here", resources=SMALL)
    for use in (shared_cluster.client.jobs, job.wait, job.status, lambda: shared_cluster.__aexit__(None, None, None)):
        with pytest.raises(WrongLoop):
            await anyio.to_thread.run_sync(anyio.run, use)
    assert (await job.wait(PATIENCE_S)).state is JobState.SUCCEEDED


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"nodes": 0}, that(comes_from="cluster._count")),
        ({"nodes": "2"}, that(comes_from="cluster._count")),
        ({"boot_delay": -1}, that(names="boot_delay")),
        ({"memory": "1 cup"}, that(comes_from="load._build", names="1")),
    ],
)
def test_slips_are_named(options, said):
    """An option that cannot be is refused before anything starts."""
    with pytest.raises(UsageError, check=said):
        Cluster.local(**options)


def test_with_instead_of_async_with():
    """What was forgotten is named; nothing is made."""
    for block, error in ((Cluster.local(nodes=1), ClusterNotRunning), (connect("127.0.0.1:1", "t"), NotConnected)):
        with pytest.raises(error, check=that(names="iriscw.blocking")), block:
            pytest.fail("it was entered")


async def test_other_loops_are_refused():
    """On trio a cluster says that it needs asyncio, before it makes anything."""
    cluster = Cluster.local(nodes=1)

    async def use():
        async with cluster:
            pass

    with pytest.raises(NeedsAsyncio):
        await anyio.to_thread.run_sync(functools.partial(anyio.run, use, backend="trio"))
    with pytest.raises(ClusterNotRunning):
        _ = cluster.workdir
