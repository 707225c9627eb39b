"""PID namespaces of our own making: one is made for a tree whose numbers are taken, found again, entered, and ended.

Each is known by its first process (:mod:`.first`). The tree's mount namespace is that process's, too, and differs from
ours in its ``/proc`` alone. CRIU is run in both, at a thaw and at each later freeze: so what it sees is a tree that has
its own namespaces, as anywhere, and the numbers in the images are those inside.

To run a program in somebody's mount namespace is to trust whoever made that. A name proves nothing; but only root of
this machine can make a mount namespace that has our root directory and belongs to our user namespace. A container has
another root directory, and who has made a user namespace for it has another one of those.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, TypeVar

import anyio
import anyio.to_thread

from iriscw.freeze.drivers.identities import identify_task, lives, open_task
from iriscw.freeze.drivers.namespace.entering import CLONE_NEWNS, CLONE_NEWPID, within
from iriscw.freeze.drivers.namespace.first import FAILED, FIRST, GO, NAME, READY
from iriscw.freeze.drivers.processes.reading import ancestors, read_text
from iriscw.freeze.model import CriuFailed, NoRoom, RightsMissing, TargetGone, TaskIdentity
from iriscw.freeze.proc_text import ProcStatus, parse_status
from iriscw.processes.identity import ProcessGone, read_stat

T = TypeVar("T")

PROGRAM: Final = "iriscw.freeze.drivers.namespace.first"
OUTPUT: Final = "first.out"
MAX_SAID_BYTES: Final = 4096

LOWEST: Final = 300
"""Below it the kernel gives no number any more once it has begun anew."""

PID_MAX: Final = Path("/proc/sys/kernel/pid_max")


class OwnNamespace:
    """A namespace that this process has made, and that ends with it until :meth:`let_go`. Use :func:`make`."""

    def __init__(self, first: TaskIdentity, channel: socket.socket) -> None:
        self.first = first
        """Its first process, as it is named here."""
        self._channel = channel

    def let_go(self) -> None:
        """Leave it to what is in there: it ends when that has.

        Raises:
            CriuFailed: it has ended.
        """
        try:
            self._channel.send(GO)
        except OSError as error:
            raise CriuFailed("the first process of the tree's PID namespace was ended by somebody") from error
        self.close()

    def close(self) -> None:
        """Let it end, with all that is in there, if it was not let go. May be repeated."""
        self._channel.close()


async def make(work: Path, taken: Collection[int]) -> OwnNamespace:
    """Make a PID namespace, with a mount namespace that has its ``/proc``.

    Args:
        work: a folder for what its first process has to say if it fails.
        taken: numbers that are needed in there, and that CRIU must not get itself.

    Raises:
        RightsMissing: the kernel does not let this user do it.
        NoRoom: the machine has no room for one more process, or namespace.
        CriuFailed: it cannot be made for another reason.
    """
    after = begin_after(taken, int(PID_MAX.read_text(encoding="ascii")))
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ours.setblocking(False)
    try:
        with its:
            maker = _start(work, after, its)
        try:
            return OwnNamespace(await _made(ours), ours)
        finally:
            maker.kill()  # it has ended, or is about to, or never says anything
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(maker.wait)
    except OSError as error:
        ours.close()
        raise _failure(error.errno or 0, error.strerror or str(error)) from error
    except BaseException:
        ours.close()
        raise


def _start(work: Path, after: int, channel: socket.socket) -> subprocess.Popen[bytes]:
    with (work / OUTPUT).open("ab") as output:
        return subprocess.Popen(  # noqa: S603  # a list of arguments
            [sys.executable, "-I", "-m", PROGRAM, str(after)],
            stdin=channel.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=output,
            cwd="/",
            start_new_session=True,
            env={"LC_ALL": "C"},
        )


async def _made(channel: socket.socket) -> TaskIdentity:
    """Hear who is the first process, and that it is ready."""
    said, first = b"", None
    while first is None or READY not in said:
        await anyio.wait_readable(channel)
        more = channel.recv(MAX_SAID_BYTES)
        said += more
        for line in said.splitlines(keepends=True):
            if line.startswith(FAILED) and line.endswith(b"\n"):
                number, _, text = line.removeprefix(FAILED).decode(errors="replace").partition(" ")
                raise _failure(int(number), text.strip())
            if first is None and line.startswith(FIRST) and line.endswith(b"\n"):
                first = _identified(int(line.removeprefix(FIRST)))
        if not more or len(said) > MAX_SAID_BYTES:
            raise CriuFailed("the first process of a PID namespace ended before it was ready")
    return first


def _identified(pid: int) -> TaskIdentity:
    """Return the identity of the process with this number: it holds its end of the channel, so it is the one meant."""
    try:
        return identify_task(pid)
    except TargetGone as error:
        raise CriuFailed("the first process of a PID namespace was ended before it was ready") from error


def _failure(number: int, text: str) -> RightsMissing | NoRoom | CriuFailed:
    if number in (errno.EPERM, errno.EACCES):
        return RightsMissing(f"no PID namespace can be made, which needs CAP_SYS_ADMIN and a /proc of its own: {text}")
    if number in (errno.ENOSPC, errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE):
        return NoRoom(f"there is no room for one more PID namespace: {text}")
    return CriuFailed(f"a PID namespace cannot be made: {text}")


def begin_after(taken: Collection[int], most: int) -> int:
    """Return the number after which a namespace gives new ones: in the middle of the widest gap between those taken."""
    edges = (LOWEST, *sorted(each for each in taken if LOWEST < each < most), most)
    gaps = [(high - low, low) for low, high in itertools.pairwise(edges)]
    width, low = max(gaps)
    return low + width // 2


# Those that are there


def of(task: TaskIdentity) -> TaskIdentity | None:
    """Return the first process of the namespace of our own making that a process lives in.

    None if it lives in no such namespace.

    Raises:
        RightsMissing: it may not be looked at.
    """
    try:
        there = _link(task.pid, "pid")
        if there == _link("self", "pid"):
            return None
        line = (task, *ancestors(task))
        first = next((each for each in line if _status(each).first_of_namespace), None)
        if first is None or not _is_ours(first) or _link(first.pid, "pid") != there:
            return None
        return first if lives(task) and lives(first) else None
    except (FileNotFoundError, ProcessLookupError, ProcessGone):  # one of them has just ended: nobody enters there
        return None
    except PermissionError as error:
        raise RightsMissing(f"the namespaces of process {task.pid} may not be looked at") from error


def _is_ours(first: TaskIdentity) -> bool:
    where = Path(f"/proc/{first.pid}")
    return (
        read_stat(first.pid).name == NAME
        and where.stat().st_uid == os.geteuid()
        and _link(first.pid, "user") == _link("self", "user")
        and (where / "root").samefile("/")
    )


def _status(task: TaskIdentity) -> ProcStatus:
    return parse_status(read_text(task.pid, "status"))


def _link(pid: int | str, kind: str) -> str:
    return str(Path(f"/proc/{pid}/ns/{kind}").readlink())


def inside(first: TaskIdentity, work: Callable[[], T]) -> T:
    """Do something in the mount namespace of this one; processes that it starts are in this one, and are our children.

    Raises:
        TargetGone: the namespace has ended.
        OSError: the kernel does not let us in.
    """
    with contextlib.ExitStack() as opened:
        try:
            mounts = opened.enter_context(Path(f"/proc/{first.pid}/ns/mnt").open("rb"))
            numbers = opened.enter_context(Path(f"/proc/{first.pid}/ns/pid").open("rb"))
        except (FileNotFoundError, ProcessLookupError) as error:
            raise TargetGone(f"process {first.pid}, the first of a PID namespace, has ended") from error
        if not lives(first):
            raise TargetGone(f"process {first.pid}, the first of a PID namespace, has ended")
        return within(((mounts.fileno(), CLONE_NEWNS), (numbers.fileno(), CLONE_NEWPID)), work)


def number_inside(task: TaskIdentity) -> int:
    """Return the number of a process in its own namespace.

    Raises:
        TargetGone: it has ended.
    """
    try:
        number = _status(task).inner_pid or task.pid
    except (FileNotFoundError, ProcessLookupError) as error:
        raise TargetGone(f"process {task.pid} has ended") from error
    if not lives(task):
        raise TargetGone(f"process {task.pid} has ended")
    return number


def kill(first: TaskIdentity) -> None:
    """Kill the first process, and with it all in there: the kernel does. It ends when all of that was reaped."""
    with contextlib.suppress(TargetGone):
        descriptor = open_task(first)
        try:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)


async def ended(first: TaskIdentity, within_ns: int) -> bool:
    """Wait until a namespace has ended; say whether it has."""
    try:
        descriptor = open_task(first)
    except TargetGone:
        return True
    try:
        with anyio.move_on_after(within_ns / 1e9):
            await anyio.wait_readable(descriptor)
            return True
    finally:
        os.close(descriptor)
    return not lives(first)
