"""A repository that somebody else may write into: what lies in it takes no more than it was given."""

import contextlib
import hashlib
import threading
from itertools import pairwise

import anyio
import attrs
import pytest
from hypothesis import given, strategies as st
from repository_stage import PAGE, images, noise, repository, sealed, unseen

from iriscw.checkpoint.drivers.repository import collecting, encoding, fetching, objects, storing
from iriscw.checkpoint.drivers.repository.cutting import batches
from iriscw.checkpoint.drivers.repository.opening import shown_place
from iriscw.checkpoint.manifest import MAX_MANIFEST_BYTES, PIECE_BYTES
from iriscw.checkpoint.model import ChunkDamaged
from iriscw.checkpoint.repository.contents import (
    MAX_CHUNK_BYTES,
    MAX_SMALL_BYTES,
    WINDOW_BYTES,
    digest_of_zeros,
    head_lines,
    read_contents,
    written_contents,
    written_head,
    written_heads,
)
from iriscw.checkpoint.repository.keys import head_key, manifest_key
from iriscw.checkpoint.repository.model import CheckpointHead, Chunk, ChunkCodec, ChunkPlace, StoredFile
from iriscw.freeze.model import ArtifactRefused
from iriscw.objects.ports import ObjectExists, ObjectInfo, StoreUnreachable
from raised import that

BASE = 0x7F0000000000
ZEROS = Chunk(digest_of_zeros(MAX_CHUNK_BYTES), MAX_CHUNK_BYTES, ChunkPlace("", 0, 0, ChunkCodec.ZEROS))


async def kept(folder, artifact="a"):
    """Return a repository that has one checkpoint, and the folder of its images."""
    there, place = repository(), images(folder / "images", {BASE: noise(1, 64)})
    await there.store(artifact, place, sealed(place, artifact), unseen)
    return there, place


async def forged(there, files_of, **head):
    """Put other files into the manifest of the checkpoint ``a``, with digests that are right."""
    shown, _ = await there.objects.shown("a")
    contents = await there.objects.contents(shown)
    text = written_contents(attrs.evolve(contents, files=files_of(contents.files)))
    await there.bucket.put(manifest_key("a", contents.attempt), text)
    changed = attrs.evolve(shown, digest=hashlib.sha256(text).hexdigest(), **head)
    await there.bucket.put(head_key("a"), written_head(head_lines(changed)))


