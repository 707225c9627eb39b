"""``iriscw.connect()`` and the client it gives."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import anyio.to_thread

from iriscw._errors import InvalidArgument
from iriscw.client import nodes as at_nodes, suspending, wire
from iriscw.client.calls import INSPECTION, MethodCalls
from iriscw.client.contact import Keeper
from iriscw.client.creating import ActorCreation
from iriscw.client.discovery import ControllerEndpoint, authority_of, discover, is_network_trusted
from iriscw.client.errors import NotConnected
from iriscw.client.job import PAGE, Job
from iriscw.client.model import (
    ActorStatus,
    ClusterStatus,
    GpuStatus,
    JobStatus,
    NodeStatus,
    OrderStatus,
    PoolStatus,
    SliceStatus,
    TaskSuspension,
)
from iriscw.client.nodes import Checkpoint
from iriscw.client.submission import Command, Constraints, Submission, build_setup, build_submission
from iriscw.client.upload import bundled
from iriscw.packages.requirements import DEFAULT_SETUP_TIMEOUT_S
from iriscw.proto.iriscw.v1 import (
    ClusterStatus as WireClusterStatus,
    ForgetNodeRequest,
    ForgetNodeResponse,
    GetAgentTokenRequest,
    GetAgentTokenResponse,
    GetClusterStatusRequest,
    GetJobRequest,
    JobRef,
    JobStatus as WireJobStatus,
    ListActorsRequest,
    ListActorsResponse,
    ListGpusRequest,
    ListGpusResponse,
    ListJobsRequest,
    ListJobsResponse,
    ListNodesRequest,
    ListNodesResponse,
    ListPoolsRequest,
    ListPoolsResponse,
    ListSlicesRequest,
    ListSlicesResponse,
    ReopenPoolRequest,
    ReopenPoolResponse,
    RestoreCheckpointRequest,
    ResumeTaskRequest,
    SubmitJobResponse,
    SuspendTaskRequest,
)
from iriscw.resources import Resources
from iriscw.rpc.client import RpcChannel
from iriscw.rpc.tokens import Secret

Value = TypeVar("Value")


class Client(ActorCreation):
    """Talks to one controller. Made by :func:`iriscw.connect` or a :class:`iriscw.Cluster`.

    One client serves any number of tasks of an event loop at the same time.
    """

    def __init__(
        self,
        channel: RpcChannel,
        *,
        job_id: str = "",
        keeper: Keeper | None = None,
        refused_s: float | None = None,
    ) -> None:
        self._calls = MethodCalls(channel, keeper=keeper, refused_s=refused_s)
        self._job_id = job_id

    def __repr__(self) -> str:
        return f"<iriscw.Client of {self._calls.channel.address}>"

    @property
    def address(self) -> str:
        """Where the controller listens."""
        return str(self._calls.channel.address)

    async def submit(
        self,
        entrypoint: Callable[..., Any] | Command,
        *args: Any,
        name: str,
        resources: Resources | None = None,
        replicas: int = 1,
        environment: Mapping[str, str] | None = None,
        ports: Sequence[str] = (),
        constraints: Constraints = (),
        coscheduling: str | None = None,
        priority: str = "interactive",
        timeout: float | None = None,
        scheduling_timeout: float | None = None,
        max_retries_failure: int = 0,
        max_retries_preemption: int = 100,
        existing: str = "error",
        bundle: str | os.PathLike[str] | None = None,
        bundle_exclude: Sequence[str] = (),
        image: str = "",
        freezable: bool = False,
        detached: bool = False,
        checkpoint_every: float | None = None,
        keep_checkpoints: int = 2,
        retry_from_checkpoint: bool = False,
        dependencies: Sequence[str] | str | os.PathLike[str] = (),
        setup: Sequence[Sequence[str]] = (),
        setup_timeout: float = DEFAULT_SETUP_TIMEOUT_S,
        **kwargs: Any,
    ) -> Job:
        """Have ``entrypoint(*args, **kwargs)`` run once in each of ``replicas`` tasks; return when the journal has it.

        Args:
            entrypoint: a callable, or a :class:`iriscw.Command`.
            args: for the callable.
            name: for people, and to find the job by; unique among those that have not ended.
            resources: of each task; 1 CPU and 1 GiB if None.
            replicas: how many tasks.
            environment: variables of the tasks; those that iriscw sets for each task are refused.
            ports: names of ports to set aside for each task: ``context().port(name)``, ``IRIS_PORT_<NAME>``.
            constraints: which workers will do: ``{"region": "LGA1"}`` or ``["rack>=4", "zone in a,b", "!spot"]``.
            coscheduling: an attribute, such as ``slice-id``: all tasks run at once, on workers that share its value.
            priority: ``production``, ``interactive`` or ``batch``.
            timeout: seconds that one attempt may run.
            scheduling_timeout: seconds that a task may wait for a worker.
            max_retries_failure: failed attempts that a task may have before it is given up.
            max_retries_preemption: attempts that a task may lose to the infrastructure before it is given up.
            existing: of a job of this name that has not ended: ``error``, ``keep`` (return it), ``recreate`` (end it).
            bundle: a folder whose files each task finds in its working folder; without it that is empty.
            bundle_exclude: patterns of what it leaves out, beside ``.git``, virtual environments and the like.
            image: what each task runs in, by full name, where a group has ``task_runtime: pod``; "": as that says.
            freezable: keep io_uring from the tasks, so that programs which would use one (uvloop does) can be frozen.
            detached: of a job that a task submits: go on when the task's own job ends. Otherwise it ends with that.
            checkpoint_every: seconds between two checkpoints of each task that runs, and runs on; None: none are made.
            keep_checkpoints: how many of these are kept of a task, the newest.
            retry_from_checkpoint: begin a task that is tried again from the newest: what it did since, it does again.
            dependencies: packages to install (``["numpy>=2"]``), or a file here that lists them (``pyproject.toml``).
            setup: commands, as lists of arguments, that each task runs in its folder before it begins, one by one.
            setup_timeout: seconds that the installation, and each of these commands, may take.
            kwargs: for the callable.

        Raises:
            ImageNotSupported: an image is named, and tasks are processes of their workers in this cluster.
            InvalidArgument, InvalidPortName: an argument cannot be; the text names it.
            NotPicklable, PayloadTooLarge: the callable or an argument cannot travel, or is too large to.
            PythonNotSupported: no worker of the cluster can have this Python.
            BundleTooLarge, InvalidBundleFolder: the folder is none, or holds more, or other things, than a bundle may.
            JobExists: see ``existing``.
            ParentOver: a task submits a job that is not ``detached``, and its own job is over.
            OperationError: the controller takes no work now, or cannot be reached.
        """
        wishes: dict[str, Any] = {"name": name, "resources": resources, "replicas": replicas, "ports": ports}
        wishes |= {"constraints": constraints, "coscheduling": coscheduling, "priority": priority, "timeout": timeout}
        wishes |= {"environment": environment, "scheduling_timeout": scheduling_timeout, "existing": existing}
        wishes |= {"max_retries_failure": max_retries_failure, "max_retries_preemption": max_retries_preemption}
        wishes |= {"detached": detached, "parent_job_id": self._job_id, "checkpoint_every": checkpoint_every}
        wishes |= {"keep_checkpoints": keep_checkpoints, "retry_from_checkpoint": retry_from_checkpoint}
        submission = build_submission(entrypoint, args, kwargs, **wishes)
        run = {"image": image, "freezable": freezable, "before": (dependencies, setup, setup_timeout)}
        return await self._send(submission, bundle, bundle_exclude, **run)

    async def _send(
        self,
        submission: Submission,
        bundle: str | os.PathLike[str] | None = None,
        bundle_exclude: Sequence[str] = (),
        **run: Any,
    ) -> Job:
        key, spec = uuid.uuid4().hex, submission.spec
        if (before := run.pop("before", None)) is not None:
            run["setup"] = await anyio.to_thread.run_sync(build_setup, *before)
        run["bundle_id"] = await bundled(self._calls, bundle, bundle_exclude)
        request = wire.submit_request(spec, submission.entrypoint, key=key, existing=submission.existing, **run)
        reply = await self._calls.ask("SubmitJob", request, SubmitJobResponse, key=key)
        return Job(self._calls, reply.job_id, reply.job_uid, spec.name)

    async def job(self, job: Job | str) -> Job:
        """Find a job by its id, or by the name of the latest job that has it; or one that is known anew.

        Raises:
            InvalidArgument: it is neither.
            NoSuchJob: there is none, or it was forgotten.
            OperationError: the controller cannot be reached.
        """
        request = GetJobRequest(job=_ref(job))
        return self._job(wire.job_status(await self._calls.ask("GetJob", request, WireJobStatus)))

    async def jobs(self, *, states: Iterable[str] = (), prefix: str = "") -> list[Job]:
        """List the jobs that the controller remembers; each has its status of now as ``seen``.

        Args:
            states: only jobs in one of them: ``iriscw.JobState``, or its name; none given: all.
            prefix: only ids that begin with it.

        Raises:
            InvalidArgument: a state is none.
            OperationError: the controller cannot be reached.
        """
        wanted = wire.job_states(states)
        found: list[Job] = []
        token = ""
        while True:
            request = ListJobsRequest(page_size=PAGE, page_token=token, states=wanted, id_prefix=prefix)
            page = await self._calls.ask("ListJobs", request, ListJobsResponse)
            found += [self._job(wire.job_status(each)) for each in page.jobs]
            token = page.next_page_token
            if not token:
                return found

    async def slices(self, scale_group: str = "") -> list[SliceStatus]:
        """List the slices, with their workers; those of one scale group if it is named.

        Raises:
            OperationError: the controller cannot be reached.
        """
        found: list[SliceStatus] = []
        token = ""
        while True:
            request = ListSlicesRequest(page_size=PAGE, page_token=token, scale_group=scale_group)
            page = await self._calls.ask("ListSlices", request, ListSlicesResponse)
            found += [wire.slice_status(each) for each in page.slices]
            token = page.next_page_token
            if not token:
                return found

    async def pools(self) -> list[PoolStatus]:
        """List the scale groups.

        Raises:
            OperationError: the controller cannot be reached.
        """
        found: list[PoolStatus] = []
        token = ""
        while True:
            request = ListPoolsRequest(page_size=PAGE, page_token=token)
            page = await self._calls.ask("ListPools", request, ListPoolsResponse)
            found += [wire.pool_status(each) for each in page.pools]
            token = page.next_page_token
            if not token:
                return found

    async def reopen_pool(self, scale_group: str) -> None:
        """Have a scale group forget why it is closed, and try again at once: for when the cause is repaired.

        A group closes when the cloud refuses its specification, its quota is used up, or its slices fail again and
        again. One that is open stays as it is.

        Raises:
            NoSuchGroup: the cluster has no scale group of this name.
            OperationError: the controller cannot be reached.
        """
        await self._calls.ask("ReopenPool", ReopenPoolRequest(scale_group=scale_group), ReopenPoolResponse)

    async def actors(self, under: str = "/", *, depth: int | None = None, troubled: bool = False) -> list[ActorStatus]:
        """List the actors of the process behind the address, depth first: a controller's, a worker's or an agent's.

        Args:
            under: the path of the one to begin with.
            depth: levels below it; None: all.
            troubled: only those that are not active, have failed, or have a mailbox that is half full.

        Raises:
            NoSuchActor: there is none at ``under``.
            InvalidArgument: ``depth`` is negative.
            VersionMismatch: the process is of a version that cannot tell.
            OperationError: it cannot be reached.
        """
        found: list[ActorStatus] = []
        token = ""
        while True:
            request = ListActorsRequest(under=under, depth=depth, troubled=troubled, page_token=token)
            page = await self._calls.ask("ListActors", request, ListActorsResponse, service=INSPECTION)
            found += [wire.actor_status(each) for each in page.actors]
            token = page.next_page_token
            if not token:
                return found

    async def gpus(self) -> list[GpuStatus]:
        """List the GPUs that the worker behind the address hands out, as they were when it last looked.

        It looks every 15 s. Of any other process there are none, nor of a worker whose tasks have pods.

        Raises:
            VersionMismatch: the process is of a version that cannot tell.
            OperationError: it cannot be reached.
        """
        reply = await self._calls.ask("ListGpus", ListGpusRequest(), ListGpusResponse, service=INSPECTION)
        return [wire.gpu_status(each) for each in reply.gpus]

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
        ref, key = _ref(job), uuid.uuid4().hex
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
            job=_ref(job),
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
        request = ResumeTaskRequest(idempotency_key=uuid.uuid4().hex, job=_ref(job), task_index=task)
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

    async def status(self) -> ClusterStatus:
        """Ask what the controller looks after.

        Raises:
            OperationError: the controller cannot be reached.
        """
        return wire.cluster_status(
            await self._calls.ask("GetClusterStatus", GetClusterStatusRequest(), WireClusterStatus)
        )

    async def call(self, route: str, request: object, reply_type: type[Value], *, key: str = "") -> Value:
        """Call a method that a feature of an installed package adds to the controller.

        Args:
            route: ``/package.Service/Method``.
            request: the message.
            reply_type: the class of the answer.
            key: lets the method know the call again. Without one the call must change nothing, or nothing more when it
                is repeated, which happens when an answer is lost.

        Raises:
            VersionMismatch: the controller has no such method: the package is not installed there.
            OperationError: the controller cannot be reached.
            IriscwError: what the feature says.
        """
        service, slash, method = route.rpartition("/")
        return await self._calls.ask(method, request, reply_type, key=key, service=service + slash)

    def _job(self, status: JobStatus) -> Job:
        return Job(self._calls, status.job_id, status.uid, status.name, status)


class Connecting(AbstractAsyncContextManager[Client]):
    """What :func:`iriscw.connect` gives: a block, and within it the client."""

    def __init__(self, made: AbstractAsyncContextManager[Client]) -> None:
        self._made = made

    async def __aenter__(self) -> Client:
        """Return the client; errors as :func:`iriscw.connect`."""
        return await self._made.__aenter__()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> bool | None:
        """Close the connection."""
        return await self._made.__aexit__(exc_type, exc, tb)

    if not TYPE_CHECKING:  # a type checker that saw this would accept every name

        def __getattr__(self, name: str) -> NoReturn:
            """Say what was forgotten."""
            raise NotConnected(f"connect() is a block: `async with connect() as client: client.{name}`")

        def __enter__(self) -> NoReturn:
            """Say what was forgotten."""
            raise NotConnected("connect() takes `async with`; a script without an event loop uses iriscw.blocking")

        def __exit__(self, *_: object) -> None:
            """Be there, since Python looks for it first."""


def connect(address: str | None = None, token: str | Secret | None = None) -> Connecting:
    """Return a client of a running controller; the connection ends with the block.

    Args:
        address: ``host:port``, ``https://host:port`` or ``unix:/path``. None: inside a task its own controller, else
            that of ``IRIS_CONTROLLER_ADDRESS``, else the one that ``iriscw up`` or ``iriscw connect`` keeps.
        token: proves who asks; None takes the one that belongs to the address there.

    Raises:
        NoController: no address is given, and nothing says where a controller is.
        InvalidContextFile: what ``iriscw up`` or ``iriscw connect`` left cannot be used.
        InvalidAddress: the text is not an address.
        NeedsAsyncio: this is not a task of an asyncio loop.
        InsecureDoor: the token would leave this machine in plain text.
        InvalidArgument: ``IRIS_CA_FILE`` names no authority.
    """
    return Connecting(_connected(address, token))


@asynccontextmanager
async def _connected(address: str | None, token: str | Secret | None) -> AsyncIterator[Client]:
    async with connected_to(discover(address, token)) as client:
        yield client


def _ref(job: Job | str) -> JobRef:
    if isinstance(job, str):
        return JobRef(job_id=job)
    if isinstance(job, Job):
        return JobRef(job_id=job.id, job_uid=job.uid)
    raise InvalidArgument(f"job: {job!r} is neither a job nor the id or the name of one")


@asynccontextmanager
async def connected_to(found: ControllerEndpoint, *, refused_s: float | None = None) -> AsyncIterator[Client]:
    """Yield a client of a controller of which everything is known.

    Args:
        found: where it is, and who asks.
        refused_s: how long connections may be refused before the first answer; None: as long as calls have patience.

    Raises:
        InvalidAddress, NeedsAsyncio, InsecureDoor, InvalidArgument: as :func:`connect` says.
    """
    tls, trusted = authority_of(found.address, found.authority), is_network_trusted()
    channel = RpcChannel(found.address, found.token, tls=tls, server_name=found.server_name, insecure_plaintext=trusted)
    async with channel:
        client = Client(channel, job_id=found.job_id, keeper=found.keeper, refused_s=refused_s)
        try:
            yield client
        finally:
            client.close_calls()
