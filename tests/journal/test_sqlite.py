"""The journal on disk: group commit, faults, permissions, compaction, damage."""

import errno
import re
import sqlite3
import stat
import subprocess
import threading
from contextlib import closing

import pytest

from iriscw._errors import InvalidArgument, JournalCorrupt, JournalLost
from iriscw.journal import sqlite as module, tool
from iriscw.journal.conformance import REGISTRY, Fact, facts
from iriscw.journal.errors import UnsupportedJournal
from iriscw.journal.port import JournalStatus
from iriscw.journal.sqlite import SqliteJournal
from raised import that


def reopened(directory):
    """Open the journal in a folder."""
    return SqliteJournal.open(directory, registry=REGISTRY)


def test_group_commit(sqlite_rig):
    """What is queued during a commit goes into the next one together."""
    rig = sqlite_rig()
    journal = rig.open()
    rig.hold()
    for number in range(100):
        journal.append("/a", facts(number))
    rig.free()
    rig.settle()
    told = journal.statistics()
    assert told.commits <= 2
    assert told.largest_batch >= 50
    assert told.sync_ns_max > 0


def test_accepting_never_waits(sqlite_rig):
    """With a disk that hangs, accepting and reading go on, also of what is on disk."""
    rig = sqlite_rig()
    journal = rig.open()
    journal.append("/a", facts(1))
    rig.settle()
    rig.hold()
    journal.append("/a", facts(2))
    journal.append("/b", facts(3))
    assert journal.read("/a") == facts(1, 2)
    assert journal.durable == 1


def test_private(tmp_path):
    """Only the owner can look into the folder or any file, also while it is written and when it existed before."""
    folder = tmp_path / "journal"
    folder.mkdir(mode=0o755)
    journal = reopened(folder)
    journal.append("/a", facts(1))
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
    journal.close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert set(modes.values()) == {0o600}
    assert "journal-000001.db-wal" in modes


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_CORRUPT])
def test_lost_by(sqlite_rig, sqlite_error_of, until, code):
    """Whatever is not lack of space loses the journal, with its cause, and later commits are not even tried."""
    tried = []

    def fail():
        tried.append(1)
        raise sqlite_error_of(code)

    rig = sqlite_rig()
    with closing(SqliteJournal.open(rig.directory, registry=REGISTRY, before_commit=fail)) as journal:
        journal.append("/a", facts(1))
        until(lambda: journal.status is JournalStatus.LOST, "LOST")
        with pytest.raises(JournalLost) as caught:
            journal.append("/a", facts(2))
        assert caught.value.__cause__.sqlite_errorcode == code
        assert journal.read("/a") == facts(1)
        assert journal.trouble == f"a write to the journal in {rig.directory} failed: injected {code}"
    assert len(tried) == 1


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_BUSY])
def test_retried(sqlite_rig, sqlite_error_of, until, code, monkeypatch):
    """Lack of space, and a foreign lock, are retried until they pass; only lack of space is FULL."""
    monkeypatch.setattr(module, "RETRY_PAUSE_FIRST_S", 0.001)
    again, seen = threading.Event(), set()

    def fail():
        if not again.is_set():
            raise sqlite_error_of(code)

    with closing(SqliteJournal.open(sqlite_rig().directory, registry=REGISTRY, before_commit=fail)) as journal:
        journal.watch(lambda: seen.add(journal.status))
        journal.append("/a", facts(1))
        until(lambda: journal.statistics().retries >= 3, "retries")
        assert (JournalStatus.FULL in seen) == (code != sqlite3.SQLITE_BUSY)
        again.set()
        until(lambda: journal.durable == 1, "room")
        assert journal.status is JournalStatus.READY


def test_close_on_full_disk(sqlite_rig):
    """Closing on a full disk wakes the writer for a last attempt, then gives up and shows it."""
    rig = sqlite_rig()
    journal = rig.open()
    rig.hold()
    journal.append("/a", facts(1))
    rig.fill()
    journal.close()
    assert (journal.appended, journal.durable) == (1, 0)
    journal = rig.open()
    assert journal.appended == 0


@pytest.mark.parametrize("what", ["payload", "path", "digest"])
def test_changed_byte(tmp_path, what):
    """A changed value is found at opening, with its sequence."""
    with closing(reopened(tmp_path)) as journal:
        journal.append("/a", facts(*range(9)))
    with closing(sqlite3.connect(tmp_path / "journal-000001.db")) as connection:
        value = "zeroblob(32)" if what == "digest" else f"replace({what}, 'a', 'b')"
        connection.execute(f"update entries set {what} = {value} where sequence = 7")
        connection.commit()
    with pytest.raises(JournalCorrupt, check=that(comes_from="entries.Chain.follow", names="7")):
        reopened(tmp_path)
    with pytest.raises(JournalCorrupt, check=that(comes_from="entries.Chain.follow", names="7")):
        reopened(tmp_path)


@pytest.mark.parametrize(("where", "named"), [("sequence = 5", 5), ("sequence > 5", 6), ("sequence = 0", 1)])
def test_lost_entries(tmp_path, where, named):
    """Missing entries are found at opening: in the middle, at the end and at the start."""
    with closing(reopened(tmp_path)) as journal:
        journal.append("/a", facts(*range(9)))
    with closing(sqlite3.connect(tmp_path / "journal-000001.db")) as connection:
        connection.execute(f"delete from entries where {where}")
        connection.commit()
    with pytest.raises(JournalCorrupt, check=that(names=named)):
        reopened(tmp_path)


