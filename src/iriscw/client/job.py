"""A job as its submitter holds it."""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any, Final

import anyio

from iriscw.client import wire
from iriscw.client.calls import Calls
from iriscw.client.errors import JobFailed, ResultDamaged, WaitTimeout
from iriscw.client.lines import LineReader
from iriscw.client.model import JobStatus, LogLine, TaskStatus
from iriscw.errors import InvalidArgument
from iriscw.jobs.model import JobState, TaskState
from iriscw.proto.iriscw.v1 import (
    FetchLogsRequest,
    GetJobRequest,
    JobRef,
    JobStatus as WireJobStatus,
    ListTasksRequest,
    ListTasksResponse,
    TerminateJobRequest,
    TerminateJobResponse,
)
from iriscw.task.result import load_result

log = logging.getLogger("iriscw.client")

PAGE: Final = 1000
"""Rows asked for at once; the controller's own limit."""

LAST_WORDS_LINES: Final = 40
"""Of a failed task's log in the error: a traceback with a dozen frames."""

_UNWELL: Final = (
    TaskState.FAILED,
    TaskState.WORKER_FAILED,
    TaskState.PREEMPTED,
    TaskState.COSCHED_FAILED,
    TaskState.UNSCHEDULABLE,
    TaskState.KILLED,
)
"""Tasks whose words a failed job shows, the most telling first."""


