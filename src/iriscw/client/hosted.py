"""Calls of hosted actors: finds where an actor is, keeps one connection to it, and sends what is called.

A call waits until its actor is there, however long that takes: whoever does not want to wait cancels. Once it was sent
it is never sent again, so each call runs once at most; but one with a key, which the actor runs once however often it
is sent. Calls made one after the other on one event loop begin in that
order.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, aclosing, contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

import attrs

from iriscw.client.advice import advice
from iriscw.client.calls import MethodCalls
from iriscw.client.errors import ClientClosed
from iriscw.client.iterators import ArgumentSource
from iriscw.hosted.drivers.link import CallerLink, Part
from iriscw.hosted.drivers.streams import StreamArrivals
from iriscw.hosted.errors import ActorOver, CallLost, CallRefused, CallTooLarge, PythonDiffers
from iriscw.hosted.frames import RESULT_STREAM, FrameKind, read_more, read_stream, written_more
from iriscw.hosted.model import WINDOW, ActorPlace
from iriscw.proto.iriscw.v1 import HostedActorUpdate, JobRef, WatchHostedActorRequest
from iriscw.task.passing import failure, received

log = logging.getLogger("iriscw.client")

FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 1.0
DIAL_S: Final = 10.0
TOLD_AFTER_S: Final = 30.0
"""Waiting for an actor is told once, as a warning."""

_OF_CALLS: Final[dict[MethodCalls, HostedCalls]] = {}
"""By the client that they came by way of, until that is closed."""


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


Answer: TypeAlias = "tuple[FrameKind, list[memoryview]]"

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


@attrs.define(eq=False)
class _Outgoing:
    """A call on its way; without a kind it only waits for the connection."""

    kind: FrameKind | None
    parts: list[Part]
    future: asyncio.Future[Answer]
    sources: Sequence[ArgumentSource] = ()
    """Iterators among the arguments."""
    arrivals: StreamArrivals | None = None
    """Of a stream: what the method yields."""
    patience_s: float = 0.0
    """For how long a call with a key may be sent again."""
    patience: asyncio.TimerHandle | None = None
    """Ends when it is not sent again any more."""
    lost: bool = False
    sent: tuple[_CallLink, int] | None = None
    """Where it was sent, and under which number."""

    def send(self, kind: FrameKind, parts: Sequence[Part]) -> None:
        """Send what is of the call's streams."""
        if self.sent is not None:
            link, number = self.sent
            link.send(kind, number, parts)

    def over(self, future: asyncio.Future[Answer]) -> None:
        """Close the iterators among the arguments; tell the actor if nobody waits for the call any more."""
        for each in self.sources:
            each.close()
        if self.patience is not None:
            self.patience.cancel()
        if future.cancelled() and self.sent is not None:
            link, number = self.sent
            if link.waiting.pop(number, None) is not None and self.kind is not FrameKind.TELL:
                link.send(FrameKind.CANCEL, number)


class _CallLink(CallerLink):
    """A connection with the calls that wait for an answer on it."""

    def __init__(self, key: bytes, pump: Callable[[], None], lose: Callable[[Sequence[_Outgoing], str], None]) -> None:
        super().__init__(key)
        self._lose = lose
        self.waiting: dict[int, _Outgoing] = {}
        self._numbers = itertools.count(1)
        self._pump = pump

    @property
    def has_room(self) -> bool:
        """Whether one more call may be sent now."""
        return len(self.waiting) < WINDOW and self.is_writable

    def post(self, call: _Outgoing) -> None:
        """Send a call.

        Raises:
            CallTooLarge: it cannot be; nothing was sent.
        """
        assert call.kind is not None
        number = next(self._numbers)
        self.send(call.kind, number, call.parts)
        self.waiting[number], call.sent = call, (self, number)
        if call.patience is None:
            call.parts = []

    def take_frame(self, kind: FrameKind, call: int, parts: list[memoryview]) -> None:
        """Give an answer, or what is of a stream, to who waits for it."""
        if kind is FrameKind.ITEM or kind is FrameKind.MORE:
            self._take_of_stream(kind, self.waiting.get(call), parts)
            return
        found = self.waiting.pop(call, None)
        if found is not None and not found.future.done():
            found.future.set_result((kind, parts))
        self._pump()

    @staticmethod
    def _take_of_stream(kind: FrameKind, call: _Outgoing | None, parts: list[memoryview]) -> None:
        if call is None:  # it was taken back
            return
        if kind is FrameKind.ITEM and call.arrivals is not None and read_stream(parts) == RESULT_STREAM:
            call.arrivals.put(parts[1:])
            return
        stream, count = read_more(parts)
        if not 0 < stream <= len(call.sources):
            raise CallRefused("what came is of no stream of this call")
        call.sources[stream - 1].more(count, call.send)

    def resume_writing(self) -> None:
        """Send what waited for the other side to read."""
        super().resume_writing()
        self._pump()

    def ended(self) -> None:
        """Tell all who wait that nobody knows what became of their calls."""
        waiting, self.waiting = self.waiting, {}
        why = f"the connection to the actor broke: {self.error or 'it was closed'}"
        self._lose([each for each in waiting.values() if not each.future.done()], why)
        self._pump()


