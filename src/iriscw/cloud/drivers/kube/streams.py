"""Streams of an API server: bytes that come until they end (logs), and websockets of channels (commands, ports).

Theory of operation. On the websockets of Kubernetes every message is binary and begins with the number of its channel;
version 5 adds a message that ends a channel (255 and its number). *A reader may be slow*: what has arrived and was not
read is bounded (what aiohttp reads ahead, 64 KiB, and one message); after that the server waits. *A connection can die
without anybody being told*: who waits to read asks the other side now and then (a ping), and takes silence for the end.
That counts only while somebody waits, for behind a slow reader's messages no answer can be seen.
"""

from __future__ import annotations

import aiohttp
import anyio

from iriscw.cloud.drivers.kube.faults import deadline, hang_up, network
from iriscw.cloud.kube.messages import ApiUnreachable

MESSAGE_BYTES = 2**20
"""Of one message. Kubelets send 32 KiB at a time."""

PIECE_BYTES = 2**15
"""Of one message that is sent; kubectl's own have as much."""

PING_S = 10.0
"""Seconds of waiting after which the other side is asked whether it is there. kubectl asks every 5 s."""

SILENT_PINGS = 3
"""Questions without an answer after which nobody is there."""

CLOSE_S = 2.0
"""Seconds that the other side has to answer a goodbye."""

CLOSE_CHANNEL = 255
"""Of version 5: the channel that ends the one whose number follows."""

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"


class Channels:
    """One websocket whose messages belong to channels. Made by :meth:`KubernetesApi.channels`.

    Args:
        socket: The websocket.
        counts: The figures that are kept of the connection to the server.
        write_s: How long a message may wait for the other side to take it.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse[bool], counts: dict[str, int], write_s: float) -> None:
        self._socket = socket
        self._counts = counts
        self._write_s = write_s
        self._sending = anyio.Lock()
        self._over = False

    def __repr__(self) -> str:
        return f"<Channels by {self.protocol}>"

    @property
    def protocol(self) -> str:
        """What was agreed on, empty if nothing was."""
        return self._socket.protocol or ""

    async def send(self, channel: int, data: bytes) -> None:
        """Send on a channel; returns when the system has taken it.

        Raises:
            ApiUnreachable: the connection is over, or the other side does not read.
        """
        async with self._sending:
            for begin in range(0, len(data), PIECE_BYTES):
                await self._send(bytes((channel,)) + data[begin : begin + PIECE_BYTES])

    async def end(self, channel: int) -> bool:
        """End a channel, so that its reader sees an end of input. Gives False if the protocol has no word for it.

        Raises:
            ApiUnreachable: the connection is over.
        """
        if self.protocol != V5:
            return False
        async with self._sending:
            await self._send(bytes((CLOSE_CHANNEL, channel)))
        return True

    async def _send(self, message: bytes) -> None:
        with network(self._counts), deadline(self._write_s, "somebody to take what is sent"):
            if self._socket.closed:
                raise ApiUnreachable("the connection is over")
            await self._socket.send_bytes(message)

    async def receive(self) -> tuple[int, bytes] | None:
        """Return the next message: its channel and what it says; None if the other side has ended the connection.

        Raises:
            ApiUnreachable: it broke, went silent, or brought what is not a message of channels.
        """
        unanswered = 0
        with network(self._counts):
            while True:
                message = None
                with anyio.move_on_after(PING_S):
                    message = await self._socket.receive()
                if message is None:
                    if unanswered >= SILENT_PINGS:
                        raise ApiUnreachable(
                            f"nothing came for {PING_S * (unanswered + 1):g} s, no answer to a ping either"
                        )
                    unanswered += 1
                    with deadline(self._write_s, "somebody to take a ping"):
                        await self._socket.ping()
                    continue
                unanswered = 0
                match message.type:
                    case aiohttp.WSMsgType.BINARY if message.data:
                        self._counts["received_bytes"] += len(message.data)
                        return message.data[0], message.data[1:]
                    case aiohttp.WSMsgType.PING:
                        await self._socket.pong(message.data)
                    case aiohttp.WSMsgType.CLOSE:
                        self._over = True
                        return None
                    case aiohttp.WSMsgType.CLOSING | aiohttp.WSMsgType.CLOSED:
                        if self._over:
                            return None
                        raise ApiUnreachable("the connection broke off")  # without a goodbye
                    case aiohttp.WSMsgType.ERROR | aiohttp.WSMsgType.TEXT:
                        raise ApiUnreachable("a stream brought something that is not a message of a channel")
                    case _:
                        pass  # a pong, or a message without a channel, which some servers begin with

    async def close(self) -> None:
        """Say goodbye, if the other side still listens, and close the connection; never waits long."""
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(CLOSE_S):
                await self._socket.close()
            self.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        hang_up(self._socket._response)  # public nowhere, and the only way to its transport


class AnswerBody:
    """The bytes of an answer as they come. Made by :meth:`KubernetesApi.body`."""

    def __init__(self, response: aiohttp.ClientResponse, counts: dict[str, int]) -> None:
        self._response = response
        self._counts = counts

    async def more(self) -> bytes:
        """Return what has come, or wait for it, for as long as it takes; empty at the end.

        Raises:
            ApiUnreachable: the connection broke.
        """
        with network(self._counts):
            chunk = await self._response.content.readany()
        self._counts["received_bytes"] += len(chunk)
        return chunk
