"""Bytes of files by position: all or nothing, never through a link, and errors with the store's own name."""

import errno
import os
import stat
from pathlib import Path

import pytest

from iriscw._errors import OperationError
from iriscw.controller.stores.stored_files import append_whole, naming, read_at, write_all
from raised import that


class Broken(OperationError):
    """A store's own error."""


def test_an_error_gets_the_stores_name(tmp_path: Path) -> None:
    """What the file system says is told in the store's words, with its place; the cause stays."""
    with (
        pytest.raises(Broken, check=that(names=("shelf", os.strerror(errno.ENOSPC)))) as caught,
        naming(Broken, "the shelf", tmp_path),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert isinstance(caught.value.__cause__, OSError)


def test_other_errors_stay_what_they_are(tmp_path: Path) -> None:
    """A bug is not the disk's."""
    with pytest.raises(KeyError), naming(Broken, "the shelf", tmp_path):
        raise KeyError


def test_what_was_appended_is_read(tmp_path: Path) -> None:
    """By position and at most so much; beyond the end there is nothing."""
    path = tmp_path / "folder" / "file"
    append_whole(path, b"abc")
    append_whole(path, b"def")
    assert (read_at(path, 0, 10), read_at(path, 2, 2), read_at(path, 6, 5)) == (b"abcdef", b"cd", b"")
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)


def test_no_link_is_followed(tmp_path: Path) -> None:
    """Neither to read nor to write."""
    (tmp_path / "target").write_bytes(b"secret")
    (tmp_path / "link").symlink_to("target")
    for attempt in (lambda: read_at(tmp_path / "link", 0, 10), lambda: append_whole(tmp_path / "link", b"x")):
        with pytest.raises(OSError, check=that(errno=errno.ELOOP)):
            attempt()
    assert (tmp_path / "target").read_bytes() == b"secret"


def test_half_an_append_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full in the middle: the file is as long as it was."""
    path = tmp_path / "file"
    append_whole(path, b"whole\n")
    write, room = os.write, [2]

    def short(descriptor: int, data: bytes) -> int:
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data[: room.pop()])

    monkeypatch.setattr(os, "write", short)
    with pytest.raises(OSError, check=that(errno=errno.ENOSPC)):
        append_whole(path, b"half\n")
    assert path.read_bytes() == b"whole\n"


def test_all_is_written_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that takes three bytes at a time gets them all, in order."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    with (tmp_path / "file").open("wb", buffering=0) as file:
        write_all(file.fileno(), b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"0123456789"
