"""What is stored comes back byte for byte, what is the same is stored once, and what is damaged is said."""

import anyio.lowlevel
import attrs
import pytest
from repository_stage import PAGE, contents_of, images, noise, repository, sealed, unseen

from iriscw.checkpoint.drivers.repository import packing, storing
from iriscw.checkpoint.drivers.repository.storing import CheckpointTaken
from iriscw.checkpoint.manifest import open_manifest
from iriscw.checkpoint.model import ChunkDamaged
from iriscw.checkpoint.repository.contents import read_head
from iriscw.freeze.model import ArtifactRefused, ArtifactUnknown
from raised import that

BASE = 0x7F0000000000
MIB = 256


async def stored(there, folder, artifact, **words):
    """Store a folder of images under this id."""
    return await there.store(artifact, folder, sealed(folder, artifact, **words), unseen)


async def fetched(there, artifact, into):
    """Fetch a checkpoint into a new folder, and return its files."""
    into.mkdir()
    await there.fetch(artifact, into, unseen)
    return contents_of(into)


async def test_files_come_back(tmp_path):
    """With the manifest that the tier sealed, whatever they hold."""
    there = repository()
    memory = {BASE: noise(1, 3 * MIB), BASE + (900 << 20): bytes(MIB * PAGE), 1 << 20: b"abc\0" * (PAGE // 4) * 5}
    folder = images(tmp_path / "images", memory)
    (folder / "empty.img").write_bytes(b"")
    kept = await stored(there, folder, "a")
    assert await fetched(there, "a", tmp_path / "back") == contents_of(folder)
    assert await there.manifest("a") == sealed(folder, "a")
    await there.verify("a", unseen)
    assert kept.size_bytes == sum(len(data) for data in contents_of(folder).values())
    (listed,) = await there.listing()
    assert listed == kept
    assert listed.manifest == attrs.evolve(open_manifest(sealed(folder, "a"), "a"), files=())


async def test_zeros_take_nothing(tmp_path):
    """Pages of zeros are never stored, alone or among others."""
    there = repository()
    mixed = b"".join(noise(number, 1) + bytes(3 * PAGE) for number in range(64))
    await stored(there, images(tmp_path / "images", {BASE: mixed, BASE + (1 << 30): bytes(64 * MIB * PAGE)}), "a")
    packs = sum(len(data) for key, data in there.bucket.contents().items() if key.startswith("packs/"))
    assert 64 * PAGE < packs < 70 * PAGE
    assert (await fetched(there, "a", tmp_path / "back"))["pages-1.img"][: len(mixed)] == mixed


async def test_a_second_freeze_stores_what_changed(tmp_path):
    """Although it has mapped more in front, and touched a page in the middle."""
    there = repository()
    large = noise(1, 20 * MIB)
    first = await stored(there, images(tmp_path / "one", {BASE: large}), "a")
    changed = large[: 9 * MIB * PAGE] + noise(2, 1) + large[(9 * MIB + 1) * PAGE :]
    folder = images(tmp_path / "two", {BASE - (64 << 20): noise(3, 5), BASE: changed}, number=2)
    second = await stored(there, folder, "b")
    assert first.added_bytes > 20 * MIB * PAGE
    assert second.added_bytes < 0.03 * first.added_bytes
    assert second.stored_bytes > 20 * MIB * PAGE
    assert await there.used_bytes() < 1.05 * first.added_bytes
    assert await fetched(there, "b", tmp_path / "back") == contents_of(folder)


async def test_what_goes_leaves_what_is_shared(tmp_path):
    """The first of two is removed; the second has all it needs after as many collections as one likes."""
    there = repository()
    memory = {BASE: noise(1, 8 * MIB)}
    await stored(there, images(tmp_path / "one", memory), "a")
    folder = images(tmp_path / "two", {**memory, BASE + (1 << 30): noise(2, MIB)})
    await stored(there, folder, "b")
    await there.remove("a")
    for _ in range(4):
        await there.collect(grace_s=0)
    assert [each.artifact for each in await there.listing()] == ["b"]
    assert await fetched(there, "b", tmp_path / "back") == contents_of(folder)
    await there.remove("b")
    for _ in range(4):
        await there.collect(grace_s=0)
    assert sorted(there.bucket.contents()) == ["format", "recent"]


async def test_it_is_stored_once(tmp_path):
    """A repeated call writes nothing; another checkpoint of that id is refused."""
    there = repository()
    folder = images(tmp_path / "images", {BASE: noise(1, MIB)})
    first = await stored(there, folder, "a")
    before = there.bucket.contents()
    assert await stored(there, folder, "a") == first
    assert there.bucket.contents() == before
    with pytest.raises(CheckpointTaken):
        await stored(there, images(tmp_path / "other", {BASE: noise(2, MIB)}), "a")
    assert there.bucket.contents() == before


async def test_a_damaged_source_is_not_stored(tmp_path):
    """Its copy would look whole, and the source would be removed."""
    there = repository()
    folder = images(tmp_path / "images", {BASE: noise(1, MIB)})
    manifest = sealed(folder, "a")
    pages = bytearray((folder / "pages-1.img").read_bytes())
    pages[5000] ^= 1
    (folder / "pages-1.img").write_bytes(pages)
    with pytest.raises(ArtifactRefused, check=that(names="pages-1.img")):
        await there.store("a", folder, manifest, unseen)
    assert await there.listing() == []


@pytest.mark.parametrize("kind", ["packs/", "manifests/", "heads/"])
@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
async def test_damage_is_said(tmp_path, kind, damage):
    """Whatever is damaged: no byte of it passes for whole, and the checkpoint can be removed."""
    there = repository()
    await stored(there, images(tmp_path / "images", {BASE: noise(1, MIB)}), "a")
    (key,) = [key for key in there.bucket.contents() if key.startswith(kind)]
    data = bytearray(there.bucket.contents()[key])
    data[len(data) // 2] ^= 1
    if damage == "gone":
        await there.bucket.delete(key)
    else:
        await there.bucket.put(key, bytes(data if damage == "flip" else data[:-1]))
    for read in (lambda: fetched(there, "a", tmp_path / "back"), lambda: there.verify("a", unseen)):
        with pytest.raises((ArtifactRefused, ArtifactUnknown)):
            await read()
    if (kind, damage) != ("heads/", "gone"):
        assert [each.artifact for each in await there.listing()] == ["a"]
        await there.remove("a")
    assert await there.listing() == []
    with pytest.raises(ArtifactUnknown):
        await there.remove("a")


async def test_what_is_compared_later_is_written_as_it_came(tmp_path):
    """Whoever compares the files himself gets all of them, and nobody says of them that they are whole."""
    there = repository()
    folder = images(tmp_path / "images", {BASE: noise(1, 3 * MIB)})
    await stored(there, folder, "a")
    (tmp_path / "back").mkdir()
    await there.fetch("a", tmp_path / "back", unseen, compare=False)
    assert contents_of(tmp_path / "back") == contents_of(folder)
    (key,) = [key for key in there.bucket.contents() if key.startswith("packs/")]
    await there.bucket.put(key, b"x" + there.bucket.contents()[key][1:])
    await there.fetch("a", tmp_path / "back", unseen, compare=False)
    assert contents_of(tmp_path / "back") != contents_of(folder)
    for cut in (there.bucket.contents()[key][:-1], b""):
        await there.bucket.put(key, cut)
        with pytest.raises(ChunkDamaged):
            await there.fetch("a", tmp_path / "back", unseen, compare=False)


async def test_damage_is_not_shared(tmp_path):
    """Once it was found: the next freeze stores those chunks again, and is whole."""
    there = repository()
    memory = {BASE: noise(1, MIB)}
    await stored(there, images(tmp_path / "one", memory), "a")
    (key,) = [key for key in there.bucket.contents() if key.startswith("packs/")]
    await there.bucket.put(key, b"x" + there.bucket.contents()[key][1:])
    with pytest.raises(ChunkDamaged, check=that(names=key.removeprefix("packs/"))):
        await there.verify("a", unseen)
    folder = images(tmp_path / "two", memory)
    await stored(there, folder, "b")
    assert await fetched(there, "b", tmp_path / "back") == contents_of(folder)
    await there.remove("a")
    for _ in range(3):
        await there.collect(grace_s=0)
    assert not [key for key in there.bucket.contents() if key.startswith("damaged/")]


async def test_packs_are_one_request_each(tmp_path, monkeypatch):
    """None is longer than a pack may be, whatever chunks come before; at most so many are written at the same time."""
    monkeypatch.setattr(packing, "PACK_BYTES", MIB * PAGE)
    there = repository()
    put, sizes, under_way, most = there.bucket.put, [], [], []
    full = anyio.Event()

    async def slow(key, data, **words):
        if key.startswith("packs/"):
            sizes.append(len(data))
            under_way.append(key)
            most.append(len(under_way))
            if len(under_way) >= packing.UPLOADS:
                full.set()
            with anyio.move_on_after(60):  # the next chunks are read and packed meanwhile, however long that takes
                await full.wait()
        info = await put(key, data, **words)
        if key in under_way:
            under_way.remove(key)
        return info

    monkeypatch.setattr(there.bucket, "put", slow)
    folder = images(tmp_path / "images", {BASE: noise(1, 20 * MIB + 7)})
    await stored(there, folder, "a")
    assert len(sizes) > 20
    assert max(sizes) <= MIB * PAGE
    assert max(most) in (packing.UPLOADS, packing.UPLOADS + 1)
    assert await fetched(there, "a", tmp_path / "back") == contents_of(folder)


@pytest.mark.parametrize("kind", ["packs/", "manifests/", "heads/"])
async def test_what_is_damaged_is_stored_again(tmp_path, kind):
    """By whoever has it still, once the damage was found."""
    there = repository()
    folder = images(tmp_path / "images", {BASE: noise(1, 2 * MIB)})
    await stored(there, folder, "a")
    (key,) = [key for key in there.bucket.contents() if key.startswith(kind)]
    await there.bucket.put(key, there.bucket.contents()[key][:-100])
    with pytest.raises(ArtifactRefused):
        await there.verify("a", unseen)
    await stored(there, folder, "a")
    await there.verify("a", unseen)
    assert await fetched(there, "a", tmp_path / "back") == contents_of(folder)


async def test_an_attempt_that_takes_long_is_not_given_up(tmp_path, monkeypatch):
    """It says that it goes on before each pack, if that is due."""
    monkeypatch.setattr(storing, "RENEWAL_S", 0.0)
    monkeypatch.setattr(packing, "PACK_BYTES", MIB * PAGE)
    there = repository()
    written = []
    put = there.bucket.put

    async def seen(key, data, **words):
        if key.startswith("heads/"):
            written.append(read_head(data, "a").head.begun_wall_ns)
        return await put(key, data, **words)

    monkeypatch.setattr(there.bucket, "put", seen)
    await stored(there, images(tmp_path / "images", {BASE: noise(1, 4 * MIB)}), "a")
    assert len(written) >= 6
    assert written[:-1] == sorted(written[:-1])
    assert written[-1] == 0


async def test_nothing_is_written_where_nobody_stores():
    """Looking, removing and collecting make no repository of an empty bucket."""
    there = repository()
    assert await there.listing() == []
    assert not await there.has("a")
    assert (await there.collect(grace_s=0)).checkpoints == 0
    for call in (there.manifest, there.remove):
        with pytest.raises(ArtifactUnknown):
            await call("a")
    assert there.bucket.contents() == {}


async def test_another_format_is_kept_out(tmp_path):
    """What a newer version wrote, and what is not a repository."""
    for text in (b'["repository.format",1,{"format":3}]\n', b"hello"):
        there = repository()
        await there.bucket.put("format", text)
        with pytest.raises(ArtifactRefused):
            await stored(there, images(tmp_path / "images", {BASE: noise(1, 1)}), "a")
        with pytest.raises(ArtifactRefused):
            await there.listing()
