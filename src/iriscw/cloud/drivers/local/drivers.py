"""All drivers of the local platform in one value, as every platform offers them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs

from iriscw.cloud.drivers.local.connection import LocalConnection
from iriscw.cloud.drivers.local.platform import LocalOptions, LocalPlatform, open_platform
from iriscw.cloud.drivers.local.pods import LocalPodDriver
from iriscw.cloud.drivers.local.pools import LocalNodePoolDriver
from iriscw.cloud.model import LABEL_GROUP, Gone, Pod
from iriscw.cloud.ports import Connection


@attrs.frozen
class LocalDrivers:
    """The drivers of one :class:`LocalPlatform`; see :class:`~iriscw.cloud.drivers.loading.CloudDrivers`."""

    platform: LocalPlatform

    @property
    def node_pools(self) -> LocalNodePoolDriver:
        """The driver of node pools."""
        return LocalNodePoolDriver(self.platform)

    @property
    def pods(self) -> LocalPodDriver:
        """The driver of worker pods."""
        return LocalPodDriver(self.platform)

    def connection(self, pod: str, uid: str) -> LocalConnection:
        """Return the connection to one incarnation of a pod."""
        return LocalConnection(self.platform, pod, uid)

    async def task_connection(self, worker: Pod, attempt_uid: str) -> Connection:
        """Return the connection to the container of an attempt, whose name is its own."""
        from iriscw.cloud.docker.containers import TASK_CONTAINERS_VARIABLE, decode_task_containers  # for who has any
        from iriscw.cloud.drivers.docker.connection import DockerConnection
        from iriscw.cloud.kube.tasks import task_name_of

        told = self.platform.options.group_environment.get(worker.labels.get(LABEL_GROUP, ""), {})
        containers = told.get(TASK_CONTAINERS_VARIABLE)
        if containers is None:
            raise Gone(f"the tasks of {worker.name} have no containers any more")
        return DockerConnection(decode_task_containers(containers).socket, task_name_of(worker, attempt_uid))


@asynccontextmanager
async def local(options: LocalOptions) -> AsyncIterator[LocalDrivers]:
    """Open the local platform and give its drivers; see :func:`~.platform.open_platform`.

    Raises:
        WorkdirLocked: another controller has it open.
        WorkdirCorrupt: a record in it cannot be read.
    """
    async with open_platform(options) as platform:
        yield LocalDrivers(platform)
