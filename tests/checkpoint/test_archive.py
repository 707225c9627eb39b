"""A checkpoint in one file: what is written, what is read, and files that somebody made up."""

import gzip
import io
import os
import random
import stat
import sys
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

sys.path.insert(0, str(Path(__file__).parent))  # for artifacts

from artifacts import damage, folders, published

from iriscw.checkpoint.drivers import exporting
from iriscw.checkpoint.drivers.archive import ExportedFile, check_new, refuse_unprotected
from iriscw.checkpoint.drivers.archive_members import MAX_PAX_BYTES, ArchiveRefused, Member, header_of, next_member
from iriscw.checkpoint.drivers.exporting import ExportExists, export
from iriscw.checkpoint.drivers.repository.key_files import KeyFiles
from iriscw.checkpoint.drivers.tiers import Tiers
from iriscw.checkpoint.manifest import MAX_FILE_BYTES
from iriscw.checkpoint.model import NotEncrypted, SignatureMissing
from iriscw.freeze.model import ArtifactRefused, ArtifactUnknown, NoRoom
from raised import that

pytestmark = pytest.mark.anyio


def unseen(progress):
    """Show nobody how far it is."""


@pytest.fixture
def tier(tmp_path):
    """A tier with the checkpoint ``op-1``."""
    return published(tmp_path, large=False)


@pytest.fixture
async def exported(tier, tmp_path):
    """That checkpoint in a file."""
    await export(Tiers({"disk": tier}), "op-1", tmp_path / "ck.tar", unseen)
    return tmp_path / "ck.tar"


def below(folder):
    """Return the files of a folder with their bytes."""
    return {each.name: each.read_bytes() for each in Path(folder).iterdir()}


async def unpacked(path, tmp_path, *, compare=True):
    """Read an exported file into a new folder, and return what it has."""
    images = tmp_path / "unpacked"
    images.mkdir()
    await ExportedFile.open(path).fetch("op-1", images, unseen, compare=compare)
    return below(images)


async def test_what_is_exported_is_read_as_it_was(tier, exported, tmp_path):
    """Every file, the empty one, too; by nobody else, and the same file again says so."""
    archive = ExportedFile.open(exported)
    assert (archive.text, archive.content) == (tier.text("op-1"), tier.manifest("op-1"))
    assert await unpacked(exported, tmp_path) == below(tier.images("op-1"))
    await archive.verify("op-1", unseen)
    assert stat.S_IMODE(exported.stat().st_mode) == 0o600
    with pytest.raises(ArtifactUnknown):
        await archive.manifest("op-2")


async def test_any_tar_reads_it_and_learns_nothing_of_the_machine(tier, exported, tmp_path):
    """Plain files of nobody, without a time; so the same checkpoint makes the same bytes."""
    with tarfile.open(exported, "r:") as tar:
        members = tar.getmembers()
        assert [each.name for each in members] == [
            "manifest.jsonl",
            *(f"images/{each.name}" for each in tier.manifest("op-1").files),
        ]
        assert {(each.type, each.mode, each.uid, each.gid, each.mtime) for each in members} == {
            (tarfile.REGTYPE, 0o600, 0, 0, 0)
        }
        assert {(each.uname, each.gname, each.linkname) for each in members} == {("", "", "")}
        assert tar.extractfile("images/pages-1.img").read() == (tier.images("op-1") / "pages-1.img").read_bytes()
    await export(Tiers({"disk": tier}), "op-1", tmp_path / "again.tar", unseen)
    assert (tmp_path / "again.tar").read_bytes() == exported.read_bytes()
    assert str(tmp_path).encode() not in exported.read_bytes()


