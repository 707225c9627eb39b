"""What seeds draw."""

import pytest

from iriscw.jobs.model import check_spec
from iriscw_sims.pace import QUICK, TIMING
from iriscw_sims.swarm import FAULTS, RATES, draw_plan


@pytest.mark.parametrize("seed", range(50))
def test_a_plan_is_feasible(seed):
    """Some group can run each job, so that only faults and users keep it from succeeding."""
    plan = draw_plan(seed)
    for planned in plan.jobs:
        spec = planned.spec
        check_spec(spec)
        fitting = [
            group
            for group in plan.groups
            if all(constraint.satisfied(group.attributes) for constraint in spec.constraints)
            and group.per_worker.times(spec.demand) * (group.num_vms if spec.group_by else 10_000) >= spec.replicas
        ]
        assert fitting


def test_plans_differ_in_their_faults():
    """Each kind of fault is switched on by some seeds and off by others."""
    plans = [draw_plan(seed) for seed in range(100)]
    for name in (*FAULTS, *dict(RATES)):
        on = [name in dict(plan.rates) or any(fault.kind == name for fault in plan.faults) for plan in plans]
        assert True in on
        assert False in on


def test_a_fault_can_be_taken_out():
    """A plan without a kind of fault differs in nothing else."""
    plan = next(plan for plan in map(draw_plan, range(100)) if plan.faults)
    kind = plan.faults[0].kind
    smaller = plan.without(kind)
    assert [fault for fault in plan.faults if fault.kind != kind] == list(smaller.faults)
    assert smaller.groups == plan.groups


def test_the_controller_waits_longer_than_a_worker_lives():
    """The safety of jobs rests on it: silence and lease grace together outlast the worker's lease and its heartbeat."""
    assert TIMING.liveness_timeout + QUICK.lease_grace > 2 * QUICK.lease
