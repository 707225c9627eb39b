"""Where objects of each kind are in the API: the kinds that iriscw writes or reads, and no others.

A kind's plural cannot be told from its name, and asking the server for it would be a round trip for what is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iriscw.cloud.model import InvalidSpec

_KINDS = {
    "Namespace": ("namespaces", False),
    "Node": ("nodes", False),
    "PersistentVolume": ("persistentvolumes", False),
    "NodePool": ("nodepools", False),
    "ClusterRole": ("clusterroles", False),
    "ClusterRoleBinding": ("clusterrolebindings", False),
    "CustomResourceDefinition": ("customresourcedefinitions", False),
    "PriorityClass": ("priorityclasses", False),
    "RuntimeClass": ("runtimeclasses", False),
    "StorageClass": ("storageclasses", False),
    "ConfigMap": ("configmaps", True),
    "DaemonSet": ("daemonsets", True),
    "Deployment": ("deployments", True),
    "Event": ("events", True),
    "Job": ("jobs", True),
    "Lease": ("leases", True),
    "NetworkPolicy": ("networkpolicies", True),
    "PersistentVolumeClaim": ("persistentvolumeclaims", True),
    "Pod": ("pods", True),
    "PodDisruptionBudget": ("poddisruptionbudgets", True),
    "PodMonitor": ("podmonitors", True),
    "ResourceQuota": ("resourcequotas", True),
    "Role": ("roles", True),
    "RoleBinding": ("rolebindings", True),
    "Secret": ("secrets", True),
    "Service": ("services", True),
    "ServiceAccount": ("serviceaccounts", True),
    "ServiceMonitor": ("servicemonitors", True),
    "StatefulSet": ("statefulsets", True),
}
"""The kinds that iriscw writes or reads: the plural in their paths, and whether they live in a namespace."""


def path_of(manifest: Mapping[str, Any], namespace: str = "") -> str:
    """Return the path of the object that a manifest describes.

    Args:
        manifest: With ``apiVersion``, ``kind`` and ``metadata.name``.
        namespace: For one that lives in a namespace and names none.

    Raises:
        InvalidSpec: it names no object, no namespace where one is needed, or a kind that is not known here.
    """
    metadata = manifest.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    version, kind, name = manifest.get("apiVersion"), manifest.get("kind"), metadata.get("name")
    if not isinstance(version, str) or not version or not isinstance(name, str) or not name:
        raise InvalidSpec("a manifest needs apiVersion, kind and metadata.name")
    if kind not in _KINDS:
        raise InvalidSpec(f"{kind} is not a kind that iriscw applies")
    plural, namespaced = _KINDS[kind]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    if not namespaced:
        return f"{root}/{plural}/{name}"
    inside = metadata.get("namespace") or namespace
    if not inside:
        raise InvalidSpec(f"the {kind} {name!r} needs a namespace")
    return f"{root}/namespaces/{inside}/{plural}/{name}"
