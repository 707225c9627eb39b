"""The gate before the fleet: how many workers shake hands at a time, and how many wait for it.

A controller that comes back meets all its workers at once. Each of them costs a question to the fleet, a file and some
messages. The gate lets a bounded number do that at a time, in the order of their Hellos, and keeps a bounded number
waiting on their open streams. Those beyond are told when to come back: after about the time that the queue before them
takes, each later than the one before, so that they return as a stream and not as another storm.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import attrs

MAX_HANDSHAKES = 32
"""Workers between Hello and Welcome. Their files are read by about as many threads (anyio's default: 40)."""

MAX_WAITING = 6_000
"""Workers that wait for their turn. At 3 ms each, on a slow machine, the last one waits 18 s of its 30 s.

To wait is cheaper than to come back, which costs both sides a second call."""

RETRY_AFTER_MS = 500
"""When the first worker beyond the queue dials again."""

RETRY_SLOPE_MS = 2
"""How much later each next one: about what one handshake takes."""

MAX_RETRY_AFTER_MS = 10_000
"""The slope ends here: beyond, jitter spreads them."""


@attrs.frozen
class AdmissionStatistics:
    """What the gate has done and holds now."""

    admitted: int = 0
    turned_away: int = 0
    shaking_hands: int = 0
    waiting: int = 0
    most_waiting: int = 0


@attrs.frozen
class ComeBack:
    """There is no room to wait."""

    retry_after_ms: int


class AdmissionGate:
    """First come, first served; bounded in those inside and in those who wait.

    Args:
        handshakes: workers inside at a time.
        waiting: workers that wait.
    """

    def __init__(self, handshakes: int = MAX_HANDSHAKES, waiting: int = MAX_WAITING) -> None:
        self._handshakes = handshakes
        self._room = waiting
        self._inside = 0
        self._queue: OrderedDict[anyio.Event, None] = OrderedDict()
        self._admitted = 0
        self._turned_away = 0
        self._away_in_a_row = 0
        self._most_waiting = 0

    def statistics(self) -> AdmissionStatistics:
        """Return the counts of this moment."""
        return AdmissionStatistics(
            self._admitted, self._turned_away, self._inside, len(self._queue), self._most_waiting
        )

    @asynccontextmanager
    async def handshake(self) -> AsyncIterator[ComeBack | None]:
        """Wait for a turn and hold it for the block; or give when to come back, at once, with the block outside."""
        if self._inside >= self._handshakes and len(self._queue) >= self._room:
            yield self._turn_away()
            return
        await self._enter()
        try:
            yield None
        finally:
            self._leave()

    def _turn_away(self) -> ComeBack:
        self._turned_away += 1
        self._away_in_a_row += 1
        later = RETRY_SLOPE_MS * self._away_in_a_row
        return ComeBack(min(RETRY_AFTER_MS + later, MAX_RETRY_AFTER_MS))

    async def _enter(self) -> None:
        if self._inside < self._handshakes and not self._queue:
            self._inside += 1
        else:
            turn = anyio.Event()
            self._queue[turn] = None
            self._most_waiting = max(self._most_waiting, len(self._queue))
            try:
                await turn.wait()
            except BaseException:
                if turn.is_set():  # the place was handed over and nobody will use it
                    self._leave()
                else:
                    del self._queue[turn]
                raise
        self._admitted += 1

    def _leave(self) -> None:
        """Hand the place to the first in the queue: nobody who came later can take it in between."""
        if self._queue:
            self._queue.popitem(last=False)[0].set()
        else:
            self._inside -= 1
            self._away_in_a_row = 0
