"""Every default, in one place.

A tree has the shape of the model: attribute names, and values as the model holds them. CoreWeave's values come
from what bare metal needs (14 to 30 minutes to boot, one in ten longer: a timeout of 30 minutes would give up nodes
that are about to come, and pay for another boot). The local platform has seconds where CoreWeave has minutes,
with room for a busy laptop: a process starts in tenths of a second, and 50 to 100 times that is a failure.
"""

from __future__ import annotations

from typing import Any, Final

from iriscw.config.model import AcceleratorType, Durability, PlatformKind, TaskRuntimeKind
from iriscw.config.quantities import NS_PER_MS

MS: Final = NS_PER_MS
SECOND: Final = 1000 * MS
GIB: Final = 2**30

CONTROLLER_PORT: Final = 10000
WORKER_PORT: Final = 10001
NAMESPACE: Final = "iris"
SERVICE_NAME: Final = "iris-controller-svc"

_TIMEOUTS: Final[dict[PlatformKind, dict[str, int]]] = {
    PlatformKind.COREWEAVE: {
        "requesting_timeout": 1800 * SECOND,
        "boot_timeout": 3600 * SECOND,
        "init_timeout": 1800 * SECOND,
        "worker_health_timeout": 120 * SECOND,
        "worker_timeout": 60 * SECOND,
        "worker_lease": 0,
        "api_timeout": 60 * SECOND,
    },
    PlatformKind.LOCAL: {
        "requesting_timeout": 10 * SECOND,
        "boot_timeout": 30 * SECOND,
        "init_timeout": 30 * SECOND,
        "worker_health_timeout": 20 * SECOND,
        "worker_timeout": 10 * SECOND,
        "worker_lease": 0,
        "api_timeout": 10 * SECOND,
    },
}

_TIMEOUTS[PlatformKind.PLUGIN] = _TIMEOUTS[PlatformKind.COREWEAVE]  # a cloud, as far as is known here

_AUTOSCALER: Final[dict[PlatformKind, dict[str, int]]] = {
    PlatformKind.COREWEAVE: {
        "evaluation_interval": 10 * SECOND,
        "scale_up_delay": 60 * SECOND,
        "scale_down_delay": 300 * SECOND,
        "startup_grace_period": 5400 * SECOND,
    },
    PlatformKind.LOCAL: {
        "evaluation_interval": 1 * SECOND,
        "scale_up_delay": 200 * MS,
        "scale_down_delay": 5 * SECOND,
        "startup_grace_period": 40 * SECOND,
    },
}

_AUTOSCALER[PlatformKind.PLUGIN] = _AUTOSCALER[PlatformKind.COREWEAVE]

_PLATFORM: Final[dict[PlatformKind, dict[str, Any]]] = {
    PlatformKind.COREWEAVE: {
        "region": "",
        "namespace": NAMESPACE,
        "kubeconfig_path": "",
        "container_registry": "",
        "image_pull_secret": "iris-image-pull",
        "storage_secret": "iris-bundle-credentials",
        "priority_class": "",
        "node_cache_dir": "/mnt/local/iris",
        "object_storage_endpoint": "",
        "object_storage_region": "",
    },
    PlatformKind.LOCAL: {
        "workdir": ".iriscw",
        "boot_delay": 500 * MS,
        "node_cpu_milli": 4000,
        "node_memory_bytes": 8 * GIB,
        "task_paths": "",
    },
    PlatformKind.PLUGIN: {"settings": {}},
}

_CONTROLLER: Final[dict[PlatformKind, dict[str, Any]]] = {
    PlatformKind.COREWEAVE: {
        "port": CONTROLLER_PORT,
        "service_name": SERVICE_NAME,
        "instance_type": "",
        # What Iris's own controller ended with at some hundred workers, before it grew with its history.
        "cpu_milli": 4000,
        "memory_bytes": 16 * GIB,
        "storage_class": "shared-vast",  # CoreWeave's: its other storage goes with the node
        "storage_bytes": 50 * GIB,
        "insecure_plaintext": False,
        "network_policy": True,
        "service_monitor": False,
        "system_critical": True,
    },
    PlatformKind.LOCAL: {"port": CONTROLLER_PORT, "host": "127.0.0.1"},
}

