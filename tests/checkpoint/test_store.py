"""A tier of folders: budgets, what is visible when, and damage of every kind, found before anybody uses it."""

import contextlib
import errno
import os
import random
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for artifacts

from artifacts import FROZEN, damage, fill, folders, published, verify

from iriscw.checkpoint.drivers import digests, store
from iriscw.checkpoint.drivers.digests import Reading, best_algorithm, digest_of
from iriscw.checkpoint.manifest import MAX_FILE_BYTES, seal as seal_manifest
from iriscw.files import TEMPORARY_PREFIX
from iriscw.freeze.model import ArtifactInUse, ArtifactRefused, ArtifactUnknown, NoRoom, TaskIdentity, UnsafeRequest
from raised import that

MIB = 1 << 20


def reserved(tier):
    """Return what the tier has reserved and what its artifacts take."""
    use = tier.use()
    return use.reserved_bytes, use.artifacts_bytes


def test_the_whole_way(tmp_path):
    """Room is reserved first; what is visible is whole; what was reserved comes back once."""
    tier = folders(tmp_path)
    room = tier.reserve("op-1", 50 * MIB)
    assert tier.reserve("op-1", 50 * MIB) == room
    assert reserved(tier) == (50 * MIB, 0)
    fill(room)
    sealed = tier.seal("op-1", FROZEN, (("model", "a"),), store.default_reading(lambda count: None), lambda size: None)
    assert not tier.has("op-1")
    assert tier.listing() == []
    tier.publish("op-1")
    tier.publish("op-1")
    assert reserved(tier)[0] == 0
    (listed,) = tier.listing()
    assert (listed.artifact, listed.trouble, listed.manifest.labels) == ("op-1", "", (("model", "a"),))
    assert listed.manifest.sealed == sealed
    assert listed.manifest.frozen == FROZEN
    verify(tier, "op-1")
    tier.unpin("op-1", "op-1")
    tier.remove("op-1")
    assert reserved(tier) == (0, 0)
    assert tier.listing() == []


def test_only_the_owner_reads_it(tmp_path):
    """Folders 0700, files 0600: an artifact has all secrets of the process."""
    tier = published(tmp_path)
    for path in (tmp_path / "tier").rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
    assert tier.has("op-1")


def test_the_budget_is_a_bound(tmp_path):
    """More than the budget is never reserved, artifacts and running operations together."""
    tier = published(tmp_path, budget_bytes=60 * MIB)
    taken = reserved(tier)[1]
    assert taken > 0
    with pytest.raises(NoRoom, check=that(comes_from="store.Folders.reserve")):
        tier.reserve("op-2", 60 * MIB - taken + 1)
    tier.reserve("op-2", 60 * MIB - taken)
    with pytest.raises(NoRoom):
        tier.reserve("op-3", 1)
    tier.discard("op-2")
    tier.discard("op-2")
    tier.reserve("op-3", 1)


def test_a_small_file_system_is_a_bound_too(tmp_path, monkeypatch):
    """What the file system does not have is not reserved, whatever the budget says."""
    tier = folders(tmp_path)
    found = os.statvfs(tmp_path)
    with pytest.raises(NoRoom, check=that(comes_from="store.Folders.reserve")):
        folders(tmp_path, budget_bytes=1 << 60).reserve("op-1", found.f_bavail * found.f_frsize + (1 << 40))
    room = tier.reserve("op-1", MIB)
    fill(room)

    def full(descriptor):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(store.os, "fsync", full)
    with pytest.raises(NoRoom, check=that(comes_from="images.room_of")):
        tier.seal("op-1", FROZEN, (), store.default_reading(lambda count: None), lambda size: None)
    monkeypatch.undo()
    tier.discard("op-1")
    assert reserved(tier) == (0, 0)


