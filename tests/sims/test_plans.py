"""Plans as JSON: what is written is read back, and what is not a plan is refused by name."""

import json

import attrs
import pytest
from hypothesis import given, strategies as st

from iriscw._errors import UsageError
from iriscw_sims import Fault, World, draw_plan
from iriscw_sims.plans import (
    FORMAT,
    MAX_PLAN_BYTES,
    VERSION,
    BadPlan,
    PlanInvalid,
    PlanUnreadable,
    PlanVersionUnknown,
    dump_plan,
    load_plan,
)
from raised import that

PLAN = attrs.evolve(draw_plan(3), faults=(Fault(1, "node dies", 2),), rates=(("api lost", 5),))


def changed(*path, to):
    """The plan's text with one value changed."""
    data = json.loads(dump_plan(PLAN))
    place = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return json.dumps(data)


@given(st.integers(0, 2**63 - 1))
def test_a_plan_is_read_as_it_was_written(seed):
    """Every plan that a seed draws comes back equal, and writes the same text again."""
    plan = draw_plan(seed)
    text = dump_plan(plan)
    assert load_plan(text) == load_plan(text.encode()) == plan
    assert dump_plan(load_plan(text)) == text


@pytest.mark.parametrize("seed", [34, 41])
def test_a_plan_that_was_read_runs_the_same(seed):
    """The run of a plan from a file is the run of its seed."""
    assert World(seed, load_plan(dump_plan(draw_plan(seed)))).run() == World(seed).run()


def test_changes_by_hand_are_taken():
    """Faults that are left out are gone; a field that is left out takes its default."""
    data = json.loads(dump_plan(attrs.evolve(PLAN, takeover_delay=5)))
    data["plan"]["faults"] = []
    del data["plan"]["takeover_delay"]
    assert load_plan(json.dumps(data)) == attrs.evolve(PLAN, faults=(), takeover_delay=0)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"format": "another"}', "[" * 100_000, b"\xff\xfe"])
def test_what_is_no_plan_is_unreadable(text):
    """Not JSON, or not of this form."""
    with pytest.raises(PlanUnreadable):
        load_plan(text)


def test_a_plan_is_bounded():
    """Something huge is refused before it is parsed."""
    with pytest.raises(PlanUnreadable, check=that(comes_from="plans.load_any_plan")):
        load_plan(" " * (MAX_PLAN_BYTES + 1))


@pytest.mark.parametrize("version", [0, VERSION + 1, "1", None])
def test_another_version_is_refused(version):
    """The text says which version it is and which one is read."""
    with pytest.raises(PlanVersionUnknown):
        load_plan(changed("version", to=version))


@pytest.mark.parametrize(
    ("path", "to", "said"),
    [
        (["plan"], None, that(comes_from="plans._read_object", names=("plan", "null"))),
        (["plan", "seed"], "3", that(comes_from="plans._read", names="plan.seed")),
        (["plan", "seed"], True, that(comes_from="plans._read", names="plan.seed")),
        (["plan", "seed"], 2**70, that(comes_from="plans._read", names=("plan.seed", "1180591620717411303424"))),
        (["plan", "surprise"], 1, that(comes_from="plans._read_object", names=("plan", "Plan", "surprise"))),
        (["plan", "groups"], {}, that(comes_from="plans._read_tuple", names="plan.groups")),
        (["plan", "groups"], [], that(comes_from="plans._check_fleet")),
        (
            ["plan", "groups", 0, "timing", "boot_timeout"],
            -1,
            that(comes_from="plans._check_range", names=("plan.groups[0].timing.boot_timeout", "-1")),
        ),
        (["plan", "groups", 0, "num_vms"], 0, that(names=("plan.groups[0", "scale", "g0"))),
        (["plan", "groups", 0, "name"], 5, that(names="plan.groups[0].name")),
        (
            ["plan", "jobs", 0, "spec", "replicas"],
            0,
            that(comes_from="plans._check_fleet", names=("0", "replicas")),
        ),
        (
            ["plan", "jobs", 0, "spec", "demand"],
            [],
            that(comes_from="plans._read_object", names="plan.jobs[0].spec.demand"),
        ),
        (
            ["plan", "jobs", 0, "existing"],
            "sometimes",
            that(comes_from="plans._read", names=("plan.jobs[0].existing", "sometimes")),
        ),
        (["plan", "jobs", 0, "terminate_after"], 1.5, that(names="plan.jobs[0].terminate_after")),
        (["plan", "faults", 0], {"at": 1}, that(comes_from="plans._read_object", names="plan.faults[0")),
        (["plan", "faults", 0, "kind"], "earthquake", that(comes_from="plans._check_luck", names="earthquake")),
        (["plan", "faults", 0, "at"], -1, that(comes_from="plans._check_range", names=("plan.faults[0].at", "-1"))),
        (
            ["plan", "rates", 0],
            ["api lost", 1, 2],
            that(comes_from="plans._read_tuple", names=("plan.rates[0", "2", "3")),
        ),
        (["plan", "rates", 0], ["luck", 1], that(comes_from="plans._check_luck", names="luck")),
        (["plan", "rates", 0], ["api lost", 1_001], that(comes_from="plans._check_range", names="1000")),
        (["plan", "safety"], -1, that(names=("plan.safety", "-1"))),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(path, to, said):
    """The error names the value and where it stands."""
    with pytest.raises(PlanInvalid, check=said):
        load_plan(changed(*path, to=to))


def other(**changes):
    """The plan with other fields, of whatever type."""
    return attrs.evolve(PLAN, **changes)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (other(groups=()), that(comes_from="plans._check_fleet")),
        (other(groups=PLAN.groups * 2), that(comes_from="plans._check_fleet", names=("1", "0", "g0"))),
        (other(groups=(None,)), that(comes_from="plans._read_object", names="plan.groups[0")),
        (other(jobs=None), that(comes_from="plans._read_tuple", names=("plan.jobs", "null"))),
        (other(faults=(Fault(1, "earthquake", 2),)), that(comes_from="plans._check_luck", names="earthquake")),
        (other(faults=(Fault(1.5, "node dies", 2),)), that(names="plan.faults[0].at")),
        (other(faults=(Fault(-1, "node dies", 2),)), that(comes_from="plans._check_range")),
        (other(faults=("node dies",)), that(comes_from="plans._read_object", names="plan.faults[0")),
        (other(rates=(("luck", 1),)), that(comes_from="plans._check_luck", names="luck")),
        (other(rates=(("api lost", 2_000),)), that(comes_from="plans._check_range", names="1000")),
        (other(rates={"api lost": 1}), that(comes_from="plans._read_tuple", names="plan.rates")),
        (other(safety=-1), that(names=("plan.safety", "-1"))),
        (other(safety="60"), that(names="plan.safety")),
        (other(seed=None), that(names="plan.seed")),
        ("plan", that(comes_from="plans._read_object", names="plan")),
        (PLAN.faults[0], that(comes_from="plans._read_object", names=("plan", "Plan"))),
    ],
)
def test_a_world_refuses_the_plans_that_a_file_could_not_hold(plan, said):
    """One validation has two users: the errors are the same whoever made the plan."""
    with pytest.raises(PlanInvalid, check=said):
        World(3, plan)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)))
def test_nonsense_is_always_a_bad_plan(value):
    """Whatever stands where the plan should: a named error of the caller's, never another one."""
    with pytest.raises(BadPlan) as raised:
        load_plan(json.dumps({"format": FORMAT, "version": VERSION, "plan": value}))
    assert isinstance(raised.value, UsageError)
