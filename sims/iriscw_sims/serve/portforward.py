"""``pods/NAME/portforward`` over a websocket, in the two ways that are in use.

*Channels* (``v4.channel.k8s.io``, or no protocol named) is what our own driver and Python clients speak: the query
names ports, each has a channel for data and one for the reason why there is none, and the first message of each is the
port. One connection to each port, and no more.

*A tunnel* (``SPDY/3.1+portforward.k8s.io``) is what kubectl speaks: the messages are the bytes of a SPDY connection
(:mod:`iriscw_sims.serve.spdy`), in which each connection to a port is two streams that name it in their headers.

What listens answers at once (:mod:`iriscw_sims.serve.ports`), so one task reads and writes for all. Where programs
really run, a connection to a socket is carried instead, by channels only (:func:`carry`).
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable, Mapping
from typing import TypeAlias

from aiohttp import WSCloseCode, WSMsgType, web

from iriscw_sims.kube.messages import Request
from iriscw_sims.kube.refusals import bad_request, internal
from iriscw_sims.serve.pods import Pod
from iriscw_sims.serve.ports import Conversation
from iriscw_sims.serve.spdy import PROTOCOL_ERROR, REFUSED_STREAM, Came, News, Opened, Pinged, Reset, Spdy, SpdyBroken
from iriscw_sims.serve.streams import Dialled

CHANNELS = "v4.channel.k8s.io"
TUNNEL = "SPDY/3.1+portforward.k8s.io"
MESSAGE_BYTES = 2**20
PORTS_LIMIT = 32
"""Ports that one request may name: channels are numbered by one byte."""

PIECE_BYTES = 2**15
"""Of what a process says, in one message: a kubelet's."""

STREAMS_LIMIT = 256
"""Streams of one tunnel at the same time, two to a connection."""

CLOSE_S = 5.0
TYPE, PORT, NUMBER = "streamtype", "port", "requestid"
"""Headers of a stream: ``data`` or ``error``, which port, and which of the streams belong together."""

Connect: TypeAlias = Callable[[int], Conversation | None]
"""Connects to a port of the pod; None: nothing listens there."""


def read_ports(request: Request, pod: Pod) -> tuple[int, ...]:
    """Read which ports are asked for, of a pod that runs.

    Raises:
        Refused: 400, that are no ports, or too many; 500, the pod does not run.
    """
    phase = (pod.get("status") or {}).get("phase")
    if phase != "Running":
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        raise internal(f'unable to upgrade connection: pod not found ("{name}_{namespace}")')
    texts = [text for name, value in request.query if name == "ports" for text in value.split(",")]
    if len(texts) > PORTS_LIMIT:
        raise bad_request(f"unable to upgrade: {PORTS_LIMIT} ports at most")
    ports = tuple(number for text in texts if (number := _port(text)))
    if len(ports) != len(texts):
        raise bad_request(f"unable to upgrade: invalid port in {','.join(texts)!r}")
    return ports


def _port(text: str) -> int:
    """Return the number of a port; 0 if it is none."""
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0
    return number if number < 2**16 else 0


