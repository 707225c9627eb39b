"""The same files give the same bundle, and only files of the folder get into it."""

import io
import os
import random
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from iriscw._errors import InvalidArgument
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


ALWAYS_OUT = (".git/config", "a/__pycache__/x.pyc", "a/b.pyc", "a/node_modules/m.js", ".iriscw/secrets/token")


@pytest.mark.parametrize(
    ("exclude", "left_out"),
    [
        ((), ""),
        (("data/b*",), "data/big"),
        (("big",), "data/big x/data/big"),
        (("data/",), "data/big data/x x/data/big"),
        (("./data", "**/x"), "data/big data/x x/data/big"),
        (("/data",), "data/big data/x"),
        (("*.ckpt", "x/*"), "a/m.ckpt x/data/big"),
        (("[jk]*",), "keep"),
    ],
)
def test_what_is_excluded_stays_out(tmp_path: Path, exclude: tuple[str, ...], left_out: str) -> None:
    """By name anywhere, or by path; folders with all below them; and what nobody wants, in any case."""
    files = ["a/m.ckpt", "a/x.py", "data/big", "data/x", "keep", "x/data/big"]
    folder, target = make(tmp_path, dict.fromkeys([*files, *ALWAYS_OUT], b"")), io.BytesIO()
    wanted = [each for each in files if each not in left_out.split()]
    assert pack(folder, target, exclude=exclude).files == len(wanted)
    assert zipfile.ZipFile(target).namelist() == wanted


@pytest.mark.parametrize(
    "exclude", ["", "/", ".", "./", "**/", "*", "..", "../x", "a/../b", "!keep", "data", ["x"] * 1001, [5]]
)
def test_patterns_that_cannot_be(tmp_path: Path, exclude: str | list[str]) -> None:
    """One that would leave out all or nothing, or is meant to bring something back; and a text for a list."""
    given = exclude if isinstance(exclude, list) or exclude == "data" else [exclude]
    with pytest.raises(InvalidArgument, check=that(names="bundle_exclude")):
        pack(make(tmp_path, {"keep": b""}), io.BytesIO(), exclude=given)


@pytest.mark.parametrize(
    ("limits", "names"),
    [
        (BundleLimits(files=5), ("7", "5", "data 3", "a 2", "b 1")),
        (BundleLimits(unpacked_bytes=10**6), ("7.5", "1", "a 6", "data 1.2", "b 0.3")),
        (BundleLimits(packed_bytes=10**6), ("a 6", "data 1.2", "b 0.3")),
    ],
)
def test_who_has_too_much_is_told_where(tmp_path: Path, limits: BundleLimits, names: tuple[str, ...]) -> None:
    """The entries of the folder that hold most, by files or bytes, and the option that leaves them out."""
    sizes = {"data/x/1": 400, "data/x/2": 400, "data/3": 400, "a/1": 3000, "a/2": 3000, "b": 300, "c": 1}
    rng = random.Random(0)
    folder = make(tmp_path, {name: rng.randbytes(size * 1000) for name, size in sizes.items()})
    with pytest.raises(BundleTooLarge, check=that(names=("--bundle-exclude",))) as told:
        pack(folder, io.BytesIO(), limits=limits)
    assert [each for each in names if each not in str(told.value)] == [], told.value
    assert "c 0.001" not in str(told.value)
    assert pack(folder, io.BytesIO(), exclude=("data", "a"), limits=BundleLimits(2, 10**6, 10**6)).files == 2
    light = make(tmp_path / "light", {"x": b"1" * 1000, "y": b"1"})
    with pytest.raises(BundleTooLarge) as told:
        pack(light, io.BytesIO(), limits=BundleLimits(unpacked_bytes=999))
    assert "y 1e-06" not in str(told.value)


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
