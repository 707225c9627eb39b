"""Bundles are fetched once, and never used unchecked."""

import io
from pathlib import Path

import anyio
import pytest

from iriscw._errors import InvalidArgument, OutcomeUnknown
from iriscw.bundles.cache import BundleCache, bundle_key
from iriscw.bundles.pack import BundleLimits, pack
from iriscw.bundles.unpack import BundleCorrupt


class Source:
    """Gives what it was given, and counts."""

    def __init__(self) -> None:
        self.bundles: dict[str, bytes] = {}
        self.downloads = 0
        self.limit_bytes = 0

    async def download(self, bundle_id: str, path: Path, limit_bytes: int) -> None:
        """Write it, or fail with half of it written."""
        self.downloads += 1
        self.limit_bytes = limit_bytes
        content = self.bundles.get(bundle_id)
        await anyio.Path(path).write_bytes(b"PK" if content is None else content)
        if content is None:
            raise OutcomeUnknown("the connection broke")


def make(tmp_path: Path) -> tuple[str, bytes]:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "main.py").write_text("print(1)")
    target = io.BytesIO()
    return pack(folder, target).bundle_id, target.getvalue()


def text_of(path: Path) -> str:
    return path.read_text()


def names_in(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir())


async def test_many_tasks_fetch_it_once(tmp_path: Path) -> None:
    """And all get the same folder; another worker on the same disk does too."""
    bundle_id, content = make(tmp_path)
    source = Source()
    source.bundles[bundle_id] = content
    caches = [BundleCache(tmp_path / "cache", source) for _ in range(2)]
    found: list[Path] = []

    async def fetch(cache: BundleCache) -> None:
        found.append(await cache.fetch(bundle_id))

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(fetch, caches[number % 2])
    assert set(found) == {tmp_path / "cache" / bundle_id}
    assert text_of(found[0] / "main.py") == "print(1)"
    assert source.downloads <= 2
    assert names_in(tmp_path / "cache") == [bundle_id]


async def test_what_is_damaged_is_never_unpacked(tmp_path: Path) -> None:
    """Nothing of it is left, and a good copy is taken the next time."""
    bundle_id, content = make(tmp_path)
    source = Source()
    source.bundles[bundle_id] = content[:-1] + b"\xff"
    cache = BundleCache(tmp_path / "cache", source)
    with pytest.raises(BundleCorrupt):
        await cache.fetch(bundle_id)
    assert names_in(tmp_path / "cache") == []
    source.bundles[bundle_id] = content
    assert (await cache.fetch(bundle_id)).is_dir()


async def test_a_failed_download_leaves_nothing(tmp_path: Path) -> None:
    """The source's trouble comes through; it was told how large a bundle may be."""
    source = Source()
    cache = BundleCache(tmp_path / "cache", source, BundleLimits(packed_bytes=1_000))
    with pytest.raises(OutcomeUnknown):
        await cache.fetch("0" * 64)
    assert names_in(tmp_path / "cache") == []
    assert source.limit_bytes == 1_000


@pytest.mark.parametrize("bundle_id", ["", "../x", "0" * 63, "A" * 64, "0" * 64 + "/"])
async def test_an_id_is_a_hash(tmp_path: Path, bundle_id: str) -> None:
    """Nothing else becomes a name of a folder or an object."""
    with pytest.raises(InvalidArgument):
        bundle_key("b", bundle_id)
    source = Source()
    with pytest.raises(InvalidArgument):
        await BundleCache(tmp_path / "cache", source).fetch(bundle_id)
    assert source.downloads == 0


def test_a_key_is_below_its_prefix() -> None:
    """Slashes around the prefix change nothing; without a prefix it is the name alone."""
    assert bundle_key("/jobs/bundles/", "0" * 64) == f"jobs/bundles/{'0' * 64}.zip"
    assert bundle_key("", "0" * 64) == f"{'0' * 64}.zip"
