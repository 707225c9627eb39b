"""Pods of tasks: what a worker sends to the API to run one attempt in a pod of its own, on its own node.

*Whose it is.* The worker's pod owns it, so the garbage collector takes it when the worker's pod is gone: nothing of a
worker that was removed stays in the cluster. That is tidiness, not what ends an attempt: a worker that died leaves its
pod behind as Failed, and an API that is away collects nothing. The lease does, in the attempt's own supervisor. The
label ``iris-managed`` says ``task``, so the controller, which looks for ``true``, never takes it for a worker.

*What it gets.* The worker's pod asks for no GPU: it holds none. Each task's pod asks for its own, and the node's device
plugin gives exactly these; a task without GPUs is told ``NVIDIA_VISIBLE_DEVICES=void``, or an image that says ``all``
would have everybody's. Memory is bounded by what the task asked for; CPU is a share, not a bound, as idle CPU is
nobody's gain. The requests of all tasks of a node and its worker's own fit into what the node has for pods
(``most``): where the group promises all of the machine, each asks for a little less than it is bounded by.

*What it sees.* Its own folder and the packages' cache on the node's disk, under the very paths that the worker knows
them by; what all tasks of the worker read (lease, supervisor), not writable. Root of its container, without any
power, as the worker is: the folder is the worker's, who has no right to give it to another user. It is on the pods'
network, with its own address; but with RDMA it is on the node's, as NCCL wants it.

*What it does not see.* The user's variables: they may hold secrets, and lie in a file of the folder. Secrets of the
configuration are named here, never told. No token of the API is mounted.

The node is named: no scheduler is asked, and the node itself refuses what it has no room for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from random import Random
from typing import Any

import attrs

from iriscw.cloud.kube import ownership, words
from iriscw.cloud.kube.calls import MalformedAnswer, ask
from iriscw.cloud.kube.messages import ApiRequest, Call
from iriscw.cloud.kube.mounts import CA_DIR, SHARED_MEMORY
from iriscw.cloud.kube.parsing import MalformedObject, pod_of
from iriscw.cloud.kube.paths import pods_of
from iriscw.cloud.kube.refusals import answered, judged, narrowed
from iriscw.cloud.kube.settings import KubeSettings, SecretKey
from iriscw.cloud.labels import check_name, is_name, our_labels
from iriscw.cloud.model import (
    LABEL_CLUSTER,
    LABEL_CLUSTER_NAME,
    LABEL_INCARNATION,
    LABEL_MANAGED,
    LABEL_WORKER,
    Capacity,
    Forbidden,
    InvalidSpec,
    Pod,
    Throttled,
    check_image,
)
from iriscw.runtime.vocabulary import SECOND

MANAGED_BY_WORKER = "task"
"""The value of ``iris-managed`` that is no controller's business."""

CONTAINER = "task"
WORKER_REQUEST = Capacity(cpu_milli=500, memory_bytes=2 << 30)
"""What a worker asks for whose tasks have pods of their own: bundles are unpacked and logs are sent, nothing else."""

GRACE_S = 30
"""What a pod gets that somebody else ends: the supervisor needs a third of it."""

UV_CACHE = "uv"
"""Below the cache: packages that every task of the node fetches once."""

OWN_HOST = "{host}"
"""Stands in a variable of a task for the address of what it runs in, which nobody knows before that is there."""

ANNOTATION_TASK = "iris-task-id"
ANNOTATION_ATTEMPT = "iris-attempt-uid"

MAX_TEMPLATE_BYTES = 65_536


