"""The board of progress: what it shows, what it forgets, and whom it wakes how often."""

import anyio
import pytest

from iriscw.controller import progress as module
from iriscw.controller.progress import ProgressBoard
from iriscw.jobs.messages import JobChanged, TaskChanged
from iriscw.jobs.model import JobState, TaskState
from iriscw.proto.iriscw import v1

JOB = "job-aaaaaaaaaaaa"


def at(done: int, total: int = 0, text: str = "") -> v1.Progress:
    """A progress."""
    return v1.Progress(done_milli=done, total_milli=total, text=text)


def task(index: int, state: TaskState, uid: str) -> TaskChanged:
    """A task is in another state."""
    return TaskChanged(JOB, index, state, uid, "w", 0, False, 0)


async def test_what_is_shown() -> None:
    """Of a task what its latest attempt said; of a job the sum, with a total only if all have one."""
    board = ProgressBoard()
    assert board.of_job(JOB) is board.of_task(JOB, 0, "a") is None
    board.put(JOB, 0, "a", at(1, 10, "one"))
    board.put(JOB, 1, "b", at(2, 20, "two"))
    assert board.of_task(JOB, 0, "a") == at(1, 10, "one")
    assert board.of_task(JOB, 0, "other") is None
    assert board.of_job(JOB) == at(3, 30, "two")
    board.put(JOB, 1, "b", at(5, 0, "three"))
    assert board.of_job(JOB) == at(6, 0, "three")


async def test_what_is_done_for_a_task_before_it_begins_is_no_progress_of_it() -> None:
    """It is shown beside the progress of others, and gives way to what the attempt says itself."""
    board = ProgressBoard()
    board.put(JOB, 0, "a", "installs numpy")
    assert board.of_job(JOB) is board.of_task(JOB, 0, "a") is None
    assert (board.doing(JOB, 0, "a"), board.doing(JOB, 0, "other")) == ("installs numpy", "")
    board.put(JOB, 1, "b", at(2, 20, "two"))
    assert (board.of_job(JOB), board.doing_of_job(JOB)) == (at(2, 20, "two"), "installs numpy")
    board.put(JOB, 0, "a", at(1, 10, "one"))
    assert board.of_job(JOB) == at(3, 30, "one")
    assert board.doing(JOB, 0, "a") == board.doing_of_job(JOB) == ""


async def test_what_is_forgotten() -> None:
    """An attempt that gives way to another takes its progress along; so does a job that ends."""
    board = ProgressBoard()
    for index, uid in enumerate("abc"):
        board.put(JOB, index, uid, at(1, 10))
    board.note(task(0, TaskState.RUNNING, "a"))
    board.note(task(1, TaskState.PENDING, "b"))  # it will be tried again
    board.note(task(2, TaskState.ASSIGNED, "d"))  # and this one was not heard of in between
    assert board.of_job(JOB) == at(1, 10)
    board.note(task(0, TaskState.SUCCEEDED, "a"))
    assert board.of_task(JOB, 0, "a") == at(1, 10), "how far it came, until the job is over"
    board.note(JobChanged(JOB, JobState.RUNNING, "", 0))
    board.note(JobChanged(JOB, JobState.FAILED, "", 0))
    assert (board.of_job(JOB), board._jobs, board._tasks) == (None, {}, 0)


async def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit the job goes that told longest ago."""
    monkeypatch.setattr(module, "MAX_TASKS", 4)
    board = ProgressBoard()
    for number in range(3):
        for index in range(2):
            board.put(f"job-{number}", index, "u", at(1))
        board.put("job-0", 0, "u", at(number + 2))
    assert [*board._jobs] == ["job-2", "job-0"]
    assert board._tasks == 4


async def test_who_watches_is_woken_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand reports at once are one change now, and one when the rest is over, which shows the last of them."""
    monkeypatch.setattr(module, "TOLD_EVERY_S", 0.05)
    shown, later = [], anyio.Event()

    def changed(job_id: str) -> None:
        shown.append(board.of_job(job_id))
        if len(shown) == 2:
            later.set()

    board = ProgressBoard(changed)
    for number in range(1000):
        board.put(JOB, 0, "a", at(number))
        board.put(JOB, 0, "a", at(number))  # nothing new
    await later.wait()
    assert shown == [at(0), at(999)]
