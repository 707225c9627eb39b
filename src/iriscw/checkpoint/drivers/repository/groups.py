"""Task groups whose error is the error: callers catch classes, and a group is none of theirs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def unwrapped() -> AsyncIterator[None]:
    """Raise the first of the errors that a task group has put into one."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise next(_leaves(group)) from group


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
