"""The bounds under grpclib: frames, messages, interrupted reads."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from grpclib.protocol import Buffer
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, StreamEnded, StreamReset, WindowUpdated
from h2.exceptions import FrameTooLargeError
from h2.stream import StreamState
from h2.windows import WindowManager
from hypothesis import given, strategies as st
from rpc_echo import EchoReply, EchoRequest
from rpc_world import CHAT, UNARY, WORKER, EchoService, authenticate

from iriscw._errors import InvalidArgument
from iriscw.rpc.buffer import MessageBuffer
from iriscw.rpc.context import call_context
from iriscw.rpc.errors import MalformedMessage, MessageTooLarge
from iriscw.rpc.limits import RpcLimits
from iriscw.rpc.rules import Bounds
from iriscw.rpc.server import RpcServer
from iriscw.rpc.transport import AT_ONCE_BYTES, READ_BYTES, BoundedCodec, BoundedStream, StrictFrames
from raised import that
from waiting import until


def make_stream(limit: int = 1000) -> BoundedStream:
    """A stream without a connection, whose buffer the test feeds."""
    stream: Any = BoundedStream.__new__(BoundedStream)
    stream.buffer = Buffer(lambda size: None)
    stream.max_message_bytes = limit
    return stream  # type: ignore[no-any-return]


def frame(body: bytes, flag: int = 0) -> bytes:
    """One gRPC frame."""
    return bytes([flag]) + len(body).to_bytes(4, "big") + body


async def read_message(stream: BoundedStream) -> bytes | None:
    """Read as grpclib does: a head, then the body it announces."""
    head = await stream.recv_data(5)
    return await stream.recv_data(int.from_bytes(head[1:], "big")) if head else None


@given(st.lists(st.binary(max_size=12), max_size=8), st.data())
def test_interrupted_reads_lose_nothing(bodies: list[bytes], data: st.DataObject) -> None:
    """However the bytes are cut, and however often a read is given up, every message arrives whole and in order."""
    wire = b"".join(frame(body) for body in bodies)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=6)))
    pieces = [wire[a:b] for a, b in zip([0, *cuts], [*cuts, len(wire)], strict=True)]

    async def run() -> list[bytes]:
        stream, seen = make_stream(), []
        for piece in pieces:
            if piece:
                stream.buffer.add(piece, len(piece))
            while True:
                reading = asyncio.ensure_future(read_message(stream))
                for _ in range(4):
                    await asyncio.sleep(0)
                if not reading.done():
                    reading.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await reading
                    break
                seen.append(reading.result() or b"")
        return seen

    assert asyncio.run(run()) == bodies


async def test_large_message() -> None:
    """A message over the limit is refused by its head, before its body was read."""
    stream = make_stream(limit=10)
    stream.buffer.add(frame(b"x" * 11)[:5], 5)
    with pytest.raises(GRPCError) as caught:
        await read_message(stream)
    assert caught.value.status is Status.RESOURCE_EXHAUSTED


async def test_compressed_message() -> None:
    """A compressed message is refused by status."""
    stream = make_stream()
    stream.buffer.add(frame(b"x", flag=1), 6)
    with pytest.raises(GRPCError) as caught:
        await read_message(stream)
    assert caught.value.status is Status.UNIMPLEMENTED


@pytest.mark.parametrize("size", [1, 4, 5, 7])
async def test_cut_message(size: int) -> None:
    """A stream that ends inside a message is an error, never a shorter message."""
    stream = make_stream()
    stream.buffer.add(frame(b"abc")[:size], size)
    stream.buffer.eof()
    with anyio.fail_after(5), pytest.raises(GRPCError) as caught:
        await read_message(stream)
    assert caught.value.status is Status.INTERNAL


def test_codec() -> None:
    """Too large to send and impossible to read are named; what fits goes through."""
    codec = BoundedCodec(RpcLimits(max_message_bytes=10))
    assert codec.decode(codec.encode(EchoRequest(text="ab"), EchoRequest), EchoRequest).text == "ab"
    with pytest.raises(MessageTooLarge):
        codec.encode(EchoRequest(text="x" * 11), EchoRequest)
    for garbage in (b"\x0a\xff", b"\x0a\x02\xc3\x28", b"\x10"):  # cut, not UTF-8, cut
        with pytest.raises(MalformedMessage):
            codec.decode(garbage, EchoRequest)


def test_codec_bounds_what_is_received() -> None:
    """Its own bounds come before those of all messages; a field that is not a field of the type is named at once."""
    message = EchoRequest(text="x" * 100, count=1)
    data = bytes(message)
    with pytest.raises(MessageTooLarge, check=that(comes_from="anatomy._walk", names="1")):
        BoundedCodec(RpcLimits(max_message_parts=1)).decode(data, EchoRequest)
    with pytest.raises(MessageTooLarge, check=that(comes_from="anatomy._walk", names="1")):
        BoundedCodec(RpcLimits(), Bounds(max_parts=1), EchoRequest).decode(data, EchoRequest)
    with pytest.raises(MessageTooLarge, check=that(comes_from="anatomy._walk", names=("EchoRequest.text", "100"))):
        BoundedCodec(RpcLimits(), Bounds(field_bytes={"text": 99}), EchoRequest).decode(data, EchoRequest)
    assert (
        BoundedCodec(RpcLimits(), Bounds(field_bytes={"text": 100}), EchoRequest).decode(data, EchoRequest) == message
    )
    with pytest.raises(InvalidArgument):
        BoundedCodec(RpcLimits(), Bounds(field_bytes={"texts": 99}), EchoRequest)


def test_overlong_frame() -> None:
    """An HTTP/2 frame over the limit is refused by its first bytes."""
    frames = StrictFrames()
    frames.max_frame_size = 1 << 14
    frames.add_data(b"\xff\xff\xff\x00\x00\x00\x00\x00\x01")
    with pytest.raises(FrameTooLargeError):
        next(frames)


def test_frames_are_not_printed() -> None:
    """h2 prints each frame that it reads; the bytes of its body are not made into text for that."""
    frames = StrictFrames()
    frames.max_frame_size = 1 << 14
    frames.add_data(b"\x00\x00\x02\x00\x00\x00\x00\x00\x01hi")
    assert b"hi".hex() not in repr(next(frames))


def test_only_a_message_that_is_whole_and_alone_is_answered_at_once() -> None:
    """Whatever waits before it, on either way, has the message wait as well; nothing is asked of the answerer then."""
    asked: list[bytes] = []
    body = b"beat"

    def fresh(**changes: object) -> Any:
        stream: Any = make_stream()
        stream.id, stream.buffer = 1, MessageBuffer(lambda _: None)
        h2 = SimpleNamespace(
            streams={1: SimpleNamespace(outbound_flow_control_window=100, closed=False)},
            outbound_flow_control_window=100,
            acknowledge_received_data=lambda *_: None,
        )
        written: list[bytes] = []
        write_ready = asyncio.Event()
        write_ready.set()
        stream._h2_connection = h2
        stream._transport = SimpleNamespace(write=written.append)
        stream.connection = SimpleNamespace(write_ready=write_ready, flush=lambda: None)
        stream.at_once = lambda data: asked.append(data) or data.upper()
        stream.written = written
        for name, value in changes.items():
            setattr(stream, name, value)
        return stream

    stream = fresh()
    assert stream.answer(frame(body), 9)
    assert stream.written == [b"\0\0\x09" + b"\0\0" + b"\0\0\0\x01" + frame(b"BEAT")]
    assert stream._h2_connection.outbound_flow_control_window == 91
    assert stream._h2_connection.streams[1].outbound_flow_control_window == 91
    assert asked == [body]
    asked.clear()

    no_room, no_room_for_all, reset, forgotten, unread, held = (fresh() for _ in range(6))
    no_room._h2_connection.streams[1].outbound_flow_control_window = AT_ONCE_BYTES - 1
    no_room_for_all._h2_connection.outbound_flow_control_window = AT_ONCE_BYTES - 1
    reset._h2_connection.streams[1].closed = True
    del forgotten._h2_connection.streams[1]
    unread.buffer.add(b"x", 1)
    held.buffer._held.add(b"x")
    full = fresh()
    full.connection.write_ready.clear()
    waiting = [fresh(_sending=True), fresh(_head=frame(b"")), fresh(at_once=None), unread, held, full]
    waiting += [no_room, no_room_for_all, reset, forgotten]
    assert not any(each.answer(frame(body), 9) for each in waiting)
    for piece in (frame(body)[:-1], frame(body) * 2, frame(body)[:3], frame(body, 1), frame(b"x" * AT_ONCE_BYTES), b""):
        assert not fresh().answer(piece, len(piece))
    assert asked == []
    assert not fresh(at_once=lambda _: None).answer(frame(body), 9), "left to the method"


class AtOnceService(EchoService):
    """Answers what a stream says as it arrives, and counts that."""

    answered = 0

    async def chat(self, messages: AsyncIterator[EchoRequest]) -> AsyncIterator[EchoReply]:
        """Echo the first message; the others need no method."""
        async for message in messages:
            call_context().answer_at_once(self._answer)
            yield EchoReply(count=message.count)

    def _answer(self, data: bytes) -> bytes:
        self.answered += 1
        return data


class RawCaller:
    """A client of bytes: what it says together comes in one read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.h2 = H2Connection(H2Configuration(client_side=True))
        self.h2.initiate_connection()
        self.reader, self.writer = reader, writer
        self.events: list[Event] = []

    def call(self, stream: int, path: str, message: bytes) -> None:
        """Begin a call with its first message."""
        head = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "x", "te": "trailers"}
        head |= {"content-type": "application/grpc", "authorization": f"Bearer {WORKER.reveal()}"}
        self.h2.send_headers(stream, list(head.items()))
        self.h2.send_data(stream, message)

    async def until_seen(self, kind: type[Event], stream: int) -> None:
        """Say what is to be said, and read until something of this kind came."""
        self.writer.write(self.h2.data_to_send())
        while not any(isinstance(each, kind) and each.stream_id == stream for each in self.events):
            data = await self.reader.read(1 << 16)
            assert data, "the connection was cut"
            self.events.extend(self.h2.receive_data(data))
            self.writer.write(self.h2.data_to_send())
        self.events.clear()

    async def chat(self, message: bytes, times: int = 1) -> None:
        """Send a message of stream 1, and wait for its answer; so often."""
        for _ in range(times):
            self.h2.send_data(1, message)
            await self.until_seen(DataReceived, 1)


