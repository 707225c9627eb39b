"""Folders that callers name: below a root, without a link, and nobody else's."""

import os

import pytest
from hypothesis import given, strategies as st

from iriscw.agent.errors import PathNotAllowed
from iriscw.agent.paths import Root, folder_below, parts_below
from iriscw.files import make_private_folder
from raised import that

ROOTS = (Root("/dev/shm/kybernate", "/dev/shm/kybernate"), Root("/var/lib/chk", "/mnt/disk/chk"))

NAMES = st.sampled_from(
    ["", ".", "..", "a", "chk-123", "kybernate", "dev", "shm", "var", "lib", "chk", "x" * 300, "\0", "\n", "é"]
)


@given(st.lists(NAMES, max_size=20), st.booleans())
def test_no_path_leaves_its_root(names, absolute):
    """Whatever is allowed is a root and plain names below it."""
    path = ("/" if absolute else "") + "/".join(names)
    try:
        root, below = parts_below(path, ROOTS)
    except PathNotAllowed:
        return
    assert root in ROOTS
    assert below
    assert path == "/".join([root.given, *below])
    assert not {"", ".", ".."} & {*below}


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", that(comes_from="paths.parts_below")),
        ("dev/shm/kybernate/a", that(comes_from="paths.parts_below")),
        ("/dev/shm/kybernate", that(comes_from="paths.parts_below")),
        ("/dev/shm/kybernate/", that(comes_from="paths.parts_below")),
        ("/dev/shm/kybernate/../other", that(comes_from="paths.parts_below")),
        ("/dev/shm/kybernate//a", that(comes_from="paths.parts_below")),
        ("/dev/shm/kybernate-2/a", that(comes_from="paths.parts_below")),
        ("/dev/shm/kybernate/a\0b", that(comes_from="paths.parts_below")),
        ("/dev/shm/kybernate/" + "a/" * 16 + "a", that(comes_from="paths.parts_below", names="16")),
        ("/dev/shm/kybernate/" + "a" * 256, that(comes_from="paths.parts_below")),
        ("/dev/shm/kybernate/a\nb", that(comes_from="paths.parts_below")),
        ("/dev/shm/kybernate/" + "a" * 5000, that(comes_from="paths.parts_below")),
    ],
)
def test_what_is_wrong_with_a_path_is_said(path, why):
    """By name, and in words."""
    with pytest.raises(PathNotAllowed, check=why):
        parts_below(path, ROOTS)


def test_no_root(tmp_path):
    """Where none is configured nothing is allowed, and a root has to be a folder."""
    with pytest.raises(PathNotAllowed, check=that(comes_from="paths.parts_below")):
        parts_below("/a/b", ())
    (tmp_path / "file").touch()
    for wrong in ("none", "file"):
        with pytest.raises(PathNotAllowed, check=that(comes_from="paths.Root.of")):
            Root.of(tmp_path / wrong)


@pytest.fixture
def root(tmp_path):
    """A root that is written as a link, as ``/var/run`` often is."""
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    return Root.of(tmp_path / "link")


def test_a_folder_is_made(root, tmp_path):
    """With mode 0700, and named without the link in its root; a second time it is found."""
    made = folder_below(f"{root.given}/chk-1", [root], create=True)
    assert made == tmp_path / "real" / "chk-1"
    assert made.stat().st_mode & 0o777 == 0o700
    assert folder_below(f"{root.given}/chk-1", [root], create=True) == made
    assert folder_below(f"{root.given}/chk-1", [root]) == made


def test_folders_above_are_not_made(root):
    """Only the last one is."""
    with pytest.raises(PathNotAllowed, check=that(comes_from="paths._opened")):
        folder_below(f"{root.given}/a/b", [root], create=True)
    with pytest.raises(PathNotAllowed, check=that(comes_from="paths._opened")):
        folder_below(f"{root.given}/a", [root])


@pytest.mark.parametrize("create", [True, False])
def test_links_and_files(root, tmp_path, create):
    """Below the root none is followed, neither on the way nor at the end, wherever it leads."""
    real = tmp_path / "real"
    make_private_folder(tmp_path / "outside" / "chk")
    (real / "way").symlink_to(tmp_path / "outside")
    (real / "end").symlink_to(tmp_path / "outside" / "chk")
    (real / "nowhere").symlink_to(tmp_path / "new")
    (real / "file").touch()
    os.mkfifo(real / "pipe")
    for below in ("way/chk", "end", "nowhere", "file", "file/chk", "pipe"):
        with pytest.raises(PathNotAllowed, check=that(comes_from="paths._opened")):
            folder_below(f"{root.given}/{below}", [root], create=create)
    assert not (tmp_path / "new").exists()


def test_folders_that_others_may_change(root, tmp_path):
    """Who may write to one could put another one in its place; where each may change only what is his, he could not."""
    shared = tmp_path / "real" / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(PathNotAllowed, check=that(comes_from="paths._check")):
        folder_below(f"{root.given}/shared/chk", [root], create=True)
    shared.chmod(0o1777)
    made = folder_below(f"{root.given}/shared/chk", [root], create=True)
    made.chmod(0o750)
    with pytest.raises(PathNotAllowed, check=that(comes_from="paths._check_own")):
        folder_below(f"{root.given}/shared/chk", [root], create=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_folders_of_others(root, tmp_path):
    """A stranger's folder is refused on the way and at the end."""
    theirs = tmp_path / "real" / "theirs"
    make_private_folder(theirs / "chk")
    os.chown(theirs, 12345, 12345)
    for below, check in (("theirs", "paths._check_own"), ("theirs/chk", "paths._check")):
        with pytest.raises(PathNotAllowed, check=that(comes_from=check)):
            folder_below(f"{root.given}/{below}", [root])
