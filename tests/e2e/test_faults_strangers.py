"""Whoever knocks without a right to, or with another protocol, or with lies: refused by name, and nobody else waits."""

import contextlib
import hashlib
import sys
from pathlib import Path

import anyio
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for kill_cluster

import os

from kill_cluster import PATIENCE_S, SMALL, controller_process, still_serves

from iriscw.client.calls import SERVICE
from iriscw.client.errors import JobFailed
from iriscw.client.submission import Command
from iriscw.jobs.model import JobState
from iriscw.proto.iriscw import v1
from iriscw.resources import Resources
from iriscw.rpc.client import RpcChannel
from iriscw.rpc.errors import PermissionDenied, Unauthenticated, VersionMismatch
from iriscw.rpc.tokens import Secret, read_token_file
from iriscw.task.result import encode_value
from raised import that

pytestmark = pytest.mark.slow

CONNECT = "/iriscw.v1.WorkerService/Connect"
GIB = 1 << 30
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def token_of_worker(cluster):
    """The token of the one worker, with its id and incarnation."""
    [path] = (cluster.workdir / "secrets" / "workers").iterdir()
    worker_id, _, incarnation = path.name.rpartition("-")
    return read_token_file(path), worker_id, incarnation


async def dial(cluster, token, hello):
    """Open a worker's stream; give the first answer."""
    async with (
        RpcChannel(cluster.address, token) as channel,
        channel.bidi(CONNECT, v1.WorkerMessage, v1.ControllerMessage) as call,
    ):
        await call.send(v1.WorkerMessage(hello=hello))
        with anyio.fail_after(PATIENCE_S):
            return await call.receive()


async def knock(cluster, data):
    """Send bytes without a right to; give what comes back before the door is closed."""
    host, _, port = cluster.address.partition(":")
    answer = b""
    async with await anyio.connect_tcp(host, int(port)) as stream:
        with anyio.fail_after(PATIENCE_S), contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            await stream.send(data)
            while True:
                answer += await stream.receive()
    return answer


async def test_tokens_open_their_own_door(cluster):
    """No token, a wrong one, and a worker's at the clients' door: each is refused by name, and changes nothing."""
    await still_serves(cluster.client)
    token, worker_id, incarnation = token_of_worker(cluster)
    refusals = ((None, Unauthenticated), (Secret("wrong" * 8), Unauthenticated), (token, PermissionDenied))
    for given, error in refusals:
        async with RpcChannel(cluster.address, given) as channel:
            for method, request in (("ListJobs", v1.ListJobsRequest()), ("SubmitJob", v1.SubmitJobRequest(name="x"))):
                with pytest.raises(error):
                    await channel.unary(SERVICE + method, request, v1.ListJobsResponse)
    hello = v1.Hello(protocol_version=1, worker_id=worker_id, incarnation=incarnation, capacity=v1.Amount())
    for given, error in ((None, Unauthenticated), (cluster.admin_token, PermissionDenied)):
        with pytest.raises(error):
            await dial(cluster, given, hello)
    await still_serves(cluster.client)
    assert {job.name for job in await cluster.client.jobs()} == {"after-the-fault"}


