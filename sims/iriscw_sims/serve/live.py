"""A store whose time passes: requests come when they come, controllers act on what they find.

Theory of operation. One task (:meth:`Live.run`) is where time and controllers move: it lets every timer happen that is
due, has the controllers react after each of them and after every request that changed something, and then rings a
*bell* for each kind of object that changed. Whoever streams a watch waits for its kind's bell, so a write costs nothing
to the watches of other kinds, and many writes within one turn cost one round of wake-ups.

Requests do not wait for that task: the store answers at once, at the moment that time has reached.

A controller that raises has met something that nobody thought of, and whoever serves the cluster would rather go on
than lose it: the error is logged and counted, and what the controller was about to do is not done. When that has
happened :data:`FAILURES_LIMIT` times, the task ends with the last error, and with it the server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.kube.garbage import collect
from iriscw_sims.kube.messages import Request, Response
from iriscw_sims.kube.store import Store
from iriscw_sims.kube.watches import Watch
from iriscw_sims.serve.timeline import Timeline

_log = logging.getLogger(__name__)

TURN_LIMIT = 200
"""Timers that happen before requests get their turn: some ms, as a request may wait."""

FAILURES_LIMIT = 20
"""Errors of controllers after which a simulation is not to be believed any more."""

GARBAGE_PERIOD = SECOND
"""ns after a change until the garbage collector looks at everything. The real one follows watches and is as fast."""

GARBAGE_REAL_S = 0.2
"""Real seconds between two looks at everything, however fast time passes: each takes some us per object."""


class Controllers(Protocol):
    """Those who act on what is in the store."""

    def react(self) -> None:
        """Take in what changed since the last call and act on it, now or later."""


class Bells:
    """One bell for each kind of object."""

    def __init__(self) -> None:
        self._bells: dict[tuple[str, str], asyncio.Event] = {}
        self._known: dict[tuple[str, str], int] = {}

    def of(self, group: str, plural: str) -> asyncio.Event:
        """Return what is set at the next change of a kind's objects."""
        return self._bells.setdefault((group, plural), asyncio.Event())

    def ring(self, store: Store) -> None:
        """Ring for all that changed since the last call."""
        present = {(each.kind.group, each.kind.plural): each.revision for each in store.collections}
        if present == self._known:
            return
        for key in [*self._bells]:
            if present.get(key) != self._known.get(key):
                self._bells.pop(key).set()
        self._known = present

    def ring_all(self) -> None:
        """Ring, whatever did or did not change."""
        for key in [*self._bells]:
            self._bells.pop(key).set()


class GarbageCollector:
    """The garbage collector and the namespace controller: once in a while, if anything changed."""

    def __init__(self, store: Store, timeline: Timeline) -> None:
        self._store = store
        self._timeline = timeline
        self._seen = 0
        self._is_due = False

    def react(self) -> None:
        """Look at everything soon, if anything changed."""
        if self._store.revision != self._seen and not self._is_due:
            self._is_due = True
            real = int(GARBAGE_REAL_S * self._timeline.clock.speed * SECOND)
            self._timeline.after(max(GARBAGE_PERIOD, real), self._collect)

    def _collect(self) -> None:
        self._is_due = False
        self._seen = self._store.revision
        for request in collect(self._store.collections):
            self._store.handle(request, self._timeline.now)


class Live:
    """A store, its time, and those who act in it. Belongs to one event loop."""

    def __init__(self, store: Store, timeline: Timeline, controllers: Sequence[Controllers] = ()) -> None:
        self.store = store
        self.timeline = timeline
        self.controllers = [*controllers, GarbageCollector(store, timeline)]
        self.bells = Bells()
        self.failures = 0
        """Errors of controllers, since the start."""
        self.closed = False
        """Whether streams are to end: the server does."""
        self._touched = asyncio.Event()

    @property
    def now(self) -> int:
        """The moment that was reached, in ns since 1970."""
        return self.timeline.now

    def handle(self, request: Request) -> Response:
        """Answer a request that is not a watch."""
        before = self.store.revision
        response = self.store.handle(request, self.timeline.catch_up())
        if self.store.revision != before:
            self._touched.set()
        return response

    def touch(self) -> None:
        """Say that something was changed otherwise than by a request: watches are told at once."""
        self._touched.set()

    def watch(self, request: Request) -> Watch | Response:
        """Open a watch, or say why not."""
        return self.store.watch(request, self.timeline.catch_up())

    def read(self, path: str) -> Response:
        """Return the answer to a GET of the server's own."""
        return self.handle(Request("GET", path))

    async def wait(self, bell: asyncio.Event, span: int) -> None:
        """Wait for a bell, for ``span`` simulated ns at the longest."""
        try:
            async with asyncio.timeout(max(0.0, self.timeline.clock.real_s(span))):
                await bell.wait()
        except TimeoutError:
            self.timeline.catch_up()

    def close(self) -> None:
        """Have every watch and every log that is followed come to its end."""
        self.closed = True
        self.bells.ring_all()

    async def run(self) -> None:
        """Let time pass, until cancelled."""
        while True:
            self._touched.clear()
            is_more = self._turn()
            self.bells.ring(self.store)
            if is_more:
                await asyncio.sleep(0)  # requests first
                continue
            try:
                async with asyncio.timeout(self.timeline.next_s()):
                    await self._touched.wait()
            except TimeoutError:
                continue

    def _turn(self) -> bool:
        """Let happen what is due; tell whether there is more."""
        self._react()
        for _ in range(TURN_LIMIT):
            timer = self.timeline.take()
            if timer is None:
                return False
            self._guarded(timer.run)
            self._react()
        return True

    def _react(self) -> None:
        for each in self.controllers:
            self._guarded(each.react)

    def _guarded(self, act: Callable[[], object]) -> None:
        """Have a controller act; an error is one too many only after some."""
        try:
            act()
        except Exception:
            self.failures += 1
            if self.failures >= FAILURES_LIMIT:
                raise
            _log.exception("a simulated controller failed (%d of %d)", self.failures, FAILURES_LIMIT)
