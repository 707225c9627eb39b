"""The controller as a Deployment: its configuration, its volume, its process, and the name by which it is found.

One replica, and never two at once: the old pod ends before the new one begins (``Recreate``), and the lease keeps apart
what Kubernetes cannot promise. The process is nobody special: no root, no capability, a root file system that it cannot
write; what it writes is its volume and ``/tmp``.

The probes ask ``/health``, which needs no token and waits for nothing. A controller that takes no work (a full disk)
still answers: restarting it would not help.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from iriscw.cloud.kube import words
from iriscw.cloud.kube.mounts import CONFIG_DIR, STORAGE_DIR, STORAGE_VARIABLES
from iriscw.cloud.model import LABEL_ROLE, ROLE_CONTROLLER
from iriscw.config.dump import dump_config
from iriscw.config.quantities import format_cpu
from iriscw.deploy.errors import NotInstallable
from iriscw.deploy.installation import Installation
from iriscw.deploy.names import (
    APP,
    CONFIG_KEY,
    CONFIG_MAP,
    CONTROLLER,
    CONTROLLER_SECRETS,
    CONTROLLER_USER,
    PORT_NAME,
    STATE_CLAIM,
    controller_node_labels,
    controller_priority_class,
    object_labels,
    pod_labels,
)

START_S: Final = 600
"""Until the process has to answer: it replays its journal, and waits until a lease that an earlier one left ends."""

STOP_S: Final = 60
"""What the process gets to end: it closes its doors, its tree and its journal, each within a bound."""

NS_PER_S: Final = 10**9

PROBE_S: Final = 10
"""Between two probes, and what an answer may take. Iris's controller was restarted by a probe of 1 s while it was only
busy, and its users' jobs failed."""

TEMPORARY_BYTES: Final = 2**30
"""Of ``/tmp``: uploads that are being checked."""

DATA_LIMIT_BYTES: Final = 2**20
"""What a ConfigMap holds at most."""

PRIVATE_MODE: Final = 0o440
"""Of mounted secrets: for the process's group."""


def selector() -> dict[str, str]:
    """Return the labels that select the controller's pod."""
    return {APP: CONTROLLER}


def config_map(installation: Installation) -> dict[str, Any]:
    """Write the configuration, as controller and workers read it: every default spelled out.

    Raises:
        NotInstallable: it is larger than a ConfigMap may be.
    """
    text = dump_config(installation.config)
    if len(text.encode()) > DATA_LIMIT_BYTES:
        raise NotInstallable(
            f"with every default spelled out the configuration is larger than {DATA_LIMIT_BYTES} bytes"
        )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(installation, CONFIG_MAP),
        "data": {CONFIG_KEY: text},
    }


def claim(installation: Installation) -> dict[str, Any]:
    """Write the claim of the controller's volume."""
    storage_class = installation.controller.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": _metadata(installation, STATE_CLAIM),
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            **({"storageClassName": storage_class} if storage_class else {}),
            "resources": {"requests": {"storage": _size(installation.controller.storage_bytes)}},
        },
    }


def service(installation: Installation) -> dict[str, Any]:
    """Write the name and port by which workers find the controller."""
    port = installation.controller.port
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(installation, installation.controller.service_name),
        "spec": {
            "type": "ClusterIP",
            "selector": selector(),
            "ports": [{"name": PORT_NAME, "protocol": "TCP", "port": port, "targetPort": PORT_NAME}],
        },
    }


