"""Pools: calls that any of several hosted actors may take, shared out to those that are idle.

Theory of operation. A member has one call at a time. It is *idle* once it takes calls, and again when its call is
answered; whoever has a call to make waits for an idle one, in line. So nothing is queued but who waits: a pool has as
many calls under way as members. A member whose connection broke is *away* until it takes calls again, and one whose job
is over is gone. A call that was not sent is given to another member; of one that is lost nobody knows whether it ran,
so it goes to another member only as often as was asked for.

All of it happens on the event loop that the handles' connections belong to.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator
from queue import SimpleQueue
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar, overload

from iriscw._errors import InvalidArgument
from iriscw.client.actors import ActorFuture, ActorHandle
from iriscw.client.arguments import check_count
from iriscw.client.blocking_actors import BlockingActorHandle, waited
from iriscw.hosted.drivers.link import Part
from iriscw.hosted.errors import ActorOver, CallLost, NoActorLeft, RemoteTraceback
from iriscw.hosted.frames import FrameKind

T = TypeVar("T")
R = TypeVar("R")
A = TypeVar("A")
P = ParamSpec("P")

AHEAD: Final = 2
"""Calls for each member that ``map`` has under way or answered before their values are asked for."""

Method = Callable[..., Any] | str


class PoolMembers:
    """Which members are idle, and who waits for one.

    Args:
        handles: the members.
        retries: how often a lost call is given to another one.
    """

    def __init__(self, handles: Iterable[ActorHandle[Any]], retries: int) -> None:
        self.handles = tuple(handles)
        self.left = len(self.handles)
        self._retries = retries
        self._idle: deque[ActorHandle[Any]] = deque()
        self._line: deque[asyncio.Future[ActorHandle[Any]]] = deque()
        self._away: dict[asyncio.Task[None], None] | None = None
        """Those that are waited for; None: nobody has asked for any yet."""
        self._last: Exception | None = None

    async def begin(self, parts: list[Part]) -> asyncio.Task[Any]:
        """Wait for an idle member, and have it make a call.

        Raises:
            NoActorLeft: all are over.
        """
        member = await self._take()
        return asyncio.create_task(self._call(member, parts))

    async def _take(self, *, first: bool = False) -> ActorHandle[Any]:
        if self._away is None:
            self._away = {}
            for each in self.handles:
                self._await(each)
        while self._idle:
            member = self._idle.popleft()
            if member._connected():
                return member
            self._await(member)  # it died while it was idle
        if not self.left:
            raise self._none_left()
        future: asyncio.Future[ActorHandle[Any]] = asyncio.get_running_loop().create_future()
        if first:
            self._line.appendleft(future)
        else:
            self._line.append(future)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._give_back(future.result())
            raise

    def _give_back(self, member: ActorHandle[Any]) -> None:
        while self._line:
            future = self._line.popleft()
            if not future.done():
                future.set_result(member)
                return
        self._idle.append(member)

    def _await(self, member: ActorHandle[Any]) -> None:
        """Have a member come back when it takes calls."""
        assert self._away is not None
        task = asyncio.create_task(self._come_back(member))
        self._away[task] = None
        task.add_done_callback(self._away.pop)

    async def _come_back(self, member: ActorHandle[Any]) -> None:
        try:
            await member.wait_ready()
        except Exception as error:  # noqa: BLE001 - whatever it is, this one cannot be called
            self._lose(error)
        else:
            self._give_back(member)

    def _lose(self, error: Exception) -> None:
        self.left -= 1
        self._last = error
        if not self.left:
            line, self._line = self._line, deque()
            for future in line:
                if not future.done():
                    future.set_exception(self._none_left())

    def _none_left(self) -> NoActorLeft:
        error = NoActorLeft(f"no actor of the pool is left, of {len(self.handles)}: {self._last}")
        error.__cause__ = self._last
        return error

    async def _call(self, member: ActorHandle[Any], parts: list[Part]) -> Any:
        retries = self._retries
        while True:
            try:
                value = await member._called(FrameKind.CALL, parts)
            except (ActorOver, CallLost) as error:
                if isinstance(error.__cause__, RemoteTraceback):  # the method's own: of another actor that it called
                    self._give_back(member)
                    raise
                if isinstance(error, ActorOver):  # it was not sent
                    self._lose(error)
                else:
                    self._await(member)
                    if not retries:
                        raise
                    retries -= 1
            except BaseException:
                self._give_back(member)
                raise
            else:
                self._give_back(member)
                return value
            member = await self._take(first=True)


class ActorPool(Generic[T]):
    """Hosted actors of which any may take a call: each has one at a time, and gets the next when it is idle.

    ::

        pool = iriscw.ActorPool(await client.create_actor_group(Worker, name="worker", count=8))
        async for value in pool.map(Worker.work, parts):
            ...

    A member that restarts is given calls again when it takes them, and one whose job is over none any more. A call that
    was lost with its member raises ``CallLost`` where it is awaited, as it may have run; with ``retries`` it is given
    to another member that often before. One that was not sent is given to another member in any case. A pool can be
    pickled: the copy knows the same actors, and nothing of calls that others make.

    Args:
        actors: an :class:`iriscw.ActorGroup`, or handles.
        retries: how often a lost call is made anew: for methods that may run twice.

    Raises:
        InvalidArgument: there are no actors, or ``retries`` is not a number from 0 on.
    """

    def __init__(self, actors: Iterable[ActorHandle[T]], *, retries: int = 0) -> None:
        check_count("retries", retries)
        handles = [*actors]
        if not handles or not all(isinstance(each, ActorHandle) for each in handles):
            raise InvalidArgument("actors: a pool is made of one handle of a hosted actor at least")
        self._members = PoolMembers(handles, retries)
        self._first = handles[0]
        self._retries = retries

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(ActorPool, retries=self._retries), (self._members.handles,)

    def __repr__(self) -> str:
        return f"<iriscw.ActorPool of {len(self)} of {len(self._members.handles)} actors>"

    def __len__(self) -> int:
        """Return how many of the actors are not known to be over."""
        return self._members.left

    @overload
    async def submit(
        self, method: Callable[Concatenate[T, P], Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> ActorFuture[R]: ...

    @overload
    async def submit(
        self, method: Callable[Concatenate[T, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> ActorFuture[R]: ...

    @overload
    async def submit(self, method: str, /, *args: Any, **kwargs: Any) -> ActorFuture[Any]: ...

    async def submit(self, method: Method, /, *args: Any, **kwargs: Any) -> ActorFuture[Any]:
        """Wait for an idle actor, have it called, and return the future of the value.

        The future raises what a call of :class:`iriscw.ActorHandle` raises, and ``NoActorLeft``.

        Args:
            method: a function of the actors' class, or the name of one.
            args: for the method.
            kwargs: for the method.

        Raises:
            NoActorLeft: all actors of the pool are over.
            NoSuchMethod: the actors have no such method.
            NotPicklable, CallTooLarge: an argument cannot travel.
            ClientClosed: the client that the handles came from was closed.
        """
        parts, home = self._packed(method, args, kwargs)
        if asyncio.get_running_loop() is home:
            return ActorFuture(await self._members.begin(parts))
        begun: asyncio.Future[concurrent.futures.Future[Any]] = asyncio.wrap_future(self._begun(parts, home))
        return ActorFuture(await begun)

    @overload
    async def call(
        self, method: Callable[Concatenate[T, P], Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...

    @overload
    async def call(self, method: Callable[Concatenate[T, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    async def call(self, method: str, /, *args: Any, **kwargs: Any) -> Any: ...

    async def call(self, method: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Have an idle actor called, and return the value; arguments and errors as :meth:`submit` and its future."""
        future: ActorFuture[Any] = await self.submit(method, *args, **kwargs)
        try:
            return await future
        finally:
            future.cancel()

    @overload
    def map(self, method: Callable[[T, A], Coroutine[Any, Any, R]], values: Iterable[A]) -> AsyncGenerator[R, None]: ...

    @overload
    def map(self, method: Callable[[T, A], R], values: Iterable[A]) -> AsyncGenerator[R, None]: ...

    @overload
    def map(self, method: str, values: Iterable[Any]) -> AsyncGenerator[Any, None]: ...

    async def map(self, method: Any, values: Iterable[Any]) -> AsyncGenerator[Any, None]:
        """Call the method once with each value, and iterate over what it gives, in the order of the values.

        Values are taken as actors become idle, at most two for each actor before what was given is iterated over. The
        first error ends it, and takes back the calls under way; so does whoever stops iterating.

        Args:
            method: a function of the actors' class, or the name of one.
            values: one argument of each call.

        Raises:
            IriscwError, Exception: as :meth:`call`.
        """
        pending: deque[ActorFuture[Any]] = deque()
        try:
            for value in values:
                while len(pending) >= self._window or (pending and pending[0].done()):
                    yield await pending.popleft()
                pending.append(await self.submit(method, value))
            while pending:
                yield await pending.popleft()
        finally:
            _take_back(pending)

    @overload
    def map_unordered(
        self, method: Callable[[T, A], Coroutine[Any, Any, R]], values: Iterable[A]
    ) -> AsyncGenerator[R, None]: ...

    @overload
    def map_unordered(self, method: Callable[[T, A], R], values: Iterable[A]) -> AsyncGenerator[R, None]: ...

    @overload
    def map_unordered(self, method: str, values: Iterable[Any]) -> AsyncGenerator[Any, None]: ...

    async def map_unordered(self, method: Any, values: Iterable[Any]) -> AsyncGenerator[Any, None]:
        """Do as :meth:`map`, and yield each value as soon as it is there.

        Args:
            method: a function of the actors' class, or the name of one.
            values: one argument of each call.

        Raises:
            IriscwError, Exception: as :meth:`call`.
        """
        done: asyncio.Queue[ActorFuture[Any]] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        pending: dict[ActorFuture[Any], None] = {}

        async def next_value() -> Any:
            future = await done.get()
            del pending[future]
            return await future

        try:
            for value in values:
                while len(pending) >= self._window or not done.empty():
                    yield await next_value()
                future: ActorFuture[Any] = await self.submit(method, value)
                pending[future] = None
                future._inner.add_done_callback(_put(loop, done, future))
            while pending:
                yield await next_value()
        finally:
            _take_back(pending)

    @property
    def _window(self) -> int:
        return AHEAD * len(self._members.handles)

    def _packed(self, method: Method, args: Any, kwargs: Any) -> tuple[list[Part], asyncio.AbstractEventLoop]:
        """Pickle a call, in the thread that makes it."""
        name = method if isinstance(method, str) else getattr(method, "__name__", repr(method))
        getattr(self._first, name)
        home, _ = self._first._found()
        return self._first._packed(name, args, kwargs), home.loop

    def _begun(
        self, parts: list[Part], home: asyncio.AbstractEventLoop
    ) -> concurrent.futures.Future[concurrent.futures.Future[Any]]:
        """Begin a call from another thread than the loop's."""

        async def begin() -> concurrent.futures.Future[Any]:
            return asyncio.run_coroutine_threadsafe(_of(await self._members.begin(parts)), home)

        return asyncio.run_coroutine_threadsafe(begin(), home)


