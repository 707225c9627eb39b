"""What an installation on Kubernetes is made of: the names of its objects, and where a pod finds things.

Two installations may share one cluster, each in a namespace of its own. So what lives in the namespace has a fixed
name, and what belongs to the whole cluster, or is in a namespace of all, has a name that begins with the namespace's.
"""

from __future__ import annotations

from typing import Final

from iriscw._version import __version__
from iriscw.cloud.model import LABEL_ROLE, ROLE_CONTROLLER

# In the namespace

CONTROLLER: Final = "iris-controller"
"""The Deployment, its ServiceAccount, its Role and RoleBinding, its Lease, its disruption budget."""

WORKER: Final = "iris-worker"
"""The workers' ServiceAccount and network policy."""

AGENT: Final = "iris-agent"
"""The node agents' DaemonSet, ServiceAccount and network policy."""

CONFIG_MAP: Final = "iris-cluster-config"
CONFIG_KEY: Final = "config.yaml"

STATE_CLAIM: Final = "iris-controller-state"
"""The volume with journal, logs and results."""

CONTROLLER_SECRETS: Final = "iris-controller-secrets"
"""The Secret with what the controller keeps to itself: :data:`CONTROLLER_SECRET_KEYS`."""

CLUSTER_SECRET_KEY: Final = "cluster-secret"  # noqa: S105 - a key's name, as all of these
ADMIN_TOKEN_KEY: Final = "admin-token"  # noqa: S105
CERTIFICATE_KEY: Final = "tls.crt"
PRIVATE_KEY_KEY: Final = "tls.key"
METRICS_TOKEN_KEY: Final = "metrics-token"  # noqa: S105
CONTROLLER_SECRET_KEYS: Final = (
    *(CLUSTER_SECRET_KEY, ADMIN_TOKEN_KEY, METRICS_TOKEN_KEY, CERTIFICATE_KEY, PRIVATE_KEY_KEY),
)

AUTHORITY_SECRET: Final = "iris-ca"  # noqa: S105
"""The Secret with the certificate of the authority that workers trust. It is a Secret for its name's sake only."""

AUTHORITY_KEY: Final = "ca.crt"

METRICS_SECRET: Final = "iris-metrics"  # noqa: S105
"""The Secret with the token that reads figures, and nothing else: for Prometheus, which needs no other one."""

METRICS_KEY: Final = "token"

CONTROLLER_USER: Final = 65532
"""User and group of the controller's process: ``nonroot``, as distroless images number it."""

PORT_NAME: Final = "controller"

# Labels

APP: Final = "app"
LABEL_NAMESPACE: Final = "iris-namespace"
"""On the node of a controller: whose it is."""

SYSTEM_CRITICAL: Final = "cks.coreweave.cloud/system-critical"
"""On nodes: CoreWeave's own agents (tunnels, monitoring) go there, and need not keep a slice's machine busy."""

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
INSTANCE: Final = "app.kubernetes.io/instance"


def object_labels(cluster: str, component: str = "") -> dict[str, str]:
    """Return the labels of an object: Kubernetes' recommended ones.

    ``iris-managed`` is not among them: what carries that is a machine or pod of a slice, and goes with it.
    """
    return {**pod_labels(cluster, component), "app.kubernetes.io/version": __version__.replace("+", "-")}


def pod_labels(cluster: str, component: str = "") -> dict[str, str]:
    """Return the labels of a pod that is made by an object: without the version, which would start it anew."""
    labels = {
        "app.kubernetes.io/name": "iriscw",
        INSTANCE: cluster,
        "app.kubernetes.io/part-of": "iriscw",
        MANAGED_BY: "iriscw",
    }
    return {**labels, "app.kubernetes.io/component": component} if component else labels


def controller_node_labels(namespace: str) -> dict[str, str]:
    """Return the labels by which the controller finds its node."""
    return {LABEL_ROLE: ROLE_CONTROLLER, LABEL_NAMESPACE: namespace}


def controller_pool(namespace: str) -> str:
    """Return the name of the controller's node pool."""
    return f"{namespace}-controller-pool"


def controller_priority_class(namespace: str) -> str:
    """Return the name of the controller's PriorityClass."""
    return f"{namespace}-controller"


def worker_priority_class(namespace: str) -> str:
    """Return the name of the workers' PriorityClass, unless the configuration names one."""
    return f"{namespace}-worker"


def cluster_role(namespace: str) -> str:
    """Return the name of the controller's ClusterRole and of its binding."""
    return f"{namespace}-controller"


def reviews_role(namespace: str) -> str:
    """Return the name of the ClusterRole by which the controller has agents' tokens looked at, and of its binding."""
    return f"{namespace}-controller-token-reviews"


def events_role(namespace: str) -> str:
    """Return the name of the controller's Role and binding in the namespace of Events.

    All installations share that namespace.
    """
    return f"{namespace}-controller-events"
