"""Bundles are written once, fetched once, and never used unchecked."""

import io
from pathlib import Path

import anyio
import pytest

from iriscw.bundles.pack import Packed, pack
from iriscw.bundles.store import BundleCache, bundle_key, upload
from iriscw.bundles.unpack import BundleCorrupt
from iriscw.errors import InvalidArgument
from iriscw.tiers.drivers.fake import FakeObjectStore
from iriscw.tiers.ports import ObjectNotFound, StoreUnreachable


@pytest.fixture
def store() -> FakeObjectStore:
    return FakeObjectStore()


def make(tmp_path: Path) -> tuple[Packed, io.BytesIO]:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "main.py").write_text("print(1)")
    target = io.BytesIO()
    return pack(folder, target), target


def text_of(path: Path) -> str:
    return path.read_text()


def names_in(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir())


async def test_a_bundle_is_written_once(store: FakeObjectStore, tmp_path: Path) -> None:
    """Its name is its content, so a second upload changes nothing."""
    packed, source = make(tmp_path)
    key = await upload(store, "/jobs/bundles/", packed, source)
    assert key == f"jobs/bundles/{packed.bundle_id}.zip"
    assert await upload(store, "jobs/bundles", packed, source) == key
    assert store.contents() == {key: source.getvalue()}


async def test_many_tasks_fetch_it_once(store: FakeObjectStore, tmp_path: Path) -> None:
    """And all get the same folder; another worker on the same disk does too."""
    packed, source = make(tmp_path)
    await upload(store, "b", packed, source)
    caches = [BundleCache(tmp_path / "cache", store, "b") for _ in range(2)]
    found: list[Path] = []

    async def fetch(cache: BundleCache) -> None:
        found.append(await cache.fetch(packed.bundle_id))

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(fetch, caches[number % 2])
    assert set(found) == {tmp_path / "cache" / packed.bundle_id}
    assert text_of(found[0] / "main.py") == "print(1)"
    assert store.calls["get"] <= 2
    assert names_in(tmp_path / "cache") == [packed.bundle_id]


async def test_what_is_damaged_is_never_unpacked(store: FakeObjectStore, tmp_path: Path) -> None:
    """Nothing of it is left, and a good copy is taken the next time."""
    packed, source = make(tmp_path)
    key = bundle_key("b", packed.bundle_id)
    await store.put(key, source.getvalue()[:-1] + b"\xff")
    cache = BundleCache(tmp_path / "cache", store, "b")
    with pytest.raises(BundleCorrupt):
        await cache.fetch(packed.bundle_id)
    assert names_in(tmp_path / "cache") == []
    await store.put(key, source.getvalue())
    assert (await cache.fetch(packed.bundle_id)).is_dir()


async def test_the_stores_troubles_come_through(store: FakeObjectStore, tmp_path: Path) -> None:
    """Absence and silence are different errors, and neither leaves anything."""
    cache = BundleCache(tmp_path / "cache", store, "b")
    with pytest.raises(ObjectNotFound):
        await cache.fetch("0" * 64)
    store.fail_next("get", StoreUnreachable("no answer"))
    with pytest.raises(StoreUnreachable):
        await cache.fetch("0" * 64)
    assert names_in(tmp_path / "cache") == []


@pytest.mark.parametrize("bundle_id", ["", "../x", "0" * 63, "A" * 64, "0" * 64 + "/"])
def test_an_id_is_a_hash(bundle_id: str) -> None:
    """Nothing else becomes a name of a folder."""
    with pytest.raises(InvalidArgument):
        bundle_key("b", bundle_id)
