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

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

import iriscw.client.client as _client
import iriscw.client.job as _job
import iriscw.cluster as _cluster
from iriscw.client.discovery import Secret
from iriscw.client.model import (
    ClusterStatus,
    JobState,
    JobStatus,
    LogLine,
    PoolStatus,
    SliceStatus,
    TaskState,
    TaskStatus,
)
from iriscw.client.submission import Command
from iriscw.cluster import ControllerStatistics
from iriscw.config.model import ClusterConfig

__all__ = ["Client", "Cluster", "Job", "connect"]

Value = TypeVar("Value")


def _iterate(portal: BlockingPortal, values: AsyncGenerator[Value, None]) -> Iterator[Value]:
    """Iterate from outside of the loop; a reader that stops early closes the stream."""
    end = object()

    async def following() -> Any:
        return await anext(values, end)

    try:
        while (value := portal.call(following)) is not end:
            yield value
    finally:
        portal.call(values.aclose)


class Job:
    """:class:`iriscw.Job` for scripts. Made by :class:`Client`."""

    def __init__(self, portal: BlockingPortal, job: _job.Job) -> None:
        self._portal = portal
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
        return self._portal.call(self._job.status)

    def watch(self) -> Iterator[JobStatus]:
        """Iterate over the job's statuses, the last of which is terminal; errors as :meth:`iriscw.Job.watch`."""
        return _iterate(self._portal, self._job.watch())

    def wait(self, timeout: float | None = None) -> JobStatus:
        """Wait at most ``timeout`` seconds for the job's end; errors as :meth:`iriscw.Job.wait`."""
        return self._portal.call(self._job.wait, timeout)

    def result(self) -> list[Any]:
        """Wait for the end and give what the tasks returned; errors as :meth:`iriscw.Job.result`."""
        return self._portal.call(self._job.result)

    def logs(
        self, *, follow: bool = False, task: int | None = None, attempt: int | None = None, tail: int = 0
    ) -> Iterator[LogLine]:
        """Iterate over the lines that the tasks have written; arguments and errors as :meth:`iriscw.Job.logs`."""
        return _iterate(self._portal, self._job.logs(follow=follow, task=task, attempt=attempt, tail=tail))

    def tasks(self, *, states: tuple[TaskState, ...] = ()) -> list[TaskStatus]:
        """List the job's tasks; errors as :meth:`iriscw.Job.tasks`."""
        return self._portal.call(lambda: self._job.tasks(states=states))

    def terminate(self, reason: str = "") -> JobStatus:
        """Have the job ended; errors as :meth:`iriscw.Job.terminate`."""
        return self._portal.call(self._job.terminate, reason)


class Client:
    """:class:`iriscw.Client` for scripts. Made by :func:`connect` or a :class:`Cluster`."""

    def __init__(self, portal: BlockingPortal, client: _client.Client) -> None:
        self._portal = portal
        self._client = client

    def __repr__(self) -> str:
        return repr(self._client).replace("iriscw.Client", "iriscw.blocking.Client", 1)

    @property
    def address(self) -> str:
        """Where the controller listens."""
        return self._client.address

    def submit(self, entrypoint: Callable[..., Any] | Command, *args: Any, name: str, **options: Any) -> Job:
        """Run a callable or a command; arguments and errors as :meth:`iriscw.Client.submit`."""
        made = self._portal.call(lambda: self._client.submit(entrypoint, *args, name=name, **options))
        return Job(self._portal, made)

    def job(self, job_id: str) -> Job:
        """Find a job by its id; errors as :meth:`iriscw.Client.job`."""
        return Job(self._portal, self._portal.call(self._client.job, job_id))

    def jobs(self, *, states: Iterable[JobState] = (), prefix: str = "") -> list[Job]:
        """List the jobs; arguments and errors as :meth:`iriscw.Client.jobs`."""
        found = self._portal.call(lambda: self._client.jobs(states=states, prefix=prefix))
        return [Job(self._portal, each) for each in found]

    def slices(self, scale_group: str = "") -> list[SliceStatus]:
        """List the slices; errors as :meth:`iriscw.Client.slices`."""
        return self._portal.call(self._client.slices, scale_group)

    def pools(self) -> list[PoolStatus]:
        """List the scale groups; errors as :meth:`iriscw.Client.pools`."""
        return self._portal.call(self._client.pools)

    def status(self) -> ClusterStatus:
        """Ask what the controller looks after; errors as :meth:`iriscw.Client.status`."""
        return self._portal.call(self._client.status)


@contextmanager
def connect(address: str | None = None, token: str | Secret | None = None) -> Iterator[Client]:
    """Give a client of a running controller; arguments and errors as :func:`iriscw.connect`."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(_client.connect(address, token)) as made:
        yield Client(portal, made)


class Cluster:
    """:class:`iriscw.Cluster` for scripts: a context manager."""

    def __init__(self, made: AbstractAsyncContextManager[_cluster.Cluster]) -> None:
        self._made = made
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
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
            self._portal = stack.enter_context(start_blocking_portal())
            self._cluster = stack.enter_context(self._portal.wrap_async_context_manager(self._made))
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
        assert self._portal is not None
        return Client(self._portal, running.client)

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
        assert self._portal is not None
        return self._portal.call(running.statistics)
