"""What users and their code get wrong, on a real cluster: a clear error or reason, and the cluster goes on."""

import sys
import threading
from pathlib import Path

import anyio
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for kill_cluster

import os

from kill_cluster import PATIENCE_S, SMALL, controller_process, resident_bytes, still_serves

from iriscw._errors import InvalidArgument
from iriscw.client.calls import SERVICE
from iriscw.client.client import PAGE
from iriscw.client.errors import JobFailed, PythonNotSupported
from iriscw.client.submission import Command
from iriscw.jobs.messages import MAX_PAGE
from iriscw.jobs.model import MAX_REPLICAS, JobState, TaskState
from iriscw.proto.iriscw import v1
from iriscw.resources import Resources
from iriscw.rpc.client import RpcChannel
from iriscw.rpc.tokens import Secret
from iriscw.task.framing import python_name, this_python
from iriscw.task.payload import NotPicklable, PayloadTooLarge
from raised import that

MIB = 1 << 20


@pytest.fixture
def cluster(shared_cluster):
    """The one of this file."""
    return shared_cluster


@pytest.mark.slow
async def test_what_no_machine_has(cluster):
    """A task larger than any group is given up at once, with the numbers; other jobs are not held up."""
    wish = Resources(cpu=64, memory="1TiB")
    with anyio.fail_after(PATIENCE_S):
        job = await cluster.client.submit(Command(["true"]), name="huge", resources=wish)
        assert (await job.wait()).state is JobState.UNSCHEDULABLE
        await still_serves(cluster.client)
    [task] = await job.tasks()
    assert (task.state, task.attempts) == (TaskState.UNSCHEDULABLE, ())
    assert "no scale group can ever run this: local: its workers are too small (64 CPU asked, " in task.reason
    assert "; 1TiB memory asked, " in task.reason
    assert (await job.status()).reason == task.reason


@pytest.mark.slow
async def test_what_cannot_be_sent(cluster):
    """A callable that cannot be pickled, or is too large, is refused before anything travels, and says what it is."""
    lock = threading.Lock()
    before = await cluster.client.jobs()
    with pytest.raises(NotPicklable, check=that(names="lock")):
        await cluster.client.submit(lambda: lock, name="lock", resources=SMALL)
    with pytest.raises(PayloadTooLarge, check=that(comes_from="submission._entrypoint")):
        await cluster.client.submit(len, bytes(5 * MIB), name="large", resources=SMALL)
    assert len(await cluster.client.jobs()) == len(before)
    await still_serves(cluster.client)


@pytest.mark.slow
async def test_a_missing_binary(cluster):
    """A program that is not there fails the task, once, by name."""
    job = await cluster.client.submit(Command(["/no/such/program"]), name="missing", resources=SMALL)
    with anyio.fail_after(PATIENCE_S):
        assert (await job.wait()).state is JobState.FAILED
    [task] = await job.tasks()
    [attempt] = task.attempts
    assert "/no/such/program" in attempt.fault
    assert (task.failures, task.preemptions) == (1, 0)
    await still_serves(cluster.client)


@pytest.mark.slow
async def test_another_python(cluster):
    """A callable of another Python never reaches an interpreter that it would crash: it is refused at once."""
    called = v1.Callable(payload=b"not to be read", python_version="3.99", display_name="theirs")
    amount = v1.Amount(cpu_milli=100, memory_bytes=MIB)
    entrypoint = v1.Entrypoint(callable=called)
    before = await cluster.client.jobs()
    request = v1.SubmitJobRequest(
        name="theirs", replicas=1, entrypoint=entrypoint, resources=amount, idempotency_key="theirs"
    )
    async with RpcChannel(cluster.address, cluster.admin_token) as channel:
        with pytest.raises(
            PythonNotSupported,
            check=that(names=python_name(this_python())),
        ):
            await channel.unary(SERVICE + "SubmitJob", request, v1.SubmitJobResponse)
    assert len(await cluster.client.jobs()) == len(before)
    await still_serves(cluster.client)


