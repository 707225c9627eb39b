"""Whoever trusts keys reads nothing that none of them has signed, and whoever signs answers for every byte."""

import hashlib

import attrs
import pytest
from hypothesis import given, strategies as st
from key_stage import private_pem, public_pem, signing
from repository_stage import contents_of, images, noise, repository, sealed, unseen

from iriscw.checkpoint.drivers.repository.key_files import KeyFiles, KeyFileUnusable, SignerNotTrusted, opened_keys
from iriscw.checkpoint.drivers.repository.primitives import InvalidKey
from iriscw.checkpoint.drivers.repository.protection import SigningKeyMissing
from iriscw.checkpoint.model import SignatureMissing, SignatureWrong
from iriscw.checkpoint.repository.contents import head_lines, read_head, written_contents, written_head
from iriscw.checkpoint.repository.keys import head_key, manifest_key
from iriscw.checkpoint.repository.model import CheckpointHead
from iriscw.checkpoint.repository.signatures import MAX_SIGNATURES, check_signed
from iriscw.freeze.model import ArtifactRefused
from raised import that

BASE = 0x7F0000000000
HEAD = CheckpointHead("a", "ab" * 12, "0" * 64, 5, 6, 7, "python", "lines")
GOLDEN = (
    b'["repository.head",1,{"added_bytes":7,"attempt":"abababababababababababab","begun_wall_ns":0,"ch'
    b'eckpoint":"a","digest":"0000000000000000000000000000000000000000000000000000000000000000","progr'
    b'am":"python","size_bytes":5,"source":"lines","stored_bytes":6}]\n'
    b'["repository.signature",1,{"key":"34750f98bd59fcfc946da45aaabe933b","signature":"JYVY6OQ1ZmL71Th'
    b'3JGDReirhxr+GRLc0D+daLbwvV3N7gD6X64Tr/RzHlI9XfaV0SbDX3T7xrbGkvwlHGZqcBg=="}]\n'
    b'["repository.end",1,{"digest":"8c5f37c6d3c87fa66de135ac3e4068dea6fa522c65243f50a813508d2a8e5fd2"'
    b"}]\n"
)


async def kept(folder, protection, artifact="a"):
    """Return a repository that has one checkpoint, and the folder of its images."""
    there, place = repository(protection=protection), images(folder / "images", {BASE: noise(1, 64)})
    await there.store(artifact, place, sealed(place, artifact), unseen)
    return there, place


def as_seen_by(there, protection):
    """Return the same repository on another machine."""
    return repository(there.bucket, protection)


def checked(data, trusted, checkpoint="a"):
    """Read a head, and refuse it unless a trusted key has signed it."""
    check_signed(read_head(data, checkpoint), signing(trusted=trusted).trusted, unsigned_too=False)


def test_a_signature_is_of_one_head_alone():
    """Of no other checkpoint, attempt or manifest, and of no other field either."""
    ours = signing(1)
    signatures = ours.signatures(head_lines(HEAD))
    checked(written_head(head_lines(HEAD), signatures), (1,))
    for field in attrs.fields(CheckpointHead):
        value = getattr(HEAD, field.name)
        other = attrs.evolve(HEAD, **{field.name: value + 1 if isinstance(value, int) else value[:-1] + "1"})
        if other != HEAD:
            with pytest.raises(SignatureWrong):
                checked(written_head(head_lines(other), signatures), (1,), other.checkpoint)


def test_what_stands_in_a_signed_head():
    """What any later version has to read, and to verify."""
    assert written_head(head_lines(HEAD), signing(1).signatures(head_lines(HEAD))) == GOLDEN


@given(st.data())
def test_any_change_of_a_signed_head_is_found(data):
    """A bit that is flipped, an end that is missing, and the digest that only finds damage made right."""
    text = written_head(head_lines(HEAD), signing(1).signatures(head_lines(HEAD)))
    body, _, _ = text.rpartition(b'["repository.end"')
    at, bit = data.draw(st.integers(0, len(body) - 1)), data.draw(st.integers(0, 7))
    changed = body[:at] + bytes([body[at] ^ 1 << bit]) + body[at + 1 :]
    end = b'["repository.end",1,{"digest":"%s"}]\n' % hashlib.sha256(changed).hexdigest().encode()
    with pytest.raises(ArtifactRefused):
        checked(changed + end, (1,))


