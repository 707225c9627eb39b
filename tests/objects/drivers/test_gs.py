"""Objects in a bucket of Google's: the contract, over HTTP to a simulated service; what becomes of failures."""

import asyncio
import ssl

import anyio
import attrs
import pytest
import trustme
from gs_stage import BUCKET, KEY, QUICK, Stage, staged

from iriscw.objects.drivers.failure import NoSuchBucket
from iriscw.objects.drivers.gs import GsObjectStore
from iriscw.objects.drivers.gs_place import GsPlace
from iriscw.objects.drivers.opening import open_store
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
from iriscw_sims.objects.rules import GOOGLE, KIB
from raised import that

LONG = bytes(range(256)) * 2600
"""Three chunks."""


class TestGoogle(ObjectStoreConformance):
    """As who has a key: each request shows a token."""

    @pytest.fixture
    async def store(self, tmp_path):
        async with staged(anonymous="") as stage:
            yield stage.signed(tmp_path / "credentials.json", prefix="some/where/")


@pytest.fixture
async def stage():
    async with staged() as stage:
        yield stage


def do(stage, operation):
    """Let somebody else do something."""
    assert stage.storage.handle(Request(BUCKET, operation, KEY), stage.surroundings.now).ok


def unfinished(stage):
    """Return how many uploads are neither over nor given up."""
    return len(stage.storage.buckets[BUCKET].resumables)


# Writes whose answers are lost


@pytest.mark.parametrize("data", [b"mine", LONG])
@pytest.mark.parametrize("point", ["object reply lost", "object done and in trouble"])
async def test_a_new_object_whose_answer_is_lost(stage: Stage, data, point) -> None:
    """Is found to be ours when the second try is refused, or told by the upload that made it."""
    requests = 1 if data is not LONG else 4  # begin, three chunks
    stage.surroundings.script(point, *[False] * (requests - 1), True)
    store = stage.store()
    info = await store.put("k", data, condition=IfAbsent())
    assert await store.stat("k") == info
    assert stage.bodies() == {"k": data}
    assert unfinished(stage) == 0


async def test_a_changed_object_whose_answer_is_lost(stage: Stage) -> None:
    """As with a new one: the generation that was named is gone because of us."""
    store = stage.store()
    old = await store.put("k", b"old")
    stage.surroundings.script("object reply lost", True)
    info = await store.put("k", b"new", condition=IfMatch(old.etag))
    assert await store.stat("k") == info != old
    assert stage.bodies() == {"k": b"new"}


async def test_the_same_content_of_another_writer(stage: Stage) -> None:
    """Is not ours: only one of two writers has made the object."""
    do(stage, PutObject("k", Content(b"same")))
    with pytest.raises(ObjectExists):
        await stage.store().put("k", b"same", condition=IfAbsent())


@pytest.mark.parametrize("condition", [IfAbsent(), IfMatch("7")])
async def test_a_refusal_after_a_doubt(stage: Stage, condition) -> None:
    """Is not told as "nothing was written": an earlier try may have been there, or may still come."""
    store = stage.store()
    do(stage, PutObject("k", Content(b"theirs")))
    stage.surroundings.script("object request lost", True)
    with pytest.raises(StoreUnreachable, check=that(comes_from="gs_connection._check")):
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
    assert stage.asked() == ["POST", "DELETE"]
    assert stage.bodies() == {}


async def test_nothing_below_repeats_a_request(stage: Stage) -> None:
    """A connection that was kept and breaks under a DELETE is not replaced in silence, as aiohttp does by itself."""
    store = stage.store()
    for number in range(3):
        await store.put(f"{number}", b"x")
    stage.surroundings.script("object reply lost", True)
    with pytest.raises(StoreUnreachable):
        await store.delete("1")
    assert stage.asked() == ["POST"] * 3 + ["DELETE"]


async def test_a_conditional_delete_in_doubt(stage: Stage) -> None:
    """Whether it was ours that deleted it cannot be known."""
    store = stage.store()
    info = await store.put("k", b"x")
    stage.surroundings.script("object reply lost", True)
    with pytest.raises(StoreUnreachable):
        await store.delete("k", condition=IfMatch(info.etag))
    with pytest.raises(ObjectChanged):
        await store.delete("k", condition=IfMatch(info.etag))


