"""Objects in a bucket of an S3 service: the ``s3://`` driver of the ObjectStore port.

The parts, each with its own idea: where the store is and what it may cost (:mod:`~iriscw.objects.drivers.s3_place`),
the client (:mod:`~iriscw.objects.drivers.s3_client`), requests and when they are repeated
(:mod:`~iriscw.objects.drivers.s3_connection`), what failures mean (:mod:`~iriscw.objects.drivers.s3_failure`), writing
(:mod:`~iriscw.objects.drivers.s3_upload`) and reading (:mod:`~iriscw.objects.drivers.s3_reading`). Here S3's operations
become the port's.

Absence is said only after an answer that names it: a refused HEAD has no code, and its 404 may mean the bucket as well,
so a GET of one byte is asked before an object is called absent (INV-C11).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Mapping
from typing import Any

from iriscw.objects.drivers.bucket import BucketObjectStore, check_page, end_of, is_key
from iriscw.objects.drivers.failure import AttemptFailed
from iriscw.objects.drivers.s3_answers import tag
from iriscw.objects.drivers.s3_connection import S3Connection
from iriscw.objects.drivers.s3_failure import port_error
from iriscw.objects.drivers.s3_place import S3Limits, S3Place, s3_place, with_own
from iriscw.objects.drivers.s3_reading import S3Reading, spans
from iriscw.objects.drivers.s3_upload import conditions, write_object
from iriscw.objects.ports import (
    MAX_PAGE_OBJECTS,
    Condition,
    Data,
    IfMatch,
    InvalidRange,
    ObjectChanged,
    ObjectInfo,
    ObjectNotFound,
    ObjectPage,
    StoreUnreachable,
)


def open_s3_store(url: str, below: Mapping[str, str]) -> S3ObjectStore:
    """Open ``s3://bucket/prefix``; the environment says where and by whom, and ``below`` where if it does not. Asks
    nothing of the service yet.

    Raises:
        InvalidStoreUrl: the URL, or the endpoint that the environment names, is none.
    """
    return S3ObjectStore(s3_place(url, with_own(below, os.environ)))


class S3ObjectStore(BucketObjectStore[S3Connection, S3Reading]):
    """One bucket, or what begins with a prefix in it; see :class:`~iriscw.objects.ports.ObjectStore` for what each
    method does.

    Args:
        place: The bucket.
        limits: Of time, memory and connections.
        connector: For aiohttp's connector: a resolver, in tests.
    """

    def __init__(
        self, place: S3Place, limits: S3Limits | None = None, *, connector: dict[str, Any] | None = None
    ) -> None:
        super().__init__(place, S3Connection(place, limits or S3Limits(), connector))

    async def put(self, key: str, data: Data | AsyncIterable[bytes], *, condition: Condition = None) -> ObjectInfo:
        """Write an object as a whole."""
        return await write_object(self._connection, key, self._name(key), data, condition)

    async def stat(self, key: str) -> ObjectInfo:
        """Return what is known of an object."""
        name = self._name(key)
        try:
            answer = await self._connection.ask("head_object", {"Key": name})
        except AttemptFailed as failed:
            if failed.failure.status != 404:
                raise port_error(failed.failure, f"asking for {key!r}") from failed
        else:
            return ObjectInfo(key, int(answer["ContentLength"]), tag(answer))
        try:
            reading = await self._ask_for(key, name, 0, 1)
        except InvalidRange as error:
            raise StoreUnreachable(f"{key!r} was not there, and then was empty") from error
        reading.close()
        return reading.info

    async def list(self, prefix: str = "", *, after: str = "", limit: int = MAX_PAGE_OBJECTS) -> ObjectPage:
        """List objects in the order of their keys. Keys that no driver takes are left out: others made them."""
        check_page(limit)
        base = self._prefix
        behind = {"StartAfter": base + after} if after else {}
        try:
            answer = await self._connection.ask(
                "list_objects_v2", {"Prefix": base + prefix, "MaxKeys": limit, **behind}
            )
        except AttemptFailed as failed:
            raise port_error(failed.failure, f"listing {prefix!r}") from failed
        keys = [each["Key"].removeprefix(base) for each in answer.get("Contents", [])]
        objects = tuple(
            ObjectInfo(key, int(each["Size"]), tag(each))
            for key, each in zip(keys, answer.get("Contents", []), strict=True)
            if is_key(key)
        )
        return ObjectPage(objects, keys[-1] if answer["IsTruncated"] else None)

    async def delete(self, key: str, *, condition: IfMatch | None = None) -> None:
        """Delete an object."""
        name = self._name(key)
        try:
            await self._connection.ask(
                "delete_object", {"Key": name, **conditions(condition)}, repeat=condition is not None
            )
        except AttemptFailed as failed:
            failure = failed.failure
            if condition is not None and failure.certain and (failure.status == 412 or failure.code == "NoSuchKey"):
                raise ObjectChanged(f"{key!r}: {failure.said}") from failed
            if failure.code == "NoSuchKey" and condition is None:
                return
            raise port_error(failure, f"deleting {key!r}") from failed

    def _no_bytes(self, name: str, info: ObjectInfo, at: int) -> S3Reading:
        return S3Reading(self._connection, name, info, None, at, at)

    async def _ask_for(self, key: str, name: str, start: int, end: int | None) -> S3Reading:
        span = {"Range": f"bytes={start}-{'' if end is None else end - 1}"} if start or end is not None else {}
        try:
            answer = await self._connection.ask("get_object", {"Key": name, **span})
        except AttemptFailed as failed:
            failure = failed.failure
            if failure.code == "NoSuchKey":
                raise ObjectNotFound(f"there is no object {key!r}") from failed
            if failure.status == 416:
                raise InvalidRange(f"{key!r}: {failure.said}") from failed
            raise port_error(failure, f"reading {key!r}") from failed
        try:
            found = spans(key, answer)
            return S3Reading(self._connection, name, found[0], answer, start, end_of(found, start, end))
        except StoreUnreachable:
            answer["Body"].close()
            raise
