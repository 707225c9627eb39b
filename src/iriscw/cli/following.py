"""A job's log as it comes, and what its reader has to know beside it.

Standard output has what the tasks wrote and nothing else; where it is to have the job itself for a program, the log is
on standard error. Standard error says which attempt of a task goes on where it
is not the first one's log any more, why a job waits while nothing of it runs, and how it ended.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Final

import anyio
import attrs

from iriscw._errors import OperationError
from iriscw.cli.attempts import fields
from iriscw.cli.outcome import DONE, UNWELL
from iriscw.cli.output import cell, emit, is_coloured, show_one, visible
from iriscw.client.advice import advice
from iriscw.client.job import LAST_WORDS_LINES, Job
from iriscw.client.model import JobState, JobStatus, LogLine, TaskState

WAITING_S: Final = 2.0
"""How long a job waits before its user is told why, and how often the reason is looked at: a machine that is there
takes a task within less."""

COLOURS: Final = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
"""Of tasks, one after the other: cyan, yellow, green, magenta, blue, and the bright ones. Red is for what failed."""

SIGNALLED: Final = 128
"""What shells add to the number of a signal."""


async def follow(job: Job, *, with_task: bool, write: Callable[[str], None] = emit, **which: Any) -> str:
    """Write a job's log until the job has ended, and say why it waits while it does; give the last lines."""
    last = ""
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_tell_reasons, job)
            last = await write_logs(job, with_task=with_task, write=write, follow=True, **which)
            tasks.cancel_scope.cancel()
    except anyio.get_cancelled_exc_class():  # by Ctrl-C, which ends this program alone
        _say(f"{job.id} goes on: `iriscw logs -f {job.id}` shows it, `iriscw stop {job.id}` ends it")
        raise
    return last


async def conclude(job: Job, form: str, words: str = "") -> int:
    """Say how a job ended, and what to do about its last words; give the exit code for it."""
    status = await job.wait()
    if form != "table":
        show_one(fields(status), form, str)
    reason = f": {cell(status.reason)}" if status.reason else ""
    _say(f"{job.id} {status.state.value}{reason}")
    if status.state is not JobState.SUCCEEDED and (hint := advice(f"{words}\n{status.reason}")):
        _say(f"hint: {visible(hint)}")
    return await code_of(job, status)


async def code_of(job: Job, status: JobStatus) -> int:
    """Return the exit code for a job that has ended.

    Of a job with one task it is the program's own, as a shell tells it; where no program failed by itself, 1.

    Raises:
        OperationError: the controller cannot be reached.
    """
    if status.state is JobState.SUCCEEDED:
        return DONE
    if status.state is JobState.FAILED and status.num_tasks == 1:
        (task,) = await job.tasks()
        return program_code(task.attempts[0].exit_code if task.attempts else None)
    return UNWELL


def program_code(exit_code: int | None) -> int:
    """Return what a shell gives for a program that ended so; a signal is a negative number."""
    if not exit_code:
        return UNWELL
    return exit_code if exit_code > 0 else SIGNALLED - exit_code


async def write_logs(job: Job, *, with_task: bool, write: Callable[[str], None] = emit, **which: Any) -> str:
    """Write a job's log, with the task's number where there are several; attempts but the first are announced.

    Gives the last lines again.

    Args:
        job: whose.
        with_task: whether lines say of which task they are.
        write: puts text where the log goes.
        which: of the log, as :meth:`Job.logs` takes it.
    """
    numbers: dict[int, int] = {}
    last: deque[str] = deque(maxlen=LAST_WORDS_LINES)
    asked = which.get("attempt")
    texts = LogTexts(with_task=with_task, coloured=write is emit and is_coloured())
    async with aclosing(job.logs(**which)) as lines:
        async for line in lines:
            if numbers.get(line.task_index, 0 if asked is None else asked) != line.attempt_number:
                write(texts.end())
                _say(f"task {line.task_index}, attempt {line.attempt_number}:")
            numbers[line.task_index] = line.attempt_number
            last.append(line.text)
            write(texts.of(line))
    return "\n".join(last)


@attrs.define
class LogTexts:
    """What lines and pieces of lines are on a terminal: what goes on is written on, others' begin on their own."""

    with_task: bool
    coloured: bool = False
    """Whether the task's number is in a colour that tells it from its neighbours."""
    _open: tuple[int, int] | None = None
    """Task and attempt whose line has no end yet."""

    def of(self, line: LogLine) -> str:
        """Return what to write for a line, or a piece of one."""
        whose = (line.task_index, line.attempt_number)
        before = ""
        if self._open != whose:
            before = self.end() + self._prefix(line.task_index)
        self._open = None if line.ended else whose
        return f"{before}{line.text}\n" if line.ended else f"{before}{line.text}"

    def _prefix(self, index: int) -> str:
        if not self.with_task:
            return ""
        return f"\x1b[{COLOURS[index % len(COLOURS)]}m{index} |\x1b[0m " if self.coloured else f"{index} | "

    def end(self) -> str:
        """Return what ends a line that has no end."""
        ends = "" if self._open is None else "\n"
        self._open = None
        return ends


async def _tell_reasons(job: Job) -> None:
    told = ""
    try:
        while True:
            await anyio.sleep(WAITING_S)  # not watched: a controller of the version before tells no new reason
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


def write_aside(text: str) -> None:
    """Write to standard error, at once."""
    sys.stderr.write(text)
    sys.stderr.flush()


def _say(text: str) -> None:
    write_aside(f"{text}\n")
