"""Handles of hosted actors: what users hold, call, and send to each other."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import inspect
import logging
import os
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, overload

import attrs

from iriscw._errors import InvalidArgument
from iriscw.client.arguments import check_seconds
from iriscw.client.calls import MethodCalls
from iriscw.client.errors import NoSuchJob
from iriscw.client.hosted import END, HOME, ActorCalls, ActorId, Answer, HostedCalls, OwnCode
from iriscw.client.iterators import ArgumentSource, without_iterators
from iriscw.client.job import Job
from iriscw.client.submission import is_own_file, own_code_by_value
from iriscw.hosted.drivers.link import Part
from iriscw.hosted.errors import InvalidActor, NoSuchMethod
from iriscw.hosted.frames import FrameKind
from iriscw.hosted.model import MAX_KEY_CHARS
from iriscw.task.context import InsideLoop, NotInTask, context, when_left
from iriscw.task.passing import passed

log = logging.getLogger("iriscw.client")

T = TypeVar("T")
R = TypeVar("R")
V = TypeVar("V")
R_co = TypeVar("R_co", covariant=True)
P = ParamSpec("P")

OWN_NAMES: Final = ("job_id", "method", "name", "wait_ready")
"""Of a handle: no actor can have methods that are called so."""

MAX_CONCURRENCY: Final = 256

PATIENCE_S: Final = 60.0
"""For how long a call with a key is sent again, if nobody says it: a worker that is lost is replaced within it."""


class ActorFuture(Generic[R]):
    """A call that was made: await it, or ask for its :meth:`result` where no event loop runs."""

    def __init__(self, inner: asyncio.Task[R] | concurrent.futures.Future[R]) -> None:
        self._inner = inner

    def __await__(self) -> Generator[Any, None, R]:
        """Wait for the call's value; raises what the call raises."""
        inner = self._inner
        return (asyncio.wrap_future(inner) if isinstance(inner, concurrent.futures.Future) else inner).__await__()

    def result(self, timeout_s: float | None = None) -> R:
        """Wait for the call's value in a thread without an event loop; raises what the call raises.

        Args:
            timeout_s: seconds; None waits for ever. The call goes on.

        Raises:
            TimeoutError: it is not answered in time.
            InsideLoop: an event loop runs here, which this would hold up.
        """
        if not self._inner.done() and _running_loop() is not None:
            raise InsideLoop("result() would hold up the event loop that runs here: await the future")
        if not isinstance(self._inner, asyncio.Task):
            return self._inner.result(timeout_s)
        if self._inner.done():
            return self._inner.result()
        waiting = asyncio.run_coroutine_threadsafe(_shielded(self._inner), self._inner.get_loop())
        try:
            return waiting.result(timeout_s)
        finally:
            waiting.cancel()

    def done(self) -> bool:
        """Whether it is answered."""
        return self._inner.done()

    def cancel(self) -> bool:
        """Take the call back: one that has not begun never will, and an ``async`` method is cancelled.

        Returns:
            Whether it was not answered yet.
        """
        if isinstance(self._inner, asyncio.Task) and _running_loop() is not self._inner.get_loop():
            self._inner.get_loop().call_soon_threadsafe(self._inner.cancel)
            return not self._inner.done()
        return self._inner.cancel()