def check_upgrade(http: web.BaseRequest, ports: tuple[int, ...]) -> str:
    """Return the protocol to speak.

    Raises:
        Refused: 400, it is not a websocket, speaks another protocol, or names no port.
    """
    asked = [each.strip() for each in http.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    if http.method != "GET" or http.headers.get("Upgrade", "").lower() != "websocket":
        raise bad_request("unable to upgrade: only websockets are spoken here, and SPDY only within them")
    spoken = next((each for each in asked if each in (CHANNELS, TUNNEL, "")), None)
    if spoken is None:
        raise bad_request(f"unable to upgrade: no protocol in common; here are {CHANNELS}, {TUNNEL}")
    if spoken != TUNNEL and not ports:
        raise bad_request("unable to upgrade: query parameter 'ports' is required")
    return spoken


def _refused(pod: Pod, port: int) -> bytes:
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    said = f"error forwarding port {port} to pod {name}, uid {uid}: failed to connect to localhost:{port}: "
    return f"{said}dial tcp4 127.0.0.1:{port}: connect: connection refused".encode()


async def forward(
    http: web.BaseRequest, pod: Pod, ports: tuple[int, ...], spoken: str, connect: Connect, write_s: float
) -> web.StreamResponse:
    """Carry connections to ports of a pod until the caller, or what listens, ends them."""
    protocols = (spoken,) if spoken else ()
    socket = web.WebSocketResponse(protocols=protocols, max_msg_size=MESSAGE_BYTES, timeout=CLOSE_S, compress=False)
    await socket.prepare(http)
    carries = _Tunnel(pod, connect) if spoken == TUNNEL else _Channels(pod, ports, connect)
    for first in carries.greet():
        await _send(socket, first, write_s)
    while not carries.over:
        message = await socket.receive()
        if message.type is not WSMsgType.BINARY:
            break  # text, a close, or an error: nothing more comes that could be understood
        for answer in carries.receive(message.data):
            await _send(socket, answer, write_s)
    if not socket.closed:
        await socket.close(code=WSCloseCode.OK)
    return socket


async def carry(
    http: web.BaseRequest, pod: Pod, ports: tuple[int, ...], spoken: str, dialled: Dialled | None, write_s: float
) -> web.StreamResponse:
    """Carry one connection to something that really listens, until one of its sides ends it.

    Args:
        http: The caller's request.
        pod: In which it listens.
        ports: Which port, in the only place.
        spoken: The protocol.
        dialled: The connection; None: nothing listens.
        write_s: How long the caller may take nothing.

    Raises:
        Refused: 400, it is another protocol than that of channels, or names several ports.
    """
    if spoken == TUNNEL or len(ports) != 1:
        await _hang_up(dialled)
        raise bad_request(f"unable to upgrade: one port by {CHANNELS} is all that leads to a process")
    protocols = (spoken,) if spoken else ()
    socket = web.WebSocketResponse(protocols=protocols, max_msg_size=MESSAGE_BYTES, timeout=CLOSE_S, compress=False)
    try:
        await socket.prepare(http)
        for channel in (b"\0", b"\1"):
            await _send(socket, channel + struct.pack("<H", ports[0]), write_s)
        if dialled is None:
            await _send(socket, b"\1" + _refused(pod, ports[0]), write_s)
        else:
            await _carried(socket, *dialled, write_s)
    finally:
        await _hang_up(dialled)
    if not socket.closed:
        await socket.close(code=WSCloseCode.OK)
    return socket


async def _hang_up(dialled: Dialled | None) -> None:
    """End a connection at once: what was not sent yet has nobody to go to."""
    if dialled is not None:
        dialled[1].transport.abort()
        with contextlib.suppress(OSError):
            await dialled[1].wait_closed()


async def _carried(
    socket: web.WebSocketResponse, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, write_s: float
) -> None:
    async def down() -> None:
        while data := await reader.read(PIECE_BYTES):
            await _send(socket, b"\0" + data, write_s)

    async def up() -> None:
        while (message := await socket.receive()).type is WSMsgType.BINARY:
            if message.data[:1] == b"\0":
                writer.write(message.data[1:])
                await writer.drain()

    sides = [asyncio.ensure_future(each()) for each in (down, up)]
    try:
        done, _ = await asyncio.wait(sides, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for side in sides:
            side.cancel()
        await asyncio.gather(*sides, return_exceptions=True)
    for side in done:
        error = None if side.cancelled() else side.exception()
        if error is not None and not isinstance(error, ConnectionError):  # either side may go as it likes
            raise error


async def _send(socket: web.WebSocketResponse, data: bytes, write_s: float) -> None:
    try:
        async with asyncio.timeout(write_s):
            await socket.send_bytes(data)
    except TimeoutError as slow:
        raise ConnectionResetError(f"the caller took nothing for {write_s:g} s") from slow


class _Channels:
    """One connection to each port, by channels."""

    def __init__(self, pod: Pod, ports: tuple[int, ...], connect: Connect) -> None:
        self._pod = pod
        self._ports = ports
        self._talks = [connect(port) for port in ports]
        self.over = False

    def greet(self) -> list[bytes]:
        """Return the first messages: the port on each channel, and why it cannot be reached."""
        said: list[bytes] = []
        for index, port in enumerate(self._ports):
            head = struct.pack("<H", port)
            said += [bytes((2 * index,)) + head, bytes((2 * index + 1,)) + head]
            if self._talks[index] is None:
                said.append(bytes((2 * index + 1,)) + _refused(self._pod, port))
        self._settle()
        return said

    def receive(self, data: bytes) -> list[bytes]:
        """Take a message in, and give the answers."""
        index, rest = divmod(data[0], 2) if data else (len(self._talks), 0)
        talk = self._talks[index] if index < len(self._talks) and not rest else None
        answer = talk.receive(data[1:]) if talk is not None and not talk.over else b""
        self._settle()
        return [data[:1] + answer] if answer else []

    def _settle(self) -> None:
        self.over = all(talk is None or talk.over for talk in self._talks)


class _Tunnel:
    """Any number of connections, as streams of SPDY."""

    def __init__(self, pod: Pod, connect: Connect) -> None:
        self._pod = pod
        self._connect = connect
        self._spdy = Spdy()
        self._errors: dict[str, int] = {}
        """Streams for reasons, by the number of their connection."""
        self._numbers: dict[int, str] = {}
        """Numbers of the connections of streams for data."""
        self._talks: dict[int, Conversation] = {}
        self.over = False

    def greet(self) -> list[bytes]:
        """Say nothing: the caller begins."""
        return []

    def receive(self, data: bytes) -> list[bytes]:
        """Take bytes in, and give the answers."""
        answers: list[bytes] = []
        try:
            answers.extend(map(self._hear, self._spdy.receive(data)))
        except SpdyBroken:
            self.over = True
        whole = b"".join(answers)
        return [whole] if whole else []

    def _hear(self, news: News) -> bytes:
        match news:
            case Opened():
                return self._opened(news.stream, {name.lower(): value for name, value in news.headers.items()})
            case Came(stream=stream, data=data, ended=ended):
                return self._came(stream, data, ended=ended)
            case Reset(stream=stream):
                self._end(stream)
                return b""
            case Pinged(number=number):
                return self._spdy.pong(number)

    def _opened(self, stream: int, headers: Mapping[str, str]) -> bytes:
        spdy, number, port = self._spdy, headers.get(NUMBER, ""), _port(headers.get(PORT, ""))
        if not port or headers.get(TYPE) not in ("data", "error"):
            return spdy.reset(stream, PROTOCOL_ERROR)
        if len(self._errors) + len(self._numbers) >= STREAMS_LIMIT:
            return spdy.reset(stream, REFUSED_STREAM)
        if headers[TYPE] == "error":
            self._errors[number] = stream
            return spdy.reply(stream)
        if number not in self._errors:
            return spdy.reset(stream, PROTOCOL_ERROR)
        talk = self._connect(port)
        self._numbers[stream] = number
        if talk is None:
            error = self._errors.pop(number)
            del self._numbers[stream]
            told = spdy.data(error, _refused(self._pod, port), end=True)
            return spdy.reply(stream) + told + spdy.data(stream, b"", end=True)
        self._talks[stream] = talk
        return spdy.reply(stream)

    def _came(self, stream: int, data: bytes, *, ended: bool) -> bytes:
        talk = self._talks.get(stream)
        if talk is None:
            return b""
        answer = self._spdy.data(stream, talk.receive(data))
        if not ended and not talk.over:
            return answer
        error = self._end(stream)
        last = self._spdy.data(error, b"", end=True) if error is not None else b""
        return answer + self._spdy.data(stream, b"", end=True) + last

    def _end(self, stream: int) -> int | None:
        """Forget a stream's connection, and give the stream on which its error would have been told."""
        self._talks.pop(stream, None)
        return self._errors.pop(self._numbers.pop(stream, ""), None)
