"""Start a program under its own supervisor, wait for its end, stop it, find it again after a restart.

The supervisor is :mod:`iriscw.processes.supervisor`; this module is the side of whoever wants a program run.
All that has to be remembered is the program's *folder*, with the status files in it (see
:mod:`iriscw.processes.status`). So :func:`adopt` needs a folder and nothing else.

That a program was not started is said only where nothing of it was executed for certain: where its supervisor says
so, or died without having written down who runs. In doubt it was started, and nobody saw how it ended.

Waiting uses a pidfd and the event loop's readiness, never a child watcher: those of Python 3.11 and 3.12 can
lose an exit (python/cpython#87744), and no watcher can wait for a process that is not our child.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import logging
import os
import select
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import attrs

from iriscw._errors import OperationError
from iriscw.files import make_private_folder
from iriscw.processes.ends import UNKNOWN_END, ProcessEnd
from iriscw.processes.identity import (
    ProcessGone,
    ProcessIdentity,
    is_alive,
    open_pidfd,
    read_stat,
    send_signal,
)
from iriscw.processes.status import (
    MAX_STATUS_BYTES,
    StatusDamaged,
    decode_identities,
    read_end,
    read_identity,
    write_stop,
)
from iriscw.processes.sweep import SweepFailed, sweep

log = logging.getLogger(__name__)

START_TIMEOUT_S = 60.0
"""How long a supervisor may take to report. It takes 30 ms; a machine that swaps takes seconds."""

STUCK_MARGIN_S = 5.0
"""How long after the grace a supervisor may take to kill all and end, before it is killed itself."""

_SUPERVISOR = Path(__file__).with_name("supervisor.py")


class NotStarted(OperationError, abstract=True):
    """The program never ran: nothing of it was executed, and it counts as no failure of the program."""


class MissingBinary(NotStarted):
    """There is no such program, or the interpreter that its first line names is missing."""


class BinaryRefused(NotStarted):
    """The program is there, but may not be executed, or is not in a format that this machine executes."""


class WorkdirMissing(NotStarted):
    """The folder in which the program should run is not there, or may not be entered."""


class SpawnFailed(NotStarted):
    """The machine could not start one more process: out of processes, memory or descriptors."""

    retryable = True


class FilterRefused(NotStarted):
    """The kernel does not take the filter of system calls under which the program was to begin."""


class LeaseOver(NotStarted):
    """The lease had run out before the program began: whoever granted it may have had it run elsewhere."""

    retryable = True


@attrs.frozen
class Limits:
    """Bounds that the kernel enforces on the program and each of its children; None leaves what the starter
    has.

    ``address_space_bytes`` bounds virtual memory, of which CUDA reserves far more than it uses: leave it
    None there.
    """

    address_space_bytes: int | None = None
    open_files: int | None = None
    processes: int | None = None
    file_size_bytes: int | None = None
    core_bytes: int | None = 0

    def by_name(self) -> dict[str, int]:
        """Return the limits that are set under their names in the ``resource`` module."""
        values = {
            "RLIMIT_AS": self.address_space_bytes,
            "RLIMIT_NOFILE": self.open_files,
            "RLIMIT_NPROC": self.processes,
            "RLIMIT_FSIZE": self.file_size_bytes,
            "RLIMIT_CORE": self.core_bytes,
        }
        return {name: value for name, value in values.items() if value is not None}


@attrs.frozen
class Program:
    """What to run. ``markers`` are environment variables by which its processes are found again (see
    ``sweep``).
    """

    argv: tuple[str, ...]
    folder: Path
    """Where the status files go; one folder for one program, once."""
    workdir: Path
    stdout: Path
    stderr: Path
    markers: Mapping[str, str]
    environment: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """The whole environment but for the markers; nothing is inherited."""
    limits: Limits = attrs.field(factory=Limits)
    grace_s: float = 10.0
    lease: Path | None = None
    """The file that says until when it may run (see :mod:`iriscw.processes.lease`); None: for ever."""
    log_limit_bytes: int | None = None
    """Of each of ``stdout`` and ``stderr``: when it is reached, the file is renamed to ``<name>.1``, in place of the
    one before, and a new one begun. The outputs are pipes then. None: files without a bound.
    """
    syscall_filter: bytes = b""
    """What the kernel asks about each of its system calls (see :mod:`iriscw.processes.syscall_filter`); empty: nothing.
    Without ``CAP_SYS_ADMIN`` the program cannot gain rights then, by setuid programs neither (``no_new_privs``).
    """


@attrs.define(eq=False)
class Supervised:
    """A program that was started, here or by an earlier process. Safe to use from several tasks."""

    folder: Path
    supervisor: ProcessIdentity | None
    target: ProcessIdentity | None
    """The program itself. Both are None when that is not to be told any more; then nothing of it is left."""
    markers: Mapping[str, str]
    ours: Callable[[], bool] = attrs.field(default=lambda: True, eq=False, repr=False)
    """Whether what carries the markers is still to be ended by whoever asks here: it may have come back for somebody
    else. Called in a thread; may raise ``OSError``."""

    @property
    def alive(self) -> bool:
        """Whether the supervisor runs, and so perhaps the program."""
        return self.supervisor is not None and is_alive(self.supervisor)

    async def wait(self) -> ProcessEnd:
        """Wait until nothing of the program runs any more, and say how it ended.

        Raises:
            SweepFailed: the supervisor was killed, and what it left cannot be.
            OSError: how it ended cannot be read just now.
        """
        if self.supervisor is not None:
            await _ended(self.supervisor)
        try:
            ending = read_end(self.folder)
        except StatusDamaged as error:
            log.warning("nobody can tell how a program ended: %s", error)
            ending = None
        if ending is not None:
            return ending
        await self._sweep()
        return UNKNOWN_END

    async def _sweep(self) -> None:
        if await anyio.to_thread.run_sync(self.ours):
            await sweep(self.markers)

    def look_at_lease(self) -> None:
        """Have the supervisor read the lease: it may end sooner than was written before."""
        self._signal(signal.SIGUSR1)

    async def stop(self, grace_s: float) -> ProcessEnd:
        """Ask the program to end with SIGTERM, kill all of it after ``grace_s``, and wait until it is gone.

        The order is written down first: it is carried out even if this process ends now. A second order may
        only shorten the grace. Where the program spoilt the file, it gets the grace that it was started with, and no
        more than this one.

        Raises:
            SweepFailed: processes are left that do not die, or the supervisor had to be killed and they
                escaped.
            OSError: how it ended cannot be read just now.
        """
        try:
            write_stop(self.folder, grace_s)
        except OSError as error:
            log.info("the grace of a program cannot be written down, it ends all the same: %s", error)
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # it may be stopped, with all it watches over
        with anyio.move_on_after(grace_s + STUCK_MARGIN_S):
            return await self.wait()
        self._signal(signal.SIGKILL)
        await self._sweep()
        return await self.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self.supervisor is not None:
            with contextlib.suppress(ProcessGone):
                send_signal(self.supervisor, number)


async def launch(program: Program) -> Supervised:
    """Start ``program`` and return once it runs.

    Takes two processes: the program and its supervisor (about 9 MB). A cancellation waits until it is known
    whether the program runs, at most ``START_TIMEOUT_S``. If its supervisor dies meanwhile, nothing of the program is
    left; what is given then has an unknown end, if the program may have been executed.

    Raises:
        MissingBinary, BinaryRefused, WorkdirMissing, SpawnFailed, LeaseOver, FilterRefused: it did not start; nothing
            is left of it.
        OSError: the folder could not be made.
    """
    await anyio.to_thread.run_sync(make_private_folder, program.folder)
    with anyio.CancelScope(shield=True):  # bounded by START_TIMEOUT_S, and the time of a sweep
        report = await anyio.to_thread.run_sync(_spawn, program)
        if not report:
            return await _unreported(program)
    if "failure" in report:
        raise not_started(program.argv[0] if program.argv else "", program.workdir, report["failure"])
    return Supervised(program.folder, *decode_identities(report["identity"]), program.markers)


async def adopt(folder: Path, markers: Mapping[str, str]) -> Supervised | None:
    """Find the program that was started with ``folder``; None if nothing of it was ever executed.

    The program may have ended meanwhile: ``wait`` then returns at once. If it cannot be told who it is, whatever
    carries the markers is killed: a supervisor that has not begun, or whose file the program spoilt.

    Raises:
        SweepFailed: such leftovers do not die.
        OSError: its folder cannot be read just now.
    """
    found = _find_or_lost(folder, markers)
    if found is None or found.supervisor is None:
        await sweep(markers)
        found = _find_or_lost(folder, markers)  # it may have been executed between the look and the end
    return found


def find(folder: Path, markers: Mapping[str, str]) -> Supervised | None:
    """Like :func:`adopt`, but nothing is killed: without a status file the program may be starting just now.

    Raises:
        StatusDamaged: there is one, and it cannot be told who runs.
        OSError: it cannot be read just now.
    """
    identity = read_identity(folder)
    return None if identity is None else Supervised(folder, *identity, markers)


def _find_or_lost(folder: Path, markers: Mapping[str, str]) -> Supervised | None:
    try:
        return find(folder, markers)
    except StatusDamaged as error:
        log.warning("nobody can tell any more which processes a program has: %s", error)
        return Supervised(folder, None, None, markers)


async def _unreported(program: Program) -> Supervised:
    """Judge a start whose supervisor ended without a word, or was killed because it took too long."""
    try:
        await sweep(program.markers)
    except SweepFailed as error:  # whoever waits for the end tries again; who was not let go by now never is
        log.warning("%s", error)
    found = _find_or_lost(program.folder, program.markers)
    if found is None:
        text = f"its supervisor ended without a report, see {program.folder / 'supervisor.log'}"
        raise SpawnFailed(f"{program.argv[0]!r} was not started: {text}")
    return found


def order_of(program: Program) -> bytes:
    """Return what the supervisor of a program is told."""
    return json.dumps(
        {
            "argv": program.argv,
            "environment": {**program.environment, **program.markers},
            "workdir": str(program.workdir),
            "folder": str(program.folder),
            "stdout": str(program.stdout),
            "stderr": str(program.stderr),
            "limits": program.limits.by_name(),
            "grace_s": program.grace_s,
            "lease": None if program.lease is None else str(program.lease),
            "log_limit_bytes": program.log_limit_bytes,
            "filter": program.syscall_filter.hex(),
        }
    ).encode()


def _spawn(program: Program) -> dict[str, Any]:
    """Start the supervisor, give it its order and read its report: empty if there is none, and it has ended.

    Runs in a thread.
    """
    order = order_of(program)
    order_out, order_in = os.pipe()
    report_out, report_in = os.pipe()
    with os.fdopen(report_out, "rb", buffering=0) as report:
        try:
            pid = _spawn_supervisor(program, order_out, report_in)
        except OSError as error:
            os.close(order_in)
            return {"failure": {"step": "spawn", "errno": error.errno, "text": str(error)}}
        finally:
            os.close(order_out)
            os.close(report_in)
        try:
            with os.fdopen(order_in, "wb") as writing:
                writing.write(order)
            content: dict[str, Any] = json.loads(_read_line(report, START_TIMEOUT_S))
        except (OSError, ValueError):  # it died before it had read all, or before it had said all
            _kill_child(pid)
            return {}
    if "failure" in content:
        os.waitpid(pid, 0)
    return content


def _spawn_supervisor(program: Program, order: int, report: int) -> int:
    errors = os.open(program.folder / "supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", str(_SUPERVISOR)],
            dict(program.markers),
            file_actions=[
                (os.POSIX_SPAWN_DUP2, order, 0),
                (os.POSIX_SPAWN_DUP2, report, 1),
                (os.POSIX_SPAWN_DUP2, errors, 2),
            ],
            setsid=True,
            setsigdef=(signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1),
            setsigmask=(),
        )
    finally:
        os.close(errors)


def _read_line(file: io.FileIO, timeout_s: float) -> bytes:
    """Read up to a newline, the end of the file, or a pause of ``timeout_s``."""
    line = b""
    while not line.endswith(b"\n") and len(line) < MAX_STATUS_BYTES:
        readable, _, _ = select.select([file], [], [], timeout_s)
        piece = os.read(file.fileno(), 4096) if readable else b""
        if not piece:
            return b""
        line += piece
    return line


def _kill_child(pid: int) -> None:
    """End a child of ours that was not reaped yet, so its number is still its own."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


