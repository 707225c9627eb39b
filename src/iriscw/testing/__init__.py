"""Testing tools, part of the product: the real dispatcher on a virtual clock, probes, conformance suites."""

from __future__ import annotations

from iriscw.testing.simulation import Livelock, SimOperation, SimSystem, Simulation, World

__all__ = ["Livelock", "SimOperation", "SimSystem", "Simulation", "World"]
