"""One command in a container, from the API server's side: the attendant is sent, told what to run, and listened to.

Theory of operation. What ``exec`` starts in the container is an interpreter that says it is there (the *mark* on its
standard error), reads the attendant's source (:mod:`iriscw.cloud.drivers.kube.attendant`) from its standard input, and
becomes it. So the conversation has a point before which nothing of the command can have run: until the mark has come,
whatever goes wrong may be repeated; and behind it the pod can be looked at once more before the order leaves.

Standard input stays open as the attendant's lifeline, with a byte now and then. The command's own is empty. Protocol
version 4 has no word for the end of an input, so ending the command is a byte, too; version 5 ends the input as well.

How a command ended stands in a Status, the last message. One that is no exit code is the API server's or the kubelet's
trouble, not the command's.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import anyio
import attrs

from iriscw.cloud.drivers.kube import attendant
from iriscw.cloud.drivers.kube.attendant import KILL, LENGTH_DIGITS, NOT_STARTED_CODE
from iriscw.cloud.drivers.kube.places import NotYet
from iriscw.cloud.kube.messages import ApiRequest, ApiUnreachable
from iriscw.cloud.model import ExecResult, InvalidSpec, Unavailable
from iriscw.cloud.ports import MAX_EXEC_OUTPUT_BYTES

STDIN, STDOUT, STDERR, STATUS = 0, 1, 2, 3
"""Channels of ``remotecommand``."""

CHUNK_BYTES = 64 << 10
"""What a stream gives at once, at most."""

READY_S = 30.0
"""Seconds until the mark. An interpreter starts in 20 ms; where its image is read from a slow disk, later."""

KILL_S = 10.0
"""Seconds that the end of a killed command is waited for. It comes at once, unless a disk holds a process."""

LEASE_S, PULSE_S = 60.0, 10.0
"""How long a command outlives the last word from here, and how often one is said."""

MARGIN_S = 15.0
"""Seconds after which the attendant ends by itself what we should have ended at the deadline."""

ORDER_BYTES = 2**21
"""Of arguments and environment: Linux takes no more in one ``exec`` (a quarter of the stack, 2 MiB)."""

SOURCE = Path(attendant.__file__).read_bytes()

BOOTSTRAP = """\
import os,sys
sys.stderr.write(sys.argv[1])
sys.stderr.flush()
s,n=b'',int(sys.argv[2])
while len(s)<n:s+=os.read(0,n-len(s))or sys.exit(125)
exec(s)"""
"""Says the mark, reads the source, becomes it. Short, for it travels in the URL."""

INTERPRETER_MISSING = ("executable file not found", "no such file or directory")
INTERPRETER_MISSING_CODES = (126, 127)
"""How runtimes say that there is no such program: containerd and CRI-O in words, others by the code of a shell."""


Check = Callable[[], Awaitable[None]]


@attrs.frozen
class ExecOrder:
    """What to run.

    Args:
        argv: The command.
        environment: Variables that are added to the container's.
        timeout_s: After which the attendant ends it by itself; 0 for never.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    timeout_s: float = 0.0

    def encoded(self) -> bytes:
        """Return it as it is sent.

        Raises:
            InvalidSpec: there is no command, a word holds a NUL, a variable has no name, or it is too long.
        """
        if not self.argv:
            raise InvalidSpec("the command is empty")
        if any("\0" in word for word in (*self.argv, *self.environment, *self.environment.values())):
            raise InvalidSpec("a word of the command, or of its environment, holds a NUL")
        if any(not name or "=" in name for name in self.environment):
            raise InvalidSpec("a variable's name is empty, or holds an equals sign")
        data = json.dumps(
            {
                "argv": self.argv,
                "environment": dict(self.environment),
                "timeout_s": self.timeout_s,
                "lease_s": LEASE_S,
            }
        ).encode()
        if len(data) > ORDER_BYTES:
            raise InvalidSpec(f"the command and its environment have {len(data)} bytes, more than {ORDER_BYTES}")
        return data


def interpreted(interpreter: Sequence[str], mark: str) -> tuple[str, ...]:
    """Return the words by which an attendant is started that says ``mark``."""
    return (*interpreter, "-I", "-S", "-c", BOOTSTRAP, mark, str(len(SOURCE)))


def exec_request(pod: str, container: str, interpreter: Sequence[str], mark: str) -> ApiRequest:
    """Ask for an attendant.

    Args:
        pod: The pod's path.
        container: Which of its containers.
        interpreter: How Python is started there.
        mark: What it says when it is there.
    """
    words = interpreted(interpreter, mark)
    streams = ((name, "true") for name in ("stdin", "stdout", "stderr"))
    query = (*(("command", word) for word in words), ("container", container), *streams)
    return ApiRequest("GET", f"{pod}/exec", query)


def new_mark() -> str:
    """Return a mark: something that no command says by accident."""
    return f"iriscw-{secrets.token_hex(8)}:"


class ExecWay(Protocol):
    """Messages to and from what was started in a container, as ``remotecommand`` has them."""

    async def send(self, channel: int, data: bytes) -> None:
        """Send on a channel; raises ``ApiUnreachable`` if the connection is over."""

    async def end(self, channel: int) -> bool:
        """End a channel; False if the protocol has no word for it."""

    async def receive(self) -> tuple[int, bytes] | None:
        """Return the next message, the last of which is a Status; may be cancelled while nothing comes."""


