"""A control plane inside this process: the controller here, its workers as processes of their own.

``Cluster.local()`` is a whole cluster for as long as a block lasts: it lives in one folder, deletes its machines when
it ends, and leaves neither a process nor (in a folder of its own making) a file. ``Cluster.open(config)`` is the
controller that a configuration describes.

Nothing of the host is touched: no signals are caught, nothing is printed, the environment is only read, and two
clusters fit into one process. What fails inside of the controller ends the block with that error.

The end. The controller closes first and leaves its machines running, as it must for a restart. On the ``local``
platform the machines are then deleted: the platform is opened once more, adopts what runs, and ends it. That way a
controller that failed, or a start that was cut short, is cleaned up by the same path.

Ctrl-C, as ``asyncio.run`` and ``anyio.run`` take it: the first ends the block in order, with a second's grace for calls
under way. The second leaves out the grace; machines and folder are still ended and removed, on a thread of their own.
The third ends the program as it is, and what is left is that of a host that was killed.

A host that is killed ends nothing. Its workers end themselves when no controller was there for ``orphan_after``
seconds, their attempts when their lease is over; and the next local cluster of the same user removes the temporary
folder of the dead one, and ends at once what still runs in it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, NoReturn, Self

import anyio
import anyio.to_thread

from iriscw._errors import InvalidArgument, OperationError, UsageError
from iriscw.client.client import Client, connected_to
from iriscw.client.discovery import ControllerEndpoint, Secret
from iriscw.cloud.drivers.loading import CloudDrivers
from iriscw.cloud.drivers.local import throwaway
from iriscw.cloud.drivers.local.platform import ORPHAN_AFTER_S, ORPHAN_VARIABLE, LocalOptions, open_platform
from iriscw.cloud.drivers.local.throwaway import PLATFORM_FOLDER, ThrowawayFolder, remove_abandoned
from iriscw.cloud.model import Capacity
from iriscw.config.load import build_config
from iriscw.config.model import WORKER_LEASE_LIMIT, ClusterConfig, PlatformKind
from iriscw.controller.assembly import Controller, default_state_dir
from iriscw.controller.doors.http import ControllerStatistics as ControllerStatistics  # noqa: PLC0414 - for who sees only this module
from iriscw.controller.ordered_exit import threads_dismissed, uncut
from iriscw.fleet.policy import Policy, RoutingPolicy, default_policy, default_routing
from iriscw.processes.identity import ProcessGone, ProcessIdentity
from iriscw.processes.sweep import marked_processes
from iriscw.rpc.errors import WrongLoop
from iriscw.rpc.keeping import KeptContext
from iriscw.runtime.vocabulary import SECOND

GROUP: Final = "local"
"""The scale group of a cluster made by :meth:`Cluster.local`."""

NODES_LIMIT: Final = 1000
"""Nodes of a local cluster: each is a few processes; a slip, not a plan."""

LEAST_LEASE_S: Final = 10
"""The ``worker_timeout`` of the local platform: until then a silent worker counts as there, and its tasks do."""

DESTROY_TIMEOUT_S: Final = 30.0
"""Processes that were killed are gone within a second; a machine that swaps takes longer."""

_HERE: Final[dict[str, tuple[int, int, Secret]]] = {}
"""The clusters of this process by address: their process, of which this one may be a fork, thread, and token."""


def check_thread(address: str | None) -> None:
    """See that a blocking call to this address does not hold up the controller that it waits for.

    Raises:
        WrongLoop: a cluster there runs on an event loop of this thread.
    """
    if address is not None and address in _HERE and _HERE[address][:2] == (os.getpid(), threading.get_ident()):
        raise WrongLoop(
            f"the cluster at {address} runs on an event loop of this thread, which a blocking call would hold up:"
            " use cluster.client there, or call from another thread (asyncio.to_thread)"
        )


def token_here(address: str) -> Secret | None:
    """Return the token of the cluster of this process that has this address; None: there is none."""
    pid, _, token = _HERE.get(address, (0, 0, None))
    return token if pid == os.getpid() else None


class ClusterNotRunning(UsageError):
    """The cluster runs inside of its ``async with`` block, not before and not after."""


class MachinesLeft(OperationError):
    """The cluster has ended and some of its local machines did not: the text names the folder that lists them."""


class Cluster:
    """A control plane in this process, and a client of it; an async context manager.

    Make one with :meth:`local` or :meth:`open`.
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        drivers: CloudDrivers | None,
        workdir: Path | None,
        keep: bool,
        remove: bool,
        policy: Policy,
        routing: RoutingPolicy,
    ) -> None:
        self.config: Final = config
        self._drivers = drivers
        self._given_workdir = workdir
        self._keep = keep
        self._remove = remove
        self._policy = policy
        self._routing = routing
        self._kept: KeptContext[None] | None = None
        self._controller: Controller | None = None
        self._client: Client | None = None
        self._workdir: Path | None = None

    def __repr__(self) -> str:
        where = f"at {self.address}" if self._client is not None else "not running"
        return f"<iriscw.Cluster {self.config.name!r} {where}>"

    @classmethod
    def local(
        cls,
        *,
        nodes: int = 4,
        cpu: float | str = 1,
        memory: int | str = "1GiB",
        boot_delay: float = 0.5,
        scale_down_delay: float = 5.0,
        orphan_after: float | None = None,
        worker_lease: float | None = None,
        workdir: str | Path | None = None,
        port: int = 0,
        name: str = "local",
        policy: Policy = default_policy,
        routing: RoutingPolicy = default_routing,
    ) -> Self:
        """Describe a cluster of processes on this machine; entering it starts the controller, demand the rest.

        Args:
            nodes: how many nodes there may be at once; each is a slice of one worker.
            cpu: CPU cores of each node, as in :class:`iriscw.Resources`. They are counted, not enforced.
            memory: of each node, likewise.
            boot_delay: seconds that a node takes to boot.
            scale_down_delay: seconds for which a node is idle before it goes.
            orphan_after: seconds after which workers end themselves if this process is killed, and no other takes the
                cluster over; 0: never. None: 60 in a temporary folder, 600 in ``workdir``, and at least
                ``worker_lease``.
            worker_lease: seconds for which tasks go on meanwhile, from 10 to 86400. None: 20. A task whose worker is
                lost, and not known to be gone, waits 10 s longer than that before it is tried again.
            workdir: where journal, workers and logs live; they stay there. None: a temporary folder that goes with the
                cluster.
            port: where the controller listens on 127.0.0.1; 0 takes a free one.
            name: of the cluster.
            policy: says how many nodes there should be; the page on policies tells how. It decides again each time
                that something happens, inside of the controller: it must be quick, and know nothing but its argument.
            routing: says which groups demand may go to, in which order; likewise.

        Raises:
            InvalidArgument: a number cannot be.
            ConfigError: a size or the name cannot be.
        """
        folder = Path(workdir).absolute() if workdir is not None else None
        timeouts = {} if worker_lease is None else {"worker_lease": _lease(worker_lease)}
        orphan_after = _orphan_after(orphan_after, ORPHAN_AFTER_S if folder else throwaway.ORPHAN_AFTER_S, worker_lease)
        config = build_config(
            {
                "name": name,
                "platform": {
                    "local": {
                        "workdir": str(folder or "."),
                        "boot_delay": _duration("boot_delay", boot_delay),
                        "node_cpu": cpu,
                        "node_memory": memory,
                    },
                    "timeouts": timeouts,
                    "autoscaler": {"scale_down_delay": _duration("scale_down_delay", scale_down_delay)},
                },
                "controller": {"local": {"port": port}},
                "defaults": {"bootstrap": {"env_vars": {ORPHAN_VARIABLE: f"{orphan_after:g}"}}},
                "scale_groups": {GROUP: {"resources": {"cpu": cpu, "ram": memory}, "max_slices": _count(nodes)}},
            },
            source="Cluster.local",
        )
        return cls(
            config, drivers=None, workdir=folder, keep=False, remove=folder is None, policy=policy, routing=routing
        )

    @classmethod
    def open(
        cls,
        config: ClusterConfig,
        *,
        drivers: CloudDrivers | None = None,
        workdir: str | Path | None = None,
        keep_machines: bool = False,
        policy: Policy = default_policy,
        routing: RoutingPolicy = default_routing,
    ) -> Self:
        """Describe the cluster of a configuration.

        Args:
            config: from :func:`iriscw.load_config`.
            drivers: of the cloud; None takes those of the platform that the configuration names.
            workdir: where the controller keeps its state; None takes what the configuration says.
            keep_machines: on the ``local`` platform, leave the workers running for the next controller. Machines of
                other platforms, and those of ``drivers``, are always left.
            policy: says how many slices each scale group should have, as in :meth:`local`.
            routing: says which groups demand may go to, as in :meth:`local`.
        """
        folder = Path(workdir).absolute() if workdir is not None else default_state_dir(config).absolute()
        return cls(
            config,
            drivers=drivers,
            workdir=folder,
            keep=keep_machines,
            remove=False,
            policy=policy,
            routing=routing,
        )

    async def __aenter__(self) -> Self:
        """Start the controller and connect to it.

        Raises:
            ClusterNotRunning: it was entered before; describe another one.
            NeedsAsyncio: this is not a task of an asyncio loop.
            JournalLocked, WorkdirLocked: another controller uses the folder.
            AddressInUse: another process listens on the port.
            IriscwError: what else the controller cannot be opened for; see its text.
        """
        if self._kept is not None:
            raise ClusterNotRunning("a cluster is entered once; describe another one")
        self._kept = KeptContext(self._run(), f"iriscw cluster {self.config.name!r}")
        await self._kept.__aenter__()
        return self

    @contextlib.asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        with threads_dismissed():
            if self._local:
                await remove_abandoned()
            async with AsyncExitStack() as stack:
                await self._start(stack)
                opened = stack.pop_all()
        try:
            yield
        except BaseException as error:
            with threads_dismissed():
                await opened.__aexit__(type(error), error, error.__traceback__)
            raise
        with threads_dismissed():
            await opened.aclose()

    async def _start(self, stack: AsyncExitStack) -> None:
        self._workdir = await self._folder(stack)
        stack.push_async_callback(self._destroy, self._workdir)
        self._controller = Controller(
            self.config,
            state_dir=self._workdir,
            drivers=self._drivers,
            policy=self._policy,
            routing=self._routing,
        )
        await stack.enter_async_context(self._controller)
        here = ControllerEndpoint(
            str(self._controller.address),
            self._controller.admin_token,
            server_name=_certified(self.config) if self._controller.trusted is not None else "",
            authority=self._controller.trusted,
        )
        self._client = await stack.enter_async_context(connected_to(here))
        _HERE[here.address] = (os.getpid(), threading.get_ident(), self._controller.admin_token)
        stack.callback(_HERE.pop, here.address, None)
        stack.callback(self._forget)

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Close the controller, and delete what machines are its own; in any task of the loop that entered.

        What the block raised goes on as it was.

        Raises:
            MachinesLeft: some did not end.
            WrongLoop: this is another loop.
            IriscwError: what ended the controller from inside.
        """
        assert self._kept is not None
        await self._kept.__aexit__(exc_type, exc, tb)

    if not TYPE_CHECKING:  # a type checker that saw this would accept `with`

        def __enter__(self) -> NoReturn:
            """Say what was forgotten."""
            raise ClusterNotRunning("a cluster takes `async with`; a script without an event loop uses iriscw.blocking")

        def __exit__(self, *_: object) -> None:
            """Be there, since Python looks for it first."""

    @property
    def client(self) -> Client:
        """A client of this cluster.

        Raises:
            ClusterNotRunning: it does not run.
        """
        if self._client is None:
            raise ClusterNotRunning("the cluster runs inside of its `async with` block")
        return self._client

    @property
    def address(self) -> str:
        """Where its controller listens.

        Raises:
            ClusterNotRunning: it does not run.
        """
        return self.client.address

    @property
    def admin_token(self) -> Secret:
        """What other clients authenticate with; it prints as ``<secret>``.

        Raises:
            ClusterNotRunning: it does not run.
        """
        return self._running().admin_token

    @property
    def workdir(self) -> Path:
        """Where journal, workers and logs live.

        Raises:
            ClusterNotRunning: it was never entered.
        """
        if self._workdir is None:
            raise ClusterNotRunning("the cluster has no folder before it runs")
        return self._workdir

    def statistics(self) -> ControllerStatistics:
        """Return the controller's counts of this moment.

        Raises:
            ClusterNotRunning: it does not run.
        """
        return self._running().statistics()

    async def worker_processes(self) -> dict[str, ProcessIdentity]:
        """Return the worker processes on this machine, by worker id: for demonstrations and tests of faults.

        Raises:
            ClusterNotRunning: it does not run.
            OperationError: the controller cannot be reached.
        """
        slices = await self.client.slices()
        names = [worker.worker_id for each in slices for worker in each.workers]
        return await anyio.to_thread.run_sync(worker_processes_in, self.workdir, names)

    def _running(self) -> Controller:
        if self._client is None or self._controller is None:
            raise ClusterNotRunning("the cluster runs inside of its `async with` block")
        return self._controller

    def _forget(self) -> None:
        self._client = None

    async def _folder(self, stack: AsyncExitStack) -> Path:
        if self._given_workdir is not None:
            return self._given_workdir
        made = await anyio.to_thread.run_sync(ThrowawayFolder.make)
        stack.push_async_callback(uncut, made.remove)  # bounded by the disk
        return made.path

    @property
    def _local(self) -> bool:
        return self.config.platform.kind is PlatformKind.LOCAL and self._drivers is None

    async def _destroy(self, workdir: Path) -> None:
        """Delete the local machines, if they are ours to delete: on a loop of its own, which no interrupt reaches."""
        root = workdir / PLATFORM_FOLDER
        if self._keep or not self._local or not root.is_dir():
            return
        await uncut(functools.partial(anyio.run, _end_machines, root, self.config.name))


async def _end_machines(root: Path, cluster: str) -> None:
    with anyio.move_on_after(DESTROY_TIMEOUT_S) as bound:
        async with open_platform(LocalOptions(root=root, budget=Capacity(), cluster=cluster)) as platform:
            async with platform.lock:
                for pod in list(platform.pods.values()):
                    await platform.end_pod(pod, 0.0)  # their controller is gone: nobody would hear a last word
            await platform.destroy()
    if bound.cancelled_caught:
        raise MachinesLeft(f"processes of the cluster are left after {DESTROY_TIMEOUT_S:g} s; see {root}")


def _certified(config: ClusterConfig) -> str:
    """Return the name that the controller's certificate holds; empty: that of the address where it listens."""
    platform, controller = config.platform.coreweave, config.controller.coreweave
    if platform is None or controller is None:
        return ""
    return f"{controller.service_name}.{platform.namespace}.svc.cluster.local"


