"""A year of a small fleet: nothing is broken, and nothing grows."""

import gc

import attrs
import pytest

from iriscw.runtime.behavior import DEFAULT_SNAPSHOT_EVERY
from iriscw_sims.fleet_checks import SLICES_KEPT
from iriscw_sims.job_checks import EVENTS_KEPT
from iriscw_sims.load import DAY, LASTING, lasting_plan
from iriscw_sims.world import World

LOOKS = 16
"""Looks at memory, each after as much virtual time."""


def objects_of(world):
    """Count what the collector of garbage knows of, apart from two lists that are cut at a bound of their own."""
    gc.collect()
    return len(gc.get_objects()) - len(world.system.disk.entries) - len(world.system.events)


def go_through(days, pace=LASTING):
    """Run a small fleet for so many days; give the number of objects after each sixteenth of them, and the run."""
    world, counts = World(1, lasting_plan(days), pace), []
    apart = int(days * DAY) // LOOKS

    def look():
        counts.append(objects_of(world))
        if len(counts) < LOOKS:
            world.simulation.call_after(apart, look)

    world.simulation.call_after(apart, look)
    return counts, world, world.run()


def check_flat(counts):
    """Check that the most of the second half is no more than a tenth above the most of the quarter before it."""
    before, after = counts[LOOKS // 4 : LOOKS // 2], counts[LOOKS // 2 :]
    assert len(counts) == LOOKS
    assert max(after) <= 1.1 * max(before), counts


@pytest.mark.soak
def test_a_year():
    """365 days at a faithful pace, with a fleet that boots 730 times for a job and goes again (five minutes of CPU)."""
    counts, world, run = go_through(365)
    assert not run.violations, run.report
    check_flat(counts)
    assert len(world.job_checks.jobs) == LASTING.finished_jobs
    assert len(world.fleet_checks.ever) >= SLICES_KEPT  # as many as are remembered, and those there are now
    assert len(world.system.disk.entries) < 2 * DEFAULT_SNAPSHOT_EVERY
    assert len(world.system.events) <= EVENTS_KEPT


FEW_DAYS = 8
"""After half of them the list of ended jobs is full, if it holds as many as there are days."""

FEW_OBJECTS = 300
"""What may come in the second half: 64 do, and 580 where ended jobs stay."""


@pytest.mark.soak
def test_a_few_days():
    """The same for eight days, looked at more closely: once the list of ended jobs is full, next to nothing comes."""
    counts, world, run = go_through(FEW_DAYS, attrs.evolve(LASTING, finished_jobs=FEW_DAYS))
    assert not run.violations, run.report
    assert len(world.job_checks.jobs) == FEW_DAYS
    assert max(counts[LOOKS // 2 :]) - max(counts[LOOKS // 4 : LOOKS // 2]) <= FEW_OBJECTS, counts
