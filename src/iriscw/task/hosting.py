"""The process of a hosted actor: makes the object, and has its methods called.

Theory of operation. All calls wait in one mailbox and begin in the order in which they came: for one caller that is the
order in which it made them. One at a time runs, or as many as the actor was created with. ``async`` methods run on the
event loop, the others in threads of the actor's own, always the same ones, so that what belongs to a thread (a CUDA
context, a connection to SQLite) can be kept. With one call at a time there is one thread, and it makes the object, too.
Every method finds the task's context.

What a method yields is sent as it is yielded, as far as the reader has room (:mod:`iriscw.task.streaming`). A stream is
a call until it ends: it has its turn, and its place among those that run at once.

A caller that goes away takes back what it waits for; what it only told the actor stays. Each caller may have
:data:`~iriscw.hosted.model.WINDOW` calls under way, and while calls of too many bytes wait nobody is read from: so the
mailbox has bounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import itertools
import logging
import sys
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any, Final, TypeAlias

import attrs

from iriscw._errors import IriscwError, OperationError
from iriscw.hosted.drivers.link import ServerLink
from iriscw.hosted.drivers.streams import StreamArrivals, StreamSender
from iriscw.hosted.errors import (
    AnswerNotKept,
    CallFailed,
    CallKeyReused,
    CallLost,
    CallRefused,
    CallTooLarge,
    NoSuchMethod,
    StreamMismatch,
)
from iriscw.hosted.frames import (
    RESULT_STREAM,
    FrameHeader,
    FrameKind,
    read_key,
    read_more,
    read_stream,
    written_header,
    written_more,
    written_stream,
)
from iriscw.hosted.keys import KeptAnswer, KeptAnswers
from iriscw.hosted.model import ACTOR_PORT, MAX_CALL_BYTES, MAX_METHOD_CHARS, WINDOW
from iriscw.rpc.tokens import call_key, read_token_file
from iriscw.task.actor_threads import ActorThreads, MethodThreads
from iriscw.task.context import context
from iriscw.task.passing import Part, failure, passed, received
from iriscw.task.result import encode_exception
from iriscw.task.snapshots import ANSWER_BYTES, EVERY_S, StateKeeping, keeps_state, read_snapshot, snapshot_bytes
from iriscw.task.sources import without_ours
from iriscw.task.streaming import (
    GENERATORS,
    ArgumentItems,
    StreamPlace,
    give_all,
    give_all_from_thread,
    has_places,
    is_of_loop,
)

log = logging.getLogger(__name__)

MAX_CALLERS: Final = 4096
MAX_STRANGERS: Final = 256
"""Connections that have not greeted yet."""

GREETING_S: Final = 30.0
BACKLOG: Final = 1024

UNREAD_BYTES: Final = 2 * MAX_CALL_BYTES
"""Replies that a caller has not read; its further calls begin when it has."""

MAX_KNOWN_METHODS: Final = 1024
"""A descriptor of the class may make a new function for each call: not all are kept."""

CALL_BYTES: Final = 2048
"""Of a call in the mailbox, beside what came of it: thousands may only have been told."""

RETRY_S: Final = 5.0
"""Before a snapshot that could not be had, or kept, is tried again: the call itself has been repeated for minutes."""

WAITING_BYTES: Final = 2 * MAX_CALL_BYTES
"""Of all calls in the mailbox; beyond it nobody is read from."""


Answer: TypeAlias = "tuple[FrameKind, list[Any]]"

_BEGINNING: Final = (FrameKind.CALL, FrameKind.TELL, FrameKind.STREAM, FrameKind.KEYED)
_OF_STREAMS: Final = (FrameKind.ITEM, FrameKind.MORE, FrameKind.ENDED)


@attrs.define(eq=False)
class MailboxCall:
    """A call in the mailbox."""

    link: HostedLink
    number: int
    method: str
    parts: list[memoryview]
    size_bytes: int
    """What it counts as."""
    tell: bool
    sender: StreamSender | None = None
    """Of a call whose caller reads what the method yields."""
    arrivals: dict[int, StreamArrivals] | None = None
    """Of iterators among the arguments, by the number of their stream."""
    key: str = ""
    waiters: list[tuple[HostedLink, int]] | None = None
    """Of a call with a key: whom it is answered, and under which number there."""
    begun: bool = False
    withdrawn: bool = False
    task: asyncio.Task[Answer] | None = None
    """Of an ``async`` method that runs."""

    def arguments(self, loop: asyncio.AbstractEventLoop) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Return what the method is called with; raises what unpickling raises."""
        args, kwargs = received(self.parts)
        if has_places(args, kwargs):
            self.arrivals = {}
            arriving = functools.partial(self._arriving, loop)
            return [arriving(each) for each in args], {name: arriving(each) for name, each in kwargs.items()}
        return args, kwargs

    def _arriving(self, loop: asyncio.AbstractEventLoop, argument: object) -> object:
        if type(argument) is not StreamPlace:
            return argument

        def more(count: int) -> None:
            self.link.send(FrameKind.MORE, self.number, [written_more(argument.number, count)])

        assert self.arrivals is not None
        arrivals = self.arrivals[argument.number] = StreamArrivals(more, ask=True)
        if self.withdrawn:  # while its arguments were unpickled in a thread: nobody will give any item
            self.end_streams()
        return ArgumentItems(arrivals, loop)

    def end_streams(self) -> None:
        """Have nothing more yielded, and nothing more read."""
        if self.sender is not None:
            self.sender.close()
        for each in [*(self.arrivals or {}).values()]:  # a thread may be adding to them
            each.end(CallLost("the call whose argument this iterator is has ended"))