@attrs.frozen(kw_only=True)
class TaskPods:
    """What all pods of one worker's tasks have in common. The controller tells it in a variable; none of it is secret.

    Raises:
        InvalidSpec: it cannot be.
    """

    cluster: str
    namespace: str
    image: str = attrs.field()
    """For jobs that name none."""
    cluster_name: str = ""
    cache_dir: str
    """Where the worker has its cache, and tasks their part of it."""
    node_cache_dir: str
    """Where that is on the node."""
    labels: Mapping[str, str] = attrs.field(factory=dict)
    """Of the worker's own pod."""
    promise: Capacity
    """What the worker may run at once."""
    most: Capacity | None = None
    """What the node has for pods; None: nobody knows."""
    image_pull_secrets: tuple[str, ...] = ()
    tolerated: tuple[str, ...] = ()
    priority_class: str = ""
    infiniband: bool = False
    authority_secret: str = ""
    secrets: Mapping[str, SecretKey] = attrs.field(factory=dict)

    @image.validator
    def _check(self, _: object, image: str) -> None:
        check_image(image)

    def share(self, demand: Capacity) -> Capacity:
        """Return what a task asks the node for: its demand, or so much less that all of them fit beside the worker."""
        return Capacity(
            cpu_milli=_share(demand.cpu_milli, self.promise.cpu_milli, self._room("cpu_milli")),
            memory_bytes=_share(demand.memory_bytes, self.promise.memory_bytes, self._room("memory_bytes")),
            gpu_count=demand.gpu_count,
        )

    def _room(self, name: str) -> int | None:
        most = 0 if self.most is None else int(getattr(self.most, name))
        return max(0, most - int(getattr(WORKER_REQUEST, name))) if most > 0 else None


def _share(demand: int, promised: int, room: int | None) -> int:
    return demand if room is None or promised <= room else demand * room // promised


@attrs.frozen
class TaskOwner:
    """The worker's pod: whose tasks they are. It learns of itself by the downward API."""

    pod: str
    uid: str
    node: str
    worker_id: str
    incarnation: str


@attrs.frozen
class TaskPod:
    """One attempt's pod. ``folder`` and ``shared`` are below the cache; ``image`` is the job's own, if it has one.

    ``gpus`` are its own, by UUID, where its worker divides them: in a container of its machine.
    """

    attempt_uid: str
    task_id: str
    folder: str
    shared: str
    command: tuple[str, ...]
    demand: Capacity = attrs.field(factory=Capacity)
    image: str = ""
    gpus: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    """Variables in whose values ``OWN_HOST`` stands for the pod's own address."""


def task_pod_name(owner: TaskOwner, attempt_uid: str) -> str:
    """Return the name of an attempt's pod: the same whoever asks, and no other attempt's, of any worker."""
    return task_name(owner.worker_id, owner.incarnation, attempt_uid)


def task_name(worker_id: str, incarnation: str, attempt_uid: str) -> str:
    """Return the name of what an attempt runs in: a pod, or a container of its machine."""
    told = "\0".join((worker_id, incarnation, attempt_uid))
    readable = "".join(sign for sign in attempt_uid.lower() if sign.isascii() and sign.isalnum())[:24]
    return f"iris-task-{readable}-{hashlib.sha256(told.encode()).hexdigest()[:20]}"


def task_name_of(worker: Pod, attempt_uid: str) -> str:
    """Return the name of what an attempt of this worker runs in."""
    return task_name(worker.labels[LABEL_WORKER], worker.labels[LABEL_INCARNATION], attempt_uid)


def task_labels(pods: TaskPods, owner: TaskOwner) -> dict[str, str]:
    """Return the labels of the pods of a worker's tasks.

    Raises:
        InvalidLabels: they cannot be an object's labels.
    """
    named = {LABEL_CLUSTER_NAME: pods.cluster_name} if pods.cluster_name else {}
    ours = {LABEL_MANAGED: MANAGED_BY_WORKER, LABEL_WORKER: owner.worker_id, LABEL_INCARNATION: owner.incarnation}
    return our_labels(pods.cluster, {**pods.labels, **named, **ours})


def watched_labels(pods: TaskPods, owner: TaskOwner) -> dict[str, str]:
    """Return the labels by which a worker finds its tasks' pods, those of its earlier incarnations among them."""
    labels = task_labels(pods, owner)
    return {name: value for name, value in labels.items() if name in (LABEL_MANAGED, LABEL_CLUSTER, LABEL_WORKER)}


