"""The controller: its tree, its stores and its doors, put together.

What is opened, in this order, and closed in the reverse one::

    state folder     secrets (0600), the port of last time
    lease            on a Kubernetes cluster: waited for, and the controller ends when it is lost
    journal          fenced: a second controller on the same folder fails with JournalLocked; one that opens its
                     second copy elsewhere ends this one
    stores           logs, results, bundles and run documents
    platform         the drivers, by argument, or those of the platform that the configuration names
    tree             rest_for_one: /fleet, /jobs, /nodes
    door             gRPC and HTTP on one port: opened last, closed first

A controller installs no signal handlers and prints nothing; several live in one process. What ends it from the inside
(the journal's disk, a bug) is raised out of its ``async with`` block by name.

Workers dial the controller, so their pods know its port. A port of 0 takes a free one the first time and, if it still
is free, the same one after a restart: then pods that lived on find their way back.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import socket
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio
import anyio.to_thread

from iriscw.cloud.drivers.loading import CloudDrivers
from iriscw.cloud.model import CloudError
from iriscw.config.advice import advice
from iriscw.config.model import ClusterConfig, Durability, PlatformKind
from iriscw.controller import local, logging as reports, settings
from iriscw.controller.archive import RESULTS, Archive, folders
from iriscw.controller.cloud import CloudBinding
from iriscw.controller.doors.access import Access
from iriscw.controller.doors.agents import AgentDoor
from iriscw.controller.doors.clients import ClientDoor
from iriscw.controller.doors.commands import CommandsDoor
from iriscw.controller.doors.freezing import NodesDoor
from iriscw.controller.doors.http import ControllerStatistics, routes
from iriscw.controller.doors.overview import ClusterFacts, Overview
from iriscw.controller.doors.workers import WorkerDoor, WorkerSettings
from iriscw.controller.errors import OwnershipUnclear, StateUnusable
from iriscw.controller.events import EventHub
from iriscw.controller.granted_attempts import HeldAttempts
from iriscw.controller.local_leftovers import Lives, workers_of
from iriscw.controller.logs import LogLimits, LogStore
from iriscw.controller.mounted_secrets import METRICS_TOKEN, GivenSecrets, read_secrets
from iriscw.controller.moving import Moves
from iriscw.controller.ordered_exit import uncut
from iriscw.controller.payloads import Payloads
from iriscw.controller.plugin import open_plugin
from iriscw.controller.replica_store import open_vault
from iriscw.controller.results import LARGE_BYTES, ResultStore
from iriscw.controller.stores import Stores
from iriscw.controller.suspension_figures import Phases
from iriscw.controller.tokens import ControllerTokens, keep_token
from iriscw.controller.unregistered import Unregistered
from iriscw.controller.upkeep import Tending
from iriscw.controller.waiting import Reasons
from iriscw.errors import InvalidArgument
from iriscw.files import make_private_folder, write_atomic
from iriscw.fleet.actor import FLEET_CAPACITY, fleet_behavior
from iriscw.fleet.model import FleetConfig
from iriscw.fleet.policy import Policy, default_policy
from iriscw.inspection.doors import InspectionDoor
from iriscw.jobs.actor import jobs_child
from iriscw.jobs.registry import RegistryLimits
from iriscw.journal.replica import Replica
from iriscw.journal.sqlite import SqliteJournal
from iriscw.nodes.actor import nodes_child
from iriscw.rpc.address import Address
from iriscw.rpc.errors import InsecureDoor
from iriscw.rpc.listening import require_asyncio
from iriscw.rpc.server import RpcServer
from iriscw.rpc.tokens import Role, Secret
from iriscw.runtime import ActorSystem, Behavior, ChildSpec, Strategy, Supervision
from iriscw.runtime.vocabulary import SECOND
from iriscw.tiers.drivers.checking import NEW_KEY_S, check_store
from iriscw.tiers.drivers.opening import StoreFactory, opener
from iriscw.tiers.ports import ObjectStore

if TYPE_CHECKING:
    from iriscw.controller.agent_proofs import AgentProofs
    from iriscw.controller.notices import PoolNotices

log = logging.getLogger(__name__)

BUNDLE_PREFIX = "bundles"
"""Of the keys of bundles within the object store."""

JOURNAL_PREFIX = "journal/"
"""Of the keys of the journal's second copy."""