CONTROLLER_OF: Final = {
    PlatformKind.COREWEAVE: PlatformKind.COREWEAVE,
    PlatformKind.LOCAL: PlatformKind.LOCAL,
    PlatformKind.PLUGIN: PlatformKind.LOCAL,
}
"""The kind of controller that a platform has if the file names none: a plugin's is a process of this machine."""

PLUGIN_SLICE_DEFAULTS: Final[dict[str, Any]] = {"region": "", "instance_type": "", "settings": {}}
"""Of `slice_template.plugin`."""

POOL_DEFAULTS: Final[dict[str, Any]] = {"node_taints": {}}
"""Of `slice_template.coreweave`; its other keys come from the group, or must be said."""

_AGENT: Final[dict[str, Any]] = {
    "enabled": False,
    "image": "iris-agent:latest",
    "socket": "/run/kybernate/shim.sock",  # what the container runtime's side looks for
    "state_dir": "/mnt/local/kybernate",
    "ram_budget_bytes": 0,
    "disk_budget_bytes": 0,
    "runtime_class": "kybernate",
    "gpu_runtime_class": "",
    "gpu_libraries": "",
    "repository": "",
    "storage_secret": "",
    "repository_keys": {"secret": "", "sign_with": "", "trust": "", "encrypt_with": "", "decrypt_with": ""},
    "accept_unprotected": False,
    "retain": {
        "max_checkpoints": 0,
        "max_total_size_bytes": 0,
        "max_checkpoint_size_bytes": 0,
        "max_age": 0,
        "per": "",
    },
}

_JOURNAL_DIR: Final = {PlatformKind.COREWEAVE: "/var/lib/iris/journal", PlatformKind.LOCAL: "journal"}
_SECRETS_DIR: Final = {PlatformKind.COREWEAVE: "/etc/iris/secrets", PlatformKind.LOCAL: ""}
_WORKER_PORT: Final = {PlatformKind.COREWEAVE: WORKER_PORT, PlatformKind.LOCAL: 0, PlatformKind.PLUGIN: WORKER_PORT}
_CACHE_DIR: Final = {
    PlatformKind.COREWEAVE: "/var/cache/iris",
    PlatformKind.LOCAL: "cache",
    PlatformKind.PLUGIN: "/var/cache/iris",
}

# A node of bare metal is what it is: its owner says what it has. A local node is as small as a task needs by default.
_RESOURCES: Final[dict[PlatformKind, dict[str, int]]] = {
    PlatformKind.COREWEAVE: {"disk_bytes": 0, "gpu_count": 0},
    PlatformKind.LOCAL: {"cpu_milli": 1000, "ram_bytes": 1 * GIB, "disk_bytes": 0, "gpu_count": 0},
    PlatformKind.PLUGIN: {"disk_bytes": 0, "gpu_count": 0},
}


def cluster_defaults(kind: PlatformKind, controller: PlatformKind) -> dict[str, Any]:
    """Return the defaults of all but the groups, for a platform and a kind of controller."""
    return {
        "name": "iris",
        "platform": {kind.value: dict(_PLATFORM[kind])},
        "controller": {
            controller.value: dict(_CONTROLLER[controller]),
            "image": "iris-controller:latest",
            "bundle_prefix": "",
            "journal_dir": _JOURNAL_DIR[controller],
            "durability": Durability.LOCAL,
            "replica_prefix": "",
            "secrets_dir": _SECRETS_DIR[controller],
        },
        "agent": dict(_AGENT),
        "defaults": {
            "bootstrap": {
                "docker_image": "iris-worker:latest",
                "worker_port": _WORKER_PORT[kind],
                "cache_dir": _CACHE_DIR[kind],
                "controller_address": "",
                "env_vars": {},
            },
            "timeouts": dict(_TIMEOUTS[kind]),
            "autoscaler": dict(_AUTOSCALER[kind]),
            "task_env": {},
            "task_secrets": {},
            "preemption": True,
        },
        "scale_groups": {},
    }


def group_defaults(kind: PlatformKind) -> dict[str, Any]:
    """Return the defaults of a group that do not come from elsewhere in the file."""
    return {
        "accelerator_type": AcceleratorType.CPU,
        "num_vms": 1,
        "resources": dict(_RESOURCES[kind]),
        "min_slices": 0,
        "max_slices": 1,
        "buffer_slices": 0,
        "priority": 100,
        "attributes": {},
        "slice_template": {"preemptible": False},
        "task_runtime": TaskRuntimeKind.PROCESS,
        "task_image": "iris-task:latest",
    }
