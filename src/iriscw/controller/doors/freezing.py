"""What clients ask of nodes: which there are, what is frozen there, and orders.

A part of ControllerService. The process of an attempt is found by what its
worker says of it on its present stream; the agent believes it only if boot, start time and the attempt's mark agree.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import anyio.lowlevel
import attrs

from iriscw._errors import ActorStopped, InvalidArgument, NoSuchActor
from iriscw.checkpoint.drivers.loading import REPOSITORY, TIER_NAME, NoSuchTier, named_tier
from iriscw.checkpoint.selecting import read_selector
from iriscw.controller.checkpoint_labels import MAX_USER_LABELS, task_labels, without_gpus
from iriscw.controller.doors.access import Access
from iriscw.controller.doors.agents import AgentBoard
from iriscw.controller.doors.forgetting import forget_node
from iriscw.controller.doors.lookup import JOB_ID
from iriscw.controller.doors.rules import NODE_RULES
from iriscw.controller.doors.streams import Switchboard
from iriscw.controller.errors import JobUnavailable
from iriscw.controller.events import EventHub
from iriscw.controller.tokens import ControllerTokens
from iriscw.jobs import wire
from iriscw.jobs.errors import TaskNotRunning
from iriscw.jobs.messages import JobPage, ListJobs, TaskRow
from iriscw.jobs.model import JOB_TERMINAL, JobState, Suspension
from iriscw.jobs.suspension.messages import FindSuspended, ResumeTask, SuspendTask, SuspensionView
from iriscw.nodes import wire as nodes_wire
from iriscw.nodes.errors import (
    STARTS_AGENT,
    AgentAway,
    CheckpointAmbiguous,
    CheckpointNeeded,
    CheckpointUnknown,
    NoSuchNode,
    NoSuchOrder,
    OrderKeyReused,
    TaskOutOfReach,
)
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
    CHECKPOINT,
    MAX_KEY_CHARS,
    MAX_LABEL_CHARS,
    NODE_NAME,
    OPERATION,
    OPERATION_ID,
    STORED,
    TIER,
    CheckpointRow,
    FreezeOrder,
    ListOrder,
    MoveOrder,
    NodeState,
    NodeView,
    OperationRow,
    Order,
    OrderView,
    RemoveOrder,
    ThawOrder,
    TierRow,
    VerifyOrder,
)
from iriscw.nodes.registry import RegisteredCheckpoint, joined
from iriscw.proto.iriscw import v1
from iriscw.rpc.context import call_context
from iriscw.rpc.rules import ServicePart
from iriscw.runtime.vocabulary import MILLISECOND

_TASK_INDEX = re.compile(r"\d{1,6}")

STATES = {
    NodeState.SYNCING: v1.NodeState.SYNCING,
    NodeState.CONNECTED: v1.NodeState.CONNECTED,
    NodeState.UNKNOWN: v1.NodeState.UNKNOWN,
}


class NodesDoor(ServicePart, v1.ControllerServiceBase):
    """The part of ControllerService that is about nodes: for callers who may do everything.

    Args:
        access: asks on behalf of callers.
        hub: rings when there is news of an order.
        switchboard: the connected workers, who say which processes attempts have.
        tokens: derives the tokens of agents.
        board: the streams of agents.
    """

    method_rules = NODE_RULES

    def __init__(
        self,
        access: Access,
        hub: EventHub,
        switchboard: Switchboard,
        tokens: ControllerTokens,
        board: AgentBoard,
    ) -> None:
        self._access = access
        self._board = board
        self._hub = hub
        self._switchboard = switchboard
        self._tokens = tokens

    # What there is

    async def list_nodes(self, message: v1.ListNodesRequest) -> v1.ListNodesResponse:
        """Return the nodes that agents have dialled from, by name."""
        self._access.admin()
        found = [await self._view(node, (CHECKPOINT, OPERATION, TIER)) for node in await self._names()]
        return v1.ListNodesResponse(nodes=[_node_status(view) for view in found if view is not None])

    async def list_node_checkpoints(self, message: v1.ListNodeCheckpointsRequest) -> AsyncIterator[v1.NodeCheckpoint]:
        """Yield each checkpoint of all nodes, or of one, once, as its copies were last known."""
        self._access.admin()
        wanted, selector = dict(message.labels), read_selector(message.selector)
        names = await self._names()
        if message.node and message.node not in names:
            raise NoSuchNode(f"no agent has dialled from a node {message.node[:80]!r}")
        views = [await self._view(node, (CHECKPOINT,)) for node in ((message.node,) if message.node else names)]
        for entries in joined([view for view in views if view is not None], frozenset(message.stored_by)):
            await anyio.lowlevel.checkpoint()  # a hundred thousand checkpoints take seconds
            for entry in entries:
                labels = dict(entry.told.row.labels)
                if wanted.items() <= labels.items() and selector.matches(None if entry.told.row.trouble else labels):
                    yield _node_checkpoint(entry)

    async def _names(self) -> tuple[str, ...]:
        names: tuple[str, ...] = await self._access.ask(AGENTS, ListNodes())
        return names

    async def _view(self, node: str, kinds: tuple[str, ...]) -> NodeView | None:
        """Describe a node; None if its mirror was put aside, or is just being made."""
        try:
            view: NodeView = await self._access.ask(AGENTS / node, DescribeNode(kinds))
        except (NoSuchActor, ActorStopped):
            return None
        return view

    # Orders

    async def checkpoint_task(self, message: v1.CheckpointTaskRequest) -> v1.OrderStatus:
        """Order a copy of a task's processes."""
        job_id = (await self._access.view(message.job, self._access.admin())).job_id
        if not message.keep_running:
            raise InvalidArgument("this is for copies of tasks that run on (keep_running): SuspendTask suspends one")
        tier = tier_of(message.tier)
        key = order_key(message.idempotency_key)
        check_labels(tuple(message.labels.items()))
        labels = task_labels(message.labels, job_id, message.task_index)
        before = await self._placed_before(key)
        if before is not None:  # its attempt may have ended since: the answer is the same all the same
            frozen = before.order.freeze
            if frozen is None or (without_gpus(frozen.labels), frozen.tier) != (labels, tier):
                raise _reused()
            return await self._status(before)
        row = await self._access.task(job_id, message.task_index)
        gpus = () if row.attempt is None else row.attempt.gpus
        labels = task_labels(message.labels, job_id, message.task_index, gpus)
        process, node = self._reach(job_id, row)
        freeze = FreezeOrder(
            pid=process.pid,
            start_ticks=process.start_ticks,
            boot_id=process.boot_id,
            attempt_uid=row.uid,
            tier=tier,
            leave_running=True,
            force=message.force,
            tcp_established=message.tcp_established,
            labels=labels,
            pid_namespace=process.pid_namespace,
        )
        return await self._place(key, node, Order("", freeze=freeze))

    def _reach(self, job_id: str, row: TaskRow) -> tuple[v1.ProcessRef, str]:
        """Find the process of a task that runs, and the machine that it is on."""
        task = f"task {row.index} of {job_id}"
        if row.suspension is not None and row.suspension.phase is not Suspension.NONE:
            raise TaskNotRunning(f"{task} is {row.suspension.phase.name.lower()}")
        connection = self._switchboard.find(row.worker_id) if row.worker_id and row.ending is None else None
        if connection is None:
            raise TaskNotRunning(f"{task} has no attempt on a worker that is heard of")
        if row.uid not in connection.processes:
            raise TaskNotRunning(f"the process of {task} has not begun, or has ended")
        process = connection.processes[row.uid]
        if process is None:
            raise TaskOutOfReach(
                f"worker {row.worker_id} runs the attempt as what no agent can freeze: in a pod of its own, or a thread"
            )
        node = connection.hello.node
        if not node:
            raise TaskOutOfReach(f"worker {row.worker_id} does not say which machine it is on")
        return process, node

    async def suspend_task(self, message: v1.SuspendTaskRequest) -> v1.TaskSuspension:
        """Have a task suspended: its job decides. What cannot be where it runs is said at once."""
        job_id = (await self._access.view(message.job, self._access.admin())).job_id
        key, store = order_key(message.idempotency_key), message.tier == REPOSITORY
        tier = "" if store else tier_of(message.tier)
        check_labels(tuple(message.labels.items()))
        row = await self._access.task(job_id, message.task_index)
        if row.suspension is None or (row.suspension.phase is Suspension.NONE and row.suspension.key != key):
            _, node = self._reach(job_id, row)
            await self._agent(node)
        labels = tuple(sorted(message.labels.items()))
        asked = SuspendTask(message.task_index, key, tier, message.force, labels, store)
        view: SuspensionView = await self._access.ask(f"/jobs/{job_id}", asked)
        return wire.task_suspension(view)

    async def resume_task(self, message: v1.ResumeTaskRequest) -> v1.TaskSuspension:
        """Have a suspended task go on."""
        job_id = (await self._access.view(message.job, self._access.admin())).job_id
        asked = ResumeTask(message.task_index, order_key(message.idempotency_key))
        view: SuspensionView = await self._access.ask(f"/jobs/{job_id}", asked)
        return wire.task_suspension(view)

    async def restore_checkpoint(self, message: v1.RestoreCheckpointRequest) -> v1.OrderStatus:
        """Order that a checkpoint be brought back where it is."""
        self._access.admin()
        order = Order("", thaw=ThawOrder(message.checkpoint_id, message.force))
        return await self._place_at_holder(order_key(message.idempotency_key), message.node, order)

    async def delete_checkpoint(self, message: v1.DeleteCheckpointRequest) -> v1.OrderStatus:
        """Order that a checkpoint be removed where it is."""
        self._access.admin()
        order = Order("", remove=RemoveOrder(message.checkpoint_id, message.here_only))
        return await self._place_at_holder(order_key(message.idempotency_key), message.node, order)

    async def move_checkpoint(self, message: v1.MoveCheckpointRequest) -> v1.OrderStatus:
        """Order that a checkpoint come to another tier of its node; which ones there are the node's agent knows."""
        self._access.admin()
        if not TIER_NAME.fullmatch(message.tier) and (message.tier or not message.keep):
            raise InvalidArgument(f"{message.tier[:80]!a} is not the name of a tier")
        order = Order("", move=MoveOrder(message.checkpoint_id, message.tier, message.keep))
        return await self._place_at_holder(order_key(message.idempotency_key), message.node, order)

    async def verify_checkpoint(self, message: v1.VerifyCheckpointRequest) -> v1.OrderStatus:
        """Order that every byte of a checkpoint be read where it is."""
        self._access.admin()
        order = Order("", verify=VerifyOrder(message.checkpoint_id))
        return await self._place_at_holder(order_key(message.idempotency_key), message.node, order)

    async def list_repository(self, message: v1.ListRepositoryRequest) -> v1.OrderStatus:
        """Order that an agent list what its repository has."""
        self._access.admin()
        key, order = order_key(message.idempotency_key), Order("", listing=ListOrder())
        before = await self._placed_before(key)
        if before is None:
            return await self._place(key, message.node, order)
        if attrs.evolve(before.order, operation="") != order or message.node != before.node:
            raise _reused()
        return await self._status(before)

    async def cancel_order(self, message: v1.CancelOrderRequest) -> v1.OrderStatus:
        """Have an order undone."""
        self._access.admin()
        view: OrderView = await self._access.ask(ORDERS, CancelOrder(message.operation_id))
        return await self._status(view)

    async def watch_order(self, message: v1.WatchOrderRequest) -> AsyncIterator[v1.OrderStatus]:
        """Yield an order now and after each change, to its end."""
        self._access.admin()
        told: v1.OrderStatus | None = None
        with self._hub.subscribed(message.operation_id) as events:
            while True:
                view: OrderView = await self._access.ask(ORDERS, DescribeOrder(message.operation_id))
                status = await self._status(view)
                if status != told:
                    told = status
                    yield status
                if view.end is not None:
                    return
                await events.wait()

    async def get_agent_token(self, message: v1.GetAgentTokenRequest) -> v1.GetAgentTokenResponse:
        """Return the token of a node's agent."""
        self._access.admin()
        if not NODE_NAME.fullmatch(message.node):
            raise InvalidArgument(f"{message.node[:80]!a} is not a valid node name")
        return v1.GetAgentTokenResponse(token=self._tokens.agent_token(message.node).reveal())

    async def forget_node(self, message: v1.ForgetNodeRequest) -> v1.ForgetNodeResponse:
        """Forget a node whose agent is away."""
        self._access.admin()
        return v1.ForgetNodeResponse(orders_lost=await forget_node(self._access, self._board, message.node))

    async def _placed_before(self, key: str) -> OrderView | None:
        view: OrderView | None = await self._access.ask(ORDERS, FindOrder(key))
        return view

    async def _place_at_holder(self, key: str, named: str, order: Order) -> v1.OrderStatus:
        """Place an order about a checkpoint where that is; one of this key is answered wherever its agent is now."""
        before = await self._placed_before(key)
        if before is not None:  # the checkpoint may be gone since, by this very order
            if attrs.evolve(before.order, operation="") != order or named not in ("", before.node):
                raise _reused()
            return await self._status(before)
        node, row = await self._holder(order.checkpoint, named)
        if not _stays(order, row):
            await self._refuse_needed(order.checkpoint, row)
        return await self._place(key, node, order)

    async def _refuse_needed(self, checkpoint: str, row: CheckpointRow | None) -> None:
        """Refuse to touch what a suspended task consists of. The labels say whom to ask; the job knows.

        Where nobody can say which labels it has, all jobs are asked that are not over.

        Raises:
            CheckpointNeeded: it is that.
            JobUnavailable: a job cannot say.
        """
        told = await self._ordered_labels(checkpoint) if row is None or row.trouble else row.labels
        if told is None:
            async for each in self._open_jobs():
                await self._refuse_needed_by(each, checkpoint)
            return
        labels = dict(told)
        job_id, index = labels.get("job", ""), labels.get("task", "")
        if JOB_ID.fullmatch(job_id) and _TASK_INDEX.fullmatch(index):
            await self._refuse_needed_by(job_id, checkpoint)

    async def _refuse_needed_by(self, job_id: str, checkpoint: str) -> None:
        try:
            found: SuspensionView | None = await self._access.ask(f"/jobs/{job_id}", FindSuspended(checkpoint))
        except (NoSuchActor, ActorStopped):
            if await self._access.forgotten(job_id):
                return
            raise JobUnavailable(f"job {job_id} cannot be asked now whether it needs {checkpoint}") from None
        if found is not None:
            raise CheckpointNeeded(
                f"{checkpoint} is all that there is of task {found.index} of {job_id}, which is suspended:"
                f" `iriscw resume {job_id} --task {found.index}`, or stop the job"
            )

    async def _open_jobs(self) -> AsyncIterator[str]:
        """Yield those that are not over."""
        states, after = tuple(state for state in JobState if state not in JOB_TERMINAL), ""
        while True:
            page: JobPage = await self._access.ask("/jobs", ListJobs(after, states=states))
            for row in page.rows:
                yield row.job_id
            after = page.next
            if not after:
                return

    async def _ordered_labels(self, checkpoint: str) -> tuple[tuple[str, str], ...] | None:
        """Return the labels with which a checkpoint was ordered, for one of which no node tells any.

        None: the order is forgotten, or there was none.
        """
        try:
            view: OrderView = await self._access.ask(ORDERS, DescribeOrder(checkpoint))
        except NoSuchOrder:
            return None
        return None if view.order.freeze is None else view.order.freeze.labels

    async def _holder(self, checkpoint: str, named: str) -> tuple[str, CheckpointRow | None]:
        """Find the node that has a checkpoint, and what is known of it there."""
        if not OPERATION_ID.fullmatch(checkpoint):
            raise InvalidArgument(f"{checkpoint[:80]!a} is not a checkpoint id")
        holders: list[tuple[str, CheckpointRow]] = []
        away = []
        for node in (named,) if named else await self._names():
            if not NODE_NAME.fullmatch(node):
                continue
            view = await self._view(node, (CHECKPOINT,))
            if view is None or view.state is NodeState.UNKNOWN:
                away.append(node)
            rows = () if view is None else view.facts
            found = [row for row in rows if isinstance(row, CheckpointRow) and row.checkpoint == checkpoint]
            found.sort(key=lambda row: row.tier == STORED)
            holders += [(node, row) for row in found[:1] if named or row.tier != STORED]
        if named:
            return named, holders[0][1] if holders else None
        if len(holders) > 1:
            names = ", ".join(node for node, _ in holders[:8])
            raise CheckpointAmbiguous(f"{checkpoint} is on {names}: name the node")
        if not holders:
            unheard = f"; {len(away)} nodes are not heard of now, and may have it" if away else ""
            raise CheckpointUnknown(f"no node has a checkpoint {checkpoint}{unheard}")
        return holders[0]

    async def _agent(self, node: str) -> str:
        """Return the agent of a node that is heard of."""
        view = await self._view(node, ()) if NODE_NAME.fullmatch(node) else None
        if view is None:
            raise NoSuchNode(f"no agent has dialled from node {node[:80]!r}: {STARTS_AGENT}")
        if view.state is NodeState.UNKNOWN or view.identity is None:
            raise AgentAway(f"the agent of {node} has no stream to the controller now")
        return view.identity.agent_id

    async def _place(self, key: str, node: str, order: Order) -> v1.OrderStatus:
        placed: OrderView = await self._access.ask(ORDERS, PlaceOrder(key, node, await self._agent(node), order))
        return await self._status(placed)

    async def _status(self, view: OrderView) -> v1.OrderStatus:
        operation = view.order.operation
        there = await self._view(view.node, (OPERATION,))
        running = next(
            (
                row
                for row in (there.facts if there is not None else ())
                if isinstance(row, OperationRow) and row.operation == operation
            ),
            None,
        )
        shown = v1.OperationView(operation_id=operation, kind=view.order.kind, checkpoint_id=view.order.checkpoint)
        if running is not None:
            shown = nodes_wire.operation_view(running)
        if view.end is not None:
            shown.end = nodes_wire.operation_end(view.end)
            shown.tier = view.end.tier or shown.tier
        return v1.OrderStatus(
            operation_id=operation,
            node=view.node,
            kind=view.order.kind,
            checkpoint_id=view.order.checkpoint,
            ordered_at_ms=view.wall_ns // MILLISECOND,
            cancelled=view.cancelled,
            view=shown,
            node_state=STATES[NodeState.UNKNOWN if there is None else there.state],
            node_since_ms=0 if there is None else there.since_wall_ns // MILLISECOND,
        )


