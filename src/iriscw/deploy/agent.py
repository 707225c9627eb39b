"""The node agent as a DaemonSet: on each machine of a slice, one privileged pod that freezes and thaws processes there.

Theory of operation. CRIU has to see a process as its machine does, and to make it again as it was: with its number, its
owner, its open files and devices. So this pod is root and has nearly all that its node has; what of that is used, and
for what, is a table (:data:`RIGHTS`), and what it does not need it does not get: no token for the API server, no port,
no folder of the node beside its own. Nobody reaches it but root on the same node, through a socket.

It dials the controller, as workers do, and proves which node it is on by a token of its account that the kubelet mounts
and renews: for the controller alone, and worth nothing to the API server, which looks at it when the controller asks.

All devices are its anyway; what it needs beside them is NVIDIA's libraries, which are of the node's driver and in no
image. NVIDIA's container runtime puts them into a container that asks for them by two variables (:data:`DRIVER`). Where
that is not the nodes' own runtime, the pod names its class; where there is none, a folder of the node has them.

What it stores beyond its node it may sign and encrypt. The keys for that are those of one Secret, which no other pod
has: neither the controller's nor the workers', in which tasks run. Its command line names files, and holds no key.

It goes where slices are, whatever taints they carry, and never where the controller is. Pods of a DaemonSet do not keep
a machine of CoreWeave's busy. It is not moved: an update replaces one machine's agent at a time, and the next one takes
up what the last one left.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import PurePosixPath
from typing import Any, Final

import attrs

from iriscw.cloud.kube.manifests import NODE_VARIABLE
from iriscw.cloud.kube.mounts import (
    CA_DIR,
    CA_FILE,
    CONFIG_DIR,
    STORAGE_DIR,
    STORAGE_VARIABLES,
    TOKEN_DIR,
    TOKEN_FILE,
    TOKEN_KEY,
)
from iriscw.cloud.kube.reviews import AGENT_AUDIENCE
from iriscw.cloud.model import LABEL_CLUSTER_NAME, LABEL_MANAGED
from iriscw.config.model import AgentRetainConfig
from iriscw.config.quantities import format_duration
from iriscw.deploy.installation import Installation
from iriscw.deploy.names import AGENT, APP, AUTHORITY_SECRET, object_labels, pod_labels

NODE_CRITICAL: Final = "system-node-critical"
"""Kubernetes' own class: an agent that makes way for a worker would leave what it has frozen."""

MEMORY_TIER: Final = "/dev/shm/iriscw-0"  # noqa: S108 - the folder that an agent of root's takes, mode 0700
RUNTIME_STATE: Final = "/run/containerd/runc"
"""Where containerd has runc keep its containers' state. The folder above it also has containerd's socket."""

CONTROL_GROUPS: Final = "/sys/fs/cgroup"
CALLERS: Final = "callers"
"""Below the state folder: where container runtimes may have checkpoints put."""

DRIVER: Final = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
"""What NVIDIA's container runtime listens to, and no other: ``libcuda.so.1`` is ``compute``, NVML is ``utility``.
Without the first one it does nothing."""

HANDLER: Final = "kybernate"
"""How containerd's configuration names the runtime that asks the agent."""

STOP_S: Final = 40
"""What it gets to end: running operations are undone within 20 s (``--stop-patience``)."""

TOKEN_S: Final = 3600
"""How long the token that the controller is shown is good. The kubelet renews it after four fifths of that."""

PRIVATE_MODE: Final = 0o400

KEYS_DIR: Final = f"{CONFIG_DIR}/repository-keys"
"""Where the keys that sign and encrypt checkpoints lie, each under the name that it has in its Secret."""

START_S: Final = 300
PROBE_S: Final = 30
ANSWER_S: Final = 15
"""Between two probes, and what one may take: each starts a Python."""


@attrs.frozen
class NodeRight:
    """Something of its node that the agent's pod has.

    Attributes:
        name: As the pod's specification, or Linux, names it.
        why: What it is for.
    """

    name: str
    why: str


RIGHTS: Final = (
    NodeRight("hostPID", "processes are frozen and thawed under the numbers that they have on the node"),
    NodeRight(
        "hostNetwork",
        "workers and their tasks are on their node's network, which must be CRIU's own, too; and who works on a process"
        " holds a name in the node's network namespace, so that agent and commands never work on the same one",
    ),
    NodeRight("CAP_SYS_ADMIN", "CRIU: namespaces, mounts, control groups, what a process has mapped"),
    NodeRight("CAP_SYS_PTRACE", "CRIU: to stop a process, and to read and write its memory"),
    NodeRight("CAP_CHECKPOINT_RESTORE", "CRIU: to make a process with a number that is given"),
    NodeRight("CAP_SYS_RESOURCE", "CRIU: limits and out-of-memory scores as they were"),
    NodeRight("CAP_SYS_TIME", "CRIU: clocks of a thawed process that go on where they stood"),
    NodeRight(
        "CAP_SYS_CHROOT, CAP_SETUID, CAP_SETGID, CAP_SETPCAP", "CRIU: roots, owners and capabilities as they were"
    ),
    NodeRight("CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_CHOWN, CAP_KILL", "files and processes of other users than root"),
    NodeRight("CAP_NET_ADMIN", "CRIU: to hold connections while their process is frozen"),
    NodeRight("all other capabilities", "a process can be given back only what its restorer has itself"),
    NodeRight("all devices", "a GPU's memory is moved by its driver; asking for the GPU would take it from its tasks"),
    NodeRight(
        "/proc and /sys unmasked, no seccomp profile", "CRIU writes there, and uses calls that the profiles refuse"
    ),
)
"""``privileged: true`` is all of them from the third on together: Kubernetes has no smaller word for all devices."""


