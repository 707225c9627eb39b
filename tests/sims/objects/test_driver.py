"""The driver on the simulated storage keeps the contract of the port, and gives each trouble its name."""

import anyio
import attrs
import objects_world
import pytest
from objects_world import BUCKET, KEY, SMALL, World

from iriscw._errors import InvalidArgument
from iriscw.objects.ports import (
    IfAbsent,
    IfMatch,
    InvalidRange,
    ObjectChanged,
    ObjectExists,
    ObjectNotFound,
    StoreAccessDenied,
    StoreFull,
    StoreUnreachable,
)
from iriscw.testing.conformance.object_store import ObjectStoreConformance
from iriscw_sims.objects.content import Content, Sized
from iriscw_sims.objects.driver import Directly, SimObjectStore, Through
from iriscw_sims.objects.front import Outcome
from iriscw_sims.objects.messages import (
    AbortMultipartUpload,
    Answer,
    CompleteMultipartUpload,
    CreateMultipartUpload,
    GetObject,
    HeadObject,
    ListObjectsV2,
    ObjectHead,
    PutObject,
    UploadPart,
)
from iriscw_sims.objects.refusals import refusal, told
from iriscw_sims.objects.rules import KIB, Etags
from raised import that


def made(**rules):
    """Return a storage with a bucket."""
    return objects_world.made(attrs.evolve(SMALL, **rules))


class TestTagsOfWrites(ObjectStoreConformance):
    """The public suite, where each write has a tag of its own."""

    @pytest.fixture
    def store(self):
        return SimObjectStore(Directly(made(etags=Etags.WRITE)), BUCKET, KEY)


class TestInParts(ObjectStoreConformance):
    """The public suite, with everything in parts that can be."""

    @pytest.fixture
    def store(self):
        storage = made(etags=Etags.WRITE, least_part_bytes=64 * KIB)
        return SimObjectStore(Directly(storage), BUCKET, KEY, part_bytes=64 * KIB)


class TestTagsOfContents(ObjectStoreConformance):
    """The public suite on S3's usual tags."""

    @pytest.fixture
    def store(self):
        return SimObjectStore(Directly(made()), BUCKET, KEY)

    async def test_a_tag_is_of_the_content(self, store):
        """It is the MD5 of it: two writes of the same cannot be told apart, nor what was there before another."""
        first = await store.put("k", b"one")
        assert await store.put("k", b"one") == first
        assert (await store.put("k", b"two")).etag != first.etag
        await store.put("k", b"one")
        await store.put("k", b"three", condition=IfMatch(first.etag))


class Scripted:
    """A way that answers some operations as scripted, and lets a storage answer all others."""

    def __init__(self, storage, answers=()):
        self.answers = dict(answers)
        self.asked = []
        self._way = Directly(storage)

    async def ask(self, request):
        """Answer."""
        kind = type(request.operation)
        self.asked.append(kind)
        answer = self.answers.get(kind)
        if answer is None:
            return await self._way.ask(request)
        return answer if isinstance(answer, Outcome) else Outcome(told(request.operation, answer))


def scripted(answers=(), part_bytes=4, **rules):
    """Return a store of a scripted way, with the way and its storage."""
    storage = made(least_part_bytes=1, **rules)
    way = Scripted(storage, answers)
    return SimObjectStore(way, BUCKET, KEY, part_bytes=part_bytes), way, storage


async def read(store, key="k", **options):
    """Read all of it."""
    async with store.get(key, **options) as reading:
        return b"".join([chunk async for chunk in reading])


