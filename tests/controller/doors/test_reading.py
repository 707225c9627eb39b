"""Which attempts a reader gets, and from where."""

from pathlib import Path

import pytest

from iriscw.controller.doors.reading import LogReading
from iriscw.controller.stores.logs import LogStore
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
