"""What of one call has arrived and is not read."""

import sys

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, strategies as st

from iriscw.rpc.buffer import JOINED_BYTES, SMALL_BYTES, MessageBuffer, Pieces
from raised import that


@given(st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 9))), st.lists(st.integers(0, 60)), st.data())
def test_bytes_come_in_order(frames, sizes, data: st.DataObject) -> None:
    """However frames and reads are cut, and however often a read is given up; the window is given back to the byte."""
    sent = b"".join(content for content, _ in frames)
    windows: list[int] = []

    async def run() -> bytes:
        buffer = MessageBuffer(windows.append)
        got = b""
        waiting = list(frames)
        for size in sizes:
            if len(got) + size > len(sent):
                break
            result = None
            while result is None:
                with anyio.CancelScope() as scope:
                    if data.draw(st.booleans()):
                        scope.cancel()
                    elif waiting:
                        content, padding = waiting.pop(0)
                        buffer.add(content, len(content) + padding)
                        if buffer.held + buffer.unread < size:
                            scope.cancel()
                    result = await buffer.read(size)
            got += result
        assert buffer.held + buffer.unread + len(got) == sum(
            len(content) for content, _ in frames[: len(frames) - len(waiting)]
        )
        windows.append(buffer.unacked_size())
        windows.append(sum(len(content) + padding for content, padding in waiting))
        assert buffer.unread == 0
        return got

    got = anyio.run(run)
    assert sent.startswith(got)
    assert sum(windows) == sum(len(content) + padding for content, padding in frames)


async def test_the_end() -> None:
    """Before the first byte it is no error, within a message it is one; a reader that waits hears of it."""
    buffer = MessageBuffer(lambda _: None)
    assert await buffer.read(0) == b""
    buffer.add(b"abc", 3)
    assert await buffer.read(2) == b"ab"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_expect_the_end_within, buffer)
        await anyio.lowlevel.checkpoint()
        buffer.eof()
    buffer.drop()
    assert await buffer.read(5) == b""


async def _expect_the_end_within(buffer: MessageBuffer) -> None:
    with pytest.raises(AssertionError, check=that(comes_from="buffer.MessageBuffer.read")):
        await buffer.read(2)


async def test_small_frames_take_their_size() -> None:
    """A message in frames of one byte takes no more memory than in large ones, unread and taken."""
    buffer = MessageBuffer(lambda _: None)
    for _ in range(100_000):
        buffer.add(b"x", 1)
    assert buffer._unread.pieces <= 100_000 // JOINED_BYTES + 1
    assert sum(sys.getsizeof(data) for data in buffer._unread._pieces) < 2 * 100_000
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(buffer.read, 200_000)
        await anyio.lowlevel.checkpoint()
        for _ in range(50_000):  # as they come while a reader waits
            buffer.add(b"x", 1)
            if buffer.unread > 100:
                await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        assert buffer.held == 150_000
        assert buffer._held.pieces <= 150_000 // JOINED_BYTES + 2
        tasks.cancel_scope.cancel()
    assert await buffer.read(149_999) == b"x" * 149_999
    assert buffer.held == 1


@given(st.lists(st.one_of(st.integers(0, 3), st.integers(SMALL_BYTES - 2, 2 * JOINED_BYTES))), st.randoms())
def test_pieces_are_what_was_added(sizes, rng) -> None:
    """However large they are and however they are taken."""
    pieces, content = Pieces(), b""
    for size in sizes:
        data = rng.randbytes(size)
        content += data
        pieces.add(data)
        if rng.random() < 0.5:
            take = rng.randint(0, pieces.size)
            assert pieces.take(take) == content[:take]
            content = content[take:]
        assert pieces.size == len(content)
    if content:
        first = pieces.pop()
        assert content.startswith(bytes(first))
        assert pieces.size == len(content) - len(first)


async def test_a_read_ends_with_what_its_counter_raises() -> None:
    """Whoever counts may refuse; the bytes are here all the same until they are dropped."""

    def refuse(_: int) -> None:
        raise LookupError

    buffer = MessageBuffer(refuse)
    buffer.add(b"abc", 3)
    with pytest.raises(LookupError):
        await buffer.read(3)
    assert buffer.held == 3
    buffer.drop()
    assert buffer.held == 0
