"""The columns of a listing."""

import pytest

from iriscw.cli.jobs import tasks_text
from iriscw.client.model import JobStatus
from iriscw.jobs.model import JobState, TaskState


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