def test_memory_that_the_machine_has_not_is_not_reserved(tmp_path):
    """A memory file system promises more than there is; and what others will write yet is there for nobody else."""
    tier = folders(tmp_path, volatile=True, free_memory=lambda: 100 * MIB)
    with pytest.raises(NoRoom, check=that(comes_from="store.Folders.reserve", names="100")):
        tier.reserve("op-1", 101 * MIB)
    room = tier.reserve("op-1", 60 * MIB)
    assert tier.promised_bytes() == 60 * MIB
    with pytest.raises(NoRoom, check=that(comes_from="store.Folders.reserve", names="40")):
        tier.reserve("op-2", 41 * MIB)
    fill(room)
    assert tier.promised_bytes() == 60 * MIB - sum(path.stat().st_size for path in Path(room.images).iterdir())
    tier.discard("op-1")
    tier.reserve("op-2", 100 * MIB)


def test_what_was_never_sealed_is_never_published(tmp_path):
    """The manifest is written last, so its absence says that something is missing."""
    tier = folders(tmp_path)
    fill(tier.reserve("op-1", MIB))
    with pytest.raises(ArtifactUnknown, check=that(comes_from="store.Folders.publish")):
        tier.publish("op-1")


def test_images_without_an_inventory_are_not_sealed(tmp_path):
    """CRIU that died left no inventory."""
    tier = folders(tmp_path)
    room = tier.reserve("op-1", MIB)
    fill(room)
    (Path(room.images) / "inventory.img").unlink()
    with pytest.raises(ArtifactRefused, check=that(names="inventory.img")):
        tier.seal("op-1", FROZEN, (), store.default_reading(lambda count: None), lambda size: None)


def test_an_artifact_in_use_stays(tmp_path):
    """A pinned one is not removed; the pin of an operation that let go twice is gone."""
    tier = published(tmp_path)
    kept = tier.pin("op-1", "op-9")
    assert kept.frozen == FROZEN
    with pytest.raises(ArtifactInUse, check=that(names="op-9")):
        tier.remove("op-1")
    verify(tier, "op-1")
    tier.unpin("op-1", "op-9")
    tier.unpin("op-1", "op-9")
    tier.remove("op-1")
    with pytest.raises(ArtifactUnknown):
        tier.pin("op-1", "op-9")


def test_an_artifact_whose_freeze_has_not_ended_stays(tmp_path):
    """Its own operation pins it before anybody sees it: who removes it then would lose a tree that is being ended."""
    tier = folders(tmp_path)
    fill(tier.reserve("op-1", 40 * MIB), large=False)
    tier.seal("op-1", FROZEN, (), store.default_reading(lambda count: None), lambda size: None)
    tier.publish("op-1")
    assert tier.listing()[0].pinned_by == ("op-1",)
    with pytest.raises(ArtifactInUse, check=that(comes_from="store.Folders._take_away", names="op-1")):
        tier.remove("op-1")
    tier.unpin("op-1", "op-1")
    tier.publish("op-1")  # once more, as after a crash
    tier.pin("op-1", "th-1")
    with pytest.raises(ArtifactInUse, check=that(names="th-1")):
        tier.discard("op-1")
    tier.unpin("op-1", "th-1")
    tier.discard("op-1")
    assert reserved(tier) == (0, 0)
    assert list((tier.root / "pins").iterdir()) == []


def test_memory_is_not_trusted_after_a_boot(tmp_path):
    """A copy in RAM belongs to the boot in which it was made."""
    published(tmp_path)
    tier = folders(tmp_path, volatile=True, boot_id="another")
    with pytest.raises(ArtifactRefused, check=that(comes_from="store.Folders._read")):
        tier.pin("op-1", "op-9")
    assert "another boot" in tier.listing()[0].trouble


@pytest.mark.parametrize("name", ["../x", "/etc", "A", "", "a" * 64, "."])
def test_ids_are_no_paths(tmp_path, name):
    """An id is a name and nothing else."""
    with pytest.raises(UnsafeRequest):
        folders(tmp_path).reserve(name, 1)


