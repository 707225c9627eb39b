"""Freezing and thawing, checkpoints and nodes: what a client asks for."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from iriscw._errors import InvalidArgument
from iriscw.client import nodes as at_nodes, suspending
from iriscw.client.calls import MethodCalls
from iriscw.client.job import Job
from iriscw.client.model import (
    NodeStatus,
    OrderStatus,
    TaskSuspension,
)
from iriscw.client.nodes import Checkpoint
from iriscw.proto.iriscw.v1 import (
    ForgetNodeRequest,
    ForgetNodeResponse,
    GetAgentTokenRequest,
    GetAgentTokenResponse,
    JobRef,
    ListNodesRequest,
    ListNodesResponse,
    RestoreCheckpointRequest,
    ResumeTaskRequest,
    SuspendTaskRequest,
)
from iriscw.rpc.tokens import Secret


class FreezingCalls:
    """Of :class:`iriscw.Client`."""

    _calls: MethodCalls

    async def checkpoint(
        self,
        job: Job | str,
        *,
        task: int = 0,
        tier: str = "",
        keep_running: bool = False,
        labels: Mapping[str, str] | None = None,
        force: bool = False,
        tcp_established: bool = False,
        seen: Callable[[OrderStatus], None] | None = None,
    ) -> Checkpoint:
        """Have the processes of a task frozen by the agent of the machine that they run on.

        Without ``keep_running`` the task is suspended (:meth:`suspend`), and this gives its checkpoint.

        Whoever is cancelled while it waits has it undone. A lost connection, or a controller that restarts, changes
        nothing: the order is on its disk, and is followed again.

        Args:
            job: which job, or its id or name.
            task: which of its tasks.
            tier: where to, one of its machine's tiers; empty: the default one.
            keep_running: the task runs on, and the job knows nothing of it.
            labels: kept with the checkpoint, beside ``job`` and ``task``.
            force: go on when the application did not come to rest.
            tcp_established: freeze open TCP connections too. A task that is suspended gives them up.
            seen: told of each change; of a copy only.

        Raises:
            NoSuchJob: there is no such job.
            TaskEnded: the task is over.
            TaskNotRunning: the task has no process that is known to run now; that is waited for, for a minute.
            TaskOutOfReach: its processes are none that a node's agent can freeze.
            NoSuchNode: no agent has ever dialled from the machine that it runs on.
            AgentAway: that agent is not heard of now.
            TooManyOrders: too many orders have not ended.
            OrderFailed: it was not frozen; the text says why.
            OperationError: the controller cannot be reached.
        """
        if not keep_running:
            if tcp_established:
                raise InvalidArgument("tcp_established: a task that is suspended gives its connections up")
            done = await self.suspend(job, task=task, tier=tier, labels=labels, force=force)
            found = [each for each in await self.checkpoints(node=done.node) if each.id == done.checkpoint]
            return found[0] if found else Checkpoint(done.checkpoint, done.node, tier, 0, calls=self._calls)
        ref, key = job_ref(job), uuid.uuid4().hex
        request = at_nodes.checkpoint_request(
            ref,
            key,
            task=task,
            tier=tier,
            keep_running=keep_running,
            labels=labels or {},
            force=force,
            tcp_established=tcp_established,
        )
        copy = await at_nodes.follow(self._calls, "CheckpointTask", request, key, seen)
        found = [each for each in await self.checkpoints(node=copy.node) if each.id == copy.checkpoint]
        made = Checkpoint(
            copy.checkpoint, copy.node, copy.tier, copy.size_bytes, copy.pid, copy.processes, calls=self._calls
        )
        return found[0] if found else made

    async def suspend(
        self,
        job: Job | str,
        *,
        task: int = 0,
        tier: str = "",
        labels: Mapping[str, str] | None = None,
        force: bool = False,
        seen: Callable[[TaskSuspension], None] | None = None,
    ) -> TaskSuspension:
        """Have a running task frozen and its room given back, and wait until it is. The job goes on with it later.

        It keeps its attempt, and stays RUNNING; :meth:`resume` has it go on, on any worker of the same machine; with
        the tier ``repository`` on any machine whose agent has the same repository. Its TCP connections are given up.
        Whoever stops waiting changes nothing.

        Args:
            job: which job, or its id or name.
            task: which of its tasks; none of a gang.
            tier: where to, one of its machine's tiers, or ``repository``, which gets it from the default one; empty:
                that.
            labels: kept with the checkpoint, beside ``job`` and ``task``.
            force: go on when the application did not come to rest.
            seen: told of each change.

        Raises:
            NoSuchJob: there is no such job.
            TaskEnded: the task is over, or ended before it was frozen.
            TaskNotRunning: it has no process that is known to run now; that is waited for, for a minute.
            GangNotSuspendable: it is a member of a gang.
            SuspensionRefused: its job cannot suspend it just now; that is waited for, for a minute.
            TaskOutOfReach, NoSuchNode, AgentAway: as :meth:`checkpoint`.
            OrderFailed: it was not frozen, and runs on; or it is suspended, and did not come to the repository
                (``outcome`` is ``stayed``). The text says why.
            OperationError: the controller cannot be reached.
        """
        request = SuspendTaskRequest(
            idempotency_key=uuid.uuid4().hex,
            job=job_ref(job),
            task_index=task,
            tier=tier,
            labels=dict(labels or {}),
            force=force,
        )
        return await suspending.suspend(self._calls, request, seen)

    async def resume(
        self, job: Job | str, *, task: int = 0, seen: Callable[[TaskSuspension], None] | None = None
    ) -> TaskSuspension:
        """Have a suspended task go on, and wait until it runs; one that runs is left as it is.

        It waits for a worker with room, of its machine or of one that has its repository. Whoever stops waiting
        changes nothing.

        Args:
            job: which job, or its id or name.
            task: which of its tasks.
            seen: told of each change.

        Raises:
            NoSuchJob: there is no such job.
            TaskEnded: the task is over, or its attempt could not be brought back; the text says why.
            TaskNotRunning: it has no attempt.
            OrderFailed: somebody suspended it again.
            OperationError: the controller cannot be reached.
        """
        request = ResumeTaskRequest(idempotency_key=uuid.uuid4().hex, job=job_ref(job), task_index=task)
        return await suspending.resume(self._calls, request, seen)

    async def restore(
        self,
        checkpoint: Checkpoint | str,
        *,
        node: str = "",
        force: bool = False,
        seen: Callable[[OrderStatus], None] | None = None,
    ) -> OrderStatus:
        """Bring a checkpoint back on the node that has it; what comes back belongs to no job.

        Args:
            checkpoint: which one, or its id.
            node: where, if several nodes have it.
            force: although the node's processor lacks features of the old one.
            seen: told of each change.

        Raises:
            CheckpointUnknown: no node that is heard of has it.
            CheckpointNeeded: a suspended task goes on from it.
            CheckpointAmbiguous: several have.
            NoSuchNode, AgentAway, TooManyOrders, OrderFailed, OperationError: as :meth:`checkpoint`.
        """
        wanted, where = (checkpoint, "") if isinstance(checkpoint, str) else (checkpoint.id, checkpoint.node)
        key = uuid.uuid4().hex
        request = RestoreCheckpointRequest(idempotency_key=key, checkpoint_id=wanted, node=node or where, force=force)
        return await at_nodes.follow(self._calls, "RestoreCheckpoint", request, key, seen)

    async def move(
        self,
        checkpoint: Checkpoint | str,
        tier: str,
        *,
        node: str = "",
        keep: bool = False,
        seen: Callable[[OrderStatus], None] | None = None,
    ) -> OrderStatus:
        """Bring a checkpoint to another tier of its node, to the repository of that node's agent, or from there.

        Every byte of the copy is verified before anybody sees it, and only then the checkpoint goes from where it lay.
        The answer's ``outcome`` is ``moved``; ``copied`` where it lies in both places, as it was asked or because
        somebody uses it.

        Args:
            checkpoint: which one, or its id.
            tier: where to: a tier's name, or ``repository``.
            node: whose agent does it, if several nodes have it, or only a repository.
            keep: let it lie where it lies, too.
            seen: told of each change.

        Raises:
            CheckpointUnknown: no node that is heard of has it.
            CheckpointNeeded: a suspended task goes on from it, and it would leave the task's node.
            CheckpointAmbiguous: several have.
            NoSuchNode, AgentAway, TooManyOrders, OrderFailed, OperationError: as :meth:`checkpoint`.
        """
        wanted, where = (checkpoint, "") if isinstance(checkpoint, str) else (checkpoint.id, checkpoint.node)
        return await at_nodes.move(self._calls, wanted, tier, node=node or where, keep=keep, seen=seen)

    async def verify(
        self, checkpoint: Checkpoint | str, *, node: str = "", seen: Callable[[OrderStatus], None] | None = None
    ) -> OrderStatus:
        """Have every byte of the copies of a checkpoint read and compared that a node's agent reaches.

        That in its repository is one of them. Of all nodes: :meth:`Checkpoint.verify`.

        Args:
            checkpoint: which one, or its id.
            node: whose agent does it, if several nodes have it, or only a repository.
            seen: told of each change.

        Raises:
            CheckpointUnknown: no node that is heard of has it.
            CheckpointAmbiguous: several have.
            OrderFailed: a copy is not whole (``kind`` is ``ArtifactRefused``), or cannot be read now.
            NoSuchNode, AgentAway, TooManyOrders, OperationError: as :meth:`checkpoint`.
        """
        wanted, where = (checkpoint, "") if isinstance(checkpoint, str) else (checkpoint.id, checkpoint.node)
        return await at_nodes.verify(self._calls, wanted, node=node or where, seen=seen)

    async def checkpoints(
        self,
        selector: str = "",
        *,
        node: str = "",
        labels: Mapping[str, str] | None = None,
        stored: bool = False,
    ) -> list[Checkpoint]:
        """List the checkpoints of all nodes, each once, the latest first, as the nodes' agents last told of them.

        Args:
            selector: only those whose labels are so, as Kubernetes writes it: ``model=a,version!=2``,
                ``model in (a,b)``, ``model notin (a,b)``, ``model``, ``!model``.
            node: only those on it, and only their copies there.
            labels: only those with all of these.
            stored: also what the repositories of agents have that are heard of: each is listed now, by one of the
                agents that have it, and is one copy, however many nodes share it.

        Raises:
            InvalidArgument: the selector is malformed.
            NoSuchNode: no agent has ever dialled from it.
            OrderFailed: a repository cannot be listed.
            OperationError: the controller cannot be reached.
        """
        return await at_nodes.listing(self._calls, selector, node, labels or {}, stored=stored)

    async def nodes(self) -> list[NodeStatus]:
        """List the nodes that agents have dialled from.

        Raises:
            OperationError: the controller cannot be reached.
        """
        reply = await self._calls.ask("ListNodes", ListNodesRequest(), ListNodesResponse)
        return [at_nodes.node_status(each) for each in reply.nodes]

    async def forget_node(self, node: str) -> int:
        """Have the controller forget a node whose agent does not come back, and all that was heard of it.

        What the agent was ordered and has not ended ends as unknown. If it does come back, it is a new node's, and says
        again what it has.

        Returns:
            How many orders had not ended.

        Raises:
            InvalidArgument: the name is none of a node.
            NoSuchNode: no agent has ever dialled from it.
            NodeConnected: its agent has a stream to the controller.
            OperationError: the controller cannot be reached.
        """
        return (await self._calls.ask("ForgetNode", ForgetNodeRequest(node=node), ForgetNodeResponse)).orders_lost

    async def agent_token(self, node: str) -> Secret:
        """Return the token by which the agent of a node authenticates: the same each time.

        Raises:
            InvalidArgument: the name is none of a node.
            OperationError: the controller cannot be reached.
        """
        reply = await self._calls.ask("GetAgentToken", GetAgentTokenRequest(node=node), GetAgentTokenResponse)
        return Secret(reply.token)


def job_ref(job: Job | str) -> JobRef:
    if isinstance(job, str):
        return JobRef(job_id=job)
    if isinstance(job, Job):
        return JobRef(job_id=job.id, job_uid=job.uid)
    raise InvalidArgument(f"job: {job!r} is neither a job nor the id or the name of one")
