"""Defaults and rules of the other built-in kinds."""

import base64

import pytest
from kube_caller import MAPS, MERGE, config_map

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
SECRETS = "/api/v1/namespaces/default/secrets"
SERVICES = "/api/v1/namespaces/default/services"
EVENTS = "/api/v1/namespaces/default/events"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def test_namespaces(caller):
    """Active, held by their own finalizer, selectable by name."""
    item = caller.done("POST", "/api/v1/namespaces", {"metadata": {"name": "n"}})
    assert item["status"] == {"phase": "Active"}
    assert item["spec"] == {"finalizers": ["kubernetes"]}
    assert item["metadata"]["labels"] == {"kubernetes.io/metadata.name": "n"}
    assert caller.causes("POST", "/api/v1/namespaces", {"metadata": {"name": "a.b"}}) == [
        ("FieldValueInvalid", "metadata.name")
    ]


def test_immutable_config_maps(caller):
    """Neither their data nor that they are immutable changes; labels do."""
    caller.done("POST", MAPS, {**config_map("a", {"k": "1"}), "immutable": True})
    assert caller.causes("PATCH", f"{MAPS}/a", {"data": {"k": "2"}}, content_type=MERGE) == [
        ("FieldValueForbidden", "data")
    ]
    assert caller.causes("PATCH", f"{MAPS}/a", {"immutable": None}, content_type=MERGE) == [
        ("FieldValueForbidden", "immutable")
    ]
    assert caller.patch(f"{MAPS}/a", {"metadata": {"labels": {"l": "1"}}})["metadata"]["labels"] == {"l": "1"}


def test_secrets(caller):
    """Opaque by default, text is encoded, the type is for life, what is no base64 is refused."""
    item = caller.done("POST", SECRETS, {"metadata": {"name": "s"}, "stringData": {"k": "v"}})
    assert item["type"] == "Opaque"
    assert base64.b64decode(item["data"]["k"]) == b"v"
    assert "stringData" not in item
    assert caller.causes("PATCH", f"{SECRETS}/s", {"type": "other"}, content_type=MERGE) == [
        ("FieldValueInvalid", "type")
    ]
    assert caller.refused("POST", SECRETS, {"metadata": {"name": "t"}, "data": {"k": "!"}})[0] == 400


