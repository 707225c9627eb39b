"""Objects in a bucket: the contract, over HTTP to a simulated service; what becomes of failures; what is sent."""

import asyncio
import hashlib
import ssl

import anyio
import attrs
import pytest
import trustme
from botocore.auth import S3SigV4Auth
from s3_stage import AWS_SMALL, BUCKET, COREWEAVE_SMALL, KEY, QUICK, Stage, staged

from iriscw.objects.drivers import s3_client
from iriscw.objects.drivers.failure import NoStoreCredentials, NoSuchBucket
from iriscw.objects.drivers.opening import open_store, opener
from iriscw.objects.drivers.s3 import S3ObjectStore
from iriscw.objects.drivers.s3_body import HASHED_AT_ONCE_BYTES, HashedBody
from iriscw.objects.drivers.s3_place import S3Place
from iriscw.objects.drivers.transfer import read_whole
from iriscw.objects.ports import (
    IfAbsent,
    IfMatch,
    InvalidObjectKey,
    ObjectChanged,
    ObjectExists,
    ObjectNotFound,
    StoreAccessDenied,
    StoreFull,
    StoreUnreachable,
)
from iriscw.testing.conformance.object_store import ObjectStoreConformance
from iriscw_sims.objects.content import Content
from iriscw_sims.objects.messages import DeleteObject, PutObject, Request
from iriscw_sims.objects.rules import KIB, Etags
from raised import that

pytestmark = pytest.mark.usefixtures("credentials")

LONG = bytes(range(256)) * 600
"""Three parts."""


class TestCoreWeave(ObjectStoreConformance):
    """The bucket's name in the host."""

    @pytest.fixture
    async def store(self):
        async with staged(COREWEAVE_SMALL) as stage:
            yield stage.store()


@pytest.mark.slow
class TestPathStyle(ObjectStoreConformance):
    """The bucket's name in the path, keys below a prefix, and another entity tag after each write."""

    @pytest.fixture
    async def store(self):
        async with staged(attrs.evolve(AWS_SMALL, etags=Etags.WRITE)) as stage:
            yield stage.store(prefix="some/where/")


@pytest.fixture
async def stage():
    async with staged() as stage:
        yield stage


def do(stage, operation):
    """Let somebody else do something."""
    assert stage.storage.handle(Request(BUCKET, operation, KEY), stage.surroundings.now).ok


def unfinished(stage):
    """Return how many uploads are neither completed nor aborted."""
    return len(stage.storage.buckets[BUCKET].uploads)


# Writes whose answers are lost


@pytest.mark.parametrize("data", [b"mine", LONG])
@pytest.mark.parametrize("point", ["object reply lost", "object done and in trouble"])
async def test_a_new_object_whose_answer_is_lost(stage: Stage, data, point) -> None:
    """Is found to be ours when the second try is refused, and is told as written."""
    store = stage.store()
    requests = 1 if data is not LONG else 5  # create, three parts, complete
    stage.surroundings.script(point, *[False] * (requests - 1), True)
    info = await store.put("k", data, condition=IfAbsent())
    assert await store.stat("k") == info
    assert stage.bodies() == {"k": data}
    assert unfinished(stage) == 0


async def test_a_changed_object_whose_answer_is_lost(stage: Stage) -> None:
    """As with a new one: the entity tag that was named is gone because of us."""
    store = stage.store()
    old = await store.put("k", b"old")
    stage.surroundings.script("object reply lost", True)
    info = await store.put("k", b"new", condition=IfMatch(old.etag))
    assert await store.stat("k") == info != old
    assert stage.bodies() == {"k": b"new"}


async def test_the_same_content_of_another_writer(stage: Stage) -> None:
    """Is not ours, although its entity tag is the same: only one of two writers has made the object."""
    do(stage, PutObject("k", Content(b"same")))
    with pytest.raises(ObjectExists):
        await stage.store().put("k", b"same", condition=IfAbsent())


