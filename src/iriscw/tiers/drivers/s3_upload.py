"""Writing an S3 object: in one request if it is short, in parts if it is long, and in doubt by its mark.

Theory of operation. A stream of unknown length is read until it is longer than a part; what ends before is written in
one request. Parts go up one after the other, so that memory is one part and one chunk of the source, and the upload is
aborted whatever goes wrong, a cancellation included: services such as CoreWeave's keep an unfinished one for ever.

Each write has a *mark* of its own in the object's metadata. When a write with a condition is refused, the object is
looked at: with our mark it is ours, and what was lost is the answer to an earlier try, or something on the way has sent
the request twice. Entity tags cannot tell this: two writers of the same content have the same. An object without our
mark means that the condition did not hold, if no try of ours is in doubt; else nobody can say what happened, since ours
may have been there and have been replaced.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import aclosing
from typing import Any

import anyio
import attrs

from iriscw.errors import OperationError
from iriscw.tiers.drivers.s3_connection import S3Connection
from iriscw.tiers.drivers.s3_failure import AttemptFailed, Failure, port_error
from iriscw.tiers.drivers.s3_place import S3Limits
from iriscw.tiers.ports import (
    Condition,
    IfAbsent,
    IfMatch,
    ObjectChanged,
    ObjectExists,
    ObjectInfo,
    StoreFull,
    StoreUnreachable,
)

MARK = "iriscw-write"
"""In an object's metadata: which write it is of."""

log = logging.getLogger(__name__)


@attrs.frozen
class Write:
    """One call of ``put``."""

    key: str
    name: str
    """The key in the bucket."""
    condition: Condition
    mark: str = attrs.field(factory=lambda: uuid.uuid4().hex)

    @property
    def metadata(self) -> dict[str, str]:
        """The mark, where it is kept."""
        return {MARK: self.mark}


async def write_object(
    connection: S3Connection, key: str, name: str, data: bytes | AsyncIterable[bytes], condition: Condition
) -> ObjectInfo:
    """Write an object as a whole.

    Raises:
        ObjectExists, ObjectChanged, StoreFull, StoreAccessDenied, StoreUnreachable: see ``ObjectStore.put``.
    """
    write = Write(key, name, condition)
    async with aclosing(pieces(data, connection.limits)) as parts:
        first, is_last = await anext(parts)
        if is_last:
            return await _write_whole(connection, write, first)
        return await _write_parts(connection, write, first, parts)


async def pieces(data: bytes | AsyncIterable[bytes], limits: S3Limits) -> AsyncGenerator[tuple[bytes, bool]]:
    """Give data in parts, and with each whether it is the last. There is always one.

    Raises:
        StoreFull: an object cannot have that many parts.
    """
    number, held = 1, bytearray()
    if isinstance(data, bytes) and len(data) <= limits.size_of_part(1):
        yield data, True  # as it is: most are short
        return
    async for chunk in _chunks(data):
        rest = memoryview(chunk)
        while len(held) + len(rest) > (size := limits.size_of_part(number)):
            if number == limits.most_parts:
                raise StoreFull(f"an object has at most {limits.most_parts} parts, the last of {size} bytes")
            taken = size - len(held)
            held += rest[:taken]
            yield bytes(held), False
            held, rest, number = bytearray(), rest[taken:], number + 1
        held += rest
    yield bytes(held), True


