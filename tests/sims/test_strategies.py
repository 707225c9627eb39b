"""What Hypothesis draws, and what it makes of a failure."""

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, find, given

from iriscw.jobs.model import check_spec
from iriscw.testing.fleet import assert_holds, plans
from iriscw_sims import strategies
from iriscw_sims.shrinking import feasible
from iriscw_sims.swarm import FAULTS, RATES, draw_plan
from profiles import examples


@given(plans())
@examples(3)
def test_plans_hold(plan):
    """No plan that is drawn breaks an invariant."""
    assert_holds(plan)


@pytest.mark.soak
@given(plans())
@examples(20)
def test_more_plans_hold(plan):
    """The same, in a larger sample."""
    assert_holds(plan)


@given(plans())
@examples(60)
def test_plans_are_feasible_and_in_order(plan):
    """Some group can run each job; faults come in order and before the end; rates are within their bounds."""
    assert feasible(plan)
    for job in plan.jobs:
        check_spec(job.spec)
    assert [fault.at for fault in plan.faults] == sorted(fault.at for fault in plan.faults)
    assert all(fault.at < plan.safety and fault.kind in FAULTS for fault in plan.faults)
    assert all(1 <= often <= dict(RATES)[name] for name, often in plan.rates)


QUICK = examples(
    400,
    database=None,
    derandomize=True,  # shrinking ends at the same plan from most seeds, but not from each
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[*HealthCheck],
)


def test_the_simplest_plan_is_nearly_empty():
    """Shrinking ends at one group of one machine and one job of one task, with no faults."""
    plan = find(plans(), lambda plan: True, settings=QUICK)
    assert (plan.seed, plan.faults, plan.rates, plan.takeover_delay) == (0, (), (), 0)
    (group,), (job,) = plan.groups, plan.jobs
    assert (group.num_vms, group.min_slices, group.max_slices, group.buffer_slices) == (1, 0, 1, 0)
    assert (job.at, job.spec.replicas, job.spec.group_by, job.terminate_after) == (0, 1, None, None)


def only_what_matters():
    """Shrink a failure that needs two kinds of faults and a chance."""

    def broken(plan):
        kinds = [fault.kind for fault in plan.faults]
        return "node dies" in kinds and "controller crashes" in kinds and "api lost" in dict(plan.rates)

    few = plans(kinds=("controller crashes", "disk full", "node dies"), chances=(("api lost", 40), ("log slow", 150)))
    plan = find(few, broken, settings=examples(5_000, QUICK), random=Random(0))
    assert sorted((fault.at, fault.kind, fault.pick) for fault in plan.faults) == [
        (0, "controller crashes", 0),
        (0, "node dies", 0),
    ]
    assert plan.rates == (("api lost", 1),)
    assert (len(plan.groups), len(plan.jobs)) == (1, 1)


@pytest.mark.slow
def test_only_what_matters_is_left():
    """It is shrunk to these, as early and plain as they go.

    In a process of its own: Hypothesis draws constants from the modules that were imported before, too.
    """
    here = Path(__file__)
    program = f"import sys; sys.path[:0] = {[str(here.parent), str(here.parents[1])]}; import test_strategies as it"
    subprocess.run([sys.executable, "-c", f"{program}; it.only_what_matters()"], check=True)


@given(plans(among=draw_plan(3).groups, kinds=("node dies",), chances=(), max_jobs=2))
@examples(20)
def test_a_world_of_ones_own(plan):
    """Groups, kinds, chances and the number of jobs are those that were asked for."""
    assert plan.groups == draw_plan(3).groups
    assert {fault.kind for fault in plan.faults} <= {"node dies"}
    assert plan.rates == ()
    assert len(plan.jobs) <= 2


@given(plans(kinds=()))
@examples(10)
def test_no_faults_at_all(plan):
    """Nothing to choose from is nothing chosen."""
    assert plan.faults == ()


def test_bounds_are_stated():
    """What is drawn is small enough to be read."""
    assert strategies.MAX_KINDS * strategies.MAX_MOMENTS < 30