@attrs.frozen(eq=False)
class SnapshotTurn:
    """In the mailbox: the next turn is a snapshot's."""

    taken: asyncio.Future[bytes | None]


class HostedLink(ServerLink):
    """The connection of one caller."""

    def __init__(self, host: ActorHost) -> None:
        super().__init__(host.key)
        self._host = host
        self.calls: dict[int, MailboxCall] = {}
        """Those that are not answered yet."""
        self.parked: list[MailboxCall] = []
        """Those that wait until the caller has read its replies."""
        self.deadline: asyncio.TimerHandle | None = None
        self._admitted_bytes = 0
        """Of a call that is being read."""

    def begin(self) -> None:
        """Greet."""
        self._host.admit(self)
        super().begin()

    def admits(self, header: FrameHeader) -> bool:
        """Have a call wait on its way while the mailbox is full; what takes one back never waits."""
        if header.kind in _BEGINNING and not self._admitted_bytes:
            size = CALL_BYTES + header.size_bytes
            if not self._host.has_room(self, size):
                self.pause_reading()
                return False
            self._admitted_bytes = size
        return True

    def take_frame(self, kind: FrameKind, call: int, parts: list[memoryview]) -> None:
        """Put a call into the mailbox, take one back, or pass on what is of its streams."""
        if kind is FrameKind.CANCEL:
            self.withdraw(call)
            return
        if kind not in _BEGINNING and kind in _OF_STREAMS:
            self._take_of_stream(kind, call, parts)
            return
        if kind not in _BEGINNING or len(parts) < 2 + (kind is FrameKind.KEYED) or len(parts[0]) > MAX_METHOD_CHARS:
            raise CallRefused("what came is no call")
        if call in self.calls or len(self.calls) >= WINDOW:
            raise CallRefused(f"more than {WINDOW} calls of one caller wait, or two have one number")
        size, self._admitted_bytes = self._admitted_bytes, 0
        made = MailboxCall(self, call, str(parts[0], "utf-8", "replace"), parts[1:], size, kind is FrameKind.TELL)
        if kind is FrameKind.KEYED:
            made.key, made.parts, made.waiters = read_key(parts[1]), parts[2:], []
            self._host.put_keyed(made)
            return
        if made.tell:
            self.send(FrameKind.TAKEN, call)
        else:
            self.calls[call] = made
            if kind is FrameKind.STREAM:
                head = written_stream(RESULT_STREAM)
                made.sender = StreamSender(lambda item: self.send(FrameKind.ITEM, call, [head, *item]))
        self._host.put(made)

    def _take_of_stream(self, kind: FrameKind, number: int, parts: list[memoryview]) -> None:
        call = self.calls.get(number)
        if call is None:  # it has been answered meanwhile
            return
        if kind is FrameKind.MORE:
            stream, count = read_more(parts)
            if call.sender is None or stream != RESULT_STREAM:
                raise CallRefused("what came is of no stream of this call")
            call.sender.taken(count)
            return
        arrivals = (call.arrivals or {}).get(read_stream(parts))
        if arrivals is None:
            raise CallRefused("what came is of no stream of this call")
        if kind is FrameKind.ITEM:
            arrivals.put(parts[1:])
        else:
            arrivals.end(failure(bytes(parts[1])) if len(parts) > 1 else None)

    def withdraw(self, number: int, *, lost: bool = False) -> None:
        """Have a call not begin any more, or end what can be ended of it.

        One with a key goes on if it was ``lost``, and has begun: it comes again. It goes on for others, too.
        """
        call = self.calls.pop(number, None)
        if call is not None and not (call.key and self._host.keep_on(call, self, number, lost=lost)):
            call.withdrawn = True
            call.end_streams()
            if call.task is not None:
                call.task.cancel()

    def resume_writing(self) -> None:
        """Let the calls begin that waited for replies to be read."""
        super().resume_writing()
        self._host.unpark(self)

    def ended(self) -> None:
        """Take back what the caller waited for."""
        for number in [*self.calls]:
            self.withdraw(number, lost=True)
        self._host.leave(self, self._admitted_bytes)


