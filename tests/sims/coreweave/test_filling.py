"""How pools come by machines, and lose them."""

import attrs
import pytest
from cloud_world import World

from iriscw_sims.coreweave.crd import POOLS
from iriscw_sims.coreweave.settings import QUICK

P = f"{POOLS}/p"


def scale(world, nodes):
    """Change how many nodes are wanted."""
    world.patch(P, {"spec": {"targetNodes": nodes}})


def places(world):
    """Return current, in progress and queued nodes."""
    status = world.status()
    return status["currentNodes"], status["inProgress"], status["queuedNodes"]


def test_machines_come_one_by_one(world):
    """What is under way is counted, and becomes nodes."""
    world.make_pool(nodes=3)
    world.until(lambda: world.condition("Validated"))
    seen = [places(world)]
    while not world.at_target():
        world.step()
        if places(world) != seen[-1]:
            seen.append(places(world))
    assert seen == [(0, 3, 0), (1, 2, 0), (2, 1, 0), (3, 0, 0)]
    world.until(world.whole)
    assert world.ready_pools == ["p"] * 3


@pytest.mark.parametrize(("point", "reason"), [("pool quota exceeded", "Over"), ("quota not set", "NotSet")])
def test_a_refused_quota_gives_no_machine_until_it_is_raised(world, point, reason):
    """The condition says why, an event warns, and the observer knows."""
    world.scripted[point] = [True]
    world.make_pool(nodes=2)
    world.until(lambda: world.condition("Quota"))
    assert world.condition("Quota") == ("False", reason)
    assert world.condition("Capacity") is None
    assert places(world) == (0, 0, 0)
    assert world.refusals == [("p", "quota")]
    assert world.reasons("p", "default") == ["CWOverQuota"]
    world.until(world.whole)
    assert world.condition("Quota") == ("True", "Under")


def test_a_real_limit_is_shared_by_all_pools_of_a_type():
    """Who is over it gets machines when another pool gives some back."""
    world = World(settings=attrs.evolve(QUICK, quotas={"cd-gp-a192-genoa": 3}))
    world.make_pool("p", 2)
    world.until(world.whole)
    world.make_pool("q", 2)
    world.until(lambda: world.condition("Quota", "q"))
    assert world.condition("Quota", "q") == ("False", "Over")
    scale(world, 1)
    world.until(lambda: world.whole("q"), 120)
    world.make_pool("r", 1)
    world.until(lambda: world.condition("Quota", "r"))
    assert world.condition("Quota", "r") == ("False", "Over")
    world.do("DELETE", f"{POOLS}/q")
    world.until(lambda: world.whole("r"), 120)


def test_a_limit_of_zero_says_that_it_is_not_set():
    """No node will ever come."""
    world = World(settings=attrs.evolve(QUICK, quotas={"cd-gp-a192-genoa": 0}))
    world.make_pool()
    world.until(lambda: world.condition("Quota"))
    assert world.condition("Quota") == ("False", "NotSet")


def test_a_pool_without_nodes_tells_its_quota(world):
    """How CoreWeave advises to ask for it."""
    world.make_pool(nodes=0)
    world.until(lambda: world.condition("Quota"))
    assert world.condition("Quota") == ("True", "Under")
    assert world.at_target()


def test_a_pool_without_capacity_waits(world):
    """Its nodes are queued, and come when machines do."""
    world.scripted["pool without capacity"] = [True]
    world.make_pool(nodes=2)
    world.until(lambda: world.condition("Capacity"))
    assert world.condition("Capacity") == ("False", "QueuedAwaitingCapacity")
    assert world.condition("Quota") == ("True", "Under")
    assert places(world) == (0, 0, 2)
    assert world.refusals == [("p", "capacity")]
    assert world.until(world.whole) >= 10
    assert world.condition("Capacity") == ("True", "Sufficient")


def test_a_repair_brings_machines(world):
    """At once to be booted."""
    world.scripted["pool without capacity"] = [True]
    world.make_pool(nodes=2)
    world.until(lambda: world.condition("Capacity"))
    world.cloud.heal()
    assert places(world) == (0, 2, 0)


def test_part_of_the_machines_may_come_at_once(world):
    """The others are queued."""
    world.scripted["pool partly without capacity"] = [True]
    world.make_pool(nodes=4)
    world.until(lambda: world.condition("Capacity"))
    current, booting, queued = places(world)
    assert current == 0
    assert booting
    assert queued
    assert booting + queued == 4
    world.until(world.whole)


def test_a_boot_may_never_end(world):
    """It stays in progress; a repair starts it again."""
    world.scripted["pool never boots"] = [True]
    world.make_pool(nodes=2)
    world.run(36_000)
    assert places(world) == (1, 1, 0)
    world.cloud.heal()
    world.until(world.whole, 30)


def test_a_boot_may_be_slow(world):
    """As long as the settings say."""
    world.scripted["pool boots slowly"] = [True]
    world.make_pool()
    assert world.until(world.whole) >= 30


def test_a_pool_grows(pooled):
    """By what is missing, and the nodes it has stay."""
    before = {node["metadata"]["uid"] for node in pooled.nodes()}
    scale(pooled, 4)
    assert places(pooled) == (2, 2, 0)
    pooled.until(pooled.whole)
    assert before < {node["metadata"]["uid"] for node in pooled.nodes()}


