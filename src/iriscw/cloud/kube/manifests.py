"""What is sent to the API to make a pool or a pod.

Everything that could be refused for its form is refused here already, by name. The manifests say only what we mean:
defaults are the server's.

A worker is its node. It uses the node's network, because NCCL and RDMA want that; so its port is the node's, which no
second worker gets, and its door can stay on loopback: the kubelet's probes and ``exec`` come from the same machine. Its
limits are what its group promises. It requests as much, so that it is of the class ``Guaranteed`` and the last to be
evicted, unless that is all of the machine: then a little less, because a part of each machine is others' already, and
the pod would never be scheduled.

Where tasks have pods of their own (:mod:`iriscw.cloud.kube.tasks`) a worker asks for no more than it needs itself,
holds no GPU, and may make pods. It is told what they are like, and what its group promises, which it cannot see.

What its pod must know and nobody else may see is named, never told: values come from Secrets, as files and variables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iriscw.cloud.catalogue import RACK_NODES, RACK_TYPES
from iriscw.cloud.kube import words
from iriscw.cloud.kube.mounts import CA_FILE, TOKEN_FILE, volumes_of
from iriscw.cloud.kube.paths import POOL_API
from iriscw.cloud.kube.settings import GroupSettings, KubeSettings
from iriscw.cloud.kube.tasks import WORKER_REQUEST, TaskPods, encode_task_pods
from iriscw.cloud.labels import check_name, our_labels
from iriscw.cloud.model import (
    LABEL_CLUSTER_NAME,
    LABEL_GROUP,
    LABEL_INCARNATION,
    LABEL_SLICE,
    InvalidSpec,
    NodePoolSpec,
    PodSpec,
)
from iriscw.runtime.vocabulary import SECOND

MAX_NODES = 10_000
"""Nodes of one pool: twice the tested size of a whole cluster."""

MAX_ENVIRONMENT = 256
"""Variables of one pod."""

MAX_ENVIRONMENT_BYTES = 131_072
"""Bytes of a pod's environment: what Linux takes in one argument (``MAX_ARG_STRLEN``)."""

CONTAINER = "worker"
CONTAINER_PORT = "worker"

HEALTH = "/health"
LOOPBACK = "127.0.0.1"
PROBE_PERIOD_S = 2
"""Between two looks whether a worker has started: what a task waits for it on average is half of that."""

LIVENESS = {"periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": 6}
"""A worker that does not answer for a minute is killed. Iris's probes of 1 s killed workers of busy machines."""

WORKER_ACCOUNT = "iris-worker"
"""The ServiceAccount of workers; ``iriscw.deploy.names`` has the same name."""

TASK_PODS = "IRISCW_TASK_PODS"
"""The variable that says what pods of tasks are like, where they have some."""

OWN_POD = {
    "IRISCW_OWN_NODE": "spec.nodeName",
    "IRISCW_OWN_POD": "metadata.name",
    "IRISCW_OWN_POD_UID": "metadata.uid",
}
"""Variables by which a worker knows its own pod, which owns those of its tasks."""

NODE_VARIABLE = "IRISCW_NODE"
"""By which a worker, and the node's agent, know the name of their node."""

TASK_SECRET = "IRISCW_TASK_SECRET_"  # noqa: S105 - how names of variables begin
"""How variables of the worker begin that are passed on to tasks, without this beginning."""


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
    labels = labels_for(settings, spec.labels)
    taints = [{"key": each.key, "value": each.value, "effect": each.effect} for each in settings.group(labels).taints]
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
            **({"nodeTaints": taints} if taints else {}),
        },
    }


def owned_by(pool: str, uid: str) -> dict[str, Any]:
    """Return the reference by which what belongs to a pool goes with it."""
    owner = {"apiVersion": POOL_API, "kind": "NodePool", "name": pool, "uid": uid}
    return {**owner, "controller": False, "blockOwnerDeletion": False}


