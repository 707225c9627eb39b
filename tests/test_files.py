"""A file is whole or absent, and nobody else's."""

import errno
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from iriscw.files import decode_json, make_private_folder, read_bounded, remove_tree, temporary_name, write_atomic
from raised import that


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
    with pytest.raises(OSError, check=that(errno=errno.ENOSPC)):
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
    with pytest.raises(OSError, check=that(comes_from="files.make_private_folder", names="file")):
        make_private_folder(tmp_path / "file")


def test_reading_has_a_bound_and_follows_no_link(tmp_path: Path) -> None:
    """What is longer, or lies elsewhere, is refused."""
    write_atomic(tmp_path / "f", b"12345")
    assert read_bounded(tmp_path / "f", 5) == b"12345"
    with pytest.raises(ValueError, check=that(comes_from="files.read_bounded", names="4")):
        read_bounded(tmp_path / "f", 4)
    (tmp_path / "link").symlink_to(tmp_path / "f")
    with pytest.raises(OSError, check=that(errno=errno.ELOOP)):
        read_bounded(tmp_path / "link", 5)


def test_temporary_names_differ_and_fit() -> None:
    """However long the name is that they stand for."""
    names = [temporary_name("x" * 255) for _ in range(3)]
    assert len(set(names)) == 3
    assert all(len(name) <= 255 for name in names)


def _folder(path: Path) -> None:
    path.mkdir()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))  # its name may not be long


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("make", [_folder, _pipe, _link, _socket, _huge])
def test_reading_what_is_no_file_is_an_error(tmp_path: Path, make) -> None:
    """Whatever stands there, nobody waits for it, and no descriptor is left."""
    path = tmp_path / "f"
    make(path)
    before = open_files()
    for _ in range(3):
        with pytest.raises((OSError, ValueError)):
            read_bounded(path, 100)
    assert open_files() == before


def test_a_pipe_that_somebody_holds_open_is_no_file(tmp_path: Path) -> None:
    """It is not waited for until something comes."""
    _pipe(tmp_path / "f")
    writer = os.open(tmp_path / "f", os.O_RDWR)
    with pytest.raises(ValueError, check=that(comes_from="files.read_bounded")):
        read_bounded(tmp_path / "f", 100)
    os.close(writer)


@pytest.mark.parametrize("data", [b"[" * 100_000, b"", b"\xff", b"9" * 100_000])
def test_json_of_strangers_is_read_or_refused(data: bytes) -> None:
    """One error for all that it can be, however deep."""
    with pytest.raises(ValueError):
        decode_json(data)
    assert decode_json(b'{"a": [1]}') == {"a": [1]}


def test_a_tree_goes_whatever_was_done_to_it(tmp_path: Path) -> None:
    """Closed folders, links to what is not ours to remove, pipes, odd names: nothing is left, and the target is."""
    kept = tmp_path / "kept"
    (kept / "inner").mkdir(parents=True)
    (kept / "inner" / "file").write_text("x")
    tree = tmp_path / "tree"
    for name in ("closed/a/b", "read-only", "odd\udcff\n"):
        (tree / name).mkdir(parents=True)
        (tree / name / "file").write_text("x")
    (tree / "link").symlink_to(kept)
    (tree / "read-only" / "link").symlink_to(kept / "inner")
    os.mkfifo(tree / "pipe")
    (tree / "closed" / "a").chmod(0)
    (tree / "closed").chmod(0)
    (tree / "read-only").chmod(0o500)
    tree.chmod(0o500)
    before = open_files()
    remove_tree(tree)
    assert not tree.exists()
    assert (kept / "inner" / "file").read_text() == "x"
    assert open_files() == before
    remove_tree(tree)  # it is gone: nothing happens


AS_NOBODY = """
import os, sys
from pathlib import Path
from iriscw.files import remove_tree
os.setgroups([]); os.setgid(65534); os.setuid(65534)
tree = Path(sys.argv[1], "tree")
(tree / "closed" / "a").mkdir(parents=True); (tree / "closed" / "a" / "file").write_text("x")
(tree / "read-only").mkdir(); (tree / "read-only" / "file").write_text("x")
(tree / "closed" / "a").chmod(0); (tree / "closed").chmod(0); (tree / "read-only").chmod(0o555); tree.chmod(0)
remove_tree(tree)
print(tree.exists())
"""


