"""Which attempts a reader gets, and from where; and which results."""

import hashlib
from pathlib import Path

import pytest

from iriscw.controller.doors.reading import LogReading, results_as_tasks_end
from iriscw.controller.events import EventHub
from iriscw.controller.stores.logs import LogStore
from iriscw.controller.stores.result_model import Reference
from iriscw.controller.stores.results import ResultStore
from iriscw.jobs.messages import JobChanged, ListTasks, TaskChanged, TaskPage, TaskRow
from iriscw.jobs.model import Attempt, JobState, TaskState
from iriscw.proto.iriscw import v1

JOB = "job-aaaaaaaaaaaa"
TEXT = b"a\nb\nc\n"


def uid(index: int, number: int) -> str:
    """Name an attempt."""
    return f"{index}{number}" * 8


@pytest.fixture
async def store(tmp_path: Path) -> LogStore:
    """Logs of two tasks: the first was tried three times, the second once."""
    made = await LogStore.open(tmp_path)
    for index, number in ((0, 0), (0, 1), (0, 2), (1, 0)):
        await write(made, index, number)
    return made


async def write(store: LogStore, index: int, number: int) -> None:
    """Have an attempt write three lines."""
    await store.begin(JOB, index, number, uid(index, number))
    await store.append(uid(index, number), 0, TEXT)


async def read(reading: LogReading) -> list[tuple[int, int, bytes]]:
    """Return what there is: task, attempt and text."""
    return [(each.task_index, each.attempt_number, each.data) async for each in reading.present(over=False)]


def asked(store: LogStore, **more: object) -> LogReading:
    """A reader with these wishes."""
    return LogReading(store, JOB, v1.FetchLogsRequest(**more))


async def test_all_attempts_by_default(store: LogStore) -> None:
    """Without wishes a reader gets everything, by task and attempt."""
    assert await read(asked(store)) == [(0, 0, TEXT), (0, 1, TEXT), (0, 2, TEXT), (1, 0, TEXT)]


async def test_a_tail_is_of_the_latest_attempt(store: LogStore) -> None:
    """The last lines of a task are those of its latest attempt, or of the one that is asked for."""
    assert await read(asked(store, tail_lines=1)) == [(0, 2, b"c\n"), (1, 0, b"c\n")]
    assert await read(asked(store, tail_lines=2, attempt_number=1)) == [(0, 1, b"b\nc\n")]


async def test_attempts_that_begin_later_are_whole(store: LogStore) -> None:
    """Who follows the end of a task gets all of the attempts that come."""
    reading = asked(store, tail_lines=1, task_index=0)
    assert await read(reading) == [(0, 2, b"c\n")]
    await write(store, 0, 3)
    assert await read(reading) == [(0, 3, TEXT)]


async def test_a_tail_goes_on_after_a_break(store: LogStore) -> None:
    """A stream that is opened again goes on where it was: nothing before it, all that came meanwhile."""
    cursors = [v1.LogCursor(attempt_uid=uid(0, 1), offset=4)]
    assert await read(asked(store, tail_lines=1, cursors=cursors)) == [(0, 1, b"c\n"), (0, 2, TEXT), (1, 0, b"c\n")]


class Ending:
    """A job of three tasks, whose tasks end while somebody reads their results."""

    def __init__(self, store: ResultStore) -> None:
        """Begin with three that run."""
        self.store, self.hub = store, EventHub(0, lambda _: None)
        self.states = dict.fromkeys(range(3), TaskState.RUNNING)
        self.over = False

    async def ask(self, question: ListTasks) -> TaskPage:
        """Give a page, as the job does."""
        some = range(question.start, min(question.start + question.limit, 3))
        rows = [
            TaskRow(each, self.states[each], attempt=Attempt(uid(each, 0), 0, "w", "i", TaskState.RUNNING, 0))
            for each in some
        ]
        return TaskPage(tuple(rows), some.stop if some.stop < 3 else -1, "")

    async def is_over(self) -> bool:
        """Whether the job is."""
        return self.over

    def result(self, only: int | None = None):
        """Read."""
        return results_as_tasks_end(self.store, self.hub, JOB, self.ask, self.is_over, only)

    async def end(self, index: int, state: TaskState = TaskState.SUCCEEDED) -> None:
        """Have a task end, with its index as its result."""
        data = str(index).encode()
        self.store.begin(JOB, index, 0, uid(index, 0))
        await self.store.append(uid(index, 0), 0, data)
        await self.store.settle(uid(index, 0), Reference(len(data), hashlib.sha256(data).hexdigest(), "3.11"))
        self.states[index] = state
        self.hub.publish(TaskChanged(JOB, index, state, uid(index, 0), "w", 0, True, 0))

    def finish(self) -> None:
        """Have the job end."""
        self.over = True
        self.hub.publish(JobChanged(JOB, JobState.SUCCEEDED, "", 0))


async def test_results_as_tasks_end(tmp_path: Path) -> None:
    """Those that are there first, then each as it comes, once; none of a task that failed; and the end of the job."""
    job = Ending(await ResultStore.open(tmp_path))
    await job.end(2)
    reading = job.result()
    assert (await anext(reading)).data == b"2"
    await job.end(2)  # told once more, as a new incarnation of a job does
    await job.end(1, TaskState.FAILED)
    await job.end(0)
    job.finish()
    assert [part.data async for part in reading] == [b"0"]
    assert [part.task_index async for part in job.result()] == [0, 2]
    assert not job.hub._ends


async def test_the_result_of_one_task(tmp_path: Path) -> None:
    """It ends with that task, whatever the others do, and also if there is none."""
    job = Ending(await ResultStore.open(tmp_path))
    await job.end(0)
    assert [part.data async for part in job.result(only=0)] == [b"0"]
    await job.end(1, TaskState.FAILED)
    assert [part.data async for part in job.result(only=1)] == []
    job.finish()
    assert [part.data async for part in job.result(only=2)] == []