class ActorHost:
    """Serves one object.

    Args:
        key: of this attempt: who has it may call.
        concurrency: how many calls run at once.
        states: where its snapshots are kept; None: it has none.
        snapshot_every_s: between two snapshots.
        threads: where methods run that are not ``async``; None: in as many threads of its own as calls run at once.
    """

    def __init__(
        self,
        key: bytes,
        concurrency: int = 1,
        *,
        states: StateKeeping | None = None,
        snapshot_every_s: float = EVERY_S,
        threads: MethodThreads | None = None,
    ) -> None:
        self.key = key
        self._states = states
        self._snapshot_every_s = snapshot_every_s
        self._loop = asyncio.get_running_loop()
        self._here: dict[FunctionType, bool] = {}
        """Of methods that were called: whether they run on the event loop."""
        self._changed = asyncio.Event()
        """Set when a call has ended since the last snapshot."""
        self._concurrency = concurrency
        self._threads = ActorThreads(concurrency) if threads is None else threads
        self._instance: Any = None
        self._mailbox: deque[MailboxCall | SnapshotTurn] = deque()
        self._news = asyncio.Event()
        self._waiting_bytes = 0
        """Of calls in the mailbox, of parked ones, and of those that are being read."""
        self._keyed: dict[str, MailboxCall] = {}
        """Calls with keys that wait or run."""
        self._answers = KeptAnswers()
        self._links: dict[HostedLink, None] = {}
        self._held: dict[HostedLink, None] = {}
        """Whose next call has no room."""
        self.listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """The port, once callers can connect."""

    # Connections

    def admit(self, link: HostedLink) -> None:
        """Let a connection in, for a while without a greeting. Of too many, one that has not greeted has to go."""
        strangers = [each for each in self._links if not each.greeted.done()]
        if len(strangers) >= MAX_STRANGERS:
            strangers[0].close(CallRefused("it did not greet, and others came"))
        if len(self._links) >= MAX_CALLERS:
            link.close(CallRefused("the actor has too many callers"))
        self._links[link] = None
        link.deadline = asyncio.get_running_loop().call_later(GREETING_S, self._greeted_by_now, link)

    @staticmethod
    def _greeted_by_now(link: HostedLink) -> None:
        if not link.greeted.done():
            link.close(CallRefused("it did not greet in time"))

    def leave(self, link: HostedLink, admitted_bytes: int) -> None:
        """Forget a connection, and what was read of its next call."""
        if link.deadline is not None:
            link.deadline.cancel()
        self._links.pop(link, None)
        self._held.pop(link, None)
        told: list[MailboxCall | SnapshotTurn] = [each for each in link.parked if not each.withdrawn]
        freed = admitted_bytes + sum(each.size_bytes for each in link.parked if each.withdrawn)
        link.parked.clear()
        self._mailbox.extendleft(reversed(told))
        self._free(freed)
        if told:
            self._news.set()

    # The mailbox

    def has_room(self, link: HostedLink, size_bytes: int) -> bool:
        """Make room for a call; if there is none, its connection is told when there is."""
        if self._waiting_bytes and self._waiting_bytes + size_bytes > WAITING_BYTES:
            self._held[link] = None
            return False
        self._waiting_bytes += size_bytes
        return True

    def put(self, call: MailboxCall) -> None:
        """Let a call wait for its turn."""
        self._mailbox.append(call)
        self._news.set()

    # Calls with keys

    def put_keyed(self, call: MailboxCall) -> None:
        """Let a call wait for its turn, unless one with its key does, runs, or has been answered."""
        running, kept = self._keyed.get(call.key), self._answers.get(call.key)
        known = running or kept
        if known is None:
            self._keyed[call.key] = running = call
            self.put(call)
        else:
            self._free(call.size_bytes)
            if known.method != call.method:
                reused = CallKeyReused(f"{call.method}: the key {call.key!r} is that of a call of {known.method}")
                call.link.send(FrameKind.FAILED, call.number, [encode_exception(reused)])
                return
        if running is not None:
            assert running.waiters is not None
            running.waiters.append((call.link, call.number))
            call.link.calls[call.number] = running
        elif kept is not None:
            call.link.send(*_kept(call, kept))

    def keep_on(self, call: MailboxCall, link: HostedLink, number: int, *, lost: bool) -> bool:
        """Whether a call goes on though one who waited for it does so no more; if not, its key is as new."""
        assert call.waiters is not None
        call.waiters.remove((link, number))
        if call.waiters or (call.begun and lost):
            return True
        if not call.begun:
            self._keyed.pop(call.key, None)
        return False

    def _answer_keyed(self, call: MailboxCall, kind: FrameKind, parts: list[Part]) -> None:
        if not parts:
            kind, parts = FrameKind.FAILED, [encode_exception(CallFailed("its caller took the call of this key back"))]
        try:
            written_header(kind, 0, [len(each) for each in parts])
        except CallTooLarge as error:
            kind, parts = FrameKind.FAILED, [encode_exception(error)]
        del self._keyed[call.key]
        self._answers.keep(call.key, call.method, failed=kind is FrameKind.FAILED, parts=parts)
        for link, number in call.waiters or ():
            if link.calls.pop(number, None) is not None:
                link.send(kind, number, parts)

    def unpark(self, link: HostedLink) -> None:
        """Let calls wait for their turn again, before those that came later."""
        parked, link.parked = link.parked, []
        self._mailbox.extendleft(reversed(parked))
        if parked:
            self._news.set()

    def _free(self, size_bytes: int) -> None:
        self._waiting_bytes -= size_bytes
        held, self._held = self._held, {}
        for link in held:  # each asks again, and is held again if there is no room yet
            link.go_on()

    async def _take(self) -> MailboxCall | SnapshotTurn:
        """Return the next call whose caller has read what it asked for before."""
        while True:
            while not self._mailbox:
                self._news.clear()
                await self._news.wait()
            call = self._mailbox.popleft()
            if isinstance(call, SnapshotTurn):
                return call
            if not call.withdrawn and not call.tell and call.link.unsent_bytes > UNREAD_BYTES:
                call.link.parked.append(call)
                continue
            self._free(call.size_bytes)
            return call

    async def _work_off(self) -> None:
        while True:
            call = await self._take()
            if isinstance(call, SnapshotTurn):
                call.taken.set_result(await self._snapshot())
            elif not call.withdrawn:
                call.begun = True
                await self._answer(call)
                if self._states is not None:
                    self._changed.set()

    # Snapshots

    async def _snapshot(self) -> bytes | None:
        """Have the object say what is kept of it; None if it cannot, which stands in its log."""
        # Those of before: of calls that run beside it, no answer may be kept without what the call did.
        answers = self._answers.lately(ANSWER_BYTES)
        try:
            state = await self._hook("snapshot")
            data: bytes = await self._threads.call(functools.partial(snapshot_bytes, state, answers))
        except BaseException:
            runner = asyncio.current_task()
            if runner is not None and runner.cancelling():  # this host ends
                raise
            log.warning("no snapshot of the actor could be taken: the one before it stays", exc_info=True)
            return None
        return data

    async def _hook(self, name: str, *args: object) -> Any:
        method = getattr(self._instance, name)
        if inspect.iscoroutinefunction(method):
            return await method(*args)
        value = await self._threads.call(functools.partial(method, *args))
        return await value if is_of_loop(value) else value

    async def _restore(self, states: StateKeeping) -> None:
        """Have the object begin with the latest snapshot, if there is one."""
        while True:
            try:
                data = await states.load()
                break
            except OperationError as error:
                if not error.retryable:
                    raise
                log.warning("the actor waits for its snapshot: %s: %s", type(error).__name__, error)
                await asyncio.sleep(RETRY_S)
        if data is not None:
            state, self._answers = await self._threads.call(functools.partial(read_snapshot, data))
            await self._hook("restore", state)

    async def _keep_snapshots(self, states: StateKeeping) -> None:
        """Take a snapshot whenever calls have ended and it is time, and store it, until cancelled."""
        for number in itertools.count(1):
            await self._changed.wait()
            self._changed.clear()
            turn = SnapshotTurn(asyncio.get_running_loop().create_future())
            self._mailbox.appendleft(turn)
            self._news.set()
            data = await turn.taken
            if data is not None:
                try:
                    await states.save(number, data)
                except IriscwError as error:
                    self._changed.set()
                    log.warning("a snapshot of the actor is not kept: %s: %s", type(error).__name__, error)
                    await asyncio.sleep(RETRY_S)
            await asyncio.sleep(self._snapshot_every_s)

    async def _answer(self, call: MailboxCall) -> None:
        """Make a call, and send what it gives."""
        try:
            kind, parts = await self._made(call)
        except BaseException as error:
            runner = asyncio.current_task()
            if runner is not None and runner.cancelling():  # this host ends
                raise
            kind, parts = _failed(call, error)
        finally:
            if call.sender is not None or call.arrivals is not None:
                call.end_streams()
        call.parts = []
        if call.key:
            self._answer_keyed(call, kind, parts)
            return
        if call.tell or call.link.calls.pop(call.number, None) is None:
            return
        try:
            call.link.send(kind, call.number, parts)
        except CallTooLarge as error:
            call.link.send(FrameKind.FAILED, call.number, [encode_exception(error)])

    async def _made(self, call: MailboxCall) -> Answer:
        method = self._method(call.method)
        if self._runs_here(method):
            call.task = asyncio.create_task(_awaited(call, method))
        else:
            made: Answer | _Rest = await self._threads.call(functools.partial(_called, method, call, self._loop))
            if not isinstance(made, _Rest):
                return made
            call.task = asyncio.create_task(_awaited(call, None, made.value))
            if call.withdrawn:  # while it was in the thread
                call.task.cancel()
                if hasattr(made.value, "close"):  # a coroutine that is not awaited
                    made.value.close()
        try:
            await asyncio.wait([call.task])
        except asyncio.CancelledError:  # this host ends
            call.task.cancel()
            raise
        return (FrameKind.FAILED, []) if call.task.cancelled() else call.task.result()

    def _runs_here(self, method: Callable[..., Any]) -> bool:
        """Whether a method runs on the event loop, as far as can be told before it is called."""
        function = method.__func__ if type(method) is MethodType else None
        here = self._here.get(function) if type(function) is FunctionType else None
        if here is None:
            here = inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)
            if type(function) is FunctionType and len(self._here) < MAX_KNOWN_METHODS:
                self._here[function] = here
        return here

    def _method(self, name: str) -> Callable[..., Any]:
        """Return a public method.

        Raises:
            NoSuchMethod: the object's class has none of this name.
            Exception: what a descriptor of the class raises.
        """
        kind = type(self._instance)
        found = None
        if not name.startswith("_") and any(name in vars(each) for each in kind.__mro__):
            found = getattr(self._instance, name)
        if not callable(found):
            raise NoSuchMethod(f"{kind.__qualname__} has no public method {name!r}")
        method: Callable[..., Any] = found
        return method

    # The whole

    async def serve(self, make: Callable[[], Any], host: str, port: int) -> None:
        """Make the object, listen, and answer calls until it is cancelled.

        Raises:
            Exception: what ``make`` raises.
            OSError: nothing can listen there.
        """
        self._instance = await self._threads.call(make)
        if self._states is not None:
            await self._restore(self._states)
        server = await asyncio.get_running_loop().create_server(lambda: HostedLink(self), host, port, backlog=BACKLOG)
        self.listening.set_result(server.sockets[0].getsockname()[1])
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(self._concurrency):
                    tasks.create_task(self._work_off())
                if self._states is not None:
                    tasks.create_task(self._keep_snapshots(self._states))
        finally:
            server.close()
            for link in [*self._links]:
                link.close()


