"""What is stored, as doors see it."""

from pathlib import Path

from iriscw.bundles.cache import bundle_key
from iriscw.controller.stores.archive import Archive
from iriscw.controller.stores.logs import LogStore
from iriscw.controller.stores.payloads import Payloads
from iriscw.controller.stores.results import ResultStore
from iriscw.controller.stores.stores import Stores
from iriscw.objects.drivers.opening import open_store


async def test_bundles_lie_below_their_prefix(tmp_path: Path) -> None:
    """One place says what key a bundle has: what one door puts there, the other finds."""
    objects = open_store(f"file://{tmp_path}")
    logs, results = await LogStore.open(tmp_path / "logs"), await ResultStore.open(tmp_path / "results")
    stores = Stores(logs, results, Payloads(objects, ""), objects, "shelf", Archive(objects, ["states"]))
    assert stores.bundle_key("a" * 64) == bundle_key("shelf", "a" * 64)
    assert stores.bundle_key("a" * 64).startswith("shelf/")
    await objects.aclose()