@attrs.frozen
class ActorMethod(Generic[P, R_co]):
    """A method of a hosted actor: ``await handle.method(x)``."""

    _handle: ActorHandle[Any]
    name: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        """Call it, and wait for its value; raises what it raises, and as :class:`ActorHandle` says."""
        return self._handle._awaited(self.name, args, kwargs)

    def remote(self, *args: P.args, **kwargs: P.kwargs) -> ActorFuture[R_co]:
        """Call it, and go on: the future has its value. Works in any thread."""
        return self._handle._begun(self.name, args, kwargs)

    def tell(self, *args: P.args, **kwargs: P.kwargs) -> ActorFuture[None]:
        """Call it without waiting for what it gives; the future is done when the call waits in the actor's mailbox.

        What the method raises stands in the actor's log.
        """
        return self._handle._told(self.name, args, kwargs)

    def with_key(self, key: str, *, patience_s: float = PATIENCE_S) -> KeyedMethod[P, R_co]:
        """Return the method with a key, by which the actor knows the call: if it is lost, it is sent again.

        The actor runs the call once for as long as its process lives, whoever sends it, and keeps the answer, of the
        last 10,000 keys. An actor that was made anew knows the keys that its snapshot has, and no others.

        Args:
            key: of this call, and of no other call of this actor; 256 characters at most.
            patience_s: for how many seconds from the call it may be sent again; then a lost call raises ``CallLost``.

        A call raises, beside what :class:`ActorHandle` says:

        * ``CallKeyReused``: another method was called with this key.
        * ``AnswerNotKept``: the call ran, and what came of it was too much to keep.

        Raises:
            InvalidArgument: it is no key, or no time.
        """
        _check_key(key)
        check_seconds("patience_s", patience_s)
        if not 0 <= patience_s < float("inf"):
            raise InvalidArgument(f"patience_s: {patience_s!r} is not a number of seconds from 0")
        return KeyedMethod(self._handle, self.name, key, patience_s)

    @overload
    def stream(
        self: ActorMethod[P, AsyncIterator[V]], *args: P.args, **kwargs: P.kwargs
    ) -> AsyncGenerator[V, None]: ...

    @overload
    def stream(self: ActorMethod[P, Iterator[V]], *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[V, None]: ...

    def stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        """Iterate over what the method yields: ``async for item in handle.rows.stream(5)``.

        The call is made when the first item is asked for. The actor makes at most 16 items, or 16 MiB of them, that
        were not taken. Who stops reading, or is cancelled, closes the method's generator; a reader that is neither
        finished nor closed keeps it, and its turn. What the method raises is raised after the items before it, and so
        is ``CallLost``.
        """
        return self._handle._streamed(self.name, args, kwargs)


@attrs.frozen
class KeyedMethod(Generic[P, R_co]):
    """A method that is called with a key: ``await handle.add.with_key("order 7")(5)``."""

    _handle: ActorHandle[Any]
    name: str
    key: str
    patience_s: float

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        """Call it, and wait for its value; raises as :meth:`ActorMethod.with_key` says."""
        return self._handle._awaited_keyed(self, args, kwargs)

    def remote(self, *args: P.args, **kwargs: P.kwargs) -> ActorFuture[R_co]:
        """Call it, and go on: the future has its value. Works in any thread."""
        return self._handle._begun_keyed(self, args, kwargs)


class ActorHandle(Generic[T]):
    """A hosted actor, for whoever calls it. Made by :meth:`iriscw.Client.create_actor`.

    Its public methods are the actor's: ``await handle.add(5)``, ``handle.add.remote(5)`` for a future,
    ``handle.add.tell(5)``. For a type checker: ``await handle.method(Counter.add)(5)``. A handle can be pickled, and
    whoever has it may call the actor.

    A call waits until the actor is there. It is sent once at most. It raises what the method raised, with the actor's
    traceback as the cause, and:

    * ``ActorOver``: the actor's job is over.
    * ``CallLost``: the connection broke after it was sent; it may have run.
    * ``NotPicklable``, ``CallTooLarge``: an argument, or the value, cannot travel.
    * ``CallFailed``: what the method raised cannot be raised here.
    * ``PythonDiffers``: the actor runs another version of Python.
    * ``ClientClosed``: the client that the handle came from was closed.
    * ``OperationError``: the controller cannot be reached for minutes.
    """

    def __init__(
        self, ref: ActorId, methods: Sequence[str], home: HostedCalls | None, own_code: OwnCode | None
    ) -> None:
        self._ref = ref
        self._methods = tuple(methods)
        self._home = home
        self._own_code = own_code

    def __repr__(self) -> str:
        return f"<iriscw.ActorHandle of {self._ref.name} ({self._ref.job_id})>"

    def __eq__(self, other: object) -> bool:
        return self._ref.job_uid == other._ref.job_uid if isinstance(other, ActorHandle) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._ref.job_uid)

    def __reduce__(self) -> tuple[Any, ...]:
        ref = self._ref
        return _unpickled, (ref.job_id, ref.job_uid, ref.name, ref.capability, self._methods)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __dir__(self) -> list[str]:
        return [*object.__dir__(self), *self._methods]

    def __getattr__(self, name: str) -> ActorMethod[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        if self._methods and name not in self._methods:  # none are known of one that was found by its name alone
            near = get_close_matches(name, self._methods, 1)
            raise NoSuchMethod(f"{self._ref.name!r} has no method {name!r}{f'; is it {near[0]!r}?' if near else ''}")
        return ActorMethod(self, name)

    @property
    def name(self) -> str:
        """That of its job."""
        return self._ref.name

    @property
    def job_id(self) -> str:
        """The job that hosts it: its logs, its end and where it runs are that job's."""
        return self._ref.job_id

    @overload
    def method(self, method: Callable[Concatenate[T, P], Coroutine[Any, Any, R]]) -> ActorMethod[P, R]: ...

    @overload
    def method(self, method: Callable[Concatenate[T, P], R]) -> ActorMethod[P, R]: ...

    def method(self, method: Callable[..., Any]) -> ActorMethod[..., Any]:
        """Return the method that a function of the actor's class is, with its types: ``handle.method(Counter.add)``.

        Raises:
            NoSuchMethod: the actor has none of this name.
        """
        found: ActorMethod[..., Any] = getattr(self, method.__name__)
        return found

    async def wait_ready(self) -> None:
        """Wait until the object is made and takes calls; raises as a call."""
        await self._called(None, [])

    # Calls

    async def _awaited(self, name: str, args: Any, kwargs: Any) -> Any:
        sources: list[ArgumentSource] = []
        return await self._called(FrameKind.CALL, self._packed(name, args, kwargs, sources), sources)

    def _begun(self, name: str, args: Any, kwargs: Any) -> ActorFuture[Any]:
        sources: list[ArgumentSource] = []
        return self._started(FrameKind.CALL, self._packed(name, args, kwargs, sources), sources)

    def _keyed(self, method: KeyedMethod[..., Any], args: Any, kwargs: Any) -> list[Part]:
        name, *passed_parts = self._packed(method.name, args, kwargs)
        return [name, method.key.encode(), *passed_parts]

    async def _awaited_keyed(self, method: KeyedMethod[..., Any], args: Any, kwargs: Any) -> Any:
        parts = self._keyed(method, args, kwargs)
        home, calls = self._found()
        if asyncio.get_running_loop() is home.loop:
            return await calls.call_keyed(parts, method.patience_s)
        calling = asyncio.run_coroutine_threadsafe(calls.call_keyed(parts, method.patience_s), home.loop)
        return await asyncio.wrap_future(calling)

    def _begun_keyed(self, method: KeyedMethod[..., Any], args: Any, kwargs: Any) -> ActorFuture[Any]:
        parts = self._keyed(method, args, kwargs)
        home, calls = self._found()
        if _running_loop() is home.loop:
            return ActorFuture(home.loop.create_task(_answered(calls, calls.begin_keyed(parts, method.patience_s))))
        return ActorFuture(asyncio.run_coroutine_threadsafe(calls.call_keyed(parts, method.patience_s), home.loop))

    def _told(self, name: str, args: Any, kwargs: Any) -> ActorFuture[Any]:
        return self._started(FrameKind.TELL, self._packed(name, args, kwargs))

    def _ready(self) -> ActorFuture[Any]:
        return self._started(None, [])

    def _packed(self, name: str, args: Any, kwargs: Any, sources: list[ArgumentSource] | None = None) -> list[Part]:
        """Pickle a call where it is made: what becomes of the arguments after that is of no consequence."""
        args, kwargs = tuple(args), dict(kwargs)
        if sources is not None:
            args, kwargs = without_iterators(args, kwargs, self._own_code, sources)
        return [name.encode(), *passed((args, kwargs), self._own_code)]

    async def _called(self, kind: FrameKind | None, parts: list[Part], sources: Sequence[ArgumentSource] = ()) -> Any:
        home, calls = self._found()
        if asyncio.get_running_loop() is home.loop:
            return await calls.call(kind, parts, sources)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(calls.call(kind, parts, sources), home.loop))

    def _started(
        self, kind: FrameKind | None, parts: list[Part], sources: Sequence[ArgumentSource] = ()
    ) -> ActorFuture[Any]:
        """Have a call stand in line, and go on."""
        home, calls = self._found()
        if _running_loop() is home.loop:
            return ActorFuture(home.loop.create_task(_answered(calls, calls.begin(kind, parts, sources))))
        return ActorFuture(asyncio.run_coroutine_threadsafe(calls.call(kind, parts, sources), home.loop))

    def _streamed(self, name: str, args: Any, kwargs: Any) -> AsyncGenerator[Any, None]:
        sources: list[ArgumentSource] = []
        return self._items(self._packed(name, args, kwargs, sources), sources)

    async def _items(self, parts: list[Part], sources: list[ArgumentSource]) -> AsyncGenerator[Any, None]:
        home, calls = self._found()
        stream, here = calls.stream(parts, sources), asyncio.get_running_loop() is home.loop
        try:
            while True:
                if here:
                    item = await stream.next()
                else:
                    item = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(stream.next(), home.loop))
                if item is END:
                    return
                yield item
        finally:
            _on_loop(home.loop, stream.close)

    def _iterated(self, name: str, args: Any, kwargs: Any) -> Generator[Any, None, None]:
        """As :meth:`_streamed`, for a thread without an event loop."""
        sources: list[ArgumentSource] = []
        return self._items_waited_for(self._packed(name, args, kwargs, sources), sources)

    def _items_waited_for(self, parts: list[Part], sources: list[ArgumentSource]) -> Generator[Any, None, None]:
        home, calls = self._found()
        stream = calls.stream(parts, sources)
        try:
            while True:
                if _running_loop() is not None:
                    raise InsideLoop("`for` would hold up the event loop that runs here: use the async client")
                coming = asyncio.run_coroutine_threadsafe(stream.next(), home.loop)
                try:
                    item = coming.result()
                finally:
                    coming.cancel()
                if item is END:
                    return
                yield item
        finally:
            _on_loop(home.loop, stream.close)

    def _connected(self) -> bool:
        return self._found()[1].connected

    def _found(self) -> tuple[HostedCalls, ActorCalls]:
        home = self._home if self._home is not None else ambient_calls()
        return home, home.of(self._ref)