def _stays(order: Order, row: CheckpointRow | None) -> bool:
    """Whether a suspended task can go on from its checkpoint after this: any tier of its node will do."""
    move = order.move
    if move is None:
        return order.verify is not None
    return move.keep or (row is not None and move.target != REPOSITORY)


def _reused() -> OrderKeyReused:
    return OrderKeyReused("the key was used before, for another order")


def order_key(given: str) -> str:
    """Return the key of a call that changes something.

    Raises:
        InvalidArgument: it has none.
    """
    key = given or call_context().idempotency_key
    if not 0 < len(key) <= MAX_KEY_CHARS:
        raise InvalidArgument(f"an order carries an idempotency key of 1 to {MAX_KEY_CHARS} characters")
    return key


def tier_of(given: str) -> str:
    """Return the tier that a call means: one that the controller's installation has, as its nodes' agents do.

    Raises:
        InvalidArgument: there is none of this name.
    """
    try:
        return named_tier(given)
    except NoSuchTier as error:
        raise InvalidArgument(str(error)) from error


def check_labels(labels: tuple[tuple[str, str], ...]) -> None:
    """Refuse labels that no manifest takes.

    Raises:
        InvalidArgument: there are too many, or one is none.
    """
    if len(labels) > MAX_USER_LABELS:
        raise InvalidArgument(f"{len(labels)} labels: at most {MAX_USER_LABELS}")
    for name, value in labels:
        short = 0 < len(name) <= MAX_LABEL_CHARS and len(value) <= MAX_LABEL_CHARS
        if not short or not name.isprintable() or not value.isprintable():
            raise InvalidArgument(f"label {name[:80]!a}: printable, from 1 to {MAX_LABEL_CHARS} characters")


