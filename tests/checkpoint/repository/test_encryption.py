"""What is encrypted says nothing to whoever has not its key, and nothing else to whoever has it."""

import base64
import hashlib
import re

import attrs
import pytest
from hypothesis import given, strategies as st
from key_stage import both, encrypting, secret_line, signing
from repository_stage import PAGE, contents_of, images, noise, repository, sealed, unseen

from iriscw._errors import OutcomeUnknown
from iriscw.checkpoint.drivers.repository.key_files import KeyFiles, KeyFileUnusable, opened_keys
from iriscw.checkpoint.drivers.repository.primitives import InvalidKey, secret_keys_of
from iriscw.checkpoint.drivers.repository.protection import EncryptionKeyMissing, SigningKeyMissing
from iriscw.checkpoint.drivers.repository.storing import CheckpointTaken, Storing, StoringDisturbed
from iriscw.checkpoint.model import KeyMissing, NotEncrypted
from iriscw.checkpoint.repository.contents import (
    head_lines,
    read_contents,
    read_head,
    read_packs,
    written_contents,
    written_head,
)
from iriscw.checkpoint.repository.hiding import MORE_BYTES, NotOurs, Purpose
from iriscw.checkpoint.repository.keys import head_key, manifest_key
from iriscw.checkpoint.repository.model import (
    CheckpointHead,
    Chunk,
    ChunkCodec,
    ChunkPlace,
    Contents,
    StoredFile,
)
from iriscw.freeze.model import ArtifactRefused
from raised import that

BASE = 0x7F0000000000
ATTEMPT = "ab" * 12
MIB = 256
(KEY,), (OTHER,) = secret_keys_of(secret_line(1), "1"), secret_keys_of(secret_line(2), "2")
HEAD = CheckpointHead("a", ATTEMPT, "0" * 64, 5, 6, 7, "python", "lines")


async def kept(folder, protection, artifact="a", memory=None):
    """Return a repository that has one checkpoint, and the folder of its images."""
    there, place = repository(protection=protection), images(folder / "images", memory or {BASE: noise(1, 64)})
    await there.store(artifact, place, sealed(place, artifact), unseen)
    return there, place


async def fetched(there, artifact, into):
    """Fetch a checkpoint into a new folder, and return its files."""
    into.mkdir()
    await there.fetch(artifact, into, unseen)
    return contents_of(into)


def as_seen_by(there, protection):
    """Return the same repository on another machine."""
    return repository(there.bucket, protection)


def contents_with(*chunks, key=KEY.key):
    """Return encrypted contents of one file with these chunks."""
    return Contents("a", ATTEMPT, "1", 5, 7, (StoredFile("manifest.jsonl", tuple(chunks)),), key)


def placed(offset, size, pack=0):
    """Return a chunk that is stored as it is, encrypted."""
    return Chunk(bytes(32), size, ChunkPlace(f"{ATTEMPT}-{pack}", offset, size + MORE_BYTES, ChunkCodec.RAW))


@given(st.binary(max_size=100), st.binary(max_size=40), st.sampled_from(Purpose), st.data())
def test_what_is_encrypted_comes_back(clear, about, purpose, data):
    """To the same key alone, for the same purpose, attempt and company; and any change of it is found."""
    hidden = KEY.hide(purpose, ATTEMPT, clear, about)
    assert len(hidden) == len(clear) + MORE_BYTES
    assert hidden != KEY.hide(purpose, ATTEMPT, clear, about)
    assert KEY.show(purpose, ATTEMPT, memoryview(hidden), about) == clear
    at, bit = data.draw(st.integers(0, len(hidden) - 1)), data.draw(st.integers(0, 7))
    changed = hidden[:at] + bytes([hidden[at] ^ 1 << bit]) + hidden[at + 1 :]
    other = next(each for each in Purpose if each is not purpose)
    for key, words in (
        (KEY, (purpose, ATTEMPT, changed, about)),
        (KEY, (purpose, ATTEMPT, hidden[:at], about)),
        (KEY, (purpose, ATTEMPT, hidden, about + b"x")),
        (KEY, (purpose, "cd" * 12, hidden, about)),
        (KEY, (other, ATTEMPT, hidden, about)),
        (OTHER, (purpose, ATTEMPT, hidden, about)),
    ):
        with pytest.raises(NotOurs):
            key.show(*words)


