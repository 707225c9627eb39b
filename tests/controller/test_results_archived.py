"""Results that belong into an object store: kept when they are there, found there, bounded while it is away."""

import hashlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for away_store

from away_store import AwayStore

from iriscw.controller.stores.archive import Archive, StoredDamaged
from iriscw.controller.stores.result_model import (
    Reference,
    ResultLimits,
    ResultStoreBroken,
    ResultStoreFull,
    ResultVerdict,
)
from iriscw.controller.stores.results import LARGE_BYTES, ResultStore
from iriscw.objects.ports import ObjectStore, StoreAccessDenied, StoreFull, StoreUnreachable
from raised import that

JOB, OTHER = "job-aaaaaaaaaaaa", "job-bbbbbbbbbbbb"
UID = "0" * 16


def uid(number: int) -> str:
    """Name an attempt."""
    return f"{number:016x}"


def reference(data: bytes) -> Reference:
    """The reference of a result."""
    return Reference(len(data), hashlib.sha256(data).hexdigest(), "3.11")


@attrs.define(eq=False)
class Bench:
    """A store of results that runs, and what it said has settled."""

    results: ResultStore
    settled: dict[str, None] = attrs.field(factory=dict)
    changed: anyio.Event = attrs.field(factory=anyio.Event)

    def note(self, name: str) -> None:
        """Take note."""
        self.settled[name] = None
        self.changed.set()
        self.changed = anyio.Event()

    async def until_settled(self, *names: str) -> None:
        """Wait until these are."""
        with anyio.fail_after(60):
            while not all(name in self.settled for name in names):
                await self.changed.wait()

    async def send(self, name: str, data: bytes, job_id: str = JOB) -> ResultVerdict:
        """Have a worker send a result whole."""
        self.results.begin(job_id, int(name, 16), 0, name)
        await self.results.append(name, 0, data)
        return await self.results.settle(name, reference(data))

    async def read(self, name: str = UID, job_id: str = JOB) -> bytes | None:
        """Read a result as a client does."""
        found = await self.results.find(job_id, name)
        return None if found is None else b"".join([piece async for piece in self.results.read(found)])


@asynccontextmanager
async def opened(
    root: Path, store: ObjectStore | None, *, least: int = 0, folder: str = "f", **limits: int
) -> AsyncIterator[Bench]:
    """A store of results on a folder, and an object store beside it."""
    archive = None if store is None else Archive(store, [folder])
    results = await ResultStore.open(root, archive, archive_from_bytes=least, limits=ResultLimits(**limits))
    bench = Bench(results)
    results.settled = bench.note
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(results.run)
        yield bench
        tasks.cancel_scope.cancel()


@pytest.fixture
def store() -> AwayStore:
    """An object store that answers."""
    store = AwayStore()
    store.come_back()
    return store


@pytest.mark.parametrize("data", [b"", b"x", bytes(3 * LARGE_BYTES)])
async def test_kept_when_it_is_there(tmp_path: Path, store: AwayStore, data: bytes) -> None:
    """And not before; a controller with an empty disk reads it, and finds which jobs have any."""
    store.go()
    async with opened(tmp_path / "one", store) as bench:
        assert await bench.send(UID, data) is ResultVerdict.WAITS
        await store.asked.wait()
        assert await bench.results.settle(UID, reference(data)) is ResultVerdict.WAITS
        assert (bench.results.statistics().waiting, bench.settled) == (1, {})
        store.come_back()
        await bench.until_settled(UID)
        assert await bench.results.settle(UID, reference(data)) is ResultVerdict.KEPT
        figures = bench.results.statistics()
        assert (figures.waiting, figures.waiting_bytes, figures.archived) == (0, 0, 1)
        assert figures.archive_failures > 0
        assert not figures.archive_stalled
    async with opened(tmp_path / "two", store) as bench:
        assert await bench.results.jobs() == [JOB]
        assert await bench.read() == data
        found = bench.results.result(UID)
        assert found is not None
        assert (found.index, found.number, found.reference) == (0, 0, reference(data))
        assert await bench.read(uid(1)) is None
    async with opened(tmp_path / "three", store, folder="anothers") as bench:
        assert (await bench.results.jobs(), await bench.read()) == ([], None)


