"""A job's handle against a scripted controller: waiting, values, logs, and breaks in between."""

import asyncio
import sys
from contextlib import aclosing

import anyio
import pytest
from controller_double import Break, failed_task, job_of, parts_of

from iriscw._errors import InvalidArgument, StrayExit
from iriscw.client import job as job_module
from iriscw.client.errors import JobFailed, ResultDamaged, TaskFailed, ValuesUnreadable, WaitTimeout
from iriscw.jobs.model import JobState, TaskState
from iriscw.proto.iriscw.v1 import Fault, JobState as Wire, LogBatch, TaskCount, TaskState as WireTask
from raised import that

DONE = job_of(Wire.SUCCEEDED, version=3)


async def test_wait_gives_the_last_status(client, controller):
    """Waiting ends with the terminal status."""
    controller.statuses = [job_of(Wire.PENDING), job_of(Wire.RUNNING, version=2), DONE]
    job = await client.job("job-1")
    assert (await job.wait()).state is JobState.SUCCEEDED
    assert job.seen.version == 3


async def test_watch_gives_each_change_once(client, controller):
    """After a break the present status comes again; it is given once."""
    controller.statuses = [job_of(Wire.PENDING), Break(), job_of(Wire.RUNNING, version=2), DONE]
    job = await client.job("job-1")
    states = [status.state.value async for status in job.watch()]
    assert states == ["PENDING", "RUNNING", "SUCCEEDED"]


async def test_wait_has_a_timeout(client, controller):
    """A job that goes on is a named error that says where it stands."""
    controller.statuses = [job_of(Wire.RUNNING, reason="2 of 2 tasks run")]
    controller.job = controller.statuses[0]
    job = await client.job("job-1")
    with pytest.raises(WaitTimeout, check=that(names=("RUNNING", "0.2", "2"))):
        await job.wait(timeout_s=0.2)
    controller.job = job_of(Wire.RUNNING, suspended=2)
    with pytest.raises(WaitTimeout, check=that(names="SUSPENDED")):
        await job.wait(timeout_s=0.05)


async def test_who_gives_up_waiting_hears_the_reason_of_now(client, controller, monkeypatch):
    """A new reason is no change of the job; where nobody can be asked any more, the last one is told."""
    controller.statuses = [job_of(Wire.PENDING, reason="no worker is connected")]
    job = await client.job("job-1")
    controller.job = job_of(Wire.PENDING, reason="1 runs Python 3.11")
    with pytest.raises(WaitTimeout, check=that(names="Python")):
        await job.wait(timeout_s=0.05)
    controller.job.job_id = "another"
    with pytest.raises(WaitTimeout, check=that(names="worker")):
        await job.result(timeout_s=0.05)


async def test_result_gives_values_in_task_order(client, controller):
    """Values are put together from parts, and a break in between costs nothing."""
    controller.statuses = [DONE]
    controller.parts = [*parts_of(0, {"a": 1})[:2], Break(), *parts_of(0, {"a": 1}), *parts_of(1, [2, 3])]
    controller.parts = [*parts_of(0, {"a": 1}), *parts_of(1, [2, 3])]
    controller.parts.insert(4, Break())
    job = await client.job("job-1")
    assert await job.result() == [{"a": 1}, [2, 3]]


class Picky(Exception):
    """Cannot be unpickled: it is made anew without its keyword."""

    def __init__(self, text, *, code):
        super().__init__(text)
        self.code = code


class Leaves:
    """Ends whoever unpickles it."""

    def __reduce__(self):
        return sys.exit, (3,)


async def test_values_that_do_not_unpickle(client, controller):
    """The error names the task, what its pickle raised, and has the values of the others."""
    controller.statuses = [job_of(Wire.SUCCEEDED, version=3, num_tasks=4)]
    values = ["zero", Picky("x", code=1), 2, Leaves()]
    controller.parts = [part for index, value in enumerate(values) for part in parts_of(index, value, 1000)]
    job = await client.job("job-1")
    with pytest.raises(ValuesUnreadable, check=that(comes_from="values.ValueReader.check")) as told:
        await job.result()
    assert told.value.values == ["zero", None, 2, None]
    assert {index: type(cause) for index, cause in told.value.causes.items()} == {1: TypeError, 3: StrayExit}
    assert "missing 1 required keyword-only argument: 'code'" in str(told.value)


async def test_result_has_a_timeout(client, controller):
    """A job that goes on is the same named error; one that ends in time gives its values."""
    controller.statuses = [job_of(Wire.RUNNING, reason="2 of 2 tasks run")]
    controller.job = controller.statuses[0]
    job = await client.job("job-1")
    with pytest.raises(WaitTimeout, check=that(names=("RUNNING", "0.2", "2"))):
        await job.result(timeout_s=0.2)
    controller.statuses = [DONE]
    controller.parts = [*parts_of(0, 1), *parts_of(1, 2)]
    assert await job.result(timeout_s=60) == [1, 2]


