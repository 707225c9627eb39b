"""Stores are opened by URL."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from iriscw import plugs
from iriscw.objects.drivers.errors import (
    AmbiguousStore,
    BrokenStore,
    InvalidStoreUrl,
    NoSuchStore,
    StoreExtraMissing,
    is_installed,
)
from iriscw.objects.drivers.fake import FakeObjectStore
from iriscw.objects.drivers.file import FileObjectStore
from iriscw.objects.drivers.opening import open_store
from raised import that


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
    with pytest.raises(InvalidStoreUrl, check=that(names="file:///absolute/path")):
        open_store(url)


def test_other_schemes() -> None:
    """By argument; an unknown one is listed with the known."""
    fake = FakeObjectStore()
    assert open_store("mine://x", {"mine": lambda url: fake}) is fake
    with pytest.raises(NoSuchStore, check=that(comes_from="opening.open_store")):
        open_store("s4://bucket", {"mine": lambda url: fake})


def test_a_library_that_is_not_installed(monkeypatch) -> None:
    """Is named with how to get it; an emulator needs none."""
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    for module in ("gs", "opening"):
        monkeypatch.setattr(f"iriscw.objects.drivers.{module}.is_installed", lambda name: False)
    with pytest.raises(StoreExtraMissing, check=that(comes_from="gs.open_gs_store")):
        open_store("gs://bucket")
    with pytest.raises(StoreExtraMissing, check=that(comes_from="opening.open_s3_store")):
        open_store("s3://bucket")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:9")
    open_store("gs://bucket")


def test_what_is_installed() -> None:
    """Is looked for without importing it, and what it is in may be missing, too."""
    assert not is_installed("no_such_package_of_anybody.auth")
    assert not is_installed("iriscw.no_such_module")
    assert is_installed("iriscw.errors")


def test_opening_a_google_store_loads_no_client() -> None:
    """The libraries are imported when a request is made, in a thread."""
    code = "import iriscw.objects.drivers.opening as o, sys; o.open_store('gs://bkt'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert not {"aiohttp", "google.auth", "yarl"} & {*done.stdout.split()}


@pytest.fixture
def offer(monkeypatch):
    """Have packages offer drivers: schemes, and what of this module each is."""

    def offer(*pairs: tuple[str, str]) -> None:
        made = [EntryPoint(scheme, f"{__name__}:{what}", "iriscw.object_stores") for scheme, what in pairs]
        monkeypatch.setattr(plugs, "entry_points", lambda group: made if group == "iriscw.object_stores" else [])
        plugs.offered.cache_clear()

    yield offer
    plugs.offered.cache_clear()


def take(url: str) -> str:
    """Stand in for a store."""
    return f"the store of {url}"


NO_FUNCTION = 5


def test_a_driver_of_a_package(offer) -> None:
    """It is given the whole URL; what is built in comes before it, and the error for another scheme lists it."""
    offer(("box", "take"), ("file", "NO_FUNCTION"))
    assert open_store("box://a/b") == "the store of box://a/b"
    assert isinstance(open_store("file:///"), FileObjectStore)
    with pytest.raises(NoSuchStore, check=that(names=("crate", "box"))):
        open_store("crate://a")


@pytest.mark.parametrize(
    ("pairs", "error"),
    [
        ((("box", "take"), ("box", "NO_FUNCTION")), AmbiguousStore),
        ((("box", "NO_FUNCTION"),), BrokenStore),
        ((("box", "missing"),), BrokenStore),
    ],
)
def test_what_is_wrong_with_a_driver_has_a_name(offer, pairs, error) -> None:
    """Two of one scheme, what is no function, and what cannot be imported."""
    offer(*pairs)
    with pytest.raises(error, check=that(names="box")):
        open_store("box://a")
