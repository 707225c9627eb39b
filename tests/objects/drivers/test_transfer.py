"""Whole objects with a bound: the conformance suite covers the bound on every driver."""

import pytest

from iriscw.objects.drivers.fake import FakeObjectStore
from iriscw.objects.drivers.transfer import ObjectTooLarge, read_whole
from iriscw.objects.ports import ObjectNotFound
from raised import that


async def test_a_long_object_is_not_read() -> None:
    """The refusal names both lengths; absence stays absence."""
    store = FakeObjectStore()
    await store.put("k", b"12345")
    with pytest.raises(ObjectTooLarge, check=that(comes_from="transfer.read_whole", names=("5", "4"))):
        await read_whole(store, "k", limit_bytes=4)
    with pytest.raises(ObjectNotFound):
        await read_whole(store, "nothing", limit_bytes=4)
