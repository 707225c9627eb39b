"""Lines with offsets: none lost, none doubled, in bounded memory."""

import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from hypothesis import given, strategies as st

from iriscw.worker.inotify import FileWatch
from iriscw.worker.logs import MAX_LINE_BYTES, LineSplitter, LogPiece, follow
from raised import that


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@given(st.lists(st.binary(max_size=50)), st.integers(0, 1000))
def test_lines_join_to_what_was_written(pieces: list[bytes], offset: int) -> None:
    """However the bytes arrive: same lines, and offsets without gap or overlap."""
    splitter = LineSplitter(offset)
    lines = [line for piece in pieces for line in splitter.feed(piece)] + splitter.finish()
    whole = b"".join(pieces)
    assert [line.data for line in lines] == (whole.removesuffix(b"\n").split(b"\n") if whole else [])
    position = offset
    for line in lines:
        assert line.start == position
        assert whole[line.start - offset : line.end - offset].rstrip(b"\n") == line.data.rstrip(b"\n")
        position = line.end
    assert position == offset + len(whole) == splitter.offset


@pytest.mark.parametrize("extra", [-1, 0, 1, MAX_LINE_BYTES, 3 * MAX_LINE_BYTES + 5])
def test_a_long_line_comes_in_pieces(extra: int) -> None:
    """All but the last are marked; the pieces join to the line, and none is longer than the bound."""
    line = b"x" * (MAX_LINE_BYTES + extra)
    splitter = LineSplitter()
    pieces: list[LogPiece] = []
    for start in range(0, len(line) + 1, 10_000):
        pieces += splitter.feed((line + b"\n")[start : start + 10_000])
        assert splitter.offset - (pieces[-1].end if pieces else 0) <= MAX_LINE_BYTES + 10_000
    pieces += splitter.feed(b"next\n")
    assert pieces.pop().data == b"next"
    assert b"".join(piece.data for piece in pieces) == line
    assert [piece.more for piece in pieces] == [True] * (len(pieces) - 1) + [False]
    assert max(len(piece.data) for piece in pieces) <= MAX_LINE_BYTES


@pytest.fixture
async def watch() -> AsyncIterator[FileWatch]:
    watch = FileWatch()
    async with anyio.create_task_group() as group:
        group.start_soon(watch.serve)
        yield watch
        group.cancel_scope.cancel()
    watch.close()
    watch.close()


async def test_lines_come_as_they_are_written(watch: FileWatch, tmp_path: Path) -> None:
    """A reader that waits is woken by the writer, and ends after the last line without a newline."""
    path = tmp_path / "log"
    append(path, b"one\n")
    ended = anyio.Event()
    lines = follow(path, watch, ended)
    with anyio.fail_after(20):
        assert [line.data for line in await anext(lines)] == [b"one"]
        async with anyio.create_task_group() as group:

            async def write() -> None:
                await anyio.sleep(0.05)
                append(path, b"two\nthr")
                await anyio.sleep(0.05)
                append(path, b"ee")
                ended.set()

            group.start_soon(write)
            assert [line.data for line in await anext(lines)] == [b"two"]
            assert await anext(lines) == [LogPiece(8, 13, b"three")]
            with pytest.raises(StopAsyncIteration):
                await anext(lines)
    assert watch._events == {}


async def test_reading_goes_on_at_an_offset(watch: FileWatch, tmp_path: Path) -> None:
    """After a restart nothing is repeated."""
    path = tmp_path / "log"
    append(path, b"one\ntwo\n")
    ended = anyio.Event()
    ended.set()
    found = [line async for lines in follow(path, watch, ended, 4) for line in lines]
    assert found == [LogPiece(4, 8, b"two")]


async def test_a_truncated_log_begins_again(watch: FileWatch, tmp_path: Path) -> None:
    """The program may do that to its own output."""
    path = tmp_path / "log"
    append(path, b"a long first line\n")
    ended = anyio.Event()
    lines = follow(path, watch, ended)
    assert (await anext(lines))[0].end == 18
    os.truncate(path, 0)
    append(path, b"new\n")
    with anyio.fail_after(20):
        assert await anext(lines) == [LogPiece(0, 4, b"new")]
    await lines.aclose()


async def test_many_files_one_descriptor(watch: FileWatch, tmp_path: Path) -> None:
    """Each reader is woken by its own file; two may read the same one."""
    paths = [tmp_path / str(number) for number in range(5)]
    got: list[bytes] = []

    async def read(path: Path, ended: anyio.Event) -> None:
        got.extend([line.data async for lines in follow(path, watch, ended) for line in lines])

    ended = anyio.Event()
    for path in paths:
        append(path, b"")
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            for path in [*paths, paths[0]]:
                group.start_soon(read, path, ended)
            await anyio.sleep(0.05)
            for path in paths:
                append(path, path.name.encode() + b"\n")
            ended.set()
    assert sorted(got) == [b"0", b"0", b"1", b"2", b"3", b"4"]


async def test_a_link_is_not_followed(watch: FileWatch, tmp_path: Path) -> None:
    """A program may not make its worker read other files out to the user."""
    path = tmp_path / "log"
    path.symlink_to("/etc/passwd")
    with pytest.raises(OSError, check=that(errno=errno.ELOOP)):
        await anext(follow(path, watch, anyio.Event()))


async def test_waiting_costs_nothing(watch: FileWatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader without news sleeps: it reads once per growth, and does not spin."""
    path = tmp_path / "log"
    append(path, b"one\n")
    reads = []
    original = os.pread
    monkeypatch.setattr(os, "pread", lambda *args: (reads.append(1), original(*args))[1])
    lines = follow(path, watch, anyio.Event())
    await anext(lines)
    append(path, b"two\n")
    await anext(lines)
    with pytest.raises(TimeoutError), anyio.fail_after(0.2):
        await anext(lines)
    assert len(reads) <= 6
    await lines.aclose()
