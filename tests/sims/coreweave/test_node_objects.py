"""Node objects, out of machines."""

import attrs

from iriscw_sims.coreweave.machines import CORDONED, TRIAGE, Machine
from iriscw_sims.coreweave.node_objects import closed, conditions, new_node, own_taints, pool_taints
from iriscw_sims.coreweave.settings import QUICK
from iriscw_sims.coreweave.shapes import GENERIC, SHAPES


def machine(shape=GENERIC, **changes):
    """Return a machine."""
    return Machine("n", "p", "0123456789", 20, shape, "10.0.0.1", 0, {}, **changes)


def keys(found):
    """Return key and effect of a machine's own taints."""
    return [(taint["key"].rpartition("/")[2], taint["effect"]) for taint in own_taints(found)]


def test_taints_follow_from_the_state():
    """Each state has its own."""
    assert keys(machine()) == [("not-ready", "NoSchedule")]
    assert keys(machine(silent=True, tainted="1")) == [("unreachable", "NoSchedule"), ("unreachable", "NoExecute")]
    assert keys(machine(unwell="x", tainted="1")) == [("not-ready", "NoSchedule"), ("not-ready", "NoExecute")]
    assert keys(machine(ready=True)) == []
    short = {"MemoryPressure": None, "DiskPressure": None}
    assert keys(machine(ready=True, pressures=short)) == [
        ("memory-pressure", "NoSchedule"),
        ("disk-pressure", "NoSchedule"),
    ]
    assert keys(machine(ready=True, interruptable=True)) == [("interruptable", "NoExecute")]
    assert keys(machine(ready=True, state=TRIAGE)) == [("unschedulable", "NoSchedule")]
    assert keys(machine(ready=True, state=CORDONED)) == [("unschedulable", "NoSchedule")]
    assert keys(machine(ready=True, leaving=True)) == [("unschedulable", "NoSchedule")]


def test_closed_is_what_takes_no_pods():
    """By the cloud's own decision."""
    assert not closed(machine())
    assert closed(machine(leaving=True))
    assert closed(machine(state=TRIAGE))


def test_conditions_remember_since_when():
    """A status that stays keeps its time."""
    found = machine()
    first = {each["type"]: each for each in conditions(found, "1")}
    assert first["Ready"]["status"] == "False"
    found.ready = True
    second = {each["type"]: each for each in conditions(found, "2")}
    assert (second["Ready"]["status"], second["Ready"]["lastTransitionTime"]) == ("True", "2")
    assert second["KernelDeadlock"]["lastTransitionTime"] == "1"
    found.ready, found.silent = False, True
    third = {each["type"]: each for each in conditions(found, "3")}
    assert {each["status"] for each in third.values()} == {"Unknown"}
    assert {each["reason"] for each in third.values()} == {"NodeStatusUnknown"}


def test_pressure_is_a_condition():
    """Of what there is too little of alone, in the kubelet's words."""
    short = machine(ready=True, pressures={"DiskPressure": None})
    found = {each["type"]: each for each in conditions(short, "1")}
    status = {kind: each["status"] for kind, each in found.items()}
    assert (status["DiskPressure"], status["MemoryPressure"], status["Ready"]) == ("True", "False", "True")
    assert found["DiskPressure"]["message"] == "kubelet has disk pressure"
    assert found["MemoryPressure"]["message"] == "kubelet has sufficient memory available"


def test_a_heartbeat_is_the_kubelets():
    """It stays what it was while nothing is heard; the change is dated by who writes it."""
    found = machine(ready=True, heartbeat="h")
    assert {each["lastHeartbeatTime"] for each in conditions(found, "1")} == {"h"}
    found.ready, found.silent = False, True
    for each in conditions(found, "2"):
        assert (each["lastHeartbeatTime"], each["lastTransitionTime"]) == ("h", "2")
        assert each["message"] == "Kubelet stopped posting node status."


def test_a_node_says_why_it_is_not_ready():
    """That it begins, or what its kubelet names."""
    why = [
        {each["type"]: each["message"] for each in conditions(found, "1") if "message" in each}["Ready"]
        for found in (machine(), machine(unwell="the network"))
    ]
    assert why == ["container runtime network not ready: cni plugin not initialized", "the network"]


def test_a_pools_own_labels_win():
    """It may say what it likes, but for the cloud's domains, which are refused before."""
    spec = {"instanceType": "gb200-4x", "nodeLabels": {"a": "b"}}
    body = new_node(machine(SHAPES["gb200-4x"]), spec, 70, [], QUICK, "now")
    labels = body["metadata"]["labels"]
    assert labels["a"] == "b"
    assert labels["kubernetes.io/arch"] == "arm64"
    assert labels["node.coreweave.cloud/rack"] == "01234567-1"
    assert labels["backend.coreweave.cloud/leafgroup"] == "1"
    assert body["status"]["capacity"]["nvidia.com/gpu"] == "4"


def test_gpu_nodes_are_tainted_if_the_cluster_wants_it():
    """And CPU nodes never."""
    spec = {"nodeTaints": [{"key": "a", "effect": "NoSchedule"}]}
    shape = SHAPES["b200-8x"]
    assert [each["key"] for each in pool_taints(spec, shape, QUICK)] == ["a", "nvidia.com/gpu"]
    assert [each["key"] for each in pool_taints(spec, shape, attrs.evolve(QUICK, gpu_taint=False))] == ["a"]
    assert [each["key"] for each in pool_taints(spec, GENERIC, QUICK)] == ["a"]


def test_a_taint_of_gpus_is_carried_once():
    """A pool may ask for it itself: no node carries two taints of one key and effect."""
    own = {"key": "nvidia.com/gpu", "value": "mine", "effect": "NoSchedule"}
    other = {"key": "nvidia.com/gpu", "effect": "NoExecute"}
    assert pool_taints({"nodeTaints": [own]}, SHAPES["b200-8x"], QUICK) == [own]
    assert len(pool_taints({"nodeTaints": [other]}, SHAPES["b200-8x"], QUICK)) == 2
