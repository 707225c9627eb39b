"""The operator's tools, on whole and on damaged journals."""

import sqlite3
from contextlib import closing

import pytest

from iriscw._errors import InvalidArgument, JournalCorrupt, JournalLocked
from iriscw.journal import tool
from iriscw.journal.conformance import REGISTRY, Fact, facts
from iriscw.journal.sqlite import SqliteJournal
from raised import that


@pytest.fixture
def folder(tmp_path):
    """A journal of five entries: three records, a snapshot of one path, a forget of another."""
    journal = SqliteJournal.open(tmp_path / "journal", registry=REGISTRY)
    journal.append("/a", facts(1, 2))
    journal.append("/b", facts(3))
    journal.snapshot("/a", facts(4, 5))
    journal.forget("/b")
    journal.close()
    return tmp_path / "journal"


def damage(folder, sequence):
    """Flip a payload behind the journal's back."""
    with closing(sqlite3.connect(folder / "journal-000001.db")) as connection:
        connection.execute(
            "update entries set payload = replace(payload, 'fact', 'fict') where sequence = ?", (sequence,)
        )
        connection.commit()


def test_verify(folder):
    """A whole journal is said to be whole."""
    verdict = tool.verify(folder)
    assert (verdict.entries, verdict.live, verdict.last, verdict.problem) == (5, 1, 5, None)


def test_verify_damaged(folder):
    """A damaged entry is named, and what holds before it is told."""
    damage(folder, 3)
    verdict = tool.verify(folder)
    assert (verdict.entries, verdict.live, verdict.last) == (2, 2, 2)
    assert verdict.problem.startswith("sequence 3: ")


def test_verify_while_written(tmp_path):
    """Looking does not disturb the writer."""
    journal = SqliteJournal.open(tmp_path, registry=REGISTRY)
    for number in range(20):
        journal.append("/a", facts(number))
        assert tool.verify(tmp_path).problem is None
        assert all(line.kind == "record" for line in tool.dump(tmp_path))
    journal.close()
    assert tool.verify(tmp_path).entries == 20


def test_dump(folder):
    """Each entry is shown with what it says and whether it still counts."""
    lines = list(tool.dump(folder))
    assert [(line.sequence, line.path, line.kind, line.live) for line in lines] == [
        (1, "/a", "record", False),
        (2, "/a", "record", False),
        (3, "/b", "record", False),
        (4, "/a", "snapshot", True),
        (5, "/b", "forget", False),
    ]
    assert lines[0].records == (["conformance.fact", 1, {"number": 1, "text": "fact"}],)
    assert [fields["number"] for _, _, fields in lines[3].records] == [4, 5]
    assert [line.sequence for line in tool.dump(folder, "/b")] == [3, 5]


def test_truncate_damaged(folder):
    """Cut off before the damage, a journal opens again, goes on, and the old file is there for inspection."""
    damage(folder, 3)
    aside = tool.truncate(folder, tool.verify(folder).last)
    assert aside.name == "journal-000001.db.aside"
    journal = SqliteJournal.open(folder, registry=REGISTRY)
    assert journal.appended == 2
    assert journal.read("/a") == facts(1, 2)
    assert journal.append("/a", facts(9)) == 3
    journal.close()
    assert tool.verify(folder).problem is None
    with closing(sqlite3.connect(aside)) as connection:
        assert connection.execute("select count(*) from entries").fetchone() == (6,)


def test_truncate_uncheckpointed(tmp_path):
    """What is only in the write-ahead log is truncated, and set aside, as well."""
    journal = SqliteJournal.open(tmp_path / "live", registry=REGISTRY)
    journal.append("/a", facts(1, 2, 3))
    while journal.durable < 3:
        pass
    (tmp_path / "copy").mkdir()
    for file in (tmp_path / "live").glob("*.db*"):
        (tmp_path / "copy" / file.name).write_bytes(file.read_bytes())
    journal.close()
    aside = tool.truncate(tmp_path / "copy", 2)
    with closing(sqlite3.connect(aside)) as connection:
        assert connection.execute("select max(sequence) from entries").fetchone() == (3,)
    assert tool.verify(tmp_path / "copy").last == 2


@pytest.mark.parametrize("after", [-1, 4, 99])
def test_truncate_refuses(folder, after):
    """A journal cannot be cut where its chain does not reach; it stays as it was."""
    damage(folder, 3)
    with pytest.raises(InvalidArgument, check=that(comes_from="tool._prefix")):
        tool.truncate(folder, after)
    assert tool.verify(folder).last == 2


def test_truncate_locked(tmp_path):
    """A journal in use is not cut."""
    journal = SqliteJournal.open(tmp_path, registry=REGISTRY)
    with pytest.raises(JournalLocked):
        tool.truncate(tmp_path, 0)
    journal.close()


def test_no_journal(tmp_path):
    """Without a journal the tools say so."""
    for call in (tool.verify, lambda path: list(tool.dump(path)), lambda path: tool.truncate(path, 0)):
        with pytest.raises(InvalidArgument, check=that(comes_from="tool._find")):
            call(tmp_path / "none")


def test_no_database(folder):
    """A file that is no database is named."""
    (folder / "journal-000001.db").write_bytes(b"not a database" * 1_000)
    with pytest.raises(JournalCorrupt, check=that(comes_from="database.connect")):
        tool.verify(folder)
    with pytest.raises(JournalCorrupt, check=that(comes_from="database.connect")):
        SqliteJournal.open(folder, registry=REGISTRY)


def test_fact_is_readable_after_truncation_to_nothing(folder):
    """Everything can be cut off; sequences start again."""
    tool.truncate(folder, 0)
    journal = SqliteJournal.open(folder, registry=REGISTRY)
    assert journal.append("/a", [Fact("new")]) == 1
    journal.close()
