"""The node agent, put together: one journal, one tree with an actor for each operation, one door on a unix socket.

::

    async with Agent(settings, machine) as agent: ...

    <state>/agent/journal/       all operations; who writes it is the agent of this state
    <state>/agent/places.json    folders of callers with checkpoints in them
    <state>/agent/usage.json     how often checkpoints were thawed, for the tiering policy
    <state>/checkpoints/         the tier on disk, the same as that of commands without a daemon

An operation whose agent dies is taken up by the next agent of the same state, which finishes or undoes it by the tables
of :mod:`iriscw.freeze`. An agent that is told to end undoes what runs, within ``stop_patience_s``; what is not undone
by then is left to the next one.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
import anyio.to_thread
import attrs
from attrs import validators

from iriscw._errors import (
    ActorStopped,
    InvalidArgument,
    IriscwError,
    JournalLocked,
    JournalUnavailable,
    MailboxFull,
    SystemClosed,
)
from iriscw.agent.balancing import Balancer, Balancing
from iriscw.agent.caller_folders import PREFIX, Places, tier_of
from iriscw.agent.claims import TargetBusy, claim
from iriscw.agent.container_operations import Boxes
from iriscw.agent.containers import RUNTIME_ROOTS
from iriscw.agent.doors.figures import AgentFigures
from iriscw.agent.doors.node import NodeDoor
from iriscw.agent.doors.shim import ShimDoor
from iriscw.agent.errors import (
    AgentRunning,
    AgentStopping,
    ArtifactAmbiguous,
    OperationUnknown,
    PathNotAllowed,
    TooManyOperations,
    UnsafeStateFolder,
)
from iriscw.agent.local import Machine
from iriscw.agent.operation_views import Board, Made, RunningOperation
from iriscw.agent.operations import (
    OPERATIONS,
    BeginOperation,
    Claim,
    CleanUp,
    GiveUpAll,
    OperationAside,
    OperationClosed,
    OperationKind,
    OperationOver,
    Operations,
    StopOperation,
    taken_up,
)
from iriscw.agent.order import Order
from iriscw.agent.paths import Root, folder_below
from iriscw.agent.recovery import known_of, left_in
from iriscw.agent.retaining import Retainer
from iriscw.agent.state import check_state, own_folder, usable
from iriscw.agent.tree import Effects, tree
from iriscw.agent.uplink.binding import ControllerLink
from iriscw.agent.uplink.identity import next_life
from iriscw.agent.uplink.stream import Uplink
from iriscw.checkpoint.drivers.store import Folders
from iriscw.checkpoint.drivers.tiers import Tiers
from iriscw.checkpoint.model import ListedArtifact, TierUse
from iriscw.checkpoint.retention import RetentionPolicy
from iriscw.freeze.messages import OperationChanged, OperationEnded
from iriscw.freeze.model import ArtifactUnknown, Progress, UnsafeRequest
from iriscw.inspection.doors import InspectionDoor
from iriscw.journal.port import Journal
from iriscw.journal.sqlite import SqliteJournal
from iriscw.rpc.address import Address
from iriscw.rpc.http1 import Route
from iriscw.rpc.limits import RpcLimits
from iriscw.rpc.listening import named_errors
from iriscw.rpc.server import RpcServer
from iriscw.rpc.tokens import Role
from iriscw.runtime import ActorSystem, FailureReport

log = logging.getLogger(__name__)

DEFAULT_MAX_OPERATIONS = 16
"""At once: each has a CRIU, which reads or writes memory as fast as the machine can."""

SHIM_SOCKET = Path("/run/kybernate/shim.sock")
"""Where root's agent listens: the seeds' name, which the container runtime's side looks for."""

LOCK_PATIENCE_S = 3.0
"""What is waited for the journal of an agent that was killed: a program that it had just forked may still hold it."""

USAGE = "usage.json"
"""What is remembered of checkpoints, for the tiering policy."""

FIGURES_EVERY_S = 30.0
"""How often tiers are measured for the metrics, beside after each operation."""

_DAY_S = 86_400.0
_NEVER_BEGUN = (TooManyOperations, AgentStopping, TargetBusy, MailboxFull, SystemClosed, JournalUnavailable)
_REFUSED_BY_CLIENT = "its caller left"


