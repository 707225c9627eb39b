"""What follows from what, for attempts, tasks and jobs: tables, and the three functions that read them.

**Attempts** go ASSIGNED -> BUILDING -> RUNNING and end once, with an :class:`~iriscw.jobs.model.Ending`. They
may skip states (a worker reports the latest only) and never go back. An attempt is over when its worker says
that it ended or knows nothing of it, or when its worker is fenced or has been silent for longer than its
lease; nothing else ends one.

**Tasks** are PENDING until an attempt is placed, have the state of their live attempt then, and after its end
are PENDING again or terminal. Which of the two depends on the ending (``CONSEQUENCES``) and the task's
budgets:

* what the user's code did counts against ``max_retries_failure``;
* what the infrastructure did counts against ``max_retries_preemption``;
* an attempt whose code never ran counts against neither; one that gave way to work of a higher band before it ran
  counts as none. So that a task which no worker can start does not go
  round for ever, ``MAX_UNSTARTED`` such attempts make it UNSCHEDULABLE.

A gang's member that was stopped because of another member counts against nothing, whether it ran or not.

**Jobs** are judged by the counts of their tasks' states, in this order: FAILED (more FAILED tasks than
allowed), UNSCHEDULABLE (any task), for gangs any member that is over without success; then, with all tasks
terminal, KILLED, WORKER_FAILED (any task lost its preemption budget), SUCCEEDED. A job with a verdict stops
what still lives; it has ended when nothing lives and the logs are settled, and then it stays as it is.
Without a verdict it shows RUNNING, BUILDING or PENDING, the furthest of its tasks; one with finished tasks is
under way and shows RUNNING.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from iriscw.jobs.model import TASK_TERMINAL, Ending, JobSpec, JobState, TaskState

MAX_UNSTARTED = 100
"""Attempts of one task that may end before the user's code ran. Each needs a worker that refuses or dies."""


class Budget(enum.Enum):
    """What an ending counts against, if the user's code had started."""

    NONE = "none"
    FAILURE = "failure"
    PREEMPTION = "preemption"


@attrs.frozen
class Consequence:
    """A row of the table: the budget, and the task's state when that is spent."""

    budget: Budget
    spent: TaskState


CONSEQUENCES: Mapping[Ending, Consequence] = {
    Ending.SUCCEEDED: Consequence(Budget.NONE, TaskState.SUCCEEDED),
    Ending.FAILED: Consequence(Budget.FAILURE, TaskState.FAILED),
    Ending.TIMED_OUT: Consequence(Budget.FAILURE, TaskState.FAILED),
    Ending.WORKER_LOST: Consequence(Budget.PREEMPTION, TaskState.WORKER_FAILED),
    Ending.MISSING: Consequence(Budget.PREEMPTION, TaskState.WORKER_FAILED),
    Ending.REFUSED: Consequence(Budget.PREEMPTION, TaskState.WORKER_FAILED),
    Ending.PREEMPTED: Consequence(Budget.PREEMPTION, TaskState.PREEMPTED),
    Ending.KILLED: Consequence(Budget.PREEMPTION, TaskState.WORKER_FAILED),
    Ending.GANG_STOPPED: Consequence(Budget.NONE, TaskState.PENDING),
}
"""KILLED without a verdict on the job is a worker that stopped it by itself: the infrastructure's doing."""

ADVANCE: Mapping[TaskState, int] = {TaskState.ASSIGNED: 0, TaskState.BUILDING: 1, TaskState.RUNNING: 2}
"""The states of a live attempt, in order."""

LOST = (Ending.WORKER_LOST, Ending.MISSING)
"""Endings after which nobody can deliver the rest of the log."""


UNDONE = (Ending.GANG_STOPPED, Ending.PREEMPTED)
"""Endings that are the scheduler's doing: an attempt that it takes back before the code ran counts as none."""


@attrs.frozen
class Judgement:
    """What an ended attempt makes of its task. At most one of the flags is set."""

    then: TaskState
    failure: bool = False
    preemption: bool = False
    unstarted: bool = False


def judge(
    spec: JobSpec,
    verdict: JobState | None,
    ending: Ending,
    *,
    started: bool,
    failures: int,
    preemptions: int,
    unstarted: int,
) -> Judgement:
    """Say what becomes of a task whose attempt ended.

    Args:
        spec: of its job.
        verdict: how the job ends, if that is decided.
        ending: how the attempt ended.
        started: whether the user's code ever ran.
        failures: failed attempts that the task had before.
        preemptions: attempts that it lost to the infrastructure before.
        unstarted: attempts that ended before the user's code ran.
    """
    row = CONSEQUENCES[ending]
    if ending is Ending.SUCCEEDED:
        return Judgement(row.spent)
    failure = started and row.budget is Budget.FAILURE
    preemption = started and row.budget is Budget.PREEMPTION and not (verdict and ending is Ending.KILLED)
    never = not started and ending not in UNDONE and verdict is None
    if verdict is not None:
        then = TaskState.FAILED if failure else stopped_as(spec, verdict)
    elif never:
        then = TaskState.PENDING if unstarted < MAX_UNSTARTED else TaskState.UNSCHEDULABLE
    elif failure:
        then = TaskState.PENDING if failures < spec.max_retries_failure else row.spent
    elif preemption:
        then = TaskState.PENDING if preemptions < spec.max_retries_preemption else row.spent
    else:
        then = TaskState.PENDING
    return Judgement(then, failure, preemption, never)


def stopped_as(spec: JobSpec, verdict: JobState) -> TaskState:
    """Return the state of a task that was stopped, or never placed again, because of its job's verdict."""
    if spec.group_by is not None and verdict in (JobState.FAILED, JobState.WORKER_FAILED):
        return TaskState.COSCHED_FAILED
    return TaskState.KILLED


def verdict_of(spec: JobSpec, counts: Mapping[TaskState, int]) -> JobState | None:
    """Judge a job by how many of its tasks are in each state; None: nothing is decided yet."""
    failed = counts.get(TaskState.FAILED, 0)
    lost = counts.get(TaskState.WORKER_FAILED, 0) + counts.get(TaskState.PREEMPTED, 0)
    if failed > spec.max_task_failures:
        return JobState.FAILED
    if counts.get(TaskState.UNSCHEDULABLE, 0):
        return JobState.UNSCHEDULABLE
    if spec.group_by is not None and (failed or lost):
        return JobState.FAILED if failed else JobState.WORKER_FAILED
    if sum(counts.get(state, 0) for state in TASK_TERMINAL) < spec.replicas:
        return None
    if counts.get(TaskState.KILLED, 0):
        return JobState.KILLED
    return JobState.WORKER_FAILED if lost else JobState.SUCCEEDED


def shown_state(spec: JobSpec, counts: Mapping[TaskState, int]) -> JobState:
    """Return the state that a job without an end shows."""
    if counts.get(TaskState.RUNNING, 0):
        return JobState.RUNNING
    finished = any(counts.get(state, 0) for state in TASK_TERMINAL)
    if counts.get(TaskState.BUILDING, 0):
        return JobState.RUNNING if finished else JobState.BUILDING
    return JobState.RUNNING if finished else JobState.PENDING
