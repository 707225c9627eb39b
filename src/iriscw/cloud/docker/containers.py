"""Containers of tasks on a Docker engine: what the engine is told of one, and what its answers mean. Pure.

A container takes the place that a pod has on Kubernetes, and is told of as one (:class:`~iriscw.cloud.model.Pod`): the
runtime above is the same. What differs:

* It is on the machine's own network, as tasks are that are processes: the controller of the local platform listens on
  loopback, and the ports that a task is given are the machine's.
* Its root is the worker's own user, without any capability: the folder that it works in is that user's.
* A task is shown its own GPUs, which its worker gave it, and no others; one without is told that it has none.
* Its name is its identity: it follows from the attempt, which is started once. The engine's own id would come too late,
  because a container does not exist before its image was fetched.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

import attrs

from iriscw.cloud.kube.tasks import MANAGED_BY_WORKER, OWN_HOST, UV_CACHE, TaskPod, task_name
from iriscw.cloud.model import (
    LABEL_INCARNATION,
    LABEL_MANAGED,
    LABEL_WORKER,
    InvalidSpec,
    Pod,
    PodPhase,
    check_image,
)

MAX_TEMPLATE_BYTES: Final = 65_536
MAX_SAID_CHARS: Final = 1_000
"""Of an engine's words, in what is told on."""

DEFAULT_SOCKET: Final = "/var/run/docker.sock"
SCHEME: Final = "unix://"

TASK_CONTAINERS_VARIABLE: Final = "IRISCW_TASK_CONTAINERS"
"""Where a worker finds what its tasks' containers are like."""

ATTEMPT_LABEL: Final = "iris-attempt-uid"
TASK_LABEL: Final = "iris-task-id"

CPU_SHARES_OF_ONE: Final = 1024
"""What the kernel calls the share of a whole processor."""

LEAST_CPU_SHARES: Final = 2
LEAST_MEMORY_BYTES: Final = 6 << 20
"""Docker refuses less."""

IMAGE: Final = "ErrImagePull"
SETUP: Final = "CreateContainerError"
STARTED_NOT: Final = "StartError"
OUT_OF_MEMORY: Final = "OOMKilled"
"""Reasons, in a kubelet's words: what judges pods knows these."""

_PHASES: Final[Mapping[str, PodPhase]] = {
    "created": PodPhase.PENDING,
    "running": PodPhase.RUNNING,
    "paused": PodPhase.RUNNING,
    "restarting": PodPhase.RUNNING,
    "removing": PodPhase.RUNNING,
}


class InvalidDockerHost(InvalidSpec):
    """``DOCKER_HOST`` names an engine that is not on this machine."""


def socket_of(environment: Mapping[str, str]) -> str:
    """Return the path of the engine's socket: what ``DOCKER_HOST`` says, else Docker's own.

    Raises:
        InvalidDockerHost: it is not a socket of this machine; tasks and worker share folders.
    """
    host = environment.get("DOCKER_HOST", "")
    if not host:
        return DEFAULT_SOCKET
    path = host.removeprefix(SCHEME)
    if not host.startswith(SCHEME) or not path.startswith("/"):
        raise InvalidDockerHost(f"DOCKER_HOST is {host[:200]!r}: only unix:///a/path, an engine of this machine")
    return path


@attrs.frozen(kw_only=True)
class TaskContainers:
    """What all containers of one worker's tasks have in common. The controller tells it in a variable; none is secret.

    Raises:
        InvalidSpec: the image is none, or a path is not absolute.
    """

    image: str = attrs.field()
    """For jobs that name none."""
    socket: str = attrs.field(default=DEFAULT_SOCKET)
    """The engine's."""
    shown: tuple[str, ...] = attrs.field(default=())
    """Paths of the machine that every task sees under the same names, not writable."""

    @image.validator
    def _check_image(self, _: object, image: str) -> None:
        check_image(image)

    @socket.validator
    def _check_socket(self, _: object, socket: str) -> None:
        _check_path(socket)

    @shown.validator
    def _check_shown(self, _: object, shown: tuple[str, ...]) -> None:
        for each in shown:
            _check_path(each)


def _check_path(text: str) -> None:
    path = PurePosixPath(text)
    if not path.is_absolute() or ".." in path.parts or "\0" in text:
        raise InvalidSpec(f"{text[:200]!r} is not an absolute path")


@attrs.frozen
class ContainerOwner:
    """The worker whose tasks they are, and what its containers have to do with its machine."""

    worker_id: str
    incarnation: str
    cache_dir: str
    user: int
    group: int
    advertise_host: str = "127.0.0.1"


def container_name(owner: ContainerOwner, attempt_uid: str) -> str:
    """Return the name of an attempt's container: the same whoever asks, and no other attempt's, of any worker."""
    return task_name(owner.worker_id, owner.incarnation, attempt_uid)


def container_labels(owner: ContainerOwner) -> dict[str, str]:
    """Return the labels of the containers of a worker's tasks."""
    return {LABEL_WORKER: owner.worker_id, LABEL_MANAGED: MANAGED_BY_WORKER, LABEL_INCARNATION: owner.incarnation}


def watched_filters(owner: ContainerOwner) -> str:
    """Return the filter by which a worker finds its tasks' containers, those of its earlier incarnations among them."""
    labels = [f"{LABEL_MANAGED}={MANAGED_BY_WORKER}", f"{LABEL_WORKER}={owner.worker_id}"]
    return json.dumps({"label": labels}, separators=(",", ":"))


