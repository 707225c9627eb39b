"""What a request sends: hashed once and beside the event loop, and sent without being copied."""

from __future__ import annotations

import hashlib
import io

import anyio.to_thread

HASHED_AT_ONCE_BYTES = 1 << 18
"""A longer body is hashed in a thread: this much takes half a millisecond."""


class HashedBody(io.BytesIO):
    """Bytes that are read in pieces, with the digest that the signature of their request needs.

    Bytes of this length would otherwise be written to the connection in one step of the loop.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._data = data
        self.sha256 = hashlib.sha256(data).hexdigest()

    def getbuffer(self) -> memoryview:
        """Return the bytes as they are: aiohttp asks how many they are, and BytesIO would copy all of them for that."""
        return memoryview(self._data)


async def sent(body: bytes) -> bytes | HashedBody:
    """Return what to give the client for a body."""
    return body if len(body) <= HASHED_AT_ONCE_BYTES else await anyio.to_thread.run_sync(HashedBody, body)
