"""Finding hosted actors by name: what a client and a task have of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar, overload

import anyio

from iriscw._errors import InvalidArgument
from iriscw.client import peers
from iriscw.client.actors import ActorFuture, ActorHandle, ambient_calls, methods_of, own_code_of
from iriscw.client.arguments import check_seconds
from iriscw.client.blocking_actors import BlockingActorHandle, waited
from iriscw.client.calls import MethodCalls
from iriscw.client.errors import WaitTimeout
from iriscw.client.hosted import ActorId, HostedCalls, hosted_calls
from iriscw.client.job import Job
from iriscw.client.model import PeerAddress
from iriscw.proto.iriscw.v1 import JobRef, ResolveActorsRequest, ResolvedActor
from iriscw.rpc.errors import RpcUnavailable

T = TypeVar("T")
R = TypeVar("R")


class NamespacedResolver:
    """Finds hosted actors by the names that they have in one namespace.

    A namespace is that of a job without a parent, and of all that descends from it. Made by
    :meth:`iriscw.Client.resolver_for_job`; ``iriscw.context().resolver`` is that of a task. A name is found exactly as
    it is written. One that begins with ``/`` is a path and says itself where to look: ``/NAME`` is an actor that was
    not created in a task, and ``/TOP/NAME`` one in the namespace of the job that is called ``TOP``, or has that id.

    A task finds the names of its own namespace, and no others.
    """

    def __init__(self, home: HostedCalls | None, job: JobRef | None) -> None:
        self._home = home
        self._job = job

    def __repr__(self) -> str:
        where = "of this task" if self._home is None else "at the top" if self._job is None else self._job.job_id
        return f"<iriscw.NamespacedResolver {where}>"

    @overload
    async def resolve(
        self, name: str, kind: None = None, *, wait: bool = False, timeout_s: float | None = None
    ) -> ActorHandle[Any]: ...

    @overload
    async def resolve(
        self, name: str, kind: type[T], *, wait: bool = False, timeout_s: float | None = None
    ) -> ActorHandle[T]: ...

    async def resolve(
        self, name: str, kind: type[Any] | None = None, *, wait: bool = False, timeout_s: float | None = None
    ) -> ActorHandle[Any]:
        """Find the actor that has a name, and return its handle, whose calls wait until it is ready.

        Args:
            name: one of the namespace, or a path.
            kind: its class: then methods that it has not are told here, by name, and checked by a type checker. Without
                it they are told by the actor. It is not asked whether the actor is one of this class.
            wait: wait until an actor of this name is created; the controller says when.
            timeout_s: seconds to wait for that; None waits for ever.

        Raises:
            NoSuchName: no actor has it now, and that is not to be waited for.
            WaitTimeout: none was created in time.
            NotHosted: the job that has it hosts no actor.
            NoSuchJob: the resolver is of a job that there is not.
            PermissionDenied: a task looked beyond its own namespace.
            InvalidArgument: it is neither a name nor a path, or there is a ``timeout_s`` and nothing to wait for.
            InvalidActor: ``kind`` is no class whose methods can be called.
            OperationError: the controller cannot be reached for minutes.
        """
        if not name:
            raise InvalidArgument("name: it is empty")
        if timeout_s is not None and not wait:
            raise InvalidArgument("timeout_s: nothing is waited for; with wait=True it says how long")
        check_seconds("timeout_s", timeout_s)
        methods, own_code = ((), None) if kind is None else (methods_of(kind), own_code_of(kind))
        return await self._at_home(self._resolved, name, wait, timeout_s, methods, own_code)

    async def list(self) -> tuple[ActorHandle[Any], ...]:
        """Return the handles of all actors of the namespace that are not over, in the order of their creation.

        Raises:
            NoSuchJob, PermissionDenied, OperationError: as :meth:`resolve`.
        """
        return await self._at_home(self._listed)

    async def peers(self, name: str, port: str, timeout_s: float | None = None) -> tuple[PeerAddress, ...]:
        """Wait until all replicas of a job of some name run, and give where each listens to a port, by index.

        For what a task serves at a port of its own, as :meth:`iriscw.Job.peers`: what is given is true at that moment,
        and never of an attempt that has ended; ask again when it does not answer.

        Args:
            name: of a job of the namespace, or a path. It need not exist yet.
            port: one of the names in the job's ``ports``.
            timeout_s: seconds; None waits for ever.

        Raises:
            NoSuchPort: the job did not ask for a port of this name.
            PeerOver: a replica has ended for good, so that never all of them will run.
            WaitTimeout: there is no such job in time, or not all of it runs.
            NoSuchJob, PermissionDenied, InvalidArgument, OperationError: as :meth:`resolve`.
        """
        if not name:
            raise InvalidArgument("name: it is empty")
        check_seconds("timeout_s", timeout_s)
        return await self._at_home(self._reached, name, port, timeout_s)

    def _found(self) -> HostedCalls:
        return self._home if self._home is not None else ambient_calls()

    async def _at_home(self, function: Callable[..., Coroutine[Any, Any, R]], *args: Any) -> R:
        """Have a question asked on the event loop that the client's connection belongs to."""
        home = self._found()
        if asyncio.get_running_loop() is home.loop:
            return await function(home, *args)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(function(home, *args), home.loop))

    async def _asked(
        self, home: HostedCalls, name: str, *, wait: bool, any_job: bool = False
    ) -> AsyncGenerator[ResolvedActor, None]:
        calls = await home.opened()
        request = ResolveActorsRequest(job=self._job, name=name, wait=wait, any_job=any_job)
        async with aclosing(calls.stream("ResolveActors", lambda: request, ResolvedActor)) as found:
            async for each in found:
                yield each

    async def _named(self, home: HostedCalls, name: str, *, wait: bool, any_job: bool = False) -> ResolvedActor:
        async with aclosing(self._asked(home, name, wait=wait, any_job=any_job)) as found:
            async for each in found:
                return each
        raise RpcUnavailable("the controller ended its search without an answer")

    async def _reached(
        self, home: HostedCalls, name: str, port: str, timeout_s: float | None
    ) -> tuple[PeerAddress, ...]:
        with anyio.move_on_after(timeout_s):
            found = await self._named(home, name, wait=True, any_job=True)
            job = JobRef(job_id=found.job_id, job_uid=found.job_uid)
            return await peers.addresses(await home.opened(), job, port, found.capability)
        raise WaitTimeout(f"there is no job {name!r} of which all replicas run after {timeout_s:g} s")

    async def _resolved(
        self, home: HostedCalls, name: str, wait: bool, timeout_s: float | None, methods: tuple[str, ...], own_code: Any
    ) -> ActorHandle[Any]:
        with anyio.move_on_after(timeout_s):
            found = await self._named(home, name, wait=wait)
            return ActorHandle(_id_of(found), methods, self._home, own_code)
        raise WaitTimeout(f"no actor {name!r} was created in {timeout_s:g} s")

    async def _listed(self, home: HostedCalls) -> tuple[ActorHandle[Any], ...]:
        made: dict[str, ActorHandle[Any]] = {}  # a stream that broke begins anew
        async with aclosing(self._asked(home, "", wait=False)) as found:
            async for each in found:
                made[each.job_uid] = ActorHandle(_id_of(each), (), self._home, None)
        return tuple(made.values())


