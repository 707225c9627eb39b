"""Which taints are tolerated, and who is driven off by one."""

import pytest
from cloud_world import SECOND

from iriscw_sims.coreweave.settings import FAITHFUL, QUICK
from iriscw_sims.coreweave.taints import first_untolerated, patience, tolerates

TAINT = {"key": "k", "value": "v", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("toleration", "yes"),
    [
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, True),
        ({"key": "k", "operator": "Exists", "effect": "NoSchedule"}, False),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "operator": "Equal", "value": "v"}, True),
        ({"key": "k", "value": "w"}, False),
        ({"key": "j", "operator": "Exists"}, False),
        ({"operator": "Exists"}, True),
        ({}, False),
    ],
)
def test_a_toleration_is_for_a_taint(toleration, yes):
    """By key, value and effect, each of which may be left open."""
    assert tolerates(toleration, TAINT) is yes


def test_the_first_taint_that_is_not_tolerated_is_named():
    """Of those with an effect that matters."""
    spec = {"tolerations": [{"key": "a", "operator": "Exists"}]}
    taints = [{"key": key, "effect": effect} for key, effect in (("a", "NoSchedule"), ("b", "NoExecute"))]
    assert first_untolerated(spec, taints, ("NoSchedule",)) is None
    assert first_untolerated(spec, taints, ("NoSchedule", "NoExecute")) == taints[1]


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ([], 0),
        ([{"key": "k", "operator": "Exists"}], None),
        ([{"key": "k", "operator": "Exists", "tolerationSeconds": 7}], 7),
        ([{"key": "k", "operator": "Exists", "tolerationSeconds": -1}], 0),
    ],
)
def test_patience_is_what_the_toleration_says(tolerations, seconds):
    """None at all without one, for ever without a number."""
    assert patience({"tolerations": tolerations}, [TAINT]) == seconds


def test_the_shortest_patience_counts():
    """Of all taints that drive off."""
    spans = (("k", 9), ("j", 5))
    spec = {"tolerations": [{"key": key, "operator": "Exists", "tolerationSeconds": span} for key, span in spans]}
    assert patience(spec, [TAINT, {"key": "j", "effect": "NoExecute"}]) == 5


def taint(world, name, *taints):
    """Taint a node, as a user does."""
    world.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": list(taints) or None}})


def test_a_users_taint_drives_pods_off(pooled):
    """At once, and not those that tolerate it."""
    pooled.running_pod("a")
    name = pooled.pod("a")["spec"]["nodeName"]
    pooled.running_pod("b", tolerations=[{"operator": "Exists"}], nodeSelector={"kubernetes.io/hostname": name})
    taint(pooled, name, TAINT)
    assert pooled.pod("a")["metadata"]["deletionTimestamp"]
    conditions = {each["type"]: each.get("reason") for each in pooled.pod("a")["status"]["conditions"]}
    assert conditions["DisruptionTarget"] == "DeletionByTaintManager"
    pooled.until(lambda: pooled.pod("a") is None)
    assert pooled.phase("b") == "Running"


def test_a_pod_that_tolerates_it_for_a_time_goes_then(pooled):
    """Unless the taint is gone before."""
    pooled.cloud.site.settings = FAITHFUL
    limited = [{"key": "k", "operator": "Exists", "tolerationSeconds": 30, "effect": "NoExecute"}]
    pooled.running_pod("a", tolerations=limited)
    name = pooled.pod("a")["spec"]["nodeName"]
    taint(pooled, name, TAINT)
    pooled.run(29)
    taint(pooled, name)
    pooled.run(100)
    assert pooled.phase("a") == "Running"
    taint(pooled, name, TAINT)
    pooled.run(29)
    assert not pooled.pod("a")["metadata"].get("deletionTimestamp")
    pooled.run(2)
    assert pooled.pod("a") is None or pooled.pod("a")["metadata"]["deletionTimestamp"]


def test_a_pod_that_comes_to_a_tainted_node_is_judged_too(pooled):
    """It named its node itself."""
    name = pooled.nodes()[0]["metadata"]["name"]
    taint(pooled, name, TAINT)
    pooled.make_pod(nodeName=name)
    pooled.until(lambda: pooled.pod() is None, 30)


def test_pods_of_a_silent_node_are_marked_after_their_patience(pooled):
    """They stay, terminating and lost, since nobody is there to end them."""
    pooled.cloud.site.settings = FAITHFUL
    uid = pooled.running_pod()
    pooled.cloud.lose_node_for(pooled.alive[uid][1], 3600 * SECOND)
    took = pooled.until(lambda: pooled.pod() is None or pooled.pod()["metadata"].get("deletionTimestamp"))
    assert took >= 300
    if pooled.pod() is not None:
        assert pooled.pod()["status"]["reason"] == "NodeLost"
        assert pooled.phase() == "Running"


def test_small_worlds_have_less_patience():
    """In proportion."""
    assert 300 // QUICK.toleration_divisor == 20
    assert FAITHFUL.toleration_divisor == 1
