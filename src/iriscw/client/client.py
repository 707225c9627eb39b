"""``iriscw.connect()`` and the client it gives."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import anyio.to_thread

from iriscw.client import wire
from iriscw.client.arrays import ArrayJobs
from iriscw.client.calls import INSPECTION, MethodCalls
from iriscw.client.contact import Keeper
from iriscw.client.creating import ActorCreation
from iriscw.client.discovery import ControllerEndpoint, authority_of, discover, is_network_trusted
from iriscw.client.errors import NotConnected
from iriscw.client.freezing import FreezingCalls, job_ref
from iriscw.client.job import PAGE, Job
from iriscw.client.model import (
    ActorStatus,
    ClusterStatus,
    GpuStatus,
    JobStatus,
    PoolStatus,
    SliceStatus,
)
from iriscw.client.resolving import ActorNames
from iriscw.client.submission import Command, Constraints, Submission, build_setup, build_submission
from iriscw.client.upload import bundled
from iriscw.packages.requirements import DEFAULT_SETUP_TIMEOUT_S
from iriscw.proto.iriscw.v1 import (
    ClusterStatus as WireClusterStatus,
    GetClusterStatusRequest,
    GetJobRequest,
    JobStatus as WireJobStatus,
    ListActorsRequest,
    ListActorsResponse,
    ListGpusRequest,
    ListGpusResponse,
    ListJobsRequest,
    ListJobsResponse,
    ListPoolsRequest,
    ListPoolsResponse,
    ListSlicesRequest,
    ListSlicesResponse,
    ReopenPoolRequest,
    ReopenPoolResponse,
    SubmitJobResponse,
)
from iriscw.resources import Resources
from iriscw.rpc.client import RpcChannel
from iriscw.rpc.tokens import Secret

Value = TypeVar("Value")


class Client(ActorCreation, ActorNames, ArrayJobs, FreezingCalls):
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
        max_task_failures: int = 0,
        preferred: Constraints = (),
        preemption: str = "kill",
        dependencies: Sequence[str] | str | os.PathLike[str] = (),
        setup: Sequence[Sequence[str]] = (),
        setup_timeout: float = DEFAULT_SETUP_TIMEOUT_S,
        **kwargs: Any,
    ) -> Job:
        """Have ``entrypoint(*args, **kwargs)`` run once in each of ``replicas`` tasks; return when the journal has it.

        Args:
            entrypoint: a callable, or a :class:`iriscw.Command`.
            args: for the callable.
            name: for people, and to find the job by; unique in its namespace among those that have not ended.
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
            max_task_failures: tasks that may fail for good before the job does; none of a gang may.
            preferred: what workers should be like, as ``constraints``: the best with room is taken, no task waits.
            preemption: of a task that has to give way to a higher ``priority``: ``kill``, ``freeze`` or ``never``.
            dependencies: packages to install (``["numpy>=2"]``), or a file here that lists them (``pyproject.toml``).
            setup: commands, as lists of arguments, that each task runs in its folder before it begins, one by one.
            setup_timeout: seconds that the installation, and each of these commands, may take.
            kwargs: for the callable.

        Raises:
            ImageNotSupported: an image is named, and tasks are processes of their workers in this cluster.
            DependenciesNotSupported: packages are asked for, and no task here is a process of its worker.
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
        wishes |= {"max_task_failures": max_task_failures, "preferred": preferred, "preemption": preemption}
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

    @property
    def is_of_task(self) -> bool:
        """Whether it is a task that asks: what it submits is its own job's, and names are of its own namespace."""
        return bool(self._job_id)

    async def job(self, job: Job | str) -> Job:
        """Find a job by its id, or by the name of the latest job that has it; or one that is known anew.

        In a task a name is one of its namespace. A path says in which it is: ``/NAME``, ``/TOP/NAME``.

        Raises:
            InvalidArgument: it is neither.
            NoSuchJob: there is none, or it was forgotten.
            NameAmbiguous: several that have not ended have this name, in different namespaces.
            OperationError: the controller cannot be reached.
        """
        request = GetJobRequest(job=job_ref(job))
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