def default_socket(environment: Mapping[str, str], state: Path) -> Path:
    """Say where an agent listens: for root where the seeds say, for a user where only that user gets."""
    if os.geteuid() == 0:
        return SHIM_SOCKET
    if environment.get("XDG_RUNTIME_DIR"):
        return Path(environment["XDG_RUNTIME_DIR"]).absolute() / "iriscw" / "agent.sock"
    return state / "agent" / "agent.sock"


@attrs.frozen(kw_only=True)
class AgentSettings:
    """All that an agent is told.

    ``roots`` are the folders below which callers may have checkpoints put (``destination_path``); none: nowhere.
    ``runtime_roots`` are where container runtimes keep their state. With a ``stop_patience_s`` of 0 what runs is left
    to the next agent as it is.
    """

    state: Path
    socket: Path
    roots: tuple[Root, ...] = ()
    runtime_roots: tuple[Path, ...] = RUNTIME_ROOTS
    max_operations: int = attrs.field(default=DEFAULT_MAX_OPERATIONS, validator=[validators.ge(1), validators.le(256)])
    stop_patience_s: float = attrs.field(default=20.0, validator=validators.ge(0))
    lock_patience_s: float = attrs.field(default=LOCK_PATIENCE_S, validator=validators.ge(0))
    uplink: Uplink | None = None
    """The controller to dial; None: nobody."""
    balancing: Balancing | None = None
    """How the tiers are balanced; None: nothing is moved that nobody asked for."""
    retention: RetentionPolicy | None = None
    """Which checkpoints of this machine are removed; None: none that nobody asked for."""


