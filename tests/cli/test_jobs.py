"""The columns of a listing, and what options select."""

import anyio
import attrs
import pytest

from iriscw.cli.jobs import check_selection, tasks_text
from iriscw.cli.outcome import NoSuchSelection
from iriscw.client.model import AttemptStatus, JobStatus, TaskStatus
from iriscw.jobs.model import JOB_TERMINAL, JobState, TaskState


@pytest.mark.parametrize(
    ("tasks", "text"),
    [
        ({TaskState.PENDING: 4, TaskState.RUNNING: 7, TaskState.SUCCEEDED: 1}, "4 wait, 7 run, 1 done"),
        ({TaskState.ASSIGNED: 1, TaskState.BUILDING: 2}, "3 start"),
        ({TaskState.FAILED: 1, TaskState.COSCHED_FAILED: 2, TaskState.KILLED: 3}, "3 failed, 3 killed"),
        ({}, "9"),
    ],
)
def test_tasks_are_counted_in_few_words(tasks, text):
    """A listing says how many tasks are how far; without counts it says how many there are."""
    assert tasks_text(JobStatus("job-1", "uid", "name", JobState.RUNNING, 1, 9, tasks)) == text


class Job:
    """A job whose first task was tried twice, whose second waits."""

    id = "job-1"

    async def tasks(self):
        tried = tuple(AttemptStatus(f"u{number}", number, TaskState.FAILED, "w") for number in (1, 0))
        return [
            TaskStatus("job-1/0", 0, TaskState.FAILED, attempts=tried),
            TaskStatus("job-1/1", 1, TaskState.PENDING),
        ]


@pytest.mark.parametrize(
    ("task", "attempt", "said"),
    [
        (2, None, "--task 2: job-1 has tasks 0 to 1"),
        (None, 2, "--attempt 2: job-1 has had attempts 0 to 1"),
        (0, 7, "--attempt 7: task 0 of job-1 has had attempts 0 to 1"),
        (1, 0, "--attempt 0: task 1 of job-1 has had no attempt yet"),
    ],
)
async def test_what_is_not_there_is_named(task, attempt, said):
    """The log of a task or attempt that is not there is no empty log."""
    with pytest.raises(NoSuchSelection) as found:
        await check_selection(Job(), JobStatus("job-1", "u", "n", JobState.RUNNING, 1, 2, {}), task, attempt)
    assert str(found.value) == said


async def test_what_is_there_may_be_read():
    """Tasks and attempts that are there are, with and without the other option."""
    status = JobStatus("job-1", "u", "n", JobState.RUNNING, 1, 2, {})
    for task, attempt in ((None, None), (1, None), (0, 1), (None, 0)):
        await check_selection(Job(), status, task, attempt)


def test_what_is_suspended_is_not_shown_as_running():
    """Neither its tasks nor, where nothing else of it runs, the job; of one that is partly suspended both are told."""
    tasks = {TaskState.PENDING: 1, TaskState.RUNNING: 3, TaskState.SUCCEEDED: 1}
    job = JobStatus("job-1", "uid", "name", JobState.RUNNING, 1, 5, tasks, suspended=3)
    assert (job.shown_state, tasks_text(job)) == ("SUSPENDED", "1 wait, 3 suspended, 1 done")
    partly = attrs.evolve(job, suspended=2)
    assert (partly.shown_state, tasks_text(partly)) == ("RUNNING", "1 wait, 1 run, 2 suspended, 1 done")
    assert attrs.evolve(job, tasks={TaskState.PENDING: 5}, suspended=0).shown_state == "RUNNING"


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ([], [state for state in JobState if state not in JOB_TERMINAL]),
        (["--all"], []),
        (["--state", "failed", "--state", "RUNNING"], [JobState.FAILED, JobState.RUNNING]),
    ],
)
def test_the_controller_is_asked_for_the_states_that_are_wanted(iriscw, monkeypatch, arguments, asked):
    """It has thousands of jobs, and who wants a few does not wait for all."""
    seen = []

    class Listing:
        async def jobs(self, *, states):
            seen.extend(states)
            return []

    monkeypatch.setattr("iriscw.cli.jobs.with_client", lambda address, token, work: anyio.run(work, Listing()))
    assert iriscw("jobs", *arguments)[0] == 0
    assert seen == asked


def test_all_states_and_one_are_two_wishes(iriscw):
    """Which of them is meant is not guessed; a state that is mistyped is told the nearest."""
    code, _, err = iriscw("jobs", "--all", "--state", "FAILED")
    assert code == 2
    assert "--state" in err
    code, _, err = iriscw("jobs", "--state", "FAIELD")
    assert (code, "did you mean FAILED?" in err) == (2, True)


@pytest.mark.parametrize(
    ("name", "parent", "of_task", "ended"),
    [
        ("eval", "", False, True),
        ("eval", "job-top", False, False),
        ("eval", "job-top", True, True),
        ("/top/eval", "job-top", False, True),
        ("job-one", "job-top", False, True),
    ],
)
def test_a_name_alone_ends_nothing_in_a_tree(iriscw, monkeypatch, name, parent, of_task, ended):
    """A job of the same name may have ended a moment ago, and this one be somebody else's."""

    class One:
        id, name = "job-one", "eval"
        seen = JobStatus("job-one", "u", "eval", JobState.RUNNING, 1, 1, {}, parent_job_id=parent)
        was_ended = False

        async def terminate(self, reason):
            One.was_ended = True
            return self.seen

    class Asking:
        is_of_task = of_task

        async def job(self, name):
            return One()

    monkeypatch.setattr("iriscw.cli.jobs.with_client", lambda address, token, work: anyio.run(work, Asking()))
    code, _, err = iriscw("stop", "--no-wait", name)
    assert One.was_ended is ended is (code == 0)
    assert ended or "job-one" in err
