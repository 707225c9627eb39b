"""The client and the cluster for scripts without an event loop: the same names, the same arguments, no ``await``.

::

    from iriscw import Command, blocking

    with blocking.connect() as client:
        job = client.submit(Command(["make", "all"]), name="build")
        for line in job.logs(follow=True):
            print(line)
        job.wait()

Behind each block runs an event loop in a thread of its own, which ends with the block. ``iriscw.Resources``,
``iriscw.Command`` and ``iriscw.context`` need no loop and are used as they are. Use all of a block from one thread, and
in one process: a child that was forked within it (a data loader's, for instance) connects by itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

import iriscw.client.client as _client
import iriscw.client.nodes as _nodes
import iriscw.cluster as _cluster
from iriscw.client.blocking_actors import (
    BlockingActorGroup,
    BlockingActorHandle,
    BlockingActorMethod,
    BlockingKeyedMethod,
)
from iriscw.client.blocking_job import Job
from iriscw.client.discovery import Secret
from iriscw.client.errors import NotConnected
from iriscw.client.loops import ClientLoop, on_a_loop
from iriscw.client.model import (
    ActorStatus,
    ClusterStatus,
    GpuStatus,
    NodeStatus,
    OrderStatus,
    PoolStatus,
    SliceStatus,
    TaskSuspension,
)
from iriscw.client.pools import BlockingActorPool
from iriscw.client.resolving import BlockingResolver
from iriscw.client.submission import Command, Constraints
from iriscw.cloud.drivers.loading import CloudDrivers
from iriscw.cluster import ControllerStatistics
from iriscw.config.model import ClusterConfig
from iriscw.fleet.policy import Policy, RoutingPolicy, default_policy, default_routing
from iriscw.packages.requirements import DEFAULT_SETUP_TIMEOUT_S
from iriscw.resources import Resources

__all__ = [
    "BlockingActorGroup",
    "BlockingActorHandle",
    "BlockingActorMethod",
    "BlockingActorPool",
    "BlockingKeyedMethod",
    "BlockingResolver",
    "Client",
    "Cluster",
    "Job",
    "connect",
    "connect_kubernetes",
]

T = TypeVar("T")
Value = TypeVar("Value")


class Client:
    """:class:`iriscw.Client` for scripts. Made by :func:`connect` or a :class:`Cluster`."""

    def __init__(self, loop: ClientLoop, client: _client.Client) -> None:
        self._loop = loop
        self._client = client

    def __repr__(self) -> str:
        return repr(self._client).replace("iriscw.Client", "iriscw.blocking.Client", 1)

    @property
    def address(self) -> str:
        """Where the controller listens."""
        return self._client.address

    def submit(
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
        """Run a callable or a command; arguments and errors as :meth:`iriscw.Client.submit`."""
        made = self._loop.call(
            lambda: self._client.submit(
                entrypoint,
                *args,
                name=name,
                resources=resources,
                replicas=replicas,
                environment=environment,
                ports=ports,
                constraints=constraints,
                coscheduling=coscheduling,
                priority=priority,
                timeout=timeout,
                scheduling_timeout=scheduling_timeout,
                max_retries_failure=max_retries_failure,
                max_retries_preemption=max_retries_preemption,
                existing=existing,
                bundle=bundle,
                bundle_exclude=bundle_exclude,
                image=image,
                freezable=freezable,
                detached=detached,
                checkpoint_every=checkpoint_every,
                keep_checkpoints=keep_checkpoints,
                retry_from_checkpoint=retry_from_checkpoint,
                max_task_failures=max_task_failures,
                preferred=preferred,
                preemption=preemption,
                dependencies=dependencies,
                setup=setup,
                setup_timeout=setup_timeout,
                **kwargs,
            )
        )
        return Job(self._loop, made)

    def map(
        self,
        function: Callable[[Any], Any],
        items: Iterable[Any],
        *,
        name: str | None = None,
        resources: Resources | None = None,
        environment: Mapping[str, str] | None = None,
        constraints: Constraints = (),
        priority: str = "interactive",
        timeout: float | None = None,
        scheduling_timeout: float | None = None,
        max_retries_failure: int = 0,
        max_retries_preemption: int = 100,
        max_task_failures: int = 0,
        preferred: Constraints = (),
        preemption: str = "kill",
        dependencies: Sequence[str] | str | os.PathLike[str] = (),
        setup: Sequence[Sequence[str]] = (),
        setup_timeout: float = DEFAULT_SETUP_TIMEOUT_S,
        existing: str = "error",
        bundle: str | os.PathLike[str] | None = None,
        bundle_exclude: Sequence[str] = (),
        image: str = "",
        freezable: bool = False,
        detached: bool = False,
    ) -> Job:
        """Run a function for each item, in one job; arguments and errors as :meth:`iriscw.Client.map`."""
        return Job(
            self._loop,
            self._loop.call(
                lambda: self._client.map(
                    function,
                    items,
                    name=name,
                    resources=resources,
                    environment=environment,
                    constraints=constraints,
                    priority=priority,
                    timeout=timeout,
                    scheduling_timeout=scheduling_timeout,
                    max_retries_failure=max_retries_failure,
                    max_retries_preemption=max_retries_preemption,
                    max_task_failures=max_task_failures,
                    preferred=preferred,
                    preemption=preemption,
                    dependencies=dependencies,
                    setup=setup,
                    setup_timeout=setup_timeout,
                    existing=existing,
                    bundle=bundle,
                    bundle_exclude=bundle_exclude,
                    image=image,
                    freezable=freezable,
                    detached=detached,
                )
            ),
        )

    def create_actor(
        self,
        kind: type[T],
        *args: Any,
        name: str,
        resources: Resources | None = None,
        environment: Mapping[str, str] | None = None,
        constraints: Constraints = (),
        priority: str = "interactive",
        scheduling_timeout: float | None = None,
        max_restarts: int = 0,
        concurrency: int = 1,
        snapshot_every: float = 30.0,
        bundle: str | os.PathLike[str] | None = None,
        image: str = "",
        detached: bool = False,
        **kwargs: Any,
    ) -> BlockingActorHandle[T]:
        """Create a hosted actor; arguments and errors as :meth:`iriscw.Client.create_actor`."""
        return BlockingActorHandle(
            self._loop.call(
                lambda: self._client.create_actor(
                    kind,
                    *args,
                    name=name,
                    resources=resources,
                    environment=environment,
                    constraints=constraints,
                    priority=priority,
                    scheduling_timeout=scheduling_timeout,
                    max_restarts=max_restarts,
                    concurrency=concurrency,
                    snapshot_every=snapshot_every,
                    bundle=bundle,
                    image=image,
                    detached=detached,
                    **kwargs,
                )
            )
        )

    def create_actor_group(
        self,
        kind: type[T],
        *args: Any,
        name: str,
        count: int,
        resources: Resources | None = None,
        environment: Mapping[str, str] | None = None,
        constraints: Constraints = (),
        priority: str = "interactive",
        scheduling_timeout: float | None = None,
        max_restarts: int = 0,
        concurrency: int = 1,
        snapshot_every: float = 30.0,
        bundle: str | os.PathLike[str] | None = None,
        image: str = "",
        detached: bool = False,
        **kwargs: Any,
    ) -> BlockingActorGroup[T]:
        """Create hosted actors; arguments and errors as :meth:`iriscw.Client.create_actor_group`."""
        return BlockingActorGroup(
            self._loop.call(
                lambda: self._client.create_actor_group(
                    kind,
                    *args,
                    name=name,
                    count=count,
                    resources=resources,
                    environment=environment,
                    constraints=constraints,
                    priority=priority,
                    scheduling_timeout=scheduling_timeout,
                    max_restarts=max_restarts,
                    concurrency=concurrency,
                    snapshot_every=snapshot_every,
                    bundle=bundle,
                    image=image,
                    detached=detached,
                    **kwargs,
                )
            )
        )

    @property
    def resolver(self) -> BlockingResolver:
        """Finds hosted actors by name, as :attr:`iriscw.Client.resolver`."""
        return self._loop.call(lambda: BlockingResolver(self._client.resolver))

    def resolver_for_job(self, job: Job | BlockingActorHandle[Any] | str) -> BlockingResolver:
        """Return what finds names in a job's namespace; errors as :meth:`iriscw.Client.resolver_for_job`."""
        there: Any = job._job if isinstance(job, Job) else job._handle if isinstance(job, BlockingActorHandle) else job
        return self._loop.call(lambda: BlockingResolver(self._client.resolver_for_job(there)))

    def job(self, job: Job | str) -> Job:
        """Find a job by its id or its name; errors as :meth:`iriscw.Client.job`."""
        return Job(self._loop, self._loop.call(self._client.job, job._job if isinstance(job, Job) else job))

    def jobs(self, *, states: Iterable[str] = (), prefix: str = "") -> list[Job]:
        """List the jobs; arguments and errors as :meth:`iriscw.Client.jobs`."""
        found = self._loop.call(lambda: self._client.jobs(states=states, prefix=prefix))
        return [Job(self._loop, each) for each in found]

    def slices(self, scale_group: str = "") -> list[SliceStatus]:
        """List the slices; errors as :meth:`iriscw.Client.slices`."""
        return self._loop.call(self._client.slices, scale_group)

    def pools(self) -> list[PoolStatus]:
        """List the scale groups; errors as :meth:`iriscw.Client.pools`."""
        return self._loop.call(self._client.pools)

    def reopen_pool(self, scale_group: str) -> None:
        """Have a closed scale group try again; errors as :meth:`iriscw.Client.reopen_pool`."""
        self._loop.call(self._client.reopen_pool, scale_group)

    def actors(self, under: str = "/", *, depth: int | None = None, troubled: bool = False) -> list[ActorStatus]:
        """List the actors of the process; arguments and errors as :meth:`iriscw.Client.actors`."""
        return self._loop.call(lambda: self._client.actors(under, depth=depth, troubled=troubled))

    def gpus(self) -> list[GpuStatus]:
        """List the GPUs of the worker; errors as :meth:`iriscw.Client.gpus`."""
        return self._loop.call(self._client.gpus)

    def checkpoint(
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
    ) -> _nodes.Checkpoint:
        """Have a task's processes frozen; arguments and errors as :meth:`iriscw.Client.checkpoint`."""
        return self._loop.call(
            lambda: self._client.checkpoint(
                job._job if isinstance(job, Job) else job,
                task=task,
                tier=tier,
                keep_running=keep_running,
                labels=labels,
                force=force,
                tcp_established=tcp_established,
                seen=seen,
            )
        )

    def suspend(
        self,
        job: Job | str,
        *,
        task: int = 0,
        tier: str = "",
        labels: Mapping[str, str] | None = None,
        force: bool = False,
        seen: Callable[[TaskSuspension], None] | None = None,
    ) -> TaskSuspension:
        """Have a task suspended; arguments and errors as :meth:`iriscw.Client.suspend`."""
        return self._loop.call(
            lambda: self._client.suspend(
                job._job if isinstance(job, Job) else job, task=task, tier=tier, labels=labels, force=force, seen=seen
            )
        )

    def resume(
        self, job: Job | str, *, task: int = 0, seen: Callable[[TaskSuspension], None] | None = None
    ) -> TaskSuspension:
        """Have a suspended task go on; arguments and errors as :meth:`iriscw.Client.resume`."""
        return self._loop.call(
            lambda: self._client.resume(job._job if isinstance(job, Job) else job, task=task, seen=seen)
        )

    def restore(
        self,
        checkpoint: _nodes.Checkpoint | str,
        *,
        node: str = "",
        force: bool = False,
        seen: Callable[[OrderStatus], None] | None = None,
    ) -> OrderStatus:
        """Bring a checkpoint back; arguments and errors as :meth:`iriscw.Client.restore`."""
        return self._loop.call(lambda: self._client.restore(checkpoint, node=node, force=force, seen=seen))

    def move(
        self,
        checkpoint: _nodes.Checkpoint | str,
        tier: str,
        *,
        node: str = "",
        keep: bool = False,
        seen: Callable[[OrderStatus], None] | None = None,
    ) -> OrderStatus:
        """Bring a checkpoint to another tier; arguments and errors as :meth:`iriscw.Client.move`."""
        return self._loop.call(lambda: self._client.move(checkpoint, tier, node=node, keep=keep, seen=seen))

    def verify(
        self, checkpoint: _nodes.Checkpoint | str, *, node: str = "", seen: Callable[[OrderStatus], None] | None = None
    ) -> OrderStatus:
        """Have the copies of a checkpoint read; arguments and errors as :meth:`iriscw.Client.verify`."""
        return self._loop.call(lambda: self._client.verify(checkpoint, node=node, seen=seen))

    def checkpoints(
        self, selector: str = "", *, node: str = "", labels: Mapping[str, str] | None = None, stored: bool = False
    ) -> list[_nodes.Checkpoint]:
        """List the checkpoints of all nodes; arguments and errors as :meth:`iriscw.Client.checkpoints`."""
        return self._loop.call(lambda: self._client.checkpoints(selector, node=node, labels=labels, stored=stored))

    def delete(self, checkpoint: _nodes.Checkpoint) -> None:
        """Remove a checkpoint; errors as :meth:`iriscw.Checkpoint.delete`."""
        self._loop.call(checkpoint.delete)

    def nodes(self) -> list[NodeStatus]:
        """List the nodes; errors as :meth:`iriscw.Client.nodes`."""
        return self._loop.call(self._client.nodes)

    def forget_node(self, node: str) -> int:
        """Have the controller forget a node; errors as :meth:`iriscw.Client.forget_node`."""
        return self._loop.call(self._client.forget_node, node)

    def agent_token(self, node: str) -> Secret:
        """Return the token of a node's agent; errors as :meth:`iriscw.Client.agent_token`."""
        return self._loop.call(self._client.agent_token, node)

    def call(self, route: str, request: object, reply_type: type[Value], *, key: str = "") -> Value:
        """Call a method that a feature of an installed package adds; errors as :meth:`iriscw.Client.call`."""
        return self._loop.call(lambda: self._client.call(route, request, reply_type, key=key))

    def status(self) -> ClusterStatus:
        """Ask what the controller looks after; errors as :meth:`iriscw.Client.status`."""
        return self._loop.call(self._client.status)