def test_each_damage_is_found(tmp_path):
    """One flipped bit, a truncation or a byte too many, anywhere in any file, the manifest included."""
    tier = published(tmp_path, large=False)
    place = tmp_path / "tier" / "artifacts" / "op-1"
    files = sorted(path for path in place.rglob("*") if path.is_file())
    assert len(files) > 5
    rng = random.Random(7)
    for path in files:
        whole = path.read_bytes()
        for _ in range(60 if path.name == store.MANIFEST else 12):
            what = damage(path, rng)
            with pytest.raises((ArtifactRefused, ArtifactUnknown)) as found:
                verify(tier, "op-1")
            assert str(found.value), what
            path.write_bytes(whole)
    verify(tier, "op-1")


def test_hostile_manifests(tmp_path):
    """A link, a pipe, a folder, one without end or larger than any: refused by name, and nothing is waited for."""
    tier = published(tmp_path, large=False)
    manifest = tmp_path / "tier" / "artifacts" / "op-1" / store.MANIFEST
    whole = manifest.read_bytes()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(whole)
    makes = {
        "link": lambda: manifest.symlink_to(elsewhere),
        "pipe": lambda: os.mkfifo(manifest),
        "folder": manifest.mkdir,
        "zero": lambda: Path("/dev/zero").exists() and manifest.symlink_to("/dev/zero"),
        "empty": manifest.touch,
        "sparse": lambda: (manifest.touch(), os.truncate(manifest, 1 << 40)),
        "lines": lambda: manifest.write_bytes(whole.splitlines(keepends=True)[0] * 3),
    }
    for name, make in makes.items():
        manifest.unlink()
        make()
        with pytest.raises(ArtifactRefused, check=that(names="op-1")):
            verify(tier, "op-1")
        with pytest.raises(ArtifactRefused, check=that(names="op-1")):
            tier.pin("op-1", f"th-{name}")
        assert tier.listing()[0].trouble, name
        tier.unpin("op-1", f"th-{name}")
        if manifest.is_dir() and not manifest.is_symlink():
            manifest.rmdir()
            manifest.touch()
    manifest.unlink()
    manifest.write_bytes(whole)
    verify(tier, "op-1")


def test_a_size_that_no_disk_has_is_read_by_nobody(tmp_path):
    """A manifest that says 16 TiB of a file is compared with what is there, before anything is read or allocated."""
    tier = published(tmp_path, large=False)
    place = tmp_path / "tier" / "artifacts" / "op-1"
    files = tuple(
        attrs.evolve(file, size_bytes=MAX_FILE_BYTES, pieces=b"") if file.name == "pages-1.img" else file
        for file in tier.manifest("op-1").files
    )
    text, _ = seal_manifest("op-1", frozen=FROZEN, files=files, algorithm="sha256-8m")
    (place / store.MANIFEST).write_bytes(text)
    readings = []
    with pytest.raises(ArtifactRefused, check=that(names=MAX_FILE_BYTES)):
        tier.verify("op-1", lambda *given: readings.append(given))
    assert readings == []


@pytest.fixture
def full_disk(tmp_path):
    """A memory file system of 1 MiB for the tier, if this user may mount one; a function that fills what is left."""
    root = tmp_path / "tier"
    root.mkdir(mode=0o700)
    command = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(root)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a file system of its own")

    def fill_up():
        with (root / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 4096)

    try:
        yield fill_up
    finally:
        subprocess.run(["umount", "-l", str(root)], check=True)


