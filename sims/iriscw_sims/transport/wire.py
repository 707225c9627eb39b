"""One direction of a TCP connection: parcels that arrive in order, late, or not at all.

Theory of operation. A parcel is a piece of data, or a signal (an acknowledgement, an end, a reset). It leaves when
the parcels before it have left, at the wire's bandwidth, and arrives after a latency that is drawn anew for each; none
overtakes another. What TCP guarantees holds: a stream's bytes arrive in order and once, or the connection breaks and
the receiver has some prefix of them. Nobody chooses which: the wire draws where a segment is cut.

A *stalled* wire holds what arrives, as a partition does: the sender's kernel sends it again and again, ever rarer,
so that after the partition it comes late. A *dead* wire swallows all for good, and nobody is told: the half-open
connection that a vanished peer or a forgetful middlebox leaves behind.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

import attrs

from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.transport.loop import VirtualLoop

MAX_SEGMENT_BYTES = 64 << 10
"""The largest piece that arrives in one go: what Linux collects for a reader (GRO)."""

HEADER_BYTES = 60
"""Of each segment, on the wire."""

LONGEST_RETRANSMISSION_S = 120.0
"""Between two attempts of a kernel (Linux: ``TCP_RTO_MAX``)."""


@attrs.frozen(kw_only=True)
class Weather:
    """How good the network is. Times in seconds, drawn evenly between the two numbers of a pair."""

    latency_s: tuple[float, float] = (0.0001, 0.002)
    """One way. A data centre's, with what its hosts add."""

    bytes_per_s: float = 1e9
    window_bytes: int = 256 << 10
    """What may be on the way or unread, in each direction (Linux begins with 64 KiB and grows it)."""

    cuts: float = 0.2
    """How often a segment is cut in two at a drawn place: readers must not take segments for messages."""


@attrs.define(eq=False)
class Parcel:
    """Something on its way."""

    deliver: Callable[[bytes], None]
    data: bytes
    """Empty: a signal."""
    lost: bool = False


class Wire:
    """One direction.

    Args:
        loop: whose clock counts.
        rng: draws latencies and cuts.
        weather: gives the present weather.
    """

    def __init__(self, loop: VirtualLoop, rng: random.Random, weather: Callable[[], Weather]) -> None:
        self._loop = loop
        self._rng = rng
        self._weather = weather
        self._on_the_way: deque[Parcel] = deque()
        self._arrived = 0
        """Parcels at the head of the queue that have arrived and are held by a stall."""
        self._busy_until_ns = 0
        self._last_ns = 0
        self._stalled_at_ns: int | None = None
        self._healing = False
        self._dead = False
        self._garbling = False

    @property
    def carries(self) -> bool:
        """Whether what is sent now arrives."""
        return not self._dead and self._stalled_at_ns is None

    def send(self, deliver: Callable[[bytes], None], data: bytes = b"") -> None:
        """Put a signal or some data on its way; ``deliver`` is called for each segment that arrives."""
        if not data:
            self._post(Parcel(deliver, b""))
        position = 0
        while position < len(data):
            size = min(len(data) - position, MAX_SEGMENT_BYTES)
            if size > 1 and self._rng.random() < self._weather().cuts:
                size = self._rng.randint(1, size - 1)
            self._post(Parcel(deliver, bytes(data[position : position + size])))
            position += size

    def _post(self, parcel: Parcel) -> None:
        if self._dead:
            return
        if self._garbling and parcel.data:
            self._garbling = False
            at = self._rng.randrange(len(parcel.data))
            changed = bytes([parcel.data[at] ^ 1 << self._rng.randrange(8)])
            parcel.data = parcel.data[:at] + changed + parcel.data[at + 1 :]
        weather, now_ns = self._weather(), self._loop.now_ns
        leaves_ns = max(now_ns, self._busy_until_ns)
        self._busy_until_ns = leaves_ns + round((len(parcel.data) + HEADER_BYTES) / weather.bytes_per_s * SECOND)
        latency_ns = round(self._rng.uniform(*weather.latency_s) * SECOND)
        self._last_ns = max(self._last_ns, self._busy_until_ns + latency_ns)
        self._on_the_way.append(parcel)
        self._loop.call_at(self._last_ns / SECOND, self._arrive, parcel)

    def _arrive(self, parcel: Parcel) -> None:
        if parcel.lost:
            return
        if self._arrived or self._stalled_at_ns is not None or self._healing:
            self._arrived += 1
        else:
            self._deliver()

    def _deliver(self) -> None:
        parcel = self._on_the_way.popleft()
        parcel.deliver(parcel.data)

    # What goes wrong

    def stall(self) -> None:
        """Hold all that arrives."""
        if self._stalled_at_ns is None:
            self._stalled_at_ns = self._loop.now_ns

    def heal(self) -> None:
        """Let what was held through, when the sender's kernel tries again."""
        if self._stalled_at_ns is None:
            return
        stalled_s = (self._loop.now_ns - self._stalled_at_ns) / SECOND
        self._stalled_at_ns = None
        self._healing = True
        self._loop.call_later(self._rng.uniform(0, min(stalled_s, LONGEST_RETRANSMISSION_S)), self._retransmitted)

    def _retransmitted(self) -> None:
        if self._stalled_at_ns is not None:
            return  # stalled again; the next heal tries again
        self._healing = False
        while self._arrived:
            self._arrived -= 1
            self._deliver()

    def die(self) -> None:
        """Swallow all that is on its way, and all that will be sent."""
        self._dead = True
        self._lose(len(self._on_the_way))

    def garble(self) -> None:
        """Change a drawn bit of the next segment: TCP's checksum does not see all, and somebody in between can."""
        self._garbling = True

    def cut(self) -> None:
        """Lose all that is on its way but for a drawn prefix, to the byte."""
        keep = self._rng.randint(0, len(self._on_the_way))
        lost = len(self._on_the_way) - keep
        self._lose(lost)
        if lost and keep and len(self._on_the_way[-1].data) > 1:
            last = self._on_the_way[-1]
            last.data = last.data[: self._rng.randint(1, len(last.data))]

    def _lose(self, count: int) -> None:
        for _ in range(count):
            self._on_the_way.pop().lost = True
        self._arrived = min(self._arrived, len(self._on_the_way))
