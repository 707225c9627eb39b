"""Pods that cannot start, in the simulated world: users read why, pods are replaced with a bound, all ends well."""

import attrs
import pytest

from iriscw.fleet.model import Trouble
from iriscw.fleet.slices.slice import MAX_POD_FAILURES
from iriscw_sims.swarm import draw_plan
from iriscw_sims.world import World

NEVER_STARTED = "the worker pod did not start, because "


def watched(seed, chance):
    """Run a world in which every pod meets one obstacle; give the run, and what slices in trouble said."""
    plan = attrs.evolve(draw_plan(seed), faults=(), rates=((chance, 1000),))
    world, said = World(seed, plan), {}

    def look():
        for path in world.system.tree.cells:
            if str(path).count("/") == 3 and str(path).startswith("/fleet/"):
                state = world.system.state(path)
                if getattr(state, "trouble", None) is Trouble.WORKERS:
                    said[state.reason] = None

    world.simulation.checkers.append(look)
    return world.run(), [*said]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("chance", "words"),
    [
        ("image pull fails", ("its image cannot be had", "not found")),
        ("image pull limited", ("its image cannot be had", "429 Too Many Requests")),
        ("container config missing", ("what its container needs is missing", 'secret "env" not found')),
        ("mount fails", ("its volumes or its network are not set up", "ContainerCreating")),
    ],
)
def test_what_keeps_pods_from_starting_is_told(chance, words):
    """The pod is replaced, and the slice says why in the cloud's own words; healed, the world comes to rest."""
    run, said = watched(5, chance)
    assert run.violations == ()
    assert dict(run.fired)[chance] > 1
    assert [text for text in said if NEVER_STARTED in text and all(each in text for each in words)]


@pytest.mark.slow
def test_pods_that_fail_are_replaced_so_often():
    """Then the slice as a whole is, and says how often and why."""
    run, said = watched(5, "pod fails")
    assert run.violations == ()
    assert [text for text in said if f"failed {MAX_POD_FAILURES} times: the worker pod ended: " in text]
