"""A job as its submitter holds it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Any, Final, overload

import anyio

from iriscw._errors import InvalidArgument, OperationError, UsageError
from iriscw.client import commands, peers, wire
from iriscw.client.advice import advice
from iriscw.client.arguments import check_count, check_seconds
from iriscw.client.calls import MethodCalls
from iriscw.client.errors import JobFailed, TaskFailed, WaitTimeout
from iriscw.client.lines import LineReader
from iriscw.client.model import Endpoint, ExecOutput, ExecResult, JobStatus, LogLine, PeerAddress, TaskStatus
from iriscw.client.submission import Command
from iriscw.client.values import ValueReader, arrived, failure_of
from iriscw.jobs.model import JobState, TaskState
from iriscw.proto.iriscw.v1 import (
    ExecTaskRequest,
    FetchLogsRequest,
    GetJobRequest,
    JobRef,
    JobStatus as WireJobStatus,
    ListTasksRequest,
    ListTasksResponse,
    LogBatch,
    TerminateJobRequest,
    TerminateJobResponse,
)

log = logging.getLogger("iriscw.client")

LINE_PATIENCE_S: Final = 1.0
"""For which who follows a log waits for a line to end."""

PAGE: Final = 1000
"""Rows asked for at once; the controller's own limit."""

REASON_S: Final = 2.0
"""How long who gave up waiting asks why the job waits still."""

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

    def __init__(self, calls: MethodCalls, job_id: str, uid: str, name: str, seen: JobStatus | None = None) -> None:
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

        Another reason why tasks wait is a change, told within a few seconds. Changes that come faster than they are
        read are left out, the last one never.

        Raises:
            NoSuchJob: the controller has forgotten it.
            OperationError: the controller cannot be reached for minutes.
        """
        async with aclosing(self._calls.watch(self._ref)) as statuses:
            async for status in statuses:
                self.seen = status
                yield status

    async def wait(self, timeout_s: float | None = None) -> JobStatus:
        """Wait for the job's end, well or not, and give its last status.

        Args:
            timeout_s: seconds; None waits for ever.

        Raises:
            WaitTimeout: it has not ended in time. It goes on.
            InvalidArgument: the time is none.
            NoSuchJob: the controller has forgotten it.
            OperationError: the controller cannot be reached for minutes.
        """
        check_seconds("timeout_s", timeout_s)
        with anyio.move_on_after(timeout_s):
            async with aclosing(self.watch()) as statuses:
                async for status in statuses:
                    if status.is_over:
                        return status
        raise await self._late(timeout_s)

    async def _late(self, timeout_s: float | None) -> WaitTimeout:
        """Return the error of a wait that was too short, with the reason of now: a new one is told seconds later."""
        with anyio.move_on_after(REASON_S), contextlib.suppress(OperationError, UsageError):
            await self.status()
        said = f" ({self.seen.reason})" if self.seen is not None and self.seen.reason else ""
        state = self.seen.shown_state if self.seen is not None else "unknown"
        return WaitTimeout(f"job {self.id} is {state} after {timeout_s:g} s{said}")

    @overload
    async def result(self, timeout_s: float | None = None) -> list[Any]: ...

    @overload
    async def result(self, timeout_s: float | None = None, *, task: int) -> Any: ...

    async def result(self, timeout_s: float | None = None, *, task: int | None = None) -> Any:
        """Wait for the job's end and give what its tasks returned, in task order; None for a command's.

        Of a job that may lose tasks (``max_task_failures``) a :class:`TaskFailed` stands in the place of the value of
        each task that has failed. With ``task`` only that task's end is waited for, and its own value given, however
        the job ends.

        Args:
            timeout_s: seconds for all of it; None waits for ever.
            task: which task; None: all.

        Raises:
            JobFailed: it ended otherwise than well.
            TaskFailed: ``task`` did.
            WaitTimeout: it has not ended in time, or its values have not arrived. The job goes on.
            InvalidArgument: the time is none, or there is no such task.
            ResultDamaged: a value did not arrive as it was stored.
            PythonMismatch: the tasks ran another Python than this one.
            ValuesUnreadable: values cannot be unpickled here. It has the others, and what each of these raised.
            NoSuchJob: the controller has forgotten it.
            OperationError: the controller cannot be reached for minutes.
        """
        check_seconds("timeout_s", timeout_s)
        check_count("task", task)
        with anyio.move_on_after(timeout_s):
            if task is not None:
                return await self._value_of(task)
            status = await self.wait()
            if status.state is not JobState.SUCCEEDED:
                raise await self._failure(status)
            return await self._values(status)
        raise await self._late(timeout_s)

    async def results(self) -> AsyncGenerator[tuple[int, Any], None]:
        """Iterate over what tasks return, as they end well: the index of a task, and its value.

        Values of tasks that have ended already come first. Then, at the job's end, a :class:`TaskFailed` comes for each
        task that has failed where the job may lose some (``max_task_failures``); and None for what has no value: a
        command's tasks.

        Raises:
            JobFailed: the job ended otherwise than well. What was returned until then has been given.
            ResultDamaged, PythonMismatch, NoSuchJob, OperationError: as :meth:`result`.
            ValuesUnreadable: at the end: values cannot be unpickled here, and were left out.
        """
        reader = ValueReader(self._calls, self._shown)
        given: dict[int, None] = {}
        async with aclosing(arrived(self._calls.results(self._ref, as_they_come=True))) as values:
            async for index, data in values:
                given[index] = None
                value = reader.read(index, data)
                if reader.could_read(index):
                    yield index, value
        status = await self.wait()
        if status.state is not JobState.SUCCEEDED:
            raise await self._failure(status)
        failed = await self._failed(status)
        for index in range(status.num_tasks):
            if index not in given:
                yield index, failed.get(index)
        reader.check([])

    @property
    def _shown(self) -> str:
        return f"job {self.id} ({self.name})"

    async def _values(self, status: JobStatus) -> list[Any]:
        values: list[Any] = [None] * status.num_tasks
        reader = ValueReader(self._calls, self._shown)
        async with aclosing(arrived(self._calls.results(self._ref))) as received:
            async for index, data in received:
                values[index] = reader.read(index, data)
        for index, failure in (await self._failed(status)).items():
            values[index] = failure
        reader.check(values)
        return values

    async def _failed(self, status: JobStatus) -> dict[int, TaskFailed]:
        """Return what stands for the values of the tasks that a job lost and may lose, by index."""
        if not status.tasks.get(TaskState.FAILED):
            return {}
        return {each.index: failure_of(self.id, each) for each in await self.tasks(states=(TaskState.FAILED,))}

    async def _value_of(self, task: int) -> Any:
        if task and task >= (self.seen or await self.status()).num_tasks:
            raise InvalidArgument(f"{self.id} has no task {task}")
        reader = ValueReader(self._calls, self._shown)
        found: list[Any] = []
        async with aclosing(arrived(self._calls.results(self._ref, task=task))) as received:
            async for index, data in received:
                if index == task:  # a controller of an earlier version gives all
                    found.append(reader.read(index, data))
        reader.check(found)
        ended = [] if found else [each for each in await self.tasks() if each.index == task]
        if ended and ended[0].state is not TaskState.SUCCEEDED:
            raise failure_of(self.id, ended[0])
        return found[0] if found else None

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
        frees the stream at once by closing the iterator (``contextlib.aclosing``). Of each attempt the last 48 MiB are
        kept; what is no longer is a warning of the logger ``iriscw.client``. Who follows is given what stands without a
        line feed for a second, and what comes of it afterwards as further pieces (``LogLine.ended``).

        Args:
            follow: go on until the job's end.
            task: only this task's.
            attempt: only the attempts of this number.
            tail: begin so many lines before the end of each task's latest attempt, and leave out the earlier ones; at
                most 1 MiB before it. 0: all attempts, from their starts.

        Raises:
            InvalidArgument: a number is negative, or there is no such task.
            NoSuchJob: the controller has forgotten it.
            OperationError: the controller cannot be reached for minutes.
        """
        for name, number in (("task", task), ("attempt", attempt), ("tail", tail)):
            check_count(name, number)
        if task and task >= (self.seen or await self.status()).num_tasks:  # each job has a task 0
            raise InvalidArgument(f"{self.id} has no task {task}")
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

        async with aclosing(_with_pauses(self._calls.logs(request), reader if follow else None)) as batches:
            async for batch in batches:
                for line in reader.so_far() if batch is None else reader.take(batch):
                    yield line
        for line in reader.finish():
            yield line

    async def exec(
        self,
        argv: Sequence[str],
        *,
        task: int | None = None,
        timeout_s: float = 3600.0,
        output: Callable[[ExecOutput], object] | None = None,
    ) -> ExecResult:
        """Run a command beside a task that runs, and give its exit code and its outputs.

        It is where the task is: in its container and its working folder, with its variables and its GPUs. No shell is
        involved, and standard input is empty. Whoever is cancelled here kills it, and the end of the task does. It is
        never begun twice.

        Args:
            argv: the program and its arguments.
            task: beside which; None: the first that runs.
            timeout_s: seconds, a day at most, after which it is killed.
            output: is given each piece of the outputs as it comes, and must not block. Then nothing is kept, and the
                result has the exit code alone; without it the first MiB of each output is kept.

        Raises:
            InvalidJob: there is no program, or an argument cannot be one.
            InvalidArgument: there is no such task, or the time is none.
            CommandNotStarted: there is no such program where the task runs.
            CommandKilled: it was killed before it ended: its time was over, its task ended, or the way to it broke.
            TaskNotRunning: the task does not run, or no task does.
            TaskEnded: it is over.
            TaskOutOfReach: nothing can be run where it is.
            TooManyCommands: as many commands run as the controller attends.
            PermissionDenied: it takes the cluster's own token; a task's does not do.
            NoSuchJob: the controller has forgotten it.
            OperationError: the controller cannot be reached.
        """
        check_seconds("timeout_s", timeout_s)
        timeout_ms = round(timeout_s * 1000) if math.isfinite(timeout_s) else -1
        if timeout_ms <= 0:
            raise InvalidArgument(f"timeout_s: {timeout_s:g} is not a time for a command")
        check_count("task", task)
        words = list(Command(argv).argv)
        request = ExecTaskRequest(job=self._ref, task_index=task, argv=words, timeout_ms=timeout_ms)
        return await commands.run(self._calls, request, timeout_s, output)

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

    async def endpoints(self) -> list[Endpoint]:
        """List where the job's replicas are reached that run now, in order of their indexes.

        One that waits, is suspended or is over has no endpoint. A replica that is tried again has another one, with
        other ports.

        Raises:
            NoSuchJob: the controller has forgotten it.
            OperationError: the controller cannot be reached.
        """
        async with aclosing(peers.watch(self._calls, self._ref, follow=False)) as states:
            async for known in states:
                return [known.endpoints[index] for index in sorted(known.endpoints)]
        return []

    async def peers(self, port: str, timeout_s: float | None = None) -> tuple[PeerAddress, ...]:
        """Wait until all replicas run, and give where each listens to the named ``port``, by index.

        What is given is true at that moment, and a replica that runs may not listen yet: try for a while. One that is
        tried again has another address: ask again when it does not answer.

        Args:
            port: one of the names in the job's ``ports``.
            timeout_s: seconds; None waits for ever.

        Raises:
            InvalidArgument: the name, or the time, is none.
            NoSuchPort: the job did not ask for a port of this name.
            PeerOver: a replica has ended for good, so that never all of them will run.
            WaitTimeout: not all run in time.
            NoSuchJob: the controller has forgotten it.
            OperationError: the controller cannot be reached for minutes.
        """
        check_seconds("timeout_s", timeout_s)
        if not isinstance(port, str):
            raise InvalidArgument(f"port: {port!r:.64} is not the name of a port")
        with anyio.move_on_after(timeout_s):
            return await peers.addresses(self._calls, self._ref, port)
        raise WaitTimeout(f"not all replicas of {self.id} have an address after {timeout_s:g} s")

    async def terminate(self, reason: str = "") -> JobStatus:
        """Have the job ended, and give its status as it is then; :meth:`wait` waits for the end itself.

        A job that has ended stays as it is.

        Raises:
            InvalidArgument: the reason is no text.
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
        if hint := advice(text):
            text += f"\nhint: {hint}"
        return JobFailed(text, job_id=self.id, state=status.state.value, task_index=index)

    async def _words_of_the_unwell(self) -> tuple[int | None, str]:
        """Return the index of the task that says most, and what it said."""
        for state in _UNWELL:
            for task in await self.tasks(states=(state,)):
                words = await self._last_words(task)
                if words:
                    return task.index, words
        return None, ""

    async def _last_words(self, task: TaskStatus) -> str:
        """Return what a task's last attempt said: the end of its log (a traceback), or its fault."""
        if not task.attempts:
            return ""
        last = task.attempts[0]
        lines = self.logs(task=task.index, attempt=last.number, tail=LAST_WORDS_LINES)
        said = "\n".join([line.text async for line in lines])
        return said if last.fault in said else f"{said}\n{last.fault}".lstrip("\n")


