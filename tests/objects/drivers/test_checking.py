"""A store is asked once whether it can be used."""

import logging

import pytest
from s3_stage import KEY, staged

from iriscw.objects.drivers.checking import PROBE, ConditionsIgnored, check_store
from iriscw.objects.drivers.failure import NoStoreCredentials, NoSuchBucket
from iriscw.objects.drivers.fake import FakeObjectStore
from iriscw.objects.ports import StoreAccessDenied, StoreUnreachable
from raised import that

pytestmark = pytest.mark.usefixtures("credentials")


async def test_one_request_does() -> None:
    """Where nothing is to be written."""
    store = FakeObjectStore()
    await check_store(store)
    assert store.calls == {"list": 1}


async def test_writing_is_tried() -> None:
    """And leaves nothing."""
    store = FakeObjectStore()
    await check_store(store, writes=True)
    assert store.contents() == {}
    assert store.calls == {"list": 1, "put": 2, "delete": 1}


async def test_a_store_that_ignores_conditions() -> None:
    """Is refused: two writers of a journal would both win."""

    class Careless(FakeObjectStore):
        async def put(self, key, data, *, condition=None):
            assert key.startswith(PROBE)
            return await super().put(key, data)

    store = Careless()
    with pytest.raises(ConditionsIgnored):
        await check_store(store, writes=True, patience_s=60)
    assert store.contents() == {}


async def test_a_new_key_is_waited_for(caplog) -> None:
    """CoreWeave's work after seconds; the log says why nothing goes on."""
    store = FakeObjectStore()
    store.fail_next("list", StoreAccessDenied("new"))
    store.fail_next("list", StoreUnreachable("silent"))
    with caplog.at_level(logging.WARNING):
        await check_store(store, patience_s=60, again_s=0.001)
    assert store.calls["list"] == 3
    assert "cannot be used yet" in caplog.text
    store.fail_next("list", StoreAccessDenied("still"))
    with pytest.raises(StoreAccessDenied, check=that(names="still")):
        await check_store(store)


async def test_a_real_client_with_a_new_key() -> None:
    """The same, over HTTP."""
    async with staged() as stage:
        stage.storage.deny_key(KEY, stage.surroundings.now + 100_000_000)
        await check_store(stage.store(), writes=True, patience_s=30, again_s=0.02)
        assert stage.bodies() == {}


async def test_what_is_not_waited_for(monkeypatch) -> None:
    """No bucket, and no credentials."""
    async with staged() as stage:
        with pytest.raises(NoSuchBucket):
            await check_store(stage.store(bucket="another"), patience_s=60)
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        with pytest.raises(NoStoreCredentials):
            await check_store(stage.store(), patience_s=60)