@asynccontextmanager
async def raw_caller(service: AtOnceService) -> AsyncIterator[tuple[RpcServer, RawCaller]]:
    """A door, and a caller whose stream 1 is answered at once from its second message on."""
    async with RpcServer([service], authenticate=authenticate) as server:
        await server.listen_tcp("127.0.0.1", 0)
        caller = RawCaller(*await asyncio.open_connection(server.address.host, server.address.port))
        try:
            with anyio.fail_after(30):
                caller.call(1, CHAT, frame(bytes(EchoRequest(count=2))))
                await caller.until_seen(DataReceived, 1)
                yield server, caller
        finally:
            caller.writer.close()


async def test_a_call_that_is_reset_with_its_last_message_takes_no_other_with_it() -> None:
    """A message, its call's reset and the next call in one read: the connection stays, and the next call is served."""
    service, message = AtOnceService(), frame(bytes(EchoRequest(count=2)))
    async with raw_caller(service) as (_, caller):
        await caller.chat(message)
        assert service.answered == 1
        caller.h2.send_data(1, message)
        caller.h2.reset_stream(1)
        caller.call(3, UNARY, message)
        caller.h2.end_stream(3)
        await caller.until_seen(StreamEnded, 3)
        assert service.answered == 1, "nobody reads an answer there"


