"""The names of fray's Iris backend, so that code written for it runs with another import.

::

    from iriscw.fray import FrayIrisClient

    client = FrayIrisClient(controller_address="127.0.0.1:10000", workspace=Path("."))
    coordinator = client.create_actor(Coordinator, name="controller")
    workers = client.create_actor_group(Worker, coordinator, name="worker", count=2).wait_ready()
    print(workers[0].work.remote(1).result())

These are hosted actors (:meth:`iriscw.Client.create_actor`), each in a job of its own: ``controller-0``, ``worker-0``,
``worker-1``. All of it blocks, and may be used from any thread. A handle may be sent to an actor, and works there as it
does here. Nothing here sets variables of tasks: each task is told by its worker where the controller is, and within one
``FrayIrisClient()`` needs no address. There :func:`iris_ctx` finds actors by name, too.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Self, TypeVar

import attrs

from iriscw.client.actors import ActorFuture, ActorHandle, ActorMethod
from iriscw.client.blocking_actors import BlockingActorHandle, BlockingActorMethod
from iriscw.client.resolving import BlockingResolver, NamespacedResolver
from iriscw.proto.iriscw.v1 import JobRef
from iriscw.resources import Resources
from iriscw.rpc.tokens import Secret
from iriscw.task.context import InsideLoop, TaskContext, context

if TYPE_CHECKING:
    import iriscw.blocking

__all__ = [
    "FrayIrisClient",
    "IrisActorFuture",
    "IrisActorGroup",
    "IrisActorHandle",
    "IrisActorMethod",
    "IrisContext",
    "iris_ctx",
]

THREADS: Final = 32
"""Calls of one actor that run at once, as in Iris: code that was written for it may wait in one for another."""

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


@attrs.frozen
class IrisActorFuture(Generic[R]):
    """A call that was made."""

    _future: ActorFuture[R]

    def result(self, timeout: float | None = None) -> R:
        """Wait for the call's value, at most ``timeout`` seconds; errors as :meth:`iriscw.ActorFuture.result`."""
        return self._future.result(timeout)

    def done(self) -> bool:
        """Whether it is answered."""
        return self._future.done()

    def cancel(self) -> bool:
        """Take the call back; as :meth:`iriscw.ActorFuture.cancel`."""
        return self._future.cancel()


