"""The client and the cluster for scripts without an event loop: the same names, the same arguments, no ``await``.

::

    from iriscw import Command, blocking

    with blocking.connect() as client:
        job = client.submit(Command(["make", "all"]), name="build")
        for line in job.logs(follow=True):
            print(line)
        job.wait()

Behind each block runs an event loop in a thread of its own, which ends with the block. ``iriscw.Resources``,
``iriscw.Command`` and ``iriscw.context`` need no loop and are used as they are. Use all of a block from one thread.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, overload

from anyio.from_thread import BlockingPortal, start_blocking_portal

import iriscw.client.client as _client
import iriscw.client.job as _job
import iriscw.client.nodes as _nodes
import iriscw.cluster as _cluster
from iriscw.client.discovery import Secret
from iriscw.client.errors import ClientClosed, NotConnected
from iriscw.client.model import (
    ClusterStatus,
    JobStatus,
    LogLine,
    NodeStatus,
    OrderStatus,
    PoolStatus,
    SliceStatus,
    TaskStatus,
    TaskSuspension,
)
from iriscw.client.submission import Command
from iriscw.cluster import ControllerStatistics
from iriscw.config.model import ClusterConfig

__all__ = ["Client", "Cluster", "Job", "connect", "connect_kubernetes"]

Value = TypeVar("Value")


class _Loop:
    """The event loop behind a block; None of it can be used once the block has ended."""

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal
        self.ended = False

    @overload
    def call(self, function: Callable[..., Coroutine[Any, Any, Value]], *args: Any) -> Value: ...

    @overload
    def call(self, function: Callable[..., Value], *args: Any) -> Value: ...

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Have ``function(*args)`` run there and give what it returns.

        Raises:
            ClientClosed: the block has ended.
        """
        if self.ended:
            raise ClientClosed("a client works inside of the `with` block that gave it, and that has ended")
        return self._portal.call(function, *args)


@contextmanager
def _loop() -> Iterator[tuple[_Loop, BlockingPortal]]:
    with start_blocking_portal() as portal:
        loop = _Loop(portal)
        try:
            yield loop, portal
        finally:
            loop.ended = True


def _iterate(loop: _Loop, values: AsyncGenerator[Value, None]) -> Iterator[Value]:
    """Iterate from outside of the loop; a reader that stops early closes the stream."""
    end = object()

    async def following() -> Any:
        return await anext(values, end)

    try:
        while (value := loop.call(following)) is not end:
            yield value
    finally:
        if not loop.ended:  # else the loop has closed it
            loop.call(values.aclose)


class Job:
    """:class:`iriscw.Job` for scripts. Made by :class:`Client`."""

    def __init__(self, loop: _Loop, job: _job.Job) -> None:
        self._loop = loop
        self._job = job

    def __repr__(self) -> str:
        return repr(self._job).replace("iriscw.Job", "iriscw.blocking.Job", 1)

    @property
    def id(self) -> str:
        """As commands and other clients name it."""
        return self._job.id

    @property
    def uid(self) -> str:
        """Like the id, but never used again."""
        return self._job.uid

    @property
    def name(self) -> str:
        """As it was submitted."""
        return self._job.name

    @property
    def seen(self) -> JobStatus | None:
        """The status last heard of; None if none was asked for yet."""
        return self._job.seen

    def status(self) -> JobStatus:
        """Ask where the job is now; errors as :meth:`iriscw.Job.status`."""
        return self._loop.call(self._job.status)

    def watch(self) -> Iterator[JobStatus]:
        """Iterate over the job's statuses, the last of which is terminal; errors as :meth:`iriscw.Job.watch`."""
        return _iterate(self._loop, self._job.watch())

    def wait(self, timeout: float | None = None) -> JobStatus:
        """Wait at most ``timeout`` seconds for the job's end; errors as :meth:`iriscw.Job.wait`."""
        return self._loop.call(self._job.wait, timeout)

    def result(self, timeout_s: float | None = None) -> list[Any]:
        """Wait for the end and give what the tasks returned; errors as :meth:`iriscw.Job.result`."""
        return self._loop.call(self._job.result, timeout_s)

    def logs(
        self, *, follow: bool = False, task: int | None = None, attempt: int | None = None, tail: int = 0
    ) -> Iterator[LogLine]:
        """Iterate over the lines that the tasks have written; arguments and errors as :meth:`iriscw.Job.logs`."""
        return _iterate(self._loop, self._job.logs(follow=follow, task=task, attempt=attempt, tail=tail))

    def tasks(self, *, states: Iterable[str] = ()) -> list[TaskStatus]:
        """List the job's tasks; errors as :meth:`iriscw.Job.tasks`."""
        return self._loop.call(lambda: self._job.tasks(states=states))

    def terminate(self, reason: str = "") -> JobStatus:
        """Have the job ended; errors as :meth:`iriscw.Job.terminate`."""
        return self._loop.call(self._job.terminate, reason)