def _on_loop(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    """Have a function called on a loop, if that has not ended: then all is closed."""
    if _running_loop() is loop:
        function()
        return
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function)


async def _answered(calls: ActorCalls, answer: asyncio.Future[Answer]) -> Any:
    return calls.read(*await answer)


async def _shielded(task: asyncio.Task[R]) -> R:
    return await asyncio.shield(task)


class ActorGroup(Generic[T]):
    """Hosted actors of one class, each in a job of its own. Made by :meth:`iriscw.Client.create_actor_group`."""

    def __init__(self, handles: Sequence[ActorHandle[T]]) -> None:
        self.handles = tuple(handles)

    def __len__(self) -> int:
        return len(self.handles)

    def __iter__(self) -> Iterator[ActorHandle[T]]:
        return iter(self.handles)

    def __getitem__(self, index: int) -> ActorHandle[T]:
        return self.handles[index]

    def _ready(self) -> ActorFuture[list[ActorHandle[T]]]:
        home, _ = self.handles[0]._found()
        return ActorFuture(asyncio.run_coroutine_threadsafe(self.wait_ready(), home.loop))

    async def wait_ready(self) -> list[ActorHandle[T]]:
        """Wait until all of them take calls, and return their handles; raises as a call of any."""
        waiting = [asyncio.ensure_future(handle.wait_ready()) for handle in self.handles]
        try:
            await asyncio.gather(*waiting)
        finally:
            for each in waiting:
                each.cancel()
        return [*self.handles]

    async def terminate(self, reason: str = "") -> None:
        """Have the jobs of all of them ended, as far as they have not; it is not waited for that. Calls are lost.

        A task may do so with what its job, or one that descends from that, has created.

        Raises:
            PermissionDenied: a task may not.
            IriscwError: as :meth:`iriscw.Job.terminate`.
        """
        await self._termination(reason)

    async def _terminated(self, home: HostedCalls, reason: str) -> None:
        calls = await home.opened()
        for each in self.handles:
            with contextlib.suppress(NoSuchJob):  # it is over, and forgotten
                await Job(calls, each._ref.job_id, each._ref.job_uid, each.name).terminate(reason)

    def _termination(self, reason: str) -> ActorFuture[None]:
        home, _ = self.handles[0]._found()
        return ActorFuture(asyncio.run_coroutine_threadsafe(self._terminated(home, reason), home.loop))


