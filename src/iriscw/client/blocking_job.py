"""A job, for scripts without an event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, overload

import iriscw.client.job as _job
from iriscw.client.loops import ClientLoop, iterated
from iriscw.client.model import (
    Endpoint,
    ExecOutput,
    ExecResult,
    JobStatus,
    LogLine,
    PeerAddress,
    TaskStatus,
)


class Job:
    """:class:`iriscw.Job` for scripts. Made by :class:`Client`."""

    def __init__(self, loop: ClientLoop, job: _job.Job) -> None:
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
        return iterated(self._loop, self._job.watch())

    def wait(self, timeout_s: float | None = None) -> JobStatus:
        """Wait at most ``timeout_s`` seconds for the job's end; errors as :meth:`iriscw.Job.wait`."""
        return self._loop.call(self._job.wait, timeout_s)

    @overload
    def result(self, timeout_s: float | None = None) -> list[Any]: ...

    @overload
    def result(self, timeout_s: float | None = None, *, task: int) -> Any: ...

    def result(self, timeout_s: float | None = None, *, task: int | None = None) -> Any:
        """Wait for the end and give what the tasks returned; errors as :meth:`iriscw.Job.result`."""
        if task is None:
            return self._loop.call(self._job.result, timeout_s)
        return self._loop.call(lambda: self._job.result(timeout_s, task=task))

    def results(self) -> Iterator[tuple[int, Any]]:
        """Iterate over indexes and values as tasks end well; errors as :meth:`iriscw.Job.results`."""
        return iterated(self._loop, self._job.results())

    def logs(
        self, *, follow: bool = False, task: int | None = None, attempt: int | None = None, tail: int = 0
    ) -> Iterator[LogLine]:
        """Iterate over the lines that the tasks have written; arguments and errors as :meth:`iriscw.Job.logs`."""
        return iterated(self._loop, self._job.logs(follow=follow, task=task, attempt=attempt, tail=tail))

    def exec(
        self,
        argv: Sequence[str],
        *,
        task: int | None = None,
        timeout_s: float = 3600.0,
        output: Callable[[ExecOutput], object] | None = None,
    ) -> ExecResult:
        """Run a command beside a task that runs; arguments and errors as :meth:`iriscw.Job.exec`."""
        return self._loop.call(lambda: self._job.exec(argv, task=task, timeout_s=timeout_s, output=output))

    def tasks(self, *, states: Iterable[str] = ()) -> list[TaskStatus]:
        """List the job's tasks; errors as :meth:`iriscw.Job.tasks`."""
        return self._loop.call(lambda: self._job.tasks(states=states))

    def endpoints(self) -> list[Endpoint]:
        """List where the replicas are reached that run now; errors as :meth:`iriscw.Job.endpoints`."""
        return self._loop.call(self._job.endpoints)

    def peers(self, port: str, timeout_s: float | None = None) -> tuple[PeerAddress, ...]:
        """Wait until all replicas run and give their addresses; errors as :meth:`iriscw.Job.peers`."""
        return self._loop.call(self._job.peers, port, timeout_s)

    def terminate(self, reason: str = "") -> JobStatus:
        """Have the job ended; errors as :meth:`iriscw.Job.terminate`."""
        return self._loop.call(self._job.terminate, reason)