class Connecting(AbstractContextManager[Client]):
    """What :func:`connect` gives: a block, and within it the client."""

    def __init__(self, made: AbstractContextManager[Client]) -> None:
        self._made = made

    def __enter__(self) -> Client:
        """Return the client; errors as :func:`iriscw.connect`."""
        return self._made.__enter__()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> bool | None:
        """Close the connection."""
        return self._made.__exit__(exc_type, exc, tb)

    if not TYPE_CHECKING:  # a type checker that saw this would accept every name

        def __getattr__(self, name: str) -> NoReturn:
            """Say what was forgotten."""
            raise NotConnected(f"connect() is a block: `with connect() as client: client.{name}`")


def connect(address: str | None = None, token: str | Secret | None = None) -> Connecting:
    """Return a client of a running controller; arguments and errors as :func:`iriscw.connect`.

    Raises:
        WrongLoop: a cluster of this thread has this address, when the block is entered.
    """
    return Connecting(_connected(_client.connect(address, token), address))


def connect_kubernetes(
    config: str | os.PathLike[str] | ClusterConfig | None = None,
    *,
    namespace: str = "",
    kubeconfig: str | os.PathLike[str] | None = None,
    context: str | None = None,
    token: str | Secret | None = None,
) -> Connecting:
    """Return a client of a controller in Kubernetes; arguments and errors as :func:`iriscw.connect_kubernetes`."""
    import iriscw.kubernetes as _kubernetes

    return Connecting(
        _connected(
            _kubernetes.connect_kubernetes(
                config, namespace=namespace, kubeconfig=kubeconfig, context=context, token=token
            )
        )
    )