def server_side(server: RpcServer) -> tuple[H2Connection, list[WindowManager]]:
    """Return what the server's h2 knows of its one connection, and the windows of that and of stream 1."""
    [protocol] = server._http2
    h2 = protocol.connection._connection
    return h2, [h2._inbound_flow_control_window_manager, h2.streams[1]._inbound_window_manager]


async def test_a_read_that_is_one_message_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is answered without h2, which counts the same bytes as if it had seen them."""
    service, message = AtOnceService(), frame(bytes(EchoRequest(count=2)))
    async with raw_caller(service) as (server, caller):
        h2, windows = server_side(server)
        room = [window.current_window_size for window in windows]
        parsed: list[bytes] = []
        monkeypatch.setattr(h2, "receive_data", parsed.append)
        await caller.chat(message, times=5)
        assert (service.answered, parsed) == (5, [])
        assert [before - window.current_window_size for before, window in zip(room, windows, strict=True)] == [
            5 * len(message)
        ] * 2
        assert [window._bytes_processed for window in windows] == [6 * len(message)] * 2


async def test_little_is_read_at_a_time() -> None:
    """A read of the size of asyncio's own costs as much as the rest of a small message."""
    async with raw_caller(AtOnceService()) as (server, _):
        [protocol] = server._http2
        assert protocol.connection._transport.max_size == READ_BYTES  # type: ignore[attr-defined]


