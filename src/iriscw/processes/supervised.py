"""Start a program under its own supervisor, wait for its end, stop it, find it again after a restart.

The supervisor is :mod:`iriscw.processes.supervisor`; this module is the side of whoever wants a program run.
All that has to be remembered is the program's *folder*: ``identity.json`` says who runs, ``exit.json`` how
it ended, and ``stop.json`` the grace that was ordered. So :func:`adopt` needs a folder and nothing else.

Waiting uses a pidfd and the event loop's readiness, never a child watcher: those of Python 3.11 and 3.12 can
lose an exit (python/cpython#87744), and no watcher can wait for a process that is not our child.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import select
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import attrs

from iriscw.errors import OperationError
from iriscw.files import make_private_folder, read_bounded, write_atomic
from iriscw.processes.identity import (
    ProcessGone,
    ProcessIdentity,
    is_alive,
    open_pidfd,
    read_stat,
    send_signal,
)
from iriscw.processes.sweep import sweep

START_TIMEOUT_S = 60.0
"""How long a supervisor may take to report. It takes 30 ms; a machine that swaps takes seconds."""

STUCK_MARGIN_S = 5.0
"""How long after the grace a supervisor may take to kill all and end, before it is killed itself."""

MAX_STATUS_BYTES = 64 << 10
"""The status files hold a few hundred bytes."""

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
        """Give the limits that are set under their names in the ``resource`` module."""
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


@attrs.frozen
class Ending:
    """How a program ended. Exactly one of ``code`` and ``signal`` is set, or neither for one whose end
    nobody saw.
    """

    code: int | None
    signal: int | None
    stopped: bool = False
    """It ended after it had been told to."""
    killed: bool = False
    """It did not end within its grace and was killed."""
    lease_over: bool = False
    """It was killed because its lease had run out."""
    out_of_memory: bool = False
    """The kernel killed it for memory: its group's count of such kills rose and nobody else sent SIGKILL."""
    max_rss_bytes: int = 0


UNKNOWN_ENDING = Ending(code=None, signal=None)
"""The end of a program whose supervisor was killed: it is gone, and nobody saw how."""


@attrs.define(eq=False)
class Supervised:
    """A program that was started, here or by an earlier process. Safe to use from several tasks."""

    folder: Path
    supervisor: ProcessIdentity
    target: ProcessIdentity | None
    """The program itself; None when its supervisor was killed before it could write that down."""
    markers: Mapping[str, str]

    @property
    def alive(self) -> bool:
        """Whether the supervisor runs, and so perhaps the program."""
        return is_alive(self.supervisor)

    async def wait(self) -> Ending:
        """Wait until nothing of the program runs any more, and say how it ended.

        Raises:
            SweepFailed: the supervisor was killed, and what it left cannot be.
        """
        await _ended(self.supervisor)
        ending = read_ending(self.folder)
        if ending is not None:
            return ending
        await self._sweep()
        return UNKNOWN_ENDING

    def look_at_lease(self) -> None:
        """Have the supervisor read the lease: it may end sooner than was written before."""
        with contextlib.suppress(ProcessGone):
            send_signal(self.supervisor, signal.SIGUSR1)

    async def stop(self, grace_s: float) -> Ending:
        """Ask the program to end with SIGTERM, kill all of it after ``grace_s``, and wait until it is gone.

        The order is written down first: it is carried out even if this process ends now. A second order may
        only shorten the grace.

        Raises:
            SweepFailed: processes are left that do not die, or the supervisor had to be killed and they
            escaped.
        """
        order = json.dumps({"grace_s": grace_s}).encode()
        with contextlib.suppress(FileNotFoundError):  # the folder is removed only after the end
            await anyio.to_thread.run_sync(write_atomic, self.folder / "stop.json", order)
        with contextlib.suppress(ProcessGone):
            send_signal(self.supervisor, signal.SIGTERM)
            send_signal(self.supervisor, signal.SIGCONT)  # it may be stopped, with all it watches over
        with anyio.move_on_after(grace_s + STUCK_MARGIN_S):
            return await self.wait()
        with contextlib.suppress(ProcessGone):
            send_signal(self.supervisor, signal.SIGKILL)
        await self._sweep()
        return await self.wait()

    async def _sweep(self) -> None:
        await sweep(self.markers)


