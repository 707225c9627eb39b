"""Commands inside a pod of the local platform: a program with the pod's environment, marker and working
folder.

Each command runs under a supervisor of its own, so a time-out kills all it started; and it carries the pod's
marker, so the pod's deletion finds it. Output of ``run`` goes to files, of which a bounded part is read;
``stream`` reads a FIFO for each output, so the command waits for its reader. It lives by a lease that its reader
renews, so it does not outlast a process that was killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

import anyio
import anyio.to_thread
import attrs

from iriscw.cloud.drivers.local.platform import POD_MARKER, LocalPlatform
from iriscw.cloud.drivers.local.records import PodRecord
from iriscw.cloud.model import ExecEnd, ExecOutput, ExecResult, Gone, InvalidSpec, PodPhase, Unavailable
from iriscw.cloud.ports import MAX_EXEC_OUTPUT_BYTES
from iriscw.files import make_private_folder, remove_tree
from iriscw.processes.ends import ProcessEnd
from iriscw.processes.lease import LeaseFile
from iriscw.processes.supervised import NotStarted, Program, SpawnFailed, Supervised, launch

STREAM_CHUNK_BYTES = 64 << 10
COMMAND_MARKER = "IRISCW_COMMAND"
"""The variable by which the processes of one command are told from the others of its pod."""

SIGNAL_EXIT_BASE = 128
"""A command that a signal killed has the exit code 128 and the signal's number, as in a shell."""

LEASE_S, RENEWAL_S = 60.0, 10.0
"""How long a command that is followed outlives this process, and how often it is told that it is still wanted."""


@attrs.frozen
class LocalConnection:
    """Runs commands in one pod; see :class:`~iriscw.cloud.ports.Connection`."""

    platform: LocalPlatform
    pod: str
    uid: str

    @property
    def interpreter(self) -> tuple[str, ...]:
        """This process' own, whose machine is the pod's."""
        return (sys.executable,)

    async def run(
        self, argv: Sequence[str], timeout_s: float, environment: Mapping[str, str] | None = None
    ) -> ExecResult:
        """Run a command to its end."""
        folder = await self._make_folder()
        try:
            running = await self._launch(argv, folder, folder / "stdout", folder / "stderr", environment or {})
            try:
                with anyio.fail_after(timeout_s):
                    ending = await running.wait()
            except BaseException:
                with anyio.CancelScope(shield=True):  # bounded: stop kills at once and gives up after a margin
                    await running.stop(0)
                raise
            code = _code(ending)
            stdout, stdout_cut = await anyio.to_thread.run_sync(_read, folder / "stdout")
            stderr, stderr_cut = await anyio.to_thread.run_sync(_read, folder / "stderr")
        except FileNotFoundError as error:
            raise Unavailable("the pod was deleted while the command ran") from error
        finally:
            await _remove(folder)
        return ExecResult(code, stdout, stderr, truncated=stdout_cut or stderr_cut)

    async def stream(self, argv: Sequence[str]) -> AsyncIterator[ExecOutput | ExecEnd]:
        """Run a command and give its outputs as they come, and how it ended."""
        folder = await self._make_folder()
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(_remove, folder)
            paths = (folder / "stdout", folder / "stderr")
            try:
                lease = stack.enter_context(contextlib.closing(LeaseFile(folder / "lease")))
                _hold(lease)
                opened = {stack.enter_context(_fifo(path)): path.name == "stderr" for path in paths}
            except OSError as error:
                raise Unavailable(f"the command cannot be begun: {error}") from error
            renewing = asyncio.get_running_loop().create_task(_renew(lease))
            stack.callback(renewing.cancel)
            running = await self._launch(argv, folder, *paths, {}, lease.path)
            stack.push_async_callback(_end, running)
            async with aclosing(_outputs(opened)) as outputs:
                async for output in outputs:
                    yield output
            yield ExecEnd(_code(await running.wait()))

    async def wait_until_ready(self, timeout_s: float) -> None:
        """Wait until the pod's processes run."""
        with anyio.fail_after(timeout_s):
            await self.platform.until(self._decided)
        self._running_record()

    def _decided(self) -> bool:
        """Whether waiting is over: the pod runs, has ended, or is gone."""
        record = self.platform.pods.get(self.pod)
        return record is None or record.uid != self.uid or record.phase is not PodPhase.PENDING

    def _record(self) -> PodRecord:
        record = self.platform.pods.get(self.pod)
        if record is None or record.uid != self.uid:
            raise Gone(f"there is no pod {self.pod!r} with the uid {self.uid}")
        return record

    def _running_record(self) -> PodRecord:
        record = self._record()
        if record.phase.over:
            raise Gone(f"the pod {self.pod!r} has ended: {record.reason}")
        if record.phase is PodPhase.PENDING:
            raise Unavailable(f"the pod {self.pod!r} does not run yet")
        return record

    async def _make_folder(self) -> Path:
        folder = self.platform.folder.pod(self._running_record()) / "commands" / uuid.uuid4().hex
        try:
            await anyio.to_thread.run_sync(make_private_folder, folder)
        except OSError as error:
            raise Unavailable(f"the command cannot be begun: {error}") from error
        return folder

    async def _launch(
        self,
        argv: Sequence[str],
        folder: Path,
        stdout: Path,
        stderr: Path,
        environment: Mapping[str, str],
        lease: Path | None = None,
    ) -> Supervised:
        record = self._running_record()
        if not argv:
            raise InvalidSpec("the command is empty")
        try:
            return await launch(
                Program(
                    argv=tuple(argv),
                    folder=folder,
                    workdir=self.platform.folder.pod(record) / "work",
                    stdout=stdout,
                    stderr=stderr,
                    environment={**self.platform.environment_of(record), **environment},
                    markers={POD_MARKER: record.uid, COMMAND_MARKER: folder.name},
                    grace_s=0,
                    lease=lease,
                )
            )
        except (SpawnFailed, OSError) as error:
            raise Unavailable(str(error)) from error
        except NotStarted as error:
            raise InvalidSpec(str(error)) from error


