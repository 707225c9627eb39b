"""What a NodePool says of itself, out of numbers."""

import attrs
import pytest

from iriscw_sims.coreweave.pool_objects import Quota, Standing, complaint, is_spot, shape_of, status_of, target_of
from iriscw_sims.coreweave.settings import FAITHFUL, QUICK


def said(standing, before=(), **spec):
    """Give status and reason of each condition."""
    item = {"spec": {"instanceType": "b200-8x", **spec}, "status": {"conditions": [*before]}}
    status = status_of(standing, item, QUICK, "now")
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
    item = {"spec": {"instanceType": "b200-8x"}, "status": {"conditions": before}}
    found = status_of(Standing(target=0, judged=True), item, QUICK, "now")["conditions"]
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
    assert complaint(spec, QUICK) == ""
    assert "not available" in complaint(spec, FAITHFUL)
    assert shape_of(spec, attrs.evolve(QUICK, unknown_type=None)) is None
