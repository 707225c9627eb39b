"""The workers' door: who is let in, what is kept back, what is acknowledged, how streams replace each other."""

import hashlib

import anyio
import pytest
from controller_world import CLIENTS, WORKERS, FakeWorker, World

from iriscw._errors import InvalidArgument
from iriscw.controller.doors.rules import CHUNK_BYTES
from iriscw.controller.doors.workers import SEEN_INTERVAL_S
from iriscw.proto.iriscw import v1
from iriscw.rpc.errors import PermissionDenied, VersionMismatch
from iriscw.rpc.pacing import Turnstile
from iriscw.rpc.tokens import Secret
from raised import that
from waiting import until


async def dial(world: World, token: Secret, hello: v1.WorkerMessage) -> v1.ControllerMessage | None:
    """Open a stream, send one message, give the first answer."""
    async with (
        world.channel(token) as channel,
        channel.bidi(WORKERS + "Connect", v1.WorkerMessage, v1.ControllerMessage) as call,
    ):
        await call.send(hello)
        with anyio.fail_after(10):
            return await call.receive()


def hello(worker_id: str, incarnation: str = "i", version: int = 1) -> v1.WorkerMessage:
    """A worker's first message."""
    return v1.WorkerMessage(
        hello=v1.Hello(protocol_version=version, worker_id=worker_id, incarnation=incarnation, capacity=v1.Amount())
    )


async def test_tokens_are_bound(world: World) -> None:
    """A worker's token opens the stream of its own incarnation only, an admin's none."""
    token = world.tokens.worker_token("iris-cpu-x-0", "i")
    for wrong in (hello("iris-cpu-x-1"), hello("iris-cpu-x-0", "j")):
        with pytest.raises(PermissionDenied):
            await dial(world, token, wrong)
    with pytest.raises(PermissionDenied):
        await dial(world, world.controller.admin_token, hello("iris-cpu-x-0"))


async def test_first_message(world: World) -> None:
    """A stream that does not begin with a Hello of this version is refused by name."""
    token = world.tokens.worker_token("iris-cpu-x-0", "i")
    with pytest.raises(InvalidArgument, check=that(names="Hello")):
        await dial(world, token, v1.WorkerMessage(heartbeat=v1.Heartbeat(sequence=1)))
    with pytest.raises(VersionMismatch):
        await dial(world, token, hello("iris-cpu-x-0", version=2))


@pytest.mark.parametrize("worker_id", ["iris-cpu-x-0", "nobody", "a/b", "iris-cpu-"])
async def test_unknown_worker(world: World, worker_id: str) -> None:
    """A worker that the fleet does not expect is refused, with a reason."""
    answer = await dial(world, world.tokens.worker_token(worker_id, "i"), hello(worker_id))
    assert answer is not None
    assert answer.refused is not None
    assert answer.refused.reason is v1.RefusalReason.UNKNOWN_WORKER
    assert worker_id in answer.refused.text


async def test_worker_with_too_little(world: World) -> None:
    """A worker that has less than its group promises is refused for that."""
    await world.submit()
    await until(lambda: world.cloud.pods)
    async with world.worker() as worker:
        pass
    answer = await dial(
        world,
        world.tokens.worker_token(worker.worker_id, worker.incarnation),
        hello(worker.worker_id, worker.incarnation),
    )
    assert answer is not None
    assert answer.refused is not None
    assert answer.refused.reason is v1.RefusalReason.CAPACITY


async def test_later_stream_supersedes(world: World) -> None:
    """A worker that dials twice keeps the later stream; the earlier one is told and ended."""
    job = await world.submit()
    async with world.worker(manual=True) as first:
        await until(lambda: first.runs)
        async with FakeWorker(world, first.worker_id, first.incarnation, memory=first.held) as second:
            await until(lambda: any(message.refused for message in first.received))
            reasons = [message.refused.reason for message in first.received if message.refused]
            assert reasons == [v1.RefusalReason.SUPERSEDED]
            await until(lambda: second.runs)
            (uid,) = second.runs
            await second.finish(uid)
            assert (await world.until_over(job.job_id))[-1].state is v1.JobState.SUCCEEDED