@pytest.mark.parametrize("etag", ["0", "", "abc", "-1", "1" * 20])
async def test_a_tag_that_is_no_generation(stage: Stage, etag) -> None:
    """No object has it; 0 would say "if there is none", which is the opposite of what was meant."""
    store = stage.store()
    with pytest.raises(ObjectChanged):
        await store.put("k", b"x", condition=IfMatch(etag))
    with pytest.raises(ObjectChanged):
        await store.delete("k", condition=IfMatch(etag))
    assert stage.asked() == []


# What is repeated


@pytest.mark.parametrize("point", ["object throttled", "object storage in trouble"])
async def test_a_busy_server_is_asked_again(stage: Stage, point) -> None:
    """A read whatever the server's trouble was; and so is a write with a condition."""
    store = stage.store()
    stage.surroundings.script(point, True, True)
    await store.put("k", b"x", condition=IfAbsent())
    stage.surroundings.script(point, True, True)
    assert await read_whole(store, "k", limit_bytes=10) == b"x"
    assert stage.asked() == ["POST"] * 3 + ["GET"] * 3


async def test_a_plain_write_that_was_not_begun(stage: Stage) -> None:
    """Is asked for again: 429 is said before anything is done. 503 is not: it may have been done."""
    store = stage.store()
    stage.surroundings.script("object throttled", True, True)
    await store.put("k", b"x")
    stage.surroundings.script("object storage in trouble", True)
    with pytest.raises(StoreUnreachable):
        await store.put("k", b"y")
    assert stage.asked() == ["POST"] * 4


async def test_patience_has_an_end(stage: Stage) -> None:
    """After so many tries the store counts as unreachable."""
    stage.surroundings.rates["object throttled"] = 1000
    with pytest.raises(StoreUnreachable, check=that(comes_from="gs_upload._settled", names="429")):
        await stage.store().put("k", b"x")
    assert stage.asked() == ["POST"] * QUICK.attempts


# What refusals are called


async def test_refusals(stage: Stage) -> None:
    """A key that is denied, and a bucket that is not there."""
    other = stage.store(bucket="another")
    for call in (other.stat("k"), other.list(), other.put("k", b"x"), other.put("k", LONG), other.delete("k")):
        with pytest.raises(NoSuchBucket):
            await call
    with pytest.raises(NoSuchBucket):
        async with other.get("k"):
            pass
    stage.storage.remove_key(KEY)
    store = stage.store()
    for call in (store.stat("k"), store.list(), store.put("k", b"x"), store.put("k", LONG), store.delete("k")):
        with pytest.raises(StoreAccessDenied):
            await call


async def test_a_missing_bucket_is_no_absence(stage: Stage) -> None:
    """INV-C11: Google's 404 does not say what is missing, so the bucket is looked for before an object is absent."""
    with pytest.raises(ObjectNotFound):
        await stage.store().stat("k")
    assert stage.asked() == ["GET", "GET"]
    stage.surroundings.script("object key denied", False, True)
    with pytest.raises(StoreAccessDenied):
        await stage.store().stat("k")


async def test_a_full_store() -> None:
    """Says so, and nothing is left."""
    async with staged(attrs.evolve(GOOGLE, capacity_bytes=100 * KIB)) as stage:
        for data in (LONG, bytes(200 * KIB)):
            with pytest.raises(StoreFull):
                await stage.store().put("k", data)
        assert (stage.storage.stored_bytes, unfinished(stage)) == (0, 0)