DRAIN_GRACE_S = 1.0
"""What calls under way have to finish when the controller stops; streams never finish by themselves."""


class Controller:
    """One controller: an async context manager.

    Args:
        config: the cluster's configuration.
        state_dir: where journal, logs, results and secrets lie. Default: what the configuration says.
        drivers: of the cloud. Default: the platform that the configuration names.
        host: to listen on. Default: the configuration's, or all interfaces where it names none.
        port: to listen on; 0 takes a free one. Default: the configuration's.
        bundle_prefix: the object store for bundles, as an URL. Default: the configuration's, or beside the journal.
        limits: how many jobs and tasks are taken and kept.
        log_limits: how much of logs is kept.
        insecure_plaintext: listen without TLS off loopback: the network is trusted.
        policy: says how many slices each scale group should have; called inside decisions, so it must be quick.
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        state_dir: Path | None = None,
        drivers: CloudDrivers | None = None,
        host: str | None = None,
        port: int | None = None,
        bundle_prefix: str | None = None,
        limits: RegistryLimits | None = None,
        log_limits: LogLimits | None = None,
        insecure_plaintext: bool = False,
        policy: Policy = default_policy,
    ) -> None:
        self.config = config
        self.state_dir = (state_dir if state_dir is not None else default_state_dir(config)).absolute()
        self._given_drivers = drivers
        chosen = config.controller.local.host if config.controller.local is not None else "0.0.0.0"  # noqa: S104
        self._host = host if host is not None else chosen
        self._port = port if port is not None else config.controller.port
        self._bundle_prefix = bundle_prefix or config.controller.bundle_prefix
        self._open_store = opener(settings.store_variables(config))
        self._limits = limits or RegistryLimits()
        self._log_limits = log_limits
        there = config.controller.coreweave
        self._insecure_plaintext = insecure_plaintext or (there is not None and there.insecure_plaintext)
        self._policy = policy
        self._stack: AsyncExitStack | None = None
        self._address: Address | None = None
        self._admin_token: Secret | None = None
        self._given: GivenSecrets | None = None
        self._fence: Callable[[], None] = lambda: None
        self._replica: Replica | None = None
        self._notices: PoolNotices | None = None
        self._proofs: AgentProofs | None = None
        self._lives: Lives | None = None
        self._phases = Phases()

    @property
    def _tls(self) -> ssl.SSLContext | None:
        return self._given.tls if self._given is not None else None

    @property
    def address(self) -> Address:
        """Where clients and workers find it.

        Raises:
            InvalidArgument: it does not run.
        """
        if self._address is None:
            raise InvalidArgument("the controller does not run")
        return self._address

    @property
    def trusted(self) -> Path | None:
        """The certificate by which a client knows its door, where that is one with TLS."""
        return self._given.trusted if self._given is not None else None

    @property
    def admin_token(self) -> Secret:
        """What clients authenticate with.

        Raises:
            InvalidArgument: it does not run.
        """
        if self._admin_token is None:
            raise InvalidArgument("the controller does not run")
        return self._admin_token

    @property
    def secrets_dir(self) -> Path:
        """Where the token lies that clients authenticate with, in the file ``admin-token``."""
        return Path(self.config.controller.secrets_dir) if self._given is not None else self.state_dir / "secrets"

    def statistics(self) -> ControllerStatistics:
        """Return its figures, without asking any actor.

        Raises:
            InvalidArgument: it does not run.
        """
        if self._address is None:
            raise InvalidArgument("the controller does not run")
        return self._read_statistics()

    def _read_statistics(self) -> ControllerStatistics:
        return ControllerStatistics(
            runtime=self.system.statistics(),
            journal=self._journal.statistics(),
            rpc=self._server.statistics(),
            logs=self._logs.statistics(),
            results=self._results.statistics(),
            workers_connected=len(self._workers.switchboard),
            agents_connected=len(self._agents.board),
            agents_refused=self._agents.refused,
            token_reviews=None if self._proofs is None else dict(self._proofs.counts),
            job_changes=dict(self._hub.job_changes),
            task_changes=dict(self._hub.task_changes),
            degraded=self._overview.degraded(),
            fleet=self._tending.fleet,
            scheduler=self._tending.scheduler,
            orders_open=self._tending.orders_open,
            admission=self._workers.gate.statistics(),
            notices=None if self._notices is None else self._notices.statistics(),
            strangers=self._workers.intake.strangers,
            moves=dict(self._moves.ends),
            phases=self._phases.statistics(),
            commands=self._commands.statistics(),
        )

    async def __aenter__(self) -> Self:
        """Open everything; the controller serves when this returns.

        Raises:
            NeedsAsyncio: this is not a task of an asyncio loop.
            StateUnusable: the state folder cannot be used.
            CannotLead: there is no getting at the Lease of the cluster.
            LeadershipLost: also later, out of the block: another controller leads the cluster.
            JournalLocked: another controller uses it.
            JournalCorrupt: the journal's records do not fit together, or its second copy is incomplete.
            ReplicaUnreachable: the place of the journal's second copy does not answer.
            SecretsMissing, InvalidTls: the folder with secrets lacks some, or its certificate is no good.
            WorkdirLocked, WorkdirCorrupt: see the local platform.
            InvalidAccess, NoSuchNamespace, CloudError: see :func:`iriscw.controller.coreweave.open_coreweave`.
            NoSuchPlatform, AmbiguousPlatform, BrokenPlatform, InvalidSettings: of a package, see ``open_plugin``.
            InvalidStoreUrl, NoSuchStore: the bundle prefix is none.
            StoreAccessDenied, StoreUnreachable, ConditionsIgnored: an object store cannot be used.
            AddressInUse, AddressUnavailable, InsecureDoor: the door cannot be opened.
        """
        require_asyncio()
        with _unwrapped():
            async with AsyncExitStack() as stack:
                await self._open(stack)
                self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Close everything in order.

        Raises:
            JournalLost: the journal's disk failed, which ended the controller.
        """
        assert self._stack is not None
        self._address = None
        with _unwrapped():
            return await self._stack.__aexit__(kind, error, trace)

    async def _open(self, stack: AsyncExitStack) -> None:
        config, state = self.config, self.state_dir
        for each in advice(config):
            log.warning("the configuration: %s", each)
        tokens = await self._open_secrets()
        if self._given_drivers is None and config.platform.coreweave is not None:
            from iriscw.controller.leading import lead

            self._fence = await stack.enter_async_context(lead(config.platform.coreweave))
        self._journal = await self._open_journal(stack)
        stack.push_async_callback(uncut, self._journal.close)  # bounded by the disk: what was accepted is written
        self._logs = await LogStore.open(state / "logs", self._log_limits)
        url = self._bundle_prefix or _beside_journal(config, state)
        objects = await stack.enter_async_context(_object_store(url, self._open_store))
        self._results = await self._open_results(objects)
        await stack.enter_async_context(_beside(self._results.run))
        stores = Stores(self._logs, self._results, Payloads(objects, ""), objects, BUNDLE_PREFIX)
        held = HeldAttempts(state / "held")

        self._port = self._port or await anyio.to_thread.run_sync(_usual_port, state / "port", self._host)
        drivers, cluster = await self._open_platform(stack, tokens)
        fleet = settings.fleet_config(config, cluster)
        await _drop_stale(held, drivers)

        self._hub = EventHub(time.time_ns() // 1000, self._report)
        self._workers = WorkerDoor(self._worker_settings(fleet), stores, held=held, tokens=tokens)
        access = Access(self._logs)
        self._overview = Overview(access, self._facts(fleet), self._workers.switchboard, self._journal)
        images = settings.has_task_images(self.config)
        pythons = settings.pythons(config, fleet, started_here=self._given_drivers is None)
        self._agents = AgentDoor(config.name)
        nodes = NodesDoor(access, self._hub, self._workers.switchboard, tokens, self._agents.board)
        self._commands = CommandsDoor(access, self._workers.switchboard, drivers)
        reasons = Reasons(access, self._hub)
        clients = ClientDoor(
            access,
            stores,
            hub=self._hub,
            overview=self._overview,
            nodes=nodes,
            commands=self._commands,
            reasons=reasons,
            images=images,
            pythons=pythons,
            switchboard=self._workers.switchboard,
        )
        self._lives = self._lives_of(drivers, access)
        dropped = self._lives.ring if self._lives is not None else lambda: None
        self._moves = Moves(access, self._hub, self._workers.switchboard, dropped)
        finished = self._limits.finished
        self._tending = Tending(access, self._overview, self._logs, self._results, finished, self._still_writes)
        self.system = access.system = self._workers.system = self._agents.system = self._tree(fleet, drivers)
        await stack.enter_async_context(self.system)
        await stack.enter_async_context(_beside(self._tending.run))
        await stack.enter_async_context(_beside(reasons.run))
        waits_s = min((group.timing.init_timeout for group in fleet.groups), default=SECOND) / SECOND
        missed = Unregistered(access, self._workers.switchboard, drivers, lambda: self._tending.fleet, waits_s)
        await stack.enter_async_context(_beside(missed.run))
        if self._lives is not None:
            await stack.enter_async_context(_beside(self._lives.run))
        await self._open_door(stack, clients, tokens)

    async def _open_journal(self, stack: AsyncExitStack) -> SqliteJournal:
        folder, controller = self.state_dir / "journal", self.config.controller
        if controller.durability is Durability.REPLICATED and controller.replica_prefix:
            vaults = contextlib.ExitStack()
            opening = open_vault(controller.replica_prefix, self._open_store, JOURNAL_PREFIX)
            vault = await anyio.to_thread.run_sync(vaults.enter_context, opening)
            stack.push_async_callback(uncut, vaults.close)
            self._replica = Replica(vault, f"{socket.gethostname()} {uuid.uuid4()}")
        return await anyio.to_thread.run_sync(functools.partial(SqliteJournal.open, folder, replica=self._replica))

    async def _open_results(self, objects: ObjectStore) -> ResultStore:
        """Open the store of results: with the journal's second copy all of them go to the object store, too."""
        folder = self.state_dir / "results"
        if self._replica is None and not self._bundle_prefix:
            return await ResultStore.open(folder)
        journal = "" if self._replica is None else self._replica.head.journal
        archive = Archive(objects, await anyio.to_thread.run_sync(folders, self.state_dir, RESULTS, journal))
        return await ResultStore.open(folder, archive, archive_from_bytes=LARGE_BYTES if self._replica is None else 0)

    async def _still_writes(self) -> None:
        """Make sure that nobody else has taken the journal over up to now.

        Raises:
            LeadershipLost: another controller leads the cluster.
            OwnershipUnclear: see there.
            ReplicaUnreachable: the place of the journal's second copy does not answer.
        """
        self._fence()
        replica = self._replica
        if replica is not None and not await anyio.to_thread.run_sync(replica.still_writes):
            raise OwnershipUnclear(f"it cannot be told who writes the journal in {replica.vault.where} just now")

    async def _open_secrets(self) -> ControllerTokens:
        folder = self.state_dir / "secrets"
        try:
            await anyio.to_thread.run_sync(make_private_folder, folder)
        except OSError as error:
            raise StateUnusable(f"{folder}: {error.strerror or error}") from error
        if self.config.controller.secrets_dir:
            self._given = await anyio.to_thread.run_sync(read_secrets, Path(self.config.controller.secrets_dir))
        if self._given is not None:
            self._admin_token = self._given.admin_token
            return ControllerTokens(self._given.cluster_secret, [self._admin_token], self._given.metrics_token)
        secret = await anyio.to_thread.run_sync(keep_token, folder / "cluster-secret")
        self._admin_token = await anyio.to_thread.run_sync(keep_token, folder / "admin-token")
        metrics = await anyio.to_thread.run_sync(keep_token, folder / METRICS_TOKEN)
        return ControllerTokens(secret, [self._admin_token], metrics)

    async def _open_platform(self, stack: AsyncExitStack, tokens: ControllerTokens) -> tuple[CloudDrivers, str]:
        """Open the drivers; give them, and the word by which they know whose a machine is."""
        config = self.config
        if self._given_drivers is not None:
            return self._given_drivers, config.name
        if config.platform.kind is PlatformKind.LOCAL:
            address = config.defaults.bootstrap.controller_address or f"{_dialled(self._host)}:{self._port}"
            options = local.local_options(config, self.state_dir, address)
            containers = local.task_containers(config, os.environ)
            opened = local.open_local(options, tokens, self.state_dir / "secrets" / "workers", containers)
            return await stack.enter_async_context(opened), config.name
        if config.platform.kind is PlatformKind.PLUGIN:
            address = config.defaults.bootstrap.controller_address or f"{_dialled(self._host)}:{self._port}"
            plugged = open_plugin(config, tokens, self.state_dir / "platform", address)
            return await stack.enter_async_context(plugged), config.name
        from iriscw.controller.coreweave import open_coreweave  # its libraries are for those who use it

        tls, plaintext = self._tls is not None, self._insecure_plaintext
        there = open_coreweave(config, tokens, self.state_dir, tls=tls, plaintext=plaintext, fence=self._fence)
        drivers = await stack.enter_async_context(there)
        self._notices, self._proofs = drivers.notices, drivers.proofs
        return drivers, drivers.cluster

    def _lives_of(self, drivers: CloudDrivers, access: Access) -> Lives | None:
        """Return who removes what workers left, where they are processes of this machine."""
        if self._given_drivers is not None or self.config.platform.kind is not PlatformKind.LOCAL:
            return None
        return Lives(local.cache_dir(self.config, self.state_dir), drivers, access, self._logs)

    def _tree(self, fleet: FleetConfig, drivers: CloudDrivers) -> ActorSystem:
        binding = CloudBinding(drivers)
        behavior = fleet_behavior(fleet, policy=self._policy, effects=binding.effects(), sessions=binding.sessions())
        root = Behavior(
            children=(
                ChildSpec("fleet", behavior, capacity=FLEET_CAPACITY),
                jobs_child(self._workers, self._logs, settings.jobs_config(self.config, self._limits), self._moves),
                nodes_child(self._agents),  # last: nobody is restarted with it
            ),
            supervision=Supervision(strategy=Strategy.REST_FOR_ONE),
            name="controller",
        )
        return ActorSystem(root, name=self.config.name, journal=self._journal, on_event=self._hub.publish)

    def _worker_settings(self, fleet: FleetConfig) -> WorkerSettings:
        return WorkerSettings(
            cluster=self.config.name,
            groups={group.name: group for group in fleet.groups},
            task_environment=settings.task_environment(self.config),
            heartbeats=settings.heartbeats(self.config),
            lease_ms=settings.lease_ms(self.config),
        )

    def _facts(self, fleet: FleetConfig) -> ClusterFacts:
        return ClusterFacts(
            name=self.config.name,
            platform=self.config.platform.name,
            durability=self.config.controller.durability.value,
            started_wall_ns=time.time_ns(),
            groups={group.name: group for group in fleet.groups},
        )

    async def _open_door(self, stack: AsyncExitStack, clients: ClientDoor, tokens: ControllerTokens) -> None:
        self._server = RpcServer(
            [clients, self._workers, self._agents, InspectionDoor(lambda: self.system, Role.ADMIN, Role.LOCAL)],
            authenticate=tokens.authenticate,
            prove=None if self._proofs is None else self._proofs.prove,
            routes=routes(self._read_statistics),
            tls=self._tls,
            insecure_plaintext=self._insecure_plaintext,
        )
        await stack.enter_async_context(self._server)
        stack.push_async_callback(self._server.drain, DRAIN_GRACE_S)
        try:
            self._address = await self._server.listen_tcp(self._host, self._port)
        except InsecureDoor as error:
            keys = "tls.crt and tls.key belong into controller.secrets_dir"
            raise InsecureDoor(f"{error} ({keys}; --insecure-plaintext on the command line)") from None

    def _report(self, event: object) -> None:
        reports.report(event)
        self._tending.notice(event)
        self._phases.notice(event)
        if self._lives is not None:
            self._lives.notice(event)
        if self._notices is not None:
            self._notices.notice(event)


def default_state_dir(config: ClusterConfig) -> Path:
    """Return the folder of a controller's state, as the configuration says it."""
    platform = config.platform.local
    if platform is not None:
        return Path(platform.workdir) / "controller"
    return Path(config.controller.journal_dir).parent


def _beside_journal(config: ClusterConfig, state: Path) -> str:
    """Return where bundles and run documents are if nobody says it: where they live as long as the jobs do."""
    controller = config.controller
    replicated = controller.durability is Durability.REPLICATED and controller.replica_prefix
    return f"{controller.replica_prefix.rstrip('/')}/objects" if replicated else f"file://{state}/objects"


def _dialled(host: str) -> str:
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1"}.get(host, host)  # noqa: S104 - where it listens, not a bind


def _usual_port(path: Path, host: str) -> int:
    """Return the port of last time if it is free, else any free one, and write it down."""
    try:
        usual = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        usual = 0
    for port in (usual, 0):
        with contextlib.suppress(OSError), socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind((_dialled(host), port))
            chosen: int = trial.getsockname()[1]
            break
    else:
        raise StateUnusable(f"no port is free on {host}")
    if chosen != usual:  # a full disk does not keep a controller from starting where it was
        try:
            write_atomic(path, f"{chosen}\n".encode())
        except OSError as error:
            raise StateUnusable(f"{path}: {error.strerror or error}") from error
    return chosen


@contextlib.asynccontextmanager
async def _beside(function: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run a function for as long as the block lasts."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(function)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()


async def _drop_stale(held: HeldAttempts, drivers: CloudDrivers) -> None:
    """Remove the records of workers whose pods are gone, before anything runs that could need them."""
    try:
        pods = await drivers.pods.list({})
    except CloudError as error:
        log.warning("records of earlier workers stay: %s: %s", type(error).__name__, error)
        return
    await held.retain(workers_of(pods))


@contextlib.asynccontextmanager
async def _object_store(url: str, open_store: StoreFactory) -> AsyncIterator[ObjectStore]:
    if url.startswith("file:///"):
        await anyio.to_thread.run_sync(make_private_folder, Path(url.removeprefix("file://")))
    store = open_store(url)
    try:
        await check_store(store, patience_s=NEW_KEY_S)
        yield store
    finally:
        with anyio.CancelScope(shield=True):
            await store.aclose()


@contextlib.contextmanager
def _unwrapped() -> Iterator[None]:
    """Raise the one error inside task groups' wrapping by itself; a group of several stays one."""
    try:
        yield
    except BaseExceptionGroup as group:
        sole: BaseException = group
        while isinstance(sole, BaseExceptionGroup) and len(sole.exceptions) == 1:
            sole = sole.exceptions[0]
        if sole is group:
            raise
        raise sole from sole.__cause__


__all__ = ["Controller", "ControllerStatistics", "default_state_dir"]