def over_text(name: str, reason: str) -> str:
    """Say that an actor is over, why, and what to do if that is known."""
    text, hint = f"the actor {name!r} is over: {reason or 'its job has ended'}", advice(reason)
    return f"{text}; {hint}" if hint else text


def advised(error: Exception) -> Exception:
    """Say what to do about a module of the caller's that the actor does not have."""
    if isinstance(error, ModuleNotFoundError) and (hint := advice(str(error))):
        error.add_note(hint)
    return error


class ActorCalls:
    """Calls of one actor, on the event loop of its home.

    They wait in one line until there is a connection with room: so they are sent in the order in which they were made.
    """

    def __init__(self, home: HostedCalls, ref: ActorId) -> None:
        self._home = home
        self._ref = ref
        self._line: deque[_Outgoing] = deque()
        self._link: _CallLink | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._refusal = ""
        """What came of dialling last."""
        self._closed = False

    @property
    def connected(self) -> bool:
        """Whether a call would be sent now, as far as is known."""
        return self._link is not None and not self._link.closed

    def begin(
        self, kind: FrameKind | None, parts: list[Part], sources: Sequence[ArgumentSource] = ()
    ) -> asyncio.Future[Answer]:
        """Let a call stand in line; the future has its answer. Cancelling the future takes it back.

        Args:
            kind: of call; None only waits for the connection.
            parts: the method's name, and what was passed.
            sources: iterators among the arguments.

        Raises:
            ClientClosed: the client was closed.
        """
        call = _Outgoing(kind, parts, asyncio.get_running_loop().create_future(), sources)
        self._begin(call)
        return call.future

    def _begin(self, call: _Outgoing) -> None:
        if self._closed:
            raise ClientClosed("the client of this handle has been closed")
        call.future.add_done_callback(call.over)
        self._line.append(call)
        self._pump()

    def stream(self, parts: list[Part], sources: Sequence[ArgumentSource] = ()) -> YieldedItems:
        """Return what a method yields; the call stands in line from the first item that is asked for."""
        return YieldedItems(self, parts, sources)

    def begin_stream(self, parts: list[Part], sources: Sequence[ArgumentSource]) -> _Outgoing:
        """Let the call of a stream stand in line; raises as :meth:`begin`."""
        call = _Outgoing(FrameKind.STREAM, parts, asyncio.get_running_loop().create_future(), sources)
        arrivals = StreamArrivals(lambda count: call.send(FrameKind.MORE, [written_more(RESULT_STREAM, count)]))
        call.arrivals = arrivals
        call.future.add_done_callback(lambda future: arrivals.end())
        self._begin(call)
        return call

    def begin_keyed(self, parts: list[Part], patience_s: float) -> asyncio.Future[Answer]:
        """Let a call with a key stand in line, and send it again for so many seconds; else as :meth:`begin`."""
        loop = asyncio.get_running_loop()
        call = _Outgoing(FrameKind.KEYED, parts, loop.create_future(), patience_s=patience_s)
        call.patience = loop.call_later(patience_s, self._given_up, call)
        self._begin(call)
        return call.future

    async def call_keyed(self, parts: list[Part], patience_s: float) -> Any:
        """Make a call with a key; as :meth:`call`."""
        return self.read(*await self.begin_keyed(parts, patience_s))

    @staticmethod
    def _given_up(call: _Outgoing) -> None:
        """Send a call again no more: it fails if it is lost from now on, or was and waits to be sent again."""
        call.patience = None
        if call.lost and call.sent is None and not call.future.done():
            call.future.set_exception(CallLost(f"the call was lost, and not sent again within {call.patience_s:g} s"))

    def _lose(self, calls: Sequence[_Outgoing], why: str) -> None:
        """Put calls with keys in front of the line; those who wait for the others are told."""
        again: list[_Outgoing] = []
        for call in calls:
            if call.patience is not None and not self._closed:
                call.sent, call.lost = None, True
                again.append(call)
            else:
                call.future.set_exception(CallLost(why))
        self._line.extendleft(reversed(again))

    async def call(self, kind: FrameKind | None, parts: list[Part], sources: Sequence[ArgumentSource] = ()) -> Any:
        """Make a call and give its value; a tell gives None as soon as the call waits in the mailbox.

        Raises:
            CallTooLarge: it cannot travel.
            ActorOver: the actor's job is over.
            CallLost: nobody knows whether it ran.
            PythonDiffers: the actor runs another Python.
            ClientClosed: the client was closed.
            Exception: what the method raised.
        """
        return self.read(*await self.begin(kind, parts, sources))

    def read(self, kind: FrameKind, parts: list[memoryview]) -> Any:
        """Return the value that an answer has, or raise the error."""
        if kind is FrameKind.TAKEN:
            return None
        with at_home(self._home):
            if kind is FrameKind.FAILED:
                raise advised(failure(bytes(parts[0]) if parts else b""))
            return received(parts)

    def _pump(self) -> None:
        """Send what can be sent now, from the front of the line."""
        while self._line and not self._closed:
            call = self._line[0]
            if call.future.done():
                self._line.popleft()
                continue
            if self._link is None or self._link.closed:
                if self._connecting is None:
                    self._connecting = asyncio.get_running_loop().create_task(self._connect())
                return
            if call.kind is not None and not self._link.has_room:
                return
            self._line.popleft()
            if call.kind is None:
                call.future.set_result((FrameKind.TAKEN, []))
                continue
            try:
                self._link.post(call)
            except CallTooLarge as error:
                call.future.set_exception(error)

    async def _connect(self) -> None:
        try:
            self._link = await self._connected()
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait are told
            line, self._line = self._line, deque()
            for call in line:
                if not call.future.done():
                    call.future.set_exception(error)
        finally:
            self._connecting = None
        self._pump()

    async def _connected(self) -> _CallLink:
        """Find the actor, and dial, until somebody answers."""
        latest = HostedActorUpdate()
        news = asyncio.Event()

        async def follow() -> None:
            nonlocal latest
            job = JobRef(job_id=self._ref.job_id, job_uid=self._ref.job_uid)
            request = WatchHostedActorRequest(job=job, capability=self._ref.capability, follow=True)
            calls = await self._home.opened()
            async with aclosing(calls.stream("WatchHostedActor", lambda: request, HostedActorUpdate)) as updates:
                async for update in updates:
                    latest = update
                    news.set()
                    if update.over:
                        raise ActorOver(over_text(self._ref.name, update.reason))
            raise ActorOver(f"the actor {self._ref.name!r} is over")

        following = asyncio.create_task(follow())
        following.add_done_callback(lambda done: news.set() if done.cancelled() or done.exception() else None)
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
        answers = False
        try:
            async with asyncio.timeout(DIAL_S):
                _, link = await asyncio.get_running_loop().create_connection(
                    lambda: _CallLink(place.call_key, self._pump, self._lose), place.host, place.port
                )
                await link.greeted
            answers = True
        except PythonDiffers:
            raise
        except (OSError, TimeoutError, CallRefused) as error:
            self._refusal = f"{place.host}:{place.port} does not answer as an actor: {error}"
        finally:
            if link is not None and not answers:
                link.close()
        return link if answers else None

    def close(self) -> None:
        """End the connection; who waits is told."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        for call in self._line:
            if not call.future.done():
                call.future.set_exception(ClientClosed("the client of this handle was closed"))
        self._line.clear()
        if self._link is not None:
            self._link.close()


END: Final = object()
"""Comes after the last item."""


class YieldedItems:
    """What one call of a method yields, on the event loop of its home. See :meth:`ActorCalls.stream`."""

    def __init__(self, calls: ActorCalls, parts: list[Part], sources: Sequence[ArgumentSource]) -> None:
        self._calls = calls
        self._parts = parts
        self._sources = sources
        self._call: _Outgoing | None = None

    async def next(self) -> Any:
        """Return the next item, or :data:`END`; raises what the method raises, and as :meth:`ActorCalls.call`."""
        if self._call is None:
            parts, self._parts = self._parts, []
            self._call = self._calls.begin_stream(parts, self._sources)
        assert self._call.arrivals is not None
        item = await self._call.arrivals.next()
        if item is not None:
            return self._calls.read(FrameKind.REPLY, item)
        kind, parts_at_end = self._call.future.result()
        return self._calls.read(kind, parts_at_end) if kind is FrameKind.FAILED else END

    def close(self) -> None:
        """Read no more: the actor's generator is closed."""
        if self._call is not None:
            self._call.future.cancel()


