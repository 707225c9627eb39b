"""Wrong clocks: what nodes and controllers write as the time changes nothing that the fleet or the driver decides."""

import attrs
import pytest

from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.coreweave.site import Site
from iriscw_sims.kube.clock import written
from iriscw_sims.swarm import Fault, draw_plan
from iriscw_sims.world import World

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3, 4, 5))]


def wrong_clocks(seed):
    """Return the plan of a seed in which every node's clock is wrong, and all of them jump."""
    plan = draw_plan(seed)
    jumps = tuple(
        Fault(at * SECOND, kind, at * 7919 + index)
        for at in range(15, plan.safety // SECOND, 20)
        for index, kind in enumerate(("node clock jumps", "controllers' clock jumps"))
    )
    rates = (*(each for each in plan.rates if each[0] != "node clock off"), ("node clock off", 1000))
    return attrs.evolve(plan, faults=tuple(sorted((*plan.faults, *jumps), key=lambda each: each.at)), rates=rates)


def clocks(monkeypatch, direction):
    """Have every clock be wrong in one direction or the other; give all times that kubelets read off theirs."""
    read = []

    def clock_of(site, machine):
        read.append(site.now + direction * machine.clock_off)
        return read[-1]

    monkeypatch.setattr(Site, "stamp", property(lambda site: written(site.now + direction * site.clock_off)))
    monkeypatch.setattr(Site, "clock_of", clock_of)
    return read


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_no_decision_rests_on_a_clock_of_the_platform(seed, monkeypatch):
    """Ahead or behind by minutes, all at once: two worlds with opposite clocks do the same, step by step."""
    plan = wrong_clocks(seed)
    ahead = clocks(monkeypatch, 1)
    run = World(seed, plan).run()
    assert not run.violations, run.report
    fired = dict(run.fired)
    assert fired["node clock off"]
    assert fired["controllers' clock jumps"]
    behind = clocks(monkeypatch, -1)
    assert World(seed, plan).run().trace == run.trace
    assert sum(abs(one - other) > 60 * SECOND for one, other in zip(ahead, behind, strict=True)) > 5
