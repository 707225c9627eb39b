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
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio
import anyio.to_thread

from iriscw._errors import InvalidArgument
from iriscw.cloud.drivers.loading import CloudDrivers
from iriscw.config.advice import advice
from iriscw.config.model import ClusterConfig
from iriscw.controller import logging as reports, settings
from iriscw.controller.doors.access import Access
from iriscw.controller.doors.http import ControllerStatistics, own_figures, routes
from iriscw.controller.doors.overview import degraded
from iriscw.controller.doors.streams import Switchboard
from iriscw.controller.events import EventHub
from iriscw.controller.feature import Feature, FeatureContext
from iriscw.controller.features.builtin import builtin_features
from iriscw.controller.features.opening import OpenFeatures
from iriscw.controller.installed import installed_features
from iriscw.controller.kept_secrets import KeptSecrets, open_secrets
from iriscw.controller.kept_state import open_state
from iriscw.controller.platforms.opening import OpenPlatform, open_platform
from iriscw.controller.stores.logs import LogLimits
from iriscw.controller.usual_port import dialled, usual_port
from iriscw.fleet.policy import Policy, RoutingPolicy, default_policy, default_routing
from iriscw.jobs.registry import RegistryLimits
from iriscw.rpc.address import Address
from iriscw.rpc.errors import InsecureDoor
from iriscw.rpc.listening import require_asyncio
from iriscw.rpc.server import RpcServer
from iriscw.rpc.tokens import Secret
from iriscw.runtime import ActorSystem, Behavior, Strategy, Supervision

if TYPE_CHECKING:
    from iriscw.controller.doors.figures import Family

log = logging.getLogger(__name__)

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
        routing: says which groups demand may go to, in which order; likewise.
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
        routing: RoutingPolicy = default_routing,
        features: Sequence[Feature] | None = None,
    ) -> None:
        self.config = config
        self.state_dir = (state_dir if state_dir is not None else default_state_dir(config)).absolute()
        self._given_drivers = drivers
        chosen = config.controller.local.host if config.controller.local is not None else "0.0.0.0"  # noqa: S104
        self._host = host if host is not None else chosen
        self._port = port if port is not None else config.controller.port
        self._bundle_prefix = bundle_prefix or config.controller.bundle_prefix
        self._log_limits = log_limits
        there = config.controller.coreweave
        self._insecure_plaintext = insecure_plaintext or (there is not None and there.insecure_plaintext)
        self._builtin = builtin_features(policy, routing, limits or RegistryLimits(), self._require_writer)
        self._features = features
        self._stack: AsyncExitStack | None = None
        self._address: Address | None = None
        self._secrets: KeptSecrets | None = None
        self._fence: Callable[[], None] = lambda: None

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
        given = None if self._secrets is None else self._secrets.given
        return None if given is None else given.trusted

    @property
    def admin_token(self) -> Secret:
        """What clients authenticate with.

        Raises:
            InvalidArgument: it does not run.
        """
        if self._secrets is None:
            raise InvalidArgument("the controller does not run")
        return self._secrets.admin_token

    @property
    def secrets_dir(self) -> Path:
        """Where the token lies that clients authenticate with, in the file ``admin-token``."""
        return (
            Path(self.config.controller.secrets_dir)
            if self._secrets is not None and self._secrets.given
            else self.state_dir / "secrets"
        )

    def statistics(self) -> ControllerStatistics:
        """Return its figures, without asking any actor.

        Raises:
            InvalidArgument: it does not run.
        """
        if self._address is None:
            raise InvalidArgument("the controller does not run")
        return ControllerStatistics(
            runtime=self.system.statistics(),
            journal=self._state.journal.statistics(),
            rpc=self._server.statistics(),
            degraded=degraded(self._state.journal),
            **self.features.statistics(),
        )

    def _figures(self) -> Iterator[Family]:
        rpc, journal = self._server.statistics(), self._state.journal.statistics()
        yield from own_figures(self.system.statistics(), journal, rpc, degraded(self._state.journal))
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
            InvalidAccess, NoSuchNamespace, CloudError: see ``open_coreweave``.
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
        secrets = self._secrets = await open_secrets(config, state)
        if self._given_drivers is None and config.platform.coreweave is not None:
            from iriscw.controller.platforms.leading import lead

            self._fence = await stack.enter_async_context(lead(config.platform.coreweave))
        self._state = await open_state(stack, config, state, self._bundle_prefix, self._log_limits)
        stores = self._state.stores
        await stack.enter_async_context(_beside(stores.results.run))

        self._port = self._port or await anyio.to_thread.run_sync(usual_port, state / "port", self._host)
        platform = await stack.enter_async_context(self._open_platform(secrets))
        access, self._hub = Access(stores.logs), EventHub(time.time_ns() // 1000, self._report)
        context = FeatureContext(
            config=config,
            state_dir=state,
            access=access,
            hub=self._hub,
            tokens=secrets.tokens,
            stores=stores,
            workers=Switchboard(),
            platform=platform,
            fleet=settings.fleet_config(config, platform.cluster),
            journal=self._state.journal,
        )
        self.features = OpenFeatures.open(self._builtin, await self._guests(), context)
        await self.features.prepare()
        self.system = self._tree(access)
        await stack.enter_async_context(self.system)
        for function in self.features.background():
            await stack.enter_async_context(_beside(function))
        await self._open_door(stack, secrets, platform)

    async def _guests(self) -> Sequence[Feature]:
        if self._features is not None:
            return self._features
        found = await anyio.to_thread.run_sync(lambda: [*installed_features()])
        for feature in found:
            log.info("the feature %s of an installed package is opened", feature.name)
        return found

    async def _require_writer(self) -> None:
        """Make sure that no other controller leads the cluster, or has taken the journal over, up to now.

        Raises:
            LeadershipLost: another controller leads the cluster.
            OwnershipUnclear, ReplicaUnreachable: see :meth:`~iriscw.controller.kept_state.KeptState.require_writer`.
        """
        self._fence()
        await self._state.require_writer()

    def _open_platform(self, secrets: KeptSecrets) -> AbstractAsyncContextManager[OpenPlatform]:
        return open_platform(
            self.config,
            self._given_drivers,
            tokens=secrets.tokens,
            state_dir=self.state_dir,
            dialled=f"{dialled(self._host)}:{self._port}",
            tls=secrets.tls is not None,
            plaintext=self._insecure_plaintext,
            fence=self._fence,
        )

    def _tree(self, access: Access) -> ActorSystem:
        children = self.features.children()
        root = Behavior(children=children, supervision=Supervision(strategy=Strategy.REST_FOR_ONE), name="controller")
        access.stands(children)
        access.system = ActorSystem(
            root, name=self.config.name, journal=self._state.journal, on_event=self._hub.publish
        )
        return access.system

    async def _open_door(self, stack: AsyncExitStack, secrets: KeptSecrets, platform: OpenPlatform) -> None:
        self._server = RpcServer(
            self.features.services(),
            authenticate=secrets.tokens.authenticate,
            prove=None if platform.proofs is None else platform.proofs.prove,
            routes=self.features.routes(routes(lambda: degraded(self._state.journal), self._figures)),
            tls=secrets.tls,
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


@contextlib.asynccontextmanager
async def _beside(function: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run a function for as long as the block lasts."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(function)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()


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
