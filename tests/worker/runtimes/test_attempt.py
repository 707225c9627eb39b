"""The files of an attempt: a result that can never be read is its own failure, one that cannot be read now is not."""

# ruff: noqa: ASYNC240 - tests may block on a small file

import errno
import os
from pathlib import Path

import pytest

from iriscw.task.environment import PAYLOAD_FILE, PRIVATE_FOLDER, RESULT_FILE, encode_facts
from iriscw.testing.conformance.task_runtime import facts
from iriscw.worker.ports import AttemptExists, AttemptSpec, ResultMissing, ResultUnreadable, WorkerTrouble
from iriscw.worker.runtimes import workdir
from iriscw.worker.runtimes.attempt import FolderAttempt, prepare
from iriscw.worker.runtimes.workdir import AttemptFolder
from raised import that


@pytest.fixture
async def attempt(tmp_path: Path) -> FolderAttempt:
    """An attempt with a folder, and nothing in it that was left."""
    folder = AttemptFolder(tmp_path / "attempts", "attempt-1")
    await prepare(folder, AttemptSpec(facts(), payload=b"a callable"))
    return FolderAttempt(folder)


@pytest.fixture
def left(attempt: FolderAttempt) -> Path:
    """Where the attempt leaves its result."""
    return attempt.folder.work / PRIVATE_FOLDER / RESULT_FILE


async def test_a_result(attempt: FolderAttempt, left: Path) -> None:
    """Missing before there is one, then its bytes."""
    with pytest.raises(ResultMissing, check=that(names="attempt-1")):
        await attempt.result()
    left.write_bytes(b"42")
    assert await attempt.result() == b"42"


@pytest.mark.parametrize("record", [encode_facts(facts()), b"garbage", b"[]"], ids=["earlier", "garbage", "list"])
async def test_a_record_that_does_not_say_what_ran(attempt: FolderAttempt, left: Path, record: bytes) -> None:
    """An earlier version wrote it, or the program wrote over it: what has a payload is a callable."""
    (attempt.folder.path / "attempt.json").write_bytes(record)
    with pytest.raises(ResultMissing):
        await attempt.result()
    (left.parent / PAYLOAD_FILE).unlink()
    assert await attempt.result() is None


async def test_a_result_that_is_too_big(attempt: FolderAttempt, left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays too big: trying again is no use."""
    monkeypatch.setattr(workdir, "MAX_RESULT_BYTES", 4)
    left.write_bytes(b"12345")
    with pytest.raises(ResultUnreadable, check=that(names="attempt-1")):
        await attempt.result()


@pytest.mark.parametrize("thing", ["link", "folder"])
async def test_a_result_that_is_no_file(attempt: FolderAttempt, left: Path, thing: str) -> None:
    """Whatever the program put there will never be one."""
    if thing == "link":
        left.symlink_to("/etc/passwd")
    else:
        left.mkdir()
    with pytest.raises(ResultUnreadable):
        await attempt.result()


@pytest.mark.parametrize("linked", ["work", "work/.iris"])
async def test_a_result_below_a_folder_that_is_a_link(
    attempt: FolderAttempt, left: Path, tmp_path: Path, linked: str
) -> None:
    """A program in a container cannot have the result of another attempt read for it by making its folder a link."""
    others = AttemptFolder(tmp_path / "attempts", "attempt-2")
    await prepare(others, AttemptSpec(facts(), payload=b"a callable"))
    (others.work / PRIVATE_FOLDER / RESULT_FILE).write_bytes(b"another's")
    mine = attempt.folder.path / linked
    mine.rename(tmp_path / "aside")
    mine.symlink_to(others.path / linked)
    assert left.read_bytes() == b"another's"
    with pytest.raises(ResultUnreadable, check=that(names="attempt-1")):
        await attempt.result()


@pytest.mark.parametrize(("code", "kind"), [(errno.EIO, ResultUnreadable), (errno.EMFILE, WorkerTrouble)])
async def test_a_disk_that_fails(
    attempt: FolderAttempt, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[Exception]
) -> None:
    """What the disk has lost stays lost; that this process has too many files open passes."""

    def broken(path: Path, limit_bytes: int, *, below: Path | None = None) -> bytes:
        raise OSError(code, os.strerror(code), str(path))

    monkeypatch.setattr(workdir, "read_bounded", broken)
    with pytest.raises(kind, check=that(names=os.strerror(code))):
        await attempt.result()


async def test_a_folder_is_made_once(attempt: FolderAttempt) -> None:
    """The second attempt of a name is refused, and the first keeps its files."""
    with pytest.raises(AttemptExists):
        await prepare(attempt.folder, AttemptSpec(facts()))
    assert attempt.folder.began()


async def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """The worker's trouble, and nothing is left of it."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(WorkerTrouble, check=that(names="attempt-1")):
        await prepare(AttemptFolder(tmp_path / "file" / "attempts", "attempt-1"), AttemptSpec(facts()))


async def test_files_that_stay(attempt: FolderAttempt, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that does not let go of them has a name."""

    def stuck(path: Path, **_: object) -> None:
        raise OSError(errno.EBUSY, "busy", str(path))

    monkeypatch.setattr(workdir, "remove_tree", stuck)
    with pytest.raises(WorkerTrouble, check=that(comes_from="attempt.FolderAttempt.remove")):
        await attempt.remove()


async def test_what_an_attempt_closed_is_removed(attempt: FolderAttempt) -> None:
    """Tools make folders read-only, to protect what is in them."""
    closed = attempt.folder.work / "cache" / "module"
    closed.mkdir(parents=True)
    (closed / "file").write_text("x")
    closed.chmod(0)
    closed.parent.chmod(0o500)
    await attempt.remove()
    assert not attempt.folder.path.exists()


async def test_an_attempt_began_whatever_became_of_its_record(attempt: FolderAttempt) -> None:
    """Its program may have put anything there; what was never there is another matter."""
    record = attempt.folder.path / "attempt.json"
    record.write_bytes(b"[")
    assert attempt.folder.began()
    record.unlink()
    record.symlink_to("nowhere")
    assert attempt.folder.began()
    record.unlink()
    assert not attempt.folder.began()
