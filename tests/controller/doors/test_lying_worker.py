"""A worker with a right token of its own that speaks of others' attempts, over the real protocol: nobody is harmed."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import pytest
from controller_world import FakeWorker, World, get

from iriscw.cloud.model import LABEL_INCARNATION
from iriscw.proto.iriscw import v1
from waiting import until

LIES = 6
"""Messages that `plant` sends."""

RIGHT, PLANTED = b"what the first returned", b"a pickle of the second's"


def reference(data: bytes, size_bytes: int | None = None) -> v1.ResultRef:
    """Describe a result."""
    digest = hashlib.sha256(data).digest()
    return v1.ResultRef(
        size_bytes=len(data) if size_bytes is None else size_bytes, sha256=digest, python_version="3.11"
    )


async def send_result(worker: FakeWorker, uid: str, data: bytes) -> None:
    """Send a result in one piece."""
    await worker.call.send(v1.WorkerMessage(result=v1.ResultChunk(attempt_uid=uid, offset=0, data=data)))


async def plant(liar: FakeWorker, uid: str) -> None:
    """Say everything of an attempt that a worker can say of one of its own."""
    seen = {"attempt_uid": uid, "was_started": True, "exit": v1.ProcessExit(code=0), "result": reference(PLANTED)}
    lie = v1.AttemptObserved(state=v1.TaskState.SUCCEEDED, log_end_offset=8, **seen)
    await liar.write(uid, 0, b"planted\n")
    await send_result(liar, uid, PLANTED)
    await liar.call.send(v1.WorkerMessage(observed=lie))
    await liar.call.send(v1.WorkerMessage(observed_set=v1.ObservedSet(round=0, attempts=[lie])))
    await send_result(liar, uid, PLANTED)
    running = v1.AttemptObserved(attempt_uid=uid, state=v1.TaskState.RUNNING, was_started=True)
    await liar.call.send(v1.WorkerMessage(observed=running))


async def heard(worker: FakeWorker, sequence: int) -> None:
    """Wait until the controller has read all that the worker sent."""
    await worker.call.send(v1.WorkerMessage(heartbeat=v1.Heartbeat(sequence=sequence)))
    await until(lambda: any(each.heartbeat_ack and each.heartbeat_ack.sequence == sequence for each in worker.received))


async def results(world: World, job_id: str) -> bytes:
    """All that a job's tasks returned."""
    parts = await world.stream("GetResults", v1.GetResultsRequest(job=v1.JobRef(job_id=job_id)), v1.ResultPart)
    return b"".join(part.data for part in parts)


async def metrics(world: World) -> str:
    """What a scraper sees."""
    return (await get(world, "/metrics", world.controller.admin_token.reveal()))[1].decode()


@asynccontextmanager
async def pair(world: World) -> AsyncIterator[tuple[FakeWorker, FakeWorker, str, str]]:
    """Two workers, each with the attempt of a job of its own; and these jobs."""
    whole = v1.Amount(cpu_milli=4000, memory_bytes=1 << 20)
    jobs = [(await world.submit(key, name=key, resources=whole)).job_id for key in ("k1", "k2")]
    await until(lambda: len(world.cloud.pods) == 2)
    async with AsyncExitStack() as stack:
        workers = []
        for pod in list(world.cloud.pods.values()):
            incarnation = pod.labels[LABEL_INCARNATION]
            worker = FakeWorker(world, pod.name.removesuffix(f"-{incarnation}"), incarnation, manual=True)
            workers.append(await stack.enter_async_context(worker))
        await until(lambda: all(worker.runs for worker in workers))
        first, second = workers
        [run] = first.runs.values()
        if run.task_id.startswith(jobs[1]):
            jobs.reverse()
        yield first, second, jobs[0], jobs[1]


async def test_lies_are_counted(world: World) -> None:
    """Whoever scrapes the controller sees that a worker speaks of attempts that it was not given, and how often."""
    async with pair(world) as (first, liar, _, _):
        [uid] = first.runs
        assert "iriscw_worker_strangers_total 0.0" in await metrics(world)
        await plant(liar, uid)
        await heard(liar, 1)
        assert f"iriscw_worker_strangers_total {LIES:.1f}" in await metrics(world)


