"""Property tests of a fleet, and of a user's own policy, as the documentation shows them."""

import pytest
from hypothesis import Phase, find, given

from iriscw.fleet.policy import default_policy
from iriscw.runtime.vocabulary import SECOND
from iriscw.testing.fleet import Outcome, assert_holds, plans
from iriscw_sims.shrinking import run_plan
from profiles import examples

QUICKLY = examples(5, database=None, derandomize=True)


@QUICKLY
@given(plans(max_jobs=2, kinds=(), chances=()))
def test_a_policy_is_tested(plan):
    """A sound policy holds, and its figures are there."""
    outcome = assert_holds(plan, policy=lambda view: default_policy(view) + 1)
    assert isinstance(outcome, Outcome)
    assert outcome.slice_seconds > outcome.idle_slice_seconds > 0


def frugal(view):
    """Ask for slices once demand needs two."""
    return view.busy + (view.wanted if view.wanted >= 2 else 0)


def starved(plan):
    """Whether something waits for ever."""
    violations = run_plan(plan, frugal).violations
    return bool(violations) and violations[0].startswith("INV-liveness")


def test_a_bad_policy_is_found():
    """It starves the demand of some plan soon; under the built-in one that plan holds."""
    first = examples(30, QUICKLY, phases=[Phase.generate])
    plan = find(plans(max_jobs=1, kinds=(), chances=()), starved, settings=first)
    assert run_plan(plan).violations == ()


@pytest.mark.slow
def test_a_counterexample_is_small():
    """Neither faults nor chances, one group of one slice, one job of one task."""
    plan = find(plans(max_jobs=3), starved, settings=examples(200, QUICKLY))
    assert (plan.faults, plan.rates) == ((), ())
    (group,), (job,) = plan.groups, plan.jobs
    assert (group.max_slices, group.num_vms, job.spec.replicas, job.at) == (1, 1, 1, 0)


def flapping(view):
    """Change one's mind every two minutes, as long as somebody looks."""
    return 0 if view.now > 600 * SECOND or view.now // (120 * SECOND) % 2 else view.max_slices


def test_what_no_invariant_knows_is_in_the_figures():
    """A policy that goes up and down breaks nothing; what it does can be asserted."""
    first_drawn = examples(1, QUICKLY, phases=[Phase.generate])
    plan = find(plans(max_jobs=1, kinds=(), chances=()), lambda plan: True, settings=first_drawn)
    outcome = assert_holds(plan, policy=lambda view: max(default_policy(view), flapping(view)))
    assert outcome.oscillations >= 1
    assert outcome.idle_slice_seconds > assert_holds(plan).idle_slice_seconds
