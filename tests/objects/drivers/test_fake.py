"""The store in memory keeps the contract, counts, and fails on request."""

import pytest

from iriscw.objects.drivers.fake import FakeObjectStore
from iriscw.objects.ports import ObjectStore, StoreUnreachable
from iriscw.testing.conformance.object_store import ObjectStoreConformance
from raised import that


class TestFakeObjectStore(ObjectStoreConformance):
    """The public suite."""

    @pytest.fixture
    def store(self) -> ObjectStore:
        return FakeObjectStore()


async def test_scripted_errors_strike_once_each_before_or_after_the_effect() -> None:
    """A write that failed may have happened or not; the test chooses."""
    store = FakeObjectStore()
    store.fail_next("put", StoreUnreachable("before"))
    store.fail_next("put", StoreUnreachable("after"), after_effect=True)
    with pytest.raises(StoreUnreachable, check=that(names="before")):
        await store.put("k", b"1")
    assert store.contents() == {}
    with pytest.raises(StoreUnreachable, check=that(names="after")):
        await store.put("k", b"2")
    assert store.contents() == {"k": b"2"}
    await store.put("k", b"3")
    assert store.calls == {"put": 3}