async def _chunks(data: bytes | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    if isinstance(data, bytes):
        yield data
        return
    async for chunk in data:
        yield chunk


async def _write_whole(connection: S3Connection, write: Write, data: bytes) -> ObjectInfo:
    try:
        answer = await connection.ask(
            "put_object",
            {"Key": write.name, "Metadata": write.metadata, **conditions(write.condition)},
            body=data,
            repeat=write.condition is not None,
        )
    except AttemptFailed as failed:
        return await _settled(connection, write, failed)
    return ObjectInfo(write.key, len(data), tag(answer))


async def _write_parts(
    connection: S3Connection, write: Write, first: bytes, rest: AsyncIterator[tuple[bytes, bool]]
) -> ObjectInfo:
    upload = await _begin(connection, write)
    over = False
    try:
        size_bytes, parts = len(first), [await _upload(connection, write, upload, 1, first)]
        del first
        async for piece, _ in rest:
            parts.append(await _upload(connection, write, upload, len(parts) + 1, piece))
            size_bytes += len(piece)
        try:
            answer = await connection.ask(
                "complete_multipart_upload",  # may be repeated: an upload can be completed once
                {
                    "Key": write.name,
                    "UploadId": upload,
                    "MultipartUpload": {"Parts": parts},
                    **conditions(write.condition),
                },
            )
        except AttemptFailed as failed:
            info = await _settled(connection, write, failed)
        else:
            info = ObjectInfo(write.key, size_bytes, tag(answer))
        over = True
        return info
    finally:
        if not over:
            await _abort(connection, write, upload)


async def _begin(connection: S3Connection, write: Write) -> str:
    # A cancellation waits for the answer: it has the id without which nobody can abort the upload.
    with anyio.CancelScope(shield=True):
        try:
            answer = await connection.ask("create_multipart_upload", {"Key": write.name, "Metadata": write.metadata})
        except AttemptFailed as failed:
            raise port_error(failed.failure, f"writing {write.key!r}") from failed
    return str(answer["UploadId"])


async def _upload(connection: S3Connection, write: Write, upload: str, number: int, piece: bytes) -> dict[str, Any]:
    said = {"Key": write.name, "UploadId": upload, "PartNumber": number}
    try:
        answer = await connection.ask("upload_part", said, body=piece)
    except AttemptFailed as failed:
        raise port_error(failed.failure, f"writing part {number} of {write.key!r}") from failed
    return {"PartNumber": number, "ETag": answer["ETag"]}


async def _abort(connection: S3Connection, write: Write, upload: str) -> None:
    """Take the parts back, as far as that can be had; what made the write fail is told, not this."""
    with anyio.move_on_after(connection.limits.abort_s, shield=True) as scope:
        try:
            await connection.ask("abort_multipart_upload", {"Key": write.name, "UploadId": upload})
        except (AttemptFailed, StoreUnreachable) as error:
            if not (isinstance(error, AttemptFailed) and error.failure.code == "NoSuchUpload"):
                log.warning("an upload of %r could not be aborted, its parts take room: %s", write.key, error)
    if scope.cancelled_caught:
        log.warning("an upload of %r could not be aborted in time, its parts may take room", write.key)


async def _settled(connection: S3Connection, write: Write, failed: AttemptFailed) -> ObjectInfo:
    """Find out what became of a write whose last request failed.

    Raises:
        ObjectExists, ObjectChanged, StoreFull, StoreAccessDenied, StoreUnreachable: it was not done; the last one,
            too, if nobody can say.
    """
    failure = failed.failure
    error = _condition_error(write, failure)
    if error is None and failure.code != "NoSuchUpload":
        raise port_error(failure, f"writing {write.key!r}") from failed
    found = await _ours(connection, write)
    if found is not None:
        return found
    if error is not None and failure.certain:
        raise error from failed
    raise StoreUnreachable(f"writing {write.key!r}: nobody can say whether it was written: {failure.said}") from failed


def _condition_error(write: Write, failure: Failure) -> OperationError | None:
    said = f"{write.key!r}: {failure.said}"
    if isinstance(write.condition, IfAbsent) and failure.status == 412:
        return ObjectExists(said)
    if isinstance(write.condition, IfMatch) and (failure.status == 412 or failure.code == "NoSuchKey"):
        return ObjectChanged(said)
    return None


async def _ours(connection: S3Connection, write: Write) -> ObjectInfo | None:
    """Give the object if it is the one that this call wrote; None if it is not, or if that cannot be found out."""
    try:
        answer = await connection.ask("head_object", {"Key": write.name})
    except (AttemptFailed, StoreUnreachable) as error:
        log.info("whether %r is what was written could not be found out: %s", write.key, error)
        return None
    if answer.get("Metadata", {}).get(MARK) != write.mark:
        return None
    return ObjectInfo(write.key, int(answer["ContentLength"]), tag(answer))


def conditions(condition: Condition) -> dict[str, str]:
    """Give a condition in botocore's words."""
    if isinstance(condition, IfAbsent):
        return {"IfNoneMatch": "*"}
    if isinstance(condition, IfMatch):
        return {"IfMatch": f'"{condition.etag}"'}
    return {}


def tag(answer: dict[str, Any]) -> str:
    """Give an answer's entity tag without its quotes."""
    return str(answer["ETag"]).strip('"')
