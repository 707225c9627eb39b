"""The files of an attempt: a result that can never be read is its own failure, one that cannot be read now is not."""

# ruff: noqa: ASYNC240 - tests may block on a small file

import errno
import os
from pathlib import Path

import pytest

from iriscw.task.environment import PRIVATE_FOLDER, RESULT_FILE
from iriscw.testing.conformance.task_runtime import facts
from iriscw.worker.ports import AttemptExists, AttemptSpec, ResultUnreadable, WorkerTrouble
from iriscw.worker.runtimes import workdir
from iriscw.worker.runtimes.attempt import FolderAttempt, prepare
from iriscw.worker.runtimes.workdir import AttemptFolder


@pytest.fixture
async def attempt(tmp_path: Path) -> FolderAttempt:
    """An attempt with a folder, and nothing in it that was left."""
    folder = AttemptFolder(tmp_path / "attempts", "attempt-1")
    await prepare(folder, AttemptSpec(facts()))
    return FolderAttempt(folder)


@pytest.fixture
def left(attempt: FolderAttempt) -> Path:
    """Where the attempt leaves its result."""
    return attempt.folder.work / PRIVATE_FOLDER / RESULT_FILE


async def test_a_result(attempt: FolderAttempt, left: Path) -> None:
    """None before there is one, then its bytes."""
    assert await attempt.result() is None
    left.write_bytes(b"42")
    assert await attempt.result() == b"42"


async def test_a_result_that_is_too_big(attempt: FolderAttempt, left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays too big: trying again is no use."""
    monkeypatch.setattr(workdir, "MAX_RESULT_BYTES", 4)
    left.write_bytes(b"12345")
    with pytest.raises(ResultUnreadable, match="attempt-1"):
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


@pytest.mark.parametrize(("code", "kind"), [(errno.EIO, ResultUnreadable), (errno.EMFILE, WorkerTrouble)])
async def test_a_disk_that_fails(
    attempt: FolderAttempt, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[Exception]
) -> None:
    """What the disk has lost stays lost; that this process has too many files open passes."""

    def broken(path: Path, limit_bytes: int) -> bytes:
        raise OSError(code, os.strerror(code), str(path))

    monkeypatch.setattr(workdir, "read_bounded", broken)
    with pytest.raises(kind, match=os.strerror(code)):
        await attempt.result()


async def test_a_folder_is_made_once(attempt: FolderAttempt) -> None:
    """The second attempt of a name is refused, and the first keeps its files."""
    with pytest.raises(AttemptExists):
        await prepare(attempt.folder, AttemptSpec(facts()))
    assert attempt.folder.began()


async def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """The worker's trouble, and nothing is left of it."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(WorkerTrouble, match="attempt-1"):
        await prepare(AttemptFolder(tmp_path / "file" / "attempts", "attempt-1"), AttemptSpec(facts()))


async def test_files_that_stay(attempt: FolderAttempt, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that does not let go of them has a name."""

    def stuck(path: Path) -> None:
        raise OSError(errno.EBUSY, "busy", str(path))

    monkeypatch.setattr(workdir.shutil, "rmtree", stuck)
    with pytest.raises(WorkerTrouble, match="cannot be removed"):
        await attempt.remove()