def _unpickled(job_id: str, job_uid: str, name: str, capability: str, methods: Sequence[str]) -> ActorHandle[Any]:
    return ActorHandle(ActorId(job_id, job_uid, name, capability), methods, HOME.get(), None)


def methods_of(kind: type[Any]) -> tuple[str, ...]:
    """Return the public methods of a class.

    Raises:
        InvalidActor: it is no class, has none, or one that is called as something of a handle's own.
    """
    if not isinstance(kind, type):
        raise InvalidActor(f"{kind!r:.64} is not a class: a hosted actor is made of one")
    names = [name for name, each in inspect.getmembers(kind) if callable(each) and not name.startswith("_")]
    if not names:
        raise InvalidActor(f"{kind.__qualname__} has no public methods: nobody could call it")
    taken = [name for name in names if name in OWN_NAMES]
    if taken:
        raise InvalidActor(f"{kind.__qualname__}.{taken[0]}: a handle has a {taken[0]!r} of its own; call it otherwise")
    return tuple(names)


def own_code_of(kind: type[Any]) -> OwnCode | None:
    """Return the block in which the code of a class travels by value; None: it is where iriscw is."""
    module = sys.modules.get(kind.__module__)
    return functools.partial(own_code_by_value, kind) if module is not None and is_own_file(module) else None


