"""Why a task is not suspended, or does not go on, when somebody asks for that. Pure."""

from __future__ import annotations

from iriscw._errors import InvalidArgument
from iriscw.jobs.errors import GangNotSuspendable, SuspensionRefused, TaskEnded, TaskNotRunning
from iriscw.jobs.job.desired_attempts import stop_for
from iriscw.jobs.job.ledger import JobLedger
from iriscw.jobs.model import TASK_TERMINAL, Attempt, TaskState
from iriscw.jobs.suspension.model import Stage
from iriscw.jobs.suspension.moves import Move


def over(ledger: JobLedger, index: int) -> Exception | None:
    """Say why a task has nothing that could be suspended or go on; None: it may have."""
    if not 0 <= index < ledger.spec.replicas:
        return InvalidArgument(f"{ledger.job_id} has no task {index}")
    state = ledger.state_of(index)
    if ledger.ended is not None or state in TASK_TERMINAL:
        return TaskEnded(f"task {index} of {ledger.job_id} is over: {state.value}")
    return None


def not_suspendable(ledger: JobLedger, index: int) -> Exception | None:
    """Say why a task is not suspended, whatever it does; None: it may be."""
    error = over(ledger, index)
    if error is None and ledger.gang:
        return GangNotSuspendable(f"{ledger.job_id} is a gang, which runs whole or not at all: none of it is suspended")
    return error


def not_now(ledger: JobLedger, attempt: Attempt, move: Move | None) -> Exception | None:
    """Say why a live attempt cannot be suspended just now."""
    if attempt.state is not TaskState.RUNNING:
        return TaskNotRunning(f"the attempt {attempt.uid} has not begun: it is {attempt.state.value}")
    if stop_for(ledger, attempt) is not None:
        return SuspensionRefused(f"the attempt {attempt.uid} is being stopped")
    if move is not None and move.stage is Stage.RESUMING:
        return SuspensionRefused(f"the attempt {attempt.uid} is being brought back")
    why = ledger.suspects.get((attempt.worker_id, attempt.incarnation))
    if why is not None:
        return TaskNotRunning(f"the worker of the attempt {attempt.uid} is out of reach: {why}")
    return None
