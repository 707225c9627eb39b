"""Long objects of Google's: chunks that are taken in part, answers that are lost, and sessions that end early."""

import anyio
import attrs
import pytest
from gs_stage import BUCKET, KEY, QUICK, Stage, staged

from iriscw.objects.drivers.gs_upload import conditions, info_of
from iriscw.objects.ports import IfAbsent, IfMatch, ObjectChanged, ObjectExists, ObjectInfo, StoreUnreachable
from iriscw_sims.objects.content import Content
from iriscw_sims.objects.messages import PutObject, Request
from raised import that

LONG = bytes(range(256)) * 2600
"""Three chunks."""


@pytest.fixture
async def stage():
    async with staged() as stage:
        yield stage


def put(stage, key, body):
    """Let somebody else write."""
    assert stage.storage.handle(Request(BUCKET, PutObject(key, Content(body)), KEY), 1).ok


def unfinished(stage):
    """Return how many uploads are neither over nor given up."""
    return len(stage.storage.buckets[BUCKET].resumables)


def ranges(stage):
    """Return which bytes were sent, in order; ``*`` is a question."""
    said = [each.header("content-range") for each in stage.server.served]
    return [each.removeprefix("bytes ").partition("/")[0] for each in said if each]


async def test_what_fits_goes_in_one_request(stage: Stage) -> None:
    """And one byte more goes in chunks."""
    store = stage.store()
    await store.put("fits", bytes(QUICK.part_bytes))
    await store.put("longer", bytes(QUICK.part_bytes + 1))
    assert stage.asked() == ["POST", "POST", "PUT", "PUT"]
    assert ranges(stage) == ["0-262143", "262144-262144"]


async def test_a_chunk_of_which_a_part_is_taken(stage: Stage) -> None:
    """Is continued where the service says that it ended; tries are counted only while nothing moves."""
    store = stage.store(attrs.evolve(QUICK, part_bytes=8 * QUICK.part_bytes, attempts=2))
    stage.surroundings.script("object chunk cut short", *[True] * 6)
    data = bytes(range(256)) * 8193  # one more than what goes in one request
    info = await store.put("k", data)
    assert info.size_bytes == len(data)
    assert stage.bodies() == {"k": data}
    assert unfinished(stage) == 0


async def test_a_chunk_whose_answer_is_lost(stage: Stage) -> None:
    """Is not sent again: the session says that it has it."""
    stage.surroundings.script("object reply lost", False, True)
    await stage.store().put("k", LONG)
    assert stage.bodies() == {"k": LONG}
    assert ranges(stage) == ["0-262143", "*", "262144-524287", "524288-665599"]


async def test_the_last_chunk_in_doubt_without_a_condition(stage: Stage) -> None:
    """A session makes one object at most, so that even a plain write is found out."""
    stage.surroundings.script("object done and in trouble", False, False, False, True)
    info = await stage.store().put("k", LONG)
    assert (info.size_bytes, stage.bodies()) == (len(LONG), {"k": LONG})
    assert ranges(stage)[-2:] == ["524288-665599", "*"]


@pytest.mark.parametrize("when", ["before it begins", "before it ends"])
async def test_a_condition_that_fails(stage: Stage, when) -> None:
    """Is told as certain, the object that is there is not touched, and the session is gone."""
    store = stage.store()
    if when == "before it begins":
        put(stage, "k", b"theirs")

    async def source():
        yield LONG
        put(stage, "k", b"theirs")

    with pytest.raises(ObjectExists):
        await store.put("k", source() if when == "before it ends" else LONG, condition=IfAbsent())
    assert (unfinished(stage), stage.bodies()) == (0, {"k": b"theirs"})
    with pytest.raises(ObjectChanged):
        await store.put("k", LONG, condition=IfMatch("7"))


async def test_a_condition_that_fails_after_a_doubt(stage: Stage) -> None:
    """May have failed because of us: nobody can say, once the object is another one's."""

    async def source():
        yield LONG
        put(stage, "k", b"theirs")
        stage.surroundings.script("object request lost", True)

    with pytest.raises(StoreUnreachable, check=that(comes_from="writing.settled")):
        await stage.store().put("k", source(), condition=IfAbsent())
    assert (unfinished(stage), stage.bodies()) == (0, {"k": b"theirs"})


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
async def test_a_source_that_ends_early(stage: Stage, how) -> None:
    """Leaves no upload behind, although chunks of it were sent."""
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
    assert (unfinished(stage), stage.bodies()) == (0, {})


async def test_a_session_that_cannot_be_given_up(stage: Stage, caplog) -> None:
    """What made the write fail is told, and the log says what is left."""
    caplog.set_level("INFO")

    async def source():
        yield LONG
        stage.surroundings.rates["object key denied"] = 1000
        raise LookupError

    with pytest.raises(LookupError):
        await stage.store().put("k", source())
    assert "was not given up" in caplog.text
    assert "upload_id" not in caplog.text


async def test_a_session_that_is_forgotten(stage: Stage) -> None:
    """Is no missing bucket, and no absence: the write is to be tried again."""

    async def source():
        yield LONG
        stage.storage.buckets[BUCKET].resumables._uploads.clear()

    with pytest.raises(StoreUnreachable, check=that(comes_from="gs_upload._Session._settled", names="forgotten")):
        await stage.store().put("k", source())
    assert stage.bodies() == {}


@pytest.mark.parametrize(
    ("spoilt", "said"), [(1, that(names="Content-MD5")), (2, that(comes_from="gs_upload._Session._check_digest"))]
)
async def test_what_is_spoilt_on_its_way(stage: Stage, spoilt, said) -> None:
    """Is refused by the service, which is told the digest; and where that was lost as well, it is deleted."""
    stage.surroundings.script("object chunk spoilt", *[False] * spoilt, True)
    with pytest.raises(StoreUnreachable, check=said):
        await stage.store().put("k", LONG)
    assert stage.bodies() == {}


async def test_a_short_object_that_is_spoilt(stage: Stage, monkeypatch) -> None:
    """Is refused by the service, by its digest."""
    monkeypatch.setattr("iriscw.objects.drivers.gs_upload._digested", lambda *_: _wrong())
    with pytest.raises(StoreUnreachable, check=that(names="Content-MD5")):
        await stage.store().put("k", b"x")
    assert stage.bodies() == {}


async def _wrong():
    return "AAAAAAAAAAAAAAAAAAAAAA=="


async def test_what_is_sent(stage: Stage) -> None:
    """One mark for a write, however often it is tried; no cache keeps objects; sessions' names go in no other place."""
    stage.surroundings.script("object throttled", True)
    store = stage.store()
    await store.put("k", b"x", condition=IfAbsent())
    heads = stage.storage.buckets[BUCKET]._heads
    assert len(dict(heads["k"].metadata)["iriscw-write"]) == 32
    queries = [each.query for each in stage.server.served]
    assert queries[0] == queries[1]
    assert "ifGenerationMatch=0" in queries[0]


def test_conditions() -> None:
    """As Google has them."""
    assert conditions("k", None) == {}
    assert conditions("k", IfAbsent()) == {"ifGenerationMatch": "0"}
    assert conditions("k", IfMatch("17")) == {"ifGenerationMatch": "17"}


def test_metadata() -> None:
    """Of an object; anything else is no answer."""
    assert info_of("k", {"generation": "7", "size": "3"}) == ObjectInfo("k", 3, "7")
    for told in (
        {},
        {"generation": "7"},
        {"generation": "0", "size": "1"},
        {"generation": "7", "size": "-1"},
        None,
        "x",
    ):
        with pytest.raises(StoreUnreachable):
            info_of("k", told)
