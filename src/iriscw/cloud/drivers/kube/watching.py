"""Watches carried out: the driver's machine on one side, an iteration on the other.

Theory of operation. The machine (:class:`~iriscw.cloud.kube.watching.PoolWatch`, ``PodWatch``) says what it wants
done and is told what came of it. Requests and connections have a task each; alarms are kept in a heap. Only the
iteration itself feeds the machine: when it is asked for the next event and has none, it takes one thing that a task
holds out, gives it to the machine, and hands out what the machine shows.

So a consumer that does not come stops everything: each task holds one thing and does nothing before it is taken, the
connection is not read, and the server waits. Memory is what the machine holds, and what one event made it show.

The iteration is an asynchronous generator. When it is left (closed, cancelled, forgotten) its tasks are cancelled and
waited for: no task and no connection outlives it. No task refers to the generator, so one that is forgotten is closed.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import anyio

from iriscw.cloud.drivers.kube.calls import Caller
from iriscw.cloud.kube.exchange import (
    Action,
    CloseWatch,
    Event,
    Fail,
    Fetched,
    FetchFailed,
    FetchObjects,
    OpenWatch,
    Show,
    Token,
    WakeAfter,
    WatchEnded,
    WatchItem,
    Woken,
)
from iriscw.cloud.kube.messages import ApiRequest, ApiUnreachable
from iriscw.cloud.kube.watching import PodWatch, PoolWatch
from iriscw.cloud.model import CloudError, WatchEvent
from iriscw.runtime.vocabulary import SECOND

Machine: TypeAlias = PoolWatch | PodWatch


async def watched(caller: Caller, machine: Machine) -> AsyncGenerator[WatchEvent, None]:
    """Yield what a machine shows, for as long as somebody asks.

    Raises:
        CloudError: what ends the watch by the port's contract.
    """
    work = _Work(caller)
    try:
        work.do(machine.start(time.monotonic_ns(), caller.rng))
        while True:
            while work.shown:
                yield work.shown.popleft()
            if work.failure is not None:
                raise work.failure
            event = await work.next()
            work.do(machine.on(event, time.monotonic_ns(), caller.rng))
    finally:
        await work.end()


class _Work:
    """What goes on for one watch."""

    def __init__(self, caller: Caller) -> None:
        self.shown: deque[WatchEvent] = deque()
        self.failure: CloudError | None = None
        self._caller = caller
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._readers: dict[Token, asyncio.Task[None]] = {}
        self._alarms: list[tuple[int, int, Token]] = []
        """A heap: when, in which order, whose."""
        self._alarms_made = 0
        self._offers: deque[tuple[Event, anyio.Event]] = deque()
        """What tasks hold out, and how each learns that it was taken."""
        self._bell = anyio.Event()
        self._bug: BaseException | None = None

    def do(self, actions: list[Action]) -> None:
        """Begin what the machine wants."""
        for action in actions:
            match action:
                case FetchObjects(token=token, request=request):
                    self._begin(self._fetch(token, request))
                case OpenWatch(token=token, request=request):
                    self._readers[token] = self._begin(self._read(token, request))
                case CloseWatch(token=token):
                    reader = self._readers.pop(token, None)
                    if reader is not None:
                        reader.cancel()
                case WakeAfter(token=token, after=after):
                    self._alarms_made += 1
                    heapq.heappush(self._alarms, (time.monotonic_ns() + after, self._alarms_made, token))
                case Show(event=event):
                    self.shown.append(event)
                case Fail(error=error):
                    self.failure = error
                case _:
                    raise AssertionError(f"a machine showed {action!r}, which it keeps to itself")

    async def next(self) -> Event:
        """Return what happens next: an alarm that is due, or what a task holds out."""
        while True:
            if self._bug is not None:
                raise self._bug
            now = time.monotonic_ns()
            if self._alarms and self._alarms[0][0] <= now:
                return Woken(heapq.heappop(self._alarms)[2])
            if self._offers:
                event, taken = self._offers.popleft()
                taken.set()
                return event
            self._bell = anyio.Event()
            due = (self._alarms[0][0] - now) / SECOND if self._alarms else None
            with anyio.move_on_after(due):
                await self._bell.wait()

    async def end(self) -> None:
        """Cancel all that goes on, and wait until it has ended."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            with anyio.CancelScope(shield=True):
                await asyncio.wait(list(self._tasks))
        if self._bug is not None:
            raise self._bug

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        bug = None if task.cancelled() else task.exception()
        if bug is not None:
            self._bug = bug
            self._bell.set()

    async def _offer(self, event: Event) -> None:
        """Hold an event out until it is taken."""
        offer = (event, anyio.Event())
        self._offers.append(offer)
        self._bell.set()
        try:
            await offer[1].wait()
        except BaseException:
            if offer in self._offers:
                self._offers.remove(offer)
            raise

    async def _fetch(self, token: Token, request: ApiRequest) -> None:
        try:
            response = await self._caller.request(request)
        except ApiUnreachable:
            await self._offer(FetchFailed(token))
        else:
            await self._offer(Fetched(token, response))

    async def _read(self, token: Token, request: ApiRequest) -> None:
        error = False
        try:
            await self._caller.turn()
            async with _leaving(self._caller.api.watch(request)) as items:
                async for item in items:
                    await self._offer(WatchItem(token, item))
        except ApiUnreachable:
            error = True
        await self._offer(WatchEnded(token, error))
        self._readers.pop(token, None)


@asynccontextmanager
async def _leaving(items: AsyncIterator[Mapping[str, Any]]) -> AsyncIterator[AsyncIterator[Mapping[str, Any]]]:
    """Leave an iteration with the block, not when somebody collects garbage."""
    try:
        yield items
    finally:
        close = getattr(items, "aclose", None)
        if close is not None:
            await close()
