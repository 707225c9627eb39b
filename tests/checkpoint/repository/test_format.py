"""What earlier versions wrote is read by this one, and by a program that has nothing of iriscw."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from hypothesis import given, strategies as st
from key_stage import both, secret_line
from repository_stage import PAGE, contents_of, images, noise, repository, sealed, unseen

from iriscw.checkpoint.drivers.repository import encoding
from iriscw.checkpoint.drivers.repository.protection import PLAIN
from iriscw.checkpoint.manifest import open_manifest
from iriscw.checkpoint.repository.contents import (
    SOURCE_MANIFEST,
    read_contents,
    read_head,
    read_heads,
    read_tomb,
    written_contents,
)
from iriscw.checkpoint.repository.model import Chunk, ChunkCodec, ChunkPlace, Contents, StoredFile
from iriscw.checkpoint.repository.reads import GAP_BYTES, READ_BYTES, planned_reads
from iriscw.freeze.model import ArtifactRefused
from iriscw.objects.drivers.file import FileObjectStore
from raised import that

GOLDEN = Path(__file__).parent / "golden"
GOLDEN_PROTECTED = Path(__file__).parent / "golden-protected"
"""Signed and encrypted with keys of ``key_stage``."""
READER = Path(__file__).parents[3] / "docs" / "read_checkpoint.py"
ATTEMPT = "ab" * 12


def memory():
    """Return what is in the golden checkpoint: what is stored as it is, with zeros, compressed, and both."""
    words = b"".join(b"%08d" % number for number in range(2 * PAGE // 8))
    return {
        0x10000000: noise(1, 2),
        0x20000000: noise(2, 1) + bytes(PAGE),
        0x30000000: words,
        0x40000000: words + bytes(2 * PAGE),
        0x50000000: bytes(4 * PAGE),
    }


@pytest.mark.parametrize(("golden", "protection"), [(GOLDEN, PLAIN), (GOLDEN_PROTECTED, both())])
async def test_golden_checkpoint(tmp_path, golden, protection):
    """The first release's bytes, and the first ones that were signed and encrypted."""
    shutil.copytree(golden, tmp_path / "golden")
    there = repository(FileObjectStore(tmp_path / "golden"), protection)
    (listed,) = await there.listing()
    assert (listed.artifact, listed.size_bytes, listed.trouble) == ("golden-1", 57441, "")
    (tmp_path / "back").mkdir()
    await there.fetch("golden-1", tmp_path / "back", unseen)
    assert contents_of(tmp_path / "back") == contents_of(images(tmp_path / "images", memory()))
    await there.aclose()


@pytest.mark.parametrize(("golden", "lines"), [(GOLDEN, []), (GOLDEN_PROTECTED, [2, 1])])
def test_a_reader_that_has_nothing_of_iriscw(tmp_path, golden, lines):
    """It gives the same files, with the tier's manifest; of an encrypted one, if it is given the key."""
    command = [sys.executable, "-I", READER, golden, "golden-1", tmp_path / "back"]
    if lines:
        assert subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 1
        (tmp_path / "keys").write_bytes(b"".join(map(secret_line, lines)))
        command.append(tmp_path / "keys")
    subprocess.run(command, check=True)
    back = contents_of(tmp_path / "back")
    then = open_manifest(back.pop("manifest.jsonl"), "golden-1")
    now = open_manifest(sealed(images(tmp_path / "images", memory()), "golden-1"), "golden-1")
    assert then == attrs.evolve(now, sealed=then.sealed)  # the text has more fields today
    assert back == contents_of(tmp_path / "images")
    assert not re.search(r"(import|from) iriscw", READER.read_text())


async def test_a_new_checkpoint_has_the_same_codecs(tmp_path):
    """All of them, so the golden one shows each; and what is stored today is what was stored then."""
    there = repository()
    folder = images(tmp_path / "images", memory())
    await there.store("golden-1", folder, sealed(folder, "golden-1"), unseen)
    ours, _ = await there.objects.shown("golden-1")
    contents = await there.objects.contents(ours)
    codecs = {chunk.place.codec for file in contents.files for chunk in file.chunks}
    assert codecs == set(ChunkCodec)
    (head,) = (GOLDEN / "heads").iterdir()
    then = read_head(head.read_bytes(), "golden-1").head
    text = (GOLDEN / "manifests" / "golden-1" / then.attempt).read_bytes()
    digests = [
        {file.name: [chunk.digest for chunk in file.chunks] for file in each.files if file.name != SOURCE_MANIFEST}
        for each in (read_contents(text, "golden-1", then.attempt), contents)
    ]
    assert digests[0] == digests[1]


