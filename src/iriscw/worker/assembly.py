"""A worker, put together: journal, runtime, tree, stream and door, started in order and stopped in reverse.

::

    async with Worker(settings) as worker:
        departure = await worker.wait()

Files, below the cache folder::

    bundles/                          shared by all workers of the machine
    environments/                     likewise: the packages that jobs ask for, see iriscw.packages.cache
    <worker id>/<incarnation>/        one life of a worker: journal/, attempts/, specifications/, lease
    <worker id>/<incarnation>/tasks/  what pods or containers of its tasks are shown: lease, supervisor.py

A worker that is started again with the same incarnation takes up its attempts, but those whose lease ran out while it
was away. What earlier incarnations of the same worker left running is ended first: their uids mean nothing to this one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio
import anyio.to_thread
import attrs

from iriscw._errors import InvalidArgument, SystemClosed
from iriscw.bundles.cache import BundleCache
from iriscw.cloud.model import Attributes, Capacity
from iriscw.dialling.messages import TurnedAway
from iriscw.files import make_private_folder, remove_tree
from iriscw.fleet.model import FREEZABLE, PACKAGES
from iriscw.inspection.doors import InspectionDoor
from iriscw.journal.sqlite import SqliteJournal
from iriscw.packages.cache import EnvironmentCache
from iriscw.packages.installers import find_installer
from iriscw.processes.lease import LeaseFile
from iriscw.processes.syscall_filter import hindrance
from iriscw.rpc.address import Address
from iriscw.rpc.client import RpcChannel
from iriscw.rpc.limits import RpcLimits
from iriscw.rpc.server import RpcServer
from iriscw.rpc.tls import client_tls
from iriscw.rpc.tokens import Principal, Role, Secret, has_digest
from iriscw.runtime import ActorSystem
from iriscw.runtime.vocabulary import SECOND
from iriscw.task.environment import CA_VARIABLE, PLAINTEXT_VARIABLE
from iriscw.task.framing import python_name, this_python
from iriscw.worker.actor import tree
from iriscw.worker.doors.http import WorkerFigures
from iriscw.worker.drivers.bundles import ControllerBundles
from iriscw.worker.drivers.desk import AttemptDesk, TaskSurroundings
from iriscw.worker.drivers.gpu_watch import GpuWatch
from iriscw.worker.drivers.gpus import GpuClaims, claim
from iriscw.worker.drivers.specifications import Specifications
from iriscw.worker.drivers.stream import ControllerStream, Identity
from iriscw.worker.gpus import GpuOffer
from iriscw.worker.inotify import FileWatch
from iriscw.worker.lines import note
from iriscw.worker.messages import SESSION, Leave, Left
from iriscw.worker.model import DEFAULT_LEASE_NS, STOP_GRACE_NS
from iriscw.worker.ports import TaskRuntime
from iriscw.worker.runtimes.process import ProcessRuntime
from iriscw.worker.session import Session
from iriscw.worker.wire import gpus_message

if TYPE_CHECKING:  # what talks to Kubernetes, or Docker, is loaded where tasks have pods or containers, and not before
    from iriscw.cloud.docker.containers import TaskContainers
    from iriscw.cloud.kube.tasks import TaskOwner, TaskPods
    from iriscw.worker.runtimes.pod_view import TaskPodDriver

log = logging.getLogger(__name__)

DEFAULT_PORT = 10001

ALL_ADDRESSES = "0.0.0.0"  # noqa: S104 - where a task listens whose pod has an address that its worker does not know
TASKS = "tasks"
"""The folder of a life that the pods of its tasks are shown."""

LEAVE_MARGIN_S = 10.0
"""What an ordered stop may take beyond grace and flush before the tree is stopped regardless."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def _name(_: object, attribute: attrs.Attribute[str], value: str) -> None:
    if not _NAME.fullmatch(value):
        raise InvalidArgument(f"{attribute.name}: {value!r} is not a valid name: letters, digits, '.', '_' and '-'")