@contextmanager
def _connected(connecting: AbstractAsyncContextManager[_client.Client], address: str | None = None) -> Iterator[Client]:
    _cluster.check_thread(address)
    with on_a_loop(connecting) as (loop, made):
        yield Client(loop, made)


class Cluster:
    """:class:`iriscw.Cluster` for scripts: a context manager."""

    def __init__(self, made: AbstractAsyncContextManager[_cluster.Cluster]) -> None:
        self._made = made
        self._stack = ExitStack()
        self._loop: ClientLoop | None = None
        self._cluster: _cluster.Cluster | None = None

    @classmethod
    def local(
        cls,
        *,
        nodes: int = 4,
        cpu: float | str = 1,
        memory: int | str = "1GiB",
        boot_delay: float = 0.5,
        scale_down_delay: float = 5.0,
        orphan_after: float | None = None,
        worker_lease: float | None = None,
        workdir: str | Path | None = None,
        port: int = 0,
        name: str = "local",
        policy: Policy = default_policy,
        routing: RoutingPolicy = default_routing,
    ) -> Self:
        """Describe a cluster of processes on this machine; arguments and errors as :meth:`iriscw.Cluster.local`."""
        return cls(
            _cluster.Cluster.local(
                nodes=nodes,
                cpu=cpu,
                memory=memory,
                boot_delay=boot_delay,
                scale_down_delay=scale_down_delay,
                orphan_after=orphan_after,
                worker_lease=worker_lease,
                workdir=workdir,
                port=port,
                name=name,
                policy=policy,
                routing=routing,
            )
        )

    @classmethod
    def open(
        cls,
        config: ClusterConfig,
        *,
        drivers: CloudDrivers | None = None,
        workdir: str | Path | None = None,
        keep_machines: bool = False,
        policy: Policy = default_policy,
        routing: RoutingPolicy = default_routing,
    ) -> Self:
        """Describe a cluster by its configuration; arguments and errors as :meth:`iriscw.Cluster.open`."""
        return cls(
            _cluster.Cluster.open(
                config, drivers=drivers, workdir=workdir, keep_machines=keep_machines, policy=policy, routing=routing
            )
        )

    def __enter__(self) -> Self:
        """Start the cluster; errors as :class:`iriscw.Cluster`."""
        with ExitStack() as stack:
            self._loop, self._cluster = stack.enter_context(on_a_loop(self._made))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Stop it."""
        self._cluster, stack, self._stack = None, self._stack, ExitStack()
        stack.__exit__(exc_type, exc, tb)

    def _running(self) -> _cluster.Cluster:
        if self._cluster is None:
            raise _cluster.ClusterNotRunning("the cluster runs inside of its `with` block")
        return self._cluster

    @property
    def client(self) -> Client:
        """A client of this cluster."""
        running = self._running()
        assert self._loop is not None
        return Client(self._loop, running.client)

    @property
    def address(self) -> str:
        """Where its controller listens."""
        return self._running().address

    @property
    def workdir(self) -> Path:
        """Where its journal, workers and logs live."""
        return self._running().workdir

    @property
    def admin_token(self) -> Secret:
        """What other clients authenticate with; it prints as ``<secret>``."""
        return self._running().admin_token

    def statistics(self) -> ControllerStatistics:
        """Return the counts of this moment."""
        running = self._running()
        assert self._loop is not None
        return self._loop.call(running.statistics)


for _each in (
    Job,
    BlockingActorGroup,
    BlockingActorHandle,
    BlockingActorMethod,
    BlockingActorPool,
    BlockingKeyedMethod,
    BlockingResolver,
):
    _each.__module__ = __name__  # they are shown as users import them
