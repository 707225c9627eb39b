"""What a request sends: hashed once and beside the event loop, and sent without being copied."""

from __future__ import annotations

import hashlib
import io

import anyio.to_thread

from iriscw.objects.ports import Data

HASHED_AT_ONCE_BYTES = 1 << 18
"""A longer body is hashed in a thread: this much takes half a millisecond."""

SLICE_BYTES = 1 << 18
"""Of a body, written to the connection in one step of the loop."""


class HashedBody(io.BytesIO):
    """Bytes that are read in slices, with the digest that the signature of their request needs.

    Bytes of this length would otherwise be written to the connection in one step of the loop. It is a ``BytesIO``
    because the client reads one on the loop, and other files in threads; what is read are views of the bytes.
    """

    def __init__(self, data: Data) -> None:
        super().__init__()
        self._view = memoryview(data)
        self._at = 0
        self.sha256 = hashlib.sha256(data).hexdigest()

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next slice, whatever is asked for: the client asks for less, and every slice is a system call."""
        found = self._view[self._at : self._at + SLICE_BYTES]
        self._at += len(found)
        return found  # type: ignore[return-value]  # a view, which a connection takes as it takes bytes

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to another place."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._view)}[whence]
        self._at = min(max(0, base + offset), len(self._view))
        return self._at

    def tell(self) -> int:
        """Return where the next slice begins."""
        return self._at

    def getbuffer(self) -> memoryview:
        """Return the bytes as they are: aiohttp asks how many they are, and BytesIO would copy all of them for that."""
        return self._view[:]


async def sent(body: Data) -> bytes | HashedBody:
    """Return what to give the client for a body."""
    return bytes(body) if len(body) <= HASHED_AT_ONCE_BYTES else await anyio.to_thread.run_sync(HashedBody, body)
