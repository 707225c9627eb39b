"""Attempts as threads of the worker: callables only, for tests and for clusters inside one process.

The call runs in a thread with a copied context, in which ``iriscw.context()`` gives the task; ``os.environ``
is never written, so several attempts cannot get into each other's way. A thread cannot be killed: ``stop``
waits for the grace and then abandons the thread; the attempt counts as killed, and what the call does later
is not seen by anybody. What it prints goes to the process's own output; its logs are empty, but for the
traceback of a failure.
"""

from __future__ import annotations

import contextvars
import threading
import traceback
from pathlib import Path

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import attrs

from iriscw._errors import InvalidArgument
from iriscw.files import write_atomic
from iriscw.processes.ends import ProcessEnd
from iriscw.task.context import TaskContext, entered
from iriscw.task.environment import PRIVATE_FOLDER, RESULT_FILE
from iriscw.task.payload import load_payload
from iriscw.task.result import encode_exception, encode_value
from iriscw.worker.ports import AttemptSpec, NotFreezable
from iriscw.worker.runtimes.attempt import FolderAttempt, prepare
from iriscw.worker.runtimes.input_checks import check_payload
from iriscw.worker.runtimes.not_suspendable import Unmoved
from iriscw.worker.runtimes.workdir import AttemptFolder

EXIT_RAISED = 1


@attrs.define(eq=False)
class InlineAttempt(FolderAttempt):
    """An attempt that is a thread; see :class:`~iriscw.worker.ports.RunningAttempt`. ``stdout`` is always empty, and
    ``stderr`` takes the traceback of a failure.
    """

    _ended: anyio.Event = attrs.field(factory=anyio.Event)
    _end: ProcessEnd | None = None

    async def wait(self) -> ProcessEnd:
        """Wait until it has ended, or was abandoned."""
        await self._ended.wait()
        assert self._end is not None, "the end is set before the event"
        return self._end

    async def stop(self, grace_s: float) -> ProcessEnd:
        """Return the call ``grace_s`` to return, then abandon its thread."""
        with anyio.move_on_after(grace_s):
            return await self.wait()
        self.finish(ProcessEnd(stopped=True, killed=True, text="its thread was abandoned after its grace"))
        return await self.wait()

    def finish(self, end: ProcessEnd) -> None:
        """Set the end, unless it has one: what an abandoned thread gives comes too late."""
        if self._end is None:
            self._end = attrs.evolve(end, log_bytes=self.folder.log_bytes())
            self._ended.set()


@attrs.frozen
class InlineRuntime(Unmoved):
    """Runs callables in threads; see :class:`~iriscw.worker.ports.TaskRuntime`."""

    root: Path

    async def start(self, spec: AttemptSpec) -> InlineAttempt:
        """Start an attempt: a callable, never a program."""
        if spec.argv or not spec.payload:
            raise InvalidArgument("the inline runtime runs callables only")
        if spec.freezable:
            raise NotFreezable("the inline runtime runs callables as threads of the worker: none can be frozen alone")
        if spec.setup.steps or spec.installed is not None:
            raise InvalidArgument("the inline runtime runs callables as threads of the worker: none has its own setup")
        check_payload(spec.payload)
        folder = AttemptFolder(self.root, spec.uid)
        await prepare(folder, spec)
        attempt = InlineAttempt(folder)
        token = anyio.lowlevel.current_token()

        def run() -> None:
            code = _call(spec, folder)
            end = ProcessEnd(code)
            try:
                anyio.from_thread.run_sync(attempt.finish, end, token=token)
            except anyio.RunFinishedError:
                return  # the worker's event loop ended first: nobody waits any more

        thread = threading.Thread(
            target=contextvars.copy_context().run, args=(run,), name=f"attempt {spec.uid}", daemon=True
        )
        thread.start()
        return attempt

    def withdraw(self, uid: str) -> None:
        """Nothing is to be done: a start takes milliseconds."""

    async def adopt(self) -> tuple[InlineAttempt, ...]:
        """Find nothing: threads end with their process. What they left is removed."""
        await anyio.to_thread.run_sync(self._remove_all)
        return ()

    async def hold(self, until_ns: int) -> None:
        """Nothing is to be told: threads end with their process, and it keeps the lease itself."""

    def _remove_all(self) -> None:
        if self.root.exists():
            for path in sorted(self.root.iterdir()):
                AttemptFolder(self.root, path.name).remove()


def _call(spec: AttemptSpec, folder: AttemptFolder) -> int:
    """Make the call and write its result; give the exit code that a process would have."""
    try:
        with entered(TaskContext(spec.facts, folder.work)):
            code, result = 0, encode_value(load_payload(spec.payload)())
    except BaseException as error:  # noqa: BLE001  # whatever the call raised is its result
        code, result = EXIT_RAISED, encode_exception(error)
        text = "".join(traceback.format_exception(error)).encode(errors="backslashreplace")
    else:
        text = b""
    try:
        write_atomic(folder.stderr, text, durable=False)
        write_atomic(folder.work / PRIVATE_FOLDER / RESULT_FILE, result)
    except OSError:
        return EXIT_RAISED  # removed while it ran: it was abandoned
    return code