def _enough(settings: WorkerSettings, _: attrs.Attribute[GpuOffer], offer: GpuOffer) -> None:
    if settings.task_pods is None and len(offer.gpus) < settings.capacity.gpu_count:
        had = len(offer.gpus)
        raise InvalidArgument(f"gpus: {settings.capacity.gpu_count} are offered, and {had} are there to be handed out")


def _not_negative(_: object, attribute: attrs.Attribute[float], value: float) -> None:
    if not 0 <= value < float("inf"):
        raise InvalidArgument(f"{attribute.name}: {value!r} is not a number of seconds from 0")


def _digest(_: object, attribute: attrs.Attribute[str], value: str) -> None:
    if value and re.fullmatch("[0-9a-f]{64}", value) is None:
        raise InvalidArgument(f"{attribute.name}: a SHA-256 in hex is meant")


@attrs.frozen(kw_only=True)
class WorkerSettings:
    """All that a worker is told. ``port`` 0 takes a free one; ``rpc`` bounds both of its connections.

    ``bound_memory`` holds each attempt without GPUs to the memory it asked for (``RLIMIT_AS``). ``lease_s`` counts
    until the controller has said another. After ``orphan_after_s`` without a word of any controller the worker ends
    itself; 0: never, because somebody else decides how long its pod lives. ``insecure_plaintext`` allows tokens to
    cross a network without TLS; ``authority`` (PEM) is trusted instead of the system's where the controller's address
    is ``https://``. Tasks are told to listen on ``task_bind_host``; where that is empty, on the address at which others
    reach them (``advertise_host``), or on all addresses of a pod of their own. They find ``task_secrets`` in their
    environment unless their job sets the same variables. With ``task_pods`` each attempt has a pod of its own, on the
    cluster that ``KUBECONFIG`` names, else on the one whose pod this is; with ``task_containers`` a container of this
    machine. Of ``gpus``, those of the machine, the worker claims as many as ``capacity`` offers, or with ``fewer_gpus``
    those that no other worker has, and divides them among its attempts; where these have pods, their node divides its
    own. Who shows a token whose SHA-256 is ``metrics_digest`` reads the figures; empty: nobody but who has ``token``.

    Raises:
        InvalidArgument: an id cannot be the name of a folder, ``orphan_after_s`` is below 0, the digest is none, or
            ``gpus`` are fewer than are offered.
    """

    controller: str
    worker_id: str = attrs.field(validator=_name)
    incarnation: str = attrs.field(validator=_name)
    token: Secret
    metrics_digest: str = attrs.field(default="", validator=_digest)
    cache_dir: Path
    capacity: Capacity
    attributes: Attributes = attrs.field(factory=Attributes)
    gpus: GpuOffer = attrs.field(factory=GpuOffer, validator=_enough)
    fewer_gpus: bool = False
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    task_bind_host: str = ""
    task_secrets: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    task_pods: tuple[TaskPods, TaskOwner] | None = None
    task_containers: TaskContainers | None = None
    authority: Path | None = None
    advertise_host: str = "127.0.0.1"
    lease_s: float = DEFAULT_LEASE_NS / SECOND
    grace_s: float = STOP_GRACE_NS / SECOND
    flush_s: float = 10.0
    orphan_after_s: float = attrs.field(default=0.0, validator=_not_negative)
    bound_memory: bool = False
    insecure_plaintext: bool = False
    rpc: RpcLimits = attrs.field(factory=RpcLimits)
    node: str = ""
    """The machine that it is on, as that machine's agent names it; empty: not said."""

    @property
    def bind_host(self) -> str:
        """Where tasks are told to listen."""
        return self.task_bind_host or (ALL_ADDRESSES if self.task_pods else self.advertise_host)

    @property
    def life(self) -> Path:
        """The folder of this life of the worker."""
        return self.cache_dir / self.worker_id / self.incarnation


