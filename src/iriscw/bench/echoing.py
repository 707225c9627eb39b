"""What a heartbeat costs at least: the same bytes, on the same loop, answered by less than a controller.

Most of what a heartbeat costs is not the controller's: the kernel takes a message and sends another one, and asyncio
wakes up for it. How much that is differs from machine to machine, so it is measured beside the heartbeats.

* *asyncio*: sends back what came. No server on this loop does it for less.
* *grpclib*: a stream of its own server whose method answers each message with the same acknowledgement.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from grpclib.const import Cardinality, Handler
from grpclib.server import Server, Stream

from iriscw.proto.iriscw import v1

ECHOES = 1_000
"""Connections, at most: as many again as there are workers would be more than most systems allow for."""

ROUTE = "/iriscw.bench.Echo/Beat"
HOST = "127.0.0.1"


class Echo(asyncio.Protocol):
    """Sends back what comes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Send it back."""
        self._transport.write(data)


class _Service:
    """Acknowledges heartbeats, as grpclib has it done."""

    async def beat(self, stream: Stream[v1.WorkerMessage, v1.ControllerMessage]) -> None:
        async for message in stream:
            assert message.heartbeat is not None
            ack = v1.HeartbeatAck(sequence=message.heartbeat.sequence)
            await stream.send_message(v1.ControllerMessage(heartbeat_ack=ack))

    def __mapping__(self) -> dict[str, Handler]:
        return {ROUTE: Handler(self.beat, Cardinality.STREAM_STREAM, v1.WorkerMessage, v1.ControllerMessage)}


@asynccontextmanager
async def echoing() -> AsyncIterator[int]:
    """Have asyncio echo; give the port."""
    server = await asyncio.get_running_loop().create_server(Echo, HOST, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@asynccontextmanager
async def acknowledging() -> AsyncIterator[int]:
    """Have grpclib acknowledge heartbeats; give the port."""
    server = Server([_Service()])
    await server.start(HOST, 0)
    listening = cast("asyncio.Server", server._server)  # it says nowhere else which port it has
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()