def test_keys_change_one_after_the_other():
    """A head may have several signatures: one of a trusted key is enough, and others say nothing."""
    lines = head_lines(HEAD)
    old = signing(1).signatures(lines)
    both = signing(2).signatures(lines, old)
    for trusted in ((1,), (2,), (1, 2), (2, 3)):
        checked(written_head(head_lines(HEAD), both), trusted)
    with pytest.raises(SignatureMissing, check=that(names=both[0].key)):
        checked(written_head(head_lines(HEAD), both), (3,))
    assert signing(2).signatures(lines, both) == both
    many = old
    for number in range(2, MAX_SIGNATURES + 5):
        many = signing(number).signatures(lines, many)
    checked(written_head(head_lines(HEAD), many), (MAX_SIGNATURES + 4,))
    with pytest.raises(ArtifactRefused, check=that(names=MAX_SIGNATURES + 1)):
        read_head(written_head(head_lines(HEAD), (*many, *old)), "a")


async def test_what_is_signed_is_fetched(tmp_path):
    """By whoever trusts the key, and by whoever trusts nobody."""
    there, place = await kept(tmp_path, signing(1, (1,)))
    for number, protection in enumerate((signing(trusted=(1, 2)), signing())):
        (into := tmp_path / str(number)).mkdir()
        await as_seen_by(there, protection).fetch("a", into, unseen)
        assert contents_of(into) == contents_of(place)


@pytest.mark.parametrize(("made", "error"), [(None, SignatureMissing), (2, SignatureMissing)])
async def test_nothing_is_read_that_nobody_trusted_has_signed(tmp_path, made, error):
    """Neither its manifest nor its packs; a listing says so, and it can be removed."""
    made_there, place = await kept(tmp_path, signing(made))
    there = as_seen_by(made_there, signing(1, (1,)))
    read, get = [], there.bucket.get
    there.bucket.get = lambda key, **words: read.append(key) or get(key, **words)
    for call in (there.manifest("a"), there.verify("a", unseen), there.fetch("a", tmp_path, unseen), there.has("a")):
        with pytest.raises(error, check=that(comes_from="signatures.check_signed")):
            await call
    (listed,) = await there.listing()
    assert "is not signed by a key that this machine trusts" in listed.trouble
    assert set(read) == {"format", "heads/a"}
    lax = as_seen_by(made_there, signing(1, (1,), unprotected_too=True))
    await lax.verify("a", unseen)
    read.clear()
    await there.store("b", place, sealed(place, "b"), unseen)
    assert {key for key in read if "/a" in key} == {"heads/a"}  # nothing is shared with it
    assert (await there.objects.contents((await there.objects.shown("b"))[0])).added_bytes > 0
    await there.remove("a")
    assert [each.artifact for each in await there.listing()] == ["b"]


async def test_a_changed_head_is_refused_even_where_unsigned_ones_are_not(tmp_path):
    """Somebody who may write into the bucket has put other content below the same id."""
    there, _ = await kept(tmp_path, signing(1, (1,)))
    found, _ = await there.objects.signed_head("a")
    contents = await there.objects.contents(found.head)
    text = written_contents(attrs.evolve(contents, software="forged"))
    await there.bucket.put(manifest_key("a", contents.attempt), text)
    with pytest.raises(ArtifactRefused, check=that(comes_from="objects.RepositoryObjects.contents")):
        await there.verify("a", unseen)
    head = attrs.evolve(found.head, digest=hashlib.sha256(text).hexdigest())
    await there.bucket.put(head_key("a"), written_head(head_lines(head), found.signatures))
    for words in ({}, {"unprotected_too": True}):
        with pytest.raises(SignatureWrong):
            await as_seen_by(there, signing(1, (1,), **words)).verify("a", unseen)


