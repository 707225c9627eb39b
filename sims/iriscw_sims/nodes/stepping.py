"""Coroutines of simulated ports: each await is a boundary, at which the process that runs it may die.

Nobody waits here. Whoever drives a coroutine sends it on when it likes: a test by hand, the simulated world when its
virtual time has passed. What dies is never sent on and never closed: a killed process runs no ``finally``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from typing import Any

import attrs


class Cancelled(BaseException):
    """Stands for the cancellation of an effect."""


@attrs.frozen
class Await:
    """What a port waits for: so many ns of its machine's time."""

    ns: int = 0

    def __await__(self) -> Generator[Await, None, None]:
        """Stop here."""
        yield self


@attrs.define(eq=False)
class _Call:
    steps: Coroutine[Await, None, None]
    number: int
    due: int = 0


async def together(calls: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Make calls at the same time, wait for all, then raise the first error there was: as the desk's own does."""
    now = 0
    waiting = [_Call(_begun(call), number) for number, call in enumerate(calls)]
    errors: list[tuple[int, Exception]] = []
    while waiting:
        call = min(waiting, key=lambda each: (each.due, each.number))
        try:
            if call.due > now:
                await Await(call.due - now)
                now = call.due
            pause = call.steps.send(None)
        except StopIteration:
            waiting.remove(call)
        except Cancelled as cut:
            for each in waiting:
                cancel(each.steps, cut)
            raise
        except Exception as error:  # noqa: BLE001 - raised below
            waiting.remove(call)
            errors.append((call.number, error))
        else:
            call.due = now + max(1, pause.ns)
    if errors:
        raise min(errors, key=lambda each: each[0])[1]


async def _begun(call: Callable[[], Awaitable[None]]) -> None:
    await call()


def cancel(steps: Coroutine[Await, Any, Any], cut: Cancelled) -> None:
    """Have a coroutine that waits end what it began.

    Raises:
        RuntimeError: it goes on.
    """
    try:
        steps.throw(cut)
    except (Cancelled, StopIteration):
        return
    raise RuntimeError("a call went on after it was cancelled")
