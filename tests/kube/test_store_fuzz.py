"""Nonsense in, a refusal out: no body makes the store raise."""

from hypothesis import given, strategies as st
from kube_caller import (
    APPLY,
    DEFINITIONS,
    JSON_PATCH,
    MAPS,
    MERGE,
    PODS,
    STRATEGIC,
    WIDGETS,
    Caller,
    config_map,
    definition,
    pod,
    spec_schema,
    widget,
)

JUNK = st.sampled_from([None, True, 0, -1, 1.5, "", "x", [], ["x"], [None], {}, {"x": None}, {"": "x"}, [{}], [[]]])
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
FULL_POD = {
    **pod(
        "a",
        node="n",
        labels={"x": "1"},
        finalizers=["x.dev/a"],
        ownerReferences=[{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"}],
    ),
    "status": {"phase": "Running", "podIP": "1.2.3.4", "conditions": [{"type": "Ready", "status": "True"}]},
}
FULL_POD["spec"]["containers"][0] |= {
    "resources": {"limits": {"cpu": "1"}},
    "env": [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
    "ports": [{"containerPort": 1}],
    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    "livenessProbe": {"httpGet": {"port": 1}},
}
FULL_POD["spec"]["volumes"] = [{"name": "v", "configMap": {"name": "m"}}]
ROLE = {"metadata": {"name": "r"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}
BINDING = {
    "metadata": {"name": "b"},
    "roleRef": {"kind": "Role", "name": "r"},
    "subjects": [{"kind": "User", "name": "u"}],
}
DEPLOYMENT = {
    "metadata": {"name": "d"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": FULL_POD["spec"]},
    },
}
COLUMN = {"name": "N", "type": "string", "jsonPath": ".spec.n"}
DEFINITION = definition(
    spec_schema(n={"type": "integer", "default": 1}),
    kind="Gadget",
    subresources={"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
    additionalPrinterColumns=[COLUMN],
)
OPTIONS = {"gracePeriodSeconds": 1, "preconditions": {"uid": "u"}, "propagationPolicy": "Orphan", "dryRun": ["All"]}
BUDGET = {
    "metadata": {"name": "b"},
    "spec": {"minAvailable": 1, "selector": {"matchExpressions": [{"key": "k", "operator": "In"}]}},
}
NODE = {
    "metadata": {"name": "n"},
    "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
    "status": {"capacity": {"cpu": 1}},
}
EVENT = {"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}}
REVIEW = {"spec": {"resourceAttributes": {"verb": "get"}}}
SEEDS = [
    ("POST", PODS, "", FULL_POD),
    ("PUT", f"{PODS}/p", "", {**FULL_POD, "metadata": {"name": "p"}}),
    ("PATCH", f"{PODS}/p", APPLY, {**FULL_POD, "metadata": {"name": "p"}}),
    ("PATCH", f"{PODS}/p", STRATEGIC, FULL_POD),
    ("PATCH", f"{PODS}/p", MERGE, FULL_POD),
    ("PATCH", f"{PODS}/p/status", MERGE, {"status": FULL_POD["status"]}),
    ("PATCH", f"{PODS}/p", JSON_PATCH, [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]),
    ("POST", f"{PODS}/p/binding", "", {"metadata": {"uid": "u"}, "target": {"name": "n"}}),
    ("POST", f"{PODS}/p/eviction", "", {"metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": 1}}),
    ("DELETE", f"{PODS}/p", "", OPTIONS),
    ("POST", MAPS, "", config_map("a", {"k": "v"}, annotations={"a": "b"})),
    ("POST", LEASES, "", {"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 1, "leaseTransitions": 1}}),
    ("POST", BUDGETS, "", BUDGET),
    ("POST", "/api/v1/nodes", "", NODE),
    ("POST", "/api/v1/namespaces/default/secrets", "", {"metadata": {"name": "s"}, "stringData": {"a": "b"}}),
    ("POST", "/api/v1/namespaces/default/services", "", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}}),
    ("POST", "/api/v1/namespaces/default/events", "", EVENT),
    ("POST", "/apis/apps/v1/namespaces/default/deployments", "", DEPLOYMENT),
    ("POST", f"{RBAC}/namespaces/default/roles", "", ROLE),
    ("POST", f"{RBAC}/namespaces/default/rolebindings", "", BINDING),
    ("POST", WIDGETS, "", widget("w", n=1, list=[1], map={"a": 1})),
    ("PATCH", f"{WIDGETS}/x", APPLY, widget("x", n=1, list=[1])),
    ("PATCH", f"{WIDGETS}/x/scale", MERGE, {"spec": {"replicas": 1}, "metadata": {"resourceVersion": "1"}}),
    ("POST", DEFINITIONS, "", DEFINITION),
    ("POST", REVIEWS, "", REVIEW),
]  # fmt: skip


def _paths(value, at=()):
    """Yield the paths of all nodes of a body."""
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _paths(item, (*at, key))


def _with(value, path, junk):
    """Return a body with one node replaced."""
    if not path:
        return junk
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _with(value[path[0]], path[1:], junk)
    return copy


@st.composite
def nonsense(draw):
    """Draw a request whose body has up to two nodes of junk."""
    method, path, content_type, body = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(1, 2))):
        body = _with(body, draw(st.sampled_from([*_paths(body)])), draw(JUNK))
    return method, path, content_type or "application/json", body


@given(st.lists(nonsense(), min_size=1, max_size=4))
def test_no_body_makes_the_store_raise(program):
    """Law: an answer to everything; and everything can still be listed, as tables too."""
    caller = Caller()
    schema = spec_schema(
        n={"type": "integer", "minimum": 0},
        list={"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}},
        map={"type": "object", "additionalProperties": {"type": "integer"}},
    )
    paths = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}
    caller.done("POST", DEFINITIONS, definition(schema, subresources={"status": {}, "scale": paths}))
    caller.done("POST", PODS, pod("p", node="n"))
    caller.done("POST", WIDGETS, widget("x", n=1))
    for method, path, content_type, body in program:
        response = caller.ask(method, path, body, content_type=content_type, fieldManager="m")
        assert response.code < 600
    for kind in caller.store.kinds:
        root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        caller.done("GET", f"{root}/{kind.plural}", accept="application/json;as=Table;v=v1;g=meta.k8s.io")
