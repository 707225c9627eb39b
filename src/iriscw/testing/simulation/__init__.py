"""Time travel: the real dispatcher on a virtual clock.

A :class:`Simulation` hosts one or more systems, each a crash domain of its own, and a queue of world events. It is
driven step by step; nothing runs by itself, nothing sleeps, and time passes only when everybody is idle or when a test
says so. So "no message came" is exact, and 30 minutes of booting cost microseconds.

Everything is drawn from the seed: the same seed gives the same trace, in any process, on any supported Python.
"""

from __future__ import annotations

from iriscw.testing.simulation.operation import SimOperation, World, leave_pending
from iriscw.testing.simulation.system import SimSystem
from iriscw.testing.simulation.world import EPOCH, Livelock, Simulation, VirtualClock

__all__ = ["EPOCH", "Livelock", "SimOperation", "SimSystem", "Simulation", "VirtualClock", "World", "leave_pending"]
