"""What is sent to the API to make a pool or a pod.

Everything that could be refused for its form is refused here already, by name. The manifests say only what we mean:
defaults are the server's. Requests equal limits, so a worker pod is of the class ``Guaranteed`` and the last to be
evicted.
"""

from __future__ import annotations

from typing import Any

from iriscw.cloud.kube import words
from iriscw.cloud.kube.paths import POOL_API
from iriscw.cloud.kube.settings import KubeSettings
from iriscw.cloud.labels import check_name, our_labels
from iriscw.cloud.model import LABEL_GROUP, LABEL_INCARNATION, LABEL_SLICE, Capacity, InvalidSpec, NodePoolSpec, PodSpec
from iriscw.runtime.vocabulary import SECOND

MAX_NODES = 10_000
"""Nodes of one pool: twice the tested size of a whole cluster."""

MAX_ENVIRONMENT = 256
"""Variables of one pod."""

MAX_ENVIRONMENT_BYTES = 131_072
"""Bytes of a pod's environment: what Linux takes in one argument (``MAX_ARG_STRLEN``)."""

CONTAINER = "worker"
CONTAINER_PORT = "worker"
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where NCCL exchanges data between GPUs of a node; 64 MiB by default


class SpecTooBig(InvalidSpec):
    """The specification is beyond a limit: nodes of a pool, or the environment of a pod."""


def nodepool_manifest(settings: KubeSettings, spec: NodePoolSpec) -> dict[str, Any]:
    """Write a NodePool: of fixed size, CoreWeave's autoscaler off, its nodes labelled as it is itself.

    Raises:
        InvalidSpec: a name, a number or a label cannot be.
    """
    check_name(spec.name)
    if spec.target_nodes < 1:
        raise InvalidSpec(f"a pool has at least one node, not {spec.target_nodes}")
    if spec.target_nodes > MAX_NODES:
        raise SpecTooBig(f"a pool has at most {MAX_NODES} nodes, not {spec.target_nodes}")
    if not spec.instance_type:
        raise InvalidSpec("a pool needs an instance type")
    labels = our_labels(settings.cluster, spec.labels)
    return {
        "apiVersion": POOL_API,
        "kind": "NodePool",
        "metadata": {"name": spec.name, "labels": labels},
        "spec": {
            "computeClass": spec.compute_class,
            "instanceType": spec.instance_type,
            **_size(spec),
            "autoscaling": False,
            "nodeLabels": dict(labels),
        },
    }


def _size(spec: NodePoolSpec) -> dict[str, int]:
    """Say how big a pool is: in nodes, with bounds that leave no choice, or in racks, which have none."""
    nodes = spec.target_nodes
    if not spec.instance_type.lower().startswith(words.RACK_TYPES):
        return {"targetNodes": nodes, "minNodes": nodes, "maxNodes": nodes}
    if nodes % words.RACK_NODES:
        raise InvalidSpec(f"{spec.instance_type} comes in whole racks of {words.RACK_NODES} nodes, not {nodes}")
    return {"targetRacks": nodes // words.RACK_NODES}


def pod_manifest(settings: KubeSettings, spec: PodSpec, pool_uid: str = "") -> dict[str, Any]:
    """Write a worker pod, for a node of its slice.

    With ``pool_uid`` the pool owns the pod: when the pool is gone, the cluster's garbage collector removes the pod,
    also one whose creation landed late, when nobody waited for it any more.

    Raises:
        InvalidSpec: a name, a label, the environment or the request cannot be, or there is no image.
    """
    check_name(spec.name)
    check_name(spec.pool)
    image = spec.image or settings.image
    if not image:
        raise InvalidSpec("a worker pod needs an image: the group names none, and there is no default")
    labels = our_labels(settings.cluster, spec.labels)
    metadata: dict[str, Any] = {"name": spec.name, "namespace": settings.namespace, "labels": labels}
    if pool_uid:
        owner = {"apiVersion": POOL_API, "kind": "NodePool", "name": spec.pool, "uid": pool_uid}
        metadata["ownerReferences"] = [{**owner, "controller": False, "blockOwnerDeletion": False}]
    volumes, mounts = _volumes(settings, spec.request)
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": image,
        "env": _environment(settings, spec),
        "resources": _resources(spec, settings),
        "ports": [{"name": CONTAINER_PORT, "containerPort": settings.worker_port}],
        "volumeMounts": mounts,
    }
    if settings.command:
        container["command"] = [*settings.command]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            # NCCL and RDMA want the node's own network. And the port is the node's then, so that no node gets two of
            # them: a worker is its node, whatever part of it was asked for.
            "hostNetwork": True,
            "dnsPolicy": "ClusterFirstWithHostNet",
            # Ours is the slice; which of its nodes, the scheduler decides.
            "nodeSelector": {LABEL_SLICE: labels.get(LABEL_SLICE, spec.pool)},
            "tolerations": [{"key": key, "operator": "Exists"} for key in words.OUR_TOLERATIONS],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": _seconds(settings.grace),
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "imagePullSecrets": [{"name": name} for name in settings.image_pull_secrets],
            "containers": [container],
            "volumes": volumes,
        },
    }