class Client:
    """:class:`iriscw.Client` for scripts. Made by :func:`connect` or a :class:`Cluster`."""

    def __init__(self, loop: _Loop, client: _client.Client) -> None:
        self._loop = loop
        self._client = client

    def __repr__(self) -> str:
        return repr(self._client).replace("iriscw.Client", "iriscw.blocking.Client", 1)

    @property
    def address(self) -> str:
        """Where the controller listens."""
        return self._client.address

    def submit(self, entrypoint: Callable[..., Any] | Command, *args: Any, name: str, **options: Any) -> Job:
        """Run a callable or a command; arguments and errors as :meth:`iriscw.Client.submit`."""
        made = self._loop.call(lambda: self._client.submit(entrypoint, *args, name=name, **options))
        return Job(self._loop, made)

    def job(self, job_id: str) -> Job:
        """Find a job by its id or its name; errors as :meth:`iriscw.Client.job`."""
        return Job(self._loop, self._loop.call(self._client.job, job_id))

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

    def checkpoint(self, job: Job | str, **options: Any) -> _nodes.Checkpoint:
        """Have a task's processes frozen; arguments and errors as :meth:`iriscw.Client.checkpoint`."""
        named = job if isinstance(job, str) else job._job
        return self._loop.call(lambda: self._client.checkpoint(named, **options))

    def suspend(self, job: Job | str, **options: Any) -> TaskSuspension:
        """Have a task suspended; arguments and errors as :meth:`iriscw.Client.suspend`."""
        named = job if isinstance(job, str) else job._job
        return self._loop.call(lambda: self._client.suspend(named, **options))

    def resume(self, job: Job | str, **options: Any) -> TaskSuspension:
        """Have a suspended task go on; arguments and errors as :meth:`iriscw.Client.resume`."""
        named = job if isinstance(job, str) else job._job
        return self._loop.call(lambda: self._client.resume(named, **options))

    def restore(self, checkpoint: _nodes.Checkpoint | str, **options: Any) -> OrderStatus:
        """Bring a checkpoint back; arguments and errors as :meth:`iriscw.Client.restore`."""
        return self._loop.call(lambda: self._client.restore(checkpoint, **options))

    def checkpoints(self, **options: Any) -> list[_nodes.Checkpoint]:
        """List the checkpoints of all nodes; arguments and errors as :meth:`iriscw.Client.checkpoints`."""
        return self._loop.call(lambda: self._client.checkpoints(**options))

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
        """Give the token of a node's agent; errors as :meth:`iriscw.Client.agent_token`."""
        return self._loop.call(self._client.agent_token, node)

    def status(self) -> ClusterStatus:
        """Ask what the controller looks after; errors as :meth:`iriscw.Client.status`."""
        return self._loop.call(self._client.status)


class Connecting(AbstractContextManager[Client]):
    """What :func:`connect` gives: a block, and within it the client."""

    def __init__(self, made: AbstractContextManager[Client]) -> None:
        self._made = made

    def __enter__(self) -> Client:
        """Give the client; errors as :func:`iriscw.connect`."""
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
    """Give a client of a running controller; arguments and errors as :func:`iriscw.connect`."""
    return Connecting(_connected(_client.connect(address, token)))


def connect_kubernetes(config: str | os.PathLike[str] | ClusterConfig | None = None, **options: Any) -> Connecting:
    """Give a client of a controller in Kubernetes; arguments and errors as :func:`iriscw.connect_kubernetes`."""
    import iriscw.kubernetes as _kubernetes  # what talks to Kubernetes is loaded when it is used

    return Connecting(_connected(_kubernetes.connect_kubernetes(config, **options)))


@contextmanager
def _connected(connecting: AbstractAsyncContextManager[_client.Client]) -> Iterator[Client]:
    with _loop() as (loop, portal), portal.wrap_async_context_manager(connecting) as made:
        yield Client(loop, made)


class Cluster:
    """:class:`iriscw.Cluster` for scripts: a context manager."""

    def __init__(self, made: AbstractAsyncContextManager[_cluster.Cluster]) -> None:
        self._made = made
        self._stack = ExitStack()
        self._loop: _Loop | None = None
        self._cluster: _cluster.Cluster | None = None

    @classmethod
    def local(cls, **options: Any) -> Self:
        """Describe a cluster of processes on this machine; arguments and errors as :meth:`iriscw.Cluster.local`."""
        return cls(_cluster.Cluster.local(**options))

    @classmethod
    def open(cls, config: ClusterConfig, **options: Any) -> Self:
        """Describe a cluster by its configuration; arguments and errors as :meth:`iriscw.Cluster.open`."""
        return cls(_cluster.Cluster.open(config, **options))

    def __enter__(self) -> Self:
        """Start the cluster; errors as :class:`iriscw.Cluster`."""
        with ExitStack() as stack:
            self._loop, portal = stack.enter_context(_loop())
            self._cluster = stack.enter_context(portal.wrap_async_context_manager(self._made))
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
        """Give the counts of this moment."""
        running = self._running()
        assert self._loop is not None
        return self._loop.call(running.statistics)