async def test_the_signature_is_there_when_the_checkpoint_is(tmp_path, monkeypatch):
    """There is no moment at which it can be seen without one, and one that is being made needs none."""
    there, place = repository(protection=signing(1, (1,))), images(tmp_path / "images", {BASE: noise(1, 1)})
    put, heads = there.bucket.put, []

    async def seen(key, data, **words):
        if key == "heads/a":
            heads.append(read_head(data, "a"))
        return await put(key, data, **words)

    monkeypatch.setattr(there.bucket, "put", seen)
    await there.store("a", place, sealed(place, "a"), unseen)
    assert [bool(each.head.begun_wall_ns) for each in heads] == [bool(not each.signatures) for each in heads]
    assert len(heads) == 2


async def test_an_unsigned_checkpoint_is_signed_by_storing_it_again(tmp_path):
    """What it refers to stays as it is; the signatures of other keys stay; and it is signed once."""
    there, place = await kept(tmp_path, signing())
    packs = [key for key in there.bucket.contents() if key.startswith("packs/")]
    for number in (1, 2, 2):
        await as_seen_by(there, signing(number)).store("a", place, sealed(place, "a"), unseen)
    assert [key for key in there.bucket.contents() if key.startswith("packs/")] == packs
    found, _ = await there.objects.signed_head("a")
    assert len(found.signatures) == 2
    for number in (1, 2):
        await as_seen_by(there, signing(trusted=(number,))).verify("a", unseen)


async def test_what_is_signed_afterwards_says_what_this_machine_knows(tmp_path):
    """Not what stood in a head that anybody may have written."""
    there, place = await kept(tmp_path, signing())
    head, _ = await there.objects.shown("a")
    await there.bucket.put(head_key("a"), written_head(head_lines(attrs.evolve(head, source="lies", size_bytes=1))))
    await as_seen_by(there, signing(1)).store("a", place, sealed(place, "a"), unseen)
    assert (await there.objects.shown("a"))[0] == head


async def test_who_signs_a_head_that_differs_keeps_what_trusted_keys_have_signed(tmp_path):
    """It is theirs to say; of a head that nobody trusted answers for he says what he knows."""
    there, place = await kept(tmp_path, signing())
    head, _ = await there.objects.shown("a")
    lines = head_lines(attrs.evolve(head, source=""))
    await there.bucket.put(head_key("a"), written_head(lines, signing(2).signatures(lines)))
    await as_seen_by(there, signing(1, (2,))).store("a", place, sealed(place, "a"), unseen)
    for number in (1, 2):
        await as_seen_by(there, signing(trusted=(number,))).verify("a", unseen)


async def test_a_wrong_signature_is_not_said_to_be_stored(tmp_path):
    """By whoever signs nothing; whoever signs leaves it out."""
    there, place = await kept(tmp_path, signing())
    found, _ = await there.objects.signed_head("a")
    await there.bucket.put(head_key("a"), written_head(found.lines, signing(2).signatures(b"something else")))
    lax = as_seen_by(there, signing(trusted=(2,), unprotected_too=True))
    with pytest.raises(SignatureWrong):
        await lax.store("a", place, sealed(place, "a"), unseen)
    await as_seen_by(there, signing(1, (1, 2))).store("a", place, sealed(place, "a"), unseen)
    found, _ = await there.objects.signed_head("a")
    assert len(found.signatures) == 1


async def test_nobody_signs_what_is_not_what_he_has(tmp_path):
    """Below the right manifest of the tier somebody has put other content: it is stored anew, from what is here."""
    there, place = await kept(tmp_path, signing())
    head, _ = await there.objects.shown("a")
    contents = await there.objects.contents(head)
    pages, tree = (next(f for f in contents.files if f.name == name) for name in ("pages-1.img", "pstree.img"))
    files = tuple(attrs.evolve(f, chunks=tree.chunks) if f == pages else f for f in contents.files)
    text = written_contents(attrs.evolve(contents, files=files))
    await there.bucket.put(manifest_key("a", head.attempt), text)
    lied = attrs.evolve(head, digest=hashlib.sha256(text).hexdigest())
    await there.bucket.put(head_key("a"), written_head(head_lines(lied)))
    await as_seen_by(there, signing(1)).store("a", place, sealed(place, "a"), unseen)
    (into := tmp_path / "back").mkdir()
    await as_seen_by(there, signing(trusted=(1,))).fetch("a", into, unseen)
    assert contents_of(into) == contents_of(place)


