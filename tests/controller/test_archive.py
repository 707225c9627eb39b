"""Files of jobs in an object store: whole and verified, found again, gone with their job, and nobody else's."""

import hashlib
from pathlib import Path

import pytest

from iriscw.controller.stores.archive import PIECE_BYTES, RESULTS, Archive, StoredDamaged, folders, verified
from iriscw.files import StateUnusable
from iriscw.objects.drivers.fake import FakeObjectStore
from iriscw.objects.ports import MAX_PAGE_OBJECTS, StoreUnreachable
from raised import that

JOB, OTHER = "job-aaaaaaaaaaaa", "job-bbbbbbbbbbbb"


def sha(data: bytes) -> str:
    """The digest."""
    return hashlib.sha256(data).hexdigest()


def file(folder: Path, data: bytes) -> Path:
    """A file of this content."""
    path = folder / "file"
    path.write_bytes(data)
    return path


async def keep(archive: Archive, folder: Path, data: bytes, name: str = "n", job_id: str = JOB) -> str:
    """Put a file there; give its key."""
    key = archive.key(job_id, name)
    await archive.put(key, file(folder, data), len(data), sha(data))
    return key


async def read(archive: Archive, key: str, data: bytes) -> list[bytes]:
    """Read what should be this."""
    return [piece async for piece in archive.read(key, len(data), sha(data))]


@pytest.mark.parametrize("data", [b"", b"x", bytes(PIECE_BYTES), bytes(2 * PIECE_BYTES + 1)])
async def test_round_trip(tmp_path: Path, data: bytes) -> None:
    """What was put is read, by another controller too, in pieces of a bounded size."""
    store = FakeObjectStore()
    key = await keep(Archive(store, ["f"]), tmp_path, data)
    found = await read(Archive(store, ["f"]), key, data)
    assert b"".join(found) == data
    assert max(map(len, found)) <= PIECE_BYTES
    [filed] = await Archive(store, ["f"]).of_job(JOB)
    assert (filed.key, filed.name, filed.size_bytes) == (key, "n", len(data))
    assert await Archive(store, ["f"]).has(key, len(data))
    assert not await Archive(store, ["f"]).has(key, len(data) + 1)
    assert not await Archive(store, ["f"]).has(f"{key}x", len(data))


async def test_a_file_that_is_not_what_was_said(tmp_path: Path) -> None:
    """Nothing of it comes into the store."""
    store = FakeObjectStore()
    with pytest.raises(StoredDamaged):
        await Archive(store, ["f"]).put("f/j/n", file(tmp_path, b"wrong"), 5, sha(b"right"))
    assert store.contents() == {}


async def test_what_is_there_is_not_written_again(tmp_path: Path) -> None:
    """A write whose answer was lost, and one that is repeated, change nothing."""
    store = FakeObjectStore()
    archive = Archive(store, ["f"])
    store.fail_next("put", StoreUnreachable("no answer"), after_effect=True)
    with pytest.raises(StoreUnreachable):
        await keep(archive, tmp_path, b"data")
    before = await store.stat("f/" + JOB + "/n")
    await keep(archive, tmp_path, b"data")
    assert await store.stat("f/" + JOB + "/n") == before


async def test_a_damaged_object_is_replaced(tmp_path: Path) -> None:
    """One of another size than its name says cannot be what it should be."""
    store = FakeObjectStore()
    archive = Archive(store, ["f"])
    await store.put(archive.key(JOB, "n"), b"dat")
    key = await keep(archive, tmp_path, b"data")
    assert await read(archive, key, b"data") == [b"data"]


@pytest.mark.parametrize("damage", [b"rihgt", b"righ", b"rights", b"", None])
async def test_damage_is_found(damage: bytes | None) -> None:
    """What is not what it was, or is gone, is never read to its end."""
    store = FakeObjectStore()
    if damage is not None:
        await store.put("f/j/n", damage)
    received = []
    with pytest.raises(StoredDamaged, check=that(names="f/j/n")):
        received.extend([piece async for piece in Archive(store, ["f"]).read("f/j/n", 5, sha(b"right"))])
    assert received == []


