"""Read a log as it grows: lines with their offsets, in bounded memory.

A line is what ends with a newline. One that is longer than ``MAX_LINE_BYTES`` is delivered in pieces of that
size, all but the last marked ``more``: a line of 1 GiB is 16,384 pieces, and none of it is lost. The last
piece of a log may have no newline. Offsets are bytes from the beginning of the file: whoever has seen an
entry continues at its ``end``, after a restart as well.

A file that is shorter than what was read was truncated by the program; reading begins again at its beginning.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import anyio.to_thread
import attrs

from iriscw.worker.inotify import FileWatch, Growth

MAX_LINE_BYTES = 64 << 10
"""The longest piece of a line; a terminal shows 100, a JSON log line rarely has 10,000."""

READ_BYTES = 256 << 10
"""What is read at once; memory per log is this and one line."""


@attrs.frozen
class LogPiece:
    """A line, or a piece of a long one, without its newline."""

    start: int
    end: int
    """The offset behind it, newline included: where to go on."""
    data: bytes
    more: bool = False
    """The line goes on in the next piece."""


class LineSplitter:
    """Cut bytes into lines. Pure: feed it what was read, in order."""

    def __init__(self, offset: int = 0) -> None:
        """Begin at ``offset`` of the file."""
        self._start = offset
        self._rest = b""

    @property
    def offset(self) -> int:
        """How far it was fed."""
        return self._start + len(self._rest)

    def feed(self, data: bytes) -> list[LogPiece]:
        """Return the lines that ``data`` completes, and the pieces of one that grows too long."""
        self._rest += data
        lines: list[LogPiece] = []
        position = 0
        while True:
            newline = self._rest.find(b"\n", position, position + MAX_LINE_BYTES + 1)
            if newline >= 0:
                lines.append(self._line(position, newline, newline + 1, more=False))
                position = newline + 1
            elif len(self._rest) - position > MAX_LINE_BYTES:
                end = position + MAX_LINE_BYTES
                lines.append(self._line(position, end, end, more=True))
                position = end
            else:
                break
        self._start += position
        self._rest = self._rest[position:]
        return lines

    def finish(self) -> list[LogPiece]:
        """Return what is left without a newline: the program has ended."""
        if not self._rest:
            return []
        line = self._line(0, len(self._rest), len(self._rest), more=False)
        self._start += len(self._rest)
        self._rest = b""
        return [line]

    def _line(self, start: int, stop: int, end: int, *, more: bool) -> LogPiece:
        return LogPiece(self._start + start, self._start + end, self._rest[start:stop], more)


async def follow(
    path: Path, watch: FileWatch, ended: anyio.Event, offset: int = 0
) -> AsyncGenerator[list[LogPiece], None]:
    """Yield the lines of ``path`` from ``offset`` on, as they come, until ``ended`` is set and all was read.

    Set ``ended`` only when nothing writes to the file any more: then the last line is certain to come
    (INV-J8). The reader sets the pace; what it does not take waits in the file.

    Raises:
        OSError: the file is not there or cannot be watched.
    """
    descriptor = await anyio.to_thread.run_sync(os.open, path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        with watch.watching(path) as growth:
            splitter = LineSplitter(offset)
            while True:
                growth.rearm()
                last = ended.is_set()  # looked at before reading: what was written before it is read below
                data = await anyio.to_thread.run_sync(os.pread, descriptor, READ_BYTES, splitter.offset)
                if data:
                    lines = splitter.feed(data)
                    if lines:
                        yield lines
                elif os.fstat(descriptor).st_size < splitter.offset:
                    splitter = LineSplitter()
                elif last:
                    lines = splitter.finish()
                    if lines:
                        yield lines
                    return
                else:
                    await _first(growth, ended)
    finally:
        os.close(descriptor)


async def _first(growth: Growth, ended: anyio.Event) -> None:
    """Wait until the file grew or its writer ended."""
    async with anyio.create_task_group() as group:

        async def wait_for_end() -> None:
            await ended.wait()
            group.cancel_scope.cancel()

        group.start_soon(wait_for_end)
        await growth.wait()
        group.cancel_scope.cancel()