async def test_small_ones_may_stay(tmp_path: Path, store: AwayStore) -> None:
    """Without a second copy of the journal only large ones go to the object store."""
    async with opened(tmp_path, store, least=LARGE_BYTES) as bench:
        small, large = bytes(LARGE_BYTES - 1), bytes(LARGE_BYTES)
        assert await bench.send(uid(1), small) is ResultVerdict.KEPT
        assert await bench.send(uid(2), large) is ResultVerdict.WAITS
        await bench.until_settled(uid(2))
        assert [len(data) for data in store.contents().values()] == [LARGE_BYTES]
        assert (await bench.read(uid(1)), await bench.read(uid(2))) == (small, large)
        assert bench.results.statistics().cached_bytes == LARGE_BYTES


async def test_without_an_object_store_nothing_waits(tmp_path: Path) -> None:
    """Nor is anything bounded that was not before."""
    async with opened(tmp_path, None, waiting_results=0, waiting_bytes=0) as bench:
        assert await bench.send(UID, b"x" * LARGE_BYTES) is ResultVerdict.KEPT
        assert await bench.results.jobs() == [JOB]
        assert await bench.read() == b"x" * LARGE_BYTES
        assert bench.results.statistics().waiting_bytes == 0


@pytest.mark.parametrize("error", [StoreUnreachable("away"), StoreFull("no room"), StoreAccessDenied("no")])
async def test_while_the_store_is_away(tmp_path: Path, error: Exception) -> None:
    """What waits is bounded, by number and bytes, and refused by a name that says why; all of it comes there."""
    away = AwayStore(error=error)
    async with opened(tmp_path, away, waiting_results=3, waiting_bytes=100) as bench:
        for number in range(3):
            assert await bench.send(uid(number), b"x" * 10) is ResultVerdict.WAITS
        await away.asked.wait()
        bench.results.begin(JOB, 9, 0, uid(9))
        with pytest.raises(
            ResultStoreFull, check=that(comes_from="results.ResultStore._check_room", names=type(error).__name__)
        ):
            await bench.results.append(uid(9), 0, b"x")
        await bench.results.append(uid(2), 0, b"x" * 10)  # what is there is no more than it was
        assert bench.results.statistics().archive_stalled
        away.come_back()
        await bench.until_settled(*map(uid, range(3)))
        assert await bench.send(uid(9), b"x" * 99) is ResultVerdict.WAITS
        await bench.until_settled(uid(9))
        assert len(away.contents()) == 4
    away.go()
    async with opened(tmp_path / "more", away, waiting_bytes=100) as bench:
        await bench.send(uid(0), b"x" * 60)
        bench.results.begin(JOB, 1, 0, uid(1))
        await bench.results.append(uid(1), 0, b"x" * 40)
        bench.results.begin(JOB, 2, 0, uid(2))
        with pytest.raises(ResultStoreFull, check=that(comes_from="results.ResultStore._check_room", names="100")):
            await bench.results.append(uid(2), 0, b"x")


async def test_parts_that_fill_the_room_come_to_their_end(tmp_path: Path, store: AwayStore) -> None:
    """Many large results at once: if none of them could go on, none would ever make room for the others."""
    async with opened(tmp_path, store, waiting_bytes=40) as bench:
        for number in range(4):
            bench.results.begin(JOB, number, 0, uid(number))
            await bench.results.append(uid(number), 0, b"x" * 10)
        for number in range(4):
            await bench.results.append(uid(number), 10, b"y" * 8)
        for number in range(4):
            assert await bench.send(uid(number), b"x" * 10 + b"y" * 8) is ResultVerdict.WAITS
        await bench.until_settled(*map(uid, range(4)))
        assert bench.results.statistics().waiting_bytes == 0


async def test_a_full_disk_is_what_it_was(tmp_path: Path, store: AwayStore) -> None:
    """Nothing is acknowledged that could not be written, and nothing comes into the object store."""
    async with opened(tmp_path, store) as bench:
        (tmp_path / JOB).write_text("no folder")
        with pytest.raises(ResultStoreBroken):
            await bench.send(UID, b"x")
        assert (bench.results.stored(UID), bench.results.statistics().waiting, store.contents()) == (0, 0, {})