SILENT = Outcome(None)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (SILENT, StoreUnreachable),
        (refusal("SlowDown"), StoreUnreachable),
        (refusal("InternalError"), StoreUnreachable),
        (attrs.evolve(refusal("InternalError"), status=200), StoreUnreachable),
        (refusal("NoSuchBucket"), StoreUnreachable),
        (refusal("NoSuchUpload"), StoreUnreachable),
        (refusal("ConditionalRequestConflict"), StoreUnreachable),
        (refusal("PreconditionFailed"), StoreUnreachable),
        (refusal("AccessDenied"), StoreAccessDenied),
        (refusal("InvalidAccessKeyId"), StoreAccessDenied),
        (Answer(200), StoreUnreachable),
    ],
    ids=lambda value: getattr(value, "code", None),
)
async def test_trouble_has_three_names(answer, error):
    """Whatever is asked: silence and refusal say nothing of what is there."""
    store, way, _ = scripted()
    await store.put("k", b"x")
    way.answers = dict.fromkeys((PutObject, GetObject, ListObjectsV2, CreateMultipartUpload), answer)
    for call in (
        lambda: store.put("k", b"y"),
        lambda: store.put("k", b"longer"),
        lambda: read(store),
        store.list,
    ):
        with pytest.raises(error) as caught:
            await call()
        assert type(caught.value) is error


async def test_a_refused_head_is_asked_again():
    """404 to a HEAD may be a missing bucket: only a GET can tell, and its trouble is trouble."""
    store, way, storage = scripted()
    with pytest.raises(ObjectNotFound):
        await store.stat("k")
    assert way.asked == [HeadObject, GetObject]
    way.answers = {GetObject: refusal("SlowDown")}
    with pytest.raises(StoreUnreachable):
        await store.stat("k")
    way.answers = {HeadObject: refusal("AccessDenied")}
    with pytest.raises(StoreAccessDenied):
        await store.stat("k")
    del storage.buckets[BUCKET]
    way.answers = {}
    for call in (store.stat, lambda key: read(store, key)):
        with pytest.raises(StoreUnreachable):
            await call("k")


async def test_an_object_that_came_in_between_is_there():
    """Between the refused HEAD and the GET."""
    store, way, _ = scripted({HeadObject: refusal("NoSuchKey")})
    written = await store.put("k", b"x")
    assert await store.stat("k") == written
    assert way.asked[-2:] == [HeadObject, GetObject]


async def test_conditions_have_their_errors():
    """412 by the condition that was asked; 404 to a conditional write is a lost race too."""
    store, _, _ = scripted()
    info = await store.put("k", b"x")
    with pytest.raises(ObjectExists):
        await store.put("k", b"y", condition=IfAbsent())
    with pytest.raises(ObjectExists):
        await store.put("k", b"longer than a part", condition=IfAbsent())
    for key in ("k", "gone"):
        for data in (b"y", b"longer than a part"):
            with pytest.raises(ObjectChanged):
                await store.put(key, data, condition=IfMatch("0" * 32))
    await store.put("k", b"longer than a part", condition=IfMatch(info.etag))
    assert await read(store) == b"longer than a part"


async def test_no_room_has_its_error():
    """In one go and in parts; nothing is left of what did not fit."""
    store, _, storage = scripted(capacity_bytes=10)
    with pytest.raises(StoreFull):
        await store.put("k", b"x" * 11)
    with pytest.raises(StoreFull):
        await SimObjectStore(Directly(storage), BUCKET, KEY).put("k", b"x" * 11)
    assert storage.stored_bytes == 0


@pytest.mark.parametrize(("length", "parts"), [(0, 0), (3, 0), (4, 0), (5, 2), (8, 2), (9, 3)], ids=str)
async def test_what_is_longer_than_a_part_goes_in_parts(length, parts):
    """However the source cuts it; a single part goes in one go."""
    for size in (1, 3, 4, 100):
        for made_up in (False, True):
            store, way, storage = scripted()
            content = Content(Sized(length, 1))
            whole = content.rendered()

            async def source(whole=whole, size=size):
                for start in range(0, length, size):
                    yield whole[start : start + size]

            info = await store.put("k", content if made_up else source())
            assert way.asked.count(UploadPart) == parts
            assert info.size_bytes == length
            assert await read(store) == whole
            assert (storage.body(BUCKET, "k") == content) is (made_up or not length)


