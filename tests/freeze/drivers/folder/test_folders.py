"""Folders of attempts that are packed, and put in their place on a real disk."""

import errno
import os
import shutil
import socket
import stat
import threading
from pathlib import Path

import anyio
import attrs
import pytest

from iriscw.freeze.carried import PACK, FolderDamaged, FolderInTheWay, FolderUnfit, PackedEntry, PackedKind
from iriscw.freeze.drivers.folder import packing, placing
from iriscw.freeze.drivers.folder.driver import DiskFolders
from iriscw.freeze.drivers.folder.packing import PackStopped, measure, pack
from iriscw.freeze.drivers.folder.unpacking import UnpackStopped, _without_rights
from iriscw.freeze.model import NoRoom, Outcome
from iriscw.freeze.traits import CarriedFolder, FolderStanding
from iriscw.processes.grants import LET_GO, OFFERED, SPENT, TAKEN, Grant, GrantStanding, offer, owner_of, standing_of
from iriscw.processes.lease import LeaseFile
from raised import that

ROOM = 1 << 30
HOLE = 8 << 20


def never() -> threading.Event:
    """Return what nobody sets."""
    return threading.Event()


def attempt(folder: Path) -> Path:
    """Make a folder with all that a program may leave in one."""
    work = folder / "work"
    (work / "deep" / "er").mkdir(parents=True)
    (work / "empty").mkdir()
    (folder / "stdout.log").write_bytes(b"line\n" * 1000)
    (work / "none").touch()
    (work / os.fsdecode(b"no \xff text")).write_bytes(b"x")
    with (work / "sparse").open("wb") as file:
        file.write(b"begin")
        file.seek(HOLE)
        file.write(b"end")
        file.truncate(2 * HOLE)
    os.link(work / "sparse", work / "deep" / "same")
    (work / "link").symlink_to("/etc/../nowhere")
    (work / "loop").symlink_to("loop")
    os.mkfifo(work / "fifo", 0o620)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(work / "s"))
    (work / "deep" / "er" / "run").write_bytes(b"#!")
    (work / "deep" / "er" / "run").chmod(0o4750)
    os.utime(work / "deep" / "er" / "run", ns=(1, 1_234_567_891_234_567_891))
    (work / "deep").chmod(0o500)
    os.utime(work / "deep", ns=(1, 987_654_321_123_456_789))
    folder.chmod(0o700)
    return folder


def seen(folder: Path) -> dict[str, tuple]:
    """Say all of a folder that a copy has to have as well."""
    found = {}
    inodes: dict[int, str] = {}
    for path in sorted([folder, *folder.rglob("*")]):
        name = str(path.relative_to(folder))
        if name in ("carried.json", LET_GO):
            continue
        now = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
        target = str(path.readlink()) if path.is_symlink() else inodes.setdefault(now.st_ino, name)
        changed = now.st_mtime_ns if name != "." else 0
        found[name] = (stat.filemode(now.st_mode), now.st_uid, now.st_gid, changed, content, target)
    return found


@pytest.fixture
def made(tmp_path: Path):
    """A folder in its place, and where its images go."""
    (tmp_path / "images").mkdir()
    (tmp_path / "attempts").mkdir(mode=0o700)
    return attempt(tmp_path / "attempts" / "a1"), tmp_path / "images"


def packed(folder: Path, images: Path, checkpoint: str = "ck-1") -> CarriedFolder:
    """Measure and pack a folder."""
    before = measure(str(folder), checkpoint, never())
    return pack(before, images, ROOM, never(), lambda done: None)


def test_what_is_packed_comes_back_whole(made):
    """Content, holes, modes, times, links of both kinds, FIFOs and names of sockets; and it is nobody's, and marked."""
    folder, images = made
    before = seen(folder)
    carried = packed(folder, images)
    assert (images / PACK).stat().st_size < HOLE, "holes are not written"
    shutil.rmtree(folder)
    assert placing.look(carried).standing is FolderStanding.ABSENT
    placing.place(carried, images, "th-1", never())
    assert seen(folder) == before
    assert (folder / "work" / "sparse").stat().st_blocks * 512 < HOLE
    assert placing.look(carried).standing is FolderStanding.SAME
    assert owner_of(folder) == ""
    placing.leave(carried, "th-1", Outcome.THAWED)
    assert [*folder.parent.iterdir()] == [folder]