@given(st.lists(st.sampled_from((b"\0", b"a", b"ab\0")), max_size=40), st.integers(0, PAGE), st.booleans())
def test_each_chunk_comes_back(pages, more, smaller):
    """Whatever its pages are, and wherever it ends."""
    raw = b"".join((page * PAGE)[:PAGE] for page in pages) + b"x" * more
    if not raw:
        return
    codec, stored = encoding.encoded(raw)
    if smaller:
        codec, stored = encoding.compressed(codec, stored)
    chunk = Chunk(encoding.hashlib.sha256(raw).digest(), len(raw), ChunkPlace("p", 0, len(stored), codec))
    assert encoding.decoded(chunk, stored) == raw


async def test_without_zstandard(tmp_path, monkeypatch):
    """Nothing is compressed; and whoever reads what somebody has compressed hears which extra to install."""
    folder = images(tmp_path / "images", memory())
    there = repository()
    await there.store("a", folder, sealed(folder, "a"), unseen)
    monkeypatch.setattr(encoding, "zstd", lambda: None)
    with pytest.raises(ArtifactRefused, check=that(names="zstandard")):
        await there.verify("a", unseen)
    plain = repository()
    await plain.store("a", folder, sealed(folder, "a"), unseen)
    await plain.verify("a", unseen)


def contents_with(*chunks):
    """Return contents of one file with these chunks."""
    return Contents("a", ATTEMPT, "1", 5, 7, (StoredFile("manifest.jsonl", tuple(chunks)),))


def placed(offset, stored, *, pack=0, size=None, codec=ChunkCodec.RAW):
    """Return a chunk at this place."""
    return Chunk(bytes(32), size or stored, ChunkPlace(f"{ATTEMPT}-{pack}", offset, stored, codec))


@given(st.data())
def test_any_change_of_a_manifest_is_found(data):
    """A bit that is flipped, an end that is missing."""
    text = written_contents(contents_with(placed(0, 5), placed(5, 9, pack=1)))
    assert read_contents(text, "a", ATTEMPT) == contents_with(placed(0, 5), placed(5, 9, pack=1))
    at = data.draw(st.integers(0, len(text) - 1))
    bit = data.draw(st.integers(0, 7))
    for changed in (text[:at], text[:at] + bytes([text[at] ^ 1 << bit]) + text[at + 1 :]):
        with pytest.raises(ArtifactRefused):
            read_contents(changed, "a", ATTEMPT)


@pytest.mark.parametrize(
    "chunk",
    [
        placed(0, 5, size=6),
        placed(1 << 30, 5),
        placed(0, 5, size=17 << 20, codec=ChunkCodec.ZSTD),
        placed(0, 0, size=5),
        placed(0, 3, size=5, codec=ChunkCodec.ZEROS),
    ],
)
def test_chunks_that_no_version_wrote(chunk):
    """Their digest is right all the same: somebody has made them on purpose."""
    with pytest.raises(ArtifactRefused):
        read_contents(written_contents(contents_with(chunk)), "a", ATTEMPT)


@given(st.binary(max_size=200))
def test_any_bytes(data):
    """They are refused, and nothing else is raised; of recent heads none is left."""
    for read in (
        lambda: read_contents(data, "a", ATTEMPT),
        lambda: read_head(data, "a"),
        lambda: read_tomb(data, "k", ""),
    ):
        with pytest.raises(ArtifactRefused):
            read()
    assert read_heads(data) == ()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3 << 20), st.integers(0, 200 << 10)), max_size=30))
def test_what_is_read(parts):
    """Each chunk once, nothing beyond what one request may have, and little that is thrown away."""
    ends, chunks = [0, 0, 0], []
    for pack, stored, gap in parts:
        chunks.append(placed(ends[pack] + gap, stored, pack=pack))
        ends[pack] += gap + stored
    reads = planned_reads([StoredFile("a", tuple(chunks)), StoredFile("b", tuple(chunks[:3]))])
    found = [chunk for read in reads for chunk, _ in read.chunks]
    assert sorted(found, key=repr) == sorted(chunks, key=repr)
    for read in reads:
        assert read.end - read.start <= READ_BYTES
        used = sum(chunk.place.stored_bytes for chunk, _ in read.chunks)
        assert read.end - read.start - used <= GAP_BYTES * (len(read.chunks) - 1)
        assert all(
            read.start <= c.place.offset and c.place.offset + c.place.stored_bytes <= read.end for c, _ in read.chunks
        )
    targets = sum(len(targets) for read in reads for _, targets in read.chunks)
    assert targets == len(chunks) + len(chunks[:3])
