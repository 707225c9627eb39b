"""Objects as files: the contract, and what only a file system can do wrong."""

import errno
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from iriscw.objects.drivers.file import UNFINISHED_MAX_AGE_S, FileObjectStore
from iriscw.objects.ports import (
    ObjectKeyConflict,
    ObjectNotFound,
    ObjectStore,
    StoreAccessDenied,
    StoreFull,
    StoreUnreachable,
)
from iriscw.testing.conformance.object_store import ObjectStoreConformance
from raised import that


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store" / "inner"


@pytest.fixture
async def store(root: Path) -> AsyncIterator[FileObjectStore]:
    store = FileObjectStore(root)
    yield store
    await store.aclose()
    await store.aclose()


class TestFileObjectStore(ObjectStoreConformance):
    """The public suite."""

    @pytest.fixture
    async def store(self, store: FileObjectStore) -> ObjectStore:
        return store


def modes_below(root: Path) -> set[tuple[bool, int]]:
    return {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in root.rglob("*")}


async def test_files_are_private(store: FileObjectStore, root: Path) -> None:
    """0600 and 0700, whatever the umask would allow."""
    old = os.umask(0)
    try:
        await store.put("a/b/c", b"x")
    finally:
        os.umask(old)
    assert modes_below(root) == {(True, 0o700), (False, 0o600)}


async def test_links_are_never_followed(store: FileObjectStore, root: Path, tmp_path: Path) -> None:
    """Neither as an object nor as a folder: reading, writing and deleting are refused, listing leaves them
    out.
    """
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (root / "link").symlink_to(outside / "secret")
    (root / "folder").symlink_to(outside)
    for key in ("link", "folder/secret"):
        for call in (store.stat, store.delete):
            with pytest.raises(StoreAccessDenied):
                await call(key)
        with pytest.raises(StoreAccessDenied):
            await store.put(key, b"x")
        with pytest.raises(StoreAccessDenied):
            async with store.get(key):
                pass
    with pytest.raises(StoreAccessDenied):
        await store.put("folder/new", b"x")
    assert (await store.list()).objects == ()
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]
    assert (outside / "secret").read_text() == "secret"


async def test_a_deleted_root_is_not_absence(store: FileObjectStore, root: Path) -> None:
    """INV-C11: when the whole folder is gone nothing is known of any object."""
    await store.put("k", b"x")
    shutil.rmtree(root)
    for call in (store.stat("k"), store.put("k", b"x"), store.list(), store.delete("k")):
        with pytest.raises(StoreUnreachable):
            await call
    with pytest.raises(StoreUnreachable):
        async with store.get("k"):
            pass


async def test_a_closed_store_is_unreachable(root: Path) -> None:
    """No descriptor number of somebody else is ever used."""
    store = FileObjectStore(root)
    await store.aclose()
    with pytest.raises(StoreUnreachable, check=that(comes_from="file.FileObjectStore._check_root")):
        await store.stat("k")


async def test_an_object_and_a_folder_of_one_name(store: FileObjectStore) -> None:
    """The one thing that S3 can and files cannot: it is refused by name, in both orders."""
    await store.put("a", b"x")
    with pytest.raises(ObjectKeyConflict):
        await store.put("a/b", b"x")
    await store.put("c/d", b"x")
    with pytest.raises(ObjectKeyConflict):
        await store.put("c", b"x")
    await store.delete("c")
    assert [info.key for info in (await store.list()).objects] == ["a", "c/d"]


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (errno.EIO, StoreUnreachable),
        (errno.ESTALE, StoreUnreachable),
        (errno.ENOENT, StoreUnreachable),
        (errno.ENOSPC, StoreFull),
        (errno.EDQUOT, StoreFull),
        (errno.EACCES, StoreAccessDenied),
        (errno.EROFS, StoreAccessDenied),
    ],
)
async def test_the_disks_troubles_have_names(
    store: FileObjectStore, monkeypatch: pytest.MonkeyPatch, number: int, error: type[Exception]
) -> None:
    """A flush that fails is not an object; an unexpected errno is never read as absence."""

    def fail(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(error) as caught:
        await store.put("k", b"x")
    assert ("bytes free)" in str(caught.value)) == (error is StoreFull)
    monkeypatch.undo()
    with pytest.raises(ObjectNotFound):
        await store.stat("k")
    assert (await store.list()).objects == ()


async def test_a_killed_writers_leftovers_go(root: Path) -> None:
    """Old unfinished files are removed when the store is opened; young ones may belong to a live writer."""
    await FileObjectStore(root).aclose()
    young, old = (root / ".iriscw-unfinished" / name for name in ("young", "old"))
    for path in (young, old):
        path.write_bytes(b"x")
    past = time.time() - UNFINISHED_MAX_AGE_S - 60
    os.utime(old, (past, past))
    store = FileObjectStore(root)
    assert (young.exists(), old.exists()) == (True, False)
    assert (await store.list()).objects == ()
    await store.aclose()


WRITER = """
import sys, anyio
from pathlib import Path
from iriscw.objects.drivers.file import FileObjectStore
from iriscw.objects.ports import IfMatch, ObjectChanged
from iriscw.objects.drivers.transfer import read_whole

async def main():
    store = FileObjectStore(Path(sys.argv[1]))
    for _ in range(20):
        while True:
            info = await store.stat("counter")
            count = int(await read_whole(store, "counter", limit_bytes=100))
            try:
                await store.put("counter", str(count + 1).encode(), condition=IfMatch(info.etag))
                break
            except ObjectChanged:
                continue
    await store.aclose()

anyio.run(main)
"""


def run_writers(root: Path, count: int) -> list[int]:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(root)]) for _ in range(count)]
    return [writer.wait(60) for writer in writers]


async def test_conditions_hold_between_processes(store: FileObjectStore, root: Path) -> None:
    """Three processes that count together lose no step."""
    await store.put("counter", b"0")
    assert run_writers(root, 3) == [0, 0, 0]
    async with store.get("counter") as reading:
        assert b"".join([chunk async for chunk in reading]) == b"60"


async def test_no_descriptor_is_left_open(store: FileObjectStore) -> None:
    """Success and failure alike give all descriptors back."""

    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    await store.put("a/b", b"x")
    before = count()
    for _ in range(3):
        await store.put("a/b", b"x")
        await store.list()
        async with store.get("a/b"):
            pass
        for key in ("x/y", "a/b/c", "a"):
            with pytest.raises(ObjectNotFound):
                async with store.get(key):
                    pass
        with pytest.raises(ObjectKeyConflict):
            await store.put("a", b"x")
    assert count() == before