def _seconds(span: int) -> int:
    return -(-span // SECOND)


def _environment(settings: KubeSettings, spec: PodSpec) -> list[dict[str, Any]]:
    """Give the variables of a worker (see ``iriscw.worker``): ours first, so that others may say otherwise."""
    ours = {
        "IRIS_CONTROLLER_ADDRESS": settings.controller_address,
        "IRISCW_CACHE_DIR": settings.cache_dir,
        "IRISCW_INCARNATION": spec.labels.get(LABEL_INCARNATION, ""),
        "IRISCW_WORKER_HOST": "0.0.0.0",  # noqa: S104 - inside a pod; who may reach it is the cluster's to say
        "IRISCW_WORKER_PORT": str(settings.worker_port),
    }
    found = {**{name: value for name, value in ours.items() if value}, **settings.environment, **spec.environment}
    if len(found) > MAX_ENVIRONMENT:
        raise SpecTooBig(f"a pod has at most {MAX_ENVIRONMENT} variables, not {len(found)}")
    size_bytes = sum(len(name.encode()) + len(value.encode()) for name, value in found.items())
    if size_bytes > MAX_ENVIRONMENT_BYTES:
        raise SpecTooBig(f"a pod's environment has at most {MAX_ENVIRONMENT_BYTES} bytes, not {size_bytes}")
    told: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in sorted(found.items())]
    if "IRIS_VM_ADDRESS" not in found:
        told.append({"name": "IRIS_VM_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    return told


def _resources(spec: PodSpec, settings: KubeSettings) -> dict[str, Any]:
    request = spec.request
    if min(request.cpu_milli, request.memory_bytes, request.disk_bytes, request.gpu_count) < 0:
        raise InvalidSpec("a pod cannot request less than nothing")
    amounts = {
        "cpu": f"{request.cpu_milli}m" if request.cpu_milli else "",
        "memory": str(request.memory_bytes or ""),
        "ephemeral-storage": str(request.disk_bytes or ""),
        words.GPU_RESOURCE: str(request.gpu_count or ""),
        words.RDMA_RESOURCE: "1" if spec.labels.get(LABEL_GROUP) in settings.infiniband_groups else "",
    }
    asked = {name: amount for name, amount in amounts.items() if amount}
    return {"requests": asked, "limits": dict(asked)}


def _volumes(settings: KubeSettings, request: Capacity) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    volumes: list[dict[str, Any]] = []
    mounts: list[dict[str, Any]] = []
    if settings.cache_dir:
        volumes.append({"name": "cache", "emptyDir": {}})
        mounts.append({"name": "cache", "mountPath": settings.cache_dir})
    if request.gpu_count:
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory"}})  # counts as the pod's memory
        mounts.append({"name": "shm", "mountPath": SHARED_MEMORY})
    return volumes, mounts
