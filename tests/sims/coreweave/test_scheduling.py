"""The scheduler: where pods go, and what is said of those that go nowhere."""

import pytest

from iriscw_sims.coreweave.shapes import requested


def scheduled(world, name="a"):
    """Return the condition that tells whether a pod has a node."""
    found = world.pod(name)["status"].get("conditions") or ()
    return next((each for each in found if each["type"] == "PodScheduled"), None)


def test_pods_spread_over_the_nodes_of_their_pool(pooled):
    """The node with the fewest is taken."""
    for name in "abcd":
        pooled.running_pod(name)
    nodes = [node for _, node in pooled.alive.values()]
    assert sorted(nodes.count(node) for node in dict.fromkeys(nodes)) == [2, 2]


def test_a_pod_goes_where_its_selector_says(pooled):
    """And nowhere else."""
    pooled.make_pool("q")
    pooled.until(lambda: pooled.whole("q"))
    uid = pooled.running_pod("a", "q")
    assert pooled.alive[uid][1] == pooled.nodes("q")[0]["metadata"]["name"]


def test_a_pod_without_a_node_is_told_so(world):
    """In its condition and an event; it is bound when a node comes."""
    world.make_pod()
    world.until(lambda: scheduled(world))
    assert scheduled(world)["reason"] == "Unschedulable"
    assert scheduled(world)["message"] == "no nodes available to schedule pods"
    assert world.reasons("a") == ["FailedScheduling"]
    world.make_pool()
    world.until(lambda: world.phase() == "Running")
    assert scheduled(world)["status"] == "True"


def test_a_pod_that_fits_nowhere_hears_why(pooled):
    """Each reason with the number of nodes that it holds for."""
    pooled.make_pool("q")
    pooled.until(lambda: pooled.whole("q"))
    pooled.make_pod(cpu="1000")
    pooled.until(lambda: scheduled(pooled))
    assert scheduled(pooled)["message"] == (
        "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 Insufficient cpu."
    )


def test_a_pod_that_waits_is_bound_when_another_leaves(pooled):
    """Room is room."""
    pooled.make_pool("q")
    pooled.until(lambda: pooled.whole("q"))
    pooled.running_pod("a", "q", cpu="150")
    pooled.make_pod("b", "q", cpu="150")
    pooled.run(60)
    assert pooled.phase("b") == "Pending"
    pooled.delete_pod("a")
    pooled.until(lambda: pooled.phase("b") == "Running")


def test_a_pod_that_has_ended_needs_no_room(pooled):
    """Its object may stay."""
    pooled.make_pool("q")
    pooled.until(lambda: pooled.whole("q"))
    uid = pooled.running_pod("a", "q", cpu="150")
    pooled.make_pod("b", "q", cpu="150")
    pooled.run(60)
    pooled.exit(uid)
    pooled.until(lambda: pooled.phase("b") == "Running")
    assert pooled.phase("a") == "Succeeded"


def test_devices_are_counted(world):
    """Eight GPUs are eight."""
    world.make_pool(kind="gd-8xh100ib-i128")
    world.until(world.whole)
    resources = {"limits": {"nvidia.com/gpu": "5"}, "requests": {"nvidia.com/gpu": "5"}}
    containers = [{"name": "c", "image": "registry.test/i:1", "resources": resources}]
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    world.running_pod("a", containers=containers, tolerations=tolerations)
    world.make_pod("b", containers=containers, tolerations=tolerations)
    world.run(60)
    assert "Insufficient nvidia.com/gpu" in scheduled(world, "b")["message"]


def test_a_taint_that_is_not_tolerated_keeps_a_pod_off(world):
    """And is named."""
    world.make_pool(kind="gd-8xh100ib-i128")
    world.until(world.whole)
    world.make_pod()
    world.run(60)
    assert "1 node(s) had untolerated taint {nvidia.com/gpu: }" in scheduled(world)["message"]


def test_a_cordon_keeps_pods_off_until_it_is_lifted(pooled):
    """A user's cordon as the cloud's own."""
    for node in pooled.nodes():
        pooled.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"unschedulable": True}})
    pooled.make_pod()
    pooled.run(60)
    assert pooled.phase() == "Pending"
    name = pooled.nodes()[0]["metadata"]["name"]
    pooled.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": None}})
    pooled.until(lambda: pooled.phase() == "Running")


def test_host_ports_are_exclusive(pooled):
    """Two pods with the same port share no node; a third finds none."""
    containers = [{"name": "c", "image": "registry.test/i:1", "ports": [{"containerPort": 80, "hostPort": 80}]}]
    for name in "ab":
        pooled.running_pod(name, containers=containers)
    assert len({node for _, node in pooled.alive.values()}) == 2
    pooled.make_pod("c", containers=containers)
    pooled.run(60)
    assert "free ports" in scheduled(pooled, "c")["message"]


@pytest.mark.parametrize(
    ("operator", "key", "values", "fits"),
    [
        ("In", "slice", ["q", "p"], True),
        ("In", "slice", ["q"], False),
        ("NotIn", "slice", ["q"], True),
        ("NotIn", "slice", ["p"], False),
        ("Exists", "slice", None, True),
        ("Exists", "nothing", None, False),
        ("DoesNotExist", "nothing", None, True),
        ("DoesNotExist", "slice", None, False),
        ("Gt", "size", ["3"], True),
        ("Gt", "size", ["4"], False),
        ("Lt", "size", ["5"], True),
        ("Lt", "size", ["x"], False),
    ],
)
def test_required_affinity_is_kept(world, operator, key, values, fits):
    """Each operator, on the labels of nodes."""
    world.make_pool(nodeLabels={"slice": "p", "size": "4"})
    world.until(world.whole)
    expression = {"key": key, "operator": operator} | ({"values": values} if values else {})
    term = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}
    world.make_pod(nodeSelector=None, affinity=affinity)
    world.run(60)
    assert world.phase() == ("Running" if fits else "Pending")


def test_pods_of_other_schedulers_are_left_alone(pooled):
    """Whoever they wait for."""
    pooled.make_pod(schedulerName="theirs")
    pooled.run(60)
    assert scheduled(pooled) is None


def test_a_gated_pod_waits_for_its_gate(pooled):
    """How Kueue holds pods back."""
    pooled.make_pod(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])
    pooled.run(60)
    assert scheduled(pooled)["reason"] == "SchedulingGated"
    pooled.patch("/api/v1/namespaces/iris/pods/a", {"spec": {"schedulingGates": None}})
    pooled.until(lambda: pooled.phase() == "Running")


def test_a_pod_deleted_while_it_waits_is_forgotten(world):
    """The API removes it at once; a node that comes later meets nobody."""
    world.make_pod()
    world.run(60)
    world.delete_pod()
    assert world.pod() is None
    world.make_pool()
    world.until(world.whole)
    world.run(60)
    assert world.starts == {}
    assert world.cloud.statistics().waiting == 0


def test_waiting_for_long_costs_nothing(world):
    """A pod that finds no node causes no further work."""
    world.make_pod()
    world.run(60)
    before = world.store.revision
    world.run(3000)
    assert world.store.revision == before


def test_requests_are_summed_over_containers():
    """Limits count where no request is named; CPU in thousandths."""
    spec = {
        "containers": [
            {"resources": {"requests": {"cpu": "250m"}, "limits": {"cpu": "1", "memory": "1Gi"}}},
            {"resources": {"requests": {"cpu": "2"}}},
            {},
        ]
    }
    assert requested(spec) == {"pods": 1, "cpu": 2250, "memory": 1 << 30}