@given(st.data())
def test_any_change_of_an_encrypted_manifest_is_found(data):
    """Although the digest that only finds damage is made right: of what anybody can read as well."""
    contents = contents_with(placed(0, 5), placed(33, 9, pack=1))
    text = written_contents(contents, {KEY.key: KEY})
    assert read_contents(text, "a", ATTEMPT, {KEY.key: KEY}) == contents
    assert read_packs(text, "a", ATTEMPT) == contents.packs
    body, _, _ = text.rpartition(b'["repository.end"')
    at, bit = data.draw(st.integers(0, len(body) - 1)), data.draw(st.integers(0, 7))
    changed = body[:at] + bytes([body[at] ^ 1 << bit]) + body[at + 1 :]
    end = b'["repository.end",1,{"digest":"%s"}]\n' % hashlib.sha256(changed).hexdigest().encode()
    with pytest.raises(ArtifactRefused):
        read_contents(changed + end, "a", ATTEMPT, {KEY.key: KEY})


def test_the_key_of_a_manifest_is_not_here():
    """It is named, and what the manifest refers to is known all the same."""
    text = written_contents(contents_with(placed(0, 5)), {KEY.key: KEY})
    with pytest.raises(KeyMissing, check=that(names=KEY.key)):
        read_contents(text, "a", ATTEMPT, {OTHER.key: OTHER})
    assert read_packs(text, "a", ATTEMPT) == (f"{ATTEMPT}-0",)


def test_a_head_says_what_a_collection_needs():
    """To whoever has not the key; a part that was encrypted for another head is none of it."""
    lines = head_lines(HEAD, KEY)
    found = read_head(written_head(lines), "a", {KEY.key: KEY})
    assert (found.head, found.key, found.lines) == (HEAD, KEY.key, lines)
    bare = attrs.evolve(HEAD, program="", source="")
    assert read_head(written_head(lines), "a", {OTHER.key: OTHER}).head == bare
    other = head_lines(attrs.evolve(HEAD, size_bytes=9), KEY).splitlines(keepends=True)
    mixed = lines.splitlines(keepends=True)[0] + other[1]
    with pytest.raises(ArtifactRefused):
        read_head(written_head(mixed), "a", {KEY.key: KEY})
    assert read_head(written_head(mixed), "a").head == bare