async def test_a_planted_result(world: World) -> None:
    """A job's result, log and end are those of the worker that has its attempt, whatever another says first or last."""
    async with pair(world) as (first, liar, job_id, liars_job):
        [uid], [own] = first.runs, liar.runs
        await plant(liar, uid)
        await heard(liar, 1)
        assert (await world.status(job_id)).state is v1.JobState.RUNNING
        assert await world.logs(job_id) in ({}, {0: b""})
        await first.write(uid, 0, b"right\n")
        await send_result(first, uid, RIGHT)
        await first.observe(
            uid, v1.TaskState.SUCCEEDED, exit=v1.ProcessExit(), log_end_offset=6, result=reference(RIGHT)
        )
        assert (await world.until_over(job_id))[-1].state is v1.JobState.SUCCEEDED
        await plant(liar, uid)
        await heard(liar, 2)
        assert (await results(world, job_id), await world.logs(job_id)) == (RIGHT, {0: b"right\n"})
        assert not first.stops
        assert not [each for each in liar.received if each.result_ack or each.log_ack]
        assert {each.attempt_uid for each in liar.stops} == {uid}, "it is told that it should have no such attempt"
        # Its stream goes on, and so does its own work.
        await liar.write(own, 0, b"mine\n")
        await send_result(liar, own, PLANTED)
        await liar.observe(
            own, v1.TaskState.SUCCEEDED, exit=v1.ProcessExit(), log_end_offset=5, result=reference(PLANTED)
        )
        assert (await world.until_over(liars_job))[-1].state is v1.JobState.SUCCEEDED
        assert (await results(world, liars_job), await world.logs(liars_job)) == (PLANTED, {0: b"mine\n"})


@pytest.mark.parametrize("state", [v1.TaskState.FAILED, v1.TaskState.KILLED, v1.TaskState.MISSING])
async def test_a_planted_end(world: World, state: v1.TaskState) -> None:
    """No attempt is over because a worker says so that does not have it; nor is its log, for whoever follows it."""
    followed = {}

    async def follow(job_id: str) -> None:
        followed.update(await world.logs(job_id, follow=True))

    async with pair(world) as (first, liar, job_id, _), anyio.create_task_group() as tasks:
        [uid] = first.runs
        await first.write(uid, 0, b"go\n")
        await heard(first, 1)
        lie = v1.AttemptObserved(attempt_uid=uid, state=state, log_end_offset=3)
        await liar.call.send(v1.WorkerMessage(observed=lie))
        await heard(liar, 1)
        tasks.start_soon(follow, job_id)
        assert (await world.status(job_id)).state is v1.JobState.RUNNING
        await first.write(uid, 3, b"on\n")
        await first.finish(uid, log_end_offset=6)
        status = (await world.until_over(job_id))[-1]
        assert (status.state, status.failures, status.preemptions) == (v1.JobState.SUCCEEDED, 0, 0)
    assert followed == {0: b"go\non\n"}


async def test_a_liar_outlives_no_restart(world: World) -> None:
    """Who was given what is known after a restart too, before any order; what was outstanding is delivered then."""
    async with pair(world) as (first, liar, job_id, _):
        [uid] = first.runs
    memory = {uid: v1.AttemptObserved(attempt_uid=uid, state=v1.TaskState.SUCCEEDED, was_started=True)}
    memory[uid].result = reference(RIGHT)
    memory[uid].log_end_offset = 6
    await world.restart()
    async with FakeWorker(world, liar.worker_id, liar.incarnation, manual=True) as again:
        await plant(again, uid)
        await heard(again, 1)
        async with FakeWorker(world, first.worker_id, first.incarnation, manual=True, memory=memory) as owner:
            await send_result(owner, uid, RIGHT)  # as a worker does: once, and before it hears of any order
            await owner.write(uid, 0, b"right\n")
            assert (await world.until_over(job_id))[-1].state is v1.JobState.SUCCEEDED
            await plant(again, uid)
            await heard(again, 2)
            assert (await results(world, job_id), await world.logs(job_id)) == (RIGHT, {0: b"right\n"})


async def test_the_end_waits_for_the_log(world: World) -> None:
    """A worker that comes back with an end delivers all of its log before it is told to forget the attempt."""
    job = await world.submit()
    async with world.worker(manual=True) as worker:
        await until(lambda: worker.runs)
        [uid] = worker.runs
        await worker.finish(uid, log_end_offset=5)
        await heard(worker, 1)
        assert (await world.status(job.job_id)).state is v1.JobState.RUNNING
        assert not worker.forgotten
        await worker.write(uid, 0, b"last\n")
        assert (await world.until_over(job.job_id))[-1].state is v1.JobState.SUCCEEDED
        assert await world.logs(job.job_id) == {0: b"last\n"}


async def test_a_result_that_is_too_big(world: World) -> None:
    """The job has failed by the name of that, and its retries are those of failures."""
    job = await world.submit(max_retries_failure=1)
    async with world.worker(manual=True) as worker:
        for number in (1, 2):
            await until(lambda: len(worker.runs) == number)  # noqa: B023 - it is waited for here
            uid = list(worker.runs)[-1]
            await worker.observe(
                uid, v1.TaskState.SUCCEEDED, exit=v1.ProcessExit(code=0), result=reference(RIGHT, 1 << 40)
            )
        status = (await world.until_over(job.job_id))[-1]
    assert (status.state, status.failures, status.preemptions) == (v1.JobState.FAILED, 2, 0)
    request = v1.ListTasksRequest(job=v1.JobRef(job_id=job.job_id))
    [task] = (await world.call("ListTasks", request, v1.ListTasksResponse)).tasks
    assert task.state is v1.TaskState.FAILED
    assert task.attempts[-1].fault.text.startswith("ResultTooBig: ")
