"""An asyncio event loop on virtual time, written against asyncio's public surface alone.

Theory of operation. Callbacks run in the order in which they were scheduled. When none is ready, the clock jumps to the
earliest timer; timers of one instant fire in the order of their numbers. Nothing else decides what happens next: no
selector, no thread, no wall clock. So the same program gives the same order in every process, and hours cost nothing.

A loop of a machine hangs when all its tasks wait for each other. This one knows that nothing can ever come, and says
so (:class:`StuckLoop`); so it does when time cannot pass any more (:class:`SpinningLoop`) or has passed for too long
(:class:`HorizonPassed`). Real sockets, threads, processes and signals cannot be reached from it (:class:`Unsimulated`).

The clock counts in integer nanoseconds; asyncio sees seconds. A timer never fires before the float that asked for it.
"""

from __future__ import annotations

import asyncio
import enum
import heapq
import math
import sys
import threading
import weakref
from asyncio import events
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import Context
from typing import Any, NoReturn, Protocol, TypeVarTuple, Unpack

from iriscw._errors import InvalidArgument
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.transport.errors import HorizonPassed, SpinningLoop, StuckLoop, Unsimulated

Arguments = TypeVarTuple("Arguments")


DEFAULT_HORIZON_S = 7 * 86_400.0
"""Virtual seconds after which a run that has not ended is given up: the sessions of a worker last a day."""

MAX_CALLBACKS_PER_INSTANT = 1_000_000
"""Without a step of the clock. A burst of a thousand calls takes some 50,000."""

MAX_LISTED = 20
"""Tasks that an error lists."""


class Threads(enum.Enum):
    """What becomes of functions that are to run in a thread."""

    REFUSE = "refuse"
    INLINE = "inline"
    """They run at once in the loop, in no virtual time."""


class Nets(Protocol):
    """The simulated network, as the loop sees it: :class:`iriscw_sims.transport.network.Network`."""

    async def create_connection(self, factory: Callable[[], Any], host: str, port: int) -> tuple[Any, Any]:
        """Connect."""

    async def create_server(self, factory: Callable[[], Any], host: str | None, port: int) -> Any:
        """Listen."""

    async def resolve(self, host: str | None, port: int) -> list[tuple[Any, ...]]:
        """Return a name's addresses."""


class SteadyTask(asyncio.Task[Any]):
    """A task whose hash is its number: sets of tasks, of which asyncio and anyio have many, get one order."""

    def __init__(self, number: int, coroutine: Any, **options: Any) -> None:
        self.number = number
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise Unsimulated(f"a virtual loop has no {name}")

    return refuse


OUT_OF_REACH = (
    *("add_reader", "remove_reader", "add_writer", "remove_writer", "add_signal_handler", "remove_signal_handler"),
    *("sock_accept", "sock_connect", "sock_recv", "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into"),
    *("sock_sendall", "sock_sendto", "sock_sendfile", "sendfile", "connect_accepted_socket", "start_tls"),
    *("create_datagram_endpoint", "create_unix_connection", "create_unix_server", "getnameinfo"),
    *("connect_read_pipe", "connect_write_pipe", "subprocess_exec", "subprocess_shell", "set_default_executor"),
)
"""What asyncio's loops have and a virtual one has not."""

_Unreachable: Any = type("_Unreachable", (asyncio.AbstractEventLoop,), {name: _refusal(name) for name in OUT_OF_REACH})