async def test_files_come_back(tmp_path):
    """With all ways in which a chunk can be stored, and with a signature as well."""
    words = b"".join(b"%08d" % number for number in range(2 * PAGE // 8))
    memory = {BASE: noise(1, 2 * MIB), 1 << 20: words, 1 << 24: words + bytes(2 * PAGE), 1 << 26: bytes(4 * PAGE)}
    there, place = await kept(tmp_path, both(), memory=memory)
    assert await fetched(there, "a", tmp_path / "back") == contents_of(place)
    assert await there.manifest("a") == sealed(place, "a")
    await there.verify("a", unseen)
    (listed,) = await there.listing()
    assert (listed.trouble, listed.manifest.frozen.tasks[0].name) == ("", "t100")
    assert b'"format":2' in there.bucket.contents()["format"]


async def test_nothing_of_it_stands_in_the_bucket(tmp_path):
    """No page, digest of one, name of a file or of a program, and no label; plain, all of that would."""
    page = noise(9, 1)
    memory = {BASE: page + noise(1, MIB - 1)}
    digest = hashlib.sha256(memory[BASE][: 256 << 10]).digest()
    told = {page[:64], digest, b"pages-1.img", b'"t100"', b'labels\\"'}
    for protection, wanted in ((signing(), told), (encrypting(1), set())):
        there, _ = await kept(tmp_path / str(len(wanted)), protection, memory=memory)
        found = set()
        for data in there.bucket.contents().values():
            decoded = [base64.b64decode(text) for text in re.findall(rb'"([A-Za-z0-9+/]{40,}={0,2})"', data)]
            found |= {each for each in told for part in (data, *decoded) if each in part}
        assert found == wanted


async def test_a_second_freeze_stores_what_changed(tmp_path):
    """Within one key; what is encrypted shares nothing with what is not, and one key nothing with another."""
    memory = {BASE: noise(1, 8 * MIB)}
    there, place = await kept(tmp_path, encrypting(1), memory=memory)
    packs, added = {}, {}
    for artifact, protection in (("b", encrypting(1)), ("c", encrypting(2, (1,))), ("d", signing()), ("e", signing())):
        seen = as_seen_by(there, protection)
        folder = images(tmp_path / artifact, {**memory, BASE + (1 << 40): noise(7, 1)})
        added[artifact] = (await seen.store(artifact, folder, sealed(folder, artifact), unseen)).added_bytes
        packs[artifact] = set((await seen.objects.contents((await seen.objects.shown(artifact))[0])).packs)
    whole = 8 * MIB * PAGE
    assert added["b"] < 0.05 * whole < whole < added["c"]
    assert added["e"] < 0.05 * whole < whole < added["d"]
    assert not packs["b"] & packs["c"]
    assert not (packs["b"] | packs["c"]) & (packs["d"] | packs["e"])
    assert await fetched(as_seen_by(there, encrypting(1)), "a", tmp_path / "back") == contents_of(place)


async def test_without_the_key_nothing_is_absent(tmp_path):
    """Each call names the key; a collection goes on and takes nothing; and nobody stores over it."""
    there, place = await kept(tmp_path, encrypting(1))
    before = there.bucket.contents()
    for protection in (signing(), encrypting(2)):
        other = as_seen_by(there, protection)
        for call in (
            other.manifest("a"),
            other.verify("a", unseen),
            other.fetch("a", tmp_path, unseen),
            other.has("a"),
            other.store("a", place, sealed(place, "a"), unseen),
        ):
            with pytest.raises(KeyMissing, check=that(names=KEY.key)):
                await call
        (listed,) = await other.listing()
        assert KEY.key in listed.trouble
        for _ in range(3):
            assert (await other.collect(grace_s=0)).checkpoints == 1
        assert there.bucket.contents() == before
    await there.verify("a", unseen)
    await as_seen_by(there, signing()).remove("a")
    for _ in range(3):
        await as_seen_by(there, signing()).collect(grace_s=0)
    assert [key for key in there.bucket.contents() if "/" in key] == []


async def test_keys_change_one_after_the_other(tmp_path):
    """What the old one has encrypted is read, and encrypted anew by storing it again; then the old one can go."""
    there, place = await kept(tmp_path, encrypting(1))
    older = as_seen_by(there, encrypting(2, (1,)))
    assert await fetched(older, "a", tmp_path / "back") == contents_of(place)
    await older.store("a", place, sealed(place, "a"), unseen)
    await as_seen_by(there, encrypting(2)).verify("a", unseen)
    for _ in range(3):
        await older.collect(grace_s=0)
    await as_seen_by(there, encrypting(2)).verify("a", unseen)
    assert len([key for key in there.bucket.contents() if key.startswith("packs/")]) == 1
    other = images(tmp_path / "other", {BASE: noise(2, 1)})
    with pytest.raises(CheckpointTaken):
        await as_seen_by(there, encrypting(3, (2,))).store("a", other, sealed(other, "a"), unseen)


@pytest.mark.parametrize("removed", [False, True])
async def test_it_can_be_seen_until_it_is_encrypted_anew(tmp_path, monkeypatch, removed):
    """Whoever does that may die: it is as it was before, and what he has left goes. What is removed stays that."""
    there, place = await kept(tmp_path, both())
    before = there.bucket.contents()
    newer = as_seen_by(there, attrs.evolve(both(), own=OTHER, keys=encrypting(2, (1,)).keys))

    async def dies(storing, packs):
        await there.verify("a", unseen)
        await there.collect(grace_s=3600)
        assert [key for key in there.bucket.contents() if key.startswith("tombs/")] == []
        if removed:
            await there.remove("a")
            return {}
        raise OutcomeUnknown("it died")

    with monkeypatch.context() as patch:
        patch.setattr(Storing, "_lost", dies)
        with pytest.raises(StoringDisturbed if removed else OutcomeUnknown):
            await newer.store("a", place, sealed(place, "a"), unseen)
    assert [each.artifact for each in await there.listing() if not each.trouble] == ([] if removed else ["a"])
    for _ in range(3):
        await there.collect(grace_s=0)
    if not removed:
        assert there.bucket.contents() == before
        await newer.store("a", place, sealed(place, "a"), unseen)
        await as_seen_by(there, attrs.evolve(both(), own=OTHER, keys={OTHER.key: OTHER})).verify("a", unseen)


async def test_nothing_goes_from_sight_that_cannot_be_put_back(tmp_path):
    """Whoever encrypts anew has all files whole, and signs what was signed: else what is there stays as it is."""
    there, place = await kept(tmp_path, both())
    text = sealed(place, "a")
    newer = encrypting(2, (1,))
    with pytest.raises(SigningKeyMissing):
        await as_seen_by(there, newer).store("a", place, text, unseen)
    (large,) = [each for each in place.iterdir() if each.name.startswith("pages-")]
    large.write_bytes(bytes(large.stat().st_size))
    with pytest.raises(ArtifactRefused, check=that(names=large.name)):
        await as_seen_by(there, attrs.evolve(newer, signer=both().signer)).store("a", place, text, unseen)
    await as_seen_by(there, both()).verify("a", unseen)


async def test_plain_checkpoints_are_refused_by_whoever_has_keys(tmp_path):
    """Somebody who has not the key could have put one there. Nothing of it is read."""
    there, place = await kept(tmp_path, signing())
    strict = as_seen_by(there, encrypting(1))
    with pytest.raises(NotEncrypted):
        await strict.fetch("a", tmp_path, unseen)
    await as_seen_by(there, encrypting(1, unprotected_too=True)).verify("a", unseen)
    with pytest.raises(EncryptionKeyMissing):
        await as_seen_by(there, encrypting(None, (1,))).store("b", place, sealed(place, "b"), unseen)
    await strict.store("a", place, sealed(place, "a"), unseen)
    assert await fetched(strict, "a", tmp_path / "back") == contents_of(place)


async def test_what_is_signed_afterwards_stays_encrypted(tmp_path):
    """By a machine that has the key to read it, and encrypts nothing itself."""
    there, place = await kept(tmp_path, encrypting(1))
    found, _ = await there.objects.signed_head("a")
    signer = attrs.evolve(encrypting(None, (1,), unprotected_too=True), signer=signing(1).signer)
    await as_seen_by(there, signer).store("a", place, sealed(place, "a"), unseen)
    signed, _ = await there.objects.signed_head("a")
    assert (signed.lines, len(signed.signatures)) == (found.lines, 1)
    lied = attrs.evolve(found.head, size_bytes=1)
    await there.bucket.put(head_key("a"), written_head(head_lines(lied, KEY)))
    await as_seen_by(there, signer).store("a", place, sealed(place, "a"), unseen)
    again, _ = await there.objects.signed_head("a")
    assert (again.head, again.key) == (found.head, KEY.key)


async def test_chunks_that_change_their_places(tmp_path):
    """Encrypted by the same key all the same: each is bound to its attempt, its digest and how it is stored."""
    there, place = await kept(tmp_path, encrypting(1), memory={BASE: noise(1, 2 * MIB)})
    head, _ = await there.objects.shown("a")
    contents = await there.objects.contents(head)
    (pages,) = [file for file in contents.files if file.name == "pages-1.img"]
    first, second, *others = pages.chunks
    swapped = [attrs.evolve(first, place=second.place), attrs.evolve(second, place=first.place), *others]
    files = tuple(attrs.evolve(f, chunks=tuple(swapped)) if f == pages else f for f in contents.files)
    text = written_contents(attrs.evolve(contents, files=files), {KEY.key: KEY})
    await there.bucket.put(manifest_key("a", head.attempt), text)
    changed = attrs.evolve(head, digest=hashlib.sha256(text).hexdigest())
    await there.bucket.put(head_key("a"), written_head(head_lines(changed, KEY)))
    with pytest.raises(ArtifactRefused, check=that(comes_from="protection.Protection.shown")):
        await there.verify("a", unseen)
    assert [key for key in there.bucket.contents() if key.startswith("damaged/")]
    await there.store("a", place, sealed(place, "a"), unseen)
    await there.verify("a", unseen)


def test_keys_are_read_from_files(tmp_path):
    """Of its owner alone; and nothing that is printed has one."""
    for name, text in (("one", secret_line(1)), ("two", secret_line(2) + secret_line(3))):
        (tmp_path / name).write_bytes(text)
        (tmp_path / name).chmod(0o600)
    found = opened_keys(KeyFiles(encrypt_with=tmp_path / "one", decrypt_with=(tmp_path / "two",)))
    assert found.own == KEY
    assert list(found.keys) == [key.key for key in (*secret_keys_of((tmp_path / "two").read_bytes(), ""), KEY)]
    assert secret_line(1).strip().decode() not in repr(found)
    assert "\\x01" not in repr(found)
    with pytest.raises(InvalidKey, check=that(names="two")):
        opened_keys(KeyFiles(encrypt_with=tmp_path / "two"))
    (tmp_path / "one").chmod(0o604)
    with pytest.raises(KeyFileUnusable, check=that(names="one")):
        opened_keys(KeyFiles(decrypt_with=(tmp_path / "one",)))


@pytest.mark.parametrize("text", [b"", b"\n", secret_line(1)[:-5], b"x" * 44, secret_line(1) + b"?", b"\xff" * 32])
def test_files_that_have_no_key(text):
    """The error has nothing of what is in them."""
    with pytest.raises(InvalidKey) as raised:
        secret_keys_of(text, "file")
    assert "AQEB" not in repr(raised.value)
