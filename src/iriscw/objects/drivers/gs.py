"""Objects in a bucket of Google Cloud Storage: the ``gs://`` driver of the ObjectStore port.

It speaks Google's own JSON interface: the one that imitates S3 has no conditions on writes. Conditions are
*generations*, numbers that each write of an object makes anew; they are this driver's entity tags.

The parts, each with its own idea: where the store is and what it may cost (:mod:`~iriscw.objects.drivers.gs_place`),
whose requests they are (:mod:`~iriscw.objects.drivers.gs_token`, :mod:`~iriscw.objects.drivers.gs_credentials`),
requests (:mod:`~iriscw.objects.drivers.gs_connection`), what failures mean
(:mod:`~iriscw.objects.drivers.gs_failure`), writing (:mod:`~iriscw.objects.drivers.gs_upload`) and reading
(:mod:`~iriscw.objects.drivers.gs_reading`). Here Google's operations become the port's.

Absence is said only when an object was not found and its bucket was: both have the same answer (INV-C11).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Mapping
from typing import Any

from iriscw.objects.drivers.bucket import BucketObjectStore, check_page, end_of, is_key
from iriscw.objects.drivers.errors import StoreExtraMissing, is_installed
from iriscw.objects.drivers.failure import AttemptFailed
from iriscw.objects.drivers.gs_connection import Ask, GsConnection
from iriscw.objects.drivers.gs_failure import port_error
from iriscw.objects.drivers.gs_place import GsLimits, GsPlace, gs_place
from iriscw.objects.drivers.gs_reading import GsBody, GsReading, spans
from iriscw.objects.drivers.gs_upload import FIELDS, beginning, conditions, info_of, read_json, write_object
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

MOST_PAGES = 100
"""Of Google's in one of ours: one of its may be empty although others follow."""


def open_gs_store(url: str) -> GsObjectStore:
    """Open ``gs://bucket/prefix``; the environment says by whom. Asks nothing of the service yet.

    Raises:
        InvalidStoreUrl: the URL, or the emulator that the environment names, is none.
        StoreExtraMissing: the library for credentials is not installed.
    """
    place = gs_place(url, os.environ)
    if not place.anonymous and not is_installed("google.auth"):
        raise StoreExtraMissing(
            "gs:// stores need Google's library for credentials: pip install '.[gs]' in a checkout of iriscw"
        )
    return GsObjectStore(place)


