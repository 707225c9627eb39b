"""What all simulated worlds have: streams of random numbers, chances that come true, and what is broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iriscw.testing.simulation import Simulation


class Stage:
    """The luck of one world, and what it found."""

    seed: int
    simulation: Simulation
    healed: bool

    def __init__(self, seed: int, rates: tuple[tuple[str, int], ...]) -> None:
        self.seed = seed
        self.rates = dict(rates)
        self.healed = False
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        self.log: list[tuple[int, str]] = []
        self.observers: list[Callable[[str, str, int], None]] = []
        """Told of each fault that comes true: what, whom it hit, for how long; see :meth:`fired`."""
        self._chances: dict[str, Random] = {}
        """A stream for each chance: a plan without one of them has the same luck with the others."""

    def stream(self, name: str) -> Random:
        """Return a stream of random numbers of its own."""
        return Random(f"{self.seed}:{name}")

    def chance(self, name: str, about: str = "") -> bool:
        """Let one of the plan's chances come true, or not; ``about`` is whom it would hit, if that is known."""
        rate = self.rates.get(name, 0)
        if self.healed or rate == 0:
            return False
        stream = self._chances.get(name)
        if stream is None:
            stream = self._chances[name] = self.stream(f"chance {name}")
        if stream.randrange(1000) >= rate:
            return False
        self.fired(name, about)
        return True

    def fired(self, name: str, about: str = "", lasts: int = 0) -> None:
        """Count a fault that came true, and tell observers whom it hit (``kind/name``) and for how many ns."""
        for observer in self.observers:
            observer(name, about, lasts)
        self.counts[name] += 1
        self.disturbed()
        self.log.append((self.simulation.now, name))
        self.simulation.note("fault", name)

    def disturbed(self, span: int = 0) -> None:
        """Note that something is wrong, for ``span`` ns from now."""

    def violate(self, invariant: str, what: str) -> None:
        """Note that an invariant is broken; the run ends after this step."""
        self.violations.append(f"INV-{invariant}: {what}")
