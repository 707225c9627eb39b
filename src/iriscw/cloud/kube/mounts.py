"""What is mounted into a worker pod, and where: its cache, the configuration, secrets, and memory to share.

The places are part of the contract with the worker's image and with what is installed in the cluster: Secrets and the
ConfigMap are found by name, and are optional where a cluster may do without them.
"""

from __future__ import annotations

from typing import Any

from iriscw.cloud.kube.settings import KubeSettings
from iriscw.cloud.model import PodSpec

CONFIG_DIR = "/etc/iris"
CA_DIR = f"{CONFIG_DIR}/ca"
CA_FILE = f"{CA_DIR}/ca.crt"
STORAGE_DIR = f"{CONFIG_DIR}/credentials"
STORAGE_VARIABLES = {
    "s3": ("AWS_SHARED_CREDENTIALS_FILE", f"{STORAGE_DIR}/credentials"),
    "gs": ("GOOGLE_APPLICATION_CREDENTIALS", f"{STORAGE_DIR}/credentials.json"),
}
"""By a store's scheme: which variable names the file with its credentials, and where that is."""
TOKEN_DIR = "/var/run/iris/token"  # noqa: S105 - a folder
TOKEN_KEY = "token"  # noqa: S105 - a file's name
TOKEN_FILE = f"{TOKEN_DIR}/{TOKEN_KEY}"
ACCOUNT_DIR = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where every client library looks for the token of its pod's service account."""

ACCOUNT_TOKEN_S = 3607
"""For how long such a token is good; the kubelet brings the next one long before. As the API server does it itself."""

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where NCCL exchanges data between GPUs of a node; 64 MiB by default

OWNER_ONLY = 0o400

Volumes = tuple[list[dict[str, Any]], list[dict[str, Any]]]


def volumes_of(settings: KubeSettings, spec: PodSpec) -> Volumes:
    """Return the volumes of a pod, and where its container has them."""
    wanted: list[tuple[str, str, dict[str, Any]]] = []
    if settings.cache_dir:
        wanted.append(("cache", settings.cache_dir, _cache(settings)))
    own_pods = bool(settings.group(spec.labels).task_image)
    if spec.request.gpu_count and not own_pods:
        wanted.append(("shm", SHARED_MEMORY, {"emptyDir": {"medium": "Memory"}}))  # counts as the pod's memory
    if settings.config_map:
        wanted.append(("config", CONFIG_DIR, {"configMap": {"name": settings.config_map, "optional": True}}))
    if settings.authority_secret:
        wanted.append(("ca", CA_DIR, {"secret": {"secretName": settings.authority_secret}}))
    if settings.storage_secret:
        wanted.append(("credentials", STORAGE_DIR, _secret(settings.storage_secret, optional=True)))
    if settings.tokens:
        wanted.append(("token", TOKEN_DIR, _secret(spec.name)))
    if own_pods:
        wanted.append(("account", ACCOUNT_DIR, _account()))
    volumes = [{"name": name, **source} for name, _, source in wanted]
    mounts = [{"name": name, "mountPath": path, **_read_only(source)} for name, path, source in wanted]
    return volumes, mounts


def _cache(settings: KubeSettings) -> dict[str, Any]:
    """Put the cache on the node's own disk: the root of CoreWeave's nodes is a small one in memory."""
    if settings.node_cache_dir:
        return {"hostPath": {"path": settings.node_cache_dir, "type": "DirectoryOrCreate"}}
    return {"emptyDir": {}}


def _account() -> dict[str, Any]:
    """Return what a worker needs to make pods: the token of its service account, and whom to trust there."""
    authority = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    namespace = {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": ACCOUNT_TOKEN_S}},
        {"configMap": authority},
        {"downwardAPI": {"items": [namespace]}},
    ]
    return {"projected": {"defaultMode": OWNER_ONLY, "sources": sources}}


def _secret(name: str, *, optional: bool = False) -> dict[str, Any]:
    return {"secret": {"secretName": name, "defaultMode": OWNER_ONLY, **({"optional": True} if optional else {})}}


def _read_only(source: dict[str, Any]) -> dict[str, Any]:
    return {} if "emptyDir" in source or "hostPath" in source else {"readOnly": True}
