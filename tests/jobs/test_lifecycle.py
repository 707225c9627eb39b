"""The tables of attempts, tasks and jobs, exhaustively."""

from itertools import product

import pytest
from hypothesis import given, strategies as st
from jobs_world import command_spec

from iriscw.jobs.lifecycle import (
    CONSEQUENCES,
    MAX_UNSTARTED,
    Budget,
    judge,
    shown_state,
    stopped_as,
    verdict_of,
)
from iriscw.jobs.model import JOB_TERMINAL, TASK_TERMINAL, Ending, JobState, TaskState

COUNTS = (0, 1, 2, 3)
SPEC = command_spec(max_retries_failure=2, max_retries_preemption=1)


def test_every_ending_has_a_consequence():
    """The table names each ending once."""
    assert sorted(CONSEQUENCES, key=str) == sorted(Ending, key=str)


@pytest.mark.parametrize("verdict", [None, *JOB_TERMINAL])
@pytest.mark.parametrize("ending", Ending)
def test_judge_exhaustively(ending, verdict):
    """INV-J5: one budget at most, none for what never started; what is final follows from budget and verdict."""
    for started, failures, preemptions, unstarted in product((True, False), COUNTS, COUNTS, (0, MAX_UNSTARTED)):
        judged = judge(
            SPEC,
            verdict,
            ending,
            started=started,
            failures=failures,
            preemptions=preemptions,
            unstarted=unstarted,
        )
        assert judged.failure + judged.preemption + judged.unstarted <= 1
        assert judged.then is TaskState.PENDING or judged.then in TASK_TERMINAL
        if not started:
            assert not judged.failure
            assert not judged.preemption
        if ending is Ending.SUCCEEDED:
            assert judged.then is TaskState.SUCCEEDED
        elif verdict is not None:
            assert judged.then in (TaskState.FAILED, stopped_as(SPEC, verdict))
            assert (judged.then is TaskState.FAILED) == judged.failure
        elif started and CONSEQUENCES[ending].budget is Budget.FAILURE:
            assert (judged.then is TaskState.FAILED) == (failures >= SPEC.max_retries_failure)
        elif started and CONSEQUENCES[ending].budget is Budget.PREEMPTION:
            assert (judged.then is not TaskState.PENDING) == (preemptions >= SPEC.max_retries_preemption)
        elif judged.unstarted:
            assert (judged.then is TaskState.UNSCHEDULABLE) == (unstarted >= MAX_UNSTARTED)


def test_gang_stopped_counts_nothing():
    """A member that was stopped for another waits again, as often as it takes."""
    for started in (True, False):
        judged = judge(
            SPEC, None, Ending.GANG_STOPPED, started=started, failures=9, preemptions=9, unstarted=MAX_UNSTARTED
        )
        assert (judged.then, judged.failure, judged.preemption, judged.unstarted) == (
            TaskState.PENDING,
            False,
            False,
            False,
        )


@given(st.dictionaries(st.sampled_from(TaskState), st.integers(0, 3)), st.integers(0, 2), st.booleans())
def test_verdict_follows_the_order(counts, allowed, gang):
    """FAILED before UNSCHEDULABLE before the rest; without all tasks over only these and gangs are judged."""
    replicas = max(1, sum(counts.values()))
    spec = command_spec(replicas=replicas, max_task_failures=allowed, group_by="slice-id" if gang else None)
    verdict = verdict_of(spec, counts)
    over = sum(counts.get(state, 0) for state in TASK_TERMINAL) == replicas
    lost = counts.get(TaskState.WORKER_FAILED, 0) + counts.get(TaskState.PREEMPTED, 0)
    if counts.get(TaskState.FAILED, 0) > allowed:
        assert verdict is JobState.FAILED
    elif counts.get(TaskState.UNSCHEDULABLE, 0):
        assert verdict is JobState.UNSCHEDULABLE
    elif gang and (counts.get(TaskState.FAILED, 0) or lost):
        assert verdict in (JobState.FAILED, JobState.WORKER_FAILED)
    elif not over:
        assert verdict is None
    elif counts.get(TaskState.KILLED, 0):
        assert verdict is JobState.KILLED
    else:
        assert verdict is (JobState.WORKER_FAILED if lost else JobState.SUCCEEDED)


@given(st.dictionaries(st.sampled_from(TaskState), st.integers(0, 3)))
def test_shown_state_is_never_terminal(counts):
    """Only an end is shown as one."""
    assert shown_state(command_spec(), counts) in (JobState.PENDING, JobState.BUILDING, JobState.RUNNING)


def test_shown_state():
    """The furthest task shows; finished tasks mean that the job is under way."""
    spec = command_spec(replicas=3)
    assert shown_state(spec, {TaskState.PENDING: 2, TaskState.ASSIGNED: 1}) is JobState.PENDING
    assert shown_state(spec, {TaskState.PENDING: 2, TaskState.BUILDING: 1}) is JobState.BUILDING
    assert shown_state(spec, {TaskState.BUILDING: 2, TaskState.RUNNING: 1}) is JobState.RUNNING
    assert shown_state(spec, {TaskState.PENDING: 2, TaskState.SUCCEEDED: 1}) is JobState.RUNNING
