"""The budget for messages that are not whole yet: its arithmetic, and a door that keeps to it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import anyio
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from hypothesis import given, strategies as st
from rpc_echo import EchoReply, EchoRequest
from rpc_world import CHAT, UNARY, UPLOAD, WORKER, EchoService, authenticate

from iriscw.rpc.client import RpcChannel
from iriscw.rpc.errors import TooManyUnfinishedBytes
from iriscw.rpc.limits import RpcLimits
from iriscw.rpc.server import RpcServer
from iriscw.rpc.unfinished import UnfinishedPool
from raised import that
from waiting import until

MIB = 1 << 20
SMALL = RpcLimits(
    max_message_bytes=MIB,
    max_unfinished_bytes=2 * MIB,
    max_server_unfinished_bytes=8 * MIB,
    assured_unfinished_bytes=1000,
)


def test_what_one_connection_may_hold() -> None:
    """Up to its own limit, and again when it has given back; one message of the largest size is always allowed."""
    share = UnfinishedPool(SMALL).share()
    share.take(2 * MIB)
    with pytest.raises(
        TooManyUnfinishedBytes, check=that(comes_from="unfinished.Share.take", names=("2097153", "2097152"))
    ):
        share.take(1)
    share.give(1)
    share.give(MIB)
    share.take(MIB)
    narrow = UnfinishedPool(RpcLimits(max_message_bytes=MIB, max_unfinished_bytes=1)).share()
    narrow.take(MIB)
    with pytest.raises(TooManyUnfinishedBytes):
        narrow.take(1)


@pytest.mark.parametrize("connections", [1, 2, 5, 20])
def test_connections_share_what_there_is(connections: int) -> None:
    """However many hold as much as they may, each leaves as much as it has, and the next finds some."""
    limits = RpcLimits(max_unfinished_bytes=1 << 40, max_server_unfinished_bytes=1000 * MIB, assured_unfinished_bytes=1)
    pool = UnfinishedPool(limits)
    shares = [pool.share() for _ in range(connections)]
    hungry = dict.fromkeys(range(connections))
    while hungry:
        for number in list(hungry):
            try:
                shares[number].take(MIB)
            except TooManyUnfinishedBytes:
                shares[number].give(MIB)
                del hungry[number]
    each = 1000 // (connections + 1)
    assert all(abs(share.held // MIB - each) <= 1 for share in shares)
    pool.share().take((each - 1) * MIB // 2)
    assert pool.statistics().refused == connections


def test_the_assured_amount() -> None:
    """What workers and questions need is never refused, however much others hold."""
    pool = UnfinishedPool(SMALL)
    for _ in range(4):
        with contextlib.suppress(TooManyUnfinishedBytes):
            pool.share().take(2 * MIB)
    for _ in range(100):
        pool.share().take(1000)
    with pytest.raises(TooManyUnfinishedBytes, check=that(comes_from="unfinished.Share.take", names="0")):
        pool.share().take(1001)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3 * MIB), st.booleans())))
def test_accounts_are_exact(steps: list[tuple[int, int, bool]]) -> None:
    """The pool is the sum of its shares, and nothing is left when all has been given back."""
    pool = UnfinishedPool(SMALL)
    shares = [pool.share() for _ in range(4)]
    for number, size, give in steps:
        if give:
            shares[number].give(min(size, shares[number].held))
        else:
            with contextlib.suppress(TooManyUnfinishedBytes):
                shares[number].take(size)
        assert pool.held == sum(share.held for share in shares)
        assert pool.most_held >= pool.held
    for share in shares:
        share.give(share.held)
    assert pool.held == 0


# A door


@pytest.fixture
async def door(stack: AsyncExitStack, echo: EchoService) -> RpcServer:
    """A door with small limits."""
    server = await stack.enter_async_context(RpcServer([echo], authenticate=authenticate, limits=SMALL))
    await server.listen_tcp("127.0.0.1", 0)
    return server


class Peer:
    """A caller that sends frames as it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.h2 = H2Connection(H2Configuration(client_side=True))
        self.h2.initiate_connection()
        self.refused: list[dict[str, str]] = []

    async def open(self) -> int:
        """Begin an upload; give its number."""
        number = self.h2.get_next_available_stream_id()
        head = [(":method", "POST"), (":scheme", "http"), (":path", UPLOAD), (":authority", "x"), ("te", "trailers")]
        head += [("content-type", "application/grpc"), ("authorization", f"Bearer {WORKER.reveal()}")]
        self.h2.send_headers(number, head)
        await self.flush()
        return number

    async def send(self, number: int, data: bytes) -> None:
        """Send bytes of one call, as the windows allow."""
        while data:
            room = min(self.h2.local_flow_control_window(number), self.h2.max_outbound_frame_size, len(data))
            if room > 0:
                self.h2.send_data(number, data[:room])
                data = data[room:]
            await self.flush()

    async def flush(self) -> None:
        """Write, and take what has come."""
        self._writer.write(self.h2.data_to_send())
        await self._writer.drain()
        with anyio.move_on_after(0.001):
            self.take(await self._reader.read(1 << 16))
            self._writer.write(self.h2.data_to_send())

    def take(self, data: bytes) -> None:
        """Note how calls end."""
        for event in self.h2.receive_data(data):
            headers = dict(getattr(event, "headers", None) or ())
            if headers.get(b"grpc-status", b"0") != b"0":
                self.refused.append({name.decode(): value.decode() for name, value in headers.items()})