@attrs.frozen
class IrisActorMethod(Generic[P, R]):
    """A method of a hosted actor."""

    _method: ActorMethod[P, R]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call it, and wait for its value; errors as :class:`iriscw.ActorHandle` says."""
        return BlockingActorMethod(self._method)(*args, **kwargs)

    def remote(self, *args: P.args, **kwargs: P.kwargs) -> IrisActorFuture[R]:
        """Call it, and go on: the future has its value."""
        return IrisActorFuture(self._method.remote(*args, **kwargs))


class IrisActorHandle(Generic[T]):
    """A hosted actor: ``handle.method(x)`` waits, ``handle.method.remote(x)`` gives a future.

    Errors of calls are those of :class:`iriscw.ActorHandle`. It can be pickled, and whoever has it may call the actor.

    Args:
        actor: a handle, or the name of an actor.
        job_id: of a name: in the namespace of which job it is looked for, at the first call; empty: of the task that
            runs here. Errors are those of :meth:`iriscw.NamespacedResolver.resolve`.
    """

    def __init__(self, actor: ActorHandle[T] | str, job_id: str = "") -> None:
        self._actor = actor
        self._of = job_id

    @property
    def _handle(self) -> ActorHandle[T]:
        if isinstance(self._actor, str):
            job = JobRef(job_id=self._of) if self._of else None
            self._actor = BlockingResolver(NamespacedResolver(None, job)).resolve(self._actor)._handle
        return self._actor

    def __repr__(self) -> str:
        if isinstance(self._actor, str):
            return f"<iriscw.fray.IrisActorHandle of {self._actor}>"
        return repr(self._actor).replace("iriscw.ActorHandle", "iriscw.fray.IrisActorHandle", 1)

    def __eq__(self, other: object) -> bool:
        return self._handle == other._handle if isinstance(other, IrisActorHandle) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._handle)

    def __reduce__(self) -> tuple[Any, ...]:
        return IrisActorHandle, (self._actor, self._of)

    def __dir__(self) -> list[str]:
        return dir(self._handle)

    def __getattr__(self, name: str) -> IrisActorMethod[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return IrisActorMethod(getattr(self._handle, name))

    @property
    def job_id(self) -> str:
        """The job that hosts it."""
        return self._handle.job_id

    def wait_ready(self) -> None:
        """Wait until it takes calls; errors as :meth:`iriscw.ActorHandle.wait_ready`."""
        BlockingActorHandle(self._handle).wait_ready()


class IrisActorGroup(Generic[T]):
    """Hosted actors of one class. Made by :meth:`FrayIrisClient.create_actor_group`."""

    def __init__(self, client: iriscw.blocking.Client, handles: Sequence[ActorHandle[T]]) -> None:
        self._client = client
        self._handles = tuple(handles)

    def __len__(self) -> int:
        return len(self._handles)

    def __iter__(self) -> Iterator[IrisActorHandle[T]]:
        return map(IrisActorHandle, self._handles)

    def wait_ready(self, count: int | None = None, timeout: float | None = None) -> list[IrisActorHandle[T]]:
        """Wait until actors take calls, and return their handles; errors as :meth:`iriscw.ActorGroup.wait_ready`.

        Args:
            count: how many of them, whichever are first; None: all.
            timeout: seconds; None waits for ever.

        Raises:
            TimeoutError: they are not ready in time.
        """
        return _run(self._ready(len(self) if count is None else count, timeout))

    async def _ready(self, count: int, timeout: float | None) -> list[IrisActorHandle[T]]:
        waiting = {asyncio.create_task(each.wait_ready()): each for each in self._handles}
        try:
            async with asyncio.timeout(timeout):
                for done in islice(asyncio.as_completed(waiting), count):
                    await done
            ready = [each for task, each in waiting.items() if task.done() and not task.exception()]
            return [IrisActorHandle(each) for each in ready[:count]]
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    def shutdown(self) -> None:
        """End the actors' jobs, and wait until they have ended; errors as :meth:`iriscw.blocking.Job.terminate`."""
        _end(self._client, self._handles)


