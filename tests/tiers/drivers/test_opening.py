"""Stores are opened by URL."""

from pathlib import Path

import pytest

from iriscw.tiers.drivers.fake import FakeObjectStore
from iriscw.tiers.drivers.opening import InvalidStoreUrl, NoSuchStore, open_store


def names_in(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


async def test_a_folder_is_a_url(tmp_path: Path) -> None:
    """Spaces are written as URLs write them."""
    store = open_store(f"file://{tmp_path}/a%20b")
    await store.put("k", b"x")
    await store.aclose()
    assert names_in(f"{tmp_path}/a b") == [".iriscw-lock", ".iriscw-unfinished", "k"]


@pytest.mark.parametrize("url", ["", "/plain/path", "file://host/path", "file:relative", "file:///a?b", "file:///a#b"])
def test_what_is_no_folder(url: str) -> None:
    """Is said to be none, with how to write one."""
    with pytest.raises(InvalidStoreUrl, match="file:///absolute/path"):
        open_store(url)


def test_other_schemes() -> None:
    """By argument; an unknown one is listed with the known."""
    fake = FakeObjectStore()
    assert open_store("mine://x", {"mine": lambda url: fake}) is fake
    with pytest.raises(NoSuchStore, match="there are: file, mine"):
        open_store("s4://bucket", {"mine": lambda url: fake})