class GsObjectStore(BucketObjectStore[GsConnection, GsReading]):
    """One bucket, or what begins with a prefix in it; see :class:`~iriscw.objects.ports.ObjectStore` for what each
    method does.

    Args:
        place: The bucket.
        limits: Of time, memory and connections.
        environment: Says where credentials are; None: the process's.
    """

    def __init__(
        self, place: GsPlace, limits: GsLimits | None = None, *, environment: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(place, GsConnection(place, limits or GsLimits(), environment))

    async def put(self, key: str, data: Data | AsyncIterable[bytes], *, condition: Condition = None) -> ObjectInfo:
        """Write an object as a whole."""
        name = self._name(key)
        conditions(key, condition)
        return await write_object(self._connection, key, name, data, condition)

    async def stat(self, key: str) -> ObjectInfo:
        """Return what is known of an object."""
        name, what = self._name(key), f"asking for {key!r}"
        ask = Ask("GET", self._connection.object_path(name), {"fields": FIELDS}, reads=True)
        try:
            told = await self._connection.ask(ask)
        except AttemptFailed as failed:
            await self._check_absence(key, what, failed)
            raise port_error(failed.failure, what) from failed
        return info_of(key, read_json(told, what))

    async def list(self, prefix: str = "", *, after: str = "", limit: int = MAX_PAGE_OBJECTS) -> ObjectPage:
        """List objects in the order of their keys. Keys that no driver takes are left out: others made them."""
        check_page(limit)
        base = self._prefix
        # Google's offset is included: one more is asked for, and that one is dropped.
        offset = {"startOffset": base + after} if after else {}
        most = min(limit + bool(after), MAX_PAGE_OBJECTS)
        query = {
            "prefix": base + prefix,
            "maxResults": str(most),
            "fields": "kind,items(name,size,generation),nextPageToken",
        }
        token: dict[str, str] = {}
        for _ in range(MOST_PAGES):
            items, following = await self._page({**query, **offset, **token}, f"listing {prefix!r}")
            behind = [(key, each) for name, each in items if (key := name.removeprefix(base)) != after or not after]
            if behind or not following:
                fresh = behind[:limit]
                objects = tuple(info_of(key, each) for key, each in fresh if is_key(key))
                return ObjectPage(objects, fresh[-1][0] if following or len(behind) > limit else None)
            token = {"pageToken": following}
        raise StoreUnreachable(f"listing {prefix!r}: {MOST_PAGES} pages in a row were empty, and others were to follow")

    async def delete(self, key: str, *, condition: IfMatch | None = None) -> None:
        """Delete an object."""
        name, what = self._name(key), f"deleting {key!r}"
        query = conditions(key, condition)
        ask = Ask("DELETE", self._connection.object_path(name), query, repeat=condition is not None)
        try:
            told = await self._connection.ask(ask)
        except AttemptFailed as failed:
            failure = failed.failure
            if condition is not None and failure.certain and failure.status == 412:
                raise ObjectChanged(f"{key!r}: {failure.said}") from failed
            try:
                await self._check_absence(key, what, failed)
            except ObjectNotFound as absent:
                if condition is not None:
                    raise ObjectChanged(str(absent)) from failed
                return
            raise port_error(failure, what) from failed
        if told.status != 204 and read_json(told, what) is not None:  # null is what emulators answer
            raise StoreUnreachable(f"{what}: the answer is not Google's: it begins {beginning(told)!r}")

    async def _page(self, query: dict[str, str], what: str) -> tuple[tuple[tuple[str, Any], ...], str]:
        """Return one page of Google's: names with what is told of each, and the token of the next one."""
        try:
            told = await self._connection.ask(Ask("GET", self._connection.objects_path, query, reads=True))
        except AttemptFailed as failed:
            raise port_error(failed.failure, what) from failed
        said = read_json(told, what)
        if not isinstance(said, dict) or said.get("kind") != "storage#objects":
            raise StoreUnreachable(f"{what}: the answer is not a listing: it begins {beginning(told)!r}")
        try:
            items = tuple((str(each["name"]), each) for each in said.get("items", []))
            return items, str(said.get("nextPageToken") or "")
        except (TypeError, LookupError, AttributeError) as error:
            raise StoreUnreachable(f"{what}: the answer is not a listing") from error

    async def _check_absence(self, key: str, what: str, failed: AttemptFailed) -> None:
        """Look whether it is the object that is not there, if it is certain that something is not.

        Raises:
            ObjectNotFound: the object.
            NoSuchBucket: the bucket.
            StoreAccessDenied, StoreUnreachable: nobody can say.
        """
        if failed.failure.status == 404 and failed.failure.certain:
            await self._page({"prefix": self._prefix, "maxResults": "1", "fields": "kind"}, what)
            raise ObjectNotFound(f"there is no object {key!r}") from failed

    def _no_bytes(self, name: str, info: ObjectInfo, at: int) -> GsReading:
        return GsReading(self._connection, name, info, None, at, at)

    async def _ask_for(self, key: str, name: str, start: int, end: int | None) -> GsReading:
        what = f"reading {key!r}"
        span = {"Range": f"bytes={start}-{'' if end is None else end - 1}"} if start or end is not None else {}
        ask = Ask("GET", self._connection.object_path(name), {"alt": "media"}, span, reads=True)
        try:
            answer = await self._connection.open(ask)
        except AttemptFailed as failed:
            if failed.failure.status == 416:
                raise InvalidRange(f"{key!r}: {failed.failure.said}") from failed
            await self._check_absence(key, what, failed)
            raise port_error(failed.failure, what) from failed
        try:
            found = spans(key, answer)
            return GsReading(self._connection, name, found[0], GsBody(answer), start, end_of(found, start, end))
        except StoreUnreachable:
            answer.close()
            raise