def _count(nodes: object) -> int:
    if isinstance(nodes, bool) or not isinstance(nodes, int) or not 1 <= nodes <= NODES_LIMIT:
        raise InvalidArgument(f"nodes: {nodes!r} is not a whole number between 1 and {NODES_LIMIT}")
    return nodes


def _duration(name: str, seconds: object) -> dict[str, int]:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
        raise InvalidArgument(f"{name}: {seconds!r} is not a number of seconds from 0")
    return {"milliseconds": round(seconds * 1000)}


def _lease(seconds: object) -> dict[str, int]:
    limit_s = WORKER_LEASE_LIMIT // SECOND
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not LEAST_LEASE_S <= seconds <= limit_s:
        raise InvalidArgument(f"worker_lease: {seconds!r} is not a number of seconds from {LEAST_LEASE_S} to {limit_s}")
    return _duration("worker_lease", seconds)


def _orphan_after(asked: float | None, usual: float, lease: float | None) -> float:
    """Return after how many seconds workers end themselves: not before the lease is over that was asked for."""
    if asked is None:
        return usual if lease is None else max(usual, lease)
    _duration("orphan_after", asked)
    if lease is not None and 0 < asked < lease:
        raise InvalidArgument(
            f"orphan_after: tasks would end with their workers, {asked:g} s after the controller, and worker_lease is"
            f" {lease:g} s: say at least that, or 0"
        )
    return asked


def worker_processes_in(workdir: Path, worker_ids: Iterable[str]) -> dict[str, ProcessIdentity]:
    """Find the processes that serve as these workers of a cluster in this folder, by worker id. Blocks."""
    found: dict[str, ProcessIdentity] = {}
    for worker_id in worker_ids:
        for process in marked_processes({"IRIS_WORKER_ID": worker_id}):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, ProcessGone):
                folder = Path(f"/proc/{process.pid}/cwd").readlink()
                argv = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
                if b"iriscw.worker" in argv and folder.is_relative_to(workdir):
                    found[worker_id] = process
    return found
