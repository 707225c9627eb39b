"""Objects are read as they are meant, and whatever else comes is read or refused by name."""

import pytest
from hypothesis import given, strategies as st
from kube_json import NEARLY, OBJECTS

from iriscw.cloud.kube.parsing import MalformedObject, is_deleting, labels_of, node_of, pod_of, pool_of, unknown_words
from iriscw.cloud.lifecycle import PoolHealth, judge_pool
from iriscw.cloud.model import Condition, Node, NodePool, Pod, PodPhase


def thing(spec=None, status=None, **metadata):
    """Return an object with an identity."""
    return {
        "metadata": {"name": "x", "uid": "u", "resourceVersion": "7", **metadata},
        "spec": spec or {},
        "status": status or {},
    }


def node(*, ready="True", labels=None, conditions=(), **spec):
    """Return a node."""
    told = [{"type": "Ready", "status": ready}, *conditions]
    return thing(spec, {"conditions": told}, labels=labels or {})


def container(**state):
    """Return the status of a container."""
    return {"name": "worker", "state": state}


@given(OBJECTS)
def test_any_json_is_read_or_refused_by_name(obj):
    """Nothing but MalformedObject is raised, and what is read has the types of the model."""
    for read, kind in ((pool_of, NodePool), (node_of, Node), (pod_of, Pod)):
        try:
            found = read(obj)
        except MalformedObject:
            continue
        assert type(found) is kind
        assert all(isinstance(text, str) and text for text in (found.name, found.uid))
        if isinstance(found, NodePool):
            assert judge_pool(found).text
            assert min(found.target_nodes, found.current_nodes, found.queued_nodes, found.in_progress_nodes) >= 0
        if isinstance(found, Pod):
            assert isinstance(found.phase, PodPhase)
            assert found.exit_code is None or type(found.exit_code) is int
    assert all(isinstance(word, str) for word in unknown_words(obj))
    assert all(isinstance(part, str) for pair in labels_of(obj).items() for part in pair)
    assert is_deleting(obj) in (True, False)


@pytest.mark.parametrize("missing", ["name", "uid", "resourceVersion"])
def test_an_object_without_identity_is_refused(missing):
    """Nothing can be done with it."""
    obj = thing()
    del obj["metadata"][missing]
    for read in (pool_of, node_of, pod_of):
        with pytest.raises(MalformedObject):
            read(obj)


def test_a_pool_is_read_as_it_is():
    """Numbers, labels, conditions as the API gave them, nodes by name."""
    conditions = [{"type": "Quota", "status": "False", "reason": "Over", "message": "too much", "more": 1}]
    status = {"currentNodes": 1, "queuedNodes": 2, "inProgress": 3, "conditions": conditions}
    obj = thing({"targetNodes": 6}, status, labels={"b": "2", "a": "1"}, deletionTimestamp="2026-01-01T00:00:00Z")
    nodes = [Node("n2", "2"), Node("n1", "1")]
    pool = pool_of(obj, nodes)
    assert pool == NodePool(
        "x", "u", "7", {"a": "1", "b": "2"}, 6, 1, 2, 3, True, (Condition("Quota", "False", "Over", "too much"),),
        (nodes[1], nodes[0]),
    )  # fmt: skip
    assert list(pool.labels) == ["a", "b"]


@pytest.mark.parametrize("name", ["inProgress", "inProgressNodes"])
def test_nodes_in_progress_have_two_names(name):
    """The documented one and the one that is seen."""
    assert pool_of(thing(status={name: 4})).in_progress_nodes == 4


def test_a_pool_of_racks_counts_in_nodes():
    """18 nodes to a rack."""
    assert pool_of(thing({"targetRacks": 2})).target_nodes == 36


@pytest.mark.parametrize(
    ("conditions", "health"),
    [
        ([("Validated", "False", "Invalid")], PoolHealth.INVALID),
        ([("Valid", "False", "Invalid")], PoolHealth.INVALID),
        ([("Quota", "False", "NotSet")], PoolHealth.NO_QUOTA),
        ([("Quota", "False", "Over")], PoolHealth.NO_QUOTA),
        ([("Quota", "True", "Under"), ("Capacity", "False", "QueuedAwaitingCapacity")], PoolHealth.NO_CAPACITY),
        ([("Quota", "True", "Under"), ("Capacity", "Unknown", "CapacityUnknown")], PoolHealth.BOOTING),
        ([("Weather", "False", "Rain")], PoolHealth.BOOTING),
    ],
)
def test_what_conditions_mean_survives_reading(conditions, health):
    """The fleet's classification of a read pool: names old and new, unknown ones not judged by."""
    told = [{"type": kind, "status": status, "reason": reason} for kind, status, reason in conditions]
    assert judge_pool(pool_of(thing({"targetNodes": 1}, {"conditions": told}))).health is health


@pytest.mark.parametrize(
    ("obj", "ready", "usable"),
    [
        (node(), True, True),
        (node(ready="False"), False, True),
        (node(ready="Unknown"), False, True),
        (thing(), False, True),
        (node(unschedulable=True), True, False),
        (node(labels={"node.coreweave.cloud/state": "production"}), True, True),
        (node(labels={"node.coreweave.cloud/state": "triage"}), True, False),
        (node(labels={"node.coreweave.com/state": "cordoned"}), True, False),
        (node(labels={"node.coreweave.cloud/state": "something new"}), True, False),
        (node(conditions=[{"type": "PhaseState", "status": "True", "reason": "production-reboot"}]), True, True),
        (node(conditions=[{"type": "PhaseState", "status": "True", "reason": "triage-hpc"}]), True, False),
        (node(taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]), True, True),
        (node(taints=[{"key": "node.coreweave.cloud/reserved", "effect": "NoExecute"}]), True, True),
        (node(taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]), True, True),
        (node(taints=[{"key": "qos.coreweave.cloud/interruptable", "effect": "NoExecute"}]), True, False),
        (node(taints=[{"key": "x", "effect": "PreferNoSchedule"}]), True, True),
        (thing(status={"conditions": [{"type": "Ready", "status": "True"}]}, deletionTimestamp="t"), True, False),
    ],
)
def test_whether_a_node_can_take_a_pod(obj, ready, usable):
    """Ready says the kubelet; usable: no cordon, no taint that our pods do not tolerate, and in production."""
    found = node_of(obj)
    assert (found.ready, found.usable) == (ready, usable)


