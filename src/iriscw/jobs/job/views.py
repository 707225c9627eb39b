"""What users see of a job: answers and events, made from its ledger.

A task whose last log line is still due shows what its attempt was, not how it ended: nobody reads "SUCCEEDED"
and then misses lines of its log (INV-J8).
"""

from __future__ import annotations

import attrs

from iriscw.jobs.job.ledger import JobLedger
from iriscw.jobs.keeping.copies import copies_view
from iriscw.jobs.lifecycle import LOST, stopped_as
from iriscw.jobs.messages import (
    MAX_PAGE,
    DescribeJob,
    JobTally,
    JobView,
    ListTasks,
    TaskChanged,
    TaskPage,
    TaskRow,
)
from iriscw.jobs.model import TASK_TERMINAL, Attempt, JobSpec, JobState, Suspension, TaskState, job_uid
from iriscw.jobs.suspension.moves import view_of

LAST_LINES_DUE = "its last log lines are still to come"
"""What is said of an attempt whose end is known and not shown yet."""


def answer(ledger: JobLedger, question: DescribeJob | ListTasks, pending_reason: str) -> JobView | TaskPage:
    """Answer a question about the job."""
    if isinstance(question, ListTasks):
        return _task_page(ledger, question, pending_reason)
    end = ledger.ended
    return JobView(
        job_id=ledger.job_id,
        uid=job_uid(ledger.job_id),
        spec=ledger.spec,
        state=ledger.shown(),
        reason=end.reason if end is not None else _stopping(ledger),
        counts=ledger.visible_counts(),
        failures=ledger.failures,
        preemptions=ledger.preemptions,
        pending_reason=pending_reason,
        submitted_wall_ns=ledger.submitted_wall_ns,
        ended_wall_ns=end.wall_ns if end is not None else 0,
        started_wall_ns=ledger.started_wall_ns,
        fault=_fault(ledger) if end is not None and end.state is JobState.FAILED else "",
        suspended=len(ledger.away),
    )


def tally(ledger: JobLedger) -> JobTally:
    """Return what a listing shows of the job's tasks."""
    return JobTally(
        counts=ledger.visible_counts(),
        failures=ledger.failures,
        preemptions=ledger.preemptions,
        started_wall_ns=ledger.started_wall_ns,
        reason=_stopping(ledger),
        suspended=len(ledger.away),
    )


def _fault(ledger: JobLedger) -> str:
    """Return what the task said that :func:`reason_of` a failed job names."""
    if ledger.culprit is None:
        return ""
    attempt = ledger.tasks[ledger.culprit].attempt
    return "" if attempt is None else attempt.details


def _stopping(ledger: JobLedger) -> str:
    if ledger.verdict is not None:
        return f"ends as {ledger.verdict.state.value}: {ledger.verdict.reason}"
    if ledger.suspects:
        (worker_id, _), why = next(iter(ledger.suspects.items()))
        return f"{len(ledger.suspects)} workers out of reach, first {worker_id}: {why}"
    return ""


def _task_page(ledger: JobLedger, question: ListTasks, pending_reason: str) -> TaskPage:
    start = max(question.start, 0)
    end = min(start + min(max(question.limit, 1), MAX_PAGE), ledger.spec.replicas)
    rows = tuple(_task_row(ledger, index) for index in range(start, end))
    return TaskPage(rows, end if end < ledger.spec.replicas else -1, pending_reason)


def _task_row(ledger: JobLedger, index: int) -> TaskRow:
    task = ledger.tasks.get(index)
    attempt = None if task is None else task.attempt
    if task is None or attempt is None:
        state = ledger.state_of(index)
        given_up = ledger.verdict if state is TaskState.UNSCHEDULABLE else None
        reason = "" if given_up is None else given_up.reason
        return TaskRow(index, state, reason=reason)
    reason = attempt.reason
    away = attempt.uid in ledger.away
    move = ledger.moves.get(attempt.uid)
    copies = ledger.copies.get(attempt.uid)
    view = None if move is None or not move.number else view_of(index, attempt.uid, move)
    suspicion = None if away else ledger.suspects.get((attempt.worker_id, attempt.incarnation))
    if view is not None and view.phase is not Suspension.NONE:
        reason = view.reason
    elif attempt.live and suspicion is not None:
        reason = f"worker out of reach ({suspicion}): waits until it is fenced or its lease is over"
    elif task.logs_lost and not attempt.live:  # else it is the one before that lost it
        reason = _with_lost_log(reason)
    end = None if attempt.end is None or task.logs_due else attempt.end.saying(reason)
    shown = attrs.evolve(attempt, end=end, worker_id="" if away else attempt.worker_id)
    return TaskRow(
        index=index,
        state=attempt.state if task.logs_due else ledger.state_of(index),
        failures=task.failures,
        preemptions=task.preemptions,
        worker_id=shown.worker_id,
        reason=reason,
        logs_complete=not attempt.live and not task.logs_due and not task.logs_lost,
        attempt=shown,
        attempt_reason=LAST_LINES_DUE if task.logs_due else reason,
        earlier=tuple(_shown(each) for each in reversed(task.earlier)),
        suspension=view,
        copies=None if copies is None else copies_view(copies),
    )


def _with_lost_log(reason: str) -> str:
    return f"{reason}; the last log lines may be missing" if reason else "the last log lines may be missing"


def _shown(attempt: Attempt) -> Attempt:
    """Return a copy of an earlier attempt: the ledger's own changes."""
    end = attempt.end
    if end is not None and end.ending in LOST:
        end = end.saying(_with_lost_log(end.reason))
    return attrs.evolve(attempt, end=end)


def task_changed(
    ledger: JobLedger,
    index: int,
    state: TaskState,
    uid: str,
    worker_id: str,
    *,
    wall_ns: int,
    log_offset: int = 0,
    logs_complete: bool = False,
) -> TaskChanged:
    """Return the event of a task's new state."""
    return TaskChanged(ledger.job_id, index, state, uid, worker_id, log_offset, logs_complete, wall_ns)


def waiting_state(spec: JobSpec, verdict: JobState) -> TaskState:
    """Return the state of the tasks that wait when a verdict is reached."""
    if verdict is JobState.UNSCHEDULABLE:
        return TaskState.UNSCHEDULABLE
    return stopped_as(spec, verdict)


_CULPRITS = {
    JobState.FAILED: (TaskState.FAILED,),
    JobState.SUCCEEDED: (TaskState.FAILED,),  # as many as it may have
    JobState.WORKER_FAILED: (TaskState.WORKER_FAILED, TaskState.PREEMPTED),
    JobState.UNSCHEDULABLE: (TaskState.UNSCHEDULABLE,),
}


def reason_of(ledger: JobLedger, verdict: JobState) -> str:
    """Say in one sentence why a job ends so: how many tasks, and what the one of lowest index says."""
    culprits = _CULPRITS.get(verdict, ())
    indexes = [index for index, task in ledger.tasks.items() if task.state in culprits]
    if not indexes:
        return ""
    first = ledger.tasks[min(indexes)].attempt
    assert first is not None
    said = first.reason or (f"exit code {first.exit_code}" if first.exit_code is not None else "no reason given")
    what = "tasks failed" if verdict is JobState.SUCCEEDED else "tasks"
    return f"{len(indexes)} of {ledger.spec.replicas} {what}; task {min(indexes)}: {said}"


def over(ledger: JobLedger) -> bool:
    """Whether every task is over for good."""
    return sum(ledger.counts.get(state, 0) for state in TASK_TERMINAL) == ledger.spec.replicas