async def test_a_restart_while_it_waits(tmp_path: Path) -> None:
    """The next controller goes on, also with what was there already: that is asked for, and not sent again."""
    away = AwayStore()
    async with opened(tmp_path, away) as bench:
        await bench.send(uid(0), b"waits")
        await away.asked.wait()
    away.come_back()
    async with opened(tmp_path, away) as bench:
        await bench.until_settled(uid(0))
    puts = away.calls["put"]
    async with opened(tmp_path, away) as bench:
        await bench.until_settled(uid(0))
        assert (await bench.read(uid(0)), away.calls["put"]) == (b"waits", puts)
        assert await bench.results.settle(uid(0), reference(b"waits")) is ResultVerdict.KEPT


async def test_another_store(tmp_path: Path, store: AwayStore) -> None:
    """A controller that is given another object store takes there what it has, before anything counts as kept."""
    async with opened(tmp_path, store) as bench:
        await bench.send(UID, b"value")
        await bench.until_settled(UID)
    other = AwayStore()
    async with opened(tmp_path, other) as bench:
        assert await bench.results.settle(UID, reference(b"value")) is ResultVerdict.WAITS
        other.come_back()
        await bench.until_settled(UID)
    assert other.contents() == store.contents()


async def test_a_part_of_what_is_there_already(tmp_path: Path, store: AwayStore) -> None:
    """A worker that had not heard of it sends it again to the next controller: the result is read all the same."""
    async with opened(tmp_path / "one", store) as bench:
        await bench.send(UID, b"value")
        await bench.until_settled(UID)
    async with opened(tmp_path / "two", store) as bench:
        bench.results.begin(JOB, 0, 0, UID)
        await bench.results.append(UID, 0, b"val")
        assert await bench.read() == b"value"
        assert list((tmp_path / "two" / JOB).iterdir()) == []
        assert await bench.results.append(UID, 3, b"ue") == 5
        assert await bench.results.settle(UID, reference(b"value")) is ResultVerdict.KEPT
        assert bench.results.statistics().waiting == 0


async def test_an_answer_that_is_lost(tmp_path: Path, store: AwayStore) -> None:
    """The result is there; it is not written twice, and waits no longer."""
    store.fail_next("put", StoreUnreachable("no answer"), after_effect=True)
    async with opened(tmp_path, store) as bench:
        await bench.send(uid(0), b"value")
        await bench.send(uid(1), b"value")  # wakes the one that pauses
        await bench.until_settled(uid(0), uid(1))
        assert len(store.contents()) == 2


async def test_the_disk_is_a_cache(tmp_path: Path, store: AwayStore) -> None:
    """What is in the object store goes from the disk, the oldest first, when there is more of it than may be."""
    async with opened(tmp_path, store, cached_bytes=25) as bench:
        for number in range(4):
            await bench.send(uid(number), bytes([number]) * 10)
            await bench.until_settled(uid(number))
        with anyio.fail_after(60):
            while len(list((tmp_path / JOB).iterdir())) > 2:  # noqa: ASYNC110 - it follows at once
                await anyio.sleep(0.01)
        assert bench.results.statistics().cached_bytes == 20
        store.calls.clear()
        assert [await bench.read(uid(number)) for number in range(4)] == [bytes([number]) * 10 for number in range(4)]
        assert store.calls["get"] == 2
        (tmp_path / JOB / next((tmp_path / JOB).iterdir()).name).unlink()
        assert [await bench.read(uid(number)) for number in range(4)] == [bytes([number]) * 10 for number in range(4)]
        assert store.calls["get"] == 5, "what somebody removed is read from there, too"


@pytest.mark.parametrize("damage", ["gone", "other"])
async def test_damage_is_told(tmp_path: Path, store: AwayStore, damage: str) -> None:
    """A result that is not what it was is no result."""
    async with opened(tmp_path / "one", store) as bench:
        await bench.send(UID, b"value")
        await bench.until_settled(UID)
    [key] = store.contents()
    async with opened(tmp_path / "two", store) as bench:
        assert await bench.results.find(JOB, UID) is not None
        await (store.delete(key) if damage == "gone" else store.put(key, b"eulav"))
        with pytest.raises(StoredDamaged):
            await bench.read()


