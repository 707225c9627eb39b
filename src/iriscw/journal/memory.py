"""A journal for simulations: a disk that loses what a disk loses, when the simulation says so.

A :class:`MemoryDisk` is what survives a crash; a :class:`MemoryJournal` writes to it. Records are encoded and
decoded for real, so that every simulation proves the codecs. With ``auto=True`` entries are durable at once,
unless the disk is stalled, full or lost; without it the simulation decides::

    disk = MemoryDisk()
    journal = MemoryJournal(disk)
    journal.append("/jobs", [fact_1, fact_2, fact_3])
    journal.commit(1)                         # durable: fact_1
    disk.crash(keep=1)                        # fact_2 had reached the disk, unacknowledged; fact_3 had not
    journal = MemoryJournal(disk)             # the next process
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from iriscw._errors import InvalidArgument, JournalLocked, JournalLost
from iriscw.journal.entries import EMPTY_SNAPSHOT, Entry, EntryKind
from iriscw.journal.errors import JournalClosed
from iriscw.journal.ledger import Ledger
from iriscw.journal.liveness import Liveness
from iriscw.journal.port import DEFAULT_BOUND_BYTES, JournalStatistics, JournalStatus
from iriscw.journal.records import REGISTRY, RecordRegistry

_READY = JournalStatus.READY
"""Asked for more often than all else here; in Python 3.11 looking a member of an enum up costs as much as a call."""

COMPACT_AFTER = 1_000
"""Superseded entries that a disk keeps at least: small, so that long simulations stay small."""


class MemoryDisk:
    """What survives a crash: the durable entries. At most one journal writes to it."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.last = 0
        """Sequence of the last durable entry."""
        self.compactions = 0
        self.writer: MemoryJournal | None = None

    def pending_commits(self) -> int:
        """Return how many entries are accepted and not durable."""
        return self.writer.pending_commits() if self.writer is not None else 0

    def crash(self, keep: int = 0) -> None:
        """End the process that writes. The first ``keep`` of the entries that were not durable reached the
        disk.

        Raises:
            InvalidArgument: there are fewer than ``keep`` such entries.
        """
        if not 0 <= keep <= self.pending_commits():
            raise InvalidArgument(f"keep is {keep}: {self.pending_commits()} entries wait to be committed")
        if self.writer is not None:
            self.write(self.writer.end()[:keep])

    def write(self, entries: Sequence[Entry]) -> None:
        """Make ``entries`` durable."""
        self.entries.extend(entries)
        if entries:
            self.last = entries[-1].sequence

    def compact(self) -> None:
        """Drop superseded entries."""
        liveness = Liveness()
        for entry in self.entries:
            liveness.apply(entry)
        self.entries = [entry for entry in self.entries if liveness.counts(entry)]
        self.compactions += 1