def check_concurrency(concurrency: object) -> None:
    """Refuse what is not a number of calls at once.

    Raises:
        InvalidActor: it is none.
    """
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or not 0 < concurrency <= MAX_CONCURRENCY:
        raise InvalidActor(f"concurrency: {concurrency!r:.64} is not a number from 1 to {MAX_CONCURRENCY}")


def _check_key(key: object) -> None:
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_CHARS or not key.isprintable():
        raise InvalidArgument(f"with_key: {key!r:.64} is not a text of 1 to {MAX_KEY_CHARS} printable characters")


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


# Handles without a client: those that were unpickled, but for those that an actor returned. They are called by a client
# of the task's, or of the process's if it is no task, on a loop in a thread of its own.


class _Ambient:
    """The loop behind such handles, and a client for each task in this process until that is over."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._homes: dict[str, HostedCalls] = {}
        self._holding: dict[asyncio.Task[None], None] = {}

    def home(self) -> HostedCalls:
        """Return the calls of the task that runs here; its client is opened when the first call needs it."""
        try:
            whose = context().attempt_uid
        except NotInTask:
            whose = ""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="iriscw handles", daemon=True).start()
            found = self._homes.get(whose)
            if found is None:
                over = asyncio.Event()
                found = self._homes[whose] = HostedCalls(functools.partial(self._opened, over), self._loop)
                when_left(functools.partial(self._left, whose, over))
            return found

    def _left(self, whose: str, over: asyncio.Event) -> None:
        """Close the client of an inline task that is over."""
        with self._lock:
            home = self._homes.pop(whose)
        home.loop.call_soon_threadsafe(home.close)
        home.loop.call_soon_threadsafe(over.set)

    async def _opened(self, over: asyncio.Event) -> MethodCalls:
        opened: asyncio.Future[MethodCalls] = asyncio.get_running_loop().create_future()
        holding = asyncio.create_task(self._hold(opened, over))
        self._holding[holding] = None
        holding.add_done_callback(self._holding.pop)
        return await opened

    @staticmethod
    async def _hold(opened: asyncio.Future[MethodCalls], over: asyncio.Event) -> None:
        """Keep a client open, in the one task that may enter and leave it."""
        from iriscw.client.client import connect

        try:
            async with connect() as client:
                if not opened.done():
                    opened.set_result(client.method_calls)
                await over.wait()
        except Exception as error:
            if opened.done():
                log.warning("the client of an earlier task did not close well", exc_info=True)
            else:
                opened.set_exception(error)


_HOMES: dict[int, _Ambient] = {}
"""By process: a child that was forked begins anew."""


def ambient_calls() -> HostedCalls:
    """Return what makes the calls of handles that no client of this process gave."""
    return _HOMES.setdefault(os.getpid(), _Ambient()).home()
