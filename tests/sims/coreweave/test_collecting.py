"""Pods that nothing holds any more are removed."""

from cloud_world import PODS

from iriscw_sims.coreweave.crd import POOLS


def owner(world, name="p"):
    """Return how a pool is named as an owner."""
    return {"name": name, "uid": world.pool(name)["metadata"]["uid"]}


def test_pods_of_a_removed_node_are_reported_and_removed(pooled):
    """As failed by a disruption, then gone."""
    pooled.running_pod()
    name = pooled.pod()["spec"]["nodeName"]
    pooled.cloud.kill_node(name)
    last = pooled.pod()
    while pooled.pod() is not None:
        last = pooled.pod()
        pooled.step()
    assert pooled.get(f"/api/v1/nodes/{name}") is None
    assert last["status"]["phase"] == "Running"  # both writes are of one moment: no reader comes in between
    assert pooled.cloud.statistics().pods == 0


def test_pods_that_were_over_are_removed_with_their_node(pooled):
    """Their outcome does not change."""
    uid = pooled.running_pod()
    pooled.exit(uid)
    pooled.cloud.kill_node(pooled.pod()["spec"]["nodeName"])
    pooled.until(lambda: pooled.pod() is None)


def test_a_pod_for_a_node_that_never_was_is_removed(world):
    """It can never run."""
    world.make_pod(nodeName="nowhere")
    world.until(lambda: world.pod() is None, 30)


def test_a_pod_on_a_node_of_others_is_left_to_them(world):
    """There is an object, and no machine of ours."""
    world.do("POST", "/api/v1/nodes", {"metadata": {"name": "theirs"}})
    world.make_pod(nodeName="theirs")
    world.run(600)
    assert world.phase() == "Pending"
    world.do("DELETE", "/api/v1/nodes/theirs")


def test_what_a_pool_owns_goes_with_it(pooled):
    """Also a pod that never found a node."""
    pooled.make_pod("a", owner=owner(pooled), cpu="1000")
    pooled.make_pod("b", cpu="1000")
    pooled.run(10)
    pooled.do("DELETE", f"{POOLS}/p")
    pooled.until(lambda: pooled.pod("a") is None)
    pooled.run(60)
    assert pooled.phase("b") == "Pending"


def test_a_pod_that_comes_after_its_pool_has_gone_is_removed(pooled):
    """Its creation landed late."""
    late = owner(pooled)
    pooled.do("DELETE", f"{POOLS}/p")
    pooled.until(lambda: pooled.pool() is None)
    pooled.make_pod(owner=late)
    assert pooled.pod() is not None
    pooled.until(lambda: pooled.items(PODS) == [], 10)


def test_another_pool_of_the_same_name_does_not_own_it(pooled):
    """The uid counts."""
    late = owner(pooled)
    pooled.do("DELETE", f"{POOLS}/p")
    pooled.until(lambda: pooled.pool() is None)
    pooled.make_pool()
    pooled.make_pod(owner=late)
    pooled.until(lambda: pooled.pod() is None, 10)


def test_a_pod_that_others_own_too_is_left_to_them(pooled):
    """It is not the pool's alone."""
    body = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "registry.test/i:1"}]}}
    theirs = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}
    mine = {"apiVersion": "compute.coreweave.com/v1alpha1", "kind": "NodePool", **owner(pooled)}
    body["metadata"]["ownerReferences"] = [mine, theirs]
    body["spec"]["nodeSelector"] = {"slice": "nowhere"}
    pooled.do("POST", PODS, body)
    pooled.do("DELETE", f"{POOLS}/p")
    pooled.until(lambda: pooled.pool() is None)
    pooled.run(60)
    assert pooled.pod() is not None


def test_running_pods_of_a_pool_are_deleted_with_grace(pooled):
    """If they run elsewhere than on its nodes."""
    pooled.make_pool("q")
    pooled.until(lambda: pooled.whole("q"))
    pooled.running_pod("a", "q", owner=owner(pooled))
    pooled.do("DELETE", f"{POOLS}/p")
    pooled.until(lambda: pooled.pod() is None)
    assert [*pooled.why.values()] == ["its pod was deleted"]


def test_a_pod_that_was_given_free_stays(pooled):
    """Its pool owned it; by the time the pool is gone, nobody does."""
    owner = {"name": "p", "uid": pooled.pool()["metadata"]["uid"]}
    pooled.make_pod("b", "nowhere", owner=owner)
    pooled.patch("/api/v1/namespaces/iris/pods/b", {"metadata": {"ownerReferences": None}})
    pooled.do("DELETE", "/apis/compute.coreweave.com/v1alpha1/nodepools/p")
    pooled.run(600)
    assert pooled.pod("b") is not None


def test_a_server_may_tell_late_that_a_node_is_no_more(pooled):
    """Its machine has left, and its object seems to be there for a while: the pods go when it is seen to be gone."""
    pooled.running_pod()
    name = pooled.pod()["spec"]["nodeName"]
    nodes = pooled.cloud.nodes
    pooled.cloud.kill_node(name)
    pooled.until(lambda: name not in nodes.machines)
    nodes.seen({"type": "ADDED", "object": {"metadata": {"name": name, "uid": "as it was"}}})
    pooled.run(600)
    assert pooled.pod() is not None
    nodes.seen({"type": "DELETED", "object": {"metadata": {"name": name, "uid": "as it was"}}})
    pooled.until(lambda: pooled.pod() is None, 60)