@pytest.fixture
async def peer(door: RpcServer) -> AsyncIterator[Peer]:
    """A connection to the door."""
    reader, writer = await asyncio.open_connection(door.address.host, door.address.port)
    yield Peer(reader, writer)
    writer.close()


def framed(size: int) -> bytes:
    """A message with so many bytes of content."""
    message = bytes(EchoRequest(body=bytes(size)))
    return b"\0" + len(message).to_bytes(4, "big") + message


async def test_many_messages_one_byte_short(door: RpcServer, peer: Peer) -> None:
    """Sixty messages that lack a byte each take no more than one connection's limit and a frame; those beyond are
    refused by name, the connection stays, and all is given back when it ends.
    """
    for _ in range(60):
        try:
            await peer.send(await peer.open(), framed(200_000)[:-1])
        except Exception:
            await peer.flush()
    with anyio.fail_after(10):
        while len(peer.refused) < 40:
            await peer.flush()
    figures = door.statistics().unfinished
    assert figures.most_held <= 2 * MIB + (16 << 10)
    assert figures.held > MIB
    assert figures.refused >= 40
    assert {(each["grpc-status"], each["iriscw-error"]) for each in peer.refused} == {("8", "TooManyUnfinishedBytes")}
    async with RpcChannel(door.address, WORKER) as other:
        assert (await other.unary(UNARY, EchoRequest(text="a", body=bytes(900_000)), EchoReply)).text == "a"
    peer._writer.close()
    await until(lambda: door.statistics().unfinished.held == 0)


@pytest.mark.parametrize("end", ["finish", "reset", "disconnect"])
async def test_bytes_are_given_back(door: RpcServer, peer: Peer, end: str) -> None:
    """When the message is whole, when its call is reset, when its connection ends: at once and exactly."""
    number = await peer.open()
    message = framed(500_000)
    await peer.send(number, message[:-1])
    await until(lambda: door.statistics().unfinished.held == len(message) - 5 - 1)
    if end == "finish":
        await peer.send(number, message[-1:] + message[:1000])
        await until(lambda: door.statistics().unfinished.held == 1000 - 5)
        peer.h2.end_stream(number)
        await peer.flush()
    elif end == "reset":
        peer.h2.reset_stream(number)
        await peer.flush()
    else:
        peer._writer.transport.abort()
    await until(lambda: door.statistics().unfinished.held == 0)
    await until(lambda: door.statistics().calls_in_flight == 0)


@pytest.mark.slow
async def test_heavy_callers_are_not_hurt(stack: AsyncExitStack, echo: EchoService) -> None:
    """An upload of 64 MiB in pieces, and 65 MiB of large messages at once that may be repeated, arrive whole under the
    limits as they are.
    """
    server = await stack.enter_async_context(RpcServer([echo], authenticate=authenticate))
    await server.listen_tcp("127.0.0.1", 0)
    piece = EchoRequest(body=bytes(256 << 10))
    async with RpcChannel(server.address, WORKER) as channel:
        reply = await channel.client_stream(UPLOAD, (piece for _ in range(256)), EchoRequest, EchoReply, timeout_s=60)
        assert reply.count == 64 * MIB
        assert server.statistics().unfinished.most_held < MIB
        async with anyio.create_task_group() as tasks:
            for _ in range(13):
                tasks.start_soon(submit, channel)
    assert server.statistics().unfinished.held == 0


async def submit(channel: RpcChannel) -> None:
    """One call with a message of 5 MiB."""
    request = EchoRequest(text="who", body=bytes(5 * MIB - 100))
    await channel.unary(UNARY, request, EchoReply, idempotency_key="k", timeout_s=60)


async def test_a_refused_call_is_repeated(door: RpcServer, echo: EchoService) -> None:
    """A caller that sends more at once than it may gets through by and by, if its calls may be repeated."""
    async with RpcChannel(door.address, WORKER, limits=SMALL) as channel:
        done: list[EchoReply] = []

        async def one() -> None:
            request = EchoRequest(text="who", body=bytes(MIB - 100))
            done.append(await channel.unary(UNARY, request, EchoReply, idempotency_key="k", timeout_s=30))

        async with anyio.create_task_group() as tasks:
            for _ in range(12):
                tasks.start_soon(one)
    assert len(done) == 12
    assert door.statistics().unfinished.held == 0


async def test_a_method_that_goes_on_reading_counts_nothing(door: RpcServer, echo: EchoService) -> None:
    """A call that is over holds nothing, whatever its method still does."""
    async with RpcChannel(door.address, WORKER, limits=SMALL) as channel:
        for _ in range(5):
            async with channel.bidi(CHAT, EchoRequest, EchoReply) as call:
                await call.send(EchoRequest(text="x" * 600_000))
        await channel.unary(UNARY, EchoRequest(text="a"), EchoReply)
    await until(lambda: door.statistics().unfinished.held == 0)
