"""What CRIU can is remembered from one command to the next: for one program, one boot and one set of rights."""

import json
import os

import pytest

from iriscw.freeze.drivers.criu import remembering
from iriscw.freeze.drivers.criu.ability import AGAIN_S, FEATURES, SURE
from iriscw.freeze.drivers.criu.remembering import probed

SCRIPT = """#!/bin/sh
echo "$@" >> {folder}/asked
case "$*" in
    *--version*) echo "Version: 4.2.1" ;;
    *--feature*) test -e {folder}/cannot-$4 && exit 1 ;;
esac
exit 0
"""


class Criu:
    """A program that says what CRIU says, and writes down how often it was asked."""

    def __init__(self, folder):
        self.folder = folder
        self.program = folder / "criu"
        self.write()

    def write(self):
        self.program.write_text(SCRIPT.format(folder=self.folder))
        self.program.chmod(0o700)

    def asked(self):
        try:
            return len((self.folder / "asked").read_text().splitlines())
        except FileNotFoundError:
            return 0


@pytest.fixture
def criu(tmp_path):
    return Criu(tmp_path)


@pytest.fixture
def place(tmp_path):
    """Where it is remembered."""
    return tmp_path / "ability"


def checks_itself(criu, place):
    """Whether CRIU is asked for what it can, once more."""
    before = criu.asked()
    assert probed(criu.program, place).ability.version == "4.2.1"
    return criu.asked() > before


def test_it_is_asked_once(criu, place):
    """Whoever comes next reads the same from the file, which nobody else may read."""
    first = probed(criu.program, place)
    assert criu.asked() == 2 + len(FEATURES)
    assert probed(criu.program, place) == first
    assert criu.asked() == 2 + len(FEATURES)
    assert place.stat().st_mode & 0o777 == 0o600


def test_without_a_place_nothing_is_kept(criu):
    """It is asked each time."""
    probed(criu.program, None)
    assert checks_itself(criu, None)


@pytest.mark.parametrize("other", ["content", "time", "inode", "wrapped", "boot", "rights"])
def test_another_program_boot_or_right_is_asked_anew(criu, place, monkeypatch, other):
    """Each of them alone makes what was remembered of no use; then it is remembered again."""
    probed(criu.program, place)
    found = criu.program.stat()
    match other:
        case "content":
            criu.program.write_text(criu.program.read_text() + "# newer\n")
            os.utime(criu.program, ns=(found.st_atime_ns, found.st_mtime_ns))
        case "time":
            os.utime(criu.program, ns=(found.st_atime_ns, found.st_mtime_ns + 1))
        case "inode":
            criu.program.rename(criu.folder / "old")
            criu.write()
            os.utime(criu.program, ns=(found.st_atime_ns, found.st_mtime_ns))
        case "wrapped":
            (criu.folder / "criu.bin").write_bytes(b"another one")
        case "boot":
            monkeypatch.setattr(remembering, "boot_id", lambda: "another")
        case "rights":
            monkeypatch.setattr(remembering, "_RIGHTS", ("Uid:",))
    assert checks_itself(criu, place)
    assert not checks_itself(criu, place)


def test_another_path_is_asked_anew(criu, place, tmp_path):
    """What is remembered of one program says nothing of another."""
    probed(criu.program, place)
    (tmp_path / "other").mkdir()
    other = Criu(tmp_path / "other")
    assert probed(other.program, place).ability.path == str(other.program)
    assert other.asked()


@pytest.mark.parametrize(
    "damage",
    [
        lambda place: place.write_bytes(b""),
        lambda place: place.write_bytes(place.read_bytes()[:-9]),
        lambda place: place.write_bytes(b"[" * 100_000),
        lambda place: place.write_bytes(json.dumps({**json.loads(place.read_bytes()), "features": "all"}).encode()),
        lambda place: place.write_bytes(json.dumps({**json.loads(place.read_bytes()), "at": None}).encode()),
        lambda place: place.chmod(0o644),
        lambda place: (place.rename(place.with_name("real")), place.symlink_to("real")),
        lambda place: (place.unlink(), place.symlink_to("/dev/zero")),
    ],
    ids=["empty", "cut off", "too long", "features", "time", "readable by others", "a link", "a device"],
)
def test_a_damaged_file_is_ignored_and_written_anew(criu, place, damage):
    """CRIU is asked, and the next one finds a file that is whole, of mode 0600, and no link."""
    first = probed(criu.program, place)
    damage(place)
    assert checks_itself(criu, place)
    assert not place.is_symlink()
    assert place.stat().st_mode & 0o777 == 0o600
    assert not checks_itself(criu, place)
    assert probed(criu.program, place).ability == first.ability


def test_a_file_of_somebody_else_is_ignored(criu, place, monkeypatch):
    """Whoever else wrote it could say that CRIU can what it cannot."""
    probed(criu.program, place)
    user = os.geteuid()
    monkeypatch.setattr(remembering.os, "geteuid", lambda: user + 1)
    assert checks_itself(criu, place)


def test_an_invented_feature_is_none(criu, place):
    """Only those that are asked for are read."""
    probed(criu.program, place)
    place.write_text(json.dumps({**json.loads(place.read_bytes()), "features": ["flying", *FEATURES]}))
    assert probed(criu.program, place).ability.features == tuple(sorted(FEATURES))


def test_what_was_not_found_is_looked_for_again(criu, place, monkeypatch):
    """A check may have failed for want of room, so it holds for a while only; what a kernel was built with, longer."""
    now = [1000.0]
    monkeypatch.setattr(remembering.time, "monotonic", lambda: now[0])
    (criu.folder / f"cannot-{SURE[0]}").touch()
    probed(criu.program, place)
    now[0] += 10 * AGAIN_S
    assert not checks_itself(criu, place)
    (criu.folder / "cannot-uffd-noncoop").touch()
    place.unlink()
    probed(criu.program, place)
    now[0] += AGAIN_S - 1
    assert not checks_itself(criu, place)
    now[0] += 1
    assert checks_itself(criu, place)


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(criu, tmp_path):
    """What CRIU can is told, and asked for again."""
    nowhere = tmp_path / "not there" / "ability"
    probed(criu.program, nowhere)
    assert checks_itself(criu, nowhere)
