"""What controller and workers may do in a cluster: tables with the reason for each line, and the roles made of them.

Theory of operation. Least privilege has two halves. What belongs to the whole cluster (node pools, nodes) is in a
ClusterRole, because it cannot be elsewhere; everything else holds in the namespace only, but for Events of node pools,
which the API server takes in ``default`` only. A test drives the drivers
through a slice's life and compares what they ask for with this table, line by line, so that it is neither too small
nor too large; another asks a real API server to refuse the rest.

Two limits of Kubernetes' own are worth knowing. Whoever may create pods in a namespace can mount each of its Secrets,
so a namespace is shared with nobody who may not see them; where tasks have pods of their own, workers may create pods,
too (their tasks may not: no token is mounted there). And NodePools cannot be told apart by label in a rule: that
the controller touches its own only is in its code (INV-F2), not in its rights.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import attrs

from iriscw.cloud.kube.notices import NAMESPACE as EVENTS_NAMESPACE
from iriscw.deploy.names import CONTROLLER


@attrs.frozen
class Right:
    """One line: what may be done to one resource.

    Attributes:
        group: The API group; empty for Kubernetes' own first one.
        resource: Its plural, with a subresource if it is about that.
        verbs: As Kubernetes names them.
        why: What breaks without it.
        cluster: Whether it holds in the whole cluster.
        names: The only objects it holds for; empty for all.
        namespace: Where it holds, if that is another namespace than the controller's.
    """

    group: str
    resource: str
    verbs: tuple[str, ...]
    why: str
    cluster: bool = False
    names: tuple[str, ...] = ()
    namespace: str = ""


RIGHTS: Final = (
    Right(
        "compute.coreweave.com",
        "nodepools",
        ("get", "list", "watch", "create", "delete"),
        "each slice is a pool: made, followed and deleted; one is read before it is deleted, to know whose it is",
        cluster=True,
    ),
    Right(
        "",
        "nodes",
        ("list", "watch"),
        "a slice is ready when its nodes are; nothing is ever changed on a node",
        cluster=True,
    ),
    Right("", "namespaces", ("get",), "its uid tells this installation from others"),
    Right(
        "",
        "pods",
        ("get", "list", "watch", "create", "delete"),
        "worker pods: made, followed and deleted; one is read before it is deleted, to know whose it is",
    ),
    Right(
        "",
        "pods/exec",
        ("get", "create"),
        "`iriscw exec`, and a look into a worker's pod that runs and does not register; a websocket takes `get`,"
        " and from Kubernetes 1.35 on `create`, too",
    ),
    Right("", "pods/log", ("get",), "the last words of a worker that did not start are kept with its slice"),
    Right("", "secrets", ("create", "delete"), "each worker pod has a token of its own; none is ever read back"),
    Right("coordination.k8s.io", "leases", ("create",), "leader election: the first controller makes the lease"),
    Right(
        "coordination.k8s.io",
        "leases",
        ("get", "update"),
        "leader election: who holds the lease, and until when",
        names=(CONTROLLER,),
    ),
    Right(
        "",
        "events",
        ("create", "patch"),
        "what happens to a slice is told on its pool; a pool is in no namespace, and its events are in `default`",
        namespace=EVENTS_NAMESPACE,
    ),
)
"""What the controller may do in any case."""

REVIEW_RIGHTS: Final = (
    Right(
        "authentication.k8s.io",
        "tokenreviews",
        ("create",),
        "which node's agent dials: the API server says whose the token of its pod is, and on which node that is",
        cluster=True,
    ),
)
"""What the controller may do beside that where there are node agents (``agent.enabled``); nothing otherwise."""

WORKER_RIGHTS: Final = (
    Right(
        "",
        "pods",
        ("get", "list", "watch", "create", "delete"),
        "each task has a pod: made, followed and deleted by its worker; one is read when a list has lost it",
    ),
)
"""All that workers may do, where tasks have pods of their own (``task_runtime: pod``); nothing otherwise."""


def controller_rights(*, agents: bool) -> tuple[Right, ...]:
    """Return all that the controller may do, with node agents or without."""
    return (*RIGHTS, *(REVIEW_RIGHTS if agents else ()))


def rules(rights: Iterable[Right]) -> list[dict[str, Any]]:
    """Return rights as the rules of a role."""
    return [
        {
            "apiGroups": [right.group],
            "resources": [right.resource],
            **({"resourceNames": [*right.names]} if right.names else {}),
            "verbs": [*right.verbs],
        }
        for right in rights
    ]


def namespaced_rules() -> list[dict[str, Any]]:
    """Return the rules of the Role in the controller's namespace."""
    return rules(right for right in RIGHTS if not right.cluster and not right.namespace)


def events_rules() -> list[dict[str, Any]]:
    """Return the rules of the Role where Events of node pools are."""
    return rules(right for right in RIGHTS if right.namespace == EVENTS_NAMESPACE)


def cluster_rules() -> list[dict[str, Any]]:
    """Return the rules of the ClusterRole."""
    return rules(right for right in RIGHTS if right.cluster)