def _read(path: Path) -> tuple[bytes, bool]:
    with path.open("rb") as file:
        data = file.read(MAX_EXEC_OUTPUT_BYTES + 1)
    return data[:MAX_EXEC_OUTPUT_BYTES], len(data) > MAX_EXEC_OUTPUT_BYTES


def _code(ending: ProcessEnd) -> int:
    """Return the exit code.

    Raises:
        Unavailable: nobody saw it.
    """
    if ending.code is None and ending.signal is None:
        raise Unavailable("the command was killed, and nobody saw how it ended")
    return ending.code if ending.code is not None else SIGNAL_EXIT_BASE + (ending.signal or 0)


@contextlib.contextmanager
def _fifo(path: Path) -> Iterator[int]:
    """Make a FIFO, and give the end that is read."""
    os.mkfifo(path, 0o600)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


async def _outputs(opened: Mapping[int, bool]) -> AsyncGenerator[ExecOutput, None]:
    """Read FIFOs until all their writers are gone. ``opened`` says which is standard error's."""
    left = dict(opened)
    while left:
        waiting = []
        for descriptor, is_error in [*left.items()]:
            try:
                data = os.read(descriptor, STREAM_CHUNK_BYTES)
            except BlockingIOError:
                waiting.append(descriptor)
                continue
            if data:
                yield ExecOutput(data, is_error)
            else:
                del left[descriptor]
        if waiting and len(waiting) == len(left):
            await _readable(waiting)


async def _readable(descriptors: Sequence[int]) -> None:
    """Wait until one of them can be read."""
    async with anyio.create_task_group() as tasks:

        async def wait(descriptor: int) -> None:
            await anyio.wait_readable(descriptor)
            tasks.cancel_scope.cancel()

        for each in descriptors:
            tasks.start_soon(wait, each)


def _hold(lease: LeaseFile) -> None:
    """Say that a command is wanted. Blocks."""
    lease.hold(time.monotonic_ns() + round(LEASE_S * 1e9))
    lease.write()


async def _renew(lease: LeaseFile) -> None:
    """Say so again and again, until cancelled; a disk that does not take that ends the command in time."""
    while True:
        await anyio.sleep(RENEWAL_S)
        with contextlib.suppress(OSError):  # the command's end tells
            await anyio.to_thread.run_sync(_hold, lease)


async def _end(running: Supervised) -> None:
    """Kill what is left of a command."""
    with anyio.CancelScope(shield=True):  # bounded: stop kills at once and gives up after a margin
        await running.stop(0)


async def _remove(folder: Path) -> None:
    """Remove a command's folder; it may be gone with its pod."""
    with anyio.CancelScope(shield=True):  # a few small files
        await anyio.to_thread.run_sync(_remove_files, folder)


def _remove_files(folder: Path) -> None:
    with contextlib.suppress(OSError):  # the command's own end is the one to tell; the rest goes with the pod
        remove_tree(folder)