class BlockingResolver:
    """:class:`iriscw.NamespacedResolver` for scripts; of ``context().resolver`` for tasks without an event loop."""

    def __init__(self, resolver: NamespacedResolver) -> None:
        self._resolver = resolver

    def __repr__(self) -> str:
        return repr(self._resolver).replace("iriscw.NamespacedResolver", "iriscw.blocking.BlockingResolver", 1)

    @overload
    def resolve(
        self, name: str, kind: None = None, *, wait: bool = False, timeout_s: float | None = None
    ) -> BlockingActorHandle[Any]: ...

    @overload
    def resolve(
        self, name: str, kind: type[T], *, wait: bool = False, timeout_s: float | None = None
    ) -> BlockingActorHandle[T]: ...

    def resolve(
        self, name: str, kind: type[Any] | None = None, *, wait: bool = False, timeout_s: float | None = None
    ) -> BlockingActorHandle[Any]:
        """Find the actor that has a name; arguments and errors as :meth:`iriscw.NamespacedResolver.resolve`."""
        found = self._resolver.resolve(name, kind, wait=wait, timeout_s=timeout_s)
        return BlockingActorHandle(self._waited(found))

    def peers(self, name: str, port: str, timeout_s: float | None = None) -> tuple[PeerAddress, ...]:
        """Wait for a job's replicas; arguments and errors as :meth:`iriscw.NamespacedResolver.peers`."""
        return self._waited(self._resolver.peers(name, port, timeout_s))

    def list(self) -> tuple[BlockingActorHandle[Any], ...]:
        """Return the handles of all actors of the namespace; errors as :meth:`iriscw.NamespacedResolver.list`."""
        return tuple(BlockingActorHandle(each) for each in self._waited(self._resolver.list()))

    def _waited(self, asking: Coroutine[Any, Any, R]) -> R:
        return waited(ActorFuture(asyncio.run_coroutine_threadsafe(asking, self._resolver._found().loop)))


class ActorNames:
    """Of :class:`iriscw.Client`."""

    _calls: MethodCalls

    @property
    def resolver(self) -> NamespacedResolver:
        """Finds hosted actors by name: in a task those of its namespace, else those that were not created in a task."""
        return NamespacedResolver(hosted_calls(self._calls), None)

    def resolver_for_job(self, job: Job | ActorHandle[Any] | str) -> NamespacedResolver:
        """Return what finds hosted actors by name in the namespace of a job.

        Args:
            job: the job, its id or its name; or a hosted actor of the namespace.

        Raises:
            InvalidArgument: it is none of these. Whether there is such a job is asked when a name is.
        """
        return NamespacedResolver(hosted_calls(self._calls), _ref_of(job))


def _ref_of(job: object) -> JobRef:
    if isinstance(job, Job):
        return JobRef(job_id=job.id, job_uid=job.uid)
    if isinstance(job, ActorHandle):
        return JobRef(job_id=job._ref.job_id, job_uid=job._ref.job_uid)
    if isinstance(job, str) and job:
        return JobRef(job_id=job)
    raise InvalidArgument(f"job: {job!r:.64} is neither a job nor the id or the name of one")


def _id_of(found: ResolvedActor) -> ActorId:
    return ActorId(found.job_id, found.job_uid, found.name, found.capability)