@attrs.frozen
class _Rest:
    """What a method has given in a thread and goes on on the event loop: a coroutine, or an async iterator."""

    value: Any


def _called(method: Callable[..., Any], call: MailboxCall, loop: asyncio.AbstractEventLoop) -> Answer | _Rest:
    try:
        args, kwargs = call.arguments(loop)
        value = method(*args, **kwargs)
        if is_of_loop(value):
            return _Rest(value)
        if call.sender is None:
            return FrameKind.REPLY, _passed(call, value)
        if hasattr(type(value), "__aiter__"):
            return _Rest(value)
        give_all_from_thread(call.method, value, call.sender, loop)
    except BaseException as error:  # noqa: BLE001 - whatever the method raised is its caller's
        return _failed(call, error)
    return FrameKind.REPLY, []


async def _awaited(call: MailboxCall, method: Callable[..., Any] | None, value: Any = None) -> Answer:
    """Make a call on the event loop, where it can be cancelled; or go on with what it has given in a thread."""
    try:
        if method is not None:
            args, kwargs = call.arguments(asyncio.get_running_loop())
            value = method(*args, **kwargs)
        if is_of_loop(value):
            value = await value
        if call.sender is None:
            return FrameKind.REPLY, _passed(call, value)
        await give_all(call.method, value, call.sender)
    except asyncio.CancelledError as error:
        if call.withdrawn:
            raise
        return _failed(call, error)
    except BaseException as error:  # noqa: BLE001 - an event loop would end with what ends a process
        return _failed(call, error)
    return FrameKind.REPLY, []