@pytest.mark.parametrize("link", [False, True])
async def test_a_name_that_is_taken_is_left_alone_unless_it_is_to_go(tier, exported, tmp_path, link):
    """A link counts as taken, whatever it leads to; it is replaced then, and what it leads to is as it was."""
    target, other = tmp_path / "taken.tar", tmp_path / "other"
    other.write_text("as it was")
    if link:
        target.symlink_to(other)
    else:
        target.write_text("as it was")
    with pytest.raises(ExportExists):
        await export(Tiers({"disk": tier}), "op-1", target, unseen)
    assert target.read_text() == "as it was"
    await export(Tiers({"disk": tier}), "op-1", target, unseen, over=True)
    assert (target.read_bytes(), other.read_text()) == (exported.read_bytes(), "as it was")
    assert sorted(each.name for each in tmp_path.iterdir() if "tar" in each.name) == ["ck.tar", "taken.tar"]


async def test_a_file_system_without_links_will_do(tier, tmp_path, monkeypatch):
    """Some have none: the file gets its name all the same, and only if nobody has it."""

    def no_links(*_names, **_words):
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(exporting.os, "link", no_links)
    await export(Tiers({"disk": tier}), "op-1", tmp_path / "ck.tar", unseen)
    with pytest.raises(ExportExists):
        await export(Tiers({"disk": tier}), "op-1", tmp_path / "ck.tar", unseen)
    ExportedFile.open(tmp_path / "ck.tar")


@pytest.mark.parametrize("seed", range(6))
async def test_what_is_damaged_is_not_exported(tier, tmp_path, seed):
    """A bit, a byte more or less: nothing is left of the file. Another copy is taken, if there is one."""
    rng = random.Random(seed)
    damage(rng.choice(sorted(tier.images("op-1").iterdir())), rng)
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(ArtifactRefused):
        await export(Tiers({"disk": tier}), "op-1", out / "ck.tar", unseen)
    assert below(out) == {}
    whole = published(tmp_path / "whole", large=False)
    done = await export(Tiers({"disk": tier, "other": whole}), "op-1", out / "ck.tar", unseen)
    assert (done.size_bytes, list(below(out))) == ((out / "ck.tar").stat().st_size, ["ck.tar"])


async def test_what_goes_meanwhile_is_gone(tier, tmp_path, monkeypatch):
    """It is not taken for damaged."""

    def gone(member):
        if member.name == "images/core-101.img":
            tier.remove("op-1")
        return header_of(member)

    monkeypatch.setattr(exporting, "header_of", gone)
    with pytest.raises(ArtifactUnknown):
        await export(Tiers({"disk": tier}), "op-1", tmp_path / "ck.tar", unseen)
    assert not [each for each in tmp_path.iterdir() if each.is_file()]


async def test_a_full_disk_is_named_before_anything_is_written(tier, tmp_path, monkeypatch):
    """And nothing is left."""
    room = os.statvfs_result((4096, 4096, 1, 1, 1, 0, 0, 0, 0, 255))
    monkeypatch.setattr(exporting.os, "fstatvfs", lambda folder: room)
    with pytest.raises(NoRoom):
        await export(Tiers({"disk": tier}), "op-1", tmp_path / "ck.tar", unseen)
    assert not [each for each in tmp_path.iterdir() if each.is_file()]


# Files that somebody made up


def rewritten(exported, change):
    """Write the members of an exported file anew, as ``change`` wants them: a list of headers and bytes."""
    with tarfile.open(exported, "r:") as tar:
        members = [(each, tar.extractfile(each).read()) for each in tar.getmembers()]
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, data in change(members):
            tar.addfile(info, io.BytesIO(data))
    return made.getvalue()