async def test_a_failure_in_time_is_no_timeout(client, controller):
    """How the job ended is told, whatever the timeout."""
    controller.statuses = [job_of(Wire.KILLED, version=4, reason="stopped by hand")]
    job = await client.job("job-1")
    with pytest.raises(JobFailed, check=that(state="KILLED")):
        await job.result(timeout_s=60)


async def test_values_as_they_come(client, controller):
    """Each is given once although a break has all of them sent again; then what was lost, in the place of a value."""
    controller.statuses = [job_of(Wire.SUCCEEDED, version=3, num_tasks=3, tasks=[TaskCount(WireTask.FAILED, 1)])]
    controller.parts = [*parts_of(2, "c"), Break(), *parts_of(2, "c"), *parts_of(0, "a")]
    controller.tasks = [failed_task(1, "Traceback ...\nValueError: too small")]
    job = await client.job("job-1")
    *came, (index, lost) = [each async for each in job.results()]
    assert (came, index) == ([(2, "c"), (0, "a")], 1)
    assert isinstance(lost, TaskFailed)
    assert "ValueError: too small" in str(lost)
    assert [*map(str, await job.result())] == ["a", str(lost), "c"]
    controller.statuses = [job_of(Wire.FAILED, version=4, num_tasks=3)]
    values = job.results()
    assert [await anext(values), await anext(values)] == [(2, "c"), (0, "a")]
    with pytest.raises(JobFailed, check=that(names="ValueError")):
        await anext(values)


async def test_the_value_of_one_task(client, controller):
    """A controller that gives those of others as well does no harm; a task that failed says how."""
    controller.job = job_of(Wire.RUNNING)
    controller.parts = [*parts_of(0, "a"), *parts_of(1, "b")]
    job = await client.job("job-1")
    assert await job.result(task=1) == "b"
    controller.parts = parts_of(0, "a")
    controller.tasks = [failed_task(1, "ValueError: too small")]
    with pytest.raises(TaskFailed, check=that(task_index=1, state="FAILED", names="ValueError")):
        await job.result(task=1)
    with pytest.raises(InvalidArgument, check=that(names="2")):
        await job.result(task=2)


async def test_result_of_a_command_is_none(client, controller):
    """Tasks without values give None."""
    controller.statuses = [DONE]
    job = await client.job("job-1")
    assert await job.result() == [None, None]


async def test_a_damaged_value_is_found(client, controller):
    """A flipped byte is an error, never a value."""
    controller.statuses = [DONE]
    controller.parts = parts_of(0, "x" * 100, size=1000)
    controller.parts[0].data = controller.parts[0].data[:-1] + b"?"
    job = await client.job("job-1")
    with pytest.raises(ResultDamaged, check=that(comes_from="values.arrived", names="0")):
        await job.result()


async def test_a_failed_job_says_what_its_task_said(client, controller):
    """The error has the traceback of the first failed task."""
    controller.statuses = [job_of(Wire.FAILED, version=4, reason="1 of 2 tasks; task 1: ValueError")]
    controller.tasks = [failed_task(1, "Traceback ...\nValueError: too small")]
    job = await client.job("job-1")
    with pytest.raises(JobFailed, check=that(state="FAILED", task_index=1)) as caught:
        await job.result()
    assert (caught.value.state, caught.value.task_index, caught.value.job_id) == ("FAILED", 1, "job-1")
    assert "1 of 2 tasks" in str(caught.value)


async def test_a_failed_job_says_what_to_do(client, controller):
    """A module that the task lacks is looked for here, and the error says what would bring it there."""
    controller.statuses = [job_of(Wire.FAILED, version=4, reason="1 of 2 tasks")]
    controller.tasks = [failed_task(1, "Traceback ...\nModuleNotFoundError: No module named 'pytest'")]
    with pytest.raises(JobFailed, check=that(names=("pytest", "Python"))):
        await (await client.job("job-1")).result()


async def test_a_traceback_is_told_once(client, controller):
    """What the failed task said is in the error once, though job, attempt and log all have it; if they differ, all."""
    words = "Traceback ...\n  File x\nValueError: too small"
    reason = "1 of 2 tasks; task 1: ValueError"
    controller.statuses = [job_of(Wire.FAILED, version=4, reason=reason, fault=Fault(text=words))]
    controller.tasks = [failed_task(1, words)]
    job = await client.job("job-1")
    with pytest.raises(JobFailed) as caught:
        await job.result()
    assert str(caught.value).count("ValueError: too small") == 1
    controller.tasks = [failed_task(1, "another")]
    with pytest.raises(JobFailed) as caught:
        await job.result()
    assert words in str(caught.value)
    assert "another" in str(caught.value)


async def test_a_killed_job_has_no_result(client, controller):
    """Ending a job by hand makes its result an error as well."""
    controller.statuses = [job_of(Wire.KILLED, version=4, reason="stopped by hand")]
    job = await client.job("job-1")
    with pytest.raises(JobFailed, check=that(state="KILLED", names="hand")):
        await job.result()


