"""The pool controller: judged later, filled, dissolved."""

import pytest

from iriscw_sims.coreweave.crd import DEFINITION, DEFINITIONS, POOLS
from iriscw_sims.coreweave.pools import FINALIZER

P = f"{POOLS}/p"


def test_a_pool_is_guarded_at_once_and_judged_later(world):
    """It has its finalizer with the first reaction, and no status before it was looked at."""
    world.make_pool()
    assert world.pool()["metadata"]["finalizers"] == [FINALIZER]
    assert world.status() == {}
    world.until(lambda: world.condition("Validated"))
    assert world.condition("Validated") == ("True", "Valid")
    assert world.condition("Quota") == ("True", "Under")
    assert world.condition("Capacity") == ("True", "Sufficient")
    assert world.condition("AtTarget") == ("False", "UnderTarget")


def test_a_finalizer_taken_off_a_living_pool_comes_back(pooled):
    """And others' stay beside it."""
    pooled.patch(P, {"metadata": {"finalizers": ["test.dev/mine"]}})
    assert pooled.pool()["metadata"]["finalizers"] == ["test.dev/mine", FINALIZER]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"targetNodes": None}, "exactly one of"),
        ({"targetRacks": 1}, "exactly one of"),
        ({"targetNodes": None, "targetRacks": 1}, "targetRacks is not supported"),
        ({"kind": "gb200-4x", "targetNodes": 18, "autoscaling": True}, "autoscaling is not supported"),
        ({"kind": "gb200-4x", "targetNodes": 17}, "racks of 18"),
        ({"autoscaling": True, "minNodes": 3, "maxNodes": 4}, "between minNodes and maxNodes"),
        ({"nodeLabels": {"node.coreweave.cloud/x": "y"}}, "reserved domain"),
        ({"prefill": {"enabled": True}, "autoscaling": True, "minNodes": 0, "maxNodes": 4}, "prefill"),
    ],
)
def test_an_invalid_specification_is_said_to_be(world, spec, says):
    """Later, in the condition, in an event and to the observer; no machine comes."""
    spec = {"nodes": 1, **spec}
    kind = spec.pop("kind", "cd-gp-a192-genoa")
    world.make_pool(kind=kind, **spec)
    world.until(lambda: world.condition("Validated"))
    assert world.condition("Validated") == ("False", "Invalid")
    assert says in world.status()["conditions"][0]["message"]
    assert [each["type"] for each in world.status()["conditions"]] == ["Validated"]
    assert world.reasons("p", "default") == ["Invalid"]
    assert world.refusals == [("p", "invalid")]
    world.run(600)
    assert world.nodes() == []


def test_a_specification_can_be_put_right(world):
    """It is judged anew as soon as it changes."""
    world.make_pool(nodeLabels={"coreweave.com/x": "y"})
    world.until(lambda: world.condition("Validated"))
    world.patch(P, {"spec": {"nodeLabels": {"coreweave.com/x": None}}})
    assert world.condition("Validated") == ("True", "Valid")
    world.until(world.whole)


def test_a_chance_makes_a_pool_invalid_until_it_is_repaired(world):
    """The type is not to be had in the zone; a repair brings it."""
    world.scripted["pool invalid"] = [True]
    world.make_pool()
    world.until(lambda: world.condition("Validated"))
    assert world.condition("Validated") == ("False", "Invalid")
    world.run(3600)
    assert world.nodes() == []
    world.cloud.heal()
    assert world.condition("Validated") == ("True", "Valid")
    world.until(world.whole)


def test_validation_may_be_slow(world):
    """Then nothing is known of the pool for a while."""
    world.scripted["validation slow"] = [True]
    world.make_pool()
    assert world.until(lambda: world.condition("Validated")) >= 2


def test_a_deletion_takes_the_machines_and_then_the_pool(pooled):
    """The pool stays until its machines are gone."""
    pooled.do("DELETE", P)
    assert pooled.pool()["metadata"]["deletionTimestamp"]
    assert len(pooled.nodes()) == 2
    pooled.until(lambda: not pooled.nodes())
    assert pooled.pool() is None
    assert pooled.cloud.statistics().pools == 0


def test_a_deletion_cancels_what_boots(world):
    """No machine joins a pool that goes."""
    world.make_pool(nodes=3)
    world.until(lambda: world.status().get("inProgress") == 3)
    world.do("DELETE", P)
    assert world.status()["inProgress"] == 0
    world.until(lambda: world.pool() is None)
    world.run(600)
    assert world.ready_pools == []
    assert world.nodes() == []


def test_a_pool_deleted_before_it_was_judged_goes(world):
    """Without ever having had conditions."""
    world.make_pool()
    world.do("DELETE", P)
    world.until(lambda: world.pool() is None)
    world.run(60)
    assert world.nodes() == []


def test_a_slow_deletion_takes_longer(pooled):
    """As long as the settings say."""
    pooled.scripted["deletion slow"] = [True]
    pooled.do("DELETE", P)
    assert pooled.until(lambda: pooled.pool() is None) >= 20