async def test_streams_that_begin_at_once(world: World) -> None:
    """Of streams of one worker that dial at the same moment one stays, the others are told; the attempt ends once."""
    job = await world.submit()
    async with world.worker(manual=True) as first:
        await until(lambda: first.runs)
        [uid] = first.runs
        over = anyio.Event()

        async def dialled(stream: FakeWorker) -> None:
            async with stream:
                await over.wait()

        async with anyio.create_task_group() as tasks:
            streams = [
                FakeWorker(world, first.worker_id, first.incarnation, manual=True, memory=dict(first.held))
                for _ in range(6)
            ]
            for stream in streams:
                tasks.start_soon(dialled, stream)
            await until(lambda: sum(any(each.refused for each in stream.received) for stream in streams) == 5)
            [last] = [stream for stream in streams if not any(each.refused for each in stream.received)]
            reasons = {each.refused.reason for stream in streams for each in stream.received if each.refused}
            assert reasons == {v1.RefusalReason.SUPERSEDED}
            await last.finish(uid)
            status = (await world.until_over(job.job_id))[-1]
            assert (status.state, status.failures, status.preemptions) == (v1.JobState.SUCCEEDED, 0, 0)
            over.set()


async def test_end_waits_for_the_result(world: World) -> None:
    """An end is shown only when its result is here and has the hash that was named."""
    job = await world.submit()
    async with world.worker(manual=True) as worker:
        await until(lambda: worker.runs)
        (uid,) = worker.runs
        data = b"value"
        reference = v1.ResultRef(size_bytes=5, sha256=hashlib.sha256(data).digest(), python_version="3.11")
        await worker.observe(uid, v1.TaskState.SUCCEEDED, result=reference)
        await worker.call.send(v1.WorkerMessage(result=v1.ResultChunk(attempt_uid=uid, offset=0, data=b"wrong")))
        await until(lambda: any(message.result_ack for message in worker.received))
        await until(lambda: sum(bool(message.result_ack) for message in worker.received) == 3)
        acks = [message.result_ack.offset for message in worker.received if message.result_ack]
        assert acks == [0, 5, 0], "all of it is wanted again"
        assert (await world.status(job.job_id)).state is v1.JobState.RUNNING
        await worker.call.send(v1.WorkerMessage(result=v1.ResultChunk(attempt_uid=uid, offset=0, data=data)))
        assert (await world.until_over(job.job_id))[-1].state is v1.JobState.SUCCEEDED


async def test_log_chunks_are_acknowledged(world: World) -> None:
    """Each chunk is answered with the offset to go on from: gaps and repetitions change nothing, strangers' neither."""
    await world.submit()
    async with world.worker(manual=True) as worker:
        await until(lambda: worker.runs)
        (uid,) = worker.runs
        for offset, data in ((0, b"abc"), (0, b"abc"), (9, b"zz"), (2, b"cd")):
            await worker.write(uid, offset, data)
        await worker.write("f" * 16, 0, b"nobody's")
        await worker.call.send(v1.WorkerMessage(heartbeat=v1.Heartbeat(sequence=7)))
        await until(lambda: any(message.heartbeat_ack for message in worker.received))
        acks = [message.log_ack for message in worker.received if message.log_ack]
        assert [(ack.attempt_uid, ack.offset) for ack in acks] == [(uid, 3), (uid, 3), (uid, 3), (uid, 4)]


def orders(worker: FakeWorker) -> list[int]:
    """Of each message with orders to run, how many there were in it."""
    found = []
    for message in worker.received:
        for each in message.batch.messages if message.batch is not None else ():
            assert each.batch is None
        together = message.batch.messages if message.batch is not None else [message]
        runs = sum(each.run is not None for each in together)
        runs += len(message.desired_set.attempts) if message.desired_set is not None else 0
        if runs:
            found.append(runs)
    return found


@pytest.mark.parametrize(("takes_batches", "expected"), [(True, [30, 30]), (False, [30, *[1] * 30])])
async def test_orders_travel_in_one_message(world: World, takes_batches: bool, expected: list[int]) -> None:
    """What a worker is ordered at once it is sent at once, and let go at once; one of an older release one by one."""
    await world.submit("k1", name="first", replicas=30)
    async with world.worker(manual=True, takes_batches=takes_batches) as worker:
        await until(lambda: len(worker.runs) == 30)
        for uid in list(worker.runs):
            await worker.finish(uid)
        await until(lambda: len(worker.forgotten) == 30)
        await world.submit("k2", name="second", replicas=30)
        await until(lambda: len(worker.runs) == 60)
        assert orders(worker) == expected


async def test_orders_take_turns(world: World) -> None:
    """An order waits twice for room in a turn, by the attempts in it: to be prepared, and to be written."""

    class Recording(Turnstile):
        """Lets all in, and notes how much that is."""

        async def passed(self, weight: int = 1) -> None:
            asked.append(weight)

    asked: list[int] = []
    door = world.controller.features.parts["jobs"].workers
    door.ordering = Recording(1)
    await world.submit(replicas=3)
    async with world.worker(manual=True) as worker:
        await until(lambda: len(worker.runs) == 3)
        assert sorted(asked)[-2:] == [3, 3]


