"""What a run cost, and how long people waited."""

import attrs
import pytest

from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.holding import assert_holds
from iriscw_sims.outcome import Meter, Outcome
from iriscw_sims.swarm import draw_plan
from iriscw_sims.world import World
from raised import that


@pytest.fixture
def one_group(calm_plan):
    """Return a plan without faults and jobs, with one group."""

    def make(**changes):
        plan = calm_plan(1)
        group = attrs.evolve(plan.groups[0], min_slices=0, max_slices=3, buffer_slices=0, **changes)
        return attrs.evolve(plan, groups=(group,), jobs=(), safety=120 * SECOND)

    return make


def test_measuring_changes_nothing():
    """A run that is measured is the run that was not."""
    outcome, run = assert_holds(draw_plan(3)), World(3).run()
    assert outcome.trace == run.trace
    assert run == type(run)(**{field.name: getattr(outcome, field.name) for field in attrs.fields(type(run))})


def test_slices_that_nobody_needs_are_idle(one_group):
    """Two that are kept for the whole run cost twice its length, idle but for their boots."""
    outcome = assert_holds(one_group(), policy=lambda view: 2)
    assert outcome.most_slices == 2
    assert 2 * (outcome.simulated_s - 10) <= outcome.slice_seconds <= 2 * outcome.simulated_s
    assert outcome.slice_seconds * 0.5 < outcome.idle_slice_seconds < outcome.slice_seconds
    assert (outcome.oscillations, outcome.waited_s) == (0, ())


def test_nothing_costs_nothing(one_group):
    """No slice, no task."""
    outcome = assert_holds(one_group())
    assert (outcome.slice_seconds, outcome.idle_slice_seconds, outcome.most_slices) == (0, 0, 0)
    assert outcome.waited_percentile_s(99) == 0


def test_changes_of_mind_are_counted(one_group):
    """Each time a slice is asked for after one was let go, for two ups and downs once."""
    phases = (2, 0, 2, 0)

    def policy(view):
        step = view.now // (100 * SECOND)
        return phases[step] if step < len(phases) else 0

    outcome = assert_holds(attrs.evolve(one_group(), safety=400 * SECOND), policy=policy)
    assert outcome.oscillations == 1
    assert outcome.most_slices >= 2


def test_each_task_waited(calm_plan):
    """From its job's acceptance until it was placed, the shortest first; all tasks are there."""
    plan = calm_plan(0)
    outcome = assert_holds(plan)
    assert len(outcome.waited_s) >= 1
    assert list(outcome.waited_s) == sorted(outcome.waited_s)
    assert 0 < outcome.waited_s[-1] <= outcome.simulated_s
    assert outcome.idle_slice_seconds <= outcome.slice_seconds


def test_a_task_that_never_is_placed_waits_until_the_end(calm_plan):
    """Starving demand shows in the figures, whether or not the jobs are over."""
    plan = attrs.evolve(calm_plan(1), groups=tuple(attrs.evolve(g, min_slices=0) for g in calm_plan(1).groups))
    world = World(1, plan, policy=lambda view: 0)
    meter = Meter(world)
    outcome = meter.outcome(world.run())
    assert outcome.violations
    assert outcome.slice_seconds == 0
    assert outcome.waited_percentile_s(50) > 100


@pytest.mark.parametrize(("percent", "wait"), [(0, 1.0), (25, 1.0), (26, 2.0), (50, 2.0), (99, 4.0), (100, 4.0)])
def test_percentiles(percent, wait):
    """The nearest rank."""
    outcome = outcome_of((1.0, 2.0, 3.0, 4.0))
    assert outcome.waited_percentile_s(percent) == wait


@pytest.mark.parametrize("percent", [-1, 101])
def test_no_such_percentile(percent):
    """It is refused."""
    with pytest.raises(ValueError, check=that(comes_from="outcome.Outcome.waited_percentile_s")):
        outcome_of((1.0,)).waited_percentile_s(percent)


def outcome_of(waited):
    """Return an outcome with these waits."""
    return Outcome(
        seed=0,
        trace="",
        simulated_s=0,
        steps=0,
        violations=(),
        fired=(),
        slice_seconds=0,
        slice_seconds_by_group={},
        idle_slice_seconds=0,
        most_slices=0,
        waited_s=waited,
        oscillations=0,
    )
