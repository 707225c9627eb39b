"""Writes that wait for the same disk are done together.

To hand a write to a thread and to hear of its end takes the loop ten times as long as to write a line. When a round of
the scheduler gives work to a hundred workers, as many lines are to be written at once. So the first one is written,
and what comes meanwhile is one write more, whoever waits for it (as the journal does it with its records).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import anyio
import attrs

Item = TypeVar("Item")


@attrs.define(eq=False)
class _Batch(Generic[Item]):
    items: list[Item] = attrs.field(factory=list)
    over: anyio.Event = attrs.field(factory=anyio.Event)
    errors: dict[int, Exception] = attrs.field(factory=dict)


class GroupCommit(Generic[Item]):
    """Has items written by one function, those that came while it was at work all at once.

    Args:
        write: writes items, in the order in which they came; gives the error of each that was not written, by its
            index.
    """

    def __init__(self, write: Callable[[Sequence[Item]], Awaitable[dict[int, Exception]]]) -> None:
        self._write = write
        self._next: _Batch[Item] = _Batch()
        self._busy = anyio.Lock()
        self.writes = 0
        """How often something was written."""

    async def put(self, item: Item) -> None:
        """Write an item, with others or alone.

        Whoever is cancelled while the item is written hears so when that is over, as with any thread.

        Raises:
            Exception: what kept it from being written, as ``write`` says.
        """
        batch, index = self._next, len(self._next.items)
        batch.items.append(item)
        if index:
            await batch.over.wait()
        else:
            await self._lead(batch)
        error = batch.errors.get(index)
        if error is not None:
            raise error

    async def _lead(self, batch: _Batch[Item]) -> None:
        """Write a batch when the one before is written: the others of it rely on that, so nothing cancels it."""
        try:
            with anyio.CancelScope(shield=True):
                async with self._busy:
                    self._next = _Batch()
                    self.writes += 1
                    batch.errors = await self._write(batch.items)
        except Exception as error:  # noqa: BLE001 - all who wait are told
            batch.errors = dict.fromkeys(range(len(batch.items)), error)
        finally:
            batch.over.set()
