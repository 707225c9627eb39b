"""The call that carries a session's stream: its first answer, and its two directions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
import anyio.abc

from iriscw._errors import OperationError
from iriscw.rpc.client import BidiCall

STREAM_TIMEOUT_S = 86_400.0
"""Every call has a deadline; after a day whoever dialled dials again."""

WELCOME_TIMEOUT_S = 30.0
"""From the hello to the answer: the controller asks its fleet in between."""

UpT = TypeVar("UpT")
DownT = TypeVar("DownT")


class NotWelcomed(OperationError):
    """The controller answered a hello with neither a welcome nor a refusal, or not in time."""

    retryable = True


async def first_answer(call: BidiCall[UpT, DownT], hello: UpT) -> DownT:
    """Send a hello, and return what the controller says to it.

    Raises:
        NotWelcomed: it said nothing in time, or ended the stream.
    """
    await call.send(hello)
    first = None
    with anyio.move_on_after(WELCOME_TIMEOUT_S):
        first = await call.receive()
    if first is None:
        raise NotWelcomed("the controller did not answer the hello")
    return first


@asynccontextmanager
async def alongside() -> AsyncIterator[anyio.abc.TaskGroup]:
    """Open a group for what runs while a stream is read. It ends with the block; the first failure comes out of it.

    When the connection breaks, each direction raises the same: one of them is enough.
    """
    try:
        async with anyio.create_task_group() as tasks:
            yield tasks
            tasks.cancel_scope.cancel()
    except ExceptionGroup as failures:
        raise _first_of(failures) from failures


def _first_of(failures: ExceptionGroup[Exception]) -> Exception:
    first = failures.exceptions[0]
    return _first_of(first) if isinstance(first, ExceptionGroup) else first