async def launch(program: Program) -> Supervised:
    """Start ``program`` and return once it runs.

    Takes two processes: the program and its supervisor (about 9 MB). A cancellation waits until it is known
    whether the program runs, at most ``START_TIMEOUT_S``.

    Raises:
        MissingBinary, BinaryRefused, WorkdirMissing, SpawnFailed, LeaseOver: it did not start; nothing is left of it.
        OSError: the folder could not be made.
    """
    await anyio.to_thread.run_sync(make_private_folder, program.folder)
    with anyio.CancelScope(shield=True):  # bounded by START_TIMEOUT_S
        report = await anyio.to_thread.run_sync(_spawn, program)
    if "failure" in report:
        raise _not_started(program, report["failure"])
    return _supervised(program.folder, report["identity"], program.markers)


async def adopt(folder: Path, markers: Mapping[str, str]) -> Supervised | None:
    """Find the program that was started with ``folder``; None if there never was one.

    The program may have ended meanwhile: ``wait`` then returns at once. If its supervisor was killed before
    it could write who it is, whatever carries the markers is killed.

    Raises:
        SweepFailed: such leftovers do not die.
    """
    found = find(folder, markers)
    if found is None:
        await sweep(markers)
    return found


def find(folder: Path, markers: Mapping[str, str]) -> Supervised | None:
    """Like :func:`adopt`, but nothing is killed: without a status file the program may be starting just now."""
    try:
        identity = json.loads(read_bounded(folder / "identity.json", MAX_STATUS_BYTES))
    except FileNotFoundError:
        return None
    return _supervised(folder, identity, markers)


def read_ending(folder: Path) -> Ending | None:
    """Read how the program of ``folder`` ended; None while it runs, or when nobody saw the end."""
    try:
        content = json.loads(read_bounded(folder / "exit.json", MAX_STATUS_BYTES))
    except FileNotFoundError:
        return None
    if not content.pop("started"):
        return UNKNOWN_ENDING
    return Ending(**content)


def _supervised(folder: Path, identity: dict[str, Any], markers: Mapping[str, str]) -> Supervised:
    boot = identity["boot_id"]
    target = identity["target"]
    return Supervised(
        folder=folder,
        supervisor=ProcessIdentity(boot_id=boot, **identity["supervisor"]),
        target=None if target is None else ProcessIdentity(boot_id=boot, **target),
        markers=markers,
    )


def _spawn(program: Program) -> dict[str, Any]:
    """Start the supervisor, give it its order and read its report. Runs in a thread."""
    order = json.dumps(
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
        }
    ).encode()
    order_out, order_in = os.pipe()
    report_out, report_in = os.pipe()
    with (
        os.fdopen(report_out, "rb", buffering=0) as report,
        os.fdopen(order_in, "wb", buffering=0) as writing,
    ):
        try:
            pid = _spawn_supervisor(program, order_out, report_in)
        except OSError as error:
            return {"failure": {"step": "spawn", "errno": error.errno, "text": str(error)}}
        finally:
            os.close(order_out)
            os.close(report_in)
        try:
            writing.write(order)
            writing.close()
            line = _read_line(report, START_TIMEOUT_S)
        except BrokenPipeError:
            line = b""
        if not line:
            _kill_child(pid)
            text = f"its supervisor ended without a report, see {program.folder / 'supervisor.log'}"
            return {"failure": {"step": "spawn", "errno": errno.EIO, "text": text}}
    content: dict[str, Any] = json.loads(line)
    if "failure" in content:
        os.waitpid(pid, 0)
    return content


def _spawn_supervisor(program: Program, order: int, report: int) -> int:
    log = os.open(program.folder / "supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", str(_SUPERVISOR)],
            dict(program.markers),
            file_actions=[
                (os.POSIX_SPAWN_DUP2, order, 0),
                (os.POSIX_SPAWN_DUP2, report, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
            setsid=True,
            setsigdef=(signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1),
            setsigmask=(),
        )
    finally:
        os.close(log)


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


def _not_started(program: Program, failure: dict[str, Any]) -> NotStarted:
    step, number, text = failure["step"], failure["errno"], failure["text"]
    name = program.argv[0] if program.argv else ""
    if step == "lease":
        return LeaseOver(f"{name!r} was not started: {text}")
    if step == "workdir":
        return WorkdirMissing(f"cannot enter {program.workdir}: {text}")
    if step == "exec" and number in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}:
        return MissingBinary(f"there is no program {name!r}: {text}")
    if step == "exec" and number in {errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.EISDIR}:
        return BinaryRefused(f"{name!r} cannot be executed: {text}")
    return SpawnFailed(f"{name!r} was not started ({step}): {text}")
