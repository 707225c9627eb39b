"""A link that bodies share: each gets the same part of its bandwidth, as TCP streams roughly do.

Theory of operation. The link counts how much one stream has been able to move since the beginning, in nanobytes: a
body that begins now is through when that count has grown by its length. So the bodies under way are a heap by the count
at which each is through, and neither a start nor an end has to touch the others. All of it is integer arithmetic: the
same on every machine.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Protocol

import attrs

from iriscw._errors import InvalidArgument
from iriscw.runtime.vocabulary import SECOND


class Clock(Protocol):
    """The part of a world's surroundings that a link needs."""

    @property
    def now(self) -> int:
        """The time in ns."""
        ...

    def after(self, delay_ns: int, function: Callable[..., object], *args: object) -> None:
        """Call a function later."""
        ...


@attrs.define(eq=False)
class Transfer:
    """A body under way."""

    length: int
    begun: int
    """The link's count at its beginning, nanobytes."""
    through: Callable[[], None]
    over: bool = False


class Link:
    """One direction of a connection to the storage.

    Args:
        clock: whose time counts.
        bytes_per_s: of all bodies together.
        stream_bytes_per_s: of one body at most; 0: no bound of its own.

    Raises:
        InvalidArgument: a bandwidth that is not above 0.
    """

    def __init__(self, clock: Clock, bytes_per_s: int, stream_bytes_per_s: int = 0) -> None:
        if bytes_per_s <= 0 or stream_bytes_per_s < 0:
            raise InvalidArgument(f"no bandwidth: {bytes_per_s} bytes/s, {stream_bytes_per_s} for one stream")
        self._clock = clock
        self._bytes_per_s = bytes_per_s
        self._stream = stream_bytes_per_s or bytes_per_s
        self._moved = 0
        """What one stream could have moved since the beginning, nanobytes."""
        self._at = clock.now
        self._serial = 0
        self._alarm = 0
        """The number of the last timer that was set: earlier ones count for nothing."""
        self._active = 0
        self._heap: list[tuple[int, int, Transfer]] = []

    @property
    def active(self) -> int:
        """How many bodies are under way."""
        return self._active

    def start(self, length: int, through: Callable[[], None]) -> Transfer:
        """Send a body of ``length`` bytes; ``through`` is called once all of it has been moved, never at once."""
        self._advance()
        transfer = Transfer(length, self._moved, through)
        self._serial += 1
        heapq.heappush(self._heap, (self._moved + length * SECOND, self._serial, transfer))
        self._active += 1
        self._set_alarm()
        return transfer

    def cancel(self, transfer: Transfer) -> int:
        """End a transfer before its time, if it is not over, and give how many bytes were moved."""
        if transfer.over:
            return transfer.length
        self._advance()
        transfer.over = True
        self._active -= 1
        self._set_alarm()
        return min(transfer.length, (self._moved - transfer.begun) // SECOND)

    def _rate(self) -> tuple[int, int]:
        """Return the bandwidth of one stream as a fraction, bytes/s."""
        if self._bytes_per_s < self._stream * self._active:
            return self._bytes_per_s, self._active
        return self._stream, 1

    def _advance(self) -> None:
        elapsed, self._at = self._clock.now - self._at, self._clock.now
        if self._active:
            bandwidth, sharers = self._rate()
            self._moved += elapsed * bandwidth // sharers

    def _set_alarm(self) -> None:
        while self._heap and self._heap[0][2].over:
            heapq.heappop(self._heap)
        self._alarm += 1
        if self._heap:
            bandwidth, sharers = self._rate()
            missing = max(0, self._heap[0][0] - self._moved)
            self._clock.after(-(-missing * sharers // bandwidth), self._ring, self._alarm)

    def _ring(self, alarm: int) -> None:
        if alarm != self._alarm:
            return
        self._advance()
        done: list[Transfer] = []
        while self._heap and (self._heap[0][2].over or self._heap[0][0] <= self._moved):
            transfer = heapq.heappop(self._heap)[2]
            if not transfer.over:
                transfer.over = True
                self._active -= 1
                done.append(transfer)
        self._set_alarm()
        for transfer in done:
            transfer.through()