def test_growth_asks_quota_and_capacity_again(pooled):
    """Having machines is no promise of more."""
    pooled.scripted["pool quota exceeded"] = [True]
    scale(pooled, 4)
    assert pooled.condition("Quota") == ("False", "Over")
    assert places(pooled) == (2, 0, 0)


def test_a_shrinking_pool_lets_go_first_of_what_is_not_there(world):
    """Queued, then booting, then idle nodes."""
    world.make_pool(nodes=1)
    world.until(world.whole)
    scale(world, 3)
    world.scripted["pool without capacity"] = [True]
    scale(world, 5)
    assert places(world) == (1, 2, 2)
    scale(world, 3)
    assert places(world) == (1, 2, 0)
    scale(world, 1)
    assert places(world) == (1, 0, 0)
    assert world.at_target()
    scale(world, 0)
    world.until(world.at_target)
    assert world.nodes() == []


def test_a_leaving_node_is_cordoned_first(pooled):
    """And counts until it is gone."""
    scale(pooled, 1)
    assert [bool(node["spec"].get("unschedulable")) for node in pooled.nodes()].count(True) == 1
    assert pooled.status()["currentNodes"] == 2
    assert pooled.condition("AtTarget") == ("False", "OverTarget")
    pooled.until(pooled.at_target)
    assert len(pooled.nodes()) == 1


def test_only_idle_nodes_go(pooled):
    """The strategy's default: with pods everywhere the pool waits for one to leave."""
    pooled.running_pod("a")
    pooled.running_pod("b")
    scale(pooled, 1)
    pooled.run(3600)
    assert len(pooled.nodes()) == 2
    pooled.delete_pod("b")
    pooled.until(pooled.at_target)
    assert pooled.phase("a") == "Running"


def test_an_idle_node_goes_before_a_busy_one(pooled):
    """Whichever came last."""
    uid = pooled.running_pod()
    scale(pooled, 1)
    pooled.until(pooled.at_target)
    assert uid in pooled.alive


def test_active_nodes_go_if_idle_ones_are_only_preferred(pooled):
    """Their pods are asked to go."""
    pooled.running_pod("a")
    pooled.running_pod("b")
    pooled.patch(P, {"spec": {"lifecycle": {"scaleDownStrategy": "PreferIdle"}}})
    scale(pooled, 1)
    assert [bool(pooled.pod(name)["metadata"].get("deletionTimestamp")) for name in "ab"].count(True) == 1
    pooled.until(pooled.at_target)
    pooled.until(lambda: len(pooled.alive) == 1)


def test_a_target_that_rises_again_gets_new_nodes(pooled):
    """What was told to leave leaves."""
    scale(pooled, 1)
    going = next(node for node in pooled.nodes() if node["spec"].get("unschedulable"))
    scale(pooled, 2)
    pooled.until(pooled.whole)
    assert going["metadata"]["uid"] not in [node["metadata"]["uid"] for node in pooled.nodes()]


def test_a_replacement_may_wait_for_capacity(pooled):
    """The pool shows it, and is whole again some time."""
    pooled.scripted["replacement without capacity"] = [True]
    pooled.cloud.kill_node(pooled.nodes()[0]["metadata"]["name"])
    pooled.until(lambda: places(pooled)[2] == 1)
    assert pooled.condition("Capacity") == ("False", "QueuedAwaitingCapacity")
    pooled.until(pooled.whole)


def test_racks_come_whole(world):
    """18 nodes that share a domain; the status counts racks."""
    world.make_pool(nodes=None, kind="gb200-4x", targetRacks=2)
    world.until(lambda: len(world.nodes()) > 0)
    world.run(2)
    assert len(world.nodes()) in (18, 36)
    world.until(world.whole)
    assert len(world.nodes()) == 36
    assert world.status()["rackStatus"] == {"target": 2, "current": 2, "queued": 0}
    domains = [node["metadata"]["labels"]["ds.coreweave.com/nvlink.domain"] for node in world.nodes()]
    assert sorted(domains.count(domain) for domain in dict.fromkeys(domains)) == [18, 18]


def test_a_shrinking_pool_lets_go_of_whole_racks(world):
    """One busy node keeps its rack."""
    world.make_pool(nodes=None, kind="gb200-4x", targetRacks=2)
    world.until(world.whole)
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    world.running_pod(tolerations=tolerations)
    world.patch(P, {"spec": {"targetRacks": 1}})
    world.until(world.at_target)
    racks = {node["metadata"]["labels"]["node.coreweave.cloud/rack"] for node in world.nodes()}
    assert len(racks) == 1
    assert world.phase() == "Running"


def test_the_names_of_fields_follow_the_dialect():
    """Older clusters have other words."""
    world = World(settings=attrs.evolve(QUICK, in_progress="inProgressNodes", validated="Valid"))
    world.make_pool(nodes=2)
    world.until(lambda: world.condition("Valid"))
    assert world.status()["inProgressNodes"] == 2
    assert "inProgress" not in world.status()


def test_spot_machines_are_taken_back(world):
    """With notice, a taint and a replacement."""
    world.scripted["spot interruption"] = [True]
    world.make_pool(computeClass="Spot")
    world.until(world.whole)
    (node,) = world.nodes()

    def tainted():
        taints = (world.nodes() or [node])[0]["spec"].get("taints", ())
        return any(each["key"] == "qos.coreweave.cloud/interruptable" for each in taints)

    world.until(tainted)
    world.until(lambda: not world.nodes())
    world.until(world.whole)
    assert world.asked["spot interruption"] == 2
