"""What belongs to the whole cluster: the namespace, the controller's node pool, the classes of priority."""

from __future__ import annotations

from typing import Any, Final

from iriscw.cloud.kube.paths import POOL_API
from iriscw.cloud.model import LABEL_ROLE, ROLE_CONTROLLER
from iriscw.deploy.installation import Installation
from iriscw.deploy.names import (
    SYSTEM_CRITICAL,
    controller_node_labels,
    controller_pool,
    controller_priority_class,
    object_labels,
    worker_priority_class,
)

CONTROLLER_PRIORITY: Final = 1_000_000
WORKER_PRIORITY: Final = 1_000
"""Above what says nothing (0) and far below the system's own (2,000,000,000): a worker makes the verification jobs that
CoreWeave runs on idle nodes go, instead of waiting for their end. Iris uses 1000 for production, too."""


def namespace(installation: Installation) -> dict[str, Any]:
    """Write the namespace. Worker pods use their node's network, which only the level ``privileged`` lets them."""
    labels = {
        **object_labels(installation.cluster),
        "pod-security.kubernetes.io/enforce": "privileged",
        "pod-security.kubernetes.io/enforce-version": "latest",
    }
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": installation.namespace, "labels": labels},
    }


def node_pool(installation: Installation) -> dict[str, Any]:
    """Write the pool of the controller's one node.

    It has no ``iris-managed``: the controller never takes it for a slice, and never deletes it (INV-F2).

    Labels of CoreWeave's own domains are refused on pools, but for the one that asks for its agents: Iris's pools carry
    it in production. A zone that thinks otherwise says so in the pool's condition, and ``system_critical`` is the way
    out.
    """
    critical = {SYSTEM_CRITICAL: "true"} if installation.controller.system_critical else {}
    return {
        "apiVersion": POOL_API,
        "kind": "NodePool",
        "metadata": {
            "name": controller_pool(installation.namespace),
            "labels": {**object_labels(installation.cluster, "controller"), LABEL_ROLE: ROLE_CONTROLLER},
        },
        "spec": {
            "computeClass": "default",
            "instanceType": installation.controller.instance_type,
            "targetNodes": 1,
            "minNodes": 1,
            "maxNodes": 1,
            "autoscaling": False,
            "nodeLabels": {**controller_node_labels(installation.namespace), **critical},
        },
    }


def priority_classes(installation: Installation) -> list[dict[str, Any]]:
    """Write the classes of the controller and, unless the configuration names another one, of the workers."""
    classes = [
        _priority_class(
            installation,
            controller_priority_class(installation.namespace),
            "controller",
            CONTROLLER_PRIORITY,
            "The controller of a cluster of iriscw.",
        )
    ]
    if installation.owns_priority_class:
        name = worker_priority_class(installation.namespace)
        text = "Workers of a cluster of iriscw."
        classes.append(_priority_class(installation, name, "worker", WORKER_PRIORITY, text))
    return classes


def _priority_class(installation: Installation, name: str, component: str, value: int, text: str) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name, "labels": object_labels(installation.cluster, component)},
        "value": value,
        "globalDefault": False,
        "preemptionPolicy": "PreemptLowerPriority",
        "description": text,
    }
