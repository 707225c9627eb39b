"""``pods/NAME/exec`` over a websocket: the channels of ``remotecommand``, versions 4 and 5.

Every message is binary, and its first byte says what it belongs to: 0 standard input, 1 and 2 output, 3 a Status when
the command is over, 4 the size of the terminal, and in version 5 255, which closes the channel that follows. kubectl
asks by GET and falls back to POST with SPDY, which is not spoken here; a refusal comes to both as a Status.

What a caller sends while nobody reads waits in the socket: nothing is read ahead of the command but one message.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web

from iriscw_sims.kube.messages import Request
from iriscw_sims.kube.refusals import bad_request, internal
from iriscw_sims.serve.answers import encoded
from iriscw_sims.serve.pods import Place, Pod
from iriscw_sims.serve.scripted import state_of
from iriscw_sims.serve.streams import Command, PodStreams

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN, STDOUT, STDERR, STATUS, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
MESSAGE_BYTES = 2**20
"""Of one message; kubectl's own have 32 KiB."""

COMMAND_S = 3600.0
"""Real seconds that a command may take. The kubelet's ``streamingConnectionIdleTimeout`` is 4 h."""

CLOSE_S = 5.0
"""Seconds in which the caller has to answer the end."""


def read_command(request: Request, place: Place, pod: Pod) -> Command:
    """Read what to run.

    Raises:
        Refused: 400, nothing is asked for, or of a pod that is over; 500, the container does not run.
    """
    argv = tuple(value for name, value in request.query if name == "command")
    if not argv:
        raise bad_request("you must provide at least 1 command for the container")
    if not any(request.flag(name) for name in ("stdin", "stdout", "stderr")):
        raise bad_request("you must specify at least 1 of stdin, stdout, stderr")
    phase = (pod.get("status") or {}).get("phase")
    if phase in ("Succeeded", "Failed"):
        raise bad_request(f"cannot exec into a container in a completed pod; current phase is {phase}")
    if not (state_of(pod, place.container).get("state") or {}).get("running"):
        raise internal(f'unable to upgrade connection: container not found ("{place.container}")')
    return Command(pod, place.container, argv, request.flag("tty"))


def check_upgrade(http: web.BaseRequest) -> None:
    """Refuse what is not a websocket with one of our protocols.

    Raises:
        Refused: 400.
    """
    asked = [each.strip() for each in http.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    if http.method != "GET" or http.headers.get("Upgrade", "").lower() != "websocket":
        raise bad_request("unable to upgrade: only websockets are spoken here, and no SPDY")
    if not any(each in PROTOCOLS for each in asked):
        raise bad_request(f"unable to upgrade: no protocol in common; here are {', '.join(PROTOCOLS)}")


class Channels:
    """The streams of one command on one websocket."""

    def __init__(self, socket: web.WebSocketResponse, request: Request, write_s: float) -> None:
        self._socket = socket
        self._write_s = write_s
        self._has_stdin = request.flag("stdin")
        self._has = {STDOUT: request.flag("stdout"), STDERR: request.flag("stderr")}
        self._stderr = STDOUT if request.flag("tty") else STDERR
        self._is_over = False

    async def stdin(self) -> AsyncIterator[bytes]:
        """Yield what the caller sends."""
        while self._has_stdin and not self._is_over:
            data = await self._receive()
            if data:
                yield data

    async def _receive(self) -> bytes:
        message = await self._socket.receive()
        if message.type is not WSMsgType.BINARY:
            self._is_over = True  # text, a close, or an error: nothing more comes that could be understood
            return b""
        data: bytes = message.data
        if data[:2] == bytes((CLOSE, STDIN)):
            self._is_over = True
        return data[1:] if data[:1] == bytes((STDIN,)) else b""

    async def stdout(self, data: bytes) -> None:
        """Send output."""
        await self.send(STDOUT, data)

    async def stderr(self, data: bytes) -> None:
        """Send output of the other kind."""
        await self.send(self._stderr, data)

    async def send(self, channel: int, data: bytes) -> None:
        """Send on a channel, if the caller asked for it.

        Raises:
            ConnectionResetError: the caller takes nothing.
        """
        if not data or not self._has.get(channel, True):
            return
        try:
            async with asyncio.timeout(self._write_s):
                await self._socket.send_bytes(bytes((channel,)) + data)
        except TimeoutError as slow:
            raise ConnectionResetError(f"the caller took nothing for {self._write_s:g} s") from slow


def outcome(code: int) -> dict[str, Any]:
    """Return the Status that tells how a command ended."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    causes = [{"reason": "ExitCode", "message": str(code)}]
    said = f"command terminated with non-zero exit code: exit status {code}"
    return {
        "metadata": {},
        "status": "Failure",
        "message": said,
        "reason": "NonZeroExitCode",
        "details": {"causes": causes},
    }


def _took_too_long() -> dict[str, Any]:
    said = f"the command was ended: it ran for {COMMAND_S:g} s"
    return {"metadata": {}, "status": "Failure", "message": said, "reason": "InternalError", "code": 500}


async def run_command(
    http: web.BaseRequest, streams: PodStreams, request: Request, command: Command, now: int, write_s: float
) -> web.StreamResponse:
    """Run a command for the caller of a websocket."""
    socket = web.WebSocketResponse(protocols=PROTOCOLS, max_msg_size=MESSAGE_BYTES, timeout=CLOSE_S, compress=False)
    await socket.prepare(http)
    channels = Channels(socket, request, write_s)
    try:
        async with asyncio.timeout(COMMAND_S):
            status = outcome(await streams.exec(command, channels, now))
    except TimeoutError:
        status = _took_too_long()
    if not socket.closed:
        await channels.send(STATUS, encoded(status))
        await socket.close(code=WSCloseCode.OK)
    return socket