class Agent:
    """One node agent in this process: an async context manager. Installs no signal handlers, prints nothing.

    Args:
        settings: see there.
        machine: the ports of this machine.
    """

    def __init__(self, settings: AgentSettings, machine: Machine) -> None:
        self.settings = settings
        self._machine = machine
        self._figures = AgentFigures()
        self._board = Board(self._seen)
        usage = settings.state / "agent" / USAGE
        self.balancer = Balancer(
            settings.balancing, machine.tiers, self._board, self._figures, usage, begin=self.begin, stop=self.stop
        )
        self._retainer = Retainer(settings.retention, self, self._figures)
        self._link: ControllerLink | None = None
        self._claims: dict[str, ExitStack] = {}
        self._boxes = Boxes()
        self._adding = anyio.Lock()
        self._stack = AsyncExitStack()
        self._system: ActorSystem | None = None
        self._places: Places | None = None
        self._spoilt: set[str] = set()
        self._sources: dict[str, str] = {}
        """Places of callers that moves read from, by operation."""
        self.ending = False
        """Whether it was told to end: what it began itself it gives up, for the next agent to begin."""
        self._door: RpcServer | None = None

    # From start to stop

    @property
    def address(self) -> Address:
        """Where the agent listens.

        Raises:
            InvalidArgument: it does not run.
        """
        if self._door is None:
            raise InvalidArgument("the agent does not run")
        return self._door.address

    @property
    def board(self) -> Board:
        """What is known of operations."""
        return self._board

    @property
    def machine(self) -> Machine:
        """The ports, with the tiers of this machine and no place of a caller."""
        return self._machine

    async def tiers(self) -> Tiers:
        """Return the tiers, and the places of callers that can be used now: the others must not spoil them."""
        places, spoilt = await anyio.to_thread.run_sync(_sound, self._known_places().folders())
        for name, trouble in spoilt.items():
            if name not in self._spoilt:
                log.warning("a folder with checkpoints is passed over: %s", trouble)
        self._spoilt = {*spoilt}
        return Tiers({**self._machine.tiers.folders, **places}, self._machine.tiers.repository)

    def tiers_of(self, operation: str) -> Tiers:
        """Return what one operation works on: the tiers, and the one place that it writes to; or that it reads from.

        A move may do both.
        """
        kind, tier = OperationKind.FREEZE, ""
        try:
            view = self._board.view(operation)
            kind, tier = view.asked.kind, view.tier
        except OperationUnknown:
            log.debug("operation %s is shown no more", operation)
        places = self._known_places().folders()
        if kind is OperationKind.THAW and tier in places:  # and not a copy with the same id, wherever that lies
            return Tiers({tier: places[tier]})
        named = {each: places[each] for each in (self._sources.get(operation, ""), tier) if each in places}
        return Tiers({**self._machine.tiers.folders, **named}, self._machine.tiers.repository)

    async def __aenter__(self) -> Self:
        """Start: take up what an earlier agent left, then open the door.

        Raises:
            AgentRunning: another agent serves this state.
            UnsafeSocketFolder: the socket's folder is not ours alone.
            UnsafeStateFolder: somebody else could write to the state folder.
            StateUnusable, NoRoom: it cannot be made or entered.
            JournalCorrupt, UnsupportedJournal, OSError, ValueError: the state cannot be used.
            AddressInUse, AddressUnavailable, InvalidAddress: see ``RpcServer.listen_unix``.
        """
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Undo what runs, within the patience for that, then stop everything in reverse."""
        self.ending = True
        try:
            if self._system is not None and self._system.failure is None and self.settings.stop_patience_s:
                with anyio.CancelScope(shield=True), anyio.move_on_after(self.settings.stop_patience_s):
                    self._tell(GiveUpAll("the agent was told to end"))
                    await self._board.until_idle()
        finally:
            await self._stack.__aexit__(exc_type, exc, tb)

    async def _start(self, stack: AsyncExitStack) -> None:
        settings = self.settings
        folder = settings.state / "agent"
        with usable(settings.state):
            await anyio.to_thread.run_sync(check_state, settings.state)
            await anyio.to_thread.run_sync(lambda: own_folder(folder, UnsafeStateFolder))
        with named_errors(f"unix:{settings.socket}"):
            await anyio.to_thread.run_sync(own_folder, settings.socket.parent)
        journal = await self._open_journal(folder / "journal")
        stack.callback(journal.close)
        if self._machine.runtime is not None:
            await anyio.to_thread.run_sync(self._machine.runtime.forget_all)
        self._places = await anyio.to_thread.run_sync(Places, folder / "places.json")
        node = settings.uplink.node if settings.uplink is not None else socket.gethostname()
        identity = await anyio.to_thread.run_sync(next_life, folder / "identity.json", node)
        self._link = ControllerLink(self, settings.uplink, identity, self._figures.streamed)
        await self.balancer.remember()
        begins_with = await self._left_by_earlier(journal)
        stack.callback(self._give_all_back)
        root = tree(
            begins_with,
            self._effects_of,
            claim=self._claim,
            clean_up=self._clean_up,
            controller=self._link.child(),
        )
        self._system = await stack.enter_async_context(
            ActorSystem(root, name="agent", journal=journal, on_event=self._note, grace_s=60.0)
        )
        self._link.attach(self._system)
        limits = RpcLimits(unary_timeout_s=_DAY_S, stream_timeout_s=_DAY_S, max_connections=256)
        self._door = RpcServer(
            [NodeDoor(self), ShimDoor(self), InspectionDoor(lambda: self._system, Role.LOCAL)],
            authenticate=lambda token: None,
            routes={**self._figures.routes(), "/containers": Route(lambda: self._boxes.page(self._board.running()))},
            limits=limits,
        )
        door = await stack.enter_async_context(self._door)
        await door.listen_unix(settings.socket, uids=(os.geteuid(),))
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        tasks.start_soon(self._measure)
        tasks.start_soon(self.balancer.run)
        tasks.start_soon(self._retainer.run)
        tasks.start_soon(self._link.run)

    async def _open_journal(self, folder: Path) -> SqliteJournal:
        deadline = anyio.current_time() + self.settings.lock_patience_s
        while True:
            try:
                return await anyio.to_thread.run_sync(SqliteJournal.open, folder)
            except JournalLocked as error:
                if anyio.current_time() >= deadline:
                    raise AgentRunning(f"another agent serves {self.settings.state}: {error}") from error
            await anyio.sleep(0.05)  # a lock of the kernel's rings for nobody

    async def _left_by_earlier(self, journal: Journal) -> Operations:
        left = left_in(journal)
        for each in (*left.owed, *left.over):
            tier = each.tier or await self._tier_with(each.artifact)
            self._board.begin(each.asked, each.artifact, tier, owed=True)
            self._boxes.add(each.asked.operation, each.container)
            if each.source:
                self._sources[each.asked.operation] = each.source
            if each.ended is not None:
                self._board.ended(each.ended)
            log.info("operation %s, which an earlier agent left, is taken up", each.asked.operation)
        owed, over = ([each.asked for each in kind] for kind in (left.owed, left.over))
        return taken_up(self.settings.max_operations, owed, over)

    def _effects_of(self, operation: str) -> Effects:
        def report(progress: Progress) -> None:
            if self._system is not None:
                self._system.call_soon(self._board.progressed, operation, progress)  # from any thread

        return attrs.evolve(self._machine, tiers=self.tiers_of(operation)).effects(report)

    # What the tree asks for, and what it says

    async def _claim(self, effect: Claim) -> None:
        asked = effect.asked
        if asked.operation not in self._claims:
            with ExitStack() as stack:
                stack.enter_context(claim(asked.target))
                self._claims[asked.operation] = stack.pop_all()

    async def _clean_up(self, effect: CleanUp) -> None:
        """Look at the artifact, remove what lies beside it, and give the target back, whatever fails before."""
        operation = effect.operation
        try:
            try:
                view = self._board.view(operation)
                self._board.found(operation, await self.made(view.artifact, view.tier))
            except OperationUnknown:
                log.debug("operation %s is shown no more", operation)
            for place in self.tiers_of(operation).folders.values():
                try:
                    await anyio.to_thread.run_sync(place.tidy, operation)
                except (UnsafeRequest, OSError) as error:
                    log.warning("what operation %s left could not be removed: %s", operation, error)
            await self._settle(operation)
            await self._measure_once()
        finally:
            self._give_back(operation)

    async def _settle(self, operation: str) -> None:
        """Write down what became of an order: the records of its operation go after this."""
        assert self._link is not None
        try:
            view = self._board.view(operation)
        except OperationUnknown:
            return
        await self._link.settle(view)

    def _seen(self, before: RunningOperation, now: RunningOperation) -> None:
        self._figures.seen(before, now)
        self.balancer.seen(before, now)
        self._retainer.seen(before, now)
        if self._link is not None:
            self._link.seen(before, now)

    def _give_back(self, operation: str) -> None:
        held = self._claims.pop(operation, None)
        if held is not None:
            held.close()

    def _give_all_back(self) -> None:
        for operation in list(self._claims):
            self._give_back(operation)

    def _note(self, event: object) -> None:
        if self._link is not None:
            self._link.note(event)
        match event:
            case OperationChanged(operation=operation, phase=phase):
                self._board.entered(operation, phase.value)
            case OperationEnded(operation=operation, outcome=outcome, kind=kind):
                log.info("operation %s: %s%s", operation, outcome.value, f" ({kind})" if kind else "")
                self._board.ended(event)
                self._tell(OperationOver(operation))
            case OperationClosed(operation=operation):
                self._boxes.drop(operation)
                self._sources.pop(operation, None)
                self._board.closed(operation)
            case OperationAside(operation=operation, text=text):
                log.error("operation %s is put aside: %s", operation, text)
                self._board.put_aside(operation, text)
            case FailureReport(path=path, error=error):
                log.error("%s failed", path, exc_info=error)

    def _tell(self, message: object) -> None:
        assert self._system is not None
        try:
            self._system.tell(OPERATIONS, message)
        except MailboxFull:
            self._system.call_soon(self._tell, message)
        except (SystemClosed, ActorStopped):
            log.debug("%s came after the end", type(message).__name__)

    async def _measure(self) -> None:
        while True:
            await self._measure_once()
            await anyio.sleep(FIGURES_EVERY_S)

    async def _measure_once(self) -> None:
        try:
            if self._link is not None:
                self._link.look()
            self._figures.measured(await self.use())
        except Exception as error:  # noqa: BLE001 - whatever lies in a tier, metrics must not end the agent
            log.warning("the tiers cannot be measured: %s: %s", type(error).__name__, error)

    # What doors ask for

    async def begin(self, order: Order) -> str:
        """Begin an operation, and give its id. Whoever is cancelled meanwhile leaves none behind.

        Raises:
            TooManyOperations, AgentStopping: see there.
            TargetBusy: another operation works on the same process or artifact.
            UnsafeRequest: the folder of its tier is not ours alone.
        """
        async with self.balancer.going_first(order):
            return await self._begin(order)

    async def _begin(self, order: Order) -> str:
        assert self._system is not None
        await (await self.tiers()).check(order)
        known = known_of(order.plan)
        asked = known.asked
        self._board.begin(asked, known.artifact, known.tier or await self._tier_with(known.artifact))
        self._boxes.add(asked.operation, known.container)
        if known.source:
            self._sources[asked.operation] = known.source
        begun = False
        try:
            await self._system.ask(OPERATIONS, BeginOperation(asked, order), timeout_s=_DAY_S)  # a disk may be slow
            begun = True
        except _NEVER_BEGUN:
            self._boxes.drop(asked.operation)
            self._board.refused(asked.operation)
            raise  # after any other error it may have begun: its row stays until it is closed
        finally:
            if not begun:
                self.stop(asked.operation, _REFUSED_BY_CLIENT)
        return asked.operation

    def stop(self, operation: str, text: str) -> None:
        """Have an operation undone, unless it is past the point of no return. Watchers see how it ends."""
        self._tell(StopOperation(operation, text))

    def on_container(self, container_id: str, root: str) -> list[RunningOperation]:
        """Return the operations that run on a container, as its runtime with this state folder knows it."""
        return self._boxes.on(container_id, root, self._board.running())

    async def _tier_with(self, artifact: str) -> str:
        """Return the tier that an artifact lies in; empty if it lies in none, which the operation says by name."""
        for name, place in (await self.tiers()).folders.items():
            try:
                if await anyio.to_thread.run_sync(place.has, artifact):
                    return name
            except (UnsafeRequest, OSError) as error:
                log.warning("tier %s is passed over: %s", name, error)
        return ""

    async def made(self, artifact: str, tier: str = "") -> Made | None:
        """Say what an artifact is, best as it is in this tier; None where there is none, or none that can be read."""
        folders = (await self.tiers()).folders
        for name, place in sorted(folders.items(), key=lambda each: each[0] != tier):
            try:
                if not await anyio.to_thread.run_sync(place.has, artifact):
                    continue
                manifest = await anyio.to_thread.run_sync(place.manifest, artifact)
            except (IriscwError, OSError):  # somebody removed it, or damaged it: a thaw says so by name
                continue
            tasks = manifest.frozen.tasks
            return Made(artifact, name, manifest.sealed.size_bytes, tasks[0].identity.pid, len(tasks))
        return None

    async def stored(self) -> list[ListedArtifact]:
        """Return what the repository has. That it cannot be read hides nothing of this machine: it is logged."""
        try:
            return await self._machine.tiers.stored()
        except (IriscwError, OSError) as error:
            log.warning("what the repository has is not listed: %s", error)
            return []

    async def listing(self) -> list[ListedArtifact]:
        """Return the artifacts of all tiers and places. A place whose folder is not ours any more is left out.

        Raises:
            UnsafeRequest: a tier's folder is somebody else's.
            OSError: it cannot be read.
        """
        found: list[ListedArtifact] = []
        for name, place in (await self.tiers()).folders.items():
            try:
                found += await anyio.to_thread.run_sync(place.listing)
            except (UnsafeRequest, OSError) as error:
                if not name.startswith(PREFIX):
                    raise
                log.warning("a folder with checkpoints is left out: %s", error)
        return found

    async def look(self) -> tuple[list[ListedArtifact], tuple[str, ...]]:
        """Return the artifacts of all tiers and places that can be read, and the names of those that cannot."""
        found: list[ListedArtifact] = []
        unread: list[str] = []
        tiers = (await self.tiers()).folders
        for name, place in tiers.items():
            try:
                found += await anyio.to_thread.run_sync(place.listing)
            except (UnsafeRequest, OSError) as error:
                log.warning("tier %s cannot be read: %s", name, error)
                unread.append(name)
        return found, (*unread, *self._spoilt)

    async def use(self) -> list[TierUse]:
        """Say how full the tiers are. Places have no budgets of their own worth showing."""
        return await self._machine.tiers.use()

    async def remove(self, artifact: str, *, here_only: bool = False) -> None:
        """Remove an artifact; a place without one is forgotten. ``here_only``: what the repository has stays.

        Raises:
            ArtifactUnknown, ArtifactInUse, OSError: see :meth:`Tiers.remove`.
        """
        await self.balancer.make_way(artifact)
        tiers = await self.tiers()
        held = [tier.name for tier in await tiers.holding(artifact) if tier.name.startswith(PREFIX)]
        await tiers.remove(artifact, here_only=here_only)
        self.balancer.changed()
        for place in held:
            async with self._adding:  # who begins adds its place before it shows itself, and holds this meanwhile
                if place not in self._used():
                    await anyio.to_thread.run_sync(self._known_places().drop, place)

    async def begin_into(self, path: str, order_of: Callable[[str], Order]) -> str:
        """Make the folder that a caller names, and freeze or move something into it. Whoever is second finds it in use.

        Args:
            path: of the folder.
            order_of: gives the order, for the name of the folder's tier.

        Raises:
            PathNotAllowed: it is none that may be used, it has a checkpoint already, or gets one.
            TooManyPlaces, NoRoom: see ``Places.add``.
            OSError: it cannot be made.
            IriscwError: as :meth:`begin`.
        """
        async with self._adding:
            folder = await anyio.to_thread.run_sync(lambda: folder_below(path, self.settings.roots, create=True))
            tier = tier_of(folder)
            if tier in self._used():
                raise PathNotAllowed(f"{folder} is used by another operation")
            if await anyio.to_thread.run_sync(lambda: _held(folder)):
                raise PathNotAllowed(f"{folder} holds a checkpoint already")
            used = self._used()
            return await self.begin(
                order_of(await anyio.to_thread.run_sync(lambda: self._known_places().add(folder, used)))
            )

    async def source(self, path: str) -> str:
        """Find the one checkpoint in a folder that a caller names; give its id.

        Raises:
            PathNotAllowed, ArtifactUnknown, TooManyPlaces, NoRoom: as :meth:`source_here`.
            ArtifactAmbiguous: another place or tier holds one with the same id.
        """
        artifact, place = await self.source_here(path)
        found = await self._tier_with(artifact)
        if found != place.name:  # a thaw finds its checkpoint by the id: it must not be that of a copy
            where = f"{artifact} of {place.root} lies in {found or 'another place'}, too"
            raise ArtifactAmbiguous(f"checkpoint {where}")
        return artifact

    async def source_here(self, path: str) -> tuple[str, Folders]:
        """Find the one checkpoint in a folder that a caller names; give its id, and the folder as a tier.

        Raises:
            PathNotAllowed: the folder is none that may be used.
            ArtifactUnknown: there is no checkpoint in it, or more than one.
            TooManyPlaces, NoRoom: see ``Places.add``.
        """
        async with self._adding:
            folder = await anyio.to_thread.run_sync(lambda: folder_below(path, self.settings.roots))
            held = await anyio.to_thread.run_sync(lambda: _held(folder))
            if len(held) != 1:
                raise ArtifactUnknown(f"there are {len(held)} checkpoints in {folder}, and there has to be one")
            used = self._used()
            tier = await anyio.to_thread.run_sync(lambda: self._known_places().add(folder, used))
            return held[0], self._known_places().folders()[tier]

    def _used(self) -> set[str]:
        return {*(view.tier for view in self._board.running()), *self._sources.values()}

    def _known_places(self) -> Places:
        assert self._places is not None
        return self._places


def _sound(places: Mapping[str, Folders]) -> tuple[dict[str, Folders], dict[str, Exception]]:
    """Tell those that can be used from those that cannot, with why."""
    sound, spoilt = {}, dict[str, Exception]()
    for name, place in places.items():
        try:
            place.check()
        except (UnsafeRequest, OSError) as error:
            spoilt[name] = error
        else:
            sound[name] = place
    return sound, spoilt


def _held(folder: Path) -> list[str]:
    return [each.artifact for each in Folders("", folder, 0).listing()]
