"""Gangs whose members share something else than a slice: each slice is bought once, and all that are needed are."""

import attrs
import pytest
from hypothesis import HealthCheck, Phase, given, strategies as st

from iriscw.cloud.model import Attributes, Capacity, Constraint, Op
from iriscw.fleet.model import GroupConfig
from iriscw.fleet.records import SliceRequested
from iriscw.jobs.model import JobSpec
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims import network
from iriscw_sims.holding import assert_holds
from iriscw_sims.outcome import Meter
from iriscw_sims.pace import TIMING
from iriscw_sims.plan_text import ENTRYPOINT
from iriscw_sims.strategies import plans
from iriscw_sims.swarm import FAULTS, GIB, RATES, Plan, PlannedJob
from profiles import examples

WHOLE = Capacity(4000, 4 * GIB)
"""All processors of a worker: a member takes a machine."""

QUICKLY = examples(6, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow], derandomize=True)
THOROUGHLY = examples(40, QUICKLY)


def group(name="g0", **changes):
    """Make a group of machines without GPUs in zone z0, one to a slice."""
    config = GroupConfig(
        name=name,
        per_worker=Capacity(4000, 16 * GIB),
        attributes=Attributes({"zone": "z0", "device-type": "cpu"}),
        instance_type="cd-gp-i64",
        max_slices=4,
        timing=TIMING,
    )
    return attrs.evolve(config, **changes)


def gang(number, replicas, by, at=0, demand=WHOLE, constraints=()):
    spec = JobSpec(
        name=f"gang{number}",
        entrypoint=ENTRYPOINT,
        demand=demand,
        replicas=replicas,
        group_by=by,
        constraints=constraints,
        max_retries_failure=2,
        max_retries_preemption=100,
    )
    return PlannedJob(at * SECOND, f"gang{number}", spec)


def calm(groups, *jobs, seed=1):
    return Plan(seed, tuple(groups), jobs, (), (), 240 * SECOND)


@pytest.fixture
def bought(monkeypatch):
    """Count the slices that were promised."""
    names = []
    record = Meter._record

    def listen(meter, path, fact):
        if isinstance(fact, SliceRequested):
            names.append(fact.slice_id)
        record(meter, path, fact)

    monkeypatch.setattr(Meter, "_record", listen)
    return names


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("by", ["group", "zone"])
def test_a_gang_larger_than_a_slice_gets_its_slices_once(bought, by, seed):
    """Slices become ready one after the other: the first are kept for the last one, and none is asked for twice."""
    outcome = assert_holds(calm([group(max_slices=8)], gang(0, 4, by), seed=seed))
    assert len(bought) == 4
    assert outcome.oscillations == 0
    assert len(outcome.waited_s) == 4


def test_slices_of_all_groups_that_share_the_value_count(bought):
    """Neither group has room for the whole gang; the one of another zone, which has, costs more to ask for."""
    far = group("far", max_slices=5, attributes=Attributes({"zone": "z1"}), priority=900)
    assert_holds(calm([group("a", max_slices=2), group("b", max_slices=3), far], gang(0, 5, "zone")))
    assert sorted(name.split("-")[1] for name in bought) == ["a", "a", "b", "b", "b"]


def test_idle_slices_are_used_and_only_the_rest_is_bought(bought):
    """Two slices are ready when the gang comes, as the group always has two."""
    outcome = assert_holds(calm([group(min_slices=2, max_slices=8)], gang(0, 4, "group", at=100)))
    assert len(bought) == 4
    assert outcome.most_slices == 4


@pytest.fixture
def old_image(monkeypatch):
    """Have the first workers that dial run an older Python than all later ones: give a call that says how many do.

    Less than 0 is the one worker that does, all that dialled before it and after it do not.
    """
    seen, old = {}, [0]
    dial = network.WorkerDialled

    def dialled(worker_id, *args, **kwargs):
        number = seen.setdefault(worker_id, len(seen))
        python = "3.11" if number < old[0] or number == -old[0] else "3.12"
        return attrs.evolve(dial(worker_id, *args, **kwargs), attributes=Attributes({"python": python}))

    monkeypatch.setattr(network, "WorkerDialled", dialled)
    return lambda count: old.__setitem__(0, count)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("old", "least", "most"), [(2, 2, 8), (2, 0, 8), (1, 2, 3), (1, 0, 2), (2, 2, 2), (3, 3, 3), (1, 1, 2)]
)
@pytest.mark.parametrize(("by", "asked"), [("zone", "3.12"), ("python", "3.12"), ("python", None)])
def test_idle_slices_that_cannot_run_a_gang_are_replaced(old_image, by, asked, old, least, most):
    """Their workers run an older Python than the gang needs, or than its other members: others are bought."""
    old_image(old)
    constraints = (Constraint("python", Op.EQ, (asked,)),) if asked else ()
    config = group(min_slices=least, max_slices=most)
    outcome = assert_holds(calm([config], gang(0, 2, by, at=100, constraints=constraints)))
    assert len(outcome.waited_s) == 2


