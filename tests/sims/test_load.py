"""Loads: the plans are what they say, and their worlds hold."""

import pytest

from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.load import BUSY, DAY, HOUR, LASTING, busy_plan, lasting_plan
from iriscw_sims.plans import dump_plan, load_plan
from iriscw_sims.world import World


def test_a_busy_fleet_has_no_idle_slice():
    """Once booted, nearly every slice has an attempt that runs or is about to."""
    world = World(1, busy_plan(5, 400), BUSY)
    world.go_on(390 * SECOND)
    assert len(world.job_checks.live) == 5
    assert not world.violations


def test_a_busy_fleet_comes_to_rest():
    """Its jobs end, and it stays as large as its group says."""
    run = World(1, busy_plan(2, 300), BUSY).run()
    assert not run.violations, run.report


@pytest.mark.parametrize("size", [1, 10, 25])
def test_work_grows_with_the_fleet(size):
    """A fleet of ten times the size has ten times the tasks, in as many jobs."""
    plan = busy_plan(size, 1_000)
    assert len(plan.jobs) == 5
    assert {job.spec.replicas for job in plan.jobs} == {20 * size}
    assert sum(group.min_slices for group in plan.groups) == sum(group.max_slices for group in plan.groups) == size


@pytest.mark.slow
def test_a_lasting_fleet_goes_again():
    """A fleet boots for each of two jobs in a day, at a faithful pace, and is empty in between."""
    world = World(1, lasting_plan(1), LASTING)
    world.go_on(11 * HOUR)
    assert next(iter(world.job_checks.jobs.values())).ended is not None
    assert not world.fleet_checks.promised
    world.go_on(DAY)
    assert (len(world.job_checks.jobs), world.violations) == (2, [])
    assert len(world.fleet_checks.ever) >= 2


@pytest.mark.parametrize("plan", [busy_plan(13, 60), lasting_plan(2)])
def test_loads_are_plans_like_others(plan):
    """They can be written down and read."""
    assert load_plan(dump_plan(plan)) == plan
