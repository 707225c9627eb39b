"""Commands in a container of a Docker engine: :class:`~iriscw.cloud.ports.Connection` by the engine's own ``exec``.

As on Kubernetes what is started is an attendant (:mod:`iriscw.cloud.drivers.kube.exec`), and for the same reason: an
engine ends a command's input when its caller goes, and does nothing else to it. What is said travels on the connection
of the call that starts it, which stops being HTTP then: pieces, each with its channel and length in front. How it ended
is asked for afterwards, and told as a kubelet tells it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

import anyio
import attrs

from iriscw.cloud.drivers.attended import AttendedConnection
from iriscw.cloud.drivers.docker.engine import CALL_S, DockerEngine, open_engine
from iriscw.cloud.drivers.kube.exec import STATUS, STDERR, STDIN, STDOUT, Attended, interpreted, new_mark
from iriscw.cloud.drivers.kube.places import NotYet
from iriscw.cloud.kube.messages import ApiUnreachable
from iriscw.cloud.model import Conflict, Gone, Unavailable

HEADER_BYTES = 8
"""Of a piece: its channel, three zeros, its length."""

MAX_PIECE_BYTES = 1 << 20
"""An engine sends 32 KiB at a time."""

READ_AHEAD_BYTES = 64 << 10
UPGRADED = (101, 200)
"""How an engine says that the connection is the command's from here on; the old ones without an upgrade."""


@attrs.frozen
class DockerConnection(AttendedConnection):
    """Runs commands in one container.

    Args:
        socket: The engine's.
        container: Its name, which no other one ever has.
        interpreter: How Python is started there.
    """

    socket: str
    container: str
    interpreter: tuple[str, ...] = ("python3",)

    async def wait_until_ready(self, timeout_s: float) -> None:
        """Make sure that commands can be run."""
        with anyio.fail_after(timeout_s):
            async with self._attended(timeout_s):
                pass

    async def _reached(self, stack: AsyncExitStack, patience_s: float) -> Attended:
        del patience_s  # an engine of this machine is there, or is not
        mark = new_mark()
        engine = await stack.enter_async_context(open_engine(self.socket))
        wanted = {f"Attach{name}": True for name in ("Stdin", "Stdout", "Stderr")}
        body = {**wanted, "Cmd": [*interpreted(self.interpreter, mark)]}
        try:
            made = await engine.call("POST", f"/containers/{self.container}/exec", body=body)
            way = await stack.enter_async_context(_started(engine, self.socket, str(made["Id"])))
            attended = Attended(way, mark, self.interpreter[0])
            await attended.ready()
        except Conflict as error:
            raise Gone(f"the container {self.container} does not run: {error}") from error
        except (NotYet, ApiUnreachable, KeyError, TypeError) as error:
            raise Unavailable(f"nothing was run in the container {self.container}: {error}") from error
        return attended

    async def _check(self) -> None:
        with contextlib.suppress(Unavailable):  # it is asked again by and by
            async with open_engine(self.socket) as engine:
                found = await engine.call("GET", f"/containers/{self.container}/json")
                state = found.get("State") if isinstance(found, Mapping) else None
                if isinstance(state, Mapping) and state.get("Running") is False:
                    raise Gone(f"the container {self.container} has ended")


class _Pieces:
    """The connection of a command that runs; see :class:`~iriscw.cloud.drivers.kube.exec.ExecWay`."""

    def __init__(
        self, engine: DockerEngine, command: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._engine, self._command = engine, command
        self._reader, self._writer = reader, writer
        self._header = b""
        self._over = False

    async def send(self, channel: int, data: bytes) -> None:
        """Send what is the command's input."""
        assert channel == STDIN, "a command has one input"
        with _told(), anyio.fail_after(CALL_S):
            self._writer.write(data)
            await self._writer.drain()

    async def end(self, channel: int) -> bool:
        """End the command's input."""
        assert channel == STDIN, "a command has one input"
        with _told():
            self._writer.write_eof()
        return True

    async def receive(self) -> tuple[int, bytes] | None:
        """Return the next piece, and at last the Status."""
        if self._over:
            return None
        with _told():
            try:
                self._header = self._header or await self._reader.readexactly(HEADER_BYTES)
                channel, size = self._header[0], int.from_bytes(self._header[4:])
                if channel not in (STDOUT, STDERR) or size > MAX_PIECE_BYTES:
                    raise ApiUnreachable("the Docker engine sent something that is not a piece of an output")
                data = await self._reader.readexactly(size)
            except asyncio.IncompleteReadError:
                status = await self._status()
                self._over = True
                return STATUS, status
        self._header = b""
        return channel, data

    async def _status(self) -> bytes:
        try:
            found = await self._engine.call("GET", f"/exec/{self._command}/json")
        except Gone as error:
            raise ApiUnreachable(f"the engine has forgotten the command: {error}") from error
        told = found if isinstance(found, Mapping) else {}
        code = told.get("ExitCode")
        if told.get("Running") or not isinstance(code, int):
            raise ApiUnreachable("the connection to the command broke")
        if code == 0:
            return json.dumps({"status": "Success"}).encode()
        causes = [{"reason": "ExitCode", "message": str(code)}]
        return json.dumps({"status": "Failure", "details": {"causes": causes}}).encode()


@asynccontextmanager
async def _started(engine: DockerEngine, socket: str, command: str) -> AsyncIterator[_Pieces]:
    """Start a command that was made, for as long as the block lasts.

    Raises:
        ApiUnreachable: the engine does not answer, or not as it should.
        Conflict: its container does not run any more.
    """
    body = b'{"Detach": false, "Tty": false}'
    head = (
        f"POST /exec/{command}/start HTTP/1.1\r\nHost: docker\r\nContent-Type: application/json\r\n"
        f"Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with _told(), anyio.fail_after(CALL_S):
        reader, writer = await asyncio.open_unix_connection(socket, limit=READ_AHEAD_BYTES)
        try:
            writer.write(head.encode() + body)
            first, *_ = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        except BaseException:
            writer.close()
            raise
    try:
        code = int(first[9:12]) if re.match(rb"HTTP/1\.[01] \d{3}", first) else 0
        if code == 409:
            raise Conflict("the engine says that its container does not run")
        if code not in UPGRADED:
            raise ApiUnreachable(f"the Docker engine answered with {first[:200]!r}")
        yield _Pieces(engine, command, reader, writer)
    finally:
        writer.close()


@contextmanager
def _told() -> Iterator[None]:
    """Raise what the socket says as what a way says."""
    try:
        yield
    except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
        raise ApiUnreachable(f"the connection to the Docker engine broke: {error}") from error