class FrayIrisClient:
    """Creates hosted actors in the cluster of a controller. It lasts until :meth:`shutdown`, or as long as the process.

    Args:
        controller_address: as :func:`iriscw.connect`, with ``http://`` before it or without; None: inside a task that
            of its own controller, else as there. A cluster of this process is known by its address alone.
        workspace: a folder whose files each actor finds in its working folder; None: that is empty.
        token: proves who asks; None takes the one that belongs to the address there.

    Raises:
        OperationError: and others, as :func:`iriscw.blocking.connect`.
    """

    def __init__(
        self,
        controller_address: str | None = None,
        workspace: str | os.PathLike[str] | None = None,
        *,
        token: str | Secret | None = None,
    ) -> None:
        # Here, since an actor that is sent a handle needs this module, and none of a controller's.
        from iriscw.blocking import connect
        from iriscw.cluster import token_here

        address = controller_address and controller_address.removeprefix("http://").rstrip("/")
        if token is None and address:
            token = token_here(address)
        self.workspace = workspace
        self._open = ExitStack()
        self.iris: Final = self._open.enter_context(connect(address, token))
        """The client of everything else, such as ``iris.job(handle.job_id).logs()``."""
        atexit.register(self._open.close)

    def __repr__(self) -> str:
        return f"<iriscw.fray.FrayIrisClient of {self.iris.address}>"

    def create_actor(
        self, actor_class: type[T], *args: Any, name: str, resources: Resources | None = None, **options: Any
    ) -> IrisActorHandle[T]:
        """Have ``actor_class(*args)`` made in the job ``name-0``; calls wait until it is there.

        Args:
            actor_class: a class.
            args: for the class.
            name: of the job, but for its number.
            resources: of the job's one task; 1 CPU and 1 GiB if None.
            options: as :meth:`iriscw.Client.create_actor` has them, and what else the class takes. ``concurrency`` is
                32 here: methods run in threads, at the same time.

        Raises:
            IriscwError: as :meth:`iriscw.Client.create_actor`.
        """
        (handle,) = self.create_actor_group(actor_class, *args, name=name, count=1, resources=resources, **options)
        return handle

    def create_actor_group(
        self,
        actor_class: type[T],
        *args: Any,
        name: str,
        count: int,
        resources: Resources | None = None,
        **options: Any,
    ) -> IrisActorGroup[T]:
        """Have ``count`` actors made, each in a job of its own: ``name-0`` and so on.

        Args:
            actor_class: a class.
            args: for each.
            name: how the names of their jobs begin.
            count: how many.
            resources: of each.
            options: of each, as :meth:`create_actor`.

        Raises:
            IriscwError: as :meth:`iriscw.Client.create_actor_group`.
        """
        options = {"concurrency": THREADS, "bundle": self.workspace} | options
        group = self.iris.create_actor_group(actor_class, *args, name=name, count=count, resources=resources, **options)
        return IrisActorGroup(self.iris, [each._handle for each in group])

    def terminate(self, *actors: IrisActorHandle[Any]) -> None:
        """End the jobs of actors, and wait until they have ended; errors as :meth:`iriscw.blocking.Job.terminate`."""
        _end(self.iris, actors)

    def shutdown(self, wait: bool = True) -> None:
        """End the connection: handles that came from here are of no use any more. The actors go on."""
        atexit.unregister(self._open.close)
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """End the connection, as :meth:`shutdown`."""
        self.shutdown()


class IrisContext:
    """What a task knows of itself, and whom it may ask. Made by :func:`iris_ctx`.

    Whatever :class:`iriscw.TaskContext` has, such as ``job_id``, ``attempt`` and ``namespace``, this has, too.
    """

    def __init__(self, task: TaskContext) -> None:
        self._task = task

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._task, name)

    @property
    def client(self) -> iriscw.blocking.Client:
        """A client that lasts as long as the process; what it submits are children of this task's job."""
        return _client_of(self._task.attempt_uid).iris

    @property
    def resolver(self) -> BlockingResolver:
        """Finds hosted actors by name in the task's namespace."""
        return BlockingResolver(self._task.resolver)

    def get_port(self, name: str) -> int:
        """Return the port that was set aside for ``name``; errors as :meth:`iriscw.TaskContext.port`."""
        return self._task.port(name)


def iris_ctx() -> IrisContext:
    """Return the context of the task that runs here.

    Raises:
        NotInTask: no task runs here.
    """
    return IrisContext(context())


_connecting = threading.Lock()
_clients: dict[tuple[int, str], FrayIrisClient] = {}
"""By process and attempt."""


def _client_of(attempt_uid: str) -> FrayIrisClient:
    with _connecting:
        key = os.getpid(), attempt_uid
        if key not in _clients:
            _clients[key] = FrayIrisClient()
        return _clients[key]


def _end(client: iriscw.blocking.Client, actors: Iterable[IrisActorHandle[Any] | ActorHandle[Any]]) -> None:
    jobs = [client.job(each.job_id) for each in actors]
    for job in jobs:
        job.terminate()
    for job in jobs:
        job.wait()


def _run(waiting: Coroutine[Any, Any, R]) -> R:
    """Wait in a thread without an event loop.

    Raises:
        InsideLoop: one runs here.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(waiting)
    waiting.close()
    raise InsideLoop("this would hold up the event loop that runs here: use iriscw.Client there")