def task_pod_manifest(pods: TaskPods, owner: TaskOwner, task: TaskPod) -> dict[str, Any]:
    """Write the pod of an attempt.

    Raises:
        InvalidSpec: a name, a label, a path or the image cannot be.
    """
    name = task_pod_name(owner, task.attempt_uid)
    check_name(name)
    image = task.image or pods.image
    check_image(image)
    rdma = pods.infiniband and task.demand.gpu_count > 0
    volumes, mounts = _volumes(pods, task)
    container = {
        "name": CONTAINER,
        "image": image,
        "command": [*task.command],
        "env": _environment(pods, task),
        "resources": _resources(pods, task, rdma=rdma),
        "volumeMounts": mounts,
        "securityContext": {
            "runAsUser": 0,
            "runAsGroup": 0,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], **({"add": ["IPC_LOCK"]} if rdma else {})},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": pods.namespace,
            "labels": task_labels(pods, owner),
            "annotations": {ANNOTATION_TASK: task.task_id, ANNOTATION_ATTEMPT: task.attempt_uid},
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": owner.pod,
                    "uid": owner.uid,
                    "controller": False,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": {
            "nodeName": owner.node,
            **({"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"} if rdma else {}),
            "tolerations": [{"key": key, "operator": "Exists"} for key in pods.tolerated],
            **({"priorityClassName": pods.priority_class} if pods.priority_class else {}),
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": GRACE_S,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "imagePullSecrets": [{"name": each} for each in pods.image_pull_secrets],
            "containers": [container],
            "volumes": volumes,
        },
    }


