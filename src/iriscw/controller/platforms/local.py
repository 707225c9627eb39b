"""The local platform as the controller uses it: pods are ``iriscw worker`` processes with a token of their own.

Every pod runs the same command, :mod:`iriscw.controller.platforms.local_pod`, which reads from the pod's environment
who it is and becomes the worker. Its token lies in a file (0600) beside the controller's other secrets, written before
the pod is asked for and removed when the pod is gone.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import attrs

from iriscw.cloud.drivers.loading import CloudDrivers
from iriscw.cloud.drivers.local.drivers import local
from iriscw.cloud.drivers.local.platform import LocalOptions
from iriscw.cloud.drivers.local.token_files import TokenFiles
from iriscw.cloud.model import Capacity
from iriscw.config.model import ClusterConfig, TaskRuntimeKind
from iriscw.controller.settings import per_worker
from iriscw.controller.tokens import ControllerTokens
from iriscw.runtime.vocabulary import SECOND

log = logging.getLogger(__name__)


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
        argv=(sys.executable, "-m", "iriscw.controller.platforms.local_pod", controller_address, str(cache)),
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


@asynccontextmanager
async def open_local(
    options: LocalOptions, tokens: ControllerTokens, folder: Path, containers: Mapping[str, str] | None = None
) -> AsyncIterator[CloudDrivers]:
    """Open the local platform.

    Args:
        options: what it is opened with.
        tokens: of which workers are given theirs.
        folder: takes the workers' tokens.
        containers: what workers are told of their tasks' containers, by scale group.

    Raises:
        WorkdirLocked: another controller has it open.
        WorkdirCorrupt: a record in it cannot be read.
    """
    told = {}
    if containers:
        from iriscw.cloud.docker.containers import TASK_CONTAINERS_VARIABLE  # for those who use it

        told = {group: {TASK_CONTAINERS_VARIABLE: text} for group, text in containers.items()}
    environment = {**options.environment, **tokens.told}
    files = TokenFiles(folder, tokens.token_of_pod)
    async with local(attrs.evolve(options, environment=environment, tokens=files, group_environment=told)) as drivers:
        yield drivers
