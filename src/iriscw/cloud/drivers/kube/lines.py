r"""Lines out of a stream that is cut anywhere: in the middle of a line, of a character, of nothing at all.

A line ends with ``\n``. What has not ended is kept as the pieces it came in, and put together once; so a long line
costs its length, however finely it drips in.
"""

from __future__ import annotations

from collections.abc import Iterator


class LineTooLong(Exception):
    """A line is longer than anybody should hold. It never leaves this folder."""


class Lines:
    """Cuts a stream into lines.

    Args:
        limit_bytes: The longest line, its end not counted.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._pieces: list[bytes] = []
        self._held = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of the line that has begun and not ended."""
        return self._held

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Take in what came, and give each line that ended with it, without its end. Empty lines are left out.

        Raises:
            LineTooLong: one is longer than the limit, ended or not.
        """
        begin = 0
        while (end := chunk.find(b"\n", begin)) >= 0:
            self._hold(chunk[begin:end])
            line = b"".join(self._pieces)
            self._pieces, self._held = [], 0
            begin = end + 1
            if line and not line.isspace():
                yield line
        self._hold(chunk[begin:])

    def _hold(self, piece: bytes) -> None:
        self._held += len(piece)
        if self._held > self._limit:
            raise LineTooLong(f"a line is longer than {self._limit} bytes")
        if piece:
            self._pieces.append(piece)
