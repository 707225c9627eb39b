"""Images that are read while they are written: what is behind the end of a file is not read again, and nothing else."""

import hashlib
import os
import random
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from waiting import block_until

sys.path.insert(0, str(Path(__file__).parent))  # for artifacts

from artifacts import FROZEN, fill, folders, verify

from iriscw.checkpoint.drivers import following, tiers as tiers_module
from iriscw.checkpoint.drivers.following import Following
from iriscw.checkpoint.drivers.tiers import Tiers
from iriscw.checkpoint.manifest import PIECE_BYTES
from iriscw.freeze.model import ArtifactRefused
from raised import that

ALGORITHM = "sha256-8m"
PATIENCE_S = 60


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(autouse=True)
def nobody_is_left():
    """No thread outlives its operation."""
    yield
    block_until(lambda: not [each for each in threading.enumerate() if each.name.startswith("iriscw-follow")])


def known(followed, path, offset):
    """Ask for a piece of what lies there now."""
    return followed.known(path.name, offset, path.stat())


def test_what_is_behind_the_end_is_read(tmp_path):
    """A piece is read as soon as it is whole, one that is not whole yet is not, and neither is what is no memory."""
    pages, other = tmp_path / "pages-1.img", tmp_path / "core-1.img"
    data = random.Random(1).randbytes(2 * PIECE_BYTES)
    followed = Following(tmp_path, ALGORITHM, 1)
    try:
        other.write_bytes(data)
        with pages.open("wb", buffering=0) as file:
            file.write(data[: PIECE_BYTES - 1])
            file.write(data[PIECE_BYTES - 1 : -1])
            block_until(lambda: followed.done_bytes == PIECE_BYTES)
            file.write(data[-1:])
            block_until(lambda: followed.done_bytes == 2 * PIECE_BYTES)
            file.write(data[:10])
    finally:
        followed.stop()
    for at in (0, PIECE_BYTES):
        assert known(followed, pages, at) == hashlib.sha256(data[at : at + PIECE_BYTES]).digest()
    assert known(followed, pages, 2 * PIECE_BYTES) is None
    assert known(followed, other, 0) is None


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(8))
def test_whatever_was_written_when_it_stops(tmp_path, seed):
    """Every digest that is known is that of its piece, wherever the end of a file was when it was looked at."""
    rng = random.Random(seed)
    paths = [tmp_path / f"pages-{number}.img" for number in (1, 2)]
    contents = [rng.randbytes(rng.randrange(4 * PIECE_BYTES)) for _ in paths]
    followed = Following(tmp_path, ALGORITHM, rng.randrange(1, 3))
    try:
        for path, data in zip(paths, contents, strict=True):
            with path.open("wb", buffering=0) as file:
                at = 0
                while at < len(data):
                    at += file.write(data[at : at + rng.randrange(1, PIECE_BYTES)])
    finally:
        followed.stop()
    for path, data in zip(paths, contents, strict=True):
        for at in range(0, len(data), PIECE_BYTES):
            found = known(followed, path, at)
            assert found is None or found == hashlib.sha256(data[at : at + PIECE_BYTES]).digest()


def test_another_file_of_that_name_is_read_again(tmp_path):
    """What was read of a file says nothing of the one that took its place."""
    pages = tmp_path / "pages-1.img"
    pages.write_bytes(bytes(PIECE_BYTES))
    followed = Following(tmp_path, ALGORITHM, 1)
    block_until(lambda: followed.done_bytes)
    followed.stop()
    before = pages.stat()
    another = tmp_path / "another"
    another.write_bytes(bytes(PIECE_BYTES))
    another.replace(pages)
    assert known(followed, pages, 0) is None
    assert followed.known(pages.name, 0, before) == hashlib.sha256(bytes(PIECE_BYTES)).digest()


@pytest.mark.parametrize("trouble", ["no folder", "link", "cut off", "unreadable"])
def test_what_cannot_be_read_is_left_to_whoever_seals_it(tmp_path, monkeypatch, trouble):
    """Nothing is raised, and no digest is made up."""
    pages = tmp_path / "pages-1.img"
    pages.write_bytes(bytes(PIECE_BYTES))
    folder = tmp_path
    if trouble == "no folder":
        folder = tmp_path / "none"
    elif trouble == "link":
        (tmp_path / "elsewhere").hardlink_to(pages)
    else:
        real = os.preadv

        def preadv(descriptor, views, offset):
            if trouble == "unreadable":
                raise OSError(5, "the disk is broken")
            return 0 if offset else real(descriptor, views, offset)

        monkeypatch.setattr(os, "preadv", preadv)
    followed = Following(folder, ALGORITHM, 1)
    if trouble != "no folder":
        block_until(lambda: followed.done_bytes)
    followed.stop()
    assert known(followed, pages, 0) is None


