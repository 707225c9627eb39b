"""The port over tiers: errors come as they are, an artifact is found in its tier, a cancelled reading stops."""

import asyncio
import hashlib
import sys
import threading
from pathlib import Path

import anyio
import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for artifacts

from artifacts import FROZEN, fill, folders, published

from iriscw.checkpoint.drivers.digests import best_algorithm
from iriscw.checkpoint.drivers.store import Folders
from iriscw.checkpoint.drivers.tiers import Tiers
from iriscw.checkpoint.manifest import seal
from iriscw.freeze.messages import FreezeTree, ThawTree
from iriscw.freeze.model import ArtifactRefused, ArtifactUnknown, FreezePlan, TaskIdentity, ThawPlan, UnsafeRequest
from raised import that

PATIENCE_S = 60
"""For what takes milliseconds on a machine that is not busy."""


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
async def test_pages_may_be_left_for_later(tmp_path) -> None:
    """All but the pages is read and compared; they are given with the digest of each piece, and have their size."""
    tier = published(tmp_path)
    tiers = tiers_of(tmp_path, tier)
    images = tmp_path / "tier" / "artifacts" / "op-1" / "images"
    seen = []
    assert (await tiers.pin("op-1", "op-2")).by_pieces
    pages = await tiers.verify_but_pages("op-1", seen.append)
    data = (images / "pages-1.img").read_bytes()
    pieces = [data[at : at + pages.piece_bytes] for at in range(0, len(data), pages.piece_bytes)]
    assert [(each.name, each.size_bytes) for each in pages.files] == [("pages-1.img", len(data))]
    assert pages.algorithm == "sha256-8m" or pages.algorithm == "blake3-8m"
    if pages.algorithm == "sha256-8m":
        assert pages.files[0].digests == b"".join(hashlib.sha256(piece).digest() for piece in pieces)
    assert len(pages.files[0].digests) == 32 * len(pieces) > 32
    assert seen[-1].total_bytes == sum(each.stat().st_size for each in images.iterdir()) - len(data)
    (images / "pages-1.img").write_bytes(data[:-1])
    with pytest.raises(ArtifactRefused, check=that(names="pages-1.img")):
        await tiers.verify_but_pages("op-1", seen.append)
    (images / "pages-1.img").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    await tiers.verify_but_pages("op-1", seen.append)
    (images / "core-100.img").write_bytes(b"x" * 300)
    with pytest.raises(ArtifactRefused, check=that(names="core-100.img")):
        await tiers.verify_but_pages("op-1", seen.append)


@pytest.mark.anyio
async def test_a_checkpoint_of_an_older_iriscw_has_no_digests_of_pieces(tmp_path) -> None:
    """It says so, and all of it is read before it is used."""
    tiers = tiers_of(tmp_path, published(tmp_path, large=False))
    place = tmp_path / "tier" / "artifacts" / "op-1"
    files = tuple(attrs.evolve(each, pieces=b"") for each in tiers.folders["disk"].manifest("op-1").files)
    text, _ = seal("op-1", frozen=FROZEN, files=files, algorithm=best_algorithm())
    assert b"checkpoint.pieces" not in text
    (place / "manifest.jsonl").write_bytes(text)
    assert not (await tiers.pin("op-1", "op-2")).by_pieces
    assert (await tiers.verify_but_pages("op-1", lambda progress: None)).files == ()
    (place / "images" / "pages-1.img").write_bytes(bytes(70_000))
    with pytest.raises(ArtifactRefused, check=that(comes_from="images.compare", names="pages-1.img")):
        await tiers.verify_but_pages("op-1", lambda progress: None)


@pytest.mark.anyio
async def test_digests_of_pieces_that_are_not_those_of_the_file_are_refused(tmp_path, monkeypatch) -> None:
    """The file's digest is made of them: who changed one of the two is found before anything is read."""
    tiers = tiers_of(tmp_path, published(tmp_path))
    real = Folders.manifest

    def manifest(folders, artifact):
        made = real(folders, artifact)
        files = [attrs.evolve(each, pieces=each.pieces[::-1]) for each in made.files]
        return attrs.evolve(made, files=tuple(files))

    monkeypatch.setattr(Folders, "manifest", manifest)
    with pytest.raises(ArtifactRefused, check=that(comes_from="store.Folders.verify", names="pages-1.img")):
        await tiers.verify_but_pages("op-1", lambda progress: None)