def test_leases(caller):
    """Durations are positive, transitions not negative, times to the microsecond."""
    wrong = {"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}}
    assert [field for _, field in caller.causes("POST", LEASES, wrong)] == [
        "spec.leaseDurationSeconds",
        "spec.leaseTransitions",
    ]
    good = {"metadata": {"name": "l"}, "spec": {"renewTime": "2026-01-01T01:00:00.123456+01:00"}}
    assert caller.done("POST", LEASES, good)["spec"]["renewTime"] == "2026-01-01T00:00:00.123456Z"
    imprecise = {"metadata": {"name": "m"}, "spec": {"renewTime": "2026-01-01T00:00:00Z"}}
    assert caller.refused("POST", LEASES, imprecise)[0] == 400


def test_events(caller):
    """They happen where their object is; those of cluster-wide objects in default."""
    event = {"metadata": {"name": "e"}, "involvedObject": {"namespace": "other"}, "reason": "R"}
    assert caller.causes("POST", EVENTS, event) == [("FieldValueInvalid", "involvedObject.namespace")]
    caller.done("POST", EVENTS, {**event, "involvedObject": {"kind": "Node", "name": "n"}})
    found = caller.done("GET", EVENTS, fieldSelector="involvedObject.kind=Node,reason=R")["items"]
    assert [item["metadata"]["name"] for item in found] == ["e"]


def test_nodes(caller):
    """New ones are tainted, all can be allocated, a machine stays the machine it is."""
    body = {"metadata": {"name": "g"}, "spec": {"providerID": "cw://1"}, "status": {"capacity": {"nvidia.com/gpu": 8}}}
    item = caller.done("POST", "/api/v1/nodes", body)
    assert item["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    assert item["status"]["allocatable"] == {"nvidia.com/gpu": "8"}
    assert caller.causes("PATCH", "/api/v1/nodes/g", {"spec": {"providerID": "cw://2"}}, content_type=MERGE) == [
        ("FieldValueForbidden", "spec.providerID")
    ]
    taints = [{"key": "", "effect": "x"}, {"key": "k"}, {"key": "k"}]
    reasons = {
        reason
        for reason, _ in caller.causes("PATCH", "/api/v1/nodes/g", {"spec": {"taints": taints}}, content_type=MERGE)
    }
    assert reasons == {"FieldValueInvalid", "FieldValueNotSupported", "FieldValueRequired", "FieldValueDuplicate"}


@pytest.mark.parametrize("key", ["a/b", "..", ".", "..a", "a b", ""])
def test_keys_of_data_are_names_of_files(caller, key):
    """Of config maps, both parts, and of secrets."""
    assert caller.causes("POST", MAPS, config_map("a", {key: "1"})) == [("FieldValueInvalid", f"data[{key}]")]
    body = {"metadata": {"name": "a"}, "data": {key: "MQ=="}}
    assert caller.causes("POST", SECRETS, body) == [("FieldValueInvalid", f"data[{key}]")]


def test_data_has_a_size(caller):
    """One mebibyte of plain bytes, and no key twice."""
    fits = "x" * (1 << 20)
    caller.done("POST", MAPS, config_map("a", {"k": fits}))
    assert caller.causes("POST", MAPS, config_map("b", {"k": f"{fits}y"})) == [("FieldValueTooLong", "")]
    encoded = base64.b64encode(fits.encode()).decode()
    caller.done("POST", SECRETS, {"metadata": {"name": "a"}, "data": {"k": encoded}})
    twice = {**config_map("b", {"k": "1"}), "binaryData": {"k": "MQ=="}}
    assert caller.causes("POST", MAPS, twice) == [("FieldValueInvalid", "binaryData[k]")]


def test_claims(caller):
    """Pending and protected."""
    claim = {"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteMany"]}}
    item = caller.done("POST", "/api/v1/namespaces/default/persistentvolumeclaims", claim)
    assert (item["status"], item["spec"]["volumeMode"]) == ({"phase": "Pending"}, "Filesystem")
    assert item["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]


def test_services(caller):
    """An address each, none for headless ones; ports have defaults and, if many, names."""
    item = caller.done("POST", SERVICES, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})
    assert item["spec"]["clusterIPs"] == [item["spec"]["clusterIP"]]
    assert item["spec"]["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    headless = {"metadata": {"name": "h"}, "spec": {"clusterIP": "None", "selector": {"a": "b"}}}
    assert caller.done("POST", SERVICES, headless)["spec"]["clusterIPs"] == ["None"]
    many = {"metadata": {"name": "m"}, "spec": {"ports": [{"port": 0}, {"port": 1, "name": "a"}]}}
    assert [field for _, field in caller.causes("POST", SERVICES, many)] == ["spec.ports[0].port", "spec.ports[0].name"]
    assert caller.causes("POST", SERVICES, {"metadata": {"name": "1"}, "spec": {"ports": [{"port": 1}]}}) == [
        ("FieldValueInvalid", "metadata.name")
    ]


def test_roles_and_bindings(caller):
    """Rules say what they allow; a binding's role is for life; groups are filled in."""
    role = {"metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["pods"]}]}
    assert caller.causes("POST", f"{RBAC}/clusterroles", role) == [("FieldValueRequired", "rules[0].verbs")]
    binding = {
        "metadata": {"name": "b"},
        "roleRef": {"kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "User", "name": "u"}],
    }
    item = caller.done("POST", f"{RBAC}/clusterrolebindings", binding)
    assert item["roleRef"]["apiGroup"] == item["subjects"][0]["apiGroup"] == "rbac.authorization.k8s.io"
    path = f"{RBAC}/clusterrolebindings/b"
    assert caller.causes("PATCH", path, {"roleRef": {"name": "x"}}, content_type=MERGE) == [
        ("FieldValueInvalid", "roleRef")
    ]


@pytest.mark.parametrize("kind", ["pods", "configmaps", "secrets", "services", "serviceaccounts", "events"])
def test_every_namespaced_kind_lists(caller, kind):
    """Empty at first."""
    assert caller.done("GET", f"/api/v1/namespaces/default/{kind}")["items"] == []
