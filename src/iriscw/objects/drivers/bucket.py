"""A bucket, or what begins with a prefix in it, whichever service has it: what its drivers have in common.

An object's key in the bucket is its own behind the prefix. Of a range the port and HTTP think differently: HTTP has no
empty ranges, nor any that begin where an object ends. Such a reading is made of what is known of the object instead.
"""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Generic, Protocol, TypeVar

from iriscw._errors import InvalidArgument
from iriscw.objects.drivers.continued import ContinuedReading
from iriscw.objects.ports import (
    MAX_KEY_BYTES,
    MAX_PAGE_OBJECTS,
    InvalidObjectKey,
    InvalidRange,
    ObjectInfo,
    StoreUnreachable,
    check_key,
)


class StorePlace(Protocol):
    """Where a store's objects are; its text is the store's URL."""

    @property
    def prefix(self) -> str:
        """What all names begin with; empty, or with a slash at the end."""


class StoreConnection(Protocol):
    """What requests are made by."""

    def reading(self) -> AbstractAsyncContextManager[None]:
        """Wait for leave to open one more reading."""

    async def aclose(self) -> None:
        """Close all connections."""


ConnectionT = TypeVar("ConnectionT", bound=StoreConnection)
ReadingT = TypeVar("ReadingT", bound=ContinuedReading)


class BucketObjectStore(abc.ABC, Generic[ConnectionT, ReadingT]):
    """One bucket, or what begins with a prefix in it; see :class:`~iriscw.objects.ports.ObjectStore` for what each
    method does. A service's driver adds the others.

    Args:
        place: The bucket.
        connection: To the service.
    """

    def __init__(self, place: StorePlace, connection: ConnectionT) -> None:
        self._prefix = place.prefix
        self._url = str(place)
        self._connection = connection

    def __repr__(self) -> str:
        """Show where the objects are."""
        return f"{type(self).__name__}({self._url!r})"

    @asynccontextmanager
    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[ReadingT]:
        """Read an object."""
        name = self._name(key)
        if start < 0 or (end is not None and end < start):
            raise InvalidRange(f"{start} to {end} is not a range of bytes")
        async with self._connection.reading():
            reading = await self._open(key, name, start, end)
            try:
                yield reading
            finally:
                reading.close()

    @abc.abstractmethod
    async def stat(self, key: str) -> ObjectInfo:
        """Return what is known of an object."""

    async def aclose(self) -> None:
        """Close all connections."""
        await self._connection.aclose()

    @abc.abstractmethod
    async def _ask_for(self, key: str, name: str, start: int, end: int | None) -> ReadingT:
        """Open the reading of a range that has a byte at least.

        Raises:
            InvalidRange: the object has no byte there.
            ObjectNotFound, StoreAccessDenied, StoreUnreachable: see ``ObjectStore.get``.
        """

    @abc.abstractmethod
    def _no_bytes(self, name: str, info: ObjectInfo, at: int) -> ReadingT:
        """Return a reading that ends where it begins."""

    def _name(self, key: str) -> str:
        """Return an object's key in the bucket."""
        check_key(key)
        name = self._prefix + key
        if len(name.encode()) > MAX_KEY_BYTES:
            raise InvalidObjectKey(f"the key {key!r} is too long below {self._prefix!r}")
        return name

    async def _open(self, key: str, name: str, start: int, end: int | None) -> ReadingT:
        if start == end:
            return await self._nothing_of(key, name, start)
        try:
            return await self._ask_for(key, name, start, end)
        except InvalidRange:
            return await self._nothing_of(key, name, start)

    async def _nothing_of(self, key: str, name: str, start: int) -> ReadingT:
        """Return the reading of no bytes at ``start``, which the object must have."""
        info = await self.stat(key)
        if start > info.size_bytes:
            raise InvalidRange(f"there is no byte {start} in {info.size_bytes} bytes")
        return self._no_bytes(name, info, start)


def end_of(found: tuple[ObjectInfo, int, int], start: int, end: int | None) -> int:
    """Return where a reading ends, behind its last byte.

    Args:
        found: What the answer says that it is: of which object, from where, to where.
        start: Where it was to begin.
        end: Where it was to end; None: with the object.

    Raises:
        StoreUnreachable: the answer is of another range.
    """
    info, begin, behind = found
    wanted = info.size_bytes if end is None else min(end, info.size_bytes)
    if (begin, behind) != (start, wanted):
        raise StoreUnreachable(f"{info.key!r}: {begin} to {behind} came, not {start} to {wanted}")
    return wanted


def check_page(limit: int) -> None:
    """Check how many objects a page may have.

    Raises:
        InvalidArgument: none, or too many.
    """
    if not 1 <= limit <= MAX_PAGE_OBJECTS:
        raise InvalidArgument(f"a page has 1 to {MAX_PAGE_OBJECTS} objects, not {limit}")


def is_key(key: str) -> bool:
    """Whether drivers take this key: others have objects in buckets, too."""
    try:
        check_key(key)
    except InvalidObjectKey:
        return False
    return True