def test_the_rest_is_read_when_all_is_written(tmp_path):
    """The ends of files are no whole pieces, and small files are all end; what is empty has nothing to read."""
    contents = {"pages-1.img": bytes(PIECE_BYTES) + b"end", "pages-2.img": b"small", "pages-3.img": b""}
    followed = Following(tmp_path, ALGORITHM, 1)
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    followed.written()
    block_until(lambda: followed.done_bytes == 3 * PIECE_BYTES)
    for name, data in contents.items():
        for at in range(0, len(data), PIECE_BYTES):
            expected = hashlib.sha256(data[at : at + PIECE_BYTES]).digest()
            assert known(followed, tmp_path / name, at) == expected
    assert known(followed, tmp_path / "pages-3.img", 0) is None


@pytest.mark.parametrize("ends", ["written", "stop"])
def test_whoever_seals_does_not_wait_for_what_nobody_reads(tmp_path, monkeypatch, ends):
    """It has threads of its own; what was to be read is not read twice."""
    pages = tmp_path / "pages-1.img"
    pages.write_bytes(bytes(2 * PIECE_BYTES) + b"end")
    begun, go_on, read = threading.Event(), threading.Event(), []
    real = following.digest_of_piece

    def slowly(made, descriptor, name, piece, report):
        begun.set()
        assert go_on.wait(PATIENCE_S)
        read.append(piece.start)
        return real(made, descriptor, name, piece, report)

    monkeypatch.setattr(following, "digest_of_piece", slowly)
    followed = Following(tmp_path, ALGORITHM, 1)
    assert begun.wait(PATIENCE_S)
    followed.written()
    if ends == "stop":  # it was given up afterwards
        followed.stop()
    assert known(followed, pages, PIECE_BYTES) is None
    expected = [0] if ends == "stop" else [0, 2 * PIECE_BYTES]
    go_on.set()
    block_until(lambda: followed.done_bytes == len(expected) * PIECE_BYTES)
    assert known(followed, pages, 0) == hashlib.sha256(bytes(PIECE_BYTES)).digest()
    assert (known(followed, pages, 2 * PIECE_BYTES) is None) == (ends == "stop")
    assert read == expected


def test_what_has_not_begun_when_it_stops_is_not_read(tmp_path, monkeypatch):
    """A piece that is being read comes to its end, those behind it do not begin."""
    pages = tmp_path / "pages-1.img"
    pages.write_bytes(bytes(3 * PIECE_BYTES))
    begun, go_on = threading.Event(), threading.Event()
    real = following.digest_of_piece

    def slowly(*words):
        begun.set()
        assert go_on.wait(PATIENCE_S)
        return real(*words)

    monkeypatch.setattr(following, "digest_of_piece", slowly)
    followed = Following(tmp_path, ALGORITHM, 1)
    assert begun.wait(PATIENCE_S)
    followed.stop()
    assert known(followed, pages, PIECE_BYTES) is None
    go_on.set()
    assert known(followed, pages, 0) == hashlib.sha256(bytes(PIECE_BYTES)).digest()


def test_looks_that_take_long_are_seldom(tmp_path, monkeypatch):
    """Pauses grow up to a bound, and are longer where a look takes long."""
    pauses, clock = [], iter(range(10_000))

    class Stop:
        """An event that is set after some waits, and says how long they were to last."""

        def wait(self, pause_s):
            pauses.append(pause_s)
            return len(pauses) > 60

        def set(self):
            pass

    monkeypatch.setattr(following, "threading", SimpleNamespace(Event=Stop, Thread=threading.Thread))
    with monkeypatch.context() as patch:
        patch.setattr(following, "time", SimpleNamespace(monotonic=lambda: 0.0))
        Following(tmp_path, ALGORITHM, 1)._watcher.join()
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (following.FIRST_LOOK_S, following.LAST_LOOK_S)
    pauses.clear()
    with monkeypatch.context() as patch:
        patch.setattr(following, "time", SimpleNamespace(monotonic=lambda: 3.0 * next(clock)))
        Following(tmp_path, ALGORITHM, 1)._watcher.join()
    assert set(pauses[1:]) == {3.0 * following.LOOK_COST}


