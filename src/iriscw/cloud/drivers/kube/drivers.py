"""The drivers of a Kubernetes cluster with CoreWeave's node pools, as the ports have them.

Everything that is decided about the cloud is decided in :mod:`iriscw.cloud.kube`, which also runs in the simulated
world; here it is given an API server to talk to. One :class:`KubeDrivers` has one connection pool and one rate limit.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import attrs

from iriscw.cloud.drivers.kube.access import ClusterAccess
from iriscw.cloud.drivers.kube.api import ApiStatistics, KubernetesApi, open_api
from iriscw.cloud.drivers.kube.calls import Caller, CallStatistics
from iriscw.cloud.drivers.kube.connection import KubeConnection
from iriscw.cloud.drivers.kube.forwarding import PortStream, port_forward
from iriscw.cloud.drivers.kube.handed_tokens import HandedTokens
from iriscw.cloud.drivers.kube.limits import TransportLimits
from iriscw.cloud.drivers.kube.logs import LogWish, read_log
from iriscw.cloud.drivers.kube.objects import Objects
from iriscw.cloud.drivers.kube.watching import Machine, watched
from iriscw.cloud.kube import pods, pools
from iriscw.cloud.kube.settings import KubeSettings
from iriscw.cloud.kube.tasks import CONTAINER as TASK_CONTAINER, look_at_task_pod, task_name_of
from iriscw.cloud.kube.watching import PodWatch, PoolWatch, WatchStatistics
from iriscw.cloud.model import Gone, NodePool, NodePoolSpec, Pod, PodSpec, WatchEvent
from iriscw.cloud.ports import CALL_TIMEOUT_S
from iriscw.rpc.tokens import Secret
from iriscw.runtime.vocabulary import SECOND


@attrs.frozen
class KubeStatistics:
    """A cluster's drivers in figures. ``watches`` are those that are open now, the oldest first."""

    api: ApiStatistics
    calls: CallStatistics
    watches: tuple[WatchStatistics, ...]


class Shell:
    """What both drivers share: who carries calls and watches out, and which watches are open.

    Args:
        caller: Carries them out.
    """

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self._machines: dict[int, Machine] = {}
        self._opened = 0

    @property
    def open_watches(self) -> tuple[WatchStatistics, ...]:
        """Figures of the watches that are open now, the oldest first."""
        return tuple(machine.statistics for machine in self._machines.values())

    async def watch(self, machine: Machine) -> AsyncGenerator[WatchEvent, None]:
        """Carry out a watch."""
        self._opened += 1
        number = self._opened
        self._machines[number] = machine
        events = watched(self.caller, machine)
        try:
            async for event in events:
                yield event
        finally:
            del self._machines[number]
            await events.aclose()


@attrs.frozen
class KubeNodePoolDriver:
    """Node pools by CoreWeave's operator; see :class:`~iriscw.cloud.ports.NodePoolDriver`."""

    shell: Shell

    async def create(self, spec: NodePoolSpec) -> NodePool:
        """Ask for a pool."""
        caller = self.shell.caller
        return await caller.carry_out(pools.create_pool(caller.settings, spec, caller.rng))

    async def delete(self, name: str, uid: str) -> None:
        """Ask for the deletion of a pool."""
        caller = self.shell.caller
        await caller.carry_out(pools.delete_pool(caller.settings, name, uid, caller.rng))

    async def list(self, labels: Mapping[str, str]) -> tuple[NodePool, ...]:
        """Return all pools with these labels, with their nodes."""
        caller = self.shell.caller
        return await caller.carry_out(pools.list_pools(caller.settings, labels, caller.rng))

    def watch(self, labels: Mapping[str, str]) -> AsyncIterator[WatchEvent]:
        """Return what there is, then every change. Nothing is asked before the first event is."""
        return self.shell.watch(PoolWatch(self.shell.caller.settings, labels))


