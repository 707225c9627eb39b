"""Timers: one heap for all actors, checked by generation when they are delivered.

Cancelling does not search the heap. Each timer has a generation; the cell knows which generation of a key is current,
and an entry of another generation is dropped when it comes up. So that dropped entries cannot pile up (a timer that is
set again a thousand times a second leaves a thousand of them), the heap is swept when most of it is stale.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, TypeAlias

Entry: TypeAlias = tuple[int, int, Any, Any, int]
"""Due time in ns, sequence, the cell or callback, key, generation."""

SWEEP_FLOOR = 1024
"""Below this many stale entries a sweep costs more than it frees."""


class TimerQueue:
    """Timers of one clock, earliest first; equal times in the order in which they were set."""

    __slots__ = ("_sequence", "earlier", "heap", "stale")

    def __init__(self) -> None:
        self.heap: list[Entry] = []
        """The earliest first; always the same list."""
        self._sequence = 0
        self.earlier = False
        """Whether a timer was set that is due before all others; for whoever sleeps until :attr:`next_due`."""
        self.stale = 0
        """Entries known to be cancelled."""

    def __len__(self) -> int:
        return len(self.heap)

    @property
    def next_due(self) -> int | None:
        """When the earliest entry is due, in ns; it may be a cancelled one."""
        return self.heap[0][0] if self.heap else None

    def add(self, due: int, target: Any, key: Any, generation: int) -> None:
        """Set a timer for ``due`` ns."""
        self._sequence += 1
        heap = self.heap
        heapq.heappush(heap, (due, self._sequence, target, key, generation))
        if heap[0][1] == self._sequence:
            self.earlier = True

    def pop(self, now: int) -> Entry | None:
        """Take the earliest entry that is due, or None."""
        if self.heap and self.heap[0][0] <= now:
            return heapq.heappop(self.heap)
        return None

    def cancelled(self, current: Callable[[Entry], bool]) -> None:
        """Count one more stale entry, and sweep when they are the majority."""
        self.stale += 1
        if self.stale > SWEEP_FLOOR and self.stale * 2 > len(self.heap):
            self.heap[:] = [entry for entry in self.heap if current(entry)]
            heapq.heapify(self.heap)
            self.stale = 0