def test_the_folder_that_was_packed_is_used_where_it_is(made):
    """On the machine where it was frozen nothing is unpacked, and a thaw that fails takes nothing away."""
    folder, images = made
    carried = packed(folder, images)
    inode = folder.stat().st_ino
    placing.place(carried, images, "th-1", never())
    placing.leave(carried, "th-1", Outcome.FAILED)
    assert folder.stat().st_ino == inode
    assert [*folder.parent.iterdir()] == [folder]


def grants(folder: Path, *names: str) -> None:
    """Put grants of this name into a folder, each with its name as its id."""
    for name in names:
        (folder / name).write_bytes(Grant(name, "a", Path("/lease")).encode())


def test_no_grant_travels(made):
    """What was offered or taken where it was frozen grants nothing where it comes to; a new one does."""
    folder, images = made
    grants(folder, OFFERED, TAKEN, SPENT)
    carried = packed(folder, images)
    shutil.rmtree(folder)
    placing.place(carried, images, "th-1", never())
    assert {name for name in (OFFERED, TAKEN, SPENT) if (folder / name).exists()} == {SPENT}
    assert b"taken" in (folder / SPENT).read_bytes()
    assert not placing.is_granted(folder)
    offer(folder, Grant("g", "b", Path("/lease")))
    assert placing.is_granted(folder)
    assert standing_of(folder, TAKEN) is GrantStanding.NONE


@pytest.mark.parametrize("exchange", [True, False])
def test_another_state_of_it_is_kept_until_it_is_decided(made, exchange, monkeypatch):
    """What was there before comes back if nothing came of the thaw, and goes when a grant was taken."""
    folder, images = made
    carried = packed(folder, images, "ck-2")
    (folder / "stdout.log").write_bytes(b"older")
    (folder / "carried.json").unlink()
    (folder / LET_GO).touch()
    if not exchange:
        monkeypatch.setattr(placing, "_renameat2", cannot)
    before = seen(folder)
    for outcome in (Outcome.FAILED, Outcome.FAILED):
        placing.place(carried, images, "th-1", never())
        assert (folder / "stdout.log").stat().st_size == 5000
        placing.leave(carried, "th-1", outcome)
        placing.leave(carried, "th-1", outcome)
        assert seen(folder) == before
        assert [*folder.parent.iterdir()] == [folder]
    placing.place(carried, images, "th-2", never())
    grants(folder, TAKEN)
    placing.leave(carried, "th-2", Outcome.FAILED)
    assert (folder / "stdout.log").stat().st_size == 5000
    assert [*folder.parent.iterdir()] == [folder]


def cannot(source, target, flags):
    """Stand in for a file system that knows no flags of a rename."""
    raise OSError(errno.EINVAL, "no")


