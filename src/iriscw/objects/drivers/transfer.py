"""Whole objects to and from memory, with a bound: for small things such as manifests and bundles' indexes."""

from __future__ import annotations

from iriscw._errors import OperationError
from iriscw.objects.ports import ObjectStore


class ObjectTooLarge(OperationError):
    """The object is longer than the reader is ready to take; nothing of it was kept."""


async def read_whole(store: ObjectStore, key: str, *, limit_bytes: int) -> bytes:
    """Read an object of at most ``limit_bytes``.

    Raises:
        ObjectTooLarge: it is longer; none of its bytes were read.
        ObjectNotFound, StoreAccessDenied, StoreUnreachable: see ``ObjectStore.get``.
    """
    async with store.get(key) as reading:
        if reading.info.size_bytes > limit_bytes:
            raise ObjectTooLarge(f"{key} has {reading.info.size_bytes} bytes, more than {limit_bytes}")
        return b"".join([chunk async for chunk in reading])