async def test_h2_opens_the_window_and_ends_the_call() -> None:
    """What is more than a message with its answer is left to it: a window that is half used, a call's end."""
    service, message = AtOnceService(), frame(bytes(EchoRequest(count=2)))
    async with raw_caller(service) as (server, caller):
        _, windows = server_side(server)
        for window in windows:
            window._bytes_processed = window.max_window_size // 2 - len(message)
            window.current_window_size -= window._bytes_processed
        before = caller.h2.outbound_flow_control_window
        caller.h2.send_data(1, message)
        await caller.until_seen(WindowUpdated, 1)
        assert service.answered == 1
        assert [window._bytes_processed for window in windows] == [0, 0]
        assert caller.h2.outbound_flow_control_window > before
        caller.h2.send_data(1, message, end_stream=True)
        await caller.until_seen(StreamEnded, 1)


async def test_a_window_that_is_overrun_ends_the_connection() -> None:
    """However small the message is that does not fit; it is not answered."""
    service, message = AtOnceService(), frame(bytes(EchoRequest(count=2)))
    async with raw_caller(service) as (server, caller):
        _, windows = server_side(server)
        windows[0].current_window_size = len(message) - 1
        caller.h2.send_data(1, message)
        caller.writer.write(caller.h2.data_to_send())
        while await caller.reader.read(1 << 16):
            pass
        assert service.answered == 0


async def test_a_message_behind_the_end_of_its_call_is_refused() -> None:
    """It is not answered."""
    service, message = AtOnceService(), frame(bytes(EchoRequest(count=2)))
    async with raw_caller(service) as (server, caller):
        h2, _ = server_side(server)
        h2.streams[1].state_machine.state = StreamState.HALF_CLOSED_REMOTE
        caller.h2.send_data(1, message)
        await caller.until_seen(StreamReset, 1)
        assert service.answered == 0


async def test_a_part_of_a_message_is_not_taken_for_one() -> None:
    """The second half of a frame may look like a whole one; the message after it is answered as before."""
    service, message = AtOnceService(), frame(bytes(EchoRequest(count=2)))
    inner = len(message).to_bytes(3, "big") + b"\0\0" + (1).to_bytes(4, "big") + message
    async with raw_caller(service) as (server, caller):
        h2, _ = server_side(server)
        caller.h2.send_data(1, frame(bytes(EchoRequest(count=2, body=b"x" * AT_ONCE_BYTES + inner))))
        said = caller.h2.data_to_send()
        assert said.endswith(inner)
        caller.writer.write(said.removesuffix(inner))
        await until(lambda: h2.incoming_buffer._data)
        caller.writer.write(inner)
        await caller.until_seen(DataReceived, 1)
        assert service.answered == 0
        await caller.chat(message)
        assert service.answered == 1
