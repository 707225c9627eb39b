"""Object stores, used as the controller uses them."""

import anyio
import pytest
from deploy_world import installed

from iriscw.doctor import storage
from iriscw.doctor.findings import Health
from iriscw.objects.drivers.errors import InvalidStoreUrl, StoreExtraMissing
from iriscw.objects.drivers.failure import NoStoreCredentials
from iriscw.objects.drivers.fake import FakeObjectStore
from iriscw.objects.ports import StoreAccessDenied, StoreFull, StoreUnreachable

URL = "s3://bucket/prefix"


def controller(**more):
    """Return a controller's configuration."""
    return installed(**more).config.controller


class Careless(FakeObjectStore):
    """Writes whatever the condition says, as some services do."""

    async def put(self, key, data, *, condition=None):
        """Write."""
        return await super().put(key, data)


class Refusing(FakeObjectStore):
    """Answers a conditional write with an error, as others do."""

    async def put(self, key, data, *, condition=None):
        """Write, unless there is a condition."""
        if condition is not None:
            raise StoreUnreachable("NotImplemented: a header you provided")
        return await super().put(key, data)


class Forgetful(FakeObjectStore):
    """Keeps what is deleted."""

    async def delete(self, key, *, condition=None):
        """Do nothing."""


async def test_a_file_store_is_written_read_and_deleted(tmp_path):
    """Nothing is left in it."""
    found = await storage.look_at_store(f"file://{tmp_path}", "bundle_prefix")
    assert found.verdict is Health.OK, found
    assert "written once only" in found.found
    assert [each for each in tmp_path.rglob("*") if each.is_file() and each.stat().st_size] == []


async def test_each_store_is_tried_once(tmp_path):
    """Both keys may name the same; without any there is nothing to try."""
    url = f"file://{tmp_path}"
    store = FakeObjectStore()
    settings = controller(bundle_prefix=url, replica_prefix=url, durability="replicated")
    (found,) = await storage.look_at_stores(settings, lambda _url: store)
    assert "bundle_prefix and replica_prefix" in found.found
    assert store.calls["aclose"] == 1
    settings = controller(bundle_prefix=url, replica_prefix=URL, durability="replicated")
    assert len(await storage.look_at_stores(settings, lambda _url: FakeObjectStore())) == 2
    (found,) = await storage.look_at_stores(controller(), lambda _url: store, repository=URL)
    assert (found.check, found.verdict) == (f"storage {URL}", Health.OK)
    (found,) = await storage.look_at_stores(controller())
    assert (found.verdict, "none is configured" in found.found) == (Health.OK, True)


@pytest.mark.parametrize("error", [NoStoreCredentials("none"), StoreAccessDenied("denied")])
async def test_credentials_for_a_repository_may_be_the_agents_alone(error):
    """Then it cannot be tried from here, which is no fault; for what the controller uses it is one."""

    def opener(_url):
        raise error

    (found,) = await storage.look_at_stores(controller(), opener, repository=URL)
    assert found.verdict is Health.WARNING
    (found,) = await storage.look_at_stores(controller(bundle_prefix=URL), opener, repository=URL)
    assert found.verdict is Health.WRONG


@pytest.mark.parametrize("store", [Careless(), Refusing()])
async def test_a_store_without_conditional_writes_is_wrong(store):
    """Whether it ignores the condition or refuses it: that is named, and nothing is left."""
    found = await storage.look_at_store(URL, "replica_prefix", lambda _url: store)
    assert (found.verdict, "conditional writes are not supported" in found.found) == (Health.WRONG, True)
    assert store.contents() == {}


async def test_a_store_that_keeps_what_is_deleted_is_wrong():
    """Its costs would grow for ever."""
    found = await storage.look_at_store(URL, "replica_prefix", lambda _url: Forgetful())
    assert (found.verdict, "is there after it was deleted" in found.found) == (Health.WRONG, True)


@pytest.mark.parametrize(
    ("error", "says", "advises"),
    [
        (StoreAccessDenied("no key"), "access is denied: no key", "credentials"),
        (StoreUnreachable("no route"), "it does not answer: no route", "addressing"),
        (StoreFull("full"), "it has no room: full", "room"),
        (OSError("odd"), "OSError: odd", "replica_prefix"),
    ],
)
@pytest.mark.parametrize("method", ["put", "get", "delete"])
async def test_what_failed_is_named(error, says, advises, method):
    """Credentials, address and room are different troubles; whatever failed, nothing is left."""
    store = FakeObjectStore()
    for _ in range(2 if method == "put" else 1):
        store.fail_next(method, error)
    found = await storage.look_at_store(URL, "replica_prefix", lambda _url: store)
    assert (found.verdict, found.found, advises in found.advice) == (Health.WRONG, says, True)
    assert store.contents() == {}


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (NoStoreCredentials("none are known"), "there are no credentials here: none are known"),
        (StoreAccessDenied("not you"), "access is denied: not you"),
    ],
)
async def test_what_was_never_let_in_left_nothing(error, says):
    """So nothing is deleted, and the advice is about credentials, not about the store."""
    store = FakeObjectStore()
    for method in ("put", "put", "delete"):
        store.fail_next(method, error)
    found = await storage.look_at_store(URL, "bundle_prefix", lambda _url: store)
    assert (found.verdict, found.found, "AWS_" in found.advice) == (Health.WRONG, says, True)
    assert store.calls["delete"] == 0