class Job:
    """A job that the controller has acknowledged. Made by :class:`Client`, never by hand.

    A job goes on whatever happens to this object. Everything here follows the controller through a restart.

    Attributes:
        id: as commands and other clients name it.
        uid: like the id, but never used again.
        name: as it was submitted.
        seen: the status last heard of; None if none was asked for yet.
    """

    def __init__(self, calls: Calls, job_id: str, uid: str, name: str, seen: JobStatus | None = None) -> None:
        self._calls = calls
        self.id: Final = job_id
        self.uid: Final = uid
        self.name: Final = name
        self.seen = seen

    def __repr__(self) -> str:
        state = f" {self.seen.state.value}" if self.seen is not None else ""
        return f"<iriscw.Job {self.id} {self.name!r}{state}>"

    @property
    def _ref(self) -> JobRef:
        return JobRef(job_id=self.id, job_uid=self.uid)

    async def status(self) -> JobStatus:
        """Ask where the job is now.

        Raises:
            NoSuchJob: the controller has forgotten it.
            OperationError: the controller cannot be reached.
        """
        sent = await self._calls.ask("GetJob", GetJobRequest(job=self._ref), WireJobStatus)
        self.seen = wire.job_status(sent)
        return self.seen

    async def watch(self) -> AsyncGenerator[JobStatus, None]:
        """Iterate over the job's statuses: the present one, then each change. The last is terminal.

        Changes that come faster than they are read are left out, the last one never.

        Raises:
            NoSuchJob: the controller has forgotten it.
            OperationError: the controller cannot be reached for minutes.
        """
        async with aclosing(self._calls.watch(self._ref)) as statuses:
            async for status in statuses:
                self.seen = status
                yield status

    async def wait(self, timeout: float | None = None) -> JobStatus:
        """Wait for the job's end, well or not, and give its last status.

        Args:
            timeout: seconds; None waits for ever.

        Raises:
            WaitTimeout: it has not ended in time. It goes on.
            NoSuchJob: the controller has forgotten it.
            OperationError: the controller cannot be reached for minutes.
        """
        with anyio.move_on_after(timeout):
            async with aclosing(self.watch()) as statuses:
                async for status in statuses:
                    if status.is_over:
                        return status
        raise self._late(timeout)

    def _late(self, timeout_s: float | None) -> WaitTimeout:
        said = f" ({self.seen.reason})" if self.seen is not None and self.seen.reason else ""
        state = self.seen.state.value if self.seen is not None else "unknown"
        return WaitTimeout(f"job {self.id} is {state} after {timeout_s:g} s{said}")

    async def result(self, timeout_s: float | None = None) -> list[Any]:
        """Wait for the job's end and give what its tasks returned, in task order; None for a command's.

        Args:
            timeout_s: seconds for all of it; None waits for ever.

        Raises:
            JobFailed: it ended otherwise than well.
            WaitTimeout: it has not ended in time, or its values have not arrived. The job goes on.
            ResultDamaged: a value did not arrive as it was stored.
            PythonMismatch: the tasks ran another Python than this one.
            NoSuchJob: the controller has forgotten it.
            OperationError: the controller cannot be reached for minutes.
        """
        with anyio.move_on_after(timeout_s):
            status = await self.wait()
            if status.state is not JobState.SUCCEEDED:
                raise await self._failure(status)
            return await self._values(status)
        raise self._late(timeout_s)

    async def _values(self, status: JobStatus) -> list[Any]:
        values: list[Any] = [None] * status.num_tasks
        received: dict[int, bytearray] = {}
        async with aclosing(self._calls.results(self._ref)) as parts:
            async for part in parts:
                data = received.setdefault(part.task_index, bytearray())
                if part.offset == 0:
                    data.clear()  # the stream was opened again
                if part.offset != len(data):
                    raise ResultDamaged(
                        f"the value of task {part.task_index} goes on at byte {part.offset}, not {len(data)}"
                    )
                data += part.data
                stored = part.result
                if stored is not None and len(data) >= stored.size_bytes:
                    if len(data) != stored.size_bytes or hashlib.sha256(data).digest() != stored.sha256:
                        raise ResultDamaged(f"the value of task {part.task_index} is not what was stored")
                    values[part.task_index] = load_result(bytes(data)) if data else None
                    data.clear()
        return values

    async def logs(
        self,
        *,
        follow: bool = False,
        task: int | None = None,
        attempt: int | None = None,
        tail: int = 0,
    ) -> AsyncGenerator[LogLine, None]:
        """Iterate over the lines that the job's tasks have written.

        Lines of one attempt come in their order, those of different tasks as they arrive. A reader that stops early
        frees the stream at once by closing the iterator (``contextlib.aclosing``). Of each attempt the last 64 MiB are
        kept; what is no longer is a warning of the logger ``iriscw.client``.

        Args:
            follow: go on until the job's end.
            task: only this task's.
            attempt: only the attempts of this number.
            tail: begin so many lines before the end of each task's latest attempt, and leave out the earlier ones; at
                most 1 MiB before it. 0: all attempts, from their starts.

        Raises:
            InvalidArgument: a number is negative.
            NoSuchJob: the controller has forgotten it.
            OperationError: the controller cannot be reached for minutes.
        """
        for name, number in (("task", task), ("attempt", attempt), ("tail", tail)):
            if number is not None and number < 0:
                raise InvalidArgument(f"{name}: {number} is negative")
        reader = LineReader(lambda gap: log.warning("iriscw: %s", gap), whole=tail == 0)

        def request() -> FetchLogsRequest:
            return FetchLogsRequest(
                job=self._ref,
                task_index=task,
                attempt_number=attempt,
                cursors=reader.cursors(),
                follow=follow,
                tail_lines=tail,
            )

        async with aclosing(self._calls.logs(request)) as batches:
            async for batch in batches:
                for line in reader.take(batch):
                    yield line
        for line in reader.finish():
            yield line

    async def tasks(self, *, states: Iterable[str] = ()) -> list[TaskStatus]:
        """List the job's tasks, in order of their indexes.

        Args:
            states: only tasks in one of them: ``iriscw.TaskState``, or its name; none given: all.

        Raises:
            InvalidArgument: a state is none.
            NoSuchJob: the controller has forgotten it.
            OperationError: the controller cannot be reached.
        """
        wanted = wire.task_states(states)
        found: list[TaskStatus] = []
        token = ""
        while True:
            request = ListTasksRequest(
                job=self._ref,
                page_size=PAGE,
                page_token=token,
                states=wanted,
            )
            page = await self._calls.ask("ListTasks", request, ListTasksResponse)
            found += [wire.task_status(each) for each in page.tasks]
            token = page.next_page_token
            if not token:
                return found

    async def terminate(self, reason: str = "") -> JobStatus:
        """Have the job ended, and give its status as it is then; :meth:`wait` waits for the end itself.

        A job that has ended stays as it is.

        Raises:
            NoSuchJob: the controller has forgotten it.
            OperationError: the controller cannot be reached.
        """
        key = uuid.uuid4().hex
        request = TerminateJobRequest(job=self._ref, idempotency_key=key, reason=reason)
        await self._calls.ask("TerminateJob", request, TerminateJobResponse, key=key)
        return await self.status()

    async def _failure(self, status: JobStatus) -> JobFailed:
        """Make the error of a job that did not end well, with the words of the task that says most."""
        text = f"job {self.id} ({self.name}) ended {status.state.value}"
        if status.reason:
            text += f": {status.reason}"
        index, words = await self._words_of_the_unwell()
        if status.fault and status.fault not in f"{text}\n{words}":
            text += f"\n{status.fault}"
        if words:
            text += f"\ntask {index}:\n{words}"
        return JobFailed(text, job_id=self.id, state=status.state.value, task_index=index)

    async def _words_of_the_unwell(self) -> tuple[int | None, str]:
        """Give the index of the task that says most, and what it said."""
        for state in _UNWELL:
            for task in await self.tasks(states=(state,)):
                words = await self._last_words(task)
                if words:
                    return task.index, words
        return None, ""

    async def _last_words(self, task: TaskStatus) -> str:
        """Give what a task's last attempt said: the end of its log (a traceback), or its fault."""
        if not task.attempts:
            return ""
        last = task.attempts[0]
        lines = self.logs(task=task.index, attempt=last.number, tail=LAST_WORDS_LINES)
        said = "\n".join([line.text async for line in lines])
        return said if last.fault in said else f"{said}\n{last.fault}".lstrip("\n")