class Attended:
    """An attendant in a container, and the command below it.

    Args:
        channels: The way there.
        mark: What it says when it is there.
        interpreter: The program that it is run by.
    """

    def __init__(self, channels: ExecWay, mark: str, interpreter: str) -> None:
        self._channels = channels
        self._mark = mark.encode()
        self._interpreter = interpreter
        self._began = False
        self._notes = b""
        """What came on standard error that may be the attendant's own."""
        self.code: int | None = None
        """The exit code, once the command is over."""

    async def ready(self) -> None:
        """Wait until the attendant is there.

        Raises:
            InvalidSpec: the container has no such interpreter.
            NotYet: it did not come, for another reason.
        """
        with anyio.move_on_after(READY_S):
            try:
                while self._mark not in self._notes:
                    message = await self._channels.receive()
                    if message is None:
                        raise NotYet("the connection ended before anything was run")
                    self._hear(*message)
            except ApiUnreachable as broken:
                raise NotYet(str(broken)) from None
            self._notes = self._notes.partition(self._mark)[2]
            return
        raise NotYet(f"nothing was run within {READY_S:g} s")

    def _hear(self, channel: int, data: bytes) -> None:
        if channel == STDERR:
            self._notes = (self._notes + data)[-CHUNK_BYTES:]
        if channel != STATUS:
            return
        try:
            code, said = exit_code_of(data), ""
        except Unavailable as trouble:
            code, said = 0, str(trouble)
        missing = self._interpreter in said and any(words in said.lower() for words in INTERPRETER_MISSING)
        if missing or code in INTERPRETER_MISSING_CODES:
            raise InvalidSpec(f"the container has no interpreter ({self._interpreter}), which commands are run under")
        raise NotYet(said or f"the interpreter ended with {code}: {self._notes.decode(errors='replace')}")

    async def begin(self, order: bytes) -> None:
        """Have a command run; ``order`` is encoded. Whatever happens from here on, it may have run.

        Raises:
            ApiUnreachable: the connection broke.
        """
        self._began = True
        length = str(len(order)).zfill(LENGTH_DIGITS).encode()
        await self._channels.send(STDIN, SOURCE + length + order)

    async def output(self, check: Check | None = None) -> AsyncGenerator[tuple[int, bytes], None]:
        """Yield what the command says, with the channel it says it on, until it is over; then :attr:`code` is known.

        Args:
            check: Is called after each ``LEASE_S`` of silence, and raises if the pod is not there any more: runtimes
                leave the streams of a container open that has gone.

        Raises:
            InvalidSpec: it could not be started.
            ApiUnreachable: the connection broke.
            Unavailable: nobody saw how it ended.
        """
        held: bytes | None = self._notes
        """What may be the beginning of the attendant's last word; None once it cannot be."""
        while (message := await self._next(check)) is not None:
            channel, data = message
            if channel == STATUS:
                self.code = exit_code_of(data)
                if held and self.code == NOT_STARTED_CODE and held.startswith(self._mark):
                    reason = held.removeprefix(self._mark).decode(errors="replace")
                    raise InvalidSpec(f"the command cannot be started: {reason}")
                if held:
                    yield STDERR, held
                return
            if channel == STDERR and held is not None:
                held += data
                if held[: len(self._mark)] != self._mark[: len(held)] or len(held) > CHUNK_BYTES:
                    data, held = held, None
                    yield STDERR, data
            elif channel in (STDOUT, STDERR):
                yield channel, data
        raise ApiUnreachable("the connection ended before the command did")

    async def _next(self, check: Check | None) -> tuple[int, bytes] | None:
        """Wait for a message."""
        if check is None:
            return await self._channels.receive()
        while True:
            with anyio.move_on_after(LEASE_S):
                return await self._channels.receive()
            await check()

    async def result(self) -> ExecResult:
        """Return what the command leaves behind, as much of its outputs as the port keeps.

        Raises:
            InvalidSpec: it could not be started.
            ApiUnreachable: the connection broke.
            Unavailable: nobody saw how it ended.
        """
        kept = {STDOUT: bytearray(), STDERR: bytearray()}
        truncated = False
        async for channel, data in self.output():
            room = MAX_EXEC_OUTPUT_BYTES - len(kept[channel])
            kept[channel] += data[:room]
            truncated = truncated or len(data) > room
        assert self.code is not None, "an output ends with its command"
        return ExecResult(self.code, bytes(kept[STDOUT]), bytes(kept[STDERR]), truncated)

    async def kill(self) -> bool:
        """End the command with all it started; give whether its end was seen. Waits for a while, cancelled or not."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(KILL_S):
            try:
                await self._channels.send(STDIN, KILL)
                await self._channels.end(STDIN)
                while (message := await self._channels.receive()) is not None:
                    if message[0] == STATUS:
                        return True
            except ApiUnreachable:
                return False  # the attendant sees the end of its lifeline, or of its lease
        return False

    async def pulse(self) -> None:
        """Say now and then that somebody is here, until cancelled. Not before the order, which it would garble."""
        while True:
            await anyio.sleep(PULSE_S)
            try:
                if self._began:
                    await self._channels.send(STDIN, b".")
            except ApiUnreachable:
                return  # whoever reads is told


def exit_code_of(data: bytes) -> int:
    """Read the Status that ends a command.

    Raises:
        Unavailable: it tells of no exit code.
    """
    try:
        status: Any = json.loads(data)
    except (ValueError, RecursionError):
        status = None
    if not isinstance(status, dict):
        raise Unavailable("a command's end was told in something that is not a Status")
    if status.get("status") == "Success":
        return 0
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    for cause in causes if isinstance(causes, list) else ():
        if isinstance(cause, dict) and cause.get("reason") == "ExitCode" and str(cause.get("message")).isdecimal():
            return int(cause["message"])
    raise Unavailable(f"the node could not run it: {status.get('message') or 'no reason given'}")
