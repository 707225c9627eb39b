"""Suspending and resuming tasks: asked for once, and followed by what the job says of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing

from iriscw.client import wire
from iriscw.client.calls import MethodCalls
from iriscw.client.errors import OrderFailed
from iriscw.client.model import TaskStatus, TaskSuspension
from iriscw.jobs.errors import TaskEnded
from iriscw.jobs.model import TASK_TERMINAL, Suspension
from iriscw.proto.iriscw.v1 import (
    JobRef,
    JobStatus as WireJobStatus,
    ListTasksRequest,
    ListTasksResponse,
    ResumeTaskRequest,
    SuspendTaskRequest,
    TaskSuspension as WireTaskSuspension,
    WatchJobRequest,
)

FROZEN_OR_NOT = (Suspension.NONE, Suspension.SUSPENDED, Suspension.RESUMING)
BACK_OR_NOT = (Suspension.NONE, Suspension.SUSPENDED)
"""Where a task stands once it is known what became of what was asked."""

REPOSITORY = "repository"
"""The tier of those that are to go on on another machine."""

Seen = Callable[[TaskSuspension], None]


async def suspend(calls: MethodCalls, request: SuspendTaskRequest, seen: Seen | None) -> TaskSuspension:
    """Have a task suspended, and wait until it is.

    Raises:
        TaskEnded: the task, or the attempt that was to be suspended, ended before.
        OrderFailed: it runs on, or it was not stored; the text says why.
        OperationError: it was not asked for, or the controller cannot be reached. It goes on then.
    """
    begun = await calls.ask("SuspendTask", request, WireTaskSuspension, key=request.idempotency_key)
    ref = request.job or JobRef()
    now = wire.task_suspension(begun)
    found = await _until(calls, ref, now, lambda now: now.phase in FROZEN_OR_NOT and not now.storing, seen)
    stored = request.tier != REPOSITORY or found.repository or found.phase is not Suspension.SUSPENDED
    if found.phase and stored:
        return found
    if found.phase:
        said = f"task {found.task} is suspended on {found.node}, and not in the repository: "
        why = found.reason or "it was suspended before, to another tier"
        raise OrderFailed(said + why, operation=found.checkpoint, outcome="stayed", kind="")
    why = found.reason or "somebody had it go on at once"
    raise OrderFailed(f"task {found.task} is not suspended: {why}", operation="", outcome="undone", kind="")


async def resume(calls: MethodCalls, request: ResumeTaskRequest, seen: Seen | None) -> TaskSuspension:
    """Have a suspended task go on, and wait until it runs.

    Raises:
        TaskEnded: the task, or its suspended attempt, ended before.
        OrderFailed: it is suspended again; the text says why.
        OperationError: it was not asked for, or the controller cannot be reached. It goes on then.
    """
    begun = await calls.ask("ResumeTask", request, WireTaskSuspension, key=request.idempotency_key)
    ref = request.job or JobRef()
    found = await _until(calls, ref, wire.task_suspension(begun), lambda now: now.phase in BACK_OR_NOT, seen)
    if not found.phase:
        return found
    why = found.reason or "somebody had it suspended again"
    raise OrderFailed(f"task {found.task} does not run: {why}", operation="", outcome="undone", kind="")


async def _until(
    calls: MethodCalls, job: JobRef, begun: TaskSuspension, enough: Callable[[TaskSuspension], bool], seen: Seen | None
) -> TaskSuspension:
    """Wait until it is ``enough``; give how the task is then."""
    now = begun
    if seen is not None:
        seen(now)
    while not enough(now):
        watched = calls.stream("WatchJob", lambda: WatchJobRequest(job=job), WireJobStatus)
        async with aclosing(watched) as changes:
            async for _ in changes:
                before, now = now, _of_attempt(await _task(calls, job, begun.task), begun)
                if seen is not None and now != before:
                    seen(now)
                if enough(now):
                    break
    return now


async def _task(calls: MethodCalls, job: JobRef, index: int) -> TaskStatus:
    request = ListTasksRequest(job=job, page_size=1, page_token=str(index))
    page = await calls.ask("ListTasks", request, ListTasksResponse)
    return wire.task_status(page.tasks[0])


def _of_attempt(task: TaskStatus, begun: TaskSuspension) -> TaskSuspension:
    """Say how the attempt is that this began with.

    Raises:
        TaskEnded: it has ended.
    """
    latest = task.attempts[0] if task.attempts else None
    if latest is None or latest.uid != begun.attempt_uid or task.state in TASK_TERMINAL:
        ended = next((each for each in task.attempts if each.uid == begun.attempt_uid), None)
        why = f": {ended.reason}" if ended is not None and ended.reason else ""
        raise TaskEnded(f"attempt {begun.attempt_uid} of task {task.index} is over{why}")
    return task.suspension or TaskSuspension(task.index, begun.attempt_uid)