class Died(BaseException):
    """The process that thaws dies here."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("there", [True, False])
def test_a_crash_between_any_two_steps_is_undone(made, there, exchange, monkeypatch):
    """Whichever rename was the last one, what was there before is there again, whole, and nothing else is."""
    folder, images = made
    carried = packed(folder, images)
    (folder / "carried.json").unlink()
    (folder / LET_GO).touch()
    if not there:
        shutil.rmtree(folder)
    before = seen(folder) if there else {}
    renamed, plain, left = placing._renameat2 if exchange else cannot, Path.rename, []

    def counted(step):
        if left and left.pop() == "die":
            raise Died
        return step()

    monkeypatch.setattr(placing, "_renameat2", lambda *words: counted(lambda: renamed(*words)))
    monkeypatch.setattr(Path, "rename", lambda *words: counted(lambda: plain(*words)))
    crashes = 0
    for step in range(12):
        left[:] = ["die", *["on"] * step]
        try:
            placing.place(carried, images, "th-1", never())
            placing.leave(carried, "th-1", Outcome.FAILED)
        except Died:
            crashes += 1
        left.clear()
        placing.leave(carried, "th-1", Outcome.FAILED)
        assert (seen(folder) if folder.exists() else {}) == before
        assert [*folder.parent.iterdir()] == ([folder] if there else [])
    assert crashes >= 2


@pytest.mark.parametrize("spoil", ["kept", "taken", "link", "file"])
def test_what_is_somebodys_is_left_alone(made, spoil):
    """It was never let go, or is granted to somebody and taken, or is no folder at all."""
    folder, images = made
    carried = packed(folder, images)
    (folder / "carried.json").unlink()
    if spoil == "taken":
        (folder / LET_GO).touch()
        grants(folder, TAKEN)
    elif spoil != "kept":
        folder.rename(folder.parent.parent / "real")
        folder.symlink_to(folder.parent.parent / "real") if spoil == "link" else folder.touch()
    assert placing.look(carried).standing is FolderStanding.KEPT
    with pytest.raises(FolderInTheWay, check=that(comes_from="placing.place")):
        placing.place(carried, images, "th-1", never())
    assert [*folder.parent.iterdir()] == [folder]


def test_a_link_in_the_place_of_its_name_is_not_followed(made, tmp_path, monkeypatch):
    """Whoever owns the folder above it may put one there: nothing is written where it leads."""
    folder, images = made
    carried = packed(folder, images)
    shutil.rmtree(folder)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    before = placing.unpack

    def swapped(images, carried, top, stop):
        before(images, carried, top, stop)
        new, _ = placing._beside(folder, "th-1")
        new.rename(tmp_path / "aside")
        new.symlink_to(elsewhere)

    monkeypatch.setattr(placing, "unpack", swapped)
    with pytest.raises(FolderInTheWay):
        placing.place(carried, images, "th-1", never())
    assert [*elsewhere.iterdir()] == []
    assert not os.path.lexists(folder)


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("there", [True, False])
def test_a_link_that_comes_into_the_place_itself_does_not_stay(made, tmp_path, there, exchange, monkeypatch):
    """After the last look at the name of what was unpacked: what was in the place is there again."""
    folder, images = made
    carried = packed(folder, images)
    (folder / "carried.json").unlink()
    (folder / LET_GO).touch()
    if not there:
        shutil.rmtree(folder)
    before = seen(folder) if there else None
    new, old = placing._beside(folder, "th-1")
    step, late = ("_swap" if there else "_rename"), []
    puts = getattr(placing, step)

    def swapped(*words):
        if not late:
            late.append(new.rename(tmp_path / "aside"))
            new.symlink_to(tmp_path / "aside")
        puts(*words)

    monkeypatch.setattr(placing, step, swapped)
    if not exchange:
        monkeypatch.setattr(placing, "_renameat2", cannot)
    with pytest.raises(FolderInTheWay):
        placing.place(carried, images, "th-1", never())
    assert (seen(folder) if there else None) == before
    assert (os.path.lexists(folder), new.is_symlink(), os.path.lexists(old)) == (there, True, False)


def test_what_was_in_the_place_of_a_link_is_not_removed(made, tmp_path):
    """A crash before that was noticed: the link goes, and what was there before comes back."""
    folder, images = made
    carried = packed(folder, images)
    (folder / "carried.json").unlink()
    before = seen(folder)
    new, old = placing._beside(folder, "th-1")
    folder.rename(old)
    folder.symlink_to(tmp_path)
    with pytest.raises(OSError):
        placing.leave(carried, "th-1", Outcome.FAILED)
    assert seen(folder) == before
    assert new.is_symlink()


@pytest.mark.parametrize(
    ("user", "folder_of", "kind", "mode"),
    [
        (0, 0, PackedKind.FILE, 0o6755),
        (0, 1000, PackedKind.FILE, 0o0755),
        (1000, 1000, PackedKind.FILE, 0o4755),
        (1000, 1000, PackedKind.FOLDER, 0o6755),
    ],
)
def test_nobody_gets_the_rights_of_another(user, folder_of, kind, mode):
    """A program of one user's folder does not run as another user, or with another group."""
    entry = PackedEntry("work/run", kind, mode=0o6755, user=user, group=0, changed_ns=0)
    assert _without_rights(entry, folder_of).mode == mode


def test_a_place_that_is_none(made, tmp_path):
    """Its parent is not there, is reached by a link, is no folder, or may be changed by others."""
    folder, images = made
    carried = packed(folder, images)
    (tmp_path / "link").symlink_to(folder.parent)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for parent, word in (("gone", "not there"), ("link", "a link"), ("open", "by others"), ("images/" + PACK, "not a")):
        elsewhere = attrs.evolve(carried, path=str(tmp_path / parent / "a2"))
        assert word in placing.look(elsewhere).trouble
        with pytest.raises(FolderInTheWay, check=that(comes_from="placing.place")):
            placing.place(elsewhere, images, "th-1", never())


