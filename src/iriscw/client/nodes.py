"""Checkpoints of a cluster's nodes: what there is, and orders to the agents, followed to their end."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, Final, TypeAlias

import anyio
import attrs

from iriscw._errors import InvalidArgument
from iriscw.client.calls import MethodCalls
from iriscw.client.errors import OrderFailed
from iriscw.client.model import NodeStatus, OrderStatus, TierStatus
from iriscw.proto.iriscw.v1 import (
    CancelOrderRequest,
    CheckpointTaskRequest,
    CheckpointView,
    DeleteCheckpointRequest,
    JobRef,
    ListNodeCheckpointsRequest,
    ListNodesRequest,
    ListNodesResponse,
    ListRepositoryRequest,
    MoveCheckpointRequest,
    NodeCheckpoint,
    NodeStatus as WireNodeStatus,
    OrderStatus as WireOrderStatus,
    RestoreCheckpointRequest,
    VerifyCheckpointRequest,
    WatchOrderRequest,
)

UNDO_PATIENCE_S: Final = 300.0
"""What a cancelled order may take to be undone, before it is left to itself: it is undone all the same."""

DONE: Final = ("frozen", "copied", "thawed", "removed", "moved", "verified", "listed")
"""Outcomes of orders that came to their end."""

Seen = Callable[[OrderStatus], None]
PlacedRequest: TypeAlias = (
    CheckpointTaskRequest
    | RestoreCheckpointRequest
    | DeleteCheckpointRequest
    | MoveCheckpointRequest
    | VerifyCheckpointRequest
    | ListRepositoryRequest
)

STORED: Final = "repository"
"""Where a copy lies that a repository has, in the place of a tier's name."""


@attrs.frozen
class CheckpointCopy:
    """Where a checkpoint lies: in one tier of one node."""

    node: str
    tier: str
    """``ram``, ``disk``, or ``path:`` and a folder; ``repository``: that of this node's agent."""
    size_bytes: int
    trouble: str = ""
    """Why it cannot be used; empty if it can."""
    unknown_since_ms: int = 0
    """Since when its node's agent is not heard of, and nobody can say whether it is still there; 0: it is."""


@attrs.frozen
class Checkpoint:
    """A checkpoint on nodes of a cluster. Node, tier, size and trouble are those of the copy to use."""

    id: str
    node: str
    tier: str
    """``ram``, ``disk``, or ``path:`` and a folder."""
    size_bytes: int
    pid: int = 0
    """The number of its first process."""
    processes: int = 0
    program: str = ""
    sealed_at_ms: int = 0
    labels: Mapping[str, str] = attrs.field(factory=dict)
    trouble: str = ""
    """What is wrong with it; empty if nothing is."""
    unknown_since_ms: int = 0
    """Since when its node's agent is not heard of, and nobody can say whether it is still there; 0: it is."""
    _calls: MethodCalls | None = attrs.field(default=None, repr=False, eq=False)
    copies: tuple[CheckpointCopy, ...] = attrs.field(
        default=attrs.Factory(lambda made: (made._only_copy(),), takes_self=True), kw_only=True
    )
    """All copies that the listing had, the one to use first."""

    def _only_copy(self) -> CheckpointCopy:
        return CheckpointCopy(self.node, self.tier, self.size_bytes, self.trouble, self.unknown_since_ms)

    async def move(
        self, tier: str, *, node: str = "", keep: bool = False, seen: Callable[[OrderStatus], None] | None = None
    ) -> OrderStatus:
        """Bring it to another tier of its node, to the repository of that node's agent, or from there; verified.

        The answer's ``outcome`` is ``moved``; ``copied`` where it lies in both places, as it was asked or because
        somebody uses it.

        Args:
            tier: where to: a tier's name, or ``repository``.
            node: whose agent does it; empty: that of the copy to use. Another node's agent fetches it from a
                repository that it shares, with ``keep=True``.
            keep: let it lie where it lies, too.
            seen: told of each change.

        Raises:
            CheckpointNeeded: a suspended task goes on from it, and it would leave the task's node.
            NoSuchNode, AgentAway, TooManyOrders, OrderFailed, OperationError: as :meth:`Client.checkpoint`.
        """
        if self._calls is None:
            raise InvalidArgument("this checkpoint was not given by a client")
        return await move(self._calls, self.id, tier, node=node or self.node, keep=keep, seen=seen)

    async def prefetch(self, tier: str = "", *, node: str = "", seen: Seen | None = None) -> OrderStatus:
        """Have it lie on a node before it is thawed there; verified. One that lies there already is left as it is.

        Args:
            tier: where to; empty: where the node's agent has room.
            node: which node; it has to share a repository that has the checkpoint. Empty: that of the copy to use.
            seen: told of each change.

        Raises:
            NoSuchNode, AgentAway, TooManyOrders, OrderFailed, OperationError: as :meth:`Client.checkpoint`.
        """
        if self._calls is None:
            raise InvalidArgument("this checkpoint was not given by a client")
        return await move(self._calls, self.id, tier, node=node or self.node, keep=True, seen=seen)

    async def verify(self, *, seen: Seen | None = None) -> list[OrderStatus]:
        """Have every byte of each copy read and compared, on one node after the other; one answer for each node.

        A node's agent reads what it can reach: the copy in its repository, too.

        Args:
            seen: told of each change.

        Raises:
            OrderFailed: a copy is not whole (``kind`` is ``ArtifactRefused``), or cannot be read now.
            AgentAway: a node's agent is not heard of now.
            OperationError: the controller cannot be reached.
        """
        if self._calls is None:
            raise InvalidArgument("this checkpoint was not given by a client")
        nodes = dict.fromkeys(copy.node for copy in self.copies)
        return [await verify(self._calls, self.id, node=node, seen=seen) for node in nodes]

    async def delete(self) -> None:
        """Remove all of its ``copies``, one node after the other; the first that cannot be removed is the error.

        A node's agent removes what its repository has, too. Where the listing was asked for what is ``stored``, that
        comes last: first all copies on nodes go, and the repositories have it until then.

        Raises:
            AgentAway: a node's agent is not heard of now.
            CheckpointNeeded: a suspended task goes on from it.
            OrderFailed: it was not removed: a restore uses it, say.
            OperationError: the controller cannot be reached.
        """
        if self._calls is None:
            raise InvalidArgument("this checkpoint was not given by a client")
        storing = dict.fromkeys(copy.node for copy in self.copies if copy.tier == STORED)
        holding = dict.fromkeys(copy.node for copy in self.copies if copy.tier != STORED)
        for node, here_only in (*((node, bool(storing)) for node in holding), *((node, False) for node in storing)):
            key = uuid.uuid4().hex
            request = DeleteCheckpointRequest(
                idempotency_key=key, checkpoint_id=self.id, node=node, here_only=here_only
            )
            await follow(self._calls, "DeleteCheckpoint", request, key, None)


