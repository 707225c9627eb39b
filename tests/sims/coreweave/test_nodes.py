"""Nodes: how they join, fall silent, come back and leave."""

from cloud_world import SECOND, World

from iriscw_sims.coreweave.settings import FAITHFUL

INTERRUPTABLE = "qos.coreweave.cloud/interruptable"


def first(world):
    """Return the name of the first node of the pool."""
    return world.nodes()[0]["metadata"]["name"]


def node(world, name):
    """Return a node."""
    return world.get(f"/api/v1/nodes/{name}")


def ready(world, name):
    """Return status and reason of a node's being ready."""
    found = node(world, name)
    return found and next(
        (each["status"], each["reason"]) for each in found["status"]["conditions"] if each["type"] == "Ready"
    )


def taints(world, name):
    """Return key and effect of a node's taints."""
    return [(each["key"], each["effect"]) for each in node(world, name)["spec"].get("taints") or ()]


def test_a_node_joins_before_it_is_ready(world):
    """Tainted so that no pod comes, and ready soon after."""
    world.make_pool()
    world.until(world.nodes)
    name = first(world)
    assert ready(world, name) == ("False", "KubeletNotReady")
    assert taints(world, name) == [("node.kubernetes.io/not-ready", "NoSchedule")]
    world.until(world.whole)
    assert ready(world, name) == ("True", "KubeletReady")
    assert taints(world, name) == []


def test_a_node_tells_what_it_is(world):
    """Its pool, type, state, class, place, resources and the labels its pool asked for."""
    world.make_pool(kind="gd-8xh100ib-i128", nodeAnnotations={"note": "x"}, nodeLabels={"slice": "p", "mine": "y"})
    world.until(world.whole)
    (found,) = world.nodes()
    labels = found["metadata"]["labels"]
    assert labels["compute.coreweave.com/node-pool-uid"] == world.pool()["metadata"]["uid"]
    assert labels["node.coreweave.cloud/state"] == "production"
    assert labels["node.coreweave.cloud/class"] == "gpu"
    assert labels["node.kubernetes.io/instance-type"] == "gd-8xh100ib-i128"
    assert labels["gpu.nvidia.com/class"] == "H100"
    assert labels["backend.coreweave.cloud/flavor"] == "infiniband"
    assert labels["mine"] == "y"
    assert found["metadata"]["annotations"] == {"note": "x"}
    assert found["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert found["status"]["allocatable"]["rdma/ib"] == "64"
    assert found["status"]["addresses"][0]["type"] == "InternalIP"
    assert taints(world, found["metadata"]["name"]) == [("nvidia.com/gpu", "NoSchedule")]


def test_taints_of_the_pool_are_its_nodes(world):
    """They stay when the node's own change."""
    world.make_pool(nodeTaints=[{"key": "team", "value": "a", "effect": "NoSchedule"}])
    world.until(world.whole)
    assert taints(world, first(world)) == [("team", "NoSchedule")]


def test_a_dead_node_is_shown_later_removed_and_replaced(pooled):
    """What ran there ended at once; the API shows it as ready for a while, then as unknown, then not at all."""
    name = first(pooled)
    assert pooled.cloud.kill_node(name)
    assert ready(pooled, name) == ("True", "KubeletReady")
    assert pooled.until(lambda: ready(pooled, name) == ("Unknown", "NodeStatusUnknown")) >= 1
    assert ("node.kubernetes.io/unreachable", "NoExecute") in taints(pooled, name)
    assert pooled.status()["currentNodes"] == 2
    pooled.until(lambda: node(pooled, name) is None)
    assert pooled.status()["currentNodes"] == 1
    assert pooled.status()["inProgress"] == 1
    pooled.until(pooled.whole)
    assert not pooled.cloud.kill_node(name)


def test_a_replacement_answers_where_the_dead_node_did(pooled):
    """Under another name: addresses are used again, names are not."""
    name = first(pooled)
    address = node(pooled, name)["status"]["addresses"][0]["address"]
    pooled.cloud.kill_node(name)
    pooled.until(lambda: node(pooled, name) is None)
    pooled.until(pooled.whole)
    assert address in [each["status"]["addresses"][0]["address"] for each in pooled.nodes()]
    assert name not in [each["metadata"]["name"] for each in pooled.nodes()]


def test_a_node_that_is_back_soon_was_never_missed(pooled):
    """Silence shorter than it takes to notice leaves no trace."""
    name = first(pooled)
    before = pooled.nodes()
    assert pooled.cloud.lose_node_for(name, SECOND // 2)
    pooled.run(600)
    assert pooled.nodes() == before


def test_a_node_that_was_cut_off_comes_back(pooled):
    """It is unknown, and then ready again; the processes there went on."""
    uid = pooled.running_pod()
    name = pooled.alive[uid][1]
    pooled.cloud.site.settings = FAITHFUL
    pooled.cloud.lose_node_for(name, 100 * SECOND)
    assert not pooled.cloud.lose_node_for(name, SECOND)
    pooled.until(lambda: ready(pooled, name) == ("Unknown", "NodeStatusUnknown"))
    assert not pooled.whole()
    assert uid in pooled.alive
    pooled.until(lambda: ready(pooled, name) == ("True", "KubeletReady"))
    assert taints(pooled, name) == []
    pooled.run(86_400)
    assert node(pooled, name) is not None
    assert uid in pooled.alive


def test_a_node_that_stays_away_is_replaced(pooled):
    """Then what ran there has ended."""
    uid = pooled.running_pod()
    name = pooled.alive[uid][1]
    pooled.cloud.lose_node_for(name, 3600 * SECOND)
    pooled.until(lambda: node(pooled, name) is None)
    assert uid not in pooled.alive
    pooled.until(pooled.whole)


def test_an_older_silence_does_not_remove_a_node_that_was_back_meanwhile():
    """The patience begins anew with each silence."""
    world = World(settings=FAITHFUL)
    world.make_pool()
    world.until(world.whole, 20_000)
    name = first(world)
    gone = 0
    for _ in range(20):
        world.cloud.lose_node_for(name, 200 * SECOND)
        world.run(220)
        gone += node(world, name) is None
    assert gone == 0


def test_a_repair_brings_lost_nodes_back(pooled):
    """Those that have power."""
    name = first(pooled)
    pooled.cloud.lose_node_for(name, 3600 * SECOND)
    pooled.cloud.heal()
    pooled.run(60)
    assert ready(pooled, name) == ("True", "KubeletReady")


def test_a_node_in_triage_leaves(pooled):
    """Its state says so, it is cordoned, its pods are asked to go, and another comes."""
    uid = pooled.running_pod()
    name = pooled.alive[uid][1]
    assert pooled.cloud.triage(name)
    assert node(pooled, name)["metadata"]["labels"]["node.coreweave.cloud/state"] == "triage"
    assert node(pooled, name)["spec"]["unschedulable"]
    assert pooled.pod()["metadata"]["deletionTimestamp"]
    pooled.until(lambda: node(pooled, name) is None)
    pooled.until(pooled.whole)
    assert not pooled.alive


def test_a_cordoned_node_comes_back(pooled):
    """Its pods stay, and it is in production again."""
    uid = pooled.running_pod()
    name = pooled.alive[uid][1]
    assert pooled.cloud.cordon(name, 30 * SECOND)
    assert node(pooled, name)["metadata"]["labels"]["node.coreweave.cloud/state"] == "cordoned"
    assert node(pooled, name)["spec"]["unschedulable"]
    pooled.run(31)
    assert node(pooled, name)["metadata"]["labels"]["node.coreweave.cloud/state"] == "production"
    assert not node(pooled, name)["spec"].get("unschedulable")
    assert uid in pooled.alive


def test_a_users_cordon_and_taint_are_the_users(pooled):
    """The cloud's own changes leave them alone."""
    pooled.cloud.site.settings = FAITHFUL
    name = first(pooled)
    mine = {"key": "mine", "effect": "NoSchedule"}
    pooled.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True, "taints": [mine]}})
    pooled.cloud.lose_node_for(name, 100 * SECOND)
    pooled.until(lambda: ready(pooled, name) == ("Unknown", "NodeStatusUnknown"))
    pooled.until(lambda: ready(pooled, name) == ("True", "KubeletReady"))
    assert node(pooled, name)["spec"]["unschedulable"]
    assert taints(pooled, name) == [("mine", "NoSchedule")]