def test_a_stuck_deletion_waits_for_a_repair(pooled):
    """However long that takes; the machines stay, too."""
    pooled.scripted["deletion stuck"] = [True]
    pooled.do("DELETE", P)
    pooled.run(36_000)
    assert pooled.pool() is not None
    assert len(pooled.nodes()) == 2
    pooled.cloud.heal()
    assert pooled.pool() is None
    assert pooled.nodes() == []


def test_a_finalizer_taken_off_by_force_ends_a_stuck_deletion(pooled):
    """CoreWeave's own advice; the machines go with the pool."""
    pooled.scripted["deletion stuck"] = [True]
    uid = pooled.running_pod()
    pooled.do("DELETE", P)
    pooled.patch(P, {"metadata": {"finalizers": None}})
    assert pooled.pool() is None
    assert pooled.nodes() == []
    assert uid not in pooled.alive


def test_a_finalizer_of_others_keeps_the_object(pooled):
    """The machines are gone; the object goes when the others are done."""
    pooled.patch(P, {"metadata": {"finalizers": ["test.dev/mine", FINALIZER]}})
    pooled.do("DELETE", P)
    pooled.until(lambda: not pooled.nodes())
    assert pooled.pool()["metadata"]["finalizers"] == ["test.dev/mine"]
    assert pooled.status()["currentNodes"] == 0
    pooled.patch(P, {"metadata": {"finalizers": None}})
    assert pooled.pool() is None
    assert pooled.cloud.statistics().pools == 0


def test_a_name_is_used_again_by_another_pool(pooled):
    """Nothing of the first is the second's."""
    first = pooled.pool()["metadata"]["uid"]
    pooled.do("DELETE", P)
    pooled.until(lambda: pooled.pool() is None)
    pooled.make_pool(nodes=1)
    pooled.until(pooled.whole)
    assert pooled.pool()["metadata"]["uid"] != first
    assert len(pooled.nodes()) == 1


def test_the_type_of_a_pool_is_for_life(pooled):
    """The API itself says so."""
    answer = pooled.ask("PATCH", P, {"spec": {"instanceType": "b200-8x"}}, content_type="application/merge-patch+json")
    assert answer.code == 422
    assert "InstanceType cannot be changed" in answer.body["message"]


def test_times_of_conditions_tell_when_their_status_changed(world):
    """And not when they were written last."""
    world.make_pool()
    world.until(lambda: world.condition("Validated"))
    before = {each["type"]: each["lastTransitionTime"] for each in world.status()["conditions"]}
    world.until(world.whole)
    after = {each["type"]: each["lastTransitionTime"] for each in world.status()["conditions"]}
    assert after["Validated"] == before["Validated"]
    assert after["AtTarget"] > before["AtTarget"]


@pytest.mark.parametrize(
    "status",
    [{"conditions": [1, {"a": 2}], "currentNodes": "many"}, {"conditions": "none"}, {"conditions": [{}]}, None],
)
def test_what_somebody_writes_over_a_status_is_put_right(pooled, status):
    """And the conditions keep their times."""
    before = pooled.status()
    pooled.patch(f"{P}/status", {"status": status})
    assert pooled.status() == before


def test_a_pool_whose_nodes_could_not_join_is_invalid(world):
    """Its labels are none; once they are, it is filled."""
    world.make_pool(nodeLabels={"bad key": "x"})
    world.until(lambda: world.condition("Validated"))
    assert world.condition("Validated") == ("False", "Invalid")
    world.patch(P, {"spec": {"nodeLabels": {"bad key": None, "key": "x"}}})
    world.until(world.whole)


def test_a_machine_joins_with_the_last_valid_specification(world):
    """It was ordered by it; what is invalid since then is no reason to lose it."""
    world.make_pool()
    world.until(lambda: world.status().get("inProgress"))
    world.patch(P, {"spec": {"nodeLabels": {"bad key": "x"}}})
    world.run(60)
    [node] = world.nodes()
    assert node["metadata"]["labels"]["slice"] == "p"
    assert world.condition("Validated") == ("False", "Invalid")


def test_a_definition_that_is_removed_takes_all_with_it(pooled):
    """Pools, nodes and pods; with the definition back, pools can be had again."""
    pooled.running_pod()
    pooled.do("DELETE", f"{DEFINITIONS}/{DEFINITION['metadata']['name']}")
    pooled.run(60)
    assert pooled.items("/api/v1/nodes") == []
    assert pooled.pod() is None
    assert pooled.alive == {}
    assert pooled.cloud.statistics().pools == 0
    pooled.do("POST", DEFINITIONS, DEFINITION)
    pooled.make_pool(nodes=1)
    pooled.until(pooled.whole)


def test_a_specification_of_another_form_is_invalid(pooled):
    """Somebody has loosened the definition: what was there stays, and nothing is ordered."""
    [version] = DEFINITION["spec"]["versions"]
    loose = {**version, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
    pooled.patch(f"{DEFINITIONS}/{DEFINITION['metadata']['name']}", {"spec": {"versions": [loose]}})
    pooled.patch(P, {"spec": {"targetNodes": "many"}})
    assert pooled.condition("Validated") == ("False", "Invalid")
    pooled.run(600)
    assert len(pooled.nodes()) == 2
    pooled.patch(P, {"spec": {"targetNodes": 3}})
    pooled.until(pooled.whole)
    assert len(pooled.nodes()) == 3
