"""Reading one version of an S3 object, over as many connections as it takes.

A connection that breaks in the middle of a body is replaced by another one, which asks for the rest under the condition
that the object still is the same version. So a long object does not have to be read in one go, and what is read is
always of one version: if that is gone, reading breaks off.

What a server says about the body is checked: a range that begins elsewhere, and a body that ends early, are failures.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import anyio

from iriscw.tiers.drivers.s3_connection import S3Connection
from iriscw.tiers.drivers.s3_failure import AttemptFailed
from iriscw.tiers.ports import CHUNK_BYTES, ObjectInfo, StoreUnreachable

MOST_BREAKS = 5
"""Connections in a row that may break without a byte having come."""

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


class S3Reading:
    """An object that is being read; see ``ObjectReading``.

    Args:
        connection: For the rest, when a body breaks off.
        name: The object's key in the bucket.
        info: What is read.
        answer: botocore's, to the first request; None: nothing is read.
        start: Where the answer begins.
        end: Behind the last byte that is wanted.
    """

    def __init__(
        self, connection: S3Connection, name: str, info: ObjectInfo, answer: dict[str, Any] | None, start: int, end: int
    ) -> None:
        self.info = info
        self._connection, self._name = connection, name
        self._body = answer["Body"] if answer is not None else None
        self._position, self._end = start, end

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

    async def _next(self) -> bytes:
        assert self._body is not None
        said = f"reading {self.info.key!r} broke off at byte {self._position}"
        wanted = min(CHUNK_BYTES, self._end - self._position)
        try:
            with anyio.fail_after(self._connection.limits.silence_s):
                chunk: bytes = await self._body.read(wanted)
        except self._connection.troubles as error:
            raise StoreUnreachable(f"{said}: {type(error).__name__}: {error}") from error
        if not chunk:
            raise StoreUnreachable(said)
        return chunk

    async def _resume(self) -> None:
        span = f"bytes={self._position}-{self._end - 1}"
        try:
            answer = await self._connection.ask(
                "get_object", {"Key": self._name, "Range": span, "IfMatch": f'"{self.info.etag}"'}
            )
        except AttemptFailed as failed:
            raise StoreUnreachable(f"the rest of {self.info.key!r} cannot be read: {failed}") from failed
        self._body = answer["Body"]
        info, begin, end = spans(self.info.key, answer)
        if (info, begin, end) != (self.info, self._position, self._end):
            raise StoreUnreachable(f"{self.info.key!r} is another object while it is read")


def spans(key: str, answer: dict[str, Any]) -> tuple[ObjectInfo, int, int]:
    """Give which version an answer to a GET is of, and from where to where it goes.

    Raises:
        StoreUnreachable: the answer contradicts itself.
    """
    length = int(answer["ContentLength"])
    etag = str(answer["ETag"]).strip('"')
    said = answer.get("ContentRange")
    if said is None:
        return ObjectInfo(key, length, etag), 0, length
    found = _CONTENT_RANGE.fullmatch(said)
    if found is None:
        raise StoreUnreachable(f"{key!r}: the answer has the range {said!r}")
    begin, last, size_bytes = (int(each) for each in found.groups())
    if last + 1 - begin != length:
        raise StoreUnreachable(f"{key!r}: the answer has the range {said!r} and {length} bytes")
    return ObjectInfo(key, size_bytes, etag), begin, last + 1
