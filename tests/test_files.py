"""A file is whole or absent, and nobody else's."""

import errno
import os
import stat
from pathlib import Path

import pytest

from iriscw.files import make_private_folder, read_bounded, temporary_name, write_atomic


def test_a_write_replaces_as_a_whole(tmp_path: Path) -> None:
    """With mode 0600, and nothing beside it."""
    path = tmp_path / "f"
    for data in (b"one", b"two" * 100_000, b""):
        write_atomic(path, data)
        assert path.read_bytes() == data
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["f"]


@pytest.mark.parametrize("call", ["fsync", "open"])
def test_a_failed_write_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """The old content stays, and no part of the new one."""
    path = tmp_path / "f"
    write_atomic(path, b"old")

    def fail(*args):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="full"):
        write_atomic(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["f"]


def test_folders_are_private_all_the_way(tmp_path: Path) -> None:
    """Each one that was made; one that was there keeps its mode."""
    tmp_path.chmod(0o755)
    make_private_folder(tmp_path / "a" / "b")
    make_private_folder(tmp_path / "a" / "b")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path, tmp_path / "a", tmp_path / "a" / "b")]
    assert modes == [0o755, 0o700, 0o700]
    write_atomic(tmp_path / "file", b"")
    with pytest.raises(OSError, match="file"):
        make_private_folder(tmp_path / "file")


def test_reading_has_a_bound_and_follows_no_link(tmp_path: Path) -> None:
    """What is longer, or lies elsewhere, is refused."""
    write_atomic(tmp_path / "f", b"12345")
    assert read_bounded(tmp_path / "f", 5) == b"12345"
    with pytest.raises(ValueError, match="longer than 4"):
        read_bounded(tmp_path / "f", 4)
    (tmp_path / "link").symlink_to(tmp_path / "f")
    with pytest.raises(OSError, match="symbolic"):
        read_bounded(tmp_path / "link", 5)


def test_temporary_names_differ_and_fit() -> None:
    """However long the name is that they stand for."""
    names = [temporary_name("x" * 255) for _ in range(3)]
    assert len(set(names)) == 3
    assert all(len(name) <= 255 for name in names)
