"""Commands beside running tasks: a part of ControllerService.

The platform leads into the pod of the task's worker, or what the task has of its own
(:class:`~iriscw.cloud.ports.Connection`). What runs there is
:mod:`iriscw.processes.entering`, which finds the attempt and runs the command beside it. It is not the worker that does
it: a command needs nothing of the worker, and so it also runs where the worker hangs, which is when one is wanted.

A command is for those who may do everything. Beside a task it can do what the task can, with the task's token too.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

import anyio
import attrs

from iriscw._errors import InvalidArgument
from iriscw.cloud.drivers.loading import CloudDrivers, TaskConnections
from iriscw.cloud.model import (
    LABEL_INCARNATION,
    LABEL_WORKER,
    CloudError,
    ExecEnd,
    ExecOutput,
    Forbidden,
    Gone,
    InvalidSpec,
    PodPhase,
)
from iriscw.cloud.ports import Connection
from iriscw.controller.doors.access import Access
from iriscw.controller.doors.rules import COMMAND_RULES
from iriscw.controller.doors.streams import Switchboard
from iriscw.fleet.model import TASK_RUNTIME
from iriscw.jobs.errors import CommandKilled, CommandNotStarted, TaskEnded, TaskNotRunning, TooManyCommands
from iriscw.jobs.messages import MAX_PAGE, JobView, ListTasks, TaskPage, TaskRow
from iriscw.jobs.model import JOB_TERMINAL, Suspension, TaskState
from iriscw.nodes.errors import TaskOutOfReach
from iriscw.processes import entering
from iriscw.proto.iriscw import v1
from iriscw.rpc.rules import ServicePart
from iriscw.rpc.tokens import Principal

log = logging.getLogger(__name__)

MAX_COMMANDS = 64
"""At once. Each is a few processes where it runs and a stream here; an API server has 400 requests under way in all."""

TIMEOUT_S = 3600.0
"""Of a command whose caller says nothing: as of each stream."""

MAX_TIMEOUT_S = 86_400.0
"""A command that runs longer is a job."""

MAX_NOTE_BYTES = 4096

SOURCE = Path(entering.__file__).read_text(encoding="utf-8")


@attrs.define
class CommandStatistics:
    """Commands beside tasks since the start; ``running`` is of now."""

    running: int = 0
    ended: int = 0
    """By themselves, whatever their exit codes are."""
    failed: int = 0
    """Those that were not started, were killed, or whose caller went away."""


class CommandsDoor(ServicePart, v1.ControllerServiceBase):
    """Runs commands, for callers who may do everything.

    Args:
        access: asks on behalf of callers.
        switchboard: the connected workers, whose pods are entered.
        drivers: the platform's.
    """

    method_rules = COMMAND_RULES

    def __init__(self, access: Access, switchboard: Switchboard, drivers: CloudDrivers) -> None:
        self._access = access
        self._switchboard = switchboard
        self._drivers = drivers
        self._counts = CommandStatistics()

    def statistics(self) -> CommandStatistics:
        """Return figures of now."""
        return attrs.evolve(self._counts)

    async def exec_task(self, message: v1.ExecTaskRequest) -> AsyncIterator[v1.ExecTaskReply]:
        """Run a command beside a task."""
        principal = self._access.admin()
        view = await self._access.view(message.job, principal)
        async with aclosing(self._run(message, view, principal)) as replies:
            async for reply in replies:
                yield reply

    async def _run(
        self, message: v1.ExecTaskRequest, view: JobView, principal: Principal
    ) -> AsyncGenerator[v1.ExecTaskReply, None]:
        """Run a command beside a task, and give what it says and its exit code."""
        argv, timeout_s = _checked(message)
        with self._counted():
            row = await self._row(view, message.task_index)
            task = f"task {row.index} of {view.job_id}"
            connection = await self._connection(row, task)
            log.info(
                "%s has %s run beside %s, with %d more words",
                principal,
                argv[0][:200],
                task,
                len(argv) - 1,
                extra={"job": view.job_id, "attempt": row.uid, "worker": row.worker_id},
            )
            mark = f"\x1eiriscw-{secrets.token_hex(8)}:"
            words = (*connection.interpreter, "-I", "-S", "-c", SOURCE, mark, row.uid, *argv)
            notes = Notes(mark.encode())
            said = _until(connection.stream(words), anyio.current_time() + timeout_s, timeout_s)
            try:
                async with aclosing(said):
                    async for each in said:
                        for reply in _replies(each, notes, argv[0], task):
                            yield reply
            except CloudError as error:
                raise _narrowed(error, task) from error
            self._counts.ended += 1

    @contextmanager
    def _counted(self) -> Iterator[None]:
        counts = self._counts
        if counts.running >= MAX_COMMANDS:
            raise TooManyCommands(f"{MAX_COMMANDS} commands run beside tasks already")
        counts.running, ended = counts.running + 1, counts.ended
        try:
            yield
        finally:
            counts.running -= 1
            counts.failed += counts.ended == ended

    async def _row(self, view: JobView, index: int | None) -> TaskRow:
        """Return the task that is meant, with its attempt that runs."""
        if index is not None:
            row = await self._access.task(view.job_id, index)
            if not _runs(row):
                state = row.state if row.suspension is None else row.suspension.phase
                raise TaskNotRunning(f"task {index} of {view.job_id} does not run: it is {state.value}")
            return row
        if view.state in JOB_TERMINAL:
            raise TaskEnded(f"{view.job_id} is over: {view.state.value}")
        start = 0
        while start >= 0:
            page: TaskPage = await self._access.ask(f"/jobs/{view.job_id}", ListTasks(start, MAX_PAGE))
            for row in page.rows:
                if _runs(row):
                    return row
            start = page.next
        shown = "SUSPENDED" if view.suspended else view.state.value
        raise TaskNotRunning(f"no task of {view.job_id} runs: it is {shown}")

    async def _connection(self, row: TaskRow, task: str) -> Connection:
        """Return the way to where an attempt is."""
        worker = self._switchboard.find(row.worker_id)
        if worker is None:
            raise TaskNotRunning(f"{task} is on worker {row.worker_id}, which is not heard of")
        labels = {LABEL_WORKER: row.worker_id, LABEL_INCARNATION: worker.info.incarnation}
        try:
            pods = [pod for pod in await self._drivers.pods.list(labels) if pod.phase is PodPhase.RUNNING]
            if not pods:
                raise TaskNotRunning(f"{task} is on worker {row.worker_id}, whose pod does not run")
            if worker.info.attributes.get(TASK_RUNTIME) is None:
                return self._drivers.connection(pods[0].name, pods[0].uid)
            if isinstance(self._drivers, TaskConnections):
                return await self._drivers.task_connection(pods[0], row.uid)
        except CloudError as error:
            raise _narrowed(error, task) from error
        raise TaskOutOfReach(f"{task} has a container of its own, and this platform leads into none")


def _checked(message: v1.ExecTaskRequest) -> tuple[tuple[str, ...], float]:
    argv, timeout_s = tuple(message.argv), message.timeout_ms / 1000 or TIMEOUT_S
    if not argv or not argv[0]:
        raise InvalidArgument("the command is empty")
    if any("\0" in word for word in argv):
        raise InvalidArgument("a word of the command holds a NUL")
    if not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise InvalidArgument(f"a command has a day at most, not {timeout_s:g} s")
    return argv, timeout_s


def _runs(row: TaskRow) -> bool:
    suspended = row.suspension is not None and row.suspension.phase is not Suspension.NONE
    return row.state is TaskState.RUNNING and row.ending is None and bool(row.uid) and not suspended


async def _until(
    said: AsyncIterator[ExecOutput | ExecEnd], until: float, timeout_s: float
) -> AsyncGenerator[ExecOutput | ExecEnd, None]:
    """Yield what is said until the time is over. What ends the stream kills the command."""
    async with aclosing(said) as stream:  # type: ignore[type-var]  # streams are generators, typed as iterators
        while True:
            found: ExecOutput | ExecEnd | None = None
            with anyio.CancelScope(deadline=until) as scope:
                found = await anext(stream, None)
            if scope.cancelled_caught:
                raise CommandKilled(f"the command was killed: it had not ended after {timeout_s:g} s")
            if found is None:
                return
            yield found


class Notes:
    """Takes out of standard error what is said beside the command: it follows the mark.

    Args:
        mark: what no command says by accident.
    """

    def __init__(self, mark: bytes) -> None:
        self._mark = mark
        self._held = b""
        self._note: bytes | None = None

    def take(self, data: bytes) -> bytes:
        """Return what is the command's; what may be the beginning of the mark is held back."""
        if self._note is not None:
            self._note = (self._note + data)[:MAX_NOTE_BYTES]
            return b""
        data, self._held = self._held + data, b""
        before, found, after = data.partition(self._mark)
        if found:
            self._note = after
            return before
        for length in range(min(len(self._mark) - 1, len(data)), 0, -1):
            if data.endswith(self._mark[:length]):
                self._held = data[-length:]
                return data[:-length]
        return data

    def finish(self) -> tuple[bytes, str, str]:
        """Return what was held back of the command's output, and the note's kind and reason, empty without one."""
        kind, _, reason = (self._note or b"").decode(errors="replace").partition(" ")
        return self._held, kind, reason


