"""The local platform as the controller uses it: pods are ``iriscw worker`` processes with a token of their own.

Every pod runs the same command, :mod:`iriscw.controller.local_pod`, which reads from the pod's environment who it is
and becomes the worker. Its token lies in a file (0600) beside the controller's other secrets, written before the pod
is asked for and removed when the pod is gone; the pod's record holds the file's name only.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import anyio.to_thread
import attrs

from iriscw.cloud.drivers.loading import CloudDrivers
from iriscw.cloud.drivers.local.drivers import local
from iriscw.cloud.drivers.local.platform import LocalOptions
from iriscw.cloud.model import LABEL_GROUP, Capacity, Gone, Pod, PodSpec, Removed, Unavailable, WatchEvent
from iriscw.cloud.ports import Connection, NodePoolDriver, PodDriver
from iriscw.config.model import ClusterConfig, TaskRuntimeKind
from iriscw.controller.settings import per_worker
from iriscw.controller.tokens import ControllerTokens
from iriscw.rpc.tokens import write_token_file
from iriscw.runtime.vocabulary import SECOND

log = logging.getLogger(__name__)

TOKEN_FILE_VARIABLE = "IRISCW_TOKEN_FILE"  # noqa: S105 - the name of a variable
"""Where a worker finds its token."""

TASK_CONTAINERS_VARIABLE = "IRISCW_TASK_CONTAINERS"
"""Where a worker finds what its tasks' containers are like."""


def local_options(config: ClusterConfig, state_dir: Path, controller_address: str) -> LocalOptions:
    """Return what the local platform is opened with.

    Args:
        config: the cluster's.
        state_dir: the controller's folder; the platform and the workers' cache lie in it.
        controller_address: which workers dial.
    """
    platform = config.platform.local
    assert platform is not None
    cache = cache_dir(config, state_dir)
    return LocalOptions(
        root=state_dir / "platform",
        budget=_budget(config),
        cluster=config.name,
        argv=(sys.executable, "-m", "iriscw.controller.local_pod", controller_address, str(cache)),
        environment=dict(config.defaults.bootstrap.env_vars),
        boot_delay_s=platform.boot_delay / SECOND,
        cache=cache,
    )


def cache_dir(config: ClusterConfig, state_dir: Path) -> Path:
    """Return the folder in which the workers of the local platform keep what they have."""
    return state_dir / config.defaults.bootstrap.cache_dir


def task_containers(config: ClusterConfig, environment: Mapping[str, str]) -> dict[str, str]:
    """Return what workers are told of their tasks' containers, by scale group.

    Groups whose tasks have none are left out.

    Args:
        config: the cluster's.
        environment: the controller's; ``DOCKER_HOST`` says where the engine is.

    Raises:
        InvalidSpec: an image or a path cannot be, or the engine is not on this machine.
    """
    platform = config.platform.local
    assert platform is not None
    groups = [each for each in config.scale_groups.values() if each.task_runtime is TaskRuntimeKind.DOCKER]
    if not groups:
        return {}
    from iriscw.cloud.docker.containers import TaskContainers, encode_task_containers, socket_of  # for those who use it

    socket, shown = socket_of(environment), tuple(platform.task_paths.split(":")) if platform.task_paths else ()
    made = {each.name: TaskContainers(image=each.task_image, socket=socket, shown=shown) for each in groups}
    return {name: encode_task_containers(each) for name, each in made.items()}


def _budget(config: ClusterConfig) -> Capacity:
    """Give room for every slice that the configuration allows: the bound on local machines is ``max_slices``."""
    total = Capacity()
    for group in config.scale_groups.values():
        each = per_worker(group)
        count = group.max_slices * group.num_vms
        total = Capacity(
            cpu_milli=total.cpu_milli + count * each.cpu_milli,
            memory_bytes=total.memory_bytes + count * each.memory_bytes,
            disk_bytes=total.disk_bytes + count * each.disk_bytes,
            gpu_count=total.gpu_count + count * each.gpu_count,
            gpu_class=each.gpu_class or total.gpu_class,
        )
    return total


