"""What a feature brings into the simulated world: its actors, who uses them, and what must always hold of them.

The world has one controller under faults: crashes, a disk that stalls or is full, restarts of parts of the tree. What
a feature promised has to hold all the same::

    from iriscw_sims.world import World

    assert not World(seed, features=[MyFeature()]).run().violations
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from iriscw.runtime import ChildSpec
from iriscw.testing.simulation import SimOperation, SimSystem


class SimulatedFeature:
    """A feature's part of one world. Each method has a default: that it adds nothing of the kind."""

    def children(self) -> Sequence[ChildSpec]:
        """Return children of the root, as the feature gives them to a controller; they come after /fleet and /jobs."""
        return ()

    def begin(self, system: SimSystem, rng: Random) -> None:
        """Let its users begin: ``system.simulation.call_after`` has them act later. Luck comes from ``rng`` alone."""

    def perform(self, operation: SimOperation) -> bool:
        """Carry out an effect of its actors, or open a session; tell whether it is one of its own."""
        return False

    def check(self) -> None:
        """Look whether all holds that must, after each step.

        Raises:
            InvariantBroken: something does not (:class:`iriscw.testing.checks.InvariantBroken`).
        """

    def unsettled(self) -> str:
        """Say what keeps the world from being at rest, once all faults are over; empty if nothing does."""
        return ""
