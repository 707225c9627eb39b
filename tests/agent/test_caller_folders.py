"""Folders of callers: which of them are known, and for how long."""

import errno
import json
import os

import pytest

from iriscw.agent import caller_folders as module
from iriscw.agent.caller_folders import Places, tier_of
from iriscw.agent.errors import TooManyPlaces
from iriscw.files import make_private_folder
from iriscw.freeze.model import NoRoom


@pytest.fixture
def file(tmp_path):
    """Where they are written down."""
    return tmp_path / "places.json"


def holding(folder, kind="artifacts"):
    """Make a folder with something in it."""
    make_private_folder(folder / kind / "ck-1")
    return folder


def known(file):
    """Return what is written down."""
    return json.loads(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", ["artifacts", "staging", "reserved"])
def test_what_is_empty_is_forgotten(tmp_path, file, kind):
    """When the next one is added; not while it holds something, and not while an operation works on it."""
    full, used, empty, gone, new = (tmp_path / name for name in ("full", "used", "empty", "gone", "new"))
    places = Places(file)
    places.add(holding(full, kind))
    for each in (used, empty, gone):
        make_private_folder(each)
        places.add(each, {tier_of(used), tier_of(empty), tier_of(gone)})
    gone.rmdir()
    make_private_folder(new)
    assert places.add(new, {tier_of(used)}) == tier_of(new)
    assert known(file) == [str(full), str(used), str(new)]
    assert [*Places(file).folders()] == [*places.folders()] == [tier_of(each) for each in (full, used, new)]
    assert empty.is_dir()


def test_one_that_is_spoilt_is_kept(tmp_path, file):
    """It may be ours again, with what lies in it."""
    places = Places(file)
    places.add(holding(tmp_path / "a"))
    (tmp_path / "a").chmod(0o755)
    make_private_folder(tmp_path / "b")
    places.add(tmp_path / "b")
    assert known(file) == [str(tmp_path / "a"), str(tmp_path / "b")]


def test_the_limit(tmp_path, file, monkeypatch):
    """Counts those with something in them."""
    monkeypatch.setattr(module, "MAX_PLACES", 2)
    places = Places(file)
    for name in ("a", "b", "c"):
        make_private_folder(tmp_path / name)
        places.add(tmp_path / name)
    places.add(holding(tmp_path / "d"))
    places.add(holding(tmp_path / "e"))
    with pytest.raises(TooManyPlaces):
        places.add(tmp_path / "a")
    assert known(file) == [str(tmp_path / "d"), str(tmp_path / "e")]


def test_places_that_cannot_be_looked_at(tmp_path, file, monkeypatch):
    """An agent begins all the same; one whose parent is a file has gone, a dead disk may return."""
    for name in ("a", "b", "c"):
        holding(tmp_path / name / "in")
    file.write_text(json.dumps([str(tmp_path / name / "in") for name in ("a", "b", "c")]), encoding="utf-8")
    (tmp_path / "a").rename(tmp_path / "elsewhere")
    (tmp_path / "a").touch()

    def dead(call):
        def look(path, *args, **words):
            if str(path) == str(tmp_path / "b" / "in"):
                raise OSError(errno.ESTALE, "Stale file handle")
            return call(path, *args, **words)

        return look

    with monkeypatch.context() as patches:
        patches.setattr(os, "lstat", dead(os.lstat))
        patches.setattr(os, "statvfs", dead(os.statvfs))
        places = Places(file)
        make_private_folder(tmp_path / "new")
        places.add(tmp_path / "new")
    assert known(file) == [str(tmp_path / name) for name in ("b/in", "c/in", "new")]


@pytest.mark.parametrize(("number", "error"), [(errno.ENOSPC, NoRoom), (errno.EDQUOT, NoRoom), (errno.EIO, OSError)])
def test_a_disk_that_is_full(tmp_path, file, monkeypatch, number, error):
    """It is said by name, and nothing is known that is not written down."""

    def full(path, data):
        raise OSError(number, "no")

    places = Places(file)
    make_private_folder(tmp_path / "a")
    monkeypatch.setattr(module, "write_atomic", full)
    with pytest.raises(error):
        places.add(tmp_path / "a")
    assert places.folders() == {}