async def test_who_could_not_fetch_it_does_not_store_it(tmp_path):
    """Nothing was written."""
    there, place = repository(protection=signing(trusted=(1,))), images(tmp_path / "images", {BASE: noise(1, 1)})
    with pytest.raises(SigningKeyMissing):
        await there.store("a", place, sealed(place, "a"), unseen)
    assert there.bucket.contents() == {}


async def test_a_version_that_knows_no_signatures_keeps_out(tmp_path):
    """From the first signed checkpoint on: to it a signed head would be a damaged one."""
    there, place = await kept(tmp_path, signing())
    assert b'"format":1' in there.bucket.contents()["format"]
    signed = as_seen_by(there, signing(1))
    await signed.store("b", place, sealed(place, "b"), unseen)
    assert b'"format":2' in there.bucket.contents()["format"]
    await as_seen_by(there, signing()).store("c", place, sealed(place, "c"), unseen)
    assert b'"format":2' in there.bucket.contents()["format"]


def key_file(path, data, mode=0o600):
    """Write a key file."""
    path.write_bytes(data)
    path.chmod(mode)
    return path


def test_keys_are_read_from_files(tmp_path):
    """As a mounted Secret has them: links to files of a hidden folder."""
    (hidden := tmp_path / "..data").mkdir()
    (folder := tmp_path / "trust").mkdir()
    (folder / "..2026").mkdir()
    for number in (1, 2):
        (folder / f"{number}.pem").symlink_to(key_file(hidden / f"{number}", public_pem(number), 0o644))
    mine = key_file(tmp_path / "mine.pem", private_pem(1))
    found = opened_keys(KeyFiles(mine, (folder,)))
    both = key_file(tmp_path / "both.pem", public_pem(1) + public_pem(2))
    assert (
        found.trusted.keys()
        == opened_keys(KeyFiles(trust=(both,))).trusted.keys()
        == signing(None, (1, 2)).trusted.keys()
    )
    assert found.signer.key in found.trusted
    assert "private" not in repr(found).lower()
    with pytest.raises(SignerNotTrusted, check=that(names=found.signer.key)):
        opened_keys(KeyFiles(mine, (folder / "2.pem",)))


@pytest.mark.parametrize(
    ("sign", "trust", "error"),
    [
        ((private_pem(1), 0o640), None, KeyFileUnusable),
        ((public_pem(1), 0o600), None, InvalidKey),
        ((b"", 0o600), None, InvalidKey),
        ((b"x" * 70000, 0o600), None, KeyFileUnusable),
        (None, (public_pem(1), 0o666), KeyFileUnusable),
        (None, (private_pem(1), 0o600), InvalidKey),
        (None, (public_pem(1) + b"more", 0o600), InvalidKey),
    ],
)
def test_key_files_that_cannot_be_used(tmp_path, sign, trust, error):
    """The error says which file, and nothing of what is in it."""
    path = key_file(tmp_path / "key", *(sign or trust))
    files = KeyFiles(sign_with=path) if sign else KeyFiles(trust=(path,))
    with pytest.raises(error, check=that(names=str(path))) as raised:
        opened_keys(files)
    assert "MC4C" not in repr(raised.value)


def test_key_files_that_are_not_there(tmp_path):
    """Nor is there a folder without keys: it would trust nobody, and so everybody."""
    for files in (KeyFiles(sign_with=tmp_path / "no"), KeyFiles(trust=(tmp_path / "no",)), KeyFiles(trust=(tmp_path,))):
        with pytest.raises(KeyFileUnusable):
            opened_keys(files)
