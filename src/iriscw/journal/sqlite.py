"""The journal on disk.

The caller's thread accepts: it encodes, gives sequences and queues, under a lock that is never held during
I/O. One writer thread takes everything queued, seals it into the chain and commits it in one transaction: the
slower the disk, the larger the batches (group commit). Between batches it moves SQLite's log into the
database, and compacts the file when superseded entries outnumber live ones.

When a commit fails, everything hangs on why:

* *No space.* Nothing was harmed. The batch is kept and retried with growing pauses; the status is FULL
  meanwhile.
* *Busy.* A foreign process locks the file. As above, but the status only changes when the queue passes its
  bound.
* *Anything else*, a failed sync first of all. The kernel may have dropped the pages it could not write and
  report success next time, so nothing more is tried: the status is LOST for ever.

With a *replica* (:mod:`iriscw.journal.replica`) an entry is durable when the second copy has it, too: a commit goes
there after it is on the disk, by the same thread. While that place does not answer, entries wait as for a slow disk.

Reading goes to the file through a connection of its own, and to the queue for what is not there yet.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs

from iriscw._errors import InvalidArgument, JournalCorrupt, JournalLost, OperationError
from iriscw.journal import database, files
from iriscw.journal.entries import Base, Entry, seal
from iriscw.journal.errors import JournalClosed
from iriscw.journal.ledger import Ledger
from iriscw.journal.liveness import Liveness
from iriscw.journal.port import DEFAULT_BOUND_BYTES, JournalStatistics, JournalStatus
from iriscw.journal.records import REGISTRY, RecordRegistry
from iriscw.journal.replica import Mark, Replica, ReplicaUnreachable, identity_of

COMPACT_AFTER = 10_000
"""Superseded entries below which compaction is not worth its syncs; above, they must also outnumber the live
ones, so that a compaction costs less than the writing that led to it (Redis rewrites its log at twice its
size)."""

CHECKPOINT_PAGES = 1_000
"""Pages in SQLite's log before they are moved into the database: SQLite's own default."""

RETRY_PAUSE_FIRST_S = 0.05
RETRY_PAUSE_MAX_S = 5.0
"""Pauses between attempts on a full disk, doubling from the first to the last. Space is freed by people or by
log rotation, so seconds are soon enough."""

_PAGE_BYTES = 4_096
_PAGES_PER_COMMIT = 4
"""Pages that even the smallest commit writes: head, table, index, and one to split."""


def _no_step(_: str) -> None:
    return None


@attrs.frozen
class _Options:
    bound_bytes: int
    compact_after: int
    before_commit: Callable[[], None] | None
    step: database.Step
    replica: Replica | None = None


class SqliteJournal:
    """A :class:`~iriscw.journal.port.Journal` in a folder of its own. Made by :meth:`open`."""

    @classmethod
    def open(
        cls,
        directory: str | Path,
        *,
        bound_bytes: int = DEFAULT_BOUND_BYTES,
        compact_after: int = COMPACT_AFTER,
        registry: RecordRegistry = REGISTRY,
        before_commit: Callable[[], None] | None = None,
        step: database.Step | None = None,
        replica: Replica | None = None,
    ) -> SqliteJournal:
        """Open the journal in ``directory``, or start one, and verify its chain.

        Reads the whole file once: about 200,000 entries a second.

        Args:
            directory: made if missing, and closed to other users.
            bound_bytes: uncommitted bytes at which the status is STALLED.
            compact_after: superseded entries below which the file is not compacted.
            registry: the record types to encode and decode with.
            before_commit: called in the writer thread within each commit, before it is final. It may sleep,
                which is a slow disk, or raise what SQLite would.
            step: called with the name of each step of a compaction.
            replica: keeps a second copy, which is taken over; where the folder is behind it, it is restored from it.

        Raises:
            InvalidArgument: a bound is not positive.
            JournalLocked: another process writes it; the error names its pid. Or the replica was opened elsewhere.
            JournalCorrupt: the chain is broken; the error names the first sequence that does not fit. Or the replica
                is incomplete.
            ReplicaUnreachable: the replica does not answer.
            ReplicaForeign: the replica and the folder are of different journals.
            UnsupportedJournal: the file is of another layout.
            OSError: the folder or the file cannot be made or opened.
        """
        if bound_bytes < 1 or compact_after < 1:
            raise InvalidArgument(f"bound_bytes is {bound_bytes}, compact_after {compact_after}: expected at least 1")
        options = _Options(bound_bytes, compact_after, before_commit, step or _no_step, replica)
        folder = Path(directory)
        files.prepare(folder)
        lock = files.Lock(folder)
        with ExitStack() as unless_opened:
            unless_opened.callback(lock.release)
            file = files.newest(folder)
            if replica is not None:
                file = _restored(folder, file, replica, options.step)
            if file is None:
                file = files.database(folder, 1)
                database.create(file, Base(), (), options.step)
            writer = database.connect(file)
            unless_opened.callback(writer.close)
            journal = cls(lock, file, writer, registry, options)
            unless_opened.callback(journal._reader.close)
            if replica is not None:
                _take_over(folder, writer, replica, journal.appended)
            unless_opened.pop_all()
        journal._thread.start()
        return journal

    def __init__(
        self,
        lock: files.Lock,
        file: Path,
        writer: sqlite3.Connection,
        registry: RecordRegistry,
        options: _Options,
    ) -> None:
        """Verify the file and prepare the writer thread; :meth:`open` starts it."""
        self._lock_file = lock
        self._file = file
        self._writer = writer
        liveness = Liveness()
        chain = database.verify(writer, liveness.apply)
        for leftover in files.leftovers(file.parent, file):
            leftover.unlink()
        self._ledger = Ledger(registry, chain.last, liveness)
        self._digest = chain.digest
        self._entries = chain.count
        self._reader = database.connect(file, readonly=True)

        self._options = options
        self._compact_next = options.compact_after
        self._watchers: list[Callable[[], None]] = []

        self._lock = threading.Lock()
        """Guards the ledger. Held for microseconds."""
        self._queued = threading.Condition(self._lock)
        self._reading = threading.Lock()
        """Guards the reader's connection against being replaced while in use."""
        self._closing = threading.Event()
        self._closed = self._full = False
        self._free_bytes: int | None = None
        """What the disk had left when it last refused."""
        self._unreachable = ""
        """Why the replica did not take the last commit yet."""
        self._lost: BaseException | None = None
        self._commits = self._bytes_written = self._largest_batch = 0
        self._retries = self._compactions = self._sync_ns_max = self._log_pages = 0
        # A daemon: an interpreter that exits without close must not wait for a disk that hangs.
        self._thread = threading.Thread(target=self._write, name="iriscw-journal", daemon=True)

    # The port

    @property
    def appended(self) -> int:
        """See the port."""
        return self._ledger.appended

    @property
    def durable(self) -> int:
        """See the port."""
        return self._ledger.durable

    @property
    def status(self) -> JournalStatus:
        """See the port."""
        if self._lost is not None:
            return JournalStatus.LOST
        if self._full:
            return JournalStatus.FULL
        if self._ledger.uncommitted_bytes >= self._options.bound_bytes:
            return JournalStatus.STALLED
        return JournalStatus.READY

    @property
    def trouble(self) -> str:
        """See the port."""
        folder, status = self._file.parent, self.status
        if status is JournalStatus.LOST:
            return f"a write to the journal in {folder} failed: {self._lost}"
        if status is JournalStatus.FULL:
            free = "" if self._free_bytes is None else f" ({self._free_bytes} bytes free)"
            return f"the disk of the journal in {folder} is full{free}; it goes on by itself once there is room"
        if status is JournalStatus.STALLED:
            waiting, bound = self._ledger.uncommitted_bytes, self._options.bound_bytes
            if self._unreachable:
                return f"{self._unreachable}: {waiting} bytes wait for the journal's second copy, the bound is {bound}"
            return f"the disk of the journal in {folder} is slow: {waiting} bytes wait for it, the bound is {bound}"
        return ""

    @property
    def uncommitted_bytes(self) -> int:
        """See the port."""
        return self._ledger.uncommitted_bytes

    def append(self, path: str, records: Sequence[Any]) -> int:
        """See the port."""
        return self._accept(lambda: self._ledger.append(path, records))

    def forget(self, path: str) -> int:
        """See the port."""
        return self._accept(lambda: self._ledger.forget(path))

    def snapshot(self, path: str, records: Sequence[Any]) -> int:
        """See the port."""
        return self._accept(lambda: self._ledger.snapshot(path, records))

    def read(self, path: str) -> list[Any]:
        """See the port."""
        with self._reading:
            with self._lock:
                self._check_open()
                durable, expected = self._ledger.durable, self._ledger.liveness.count(path)
                start = self._ledger.liveness.start(path)
                if start is None:
                    return []
                waiting = [each for each in self._ledger.pending if each.path == path and each.sequence >= start]
            try:
                found = database.of_path(self._reader, path, start, durable)
            except sqlite3.Error as error:
                raise JournalLost(f"{self._file} cannot be read any more: {error}") from error
        return self._ledger.decode(path, [*found, *waiting], expected)

    def paths(self) -> list[str]:
        """See the port."""
        with self._lock:
            return self._ledger.liveness.paths()

    def watch(self, changed: Callable[[], None]) -> None:
        """See the port."""
        self._watchers.append(changed)

    def close(self) -> None:
        """See the port."""
        if self._closed:
            return
        with self._lock:
            self._closed = True
            self._closing.set()
            self._queued.notify()
        self._thread.join()
        with self._reading:
            self._reader.close()
        self._writer.close()
        self._lock_file.release()

    def statistics(self) -> JournalStatistics:
        """See the port."""
        with self._lock:
            return JournalStatistics(
                appended=self._ledger.appended,
                durable=self._ledger.durable,
                uncommitted_bytes=self._ledger.uncommitted_bytes,
                entries=self._entries,
                live=self._ledger.liveness.live,
                commits=self._commits,
                bytes_written=self._bytes_written,
                largest_batch=self._largest_batch,
                retries=self._retries,
                compactions=self._compactions,
                file_bytes=files.size_bytes(self._file),
                sync_ns_max=self._sync_ns_max,
                stalled=self.status is not JournalStatus.READY,
            )

    # The caller's side

    def _check_open(self) -> None:
        if self._closed:
            raise JournalClosed("the journal is closed")

    def _accept(self, accept: Callable[[], object]) -> int:
        with self._lock:
            self._check_open()
            if self._lost is not None:
                raise JournalLost(f"the journal can no longer be written: {self._lost}") from self._lost
            before = self.status
            accept()
            self._queued.notify()
            appended, changed = self._ledger.appended, self.status is not before
        if changed:
            self._changed()
        return appended

    def _changed(self) -> None:
        for changed in self._watchers:
            changed()

    # The writer's side: all below runs in its thread

    def _write(self) -> None:
        try:
            while batch := self._next_batch():
                if not self._commit_at_last(batch):
                    return
                self._tend()
        except Exception as error:  # noqa: BLE001 - whatever ends the writer must be seen as LOST, not as silence
            self._lost = error
            self._changed()

    def _next_batch(self) -> list[Entry]:
        """Wait for entries and give all of them; none when the journal is closed and all are written."""
        with self._queued:
            self._queued.wait_for(lambda: self._ledger.pending or self._closed)
            return self._ledger.batch()

    def _commit_at_last(self, batch: list[Entry]) -> bool:
        """Commit ``batch``, as often as a full disk or a busy file takes. Gives False if closed before it
        worked.
        """
        rows = seal(self._digest, batch)
        pause_s = RETRY_PAUSE_FIRST_S
        while True:
            last_attempt = self._closing.is_set()
            try:
                self._commit(rows)
            except sqlite3.Error as error:
                if not (database.out_of_space(error) or database.busy(error)):
                    raise
                self._retries += 1
                full = database.out_of_space(error)
                if full:
                    self._free_bytes = files.free_bytes(self._file)
                self._set_full(full)
            else:
                break
            if last_attempt:
                return False
            self._closing.wait(pause_s)
            pause_s = min(2 * pause_s, RETRY_PAUSE_MAX_S)
        self._digest = rows[-1][4]
        if self._options.replica is not None and not self._replicate(self._options.replica, batch):
            return False
        self._settle(batch)
        return True

    def _replicate(self, replica: Replica, batch: list[Entry]) -> bool:
        """Have the second copy take a batch, as often as it takes. Gives False if closed before it worked."""
        pause_s = RETRY_PAUSE_FIRST_S
        while True:
            last_attempt = self._closing.is_set()
            try:
                replica.write(batch, batch[-1].sequence)
            except ReplicaUnreachable as error:
                self._retries += 1
                self._unreachable = str(error)
            else:
                self._unreachable = ""
                replica.mark(self._file.parent)
                return True
            if last_attempt:
                return False
            self._closing.wait(pause_s)
            pause_s = min(2 * pause_s, RETRY_PAUSE_MAX_S)

    def _commit(self, rows: list[tuple[int, str, str, str, bytes]]) -> None:
        began = time.monotonic_ns()
        self._writer.execute("begin immediate")
        try:
            database.write(self._writer, rows)
            if self._options.before_commit is not None:
                self._options.before_commit()
            self._writer.execute("commit")
        except BaseException:
            if self._writer.in_transaction:  # on some errors SQLite has rolled back already
                self._writer.execute("rollback")
            raise
        self._sync_ns_max = max(self._sync_ns_max, time.monotonic_ns() - began)

    def _settle(self, batch: list[Entry]) -> None:
        size_bytes = sum(entry.size_bytes for entry in batch)
        with self._lock:
            self._ledger.settle(batch)
            self._entries += len(batch)
            self._commits += 1
            self._bytes_written += size_bytes
            self._largest_batch = max(self._largest_batch, len(batch))
            self._full = False
        self._log_pages += _PAGES_PER_COMMIT + 2 * size_bytes // _PAGE_BYTES
        self._changed()

    def _set_full(self, full: bool) -> None:
        if self._full is not full:
            self._full = full
            self._changed()

    def _tend(self) -> None:
        """Do what keeps the file small. For lack of space it is put off: it is no harm but to the file's
        size.
        """
        try:
            if self._log_pages >= CHECKPOINT_PAGES:
                database.checkpoint(self._writer)
                self._log_pages = 0
            replica = self._options.replica
            if replica is not None:
                self._tend_replica(replica)
            superseded = self._entries + len(self._ledger.pending) - self._ledger.liveness.live
            if superseded >= max(self._compact_next, self._ledger.liveness.live):
                self._compact()
        except (sqlite3.Error, OSError) as error:
            if not (database.out_of_space(error) or database.busy(error)):
                raise
            self._retries += 1
            # Not again after the next batch: a failed attempt costs as much as one that works.
            self._compact_next = self._entries + self._options.compact_after

    def _tend_replica(self, replica: Replica) -> None:
        try:
            if replica.wants_base:
                liveness = Liveness()
                database.verify(self._writer, liveness.apply)
                replica.write_base(database.survivors(self._writer, liveness), self._ledger.durable)
                replica.mark(self._file.parent)
            replica.tidy()
        except ReplicaUnreachable:
            self._retries += 1  # later, again

    def _compact(self) -> None:
        """Copy what counts to a new file that continues the chain, and go on there."""
        liveness = Liveness()
        chain = database.verify(self._writer, liveness.apply)
        file = files.database(self._file.parent, files.generation_of(self._file) + 1)
        base = Base(chain.digest, chain.last)
        count, digest = database.create(file, base, database.survivors(self._writer, liveness), self._options.step)
        try:
            writer, reader = database.connect(file), database.connect(file, readonly=True)
        except (sqlite3.Error, OSError) as error:
            # The new file is the journal already: to go on in the old one would lose what is written there.
            raise JournalLost(f"{file} cannot be opened: {error}") from error
        with self._reading:
            old_writer, old_reader, self._writer, self._reader = self._writer, self._reader, writer, reader
            with self._lock:
                self._file, self._entries = file, count
                self._compactions += 1
        self._digest, self._log_pages, self._compact_next = digest, 0, self._options.compact_after
        old_reader.close()
        old_writer.close()
        for leftover in files.leftovers(file.parent, file):
            leftover.unlink(missing_ok=True)
            self._options.step(f"{leftover.name} removed")