async def test_nobody_there() -> None:
    """Is silence, whatever was asked."""
    store = GsObjectStore(GsPlace(BUCKET, "", "http://127.0.0.1:9", anonymous=True), QUICK)
    for call in (store.stat("k"), store.list(), store.put("k", b"x"), store.put("k", LONG), store.delete("k")):
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
    place = GsPlace(BUCKET, "", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", anonymous=True)
    store = GsObjectStore(place, attrs.evolve(QUICK, silence_s=0.2, attempts=2, part_bytes=4 << 20))
    with anyio.fail_after(60):
        for call in (store.put("k", bytes(size), condition=IfAbsent()), store.stat("k")):
            with pytest.raises(StoreUnreachable):
                await call
    await store.aclose()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        b'HTTP/1.1 200 OK\r\nContent-Length: 31\r\n\r\n{"generation": "0", "size": "1"}',
        b"HTTP/1.1 302 Found\r\nLocation: /followed\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_answers_of_something_else(answer) -> None:
    """A portal's page, a redirect, nonsense: none of it is absence, an object, or followed."""
    asked = []

    async def say(reader, writer):
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(say, "127.0.0.1", 0)
    place = GsPlace(BUCKET, "", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", anonymous=True)
    store = GsObjectStore(place, attrs.evolve(QUICK, attempts=1))

    async def read():
        async with store.get("k"):
            pass

    for call in (store.stat("k"), read(), store.put("k", LONG)):
        with pytest.raises((StoreUnreachable, StoreAccessDenied)):
            await call
    assert not any(b"/followed" in each for each in asked)
    await store.aclose()
    server.close()
    await server.wait_closed()


# Reading


async def test_a_torn_body_is_continued(stage: Stage) -> None:
    """On another connection, from where it broke off."""
    store = stage.store()
    await store.put("k", LONG)
    stage.surroundings.script("object download torn", True, True)
    assert await read_whole(store, "k", limit_bytes=len(LONG)) == LONG
    async with store.get("k", start=1000, end=350_000) as reading:
        stage.surroundings.script("object download torn", True)
        assert b"".join([chunk async for chunk in reading]) == LONG[1000:350_000]
    assert stage.asked().count("GET") >= 4


@pytest.mark.parametrize("then", [PutObject("k", Content(LONG[::-1])), DeleteObject("k")])
async def test_a_torn_body_of_a_version_that_is_gone(stage: Stage, then) -> None:
    """Is not continued with another one."""
    store = stage.store()
    await store.put("k", LONG)
    stage.surroundings.script("object download torn", True)
    async with store.get("k") as reading:
        do(stage, then)
        with pytest.raises(StoreUnreachable, check=that(comes_from="gs_reading.GsReading._rest")):
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


async def test_over_tls(monkeypatch, tmp_path) -> None:
    """The certificate must be known."""
    authority = trustme.CA()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    async with staged(tls=tls) as stage:
        endpoint = f"https://127.0.0.1:{stage.server.port}"
        with pytest.raises(
            StoreUnreachable, check=that(comes_from="gs.GsObjectStore._page", names="CERTIFICATE_VERIFY_FAILED")
        ):
            await stage.store(endpoint=endpoint).list()
        file = tmp_path / "ca.pem"
        authority.cert_pem.write_to_path(str(file))
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        await stage.store(endpoint=endpoint).put("k", LONG)
        assert stage.bodies() == {"k": LONG}


async def test_through_a_proxy(stage: Stage, monkeypatch) -> None:
    """That the environment names, unless it excepts the host."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with pytest.raises(StoreUnreachable, check=that(comes_from="gs.GsObjectStore._page", names="127.0.0.1:9")):
        await stage.store(attrs.evolve(QUICK, attempts=1), endpoint="http://192.0.2.1").list()
    await stage.store().list()  # this machine is reached directly


async def test_a_closed_store(stage: Stage) -> None:
    """Is unreachable, whether it was ever used or not."""
    for use in (True, False):
        store = stage.store()
        if use:
            await store.list()
        await store.aclose()
        await store.aclose()
        with pytest.raises(StoreUnreachable, check=that(comes_from="gs_connection.GsConnection._opened")):
            await store.stat("k")


async def test_a_cancelled_request_leaves_the_connection_usable(stage: Stage) -> None:
    """Its place comes free, and the next request is answered."""
    store = stage.store(attrs.evolve(QUICK, requests=1, readings=1))
    await store.put("k", LONG)
    for _ in range(5):
        with anyio.move_on_after(0.003):
            await store.put("k", LONG[:300_000])
        with anyio.move_on_after(0.003):
            async with store.get("k") as reading:
                async for _chunk in reading:
                    pass
    assert (await store.stat("k")).size_bytes in {len(LONG), 300_000}


async def test_by_its_url(stage: Stage, monkeypatch) -> None:
    """The environment names an emulator, to which no token is shown."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"127.0.0.1:{stage.server.port}")
    store = open_store(f"gs://{BUCKET}/some/where")
    assert repr(store) == f"GsObjectStore('gs://{BUCKET}/some/where/ at http://127.0.0.1:{stage.server.port}')"
    await store.put("k", b"x")
    await store.aclose()
    assert stage.bodies() == {"some/where/k": b"x"}
    assert all(not each.header("authorization") for each in stage.server.served)
