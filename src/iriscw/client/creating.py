"""Creating hosted actors: what a client has of it."""

from __future__ import annotations

import contextlib
import os
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, TypeVar

import anyio

from iriscw._errors import InvalidArgument, IriscwError
from iriscw.client.actors import ActorGroup, ActorHandle, check_concurrency, methods_of, own_code_of
from iriscw.client.arguments import check_count
from iriscw.client.calls import MethodCalls
from iriscw.client.hosted import ActorId, HostedCalls, close_calls, hosted_calls
from iriscw.client.job import Job
from iriscw.client.submission import Constraints, check_call
from iriscw.hosted.model import ACTOR_PORT
from iriscw.proto.iriscw.v1 import HostedActorUpdate, JobRef, WatchHostedActorRequest
from iriscw.resources import Resources
from iriscw.task.hosting import host_actor
from iriscw.task.passing import passed_whole

T = TypeVar("T")

END_S: Final = 10.0
"""What the end of a job is given whose actor nobody can call; the error is not held up for longer."""


class ActorCreation:
    """Of :class:`iriscw.Client`."""

    _calls: MethodCalls

    @abstractmethod
    async def submit(self, *args: Any, **options: Any) -> Job:
        """See :meth:`iriscw.Client.submit`."""

    async def create_actor(
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
    ) -> ActorHandle[T]:
        """Have ``kind(*args, **kwargs)`` made in a job of its own, and its public methods called from anywhere.

        Returns when the journal has the job; calls wait until the object is there. It lives until its job ends:
        ``client.job(handle.job_id)`` has ``terminate()``. Created in a task, it ends with that task's job unless it is
        ``detached``.

        Args:
            kind: a class. Methods without an underscore can be called, ``async`` ones too.
            args: for the class.
            name: of the job; unique in its namespace among those that have not ended.
            resources: of the job's one task; 1 CPU and 1 GiB if None.
            environment: variables of the task, as :meth:`submit`.
            constraints: which workers will do, as :meth:`submit`.
            priority: ``production``, ``interactive`` or ``batch``.
            scheduling_timeout: seconds that it may wait for a worker.
            max_restarts: how often it may be made anew after its process failed. What is lost to the infrastructure
                does not count. If the class has ``snapshot(self)`` and ``restore(self, state)`` it begins with its last
                snapshot, else with nothing.
            concurrency: how many calls run at once. With 1 all but ``async`` methods run in one and the same thread.
            snapshot_every: seconds between two snapshots of a class that has both; there is none while nobody calls.
            bundle: a folder whose files it finds in its working folder.
            image: what it runs in, as :meth:`submit`.
            detached: go on when the job ends whose task creates it.
            kwargs: for the class.

        Raises:
            InvalidActor: it is no class, or none that can be called from elsewhere.
            NotPicklable, PayloadTooLarge: the class or an argument cannot travel.
            InvalidArgument, JobExists, ParentOver, OperationError: as :meth:`submit`.
        """
        methods, own_code = methods_of(kind), own_code_of(kind)
        check_concurrency(concurrency)
        _check_snapshot_every(snapshot_every)
        check_call(kind, args, kwargs)
        job = await self.submit(
            host_actor,
            passed_whole((kind, args, kwargs), own_code),
            concurrency,
            snapshot_every,
            name=name,
            resources=resources,
            environment=environment,
            ports=[ACTOR_PORT],
            constraints=constraints,
            priority=priority,
            scheduling_timeout=scheduling_timeout,
            max_retries_failure=max_restarts,
            bundle=bundle,
            image=image,
            detached=detached,
        )
        async with self._ended_unless_made([job]):
            request = WatchHostedActorRequest(job=JobRef(job_id=job.id, job_uid=job.uid))
            async with aclosing(self._calls.stream("WatchHostedActor", lambda: request, HostedActorUpdate)) as updates:
                capability = (await anext(updates)).capability
        return ActorHandle(ActorId(job.id, job.uid, job.name, capability), methods, self.hosted_calls, own_code)

    async def create_actor_group(
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
    ) -> ActorGroup[T]:
        """Have ``count`` hosted actors made, each in a job of its own: ``name-0`` and so on.

        Args:
            kind: a class.
            args: for each.
            name: how the names of their jobs begin.
            count: how many.
            resources: of each; as the following ones, see :meth:`create_actor`.
            environment: of each.
            constraints: of each.
            priority: of each.
            scheduling_timeout: of each.
            max_restarts: of each.
            concurrency: of each.
            snapshot_every: of each.
            bundle: of each.
            image: of each.
            detached: of each.
            kwargs: for the class.

        Raises:
            InvalidArgument: ``count`` is not a number from 1 on.
            IriscwError: as :meth:`create_actor`; those that were made already are ended, as far as the caller may.
        """
        check_count("count", count)
        if not count:
            raise InvalidArgument("count: a group has one actor at least")
        made: list[ActorHandle[T]] = []
        jobs: list[Job] = []
        async with self._ended_unless_made(jobs):
            for number in range(count):
                made += [
                    await self.create_actor(
                        kind,
                        *args,
                        name=f"{name}-{number}",
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
                ]
                jobs.append(Job(self._calls, made[-1].job_id, "", made[-1].name))
        return ActorGroup(made)

    @asynccontextmanager
    async def _ended_unless_made(self, jobs: Sequence[Job]) -> AsyncIterator[None]:
        """Have jobs ended, as far as the caller may, if nobody gets a handle: nobody could call their actors."""
        try:
            yield
        except BaseException:
            for each in jobs:
                with anyio.move_on_after(END_S, shield=True), contextlib.suppress(IriscwError):
                    await each.terminate("nobody got a handle of its actor")
            raise

    @property
    def hosted_calls(self) -> HostedCalls:
        """What makes the calls of this client's handles. Not for users."""
        return hosted_calls(self._calls)

    @property
    def method_calls(self) -> MethodCalls:
        """What makes the calls to the controller. Not for users."""
        return self._calls

    def close_calls(self) -> None:
        """End the connections to hosted actors. Not for users: the end of the block does it."""
        close_calls(self._calls)


def _check_snapshot_every(seconds: object) -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
        raise InvalidArgument(f"snapshot_every: {seconds!r:.64} is not a number of seconds from 0")