def test_what_was_made_up_is_not_unpacked(made, tmp_path):
    """A pack that is cut anywhere, or goes on after its end, leaves nothing in the place."""
    folder, images = made
    carried = packed(folder, images)
    shutil.rmtree(folder)
    whole = (images / PACK).read_bytes()
    for data in (b"", b"iriscw-folder 2\n", whole + b"x", *(whole[:at] for at in range(20, len(whole), 997))):
        (images / PACK).write_bytes(data)
        with pytest.raises(FolderDamaged):
            placing.place(carried, images, "th-1", never())
        placing.leave(carried, "th-1", Outcome.FAILED)
        assert [*folder.parent.iterdir()] == []
    (images / PACK).write_bytes(whole)
    with pytest.raises(FolderDamaged, check=that(comes_from="unpacking.unpack")):
        placing.place(attrs.evolve(carried, files=3), images, "th-1", never())


def test_a_folder_that_cannot_be_carried(made, monkeypatch):
    """A device, one that was changed meanwhile, too many files and too many bytes: each is named."""
    folder, images = made
    monkeypatch.setattr("iriscw.freeze.drivers.folder.packing.MAX_ENTRIES", 5)
    with pytest.raises(FolderUnfit, check=that(names=(5, str(folder)))):
        measure(str(folder), "ck-1", never())
    monkeypatch.undo()
    monkeypatch.setattr("iriscw.freeze.drivers.folder.packing.MAX_FOLDER_BYTES", 4096)
    with pytest.raises(FolderUnfit, check=that(names=str(folder))):
        measure(str(folder), "ck-1", never())
    monkeypatch.undo()
    carried = measure(str(folder), "ck-1", never())
    with pytest.raises(NoRoom):
        pack(carried, images, 4096, never(), lambda done: None)

    def grows(done: int) -> None:
        with (folder / "stdout.log").open("ab") as file:
            file.write(b"more")

    with pytest.raises(FolderUnfit, check=that(names="stdout.log")):
        pack(carried, images, ROOM, never(), grows)
    if os.geteuid() == 0:
        os.mknod(folder / "work" / "null", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        with pytest.raises(FolderUnfit, check=that(names="null")):
            measure(str(folder), "ck-1", never())


def test_a_folder_is_measured_while_its_program_runs(made, monkeypatch):
    """What grows or goes in that moment is no obstacle; when it is packed, it is."""
    folder, images = made
    extents, names = packing._extents, packing._names

    def grows(file, size):
        with (folder / "stdout.log").open("ab") as log:
            log.write(b"more")
        return extents(file, size)

    monkeypatch.setattr(packing, "_extents", grows)
    carried = measure(str(folder), "ck-1", never())
    with pytest.raises(FolderUnfit, check=that(names="stdout.log")):
        pack(carried, images, ROOM, never(), lambda done: None)
    monkeypatch.setattr(packing, "_extents", extents)
    monkeypatch.setattr(packing, "_names", lambda opened: [*names(opened), "gone"])
    carried = measure(str(folder), "ck-1", never())
    assert carried.files > 10
    with pytest.raises(FolderUnfit, check=that(names="gone")):
        pack(carried, images, ROOM, never(), lambda done: None)


async def test_it_is_given_up_when_it_is_asked_to(made):
    """Both ways stop in the middle, and a cancellation waits until they have."""
    folder, images = made
    given_up = threading.Event()
    given_up.set()
    carried = packed(folder, images)
    with pytest.raises(PackStopped):
        measure(str(folder), "ck-1", given_up)
    shutil.rmtree(folder)
    with pytest.raises(UnpackStopped):
        placing.place(carried, images, "th-1", given_up)
    folders = DiskFolders()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await folders.place(carried, str(images), "th-1")
    assert scope.cancelled_caught
    await folders.leave(carried, "th-1", Outcome.FAILED)
    assert [*folder.parent.iterdir()] == []


async def test_who_has_the_grant_is_waited_for(made, tmp_path):
    """In a folder that a thaw has put there, until the grant is; in others nobody is waited for."""
    folder, images = made
    carried = packed(folder, images)
    folders = DiskFolders()
    with anyio.fail_after(60):
        await folders.granted(str(folder), 1 << 62)
        shutil.rmtree(folder)
        await folders.place(carried, str(images), "th-1")
        await folders.granted(str(folder), 1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(folders.granted, str(folder), 1 << 62)
            await anyio.lowlevel.checkpoint()
            offer(folder, Grant("g", "b", LeaseFile(tmp_path / "lease").path))