async def test_tasks_are_values(client, controller):
    """Attempts, exits and faults are readable."""
    controller.tasks = [failed_task(0, "boom")]
    [task] = await (await client.job("job-1")).tasks()
    assert (task.state, task.attempts[0].exit_code, task.attempts[0].fault) == (TaskState.FAILED, 1, "boom")


async def test_tasks_by_state(client, controller):
    """States are members or names; what is none is refused before anything travels."""
    controller.tasks = [failed_task(0, "boom")]
    job = await client.job("job-1")
    assert [task.index for task in await job.tasks(states=["FAILED", TaskState.KILLED])] == [0]
    with pytest.raises(InvalidArgument, check=that(names="BROKEN")):
        await job.tasks(states=["BROKEN"])


async def test_logs_survive_a_break(client, controller):
    """A stream that breaks inside a line goes on from its offset: no line twice, none missing."""
    controller.logs = [
        LogBatch(task_index=0, attempt_uid="a", offset=0, data=b"one\ntw"),
        LogBatch(task_index=1, attempt_uid="b", offset=0, data=b"other\n"),
        Break(),
        LogBatch(task_index=0, attempt_uid="a", offset=6, data=b"o\nthree", at_end=True),
    ]
    job = await client.job("job-1")
    lines = [(line.task_index, str(line)) async for line in job.logs(follow=True)]
    assert lines == [(0, "one"), (1, "other"), (0, "two"), (0, "three")]
    assert [request.follow for request in controller.log_requests] == [True, True]
    assert {c.attempt_uid: c.offset for c in controller.log_requests[1].cursors} == {"a": 6, "b": 6}


async def test_log_filters_travel(client, controller):
    """Task 0 and attempt 0 are asked for, not left out."""
    job = await client.job("job-1")
    assert [line async for line in job.logs(task=0, attempt=0, tail=5)] == []
    [request] = controller.log_requests
    assert (request.task_index, request.attempt_number, request.tail_lines, request.follow) == (0, 0, 5, False)
    with pytest.raises(InvalidArgument, check=that(names="tail")):
        [line async for line in job.logs(tail=-1)]


async def test_the_log_of_a_task_that_is_not_there(client, controller):
    """An empty log would look like one of a task that is silent."""
    job = await client.job("job-1")
    with pytest.raises(InvalidArgument, check=that(names=("job-1", "2"))):
        [line async for line in job.logs(task=2)]
    assert controller.log_requests == []
    assert [line async for line in job.logs(task=1)] == []


async def test_terminate(client, controller):
    """Ending carries a key, and gives the status after it."""
    status = await (await client.job("job-1")).terminate("enough")
    assert status.state is JobState.KILLED
    [(job_id, reason, key)] = controller.terminated
    assert (job_id, reason, len(key)) == ("job-1", "enough", 32)


async def test_who_follows_sees_a_line_that_does_not_end(client, controller, monkeypatch):
    """A progress bar is shown as far as it has come, and goes on; its end is a piece that may be empty."""
    monkeypatch.setattr(job_module, "LINE_PATIENCE_S", 0.01)
    seen = anyio.Event()

    async def fetch_logs(message):
        yield LogBatch(attempt_uid="a", data=b"one\n\r10%")
        await seen.wait()
        yield LogBatch(attempt_uid="a", offset=8, data=b"\r20%\n", at_end=True)

    monkeypatch.setattr(controller, "fetch_logs", fetch_logs)
    job = await client.job("job-1")
    found = []
    async for line in job.logs(follow=True):
        found.append((line.text, line.ended))
        if line.text == "\r10%":
            seen.set()
    assert found == [("one", True), ("\r10%", False), ("\r20%", True)]


async def test_who_leaves_while_a_line_stands(client, controller, monkeypatch):
    """The stream is closed, and nothing of it goes on."""
    monkeypatch.setattr(job_module, "LINE_PATIENCE_S", 0.01)
    closed = anyio.Event()

    async def fetch_logs(message):
        try:
            yield LogBatch(attempt_uid="a", data=b"> ")
            await anyio.sleep_forever()
        finally:
            closed.set()

    monkeypatch.setattr(controller, "fetch_logs", fetch_logs)
    job = await client.job("job-1")
    before = len(asyncio.all_tasks())
    async with aclosing(job.logs(follow=True)) as lines:
        assert (await anext(lines)).text == "> "
    with anyio.fail_after(10):
        await closed.wait()
        while len(asyncio.all_tasks()) > before:  # noqa: ASYNC110 - tasks of the channel end by themselves
            await anyio.sleep(0.01)


async def test_a_stream_that_breaks_for_good(client, controller, monkeypatch):
    """What ended it is raised to who follows."""

    async def fetch_logs(message):
        yield LogBatch(attempt_uid="a", data=b"x\ny")
        raise InvalidArgument("no")

    monkeypatch.setattr(controller, "fetch_logs", fetch_logs)
    job = await client.job("job-1")
    lines = job.logs(follow=True)
    assert (await anext(lines)).text == "x"
    with pytest.raises(InvalidArgument):
        [line async for line in lines]
