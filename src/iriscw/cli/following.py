"""A job's log as it comes, and what its reader has to know beside it.

Standard output has what the tasks wrote and nothing else. Standard error says which attempt of a task goes on where it
is not the first one's log any more, why a job waits while nothing of it runs, and how it ended.
"""

from __future__ import annotations

import sys
from contextlib import aclosing
from typing import Any, Final

import anyio

from iriscw.cli.attempts import fields
from iriscw.cli.outcome import DONE, UNWELL
from iriscw.cli.output import cell, emit, show_one
from iriscw.client.job import Job
from iriscw.client.model import JobState, JobStatus, LogLine, TaskState
from iriscw.errors import OperationError

WAITING_S: Final = 2.0
"""How long a job waits before its user is told why, and how often the reason is looked at: a machine that is there
takes a task within less."""


async def follow(job: Job, *, with_task: bool, **which: Any) -> None:
    """Write a job's log until the job has ended, and say why it waits while it does."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_tell_reasons, job)
        await write_logs(job, with_task=with_task, follow=True, **which)
        tasks.cancel_scope.cancel()


async def conclude(job: Job, form: str) -> int:
    """Say how a job ended, and give the exit code for it."""
    status = await job.wait()
    if form != "table":
        show_one(fields(status), form, str)
    reason = f": {cell(status.reason)}" if status.reason else ""
    _say(f"{job.id} {status.state.value}{reason}")
    return DONE if status.state is JobState.SUCCEEDED else UNWELL


async def write_logs(job: Job, *, with_task: bool, **which: Any) -> None:
    """Write a job's log, with the task's number where there are several; attempts but the first are announced."""
    numbers: dict[int, int] = {}
    asked = which.get("attempt")
    async with aclosing(job.logs(**which)) as lines:
        async for line in lines:
            if numbers.get(line.task_index, 0 if asked is None else asked) != line.attempt_number:
                _say(f"task {line.task_index}, attempt {line.attempt_number}:")
            numbers[line.task_index] = line.attempt_number
            emit(log_text(line, with_task=with_task))


def log_text(line: LogLine, *, with_task: bool) -> str:
    """Write one line of a log."""
    return f"{line.task_index} | {line.text}\n" if with_task else f"{line.text}\n"


async def _tell_reasons(job: Job) -> None:
    told = ""
    try:
        while True:
            await anyio.sleep(WAITING_S)  # a new reason is no event: it is made when somebody asks
            status = await job.status()
            if status.is_over:
                return
            if waits(status):
                if status.reason and status.reason != told:
                    _say(f"{job.id} waits: {cell(status.reason)}")
                told = status.reason
                continue
            told = ""
            async with aclosing(job.watch()) as statuses:
                async for status in statuses:
                    if status.is_over:
                        return
                    if waits(status):
                        break
    except OperationError:
        return  # the log's own stream meets the same, has the longer patience, and decides


def waits(status: JobStatus) -> bool:
    """Say whether nothing of a job runs, but some of it wants to."""
    return not status.is_over and status.live == 0 and status.tasks.get(TaskState.PENDING, 0) > 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
