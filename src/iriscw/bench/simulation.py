"""How fast a simulated fleet is: ``iriscw bench simulation``.

The whole world runs: the real controller, the simulated cloud, workers and users, and every check. The fleet is one of
:func:`iriscw_sims.load.busy_plan`: no slice is ever idle, nothing fails. It is measured for some virtual minutes after
all of it is at work. Counts are the same in every run; CPU time is that of the thread, the least of some rounds, since
neighbours on a shared machine only ever add to it. What is judged is growth with the size, and the checks' share.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from iriscw.bench.plane import Figures, MeasurementFailed, Stopwatch
from iriscw.runtime.vocabulary import seconds
from iriscw_sims.load import BUSY, busy_plan
from iriscw_sims.world import World

GOALS: Figures = {
    "decisions_per_cpu_s": 30_000,
    "world_events_per_cpu_s": 30_000,
    "checks_share": 0.5,
}
"""What the simulation is meant to reach on one core; 300 slice-hours of 100 world events each are 30,000 events."""

EVENTS_OF_A_BUSY_HOUR = 100
"""World events of one slice in one hour from which on it counts as busy."""

WARM_UP_S = 60.0
"""Virtual seconds after which all slices of a busy fleet have booted and work."""

ROUNDS = 3
"""Runs of a figure in CPU time, of which the least is given."""


class BusyFleet:
    """A busy fleet, all of it at work.

    Args:
        slices: how many.
        checked: whether what must always hold is checked. What checks learn of the disk is what workers and users
            know of the world, so they learn it either way; :attr:`learning_cpu_s` is the time for it.
    """

    def __init__(self, slices: int, duration_s: float, *, checked: bool = True) -> None:
        self.slices = slices
        self.learning_cpu_s = 0.0
        self.world = World(1, busy_plan(slices, WARM_UP_S + duration_s), BUSY)
        if not checked:
            self.world.simulation.checkers.clear()
            self.world.simulation.seen = None
            self._time_learning()
        self.run(WARM_UP_S)
        working = len(self.world.job_checks.running)
        if working < slices // 2:
            raise MeasurementFailed(f"{working} of {slices} slices are at work after {WARM_UP_S:g} s")
        self.learning_cpu_s = 0.0

    def _time_learning(self) -> None:
        disk: Any = self.world.system.disk
        write = disk.write

        def timed(entries: Sequence[Any]) -> None:
            began = time.thread_time()
            write(entries)
            self.learning_cpu_s += time.thread_time() - began

        disk.write = timed

    def run(self, duration_s: float) -> None:
        """Let virtual time pass, as a run of the world does."""
        self.world.go_on(self.world.simulation.now + seconds(duration_s))
        if self.world.violations:
            raise MeasurementFailed(self.world.violations[0])

    @property
    def decisions(self) -> int:
        """What actors have decided on: messages, and answers of the world and of each other."""
        counters = self.world.system.statistics()
        return counters.delivered + counters.answers_delivered


def fleet(slices: int, duration_s: float) -> Figures:
    """Run a busy fleet of ``slices`` for ``duration_s`` virtual seconds, with all checks."""
    busy = BusyFleet(slices, duration_s)
    simulation = busy.world.simulation
    steps, events, decisions = simulation.steps, simulation.scheduled, busy.decisions
    with Stopwatch() as watch:
        busy.run(duration_s)
    hours = slices * duration_s / 3600
    events, decisions = simulation.scheduled - events, busy.decisions - decisions
    return {
        "slices": slices,
        "slice_hours": hours,
        "steps": simulation.steps - steps,
        "decisions": decisions,
        "world_events": events,
        "world_events_per_slice_hour": events / hours,
        "cpu_us_per_world_event": 1e6 * watch.cpu_s / events,
        "world_events_per_cpu_s": events / watch.cpu_s,
        "decisions_per_cpu_s": decisions / watch.cpu_s,
        "slice_hours_per_cpu_s": hours / watch.cpu_s,
        "busy_slice_hours_per_cpu_s": events / EVENTS_OF_A_BUSY_HOUR / watch.cpu_s,
    }


def growth(fleets: Sequence[Figures]) -> list[Figures]:
    """Give, for each fleet that was measured, how many times the CPU time of the first one a world event takes."""
    first = fleets[0]
    return [
        {
            "slices": each["slices"],
            "times_the_slices": each["slices"] / first["slices"],
            "times_the_cpu_per_world_event": each["cpu_us_per_world_event"] / first["cpu_us_per_world_event"],
        }
        for each in fleets
    ]


def checks(slices: int, duration_s: float) -> Figures:
    """Compare the CPU time of the same run with and without checks."""
    spent: list[float] = []
    for checked in (True, False):
        busy = BusyFleet(slices, duration_s, checked=checked)
        with Stopwatch() as watch:
            busy.run(duration_s)
        spent.append(watch.cpu_s - busy.learning_cpu_s)
    checked_s, bare_s = spent
    return {
        "slices": slices,
        "checked_cpu_s": checked_s,
        "bare_cpu_s": bare_s,
        "checks_share": 1 - bare_s / checked_s,
    }


def memory(slices: int, more: int = 2) -> Figures:
    """Return what each slice of a busy fleet takes: how much ``more`` times the slices take beyond these."""
    small, large = (_memory_bytes(slices * times) for times in (1, more))
    return {"slices": slices, "memory_bytes_per_slice": (large - small) / (slices * (more - 1))}


def _memory_bytes(slices: int) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        busy = BusyFleet(slices, 0)
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
        del busy
    finally:
        tracemalloc.stop()
    return taken


def least_of(rounds: int, measure: Callable[[], Figures]) -> Figures:
    """Measure ``rounds`` times; give the run that took the least CPU time."""
    runs = [measure() for _ in range(rounds)]
    return min(runs, key=lambda run: next((value for name, value in run.items() if "cpu" in name), 0.0))


@attrs.frozen
class SimulationSizes:
    """At which sizes the figures are taken.

    Args:
        fleets: slices and virtual seconds, from small to large.
        checks: the same, of the run with and without checks.
        memory: slices.
    """

    fleets: tuple[tuple[int, float], ...] = ((10, 600), (100, 60), (1_000, 6))
    checks: tuple[int, float] = (10, 600)
    memory: int = 10


FULL = SimulationSizes()
QUICK = SimulationSizes(fleets=((10, 180), (100, 18)), checks=(10, 180), memory=5)


def run(progress: Callable[[str], None], sizes: SimulationSizes = FULL, rounds: int = ROUNDS) -> dict[str, Any]:
    """Measure everything and give the report of ``iriscw bench simulation -o json``.

    Raises:
        MeasurementFailed: the fleet did not work, or an invariant was broken.
    """
    figures: dict[str, list[Figures]] = {"fleet": [], "growth": [], "checks": [], "memory": []}
    for index, (slices, duration_s) in enumerate(sizes.fleets):
        progress(f"fleet of {slices}")
        times = 1 if index > 1 else rounds
        figures["fleet"].append(least_of(times, lambda of=(slices, duration_s): fleet(*of)))  # type: ignore[misc]
    figures["growth"] = growth(figures["fleet"])
    progress("checks")
    figures["checks"].append(least_of(rounds, lambda: checks(*sizes.checks)))
    progress("memory")
    figures["memory"].append(memory(sizes.memory))
    return {"figures": figures, "goals": GOALS, "rounds": rounds}
