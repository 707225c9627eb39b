"""What waits for an object store: taken in order, several at a time, as often as it takes.

A store that does not answer, refuses or is full is waited for, and what waits stays where it is. The first upload that
succeeds wakes all others. Which trouble there is, is said once in the log, and by :attr:`Uploads.trouble` as long as it
lasts.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import anyio

from iriscw._errors import OperationError

log = logging.getLogger(__name__)

AT_A_TIME = 8
"""Uploads under way: a quarter of the requests that a store takes at a time."""

FIRST_PAUSE_S = 0.5
MOST_PAUSE_S = 15.0
"""Between two tries of one upload, beside the store's own: doubling from the first to the last."""


class Uploads:
    """See the module.

    Args:
        upload: makes one of them, by its name; raises an ``OperationError`` if it is to be tried again.
        what: they are, for the log.
        first_pause_s: after a failure.
    """

    def __init__(
        self, upload: Callable[[str], Awaitable[None]], what: str, *, first_pause_s: float = FIRST_PAUSE_S
    ) -> None:
        self._upload = upload
        self._what = what
        self._first_pause_s = first_pause_s
        self._waiting: dict[str, None] = {}
        self._under_way: dict[str, None] = {}
        self._more = anyio.Event()
        self._better = anyio.Event()
        self.trouble = ""
        """Why the last try failed; empty since one has succeeded."""
        self.done = 0
        """Uploads since the start."""
        self.failures = 0
        """Tries that failed, since the start."""

    def add(self, name: str) -> None:
        """Upload it. Repeating it is fine."""
        if name not in self._waiting and name not in self._under_way:
            self._waiting[name] = None
            self._more.set()

    def drop(self, name: str) -> None:
        """Upload it no more; one that is under way goes on."""
        self._waiting.pop(name, None)

    async def run(self) -> None:
        """Upload until cancelled."""
        async with anyio.create_task_group() as tasks:
            for _ in range(AT_A_TIME):
                tasks.start_soon(self._work)

    async def _work(self) -> None:
        pause_s = self._first_pause_s
        while True:
            while not self._waiting:
                if self._more.is_set():
                    self._more = anyio.Event()
                await self._more.wait()
            better = self._better
            if await self._tried(next(iter(self._waiting))):
                pause_s = self._first_pause_s
                continue
            with anyio.move_on_after(pause_s):
                await better.wait()
            pause_s = self._first_pause_s if better.is_set() else min(2 * pause_s, MOST_PAUSE_S)

    async def _tried(self, name: str) -> bool:
        del self._waiting[name]
        self._under_way[name] = None
        try:
            await self._upload(name)
        except OperationError as error:
            self._waiting[name] = None  # behind the others: it may be this one's own trouble
            self._failed(error)
            return False
        finally:
            del self._under_way[name]
        self._succeeded()
        return True

    def _failed(self, error: OperationError) -> None:
        self.failures += 1
        if not self.trouble:
            log.warning("%s wait for the object store: %s: %s", self._what, type(error).__name__, error)
        self.trouble = f"{type(error).__name__}: {error}"

    def _succeeded(self) -> None:
        self.done += 1
        if self.trouble:
            log.warning("the object store takes %s again", self._what)
            self.trouble = ""
            self._better.set()
            self._better = anyio.Event()
