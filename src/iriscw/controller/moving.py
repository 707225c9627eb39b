"""Freezing and thawing of attempts, for their jobs: orders to the agents of nodes, followed to their ends.

The port of jobs (:class:`iriscw.jobs.ports.Freezer`). Each effect has a key that its job has on disk, and becomes the
order of that key: one that was placed before is followed on, whichever life of the controller placed it. So nothing is
kept here.

Who waits, waits for an event: a worker that says that its attempt may be frozen, an agent that dials, news of an order.
What only a while can help (as many open orders as there may be, an actor that is restarted) is tried again.

What is frozen is the supervisor of an attempt with all below it, as the worker names it *now*: a worker that dials
again after a restart of either side names it anew. The agent believes that only if the process agrees. It comes back
whoever has its process numbers by then: in a PID namespace of its own, if need be.
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import anyio

from iriscw._errors import ActorStopped, IriscwError, NoSuchActor, OutcomeUnknown
from iriscw.checkpoint.drivers.loading import REPOSITORY
from iriscw.controller.checkpoint_labels import task_labels
from iriscw.controller.doors.access import Access
from iriscw.controller.doors.streams import Switchboard
from iriscw.controller.errors import CheckpointKept
from iriscw.controller.events import ALL_NODES, CheckpointDropped, EventHub, node_key
from iriscw.jobs.errors import SuspensionRefused
from iriscw.jobs.suspension.effects import (
    CheckpointStored,
    DropCheckpoint,
    FreezeAttempt,
    Frozen,
    FrozenAttempt,
    StoreCheckpoint,
    ThawAttempt,
    Thawed,
    ThawedAttempt,
)
from iriscw.jobs.suspension.messages import FollowRepositories, NodeRepositories
from iriscw.jobs.suspension.moves import store_key, thaw_keys
from iriscw.nodes.errors import STARTS_AGENT, NoSuchOrder
from iriscw.nodes.messages import (
    AGENTS,
    ORDERS,
    CancelOrder,
    DescribeNode,
    DescribeOrder,
    FindOrder,
    ListNodes,
    PlaceOrder,
)
from iriscw.nodes.model import (
    REFUSED,
    REMOVED,
    FreezeOrder,
    MoveOrder,
    NodeState,
    NodeView,
    Order,
    OrderEnd,
    OrderView,
    RemoveOrder,
    ThawOrder,
)
from iriscw.proto.iriscw import v1

log = logging.getLogger(__name__)

AGAIN_S: Final = 1.0
"""Before what only a while can help is tried again."""

PREFIX: Final = "jobs/"
"""Of the keys of these orders: they are no client's."""

FORGOTTEN: Final = "the order was forgotten before anybody asked what became of it"

UNFIT: Final = (
    *("GateRefused", "RightsMissing", "CriuMissing", "CriuUnfit", "CudaMissing"),
    *("NoRoom", "FolderInTheWay"),
)
"""Kinds of ends of a thaw after which trying again on that machine is of no use until something changes there: nothing
runs of it. Each is the name of an error in :mod:`iriscw.freeze.model`."""

_DAMAGED: Final = ("ArtifactUnknown", "ArtifactRefused", "ChunkDamaged")
"""Kinds for which an agent refuses an order to thaw, whatever its machine is. For others another one may do."""

_CANCELLED: Final = "OrderCancelled"
"""The one that says nothing of a machine or a checkpoint."""

_TRANSIENT: Final = (ActorStopped, NoSuchActor, OutcomeUnknown)
"""Beside what says so of itself: the tree is being started, or a part of it is. All questions may be repeated."""

_FREEZES: Final[Mapping[str, Frozen]] = {
    "frozen": Frozen.FROZEN,
    "copied": Frozen.FROZEN,
    "undone": Frozen.UNDONE,
    REFUSED: Frozen.UNDONE,
}
_THAWS: Final[Mapping[str, Thawed]] = {
    "thawed": Thawed.THAWED,
    "undone": Thawed.UNDONE,
    "failed": Thawed.UNDONE,
    REFUSED: Thawed.UNDONE,
}
"""What the outcomes of orders mean to a job. Of all others nobody can say what runs."""

