"""Reading one version of an object of Google's (:mod:`iriscw.objects.drivers.continued`): its generation tells it from
others, and where the bucket keeps old versions, even one that was replaced is read to its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from iriscw.objects.drivers.continued import ContinuedReading, span_of
from iriscw.objects.drivers.failure import AttemptFailed
from iriscw.objects.drivers.gs_connection import Ask, GsConnection
from iriscw.objects.ports import ObjectInfo, StoreUnreachable


@attrs.frozen
class GsBody:
    """What is left of the body of one of aiohttp's answers."""

    answer: Any

    async def read(self, size: int) -> bytes:
        """Return at most so many bytes; none at the end."""
        chunk: bytes = await self.answer.content.read(size)
        return chunk

    def close(self) -> None:
        """End the connection."""
        self.answer.close()


class GsReading(ContinuedReading):
    """An object that is being read; see ``ObjectReading``.

    Args:
        connection: For the rest, when a body breaks off.
        name: The object's key in the bucket.
        info: What is read.
        body: Of the first answer; None: nothing is read.
        start: Where it begins.
        end: Behind the last byte that is wanted.
    """

    def __init__(
        self, connection: GsConnection, name: str, info: ObjectInfo, body: GsBody | None, start: int, end: int
    ) -> None:
        limits = connection.limits
        super().__init__(info, body, start, end, silence_s=limits.silence_s, troubles=connection.troubles)
        self._connection, self._name = connection, name

    async def _rest(self, start: int, end: int) -> tuple[GsBody, tuple[ObjectInfo, int, int]]:
        query = {"alt": "media", "generation": self.info.etag}
        ask = Ask(
            "GET", self._connection.object_path(self._name), query, {"Range": f"bytes={start}-{end - 1}"}, reads=True
        )
        try:
            answer = await self._connection.open(ask)
        except AttemptFailed as failed:
            raise StoreUnreachable(f"the rest of {self.info.key!r} cannot be read: {failed}") from failed
        try:
            return GsBody(answer), spans(self.info.key, answer)
        except StoreUnreachable:
            answer.close()
            raise


def spans(key: str, answer: Any) -> tuple[ObjectInfo, int, int]:
    """Return which version an answer to a GET is of, and from where to where it goes.

    Raises:
        StoreUnreachable: the answer contradicts itself, or does not say what is needed.
    """
    generation, length = _version(key, answer.headers), answer.content_length
    return span_of(key, generation, length or 0, answer.headers.get("Content-Range"))


def _version(key: str, headers: Mapping[str, str]) -> str:
    """Return the generation of an object whose bytes come as they were written.

    Raises:
        StoreUnreachable: the answer does not say it; or the service unpacks what is kept packed, and knows no ranges.
    """
    kept = headers.get("X-Goog-Stored-Content-Encoding", "identity")
    if kept != "identity":
        raise StoreUnreachable(f"{key!r} is kept as {kept}, and would be unpacked on the way: iriscw did not write it")
    generation = headers.get("X-Goog-Generation", "")
    if not generation or "Content-Length" not in headers:
        raise StoreUnreachable(f"{key!r}: the answer does not say which version it is, or how long")
    return generation
