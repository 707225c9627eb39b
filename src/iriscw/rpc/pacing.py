"""Short turns of the event loop, however many peers have something to say.

What thousands of peers ask for at once is ready in one turn of the loop, and the loop serves nobody else until that
turn is over. Behind a turnstile a turn takes a few of them, in the order in which they came; between two turns the loop
looks at all other sockets and timers. Nothing waits for a clock: an idle server lets newcomers in as fast as it can.

:class:`FewAtATime` does the same for all sockets of a loop: of those that are ready, a turn serves a few.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import deque
from collections.abc import Callable

import attrs

EVENTS_PER_TURN = 32
"""Sockets that a turn serves (nginx takes 512 events, at a hundredth of the cost). Each is read in one turn, and what
was read is taken, decided and answered in the turns after it, so a turn has several such portions at up to 0.2 ms for a
socket. Half as many make a turn half as long, and cost one look at the sockets more for 32 of them."""


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
        self._queue: deque[tuple[Callable[[], None], int]] = deque()
        self._this_turn = 0
        self._turning = False
        self._admitted = 0
        self._most_waiting = 0
        self._most_in_turn = 0

    def statistics(self) -> TurnstileStatistics:
        """Return the counts of this moment."""
        return TurnstileStatistics(self._admitted, len(self._queue), self._most_waiting, self._most_in_turn)

    def enter(self, proceed: Callable[[], None], weight: int = 1) -> bool:
        """Run ``proceed`` at once, or in a later turn; whether it ran. It must not raise.

        What weighs more counts as that many; a turn that has room for any of it has room for all.
        """
        if self._queue or self._this_turn >= self._per_turn:
            self._queue.append((proceed, weight))
            self._most_waiting = max(self._most_waiting, len(self._queue))
            return False
        self._let_in(proceed, weight)
        return True

    async def passed(self, weight: int = 1) -> None:
        """Wait until there is room in a turn, if there is none in this one."""
        through = asyncio.Event()
        if not self.enter(through.set, weight):
            await through.wait()

    def _let_in(self, proceed: Callable[[], None], weight: int) -> None:
        self._this_turn += weight
        self._admitted += 1
        self._most_in_turn = max(self._most_in_turn, self._this_turn)
        if not self._turning:
            self._turning = True
            asyncio.get_running_loop().call_soon(self._turn)
        proceed()

    def _turn(self) -> None:
        self._turning = False
        self._this_turn = 0
        while self._queue and self._this_turn < self._per_turn:
            self._let_in(*self._queue.popleft())


class FewAtATime(selectors.DefaultSelector):
    """A loop's selector that reports at most ``EVENTS_PER_TURN`` sockets at a time; all of a look before the next look.

    asyncio serves whatever a look reports before it looks at a timer or at any other socket: with 5,000 workers that
    can be half a second.
    """

    def __init__(self) -> None:
        super().__init__()
        self._left: deque[tuple[selectors.SelectorKey, int]] = deque()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Report sockets that are ready; those of an earlier look first, without waiting."""
        if not self._left:
            found = super().select(timeout)
            if len(found) <= EVENTS_PER_TURN:
                return found
            self._left.extend(found)
        ready: list[tuple[selectors.SelectorKey, int]] = []
        registered = self.get_map()
        while self._left and len(ready) < EVENTS_PER_TURN:
            key, events = self._left.popleft()
            if registered.get(key.fd) is key:  # else it was closed or changed since: the next look knows
                ready.append((key, events))
        return ready


def short_turned_loop() -> asyncio.AbstractEventLoop:
    """Make an event loop whose turns are short, for processes that serve thousands."""
    return asyncio.SelectorEventLoop(FewAtATime())