@attrs.frozen
class KubePodDriver:
    """Worker pods; see :class:`~iriscw.cloud.ports.PodDriver`."""

    shell: Shell
    tokens: HandedTokens | None = None
    """Of workers; without it pods have none."""

    async def create(self, spec: PodSpec) -> Pod:
        """Ask for a pod."""
        caller = self.shell.caller
        token = self.tokens.hand(spec) if self.tokens is not None else ""
        return await caller.carry_out(pods.create_pod(caller.settings, spec, caller.rng, token=token))

    async def delete(self, name: str, uid: str, grace_s: float = 30.0) -> None:
        """Ask for the deletion of a pod; its processes get ``grace_s`` seconds, at least one."""
        caller = self.shell.caller
        await caller.carry_out(pods.delete_pod(caller.settings, name, uid, round(grace_s * SECOND), caller.rng))

    async def list(self, labels: Mapping[str, str]) -> tuple[Pod, ...]:
        """Return all pods with these labels."""
        caller = self.shell.caller
        return await caller.carry_out(pods.list_pods(caller.settings, labels, caller.rng))

    def watch(self, labels: Mapping[str, str]) -> AsyncIterator[WatchEvent]:
        """Return what there is, then every change. Nothing is asked before the first event is."""
        events = self.shell.watch(PodWatch(self.shell.caller.settings, labels))
        return events if self.tokens is None else self.tokens.watched(events)


class KubeDrivers:
    """The drivers of one cluster. Made by :func:`open_drivers`.

    Args:
        api: The API server.
        settings: How to behave towards it.
        timeout_s: The deadline of a call.
        fence: Called before each request that may change something; raises when this process must not act any more.
        worker_token: Gives the token of the worker in a pod. Without it workers have none; with it
            :meth:`remove_tokens` has to run.
    """

    def __init__(
        self,
        api: KubernetesApi,
        settings: KubeSettings,
        *,
        timeout_s: float = CALL_TIMEOUT_S,
        fence: Callable[[], None] = lambda: None,
        worker_token: Callable[[PodSpec], Secret] | None = None,
    ) -> None:
        self._api = api
        self._shell = Shell(Caller(api, settings, timeout_s=timeout_s, fence=fence))
        self._tokens = HandedTokens(self._shell.caller, worker_token) if worker_token is not None else None

    @property
    def node_pools(self) -> KubeNodePoolDriver:
        """The driver of node pools."""
        return KubeNodePoolDriver(self._shell)

    @property
    def pods(self) -> KubePodDriver:
        """The driver of worker pods."""
        return KubePodDriver(self._shell, self._tokens)

    async def remove_tokens(self) -> None:
        """Remove the Secrets of pods that are gone, for ever; without tokens there are none."""
        if self._tokens is not None:
            await self._tokens.run()

    def connection(self, pod: str, uid: str) -> KubeConnection:
        """Return the connection to one incarnation of a pod; nothing is dialled before it is used."""
        return KubeConnection(self._api, self._shell.caller, pod, uid)

    async def task_connection(self, worker: Pod, attempt_uid: str) -> KubeConnection:
        """Return the connection to the pod that an attempt has of its own; see ``TaskConnections``."""
        caller, name = self._shell.caller, task_name_of(worker, attempt_uid)
        pod = await caller.carry_out(look_at_task_pod(caller.settings, name, caller.rng))
        if pod is None:
            raise Gone(f"there is no pod {name!r}, which the attempt {attempt_uid} would have")
        return KubeConnection(self._api, caller, name, pod.uid, container=TASK_CONTAINER)

    def logs(self, pod: str, uid: str, wish: LogWish | None = None) -> AsyncGenerator[bytes, None]:
        """Return what one incarnation of a pod says; see :func:`~iriscw.cloud.drivers.kube.logs.read_log`."""
        return read_log(self._api, self._shell.caller, pod, uid, wish or LogWish())

    def port_forward(self, pod: str, uid: str, port: int) -> AbstractAsyncContextManager[PortStream]:
        """Connect to a port of a pod; see :func:`~iriscw.cloud.drivers.kube.forwarding.port_forward`."""
        return port_forward(self._api, self._shell.caller, pod, uid, port)

    @property
    def objects(self) -> Objects:
        """Objects of any kind, as they are in JSON."""
        return Objects(self._shell.caller)

    def statistics(self) -> KubeStatistics:
        """Return figures of now."""
        return KubeStatistics(self._api.statistics(), self._shell.caller.statistics(), self._shell.open_watches)


@asynccontextmanager
async def open_drivers(
    access: ClusterAccess,
    settings: KubeSettings,
    *,
    limits: TransportLimits | None = None,
    timeout_s: float = CALL_TIMEOUT_S,
) -> AsyncIterator[KubeDrivers]:
    """Yield the drivers of a cluster; nothing is asked of it before they are used.

    Args:
        access: The way to its API server.
        settings: How to behave towards it.
        limits: Deadlines and sizes of the transport.
        timeout_s: The deadline of a call.
    """
    async with open_api(access, limits) as api:
        yield KubeDrivers(api, settings, timeout_s=timeout_s)
