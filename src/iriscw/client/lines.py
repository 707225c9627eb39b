"""Lines out of batches of bytes, and where each attempt's reader stands. Pure.

Batches of several attempts arrive mixed, lines are split over batches, and a stream that broke is opened again from the
cursors. So each attempt has its own rest of a line and its own offset. What arrives twice is left out; a gap (the
bounded store dropped what was there) ends the line before it.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from iriscw.client.model import LogLine
from iriscw.proto.iriscw.v1 import LogBatch, LogCursor

LINE_LIMIT_BYTES = 64 << 10
"""A longer line is given in pieces, so that a reader's memory stays bounded: Kubernetes cuts at 16 KiB."""


@attrs.define
class _Reader:
    task_index: int
    attempt_number: int
    offset: int = 0
    rest: bytes = b""

    def line(self, data: bytes) -> LogLine:
        return LogLine(self.task_index, self.attempt_number, data.rstrip(b"\r").decode("utf-8", "replace"))


class LineReader:
    """Puts lines together for any number of attempts."""

    def __init__(self) -> None:
        self._readers: dict[str, _Reader] = {}

    def cursors(self) -> list[LogCursor]:
        """Say where to go on, for every attempt that was heard of."""
        return [LogCursor(attempt_uid=uid, offset=reader.offset) for uid, reader in self._readers.items()]

    def take(self, batch: LogBatch) -> Iterator[LogLine]:
        """Take a batch and give the lines that it completes."""
        reader = self._readers.get(batch.attempt_uid)
        if reader is None:
            reader = self._readers[batch.attempt_uid] = _Reader(batch.task_index, batch.attempt_number, batch.offset)
        if batch.offset > reader.offset:
            yield from self._rest(reader)
            reader.offset = batch.offset
        data = batch.data[reader.offset - batch.offset :]
        reader.offset += len(data)
        *whole, reader.rest = (reader.rest + data).split(b"\n")
        for line in whole:
            yield from _pieces(reader, line)
        while len(reader.rest) >= LINE_LIMIT_BYTES:
            piece, reader.rest = reader.rest[:LINE_LIMIT_BYTES], reader.rest[LINE_LIMIT_BYTES:]
            yield reader.line(piece)
        if batch.at_end:
            yield from self._rest(reader)

    def finish(self) -> Iterator[LogLine]:
        """Give the lines that never got their line feed."""
        for reader in self._readers.values():
            yield from self._rest(reader)

    def _rest(self, reader: _Reader) -> Iterator[LogLine]:
        if reader.rest:
            rest, reader.rest = reader.rest, b""
            yield reader.line(rest)


def _pieces(reader: _Reader, line: bytes) -> Iterator[LogLine]:
    yield reader.line(line[:LINE_LIMIT_BYTES])
    for start in range(LINE_LIMIT_BYTES, len(line), LINE_LIMIT_BYTES):
        yield reader.line(line[start : start + LINE_LIMIT_BYTES])