async def test_the_last_piece_is_held_back() -> None:
    """Until all of it is known to be right."""

    async def data():
        for piece in (b"ab", b"cd", b"ef"):
            yield piece

    given: list[bytes] = []

    async def take() -> None:
        async for piece in verified(data(), 6, sha(b"abcdeX"), "it"):
            given.append(piece)  # noqa: PERF401 - of what comes before the error

    with pytest.raises(StoredDamaged):
        await take()
    assert given == [b"ab", b"cd"]
    assert [piece async for piece in verified(data(), 6, sha(b"abcdef"), "it")] == [b"ab", b"cd", b"ef"]


async def test_an_unreachable_store_is_not_an_empty_one() -> None:
    """Neither of its questions is answered with no."""
    store = FakeObjectStore()
    archive = Archive(store, ["f"])
    for method in ("stat", "get", "list", "list"):
        store.fail_next(method, StoreUnreachable("away"))
    with pytest.raises(StoreUnreachable):
        await archive.has("f/j/n", 1)
    with pytest.raises(StoreUnreachable):
        await read(archive, "f/j/n", b"x")
    with pytest.raises(StoreUnreachable):
        await archive.of_job(JOB)
    with pytest.raises(StoreUnreachable):
        await archive.jobs()


async def test_jobs(tmp_path: Path) -> None:
    """They are listed without listing all of their files, in all folders; others' folders are not looked into."""
    store = FakeObjectStore()
    for number in range(2 * MAX_PAGE_OBJECTS + 10):
        await store.put(f"new/{JOB}/{number:05}", b"x")
    await store.put(f"new/{OTHER}/n", b"x")
    await store.put("old/job-cccccccccccc/n", b"x")
    await store.put("newer/job-dddddddddddd/n", b"x")
    archive = Archive(store, ["new", "old"])
    store.calls.clear()
    assert await archive.jobs() == [JOB, OTHER, "job-cccccccccccc"]
    assert store.calls["list"] == 3
    assert len(await archive.of_job(JOB)) == 2 * MAX_PAGE_OBJECTS + 10


async def test_forget() -> None:
    """All of a job goes, in all folders, and nothing else."""
    store = FakeObjectStore()
    for number in range(20):
        await store.put(f"new/{JOB}/{number}", b"x")
    await store.put(f"old/{JOB}/n", b"x")
    await store.put(f"new/{OTHER}/n", b"x")
    await Archive(store, ["new", "old"]).forget(JOB)
    assert list(store.contents()) == [f"new/{OTHER}/n"]


async def test_a_deletion_that_fails_is_told() -> None:
    """What is left can be deleted later."""
    store = FakeObjectStore()
    for number in range(20):
        await store.put(f"f/{JOB}/{number:02}", b"x")
    store.fail_next("delete", StoreUnreachable("away"))
    archive = Archive(store, ["f"])
    with pytest.raises(StoreUnreachable):
        await archive.forget(JOB)
    assert 0 < len(store.contents()) < 20
    await archive.forget(JOB)
    assert store.contents() == {}


def test_folders(tmp_path: Path) -> None:
    """A journal with a second copy is known by its own name; another controller by one that it writes down."""
    assert folders(tmp_path, RESULTS, "j") == ["attempts/j/results"]
    assert list(tmp_path.iterdir()) == []
    [own] = folders(tmp_path, RESULTS, "")
    assert folders(tmp_path, RESULTS, "") == [own]
    assert folders(tmp_path, RESULTS, "j") == ["attempts/j/results", own], "what it had before is found"


def test_no_folder(tmp_path: Path) -> None:
    """A name that cannot be read is told by name."""
    (tmp_path / "archive.id").mkdir()
    with pytest.raises(StateUnusable, check=that(names="archive.id")):
        folders(tmp_path, RESULTS, "")
