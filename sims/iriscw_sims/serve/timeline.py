"""Simulated time that runs by itself, real or faster, and what is due in it.

Theory of operation. A :class:`Clock` says which simulated moment it should be by now. A :class:`Timeline` goes there,
from timer to timer: while one runs, it is exactly the moment for which it was set, however late the machine is. Time
never passes a timer that has not run. So a machine that is too slow for its speed has a slower simulation, not one in
which things happen in the wrong order; :attr:`Timeline.behind` says by how much.

Timers of the same moment run in the order in which they were set.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any

import attrs

from iriscw._errors import OperationError

TIMERS_LIMIT = 1_000_000
"""Timers that wait: a few for each pod and node of a fleet of a hundred thousand."""


class TooManyTimers(OperationError):
    """The simulated cluster has more things to come than any of its size may have: one of its parts runs away."""


class Clock:
    """Which moment of simulated time it should be.

    Args:
        start: The first moment, in ns since 1970.
        monotonic_ns: Real time, from any beginning.
        speed: Simulated per real time.
    """

    def __init__(self, start: int, monotonic_ns: Callable[[], int], speed: float) -> None:
        self._start = start
        self._monotonic_ns = monotonic_ns
        self._began = monotonic_ns()
        self.speed = speed

    def target(self) -> int:
        """Return the moment that it should be now, in ns since 1970."""
        return self._start + int((self._monotonic_ns() - self._began) * self.speed)

    def real_s(self, span: int) -> float:
        """Return how many real seconds a simulated span in ns takes."""
        return span / self.speed / 1e9


@attrs.frozen(order=False)
class Timer:
    """Something that happens at ``due``, in ns since 1970."""

    due: int
    function: Callable[..., object]
    arguments: tuple[Any, ...]

    def run(self) -> None:
        """Let it happen."""
        self.function(*self.arguments)


class Timeline:
    """The simulated moment, and the timers that lie before it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._now = clock.target()
        self._heap: list[tuple[int, int, Timer]] = []
        self._numbers = itertools.count()
        self.sooner: Callable[[], object] = lambda: None
        """Called when a timer was set that is due before all others: whoever waits for the next one waits too long."""

    @property
    def now(self) -> int:
        """The moment that was reached, in ns since 1970."""
        return self._now

    @property
    def waiting(self) -> int:
        """How many timers wait."""
        return len(self._heap)

    @property
    def behind(self) -> int:
        """How far the moment lies behind what the clock says, in simulated ns."""
        return max(0, self.clock.target() - self._now)

    def after(self, delay: int, function: Callable[..., object], *arguments: Any) -> None:
        """Call ``function(*arguments)`` in ``delay`` ns; what lies in the past is due now.

        Raises:
            TooManyTimers: :data:`TIMERS_LIMIT` wait already.
        """
        if len(self._heap) >= TIMERS_LIMIT:
            raise TooManyTimers(f"{TIMERS_LIMIT} timers wait already")
        timer = Timer(self._now + max(0, delay), function, arguments)
        heapq.heappush(self._heap, (timer.due, next(self._numbers), timer))
        if self._heap[0][2] is timer:
            self.sooner()

    def catch_up(self) -> int:
        """Go to the clock's moment, but not past the next timer; give the moment."""
        until = self.clock.target()
        if self._heap:
            until = min(until, self._heap[0][0])
        self._now = max(self._now, until)
        return self._now

    def take(self) -> Timer | None:
        """Go to the next timer that is due by the clock and give it, or go to the clock's moment."""
        if self._heap and self._heap[0][0] <= self.clock.target():
            due, _, timer = heapq.heappop(self._heap)
            self._now = max(self._now, due)
            return timer
        self.catch_up()
        return None

    def next_s(self) -> float | None:
        """Return the real seconds until the next timer is due, None if there is none."""
        if not self._heap:
            return None
        return max(0.0, self.clock.real_s(self._heap[0][0] - self.clock.target()))