@pytest.mark.anyio
async def test_errors_come_as_they_are(tmp_path) -> None:
    """No group of tasks is around them."""
    tiers = tiers_of(tmp_path, published(tmp_path, large=False))
    (tmp_path / "tier" / "artifacts" / "op-1" / "images" / "pstree.img").write_bytes(b"x")
    with pytest.raises(ArtifactRefused, check=that(names="pstree.img")):
        await tiers.verify("op-1", lambda progress: None)
    with pytest.raises(ArtifactUnknown):
        await tiers.pin("op-9", "op-2")
    with pytest.raises(ArtifactUnknown):
        await tiers.seal("op-9", FROZEN, (), lambda progress: None)
    with pytest.raises(UnsafeRequest, check=that(names=("ram", "disk"))):
        await tiers.reserve("op-9", "tape", 1)


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["", "../../etc", "UPPER"])
async def test_what_is_no_id_is_kept_by_nobody(tmp_path, name) -> None:
    """It is refused when it is asked for, and there is nothing to let go afterwards."""
    tiers = tiers_of(tmp_path, folders(tmp_path))
    with pytest.raises(UnsafeRequest):
        await tiers.pin(name, "op-1")
    assert not await tiers.unpin(name, "op-1")


@pytest.mark.anyio
async def test_only_memory_is_promised(tmp_path) -> None:
    """A disk has none of the machine's memory; a tier that is not there has nothing."""
    memory = folders(tmp_path, volatile=True)
    tiers = Tiers({"ram": memory, "disk": Folders("disk", tmp_path / "disk", 1 << 30)})
    await tiers.reserve("op-1", "ram", 1 << 20)
    assert await tiers.promised("ram") == 1 << 20
    await tiers.reserve("op-2", "disk", 1 << 20)
    assert await tiers.promised("disk") is None
    with pytest.raises(UnsafeRequest, check=that(names="tape")):
        await tiers.promised("tape")


@pytest.mark.anyio
async def test_a_cancelled_verification_ends(tmp_path) -> None:
    """It does not read to the end first."""
    tiers = tiers_of(tmp_path, published(tmp_path))
    seen, told, loop = [], threading.Event(), asyncio.get_running_loop()

    async def tell() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            loop.call_soon(told.set)  # once all that was cancelled with it knows

    def first(progress) -> None:
        seen.append(progress.done_bytes)
        if len(seen) == 1:
            loop.call_soon_threadsafe(scope.cancel)
            assert told.wait(PATIENCE_S)

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tell)
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
        with pytest.raises(UnsafeRequest, check=that(comes_from="store.Folders.check", names="ram")):
            await call


@pytest.mark.anyio
async def test_an_operation_in_a_spoilt_tier_is_refused_before_it_begins(tmp_path) -> None:
    """A freeze whose tier is not ours alone, and a thaw of what may lie there; nobody else is kept from anything."""
    tiers = tiers_of(tmp_path, published(tmp_path, large=False))
    freeze = FreezePlan("op-3", TaskIdentity(100, 1, "b"), "ram")
    (tmp_path / "ram").mkdir(mode=0o700)
    for message in (FreezeTree(freeze), ThawTree(ThawPlan("op-4", "op-1")), ThawTree(ThawPlan("op-4", "nowhere"))):
        await tiers.check(message)
    (tmp_path / "ram").chmod(0o750)
    for message in (FreezeTree(attrs.evolve(freeze, tier="disk")), ThawTree(ThawPlan("op-4", "op-1"))):
        await tiers.check(message)
    for message in (FreezeTree(freeze), ThawTree(ThawPlan("op-4", "nowhere"))):
        with pytest.raises(UnsafeRequest, check=that(comes_from="store.Folders.check", names="ram")):
            await tiers.check(message)


@pytest.mark.anyio
async def test_what_is_let_go_was_there_though_somebody_removes_it_at_once(tmp_path, monkeypatch) -> None:
    """An operation whose checkpoint was given away in that instant has not lost it."""
    tiers = tiers_of(tmp_path, published(tmp_path, large=False))
    await tiers.pin("op-1", "op-2")
    folders = tiers.folders["disk"]
    unpin = folders.unpin

    def unpin_and_remove(artifact, operation):
        unpin(artifact, operation)
        folders.remove(artifact)

    monkeypatch.setattr(type(folders), "unpin", lambda self, *words: unpin_and_remove(*words))
    assert await tiers.unpin("op-1", "op-2") is True
    assert await tiers.find("op-1") is None
    assert await tiers.unpin("op-1", "op-2") is False
