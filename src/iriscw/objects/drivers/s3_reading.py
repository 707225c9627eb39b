"""Reading one version of an S3 object (:mod:`iriscw.objects.drivers.continued`): its tag tells it from others."""

from __future__ import annotations

from typing import Any

from iriscw.objects.drivers.continued import BodyRest, ContinuedReading, span_of
from iriscw.objects.drivers.failure import AttemptFailed
from iriscw.objects.drivers.s3_answers import tag
from iriscw.objects.drivers.s3_connection import S3Connection
from iriscw.objects.ports import ObjectInfo, StoreUnreachable


class S3Reading(ContinuedReading):
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
        body = answer["Body"] if answer is not None else None
        troubles = connection.troubles if answer is not None else ()
        super().__init__(info, body, start, end, silence_s=connection.limits.silence_s, troubles=troubles)
        self._connection, self._name = connection, name

    async def _rest(self, start: int, end: int) -> tuple[BodyRest, tuple[ObjectInfo, int, int]]:
        span = {"Range": f"bytes={start}-{end - 1}", "IfMatch": f'"{self.info.etag}"'}
        try:
            answer = await self._connection.ask("get_object", {"Key": self._name, **span})
        except AttemptFailed as failed:
            raise StoreUnreachable(f"the rest of {self.info.key!r} cannot be read: {failed}") from failed
        body: BodyRest = answer["Body"]
        try:
            return body, spans(self.info.key, answer)
        except StoreUnreachable:
            body.close()
            raise


def spans(key: str, answer: dict[str, Any]) -> tuple[ObjectInfo, int, int]:
    """Return which version botocore's answer to a GET is of, and from where to where it goes.

    Raises:
        StoreUnreachable: the answer contradicts itself.
    """
    return span_of(key, tag(answer), int(answer["ContentLength"]), answer.get("ContentRange"))
