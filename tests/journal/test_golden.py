"""Journals written by earlier releases load: the files under ``golden/`` are never rewritten.

A new layout or a new release adds a file; run this module as a script with a new name to write one.
"""

import shutil
import sys
from pathlib import Path

import attrs
import pytest

from iriscw.journal import tool
from iriscw.journal.records import RecordRegistry
from iriscw.journal.sqlite import SqliteJournal

GOLDEN = Path(__file__).with_name("golden")


@attrs.frozen
class Placed:
    """Today's form of a record that the oldest golden journal has in version 1, without a time."""

    attempt: str
    worker: str
    placed_at_ns: int


def present():
    """Return today's record types."""
    registry = RecordRegistry()
    registry.record("golden.placed", version=2)(Placed)
    registry.upcaster("golden.placed", from_version=1)(lambda fields: {**fields, "placed_at_ns": 0})
    return registry


@pytest.mark.parametrize("name", sorted(file.name for file in GOLDEN.glob("*.db")))
def test_loads(name, tmp_path):
    """A golden journal verifies, replays through today's upcasters, and takes new entries."""
    shutil.copy(GOLDEN / name, tmp_path / "journal-000001.db")
    assert tool.verify(tmp_path).problem is None
    journal = SqliteJournal.open(tmp_path, registry=present())
    assert journal.appended == 6
    assert journal.paths() == ["/jobs/b", "/jobs/a"]
    assert journal.read("/jobs/b") == [Placed("b1", "w2", 0)]
    assert journal.read("/jobs/a") == [Placed("a1", "w1", 0), Placed("a2", "w3", 0)]
    journal.append("/jobs/a", [Placed("a3", "w4", 7)])
    journal.close()
    assert tool.verify(tmp_path).last == 7


def test_there_is_one():
    """Each layout has a golden journal."""
    assert [file.name for file in sorted(GOLDEN.glob("*.db"))] == ["layout-1.db"]


def write(file):
    """Write a golden journal in the first version of its record."""

    @attrs.frozen
    class FirstPlaced:
        attempt: str
        worker: str

    registry = RecordRegistry()
    registry.record("golden.placed", version=1)(FirstPlaced)
    folder = file.with_suffix(".tmp")
    journal = SqliteJournal.open(folder, registry=registry)
    journal.append("/jobs/c", [FirstPlaced("c1", "w1")])
    journal.append("/jobs/b", [FirstPlaced("b1", "w2")])
    journal.append("/jobs/a", [FirstPlaced("a0", "w1")])
    journal.snapshot("/jobs/a", [FirstPlaced("a1", "w1")])
    journal.append("/jobs/a", [FirstPlaced("a2", "w3")])
    journal.forget("/jobs/c")
    journal.close()
    shutil.move(folder / "journal-000001.db", file)
    shutil.rmtree(folder)


if __name__ == "__main__":
    write(GOLDEN / sys.argv[1])
