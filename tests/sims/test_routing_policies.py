"""Whatever a routing policy says, invariants hold; and once it is in the way of nothing, all comes to rest."""

import attrs
import pytest
from hypothesis import HealthCheck, Phase, given, strategies as st

from iriscw.fleet.messages import RoutingFailed
from iriscw.fleet.policy import default_routing
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.holding import assert_holds
from iriscw_sims.world import World
from profiles import examples
from raised import that

ENOUGH_FROM = 400 * SECOND
"""From then on all faults of every seed's plan are over."""


class Broken(Exception):
    """What a policy raises."""


def fails(view):
    raise Broken(view.demand_id)


steps = st.one_of(
    st.integers(0, 9).map(lambda by: lambda view: [*view.groups[by:], *view.groups[:by]][: by % 4]),
    st.sampled_from([fails, lambda view: "many", lambda view: (), lambda view: view.groups[::-1], default_routing]),
)


@st.composite
def policies(draw):
    """Draw a policy that does one thing after the other, each for some seconds, and in the end what is built in."""
    actions, lasting = draw(st.lists(steps, min_size=1, max_size=6)), draw(st.integers(1, 60)) * SECOND

    def policy(view):
        action = actions[view.now // lasting % len(actions)]
        return action(view) if view.now < ENOUGH_FROM else default_routing(view)

    return policy


def check(seed, routing):
    run = World(seed, routing=routing).run()
    assert run.violations == (), run.report


QUICKLY = examples(2, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow], derandomize=True)


@QUICKLY
@given(st.integers(0, 999), policies())
def test_it_comes_to_rest_once_a_policy_is_in_the_way_of_nothing(seed, routing):
    """Some groups, none, any order, raising: every invariant holds meanwhile, and in the end every job is over."""
    check(seed, routing)


@pytest.mark.soak
@examples(20, QUICKLY)
@given(st.integers(0, 999), policies())
def test_many_routing_policies(seed, routing):
    """The same, with more of everything."""
    check(seed, routing)


def test_demand_that_no_group_may_take_is_noticed(calm_plan):
    """It waits for ever: the message has what the policy answered last, and how to try it again."""
    plan = calm_plan(1)
    bare = tuple(attrs.evolve(group, min_slices=0, buffer_slices=0) for group in plan.groups)
    with pytest.raises(AssertionError, check=that(names=("INV-liveness:", "routing=nowhere)"))):
        assert_holds(attrs.evolve(plan, groups=bare), routing=nowhere)


def nowhere(view):
    return ()


def test_a_routing_policy_that_fails(calm_plan):
    """In a controller its groups live by the default one, and events say so; in a test of it its error is the cause."""
    world = World(2, calm_plan(2), routing=fails)
    assert world.run().violations == ()
    events = [each.error for each in world.system.events if type(each) is RoutingFailed]
    assert events
    assert all("Broken: demand-" in each for each in events)
    with pytest.raises(AssertionError, check=that(names="routing=fails)", cause=Broken)):
        assert_holds(calm_plan(2), routing=fails)
