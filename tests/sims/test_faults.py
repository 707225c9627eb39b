"""Each kind of fault for itself."""

import attrs
import pytest

from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.swarm import FAULTS, MOVE_FAULTS, RATES, SUSPENDS, Fault, draw_plan
from iriscw_sims.world import World


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", FAULTS)
def test_the_world_survives_a_fault_that_comes_often(kind, calm_plan):
    """Many faults of one kind break nothing, and they do happen."""
    plan = calm_plan(17)
    kinds = (SUSPENDS, kind) if kind in MOVE_FAULTS else (kind,)  # those wait for an attempt that moves
    moments = range(20, plan.safety // SECOND, 37)
    faults = tuple(Fault(at * SECOND, each, at * 7919) for at in moments for each in kinds)
    run = World(17, attrs.evolve(plan, faults=faults)).run()
    assert not run.violations, run.report
    assert dict(run.fired).get(kind, 0) >= 1


@pytest.mark.sampled(4)
@pytest.mark.parametrize("chance", dict(RATES))
def test_the_world_survives_a_chance_at_its_highest_rate(chance):
    """One kind of chance alone, as likely as it may be, breaks nothing."""
    plan = attrs.evolve(draw_plan(17), faults=(), rates=((chance, dict(RATES)[chance]),))
    run = World(17, plan).run()
    assert not run.violations, run.report
