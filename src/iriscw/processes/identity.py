"""Who a process is: its number, when it started, and in which boot of the machine.

A process number alone names nobody: the kernel gives it to the next process once the holder is gone, and
after a reboot everything begins again. So iriscw remembers a :class:`ProcessIdentity` and compares all three
parts before it signals anything (INV-C3). Signals go through a pidfd that was verified *after* it was
opened: a pidfd stays with its process, so between the check and the signal nobody else can slip in.

``parse_stat`` and ``decode_identity`` are pure; the functions below it read ``/proc``.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import attrs

from iriscw._errors import OperationError

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_DEAD_STATES = frozenset("ZXx")
_MAX_PID = 1 << 22
"""The kernel gives no larger number: PID_MAX_LIMIT."""

_MAX_TICKS = 1 << 63
_MEMORY, _ENVIRONMENT = 20, slice(47, 49)
"""Where they stand in ``stat``, behind the name: field 23, and fields 50 and 51, which Linux has since 3.5."""

_NOT_YET = ("0", "0")

MAX_ENVIRONMENT_BYTES = 8 << 20
"""How much of an environment is looked at. The kernel's limit for arguments and environment is 6 MiB by default."""

EXEC_S = 1.0
"""How long an ``execve`` may take."""

_READ_BYTES = 1 << 16
"""Of a file of ``/proc``: most come whole."""


class ProcessGone(OperationError, ProcessLookupError):
    """The process that was meant has ended; its number may belong to another one by now."""


@attrs.frozen
class ProcessIdentity:
    """One process, for ever. ``start_ticks`` is field 22 of its ``stat``, in clock ticks since boot."""

    pid: int
    start_ticks: int
    boot_id: str


def decode_identity(content: object) -> ProcessIdentity:
    """Read what ``attrs.asdict`` gave for an identity, when it was JSON meanwhile.

    Raises:
        ValueError: it is something else, or no process can be that.
    """
    match content:
        case {"pid": int(pid), "start_ticks": int(ticks), "boot_id": str(boot)} if (
            0 < pid <= _MAX_PID and 0 <= ticks < _MAX_TICKS
        ):
            return ProcessIdentity(pid, ticks, boot)
    raise ValueError("these are not a process number, a start time and a boot")


@attrs.frozen
class ProcessStat:
    """The part of ``/proc/<pid>/stat`` that iriscw needs."""

    pid: int
    name: str
    state: str
    parent_pid: int
    group_id: int
    session_id: int
    start_ticks: int

    @property
    def ended(self) -> bool:
        """Whether the process runs no code any more: a zombie that waits to be reaped, or less."""
        return self.state in _DEAD_STATES


def parse_stat(text: str) -> ProcessStat:
    """Read one line of ``/proc/<pid>/stat``; the process's name may hold spaces and parentheses.

    Raises:
        ValueError: the text is not such a line.
    """
    pid, opening, rest = text.partition(" (")
    name, closing, fields_text = rest.rpartition(") ")
    fields = fields_text.split()
    if not opening or not closing or len(fields) < 20:
        raise ValueError(f"not a line of /proc/<pid>/stat: {text[:80]!r}")
    return ProcessStat(
        pid=int(pid),
        name=name,
        state=fields[0],
        parent_pid=int(fields[1]),
        group_id=int(fields[2]),
        session_id=int(fields[3]),
        start_ticks=int(fields[19]),
    )


def read_process_file(pid: int, name: str) -> str:
    """Read the file ``/proc/<pid>/<name>`` as it is now.

    Whoever looks at all processes of a machine calls this a thousand times: without ``pathlib`` and the layers of a
    text file it takes a third of the time.

    Raises:
        FileNotFoundError, ProcessLookupError: there is no such process any more, or no such file.
        OSError: as the kernel says it.
    """
    descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = b""
        while part := os.read(descriptor, _READ_BYTES):
            found += part
    finally:
        os.close(descriptor)
    return found.decode("utf-8", "surrogateescape")


