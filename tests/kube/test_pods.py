"""Pods: defaults, quality, what may change."""

import pytest
from kube_caller import MERGE, PODS, pod

from iriscw_sims.kube.pods import quality

A = f"{PODS}/a"


def with_container(**more):
    """Give a pod whose container has more fields."""
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


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"name": ""}, "spec.containers[0].name"),
        ({"name": "A_"}, "spec.containers[0].name"),
        ({"image": ""}, "spec.containers[0].image"),
        ({"image": " a"}, "spec.containers[0].image"),
        ({"imagePullPolicy": "Often"}, "spec.containers[0].imagePullPolicy"),
        ({"ports": [{"containerPort": 70000}]}, "spec.containers[0].ports[0].containerPort"),
        ({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, "spec.containers[0].volumeMounts[0].name"),
        ({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}, "spec.containers[0].resources.requests"),
        ({"resources": {"requests": {"nvidia.com/gpu": 1}}}, "spec.containers[0].resources.limits[nvidia.com/gpu]"),
    ],
)
def test_containers_that_are_refused(caller, more, field):
    """422 with the field."""
    assert field in [where for _, where in caller.causes("POST", PODS, with_container(**more))]


def test_pods_that_are_refused(caller):
    """No container, a container's name twice, an unknown policy."""
    assert caller.causes("POST", PODS, {"metadata": {"name": "a"}, "spec": {}}) == [
        ("FieldValueRequired", "spec.containers")
    ]
    twice = pod("a")
    twice["spec"]["containers"] *= 2
    twice["spec"]["restartPolicy"] = "Sometimes"
    assert caller.causes("POST", PODS, twice) == [
        ("FieldValueDuplicate", "spec.containers[1].name"),
        ("FieldValueNotSupported", "spec.restartPolicy"),
    ]


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        ({"activeDeadlineSeconds": 5}, True),
        ({"containers": [{"name": "main", "image": "other:2"}]}, True),
        ({"containers": [{"name": "main", "image": "other:2", "command": ["x"]}]}, False),
        ({"nodeName": "n"}, False),
        ({"restartPolicy": "Never"}, False),
        ({"containers": []}, False),
        ({"tolerations": []}, False),
    ],
)
def test_what_of_a_pod_may_change(caller, change, allowed):
    """Next to nothing."""
    caller.done("POST", PODS, pod("a"))
    response = caller.ask("PATCH", A, {"spec": change}, content_type=MERGE)
    assert (response.code == 200) == allowed, response
    if not allowed:
        assert response.code == 422


def test_an_image_may_change(caller):
    """Whole containers replaced by ones that differ in nothing else."""
    made = caller.done("POST", PODS, pod("a"))
    (container,) = made["spec"]["containers"]
    item = caller.patch(A, {"spec": {"containers": [{**container, "image": "registry.test/image:2"}]}})
    assert item["spec"]["containers"][0]["image"] == "registry.test/image:2"


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
