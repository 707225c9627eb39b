"""The bounds under grpclib: frames, messages, interrupted reads."""

import asyncio
from typing import Any

import anyio
import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from grpclib.protocol import Buffer
from h2.exceptions import FrameTooLargeError
from hypothesis import given, strategies as st
from rpc_echo import EchoRequest

from iriscw.errors import InvalidArgument
from iriscw.rpc.errors import MalformedMessage, MessageTooLarge
from iriscw.rpc.limits import RpcLimits
from iriscw.rpc.rules import Bounds
from iriscw.rpc.transport import BoundedCodec, BoundedStream, StrictFrames


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
    """Its own bounds come before those of all messages; a field that is no field of the type is named at once."""
    message = EchoRequest(text="x" * 100, count=1)
    data = bytes(message)
    with pytest.raises(MessageTooLarge, match="more than 1 parts"):
        BoundedCodec(RpcLimits(max_message_parts=1)).decode(data, EchoRequest)
    with pytest.raises(MessageTooLarge, match="more than 1 parts"):
        BoundedCodec(RpcLimits(), Bounds(max_parts=1), EchoRequest).decode(data, EchoRequest)
    with pytest.raises(MessageTooLarge, match=r"EchoRequest.text of 100 bytes"):
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