@pytest.mark.parametrize("condition", [IfAbsent(), IfMatch("other")])
async def test_a_refusal_after_a_doubt(stage: Stage, condition) -> None:
    """Is not told as "nothing was written": an earlier try may have been there, or may still come."""
    store = stage.store()
    do(stage, PutObject("k", Content(b"theirs")))
    stage.surroundings.script("object request lost", True)
    with pytest.raises(StoreUnreachable, check=that(comes_from="s3_connection.S3Connection._once")):
        await store.put("k", b"ours", condition=condition)
    with pytest.raises(ObjectExists if condition == IfAbsent() else ObjectChanged):
        await store.put("k", b"ours", condition=condition)


async def test_a_plain_write_is_not_repeated_in_doubt(stage: Stage) -> None:
    """A late first try would undo what others write after the second: the caller hears of the doubt."""
    store = stage.store()
    stage.surroundings.script("object reply lost", True)
    with pytest.raises(StoreUnreachable):
        await store.put("k", b"x")
    stage.surroundings.script("object reply lost", True)
    with pytest.raises(StoreUnreachable):
        await store.delete("k")
    assert stage.asked() == ["PUT", "DELETE"]
    assert stage.bodies() == {}


async def test_nothing_below_repeats_a_request(stage: Stage) -> None:
    """A connection that was kept and breaks under a PUT is not replaced in silence, as aiohttp does by itself."""
    store = stage.store()
    for number in range(3):
        await store.put(f"{number}", b"x")
    stage.surroundings.script("object reply lost", True)
    with pytest.raises(StoreUnreachable):
        await store.put("k", b"x")
    assert stage.asked() == ["PUT"] * 4


async def test_a_conditional_delete_in_doubt(stage: Stage) -> None:
    """Whether it was ours that deleted it cannot be known."""
    store = stage.store()
    info = await store.put("k", b"x")
    stage.surroundings.script("object reply lost", True)
    with pytest.raises(StoreUnreachable):
        await store.delete("k", condition=IfMatch(info.etag))
    with pytest.raises(ObjectChanged):
        await store.delete("k", condition=IfMatch(info.etag))


# What is repeated


@pytest.mark.parametrize("point", ["object throttled", "object storage in trouble"])
async def test_a_busy_server_is_asked_again(stage: Stage, point) -> None:
    """A read whatever the server's trouble was; and so is a write with a condition."""
    store = stage.store()
    stage.surroundings.script(point, True, True)
    await store.put("k", b"x", condition=IfAbsent())
    stage.surroundings.script(point, True, True)
    assert await read_whole(store, "k", limit_bytes=10) == b"x"
    assert stage.asked() == ["PUT"] * 3 + ["GET"] * 3


async def test_a_plain_write_that_was_not_begun(stage: Stage) -> None:
    """Is asked for again: "slow down" is said before anything is done."""
    stage.surroundings.script("object throttled", True, True)
    await stage.store().put("k", b"x")
    assert stage.asked() == ["PUT"] * 3


async def test_another_write_in_the_way(stage: Stage) -> None:
    """409 has changed nothing, and the condition decides the next time."""
    store = stage.store()
    stage.surroundings.script("object write conflict", True, True)
    await store.put("k", b"x", condition=IfAbsent())
    assert stage.asked() == ["PUT"] * 3


async def test_patience_has_an_end(stage: Stage) -> None:
    """After so many tries the store counts as unreachable."""
    stage.surroundings.rates["object throttled"] = 1000
    with pytest.raises(StoreUnreachable, check=that(names="SlowDown")):
        await stage.store().put("k", b"x")
    assert stage.asked() == ["PUT"] * QUICK.attempts


# What refusals are called


async def test_credentials_that_are_not_there(stage: Stage, monkeypatch) -> None:
    """Have an error of their own, and nothing is sent."""
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(NoStoreCredentials):
        await stage.store().list()
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(NoStoreCredentials, check=that(names="nobody")):
        await stage.store().list()
    assert stage.asked() == []