def _passed(call: MailboxCall, value: object) -> list[Part]:
    if type(value) in GENERATORS:
        raise StreamMismatch(f"{call.method} yields: iterate over handle.{call.method}.stream(...)")
    return passed(value)


def _kept(call: MailboxCall, kept: KeptAnswer) -> tuple[FrameKind, int, Sequence[Part]]:
    """Return what a call that came again is answered."""
    if kept.parts is None:
        error = AnswerNotKept(f"{call.method}: the call with the key {call.key!r} ran; its answer was too much to keep")
        return FrameKind.FAILED, call.number, [encode_exception(error)]
    return FrameKind.FAILED if kept.failed else FrameKind.REPLY, call.number, kept.parts


def _failed(call: MailboxCall, error: BaseException) -> Answer:
    if call.tell and sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):  # it may be closed
            sys.stderr.write(f"a call of {call.method} that nobody waits for failed:\n")
            traceback.print_exception(without_ours(error))
    try:
        return FrameKind.FAILED, [encode_exception(error)]
    except BaseException as untold:  # noqa: BLE001 - a class of the user's may raise anything
        text = f"{type(error).__name__}, which cannot be told: {type(untold).__name__}"
        return FrameKind.FAILED, [encode_exception(CallFailed(text, error_type=type(error).__name__))]


def host_actor(pickled: bytes, concurrency: int, snapshot_every_s: float = EVERY_S) -> None:
    """Be the process of a hosted actor: the entrypoint of its job. Never returns.

    Args:
        pickled: the class, and what it is made with, as :func:`~iriscw.task.passing.passed_whole` gives it.
        concurrency: how many calls run at once.
        snapshot_every_s: between two snapshots, if the class takes part.

    Raises:
        Exception: what making the object raises.
    """
    kind, args, kwargs = received([memoryview(pickled)])
    asyncio.run(_host(kind, args, kwargs, concurrency, snapshot_every_s))


async def _host(
    kind: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    concurrency: int,
    snapshot_every_s: float,
) -> None:
    task = context()
    key = call_key(read_token_file(task.token_file))
    make = functools.partial(kind, *args, **kwargs)
    if not keeps_state(kind):
        await ActorHost(key, concurrency).serve(make, task.bind_host, task.port(ACTOR_PORT))
        return
    from iriscw.client.actor_states import kept_states

    async with kept_states() as states:
        host = ActorHost(key, concurrency, states=states, snapshot_every_s=snapshot_every_s)
        await host.serve(make, task.bind_host, task.port(ACTOR_PORT))
