"""A turnstile: so many newcomers in each turn of the event loop, in the order in which they came.

What thousands of peers ask for at once is ready in one turn of the loop, and the loop serves nobody else until that
turn is over. Behind a turnstile a turn takes a few of them; between two turns the loop looks at all other sockets and
timers. Nothing waits for a clock: an idle server lets newcomers in as fast as it can.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import attrs


@attrs.frozen
class TurnstileStatistics:
    """What a turnstile has done and holds now."""

    admitted: int
    waiting: int
    most_waiting: int
    most_in_turn: int


class Turnstile:
    """Runs at most ``per_turn`` functions in each turn of the running loop, first come, first served."""

    def __init__(self, per_turn: int) -> None:
        self._per_turn = per_turn
        self._queue: deque[Callable[[], None]] = deque()
        self._this_turn = 0
        self._turning = False
        self._admitted = 0
        self._most_waiting = 0
        self._most_in_turn = 0

    def statistics(self) -> TurnstileStatistics:
        """Give the counts of this moment."""
        return TurnstileStatistics(self._admitted, len(self._queue), self._most_waiting, self._most_in_turn)

    def enter(self, proceed: Callable[[], None]) -> bool:
        """Run ``proceed`` at once, or in a later turn; whether it ran. It must not raise."""
        if self._queue or self._this_turn >= self._per_turn:
            self._queue.append(proceed)
            self._most_waiting = max(self._most_waiting, len(self._queue))
            return False
        self._let_in(proceed)
        return True

    def _let_in(self, proceed: Callable[[], None]) -> None:
        self._this_turn += 1
        self._admitted += 1
        self._most_in_turn = max(self._most_in_turn, self._this_turn)
        if not self._turning:
            self._turning = True
            asyncio.get_running_loop().call_soon(self._turn)
        proceed()

    def _turn(self) -> None:
        self._turning = False
        self._this_turn = 0
        for _ in range(min(self._per_turn, len(self._queue))):
            self._let_in(self._queue.popleft())