def _node_status(view: NodeView) -> v1.NodeStatus:
    status = v1.NodeStatus(
        node=view.node,
        state=STATES[view.state],
        since_ms=view.since_wall_ns // MILLISECOND,
        checkpoints=sum(isinstance(fact, CheckpointRow) and fact.tier != STORED for fact in view.facts),
        checkpoints_omitted=view.omitted,
        operations=[nodes_wire.operation_view(fact) for fact in view.facts if isinstance(fact, OperationRow)],
    )
    if view.identity is not None:
        status.agent_id, status.starts = view.identity.agent_id, view.identity.starts
    if view.abilities is not None:
        status.capabilities = nodes_wire.capabilities(view.abilities, view.node)
        status.capabilities.tiers = [nodes_wire.tier_view(fact) for fact in view.facts if isinstance(fact, TierRow)]
    return status


def _node_checkpoint(entry: RegisteredCheckpoint) -> v1.NodeCheckpoint:
    told = entry.told
    return v1.NodeCheckpoint(
        node=told.node,
        checkpoint=nodes_wire.checkpoint_view(told.row),
        unknown_since_ms=told.unknown_since_ms,
        copies=[
            v1.CheckpointCopy(
                node=copy.node,
                tier=copy.row.tier,
                size_bytes=copy.row.size_bytes,
                trouble=copy.row.trouble,
                unknown_since_ms=copy.unknown_since_ms,
            )
            for copy in entry.copies
        ],
    )
