"""The port over tiers: errors come as they are, an artifact is found in its tier, a cancelled reading stops."""

import asyncio
import sys
from pathlib import Path

import anyio
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for artifacts

from artifacts import FROZEN, fill, folders, published

from iriscw.checkpoint.drivers.store import Folders
from iriscw.checkpoint.drivers.tiers import Tiers
from iriscw.freeze.model import ArtifactRefused, ArtifactUnknown, UnsafeRequest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def tiers_of(tmp_path, tier: Folders) -> Tiers:
    """Two tiers: an empty one, and this one."""
    return Tiers({"ram": Folders("ram", tmp_path / "ram", 1 << 30), "disk": tier})


@pytest.mark.anyio
async def test_the_whole_way(tmp_path) -> None:
    """Reserved, sealed, published, pinned, verified, let go, removed."""
    tiers = tiers_of(tmp_path, folders(tmp_path))
    seen = []
    room = await tiers.reserve("op-1", "disk", 40 << 20)
    fill(room)
    sealed = await tiers.seal("op-1", FROZEN, (), seen.append)
    await tiers.publish("op-1")
    assert (seen[-1].phase, seen[-1].total_bytes) == ("sealing", sealed.size_bytes)
    assert max(each.done_bytes for each in seen) == sealed.size_bytes
    kept = await tiers.pin("op-1", "op-2")
    assert (kept.frozen, kept.sealed) == (FROZEN, sealed)
    await tiers.verify("op-1", seen.append)
    assert (seen[-1].phase, seen[-1].done_bytes) == ("verifying", sealed.size_bytes)
    await tiers.unpin("op-1", "op-2")
    await tiers.unpin("op-1", "op-1")
    assert [each.artifact for each in await tiers.listing()] == ["op-1"]
    assert [each.tier for each in await tiers.use()] == ["disk"]
    await tiers.remove("op-1")
    await tiers.discard("op-1")
    assert await tiers.listing() == []


@pytest.mark.anyio
async def test_errors_come_as_they_are(tmp_path) -> None:
    """No group of tasks is around them."""
    tiers = tiers_of(tmp_path, published(tmp_path, large=False))
    (tmp_path / "tier" / "artifacts" / "op-1" / "images" / "pstree.img").write_bytes(b"x")
    with pytest.raises(ArtifactRefused, match=r"pstree\.img"):
        await tiers.verify("op-1", lambda progress: None)
    with pytest.raises(ArtifactUnknown):
        await tiers.pin("op-9", "op-2")
    with pytest.raises(ArtifactUnknown):
        await tiers.seal("op-9", FROZEN, (), lambda progress: None)
    with pytest.raises(UnsafeRequest, match="ram, disk"):
        await tiers.reserve("op-9", "tape", 1)


@pytest.mark.anyio
async def test_only_memory_is_promised(tmp_path) -> None:
    """A disk has none of the machine's memory; a tier that is not there has nothing."""
    memory = folders(tmp_path, volatile=True)
    tiers = Tiers({"ram": memory, "disk": Folders("disk", tmp_path / "disk", 1 << 30)})
    await tiers.reserve("op-1", "ram", 1 << 20)
    assert await tiers.promised("ram") == 1 << 20
    await tiers.reserve("op-2", "disk", 1 << 20)
    assert await tiers.promised("disk") is None
    with pytest.raises(UnsafeRequest, match="tape"):
        await tiers.promised("tape")


@pytest.mark.anyio
async def test_a_cancelled_verification_ends(tmp_path) -> None:
    """It does not read to the end first."""
    tiers = tiers_of(tmp_path, published(tmp_path))
    seen = []
    with anyio.CancelScope() as scope:

        def first(progress) -> None:
            seen.append(progress.done_bytes)
            if len(seen) == 1:
                loop.call_soon_threadsafe(scope.cancel)

        loop = asyncio.get_running_loop()
        await tiers.verify("op-1", first)
    assert scope.cancelled_caught


@pytest.mark.anyio
async def test_a_spoilt_tier_keeps_nobody_from_another_one(tmp_path) -> None:
    """Whoever took over the folder of one tier stops nothing in the others; what is in none of these may lie there."""
    tiers = tiers_of(tmp_path, published(tmp_path, large=False))
    (tmp_path / "ram").mkdir(mode=0o777)
    (tmp_path / "ram").chmod(0o777)
    await tiers.pin("op-1", "op-2")
    await tiers.verify("op-1", lambda progress: None)
    found = await tiers.find("op-1")
    assert (found.tier, found.pinned_by) == ("disk", ("op-2",))
    await tiers.unpin("op-1", "op-2")
    fill(await tiers.reserve("op-3", "disk", 1 << 20))
    await tiers.seal("op-3", FROZEN, (), lambda progress: None)
    await tiers.publish("op-3")
    await tiers.discard("op-3")
    await tiers.remove("op-1")
    for call in (tiers.pin("op-1", "op-2"), tiers.find("op-1"), tiers.discard("op-3"), tiers.unpin("op-1", "op-2")):
        with pytest.raises(UnsafeRequest, match="ram is not a folder of mode 0700"):
            await call