async def test_a_shared_credentials_file(stage: Stage, monkeypatch, tmp_path) -> None:
    """Is read where the environment names no key, and so is a profile in it."""
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    file = tmp_path / "credentials"
    file.write_text(f"[coreweave]\naws_access_key_id = {KEY}\naws_secret_access_key = x\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_PROFILE", "coreweave")
    await stage.store().put("k", b"x")


async def test_keys_that_are_replaced(stage: Stage, monkeypatch, tmp_path) -> None:
    """Are read anew when the old ones are refused; all requests of that moment go on with them."""
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    file.write_text(f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = x\n")
    store = stage.store()
    await store.put("k", b"x")
    stage.storage.remove_key(KEY)
    stage.storage.add_key("NEWKEY")
    file.write_text("[default]\naws_access_key_id = NEWKEY\naws_secret_access_key = y\n")
    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(store.put, f"{number}", b"x")
    assert len(stage.bodies()) == 5


async def test_keys_that_stay_wrong(stage: Stage, monkeypatch) -> None:
    """Are read again now and then, not with each request."""
    read = []
    renew = s3_client.renew

    async def counted(credentials):
        read.append(credentials)
        await renew(credentials)

    monkeypatch.setattr(s3_client, "renew", counted)
    store = stage.store()
    await store.list()
    stage.storage.remove_key(KEY)
    for _ in range(3):
        with pytest.raises(StoreAccessDenied):
            await store.list()
    assert (len(stage.asked()), len(read)) == (4, 1)


async def test_a_reads_doubt_does_not_stay(stage: Stage) -> None:
    """A refusal after a server's error is a refusal: nothing that was read has to be doubted."""
    store = stage.store()
    await store.put("k", b"x")
    stage.surroundings.script("object done and in trouble", True)
    stage.surroundings.script("object key denied", False, True)
    with pytest.raises(StoreAccessDenied):
        await store.stat("k")


async def test_a_shared_configuration_file(stage: Stage, monkeypatch, tmp_path) -> None:
    """May name CoreWeave's endpoint; then, too, the bucket's name is in the host."""
    file = tmp_path / "config"
    file.write_text(f"[default]\nendpoint_url = http://cwobject.com:{stage.server.port}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(file))
    await stage.store(endpoint="", addressing="").put("k", b"x")
    assert stage.server.served[0].host == f"{BUCKET}.cwobject.com"


async def test_refusals(stage: Stage) -> None:
    """A key that is denied, a bucket that is not there, and a bucket in the path where it may not be."""
    with pytest.raises(NoSuchBucket):
        await stage.store(bucket="another").stat("k")
    with pytest.raises(StoreAccessDenied, check=that(names="PathStyleRequestNotAllowed")):
        await stage.store(endpoint=f"http://127.0.0.1:{stage.server.port}", addressing="path").list()
    stage.storage.remove_key(KEY)
    for call in (lambda store: store.stat("k"), lambda store: store.put("k", b"x"), lambda store: store.delete("k")):
        with pytest.raises(StoreAccessDenied):
            await call(stage.store())


async def test_a_missing_bucket_is_no_absence(stage: Stage) -> None:
    """INV-C11: HEAD's 404 has no code, so a GET is asked before an object is called absent."""
    with pytest.raises(ObjectNotFound):
        await stage.store().stat("k")
    assert stage.asked() == ["HEAD", "GET"]
    with pytest.raises(NoSuchBucket):
        async with stage.store(bucket="another").get("k"):
            pass


async def test_a_full_store() -> None:
    """Says so, and nothing is left."""
    async with staged(attrs.evolve(COREWEAVE_SMALL, capacity_bytes=100 * KIB)) as stage:
        with pytest.raises(StoreFull):
            await stage.store().put("k", LONG)
        assert (stage.storage.stored_bytes, unfinished(stage)) == (0, 0)


async def test_nobody_there() -> None:
    """Is silence, whatever was asked."""
    store = S3ObjectStore(S3Place(BUCKET, "", "http://127.0.0.1:9", "", "path"), QUICK)
    for call in (store.stat("k"), store.list(), store.put("k", b"x"), store.delete("k")):
        with pytest.raises(StoreUnreachable):
            await call
    await store.aclose()


@pytest.mark.parametrize("size", [1, 2 << 20])
async def test_a_server_that_says_nothing(size) -> None:
    """Is given up after a bounded time, with a body and without."""

    async def swallow(reader, writer):
        while await reader.read(1 << 16):
            pass
        writer.close()

    server = await asyncio.start_server(swallow, "127.0.0.1", 0)
    place = S3Place(BUCKET, "", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "", "path")
    store = S3ObjectStore(place, attrs.evolve(QUICK, silence_s=0.2, attempts=2, part_bytes=4 << 20))
    with anyio.fail_after(60):
        for call in (store.put("k", bytes(size), condition=IfAbsent()), store.stat("k")):
            with pytest.raises(StoreUnreachable):
                await call
    await store.aclose()
    server.close()
    await server.wait_closed()


# Writing in parts


async def test_what_fits_goes_in_one_request(stage: Stage) -> None:
    """And one byte more goes in parts."""
    store = stage.store()
    await store.put("fits", bytes(QUICK.part_bytes))
    await store.put("longer", bytes(QUICK.part_bytes + 1))
    assert stage.asked() == ["PUT", "POST", "PUT", "PUT", "POST"]


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
async def test_a_source_that_ends_early(stage: Stage, how) -> None:
    """Leaves no upload behind, although parts of it were sent."""
    sent = anyio.Event()

    async def source():
        yield LONG
        sent.set()
        if how == "fails":
            raise LookupError("the source")
        await anyio.sleep_forever()

    store = stage.store()
    if how == "fails":
        with pytest.raises(LookupError):
            await store.put("k", source())
    else:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.put, "k", source())
            await sent.wait()
            tasks.cancel_scope.cancel()
    assert stage.asked() == ["POST", "PUT", "PUT", "DELETE"]
    assert (unfinished(stage), stage.storage.stored_bytes) == (0, 0)


async def test_an_upload_whose_condition_fails(stage: Stage) -> None:
    """Is aborted; the object that is there is not touched."""
    do(stage, PutObject("k", Content(b"theirs")))
    with pytest.raises(ObjectExists):
        await stage.store().put("k", LONG, condition=IfAbsent())
    assert (unfinished(stage), stage.bodies()) == (0, {"k": b"theirs"})


async def test_a_completion_that_fails_under_200(stage: Stage) -> None:
    """Is a failure, and is repeated: an upload can be completed once only."""
    stage.surroundings.script("object completion fails under 200", True)
    info = await stage.store().put("k", LONG)
    assert info.size_bytes == len(LONG)
    assert stage.bodies() == {"k": LONG}


async def test_an_abort_that_fails_is_logged(stage: Stage, caplog) -> None:
    """What made the write fail is told, and the log says what takes room."""

    async def source():
        yield LONG
        stage.surroundings.rates["object key denied"] = 1000
        raise LookupError

    with pytest.raises(LookupError):
        await stage.store().put("k", source())
    assert "could not be aborted" in caplog.text


# Reading


async def test_a_torn_body_is_continued(stage: Stage) -> None:
    """On another connection, from where it broke off."""
    store = stage.store()
    await store.put("k", LONG)
    stage.surroundings.script("object download torn", True, True)
    assert await read_whole(store, "k", limit_bytes=len(LONG)) == LONG
    async with store.get("k", start=1000, end=150_000) as reading:
        stage.surroundings.script("object download torn", True)
        assert b"".join([chunk async for chunk in reading]) == LONG[1000:150_000]
    assert stage.asked().count("GET") >= 4


@pytest.mark.parametrize("then", [PutObject("k", Content(b"new" * 50_000)), DeleteObject("k")])
async def test_a_torn_body_of_a_version_that_is_gone(stage: Stage, then) -> None:
    """Is not continued with another one."""
    store = stage.store()
    await store.put("k", LONG)
    stage.surroundings.script("object download torn", True)
    async with store.get("k") as reading:
        do(stage, then)
        with pytest.raises(StoreUnreachable, check=that(comes_from="s3_reading.S3Reading._rest")):
            assert LONG.startswith(b"".join([chunk async for chunk in reading]))


async def test_readings_have_their_own_places(stage: Stage) -> None:
    """Open ones do not keep requests out, and one too many is told so instead of waiting for ever."""
    store = stage.store(attrs.evolve(QUICK, readings=2, requests=1, place_s=0.1))
    await store.put("k", LONG)
    async with store.get("k"), store.get("k"):
        await store.stat("k")
        with pytest.raises(ObjectNotFound):
            await store.stat("none")
        with pytest.raises(StoreUnreachable, check=that(comes_from="attempts.Attempts._place", names="reading")):
            async with store.get("k"):
                pass
    async with store.get("k"):
        pass


# The rest


async def test_a_prefix_is_a_world_of_its_own(stage: Stage) -> None:
    """What is beside it, and what others put into it under names that no driver takes, is not seen."""
    store = stage.store(prefix="a/")
    for key in ("a", "a//b", "a/../x", "a/folder/", "ab", "b"):
        do(stage, PutObject(key))
    await store.put("k", b"x")
    page = await store.list(limit=1)
    found = [*page.objects]
    while page.next_after is not None:
        page = await store.list(after=page.next_after, limit=1)
        found += page.objects
    assert [info.key for info in found] == ["k"]
    with pytest.raises(InvalidObjectKey):
        await stage.store(prefix="a/" * 500).put("x" * 30, b"")


async def test_another_region_is_found() -> None:
    """A bucket that says which region it is in is asked there."""
    async with staged(region="eu-real-1") as stage:
        store, body = stage.store(attrs.evolve(QUICK, part_bytes=1 << 20)), b"x" * (HASHED_AT_ONCE_BYTES + 1)
        await store.put("k", body)  # is sent twice
        assert await read_whole(store, "k", limit_bytes=1 << 20) == body


async def test_over_tls(monkeypatch, tmp_path) -> None:
    """The certificate must be known; what is sent is signed as over plain HTTP."""
    authority = trustme.CA()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(f"{BUCKET}.cwobject.com").configure_cert(tls)
    async with staged(tls=tls) as stage:
        with pytest.raises(StoreUnreachable, check=that(names="CERTIFICATE_VERIFY_FAILED")):
            await stage.store().list()
        file = tmp_path / "ca.pem"
        authority.cert_pem.write_to_path(str(file))
        monkeypatch.setenv("AWS_CA_BUNDLE", str(file))
        await stage.store().put("k", b"x")
        assert stage.server.served[0].header("x-amz-content-sha256") == hashlib.sha256(b"x").hexdigest()


@pytest.mark.parametrize("size", [1, HASHED_AT_ONCE_BYTES, HASHED_AT_ONCE_BYTES + 1])
async def test_a_body_has_one_digest(stage: Stage, size) -> None:
    """The signature covers it, whether it is hashed at once or in a thread."""
    store, body = stage.store(attrs.evolve(QUICK, part_bytes=1 << 20)), b"x" * size
    await store.put("k", body)
    (request,) = stage.server.served
    assert request.header("x-amz-content-sha256") == hashlib.sha256(body).hexdigest()
    assert not request.header("content-md5")
    assert stage.bodies() == {"k": body}


async def test_a_long_body_is_not_hashed_on_the_event_loop(stage: Stage, monkeypatch) -> None:
    """The signature takes the digest that a thread has made."""

    def hashed(self, request) -> str:
        raise AssertionError("botocore hashes it")

    monkeypatch.setattr(S3SigV4Auth, "payload", hashed)
    await stage.store(attrs.evolve(QUICK, part_bytes=1 << 20)).put("k", b"x" * (HASHED_AT_ONCE_BYTES + 1))
    assert [*stage.bodies()] == ["k"]


def test_a_body_is_not_copied_to_be_measured() -> None:
    """What it holds is what it was given."""
    data = b"x" * 100
    assert HashedBody(data).getbuffer().obj is data


async def test_a_configuration_cannot_leave_the_digest_out(stage: Stage, monkeypatch, tmp_path) -> None:
    """A body without any digest could be damaged on its way, and nobody would know."""
    file = tmp_path / "config"
    file.write_text("[default]\ns3 =\n  payload_signing_enabled = false\n", encoding="utf-8")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(file))
    await stage.store().put("k", b"x")
    assert stage.server.served[0].header("x-amz-content-sha256") == hashlib.sha256(b"x").hexdigest()