async def test_noise_and_patience(cluster):
    """Garbage is answered with the end of the connection; those who send nothing keep nobody waiting."""
    await still_serves(cluster.client)
    host, _, port = cluster.address.partition(":")
    async with contextlib.AsyncExitStack() as slow:
        for start in [
            b"PRI * HT",
            b"\0" * 4096,
            b"\x16\x03\x01" * 400,
        ] * 34:  # beginnings, and no more: they wait in vain
            stream = await slow.enter_async_context(await anyio.connect_tcp(host, int(port)))
            await stream.send(start)
        for noise in (b"GET " + b"a" * 65536, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"?" * 99):
            answer = await knock(cluster, noise)
            assert len(answer) < 1024
            assert b"iriscw" not in answer.lower()
        assert b" 401 " in await knock(cluster, b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        await still_serves(cluster.client)


async def test_another_protocol(cluster):
    """A client and a worker of another protocol are refused with both versions named."""
    await still_serves(cluster.client)
    async with RpcChannel(cluster.address, cluster.admin_token) as channel:
        with pytest.raises(VersionMismatch, check=that(names=("1", "2"))):
            await channel.unary(
                SERVICE + "ListJobs", v1.ListJobsRequest(), v1.ListJobsResponse, metadata={"iriscw-protocol": "2"}
            )
    token, worker_id, incarnation = token_of_worker(cluster)
    hello = v1.Hello(protocol_version=2, worker_id=worker_id, incarnation=incarnation, capacity=v1.Amount())
    with pytest.raises(VersionMismatch, check=that(names=("1", "2"))):
        await dial(cluster, token, hello)
    await still_serves(cluster.client)


async def test_a_worker_that_has_less(tmp_path):
    """A worker with less than its group promises gets no work: the reason says what is short, and jobs can be ended."""
    async with (
        controller_process(tmp_path, nodes=1, memory="4000TiB") as controller,
        controller.client() as client,
    ):
        job = await client.submit(Command(["true"]), name="waits", resources=SMALL)
        with anyio.fail_after(PATIENCE_S):
            while not await is_too_small(client):  # noqa: ASYNC110 - the wire has no stream of slices
                await anyio.sleep(0.1)
        assert (await job.status()).state is JobState.PENDING
        assert (await job.terminate()).state is JobState.KILLED
        assert [pool.scale_group for pool in await client.pools()] == ["local"]


async def is_too_small(client):
    """Whether a slice says that its worker has too little memory."""
    return any("less than scale group 'local' promises: memory" in each.reason for each in await client.slices())


async def test_a_worker_that_claims_more(cluster):
    """A worker that says it has everything, and then vanishes: what it was given is done by others."""
    await still_serves(cluster.client)
    token, worker_id, incarnation = token_of_worker(cluster)
    much = v1.Amount(cpu_milli=1_000_000, memory_bytes=1000 * GIB)
    hello = v1.Hello(protocol_version=1, worker_id=worker_id, incarnation=incarnation, capacity=much)
    answer = await dial(cluster, token, hello)
    assert answer.welcome is not None
    job = await cluster.client.submit(Command(["true"]), name="given", replicas=5, resources=SMALL)
    with anyio.fail_after(PATIENCE_S):
        assert (await job.wait()).state is JobState.SUCCEEDED
    await still_serves(cluster.client)


async def planted(cluster, token, worker_id, incarnation, uid, value):
    """Say with one worker's right token that the attempt ``uid`` has ended and returned ``value``."""
    data = encode_value(value)
    result = v1.ResultRef(size_bytes=len(data), sha256=hashlib.sha256(data).digest(), python_version=PYTHON)
    over = v1.AttemptObserved(attempt_uid=uid, state=v1.TaskState.SUCCEEDED, was_started=True, result=result)
    much = v1.Amount(cpu_milli=1_000_000, memory_bytes=1000 * GIB)
    hello = v1.Hello(protocol_version=1, worker_id=worker_id, incarnation=incarnation, capacity=much)
    messages = [
        v1.WorkerMessage(hello=hello),
        v1.WorkerMessage(log=v1.LogChunk(attempt_uid=uid, offset=0, data=b"planted\n")),
        v1.WorkerMessage(result=v1.ResultChunk(attempt_uid=uid, offset=0, data=data)),
        v1.WorkerMessage(observed=over),
        v1.WorkerMessage(heartbeat=v1.Heartbeat(sequence=1)),
    ]
    async with (
        RpcChannel(cluster.address, token) as channel,
        channel.bidi(CONNECT, v1.WorkerMessage, v1.ControllerMessage) as call,
    ):
        for message in messages:
            await call.send(message)
        with anyio.fail_after(PATIENCE_S):
            async for message in call:
                assert message.refused is None, message.refused
                assert message.log_ack is None
                assert message.result_ack is None
                if message.heartbeat_ack is not None:  # all before it was read
                    return


async def test_a_stolen_token_of_a_worker(cluster, tmp_path):
    """Whoever has a worker's token says what he likes of its attempts, and nothing of any other worker's."""
    await still_serves(cluster.client)
    token, worker_id, incarnation = token_of_worker(cluster)
    ready, gate = tmp_path / "ready", tmp_path / "gate"
    whole = Resources(cpu="1", memory="32MiB")
    waiting = f"import os, time\nopen({str(ready)!r} + os.environ['IRIS_WORKER_ID'], 'w').close()"
    code = f"{waiting}\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.02)\nprint('right')"
    job = await cluster.client.submit(Command([sys.executable, "-c", code]), name="two", replicas=2, resources=whole)
    with anyio.fail_after(PATIENCE_S):
        while len(list(tmp_path.glob("ready*"))) < 2:  # noqa: ASYNC110 - two processes that were started
            await anyio.sleep(0.05)
    [others] = [task for task in await job.tasks() if task.worker_id != worker_id]
    await planted(cluster, token, worker_id, incarnation, others.attempts[0].uid, "planted")
    assert (await job.status()).state is JobState.RUNNING
    gate.touch()
    with anyio.fail_after(PATIENCE_S):
        assert await job.result() == [None, None]
        lines = [line.text async for line in job.logs(task=others.index)]
    assert lines == ["right"]
    await still_serves(cluster.client)


async def test_a_task_that_would_keep_the_controller_busy(cluster):
    """A task submits a million empty messages with its own token: it is refused by name; nobody's lease runs out."""

    def crowd():

        import anyio

        from iriscw._errors import IriscwError
        from iriscw.proto.iriscw import v1
        from iriscw.rpc.client import RpcChannel
        from iriscw.rpc.tokens import read_token_file

        class Crowd(v1.SubmitJobRequest):
            def __bytes__(self):
                return b"".join([b"\x42\x00"] * 1_000_000)

        async def submit():
            from pathlib import Path

            token = read_token_file(Path(os.environ["IRIS_TOKEN_FILE"]))
            request = v1.SubmitJobRequest()
            request.__class__ = Crowd
            async with RpcChannel(os.environ["IRIS_CONTROLLER_ADDRESS"], token) as channel:
                try:
                    await channel.unary("/iriscw.v1.ControllerService/SubmitJob", request, v1.SubmitJobResponse)
                except IriscwError as error:
                    return f"{type(error).__name__}: {error}"

        return anyio.run(submit)

    gate = Command(["sleep", "600"])  # it is ended below
    async with contextlib.AsyncExitStack() as stack:
        victim = await cluster.client.submit(gate, name="victim", resources=SMALL)
        stack.push_async_callback(victim.terminate)
        job = await cluster.client.submit(crowd, name="crowd", resources=SMALL)
        with anyio.fail_after(PATIENCE_S):
            [said] = await job.result()
        assert said.startswith("MessageTooLarge: a SubmitJobRequest of more than 10000 parts")
        assert (await victim.status()).preemptions == 0
    await still_serves(cluster.client)


@pytest.mark.parametrize(("size_bytes", "kind"), [(100, "FrameCorrupt"), ((18 << 20) + 1, "ResultUnreadable")])
async def test_a_task_that_spoils_its_result(cluster, size_bytes, kind):
    """It has failed, whatever its exit code is; it is tried again as often as failures are, and the error says why."""

    def spoil():

        with open(".iris/result", "wb") as file:  # noqa: PTH123 - it is pickled by value
            file.truncate(size_bytes)
        os._exit(0)

    job = await cluster.client.submit(spoil, name="spoilt", resources=SMALL, max_retries_failure=1)
    with anyio.fail_after(PATIENCE_S), pytest.raises(JobFailed, check=that(names=kind)):
        await job.result()
    status = await job.status()
    assert (status.state, status.failures, status.preemptions) == (JobState.FAILED, 2, 0)
    await still_serves(cluster.client)
