"""Deployments, daemon sets, disruption budgets, network policies and classes, as the real server has them."""

import pytest
from kube_caller import MERGE, pod

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


def deployment(**spec):
    """Return the body of a deployment."""
    template = {"metadata": {"labels": {"app": "x"}}, "spec": pod()["spec"]}
    return {
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template, **spec},
    }


def test_deployments(caller):
    """Defaults, and a selector that fits its template and is for life."""
    spec = caller.done("POST", DEPLOYMENTS, deployment())["spec"]
    assert (spec["replicas"], spec["strategy"]["rollingUpdate"]["maxSurge"]) == (1, "25%")
    assert spec["template"]["spec"]["restartPolicy"] == "Always"
    other = {"spec": {"selector": {"matchLabels": {"app": "y"}}}}
    assert [field for _, field in caller.causes("PATCH", f"{DEPLOYMENTS}/d", other, content_type=MERGE)] == [
        "spec.selector",
        "spec.template.metadata.labels",
    ]
    assert caller.causes("POST", DEPLOYMENTS, deployment(selector={}))[0] == ("FieldValueInvalid", "spec.selector")
    assert caller.causes("POST", DEPLOYMENTS, deployment(replicas=-1)) == [("FieldValueInvalid", "spec.replicas")]


def test_a_deployments_generation_counts_annotations(caller):
    """They are handed on to what it makes; its status has no say in them, nor in labels."""
    made = caller.done("POST", DEPLOYMENTS, deployment())
    path = f"{DEPLOYMENTS}/d"
    assert made["metadata"]["generation"] == 1
    assert caller.patch(path, {"metadata": {"annotations": {"a": "1"}}})["metadata"]["generation"] == 2
    assert caller.patch(path, {"metadata": {"labels": {"a": "1"}}})["metadata"]["generation"] == 2
    change = {"metadata": {"annotations": {"a": "2"}, "labels": {"a": "2"}}, "status": {"replicas": 1}}
    item = caller.patch(f"{path}/status", change)
    assert (item["metadata"]["generation"], item["metadata"]["labels"]) == (2, {"a": "1"})
    assert item["metadata"]["annotations"] == {"a": "2"}


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        ({"replicas": -1}, ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"]),
        ({"replicas": 2, "readyReplicas": 1, "availableReplicas": 2}, ["availableReplicas"]),
        ({"replicas": 1, "readyReplicas": 1, "availableReplicas": 1}, []),
    ],
)
def test_a_deployments_status_adds_up(caller, status, fields):
    """No part is more than the whole."""
    caller.done("POST", DEPLOYMENTS, deployment())
    response = caller.ask("PATCH", f"{DEPLOYMENTS}/d/status", {"status": status}, content_type=MERGE)
    causes = response.body.get("details", {}).get("causes", [])
    assert [cause["field"] for cause in causes] == [f"status.{field}" for field in fields]


@pytest.mark.parametrize(
    ("share", "is_fine"), [(0, True), (-1, False), ("0%", True), ("100%", True), ("101%", False), ("fifty", False)]
)
def test_a_budget_is_a_number_or_a_percentage(caller, share, is_fine):
    """Of the same for both of its fields."""
    for name in ("minAvailable", "maxUnavailable"):
        response = caller.ask("POST", BUDGETS, {"metadata": {"name": name.lower()}, "spec": {name: share}})
        assert response.code == (201 if is_fine else 422)


def test_budgets(caller):
    """One of two fields, and nothing allowed at first; a status counts."""
    both = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "maxUnavailable": 1}}
    assert caller.causes("POST", BUDGETS, both) == [("FieldValueInvalid", "spec")]
    one = caller.done("POST", BUDGETS, {"metadata": {"name": "b"}, "spec": {"minAvailable": "50%"}})
    assert one["status"]["disruptionsAllowed"] == 0
    wrong = {"status": {"disruptionsAllowed": -1, "currentHealthy": -1}}
    assert caller.causes("PATCH", f"{BUDGETS}/b/status", wrong, content_type=MERGE) == [
        ("FieldValueInvalid", "status.disruptionsAllowed"),
        ("FieldValueInvalid", "status.currentHealthy"),
    ]


