"""Pods: defaults, quality, what may change."""

import pytest
from kube_caller import PODS, pod

from iriscw_sims.kube.pods import quality

A = f"{PODS}/a"


def with_container(**more):
    """Return a pod whose container has more fields."""
    body = pod("a")
    body["spec"]["containers"][0] |= more
    return body


def test_defaults(caller):
    """Those of the API, and those of admission."""
    spec = caller.done("POST", PODS, pod("a"))["spec"]
    names = ("restartPolicy", "dnsPolicy", "schedulerName", "terminationGracePeriodSeconds")
    assert {name: spec[name] for name in names} == {
        "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30,
    }  # fmt: skip
    assert [each["key"] for each in spec["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("a", "Always"),
        ("a:latest", "Always"),
        ("a:1", "IfNotPresent"),
        ("h:5000/a", "Always"),
        ("h:5000/a:1", "IfNotPresent"),
        ("a@sha256:1", "IfNotPresent"),
    ],
)
def test_how_images_are_pulled(caller, image, policy):
    """What may move is always looked at again."""
    spec = caller.done("POST", PODS, with_container(image=image))["spec"]
    assert spec["containers"][0]["imagePullPolicy"] == policy


def test_requests_follow_limits(caller):
    """And the pod's quality follows both."""
    item = caller.done(
        "POST", PODS, with_container(resources={"limits": {"cpu": 2, "memory": "1Gi", "nvidia.com/gpu": 8}})
    )
    assert item["spec"]["containers"][0]["resources"]["requests"] == {
        "cpu": "2",
        "memory": "1Gi",
        "nvidia.com/gpu": "8",
    }
    assert item["status"] == {"phase": "Pending", "qosClass": "Guaranteed"}


def test_classes_of_quality():
    """Nothing asked, something asked, all asked and limited."""
    full = {"cpu": "1", "memory": "1Gi"}
    assert quality({"containers": [{}]}) == "BestEffort"
    assert quality({"containers": [{"resources": {"requests": {"cpu": "1"}}}]}) == "Burstable"
    assert quality({"containers": [{"resources": {"requests": full, "limits": full}}]}) == "Guaranteed"
    assert quality({"containers": [{"resources": {"requests": full, "limits": full}}, {}]}) == "Burstable"


def test_a_pods_address_is_told_twice(caller):
    """podIP is the first of podIPs."""
    caller.done("POST", PODS, pod("a"))
    assert caller.patch(f"{A}/status", {"status": {"podIP": "10.0.0.1"}})["status"]["podIPs"] == [{"ip": "10.0.0.1"}]


def test_ports_of_the_host(caller):
    """A pod on the host's network takes the host's ports."""
    body = with_container(ports=[{"containerPort": 80}])
    body["spec"]["hostNetwork"] = True
    assert caller.done("POST", PODS, body)["spec"]["containers"][0]["ports"] == [
        {"containerPort": 80, "hostPort": 80, "protocol": "TCP"}
    ]


def test_a_gate_is_a_condition(caller):
    """A pod that may not be scheduled yet says so."""
    body = pod("a")
    body["spec"]["schedulingGates"] = [{"name": "x.dev/wait"}]
    (condition,) = caller.done("POST", PODS, body)["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "SchedulingGated")
