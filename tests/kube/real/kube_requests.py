"""Requests and objects, written short: what the catalogue and the random programs are made of."""

from __future__ import annotations

from typing import Any

from kube_program import APPLY, MERGE, Ask

PODS = "/api/v1/namespaces/alpha/pods"
MAPS = "/api/v1/namespaces/alpha/configmaps"
NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/alpha/leases"
DEPLOYMENTS = "/apis/apps/v1/namespaces/alpha/deployments"
EVENTS = "/api/v1/namespaces/alpha/events"
BUDGETS = "/apis/policy/v1/namespaces/alpha/poddisruptionbudgets"
POOLS = "/apis/compute.coreweave.com/v1alpha1/nodepools"
WIDGETS = "/apis/test.iriscw.dev/v1/namespaces/alpha/widgets"
GADGETS = "/apis/test.iriscw.dev/v1/namespaces/alpha/gadgets"
ROLES = "/apis/rbac.authorization.k8s.io/v1"
NAMESPACES = "/api/v1/namespaces"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA_ONLY = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


def get(path: str, user: str = "admin", accept: str = "application/json", **query: str) -> Ask:
    """Read an object or a list."""
    return Ask("GET", path, tuple(query.items()), user=user, accept=accept)


def post(path: str, body: Any, user: str = "admin", **query: str) -> Ask:
    """Create an object."""
    return Ask("POST", path, tuple(query.items()), body, user=user)


def put(path: str, body: Any, user: str = "admin", **query: str) -> Ask:
    """Replace an object."""
    return Ask("PUT", path, tuple(query.items()), body, user=user)


def patch(path: str, body: Any, kind: str = MERGE, user: str = "admin", **query: str) -> Ask:
    """Change an object."""
    return Ask("PATCH", path, tuple(query.items()), body, kind, user)


def delete(path: str, body: Any = None, user: str = "admin", **query: str) -> Ask:
    """Delete an object or a collection."""
    return Ask("DELETE", path, tuple(query.items()), body, user=user)


def apply(path: str, body: Any, manager: str, **query: str) -> Ask:
    """Apply a body for a field manager."""
    return patch(path, body, APPLY, fieldManager=manager, **query)


def changed(path: str, change: Any) -> dict[str, Any]:
    """Return the body that is the object last seen at ``path`` with a merge patch on top."""
    return {"$seen": path, "$patch": change}


def config_map(name: str, data: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    """A ConfigMap."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": data or {}}


def pod(name: str, node: str = "", **metadata: Any) -> dict[str, Any]:
    """A Pod with one container, bound to a node if one is named."""
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "registry.test/image:1"}]}
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


def node(name: str, **metadata: Any) -> dict[str, Any]:
    """A Node."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **metadata}}


def pool(name: str, **spec: Any) -> dict[str, Any]:
    """A NodePool of H100 nodes."""
    body = {"instanceType": "gd-8xh100ib-i128", "targetNodes": 2, **spec}
    metadata = {"name": name}
    return {"apiVersion": "compute.coreweave.com/v1alpha1", "kind": "NodePool", "metadata": metadata, "spec": body}


def widget(name: str, spec: Any = None, **metadata: Any) -> dict[str, Any]:
    """A Widget; without ``spec`` it has none."""
    body = {"apiVersion": "test.iriscw.dev/v1", "kind": "Widget", "metadata": {"name": name, **metadata}}
    return body if spec is None else {**body, "spec": spec}


def lease(name: str, **spec: Any) -> dict[str, Any]:
    """A Lease."""
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}


def role(kind: str, name: str, *rules: dict[str, Any]) -> dict[str, Any]:
    """A Role or ClusterRole."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "rules": list(rules),
    }


def binding(kind: str, name: str, role_kind: str, role_name: str, user: str = "dev") -> dict[str, Any]:
    """A RoleBinding or ClusterRoleBinding to a user."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role_name},
    }


def rule(verbs: str, resources: str, group: str = "", names: str = "") -> dict[str, Any]:
    """A rule; words are separated by blanks."""
    result = {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}
    return {**result, "resourceNames": names.split()} if names else result
