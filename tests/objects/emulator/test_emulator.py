"""The driver against what others have written of Google's interface: fake-gcs-server, a program of its own.

What it does otherwise than Google says: it knows no conditions on deletions, and no question of how much of an upload
is there. Its uploads, generations, conditions on writes, ranges and listings are its own.
"""

import sys
import uuid
from pathlib import Path

import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the module beside this one

from emulator_stage import BUCKET, NoEmulatorError, find_emulator, running_emulator

from iriscw.doctor.storage import exercise
from iriscw.objects.drivers.checking import check_store
from iriscw.objects.drivers.failure import NoSuchBucket
from iriscw.objects.drivers.gs import GsObjectStore
from iriscw.objects.drivers.gs_place import GsLimits, gs_place
from iriscw.objects.drivers.transfer import read_whole
from iriscw.objects.ports import IfAbsent, IfMatch, ObjectChanged, ObjectExists
from iriscw.testing.conformance.object_store import ObjectStoreConformance

pytestmark = pytest.mark.slow

QUICK = attrs.evolve(GsLimits(), part_bytes=256 << 10)
LONG = bytes(range(256)) * 4000
"""Four chunks."""


@pytest.fixture(scope="module")
def emulator():
    """The address of an emulator; the test is skipped where there is none."""
    try:
        program = find_emulator()
    except NoEmulatorError as error:
        pytest.skip(f"no emulator: {error}")
    with running_emulator(program) as address:
        yield address


@pytest.fixture
async def store(emulator):
    """A prefix that nobody else has."""
    place = gs_place(f"gs://{BUCKET}/{uuid.uuid4().hex}", {"STORAGE_EMULATOR_HOST": emulator})
    store = GsObjectStore(place, QUICK)
    yield store
    await store.aclose()


class TestEmulator(ObjectStoreConformance):
    """The public suite."""

    async def test_if_match(self, store) -> None:
        """For writes; the emulator ignores conditions on deletions."""
        old = await store.put("k", b"old")
        new = await store.put("k", b"new", condition=IfMatch(old.etag))
        with pytest.raises(ObjectChanged):
            await store.put("k", b"late", condition=IfMatch(old.etag))
        with pytest.raises(ObjectChanged):
            await store.put("none", b"x", condition=IfMatch(new.etag))
        assert await read_whole(store, "k", limit_bytes=10) == b"new"


async def test_long_objects(store) -> None:
    """In chunks, with conditions that hold and that do not, whole and in ranges."""
    info = await store.put("k", LONG, condition=IfAbsent())
    with pytest.raises(ObjectExists):
        await store.put("k", LONG, condition=IfAbsent())
    newer = await store.put("k", LONG[::-1], condition=IfMatch(info.etag))
    with pytest.raises(ObjectChanged):
        await store.put("k", LONG, condition=IfMatch(info.etag))
    assert await store.stat("k") == newer
    async with store.get("k", start=300_000, end=900_000) as reading:
        assert b"".join([chunk async for chunk in reading]) == LONG[::-1][300_000:900_000]


async def test_checks(store, emulator) -> None:
    """What is asked at the start, and what the doctor does; a bucket that is not there has its name."""
    await check_store(store, writes=True)
    await exercise(store)
    assert (await store.list()).objects == ()
    other = GsObjectStore(gs_place("gs://another", {"STORAGE_EMULATOR_HOST": emulator}), QUICK)
    with pytest.raises(NoSuchBucket):
        await check_store(other)
    await other.aclose()