def runtime_class(installation: Installation) -> dict[str, Any]:
    """Write the class of pods whose containers' runtime asks the agent. It belongs to the whole cluster."""
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {
            "name": installation.config.agent.runtime_class,
            "labels": object_labels(installation.cluster, "agent"),
        },
        "handler": HANDLER,
        "scheduling": {"nodeSelector": nodes(installation), "tolerations": [{"operator": "Exists"}]},
    }


def daemon_set(installation: Installation) -> dict[str, Any]:
    """Write the DaemonSet."""
    metadata = {"name": AGENT, "namespace": installation.namespace}
    own = {APP: AGENT}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {**metadata, "labels": {**object_labels(installation.cluster, "agent"), **own}},
        "spec": {
            "selector": {"matchLabels": own},
            "revisionHistoryLimit": 3,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            "template": {
                "metadata": {"labels": {**pod_labels(installation.cluster, "agent"), **own}},
                "spec": _pod(installation),
            },
        },
    }


def nodes(installation: Installation) -> dict[str, str]:
    """Return the labels of the machines that are slices of this cluster."""
    return {LABEL_MANAGED: "true", LABEL_CLUSTER_NAME: installation.cluster}


def command(installation: Installation) -> list[str]:
    """Return the command line of the agent's process."""
    agent = installation.config.agent
    words = ["iriscw", "agent", "serve", "--socket", agent.socket, "--state-dir", agent.state_dir]
    words += ["--root", callers(installation), "--runtime-root", RUNTIME_STATE]
    for option, size_bytes in (("--ram-budget", agent.ram_budget_bytes), ("--disk-budget", agent.disk_budget_bytes)):
        words += [option, str(size_bytes)] if size_bytes else []
    words += [*_repository(installation), *_retention(agent.retain)]
    plaintext = installation.controller.insecure_plaintext
    dialled = installation.config.defaults.bootstrap.controller_address
    address = dialled if plaintext or "://" in dialled else f"https://{dialled}"
    words += ["--controller", address, "--token-file", TOKEN_FILE]
    return [*words, *(["--insecure-plaintext"] if plaintext else ["--ca-file", CA_FILE])]


def _repository(installation: Installation) -> list[str]:
    """Say which repository it has, and which files protect what is stored there."""
    agent = installation.config.agent
    words = ["--repository", agent.repository] if agent.repository else []
    for use, name in installation.repository_keys.items():
        words += [f"--{use.replace('_', '-')}", f"{KEYS_DIR}/{name}"]
    return [*words, *(["--accept-unprotected"] if agent.accept_unprotected else [])]


def _retention(retain: AgentRetainConfig) -> list[str]:
    """Say what is kept of the node's checkpoints, if that is bounded."""
    bounds = {
        "max-checkpoints": str(retain.max_checkpoints) if retain.max_checkpoints else "",
        "max-total-size": str(retain.max_total_size_bytes) if retain.max_total_size_bytes else "",
        "max-checkpoint-size": str(retain.max_checkpoint_size_bytes) if retain.max_checkpoint_size_bytes else "",
        "max-age": format_duration(retain.max_age) if retain.max_age else "",
        "per": retain.per,
    }
    policy = ",".join(f"{name}={value}" for name, value in bounds.items() if value)
    return ["--retain", policy] if policy else []


def callers(installation: Installation) -> str:
    """Return the folder below which container runtimes may have checkpoints put."""
    return f"{installation.config.agent.state_dir}/{CALLERS}"