def _restored(folder: Path, file: Path | None, replica: Replica, step: database.Step) -> Path | None:
    """Return the file to open: the present one if it is where the replica is, or else one that is made from that."""
    replica.look()
    reach = _reach(file) if file is not None else 0
    if reach is not None and replica.continues(Mark.read(folder), identity_of(folder), reach):
        return file
    entries = replica.restore()
    restored = files.database(folder, files.generation_of(file) + 1 if file is not None else 1)
    base = Base(bytes.fromhex(replica.head.digest), replica.head.through)
    database.create(restored, base, entries, step)
    if file is not None:
        files.set_aside(file)
    return restored


def _reach(file: Path) -> int | None:
    """Return the last sequence that a file speaks for; None if that cannot be read."""
    try:
        reader = database.connect(file, readonly=True)
    except (sqlite3.Error, OperationError):
        return None
    try:
        return database.reach(reader)
    except (sqlite3.Error, JournalCorrupt):
        return None
    finally:
        reader.close()


def _take_over(folder: Path, writer: sqlite3.Connection, replica: Replica, through: int) -> None:
    """Become the replica's writer, and give it what was committed here and not there.

    Where compaction has dropped entries that it never had, forgets among them, a base stands for everything.
    """
    had = replica.head.through
    replica.join(folder)
    if database.base_of(writer).through > had:
        replica.take_over((), had)
        liveness = Liveness()
        database.verify(writer, liveness.apply)
        replica.write_base(database.survivors(writer, liveness), through)
    else:
        replica.take_over(database.after(writer, had), through)
    replica.mark(folder)
