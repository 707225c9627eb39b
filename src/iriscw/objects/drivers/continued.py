"""Reading one version of an object from a storage service, over as many connections as it takes.

A connection that breaks in the middle of a body is replaced by another one, which asks for the rest under the condition
that the object still is the same version. So a long object does not have to be read in one go, and what is read is
always of one version: if that is gone, reading breaks off.

What a server says about the body is checked: a range that begins elsewhere, and a body that ends early, are failures.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Protocol

import anyio

from iriscw.objects.ports import CHUNK_BYTES, ObjectInfo, StoreUnreachable

MOST_BREAKS = 5
"""Connections in a row that may break without a byte having come."""

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


class BodyRest(Protocol):
    """What is left of an answer's body."""

    async def read(self, size: int) -> bytes:
        """Return at most so many bytes; none at the end."""

    def close(self) -> object:
        """End the connection."""


class ContinuedReading:
    """An object that is being read; see ``ObjectReading``. Services' drivers say how the rest of one is asked for.

    Args:
        info: What is read.
        body: Of the answer to the first request; None: nothing is read.
        start: Where it begins.
        end: Behind the last byte that is wanted.
        silence_s: Without a byte, after which a connection counts as broken.
        troubles: What reading a body may raise when the world is at fault.
    """

    def __init__(
        self,
        info: ObjectInfo,
        body: BodyRest | None,
        start: int,
        end: int,
        *,
        silence_s: float,
        troubles: tuple[type[Exception], ...],
    ) -> None:
        self.info = info
        self._body = body
        self._position, self._end = start, end
        self._silence_s, self._troubles = silence_s, troubles

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Read the chunks.

        Raises:
            StoreUnreachable: see the port.
        """
        breaks = 0
        while self._position < self._end:
            if self._body is None:
                await self._resume()
            try:
                chunk = await self._next()
            except StoreUnreachable:
                self.close()
                breaks += 1
                if breaks >= MOST_BREAKS:
                    raise
                continue
            breaks = 0
            self._position += len(chunk)
            yield chunk
        self.close()

    def close(self) -> None:
        """End the connection: what is left of a body is not worth reading."""
        body, self._body = self._body, None
        if body is not None:
            body.close()

    async def _rest(self, start: int, end: int) -> tuple[BodyRest, tuple[ObjectInfo, int, int]]:
        """Ask for a range of the same version, and give the body with what the answer says that it is.

        Raises:
            StoreUnreachable: it cannot be had.
        """
        raise NotImplementedError

    async def _next(self) -> bytes:
        assert self._body is not None
        said = f"reading {self.info.key!r} broke off at byte {self._position}"
        wanted = min(CHUNK_BYTES, self._end - self._position)
        try:
            with anyio.fail_after(self._silence_s):
                chunk: bytes = await self._body.read(wanted)
        except self._troubles as error:
            raise StoreUnreachable(f"{said}: {type(error).__name__}: {error}") from error
        if not chunk:
            raise StoreUnreachable(said)
        return chunk

    async def _resume(self) -> None:
        self._body, found = await self._rest(self._position, self._end)
        if found != (self.info, self._position, self._end):
            raise StoreUnreachable(f"{self.info.key!r} is another object while it is read")


def span_of(key: str, etag: str, length: int, content_range: str | None) -> tuple[ObjectInfo, int, int]:
    """Return which version an answer to a GET is of, and from where to where it goes.

    Args:
        key: The object's.
        etag: The version's.
        length: Of the body, in bytes.
        content_range: HTTP's ``Content-Range``; None: the answer is the whole object.

    Raises:
        StoreUnreachable: the answer contradicts itself.
    """
    if content_range is None:
        return ObjectInfo(key, length, etag), 0, length
    found = _CONTENT_RANGE.fullmatch(content_range)
    if found is None:
        raise StoreUnreachable(f"{key!r}: the answer has the range {content_range!r}")
    begin, last, size_bytes = (int(each) for each in found.groups())
    if last + 1 - begin != length:
        raise StoreUnreachable(f"{key!r}: the answer has the range {content_range!r} and {length} bytes")
    return ObjectInfo(key, size_bytes, etag), begin, last + 1
