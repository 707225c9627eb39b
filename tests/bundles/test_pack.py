"""The same files give the same bundle, and only files of the folder get into it."""

import io
import os
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from iriscw.bundles.pack import BundleLimits, BundleTooLarge, InvalidBundleFolder, check_name, pack
from raised import that


def make(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def test_the_same_files_give_the_same_id(tmp_path: Path) -> None:
    """Whatever the order, the dates and the owner's umask; a changed byte or mode gives another one."""
    files = {"b/x.py": b"1", "a.txt": b"2" * 100_000, "b/a": b""}
    first = make(tmp_path / "1", files)
    second = make(tmp_path / "2", dict(reversed(files.items())))
    os.utime(second / "a.txt", (1, 1))
    (second / "b" / "a").chmod(0o600)
    one, two = io.BytesIO(), io.BytesIO()
    packed = pack(first, one)
    assert packed == pack(second, two)
    assert one.getvalue() == two.getvalue()
    assert (packed.files, packed.size_bytes) == (3, len(one.getvalue()))
    (second / "b" / "a").chmod(0o700)
    assert pack(second, io.BytesIO()).bundle_id != packed.bundle_id
    assert zipfile.ZipFile(one).namelist() == ["a.txt", "b/a", "b/x.py"]


def test_what_is_excluded_stays_out(tmp_path: Path) -> None:
    """By name anywhere, or by path; folders with all below them."""
    folder = make(
        tmp_path, {"keep": b"", ".git/config": b"", "a/__pycache__/x.pyc": b"", "a/b.pyc": b"", "data/big": b""}
    )
    target = io.BytesIO()
    assert pack(folder, target, excludes=(".git", "__pycache__", "*.pyc", "data/b*")).files == 1
    assert zipfile.ZipFile(target).namelist() == ["keep"]


def test_virtual_environments_stay_out(tmp_path: Path) -> None:
    """Whatever they are called and wherever they are: they have links, and do not work elsewhere."""
    environments = ("env", "a/venv-3.12")
    files = ["keep", "a/x", "b/lib", *(f"{each}/pyvenv.cfg" for each in environments)]
    folder = make(tmp_path, dict.fromkeys(files, b""))
    for each in environments:
        (folder / each / "lib64").symlink_to("lib")
    target = io.BytesIO()
    assert pack(folder, target).files == 3
    assert zipfile.ZipFile(target).namelist() == ["a/x", "b/lib", "keep"]


def test_who_has_a_link_is_told_what_to_do(tmp_path: Path) -> None:
    """Also where it is in an environment that is the folder itself: packing that is asked for, and cannot be done."""
    folder = make(tmp_path, {"pyvenv.cfg": b""})
    (folder / "lib64").symlink_to("lib")
    with pytest.raises(InvalidBundleFolder, check=that(comes_from="pack._files", names=("lib64", ".git"))):
        pack(folder, io.BytesIO())


def test_links_and_devices_are_refused(tmp_path: Path) -> None:
    """To files, to folders, and the folder itself."""
    folder = make(tmp_path / "f", {"x": b""})
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(InvalidBundleFolder):
        pack(tmp_path / "link", io.BytesIO())
    (folder / "y").symlink_to("/etc/passwd")
    with pytest.raises(InvalidBundleFolder, check=that(names="link")):
        pack(folder, io.BytesIO())
    (folder / "y").unlink()
    os.mkfifo(folder / "y")
    with pytest.raises(InvalidBundleFolder):
        pack(folder, io.BytesIO())


@pytest.mark.parametrize(
    "limits", [BundleLimits(files=1), BundleLimits(unpacked_bytes=9), BundleLimits(packed_bytes=9)]
)
def test_limits(tmp_path: Path, limits: BundleLimits) -> None:
    """Files, bytes before and bytes after packing."""
    with pytest.raises(BundleTooLarge):
        pack(make(tmp_path, {"a": b"12345", "b": b"67890"}), io.BytesIO(), limits=limits)


@given(st.text(max_size=30))
def test_an_accepted_name_stays_inside(name: str) -> None:
    """However strange it is."""
    try:
        check_name(name)
    except InvalidBundleFolder:
        return
    assert Path("/t", name).resolve().is_relative_to("/t")
    assert os.path.normpath(name) == name
