"""One SQLite file of the journal: its layout, and the statements on it.

SQLite runs in WAL mode with ``synchronous=FULL``: a commit is one append to the write-ahead log and one sync.
Its automatic checkpoints are off, since SQLite ignores their errors; :func:`checkpoint` is called by the
writer instead, so that a sync that fails there is seen.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from iriscw._errors import JournalCorrupt, JournalLost
from iriscw.journal import files
from iriscw.journal.entries import Base, Chain, Entry, EntryKind, digest_after, seal
from iriscw.journal.errors import UnsupportedJournal
from iriscw.journal.liveness import Liveness

APPLICATION_ID = 0x69724A31
"""Marks a SQLite file as a journal ("irJ1")."""

LAYOUT = 1
"""The version of the tables below, in ``user_version``."""

BUSY_TIMEOUT_S = 5.0
"""How long a commit waits for a foreign process that locks the file (a shell, a backup). Python's own
default."""

_TABLES = f"""
pragma application_id = {APPLICATION_ID};
pragma user_version = {LAYOUT};
create table entries (
    sequence integer primary key,
    path text not null,
    kind text not null,
    payload text not null,
    digest blob not null
);
create index entries_by_path on entries (path, sequence);
create table head (
    one integer primary key check (one = 1),
    sequence integer not null,
    digest blob not null
);
"""

Step = Callable[[str], None]
"""Called with the name of each step of a compaction, so that tests can crash there."""

_COLUMNS = "sequence, path, kind, payload, digest"
_INSERT = f"insert into entries ({_COLUMNS}) values (?, ?, ?, ?, ?)"  # noqa: S608 - constants only
_SCAN = f"select {_COLUMNS} from entries order by sequence"  # noqa: S608 - constants only
_OF_PATH = """
select sequence, path, kind, payload from entries
where path = ? and sequence between ? and ? order by sequence
"""

_FIRST = "select sequence, path, kind, payload from entries order by sequence limit 1"
_AFTER = "select sequence, path, kind, payload from entries where sequence > ? order by sequence"


def out_of_space(error: BaseException) -> bool:
    """Say whether ``error`` means that the disk is full, so that nothing was harmed and a retry may
    succeed.
    """
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", None)
        # SHMSIZE: no room to extend the shared index of the log. It holds no data and is rebuilt at will.
        return code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def busy(error: BaseException) -> bool:
    """Say whether ``error`` means that a foreign process has the file locked."""
    code = getattr(error, "sqlite_errorcode", None) if isinstance(error, sqlite3.Error) else None
    return code is not None and code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def connect(file: Path, *, readonly: bool = False) -> sqlite3.Connection:
    """Open a journal's file.

    Raises:
        UnsupportedJournal: it is of another layout, or no journal.
        JournalCorrupt: SQLite does not recognise it.
    """
    uri = f"{file.absolute().as_uri()}?mode={'ro' if readonly else 'rw'}"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        _check_layout(connection, file)
        connection.execute("pragma trusted_schema = off")
        if not readonly:
            connection.execute("pragma synchronous = full")
            connection.execute("pragma wal_autocheckpoint = 0")
    except BaseException as error:
        connection.close()
        if getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise JournalCorrupt(f"{file} is not a database: {error}") from error
        raise
    return connection


def _check_layout(connection: sqlite3.Connection, file: Path) -> None:
    found = [connection.execute(f"pragma {name}").fetchone()[0] for name in ("application_id", "user_version")]
    if found != [APPLICATION_ID, LAYOUT]:
        raise UnsupportedJournal(f"{file} has layout {found}: expected {[APPLICATION_ID, LAYOUT]}")


def scan(connection: sqlite3.Connection) -> Iterator[tuple[Entry, bytes]]:
    """Yield all entries with their digests in order, the base first."""
    for *columns, digest in connection.execute(_SCAN):
        yield Entry(*columns), digest


def verify(connection: sqlite3.Connection, found: Callable[[Entry], object], chain: Chain | None = None) -> Chain:
    """Follow the chain from its first entry to the head, and hand each entry but the base to ``found``.

    Args:
        connection: to the file.
        found: called with each entry whose chain holds.
        chain: a new one to follow with, for callers who want to know how far it held.

    Raises:
        JournalCorrupt: it is broken; the error names the first sequence that does not fit.
    """
    chain = chain or Chain()
    try:
        for entry, digest in scan(connection):
            chain.follow(entry, digest)
            if entry.kind != EntryKind.BASE:
                found(entry)
        head = connection.execute("select sequence, digest from head").fetchone()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise JournalCorrupt(f"sequence {chain.sequence + 1}: the file cannot be read: {error}") from error
    chain.finish(*(head or (0, b"")))
    return chain


def write(connection: sqlite3.Connection, rows: list[tuple[int, str, str, str, bytes]]) -> None:
    """Insert sealed entries and move the head, within a transaction that the caller began."""
    connection.executemany(_INSERT, rows)
    connection.execute("update head set sequence = ?, digest = ?", (rows[-1][0], rows[-1][4]))


def of_path(connection: sqlite3.Connection, path: str, first: int, last: int) -> list[Entry]:
    """Return the entries of exactly ``path`` from sequence ``first`` to ``last``."""
    return [Entry(*row) for row in connection.execute(_OF_PATH, (path, first, last))]


def after(connection: sqlite3.Connection, sequence: int) -> list[Entry]:
    """Return all entries after a sequence, in order."""
    return [Entry(*row) for row in connection.execute(_AFTER, (sequence,))]


def base_of(connection: sqlite3.Connection) -> Base:
    """Return what a file continues.

    Raises:
        JournalCorrupt: it has no beginning.
    """
    first = connection.execute(_FIRST).fetchone()
    if first is None:
        raise JournalCorrupt("sequence 0: the journal has no first entry")
    return Base.of(Entry(*first))


def reach(connection: sqlite3.Connection) -> int:
    """Return the last sequence that a file speaks for, superseded entries included; nothing is verified.

    Raises:
        JournalCorrupt: it has no beginning or no head.
    """
    head = connection.execute("select sequence from head").fetchone()
    if head is None:
        raise JournalCorrupt("sequence 0: the journal has no head")
    return max(int(head[0]), base_of(connection).through)


def checkpoint(connection: sqlite3.Connection) -> None:
    """Move what the write-ahead log holds into the database, as far as readers allow."""
    connection.execute("pragma wal_checkpoint(passive)").fetchone()


def create(file: Path, base: Base, entries: Iterable[Entry], step: Step) -> tuple[int, bytes]:
    """Write a complete journal file and put it in its place, so that a crash leaves all of it or none.

    Returns:
        How many entries it has, the base not counted, and the digest of its head.

    Raises:
        sqlite3.Error: it could not be written; the draft is left for the next opening to remove.
        OSError: as above.
        JournalLost: whether it is in its place is not known.
    """
    draft = files.draft(file)
    draft.unlink(missing_ok=True)
    files.create_private(draft)
    step("draft created")
    connection = sqlite3.connect(draft, isolation_level=None)
    try:
        # No rollback journal and no syncs: until it is renamed, a draft is worth nothing.
        connection.executescript("pragma journal_mode = off; pragma synchronous = off; begin;" + _TABLES)
        count, digest = _fill(connection, base, entries)
        step("draft filled")
        connection.execute("commit")
        connection.execute("pragma journal_mode = wal")
    finally:
        connection.close()
    files.sync(draft)
    step("draft synced")
    try:
        draft.rename(file)
        step("draft renamed")
        files.sync(file.parent)
        step("folder synced")
    except OSError as error:
        # From here on the new file may be the journal. To go on in the old one would lose what is written there.
        raise JournalLost(f"{file} may or may not have replaced the journal: {error}") from error
    return count, digest


def _fill(connection: sqlite3.Connection, base: Base, entries: Iterable[Entry]) -> tuple[int, bytes]:
    (row,) = seal(bytes(32), [base.entry()])
    connection.execute(_INSERT, row)
    digest, count = row[4], 0
    for entry in entries:
        digest = digest_after(digest, entry)
        connection.execute(_INSERT, (*entry, digest))
        count += 1
    connection.execute("insert into head values (1, ?, ?)", (base.through, digest))
    return count, digest


def survivors(connection: sqlite3.Connection, liveness: Liveness) -> Iterator[Entry]:
    """Yield the entries that count, by ``liveness`` as of the file's last entry."""
    for entry, _ in scan(connection):
        if liveness.counts(entry):
            yield entry
