"""Strangers who have a name first: what they make, and that the fleet goes on under other names."""

import attrs
import pytest

from iriscw.cloud.model import LABEL_CLUSTER
from iriscw.fleet.model import Trouble
from iriscw.fleet.signals import SliceReported
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.pace import CLUSTER
from iriscw_sims.strangers import COPY, FOREIGN
from iriscw_sims.swarm import Fault
from iriscw_sims.world import World


def run(plan, chances=(), faults=()):
    """Run a plan with these chances and faults; give the world, which held."""
    world = World(plan.seed, attrs.evolve(plan, rates=chances, faults=faults))
    troubles = []
    seen = world.simulation.seen

    def delivered(cell, message):
        if isinstance(message, SliceReported):
            troubles.append(message.row.trouble)
        seen(cell, message)

    world.simulation.seen = delivered
    done = world.run()
    assert not done.violations, done.report
    return world, troubles


def test_a_pool_whose_name_is_taken_gets_another_name(calm_plan):
    """The stranger's pool is left alone, users read why, and the jobs end all the same."""
    world, troubles = run(calm_plan(2), chances=(("pool name taken", 500),))
    strange = list(world.cloud.strangers.uids.values())
    assert strange
    assert Trouble.NAME_TAKEN in troubles
    assert Trouble.INVALID not in troubles
    assert all(world.cloud.pools[name].labels.get(LABEL_CLUSTER) != CLUSTER for name in strange)


def test_a_pod_whose_name_is_taken_gets_another_name(calm_plan):
    """Nobody waits for a place that a stranger's pod has."""
    world, _ = run(calm_plan(2), chances=(("pod name taken", 500),))
    strange = list(world.cloud.strangers.uids.values())
    assert strange
    assert all(name in world.cloud.pods for name in strange)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", range(len(FOREIGN) + 1))
def test_a_name_that_was_ours_is_another_s(calm_plan, kind):
    """What somebody makes under the name of a pool that is gone is his; only a copy with our labels is reclaimed."""
    plan = calm_plan(2)
    group = attrs.evolve(plan.groups[0], min_slices=1, max_slices=2)
    faults = (Fault(60 * SECOND, "pool replaced by a stranger", kind << 4),)
    world, _ = run(attrs.evolve(plan, groups=(group, *plan.groups[1:])), faults=faults)
    left = [world.cloud.pools[name].uid for name in world.cloud.strangers.uids.values()]
    assert left == list(world.cloud.strangers.uids)
    assert len(left) == ((*FOREIGN, COPY)[kind] != COPY)


def test_a_pod_of_a_stranger_takes_nobody_s_room(calm_plan):
    """It waits for ever for a node that there is not."""
    world, _ = run(calm_plan(2), chances=(("pod name taken", 500),))
    names = list(world.cloud.strangers.uids.values())
    nodes = [pod["spec"].get("nodeName") for pod in world.cloud._pods.raw if pod["metadata"]["name"] in names]
    assert nodes == [None] * len(names)
