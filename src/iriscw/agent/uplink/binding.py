"""What binds the agent to its stream to the controller: effects of orders, and facts for the session.

Orders are kept whether or not the agent was told of a controller: what an earlier life was ordered must be settled
before the records of its operation go, or a later one would begin it again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import attrs

from iriscw._errors import (
    ActorRestarted,
    ActorStopped,
    AskTimeout,
    InvalidArgument,
    IriscwError,
    JournalUnavailable,
    MailboxFull,
    NoSuchActor,
    OutcomeUnknown,
    SystemClosed,
)
from iriscw._version import __version__
from iriscw.agent.errors import GuardUnknown, ProcessOutOfReach
from iriscw.agent.fetching import fetched
from iriscw.agent.operation_views import RunningOperation
from iriscw.agent.uplink import ledger, session
from iriscw.agent.uplink.facts import checkpoint_rows, operation_row, order_end, tier_rows, with_stored
from iriscw.agent.uplink.ledger import OrderLedger
from iriscw.agent.uplink.messages import (
    ORDERS,
    SESSION,
    BeginOrder,
    Now,
    OrdersFull,
    Past,
    Present,
    SessionAwake,
    SettleOperation,
    StopOrder,
)
from iriscw.agent.uplink.session import Session
from iriscw.agent.uplink.stream import ControllerStream, Uplink
from iriscw.agent.wire import DEFAULT_LOCK_MS, text
from iriscw.checkpoint.drivers.loading import REPOSITORY, NoRepository, default_tier
from iriscw.checkpoint.manifest import ARTIFACT_ID, label_trouble
from iriscw.checkpoint.messages import MoveCheckpoint
from iriscw.checkpoint.model import ArtifactCopy, MovePlan
from iriscw.dialling.messages import Connected, Dial, Disconnected
from iriscw.freeze.messages import FreezeTree, ThawTree
from iriscw.freeze.model import (
    ArtifactRefused,
    ArtifactUnknown,
    CriuAbility,
    CriuOptions,
    FreezePlan,
    Numbers,
    Outcome,
    Progress,
    TargetGone,
    TaskIdentity,
    ThawPlan,
)
from iriscw.nodes.model import (
    CHECKPOINT,
    LISTED,
    OPERATION,
    REFUSED,
    REMOVED,
    TIER,
    UNKNOWN,
    VERIFIED,
    Abilities,
    AgentIdentity,
    CheckpointRow,
    FreezeOrder,
    GpuRow,
    MoveOrder,
    OperationRow,
    Order,
    OrderEnd,
    RemoveOrder,
    ThawOrder,
)
from iriscw.processes.identity import ProcessIdentity, pid_namespace
from iriscw.processes.sweep import carries
from iriscw.runtime import ActorSystem, Behavior, ChildSpec, Restart
from iriscw.runtime.vocabulary import MILLISECOND

if TYPE_CHECKING:
    from iriscw.agent.daemon import Agent

log = logging.getLogger(__name__)

ATTEMPT_MARKER = "IRIS_ATTEMPT_UID"
"""The variable that every process of an attempt carries in its environment."""

AGAIN_S = 1.0
"""Before what became of an order is written down again, where the journal took nothing."""

Told = Callable[[str], None]
"""Takes what is counted: ``connected``, ``disconnected``."""


def _are_one(found: str, named: str) -> bool:
    try:
        return Path(named).is_absolute() and Path(found).samefile(named)
    except OSError:
        return False


def _check_id(checkpoint: str) -> None:
    if not ARTIFACT_ID.fullmatch(checkpoint):
        raise InvalidArgument(f"{checkpoint[:80]!a} is not a checkpoint id")


class ControllerLink:
    """The agent's side of its controller.

    Args:
        agent: does what is ordered, and knows what there is.
        uplink: where the controller is; None: nobody is dialled.
        identity: who the agent is.
        told: counts streams.
    """

    def __init__(self, agent: Agent, uplink: Uplink | None, identity: AgentIdentity, told: Told) -> None:
        self._agent = agent
        self._uplink = uplink
        self._identity = identity
        self._told = told
        self._system: ActorSystem | None = None
        self._ready = anyio.Event()
        self._wanted = anyio.Event()
        self._last_error = ""
        self._reading: dict[str, anyio.CancelScope] = {}
        """Of orders whose checkpoint is on its way here to be thawed, or is read to be verified."""
        self._stored: tuple[CheckpointRow, ...] = ()
        """What the repository had when it was listed last, by an order."""

    def child(self) -> ChildSpec:
        """Return ``/controller``. That its session fails again and again is no reason to end the agent."""
        orders = Behavior(
            initial=OrderLedger,
            on=ledger.rules(),
            resume=ledger.resume,
            evolve=ledger.evolve,
            compact=ledger.compact,
            effects={BeginOrder: self._begin, StopOrder: self._stop},
            name="orders",
        )
        children = [ChildSpec("orders", orders)]
        if self._uplink is not None:
            stream = ControllerStream(self._uplink, self._identity, self._abilities)
            dialling = Behavior(
                initial=Session,
                on=session.rules(),
                resume=session.resume,
                sessions={Dial: stream.serve},
                name="session",
            )
            children.append(ChildSpec("session", dialling, restart=Restart.TRANSIENT, entity=True))
        return ChildSpec("controller", Behavior(children=tuple(children), name="controller"))

    def attach(self, system: ActorSystem) -> None:
        """Say that the tree stands: orders may be begun."""
        self._system = system
        self._ready.set()

    # Orders

    async def _begin(self, effect: BeginOrder) -> OrderEnd | None:
        """Begin an order, unless its operation is there already, or it was withdrawn before it was begun.

        Raises:
            TargetGone: the process is not there any more, or is none of the attempt.
            InvalidArgument: it cannot be ordered.
            IriscwError: as the agent says it.
        """
        await self._ready.wait()
        order, agent = effect.order, self._agent
        if agent.board.shows(order.operation):
            return None
        if effect.withdrawn:
            return await self._withdrawn(order)
        if order.freeze is not None:
            plan = await self._freeze_plan(order.operation, order.freeze)
            await agent.begin(FreezeTree(plan))
        elif order.thaw is not None:
            return await self._thaw(self._thaw_plan(order.operation, order.thaw), order.thaw.repository)
        elif order.move is not None and not order.move.target:
            return await self._prefetch(order.operation, order.move.checkpoint)
        elif order.move is not None:
            await agent.begin(MoveCheckpoint(self._move_plan(order.operation, order.move)))
        elif order.remove is not None:
            return await self._remove(order.operation, order.remove)
        elif order.listing is not None:
            return await self._list_stored(order.operation)
        elif order.verify is not None:
            return await self._verify(order.operation, order.verify.checkpoint)
        return None

    async def _withdrawn(self, order: Order) -> OrderEnd:
        """Say what became of an order that is withdrawn, and of which nothing is shown."""
        refused = OrderEnd(order.operation, REFUSED, "OrderCancelled", "it was cancelled before it was begun")
        if order.remove is None:
            return refused
        (
            found,
            unread,
        ) = await self._agent.look()  # a removal is not an operation: only the tiers tell whether it was done
        if any(each.artifact == order.remove.checkpoint for each in found):
            return refused
        if unread:
            return attrs.evolve(refused, outcome=UNKNOWN, text=f"cancelled; {', '.join(unread)} cannot be read")
        return OrderEnd(order.operation, REMOVED, text="cancelled; there is no such checkpoint any more")

    async def _remove(self, operation: str, order: RemoveOrder) -> OrderEnd:
        note = ""
        try:
            await self._agent.remove(order.checkpoint, here_only=order.here_only)
        except ArtifactUnknown as error:  # an earlier life may have removed it, and died before it said so
            note = str(error)
        if not order.here_only:
            self._stored = tuple(row for row in self._stored if row.checkpoint != order.checkpoint)
        await self._tell_quietly()
        return OrderEnd(operation, REMOVED, text=note)

    async def _list_stored(self, operation: str) -> OrderEnd:
        """List what the repository has; it is told of from now on, as it was. It is no operation: nothing is changed.

        Raises:
            NoRepository: there is none.
            OperationError: it cannot be read.
        """
        tiers = self._agent.machine.tiers
        if tiers.repository is None:
            tiers.tier(REPOSITORY)  # says so
        with self._reads(operation) as reading:
            self._stored, _ = checkpoint_rows(await tiers.stored())
            await self._tell_all()
        if reading.cancel_called:
            return OrderEnd(operation, REFUSED, "OrderCancelled", "it was cancelled while the repository was read")
        return OrderEnd(operation, LISTED, text=f"{len(self._stored)} checkpoints", tier=REPOSITORY)

    async def _thaw(self, plan: ThawPlan, repository: str) -> OrderEnd | None:
        """Begin a thaw, after what only the repository has was fetched; a withdrawal meanwhile undoes the fetch."""
        if repository and not await (await self._agent.tiers()).holding(plan.artifact):
            self._check_repository(repository)
        with self._reads(plan.operation) as fetching:
            async with aclosing(fetched(self._agent, plan)) as views:
                async for _ in views:
                    pass
        if fetching.cancel_called:
            text = "it was cancelled while its checkpoint was fetched"
            return OrderEnd(plan.operation, REFUSED, "OrderCancelled", text)
        await self._agent.begin(ThawTree(plan))
        return None

    async def _prefetch(self, operation: str, checkpoint: str) -> OrderEnd | None:
        """Have what only the repository has lie in the tier that the balancer says; nothing, if it lies here already.

        Raises:
            ArtifactUnknown: the repository has not got it either.
        """
        _check_id(checkpoint)
        agent = self._agent
        lying = await (await agent.tiers()).holding(checkpoint)
        if lying:
            where = text(lying[0].name)
            return OrderEnd(operation, Outcome.COPIED.value, text=f"it lies in {where} already", tier=where)
        found = None if agent.machine.tiers.repository is None else await agent.machine.tiers.find(checkpoint)
        if found is None:
            raise ArtifactUnknown(f"neither this node nor its repository has a checkpoint {checkpoint}")
        target = await agent.balancer.admit(found.size_bytes)
        await agent.begin(MoveCheckpoint(MovePlan(operation, checkpoint, target, keep=True)))
        return None

    async def _verify(self, operation: str, checkpoint: str) -> OrderEnd:
        """Read all copies. It is no operation: whoever removes one meanwhile may, and a later agent reads anew.

        Raises:
            ArtifactUnknown: there is none.
            ArtifactRefused: some copies are not whole.
            OperationError, OSError: one cannot be read: it may be whole.
        """
        _check_id(checkpoint)
        copies: list[ArtifactCopy] = []

        def report(progress: Progress) -> None:  # from any thread
            steps = ((progress.phase, 0),)
            row = OperationRow(
                operation, "verify", checkpoint, "", False, steps, progress.done_bytes, progress.total_bytes
            )
            if self._system is not None:
                self._system.call_soon(self._tell, Now(row), operation)

        try:
            with self._reads(operation) as reading:
                copies = await (await self._agent.tiers()).verify_copies(checkpoint, report)
        finally:
            self._tell(Past((OPERATION, operation)), operation)
        if reading.cancel_called:
            return OrderEnd(operation, REFUSED, "OrderCancelled", "it was cancelled while the checkpoint was read")
        bad = [f"{copy.tier}: {copy.trouble}" for copy in copies if copy.trouble]
        if bad:
            raise ArtifactRefused(f"{len(bad)} of {len(copies)} copies cannot be used: {'; '.join(bad)}")
        places = ", ".join(copy.tier for copy in copies)
        return OrderEnd(operation, VERIFIED, text=places, size_bytes=sum(copy.size_bytes for copy in copies))

    @contextmanager
    def _reads(self, operation: str) -> Iterator[anyio.CancelScope]:
        """Have a withdrawal of the order cancel the block."""
        with anyio.CancelScope() as scope:
            self._reading[operation] = scope
            try:
                yield scope
            finally:
                del self._reading[operation]

    async def _freeze_plan(self, operation: str, order: FreezeOrder) -> FreezePlan:
        root = TaskIdentity(order.pid, order.start_ticks, order.boot_id)
        self._check_reach(order)
        if await self._agent.machine.processes.identify(order.pid) != root:
            raise TargetGone(f"process {order.pid} has ended, and its number belongs to another one")
        if order.attempt_uid:
            process = ProcessIdentity(root.pid, root.start_ticks, root.boot_id)
            marker = {ATTEMPT_MARKER: order.attempt_uid}
            if not await anyio.to_thread.run_sync(carries, process, marker):
                raise TargetGone(f"process {order.pid} is not of attempt {order.attempt_uid[:80]!r}, or has ended")
        if order.guard:
            await self._check_guard(order.guard, root)
        tier = order.tier or default_tier()
        tiers = self._agent.machine.tiers.folders
        if tier not in tiers:
            raise InvalidArgument(f"there is no tier {tier[:80]!r}: there are {', '.join(tiers)}")
        if trouble := label_trouble(order.labels):
            raise InvalidArgument(trouble)
        return FreezePlan(
            operation=operation,
            root=root,
            tier=tier,
            leave_running=order.leave_running,
            force=order.force,
            options=CriuOptions(shell_job=False, tcp_established=order.tcp_established, tcp_close=order.tcp_close),
            hook=None,
            lock_within_ns=DEFAULT_LOCK_MS * MILLISECOND,
            labels=order.labels,
            guard=order.guard,
            carries_folder=order.carries_folder,
        )

    async def _check_guard(self, folder: str, root: TaskIdentity) -> None:
        """Believe a folder only if the process says itself that it is the supervisor there, and the folder does, too.

        Raises:
            GuardUnknown: one of them does not.
        """
        found = await self._agent.machine.processes.guard(root)
        if not found or not await anyio.to_thread.run_sync(_are_one, found, folder):
            raise GuardUnknown(f"process {root.pid} is not the supervisor of {folder[:200]!a}")

    @staticmethod
    def _check_reach(order: FreezeOrder) -> None:
        if order.pid_namespace not in (0, pid_namespace()):
            raise ProcessOutOfReach(
                f"process {order.pid} has that number in another PID namespace, as in a container: it is not reached"
            )

    @staticmethod
    def _thaw_plan(operation: str, order: ThawOrder) -> ThawPlan:
        _check_id(order.checkpoint)
        numbers = Numbers.AUTO if order.new_numbers else Numbers.SAME
        plan = ThawPlan(operation, order.checkpoint, gpus=order.gpus, force=order.force, numbers=numbers)
        return attrs.evolve(plan, unused_gpus=True)  # the map is of all that the attempt had

    def _check_repository(self, meant: str) -> None:
        """Refuse an order about what this agent's repository has, if another one is meant.

        Raises:
            NoRepository: it has another one, or none.
        """
        repository = self._agent.machine.tiers.repository
        here = "" if repository is None else text(repository.place)
        if meant and here != meant:
            raise NoRepository(f"{meant[:200]} is meant, and the repository of this agent is {here or 'none'}")

    def _move_plan(self, operation: str, order: MoveOrder) -> MovePlan:
        _check_id(order.checkpoint)
        tiers = self._agent.machine.tiers
        repository = tiers.repository_named(order.target)
        if repository is None:
            tiers.tier(order.target)  # before anything counts it: each word would be a metric of its own
        else:
            self._check_repository(order.repository)
        return MovePlan(operation, order.checkpoint, order.target, order.keep)

    async def _stop(self, effect: StopOrder) -> None:
        await self._ready.wait()
        if effect.operation in self._reading:
            self._reading[effect.operation].cancel()
            return
        self._agent.stop(effect.operation, "the controller cancelled it")

    async def settle(self, view: RunningOperation) -> None:
        """Write down what became of an operation, if it was ordered; returns once that is on disk.

        Raises:
            SystemClosed: the agent ends.
        """
        await self._ready.wait()
        assert self._system is not None
        await self._tell_quietly()  # who hears that it is over finds what it made
        while True:
            try:
                await self._system.ask(ORDERS, SettleOperation(order_end(view)))
            except (JournalUnavailable, MailboxFull, AskTimeout, OutcomeUnknown, ActorRestarted, ActorStopped) as error:
                log.warning("what became of %s is not written down yet: %s", view.asked.operation, error)
            else:
                return
            await anyio.sleep(AGAIN_S)

    # Facts

    def seen(self, before: RunningOperation, now: RunningOperation) -> None:
        """Tell of a change of an operation; the latest stands for those before it."""
        operation = now.asked.operation
        self._tell(Past((OPERATION, operation)) if now.over else Now(operation_row(now)), operation)

    def look(self) -> None:
        """Have the tiers looked at, and tell what changed."""
        self._wanted.set()

    async def run(self) -> None:
        """Look at the tiers whenever somebody says so, for as long as the agent lives."""
        while True:
            await self._wanted.wait()
            self._wanted = anyio.Event()
            await self._tell_quietly()

    async def _tell_quietly(self) -> None:
        if self._uplink is None:
            return
        try:
            await self._tell_all()
        except (IriscwError, OSError) as error:
            log.warning("the controller is not told of the tiers: %s: %s", type(error).__name__, error)

    async def _tell_all(self) -> None:
        agent = self._agent
        self._tell(Present(OPERATION, tuple(operation_row(view) for view in agent.board.running())), "operations")
        found, unread = await agent.look()
        rows, omitted = with_stored(checkpoint_rows(found), self._stored)
        self._tell(Present(CHECKPOINT, rows, omitted, unread), "checkpoints")
        self._tell(Present(TIER, tier_rows(await agent.use())), "tiers")

    def _tell(self, message: object, key: str) -> None:
        if self._uplink is None or self._system is None:
            return
        try:
            self._system.ref(SESSION).tell_latest(message, key)
        except (MailboxFull, NoSuchActor, SystemClosed) as error:  # the next look tells all of it
            log.debug("the session was not told of %s: %s", key, error)

    async def _abilities(self) -> Abilities:
        machine = self._agent.machine
        criu, trouble = CriuAbility("", ""), ""
        try:
            criu = await machine.criu.ability()
        except IriscwError as error:  # what is missing is the answer
            trouble = f"{type(error).__name__}: {error}"
        cuda = await machine.cuda.ability()
        gpus = tuple(GpuRow(gpu.uuid, gpu.model, gpu.index, gpu.total_bytes) for gpu in await machine.gpus.list())
        return Abilities(
            software=__version__,
            criu_version=criu.version,
            criu_trouble=text(trouble),
            criu_features=tuple(criu.features),
            cuda_available=cuda.available,
            cuda_driver_version=cuda.driver_version,
            cuda_trouble=text(cuda.reason),
            gpus=gpus,
            max_operations=self._agent.settings.max_operations,
            repository=text("" if machine.tiers.repository is None else machine.tiers.repository.place),
        )

    # What the session says

    def note(self, event: object) -> None:
        """Take an event of the tree."""
        match event:
            case SessionAwake():
                self.look()
            case Connected(session_id=session_id):
                self._told("connected")
                self._last_error = ""
                log.info("the controller took us, stream %s", session_id)
            case Disconnected(error=error, again_after_ns=again_after_ns):
                self._told("disconnected")
                if again_after_ns == 0:
                    log.error("the controller does not want this agent, and is not dialled again: %s", error)
                elif error != self._last_error:  # one that is away is said once
                    log.warning("no stream to the controller: %s", error)
                self._last_error = error
            case OrdersFull(count=count):
                log.error("orders of the controller are not taken: %d have not been released", count)