class HostedCalls:
    """Calls of all actors that one client has handles of.

    Args:
        calls: to the controller; or what opens a client for them, when the first is needed.
        loop: on which calls are made; None: the one that runs here.
    """

    def __init__(
        self, calls: MethodCalls | Callable[[], Awaitable[MethodCalls]], loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self._open = None if isinstance(calls, MethodCalls) else calls
        self._calls = calls if isinstance(calls, MethodCalls) else None
        self._opening: asyncio.Lock | None = None
        self._actors: dict[str, ActorCalls] = {}
        self.loop = loop or asyncio.get_running_loop()
        self.closed = False
        self._pid = os.getpid()

    async def opened(self) -> MethodCalls:
        """Return the calls to the controller; raises as ``connect()``."""
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if self._calls is None:
                assert self._open is not None
                self._calls = await self._open()
            return self._calls

    def of(self, ref: ActorId) -> ActorCalls:
        """Return those of one actor. Any thread may ask.

        Raises:
            ClientClosed: the client was closed, or is another process's.
        """
        if self.closed or self._pid != os.getpid():
            raise ClientClosed("the client of this handle was closed, or this process was forked from its own")
        return self._actors.setdefault(ref.job_uid, ActorCalls(self, ref))

    def close(self) -> None:
        """End all connections."""
        self.closed = True
        for each in [*self._actors.values()]:
            each.close()
        self._actors.clear()