@attrs.frozen
class TokenedPods:
    """A :class:`PodDriver` that gives each pod a token file."""

    pods: PodDriver
    tokens: ControllerTokens
    folder: Path
    containers: Mapping[str, str] = attrs.field(factory=dict)
    """What workers are told of their tasks' containers, by scale group."""

    async def create(self, spec: PodSpec) -> Pod:
        """See the port; the token is on disk before the pod is asked for."""
        token = self.tokens.worker_token(spec.environment["IRIS_WORKER_ID"], spec.environment["IRIS_INCARNATION"])
        path = self.folder / spec.name
        try:
            await anyio.to_thread.run_sync(write_token_file, path, token)
        except OSError as error:
            raise Unavailable(f"the worker's token cannot be written: {error.strerror or error}") from error
        environment = {**self.tokens.told, **spec.environment, TOKEN_FILE_VARIABLE: str(path)}
        if containers := self.containers.get(spec.labels.get(LABEL_GROUP, "")):
            environment[TASK_CONTAINERS_VARIABLE] = containers
        return await self.pods.create(attrs.evolve(spec, environment=environment))

    async def delete(self, name: str, uid: str, grace_s: float = 30.0) -> None:
        """See the port."""
        await self.pods.delete(name, uid, grace_s)

    async def list(self, labels: Mapping[str, str]) -> tuple[Pod, ...]:
        """See the port."""
        return await self.pods.list(labels)

    async def watch(self, labels: Mapping[str, str]) -> AsyncIterator[WatchEvent]:
        """See the port; what is gone needs its token no more."""
        async with aclosing(self.pods.watch(labels)) as events:  # type: ignore[type-var]
            async for event in events:
                if isinstance(event, Removed):
                    await anyio.to_thread.run_sync(_remove, self.folder / event.object.name)
                yield event


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("the token file %s stays: %s", path, error)


def _remove_others(folder: Path, names: set[str]) -> None:
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name not in names:
            _remove(path)


@attrs.frozen
class TokenedDrivers:
    """The local drivers with :class:`TokenedPods`."""

    drivers: CloudDrivers
    pods: TokenedPods

    @property
    def node_pools(self) -> NodePoolDriver:
        """The driver of node pools."""
        return self.drivers.node_pools

    def connection(self, pod: str, uid: str) -> Connection:
        """Return the connection to one incarnation of a pod."""
        return self.drivers.connection(pod, uid)

    async def task_connection(self, worker: Pod, attempt_uid: str) -> Connection:
        """Return the connection to the container of an attempt, whose name is its own."""
        from iriscw.cloud.docker.containers import decode_task_containers  # for those who use it
        from iriscw.cloud.drivers.docker.connection import DockerConnection
        from iriscw.cloud.kube.tasks import task_name_of

        containers = self.pods.containers.get(worker.labels.get(LABEL_GROUP, ""))
        if containers is None:
            raise Gone(f"the tasks of {worker.name} have no containers any more")
        return DockerConnection(decode_task_containers(containers).socket, task_name_of(worker, attempt_uid))


@asynccontextmanager
async def open_local(
    options: LocalOptions, tokens: ControllerTokens, folder: Path, containers: Mapping[str, str] | None = None
) -> AsyncIterator[CloudDrivers]:
    """Open the local platform; ``folder`` takes the workers' tokens, ``containers`` is for :class:`TokenedPods`.

    Raises:
        WorkdirLocked: another controller has it open.
        WorkdirCorrupt: a record in it cannot be read.
    """
    async with local(options) as drivers:
        names = {pod.name for pod in await drivers.pods.list({})}
        await anyio.to_thread.run_sync(_remove_others, folder, names)
        yield TokenedDrivers(drivers, TokenedPods(drivers.pods, tokens, folder, containers or {}))
