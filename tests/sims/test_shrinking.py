"""Failing plans become small ones that fail alike."""

from random import Random

import attrs
import pytest

from iriscw.fleet.groups import rules as group_rules
from iriscw.fleet.messages import WorkersMissed
from iriscw_sims.shrinking import breaks_like, feasible, invariant_of, run_plan, shrink
from iriscw_sims.swarm import FAULTS, RESTART_FAULTS, Fault, draw_plan
from iriscw_sims.world import World


def crowded(seed, count=30):
    """Return the plan of a seed with that many faults of all kinds."""
    plan, rng = draw_plan(seed), Random(seed)
    faults = [Fault(rng.randrange(plan.safety), rng.choice(FAULTS), rng.getrandbits(32)) for _ in range(count)]
    return attrs.evolve(plan, faults=tuple(sorted(faults, key=lambda fault: (fault.at, fault.kind, fault.pick))))


@pytest.fixture
def nobody_answers(monkeypatch):
    """Plant a bug: groups do not answer who is missed."""
    monkeypatch.setitem(group_rules.RULES, WorkersMissed, lambda *_: None)


def test_a_policy_can_be_what_breaks(calm_plan):
    """A plan is tried with it; without it nothing is wrong."""

    def starve(view):
        return 0

    plan = calm_plan(1)
    run = run_plan(plan, starve)
    assert breaks_like(run, starve)(plan)
    assert not breaks_like(run)(plan)


def shrunk(most):
    """Shrink the first crowded plan that breaks something, with so many runs; give it, and what is left of it."""
    tried = ((plan, run_plan(plan)) for plan in map(crowded, range(60)))
    plan, run = next((plan, run) for plan, run in tried if run.violations)
    assert len(plan.faults) == 30
    broken_first = invariant_of(run.violations[0])
    asked = []

    def broken(candidate):
        asked.append(candidate)
        return breaks_like(run)(candidate)

    small = shrink(plan, broken, max_runs=most)
    assert len(asked) <= most
    assert invariant_of(World(small.seed, small).run().violations[0]) == broken_first
    return plan, small


@pytest.mark.soak
@pytest.mark.usefixtures("nobody_answers")
def test_thirty_faults_become_one():
    """A bug that shows after losses while nobody watches: what is left is one such loss, and some chances."""
    plan, small = shrunk(60)
    assert len(small.faults) <= 3
    assert any(fault.kind in RESTART_FAULTS for fault in small.faults)
    assert len(small.rates) < len(plan.rates)


@pytest.mark.soak
@pytest.mark.usefixtures("nobody_answers")
def test_a_small_plan_becomes_of_a_crowded_one():
    """With more runs one job and one group are left beside it, and no chances."""
    _, small = shrunk(250)
    assert len(small.faults) <= 3
    assert (len(small.jobs), len(small.groups), small.rates) == (1, 1, ())


def test_what_decides_is_found_among_many():
    """Of many faults, rates and jobs, exactly those stay that the failure needs."""
    plan = next(plan for plan in (crowded(seed, 40) for seed in range(100)) if min(len(plan.jobs), len(plan.rates)) > 4)
    wanted = (plan.faults[7], plan.faults[31])
    job, rate = plan.jobs[3].key, plan.rates[4][0]

    def broken(candidate):
        kinds = [(fault.kind, fault.at // 10**9) for fault in candidate.faults]
        faults = all((fault.kind, fault.at // 10**9) in kinds for fault in wanted)
        return faults and any(each.key == job for each in candidate.jobs) and rate in dict(candidate.rates)

    small = shrink(plan, broken)
    assert [fault.kind for fault in small.faults] == [fault.kind for fault in wanted]
    assert [fault.pick for fault in small.faults] == [0, 0]
    assert [each.key for each in small.jobs] == [job]
    assert small.rates == ((rate, 1),)
    assert feasible(small)


def test_the_number_of_runs_is_bounded():
    """However stubborn a failure is."""
    asked = []

    def broken(candidate):
        asked.append(candidate)
        return len(candidate.faults) == 40

    plan = crowded(5, 40)
    assert len(shrink(plan, broken, max_runs=37).faults) == 40
    assert len(asked) == 37


@pytest.mark.slow
def test_another_failure_is_not_taken_for_this_one(monkeypatch):
    """What is kept breaks the same invariant."""
    plan = draw_plan(3)
    monkeypatch.setattr(World, "heal", lambda world: world.violate("X1", "planted"))
    like_x1 = breaks_like(World(3, plan).run())
    assert like_x1(plan)
    monkeypatch.setattr(World, "heal", lambda world: world.violate("X2", "planted"))
    assert not like_x1(plan)


def test_a_job_always_finds_a_group():
    """No plan is tried in which a job waits for ever for no other reason than the shrinking."""
    plan = draw_plan(24)
    tried = []

    def broken(candidate):
        tried.append(candidate)
        return True

    small = shrink(plan, broken, max_runs=200)
    assert all(map(feasible, tried))
    assert (len(small.groups), len(small.jobs), small.faults, small.rates) == (1, 1, (), ())