async def move(
    calls: MethodCalls, checkpoint: str, tier: str, *, node: str, keep: bool, seen: Seen | None
) -> OrderStatus:
    """Have a checkpoint moved on a node; see :meth:`Checkpoint.move`."""
    key = uuid.uuid4().hex
    request = MoveCheckpointRequest(idempotency_key=key, checkpoint_id=checkpoint, node=node, tier=tier, keep=keep)
    return await follow(calls, "MoveCheckpoint", request, key, seen)


async def verify(calls: MethodCalls, checkpoint: str, *, node: str, seen: Seen | None) -> OrderStatus:
    """Have the copies of a checkpoint that a node's agent reaches read; see :meth:`Checkpoint.verify`."""
    key = uuid.uuid4().hex
    request = VerifyCheckpointRequest(idempotency_key=key, checkpoint_id=checkpoint, node=node)
    return await follow(calls, "VerifyCheckpoint", request, key, seen)


def checkpoint(sent: NodeCheckpoint, calls: MethodCalls) -> Checkpoint:
    """Read a checkpoint."""
    found = sent.checkpoint or CheckpointView()
    copies = tuple(
        CheckpointCopy(each.node, each.tier, each.size_bytes, each.trouble, each.unknown_since_ms)
        for each in sent.copies
    )
    return Checkpoint(
        copies=copies,
        id=found.checkpoint_id,
        node=sent.node,
        tier=found.tier,
        size_bytes=found.size_bytes,
        pid=found.pid,
        processes=found.processes,
        program=found.program,
        sealed_at_ms=found.sealed_at_ms,
        labels=dict(sorted(found.labels.items())),
        trouble=found.trouble,
        unknown_since_ms=sent.unknown_since_ms,
        calls=calls,
    )


def node_status(sent: WireNodeStatus) -> NodeStatus:
    """Read a node."""
    able = sent.capabilities
    return NodeStatus(
        node=sent.node,
        state=sent.state.name or "",
        since_ms=sent.since_ms,
        agent_id=sent.agent_id,
        software="" if able is None else able.software,
        criu=able.criu_version or able.criu_trouble if able is not None else "",
        cuda=able.cuda_driver_version or able.cuda_trouble if able is not None else "",
        gpus=() if able is None else tuple(gpu.model for gpu in able.gpus),
        tiers=()
        if able is None
        else tuple(TierStatus(tier.name, tier.budget_bytes, tier.used_bytes, tier.free_bytes) for tier in able.tiers),
        checkpoints=sent.checkpoints,
        operations=tuple(each.operation_id for each in sent.operations),
        repository="" if able is None else able.repository,
    )


