"""What an operator may do with a journal: look at it, verify it, and cut it off before damage.

:func:`verify` and :func:`dump` only read and may run beside the process that writes. :func:`truncate` needs
it to be stopped; it writes a new file with what counts up to a sequence, and sets the old one aside without
changing it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs

from iriscw._errors import InvalidArgument, JournalCorrupt
from iriscw.journal import database, files
from iriscw.journal.entries import Base, Chain, Entry, EntryKind
from iriscw.journal.liveness import Liveness


@attrs.frozen
class VerifyReport:
    """What :func:`verify` found."""

    file: Path
    entries: int
    """Entries whose chain holds."""
    live: int
    """Of these, how many count."""
    last: int
    """The last sequence whose chain holds: what :func:`truncate` may keep."""
    digest: str
    """The digest there, in hexadecimal."""
    problem: str | None
    """What is wrong with the entry after it; None if the journal is whole."""


@attrs.frozen
class EntryLine:
    """One entry as :func:`dump` shows it."""

    sequence: int
    path: str
    kind: str
    """``record``, ``snapshot`` or ``forget``."""
    live: bool
    """Whether it still counts."""
    records: tuple[Any, ...]
    """``[name, version, fields]`` as JSON values, not decoded: records of unknown types can be shown too."""


def verify(directory: str | Path) -> VerifyReport:
    """Follow the chain of the journal in ``directory`` as far as it holds.

    Raises:
        InvalidArgument: there is no journal.
        UnsupportedJournal: it is of another layout.
        JournalCorrupt: the file is no database at all.
    """
    file = _find(directory)
    liveness, chain, problem = Liveness(), Chain(), None
    with closing(database.connect(file, readonly=True)) as connection:
        connection.execute("begin")  # entries and head as of one moment, whatever is appended meanwhile
        try:
            database.verify(connection, liveness.apply, chain)
        except JournalCorrupt as error:
            problem = str(error)
    return VerifyReport(file, chain.count, liveness.live, chain.last, chain.digest.hex(), problem)


def dump(directory: str | Path, path: str | None = None) -> Iterator[EntryLine]:
    """Yield the entries of the journal in ``directory`` in order, all or those of exactly ``path``.

    Superseded entries are shown as long as the file has them. The chain is not checked: damaged journals are
    dumped as far as they can be read.

    Raises:
        InvalidArgument: there is no journal.
        UnsupportedJournal: it is of another layout.
        JournalCorrupt: the file is no database at all.
        sqlite3.DatabaseError: the file cannot be read beyond the last entry given.
    """
    with closing(database.connect(_find(directory), readonly=True)) as connection:
        connection.execute("begin")  # both passes see the same entries, whatever is appended meanwhile
        liveness = Liveness()
        for entry, _ in database.scan(connection):
            liveness.apply(entry)
        for entry, _ in database.scan(connection):
            if entry.kind != EntryKind.BASE and path in (None, entry.path):
                yield _line(entry, liveness)


def _line(entry: Entry, liveness: Liveness) -> EntryLine:
    records: tuple[Any, ...] = ()
    if entry.payload:
        try:
            parsed = json.loads(entry.payload)
        except ValueError:
            parsed = entry.payload
        records = tuple(parsed) if entry.kind == EntryKind.SNAPSHOT else (parsed,)
    return EntryLine(entry.sequence, entry.path, EntryKind(entry.kind).name.lower(), liveness.counts(entry), records)


def truncate(directory: str | Path, after: int) -> Path:
    """Cut the journal in ``directory`` off after the entry with sequence ``after``.

    What was promised after it is forgotten. Later entries get the sequences that were cut off.

    Args:
        directory: the journal's folder.
        after: a sequence up to which the chain holds: at most :attr:`VerifyReport.last`, and not within what a
            compaction already dropped.

    Returns:
        Where the old file was set aside, unchanged.

    Raises:
        InvalidArgument: there is no journal, or its chain does not reach ``after``.
        JournalLocked: a process writes it.
        UnsupportedJournal: it is of another layout.
        JournalCorrupt: the file is no database at all.
        OSError: the new file cannot be written.
    """
    old = _find(directory)
    lock = files.Lock(old.parent)
    try:
        # First a second name for the old file, then the new one, then the old name goes: at no time is the
        # journal gone, and a crash on the way costs nothing but another try.
        aside = _link_aside(old)
        with closing(database.connect(old, readonly=True)) as connection:
            base, liveness = _prefix(connection, after)
            kept = (entry for entry in database.survivors(connection, liveness) if entry.sequence <= after)
            new = files.database(old.parent, files.generation_of(old) + 1)
            database.create(new, base, kept, lambda _: None)
        for leftover in files.leftovers(old.parent, new):
            leftover.unlink(missing_ok=True)
    finally:
        lock.release()
    return aside


def _link_aside(file: Path) -> Path:
    aside = file.with_name(f"{file.name}.aside")
    for suffix in ("", "-wal"):
        source, target = file.with_name(file.name + suffix), aside.with_name(aside.name + suffix)
        target.unlink(missing_ok=True)
        if source.exists():
            target.hardlink_to(source)
    return aside


def _prefix(connection: sqlite3.Connection, after: int) -> tuple[Base, Liveness]:
    """Return the base of a file that continues after ``after``, and what counts there."""
    chain, liveness = Chain(), Liveness()
    try:
        for entry, digest in database.scan(connection):
            if entry.sequence > after:
                break
            chain.follow(entry, digest)
            liveness.apply(entry)
    except JournalCorrupt as error:
        raise InvalidArgument(f"cannot keep entries up to {after}: {error}") from error
    if chain.base is None or after < chain.base.through or after != chain.last:
        raise InvalidArgument(f"cannot keep entries up to {after}: the journal speaks for {chain.last}")
    return Base(chain.digest, after), liveness


def _find(directory: str | Path) -> Path:
    file = files.newest(Path(directory))
    if file is None:
        raise InvalidArgument(f"there is no journal in {directory}")
    return file
