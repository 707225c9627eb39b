"""What has been accepted: the part that every journal shares.

Gives sequences, encodes, keeps what is not durable yet, counts bytes, and knows which entries count. No disk,
no threads: :mod:`iriscw.journal.memory` uses it as it is, :mod:`iriscw.journal.sqlite` under a lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any

from iriscw._errors import JournalCorrupt
from iriscw.journal.entries import Entry, EntryKind, check_path
from iriscw.journal.liveness import Liveness
from iriscw.journal.records import RecordRegistry


class Ledger:
    """Accepted entries, from the first to the last; the durable ones are known by their count only."""

    def __init__(self, registry: RecordRegistry, appended: int = 0, liveness: Liveness | None = None) -> None:
        self.registry = registry
        self.liveness = liveness or Liveness()
        self.appended = appended
        self.durable = appended
        self.pending: deque[Entry] = deque()
        self.uncommitted_bytes = 0

    def append(self, path: str, records: Sequence[Any]) -> list[Entry]:
        """Accept records, all or none. Gives their entries."""
        self._check(path)
        payloads = [self.registry.encode(record) for record in records]
        entries = [self._accept(path, EntryKind.RECORD, payload) for payload in payloads]
        for entry in entries:
            self.liveness.apply(entry)
        return entries

    def snapshot(self, path: str, records: Sequence[Any]) -> Entry:
        """Accept a snapshot. Gives its entry."""
        self._check(path)
        entry = self._accept(path, EntryKind.SNAPSHOT, self.registry.encode_snapshot(records))
        self.liveness.apply(entry)
        return entry

    def forget(self, path: str) -> list[str]:
        """Accept a forget. Gives the paths that it forgot."""
        self._check(path)
        return self.liveness.apply(self._accept(path, EntryKind.FORGET, ""))

    def _check(self, path: str) -> None:
        if path not in self.liveness:
            check_path(path)

    def _accept(self, path: str, kind: EntryKind, payload: str) -> Entry:
        self.appended += 1
        entry = Entry(self.appended, str(path), kind, payload)
        self.pending.append(entry)
        self.uncommitted_bytes += entry.size_bytes
        return entry

    def batch(self, count: int | None = None) -> list[Entry]:
        """Return the first ``count`` entries that are not durable; all of them without a count."""
        return list(islice(self.pending, count))

    def settle(self, batch: Sequence[Entry]) -> None:
        """Note that ``batch``, the first entries that were not durable, now is."""
        for entry in batch:
            self.pending.popleft()
            self.uncommitted_bytes -= entry.size_bytes
            self.durable = entry.sequence

    def decode(self, path: str, entries: Sequence[Entry], expected: int) -> list[Any]:
        """Return the records of ``entries``, which are all that count for ``path``.

        Raises:
            JournalCorrupt: there are not ``expected`` of them.
            UnreadableRecord: one cannot be decoded.
        """
        if len(entries) != expected:
            first = entries[0].sequence if entries else 0
            raise JournalCorrupt(f"{path} has {len(entries)} entries from sequence {first}, {expected} were written")
        return [record for entry in entries for record in self.registry.decode(entry)]