class MemoryJournal:
    """A :class:`~iriscw.journal.port.Journal` over a :class:`MemoryDisk`, driven by the simulation.

    Raises:
        JournalLocked: another journal writes to the disk: close it, or crash the disk.
        UnreadableRecord: never here, but by :meth:`read`.
    """

    def __init__(
        self,
        disk: MemoryDisk,
        *,
        auto: bool = False,
        bound_bytes: int = DEFAULT_BOUND_BYTES,
        registry: RecordRegistry = REGISTRY,
    ) -> None:
        if disk.writer is not None:
            raise JournalLocked("another journal writes to this disk")
        disk.writer = self
        self._disk = disk
        self._auto = auto
        self._bound_bytes = bound_bytes
        self._ledger = Ledger(registry, disk.last)
        self.pending = self._ledger.pending
        """The entries that are accepted and not durable, to look at."""
        self.moves = 0
        """Grows with everything that may change what there is to read here: :attr:`appended`, :attr:`status`."""
        self._entries: dict[str, list[Entry]] = {}
        self._watchers: list[Callable[[], None]] = []
        self._closed = self._stalled = self._full = self._lost = False
        self._commits = self._bytes_written = self._largest_batch = self._retries = 0
        for entry in disk.entries:
            self._index([entry])
            self._drop(self._ledger.liveness.apply(entry))

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
        if self._lost:
            return JournalStatus.LOST
        if self._full:
            return JournalStatus.FULL
        if self._ledger.uncommitted_bytes >= self._bound_bytes:
            return JournalStatus.STALLED
        return _READY

    @property
    def trouble(self) -> str:
        """See the port."""
        return {
            JournalStatus.READY: "",
            JournalStatus.STALLED: "the simulated disk of the journal does not keep up",
            JournalStatus.FULL: "the simulated disk of the journal is full",
            JournalStatus.LOST: "the simulated disk of the journal failed",
        }[self.status]

    @property
    def uncommitted_bytes(self) -> int:
        """See the port."""
        return self._ledger.uncommitted_bytes

    def append(self, path: str, records: Sequence[Any]) -> int:
        """See the port."""
        self._check_accepting()
        before = self.status
        self._index(self._ledger.append(path, records))
        return self._accepted(before)

    def forget(self, path: str) -> int:
        """See the port."""
        self._check_accepting()
        before = self.status
        self._drop(self._ledger.forget(path))
        return self._accepted(before)

    def snapshot(self, path: str, records: Sequence[Any]) -> int:
        """See the port."""
        self._check_accepting()
        before = self.status
        self._index([self._ledger.snapshot(path, records)])
        return self._accepted(before)

    def read(self, path: str) -> list[Any]:
        """See the port."""
        self._check_open()
        return self._ledger.decode(path, self._entries.get(path, []), self._ledger.liveness.count(path))

    def paths(self) -> list[str]:
        """See the port."""
        return self._ledger.liveness.paths()

    def watch(self, changed: Callable[[], None]) -> None:
        """See the port."""
        self._watchers.append(changed)

    def close(self) -> None:
        """See the port. What is stalled, full or lost commits nothing more."""
        if self._closed:
            return
        self.commit()
        self.end()

    def statistics(self) -> JournalStatistics:
        """See the port. A commit takes no time here, and the file is what its entries count."""
        return JournalStatistics(
            appended=self.appended,
            durable=self.durable,
            uncommitted_bytes=self.uncommitted_bytes,
            entries=len(self._disk.entries),
            live=self._ledger.liveness.live,
            commits=self._commits,
            bytes_written=self._bytes_written,
            largest_batch=self._largest_batch,
            retries=self._retries,
            compactions=self._disk.compactions,
            file_bytes=sum(entry.size_bytes for entry in self._disk.entries),
            sync_ns_max=0,
            stalled=self.status is not JournalStatus.READY,
        )

    # What the simulation does

    def pending_commits(self) -> int:
        """Return how many entries are accepted and not durable."""
        return len(self.pending)

    def commit(self, n: int | None = None) -> int:
        """Make the first ``n`` waiting entries durable, or all; none while the disk is stalled, full or lost.

        Returns:
            The watermark.
        """
        batch = self._ledger.batch(n)
        if self._full and batch:
            self._retries += 1
        if not batch or self._stalled or self._full or self._lost:
            return self.durable
        self._disk.write(batch)
        self._ledger.settle(batch)
        self._commits += 1
        self._bytes_written += sum([entry.size_bytes for entry in batch])
        self._largest_batch = max(self._largest_batch, len(batch))
        superseded = len(self._disk.entries) + self.pending_commits() - self._ledger.liveness.live
        if superseded >= max(COMPACT_AFTER, self._ledger.liveness.live):
            self._disk.compact()
        self._changed()
        return self.durable

    def stall(self) -> None:
        """Let the disk hang: nothing becomes durable until :meth:`resume`."""
        self._stalled = True

    def resume(self) -> None:
        """End a stall."""
        self._stalled = False
        self._continue()

    def fill(self) -> None:
        """Let the disk be full until :meth:`free`."""
        self._full = True
        self._changed()

    def free(self) -> None:
        """Make room again."""
        self._full = False
        self._changed()
        self._continue()

    def lose(self) -> None:
        """Let a sync fail: nothing more becomes durable, ever. :meth:`MemoryDisk.crash` says what had reached
        the disk.
        """
        self._lost = True
        self._changed()

    def end(self) -> list[Entry]:
        """End this journal's process without another write.

        Returns:
            The entries that were not durable.
        """
        self._closed = True
        if self._disk.writer is self:
            self._disk.writer = None
        return self._ledger.batch()

    # Inside

    def _check_open(self) -> None:
        if self._closed:
            raise JournalClosed("the journal is closed")

    def _check_accepting(self) -> None:
        self._check_open()
        if self._lost:
            raise JournalLost("a sync of the journal failed")

    def _accepted(self, before: JournalStatus) -> int:
        self.moves += 1
        self._continue()
        if self.status is not before:
            self._changed()
        return self.appended

    def _index(self, entries: Sequence[Entry]) -> None:
        """Keep entries for reading."""
        for entry in entries:
            if entry.kind == EntryKind.RECORD:
                self._entries.setdefault(entry.path, []).append(entry)
            elif entry.kind == EntryKind.SNAPSHOT:
                self._entries[entry.path] = [] if entry.payload == EMPTY_SNAPSHOT else [entry]

    def _drop(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._entries.pop(path, None)

    def _continue(self) -> None:
        if self._auto:
            self.commit()

    def _changed(self) -> None:
        self.moves += 1
        for changed in self._watchers:
            changed()
