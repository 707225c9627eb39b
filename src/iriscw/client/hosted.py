"""Calls of hosted actors: finds where an actor is, keeps one connection to it, and sends what is called.

A call waits until its actor is there, however long that takes: whoever does not want to wait cancels. Once it was sent
it is never sent again, so each call runs once at most. Calls made one after the other on one event loop begin in that
order.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, contextmanager
from contextvars import ContextVar
from typing import Any, Final
from weakref import WeakKeyDictionary

import attrs

from iriscw.client.calls import MethodCalls
from iriscw.client.errors import ClientClosed
from iriscw.hosted.drivers.link import CallerLink, Part
from iriscw.hosted.errors import ActorOver, CallFailed, CallLost, CallRefused, PythonDiffers, RemoteTraceback
from iriscw.hosted.frames import FrameKind
from iriscw.hosted.model import WINDOW, ActorPlace
from iriscw.proto.iriscw.v1 import HostedActorUpdate, JobRef, WatchHostedActorRequest
from iriscw.task.passing import passed, received
from iriscw.task.result import load_result, read_result_summary

log = logging.getLogger("iriscw.client")

FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 1.0
DIAL_S: Final = 10.0
TOLD_AFTER_S: Final = 30.0
"""Waiting for an actor is told once, as a warning."""

_OF_CALLS: Final[WeakKeyDictionary[MethodCalls, HostedCalls]] = WeakKeyDictionary()


def hosted_calls(calls: MethodCalls) -> HostedCalls:
    """Return what makes the calls of handles that came by way of a client."""
    found = _OF_CALLS.get(calls)
    if found is None:
        found = _OF_CALLS[calls] = HostedCalls(calls)
    return found


def close_calls(calls: MethodCalls) -> None:
    """End the connections of all those handles."""
    found = _OF_CALLS.pop(calls, None)
    if found is not None:
        found.close()


@contextmanager
def at_home(home: HostedCalls | None) -> Iterator[None]:
    """Have handles that are unpickled in the block called by the client that brought them."""
    before = HOME.set(home)
    try:
        yield
    finally:
        HOME.reset(before)


OwnCode = Callable[[], AbstractContextManager[None]]

HOME: Final[ContextVar[HostedCalls | None]] = ContextVar("iriscw.client.hosted.home", default=None)
"""Whose answer is read: handles in it are called by the same client."""


@attrs.frozen
class ActorId:
    """Which actor. ``capability`` lets callers in that may not see its job; empty: those who may."""

    job_id: str
    job_uid: str
    name: str
    capability: str = attrs.field(default="", repr=False)


class _CallLink(CallerLink):
    """A connection with the calls that wait for an answer on it."""

    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self.waiting: dict[int, asyncio.Future[list[memoryview]]] = {}
        self.numbers = itertools.count(1)
        self.window = asyncio.Semaphore(WINDOW)

    def take_frame(self, kind: FrameKind, call: int, parts: list[memoryview]) -> None:
        """Give an answer to who waits for it."""
        future = self.waiting.pop(call, None)
        if future is None or future.done():
            return
        if kind is FrameKind.FAILED:
            future.set_exception(_failure(bytes(parts[0])))
        else:
            future.set_result(parts)

    def ended(self) -> None:
        """Tell all who wait that nobody knows what became of their calls."""
        waiting, self.waiting = self.waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(CallLost(f"the connection to the actor broke: {self.error or 'it was closed'}"))


def _failure(data: bytes) -> Exception:
    """Return what a caller is told of an error in the actor."""
    summary = read_result_summary(data)
    error: object
    try:
        error = load_result(data)
    except Exception as unreadable:  # noqa: BLE001 - a class of the user's may raise anything
        error, text = None, f"{summary.error_type}: {summary.message} (it cannot be unpickled here: {unreadable})"
    else:
        text = f"{summary.error_type}: {summary.message}"
    # What a future cannot hold, or what would end a task or the process, is told as ours.
    whole = isinstance(error, Exception) and not isinstance(error, StopIteration)
    raised = error if whole and isinstance(error, Exception) else CallFailed(text, error_type=summary.error_type)
    raised.__cause__ = RemoteTraceback(summary.traceback)
    return raised


class ActorCalls:
    """Calls of one actor, on one event loop."""

    def __init__(
        self, calls: MethodCalls, ref: ActorId, own_code: OwnCode | None, home: HostedCalls | None = None
    ) -> None:
        self._calls = calls
        self._home = home
        self._ref = ref
        self._own_code = own_code
        self._link: _CallLink | None = None
        self._connecting: asyncio.Task[_CallLink] | None = None
        self._refusal = ""
        """What came of dialling last."""

    async def call(self, method: str, args: Sequence[Any], kwargs: Mapping[str, Any], *, tell: bool = False) -> Any:
        """Make a call and give its value; a tell gives None as soon as the call waits in the mailbox.

        Raises:
            NotPicklable, CallTooLarge: an argument cannot travel.
            ActorOver: the actor's job is over.
            CallLost: nobody knows whether it ran.
            PythonDiffers: the actor runs another Python.
            ClientClosed: the client was closed.
            Exception: what the method raised.
        """
        parts: list[Part] = [method.encode(), *passed((tuple(args), dict(kwargs)), self._own_code)]
        while True:
            link = await self.linked()
            async with link.window:
                if link.closed:  # while it waited: nothing was sent
                    continue
                return await self._sent(link, FrameKind.TELL if tell else FrameKind.CALL, parts)

    async def _sent(self, link: _CallLink, kind: FrameKind, parts: list[Part]) -> Any:
        number, future = next(link.numbers), asyncio.get_running_loop().create_future()
        link.send(kind, number, parts)  # raises before anything is sent
        parts.clear()
        link.waiting[number] = future
        try:
            await link.drained()
            answer = await future
        except asyncio.CancelledError:
            if link.waiting.pop(number, None) is not None and kind is FrameKind.CALL:
                link.send(FrameKind.CANCEL, number)
            raise
        if kind is FrameKind.TELL:
            return None
        with at_home(self._home):
            return received(answer)

    async def linked(self) -> _CallLink:
        """Return the connection; wait until there is one. Raises as :meth:`call`."""
        if self._link is not None and not self._link.closed:
            return self._link
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._connected())
            self._connecting.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            self._link = await asyncio.shield(self._connecting)
        except asyncio.CancelledError:
            if self._connecting.cancelled() and not _is_cancelled():
                raise ClientClosed("the client of this handle has been closed") from None
            raise
        return self._link

    async def _connected(self) -> _CallLink:
        """Find the actor, and dial, until somebody answers."""
        latest = HostedActorUpdate()
        news = asyncio.Event()

        async def follow() -> None:
            nonlocal latest
            job = JobRef(job_id=self._ref.job_id, job_uid=self._ref.job_uid)
            request = WatchHostedActorRequest(job=job, capability=self._ref.capability, follow=True)
            updates = self._calls.stream("WatchHostedActor", lambda: request, HostedActorUpdate)
            async with aclosing(updates):
                async for update in updates:
                    latest = update
                    news.set()
                    if update.over:
                        raise ActorOver(f"the actor {self._ref.name!r} is over: {update.reason or 'its job has ended'}")
            raise ActorOver(f"the actor {self._ref.name!r} is over")

        following = asyncio.create_task(follow())
        following.add_done_callback(lambda _: news.set())
        pause = FIRST_PAUSE_S
        told = asyncio.get_running_loop().call_later(TOLD_AFTER_S, self._tell, lambda: self._refusal or latest.reason)
        try:
            while True:
                if following.done():
                    following.result()
                if not latest.attempt_uid:
                    pause = FIRST_PAUSE_S
                    await news.wait()
                    news.clear()
                    continue
                link = await self._dialled(ActorPlace(latest.attempt_uid, latest.host, latest.port, latest.call_key))
                if link is not None:
                    return link
                # Its process runs, and does not listen yet, or not any more: only trying tells.
                try:
                    async with asyncio.timeout(pause):
                        await news.wait()
                    news.clear()
                except TimeoutError:
                    pause = min(2 * pause, LONGEST_PAUSE_S)
        finally:
            told.cancel()
            following.cancel()

    def _tell(self, why: Callable[[], str]) -> None:
        log.warning("a call waits for the actor %r: %s", self._ref.name, why() or "it does not listen yet")

    async def _dialled(self, place: ActorPlace) -> _CallLink | None:
        """Connect; None: nobody listens there now.

        Raises:
            PythonDiffers: the actor runs another Python.
        """
        link: _CallLink | None = None
        try:
            async with asyncio.timeout(DIAL_S):
                _, link = await asyncio.get_running_loop().create_connection(
                    lambda: _CallLink(place.call_key), place.host, place.port
                )
                await link.greeted
        except (OSError, TimeoutError, CallRefused) as error:
            if link is not None:
                link.close()
            if isinstance(error, PythonDiffers):
                raise
            self._refusal = f"{place.host}:{place.port} does not answer as an actor: {error}"
            return None
        return link

    def close(self) -> None:
        """End the connection."""
        if self._connecting is not None:
            self._connecting.cancel()
        if self._link is not None:
            self._link.close()


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class HostedCalls:
    """Calls of all actors that one client has handles of.

    Args:
        calls: to the controller.
    """

    def __init__(self, calls: MethodCalls) -> None:
        self.calls = calls
        self._actors: dict[str, ActorCalls] = {}
        self.loop = asyncio.get_running_loop()
        self.closed = False
        self._pid = os.getpid()

    def of(self, ref: ActorId, own_code: OwnCode | None = None) -> ActorCalls:
        """Return those of one actor. Any thread may ask.

        Raises:
            ClientClosed: the client was closed, or is another process's.
        """
        if self.closed or self._pid != os.getpid():
            raise ClientClosed("the client of this handle was closed, or this process was forked from its own")
        return self._actors.setdefault(ref.job_uid, ActorCalls(self.calls, ref, own_code, self))

    def close(self) -> None:
        """End all connections."""
        self.closed = True
        for each in self._actors.values():
            each.close()
        self._actors.clear()
