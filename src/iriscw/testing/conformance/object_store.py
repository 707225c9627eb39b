"""What every ObjectStore driver must do. Subclass it in a test module and give a ``store`` fixture::

    class TestMyStore(ObjectStoreConformance):
        @pytest.fixture
        async def store(self) -> AsyncIterator[ObjectStore]:
            store = MyStore(...)
            yield store
            await store.aclose()

Each test gets an empty store. The tests are plain ``async def``; run them with anyio's pytest plugin.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from iriscw._errors import InvalidArgument
from iriscw.objects.drivers.transfer import ObjectTooLarge, read_whole
from iriscw.objects.ports import (
    CHUNK_BYTES,
    IfAbsent,
    IfMatch,
    InvalidObjectKey,
    InvalidRange,
    ObjectChanged,
    ObjectExists,
    ObjectNotFound,
    ObjectPage,
    ObjectStore,
)

LIMIT_BYTES = 16 << 20

BAD_KEYS = ("", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "a\nb", "a\0b", "\ud800", "x" * 256, "a/" * 600)


class _SourceFailed(Exception):  # private to this suite
    """What a broken source of data raises."""


class ObjectStoreConformance:
    """The contract of :class:`~iriscw.objects.ports.ObjectStore`, as tests."""

    async def test_an_object_is_read_as_it_was_written(self, store: ObjectStore) -> None:
        """Bytes, length and version agree between put, stat, get and list."""
        written = await store.put("a/b.bin", b"hello")
        assert (written.key, written.size_bytes) == ("a/b.bin", 5)
        assert await store.stat("a/b.bin") == written
        assert (await store.list()).objects == (written,)
        async with store.get("a/b.bin") as reading:
            assert reading.info == written
            assert b"".join([chunk async for chunk in reading]) == b"hello"

    async def test_an_empty_object_is_an_object(self, store: ObjectStore) -> None:
        """Nothing in it is not the same as not there."""
        await store.put("empty", b"")
        assert (await store.stat("empty")).size_bytes == 0
        assert await read_whole(store, "empty", limit_bytes=0) == b""

    async def test_data_streams_in_bounded_chunks(self, store: ObjectStore) -> None:
        """A long object goes in and comes out in chunks, none longer than ``CHUNK_BYTES``."""
        pieces = [bytes([number]) * (CHUNK_BYTES // 2 + number) for number in range(5)]

        async def source() -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece

        await store.put("long", source())
        async with store.get("long") as reading:
            chunks = [chunk async for chunk in reading]
        assert all(0 < len(chunk) <= CHUNK_BYTES for chunk in chunks)
        assert b"".join(chunks) == b"".join(pieces)

    async def test_ranges(self, store: ObjectStore) -> None:
        """``start`` is included, ``end`` is not, an ``end`` beyond the object is its end."""
        await store.put("digits", b"0123456789")
        for start, end, expected in [
            (0, 4, b"0123"), (4, None, b"456789"), (3, 3, b""), (8, 99, b"89"), (10, None, b"")
        ]:  # fmt: skip
            async with store.get("digits", start=start, end=end) as reading:
                assert b"".join([chunk async for chunk in reading]) == expected
                assert reading.info.size_bytes == 10
        for start, bad_end in [(11, None), (5, 4), (-1, None)]:
            with pytest.raises(InvalidRange):
                async with store.get("digits", start=start, end=bad_end):
                    pass

    async def test_absence_has_its_own_error(self, store: ObjectStore) -> None:
        """Reading what is not there says so; what merely begins like a key is not there either."""
        await store.put("folder/object", b"x")
        for key in ("nothing", "folder", "folder/object/below", "nofolder/object"):
            with pytest.raises(ObjectNotFound):
                await store.stat(key)
            with pytest.raises(ObjectNotFound):
                async with store.get(key):
                    pass

    @pytest.mark.parametrize("key", BAD_KEYS)
    async def test_keys_that_no_driver_takes(self, store: ObjectStore, key: str) -> None:
        """Every method refuses them in the same way, whatever the store would make of them."""
        with pytest.raises(InvalidObjectKey):
            await store.put(key, b"x")
        with pytest.raises(InvalidObjectKey):
            await store.stat(key)
        with pytest.raises(InvalidObjectKey):
            await store.delete(key)
        with pytest.raises(InvalidObjectKey):
            async with store.get(key):
                pass

    async def test_unusual_keys_are_kept_apart(self, store: ObjectStore) -> None:
        """Case, spaces, other alphabets and shell letters are part of the name."""
        keys = ["A", "a", "a b", "ä", "日本", "$(x)", "a%2Fb", "-rf", "~", "x" * 255]
        for key in keys:
            await store.put(key, key.encode())
        for key in keys:
            assert await read_whole(store, key, limit_bytes=1000) == key.encode()
        assert len((await store.list()).objects) == len(keys)

    async def test_writing_again_replaces(self, store: ObjectStore) -> None:
        """The new content is there as a whole, under another etag if it is another content."""
        first = await store.put("k", b"one")
        second = await store.put("k", b"two")
        assert first.etag != second.etag
        assert await store.stat("k") == second
        again = await store.put("k", b"two")
        assert await store.stat("k") == again

    async def test_if_absent(self, store: ObjectStore) -> None:
        """The first wins, the second is told, nothing is touched; after a delete it is free again."""
        first = await store.put("k", b"one", condition=IfAbsent())
        with pytest.raises(ObjectExists):
            await store.put("k", b"two", condition=IfAbsent())
        assert await store.stat("k") == first
        await store.delete("k")
        await store.put("k", b"three", condition=IfAbsent())

    async def test_if_match(self, store: ObjectStore) -> None:
        """Only the named version is replaced or deleted; one that is gone does not match."""
        first = await store.put("k", b"one")
        second = await store.put("k", b"two", condition=IfMatch(first.etag))
        for call in (
            lambda: store.put("k", b"x", condition=IfMatch(first.etag)),
            lambda: store.put("other", b"x", condition=IfMatch(first.etag)),
            lambda: store.delete("k", condition=IfMatch(first.etag)),
            lambda: store.delete("no/other", condition=IfMatch(first.etag)),
        ):
            with pytest.raises(ObjectChanged):
                await call()
        assert await store.stat("k") == second
        await store.delete("k", condition=IfMatch(second.etag))
        assert (await store.list()).objects == ()

    async def test_one_of_many_writers_wins(self, store: ObjectStore) -> None:
        """Of simultaneous writers with ``IfAbsent`` exactly one succeeds, and the object is its."""
        winners: list[bytes] = []

        async def write(data: bytes) -> None:
            try:
                await store.put("shared/prize", data, condition=IfAbsent())
            except ObjectExists:
                return
            winners.append(data)

        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(write, bytes([number]) * 100_000)
        assert len(winners) == 1
        assert await read_whole(store, "shared/prize", limit_bytes=LIMIT_BYTES) == winners[0]

    async def test_a_counter_loses_no_step(self, store: ObjectStore) -> None:
        """Read, change and write with ``IfMatch`` is safe under contention."""
        await store.put("counter", b"0")

        async def increment() -> None:
            while True:
                info = await store.stat("counter")
                count = int(await read_whole(store, "counter", limit_bytes=100))
                try:
                    await store.put("counter", str(count + 1).encode(), condition=IfMatch(info.etag))
                except ObjectChanged:
                    continue
                return

        async with anyio.create_task_group() as group:
            for _ in range(6):
                group.start_soon(increment)
        assert await read_whole(store, "counter", limit_bytes=100) == b"6"

    async def test_a_reader_keeps_its_version(self, store: ObjectStore) -> None:
        """What was opened is read to its end, although it is replaced and deleted meanwhile."""
        old = b"o" * (CHUNK_BYTES + 7)
        await store.put("k", old)
        async with store.get("k") as reading:
            await store.put("k", b"new")
            await store.delete("k")
            assert b"".join([chunk async for chunk in reading]) == old

    async def test_a_failed_source_leaves_nothing(self, store: ObjectStore) -> None:
        """What the source raises comes through; the old object stays, a new one does not appear."""
        old = await store.put("old", b"old")

        async def source() -> AsyncIterator[bytes]:
            yield b"partial"
            raise _SourceFailed

        for key in ("old", "fresh/new"):
            with pytest.raises(_SourceFailed):
                await store.put(key, source())
        assert (await store.list()).objects == (old,)

    async def test_a_cancelled_write_leaves_nothing(self, store: ObjectStore) -> None:
        """A cancellation in the middle of the data leaves no part; one behind its end may come too late."""
        reached = anyio.Event()

        async def source() -> AsyncIterator[bytes]:
            yield b"partial"
            reached.set()
            await anyio.sleep_forever()

        async with anyio.create_task_group() as group:
            group.start_soon(store.put, "k", source())
            await reached.wait()
            group.cancel_scope.cancel()
        assert (await store.list()).objects == ()

    async def test_deleting_what_is_not_there_is_fine(self, store: ObjectStore) -> None:
        """As in S3: a repeated delete says the same as the first."""
        await store.put("a/k", b"x")
        await store.delete("a/k")
        await store.delete("a/k")
        await store.delete("never/was")

    async def test_listing_is_in_the_order_of_bytes(self, store: ObjectStore) -> None:
        """Slashes are letters like all others, and a prefix need not end at one."""
        keys = ["a", "a-b", "a.b/c", "a/b", "a/c", "a0", "ab/c/d", "b", "Z", "é", "z"]
        keys.remove("a")  # a and a/b together are beyond what every driver holds
        for key in keys:
            await store.put(key, b"")
        in_order = sorted(keys, key=str.encode)
        assert [info.key for info in (await store.list()).objects] == in_order
        for prefix in ("a", "a/", "a.", "ab/c", "ab/c/d", "nothing", "é"):
            page = await store.list(prefix)
            assert [info.key for info in page.objects] == [key for key in in_order if key.startswith(prefix)]
            assert page.next_after is None

    async def test_pages_join_to_the_whole(self, store: ObjectStore) -> None:
        """Whatever the size of a page, no object is missed or doubled; the last page says so."""
        keys = sorted((f"{folder}/{name}" for folder in ("p", "p-q", "q") for name in "abc"), key=str.encode)
        for key in keys:
            await store.put(key, b"")
        for limit in (1, 2, 8, 9, 10):
            assert [info.key for page in await _pages(store, "", limit) for info in page.objects] == keys
        assert [len(page.objects) for page in await _pages(store, "p", 3)] == [3, 3]
        assert (await store.list("p/", after="p/b")).objects[0].key == "p/c"
        for limit in (0, -1, 1001):
            with pytest.raises(InvalidArgument):
                await store.list(limit=limit)

    async def test_a_bound_on_reading(self, store: ObjectStore) -> None:
        """A reader that wants no more than so many bytes is told instead of filled."""
        await store.put("k", b"12345")
        assert await read_whole(store, "k", limit_bytes=5) == b"12345"
        with pytest.raises(ObjectTooLarge):
            await read_whole(store, "k", limit_bytes=4)


async def _pages(store: ObjectStore, prefix: str, limit: int) -> list[ObjectPage]:
    pages = [await store.list(prefix, limit=limit)]
    while (after := pages[-1].next_after) is not None:
        pages.append(await store.list(prefix, after=after, limit=limit))
    return pages