def test_a_task_that_idle_slices_cannot_run_gets_another(bought, old_image):
    """The group has all that it may, and keeps them: one goes, and there are as many as before."""
    old_image(2)
    job = gang(0, 1, None, at=100, constraints=(Constraint("python", Op.EQ, ("3.12",)),))
    outcome = assert_holds(calm([group(min_slices=2, max_slices=2)], job))
    assert len(outcome.waited_s) == 1
    assert (len(bought), outcome.most_slices) == (3, 2)


def test_of_idle_slices_the_one_that_nothing_could_use_goes(bought, old_image):
    """The first has been idle for longer, and a gang that needs two waits on it: it is not the one to go."""
    old_image(-1)
    job = gang(0, 2, "group", at=100, constraints=(Constraint("python", Op.EQ, ("3.12",)),))
    outcome = assert_holds(calm([group(min_slices=2, max_slices=2)], job))
    assert len(outcome.waited_s) == 2
    assert len(bought) == 3


def test_slices_that_no_new_one_betters_are_replaced_ever_less_often(bought, old_image):
    """Each pause is twice the one before: of sixty that it could have replaced within the hour few go."""
    old_image(99)
    job = gang(0, 1, None, at=10, constraints=(Constraint("python", Op.EQ, ("3.12",)),))
    planned = attrs.evolve(job, terminate_after=3600 * SECOND)
    assert_holds(attrs.evolve(calm([group(min_slices=2, max_slices=2)], planned), safety=3700 * SECOND))
    assert 3 <= len(bought) - 2 <= 8


@pytest.mark.parametrize("by", [None, "zone"])
def test_slices_that_could_not_run_what_waits_are_tried_ever_less_often(bought, old_image, by):
    """Where there is room: one at a time, each after twice the pause, and the one before is let go."""
    old_image(99)
    job = gang(0, 3, by, at=10, constraints=(Constraint("python", Op.EQ, ("3.12",)),))
    planned = attrs.evolve(job, terminate_after=3600 * SECOND)
    assert_holds(attrs.evolve(calm([group(max_slices=4)], planned), safety=3700 * SECOND))
    first = 3  # nothing is known of the group: each member gets its slice
    assert 3 <= len(bought) - first <= 8


def test_a_gang_waits_for_machines_that_others_have_without_buying(bought):
    """One of four slices is busy for long: the fleet could have no four others, so it asks for none until it can."""
    jobs = [gang(0, 1, None), gang(1, 4, "group", at=30)]
    outcome = assert_holds(calm([group()], *jobs))
    assert len(outcome.waited_s) == 5
    assert len(bought) == 4


@st.composite
def spread_plans(draw, kinds, chances):
    """Draw a world with gangs that no slice holds, among other jobs."""
    plan = draw(plans(kinds=kinds, chances=chances, max_jobs=2))
    jobs = []
    for number in range(draw(st.integers(1, 2))):
        config = draw(st.sampled_from(plan.groups))
        by = draw(st.sampled_from(["zone", "group"]))
        most = config.max_slices * config.num_vms
        jobs.append(gang(number, draw(st.integers(1, most)), by, at=draw(st.integers(0, 180))))
    # A quota that two groups share may leave each with half of what its gang needs (docs/distributed-training.md).
    groups = tuple(attrs.evolve(each, quota_pool="") for each in plan.groups)
    return attrs.evolve(plan, groups=groups, jobs=(*plan.jobs, *jobs))


@QUICKLY
@given(spread_plans(FAULTS, RATES))
def test_every_gang_runs_in_the_end(plan):
    """Whatever fails meanwhile: once all is healed every job is over, and no machine is there for nothing."""
    assert_holds(plan)


@pytest.mark.soak
@THOROUGHLY
@given(spread_plans(FAULTS, RATES))
def test_every_gang_runs_in_the_end_with_many_plans(plan):
    """The same, many times."""
    assert_holds(plan)


@QUICKLY
@given(st.data())
def test_nothing_is_bought_twice(data):
    """Without faults a lone gang costs as many slices as it needs, whatever is idle, and none comes after one went."""
    vms, per, least = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2)), data.draw(st.integers(0, 2))
    slices = data.draw(st.integers(1, 4))
    most = vms * per * slices
    replicas = data.draw(st.integers(most - vms * per + 1, most))
    demand = attrs.evolve(WHOLE, cpu_milli=WHOLE.cpu_milli // per)
    config = group(num_vms=vms, min_slices=min(least, slices), max_slices=slices + data.draw(st.integers(0, 2)))
    by = data.draw(st.sampled_from(["zone", "group"]))
    lone = gang(0, replicas, by, at=data.draw(st.integers(0, 100)), demand=demand)
    outcome = assert_holds(calm([config], lone, seed=data.draw(st.integers(0, 99))))
    assert outcome.most_slices == slices
    assert outcome.oscillations == 0
