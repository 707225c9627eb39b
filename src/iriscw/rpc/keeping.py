"""A block that may be entered and left in different tasks: what is open in it lives in a task of its own.

Task groups and cancel scopes belong to the task that opens them, so a block that holds one has to be left by the task
that entered it. Fixtures of test frameworks, two cells of a notebook and exit stacks that are handed on do not. So a
*keeper*, a task that this starts and ends, enters the block, waits until it is told to leave, and leaves it.

::

    host                                    keeper
    enters: starts it, waits       ->       async with made: tells what it gave
    runs its own code                       waits
    leaves: tells it, waits        ->       leaves in order; what that raises, the host's block raises

Nothing of the host's passes through the block: an exception of its code is neither seen nor changed by what is kept,
so it leaves as it was, groups and notes included.

What ends the block from inside must still reach the host. If the task that entered has not ended, it is cancelled, as
a task group would do it, and the end of its block turns that cancellation into the error. If it has ended, nobody knows
who works in the block now: the error is raised when it is left, and until then whatever is used says that it is gone.

Cancellation. A host that is cancelled while it enters has the keeper cancelled, and waits for it. One that is
cancelled while it leaves (a second Ctrl-C) passes that on, which cuts graces short, and waits all the same: whatever
must be done to its end is shielded there.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, TypeVar

import anyio

from iriscw.rpc.errors import WrongLoop
from iriscw.rpc.listening import require_asyncio, running_loop

Value = TypeVar("Value")


class KeptContext(AbstractAsyncContextManager[Value]):
    """An asynchronous context manager, open in a task of its own.

    Args:
        made: what is kept.
        name: of the task.
    """

    def __init__(self, made: AbstractAsyncContextManager[Value], name: str) -> None:
        self._made = made
        self._name = name
        self._keeper: asyncio.Task[None] | None = None
        self._host: asyncio.Task[Any] | None = None
        self._told = asyncio.Event()
        self._interrupted = False
        """Whether the host was cancelled because the block ended by itself."""

    async def __aenter__(self) -> Value:
        """Open it, and give what it gives.

        Raises:
            NeedsAsyncio: this is not a task of an asyncio loop.
            BaseException: what entering raised.
        """
        require_asyncio()
        self._host = asyncio.current_task()
        entered: asyncio.Future[Value] = asyncio.get_running_loop().create_future()
        self._keeper = keeper = asyncio.create_task(self._keep(entered), name=self._name)
        try:
            await asyncio.wait((entered, keeper), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            keeper.cancel()
            await _ended(keeper)
            raise _failure(keeper) or asyncio.CancelledError from None
        if not entered.done():
            raise _failure(keeper) or asyncio.CancelledError
        keeper.add_done_callback(self._over)
        return entered.result()

    async def _keep(self, entered: asyncio.Future[Value]) -> None:
        async with self._made as value:
            entered.set_result(value)
            await self._told.wait()

    def _over(self, keeper: asyncio.Task[None]) -> None:
        """The block has ended: have the host know, if nobody told it to."""
        if not self._told.is_set() and self._host is not None and not self._host.done():
            self._interrupted = True
            self._host.cancel(f"{self._name} has ended")

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Close it, in any task of the loop that entered. What the host's own code raised goes on by itself.

        Raises:
            WrongLoop: this is another loop.
            BaseException: what ended the block, or leaving it raised.
        """
        keeper, host = self._keeper, self._host
        assert keeper is not None
        if keeper.get_loop() is not running_loop():
            raise WrongLoop(f"{self._name} was entered on another event loop, and has to be left there")
        self._told.set()
        cut = await _ended(keeper)
        if self._interrupted and host is not None and asyncio.current_task() is host:
            more = host.uncancel()  # who else cancelled it
            if not isinstance(exc, asyncio.CancelledError):
                ours = await _next_cancellation()
                cut = ours if more else cut
        failure = _failure(keeper)
        if failure is not None:
            raise failure
        if cut is None and keeper.cancelled() and not isinstance(exc, asyncio.CancelledError):
            cut = asyncio.CancelledError()
        if cut is not None:
            raise cut


async def _ended(keeper: asyncio.Task[None]) -> asyncio.CancelledError | None:
    """Wait for the keeper's end, however often this is cancelled; pass that on to it, and give it."""
    cut = None
    while not keeper.done():
        try:
            with anyio.CancelScope(shield=True):
                await asyncio.wait((keeper,))
        except asyncio.CancelledError as cancelled:
            keeper.cancel()
            cut = cancelled
    return cut


def _failure(keeper: asyncio.Task[None]) -> BaseException | None:
    """Return what a keeper that has ended raised; an interrupt of the program has ended its loop already."""
    error = None if keeper.cancelled() else keeper.exception()
    return asyncio.CancelledError() if isinstance(error, KeyboardInterrupt | SystemExit) else error


async def _next_cancellation() -> asyncio.CancelledError | None:
    try:
        with anyio.CancelScope(shield=True):
            await asyncio.sleep(0)
    except asyncio.CancelledError as cancelled:
        return cancelled
    return None
