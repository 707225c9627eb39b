"""A bundle is unpacked as it was packed, and a harmful one is not."""

import io
import stat
import zipfile
from pathlib import Path

import pytest

from iriscw.bundles.pack import BundleLimits, pack
from iriscw.bundles.unpack import BundleCorrupt, BundleHarmful, unpack, verify
from raised import that


def write(path: Path, *entries: tuple[str, bytes], mode: int = stat.S_IFREG | 0o644) -> Path:
    """Write a zip by hand."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries:
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = mode << 16
            archive.writestr(info, data)
    return path


def test_what_was_packed_is_unpacked(tmp_path: Path) -> None:
    """Content, folders, and who may be executed; private to this user."""
    folder = tmp_path / "f"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "data").write_bytes(b"data" * 1000)
    (folder / "run").write_text("#!/bin/sh")
    (folder / "run").chmod(0o755)
    target = io.BytesIO()
    packed = pack(folder, target)
    path = tmp_path / "zip"
    path.write_bytes(target.getvalue())
    verify(path, packed.bundle_id)
    unpack(path, tmp_path / "out")
    assert (tmp_path / "out" / "inner" / "data").read_bytes() == b"data" * 1000
    assert stat.S_IMODE((tmp_path / "out" / "run").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "out" / "inner" / "data").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a/./x", ".iris/token", "a\\b", "a//b", "..", "a/"])
def test_names_that_lead_elsewhere(tmp_path: Path, name: str) -> None:
    """Nothing is written, inside or outside."""
    path = write(tmp_path / "zip", (name, b"x"))
    with pytest.raises(BundleHarmful):
        unpack(path, tmp_path / "out")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out", "zip"]
    assert list((tmp_path / "out").iterdir()) == []


def test_links_are_refused(tmp_path: Path) -> None:
    """A link that points outside, and then a file through it, is the oldest trick."""
    path = write(tmp_path / "zip", ("link", b"/etc"), mode=stat.S_IFLNK | 0o777)
    with pytest.raises(BundleHarmful, check=that(comes_from="unpack._check")):
        unpack(path, tmp_path / "out")


def test_bombs_are_refused(tmp_path: Path) -> None:
    """By what the header says, and by what comes out when the header lies."""
    path = write(tmp_path / "zip", ("big", b"\0" * (1 << 20)))
    with pytest.raises(BundleHarmful, check=that(comes_from="unpack._check")):
        unpack(path, tmp_path / "1", BundleLimits(unpacked_bytes=1000))
    lying = bytearray(path.read_bytes())
    size = (1 << 20).to_bytes(4, "little")
    while size in lying:
        position = lying.index(size)
        lying[position : position + 4] = (10).to_bytes(4, "little")
    path.write_bytes(lying)
    with pytest.raises((BundleHarmful, BundleCorrupt)):
        unpack(path, tmp_path / "2", BundleLimits(unpacked_bytes=1000))
    assert sum(each.stat().st_size for each in (tmp_path / "2").iterdir()) <= 1000
    many = write(tmp_path / "many", *((str(number), b"") for number in range(11)))
    with pytest.raises(BundleHarmful, check=that(comes_from="unpack._check", names="11")):
        unpack(many, tmp_path / "3", BundleLimits(files=10))


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("names", [("a", "a"), ("a", "a/b"), ("a/b", "a")])
def test_names_that_collide(tmp_path: Path, names: tuple[str, str]) -> None:
    """Twice the same, or a file where a folder must be."""
    with pytest.raises(BundleHarmful):
        unpack(write(tmp_path / "zip", *((name, b"") for name in names)), tmp_path / "out")


def test_damage_is_found(tmp_path: Path) -> None:
    """By the hash first; and what is not a zip is said to be none."""
    path = write(tmp_path / "zip", ("a", b"x" * 100))
    with pytest.raises(BundleCorrupt, check=that(comes_from="unpack.verify")):
        verify(path, "0" * 64)
    for data in (b"", b"no zip", path.read_bytes()[:40]):
        path.write_bytes(data)
        with pytest.raises(BundleCorrupt):
            unpack(path, tmp_path / f"out{len(data)}")
