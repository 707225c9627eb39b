"""The host's own time as the surroundings of simulated object storage, for a storage that is served."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from iriscw.runtime.vocabulary import SECOND

MAX_TRACE = 10_000
"""Lines of a trace that are kept, the last ones."""


class HostSurroundings:
    """:class:`~iriscw_sims.objects.surroundings.Surroundings` in real time, on the running loop.

    Args:
        seed: Of all that is drawn.
        rates: Of the fault points, in thousandths; those that are not named never come true.
    """

    def __init__(self, seed: object = 0, rates: Mapping[str, int] | None = None) -> None:
        self.rates = dict(rates or {})
        self.trace: list[tuple[object, ...]] = []
        """What was noted, each with its time."""
        self._seed = seed
        self._chances = self.rng("chances")
        self._scripted: dict[str, list[bool]] = {}

    @property
    def now(self) -> int:
        """The time in ns since 1970."""
        return time.time_ns()

    def rng(self, name: str) -> Random:
        """Return a stream of random numbers of its own."""
        return Random(f"{self._seed}:{name}")

    def after(self, delay_ns: int, function: Callable[..., Any], *args: Any) -> None:
        """Call a function later, never before this call has returned."""
        asyncio.get_running_loop().call_later(delay_ns / SECOND, function, *args)

    def script(self, name: str, *coming: bool) -> None:
        """Say what the next chances of a name bring, before its rate counts again."""
        self._scripted.setdefault(name, []).extend(coming)

    def chance(self, name: str) -> bool:
        """Tell whether a fault point comes true now."""
        scripted = self._scripted.get(name)
        if scripted:
            came = scripted.pop(0)
        else:
            rate = self.rates.get(name, 0)
            came = rate > 0 and self._chances.randrange(1000) < rate
        if came:
            self.note("fault", name)
        return came

    def note(self, *what: object) -> None:
        """Write a line into the trace."""
        self.trace.append((self.now, *what))
        del self.trace[:-MAX_TRACE]