async def test_a_cached_file_that_is_spoilt(tmp_path: Path, store: AwayStore) -> None:
    """It is not given out, and not asked again: the object store has the result."""
    async with opened(tmp_path, store) as bench:
        await bench.send(UID, b"value")
        await bench.until_settled(UID)
        [path] = (tmp_path / JOB).iterdir()
        path.write_bytes(b"eulav")
        with pytest.raises(StoredDamaged):
            await bench.read()
        assert await bench.read() == b"value"
        assert (list((tmp_path / JOB).iterdir()), bench.results.statistics().cached_bytes) == ([], 0)


async def test_an_unreachable_store_is_no_absence(tmp_path: Path, store: AwayStore) -> None:
    """Whether there is a result cannot be told; later it can."""
    async with opened(tmp_path / "one", store) as bench:
        await bench.send(UID, b"value")
        await bench.until_settled(UID)
    store.go()
    async with opened(tmp_path / "two", store) as bench:
        with pytest.raises(StoreUnreachable):
            await bench.read()
        with pytest.raises(StoreUnreachable):
            await bench.results.jobs()
        store.come_back()
        assert (await bench.read(), await bench.results.jobs()) == (b"value", [JOB])


async def test_forget(tmp_path: Path, store: AwayStore) -> None:
    """A job's results go from the object store as well; what cannot go stays known, and goes later."""
    async with opened(tmp_path, store) as bench:
        await bench.send(UID, b"value")
        await bench.send(uid(1), b"another", OTHER)
        await bench.until_settled(UID, uid(1))
        assert await bench.results.jobs() == [JOB, OTHER]
        store.go()
        with pytest.raises(StoreUnreachable):
            await bench.results.forget(JOB)
        assert await bench.results.jobs() == [JOB, OTHER]
        store.come_back()
        await bench.results.forget(JOB)
        assert [key.split("/")[1] for key in store.contents()] == [OTHER]
        assert (await bench.results.jobs(), await bench.read()) == ([OTHER], None)
        assert bench.results.statistics().cached_bytes == len(b"another")


async def test_forgotten_while_it_waits(tmp_path: Path) -> None:
    """It waits no more; a try that was under way then is undone by the next try to forget it."""
    away = AwayStore()
    async with opened(tmp_path, away) as bench:
        await bench.send(UID, b"value")
        await bench.send(uid(1), b"another", OTHER)
        await away.asked.wait()
        with pytest.raises(StoreUnreachable):
            await bench.results.forget(JOB)
        assert UID in bench.settled
        away.come_back()
        await bench.until_settled(uid(1))
        await bench.results.forget(JOB)  # whoever forgets it tries again
        assert [key.split("/")[1] for key in away.contents()] == [OTHER]
        figures = bench.results.statistics()
        assert (figures.waiting, figures.waiting_bytes, figures.known) == (0, 0, 1)


class SlowStore(AwayStore):
    """Holds writes back until it is told to go on."""

    def __init__(self):
        super().__init__()
        self.come_back()
        self.begun, self.goes_on = anyio.Event(), anyio.Event()

    async def put(self, key, data, *, condition=None):
        """Write it, some time."""
        self.begun.set()
        await self.goes_on.wait()
        return await super().put(key, data, condition=condition)


async def test_forgotten_while_it_is_written(tmp_path: Path) -> None:
    """What came into the object store after its job was forgotten is to be forgotten again, and goes then."""
    slow = SlowStore()
    async with opened(tmp_path, slow) as bench:
        await bench.send(UID, b"value")
        await slow.begun.wait()
        await bench.results.forget(JOB)
        assert await bench.results.jobs() == []
        slow.goes_on.set()
        await bench.send(uid(1), b"another", OTHER)
        await bench.until_settled(uid(1))
        with anyio.fail_after(60):
            while JOB not in await bench.results.jobs():  # noqa: ASYNC110 - it follows at once
                await anyio.sleep(0.01)
        await bench.results.forget(JOB)
        assert [key.split("/")[1] for key in slow.contents()] == [OTHER]
        assert await bench.results.jobs() == [OTHER]
