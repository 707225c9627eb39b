"""Ports of a pod: one connection to one of them, as a stream of bytes; and a port of this machine that leads there.

Theory of operation. One websocket is one connection: two channels, one for the data and one for the reason why there
is none; the first message of each repeats the port. Version 4 of the protocol knows no half-closed connections: where
one side has ended, the kubelet ends the other. *A reader may be slow*: then the other end is not read either.

A listening port of this machine opens such a connection for each that it accepts, up to :data:`CONNECTIONS`; whatever
cannot be opened is closed at once and its reason told by :attr:`Listening.last_error` and the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import anyio
import anyio.abc
import attrs

from iriscw._errors import OperationError
from iriscw.cloud.drivers.kube.api import KubernetesApi
from iriscw.cloud.drivers.kube.calls import Caller
from iriscw.cloud.drivers.kube.places import BEGIN_S, PodPlace
from iriscw.cloud.drivers.kube.streams import V4, Channels
from iriscw.cloud.kube.messages import ApiRequest, ApiResponse, ApiUnreachable
from iriscw.cloud.model import CloudError, InvalidSpec, Unavailable

_log = logging.getLogger(__name__)

RIGHTS = "get and create on pods/portforward, and get on pods"

DATA, ERROR = 0, 1
"""Channels of the first port of a connection."""

PORT_BYTES = 2
"""How each channel begins: with the port."""

CONNECTIONS = 64
"""That one listening port carries at the same time; a web browser opens six to one server."""

LINGER_S = 5.0
"""Seconds without a word from the other side, after the client's last one, that end a connection."""

PIECE_BYTES = 2**16

LOOPBACK = "127.0.0.1"


class PortUnreachable(Unavailable):
    """Nothing listens on the pod's port, or its node could not connect to it."""


class PortStream(anyio.abc.ByteStream):
    """One connection to a port of a pod. Made by :func:`port_forward`.

    Args:
        channels: The way there.
        port: The pod's port.
    """

    def __init__(self, channels: Channels, port: int) -> None:
        self._channels = channels
        self._port = port
        self._began = {DATA: 0, ERROR: 0}
        """How much of its beginning each channel has brought."""
        self._rest = b""
        self._over = False

    async def receive(self, max_bytes: int = PIECE_BYTES) -> bytes:
        """Return what has come, or wait for it.

        Raises:
            anyio.EndOfStream: the other side has ended the connection.
            PortUnreachable: it could not be made.
            Unavailable: it broke.
        """
        while not self._rest:
            message = None if self._over else await self._message()
            if message is None:
                self._over = True
                raise anyio.EndOfStream
            channel, data = message
            if channel not in self._began:
                continue
            begin = min(len(data), PORT_BYTES - self._began[channel])
            self._began[channel] += begin
            data = data[begin:]
            if channel == ERROR and data:
                self._over = True
                raise PortUnreachable(f"the port {self._port} of the pod: {data.decode(errors='replace')}")
            self._rest = data if channel == DATA else b""
        data, self._rest = self._rest[:max_bytes], self._rest[max_bytes:]
        return data

    async def _message(self) -> tuple[int, bytes] | None:
        try:
            return await self._channels.receive()
        except ApiUnreachable as broken:
            raise Unavailable(f"the connection to the port {self._port} broke: {broken}") from None

    async def send(self, item: bytes) -> None:
        """Send, and return when the system has taken it.

        Raises:
            Unavailable: the connection is over.
        """
        try:
            await self._channels.send(DATA, item)
        except ApiUnreachable as broken:
            raise Unavailable(f"the connection to the port {self._port} broke: {broken}") from None

    async def send_eof(self) -> None:
        """Say nothing more. The protocol has no word for it: the other side learns of it when all is closed."""

    async def aclose(self) -> None:
        """End the connection."""
        self._over = True
        await self._channels.close()


@asynccontextmanager
async def port_forward(api: KubernetesApi, caller: Caller, pod: str, uid: str, port: int) -> AsyncIterator[PortStream]:
    """Connect to a port of a pod. Leaving the block ends the connection.

    Args:
        api: The API server.
        caller: The rate of requests, and calls.
        pod: The pod's name.
        uid: Its uid.
        port: On the pod's own loopback.

    Raises:
        Gone: the pod does not exist any more, or has ended.
        InvalidSpec: there is no such port.
        Forbidden: the credentials do not allow it.
        Unavailable: the connection could not be made.
    """
    if not 0 < port < 2**16:
        raise InvalidSpec(f"the port {port} does not exist")
    place = PodPlace(caller, pod, uid)
    request = ApiRequest("GET", f"{place.path}/portforward", (("ports", str(port)),))

    async def opened(stack: AsyncExitStack) -> Channels:
        await caller.turn()
        answer = await stack.enter_async_context(api.channels(request, (V4,)))
        if isinstance(answer, ApiResponse):
            await place.refused(answer, RIGHTS)
        await place.check()
        return answer

    async with AsyncExitStack() as stack:
        yield PortStream(await place.reached(stack, opened, BEGIN_S), port)


@attrs.define
class Listening:
    """A port of this machine that leads elsewhere.

    Attributes:
        port: On loopback.
        connections: Open now.
        accepted: Since the beginning.
        last_error: Why the last connection that failed did.
    """

    port: int
    connections: int = 0
    accepted: int = 0
    last_error: OperationError | None = None


@asynccontextmanager
async def listening(
    connect: Callable[[], AbstractAsyncContextManager[PortStream]], port: int = 0
) -> AsyncIterator[Listening]:
    """Lead a loopback port elsewhere, for the length of the block.

    Args:
        connect: Opens the other side of one connection. It may look for another pod each time; an OperationError says
            why there is none.
        port: The port of this machine; 0 takes a free one.

    Raises:
        OSError: the port is taken.
    """
    async with await anyio.create_tcp_listener(local_host=LOOPBACK, local_port=port) as listener:
        here = Listening(listener.extra_attributes[anyio.abc.SocketAttribute.local_port]())

        async def carry(client: anyio.abc.SocketStream) -> None:
            here.accepted += 1
            async with client:
                if here.connections >= CONNECTIONS:
                    here.last_error = Unavailable(f"{CONNECTIONS} connections are open at the same time already")
                    return
                here.connections += 1
                try:
                    async with connect() as there:
                        await _splice(client, there)
                except OperationError as error:
                    here.last_error = error
                    _log.warning("a connection to the port %d failed: %s", here.port, error)
                finally:
                    here.connections -= 1

        serving = asyncio.get_running_loop().create_task(listener.serve(carry))
        try:
            yield here
        finally:
            serving.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait((serving,))  # each connection's goodbye is bounded


async def _splice(client: anyio.abc.ByteStream, there: PortStream) -> None:
    """Copy both ways until the other side has ended, or the client is gone.

    Raises:
        PortUnreachable: the other side could not be reached.
        Unavailable: the way there broke.
    """
    failure: CloudError | None = None
    came = 0
    async with anyio.create_task_group() as tasks:

        async def up() -> None:
            try:
                async for data in client:
                    await there.send(data)
                before = -1
                while before != came:  # the other side cannot be told, so it is given the time to finish what it says
                    before = came
                    await anyio.sleep(LINGER_S)
            except Unavailable:
                return  # reading knows more
            except anyio.BrokenResourceError:
                pass  # the client is gone
            tasks.cancel_scope.cancel()

        tasks.start_soon(up)
        try:
            async for data in there:
                came += 1
                await client.send(data)
        except anyio.BrokenResourceError:
            pass  # the client is gone
        except CloudError as error:
            failure = error  # outside of the group, which would wrap it
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