@pytest.mark.slow
async def test_a_hundred_thousand_replicas(tmp_path):
    """The most replicas are accepted, listed by pages and ended, in bounded memory; one more is refused."""
    async with controller_process(tmp_path, nodes=1) as controller, controller.client() as client:
        await still_serves(client)
        before = resident_bytes(controller.pid)
        command = Command(["sleep", "1000"])
        with pytest.raises(InvalidArgument, check=that(names=str(MAX_REPLICAS))):
            await client.submit(command, name="more", replicas=MAX_REPLICAS + 1, resources=SMALL)
        job = await client.submit(command, name="most", replicas=MAX_REPLICAS, resources=SMALL)
        with anyio.fail_after(PATIENCE_S):
            async for status in job.watch():
                if status.tasks.get(TaskState.RUNNING):
                    break
            async with RpcChannel(controller.address, Secret(controller.token)) as channel:
                request = v1.ListTasksRequest(job=v1.JobRef(job_id=job.id), page_size=MAX_REPLICAS)
                page = await channel.unary(SERVICE + "ListTasks", request, v1.ListTasksResponse, safe=True)
            assert len(page.tasks) == MAX_PAGE
            assert page.next_page_token == str(MAX_PAGE)
            assert (await job.terminate()).num_tasks == MAX_REPLICAS
            assert (await job.wait()).tasks == {TaskState.KILLED: MAX_REPLICAS}
        assert resident_bytes(controller.pid) - before < 400 * MIB
        assert PAGE <= MAX_PAGE
        await still_serves(client)


LINE = "import sys; [sys.stdout.write('x' * (1 << 20)) for _ in range({mib})]; sys.stdout.write('\\nend\\n')"


async def line_of(tmp_path, *, mib):
    """Write one line, and give what the log has of it and by how much the two processes grew meanwhile."""
    async with controller_process(tmp_path, nodes=1) as controller, controller.client() as client:
        await still_serves(client)
        [worker] = worker_pids(tmp_path)
        before = {pid: resident_bytes(pid) for pid in (controller.pid, worker)}
        most = dict(before)
        job = await client.submit(Command([sys.executable, "-c", LINE.format(mib=mib)]), name="l", resources=SMALL)
        with anyio.fail_after(PATIENCE_S + mib):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(observe, most)
                assert (await job.wait()).state is JobState.SUCCEEDED
                tasks.cancel_scope.cancel()
            lines = [str(line) async for line in job.logs(tail=1)]
        [task] = await job.tasks()
        assert lines[-1] == "end"
        await still_serves(client)
        return task.attempts[0].log_end_offset, [most[pid] - before[pid] for pid in most]


async def observe(most):
    """Note the most memory that processes take."""
    while True:
        for pid in most:
            most[pid] = max(most[pid], resident_bytes(pid))
        await anyio.sleep(0.1)


def worker_pids(folder):
    """Find the workers of a cluster in a folder."""
    wanted = str(folder).encode()
    lines = ((path.parent, path.read_bytes().split(b"\0")) for path in Path("/proc").glob("[0-9]*/cmdline"))
    return [int(path.name) for path, line in lines if b"iriscw.worker" in line and any(wanted in part for part in line)]


@pytest.mark.slow
async def test_a_line_of_64_mib(tmp_path):
    """A line without an end passes through worker and controller in pieces: neither grows with it."""
    end, grown = await line_of(tmp_path, mib=64)
    assert end == 64 * MIB + len("\nend\n")
    assert max(grown) < 32 * MIB


@pytest.mark.soak
async def test_a_line_of_1_gib(tmp_path):
    """Sixteen times the line takes no more memory."""
    end, grown = await line_of(tmp_path, mib=1024)
    assert end == 1024 * MIB + len("\nend\n")
    assert max(grown) < 48 * MIB


@pytest.mark.slow
@pytest.mark.parametrize("code", [0, 3])
async def test_a_callable_that_ends_its_process(cluster, code):
    """Nobody has its value, so it has failed, whatever the exit code; `sys.exit(0)` is an end like any other."""

    def leave():

        os._exit(code)

    def exit_well():
        sys.exit(0)

    with anyio.fail_after(PATIENCE_S):
        job = await cluster.client.submit(leave, name="leaves", resources=SMALL)
        with pytest.raises(JobFailed, check=that(names="ResultMissing")) as caught:
            await job.result()
        assert (caught.value.state, f"exit code {code}" in str(caught.value)) == ("FAILED", True)
        well = await cluster.client.submit(exit_well, name="exits", resources=SMALL)
        assert await well.result(timeout_s=PATIENCE_S) == [None]


@pytest.mark.slow
async def test_a_command_that_leaves_a_result(cluster):
    """It is a file like any other: commands have no results, and none is looked at."""
    script = "mkdir -p .iris; echo garbage > .iris/result"
    with anyio.fail_after(PATIENCE_S):
        job = await cluster.client.submit(Command(["sh", "-c", script]), name="litters", resources=SMALL)
        assert await job.result() == [None]
        assert (await (await cluster.client.job("litters")).status()).state == "SUCCEEDED"
        assert [each.id for each in await cluster.client.jobs(states=["SUCCEEDED"])].count(job.id) == 1