async def test_an_object_that_may_be_left_is_named():
    """If it cannot be deleted after a failure."""
    store = FakeObjectStore()
    store.fail_next("get", StoreUnreachable("broke off"))
    store.fail_next("delete", StoreAccessDenied("not you"))
    found = await storage.look_at_store(URL, "replica_prefix", lambda _url: store)
    (left,) = store.contents()
    assert found.verdict is Health.WRONG
    assert f"{left} may be left there" in found.found
    assert left.startswith("doctor/")


async def test_a_write_whose_answer_is_lost_leaves_nothing():
    """It may have happened."""
    store = FakeObjectStore()
    store.fail_next("put", StoreUnreachable("lost"), after_effect=True)
    store.fail_next("put", StoreUnreachable("lost"), after_effect=True)
    assert (await storage.look_at_store(URL, "k", lambda _url: store)).verdict is Health.WRONG
    assert store.contents() == {}


async def test_a_store_that_is_silent_is_given_up(monkeypatch):
    """After a while; it is closed all the same."""
    monkeypatch.setattr(storage, "STORE_S", 0.02)

    class Silent(FakeObjectStore):
        async def put(self, key, data, *, condition=None):
            await anyio.sleep_forever()

    store = Silent()
    found = await storage.look_at_store(URL, "k", lambda _url: store)
    assert (found.verdict, found.found.startswith("no answer within")) == (Health.WRONG, True)
    assert store.calls["aclose"] == 1


async def test_interrupted_it_leaves_nothing():
    """Ctrl-C between writing and deleting."""
    store = FakeObjectStore()
    begun = anyio.Event()

    class Slow(FakeObjectStore):
        async def delete(self, key, *, condition=None):
            if not begun.is_set():
                begun.set()
                await anyio.sleep_forever()
            await super().delete(key)

    store = Slow()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(storage.look_at_store, URL, "k", lambda _url: store)
        await begun.wait()
        tasks.cancel_scope.cancel()
    assert store.contents() == {}
    assert store.calls["put"] == 2


@pytest.mark.parametrize(
    ("url", "verdict", "says"),
    [
        ("nowhere://x/y", Health.WRONG, "no driver takes"),
        ("file://host/x", Health.WRONG, "is not file:///absolute/path"),
        ("file:///no/such/folder", Health.WARNING, "there is no such folder on this machine"),
    ],
)
async def test_what_cannot_be_opened_is_told(url, verdict, says):
    """A folder may be on another machine, where it is fine."""
    found = await storage.look_at_store(url, "bundle_prefix")
    assert (found.verdict, says in found.found) == (verdict, True)
    assert found.advice


async def test_a_folder_that_may_not_be_used_may_be_fine_elsewhere(tmp_path):
    """It is the pods' that counts; and none is made here."""

    def opener(url):
        raise StoreAccessDenied("not yours")

    found = await storage.look_at_store(f"file://{tmp_path}", "bundle_prefix", opener)
    assert (found.verdict, "not yours" in found.found) == (Health.WARNING, True)
    await storage.look_at_store(f"file://{tmp_path}/absent", "bundle_prefix")
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize(
    ("error", "advises"),
    [
        (StoreAccessDenied("no key"), "GOOGLE_APPLICATION_CREDENTIALS"),
        (StoreUnreachable("no route"), "STORAGE_EMULATOR_HOST"),
        (StoreExtraMissing("pip install it"), "install"),
    ],
)
async def test_advice_is_the_services(error, advises):
    """Google's store has its own variables."""

    def opener(url):
        raise error

    found = await storage.look_at_store("gs://bucket", "bundle_prefix", opener)
    assert (found.verdict, advises in found.advice) == (Health.WRONG, True)


async def test_a_bad_address_says_how_one_is_written():
    """The opener refuses it before anything is asked."""

    def opener(url):
        raise InvalidStoreUrl(f"{url} is none")

    found = await storage.look_at_store("s3:x", "bundle_prefix", opener)
    assert found.advice == "write bundle_prefix as s3://BUCKET/PREFIX or gs://BUCKET/PREFIX"
