"""Who the controller and the workers are to the API server, and what they may do there."""

from __future__ import annotations

from typing import Any

from iriscw.cloud.kube.notices import NAMESPACE as EVENTS_NAMESPACE
from iriscw.deploy.installation import Installation
from iriscw.deploy.names import AGENT, CONTROLLER, WORKER, cluster_role, events_role, object_labels, reviews_role
from iriscw.deploy.rights import REVIEW_RIGHTS, WORKER_RIGHTS, cluster_rules, events_rules, namespaced_rules, rules

_API = "rbac.authorization.k8s.io"

_PODS = ((CONTROLLER, "controller"), (WORKER, "worker"), (AGENT, "agent"))
"""Whose accounts there are, and the component that their pods are."""


def accounts(installation: Installation) -> list[dict[str, Any]]:
    """Write the service accounts. No pod gets a token that it did not ask for."""
    pull = installation.platform.image_pull_secret
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": _metadata(installation, name, component),
            "automountServiceAccountToken": False,
            **({"imagePullSecrets": [{"name": pull}]} if pull else {}),
        }
        for name, component in _PODS
        if name != AGENT or installation.config.agent.enabled
    ]


def cluster_access(installation: Installation) -> list[dict[str, Any]]:
    """Write the ClusterRole and its binding: node pools and nodes, nothing else."""
    return _for_the_cluster(installation, cluster_role(installation.namespace), cluster_rules())


def reviews_access(installation: Installation) -> list[dict[str, Any]]:
    """Write by which right the controller has agents' tokens looked at, where there are agents."""
    if not installation.config.agent.enabled:
        return []
    return _for_the_cluster(installation, reviews_role(installation.namespace), rules(REVIEW_RIGHTS))


def _for_the_cluster(installation: Installation, name: str, granted: list[dict[str, Any]]) -> list[dict[str, Any]]:
    labels = object_labels(installation.cluster, "controller")
    return [
        {
            "apiVersion": f"{_API}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name, "labels": labels},
            "rules": granted,
        },
        {
            "apiVersion": f"{_API}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name, "labels": dict(labels)},
            "roleRef": {"apiGroup": _API, "kind": "ClusterRole", "name": name},
            "subjects": [_subject(installation)],
        },
    ]


def namespaced_access(installation: Installation) -> list[dict[str, Any]]:
    """Write the Role and its binding: what the controller does in its own namespace."""
    return [
        {
            "apiVersion": f"{_API}/v1",
            "kind": "Role",
            "metadata": _metadata(installation, CONTROLLER, "controller"),
            "rules": namespaced_rules(),
        },
        {
            "apiVersion": f"{_API}/v1",
            "kind": "RoleBinding",
            "metadata": _metadata(installation, CONTROLLER, "controller"),
            "roleRef": {"apiGroup": _API, "kind": "Role", "name": CONTROLLER},
            "subjects": [_subject(installation)],
        },
    ]


def worker_access(installation: Installation) -> list[dict[str, Any]]:
    """Write what workers may do in their namespace: make pods where a group's tasks have some, else nothing."""
    if not installation.has_task_pods:
        return []
    return [
        {
            "apiVersion": f"{_API}/v1",
            "kind": "Role",
            "metadata": _metadata(installation, WORKER, "worker"),
            "rules": rules(WORKER_RIGHTS),
        },
        {
            "apiVersion": f"{_API}/v1",
            "kind": "RoleBinding",
            "metadata": _metadata(installation, WORKER, "worker"),
            "roleRef": {"apiGroup": _API, "kind": "Role", "name": WORKER},
            "subjects": [_subject(installation, WORKER)],
        },
    ]


def events_access(installation: Installation) -> list[dict[str, Any]]:
    """Write the Role and its binding in the namespace where Events of node pools are."""
    name = events_role(installation.namespace)
    labels = object_labels(installation.cluster, "controller")
    metadata = {"name": name, "namespace": EVENTS_NAMESPACE, "labels": labels}
    return [
        {"apiVersion": f"{_API}/v1", "kind": "Role", "metadata": metadata, "rules": events_rules()},
        {
            "apiVersion": f"{_API}/v1",
            "kind": "RoleBinding",
            "metadata": {**metadata, "labels": dict(labels)},
            "roleRef": {"apiGroup": _API, "kind": "Role", "name": name},
            "subjects": [_subject(installation)],
        },
    ]


def _subject(installation: Installation, name: str = CONTROLLER) -> dict[str, Any]:
    return {"kind": "ServiceAccount", "name": name, "namespace": installation.namespace}


def _metadata(installation: Installation, name: str, component: str) -> dict[str, Any]:
    labels = object_labels(installation.cluster, component)
    return {"name": name, "namespace": installation.namespace, "labels": labels}