async def test_a_manifest_of_a_tier_that_is_larger_than_one(tmp_path):
    """It is not made in memory: a few bytes may say that it has gigabytes of zeros."""
    there, _ = await kept(tmp_path)
    bomb = StoredFile("manifest.jsonl", (ZEROS,) * (MAX_MANIFEST_BYTES // MAX_CHUNK_BYTES + 1))
    await forged(there, lambda files: (*(f for f in files if f.name != bomb.name), bomb), source="")
    for read in (there.manifest("a"), there.verify("a", unseen), there.fetch("a", tmp_path, unseen)):
        with pytest.raises(ArtifactRefused, check=that(names="manifest.jsonl", comes_from="contents._check_files")):
            await read
    (listed,) = await there.listing()
    assert "manifest.jsonl" in listed.trouble


@pytest.mark.parametrize("codec", [ChunkCodec.ZSTD, ChunkCodec.PAGES, ChunkCodec.PAGES_ZSTD])
async def test_a_chunk_that_takes_more_than_it_is(tmp_path, codec):
    """What is stored of it is read into memory: it is bounded by what it becomes."""
    there, _ = await kept(tmp_path)
    shown, _ = await there.objects.shown("a")
    contents = await there.objects.contents(shown)
    pack, more = contents.packs[0], 2 if codec is ChunkCodec.PAGES else 1

    def text(stored):
        chunk = Chunk(bytes(32), 9 * PAGE, ChunkPlace(pack, 0, stored, codec))
        return written_contents(attrs.evolve(contents, files=(*contents.files, StoredFile("more.img", (chunk,)))))

    most = 9 * PAGE + (0 if codec is ChunkCodec.ZSTD else 2)
    read_contents(text(most), "a", shown.attempt)
    with pytest.raises(ArtifactRefused, check=that(names=most + more)):
        read_contents(text(most + more), "a", shown.attempt)


async def test_zeros_that_are_none(tmp_path):
    """No byte of them is stored, so nothing is compared when they are read: their digest has to be that of zeros."""
    there, _ = await kept(tmp_path)
    contents = await there.objects.contents((await there.objects.shown("a"))[0])
    for chunk, refused in ((ZEROS, False), (attrs.evolve(ZEROS, digest=bytes(32)), True)):
        text = written_contents(attrs.evolve(contents, files=(*contents.files, StoredFile("more.img", (chunk,)))))
        with pytest.raises(ArtifactRefused) if refused else contextlib.nullcontext():
            read_contents(text, "a", contents.attempt)


async def test_contents_that_lie(tmp_path):
    """They have the manifest of the tier, and files are as long as their chunks."""
    there, _ = await kept(tmp_path)
    contents = await there.objects.contents((await there.objects.shown("a"))[0])
    text = written_contents(contents)
    without = written_contents(
        attrs.evolve(contents, files=tuple(f for f in contents.files if f.name != "manifest.jsonl"))
    )
    lines = text.splitlines(keepends=True)[:-1]
    longer = b"".join(line.replace(b'"size_bytes":9', b'"size_bytes":8') for line in lines)
    assert longer != b"".join(lines)
    end = b'["repository.end",1,{"digest":"%s"}]\n' % hashlib.sha256(longer).hexdigest().encode()
    for lie in (without, longer + end):
        with pytest.raises(ArtifactRefused, check=that(comes_from="contents._check_files")):
            read_contents(lie, "a", contents.attempt)


@given(st.integers(0, 40 << 20), st.lists(st.integers(-5, 41 << 20), max_size=20))
def test_where_files_are_cut(size, cuts):
    """Whatever somebody says: nothing twice, nothing left out, nothing longer than a window, pieces as the tier's."""
    found = list(batches([("a", size)], {"a": cuts}))
    assert [(batch.start, batch.end) for batch in found] == [
        (start, min(start + PIECE_BYTES, size)) for start in range(0, max(size, 1), PIECE_BYTES)
    ]
    chunks = [chunk for batch in found for chunk in pairwise(batch.borders)]
    assert [0, *(after for _, after in chunks)] == [*(before for before, _ in chunks), size]
    assert all(0 < after - before <= WINDOW_BYTES for before, after in chunks)
    assert all(batch.start <= before < batch.end for batch in found for before in batch.borders[:-1])


async def test_a_small_object_that_is_large(tmp_path):
    """It is refused by its size, and not read."""
    there, _ = await kept(tmp_path)
    await there.bucket.put("heads/a", b"x" * (MAX_SMALL_BYTES + 1))
    with pytest.raises(ArtifactRefused, check=that(comes_from="objects.RepositoryObjects.read_with_info")):
        await there.verify("a", unseen)


def test_a_frame_that_promises_more():
    """It is refused before it is unpacked."""
    stored = encoding.compressed(ChunkCodec.RAW, bytes(64 << 20))[1]
    chunk = Chunk(bytes(32), PAGE, ChunkPlace("p", 0, len(stored), ChunkCodec.ZSTD))
    with pytest.raises(ChunkDamaged, check=that(comes_from="encoding._decompressed")):
        encoding.decoded(chunk, stored)


@pytest.mark.parametrize("kind", ["more", "longer", "fewer"])
async def test_files_that_were_not_sealed(tmp_path, kind):
    """Nothing of them is written: room was taken for what the tier's manifest says."""
    there, _ = await kept(tmp_path)

    def changed(files):
        extra = StoredFile("more.img", (ZEROS,) * 100)
        longer = [StoredFile(f.name, (*f.chunks, ZEROS)) if f.name == "pages-1.img" else f for f in files]
        fewer = [f for f in files if f.name != "pages-1.img"]
        return {"more": (*files, extra), "longer": tuple(longer), "fewer": tuple(fewer)}[kind]

    await forged(there, changed)
    into = tmp_path / "back"
    into.mkdir()
    with pytest.raises(ArtifactRefused, check=that(comes_from="repository.ObjectRepository.fetch")):
        await there.fetch("a", into, unseen)
    assert [*into.iterdir()] == []


async def test_what_a_newer_version_stored_is_not_removed(tmp_path):
    """Its head cannot be read, and is no damaged one."""
    there, _ = await kept(tmp_path)
    await there.bucket.put("format", b'["repository.format",1,{"format":3}]\n')
    await there.bucket.put("heads/a", b'["repository.head",2,{"new":1}]\n')
    before = there.bucket.contents()
    with pytest.raises(ArtifactRefused, check=that(names="3")):
        await there.remove("a")
    assert there.bucket.contents() == before


@pytest.mark.parametrize(
    "recent", [b"x" * (MAX_SMALL_BYTES + 1), written_heads([CheckpointHead("../../heads/a", "ab" * 12, "0" * 64)])]
)
async def test_a_list_of_recent_heads_that_is_none(tmp_path, recent):
    """Nothing but sharing rests on it: it is written anew."""
    there, place = await kept(tmp_path)
    await there.bucket.put("recent", recent)
    await there.store("b", place, sealed(place, "b"), unseen)
    assert [head.checkpoint for head in (await there.objects.recent())[0]] == ["b"]


async def test_what_is_stored_is_stored_whatever_comes_after(tmp_path, monkeypatch):
    """That the list of recent heads cannot be written changes no outcome (C15)."""
    there, place = repository(), images(tmp_path / "images", {BASE: noise(1, 1)})
    put = there.bucket.put

    async def torn(key, data, *, condition=None):
        if key == "recent":
            raise StoreUnreachable("no answer")
        return await put(key, data, condition=condition)

    monkeypatch.setattr(there.bucket, "put", torn)
    assert (await there.store("a", place, sealed(place, "a"), unseen)).artifact == "a"
    assert await there.has("a")


@pytest.mark.parametrize("kind", ["packs/", "manifests/"])
async def test_an_answer_that_was_lost(tmp_path, monkeypatch, kind):
    """A driver tries again, and finds what it has written: no other call has that name."""
    there, place = repository(), images(tmp_path / "images", {BASE: noise(1, 1)})
    put = there.bucket.put

    async def twice(key, data, *, condition=None):
        done = await put(key, data, condition=condition)
        if key.startswith(kind):
            raise ObjectExists(key)
        return done

    monkeypatch.setattr(there.bucket, "put", twice)
    await there.store("a", place, sealed(place, "a"), unseen)
    await there.verify("a", unseen)


@pytest.mark.parametrize("key", ["heads/", "packs/", "manifests/", "tombs/", "damaged/", "damaged/what"])
async def test_objects_that_are_none_of_ours(tmp_path, key):
    """Such as those that consoles make of folders: they stay, and disturb nobody."""
    there, place = await kept(tmp_path)
    await there.bucket.put("placeholder", b"")
    there.bucket._objects[key] = attrs.evolve(there.bucket._objects.pop("placeholder"), info=ObjectInfo(key, 0, "v0"))
    await there.store("b", place, sealed(place, "b"), unseen)
    assert [each.artifact for each in await there.listing()] == ["a", "b"]
    await there.remove("a")
    for _ in range(3):
        await there.collect(grace_s=0)
    assert key in there.bucket.contents()
    await there.verify("b", unseen)


async def test_a_cancellation_is_one(tmp_path):
    """Whoever sets a bound gets what it promises, and no error of the threads that it stops."""
    place = images(tmp_path / "images", {BASE: noise(1, 4096)})
    text, there = sealed(place, "a"), repository()

    def seen(progress):
        scope.cancel()

    with anyio.CancelScope() as scope:
        await there.store("a", place, text, seen)
    assert scope.cancelled_caught
    assert await there.listing() == []


async def test_long_manifests_keep_nobody_waiting(tmp_path, monkeypatch):
    """One of 64 GiB of memory takes seconds to read, and so long an agent would not answer."""
    ours, seen = threading.get_ident(), []

    def noted(function):
        def call(*args):
            seen.append((function.__name__, threading.get_ident() == ours))
            return function(*args)

        return call

    for module, name in (
        (objects, "read_contents"),
        (collecting, "read_packs"),
        (storing, "written_contents"),
        (fetching, "planned_reads"),
    ):
        monkeypatch.setattr(module, name, noted(getattr(module, name)))
    there, place = await kept(tmp_path)
    await there.store("b", place, sealed(place, "b"), unseen)
    await there.verify("b", unseen)
    await there.collect(grace_s=0)
    assert {name for name, _ in seen} == {"read_contents", "read_packs", "written_contents", "planned_reads"}
    assert not [name for name, here in seen if here]


@pytest.mark.parametrize("place", ["s3://bucket/team", "https://host:9000/b", "file:///var/lib/it"])
def test_secrets_are_not_shown(place):
    """Nor written down: some put keys in front of the host, or behind a question mark."""
    scheme, _, rest = place.partition("://")
    url = f"{scheme}://key:word@{rest}?token=word#word" if scheme != "file" else f"{place}?token=word#word"
    assert (shown_place(url), shown_place(place)) == (place, place)