def container_body(containers: TaskContainers, owner: ContainerOwner, task: TaskPod) -> dict[str, Any]:
    """Write the container of an attempt.

    Raises:
        InvalidSpec: the image or a path cannot be, or it asks for less than nothing.
    """
    demand = task.demand
    if min(demand.cpu_milli, demand.memory_bytes, demand.gpu_count) < 0:
        raise InvalidSpec("a task cannot ask for less than nothing")
    image = task.image or containers.image
    check_image(image)
    cache = PurePosixPath(owner.cache_dir)
    variables = {"IRIS_ADVERTISE_HOST": owner.advertise_host, "UV_CACHE_DIR": str(cache / UV_CACHE)}
    variables |= {name: text.replace(OWN_HOST, owner.advertise_host) for name, text in task.environment}
    if demand.gpu_count != len(task.gpus):
        raise InvalidSpec(f"{demand.gpu_count} GPUs are asked for, and {len(task.gpus)} were given")
    if not task.gpus:
        variables["NVIDIA_VISIBLE_DEVICES"] = "void"  # an image that says "all" would have everybody's
    return {
        "Image": image,
        "Entrypoint": [*task.command],
        "Cmd": [],
        "User": f"{owner.user}:{owner.group}",
        "Env": [f"{name}={value}" for name, value in sorted(variables.items())],
        "Labels": {**container_labels(owner), ATTEMPT_LABEL: task.attempt_uid, TASK_LABEL: task.task_id},
        "HostConfig": {
            "NetworkMode": "host",
            "Mounts": _mounts(containers, cache, task),
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "RestartPolicy": {"Name": "no"},
            "LogConfig": {"Type": "none"},
            **_limits(task),
        },
    }


def _mounts(containers: TaskContainers, cache: PurePosixPath, task: TaskPod) -> list[dict[str, Any]]:
    wanted = [(str(cache / _below(task.folder)), False), (str(cache / _below(task.shared)), True)]
    wanted += [(str(cache / UV_CACHE), False), *((path, True) for path in containers.shown)]
    return [{"Type": "bind", "Source": path, "Target": path, "ReadOnly": only} for path, only in wanted]


def _below(text: str) -> PurePosixPath:
    path = PurePosixPath(text)
    if path.is_absolute() or not path.parts or ".." in path.parts:
        raise InvalidSpec(f"{text!r} is not a folder below the cache")
    return path


def _limits(task: TaskPod) -> dict[str, Any]:
    demand, found = task.demand, dict[str, Any]()
    if demand.memory_bytes:
        memory = max(demand.memory_bytes, LEAST_MEMORY_BYTES)
        found |= {"Memory": memory, "MemorySwap": memory}  # no swap beyond it
    if demand.cpu_milli:  # a share, not a bound: idle processors are nobody's gain
        found["CpuShares"] = max(LEAST_CPU_SHARES, demand.cpu_milli * CPU_SHARES_OF_ONE // 1000)
    if task.gpus:
        found["DeviceRequests"] = [{"Driver": "nvidia", "DeviceIDs": [*task.gpus], "Capabilities": [["gpu"]]}]
        found["ShmSize"] = max(demand.memory_bytes // 2, 64 << 20)
    return found


# What the engine says


def pod_of_container(found: Mapping[str, Any]) -> Pod:
    """Read what the engine shows of a container.

    Raises:
        ValueError: it is not what an engine shows.
    """
    config, state = found.get("Config"), found.get("State")
    if not isinstance(config, Mapping) or not isinstance(state, Mapping):
        raise ValueError("a container without Config or State")  # noqa: TRY004 - what came over a socket has no type
    name, labels = str(found.get("Name") or "").removeprefix("/"), config.get("Labels")
    code = state.get("ExitCode")
    code = code if isinstance(code, int) else None
    status, error = str(state.get("Status") or ""), str(state.get("Error") or "")[:MAX_SAID_CHARS]
    phase, reason = _PHASES.get(status), ""
    if status == "created" and error:  # it could not be started: the engine leaves it like this
        phase, reason = PodPhase.FAILED, STARTED_NOT
    elif phase is None:  # exited, dead
        phase = PodPhase.FAILED if code else PodPhase.SUCCEEDED
        reason = OUT_OF_MEMORY if state.get("OOMKilled") else ""
    return Pod(
        name=name,
        uid=name,
        resource_version="",
        labels={str(key): str(value) for key, value in (labels or {}).items()},
        phase=phase,
        reason=reason,
        message=error,
        exit_code=code if phase.over else None,
    )


def pulled_as(image: str) -> dict[str, str]:
    """Return by which parameters an image is fetched. Without a tag the engine would fetch all that there are."""
    name = image.rpartition("/")[2]
    return {"fromImage": image, **({} if "@" in name or ":" in name else {"tag": "latest"})}


def said_wrong(lines: Sequence[bytes]) -> str:
    """Find what went wrong in the lines by which an engine tells of a fetch; empty if nothing did."""
    for line in lines:
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict) and said.get("error"):
            return str(said["error"])[:MAX_SAID_CHARS]
    return ""


# What the controller tells, and the worker reads


def encode_task_containers(containers: TaskContainers) -> str:
    """Write down what a worker is to know."""
    return json.dumps(attrs.asdict(containers), separators=(",", ":"), sort_keys=True)


def decode_task_containers(text: str) -> TaskContainers:
    """Read what the controller wrote.

    Raises:
        InvalidSpec: it is something else.
    """
    if len(text) > MAX_TEMPLATE_BYTES:
        raise InvalidSpec(
            f"what containers of tasks are like takes at most {MAX_TEMPLATE_BYTES} bytes, not {len(text)}"
        )
    try:
        said = json.loads(text)
        said["shown"] = tuple(said["shown"])
        return TaskContainers(**said)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidSpec(f"this does not say what the containers of tasks are like: {error}") from error
