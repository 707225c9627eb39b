"""A listing that is drawn anew whenever there is something new in it: `iriscw jobs --watch`."""

from __future__ import annotations

import shutil
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final

import anyio

from iriscw.cli.output import can_redraw, emit
from iriscw.client.client import Client
from iriscw.proto.iriscw.v1 import JobsChange, WatchJobsRequest

AGES_S: Final = 1.0
"""How often ages are drawn anew on a terminal; nothing is asked for that."""


async def watch(client: Client, look: Callable[[], Awaitable[Any]], text: Callable[[Any, int], str]) -> None:
    """Draw what ``look`` finds now, and whenever jobs have changed; until cancelled.

    On a terminal each drawing takes the place of the one before, and ages grow. Elsewhere a drawing that differs is
    written behind the others, with an empty line in between.

    Args:
        client: is told when to look.
        look: reads what is to be drawn.
        text: draws it; the second argument is the time, in milliseconds since 1970.

    Raises:
        OperationError: the controller cannot be reached for minutes.
    """
    changes = client.method_calls.stream("WatchJobs", WatchJobsRequest, JobsChange)
    if can_redraw():
        await _redraw(changes, look, text)
        return
    last = None
    async with aclosing(changes):
        async for _ in changes:
            found = await look()
            if found != last:
                emit(("" if last is None else "\n") + text(found, _now_ms()))
                last = found


async def _redraw(
    changes: AsyncGenerator[JobsChange, None], look: Callable[[], Awaitable[Any]], text: Callable[[Any, int], str]
) -> None:
    screen, found = Screen(), await look()

    async def age() -> None:
        while True:
            screen.draw(text(found, _now_ms()))
            await anyio.sleep(AGES_S)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(age)
        async with aclosing(changes):
            async for _ in changes:
                found = await look()
                screen.draw(text(found, _now_ms()))


class Screen:
    """Draws over what it drew before."""

    def __init__(self) -> None:
        self._lines = 0

    def draw(self, text: str) -> None:
        """Write lines in the place of those before, as many as fit; the last line says how many do not."""
        lines = text.splitlines()
        room = max(2, shutil.get_terminal_size().lines - 1)
        if len(lines) > room:
            lines = [*lines[: room - 1], f"and {len(lines) - room + 1} more lines"]
        up = f"\x1b[{self._lines}F" if self._lines else ""
        emit(f"{up}\x1b[J" + "".join(f"{line}\n" for line in lines))
        self._lines = len(lines)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