class BlockingActorPool(Generic[T]):
    """:class:`iriscw.ActorPool` for scripts, and for tasks without an event loop.

    Args:
        actors: a :class:`BlockingActorGroup`, or handles of either kind.
        retries: how often a lost call is made anew.

    Raises:
        InvalidArgument: as :class:`iriscw.ActorPool`.
    """

    def __init__(self, actors: Iterable[BlockingActorHandle[T] | ActorHandle[T]], *, retries: int = 0) -> None:
        handles = [each._handle if isinstance(each, BlockingActorHandle) else each for each in actors]
        self._pool = ActorPool(handles, retries=retries)

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(BlockingActorPool, retries=self._pool._retries), (self._pool._members.handles,)

    def __repr__(self) -> str:
        return repr(self._pool).replace("iriscw.ActorPool", "iriscw.blocking.BlockingActorPool", 1)

    def __len__(self) -> int:
        """Return how many of the actors are not known to be over."""
        return len(self._pool)

    @overload
    def submit(
        self, method: Callable[Concatenate[T, P], Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> ActorFuture[R]: ...

    @overload
    def submit(
        self, method: Callable[Concatenate[T, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> ActorFuture[R]: ...

    @overload
    def submit(self, method: str, /, *args: Any, **kwargs: Any) -> ActorFuture[Any]: ...

    def submit(self, method: Method, /, *args: Any, **kwargs: Any) -> ActorFuture[Any]:
        """Wait for an idle actor, and have it called; arguments and errors as :meth:`iriscw.ActorPool.submit`."""
        parts, home = self._pool._packed(method, args, kwargs)
        return ActorFuture(waited(ActorFuture(self._pool._begun(parts, home))))

    @overload
    def call(
        self, method: Callable[Concatenate[T, P], Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...

    @overload
    def call(self, method: Callable[Concatenate[T, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    def call(self, method: str, /, *args: Any, **kwargs: Any) -> Any: ...

    def call(self, method: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Have an idle actor called, and return the value; arguments and errors as :meth:`iriscw.ActorPool.call`."""
        return waited(self.submit(method, *args, **kwargs))

    @overload
    def map(self, method: Callable[[T, A], Coroutine[Any, Any, R]], values: Iterable[A]) -> Iterator[R]: ...

    @overload
    def map(self, method: Callable[[T, A], R], values: Iterable[A]) -> Iterator[R]: ...

    @overload
    def map(self, method: str, values: Iterable[Any]) -> Iterator[Any]: ...

    def map(self, method: Any, values: Iterable[Any]) -> Iterator[Any]:
        """Call the method with each value; arguments and errors as :meth:`iriscw.ActorPool.map`."""
        pending: deque[ActorFuture[Any]] = deque()
        try:
            for value in values:
                while len(pending) >= self._pool._window or (pending and pending[0].done()):
                    yield waited(pending.popleft())
                pending.append(self.submit(method, value))
            while pending:
                yield waited(pending.popleft())
        finally:
            _take_back(pending)

    @overload
    def map_unordered(self, method: Callable[[T, A], Coroutine[Any, Any, R]], values: Iterable[A]) -> Iterator[R]: ...

    @overload
    def map_unordered(self, method: Callable[[T, A], R], values: Iterable[A]) -> Iterator[R]: ...

    @overload
    def map_unordered(self, method: str, values: Iterable[Any]) -> Iterator[Any]: ...

    def map_unordered(self, method: Any, values: Iterable[Any]) -> Iterator[Any]:
        """Iterate over the values as they come; arguments and errors as :meth:`iriscw.ActorPool.map_unordered`."""
        done: SimpleQueue[ActorFuture[Any]] = SimpleQueue()
        pending: dict[ActorFuture[Any], None] = {}

        def next_value() -> Any:
            future = done.get()
            del pending[future]
            return future.result()

        try:
            for value in values:
                while len(pending) >= self._pool._window or not done.empty():
                    yield next_value()
                future: ActorFuture[Any] = self.submit(method, value)
                pending[future] = None
                future._inner.add_done_callback(functools.partial(_filed, done, future))
            while pending:
                yield next_value()
        finally:
            _take_back(pending)


async def _of(task: asyncio.Task[R]) -> R:
    return await task


def _filed(done: SimpleQueue[ActorFuture[Any]], future: ActorFuture[Any], _: object) -> None:
    done.put(future)


def _put(
    loop: asyncio.AbstractEventLoop, done: asyncio.Queue[ActorFuture[Any]], future: ActorFuture[Any]
) -> Callable[[object], object]:
    """Return what puts a future into a queue of this loop, in whichever thread it is done."""
    return lambda _: loop.call_soon_threadsafe(done.put_nowait, future)


def _take_back(futures: Iterable[ActorFuture[Any]]) -> None:
    """Have calls end that nobody waits for any more, and their errors be nobody's."""
    for each in futures:
        each.cancel()
        if each.done() and not each._inner.cancelled():
            each._inner.exception()
