"""A virtual-time event loop as the surroundings of simulated object storage: time, chance and a trace.

So that asynchronous code can be run against :class:`~iriscw_sims.objects.front.ObjectFront` under every fault::

    async def main(_: Network) -> None:
        surroundings = LoopSurroundings(asyncio.get_running_loop(), seed=7, rates={"object reply lost": 100})
        front = ObjectFront(ObjectStorage(), surroundings)

    iriscw_sims.transport.run.simulate(main)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from iriscw.runtime.vocabulary import SECOND
from iriscw.testing.simulation import EPOCH
from iriscw_sims.transport.loop import VirtualLoop

MAX_TRACE = 10_000
"""Lines of a trace that are kept, the last ones."""


class LoopSurroundings:
    """:class:`~iriscw_sims.objects.surroundings.Surroundings` on a virtual loop.

    Args:
        loop: whose clock counts.
        seed: of all that is drawn.
        rates: of the fault points, in thousandths; those that are not named never come true.
    """

    def __init__(self, loop: VirtualLoop, seed: object = 0, rates: Mapping[str, int] | None = None) -> None:
        self.rates = dict(rates or {})
        self.trace: list[tuple[object, ...]] = []
        """What was noted, each with its time."""
        self._loop = loop
        self._seed = seed
        self._chances = self.rng("chances")

    @property
    def now(self) -> int:
        """The time in ns since 1970."""
        return EPOCH + self._loop.now_ns

    def rng(self, name: str) -> Random:
        """Return a stream of random numbers of its own."""
        return Random(f"{self._seed}:{name}")

    def after(self, delay_ns: int, function: Callable[..., Any], *args: Any) -> None:
        """Call a function later, never before this call has returned."""
        self._loop.call_at((self._loop.now_ns + delay_ns) / SECOND, function, *args)

    def chance(self, name: str) -> bool:
        """Tell whether a fault point comes true now."""
        rate = self.rates.get(name, 0)
        came = rate > 0 and self._chances.randrange(1000) < rate
        if came:
            self.note("fault", name)
        return came

    def note(self, *what: object) -> None:
        """Write a line into the trace."""
        self.trace.append((self.now, *what))
        del self.trace[:-MAX_TRACE]

    def calm(self) -> None:
        """Let nothing go wrong any more."""
        self.rates.clear()