_STORED: Final = ("moved", "copied")
"""The outcomes of a move after which the checkpoint lies where it was to lie."""


class Moves:
    """Carries out what jobs want of agents.

    Args:
        access: asks actors.
        hub: rings when there is news, and tells who cares that a checkpoint was removed.
        switchboard: the connected workers, who say which processes attempts have.
    """

    def __init__(self, access: Access, hub: EventHub, switchboard: Switchboard) -> None:
        self._access = access
        self._hub = hub
        self._switchboard = switchboard
        self.ends: collections.Counter[tuple[str, str]] = collections.Counter()
        """How often each kind of order ended with each outcome, since the start."""

    async def freeze(self, effect: FreezeAttempt) -> FrozenAttempt:
        """Freeze an attempt (see the port).

        Raises:
            SuspensionRefused: no agent can reach its processes, or has the repository that they are to come to. They
                run on.
        """
        key = PREFIX + effect.key
        begin = self._begin_copy if effect.leave_running else self._begin_freeze
        view = await self._find(key) or await begin(key, effect)
        end = await self._end_of(view)
        outcome = _FREEZES.get(end.outcome, Frozen.UNKNOWN)
        self.ends["copy" if effect.leave_running else "freeze", outcome.value] += 1
        if outcome is Frozen.FROZEN:
            return FrozenAttempt(outcome, view.order.operation, view.node)
        return FrozenAttempt(outcome, reason=_sentence(end))

    async def _begin_freeze(self, key: str, effect: FreezeAttempt) -> OrderView:
        connection, process, folder = await self._switchboard.suspending(
            (effect.worker_id, effect.incarnation), effect.uid
        )
        node = connection.hello.node
        if process is None or not folder or not node:
            raise SuspensionRefused(f"worker {effect.worker_id} names no process of {effect.uid} that can be frozen")
        if effect.carries_folder:
            await self._agent_of(node)
            if not await self._repository_at(node):
                raise SuspensionRefused(f"the agent of {node} has no repository: start it with --repository")
        return await self._place(key, node, Order("", freeze=_freeze_order(effect, process, guard=folder)))

    async def _begin_copy(self, key: str, effect: FreezeAttempt) -> OrderView:
        """Order a checkpoint of what runs on. Nobody is waited for: it is tried again when the next is due."""
        found = self._switchboard.running((effect.worker_id, effect.incarnation), effect.uid)
        if found is None or not found[0].hello.node:
            raise SuspensionRefused(f"worker {effect.worker_id} names no process of {effect.uid} that can be frozen")
        node, process = found[0].hello.node, found[1]
        known = node in await self._ask(AGENTS, ListNodes())
        view: NodeView | None = await self._ask(AGENTS / node, DescribeNode(())) if known else None
        if view is None or view.state is NodeState.UNKNOWN:
            raise SuspensionRefused(f"the agent of {node} is not there: {STARTS_AGENT}")
        return await self._place(key, node, Order("", freeze=_freeze_order(effect, process)))

    async def thaw(self, effect: ThawAttempt) -> ThawedAttempt:
        """Bring an attempt back (see the port).

        Raises:
            SuspensionRefused: the node has no agent any more. Nothing of it runs.
        """
        key = PREFIX + effect.key
        asked = ThawOrder(effect.checkpoint, new_numbers=True, gpus=effect.gpus, repository=effect.repository)
        order = Order("", thaw=asked)
        view = await self._find(key) or await self._place(key, effect.node, order)
        end = await self._end_of(view)
        outcome = _THAWS.get(end.outcome, Thawed.UNKNOWN)
        not_begun = end.outcome == REFUSED and end.kind != _CANCELLED  # its fetch failed, say
        if not_begun and end.kind in _DAMAGED:
            outcome = Thawed.DAMAGED
        elif outcome is Thawed.UNDONE and (not_begun or end.kind in UNFIT):
            outcome = Thawed.REFUSED
        self.ends["thaw", outcome.value] += 1
        return ThawedAttempt(outcome, "" if outcome is Thawed.THAWED else _sentence(end))

    async def store(self, effect: StoreCheckpoint) -> CheckpointStored:
        """Have a checkpoint lie in the repository of its node's agent, and no more in its tier (see the port).

        Raises:
            SuspensionRefused: the node has no agent any more. It lies where it lay.
        """
        key = PREFIX + effect.key
        view = await self._find(key)
        if view is None:
            meant = await self._repository_at(effect.node)
            order = Order("", move=MoveOrder(effect.checkpoint, REPOSITORY, repository=meant))
            view = await self._place(key, effect.node, order)
        end = await self._end_of(view)
        self.ends["store", "stored" if end.outcome in _STORED else "kept"] += 1
        if end.outcome not in _STORED:
            return CheckpointStored(reason=_sentence(end))
        # As it was ordered: the agent may have been started with another one since.
        where = view.order.move.repository if view.order.move is not None else ""
        return CheckpointStored(where or await self._repository_at(effect.node), "its agent names no repository")

    async def drop(self, effect: DropCheckpoint) -> None:
        """Remove what a suspension left (see the port): its order is ended first, and thaws of it are waited for.

        An attempt runs again before its thaw is over, and as long as that is not, its checkpoint is in use.

        Raises:
            CheckpointKept: it stays, and the text says why.
        """
        key = PREFIX + effect.key
        checkpoint, node = effect.checkpoint, effect.node
        frozen = await self._find(key)
        if frozen is not None and frozen.end is None:
            await self._ask(ORDERS, CancelOrder(frozen.order.operation))
            end = await self._end_of(frozen)
            checkpoint, node = frozen.order.operation, frozen.node
            if _FREEZES.get(end.outcome) is Frozen.UNDONE:
                checkpoint = ""
        elif frozen is not None and not checkpoint:
            checkpoint, node = frozen.order.operation, frozen.node
        if checkpoint:
            stored = await self._find(PREFIX + store_key(effect.key, effect.stores_failed))
            if stored is not None and stored.end is None:
                await self._ask(ORDERS, CancelOrder(stored.order.operation))
                await self._end_of(stored)
            for each in thaw_keys(effect.key, effect.returns):
                thaw = await self._find(PREFIX + each)
                if thaw is not None:
                    await self._end_of(thaw)
            await self._remove_all(f"{key}/drop", checkpoint, node, effect)
        self._hub.publish(CheckpointDropped())

    async def _remove_all(self, key: str, checkpoint: str, node: str, effect: DropCheckpoint) -> None:
        """Remove it where it is: each agent removes its own copies, and the one in its repository.

        One node that does not answer, or refuses, keeps none of the others from it.

        Raises:
            CheckpointKept: a copy stays; the text names all such.
        """
        if not effect.repository:
            await self._remove(key, checkpoint, node)
            return
        placed = await self._find(key)
        where = placed.node if placed is not None else await self._node_with(effect.repository, (*effect.tried, node))
        kept: list[str] = []

        async def remove(its: str, there: str) -> None:
            try:
                await self._remove(its, checkpoint, there)
            except (CheckpointKept, SuspensionRefused) as error:
                kept.append(str(error))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(remove, key, where)
            for tried in effect.tried:
                if tried != where:
                    tasks.start_soon(remove, f"{key}-{tried}", tried)
        if kept:
            raise CheckpointKept("; ".join(kept))

    async def _remove(self, key: str, checkpoint: str, node: str) -> None:
        order = Order("", remove=RemoveOrder(checkpoint))
        end = await self._end_of(await self._find(key) or await self._place(key, node, order))
        self.ends["remove", end.outcome if end.outcome == REMOVED else "kept"] += 1
        if end.outcome != REMOVED:
            raise CheckpointKept(f"{checkpoint} on {node} was not removed: {_sentence(end)}")

    async def follow(self, session: FollowRepositories, port: Any) -> None:
        """Tell which repository each node has, whose agent is there (see the port)."""
        told: dict[str, str] | None = None
        with self._hub.subscribed(ALL_NODES) as events:
            while True:
                found = await self._repositories()
                if found != told:
                    told = found
                    await port.send(NodeRepositories(tuple(found.items())))
                await events.wait()

    async def _repositories(self) -> dict[str, str]:
        """Return the URL of each node that has one now."""
        found: dict[str, str] = {}
        for node in await self._ask(AGENTS, ListNodes()):
            try:
                view: NodeView = await self._access.ask(AGENTS / node, DescribeNode(()))
            except NoSuchActor:  # it was just forgotten
                continue
            if view.state is not NodeState.UNKNOWN and repository_of(view):
                found[node] = repository_of(view)
        return found

    async def _node_with(self, repository: str, preferred: Sequence[str]) -> str:
        """Wait until a node is there that has a repository; the first of those that are preferred, or another."""
        with self._hub.subscribed(ALL_NODES) as events:
            while True:
                nodes = [node for node, url in (await self._repositories()).items() if url == repository]
                if nodes:
                    return next((each for each in preferred if each in nodes), nodes[0])
                await events.wait()

    async def _repository_at(self, node: str) -> str:
        if node not in await self._ask(AGENTS, ListNodes()):
            return ""
        return repository_of(await self._ask(AGENTS / node, DescribeNode(())))

    # Orders

    async def _find(self, key: str) -> OrderView | None:
        view: OrderView | None = await self._ask(ORDERS, FindOrder(key))
        return view

    async def _place(self, key: str, node: str, order: Order) -> OrderView:
        agent_id = await self._agent_of(node)
        view: OrderView = await self._ask(ORDERS, PlaceOrder(key, node, agent_id, order))
        log.info("%s of %s was ordered of the agent of %s as %s", view.order.kind, key, node, view.order.operation)
        return view

    async def _agent_of(self, node: str) -> str:
        """Wait until the node's agent has a stream; give who it is.

        Raises:
            SuspensionRefused: none has ever dialled.
        """
        with self._hub.subscribed(node_key(node)) as events:
            while True:
                if node not in await self._ask(AGENTS, ListNodes()):
                    said = f"no agent has dialled from node {node}, or it was forgotten"
                    raise SuspensionRefused(f"{said}: {STARTS_AGENT}")
                view: NodeView = await self._ask(AGENTS / node, DescribeNode(()))
                if view.state is not NodeState.UNKNOWN and view.identity is not None:
                    return view.identity.agent_id
                await events.wait()

    async def _end_of(self, placed: OrderView) -> OrderEnd:
        """Follow an order to its end."""
        operation = placed.order.operation
        with self._hub.subscribed(operation) as events:
            while True:
                try:
                    view: OrderView = await self._ask(ORDERS, DescribeOrder(operation))
                except NoSuchOrder:
                    return OrderEnd(operation, "", text=FORGOTTEN)
                if view.end is not None:
                    return view.end
                await events.wait()

    async def _ask(self, path: str, message: Any) -> Any:
        """Ask until there is an answer that no while could change."""
        said = ""
        while True:
            try:
                return await self._access.ask(path, message)
            except IriscwError as error:
                if not (isinstance(error, _TRANSIENT) or getattr(error, "retryable", False)):
                    raise
                text = f"{type(error).__name__}: {error}"
                if text != said:
                    said = text
                    log.info("%s is asked again: %s", path, text)
            await anyio.sleep(AGAIN_S)


def repository_of(view: NodeView) -> str:
    """Return the URL of a node's repository, as its agent said last; empty: it has none."""
    return "" if view.abilities is None else view.abilities.repository


def _freeze_order(effect: FreezeAttempt, process: v1.ProcessRef, guard: str = "") -> FreezeOrder:
    """Write the order by which an attempt is frozen; ``guard`` is its folder, of one that is suspended."""
    return FreezeOrder(
        pid=process.pid,
        start_ticks=process.start_ticks,
        boot_id=process.boot_id,
        attempt_uid=effect.uid,
        tier=effect.tier,
        leave_running=effect.leave_running,
        force=effect.force,
        labels=task_labels(dict(effect.labels), effect.job_id, effect.index, effect.gpus),
        pid_namespace=process.pid_namespace,
        tcp_close=True,
        guard=guard,
        carries_folder=effect.carries_folder,
    )


def _sentence(end: OrderEnd) -> str:
    return f"{end.kind}: {end.text}" if end.kind else end.text or f"it ended as {end.outcome}"
