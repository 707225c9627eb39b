"""Writing an S3 object: in one request if it is short, in parts if it is long, and in doubt by its mark.

Theory of operation. A stream of unknown length is read until it is longer than a part; what ends before is written in
one request. Parts go up one after the other, so that memory is one part and one chunk of the source, and the upload is
aborted whatever goes wrong, a cancellation included: services such as CoreWeave's keep an unfinished one for ever.

What became of a write whose answer was lost is found out by its mark (:mod:`iriscw.objects.drivers.writing`). Entity
tags cannot tell it: two writers of the same content have the same.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterable, AsyncIterator
from functools import partial
from typing import Any

import anyio

from iriscw.objects.drivers import writing
from iriscw.objects.drivers.failure import AttemptFailed
from iriscw.objects.drivers.s3_answers import tag
from iriscw.objects.drivers.s3_connection import S3Connection
from iriscw.objects.drivers.s3_failure import port_error
from iriscw.objects.drivers.writing import MARK, Write, refusal, settled
from iriscw.objects.ports import (
    Condition,
    Data,
    IfAbsent,
    IfMatch,
    ObjectInfo,
    StoreUnreachable,
)

log = logging.getLogger(__name__)


async def write_object(
    connection: S3Connection, key: str, name: str, data: Data | AsyncIterable[bytes], condition: Condition
) -> ObjectInfo:
    """Write an object as a whole.

    Raises:
        ObjectExists, ObjectChanged, StoreFull, StoreAccessDenied, StoreUnreachable: see ``ObjectStore.put``.
    """
    write = Write(key, name, condition)
    whole, long = partial(_write_whole, connection, write), partial(_write_parts, connection, write)
    return await writing.write_object(write, data, connection.limits, whole, long)


async def _write_whole(connection: S3Connection, write: Write, data: Data) -> ObjectInfo:
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
    connection: S3Connection, write: Write, first: Data, rest: AsyncIterator[tuple[Data, bool]]
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


async def _upload(connection: S3Connection, write: Write, upload: str, number: int, piece: Data) -> dict[str, Any]:
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
    refused = refusal(write, failed, changed=failure.status == 412, gone=failure.code == "NoSuchKey")
    if refused is None and failure.code != "NoSuchUpload":
        raise port_error(failure, f"writing {write.key!r}") from failed
    return await settled(write, failed, refused, lambda: _ours(connection, write))


async def _ours(connection: S3Connection, write: Write) -> ObjectInfo | None:
    """Return the object if it is the one that this call wrote; None if it is not, or if that cannot be found out."""
    try:
        answer = await connection.ask("head_object", {"Key": write.name})
    except (AttemptFailed, StoreUnreachable) as error:
        log.info("whether %r is what was written could not be found out: %s", write.key, error)
        return None
    if answer.get("Metadata", {}).get(MARK) != write.mark:
        return None
    return ObjectInfo(write.key, int(answer["ContentLength"]), tag(answer))


def conditions(condition: Condition) -> dict[str, str]:
    """Return a condition in botocore's words."""
    if isinstance(condition, IfAbsent):
        return {"IfNoneMatch": "*"}
    if isinstance(condition, IfMatch):
        return {"IfMatch": f'"{condition.etag}"'}
    return {}
