"""What a configuration means for an installation: checked, and with what only an installation can know.

The controller inside reads a configuration that differs from the user's file in two keys. ``kubeconfig_path`` is
empty: it uses its own service account, whatever file the user has at home. ``priority_class`` names the class that is
made here, unless the file names another one.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final
from urllib.parse import urlsplit

import attrs

from iriscw.cloud.kube.mounts import CONFIG_DIR, STORAGE_VARIABLES
from iriscw.config.model import ClusterConfig, CoreweaveControllerConfig, CoreweavePlatformConfig, TaskRuntimeKind
from iriscw.deploy.errors import NotInstallable
from iriscw.deploy.names import worker_priority_class
from iriscw.objects.drivers.s3_place import place_variables

NAMESPACE_LIMIT: Final = 47
"""Characters in the namespace's name: with ``-controller-pool`` it is a label's value, which has at most 63."""

CLUSTER_DOMAIN: Final = "svc.cluster.local"

SHARED_NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
"""Namespaces that are there without anybody's doing: what is installed there cannot be removed as a whole."""


@attrs.frozen
class Installation:
    """A configuration that can be installed. Made by :func:`installation_of`."""

    config: ClusterConfig
    """As the controller will read it."""
    platform: CoreweavePlatformConfig
    controller: CoreweaveControllerConfig
    owns_priority_class: bool
    """Whether the workers' PriorityClass is made here."""

    @property
    def cluster(self) -> str:
        """The cluster's name."""
        return self.config.name

    @property
    def namespace(self) -> str:
        """The namespace of controller and workers."""
        return self.platform.namespace

    @property
    def state_dir(self) -> str:
        """Where the volume with the controller's state is mounted: the folder above the journal's."""
        return str(PurePosixPath(self.config.controller.journal_dir).parent)

    @property
    def host(self) -> str:
        """The name by which pods find the controller."""
        return f"{self.controller.service_name}.{self.namespace}.{CLUSTER_DOMAIN}"

    @property
    def host_names(self) -> tuple[str, ...]:
        """All names and addresses under which the controller is dialled: what its certificate has to hold."""
        service = self.controller.service_name
        names = [service, f"{service}.{self.namespace}", f"{service}.{self.namespace}.svc", self.host]
        dialled = urlsplit(f"//{self.config.defaults.bootstrap.controller_address.rpartition('//')[2]}").hostname
        return tuple(dict.fromkeys([*names, *([dialled] if dialled else []), "localhost", "127.0.0.1"]))

    def image(self, name: str) -> str:
        """Return an image's full name: with the configured registry in front, unless it names one."""
        registry = self.platform.container_registry.rstrip("/")
        return name if not registry or names_registry(name) else f"{registry}/{name}"

    @property
    def has_task_pods(self) -> bool:
        """Whether the tasks of any group have pods of their own, which workers make."""
        return any(group.task_runtime is TaskRuntimeKind.POD for group in self.config.scale_groups.values())

    @property
    def store_variables(self) -> dict[str, str]:
        """The variables that say where ``s3://`` is, if the configuration does."""
        return place_variables(self.platform.object_storage_endpoint, self.platform.object_storage_region)

    def uses(self, scheme: str) -> bool:
        """Tell whether bundles or the journal's copy are kept in a store of this kind."""
        controller = self.config.controller
        return any(url.startswith(f"{scheme}://") for url in (controller.bundle_prefix, controller.replica_prefix))

    @property
    def repository_scheme(self) -> str:
        """Which kind of store the agents' repository is; empty: there are no agents, or they have none."""
        agent = self.config.agent
        return agent.repository.partition("://")[0] if agent.enabled else ""

    @property
    def repository_secret(self) -> str:
        """The Secret with the agents' credentials for their repository, if there is one."""
        named = self.config.agent.storage_secret or self.platform.storage_secret
        return named if self.repository_scheme in STORAGE_VARIABLES else ""

    @property
    def repository_keys(self) -> dict[str, str]:
        """The keys that protect the agents' repository: by what they do, which key of their Secret it is."""
        keys, order = self.config.agent.repository_keys, ("sign_with", "trust", "encrypt_with", "decrypt_with")
        return {use: name for use in order if (name := getattr(keys, use))} if self.repository_scheme else {}


def names_registry(image: str) -> bool:
    """Tell whether an image's name begins with a registry: a host with a dot or a port, as Docker decides it."""
    first, slash, _ = image.partition("/")
    return bool(slash) and ("." in first or ":" in first or first == "localhost")


def installation_of(config: ClusterConfig) -> Installation:
    """Return what an installation of this configuration is.

    Raises:
        NotInstallable: it is not one for a controller on Kubernetes.
    """
    platform, controller = config.platform.coreweave, config.controller.coreweave
    if platform is None or controller is None:
        key = "platform.coreweave" if platform is None else "controller.coreweave"
        raise NotInstallable(f"only a cluster on CoreWeave is installed in Kubernetes: it has no `{key}`")
    _check(config, platform)
    ours = platform.priority_class in ("", worker_priority_class(platform.namespace))
    inside = attrs.evolve(
        platform,
        kubeconfig_path="",
        priority_class=worker_priority_class(platform.namespace) if ours else platform.priority_class,
    )
    inner = attrs.evolve(config, platform=attrs.evolve(config.platform, coreweave=inside))
    return Installation(inner, inside, controller, owns_priority_class=ours)


def _check(config: ClusterConfig, platform: CoreweavePlatformConfig) -> None:
    if len(platform.namespace) > NAMESPACE_LIMIT:
        text = f"platform.coreweave.namespace: {platform.namespace!r} has more than {NAMESPACE_LIMIT} characters"
        raise NotInstallable(f"{text}, and is part of the name of the controller's node pool")
    if platform.namespace in SHARED_NAMESPACES:
        raise NotInstallable(f"platform.coreweave.namespace: {platform.namespace!r} is everybody's; choose another one")
    state = PurePosixPath(config.controller.journal_dir).parent
    if not state.is_absolute() or len(state.parts) < 2 or state.is_relative_to(CONFIG_DIR):
        text = f"controller.journal_dir: {config.controller.journal_dir!r} must be an absolute path, at least two deep"
        raise NotInstallable(f"{text}, outside of {CONFIG_DIR}: the volume is mounted at the folder above it")