@pytest.mark.parametrize("kind", [UploadPart, CompleteMultipartUpload])
async def test_parts_of_a_write_that_failed_are_taken_back(kind):
    """But not when the completion may still happen."""
    store, way, storage = scripted({kind: refusal("AccessDenied")})
    with pytest.raises(StoreAccessDenied):
        await store.put("k", b"longer than a part")
    assert len(storage.buckets[BUCKET].uploads) == 0
    way.answers = {kind: SILENT}
    with pytest.raises(StoreUnreachable):
        await store.put("k", b"longer than a part")
    assert len(storage.buckets[BUCKET].uploads) == (kind is CompleteMultipartUpload)
    assert storage.body(BUCKET, "k") is None


async def test_a_cancelled_write_takes_its_parts_back():
    """The abort is sent under a shield."""
    store, way, storage = scripted()
    reached = anyio.Event()

    async def source():
        yield b"two parts"
        reached.set()
        await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.put, "k", source())
        await reached.wait()
        assert storage.stored_bytes == 8
        tasks.cancel_scope.cancel()
    assert way.asked[-1] is AbortMultipartUpload
    assert storage.stored_bytes == 0


async def test_an_abort_that_fails_hides_nothing():
    """What made the write fail is told, not what became of the parts."""
    store, way, _ = scripted({UploadPart: refusal("QuotaExceeded"), AbortMultipartUpload: SILENT})
    with pytest.raises(StoreFull):
        await store.put("k", b"longer than a part")
    assert way.asked[-1] is AbortMultipartUpload


async def take(reading, got):
    """Take what comes, as long as it comes."""
    async for chunk in reading:
        got.append(chunk)


async def test_a_reading_that_breaks_off_says_so():
    """After what came of it; ``info`` is of the whole."""
    head = ObjectHead("k", 10, "tag", 0)
    store, way, _ = scripted({GetObject: Outcome(Answer(200, head, Content(b"012")), whole=False)})
    got = []
    async with store.get("k") as reading:
        assert reading.info.size_bytes == 10
        with pytest.raises(StoreUnreachable, check=that(comes_from="driver.SimReading.__aiter__", names="3")):
            await take(reading, got)
    assert got == [b"012"]
    assert way.asked == [GetObject]


async def test_a_range_of_an_object_that_shrank():
    """The end of what is there now is an empty reading, beyond it is not a range."""
    store, _, _ = scripted()
    await store.put("k", b"0123")
    assert await read(store, start=4) == b""
    assert await read(store, start=4, end=4) == b""
    for options in ({"start": 5}, {"start": 5, "end": 5}, {"start": 5, "end": 9}):
        with pytest.raises(InvalidRange):
            await read(store, **options)


def test_a_part_has_bytes():
    """A store that could write nothing is refused."""
    with pytest.raises(InvalidArgument):
        SimObjectStore(Directly(made()), BUCKET, KEY, part_bytes=0)


async def test_a_cancelled_request_is_abandoned():
    """The front hears of it: a body half sent is torn."""
    world = World()
    store = SimObjectStore(Through(world.front), BUCKET, KEY)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.put, "k", b"x" * 1_000_000)
        await anyio.wait_all_tasks_blocked()
        world.run(1)
        assert world.front.statistics().uploads == 1
        tasks.cancel_scope.cancel()
    assert world.front.statistics().uploads == 0
    world.run()
    assert world.storage.landings == []


async def test_a_cancellation_may_come_too_late():
    """What was sent in full lands as a whole, though nobody waits for the answer any more."""
    world = World()
    store = SimObjectStore(Through(world.front), BUCKET, KEY)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.put, "k", b"whole")
        await anyio.wait_all_tasks_blocked()
        for uploads in (1, 0):  # it begins, and all of it is sent
            while world.front.statistics().uploads != uploads:
                assert world.step()
        assert world.storage.landings == []
        tasks.cancel_scope.cancel()
    world.run()
    assert world.storage.body(BUCKET, "k") == Content(b"whole")