@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
def test_truncated_file(tmp_path, part):
    """A file cut short is found at opening."""
    with closing(reopened(tmp_path)) as journal:
        journal.append("/a", [Fact("x" * 500, number) for number in range(400)])
    file = tmp_path / "journal-000001.db"
    with file.open("r+b") as opened:
        opened.truncate(int(file.stat().st_size * part))
    with pytest.raises(JournalCorrupt):
        reopened(tmp_path)


def test_broken_index(tmp_path):
    """An index that lost rows is found when the path is read: records never vanish in silence."""
    with closing(reopened(tmp_path)) as journal:
        journal.append("/a", facts(1, 2, 3))
    journal = reopened(tmp_path)
    with closing(sqlite3.connect(tmp_path / "journal-000001.db")) as connection:
        connection.execute("delete from entries where sequence = 2")
        connection.commit()
    with pytest.raises(JournalCorrupt, check=that(comes_from="ledger.Ledger.decode", names=("/a", "2"))):
        journal.read("/a")
    journal.close()


def test_other_layout(tmp_path):
    """A file of another layout, or of another program, is not touched."""
    reopened(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "journal-000001.db")) as connection:
        connection.execute("pragma user_version = 2")
    with pytest.raises(UnsupportedJournal, check=that(names="layout")):
        reopened(tmp_path)


@pytest.mark.parametrize("option", ["bound_bytes", "compact_after"])
def test_bad_options(tmp_path, option):
    """Bounds are positive."""
    with pytest.raises(InvalidArgument, check=that(names=option)):
        SqliteJournal.open(tmp_path, **{option: 0})


def test_compaction(sqlite_rig, until):
    """Superseded entries leave the file; what counts, the sequences and the chain stay."""
    rig = sqlite_rig(compact_after=100)
    journal = rig.open()
    journal.append("/kept", facts(1, 2))
    for number in range(300):
        journal.append("/done", facts(number))
        if number % 10 == 9:
            journal.forget("/done")
            rig.settle()
    until(lambda: journal.statistics().compactions >= 2, "compactions")
    assert journal.statistics().entries < 150
    assert journal.read("/kept") == facts(1, 2)
    appended = journal.append("/after", facts(3))
    journal.close()
    assert [file.name for file in rig.directory.glob("*.db*")] != ["journal-000001.db"]
    journal = rig.open()
    assert journal.appended == appended == 333
    assert journal.paths() == ["/kept", "/after"]
    assert tool.verify(rig.directory).problem is None


def test_compaction_without_room(sqlite_rig, sqlite_error_of, until):
    """A compaction that finds no room is put off; the old file goes on, and is not retried at each commit."""
    tried = []

    def step(name):
        if name == "draft filled":
            tried.append(name)
            raise sqlite_error_of(sqlite3.SQLITE_FULL)

    rig = sqlite_rig(compact_after=20, step=lambda name: step(name) if made else None)
    made = []
    journal = rig.open()
    made.append(True)
    for number in range(30):
        journal.append("/a", facts(number))
        journal.forget("/a")
        rig.settle()
    until(lambda: tried, "an attempt")
    assert journal.status is JournalStatus.READY
    assert 1 <= len(tried) <= 60 // 20
    journal.append("/a", facts(1))
    rig.settle()
    assert journal.read("/a") == facts(1)


@pytest.mark.parametrize("at", ["draft renamed", "folder synced"])
def test_compaction_in_doubt(sqlite_rig, until, at):
    """When the new file may be the journal already, nothing more is written to the old one: LOST, and nothing lost."""

    def step(name):
        if name == at and journals:
            raise OSError(errno.ENOSPC, "no space")

    journals = []
    rig = sqlite_rig(compact_after=20, step=step)
    journal = rig.open()
    journals.append(journal)
    for number in range(10):
        journal.append("/a", facts(number))
        journal.forget("/a")
    journal.append("/b", facts(1))
    until(lambda: journal.status is JournalStatus.LOST, "LOST")
    durable = journal.durable
    journal.close()
    journals.clear()
    journal = rig.open()
    assert journal.appended >= durable >= 20
    assert journal.read("/a") == []


def test_checkpoints(sqlite_rig, monkeypatch):
    """The write-ahead log stays small however much is written."""
    monkeypatch.setattr(module, "CHECKPOINT_PAGES", 50)
    rig = sqlite_rig()
    journal = rig.open()
    for number in range(100):
        journal.append("/a", [Fact("x" * 1_000, number)])
        rig.settle()
    log = next(rig.directory.glob("*-wal"))
    assert log.stat().st_size < 100 * 4_096 * 2
    assert len(journal.read("/a")) == 100


def test_full_filesystem(tmp_path, until):
    """On a real file system without room the journal says FULL, keeps all, and writes it when there is room."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system here: {mounted.stderr.strip()}")
    try:
        ballast = tmp_path / "ballast"
        ballast.write_bytes(b"x" * 800_000)
        journal = reopened(tmp_path / "journal")
        written = [Fact("x" * 1_000, number) for number in range(200)]
        for fact in written:
            journal.append("/a", [fact])
        until(lambda: journal.status is JournalStatus.FULL, "FULL")
        assert journal.read("/a") == written
        told = re.match(rf"the disk of the journal in {tmp_path}/journal is full \((\d+) bytes free\)", journal.trouble)
        assert told is not None, journal.trouble
        assert int(told[1]) < 100_000
        ballast.unlink()
        until(lambda: journal.durable == 200, "room")
        assert (journal.status, journal.trouble) == (JournalStatus.READY, "")
        journal.close()
        with closing(reopened(tmp_path / "journal")) as journal:
            assert journal.read("/a") == written
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)