def labels_for(settings: KubeSettings, labels: Mapping[str, str]) -> dict[str, str]:
    """Return labels with those that say whose the object is: for the driver, and for people.

    Raises:
        InvalidLabels: they cannot be an object's labels.
    """
    named = {LABEL_CLUSTER_NAME: settings.cluster_name} if settings.cluster_name else {}
    return our_labels(settings.cluster, {**labels, **named})


def _size(spec: NodePoolSpec) -> dict[str, int]:
    """Say how big a pool is: in nodes, with bounds that leave no choice, or in racks, which have none."""
    nodes = spec.target_nodes
    if not spec.instance_type.lower().startswith(RACK_TYPES):
        return {"targetNodes": nodes, "minNodes": nodes, "maxNodes": nodes}
    if nodes % RACK_NODES:
        raise InvalidSpec(f"{spec.instance_type} comes in whole racks of {RACK_NODES} nodes, not {nodes}")
    return {"targetRacks": nodes // RACK_NODES}


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
    labels = labels_for(settings, spec.labels)
    metadata: dict[str, Any] = {"name": spec.name, "namespace": settings.namespace, "labels": labels}
    if pool_uid:
        metadata["ownerReferences"] = [owned_by(spec.pool, pool_uid)]
    group = settings.group(labels)
    volumes, mounts = volumes_of(settings, spec)
    container = {
        "name": CONTAINER,
        "image": image,
        "env": _environment(settings, spec),
        "resources": _resources(spec, group, settings),
        "ports": [{"name": CONTAINER_PORT, "containerPort": settings.worker_port}],
        "volumeMounts": mounts,
        "securityContext": _security(group),
        **_probes(settings),
        **({"command": [*settings.command]} if settings.command else {}),
    }
    # Ours is the slice; which of its nodes, the scheduler decides.
    selected = {LABEL_SLICE: labels.get(LABEL_SLICE, spec.pool)}
    if group.gpu_class and spec.request.gpu_count:
        selected[words.GPU_CLASS_LABEL] = group.gpu_class
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "hostNetwork": True,
            "dnsPolicy": "ClusterFirstWithHostNet",
            "nodeSelector": selected,
            "tolerations": [{"key": key, "operator": "Exists"} for key in group.tolerated],
            **({"priorityClassName": settings.priority_class} if settings.priority_class else {}),
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": _seconds(settings.grace),
            **({"serviceAccountName": WORKER_ACCOUNT} if group.task_image else {}),
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
    """Return the variables of a worker (see ``iriscw.worker``): ours first, so that others may say otherwise."""
    ours = {
        "IRIS_CONTROLLER_ADDRESS": settings.controller_address,
        "IRISCW_CACHE_DIR": settings.cache_dir,
        "IRISCW_CA_FILE": CA_FILE if settings.authority_secret else "",
        "IRISCW_INCARNATION": spec.labels.get(LABEL_INCARNATION, ""),
        "IRISCW_INSECURE_PLAINTEXT": "1" if settings.plaintext else "",
        "IRISCW_TASK_BIND_HOST": "0.0.0.0",  # noqa: S104 - tasks of one job reach each other across nodes
        "IRISCW_TOKEN_FILE": TOKEN_FILE if settings.tokens else "",
        "IRISCW_WORKER_HOST": LOOPBACK,
        "IRISCW_WORKER_PORT": str(settings.worker_port),
    }
    group = settings.group(spec.labels)
    if group.task_image:
        ours[TASK_PODS] = encode_task_pods(task_pods(settings, spec))
    found = {**{name: value for name, value in ours.items() if value}, **settings.environment, **spec.environment}
    if len(found) > MAX_ENVIRONMENT:
        raise SpecTooBig(f"a pod has at most {MAX_ENVIRONMENT} variables, not {len(found)}")
    size_bytes = sum(len(name.encode()) + len(value.encode()) for name, value in found.items())
    if size_bytes > MAX_ENVIRONMENT_BYTES:
        raise SpecTooBig(f"a pod's environment has at most {MAX_ENVIRONMENT_BYTES} bytes, not {size_bytes}")
    told: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in sorted(found.items())]
    if "IRIS_VM_ADDRESS" not in found:
        told.append({"name": "IRIS_VM_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    if NODE_VARIABLE not in found:  # the name that the node's agent proves, which need not be the host's
        told.append({"name": NODE_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}})
    if group.task_image:  # their tasks are given the secrets by the kubelet: the worker never sees them
        told += [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in OWN_POD.items()]
        return told
    for name, place in sorted(settings.task_secrets.items()):
        reference = {"name": place.name, "key": place.key}
        told.append({"name": f"{TASK_SECRET}{name}", "valueFrom": {"secretKeyRef": reference}})
    return told


def task_pods(settings: KubeSettings, spec: PodSpec) -> TaskPods:
    """Return what the pods of a worker's tasks are like.

    Raises:
        InvalidSpec: the image is none.
    """
    labels, group = labels_for(settings, spec.labels), settings.group(spec.labels)
    shown = (LABEL_GROUP, LABEL_SLICE)
    return TaskPods(
        cluster=settings.cluster,
        cluster_name=settings.cluster_name,
        namespace=settings.namespace,
        image=group.task_image,
        cache_dir=settings.cache_dir,
        node_cache_dir=settings.node_cache_dir,
        labels={name: value for name, value in labels.items() if name in shown},
        promise=spec.request,
        most=group.most,
        image_pull_secrets=settings.image_pull_secrets,
        tolerated=group.tolerated,
        priority_class=settings.priority_class,
        infiniband=group.infiniband,
        authority_secret=settings.authority_secret,
        secrets=settings.task_secrets,
    )


def _probes(settings: KubeSettings) -> dict[str, Any]:
    """Ask the worker's door for its health, on the loopback of the node whose network it uses."""
    asked = {"httpGet": {"host": LOOPBACK, "path": HEALTH, "port": settings.worker_port}}
    looks = max(1, _seconds(settings.health_patience) // PROBE_PERIOD_S)
    startup = {"periodSeconds": PROBE_PERIOD_S, "timeoutSeconds": 5, "failureThreshold": looks}
    return {"startupProbe": {**asked, **startup}, "livenessProbe": {**asked, **LIVENESS}}


def _security(group: GroupSettings) -> dict[str, Any]:
    """Return a container no more than it needs: root, since the node's cache and its token are root's, without powers.

    RDMA pins memory (``IPC_LOCK``). GPUs need nothing: the device plugin brings them.
    """
    pins = group.infiniband and not group.task_image
    capabilities = {"drop": ["ALL"], **({"add": ["IPC_LOCK"]} if pins else {})}
    return {
        "runAsUser": 0,
        "runAsGroup": 0,
        "allowPrivilegeEscalation": False,
        "capabilities": capabilities,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _resources(spec: PodSpec, group: GroupSettings, settings: KubeSettings) -> dict[str, Any]:
    request = spec.request
    if min(request.cpu_milli, request.memory_bytes, request.disk_bytes, request.gpu_count) < 0:
        raise InvalidSpec("a pod cannot request less than nothing")
    if group.task_image:
        worker = {"cpu": f"{WORKER_REQUEST.cpu_milli}m", "memory": str(WORKER_REQUEST.memory_bytes)}
        return {"requests": worker, "limits": {"memory": worker["memory"]}}
    # A folder of the node is not accounted for: the worker itself looks whether there is as much room as is promised.
    scratch = 0 if settings.node_cache_dir else request.disk_bytes
    amounts = {
        "cpu": f"{request.cpu_milli}m" if request.cpu_milli else "",
        "memory": str(request.memory_bytes or ""),
        "ephemeral-storage": str(scratch or ""),
        words.GPU_RESOURCE: str(request.gpu_count or ""),
        words.RDMA_RESOURCE: "1" if group.infiniband else "",
    }
    limits = {name: amount for name, amount in amounts.items() if amount}
    asked = dict(limits)
    if group.most is not None and 0 < group.most.cpu_milli < request.cpu_milli:
        asked["cpu"] = f"{group.most.cpu_milli}m"
    if group.most is not None and 0 < group.most.memory_bytes < request.memory_bytes:
        asked["memory"] = str(group.most.memory_bytes)
    return {"requests": asked, "limits": limits}