SETS = "/apis/apps/v1/namespaces/default/daemonsets"
POLICIES = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
RUNTIMES = "/apis/node.k8s.io/v1/runtimeclasses"
TEMPLATE = "deprecated.daemonset.template.generation"


def test_daemon_sets(caller):
    """Defaults, a status of nobody, an annotation that counts templates, and a selector that is for life."""
    made = caller.done("POST", SETS, deployment())
    assert made["spec"]["updateStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
    }
    assert made["spec"]["template"]["spec"]["restartPolicy"] == "Always"
    assert (made["metadata"]["annotations"], made["metadata"]["generation"]) == ({TEMPLATE: "1"}, 1)
    assert set(made["status"].values()) == {0}
    path = f"{SETS}/d"
    assert caller.patch(path, {"spec": {"minReadySeconds": 3}})["metadata"]["annotations"] == {TEMPLATE: "1"}
    template = {"spec": {"template": {"spec": {"priorityClassName": "x"}}}}
    assert caller.patch(path, template)["metadata"]["annotations"] == {TEMPLATE: "2"}
    assert caller.patch(f"{path}/status", {"status": {"numberReady": 3}})["status"]["numberReady"] == 3
    other = {"spec": {"selector": {"matchLabels": {"app": "y"}}}}
    assert [field for _, field in caller.causes("PATCH", path, other, content_type=MERGE)] == [
        "spec.selector",
        "spec.template.metadata.labels",
    ]
    empty = {"metadata": {"name": "e"}, "spec": {}}
    assert [field for _, field in caller.causes("POST", SETS, empty)] == [
        "spec.template.metadata.labels",
        "spec.template.spec.containers",
    ]


def test_network_policies(caller):
    """What one is about follows from its rules, and a port without a protocol is one of TCP."""
    for name, spec, kinds in (("a", {}, ["Ingress"]), ("b", {"egress": [{}]}, ["Ingress", "Egress"])):
        found = caller.done("POST", POLICIES, {"metadata": {"name": name}, "spec": spec})
        assert (found["spec"]["policyTypes"], found["metadata"]["generation"]) == (kinds, 1)
        assert found["spec"]["podSelector"] == {}
    ports = {
        "metadata": {"name": "c"},
        "spec": {"ingress": [{"ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}]}]},
    }
    (rule,) = caller.done("POST", POLICIES, ports)["spec"]["ingress"]
    assert rule["ports"] == [{"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]


def test_a_priority_class_is_for_life(caller):
    """Its value has a bound; neither that nor whether it preempts can be changed."""
    made = caller.done("POST", PRIORITIES, {"metadata": {"name": "p"}, "value": 1000})
    assert (made["preemptionPolicy"], made["metadata"]["generation"]) == ("PreemptLowerPriority", 1)
    path = f"{PRIORITIES}/p"
    assert caller.causes("PATCH", path, {"value": 5}, content_type=MERGE) == [("FieldValueForbidden", "value")]
    assert caller.causes("PATCH", path, {"preemptionPolicy": "Never"}, content_type=MERGE) == [
        ("FieldValueInvalid", "preemptionPolicy")
    ]
    assert caller.patch(path, {"description": "x"})["metadata"]["generation"] == 1
    big = {"metadata": {"name": "q"}, "value": 1_000_000_001}
    assert caller.causes("POST", PRIORITIES, big) == [("FieldValueForbidden", "value")]


def test_a_runtime_class_has_one_handler(caller):
    """A label, for life."""
    caller.done("POST", RUNTIMES, {"metadata": {"name": "r"}, "handler": "kybernate"})
    assert caller.causes("PATCH", f"{RUNTIMES}/r", {"handler": "z"}, content_type=MERGE) == [
        ("FieldValueInvalid", "handler")
    ]
    assert caller.causes("POST", RUNTIMES, {"metadata": {"name": "s"}}) == [("FieldValueRequired", "handler")]
    assert caller.causes("POST", RUNTIMES, {"metadata": {"name": "s"}, "handler": "Up_"}) == [
        ("FieldValueInvalid", "handler")
    ]