class VirtualLoop(_Unreachable):  # type: ignore[misc]
    """The loop. One run, then it is closed.

    Args:
        horizon_s: virtual seconds that the run may take.
        threads: what becomes of functions that are to run in a thread.

    Raises:
        InvalidArgument: the horizon is not above 0.
    """

    def __init__(self, *, horizon_s: float = DEFAULT_HORIZON_S, threads: Threads = Threads.REFUSE) -> None:
        if not horizon_s > 0:
            raise InvalidArgument(f"horizon_s: {horizon_s!r} is not a number of seconds above 0")
        self.threads = threads
        self.network: Nets | None = None
        self.failures: list[dict[str, Any]] = []
        """What was raised where nobody could catch it, as asyncio's exception handlers are told it."""
        self.callbacks = 0
        """How many have run."""
        self._horizon_ns = round(horizon_s * SECOND)
        self._now_ns = 0
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[int, int, asyncio.TimerHandle]] = []
        self._numbers = 0
        self._tasks = 0
        self._thread: int | None = None
        self._stopping = self._closed = False
        self._task_factory: Any = None
        self._exception_handler: Any = None
        self._generators: dict[int, weakref.ref[AsyncGenerator[Any, Any]]] = {}

    # Time

    @property
    def now_ns(self) -> int:
        """The virtual clock."""
        return self._now_ns

    def time(self) -> float:
        """Return the virtual clock in seconds; it begins at 0."""
        return self._now_ns / SECOND

    # Scheduling

    def call_soon(
        self, callback: Callable[[Unpack[Arguments]], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.Handle:
        """Run ``callback`` after all that is ready now."""
        self._check_open()
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Arguments]], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.Handle:
        """Do the same: there is one thread.

        Raises:
            Unsimulated: this is another one.
        """
        if self._thread is not None and threading.get_ident() != self._thread:
            raise Unsimulated("another thread called into a virtual loop: when it did is nobody's choice")
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run ``callback`` in ``delay`` seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run ``callback`` at a time of this clock; never, if that is infinite."""
        self._check_open()
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if when != math.inf:  # sleep_forever() is a sleep without end: no timer, so that a stuck loop is seen
            self._numbers += 1
            heapq.heappush(self._timers, (self._not_before(when), self._numbers, handle))
        return handle

    def _not_before(self, when: float) -> int:
        due = max(self._now_ns, math.floor(when * SECOND))
        while due / SECOND < when:  # whoever looks at the clock then must find that its time has come
            due += 1
        return due

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Leave it: it is skipped when its time comes."""

    # Running

    def run_forever(self) -> None:
        """Run until :meth:`stop`.

        Raises:
            StuckLoop, SpinningLoop, HorizonPassed: see there.
        """
        self._check_open()
        if self._thread is not None:
            raise Unsimulated("a virtual loop runs already")
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._generator_begins, finalizer=self._generator_is_lost)
        self._thread = threading.get_ident()
        events._set_running_loop(self)
        try:
            while not self._stopping:
                self._turn()
        finally:
            self._stopping = False
            self._thread = None
            events._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def _turn(self) -> None:
        """Run all that is ready at this instant, and let the clock jump."""
        if not self._ready:
            self._advance()
        ready, left = self._ready, MAX_CALLBACKS_PER_INSTANT
        while ready and not self._stopping:
            if not left:
                names = sorted({repr(handle)[:200] for handle in list(ready)[:MAX_LISTED]})
                raise SpinningLoop(f"{MAX_CALLBACKS_PER_INSTANT} callbacks at {self.time():.9f} s: {'; '.join(names)}")
            left -= 1
            handle = ready.popleft()
            if not handle.cancelled():
                self.callbacks += 1
                handle._run()
            del handle  # else the traceback of a callback that failed keeps alive what ran last

    def _advance(self) -> None:
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers:
            raise StuckLoop(f"at {self.time():.9f} s nothing can happen any more{self._waiting()}")
        due = timers[0][0]
        if due > self._horizon_ns:
            raise HorizonPassed(f"the run has not ended after {self._horizon_ns / SECOND:g} s{self._waiting()}")
        self._now_ns = due
        while timers and timers[0][0] == due:
            self._ready.append(heapq.heappop(timers)[2])

    def _waiting(self) -> str:
        tasks = sorted((each for each in asyncio.all_tasks(self)), key=lambda task: task.get_name())
        lines = [f"\n  {task.get_name()}: {where(task)}" for task in tasks[:MAX_LISTED]]
        more = f"\n  and {len(tasks) - MAX_LISTED} more tasks" if len(tasks) > MAX_LISTED else ""
        return "".join(lines) + more

    def run_until_complete(self, future: Any) -> Any:
        """Run until ``future`` is done; give its result.

        Raises:
            StuckLoop, SpinningLoop, HorizonPassed: see there.
        """
        ours: asyncio.Future[Any] = asyncio.ensure_future(future, loop=self)
        ours.add_done_callback(self._stop_for)
        try:
            self.run_forever()
        finally:
            ours.remove_done_callback(self._stop_for)
        return ours.result()

    def _stop_for(self, _: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop after the callback that runs."""
        self._stopping = True

    def is_running(self) -> bool:
        """Whether it runs."""
        return self._thread is not None

    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def close(self) -> None:
        """Drop all that is scheduled."""
        self._closed = True
        self._ready.clear()
        self._timers.clear()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("Event loop is closed")  # asyncio's own words: its callers look for this class

    # Tasks and futures

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Coroutine[Any, Any, Any] | Any, *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        """Start a task; without a name of its own it gets its number."""
        self._check_open()
        if self._task_factory is not None:
            task: asyncio.Task[Any] = self._task_factory(self, coro)
            if name is not None:
                task.set_name(name)
            return task
        self._tasks += 1
        return SteadyTask(self._tasks, coro, loop=self, name=name or f"task-{self._tasks}", context=context)

    def set_task_factory(self, factory: Any) -> None:
        """Make tasks some other way. Their order in sets is then nobody's."""
        self._task_factory = factory

    def get_task_factory(self) -> Any:
        """Return what makes tasks; None: this loop does."""
        return self._task_factory

    # Asynchronous generators, as asyncio's own loops treat them

    def _generator_begins(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._numbers += 1
        self._generators[self._numbers] = weakref.ref(generator)

    def _generator_is_lost(self, generator: AsyncGenerator[Any, Any]) -> None:
        if not self._closed:
            self.call_soon(lambda: self.create_task(generator.aclose()))

    async def shutdown_asyncgens(self) -> None:
        """Close those that are left, in the order in which they began."""
        left = [generator for ref in self._generators.values() if (generator := ref()) is not None]
        self._generators.clear()
        for generator in left:
            await generator.aclose()

    # Threads

    def run_in_executor(
        self, executor: Any, func: Callable[[Unpack[Arguments]], Any], *args: *Arguments
    ) -> asyncio.Future[Any]:
        """Run a function at once, if the loop was told so.

        Raises:
            Unsimulated: it was told that threads are refused.
        """
        self.require_inline(func)
        future = self.create_future()
        try:
            result = func(*args)
        except Exception as error:  # noqa: BLE001 - the future's
            future.set_exception(error)
        else:
            future.set_result(result)
        return future

    def require_inline(self, func: Callable[..., Any]) -> None:
        """Refuse a thread, unless functions run inline.

        Raises:
            Unsimulated: they do not.
        """
        if self.threads is not Threads.INLINE:
            raise Unsimulated(
                f"{getattr(func, '__qualname__', func)!r} is to run in a thread, which has no virtual time"
            )

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing: there is none."""

    # The network

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        """Connect through the simulated network.

        Raises:
            Unsimulated: there is no network, or options were given that it does not know, such as TLS.
            OSError: as the network says it.
        """
        return await self._net(options).create_connection(protocol_factory, host, port)

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        """Listen on the simulated network. The backlog is as long as it takes.

        Raises:
            Unsimulated: as for :meth:`create_connection`.
            OSError: as the network says it.
        """
        return await self._net(options).create_server(protocol_factory, host, port)

    async def getaddrinfo(self, host: Any, port: Any, **options: int) -> list[Any]:
        """Return what the simulated network knows of a name.

        Raises:
            Unsimulated: there is no network.
            OSError: the name is not known.
        """
        return await self._net({}).resolve(host, port)

    def _net(self, options: dict[str, Any]) -> Nets:
        unknown = [name for name, value in options.items() if value and name not in ("backlog", "start_serving")]
        if unknown:
            raise Unsimulated(f"the simulated network does not know {', '.join(unknown)}")
        if self.network is None:
            raise Unsimulated("this virtual loop has no network")
        return self.network

    # Errors and debugging

    def get_debug(self) -> bool:
        """Say no."""
        return False

    def set_debug(self, enabled: bool) -> None:
        """Ignore it: slow callbacks are measured in wall time."""

    def get_exception_handler(self) -> Any:
        """Return what is told of failures beside ``failures``."""
        return self._exception_handler

    def set_exception_handler(self, handler: Any) -> None:
        """Tell ``handler`` of failures, instead of noting them."""
        self._exception_handler = handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Note a failure."""
        self.failures.append(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Note a failure, or tell whoever wants to know."""
        (self._exception_handler or type(self).default_exception_handler)(self, context)


def where(task: asyncio.Task[Any]) -> str:
    """Say where a task waits: the innermost line of ours first, ``file:line function``, outermost last."""
    lines = []
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
        if frame is not None:
            name = frame.f_code.co_filename.rpartition("/")[2]
            lines.append(f"{name}:{frame.f_lineno} {frame.f_code.co_name}")
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
    return " < ".join(reversed(lines)) or "not started"