def disruption_budget(installation: Installation) -> dict[str, Any]:
    """Write that nobody evicts the controller to tidy up; one that is ill may go."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(installation, CONTROLLER),
        "spec": {
            "minAvailable": 1,
            "selector": {"matchLabels": selector()},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def deployment(installation: Installation) -> dict[str, Any]:
    """Write the Deployment. Another configuration is another pod: the process reads it once."""
    configuration = dump_config(installation.config).encode()
    own = {**selector(), LABEL_ROLE: ROLE_CONTROLLER}
    labels = {**object_labels(installation.cluster, "controller"), **own}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": CONTROLLER, "namespace": installation.namespace, "labels": labels},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": rollout_s(installation),
            "selector": {"matchLabels": selector()},
            "template": {
                "metadata": {
                    "labels": {**pod_labels(installation.cluster, "controller"), **own},
                    "annotations": {"iriscw/config-sha256": hashlib.sha256(configuration).hexdigest()},
                },
                "spec": _pod(installation),
            },
        },
    }


def rollout_s(installation: Installation) -> int:
    """Return the seconds until a rollout counts as failed: a machine boots, then a process starts."""
    return -(-installation.config.platform.timeouts.boot_timeout // NS_PER_S) + START_S


def _pod(installation: Installation) -> dict[str, Any]:
    own_node = bool(installation.controller.instance_type)
    pull = installation.platform.image_pull_secret
    return {
        "serviceAccountName": CONTROLLER,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "priorityClassName": controller_priority_class(installation.namespace),
        "terminationGracePeriodSeconds": STOP_S,
        **({"nodeSelector": controller_node_labels(installation.namespace)} if own_node else {}),
        # Fresh nodes may be marked as interruptable: a controller that does not stand that may wait for ever.
        "tolerations": [
            {"key": words.INTERRUPTABLE_TAINT, "operator": "Exists"},
            {"key": words.RESERVED_TAINT, "operator": "Exists"},
        ],
        **({"imagePullSecrets": [{"name": pull}]} if pull else {}),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": CONTROLLER_USER,
            "runAsGroup": CONTROLLER_USER,
            "fsGroup": CONTROLLER_USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(installation)],
        "volumes": _volumes(installation),
    }


def _container(installation: Installation) -> dict[str, Any]:
    controller = installation.controller
    cpu, memory = format_cpu(controller.cpu_milli), _size(controller.memory_bytes)
    return {
        "name": "controller",
        "image": installation.image(installation.config.controller.image),
        "command": command(installation),
        **_environment(installation),
        "ports": [{"name": PORT_NAME, "protocol": "TCP", "containerPort": controller.port}],
        # No limit of CPU: a controller that is held back misses its workers' heartbeats.
        "resources": {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}},
        "startupProbe": _probe(installation, START_S // PROBE_S),
        "livenessProbe": _probe(installation, 6),
        "readinessProbe": _probe(installation, 3),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": _mounts(installation),
    }


def command(installation: Installation) -> list[str]:
    """Return the command line of the controller's process."""
    arguments = ["iriscw", "controller", "serve", "--config", f"{CONFIG_DIR}/{CONFIG_KEY}", "--host", "0.0.0.0"]  # noqa: S104 - inside a pod
    return [*arguments, "--insecure-plaintext"] if installation.controller.insecure_plaintext else arguments


def _environment(installation: Installation) -> dict[str, Any]:
    """Say where stores are, and where the credentials of those that are used lie: a file that is named and not there
    is an error, even for those who want nothing of its service.
    """
    files = {
        name: path
        for scheme, (name, path) in STORAGE_VARIABLES.items()
        if installation.platform.storage_secret and installation.uses(scheme)
    }
    found = {**files, **installation.store_variables}
    return {"env": [{"name": name, "value": value} for name, value in found.items()]} if found else {}


def _probe(installation: Installation, failures: int) -> dict[str, Any]:
    scheme = "HTTP" if installation.controller.insecure_plaintext else "HTTPS"
    return {
        "httpGet": {"path": "/health", "port": PORT_NAME, "scheme": scheme},
        "periodSeconds": PROBE_S,
        "timeoutSeconds": PROBE_S,
        "failureThreshold": failures,
    }


def _mounts(installation: Installation) -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = [
        {"name": "config", "mountPath": CONFIG_DIR, "readOnly": True},
        {"name": "state", "mountPath": installation.state_dir},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a volume of the pod's own
    ]
    if installation.config.controller.secrets_dir:
        mounts.append({"name": "secrets", "mountPath": installation.config.controller.secrets_dir, "readOnly": True})
    if installation.platform.storage_secret:
        mounts.append({"name": "credentials", "mountPath": STORAGE_DIR, "readOnly": True})
    return mounts


def _volumes(installation: Installation) -> list[dict[str, Any]]:
    """Return the volumes. Secrets are optional for Kubernetes: what lacks one is told by the controller, by name."""
    volumes: list[dict[str, Any]] = [
        {"name": "config", "configMap": {"name": CONFIG_MAP}},
        {"name": "state", "persistentVolumeClaim": {"claimName": STATE_CLAIM}},
        {"name": "tmp", "emptyDir": {"sizeLimit": _size(TEMPORARY_BYTES)}},
    ]
    if installation.config.controller.secrets_dir:
        volumes.append(_secret("secrets", CONTROLLER_SECRETS))
    if installation.platform.storage_secret:
        volumes.append(_secret("credentials", installation.platform.storage_secret))
    return volumes


def _secret(volume: str, name: str) -> dict[str, Any]:
    return {"name": volume, "secret": {"secretName": name, "optional": True, "defaultMode": PRIVATE_MODE}}


def _size(size_bytes: int) -> str:
    """Write a size as Kubernetes does: binary units where they are exact."""
    for unit, scale in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if size_bytes % scale == 0:
            return f"{size_bytes // scale}{unit}"
    return str(size_bytes)


def _metadata(installation: Installation, name: str) -> dict[str, Any]:
    labels = object_labels(installation.cluster, "controller")
    return {"name": name, "namespace": installation.namespace, "labels": labels}
