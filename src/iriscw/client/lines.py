"""Lines out of batches of bytes, and where each attempt's reader stands. Pure.

Batches of several attempts arrive mixed, lines are split over batches, and a stream that broke is opened again from the
cursors. So each attempt has its own rest of a line and its own offset. What arrives twice is left out; a gap (the
bounded store dropped what was there) ends the line before it, and is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from iriscw.client.model import LogLine
from iriscw.proto.iriscw.v1 import LogBatch, LogCursor

MAX_CURSORS = 2_000
"""Attempts of which a broken stream goes on where it was: what the controller takes in one request."""

LINE_LIMIT_BYTES = 64 << 10
"""A longer line is given in pieces, so that a reader's memory stays bounded: Kubernetes cuts at 16 KiB."""


@attrs.define
class _Reader:
    task_index: int
    attempt_number: int
    offset: int = 0
    rest: bytes = b""
    shown: bool = False
    """Whether the beginning of the line was given."""

    def line(self, data: bytes) -> LogLine:
        return LogLine(self.task_index, self.attempt_number, data.rstrip(b"\r").decode("utf-8", "replace"))

    def piece(self, data: bytes) -> LogLine:
        """Return a part of a line that goes on."""
        return LogLine(self.task_index, self.attempt_number, data.decode("utf-8", "replace"), ended=False)

    def whole_letters(self) -> int:
        """Return how much of the rest is letters that are there as a whole."""
        for back in range(1, min(4, len(self.rest)) + 1):
            first = self.rest[-back]
            if first >= 0xC0:  # begins a letter of two to four bytes
                length = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
                return len(self.rest) - (back if back < length else 0)
            if first < 0x80:
                break
        return len(self.rest)


@attrs.frozen
class Gap:
    """A part of an attempt's log that is no longer kept."""

    task_index: int
    attempt_number: int
    offset: int
    size_bytes: int

    def __str__(self) -> str:
        """Say it in one sentence."""
        size = f"{self.size_bytes} bytes of the log"
        which = f"the first {size}" if self.offset == 0 else f"{size}, from byte {self.offset} on,"
        return f"task {self.task_index}, attempt {self.attempt_number}: {which} are no longer kept"


class LineReader:
    """Puts lines together for any number of attempts.

    Args:
        missed: told of each gap, before the lines behind it are given.
        whole: attempts are read from their start; if not, what stands before the first batch is not missed.
    """

    def __init__(self, missed: Callable[[Gap], object] = lambda _: None, *, whole: bool = True) -> None:
        self._readers: dict[str, _Reader] = {}
        self._missed = missed
        self._whole = whole

    def cursors(self) -> list[LogCursor]:
        """Say where to go on, for the latest ``MAX_CURSORS`` attempts that were heard of.

        Of others all comes again, and what was taken before is left out.
        """
        latest = list(self._readers.items())[-MAX_CURSORS:]
        return [LogCursor(attempt_uid=uid, offset=reader.offset) for uid, reader in latest]

    def take(self, batch: LogBatch) -> Iterator[LogLine]:
        """Take a batch and give the lines that it completes."""
        reader = self._readers.get(batch.attempt_uid)
        if reader is None:
            begin = 0 if self._whole else batch.offset
            reader = self._readers[batch.attempt_uid] = _Reader(batch.task_index, batch.attempt_number, begin)
        if batch.offset > reader.offset:
            yield from self._rest(reader)
            size_bytes = batch.offset - reader.offset
            self._missed(Gap(reader.task_index, reader.attempt_number, reader.offset, size_bytes))
            reader.offset = batch.offset
        data = batch.data[reader.offset - batch.offset :]
        reader.offset += len(data)
        *whole, reader.rest = (reader.rest + data).split(b"\n")
        for line in whole:
            yield from _pieces(reader, line)
            reader.shown = False
        while len(reader.rest) >= LINE_LIMIT_BYTES:
            piece, reader.rest = reader.rest[:LINE_LIMIT_BYTES], reader.rest[LINE_LIMIT_BYTES:]
            reader.shown = True
            yield reader.piece(piece)
        if batch.at_end:
            yield from self._rest(reader)

    def finish(self) -> Iterator[LogLine]:
        """Yield the lines that never got their line feed."""
        for reader in self._readers.values():
            yield from self._rest(reader)

    @property
    def unfinished(self) -> bool:
        """Whether something has come that was not given: the beginning of a line."""
        return any(reader.whole_letters() for reader in self._readers.values())

    def so_far(self) -> Iterator[LogLine]:
        """Yield what has come of lines that go on."""
        for reader in self._readers.values():
            size_bytes = reader.whole_letters()
            if size_bytes:
                piece, reader.rest = reader.rest[:size_bytes], reader.rest[size_bytes:]
                reader.shown = True
                yield reader.piece(piece)

    def _rest(self, reader: _Reader) -> Iterator[LogLine]:
        if reader.rest or reader.shown:
            rest, reader.rest, reader.shown = reader.rest, b"", False
            yield reader.line(rest)


def _pieces(reader: _Reader, line: bytes) -> Iterator[LogLine]:
    last = max(len(line) - 1, 0) // LINE_LIMIT_BYTES * LINE_LIMIT_BYTES
    for start in range(0, last, LINE_LIMIT_BYTES):
        yield reader.piece(line[start : start + LINE_LIMIT_BYTES])
    yield reader.line(line[last:])