def test_an_interrupted_node_drives_off_who_does_not_tolerate_it(pooled):
    """The others stay until it is gone."""
    tolerant = [{"key": INTERRUPTABLE, "operator": "Exists"}]
    pooled.running_pod("a")
    name = pooled.alive[pooled.pod("a")["metadata"]["uid"]][1]
    pooled.running_pod("b", tolerations=tolerant, nodeSelector={"kubernetes.io/hostname": name})
    assert pooled.cloud.interrupt(name)
    assert (INTERRUPTABLE, "NoExecute") in taints(pooled, name)
    assert pooled.pod("a")["metadata"].get("deletionTimestamp")
    assert not pooled.pod("b")["metadata"].get("deletionTimestamp")
    pooled.until(lambda: node(pooled, name) is None)
    assert not pooled.alive
    pooled.until(pooled.whole)


def test_a_fresh_node_may_be_interruptable(world):
    """Then only pods that tolerate it go there."""
    world.scripted["node interruptable"] = [True]
    world.make_pool()
    world.until(world.whole)
    assert taints(world, first(world)) == [(INTERRUPTABLE, "NoExecute")]
    world.make_pod("a")
    world.run(600)
    assert world.phase("a") == "Pending"
    world.running_pod("b", tolerations=[{"key": INTERRUPTABLE, "operator": "Exists"}])


def test_a_node_object_removed_by_others_takes_the_machine_with_it(pooled):
    """And another is ordered."""
    uid = pooled.running_pod()
    name = pooled.alive[uid][1]
    pooled.do("DELETE", f"/api/v1/nodes/{name}")
    assert uid not in pooled.alive
    assert pooled.status()["currentNodes"] == 1
    pooled.until(pooled.whole)


def test_fates_are_drawn_when_a_node_is_ready(world):
    """Death, triage and a cordon."""
    for point in ("node dies early", "node triaged", "node cordoned"):
        world.scripted[point] = [True]
    world.make_pool()
    world.until(world.whole)
    world.run(1200)
    assert world.asked["node dies early"] >= 2
    assert world.whole()


def test_a_node_that_is_cut_off_before_it_was_ready_is_ready_when_it_is_back(world):
    """It was only late."""
    world.make_pool()
    world.until(world.nodes)
    name = first(world)
    world.cloud.lose_node_for(name, 2 * SECOND)
    world.run(1.5)
    assert world.ready_pools == []
    world.until(world.whole)
    assert first(world) == name


def test_a_cordon_of_a_cordoned_node_is_none(pooled):
    """Nor is triage."""
    name = first(pooled)
    assert pooled.cloud.cordon(name, SECOND)
    assert not pooled.cloud.cordon(name, SECOND)
    assert not pooled.cloud.triage(name)


def test_a_node_that_dies_before_it_is_ready_is_replaced(world):
    """It never was."""
    world.make_pool()
    world.until(world.nodes)
    assert world.cloud.kill_node(first(world))
    world.until(world.whole)
    assert world.ready_pools == ["p"]
