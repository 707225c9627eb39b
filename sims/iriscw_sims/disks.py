"""A simulated disk that shows what becomes durable, as it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from iriscw.journal.entries import Entry, EntryKind
from iriscw.journal.memory import MemoryDisk
from iriscw.journal.records import REGISTRY

_RECORD = EntryKind.RECORD


class WatchedDisk(MemoryDisk):
    """A disk that shows each record as it becomes durable."""

    written: Callable[[str, Any], None] | None = None

    def write(self, entries: Sequence[Entry]) -> None:
        """Write, and show what was written."""
        super().write(entries)
        for entry in entries:
            if entry.kind == _RECORD and self.written is not None:
                for record in REGISTRY.decode(entry):
                    self.written(entry.path, record)
