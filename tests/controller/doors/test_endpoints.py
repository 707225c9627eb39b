"""What a watcher of endpoints is told: pages, differences, and nothing twice."""

import pytest

from iriscw.controller.doors.endpoints import EndpointWatch
from iriscw.jobs.meeting.messages import EndpointPage, EndpointRow, ListEndpoints

SIZE = 5


class Job:
    """A job's actor: gives what is true now, two tasks at a time."""

    def __init__(self) -> None:
        self.rows: dict[int, EndpointRow] = {}
        self.over: list[int] = []

    async def ask(self, path: str, question: ListEndpoints) -> EndpointPage:
        assert path == "/jobs/job-a"
        indexes = range(question.start, min(question.start + 2, SIZE))
        rows = tuple(self.rows[index] for index in indexes if index in self.rows)
        over = tuple(index for index in self.over if index in indexes)
        return EndpointPage(rows, over, indexes.stop if indexes.stop < SIZE else -1, len(self.over) == SIZE)

    def runs(self, index: int, uid: str = "u") -> None:
        self.rows[index] = EndpointRow(index, uid, f"h{index}", (("a", index),))


async def told(watched: EndpointWatch) -> list[tuple]:
    """Return what is new, as far as it says anything."""
    updates = [update async for update in watched.news()]
    assert [update.more for update in updates] == [True] * (len(updates) - 1) + [False] * bool(updates)
    assert {update.num_tasks for update in updates} <= {SIZE}
    return [
        ([each.task_index for each in update.endpoints], list(update.gone), list(update.over)) for update in updates
    ]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_all_at_first_and_then_what_is_new() -> None:
    """A listing of several pages is several updates, and only what has changed is told again."""
    job = Job()
    watched = EndpointWatch("job-a", SIZE, job.ask)
    job.runs(1)
    assert await told(watched) == [([1], [], []), ([], [], []), ([], [], [])]
    assert await told(watched) == []
    job.runs(4)
    assert await told(watched) == [([4], [], [])]
    job.runs(1, "again")
    del job.rows[4]
    assert await told(watched) == [([1], [], []), ([], [4], [])]
    assert not watched.ended


async def test_what_is_over_is_told_once() -> None:
    """A task that ends is not gone for a while, and the end of the last one ends the watch."""
    job = Job()
    watched = EndpointWatch("job-a", SIZE, job.ask)
    job.runs(0)
    await told(watched)
    job.rows.clear()
    job.over = [0]
    assert await told(watched) == [([], [], [0])]
    job.over = list(range(SIZE))
    assert await told(watched) == [([], [], [1]), ([], [], [2, 3]), ([], [], [4])]
    assert watched.ended