async def test_a_restart_knows_attempts_that_said_nothing(world: World) -> None:
    """Attempts are opened without a file each, and a controller that comes back believes the worker that has them."""
    job = await world.submit(replicas=30)
    async with world.worker(manual=True) as worker:
        await until(lambda: len(worker.runs) == 30)
    folder = world.state / "logs" / job.job_id
    assert [path.name for path in folder.iterdir()] == ["attempts"]
    await world.restart()
    async with world.worker(memory=worker.held) as again:
        await until(lambda: any(message.desired_set for message in again.received))
        for uid in worker.runs:
            await again.finish(uid)
        assert (await world.until_over(job.job_id))[-1].state is v1.JobState.SUCCEEDED
        assert not again.stops


async def test_a_heartbeat_that_says_nothing_new(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is answered at once and the fleet is not told of each; only what waits for a log hears that time passes."""
    door = world.controller.features.parts["jobs"].workers
    passed, told = [], []
    pass_time, tell = door.intake.pass_time, door._tell_fleet

    async def passing(connection) -> None:
        passed.append(connection.key)
        await pass_time(connection)

    monkeypatch.setattr(door.intake, "pass_time", passing)
    monkeypatch.setattr(door, "_tell_fleet", lambda *of: (told.append(of), tell(*of)))
    await world.submit()
    async with world.worker(manual=True) as worker:
        await until(lambda: worker.runs)
        (uid,) = worker.runs

        async def beat(first: int, count: int) -> None:
            for sequence in range(first, first + count):
                await worker.call.send(v1.WorkerMessage(heartbeat=v1.Heartbeat(sequence=sequence)))
            last = v1.HeartbeatAck(sequence=first + count - 1)
            await until(lambda: any(message.heartbeat_ack == last for message in worker.received))

        began, before = anyio.current_time(), len(told)
        await beat(1, 200)
        assert passed == []
        assert len(told) - before <= 1 + (anyio.current_time() - began) / SEEN_INTERVAL_S
        await worker.finish(uid, log_end_offset=5)  # of which nothing has come
        await beat(201, 3)
        assert len(passed) == 3


async def test_stop_names_its_reason(world: World) -> None:
    """A job that is terminated has its attempts stopped, and ends when they have ended."""
    job = await world.submit()
    request = v1.TerminateJobRequest(job=v1.JobRef(job_id=job.job_id))
    async with world.worker(manual=True) as worker:
        await until(lambda: worker.runs)
        await world.call("TerminateJob", request, v1.TerminateJobResponse)
        await until(lambda: worker.stops)
        assert worker.stops[0].reason is v1.StopReason.KILLED
        assert worker.stops[0].grace_ms > 0
        await worker.finish(worker.stops[0].attempt_uid, v1.TaskState.KILLED)
        assert (await world.until_over(job.job_id))[-1].state is v1.JobState.KILLED


async def test_order_that_never_arrived(world: World) -> None:
    """An attempt whose worker never heard of it is over as soon as the worker says what it has, if it is to stop."""
    job = await world.submit()
    async with world.worker(manual=True) as worker:
        await until(lambda: worker.runs)
    request = v1.TerminateJobRequest(job=v1.JobRef(job_id=job.job_id))
    await world.call("TerminateJob", request, v1.TerminateJobResponse)
    async with world.worker(manual=True):
        assert (await world.until_over(job.job_id))[-1].state is v1.JobState.KILLED


async def test_bundle_is_fetched_from_an_offset(world: World) -> None:
    """A worker reads a bundle from where its download broke off."""
    data = bytes(range(256)) * 4096
    bundle_id = hashlib.sha256(data).hexdigest()
    header = v1.BundleHeader(bundle_id=bundle_id, size_bytes=len(data))
    pieces = [data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)]
    parts = [v1.PutBundleRequest(header=header), *(v1.PutBundleRequest(data=piece) for piece in pieces)]
    await world.client.client_stream(CLIENTS + "PutBundle", parts, v1.PutBundleRequest, v1.PutBundleResponse)
    request = v1.GetBundleRequest(bundle_id=bundle_id, offset=1000)
    async with (
        world.channel(world.tokens.worker_token("w-0", "i")) as channel,
        channel.server_stream(WORKERS + "GetBundle", request, v1.BundleChunk) as chunks,
    ):
        found = [chunk async for chunk in chunks]
    assert b"".join(chunk.data for chunk in found) == data[1000:]
    assert found[0].offset == 1000
    assert {chunk.total_bytes for chunk in found} == {len(data)}