def test_a_nodes_address():
    """The internal one, else the external one, else none."""
    internal = {"type": "InternalIP", "address": "10.0.0.1"}
    external = {"type": "ExternalIP", "address": "1.2.3.4"}
    for addresses, expected in [([external, internal], "10.0.0.1"), ([external], "1.2.3.4"), ([], "")]:
        assert node_of(thing(status={"addresses": addresses})).address == expected


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


@pytest.mark.parametrize(
    ("status", "phase", "reason", "code"),
    [
        ({}, PodPhase.PENDING, "", None),
        ({"phase": "Pending", "conditions": [UNSCHEDULABLE]}, PodPhase.PENDING, "Unschedulable", None),
        (
            {"phase": "Pending", "containerStatuses": [container(waiting={"reason": "ContainerCreating"})]},
            PodPhase.PENDING,
            "ContainerCreating",
            None,
        ),
        (
            {"phase": "Pending", "containerStatuses": [container(waiting={"reason": "ErrImagePull"})]},
            PodPhase.PENDING,
            "ErrImagePull",
            None,
        ),
        ({"phase": "Running", "containerStatuses": [container(running={})]}, PodPhase.RUNNING, "", None),
        (
            {"phase": "Failed", "containerStatuses": [container(terminated={"reason": "OOMKilled", "exitCode": 137})]},
            PodPhase.FAILED,
            "OOMKilled",
            137,
        ),
        (
            {
                "phase": "Failed",
                "reason": "Evicted",
                "containerStatuses": [container(terminated={"reason": "Error", "exitCode": 143})],
            },
            PodPhase.FAILED,
            "Evicted",
            143,
        ),
        (
            {
                "phase": "Failed",
                "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}],
                "containerStatuses": [container(terminated={"reason": "Error", "exitCode": 137})],
            },
            PodPhase.FAILED,
            "DeletionByTaintManager",
            137,
        ),
        (
            {
                "phase": "Failed",
                "conditions": [{"type": "TerminationTarget", "status": "True", "reason": "StoppedByKueue"}],
                "containerStatuses": [container(terminated={"reason": "Error", "exitCode": 137})],
            },
            PodPhase.FAILED,
            "StoppedByKueue",
            137,
        ),
        (
            {"phase": "Succeeded", "containerStatuses": [container(terminated={"reason": "Completed", "exitCode": 0})]},
            PodPhase.SUCCEEDED,
            "Completed",
            0,
        ),
        (
            {
                "phase": "Failed",
                "containerStatuses": [
                    container(terminated={"reason": "Completed", "exitCode": 0}),
                    container(terminated={"reason": "Error", "exitCode": 3}),
                ],
            },
            PodPhase.FAILED,
            "Completed",
            3,
        ),
        ({"phase": "Unknown", "reason": "NodeLost"}, PodPhase.UNKNOWN, "NodeLost", None),
        ({"phase": "Hovering"}, PodPhase.UNKNOWN, "", None),
    ],
)
def test_what_a_pods_status_says(status, phase, reason, code):
    """Phase, the most telling reason, and the exit code."""
    pod = pod_of(thing({"nodeName": "n1"}, {**status, "podIP": "10.1.0.1"}))
    assert (pod.phase, pod.reason, pod.exit_code) == (phase, reason, code)
    assert (pod.node, pod.address) == ("n1", "10.1.0.1")


def test_unknown_words_are_told():
    """Conditions, reasons of those that are judged by, and phases; known ones are not."""
    conditions = [
        {"type": "Quota", "status": "True", "reason": "Under"},
        {"type": "Quota", "status": "True", "reason": "Sideways"},
        {"type": "Ready", "status": "True", "reason": "WhateverItSays"},
        {"type": "Weather", "status": "True"},
    ]
    obj = {**thing(status={"phase": "Hovering", "conditions": conditions}), "kind": "Pod"}
    assert unknown_words(obj) == ("phase Hovering", "reason Quota/Sideways", "condition Weather")
    assert unknown_words(thing(status={"phase": "Running"})) == ()


TIMES = st.sampled_from(["1970-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "2200-01-01T00:00:00.000001Z", "soon", ""])


def dated(obj, time):
    """Return an object whose every part says that it was written, began and changed at this time."""
    if isinstance(obj, list):
        return [dated(each, time) for each in obj]
    if not isinstance(obj, dict):
        return obj
    kinds = ("creationTimestamp", "startTime", "startedAt", "finishedAt", "lastTransitionTime", "lastHeartbeatTime")
    given = {key: value if key == "labels" else dated(value, time) for key, value in obj.items()}  # people's words
    return given | dict.fromkeys((*kinds, "timeAdded"), time)


@given(NEARLY, TIMES, TIMES)
def test_times_of_the_platform_say_nothing(obj, one, other):
    """Clocks of nodes and controllers are wrong: an object is read alike, whatever the times in it."""
    for read in (pool_of, node_of, pod_of):
        try:
            found = read(dated(obj, one))
        except MalformedObject:
            continue
        assert read(dated(obj, other)) == found
    assert unknown_words(dated(obj, one)) == unknown_words(dated(obj, other))