def member(name, data=b"", **words):
    """Return a member."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for word, value in words.items():
        setattr(info, word, value)
    return info, data


def with_more(*more):
    """Return a change that puts members behind the manifest."""
    return lambda members: [members[0], *more, *members[1:]]


def renamed(name, **words):
    """Return a change of the second member."""

    def change(members):
        _, data = members[1]
        return [members[0], member(name, data, **words), *members[2:]]

    return change


LINK = {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}
HOSTILE = {
    "a link": (with_more(member("images/pages-1.img", **LINK)), "kind"),
    "a hard link": (with_more(member("images/x", type=tarfile.LNKTYPE, linkname="manifest.jsonl")), "kind"),
    "a folder": (with_more(member("images", type=tarfile.DIRTYPE)), "kind"),
    "a device": (with_more(member("images/x", type=tarfile.CHRTYPE)), "kind"),
    "a pipe": (with_more(member("images/x", type=tarfile.FIFOTYPE)), "kind"),
    "a sparse file": (with_more(member("images/x", type=tarfile.GNUTYPE_SPARSE)), "kind"),
    "a long name of GNU's": (with_more(member("images/x", b"y" * 300, type=tarfile.GNUTYPE_LONGNAME)), "kind"),
    "a way up": (renamed("images/../../x"), "name"),
    "an absolute name": (renamed("/tmp/x"), "name"),
    "a name with a folder": (renamed("images/a/b"), "name"),
    "a hidden name": (renamed("images/.x"), "name"),
    "a name beside": (renamed("inventory.img"), "name"),
    "a name that is none": (renamed("images/\n"), "name"),
    "one too many": (with_more(member("images/x")), "name"),
    "one twice": (lambda members: [*members, members[1]], "name"),
    "the manifest twice": (lambda members: [*members, members[0]], "name"),
    "one too few": (lambda members: members[:-1], "missing"),
    "one longer": (with_more(member("images/core-100.img", b"x" * 301)), "size"),
    "a header for all": (with_more(member("g", type=tarfile.XGLTYPE)), "kind"),
    "a name elsewhere": (renamed("images/x", pax_headers={"path": "/etc/passwd"}), "name"),
    "a comment": (renamed("images/core-100.img", pax_headers={"comment": "x"}), "header"),
    "another size": (renamed("images/core-100.img", pax_headers={"GNU.sparse.realsize": "1"}), "header"),
    "much before a member": (renamed("images/core-100.img", pax_headers={"path": "x" * MAX_PAX_BYTES}), "size"),
    "no manifest first": (lambda members: members[::-1], "manifest"),
    "a manifest that is none": (lambda members: [member("manifest.jsonl", b"{}\n"), *members[1:]], "manifest"),
    "a manifest that was changed": (
        lambda members: [member("manifest.jsonl", members[0][1].replace(b'"a"', b'"b"')), *members[1:]],
        "manifest",
    ),
    "nothing": (lambda members: [], "manifest"),
}


@pytest.mark.parametrize(("change", "trouble"), HOSTILE.values(), ids=HOSTILE)
async def test_what_no_export_has_is_refused(exported, tmp_path, change, trouble):
    """By what is wrong with it; nothing is written but files of the checkpoint, in their folder."""
    before = {each.name for each in tmp_path.iterdir()}
    path = tmp_path / "made-up.tar"
    path.write_bytes(rewritten(exported, change))
    with pytest.raises(ArchiveRefused, check=that(trouble=trouble)):
        await unpacked(path, tmp_path, compare=False)
    assert {each.name for each in tmp_path.iterdir()} - before <= {"made-up.tar", "unpacked"}
    if (tmp_path / "unpacked").exists():
        assert {*below(tmp_path / "unpacked")} <= {each.name for each in ExportedFile.open(exported).content.files}


@pytest.mark.parametrize("size_bytes", [1 << 40, 1 << 62])
async def test_a_size_that_is_a_lie_takes_no_memory(exported, tmp_path, size_bytes):
    """Of the manifest, of a file, and of what stands before a member."""
    whole = exported.read_bytes()
    for type_, name in ((tarfile.REGTYPE, "manifest.jsonl"), (tarfile.XHDTYPE, "x")):
        info = tarfile.TarInfo(name)
        info.size, info.type = size_bytes, type_
        path = tmp_path / "made-up.tar"
        path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + whole[512:])
        with pytest.raises(ArchiveRefused, check=that(trouble="size")):
            ExportedFile.open(path)


async def test_a_file_that_ends_early_is_refused_wherever_it_ends(exported, tmp_path):
    """At each block, and within it."""
    whole, path = exported.read_bytes(), tmp_path / "made-up.tar"
    last = len(whole.rstrip(b"\0"))
    for number, end in enumerate([*range(0, last, 7 * 512), *range(300, last, 9 * 512)]):
        path.write_bytes(whole[:end])
        (tmp_path / str(number)).mkdir()
        with pytest.raises(ArchiveRefused, check=that(trouble="short")):
            await ExportedFile.open(path).fetch("op-1", tmp_path / str(number), unseen, compare=False)


@pytest.mark.parametrize("other", ["packed", "text", "folder", "pipe"])
async def test_other_files_are_none(exported, tmp_path, other):
    """Nor is what is no file; nobody waits for a pipe."""
    path = tmp_path / "made-up"
    if other == "folder":
        path.mkdir()
    elif other == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(gzip.compress(exported.read_bytes()) if other == "packed" else b"hello\n" * 200)
    with pytest.raises(ArchiveRefused, check=that(trouble="kind" if other in ("folder", "pipe") else "header")):
        ExportedFile.open(path)


async def test_a_changed_byte_is_found(exported, tmp_path):
    """By whoever compares, at whatever place it is."""
    whole = bytearray(exported.read_bytes())
    with tarfile.open(exported, "r:") as tar:
        whole[tar.getmember("images/pages-1.img").offset_data + 66_000] ^= 1
    exported.write_bytes(whole)
    with pytest.raises(ArchiveRefused, check=that(trouble="changed")):
        await ExportedFile.open(exported).verify("op-1", unseen)


async def test_a_file_that_changes_after_it_was_looked_at_is_refused(exported, tmp_path):
    """What room was taken for, and whose checkpoint it is, was said by another manifest."""
    archive = ExportedFile.open(exported)
    exported.write_bytes(
        rewritten(exported, lambda members: [member("manifest.jsonl", members[0][1] + b"\n"), *members[1:]])
    )
    with pytest.raises(ArchiveRefused, check=that(trouble="manifest")):
        await archive.verify("op-1", unseen)


async def test_another_checkpoint_of_this_id_is_not_passed_over(tier, exported, tmp_path):
    """The same one is nothing to say of."""
    archive = ExportedFile.open(exported)
    await check_new(Tiers({"disk": tier}), archive)
    await check_new(Tiers({"disk": folders(tmp_path / "empty")}), archive)
    other = published(tmp_path / "other", large=True)
    with pytest.raises(ArchiveRefused, check=that(trouble="taken")):
        await check_new(Tiers({"disk": other}), archive)


def test_who_takes_only_what_is_protected_takes_no_file():
    """Unless it is said."""
    refuse_unprotected(KeyFiles())
    with pytest.raises(SignatureMissing):
        refuse_unprotected(KeyFiles(trust=(Path("trusted.pem"),)))
    with pytest.raises(NotEncrypted):
        refuse_unprotected(KeyFiles(encrypt_with=Path("key")))
    refuse_unprotected(KeyFiles(trust=(Path("trusted.pem"),), unprotected_too=True))


@given(
    name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", fullmatch=True),
    size_bytes=st.integers(0, MAX_FILE_BYTES),
)
def test_headers_are_those_of_every_tar(name, size_bytes):
    """Long names and files of terabytes, too."""
    said = Member(f"images/{name}", size_bytes)
    header = header_of(said)
    assert next_member(io.BytesIO(header).read) == said
    with tarfile.open(fileobj=io.BytesIO(header), mode="r:") as tar:
        found = tar.firstmember
    assert (found.name, found.size) == (said.name, said.size_bytes)