async def test_a_bucket_that_locks_objects() -> None:
    """It wants an MD5 digest: what it refused is sent again with one, and so is all that follows."""
    async with staged(locks=True) as stage:
        store = stage.store()

        async def put(key: str) -> None:
            await store.put(key, b"x" * stage.long_bytes, condition=IfAbsent())

        async with anyio.create_task_group() as tasks:
            for key in "abc":
                tasks.start_soon(put, key)
        refused = len(stage.server.served)
        await store.put("d", b"x")
        assert sorted(stage.bodies()) == ["a", "b", "c", "d"]
        assert stage.server.served[refused].header("content-md5")
        assert len(stage.server.served) == refused + 1


async def test_what_is_sent(stage: Stage) -> None:
    """No waiting for a go-ahead, a signed digest, and one mark for a write, however often it is tried."""
    stage.surroundings.script("object throttled", True)
    store = stage.store()
    await store.put("k", b"x", condition=IfAbsent())
    await store.put("l", b"x")
    marks = [request.header("x-amz-meta-iriscw-write") for request in stage.server.served]
    assert marks[0] == marks[1] != marks[2]
    for request in stage.server.served:
        assert request.header("expect") == ""
        assert request.header("x-amz-content-sha256") == hashlib.sha256(b"x").hexdigest()
        assert not request.header("x-amz-trailer")
        assert not any(name.startswith("x-amz-checksum") for name in request.headers)


