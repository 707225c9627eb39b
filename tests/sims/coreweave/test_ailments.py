"""What machines suffer from: too little memory or disk, no network, a wrong clock; and how it ends."""

import pytest
from cloud_world import IMAGE, SECOND, World

from iriscw_sims.kube.clock import parsed

OTHER = "registry.test/other:1"


def first(world):
    """Return the name of the first node of the pool."""
    return world.nodes()[0]["metadata"]["name"]


def condition(world, name, kind):
    """Return status and reason of a node's condition."""
    found = world.get(f"/api/v1/nodes/{name}")["status"]["conditions"]
    return next((each["status"], each["reason"]) for each in found if each["type"] == kind)


def taints(world, name):
    """Return key and effect of a node's taints."""
    spec = world.get(f"/api/v1/nodes/{name}")["spec"]
    return [(each["key"].rpartition("/")[2], each["effect"]) for each in spec.get("taints") or ()]


@pytest.fixture
def alone(world):
    """A pool of one node."""
    world.make_pool(nodes=1)
    world.until(world.whole)
    return world


@pytest.mark.parametrize(
    ("memory", "kind", "reason", "taint", "resource"),
    [
        (False, "DiskPressure", "KubeletHasDiskPressure", "disk-pressure", "ephemeral-storage"),
        (True, "MemoryPressure", "KubeletHasInsufficientMemory", "memory-pressure", "memory"),
    ],
)
def test_a_node_that_is_short_says_so_and_ends_pods(alone, memory, kind, reason, taint, resource):
    """Condition, taint, events; the pod that was started last goes first, then the others, until there is enough."""
    for name in "abc":
        alone.running_pod(name)
    name = first(alone)
    assert alone.cloud.fill(name, 3 * SECOND, memory=memory)
    assert condition(alone, name, kind) == ("True", reason)
    assert taints(alone, name) == [(taint, "NoSchedule")]
    assert "EvictionThresholdMet" in alone.reasons(name, "default")
    assert [alone.phase(each) for each in "abc"] == ["Running", "Running", "Failed"]
    status = alone.pod("c")["status"]
    assert (status["reason"], status["message"]) == ("Evicted", f"The node was low on resource: {resource}.")
    assert "Evicted" in alone.reasons("c")
    alone.run(2.5)
    assert [alone.phase(each) for each in "abc"].count("Failed") >= 2
    assert not alone.cloud.fill(name, SECOND, memory=memory)
    alone.run(1)
    assert condition(alone, name, kind)[0] == "False"
    assert taints(alone, name) == []
    left = len(alone.alive)
    alone.run(60)
    assert len(alone.alive) == left


def test_no_pod_comes_to_a_node_that_is_short(alone):
    """Until it is not any more."""
    alone.cloud.fill(first(alone), 30 * SECOND)
    alone.make_pod("a")
    alone.run(20)
    assert alone.phase("a") == "Pending"
    alone.until(lambda: alone.phase("a") == "Running")


def test_a_kubelet_short_of_disk_rejects_what_is_sent_to_it(alone):
    """A pod that tolerates the taint, or that was bound already."""
    alone.cloud.fill(first(alone), 30 * SECOND)
    alone.make_pod("a", tolerations=[{"operator": "Exists"}])
    alone.until(lambda: alone.phase("a") == "Failed")
    status = alone.pod("a")["status"]
    said = "Pod was rejected: The node had condition: [DiskPressure]."
    assert (status["reason"], status["message"]) == ("Evicted", said)


def test_images_that_nobody_uses_go_first(alone):
    """From a full disk, and only from there."""
    machine = alone.cloud.nodes.machines[first(alone)]
    alone.running_pod("a")
    uid = alone.running_pod("b", image=OTHER)
    alone.exit(uid)
    alone.delete_pod("b")
    alone.run(30)
    alone.cloud.fill(machine.name, SECOND, memory=True)
    assert [*machine.images] == [IMAGE, OTHER]
    alone.cloud.fill(machine.name, SECOND)
    assert [*machine.images] == [IMAGE]


def test_a_pod_over_its_own_limit_goes_alone(alone):
    """The node is not short of anything."""
    alone.scripted["pod over its storage"] = [True]
    resources = {"requests": {"cpu": "1"}, "limits": {"ephemeral-storage": "2Gi"}}
    alone.make_pod("a", containers=[{"name": "worker", "image": IMAGE, "resources": resources}])
    alone.running_pod("b")
    alone.until(lambda: alone.phase("a") == "Failed")
    said = 'Container worker exceeded its local ephemeral storage limit "2Gi".'
    assert (alone.pod("a")["status"]["reason"], alone.pod("a")["status"]["message"]) == ("Evicted", said)
    assert condition(alone, first(alone), "DiskPressure")[0] == "False"
    assert alone.phase("b") == "Running"


