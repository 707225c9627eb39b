"""What simulated object storage needs of the world around it: a protocol only.

Whoever is the surroundings of a simulated CoreWeave (:mod:`iriscw_sims.coreweave.surroundings`) is these as well.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Protocol


class Surroundings(Protocol):
    """Time, chance and a trace."""

    @property
    def now(self) -> int:
        """The time in ns since 1970."""
        ...

    def rng(self, name: str) -> Random:
        """Return a stream of random numbers of its own; asked for once a name."""
        ...

    def after(self, delay_ns: int, function: Callable[..., Any], *args: Any) -> None:
        """Call a function later, never before this call has returned."""
        ...

    def chance(self, name: str) -> bool:
        """Tell whether a fault point comes true now (:data:`iriscw_sims.objects.fault_points.FAULT_POINTS`)."""
        ...

    def note(self, *what: object) -> None:
        """Write a line into the trace."""
        ...
