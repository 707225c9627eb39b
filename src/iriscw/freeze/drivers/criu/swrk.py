"""One run of ``criu swrk``: a process of its own, and a socket on which it is asked and answers.

Theory of operation. CRIU is started, and does nothing before it was asked: whoever starts it writes down who it is
first. It leads a session and a process group of its own, inherits no descriptor but the socket and no key, and reads no
configuration of the machine: no option of ours can be changed by it. Its folder of plugins is one of ours that is
empty, so its CUDA plugin is never loaded and exactly one owns the GPU's state (INV-C2, C5).

The socket is the leash. When it is closed, by us or because this process died, CRIU undoes a dump whose result was not
taken; a restore that has not been let go on fails. A dump is not killed where that can be helped: for some microseconds
of each task, what CRIU has put into the task's program text would stay there, and end the task.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import anyio

from iriscw.files import make_private_folder
from iriscw.freeze.criu_rpc import MAX_MESSAGE_BYTES, CriuAnswer, CriuMessageKind, read_answer, reply
from iriscw.freeze.drivers.identities import identify_task
from iriscw.freeze.drivers.namespace.entering import without_keys
from iriscw.freeze.drivers.namespace.space import inside
from iriscw.freeze.model import CriuMissing, CriuUnfit, RightsMissing, TargetGone, TaskIdentity

KILLED_NS: Final = 5_000_000_000
"""For a CRIU that was killed, to be gone; one that writes to a dead disk is not."""

NO_PLUGINS: Final = "no-plugins"
OUTPUT: Final = "criu.out"
MAX_LOG_BYTES: Final = 1 << 20
"""Of the end of a log that is read after a failure."""

Notified = Callable[[str], Awaitable[bool]]
"""Takes the name of a notification and says whether CRIU may go on."""


class Swrk:
    """A CRIU that waits for a request. Use :func:`start`."""

    def __init__(self, process: subprocess.Popen[bytes], channel: socket.socket, work: Path) -> None:
        self._process = process
        self._channel = channel
        self._pidfd = os.pidfd_open(process.pid)
        self._gone = False
        self.work = work

    @property
    def pid(self) -> int:
        """Its number, which is also that of its process group. It stays its own until :meth:`close` has reaped it."""
        return self._process.pid

    def identity(self) -> TaskIdentity | None:
        """Say who it is; None if it has ended already."""
        try:
            return identify_task(self.pid)
        except TargetGone:
            return None

    def ask(self, request: bytes) -> None:
        """Ask it; what became of it is told by :meth:`answer`."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._channel.send(request)

    def reply(self, *, success: bool) -> None:
        """Answer the notification it waits with. One that has ended hears nothing."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._channel.send(reply(success=success))

    async def receive(self) -> CriuAnswer | None:
        """Wait for its next message; None when it has ended without one.

        Raises:
            NotUnderstood: it said what it never says.
        """
        await anyio.wait_readable(self._channel)
        try:
            data = self._channel.recv(MAX_MESSAGE_BYTES)
        except ConnectionResetError:
            return None
        return read_answer(data) if data else None

    async def answer(self, notified: Notified) -> CriuAnswer | None:
        """Wait for how it ends; None when it ended without a word. Each notification is answered as ``notified`` says.

        Raises:
            NotUnderstood: it said what it never says.
        """
        while (answer := await self.receive()) is not None and answer.kind is CriuMessageKind.NOTIFY:
            self.reply(success=await notified(answer.script))
        return answer

    def let_go(self) -> None:
        """Close the socket: it undoes what it waits with, and ends. May be repeated."""
        self._channel.close()

    def write_no_more(self) -> None:
        """Let its next write to a file fail, as a full disk does: it undoes a dump then and ends by itself."""
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (0, 0))

    def signal(self, number: signal.Signals) -> None:
        """Signal it; one that has ended is left alone."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def kill_group(self) -> None:
        """Kill it with what it started and what is still in its process group: its own tools, no task of a tree."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    async def ended(self, within_ns: int) -> bool:
        """Wait until it has ended; say whether it has within this time."""
        if self._gone:
            return True
        with anyio.move_on_after(within_ns / 1e9):
            await anyio.wait_readable(self._pidfd)
            return True
        return bool(select.select([self._pidfd], [], [], 0)[0])

    async def close(self, within_ns: int) -> bool:
        """Let it end by itself for ``within_ns``, then kill it, and reap it. May be repeated.

        Returns:
            Whether it is gone. One that hangs in the kernel is not; it was killed, and ends when the kernel lets it.
        """
        self.let_go()
        if self._gone:
            return True
        try:
            if not await self.ended(within_ns):
                self.kill_group()
                if not await self.ended(KILLED_NS):
                    return False
        except BaseException:
            self.kill_group()
            raise
        self._reap()
        return True

    def _reap(self) -> None:
        self._process.wait()
        os.close(self._pidfd)
        self._gone = True

    def log(self, name: str) -> str:
        """Read the end of one of its logs; what is not there is empty."""
        try:
            with (self.work / name).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, size - MAX_LOG_BYTES))
                return file.read(MAX_LOG_BYTES).decode(errors="replace")
        except OSError:
            return ""

    def statistics(self, name: str) -> bytes:
        """Read a file of statistics; what is not there is empty."""
        try:
            with (self.work / name).open("rb") as file:
                return file.read(MAX_LOG_BYTES)
        except OSError:
            return b""


def start(
    program: Path,
    work: Path,
    *,
    before: tuple[str, ...] = (),
    terminal: int | None = None,
    first: TaskIdentity | None = None,
) -> Swrk:
    """Start a CRIU that waits for a request. Blocks for a few milliseconds.

    Args:
        program: Where it is.
        work: Its folder for logs and statistics.
        before: A command line to which that of CRIU is appended, and which becomes it.
        terminal: A descriptor of this session's terminal, in which what it restores is to be: then it stays in this
            session, in a process group of its own. None: it has a session of its own, and no terminal.
        first: The first process of a namespace of our own making, in which it is to be; None: in ours.

    Raises:
        TargetGone: the namespace has ended.
        CriuMissing: it is not there any more.
        RightsMissing: it may not be executed, or not there.
        CriuUnfit: this machine cannot execute it.
        OSError: the folder cannot be used, or the machine has no room for one more process.
    """
    plugins = work / NO_PLUGINS
    make_private_folder(plugins)
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    argv = [*before, str(program), "--no-default-config", "--libdir", str(plugins), "--work-dir", str(work)]
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "CRIU_LIBS_DIR": str(plugins)}
    try:
        with its, (work / OUTPUT).open("ab") as output:

            def launch() -> subprocess.Popen[bytes]:
                return subprocess.Popen(  # noqa: S603  # a list of arguments
                    [*argv, "swrk", str(its.fileno())],
                    stdin=subprocess.DEVNULL if terminal is None else terminal,
                    stdout=output,
                    stderr=output,
                    cwd=work,
                    env=environment,
                    pass_fds=(its.fileno(),),
                    start_new_session=terminal is None,
                    process_group=None if terminal is None else 0,
                    restore_signals=False,  # SIGXFSZ stays ignored: see write_no_more
                )

            process = without_keys(launch if first is None else lambda: inside(first, launch))
    except TargetGone:
        ours.close()
        raise
    except FileNotFoundError as error:
        ours.close()
        raise CriuMissing(f"{program} is not there any more") from error
    except PermissionError as error:
        ours.close()
        raise RightsMissing(f"{program} may not be executed: {error.strerror}") from error
    except OSError as error:
        ours.close()
        if error.errno in (8, 80):  # ENOEXEC, ELIBBAD
            raise CriuUnfit(f"{program} is not a program for this machine") from error
        raise
    ours.setblocking(False)
    return Swrk(process, ours, work)