def test_a_container_out_of_memory_is_killed(alone):
    """And started again where its pod allows it."""
    alone.running_pod("a")
    uid = alone.running_pod("b", policy="Always")
    assert alone.cloud.exhaust(alone.pod("a")["metadata"]["uid"])
    assert alone.ended("a") == (137, "OOMKilled")
    assert alone.cloud.exhaust(uid)
    alone.until(lambda: alone.starts[uid] == 2)
    assert alone.pod("b")["status"]["containerStatuses"][0]["lastState"]["terminated"]["reason"] == "OOMKilled"
    assert not alone.cloud.exhaust("nobody")


def test_a_kubelet_may_call_its_node_not_ready(alone):
    """Its pods run on, are shown as not ready, and none comes; then it is well again."""
    uid = alone.running_pod("a")
    name = first(alone)
    assert alone.cloud.unready(name, 10 * SECOND)
    assert not alone.cloud.unready(name, 10 * SECOND)
    assert condition(alone, name, "Ready") == ("False", "KubeletNotReady")
    assert taints(alone, name) == [("not-ready", "NoSchedule"), ("not-ready", "NoExecute")]
    assert next(each for each in alone.pod()["status"]["conditions"] if each["type"] == "Ready")["status"] == "False"
    alone.make_pod("b")
    alone.run(9)
    assert uid in alone.alive
    assert alone.phase("b") == "Pending"
    alone.until(lambda: alone.phase("b") == "Running")
    assert condition(alone, name, "Ready") == ("True", "KubeletReady")
    assert taints(alone, name) == []
    assert alone.phase("a") == "Running"


def test_pods_leave_a_node_that_stays_not_ready(alone):
    """When their 300 s are over: here a fifteenth of it. Its kubelet acts, so they are really gone."""
    uid = alone.running_pod("a")
    alone.cloud.unready(first(alone), 60 * SECOND)
    took = alone.until(lambda: alone.pod("a") is None)
    assert took > 19
    assert uid not in alone.alive


def test_a_silent_node_that_is_not_ready_either_is_silent(alone):
    """What is shown is the worse of both; when it is back, what its kubelet says counts."""
    name = first(alone)
    alone.cloud.unready(name, 60 * SECOND)
    alone.cloud.lose_node_for(name, 5 * SECOND)
    alone.until(lambda: condition(alone, name, "Ready")[0] == "Unknown")
    alone.run(2)
    alone.until(lambda: condition(alone, name, "Ready")[0] == "False")
    alone.until(lambda: condition(alone, name, "Ready")[0] == "True")


def test_a_repair_ends_all_but_wrong_clocks(alone):
    """Nothing may wait for the right time."""
    name = first(alone)
    alone.cloud.jump_clock(name, 60 * SECOND)
    alone.cloud.fill(name, 600 * SECOND)
    alone.cloud.unready(name, 600 * SECOND)
    alone.cloud.heal()
    assert taints(alone, name) == []
    assert alone.cloud.nodes.machines[name].clock_off == 60 * SECOND


@pytest.mark.parametrize("off", [-300, 300])
def test_each_writes_the_time_by_its_own_clock(off):
    """Kubelet and controllers are off by minutes, and the API server is not."""
    world = World(rates={})
    world.scripted["node clock off"] = [False]
    world.make_pool()
    world.until(world.whole)
    name = first(world)
    assert world.cloud.jump_clock(name, off * SECOND)
    world.cloud.jump_own_clock(-off * SECOND)
    world.running_pod("a")
    world.cloud.unready(name, 60 * SECOND)
    pod, now = world.pod(), world.now

    def age(text):
        return (now - parsed(text)) / SECOND

    assert 0 <= age(pod["metadata"]["creationTimestamp"]) < 60
    assert -off <= age(pod["status"]["startTime"]) < -off + 60
    assert -off <= age(pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]) < -off + 60
    assert off <= age(world.nodes()[0]["spec"]["taints"][-1]["timeAdded"]) < off + 60
    ready = next(each for each in world.nodes()[0]["status"]["conditions"] if each["type"] == "Ready")
    assert -off <= age(ready["lastHeartbeatTime"]) < -off + 60


def test_some_nodes_join_with_a_wrong_clock(world):
    """Ahead or behind, by no more than ten minutes."""
    world.rates["node clock off"] = 1000
    world.make_pool(nodes=20)
    world.until(world.whole)
    off = [machine.clock_off / SECOND for machine in world.cloud.nodes.machines.values()]
    assert min(off) < 0 < max(off)
    assert all(1 <= abs(each) <= 600 for each in off)


def test_nobody_suffers_who_is_not_there(alone):
    """A fault without a victim says so."""
    cloud, name = alone.cloud, first(alone)
    cloud.lose_node_for(name, 60 * SECOND)
    assert not cloud.fill(name, SECOND)
    assert not cloud.unready(name, SECOND)
    assert cloud.jump_clock(name, SECOND)
    cloud.kill_node(name)
    assert not cloud.jump_clock(name, SECOND)
    assert not any((cloud.fill("x", 1), cloud.unready("x", 1), cloud.jump_clock("x", 1)))
