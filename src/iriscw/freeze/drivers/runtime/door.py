"""Where a container runtime's calls of CRIU arrive: a folder with a program ``criu`` in it, and a socket.

The runtime is started with this folder first in its ``PATH``. See :mod:`.become_criu` for the program.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import signal
import socket
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import anyio

from iriscw.files import make_private_folder, remove_tree
from iriscw.freeze.criu_rpc import (
    MAX_MESSAGE_BYTES,
    CriuAnswer,
    CriuMessageKind,
    NotUnderstood,
    kind_of,
    read_answer,
    reply,
)
from iriscw.freeze.drivers.identities import identify_task, lives
from iriscw.freeze.drivers.runtime import become_criu
from iriscw.freeze.model import CriuFailed, TargetGone, TaskIdentity

BACKLOG: Final = 16
MAX_DESCRIPTORS: Final = 8
"""That come with one message: a terminal, where a container has one."""

_CREDENTIALS: Final = struct.Struct("3i")
_KILLED_S: Final = 5.0


class CriuDoor:
    """A folder of our own in which calls of CRIU arrive.

    Args:
        folder: it is made anew; what an earlier life left in it goes.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        remove_tree(folder)
        make_private_folder(folder)
        self.folder = folder
        program = folder / "criu"
        words = [sys.executable, "-I", "-S", str(Path(become_criu.__file__).absolute())]
        program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
        program.chmod(0o700)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self._socket.bind(f"/proc/self/fd/{descriptor}/{become_criu.SOCKET}")
            finally:
                os.close(descriptor)
            self._socket.listen(BACKLOG)
            self._socket.setblocking(False)
        except BaseException:
            self._socket.close()
            raise

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the environment in which a runtime finds this CRIU and no other."""
        path = given.get("PATH") or os.defpath
        return {**given, "PATH": f"{self.folder}{os.pathsep}{path}", become_criu.FOLDER: str(self.folder)}

    async def call(self) -> CriuCall:
        """Wait for the next call of a process of ours.

        Raises:
            CriuFailed: somebody called who is none.
        """
        while True:
            await anyio.wait_readable(self._socket)
            try:
                connection, _ = self._socket.accept()
            except BlockingIOError:
                continue
            return await _taken(connection)

    def close(self) -> None:
        """Take no calls any more, and remove the folder. May be repeated.

        Raises:
            OSError: it cannot be removed.
        """
        self._socket.close()
        remove_tree(self.folder)


async def _taken(connection: socket.socket) -> CriuCall:
    connection.setblocking(False)
    descriptors: list[int] = []
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(raw)
        await anyio.wait_readable(connection)
        _, descriptors, _, _ = socket.recv_fds(connection, 64, MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        identity = identify_task(pid)
        if uid == os.geteuid() and len(descriptors) == 2:
            runtime, criu = (socket.socket(fileno=descriptors.pop(0)) for _ in range(2))
            return CriuCall(identity, connection, runtime, criu)
    except (OSError, TargetGone) as error:
        _close_all(connection, descriptors)
        raise CriuFailed(f"a runtime's CRIU ended before it was asked: {error}") from error
    except BaseException:
        _close_all(connection, descriptors)
        raise
    _close_all(connection, descriptors)
    raise CriuFailed("a call of CRIU came from somebody who is not a runtime of ours")


def _close_all(connection: socket.socket, descriptors: list[int]) -> None:
    connection.close()
    for each in descriptors:
        os.close(each)


class CriuCall:
    """One CRIU that a runtime started, with us between the two: the runtime on one socket, CRIU on the other."""

    def __init__(
        self, criu: TaskIdentity, connection: socket.socket, runtime: socket.socket, its: socket.socket
    ) -> None:
        self.identity = criu
        self._pidfd = os.pidfd_open(criu.pid)
        self._connection = connection
        self._runtime = runtime
        self._criu = its
        for each in (runtime, its):
            each.setblocking(False)

    async def request(self) -> bytes:
        """Wait for what the runtime asks; empty if it ended."""
        return (await _receive(self._runtime))[0]

    def begin(self, program: Path, work: Path, plugins: Path, environment: Mapping[str, str]) -> None:
        """Let it become CRIU, which reads no configuration and loads no plugin."""
        words = [str(program), "--no-default-config", "--libdir", str(plugins), "--work-dir", str(work)]
        self._connection.send(json.dumps([str(program), words, dict(environment)]).encode())
        self._connection.close()

    def ask(self, request: bytes) -> None:
        """Ask CRIU."""
        _send(self._criu, request, ())

    async def answer(self) -> tuple[bytes, list[int]]:
        """Wait for CRIU's next message, and the descriptors that came with it; empty if it ended."""
        return await _receive(self._criu)

    def tell(self, message: bytes, descriptors: list[int] | tuple[int, ...] = ()) -> None:
        """Tell the runtime what CRIU said. The descriptors are closed here."""
        try:
            _send(self._runtime, message, descriptors)
        finally:
            for each in descriptors:
                os.close(each)

    def reply(self, *, success: bool) -> None:
        """Answer a notification of CRIU's ourselves."""
        _send(self._criu, reply(success=success), ())

    async def until(self, script: str) -> tuple[CriuAnswer | None, bytes]:
        """Pass on what both say until CRIU tells of this, or ends with a word or without; give that.

        What it gives last was not passed on.

        Raises:
            NotUnderstood: CRIU said what it never says.
        """
        while True:
            data, descriptors = await self.answer()
            if not data:
                return None, b""
            answer = read_answer(data)
            if answer.kind is not CriuMessageKind.NOTIFY or answer.script == script:
                for each in descriptors:
                    os.close(each)
                return answer, data
            await self.forward(data, descriptors)

    async def forward(self, data: bytes, descriptors: list[int] | tuple[int, ...] = ()) -> bool:
        """Tell the runtime of a notification, and CRIU what it answers; say whether there was an answer."""
        self.tell(data, descriptors)
        said = await self.request()
        if not said:
            self.reply(success=False)
            return False
        self.ask(said)
        return True

    async def relay(self, request: bytes) -> None:
        """Pass on a question that is no dump and no restore, and its answer."""
        self.ask(request)
        self.tell(*await self.answer())

    async def ended(self, within_ns: int) -> bool:
        """Wait until CRIU has ended; say whether it has within this time."""
        if self._pidfd < 0:
            return True
        with anyio.move_on_after(within_ns / 1e9):
            await anyio.wait_readable(self._pidfd)
            return True
        return bool(select.select([self._pidfd], [], [], 0)[0])

    def signal(self, number: signal.Signals) -> None:
        """Signal it; one that has ended is left alone."""
        if lives(self.identity):
            try:
                signal.pidfd_send_signal(self._pidfd, number)
            except ProcessLookupError:
                return

    def let_go(self) -> None:
        """Close its sockets: it undoes what it waits with, and ends, and the runtime hears that. May be repeated."""
        for each in (self._connection, self._criu, self._runtime):
            each.close()

    async def close(self, within_ns: int) -> bool:
        """Let it end by itself for this long, then kill it; say whether it is gone. May be repeated."""
        self.let_go()
        if self._pidfd < 0:
            return True
        if not await self.ended(within_ns):
            self.signal(signal.SIGKILL)
            if not await self.ended(int(_KILLED_S * 1e9)):
                return False
        os.close(self._pidfd)
        self._pidfd = -1
        return True


async def kind_of_call(call: CriuCall) -> tuple[CriuMessageKind | None, bytes]:
    """Wait for what a runtime asks.

    Raises:
        CriuFailed: it ended, or asks for nothing that CRIU does.
    """
    request = await call.request()
    try:
        if request:
            return kind_of(request), request
    except NotUnderstood as error:
        raise CriuFailed(f"the runtime asks for what CRIU does not do: {error}") from error
    raise CriuFailed("the runtime ended before it asked CRIU for anything")


async def _receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    try:
        await anyio.wait_readable(channel)
        data, descriptors, _, _ = socket.recv_fds(channel, MAX_MESSAGE_BYTES, MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        return b"", []
    return data, descriptors


def _send(channel: socket.socket, message: bytes, descriptors: list[int] | tuple[int, ...]) -> None:
    """Send a message to who may have ended: that is heard when the answer is waited for."""
    try:
        socket.send_fds(channel, [message], descriptors) if descriptors else channel.send(message)
    except (BrokenPipeError, ConnectionResetError):
        return
