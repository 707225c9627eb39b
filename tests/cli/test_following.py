"""A log as it comes, and what is said beside it."""

import anyio
import anyio.lowlevel
import pytest

from iriscw.cli import following as module
from iriscw.cli.following import LogTexts, conclude, follow, waits, write_logs
from iriscw.client.model import JobState, JobStatus, LogLine, TaskState
from iriscw.rpc.errors import RpcUnavailable


def status(state=JobState.PENDING, tasks=None, **more):
    """A job of one task."""
    return JobStatus("job-1", "u", "n", state, 1, 1, {TaskState.PENDING: 1} if tasks is None else tasks, **more)


RUNNING = status(JobState.RUNNING, {TaskState.RUNNING: 1})
KILLED = status(JobState.KILLED, {TaskState.KILLED: 1}, reason="by hand")


class Job:
    """Gives statuses as they were scripted, and lines once they are used up."""

    id = "job-1"

    def __init__(self, *statuses, lines=(), changes=()):
        self.statuses = list(statuses)
        self.lines = lines
        self.changes = list(changes)
        self.done = anyio.Event()

    async def status(self):
        found = self.statuses.pop(0)
        if isinstance(found, Exception):
            self.done.set()
            raise found
        if found.is_over or not self.statuses:
            self.done.set()
        return found

    async def watch(self):
        for each in self.changes:
            yield each

    async def logs(self, **which):
        if which.get("follow"):
            await self.done.wait()
            await anyio.lowlevel.checkpoint()
        for task, attempt in self.lines:
            yield LogLine(task, attempt, f"{task}.{attempt}")

    async def wait(self):
        return KILLED


@pytest.fixture(autouse=True)
def _hurry(monkeypatch):
    monkeypatch.setattr(module, "WAITING_S", 0.0)


async def test_a_job_that_waits_says_why(capsys):
    """The reason is told once while it stays, again when it is another, and again after something ran."""
    why = [
        status(reason="no room"),
        status(reason="no room"),
        status(reason="zone=a"),
        RUNNING,
        status(reason="zone=a"),
    ]
    job = Job(*why, KILLED, changes=[RUNNING, status(reason="zone=a")])
    await follow(job, with_task=False)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["job-1 waits: no room", "job-1 waits: zone=a", "job-1 waits: zone=a"]


async def test_a_reason_is_no_reason_to_fail(capsys):
    """While the controller is away the log's own stream decides how long that is borne."""
    await follow(Job(RpcUnavailable("gone"), lines=[(0, 0)]), with_task=False)
    assert capsys.readouterr() == ("0.0\n", "")


@pytest.mark.parametrize(
    ("state", "tasks", "waiting"),
    [
        (JobState.PENDING, {TaskState.PENDING: 2}, True),
        (JobState.RUNNING, {TaskState.PENDING: 1, TaskState.SUCCEEDED: 1}, True),
        (JobState.RUNNING, {TaskState.PENDING: 1, TaskState.RUNNING: 1}, False),
        (JobState.RUNNING, {TaskState.BUILDING: 1}, False),
        (JobState.KILLED, {TaskState.PENDING: 1}, False),
    ],
)
def test_a_job_waits_when_nothing_of_it_runs(state, tasks, waiting):
    """As long as one task is on a worker, the job is under way."""
    assert waits(status(state, tasks)) is waiting


async def test_other_attempts_are_announced(capsys):
    """Where the log is another attempt's, standard error says so; standard output has what tasks wrote."""
    await write_logs(Job(lines=[(0, 0), (0, 0), (1, 0), (0, 1), (1, 0), (0, 1), (2, 3)]), with_task=True)
    out, err = capsys.readouterr()
    assert out.splitlines() == ["0 | 0.0", "0 | 0.0", "1 | 1.0", "0 | 0.1", "1 | 1.0", "0 | 0.1", "2 | 2.3"]
    assert err.splitlines() == ["task 0, attempt 1:", "task 2, attempt 3:"]


async def test_an_attempt_that_was_asked_for_is_not(capsys):
    """Who names an attempt knows which it is."""
    await write_logs(Job(lines=[(0, 2)]), with_task=False, attempt=2)
    assert capsys.readouterr() == ("0.2\n", "")


async def test_last_words_give_a_hint(capsys):
    """What the log ended with says what to do; a job that ended well needs nothing."""
    words = await write_logs(Job(lines=[(0, 0)]), with_task=False)
    assert words == "0.0"
    capsys.readouterr()
    assert await conclude(Job(), "table", "ModuleNotFoundError: No module named 'no_such'") == 1
    assert "hint: 'no_such' is installed neither here nor where" in capsys.readouterr().err


async def test_the_end_is_told(capsys):
    """How a job ended is one line and the exit code; programs get every field."""
    assert await conclude(Job(), "table") == 1
    assert capsys.readouterr() == ("", "job-1 KILLED: by hand\n")
    assert await conclude(Job(), "json") == 1
    assert '"reason": "by hand"' in capsys.readouterr().out


def test_pieces_of_lines_on_a_terminal():
    """What goes on is written on; another task's line begins on one of its own, with its number."""
    texts = LogTexts(with_task=True)
    pieces = [(0, "\r1", False), (0, "\r2", False), (1, "x", True), (0, "\r3", False), (0, "", True), (1, "y", True)]
    written = "".join(texts.of(LogLine(task, 1, text, ended)) for task, text, ended in pieces)
    assert written == "0 | \r1\r2\n1 | x\n0 | \r3\n1 | y\n"
    texts = LogTexts(with_task=False)
    assert texts.of(LogLine(0, 1, "> ", ended=False)) == "> "
    assert (texts.end(), texts.end()) == ("\n", "")


def test_tasks_are_told_apart_by_colours():
    """The number of a task has a colour of its own, and what the task wrote has none."""
    texts = LogTexts(with_task=True, coloured=True)
    shown = [texts.of(LogLine(task, 0, "text")) for task in (0, 1, 10)]
    assert all(each.endswith("\x1b[0m text\n") for each in shown)
    assert shown[0].partition("m")[0] != shown[1].partition("m")[0]
    assert shown[2].startswith(shown[0].partition("0 |")[0] + "10 |")
    assert LogTexts(with_task=False, coloured=True).of(LogLine(0, 0, "text")) == "text\n"
