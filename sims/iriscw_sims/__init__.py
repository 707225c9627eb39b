"""The simulated world: a controller under faults in virtual time, for our tests and for yours.

``World(seed).run()`` draws a plan from the seed, runs it, and gives a :class:`Run` that says what was broken, if
anything was. ``docs/simulation.md`` says what is simulated and what is checked.
"""

from __future__ import annotations

from iriscw_sims.swarm import Fault, Plan, PlannedJob, draw_plan
from iriscw_sims.world import Run, World

__all__ = ["Fault", "Plan", "PlannedJob", "Run", "World", "draw_plan"]