@pytest.mark.slow
def test_a_file_system_that_fills_up(tmp_path, full_disk):
    """At each step it is named, what was written before is as it was, and all room is free after a discard."""
    tier = folders(tmp_path)
    filler = tmp_path / "tier" / "filler"
    with pytest.raises(NoRoom, check=that(comes_from="store.Folders.reserve")):
        tier.reserve("op-1", 2 * MIB)
    full_disk()
    with pytest.raises(NoRoom):
        tier.reserve("op-1", 1)
    filler.unlink()
    room = tier.reserve("op-1", MIB // 2)
    fill(room, large=False)
    full_disk()
    with pytest.raises(NoRoom, check=that(comes_from="images.room_of")):
        tier.seal("op-1", FROZEN, (), store.default_reading(lambda count: None), lambda size: None)
    assert tier.listing() == []
    filler.unlink()
    tier.seal("op-1", FROZEN, (), store.default_reading(lambda count: None), lambda size: None)
    tier.publish("op-1")
    tier.unpin("op-1", "op-1")
    full_disk()
    verify(tier, "op-1")
    tier.remove("op-1")
    filler.unlink()
    assert reserved(tier) == (0, 0)
    room = tier.reserve("op-2", MIB // 2)
    fill(room, large=False)
    full_disk()
    tier.discard("op-2")
    filler.unlink()
    assert reserved(tier) == (0, 0)
    assert list((tier.root / "staging").iterdir()) == []


def test_files_that_are_none(tmp_path):
    """Links, second names, pipes, folders, missing files and extra ones are refused by name."""
    tier = published(tmp_path, large=False)
    images = tmp_path / "tier" / "artifacts" / "op-1" / "images"
    victim = images / "core-100.img"
    whole = victim.read_bytes()
    elsewhere = tmp_path / "elsewhere"

    def swap(make):
        victim.unlink()
        make()
        with pytest.raises(ArtifactRefused, check=that(names="core-100.img")):
            verify(tier, "op-1")
        if victim.is_dir() and not victim.is_symlink():
            victim.rmdir()
        else:
            victim.unlink(missing_ok=True)
        victim.write_bytes(whole)

    elsewhere.write_bytes(whole)
    swap(lambda: victim.symlink_to(elsewhere))
    swap(lambda: os.link(elsewhere, victim))
    swap(lambda: os.mkfifo(victim))
    swap(victim.mkdir)
    swap(lambda: None)
    (images / "extra.img").write_bytes(b"x")
    with pytest.raises(ArtifactRefused, check=that(names="extra.img")):
        verify(tier, "op-1")
    (images / "extra.img").unlink()
    verify(tier, "op-1")
    images.rename(tmp_path / "moved")
    images.symlink_to(tmp_path / "moved")
    with pytest.raises(ArtifactRefused, check=that(comes_from="store.Folders.verify")):
        verify(tier, "op-1")


def test_a_reading_can_be_stopped(tmp_path):
    """A verification that nobody wants any more ends early."""
    tier = published(tmp_path)
    reading = digests.Reading("", 2, lambda count: reading.stop.set())

    def reader(algorithm, total):
        reading.algorithm = algorithm
        return reading

    with pytest.raises(digests.DigestsStopped):
        tier.verify("op-1", reader)


def test_pieces_are_read_by_many_threads(tmp_path):
    """The digest does not depend on the number of threads, and sees pieces in their order."""
    size = 2 * digests.PIECE_BYTES + 5
    data = random.Random(1).randbytes(size)
    (tmp_path / "a.img").write_bytes(data)
    swapped = data[digests.PIECE_BYTES : 2 * digests.PIECE_BYTES] + data[: digests.PIECE_BYTES] + data[-5:]
    (tmp_path / "b.img").write_bytes(swapped)
    folder = digests.open_folder(tmp_path)
    try:
        found = [
            Reading("sha256-8m", threads, lambda count: None).digests(folder, [("a.img", size), ("b.img", size)])
            for threads in (1, 4)
        ]
    finally:
        os.close(folder)
    assert found[0] == found[1]
    assert found[0][0].digest != found[0][1].digest


def test_blake3_is_optional(monkeypatch):
    """Without the package SHA-256 is taken, and an artifact that needs it says so."""
    monkeypatch.setitem(sys.modules, "blake3", None)
    assert best_algorithm() == "sha256-8m"
    with pytest.raises(ArtifactRefused, check=that(comes_from="digests.digest_of")):
        digest_of("blake3-8m")


@pytest.mark.parametrize("made", ["open", "link", "file"])
def test_a_folder_that_others_may_write_to_is_refused(tmp_path, made):
    """Whoever made it first could plant images that are run: nothing is read there, and nothing written."""
    root = tmp_path / "tier"
    if made == "open":
        root.mkdir()
        root.chmod(0o777)
    elif made == "link":
        (tmp_path / "theirs").mkdir(mode=0o700)
        root.symlink_to(tmp_path / "theirs")
    else:
        root.write_bytes(b"")
    tier = folders(tmp_path)
    doings = (lambda: tier.reserve("op-1", 1), tier.listing, lambda: tier.has("op-1"), lambda: tier.remove("op-1"))
    for do in (*doings, lambda: tier.pin("op-1", "th-1"), lambda: tier.discard("op-1"), tier.use):
        with pytest.raises(UnsafeRequest, check=that(comes_from="store.Folders.check")):
            do()
    assert not root.is_dir() or list(root.iterdir()) == []


def test_a_part_of_a_file_reserves_nothing_and_pins_nothing(tmp_path):
    """Whoever is killed while it writes leaves one."""
    tier = published(tmp_path)
    before = reserved(tier)
    (tier.root / "reserved" / f"{TEMPORARY_PREFIX}1-0-op-2").write_bytes(b"")
    (tier.root / "reserved" / f"{TEMPORARY_PREFIX}1-1-op-3").write_bytes(b"7")
    (tier.root / "pins" / "op-1").mkdir(parents=True, mode=0o700)
    (tier.root / "pins" / "op-1" / f"{TEMPORARY_PREFIX}1-2-th-1").write_bytes(b"")
    assert reserved(tier) == before
    assert tier.listing()[0].pinned_by == ()
    tier.remove("op-1")


@pytest.mark.parametrize("end", ["discard", "unpin"])
def test_writings_that_were_cut_off_leave_nothing(tmp_path, end):
    """A part of a file that whoever was killed wrote goes with its operation, and only with that."""
    tier = folders(tmp_path)
    fill(tier.reserve("op-1", MIB), large=False)
    parts = [tier.root / "reserved" / f"{TEMPORARY_PREFIX}7-0-op-1", tier.root / "pins" / "op-1" / ".iriscw-7-1-op-1"]
    parts += [tier.root / "staging" / "op-1" / f"{TEMPORARY_PREFIX}7-2-{store.MANIFEST}"]
    strange = tier.root / "reserved" / f"{TEMPORARY_PREFIX}7-3-x-op-1"
    (tier.root / "pins" / "op-1").mkdir(parents=True)
    for each in (*parts, strange):
        each.write_bytes(b"a part")
    if end == "unpin":
        tier.seal("op-1", FROZEN, (), store.default_reading(lambda count: None), lambda size: None)
        tier.publish("op-1")
        assert sorted(path.name for path in (tier.root / "artifacts" / "op-1").iterdir()) == ["images", store.MANIFEST]
        tier.unpin("op-1", "op-1")
    else:
        tier.discard("op-1")
    left = [path for path in tier.root.rglob(f"{TEMPORARY_PREFIX}*") if path.is_file()]
    assert left == [strange]
    assert [*(tier.root / "pins").iterdir()] == []


def test_a_pin_whose_removal_was_cut_off_leaves_nothing(tmp_path):
    """The folder of the pins was still there: it goes when the removal is repeated."""
    tier = published(tmp_path, large=False)
    tier.pin("op-1", "op-2")
    (tier.root / "pins" / "op-1" / "op-2").unlink()
    tier.unpin("op-1", "op-2")
    assert [*(tier.root / "pins").iterdir()] == []


def test_what_is_half_removed_is_not_sealed_any_more(tmp_path, monkeypatch):
    """The end of that comes in the middle of a removal: what is left is never published, as what it was or as less."""
    tier = folders(tmp_path)
    fill(tier.reserve("op-1", MIB), large=False)
    tier.seal("op-1", FROZEN, (), store.default_reading(lambda count: None), lambda size: None)
    synced = []
    monkeypatch.setattr(store, "sync_folder", synced.append)

    def cut(folder):
        assert folder in synced
        assert not (folder / store.MANIFEST).exists()
        raise OSError(errno.EIO, "the disk is gone")

    monkeypatch.setattr(store, "remove_tree", cut)
    with pytest.raises(OSError, check=that(errno=errno.EIO)):
        tier.discard("op-1")
    monkeypatch.undo()
    with pytest.raises(ArtifactUnknown, check=that(comes_from="store.Folders.publish")):
        tier.publish("op-1")
    tier.discard("op-1")
    assert reserved(tier) == (0, 0)


def test_what_was_removed_stays_removed_after_a_power_cut(tmp_path, monkeypatch):
    """And what was made is there: each folder as it was last brought to the disk is the folder as it is."""
    real, on_disk = store.sync_folder, {}

    def sync(path):
        real(path)
        on_disk[path] = sorted(each.name for each in path.iterdir())

    monkeypatch.setattr(store, "sync_folder", sync)
    monkeypatch.setattr("iriscw.files.sync_folder", sync)
    tier = folders(tmp_path)
    reserved_in, pins, artifacts = tier.root / "reserved", tier.root / "pins", tier.root / "artifacts"
    fill(tier.reserve("op-1", MIB), large=False)
    assert on_disk[reserved_in] == ["op-1"]
    tier.seal("op-1", FROZEN, (), store.default_reading(lambda count: None), lambda size: None)
    tier.publish("op-1")
    assert (on_disk[reserved_in], on_disk[artifacts]) == ([], ["op-1"])
    assert (on_disk[pins], on_disk[pins / "op-1"]) == (["op-1"], ["op-1"])
    assert {"artifacts", "pins"} <= {*on_disk[tier.root]}
    tier.pin("op-1", "th-1")
    tier.unpin("op-1", "op-1")
    assert on_disk[pins / "op-1"] == ["th-1"]
    tier.unpin("op-1", "th-1")
    assert on_disk[pins / "op-1"] == []
    tier.reserve("op-2", MIB)
    tier.discard("op-2")
    assert on_disk[reserved_in] == []

    def nothing_goes_yet(path):
        assert on_disk[artifacts] == []

    monkeypatch.setattr(store, "remove_tree", nothing_goes_yet)
    tier.remove("op-1")


def test_who_keeps_more_of_images_hears_that_they_go(tmp_path):
    """Before they are removed, sealed or not: by then they say what of them lies elsewhere. Else nobody is told."""
    told = []

    def forget(images, work):
        assert (images / "inventory.img").exists()
        told.append((work / "dump.log").exists())

    tier = published(tmp_path, large=False, forget=forget)
    fill(tier.reserve("op-2", 1 << 20), large=False)
    (tier.root / "work" / "op-2" / "dump.log").touch()
    tier.pin("op-1", "op-3")
    tier.unpin("op-1", "op-3")
    assert told == []
    tier.discard("op-2")
    assert told == [True]
    tier.discard("op-2")
    tier.remove("op-1")
    assert told == [True, False]


def test_who_came_back_stands_beside_the_artifact(tmp_path):
    """It is read with the artifact, replaced as a whole, and goes with it; nobody reads a damaged one as nobody."""
    tier = published(tmp_path)
    first, second = TaskIdentity(100, 5, "boot"), TaskIdentity(101, 6, "boot")
    assert tier.pin("op-1", "th-1").returned == ()
    tier.came_back("op-1", (first,))
    tier.came_back("op-1", (first, second))
    assert tier.pin("op-1", "th-2").returned == (first, second)
    verify(tier, "op-1")
    place = tier.images("op-1").parent / store.RETURNED
    for broken in (b"", b"[[1]]", b"{}x", b'[["a",1,"b"]]'):
        place.write_bytes(broken)
        with pytest.raises(ArtifactRefused):
            tier.pin("op-1", "th-2")
    with pytest.raises(ArtifactUnknown):
        tier.came_back("op-2", (first,))