def tiers_in(tmp_path):
    """One tier."""
    return Tiers({"disk": folders(tmp_path)})


@pytest.fixture
def made(monkeypatch):
    """All that follow for tiers."""
    found, real = [], tiers_module.Following
    monkeypatch.setattr(tiers_module, "Following", lambda *words: found.append(real(*words)) or found[-1])
    return found


@pytest.mark.anyio
async def test_what_was_followed_is_not_read_again(tmp_path, made):
    """The sealing takes the digests that are there, reads the rest, and counts all of it as done."""
    tiers = tiers_in(tmp_path)
    room = await tiers.reserve("op-1", "disk", 40 << 20)
    pages = Path(room.images) / "pages-1.img"
    with tiers.following("op-1", room.images):
        fill(room)
        block_until(lambda: made[0].done_bytes == 2 * PIECE_BYTES)
        data = pages.read_bytes()
        with pages.open("r+b") as file:  # not what CRIU does: it shows who was read when
            file.write(bytes([data[0] ^ 1]))
            file.seek(2 * PIECE_BYTES)
            file.write(b"read when all was written")
    seen = []
    sealed = await tiers.seal("op-1", FROZEN, (), seen.append)
    assert max(each.done_bytes for each in seen) == sealed.size_bytes
    await tiers.publish("op-1")
    tier = tiers.folders["disk"]
    with pytest.raises(ArtifactRefused, check=that(comes_from="images.compare", names="pages-1.img")):
        verify(tier, "op-1")
    with (tier.images("op-1") / "pages-1.img").open("r+b") as file:
        file.write(data[:1])
    verify(tier, "op-1")


@pytest.mark.sampled(3)
@pytest.mark.anyio
@pytest.mark.parametrize("another", ["operation", "algorithm", "nothing left"])
async def test_what_was_followed_is_of_one_operation_and_algorithm(tmp_path, monkeypatch, made, another):
    """Nobody else seals with it, not with another digest, and not a second time."""
    tiers = tiers_in(tmp_path)
    with monkeypatch.context() as patch:
        if another == "algorithm":
            patch.setattr(tiers_module, "best_algorithm", lambda: "another")
            patch.setattr(following, "digest_of", lambda algorithm: hashlib.sha3_256)
        room = await tiers.reserve("op-1", "disk", 40 << 20)
        with tiers.following("op-2" if another == "operation" else "op-1", room.images):
            fill(room)
            block_until(lambda: made[0].done_bytes == 2 * PIECE_BYTES)
    if another == "nothing left":
        await tiers.seal("op-1", FROZEN, (), lambda progress: None)
        (Path(room.images) / "pages-1.img").write_bytes(bytes(PIECE_BYTES))
    await tiers.seal("op-1", FROZEN, (), lambda progress: None)
    await tiers.publish("op-1")
    verify(tiers.folders["disk"], "op-1")


@pytest.mark.anyio
async def test_without_room_for_a_thread_it_is_read_when_it_is_sealed(tmp_path, monkeypatch):
    """That ends no freeze."""
    tiers = tiers_in(tmp_path)

    def start(*words):
        raise RuntimeError("can't start new thread")

    room = await tiers.reserve("op-1", "disk", 40 << 20)
    with monkeypatch.context() as patch:
        patch.setattr(tiers_module, "Following", start)
        with tiers.following("op-1", room.images):
            fill(room)
    await tiers.seal("op-1", FROZEN, (), lambda progress: None)
    await tiers.publish("op-1")
    verify(tiers.folders["disk"], "op-1")


@pytest.mark.anyio
async def test_a_dump_that_fails_leaves_nobody_who_follows(tmp_path):
    """The block ends it, however it ends; what is discarded is forgotten."""
    tiers = tiers_in(tmp_path)
    room = await tiers.reserve("op-1", "disk", 40 << 20)
    with pytest.raises(OSError, check=that(names="dump")), tiers.following("op-1", room.images):
        raise OSError("no dump")
    await tiers.discard("op-1")
    assert not tiers._followed
