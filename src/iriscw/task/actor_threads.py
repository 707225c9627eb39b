"""The threads of a hosted actor, in which its methods run that are not ``async``."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol, TypeAlias

Outcome: TypeAlias = "tuple[Any, BaseException | None]"
"""What a function gave, and what it raised: not all of that can be an exception of a future."""


class MethodThreads(Protocol):
    """Where methods run that are not ``async``: :class:`ActorThreads`, or what a simulation has in their place."""

    async def call(self, function: Callable[[], Any]) -> Any:
        """As :meth:`ActorThreads.call`."""


class ActorThreads:
    """The threads in which methods run. They end with the process, which waits for none of them: one may never return.

    Args:
        count: how many.
    """

    def __init__(self, count: int) -> None:
        self._work: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Outcome]]] = SimpleQueue()
        for number in range(count):
            threading.Thread(target=self._run, name=f"actor-{number}", daemon=True).start()

    async def call(self, function: Callable[[], Any]) -> Any:
        """Call a function in the next thread that is free, in the context of this task; raises what it raises."""
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._work.put((functools.partial(contextvars.copy_context().run, function), done))
        value, error = await done
        if error is not None:
            raise error
        return value

    def _run(self) -> None:
        while True:
            function, done = self._work.get()
            outcome: Outcome
            try:
                outcome = function(), None
            except BaseException as error:  # noqa: BLE001 - it is raised where it was called
                outcome = None, error
            try:
                done.get_loop().call_soon_threadsafe(_settle, done, outcome)
            except RuntimeError:  # the loop has ended
                return


def _settle(done: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not done.done():
        done.set_result(outcome)