async def test_a_closed_store(stage: Stage) -> None:
    """Is unreachable, whether it was ever used or not."""
    for use in (True, False):
        store = stage.store()
        if use:
            await store.list()
        await store.aclose()
        await store.aclose()
        with pytest.raises(StoreUnreachable, check=that(comes_from="s3_connection.S3Connection._opened")):
            await store.stat("k")


async def test_by_its_url(stage: Stage, monkeypatch) -> None:
    """The environment says where; what is shown of a store has no secrets."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://cwobject.com")
    store = open_store(f"s3://{BUCKET}/some/where")
    assert repr(store) == f"S3ObjectStore('s3://{BUCKET}/some/where/ at https://cwobject.com')"
    await store.aclose()


async def test_a_configuration_says_where_and_the_environment_wins(stage: Stage, monkeypatch) -> None:
    """Under whichever of its names."""
    open_below = opener({"AWS_ENDPOINT_URL_S3": "http://cwlota.com"})
    for own, place in ({}, "http://cwlota.com"), ({"AWS_ENDPOINT_URL": "http://mine:9000"}, "http://mine:9000"):
        for name, value in own.items():
            monkeypatch.setenv(name, value)
        store = open_below(f"s3://{BUCKET}/some/where")
        assert repr(store) == f"S3ObjectStore('s3://{BUCKET}/some/where/ at {place}')"
        await store.aclose()