def test_an_ordinary_user_removes_what_it_closed() -> None:
    """Root may do all anyway, so another user shows it: tools make such folders, to protect what is in them."""
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    with tempfile.TemporaryDirectory() as folder:  # pytest's own is closed to others
        Path(folder).chmod(0o777)
        command = [sys.executable, "-c", AS_NOBODY, folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_a_tree_deeper_than_any_stack_goes(tmp_path: Path) -> None:
    """A program may make one: neither a stack nor a table of descriptors is deep enough for it."""
    tree = tmp_path / "tree"
    tree.mkdir()
    descriptor = os.open(tree, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    before = open_files()
    remove_tree(tree)
    assert not tree.exists()
    assert open_files() == before


def test_what_stays_keeps_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first failure is raised when all else is gone but what says what this is; secrets went first."""
    tree = tmp_path / "tree"
    for name in ("a", "secrets", "z"):
        (tree / name / "inner").mkdir(parents=True)
        (tree / name / "inner" / "file").write_text("x")
    (tree / "owner").write_text("x")
    unlink = os.unlink

    def stuck(name, *, dir_fd):
        if Path(f"/proc/self/fd/{dir_fd}").readlink() == tree / "a" / "inner":
            raise OSError(errno.EPERM, "immutable", name)
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", stuck)
    places = []
    monkeypatch.setattr(os, "rmdir", lambda name, rmdir=os.rmdir, **where: (places.append(name), rmdir(name, **where)))
    with pytest.raises(OSError, check=that(errno=errno.EPERM)):
        remove_tree(tree, first=("secrets",), last="owner")
    assert sorted(str(path.relative_to(tree)) for path in tree.rglob("*")) == ["a", "a/inner", "a/inner/file", "owner"]
    assert [name for name in places if name != "inner"][:2] == ["secrets", "a"]
    monkeypatch.undo()
    remove_tree(tree, first=("secrets",), last="owner")
    assert not tree.exists()


def test_what_is_written_meanwhile_goes_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that still runs makes a folder again while it is removed."""
    tree = tmp_path / "tree"
    for name in ("a", "b"):
        (tree / name).mkdir(parents=True)
    (tree / "owner").write_text("x")
    rmdir = os.rmdir

    def written_to(name, **where):
        rmdir(name, **where)
        if name == "b":
            monkeypatch.undo()
            (tree / "a").mkdir()

    monkeypatch.setattr(os, "rmdir", written_to)
    remove_tree(tree, last="owner")
    assert not tree.exists()


def test_a_folder_that_stays_says_still_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something is written into it in the last moment: whoever removes what was abandoned finds it again."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "owner").write_text("x")
    unlink = os.unlink

    def written_to(name, **where):
        unlink(name, **where)
        (tree / "late").write_text("x")

    monkeypatch.setattr(os, "unlink", written_to)
    with pytest.raises(OSError, check=that(errno=errno.ENOTEMPTY)):
        remove_tree(tree, last="owner")
    assert sorted(path.name for path in tree.iterdir()) == ["late", "owner"]
    assert (tree / "owner").read_text() == "x"
    monkeypatch.undo()
    remove_tree(tree, last="owner")
    assert not tree.exists()


def test_another_file_system_below_is_left_alone(tmp_path: Path) -> None:
    """A program mounted it: what is on it belongs to somebody else."""
    tree = tmp_path / "tree"
    (tree / "disk").mkdir(parents=True)
    (tree / "file").write_text("x")
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tree / "disk")]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a disk of its own")
    try:
        (tree / "disk" / "file").write_text("x")
        with pytest.raises(OSError, check=that(comes_from="files._Removal._remove_files")):
            remove_tree(tree)
        assert (tree / "disk" / "file").read_text() == "x"
        assert not (tree / "file").exists()
    finally:
        subprocess.run(["umount", "-l", str(tree / "disk")], check=True)
    remove_tree(tree)
    assert not tree.exists()