def read_environment(pid: int) -> list[bytes]:
    """Return the variables with which the program of a process began, each as ``NAME=value``. Blocks.

    For some time of each ``execve`` a process has a new memory, and no environment in it yet: the kernel shows an
    empty one then, and for a child that was started just now that is what one in four looks meets. So that is waited
    for: whoever looks for marked processes must not overlook one. Of one that takes longer than :data:`EXEC_S`, because
    its interpreter is on a disk that does not answer, nothing is told.

    Raises:
        FileNotFoundError, ProcessLookupError: there is no such process any more.
        PermissionError: it is another user's.
    """
    deadline_s = time.monotonic() + EXEC_S
    while True:
        place = _environment_place(pid)
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - as above
            found = file.read(MAX_ENVIRONMENT_BYTES)
        if found or time.monotonic() > deadline_s or (place != _NOT_YET and place == _environment_place(pid)):
            return found.split(b"\0")
        os.sched_yield()  # there is no event for it, and it takes microseconds


def _environment_place(pid: int) -> tuple[str, ...]:
    """Return where a process has its environment; :data:`_NOT_YET` in an ``execve``, nothing for one without memory.

    It is another place after each ``execve``.
    """
    fields = read_process_file(pid, "stat").rpartition(") ")[2].split()
    return tuple(fields[_ENVIRONMENT]) if fields[_MEMORY] != "0" else ()


def read_stat(pid: int) -> ProcessStat:
    """Read ``/proc/<pid>/stat``.

    Raises:
        ProcessGone: there is no process with this number.
    """
    try:
        return parse_stat(read_process_file(pid, "stat"))
    except (FileNotFoundError, ProcessLookupError) as error:
        raise ProcessGone(f"there is no process {pid}") from error


@functools.cache
def boot_id() -> str:
    """Return the id that the kernel drew when this machine booted."""
    return _BOOT_ID.read_text(encoding="ascii").strip()


@functools.cache
def pid_namespace() -> int:
    """Return the inode of the PID namespace that this process is in: what its numbers of processes are numbers of."""
    return Path("/proc/self/ns/pid").stat().st_ino


def identify(pid: int) -> ProcessIdentity:
    """Return the identity of the process that has the number ``pid`` now.

    Raises:
        ProcessGone: there is none, or it is a zombie.
    """
    stat = read_stat(pid)
    if stat.ended:
        raise ProcessGone(f"process {pid} has ended")
    return ProcessIdentity(pid, stat.start_ticks, boot_id())


def is_alive(identity: ProcessIdentity) -> bool:
    """Whether this very process still runs. A zombie does not."""
    if identity.boot_id != boot_id():
        return False
    try:
        stat = read_stat(identity.pid)
    except ProcessGone:
        return False
    return stat.start_ticks == identity.start_ticks and not stat.ended


@contextlib.contextmanager
def pidfd_of(identity: ProcessIdentity) -> Iterator[int]:
    """Open a pidfd that is certain to mean ``identity``, for as long as the block lasts.

    Raises:
        ProcessGone: the process has ended, or its number means another one now.
    """
    descriptor = open_pidfd(identity)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_pidfd(identity: ProcessIdentity) -> int:
    """Like :func:`pidfd_of`, for a descriptor that the caller closes.

    Raises:
        ProcessGone: the process has ended, or its number means another one now.
    """
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError as error:
        raise ProcessGone(f"process {identity.pid} has ended") from error
    if not is_alive(identity):
        os.close(descriptor)
        raise ProcessGone(f"process {identity.pid} (started at tick {identity.start_ticks}) has ended")
    return descriptor


def send_signal(identity: ProcessIdentity, number: signal.Signals) -> None:
    """Signal this very process.

    Raises:
        ProcessGone: it has ended; nobody was signalled.
        PermissionError: it belongs to another user.
    """
    with pidfd_of(identity) as descriptor:
        try:
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError as error:
            raise ProcessGone(f"process {identity.pid} has ended") from error