def _pod(installation: Installation) -> dict[str, Any]:
    agent, pull = installation.config.agent, installation.platform.image_pull_secret
    image, plaintext = installation.image(agent.image), installation.controller.insecure_plaintext
    private = [str(PurePosixPath(agent.socket).parent), MEMORY_TIER, callers(installation)]
    return {
        "serviceAccountName": AGENT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "priorityClassName": NODE_CRITICAL,
        **({"runtimeClassName": agent.gpu_runtime_class} if agent.gpu_runtime_class else {}),
        "terminationGracePeriodSeconds": STOP_S,
        "hostPID": True,
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "nodeSelector": nodes(installation),
        "tolerations": [{"operator": "Exists"}],  # wherever a slice is; a frozen process is no reason to leave either
        **({"imagePullSecrets": [{"name": pull}]} if pull else {}),
        # Folders that the kubelet makes may be entered by everybody, and such ones the agent refuses.
        "initContainers": [
            {
                "name": "folders",
                "image": image,
                "command": ["chmod", "0700", *private],
                "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "volumeMounts": [_mount(path) for path in private],
            }
        ],
        "containers": [_container(installation, image)],
        "volumes": [
            *(_folder(path) for path in (*private, agent.state_dir, RUNTIME_STATE)),
            *(_folder(path, made=False) for path in (CONTROL_GROUPS, *_libraries(installation))),
            {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
            {"name": "token", "projected": _token()},
            *([] if plaintext else [{"name": "ca", "secret": {"secretName": AUTHORITY_SECRET}}]),
            *_secrets(installation),
        ],
    }


def _secrets(installation: Installation) -> list[dict[str, Any]]:
    """Return the volumes with credentials and keys for the repository. A key that is named has to be there: an agent
    that starts without it would store what is not signed, or not encrypted.
    """
    volumes: list[dict[str, Any]] = []
    if name := installation.repository_secret:
        secret = {"secretName": name, "optional": True, "defaultMode": PRIVATE_MODE}
        volumes.append({"name": "credentials", "secret": secret})
    if keys := installation.repository_keys:
        items = [{"key": each, "path": each} for each in dict.fromkeys(keys.values())]
        source = {"secret": {"name": installation.config.agent.repository_keys.secret, "items": items}}
        volumes.append({"name": "keys", "projected": {"defaultMode": PRIVATE_MODE, "sources": [source]}})
    return volumes


def _container(installation: Installation, image: str) -> dict[str, Any]:
    agent = installation.config.agent
    parent = str(PurePosixPath(agent.socket).parent)
    probe = {"exec": {"command": ["iriscw", "agent", "health", "--socket", agent.socket]}}
    plaintext = installation.controller.insecure_plaintext
    timing = {"periodSeconds": PROBE_S, "timeoutSeconds": ANSWER_S}
    return {
        "name": "agent",
        "image": image,
        "command": command(installation),
        "env": _environment(installation),
        # No limits: the tier in memory, and what is thawed, count as the agent's own.
        "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}},
        # Nothing restarts an agent that runs: what is thawed ends with its pod, and a full node is no reason for that.
        "startupProbe": {**probe, **timing, "failureThreshold": START_S // PROBE_S},
        "readinessProbe": {**probe, **timing, "failureThreshold": 1},
        "securityContext": {"privileged": True, "readOnlyRootFilesystem": True, "runAsUser": 0},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            _mount(parent),
            _mount(MEMORY_TIER),
            _mount(agent.state_dir),
            _mount(RUNTIME_STATE, read_only=True),
            _mount(CONTROL_GROUPS),
            *(_mount(path, read_only=True) for path in _libraries(installation)),
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a volume of the pod's own
            {"name": "token", "mountPath": TOKEN_DIR, "readOnly": True},
            *([] if plaintext else [{"name": "ca", "mountPath": CA_DIR, "readOnly": True}]),
            *(
                {"name": each["name"], "mountPath": _SECRET_DIRS[each["name"]], "readOnly": True}
                for each in _secrets(installation)
            ),
        ],
    }


_SECRET_DIRS: Final = {"credentials": STORAGE_DIR, "keys": KEYS_DIR}


def _environment(installation: Installation) -> list[dict[str, Any]]:
    # The name that the API server has for the node: the only one that the controller believes.
    node = {"name": NODE_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    libraries = (("LD_LIBRARY_PATH", path) for path in _libraries(installation))
    credentials = [STORAGE_VARIABLES[installation.repository_scheme]] if installation.repository_secret else []
    said = [*DRIVER.items(), *libraries, *installation.store_variables.items(), *credentials]
    return [node, *({"name": name, "value": value} for name, value in said)]


def _libraries(installation: Installation) -> tuple[str, ...]:
    """Return the node's folder with NVIDIA's libraries, if one is named."""
    named = installation.config.agent.gpu_libraries
    return (named,) if named else ()


def _token() -> dict[str, Any]:
    """Return the volume with what proves to the controller which node this is."""
    token = {"path": TOKEN_KEY, "audience": AGENT_AUDIENCE, "expirationSeconds": TOKEN_S}
    return {"defaultMode": PRIVATE_MODE, "sources": [{"serviceAccountToken": token}]}


def _folder(path: str, *, made: bool = True) -> dict[str, Any]:
    return {"name": _name(path), "hostPath": {"path": path, "type": "DirectoryOrCreate" if made else "Directory"}}


def _mount(path: str, *, read_only: bool = False) -> dict[str, Any]:
    """Mount a folder of the node where the node has it: paths that are told to the agent are the node's."""
    return {"name": _name(path), "mountPath": path, **({"readOnly": True} if read_only else {})}


def _name(path: str) -> str:
    """Name the volume of a folder: by its place, so that no two have the same."""
    plain = re.sub(r"[^a-z0-9]+", "-", path.lower()).strip("-")
    return f"{plain[:40].strip('-')}-{hashlib.sha256(path.encode()).hexdigest()[:8]}"
