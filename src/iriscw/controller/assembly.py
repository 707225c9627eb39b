"""The controller: its tree, its stores and its doors, put together.

What is opened, in this order, and closed in the reverse one::

    state folder     secrets (0600), the port of last time
    lease            on a Kubernetes cluster: waited for, and the controller ends when it is lost
    journal          fenced: a second controller on the same folder fails with JournalLocked; one that opens its
                     second copy elsewhere ends this one
    stores           logs, results, bundles and run documents
    platform         the drivers, by argument, or those of the platform that the configuration names
    features         each gives its children, services, figures and tasks (:mod:`iriscw.controller.feature`)
    tree             rest_for_one, in the order of the features: /fleet, /jobs, /nodes, those of installed packages
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
import socket
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio
import anyio.to_thread

from iriscw.cloud.drivers.loading import CloudDrivers
from iriscw.config.advice import advice
from iriscw.config.model import ClusterConfig, Durability
from iriscw.controller import logging as reports, settings
from iriscw.controller.archive import RESULTS, Archive, folders
from iriscw.controller.doors.access import Access
from iriscw.controller.doors.http import ControllerStatistics, own_figures, routes
from iriscw.controller.doors.overview import degraded
from iriscw.controller.doors.streams import Switchboard
from iriscw.controller.errors import OwnershipUnclear, StateUnusable
from iriscw.controller.events import EventHub
from iriscw.controller.feature import Feature, FeatureContext
from iriscw.controller.features.builtin import builtin_features
from iriscw.controller.features.opening import OpenFeatures
from iriscw.controller.installed import installed_features
from iriscw.controller.logs import LogLimits, LogStore
from iriscw.controller.mounted_secrets import METRICS_TOKEN, GivenSecrets, read_secrets
from iriscw.controller.ordered_exit import uncut
from iriscw.controller.payloads import Payloads
from iriscw.controller.platforms import OpenPlatform, open_platform
from iriscw.controller.replica_store import open_vault
from iriscw.controller.results import LARGE_BYTES, ResultStore
from iriscw.controller.stores import Stores
from iriscw.controller.tokens import ControllerTokens, keep_token
from iriscw.controller.usual_port import dialled, usual_port
from iriscw.errors import InvalidArgument
from iriscw.files import make_private_folder
from iriscw.fleet.policy import Policy, default_policy
from iriscw.jobs.registry import RegistryLimits
from iriscw.journal.replica import Replica
from iriscw.journal.sqlite import SqliteJournal
from iriscw.rpc.address import Address
from iriscw.rpc.errors import InsecureDoor
from iriscw.rpc.listening import require_asyncio
from iriscw.rpc.server import RpcServer
from iriscw.rpc.tokens import Secret
from iriscw.runtime import ActorSystem, Behavior, Strategy, Supervision
from iriscw.tiers.drivers.checking import NEW_KEY_S, check_store
from iriscw.tiers.drivers.opening import StoreFactory, opener
from iriscw.tiers.ports import ObjectStore

if TYPE_CHECKING:
    from iriscw.controller.doors.figures import Family

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
        features: what it has beside what every controller has. Default: the features of installed packages.
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
        features: Sequence[Feature] | None = None,
    ) -> None:
        self.config = config
        self.state_dir = (state_dir if state_dir is not None else default_state_dir(config)).absolute()
        self._given_drivers = drivers
        chosen = config.controller.local.host if config.controller.local is not None else "0.0.0.0"  # noqa: S104
        self._host = host if host is not None else chosen
        self._port = port if port is not None else config.controller.port
        self._bundle_prefix = bundle_prefix or config.controller.bundle_prefix
        self._open_store = opener(settings.store_variables(config))
        self._log_limits = log_limits
        there = config.controller.coreweave
        self._insecure_plaintext = insecure_plaintext or (there is not None and there.insecure_plaintext)
        self._builtin = builtin_features(policy, limits or RegistryLimits(), self._still_writes)
        self._features = features
        self._stack: AsyncExitStack | None = None
        self._address: Address | None = None
        self._admin_token: Secret | None = None
        self._given: GivenSecrets | None = None
        self._fence: Callable[[], None] = lambda: None
        self._replica: Replica | None = None

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
        return ControllerStatistics(
            runtime=self.system.statistics(),
            journal=self._journal.statistics(),
            rpc=self._server.statistics(),
            degraded=degraded(self._journal),
            **self.features.statistics(),
        )

    def _figures(self) -> Iterator[Family]:
        rpc, journal = self._server.statistics(), self._journal.statistics()
        yield from own_figures(self.system.statistics(), journal, rpc, degraded(self._journal))
        yield from self.features.figures()

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
            AmbiguousFeature, BrokenFeature: of an installed package, see ``installed_features``.
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
        logs = await LogStore.open(state / "logs", self._log_limits)
        url = self._bundle_prefix or _beside_journal(config, state)
        objects = await stack.enter_async_context(_object_store(url, self._open_store))
        results = await self._open_results(objects)
        await stack.enter_async_context(_beside(results.run))

        self._port = self._port or await anyio.to_thread.run_sync(usual_port, state / "port", self._host)
        platform = await stack.enter_async_context(self._open_platform(tokens))
        access, self._hub = Access(logs), EventHub(time.time_ns() // 1000, self._report)
        context = FeatureContext(
            config=config,
            state_dir=state,
            access=access,
            hub=self._hub,
            tokens=tokens,
            stores=Stores(logs, results, Payloads(objects, ""), objects, BUNDLE_PREFIX),
            workers=Switchboard(),
            platform=platform,
            fleet=settings.fleet_config(config, platform.cluster),
            journal=self._journal,
        )
        self.features = OpenFeatures.open(self._builtin, await self._guests(), context)
        await self.features.prepare()
        self.system = self._tree(access)
        await stack.enter_async_context(self.system)
        for function in self.features.background():
            await stack.enter_async_context(_beside(function))
        await self._open_door(stack, tokens, platform)

    async def _guests(self) -> Sequence[Feature]:
        if self._features is not None:
            return self._features
        found = await anyio.to_thread.run_sync(lambda: [*installed_features()])
        for feature in found:
            log.info("the feature %s of an installed package is opened", feature.name)
        return found

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

    def _open_platform(self, tokens: ControllerTokens) -> AbstractAsyncContextManager[OpenPlatform]:
        return open_platform(
            self.config,
            self._given_drivers,
            tokens=tokens,
            state_dir=self.state_dir,
            dialled=f"{dialled(self._host)}:{self._port}",
            tls=self._tls is not None,
            plaintext=self._insecure_plaintext,
            fence=self._fence,
        )

    def _tree(self, access: Access) -> ActorSystem:
        children = self.features.children()
        root = Behavior(children=children, supervision=Supervision(strategy=Strategy.REST_FOR_ONE), name="controller")
        access.stands(children)
        access.system = ActorSystem(root, name=self.config.name, journal=self._journal, on_event=self._hub.publish)
        return access.system

    async def _open_door(self, stack: AsyncExitStack, tokens: ControllerTokens, platform: OpenPlatform) -> None:
        self._server = RpcServer(
            self.features.services(),
            authenticate=tokens.authenticate,
            prove=None if platform.proofs is None else platform.proofs.prove,
            routes={**self.features.routes(), **routes(lambda: degraded(self._journal), self._figures)},
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
        self.features.notice(event)


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


@contextlib.asynccontextmanager
async def _beside(function: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run a function for as long as the block lasts."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(function)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()


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
