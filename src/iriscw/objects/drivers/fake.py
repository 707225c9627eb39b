"""An object store in memory: counts its calls and fails on request. For tests, and as the smallest example.

It keeps the whole contract of the port (the public conformance suite runs on it). ``fail_next`` scripts
errors; a scripted error of a write says whether it strikes before or after the write took effect, because a
real store can fail in both ways.
"""

from __future__ import annotations

import bisect
import collections
import itertools
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager

import anyio.lowlevel
import attrs

from iriscw._errors import InvalidArgument
from iriscw.objects.ports import (
    CHUNK_BYTES,
    MAX_PAGE_OBJECTS,
    Condition,
    Data,
    IfAbsent,
    IfMatch,
    InvalidRange,
    ObjectChanged,
    ObjectExists,
    ObjectInfo,
    ObjectNotFound,
    ObjectPage,
    check_key,
)


@attrs.frozen
class _Object:
    info: ObjectInfo
    data: bytes = attrs.field(repr=False)


@attrs.define
class FakeReading:
    """An object that is being read; see ``ObjectReading``."""

    info: ObjectInfo
    _data: bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Read the chunks."""
        for start in range(0, len(self._data), CHUNK_BYTES):
            await anyio.lowlevel.checkpoint()
            yield self._data[start : start + CHUNK_BYTES]


class FakeObjectStore:
    """Objects in memory; see :class:`~iriscw.objects.ports.ObjectStore` for what each method does."""

    def __init__(self) -> None:
        """Begin empty."""
        self.calls: collections.Counter[str] = collections.Counter()
        """How often each method was called."""
        self._objects: dict[str, _Object] = {}
        self._versions = itertools.count(1)
        self._failures: collections.defaultdict[str, collections.deque[tuple[Exception, bool]]]
        self._failures = collections.defaultdict(collections.deque)

    def fail_next(self, method: str, error: Exception, *, after_effect: bool = False) -> None:
        """Let the next call of ``method`` raise ``error``; calls queue up one error each."""
        self._failures[method].append((error, after_effect))

    def contents(self) -> dict[str, bytes]:
        """Return all objects by key."""
        return {key: self._objects[key].data for key in sorted(self._objects)}

    async def put(self, key: str, data: Data | AsyncIterable[bytes], *, condition: Condition = None) -> ObjectInfo:
        """Write an object as a whole."""
        check_key(key)
        late = await self._enter("put")
        whole = (
            bytes(data) if isinstance(data, bytes | memoryview) else b"".join([bytes(chunk) async for chunk in data])
        )
        self._check(key, condition)
        info = ObjectInfo(key, len(whole), f"v{next(self._versions)}")
        self._objects[key] = _Object(info, whole)
        if late is not None:
            raise late
        return info

    @asynccontextmanager
    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[FakeReading]:
        """Read an object."""
        found = await self._find("get", key)
        if start < 0 or start > found.info.size_bytes or (end is not None and end < start):
            raise InvalidRange(f"{start} to {end} is not a range of {found.info.size_bytes} bytes")
        yield FakeReading(found.info, found.data[start:end])

    async def stat(self, key: str) -> ObjectInfo:
        """Return what is known of an object."""
        return (await self._find("stat", key)).info

    async def list(self, prefix: str = "", *, after: str = "", limit: int = MAX_PAGE_OBJECTS) -> ObjectPage:
        """List objects in the order of their keys."""
        if not 1 <= limit <= MAX_PAGE_OBJECTS:
            raise InvalidArgument(f"a page has 1 to {MAX_PAGE_OBJECTS} objects, not {limit}")
        await self._enter("list")
        keys = sorted((key for key in self._objects if key.startswith(prefix)), key=str.encode)
        first = bisect.bisect_right(keys, after.encode(), key=str.encode) if after else 0
        page = tuple(self._objects[key].info for key in keys[first : first + limit])
        return ObjectPage(page, page[-1].key if first + limit < len(keys) else None)

    async def delete(self, key: str, *, condition: IfMatch | None = None) -> None:
        """Delete an object."""
        check_key(key)
        late = await self._enter("delete")
        self._check(key, condition)
        self._objects.pop(key, None)
        if late is not None:
            raise late

    async def aclose(self) -> None:
        """Do nothing: there is nothing to give back."""
        await self._enter("aclose")

    async def _enter(self, method: str) -> Exception | None:
        """Count the call and raise the scripted error, or give the one that strikes after the effect."""
        self.calls[method] += 1
        await anyio.lowlevel.checkpoint()
        if self._failures[method]:
            error, after_effect = self._failures[method].popleft()
            if not after_effect:
                raise error
            return error
        return None

    async def _find(self, method: str, key: str) -> _Object:
        check_key(key)
        late = await self._enter(method)
        if late is not None:
            raise late
        try:
            return self._objects[key]
        except KeyError as error:
            raise ObjectNotFound(f"there is no object {key!r}") from error

    def _check(self, key: str, condition: Condition) -> None:
        present = self._objects.get(key)
        if isinstance(condition, IfAbsent) and present is not None:
            raise ObjectExists(f"there is an object {key!r} already")
        if isinstance(condition, IfMatch) and (present is None or present.info.etag != condition.etag):
            raise ObjectChanged(f"{key!r} is not the version that was named")
