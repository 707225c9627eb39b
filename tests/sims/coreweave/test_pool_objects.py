"""What a NodePool says of itself, out of numbers."""

import attrs
import pytest

from iriscw_sims.coreweave.pool_objects import (
    NO_SPEC,
    NODES_LIMIT,
    SYSTEM_CRITICAL,
    Quota,
    Standing,
    complaint,
    is_spot,
    shape_of,
    shows,
    status_of,
    target_of,
    understood,
)
from iriscw_sims.coreweave.settings import FAITHFUL, QUICK


def said(standing, before=(), **spec):
    """Return status and reason of each condition."""
    status = status_of(standing, {"instanceType": "b200-8x", **spec}, {"conditions": [*before]}, QUICK, "now")
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


def test_before_it_was_judged_a_pool_says_nothing():
    """It counts its nodes."""
    assert said(Standing(target=2)) == {}


@pytest.mark.parametrize(("current", "reason"), [(1, "UnderTarget"), (2, "TargetMet"), (3, "OverTarget")])
def test_at_target_compares(current, reason):
    """Nodes with wishes."""
    found = said(Standing(target=2, current=current, judged=True, quota=Quota.UNDER))
    assert found["AtTarget"] == ("True" if current == 2 else "False", reason)


def test_waiting_is_for_capacity_and_not_for_quota():
    """The two must be told apart."""
    found = said(Standing(target=2, queued=2, judged=True, quota=Quota.UNDER, waiting=True))
    assert found["Quota"] == ("True", "Under")
    assert found["Capacity"] == ("False", "QueuedAwaitingCapacity")


@pytest.mark.parametrize("quota", [Quota.OVER, Quota.NOT_SET])
def test_without_quota_nothing_is_said_of_capacity(quota):
    """It was not asked for."""
    found = said(Standing(target=2, judged=True, quota=quota))
    assert found["Quota"] == ("False", quota.value)
    assert "Capacity" not in found


def test_an_invalid_pool_says_that_alone():
    """Whatever else might be wrong."""
    assert said(Standing(target=2, judged=True, why="no")) == {"Validated": ("False", "Invalid")}


def test_times_stay_with_their_status():
    """The rule of conditions everywhere."""
    before = [{"type": "Validated", "status": "True", "lastTransitionTime": "then"}]
    spec, told = {"instanceType": "b200-8x"}, {"conditions": before}
    found = status_of(Standing(target=0, judged=True), spec, told, QUICK, "now")["conditions"]
    assert {each["type"]: each["lastTransitionTime"] for each in found} == {"Validated": "then", "AtTarget": "now"}


def test_spot_is_spot_however_it_is_written():
    """The documentation and others differ."""
    assert is_spot({"computeClass": "Spot"})
    assert is_spot({"computeClass": "spot"})
    assert not is_spot({"computeClass": "default"})
    assert not is_spot({})


def test_racks_count_eighteen():
    """Each."""
    assert target_of({"targetRacks": 3}) == 54
    assert target_of({"targetNodes": 3}) == 3
    assert target_of({}) == 0


def test_an_unknown_type_is_for_small_worlds():
    """Faithful ones have only what CoreWeave has."""
    spec = {"instanceType": "nothing", "targetNodes": 1}
    assert complaint("p", spec, QUICK) == ""
    assert "not available" in complaint("p", spec, FAITHFUL)
    assert shape_of(spec, attrs.evolve(QUICK, unknown_type=None)) is None


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"nodeLabels": {"bad key": "x"}}, "bad key=x is not a valid label"),
        ({"nodeLabels": {"k": "y" * 64}}, "is not a valid label"),
        ({"nodeLabels": {"a.coreweave.com/k": "x"}}, "uses a reserved domain"),
        ({"nodeAnnotations": {"bad key": "x"}}, "is not a qualified name"),
        ({"nodeAnnotations": {"k": "x" * 300_000}}, "may not be more than 262144 bytes"),
        ({"nodeTaints": [{"key": "", "effect": "NoSchedule"}]}, "is not a valid taint"),
        ({"nodeTaints": [{"key": "k", "effect": "Never"}]}, "k:Never is not a valid taint"),
        ({"nodeTaints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}, "is reserved"),
        ({"nodeTaints": [{"key": "k", "effect": "NoExecute"}] * 2}, "is given twice"),
        ({"targetNodes": NODES_LIMIT + 1}, "at most 10000 nodes"),
        ({"instanceType": "no label!"}, "is not available"),
    ],
)
def test_what_nodes_cannot_carry_is_invalid(spec, said):
    """The API takes it, and no node could join."""
    found = complaint("p", {"instanceType": "b200-8x", "targetNodes": 1, **spec}, QUICK)
    assert said in found
    assert len(found) < 300


def test_what_nodes_can_carry_is_valid():
    """Labels, annotations and taints of one's own."""
    taints = [{"key": "k", "value": "v", "effect": effect} for effect in ("NoSchedule", "NoExecute")]
    labels = {"a/k": "v", SYSTEM_CRITICAL: "true"}
    spec = {"nodeLabels": labels, "nodeAnnotations": {"A/k": "any text"}, "nodeTaints": taints}
    assert complaint("p", {"instanceType": "b200-8x", "targetNodes": NODES_LIMIT, **spec}, QUICK) == ""


def test_a_name_must_fit_in_a_label():
    """It is one of each node's."""
    spec = {"instanceType": "b200-8x", "targetNodes": 1}
    assert complaint("p" * 63, spec, QUICK) == ""
    assert "63 characters" in complaint("p" * 64, spec, QUICK)


@pytest.mark.parametrize(
    ("item", "why"),
    [
        ({}, "there is no specification"),
        ({"spec": "b200-8x"}, "there is no specification"),
        ({"spec": {}}, "spec.instanceType: Required value"),
        ({"spec": {"instanceType": "b200-8x", "targetNodes": "two"}}, "spec.targetNodes: Invalid value"),
    ],
)
def test_what_has_another_form_is_no_specification(item, why):
    """The definition of the kind may have been changed."""
    spec, said = understood(item)
    assert spec is NO_SPEC
    assert said.startswith(why)


def test_a_specification_is_given_as_it_is():
    """With fields that are not known."""
    item = {"spec": {"instanceType": "b200-8x", "targetNodes": 2, "more": 1}}
    assert understood(item) == (item["spec"], "")


def test_what_others_write_over_a_status_is_noticed():
    """What they add is theirs."""
    told = {"currentNodes": 1, "conditions": []}
    assert shows({"status": {**told, "more": 1}}, told)
    assert not shows({"status": {**told, "currentNodes": "many"}}, told)
    assert not shows({"status": "gone"}, told)
    assert not shows({}, told)
    assert shows({}, {})