def _replies(said: ExecOutput | ExecEnd, notes: Notes, program: str, task: str) -> Iterator[v1.ExecTaskReply]:
    """Write what a command says for its caller.

    Raises:
        CommandNotStarted, CommandKilled, TaskNotRunning: there is no command, or not any more.
    """
    if isinstance(said, ExecOutput):
        if not said.stderr:
            yield v1.ExecTaskReply(stdout=said.data)
        elif data := notes.take(said.data):
            yield v1.ExecTaskReply(stderr=data)
        return
    held, kind, reason = notes.finish()
    if kind == entering.REFUSED:
        raise CommandNotStarted(f"{program[:200]!r} cannot be run beside {task}: {reason}")
    if kind == entering.ENDED:
        raise CommandKilled(f"the command was killed: the attempt of {task} has ended")
    if kind:
        raise TaskNotRunning(f"the process of {task} has not begun, has ended, or is not where its worker is")
    if held:
        yield v1.ExecTaskReply(stderr=held)
    yield v1.ExecTaskReply(exit_code=said.exit_code)


def _narrowed(error: CloudError, task: str) -> Exception:
    """Say what the platform's refusal means for a command."""
    if isinstance(error, InvalidSpec | Forbidden):
        return TaskOutOfReach(f"no command can be run beside {task}: {error}")
    if isinstance(error, Gone):
        return TaskNotRunning(f"the pod of {task} has gone: {error}")
    return CommandKilled(f"the command beside {task} was not run, or was killed: {error}")
