"""Task groups whose error is the error: callers catch classes, and a group is none of theirs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup


@asynccontextmanager
async def unwrapped() -> AsyncIterator[None]:
    """Raise the first of the errors that a task group has put into one."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise next(_leaves(group)) from group


@asynccontextmanager
async def all_of(*, stop: Callable[[], object]) -> AsyncIterator[TaskGroup]:
    """Run tasks until all have ended; ``stop`` is called at the end, and at once when one fails or all are cancelled.

    It makes threads end that nobody waits for any more.
    """

    async def watch() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stop()

    async with unwrapped(), anyio.create_task_group() as watched:
        watched.start_soon(watch)
        async with anyio.create_task_group() as tasks:
            yield tasks
        watched.cancel_scope.cancel()


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
