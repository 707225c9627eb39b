"""How far whoever gives items may run ahead of who reads them."""

from __future__ import annotations

from collections import deque

import attrs

from iriscw.hosted.errors import CallRefused
from iriscw.hosted.model import STREAM_BYTES, STREAM_ITEMS


@attrs.define
class StreamWindow:
    """The items of one stream that were given and not taken yet: bounded by their number, and by their bytes."""

    _sizes: deque[int] = attrs.field(factory=deque)
    _bytes: int = 0

    @property
    def has_room(self) -> bool:
        """Whether one more item may be made. There is always room for one, however large."""
        return not self._sizes or (len(self._sizes) < STREAM_ITEMS and self._bytes < STREAM_BYTES)

    def gave(self, size_bytes: int) -> None:
        """Take note of an item that was given."""
        self._sizes.append(size_bytes)
        self._bytes += size_bytes

    def taken(self, count: int) -> None:
        """Take note of items that the reader has taken.

        Raises:
            CallRefused: so many were not given.
        """
        if count > len(self._sizes):
            raise CallRefused(f"{count} items were taken of a stream, and {len(self._sizes)} had been given")
        for _ in range(count):
            self._bytes -= self._sizes.popleft()