def _environment(pods: TaskPods, task: TaskPod) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = [
        {"name": "IRIS_ADVERTISE_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "UV_CACHE_DIR", "value": str(PurePosixPath(pods.cache_dir) / UV_CACHE)},
    ]
    if not task.demand.gpu_count:
        told.append({"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"})
    for name, place in sorted(pods.secrets.items()):
        told.append({"name": name, "valueFrom": {"secretKeyRef": {"name": place.name, "key": place.key}}})
    for name, text in task.environment:
        told.append({"name": name, "value": text.replace(OWN_HOST, "$(IRIS_ADVERTISE_HOST)")})
    return told


def _resources(pods: TaskPods, task: TaskPod, *, rdma: bool) -> dict[str, Any]:
    if min(task.demand.cpu_milli, task.demand.memory_bytes, task.demand.gpu_count) < 0:
        raise InvalidSpec("a task cannot ask for less than nothing")
    asked, devices = pods.share(task.demand), {}
    if task.demand.gpu_count:
        devices[words.GPU_RESOURCE] = str(task.demand.gpu_count)
    if rdma:
        devices[words.RDMA_RESOURCE] = "1"
    # Zero is said, too: without a request a pod asks for its limit, and with neither a namespace's default applies.
    requests = {"cpu": f"{asked.cpu_milli}m", "memory": str(asked.memory_bytes), **devices}
    memory = {"memory": str(task.demand.memory_bytes)} if task.demand.memory_bytes else {}
    return {"requests": requests, "limits": {**memory, **devices}}


def _volumes(pods: TaskPods, task: TaskPod) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    wanted: list[tuple[str, str, dict[str, Any], bool]] = [
        ("attempt", *_of_node(pods, task.folder, "Directory"), False),
        ("worker", *_of_node(pods, task.shared, "Directory"), True),
        ("uv", *_of_node(pods, UV_CACHE, "DirectoryOrCreate"), False),
    ]
    if task.demand.gpu_count:
        wanted.append(("shm", SHARED_MEMORY, {"emptyDir": {"medium": "Memory"}}, False))
    if pods.authority_secret:
        wanted.append(("ca", CA_DIR, {"secret": {"secretName": pods.authority_secret}}, True))
    volumes = [{"name": name, **source} for name, _, source, _ in wanted]
    mounts = [
        {"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})}
        for name, path, _, read_only in wanted
    ]
    return volumes, mounts


def _of_node(pods: TaskPods, below: str, kind: str) -> tuple[str, dict[str, Any]]:
    """Return where a folder below the cache is mounted, and where it is on the node."""
    path = PurePosixPath(below)
    if path.is_absolute() or not path.parts or ".." in path.parts:
        raise InvalidSpec(f"{below!r} is not a folder below the cache")
    there = {"hostPath": {"path": str(PurePosixPath(pods.node_cache_dir) / path), "type": kind}}
    return str(PurePosixPath(pods.cache_dir) / path), there


# What the controller tells, and the worker reads


def encode_task_pods(pods: TaskPods) -> str:
    """Write down what a worker is to know."""
    return json.dumps(attrs.asdict(pods), separators=(",", ":"), sort_keys=True)


def decode_task_pods(text: str) -> TaskPods:
    """Read what the controller wrote.

    Raises:
        InvalidSpec: it is something else.
    """
    if len(text) > MAX_TEMPLATE_BYTES:
        raise InvalidSpec(f"what pods of tasks are like takes at most {MAX_TEMPLATE_BYTES} bytes, not {len(text)}")
    try:
        said = json.loads(text)
        said["promise"] = Capacity(**said["promise"])
        said["most"] = None if said["most"] is None else Capacity(**said["most"])
        said["secrets"] = {name: SecretKey(**place) for name, place in said["secrets"].items()}
        for name in ("image_pull_secrets", "tolerated"):
            said[name] = tuple(said[name])
        return TaskPods(**said)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidSpec(f"this does not say what the pods of tasks are like: {error}") from error


# Calls


def create_task_pod(settings: KubeSettings, pods: TaskPods, owner: TaskOwner, task: TaskPod, rng: Random) -> Call[Pod]:
    """Have an attempt's pod exist. Repeating it is fine: it has one name, and one order that is carried out once.

    Raises:
        QuotaExceeded: the namespace's quota is used up.
        InvalidSpec: it is not accepted.
        Conflict: another pod has this name, or one that is being deleted.
        Forbidden: the credentials do not allow it.
        Throttled: too many calls.
        Unavailable: no answer; it may exist, or appear later.
    """
    manifest = task_pod_manifest(pods, owner, task)
    same = (LABEL_WORKER, LABEL_INCARNATION)
    found, _ = yield from ownership.create(settings, pods_of(pods.namespace), manifest, same, rng)
    return _read(found)


def look_at_task_pod(settings: KubeSettings, name: str, rng: Random) -> Call[Pod | None]:
    """Read a pod; None if there is none.

    Raises:
        Forbidden: the credentials do not allow it.
        Throttled: too many calls.
        Unavailable: no answer.
    """
    found = yield from ownership.look(settings, f"{pods_of(settings.namespace)}/{name}", rng)
    return None if found is None else _read(found)


def delete_task_pod(settings: KubeSettings, name: str, uid: str, grace: int, rng: Random) -> Call[None]:
    """Ask for the deletion of a pod of this name and uid, with ``grace`` ns; it counts as done if there is none.

    Raises:
        Forbidden: the credentials do not allow it.
        Throttled: too many calls.
        Unavailable: no answer; it may have been deleted.
    """
    if not is_name(name):
        return
    options = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": uid},
        "gracePeriodSeconds": max(1, -(-grace // SECOND)),
    }
    path = f"{pods_of(settings.namespace)}/{name}"
    response = yield from ask(settings, ApiRequest("DELETE", path, body=options), rng)
    if response.code not in (200, 202, 404, 409):  # 409: another uid has the name
        raise narrowed(judged(answered(response)), Forbidden, Throttled)


def _read(found: Mapping[str, Any]) -> Pod:
    try:
        return pod_of(found)
    except MalformedObject as malformed:
        raise MalformedAnswer(str(malformed)) from malformed