async def _ended(identity: ProcessIdentity) -> None:
    """Wait until the process has ended; reap it if it was a child of ours."""
    try:
        descriptor = open_pidfd(identity)
    except ProcessGone:
        _reap(identity)
        return
    try:
        await anyio.wait_readable(descriptor)
        _reap_pidfd(descriptor)
    finally:
        os.close(descriptor)


def _reap(identity: ProcessIdentity) -> None:
    """Reap a zombie child that was dead before anybody waited."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return
    try:
        if read_stat(identity.pid).start_ticks == identity.start_ticks:
            _reap_pidfd(descriptor)
    except ProcessGone:
        return
    finally:
        os.close(descriptor)


def _reap_pidfd(descriptor: int) -> None:
    with contextlib.suppress(ChildProcessError):  # somebody else's child, or reaped by another waiter
        os.waitid(os.P_PIDFD, descriptor, os.WEXITED | os.WNOHANG)


def not_started(name: str, workdir: Path, failure: Mapping[str, Any]) -> NotStarted:
    """Return the error that a supervisor's report of a failure means, for the program of this name."""
    step, number, text = failure["step"], failure["errno"], failure["text"]
    if step == "lease":
        return LeaseOver(f"{name!r} was not started: {text}")
    if step == "filter":
        return FilterRefused(f"{name!r} was not started: this kernel takes no filter of system calls: {text}")
    if step == "workdir":
        return WorkdirMissing(f"cannot enter {workdir}: {text}")
    if step == "exec" and number in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}:
        if number == errno.ENOENT and "/" not in name:
            return MissingBinary(f"there is no program {name!r} in its PATH")
        return MissingBinary(f"there is no program {name!r}, or none where its first line says: {os.strerror(number)}")
    if step == "exec" and number in {errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.EISDIR}:
        return BinaryRefused(f"{name!r} cannot be executed: {text}")
    return SpawnFailed(f"{name!r} was not started ({step}): {text}")