async def _with_pauses(
    batches: AsyncGenerator[LogBatch, None], reader: LineReader | None
) -> AsyncGenerator[LogBatch | None, None]:
    """Iterate over batches, and give None where a line has stood unfinished for ``LINE_PATIENCE_S``.

    A generator cannot be asked for its next value with a deadline, which would end it: so a task asks.
    """
    if reader is None:
        async with aclosing(batches):
            async for batch in batches:
                yield batch
        return
    arrived: asyncio.Queue[LogBatch | None] = asyncio.Queue(1)

    async def ask() -> None:
        async with aclosing(batches):
            async for batch in batches:
                await arrived.put(batch)

    asking = asyncio.get_running_loop().create_task(ask())
    asking.add_done_callback(lambda _: arrived.put_nowait(None) if arrived.empty() else None)
    due = math.inf
    try:
        while not (asking.done() and arrived.empty()):
            found: list[LogBatch | None] = []
            with anyio.CancelScope(deadline=due):
                found.append(await arrived.get())
            if not found:
                due = math.inf
                yield None
            elif found[0] is not None:
                yield found[0]
                due = min(due, anyio.current_time() + LINE_PATIENCE_S) if reader.unfinished else math.inf
        await asking  # raises what ended it
    finally:
        asking.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([asking])
        if not asking.cancelled():
            asking.exception()  # seen, also where nobody waited for it
