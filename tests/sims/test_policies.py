"""Whatever a policy says, the fleet's invariants hold; and if it says enough in the end, all comes to rest."""

import attrs
import pytest
from hypothesis import HealthCheck, Phase, given, strategies as st

from iriscw.cloud.model import Attributes, Capacity
from iriscw.fleet.messages import PolicyFailed
from iriscw.fleet.model import GroupConfig
from iriscw.fleet.policy import default_policy
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.holding import assert_holds
from iriscw_sims.pace import QUICK, TIMING
from iriscw_sims.policies import ANSWERS_KEPT, Asked
from iriscw_sims.strategies import plans
from iriscw_sims.swarm import GIB, draw_plan
from iriscw_sims.world import World
from profiles import examples

ENOUGH_FROM = 400 * SECOND
"""From then on all faults of every seed's plan are over."""

IMPATIENT = attrs.evolve(QUICK, converge=300 * SECOND)
"""For worlds that never come to rest: one need not wait for that."""


class Broken(Exception):
    """What a policy raises."""


def slow(view):
    """Take some milliseconds."""
    return sum(range(100_000)) * 0 + default_policy(view)


def fails(view):
    raise Broken(view.group)


def gives_text(view):
    return "many"


sizes = st.one_of(st.integers(0, 5), st.just(10**30), st.just(-(10**30)))
steps = st.one_of(sizes.map(lambda size: lambda view: size), st.sampled_from([fails, gives_text, slow, default_policy]))


@st.composite
def policies(draw):
    """Draw a policy that does one thing after the other, each for some seconds, and begins again."""
    actions, lasting = draw(st.lists(steps, min_size=1, max_size=6)), draw(st.integers(1, 60)) * SECOND
    return lambda view: actions[view.now // lasting % len(actions)](view)


def sound(run):
    """Return what is broken beside liveness, which a policy can break."""
    return [each for each in run.violations if not each.startswith("INV-liveness")]


def check_safety(seed, policy):
    """No invariant is broken under a policy that goes on like this for ever."""
    run = World(seed, pace=IMPATIENT, policy=policy).run()
    assert sound(run) == [], run.report


def check_liveness(seed, policy):
    """All comes to rest under a policy that sometime wants enough."""

    def in_the_end(view):
        return policy(view) if view.now < ENOUGH_FROM else default_policy(view)

    run = World(seed, policy=in_the_end).run()
    assert run.violations == (), run.report


QUICKLY = examples(2, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow], derandomize=True)
THOROUGHLY = examples(20, QUICKLY)


@QUICKLY
@given(st.integers(0, 999), policies())
def test_invariants_hold_whatever_a_policy_says(seed, policy):
    """Huge, negative, alternating, raising, slow: slices keep within bounds, and none goes that is not idle (INV-F)."""
    check_safety(seed, policy)


@QUICKLY
@given(st.integers(0, 999), policies())
def test_it_comes_to_rest_once_a_policy_wants_enough(seed, policy):
    """Whatever it said before: every job ends, and nothing is left over."""
    check_liveness(seed, policy)


@pytest.mark.soak
@THOROUGHLY
@given(st.integers(0, 999), policies())
def test_many_policies(seed, policy):
    """Both laws, with more of everything."""
    check_safety(seed, policy)
    check_liveness(seed, policy)


@pytest.mark.parametrize("said", [10**30, -1, 0])
def test_a_constant_is_brought_within_bounds(said):
    """At rest a group has what its policy wants, as far as its bounds allow."""
    plan = attrs.evolve(draw_plan(4), faults=(), rates=(), jobs=())
    world = World(4, plan, policy=lambda view: said)
    assert world.run().violations == ()
    for group in plan.groups:
        slices = [each for each in world.fleet_checks.promised.values() if each.group == group.name]
        assert len(slices) == min(max(said, group.min_slices), group.max_slices)


def test_a_policy_that_starves_demand_is_noticed(calm_plan):
    """Scaling to zero while demand waits breaks liveness, and nothing else."""
    run = World(1, calm_plan(1), pace=IMPATIENT, policy=lambda view: 0).run()
    assert len(run.violations) == 1
    assert "not ended" in run.violations[0]
    assert sound(run) == []


def test_failures_are_published_once_a_minute(calm_plan):
    """A group whose policy raises lives by the default one: the same run, and events that say so."""
    plan = calm_plan(2)
    world = World(2, plan, policy=fails)
    run = world.run()
    assert run.violations == ()
    assert run.simulated_s == World(2, plan).run().simulated_s
    events = [each for each in world.system.events if type(each) is PolicyFailed]
    assert {each.group for each in events} == {group.name for group in plan.groups}
    assert all(each.error.endswith(f"Broken: {each.group}") for each in events)
    assert len(plan.groups) <= len(events) <= len(plan.groups) * (1 + run.simulated_s / 60)


def test_the_default_policy_changes_nothing():
    """Naming it gives the very run that a world has without."""
    assert World(5, policy=default_policy).run() == World(5).run()


def test_what_was_answered_is_remembered(calm_plan):
    """The last answers that differ, for people; the first failure in words."""
    asked = Asked(lambda view: view.now // SECOND // 10)
    run = World(1, calm_plan(1), pace=IMPATIENT, policy=asked).run()
    assert run.steps > 0
    lines = asked.told.splitlines()
    assert len(lines) == ANSWERS_KEPT
    assert all("slices, when demand wanted" in line for line in lines)
    assert asked.failure == ""
    asked = Asked(fails)
    World(1, calm_plan(1), pace=IMPATIENT, policy=asked).run()
    assert type(asked.error) is Broken
    assert "Broken: g0, at " in asked.failure
    assert "GroupView(group='g0'" in asked.failure


ROOMY = GroupConfig(
    name="g0",
    per_worker=Capacity(4000, 16 * GIB),
    attributes=Attributes({"zone": "z0", "device-type": "cpu"}),
    instance_type="cd-gp-i64",
    max_slices=40,
    timing=TIMING,
)
"""So large that nobody waits for more than a boot, unless the policy is wrong."""


def forgets_the_busy(view):
    """As many slices as there is demand for, however many are busy."""
    return view.wanted


def waits(policy, task_length_s):
    """Return how long a task waited at most, of some plans without faults, in seconds."""
    found = []

    @examples(12, database=None, derandomize=True, phases=[Phase.generate])
    @given(plans(among=[ROOMY], kinds=(), chances=(), max_jobs=6, task_length_s=task_length_s))
    def draw(plan):
        found.append(max(assert_holds(plan, policy=policy).waited_s, default=0))

    draw()
    return max(found)


@pytest.mark.slow
def test_tasks_that_last_show_a_policy_that_forgets_busy_slices():
    """With tasks of seconds it looks as good as the built-in one."""
    assert waits(default_policy, (120, 600)) <= 120
    assert waits(forgets_the_busy, (120, 600)) > 120
    assert waits(forgets_the_busy, None) <= 120
