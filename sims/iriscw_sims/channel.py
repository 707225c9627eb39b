"""One direction of a connection: in order, late, and sometimes stuck.

What is put in comes out after the latency drawn for it and never before what was put in earlier. A channel that is
``held`` delivers nothing (a half-open connection); one that is closed has lost all that was still inside: an unknown
suffix, never a single item from the middle, as TCP does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from iriscw.testing.simulation import Simulation


class Channel:
    """A first-in-first-out line with a latency.

    Args:
        simulation: whose clock counts.
        latency: draws the latency of one item, ns.
        deliver: takes an item; False if there is no room now: then :meth:`pump` has to be called when there is.
    """

    def __init__(self, simulation: Simulation, latency: Callable[[], int], deliver: Callable[[Any], bool]) -> None:
        self.simulation = simulation
        self.latency = latency
        self.deliver = deliver
        self.held = False
        self.closed = False
        self._line: deque[tuple[int, Any]] = deque()
        self._last = 0

    def put(self, item: Any) -> None:
        """Send an item."""
        if self.closed:
            return
        now = self.simulation.clock.ns
        arrives = now + self.latency()
        if arrives < self._last:
            arrives = self._last
        self._last = arrives
        self._line.append((arrives, item))
        self.simulation.call_after(arrives - now, self.pump)

    def pump(self) -> None:
        """Deliver what is due and has room."""
        line, clock = self._line, self.simulation.clock
        while line and not self.held and not self.closed and line[0][0] <= clock.ns:
            first = line.popleft()
            if not self.deliver(first[1]):
                line.appendleft(first)
                return

    def release(self) -> None:
        """End the hold."""
        self.held = False
        self.pump()

    def drop(self) -> None:
        """Lose all that is inside."""
        self._line.clear()

    def close(self) -> None:
        """Lose all that is inside, and take nothing more."""
        self.closed = True
        self._line.clear()