class Worker:
    """One worker in this process: an async context manager. Installs no signal handlers, prints nothing.

    Args:
        settings: see there.
        runtime: what runs attempts; processes by default.
    """

    def __init__(self, settings: WorkerSettings, *, runtime: TaskRuntime | None = None) -> None:
        self.settings = settings
        self._runtime = runtime
        self._stack = AsyncExitStack()
        self._left = anyio.Event()
        self._turned_away: TurnedAway | None = None
        self._orphaned = False
        self._figures = WorkerFigures(settings.worker_id, settings.incarnation)
        self._door: RpcServer | None = None
        self._packages: EnvironmentCache | None = None
        self._system: ActorSystem | None = None

    @property
    def address(self) -> Address:
        """Where ``/health`` answers.

        Raises:
            InvalidArgument: the worker does not run.
        """
        if self._door is None:
            raise InvalidArgument("the worker does not run")
        return self._door.address

    @property
    def orphaned(self) -> bool:
        """Whether the worker ended itself because no controller was there (``orphan_after_s``)."""
        return self._orphaned

    async def wait(self) -> TurnedAway | None:
        """Wait until the worker has left: the controller's refusal, or None after :meth:`leave` and if it is
        :attr:`orphaned`.
        """
        await self._left.wait()
        return self._turned_away

    async def leave(self, reason: str, grace_s: float | None = None) -> None:
        """End all attempts, deliver their ends and logs, say goodbye. Bounded; a second call waits for the first.

        Args:
            reason: one sentence for the controller's log.
            grace_s: between asking attempts to end and killing them; the settings' by default.
        """
        grace = self.settings.grace_s if grace_s is None else grace_s
        if self._system is None or self._left.is_set():
            return
        try:
            self._system.tell(SESSION, Leave(reason, round(grace * SECOND), round(self.settings.flush_s * SECOND)))
        except SystemClosed:  # it crashed, and says so itself; the next process of this life takes the attempts up
            return
        with anyio.move_on_after(grace + self.settings.flush_s + LEAVE_MARGIN_S):
            await self._left.wait()

    async def __aenter__(self) -> Self:
        """Start: take up what this life had, open the door, dial.

        Raises:
            JournalLocked: another process is this worker.
            GpusTaken: other workers of the machine have so many of its GPUs that too few are left.
            JournalCorrupt, UnsupportedJournal, WorkerTrouble, OSError: its folder cannot be used.
            AddressInUse, AddressUnavailable, InsecureDoor, InvalidAddress: see ``RpcServer.listen_tcp``.
            InvalidTls: the authority is none.
            InvalidAccess: tasks have pods, and there is no way to the cluster.
        """
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Leave in order, then stop everything in reverse. After an error or a cancellation attempts get no grace."""
        try:
            with anyio.CancelScope(shield=True):  # leave is bounded
                await self.leave("the worker ends", None if exc_type is None else 0)
        finally:
            await self._stack.__aexit__(exc_type, exc, tb)

    async def _start(self, stack: AsyncExitStack) -> None:
        settings = self.settings
        life = settings.life
        await anyio.to_thread.run_sync(make_private_folder, life)
        journal = await anyio.to_thread.run_sync(SqliteJournal.open, life / "journal")
        stack.callback(journal.close)
        await end_earlier_lives(life)
        lease = await anyio.to_thread.run_sync(_lease_of, settings)
        stack.callback(lease.close)
        watch = FileWatch()
        stack.callback(watch.close)
        runtime = self._runtime or await self._runtime_of(lease, watch, stack)
        specifications = await anyio.to_thread.run_sync(Specifications, life / "specifications")
        channel = await stack.enter_async_context(
            RpcChannel(
                settings.controller,
                settings.token,
                tls=_tls(settings),
                limits=settings.rpc,
                insecure_plaintext=settings.insecure_plaintext,
            )
        )
        await anyio.to_thread.run_sync(make_private_folder, settings.cache_dir / "bundles")
        bundles = BundleCache(settings.cache_dir / "bundles", ControllerBundles(channel))
        place = TaskSurroundings(
            settings.worker_id,
            settings.controller,
            settings.bind_host,
            settings.advertise_host,
            settings.bound_memory,
            {**settings.task_secrets, **_way(settings)},
        )
        desk = AttemptDesk(runtime, specifications, bundles, place)
        await self._install_packages(desk, lease)
        await desk.find()
        offer = await self._claimed(desk, stack)
        if settings.task_pods is None:
            desk.offer = offer
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        tasks.start_soon(watch.serve)
        gpu_watch = GpuWatch(offer.gpus)
        if offer.gpus:
            self._figures.show_gpus(gpu_watch.last)
            tasks.start_soon(gpu_watch.serve)
        self._door = RpcServer(
            [InspectionDoor(lambda: self._system, Role.WORKER, gpus=lambda: gpus_message(gpu_watch.last()))],
            authenticate=self._authenticate,
            routes=self._figures.routes(),
            limits=settings.rpc,
            insecure_plaintext=settings.insecure_plaintext,
        )
        door = await stack.enter_async_context(self._door)
        await door.listen_tcp(settings.host, settings.port)
        capacity = settings.capacity
        if settings.task_pods is None:
            capacity = attrs.evolve(capacity, gpu_count=len(offer.gpus))
        identity = Identity(settings.worker_id, settings.incarnation, capacity, self._attributes(), settings.node)
        stream = ControllerStream(channel, identity, self._own_address, specifications, desk, watch)
        root = tree(desk, stream, self._session_of(None if self._runtime else lease), offer)
        self._system = await stack.enter_async_context(
            ActorSystem(root, name=settings.worker_id, journal=journal, on_event=self._note)
        )

    async def _install_packages(self, desk: AttemptDesk, lease: LeaseFile) -> None:
        """Have packages be installed for attempts, where these are processes of this machine."""
        settings = self.settings
        if self._runtime or settings.task_pods is not None or settings.task_containers is not None:
            return
        installer = await anyio.to_thread.run_sync(find_installer, os.environ)
        if installer is None:
            log.warning("neither uv nor pip is here: jobs that ask for packages are not run by this worker")
            return
        root, users = settings.cache_dir / "environments", settings.life / "attempts"
        desk.packages = self._packages = EnvironmentCache(root, installer, users=users, lease=lease.path)
        self._figures.show_packages(self._packages.counts)
        await self._packages.sweep()

    async def _claimed(self, desk: AttemptDesk, stack: AsyncExitStack) -> GpuOffer:
        """Claim GPUs for as long as the worker runs: those of its attempts first, which it has taken up."""
        settings = self.settings
        count = settings.capacity.gpu_count
        if settings.task_pods is not None or not (count or settings.fewer_gpus):
            return GpuOffer()
        own = {uid: held.running.stdout.parent / "work" for uid, held in desk.held.items()}
        claims = stack.enter_context(GpuClaims())
        claiming = partial(claim, claims, settings.gpus, count, own, fewer=settings.fewer_gpus)
        return await anyio.to_thread.run_sync(claiming)

    async def _runtime_of(self, lease: LeaseFile, watch: FileWatch, stack: AsyncExitStack) -> TaskRuntime:
        settings = self.settings
        root = settings.life / "attempts"
        driver = await stack.enter_async_context(_task_driver(settings))
        if driver is None:
            return ProcessRuntime(root, one_log=True, lease=lease, owner=owner_of(settings.life), watch=watch)
        from iriscw.worker.runtimes.pod import open_pod_runtime

        opened = open_pod_runtime(driver, lease, root=root, cache_dir=settings.cache_dir, one_log=True)
        runtime = await stack.enter_async_context(opened)
        self._figures.show_pods(runtime.statistics)
        return runtime

    def _attributes(self) -> Attributes:
        """Return what the settings say, and what our own runtimes can do here: keep io_uring from attempts, install."""
        own = {} if self._runtime is not None or hindrance() else {FREEZABLE: "true"}
        if self._packages is not None:
            own[PACKAGES] = self._packages.installer.name
        return self.settings.attributes.merged(Attributes(own)) if own else self.settings.attributes

    def _session_of(self, lease: LeaseFile | None) -> Callable[[], Session]:
        lease_ns, orphan_ns = round(self.settings.lease_s * SECOND), round(self.settings.orphan_after_s * SECOND)
        return lambda: Session(lease_ns, None if lease is None else lease.until_ns, orphan_ns)

    def _own_address(self) -> str:
        return f"{self.settings.advertise_host}:{self.address.port}"

    def _authenticate(self, token: str) -> Principal | None:
        ours = self.settings.token.matches(token)
        figures = has_digest(token, self.settings.metrics_digest)  # both, so that the time says nothing
        return Principal(Role.WORKER) if ours else Principal(Role.METRICS) if figures else None

    def _note(self, event: object) -> None:
        self._figures.note(event)
        note(event)
        if isinstance(event, Left):
            self._turned_away, self._orphaned = event.turned_away, event.orphaned
            self._left.set()


@asynccontextmanager
async def _task_driver(settings: WorkerSettings) -> AsyncIterator[TaskPodDriver | None]:
    """Yield what makes the pods or containers of tasks; None where tasks are processes of ours."""
    if settings.task_pods is not None:
        from iriscw.cloud.drivers.kube.task_pods import open_task_pods

        async with open_task_pods(*settings.task_pods) as pods:
            yield pods
    elif settings.task_containers is not None:
        from iriscw.cloud.docker.containers import ContainerOwner
        from iriscw.cloud.drivers.docker.tasks import open_docker_tasks

        cache_dir = str(settings.cache_dir)
        owner = ContainerOwner(settings.worker_id, settings.incarnation, cache_dir, os.getuid(), os.getgid())
        owner = attrs.evolve(owner, advertise_host=settings.advertise_host)
        async with open_docker_tasks(settings.task_containers, owner) as containers:
            yield containers
    else:
        yield None


def _lease_of(settings: WorkerSettings) -> LeaseFile:
    """Open the lease: where tasks have pods or containers, in a folder that they are shown, with no secret in it.

    Raises:
        OSError: as the file system says it.
    """
    if settings.task_pods is None and settings.task_containers is None:
        return LeaseFile(settings.life / "lease")
    make_private_folder(settings.life / TASKS)
    return LeaseFile(settings.life / TASKS / "lease")


def _way(settings: WorkerSettings) -> dict[str, str]:
    """Return the variables by which tasks reach the controller as their worker does."""
    authority = {CA_VARIABLE: str(settings.authority.absolute())} if settings.authority is not None else {}
    return authority | ({PLAINTEXT_VARIABLE: "1"} if settings.insecure_plaintext else {})


def _tls(settings: WorkerSettings) -> ssl.SSLContext | None:
    """Trust the authority that is named; None leaves it to the address."""
    if settings.authority is None or not Address.parse(settings.controller).tls:
        return None
    return client_tls(authority=settings.authority)


def owner_of(life: Path) -> str:
    """Return the name of a life of a worker to others on its machine."""
    return f"{life.parent.name}/{life.name}"


async def end_earlier_lives(life: Path) -> None:
    """End what earlier incarnations of this worker left running, and remove their folders.

    Raises:
        WorkerTrouble, SweepFailed: it cannot be read, or does not die.
        OSError: it cannot be removed.
    """
    for earlier in sorted(await anyio.to_thread.run_sync(lambda: list(life.parent.iterdir()))):
        if earlier == life or not earlier.is_dir():
            continue
        if (earlier / TASKS / "lease").exists():  # its pods end by their lease, and then those that are left are swept
            await anyio.to_thread.run_sync(_end_lease, earlier / TASKS / "lease")
        else:
            runtime = ProcessRuntime(earlier / "attempts", owner=owner_of(earlier))
            for running in await runtime.adopt():
                await running.stop(0)
                await running.remove()  # also where it began with another worker
            if await anyio.to_thread.run_sync(runtime.strangers):
                log.info("attempts that began with incarnation %s are others' by now: its folder stays", earlier.name)
                continue
        await anyio.to_thread.run_sync(remove_tree, earlier)
        log.info("removed what the incarnation %s left", earlier.name)


def _end_lease(path: Path) -> None:
    with contextlib.closing(LeaseFile(path)) as lease:
        lease.hold(0)
        lease.write()


def python_attribute() -> str:
    """Return this worker's Python as placement compares it: ``3.11``."""
    return python_name(this_python())