def order_status(sent: WireOrderStatus) -> OrderStatus:
    """Read an order."""
    view = sent.view
    end = None if view is None else view.end
    over = end is not None and end.outcome != "aside"
    return OrderStatus(
        operation=sent.operation_id,
        node=sent.node,
        kind=sent.kind,
        checkpoint=sent.checkpoint_id,
        tier="" if view is None else view.tier,
        steps=() if view is None else tuple((step.phase, step.at_ms) for step in view.steps),
        done_bytes=0 if view is None else view.done_bytes,
        total_bytes=0 if view is None else view.total_bytes,
        cancelled=sent.cancelled,
        node_state=sent.node_state.name or "",
        outcome=end.outcome if end is not None and over else "",
        error=end.kind if end is not None else "",
        text=end.text if end is not None else "",
        lasted_ms=end.lasted_ms if end is not None else 0,
        size_bytes=end.size_bytes if end is not None else 0,
        pid=end.pid if end is not None else 0,
        processes=end.processes if end is not None else 0,
    )


def checkpoint_request(
    job: JobRef,
    key: str,
    *,
    task: int,
    tier: str,
    keep_running: bool,
    labels: Mapping[str, str],
    force: bool,
    tcp_established: bool,
) -> CheckpointTaskRequest:
    """Write what is asked for."""
    return CheckpointTaskRequest(
        idempotency_key=key,
        job=job,
        task_index=task,
        tier=tier,
        keep_running=keep_running,
        labels=dict(labels),
        force=force,
        tcp_established=tcp_established,
    )


async def listing(
    calls: MethodCalls, selector: str, node: str, labels: Mapping[str, str], *, stored: bool = False
) -> list[Checkpoint]:
    """List checkpoints, the latest first; see :meth:`Client.checkpoints`."""
    stored_by = await _list_repositories(calls, node) if stored else []
    request = ListNodeCheckpointsRequest(node=node, labels=dict(labels), selector=selector, stored_by=stored_by)
    found: dict[str, Checkpoint] = {}  # a stream that broke begins anew
    async with aclosing(calls.stream("ListNodeCheckpoints", lambda: request, NodeCheckpoint)) as sent:
        async for each in sent:
            one = checkpoint(each, calls)
            found[one.id] = one
    return sorted(found.values(), key=lambda each: (-each.sealed_at_ms, each.id))


async def _list_repositories(calls: MethodCalls, node: str) -> list[str]:
    """Have each repository listed by one agent that has it; return their nodes."""
    reply = await calls.ask("ListNodes", ListNodesRequest(), ListNodesResponse)
    agents: dict[str, str] = {}
    for each in sorted(map(node_status, reply.nodes), key=lambda each: each.node):
        if each.repository and each.state == "CONNECTED" and node in ("", each.node):
            agents.setdefault(each.repository, each.node)
    for name in agents.values():
        key = uuid.uuid4().hex
        await follow(calls, "ListRepository", ListRepositoryRequest(idempotency_key=key, node=name), key, None)
    return [*agents.values()]


async def follow(
    calls: MethodCalls,
    method: str,
    request: PlacedRequest,
    key: str,
    seen: Seen | None,
) -> OrderStatus:
    """Place an order and follow it to its end; when this is cancelled, have it undone first, within a bound.

    Raises:
        OrderFailed: it ended otherwise than it was to.
        OperationError: it was not placed, or the controller cannot be reached. It goes on then.
    """
    last: list[OrderStatus] = []

    async def place() -> OrderStatus:
        return order_status(await calls.ask(method, request, WireOrderStatus, key=key))

    async def watch() -> OrderStatus:
        placed = last[-1] if last else await place()
        last[:] = [placed]
        watched = WatchOrderRequest(operation_id=placed.operation)
        async with aclosing(calls.stream("WatchOrder", lambda: watched, WireOrderStatus)) as statuses:
            async for sent in statuses:
                last[:] = [order_status(sent)]
                if seen is not None:
                    seen(last[-1])
        return last[-1]

    try:
        status = await watch()
    except anyio.get_cancelled_exc_class():
        await _undo(calls, place, watch, last)
        raise
    if status.outcome in DONE:
        return status
    why = f"{status.error}: {status.text}" if status.error else status.text
    raise OrderFailed(
        f"{status.kind} {status.operation} on {status.node} ended as {status.outcome or 'put aside'}: {why}",
        operation=status.operation,
        outcome=status.outcome,
        kind=status.error,
    )


async def _undo(
    calls: MethodCalls,
    place: Callable[[], Coroutine[Any, Any, OrderStatus]],
    watch: Callable[[], Coroutine[Any, Any, OrderStatus]],
    last: list[OrderStatus],
) -> None:
    with anyio.CancelScope(shield=True), anyio.move_on_after(UNDO_PATIENCE_S):
        operation = (last[-1] if last else await place()).operation  # placed again: the key says that it is the same
        await calls.ask("CancelOrder", CancelOrderRequest(operation_id=operation), WireOrderStatus, key=operation)
        await watch()
