"""An event loop in a thread of its own, behind a block of a script that has none."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from inspect import isawaitable
from typing import Any, TypeVar, overload

import anyio
from anyio.from_thread import BlockingPortal

from iriscw.client.errors import ClientClosed

Value = TypeVar("Value")


class ClientLoop:
    """The event loop behind a block; None of it can be used once the block has ended."""

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal
        self._pid = os.getpid()
        self.ended = False

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that has the loop's thread."""
        return os.getpid() != self._pid

    @overload
    def call(self, function: Callable[..., Coroutine[Any, Any, Value]], *args: Any) -> Value: ...

    @overload
    def call(self, function: Callable[..., Value], *args: Any) -> Value: ...

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Have ``function(*args)`` run there and give what it returns. Interrupted (Ctrl-C), it is cancelled there.

        Raises:
            ClientClosed: the block has ended, or this process was forked within it.
        """
        if self.forked:
            raise ClientClosed("this process was forked from the one in which the client works: connect here, too")
        if self.ended:
            raise ClientClosed("a client works inside of the `with` block that gave it, and that has ended")
        called = LoopCall(function, args)
        try:
            return self._portal.call(called.run)
        except BaseException:
            if not called.over:
                self._portal.start_task_soon(called.cancel)
            raise


class LoopCall:
    """One call on the loop, which can be cancelled before it has begun there: Ctrl-C may come at any time.

    Args:
        function: what is called.
        args: with what.
    """

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._function = function
        self._args = args
        self._scope: anyio.CancelScope | None = None
        self._cancelled = False
        self.over = False

    async def run(self) -> Any:
        """Call it, and give what it returns."""
        try:
            with anyio.CancelScope() as self._scope:
                if self._cancelled:
                    self._scope.cancel()
                made = self._function(*self._args)
                return await made if isawaitable(made) else made
        finally:
            self.over = True

    def cancel(self) -> None:
        """End it; on the loop's thread."""
        self._cancelled = True
        if self._scope is not None:
            self._scope.cancel()


@contextmanager
def on_a_loop(making: AbstractAsyncContextManager[Value]) -> Iterator[tuple[ClientLoop, Value]]:
    """Enter what ``making`` gives on a loop of its own. A forked child leaves it alone: it is its parent's to end."""
    started: Future[BlockingPortal] = Future()
    thread = threading.Thread(target=run_loop, args=(started,), name="iriscw", daemon=True)
    thread.start()
    portal = started.result()
    loop = ClientLoop(portal)
    made = portal.wrap_async_context_manager(making)
    try:
        value = made.__enter__()
        try:
            yield loop, value
        except BaseException as error:
            if loop.forked or not made.__exit__(type(error), error, error.__traceback__):
                raise
        else:
            if not loop.forked:
                made.__exit__(None, None, None)
    finally:
        if not loop.forked:
            loop.ended = True
            portal.call(portal.stop, True)
            thread.join()


def run_loop(started: Future[BlockingPortal]) -> None:
    # Not anyio's start_blocking_portal: that is a generator, which waits for its thread when a forked child forgets it.
    async def serve() -> None:
        async with BlockingPortal() as portal:
            started.set_result(portal)
            await portal.sleep_until_stopped()

    anyio.run(serve)


def iterated(loop: ClientLoop, values: AsyncGenerator[Value, None]) -> Iterator[Value]:
    """Iterate from outside of the loop; a reader that stops early closes the stream."""
    end = object()
    reading = anyio.Lock()

    async def following() -> Any:
        async with reading:
            return await anext(values, end)

    async def closing() -> None:
        async with reading:  # what was interrupted is cancelled, and may not be over yet
            await values.aclose()

    try:
        while (value := loop.call(following)) is not end:
            yield value
    finally:
        if not loop.ended:  # else the loop has closed it
            loop.call(closing)
