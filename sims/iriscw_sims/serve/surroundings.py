"""What a living simulation gives its controllers: time, chance, timers, and somebody who takes notes."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from iriscw_sims.serve.timeline import Timeline

CHANCE = "chance "
"""How the names of streams begin from which chances are drawn."""

NOTES_LIMIT = 10_000
"""Notes that are kept; the oldest go."""


class LiveSurroundings:
    """The surroundings of controllers in a served simulation.

    Args:
        timeline: Time.
        seed: Every stream of randomness follows from it and from the stream's own name.
        rates: How likely each chance is that somebody may ask for, 0 to 1; one that is not named never comes true.
    """

    def __init__(self, timeline: Timeline, seed: int, rates: Mapping[str, float] | None = None) -> None:
        self._timeline = timeline
        self._seed = seed
        self._rates = dict(rates or {})
        self._streams: dict[str, Random] = {}
        self.notes: deque[tuple[int, tuple[Any, ...]]] = deque(maxlen=NOTES_LIMIT)
        """What was noted, with its moment in ns since 1970."""

    @property
    def now(self) -> int:
        """The moment, in ns since 1970."""
        return self._timeline.now

    def rng(self, name: str) -> Random:
        """Return the stream of randomness of this name: always the same one."""
        stream = self._streams.get(name)
        if stream is None:
            digest = hashlib.sha256(f"{self._seed}/{name}".encode()).digest()
            stream = self._streams[name] = Random(int.from_bytes(digest[:8], "big"))
        return stream

    def after(self, delay: int, function: Callable[..., object], *arguments: Any) -> None:
        """Call ``function(*arguments)`` in ``delay`` ns.

        Raises:
            TooManyTimers: too many wait already.
        """
        self._timeline.after(delay, function, *arguments)

    def chance(self, name: str, about: str = "") -> bool:
        """Tell whether a chance came true, whomever it hits."""
        rate = self._rates.get(name, 0.0)
        return rate > 0.0 and self.rng(f"{CHANCE}{name}").random() < rate

    def turn(self, rates: Mapping[str, float], seed: int) -> None:
        """Have other chances come true from now on, drawn from another seed; all other randomness goes on."""
        self._rates, self._seed = dict(rates), seed
        self._streams = {name: each for name, each in self._streams.items() if not name.startswith(CHANCE)}

    def note(self, *what: Any) -> None:
        """Take down that something happened."""
        self.notes.append((self.now, what))
