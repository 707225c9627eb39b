"""The process of a hosted actor: makes the object, and has its methods called.

Theory of operation. All calls wait in one mailbox and begin in the order in which they came: for one caller that is the
order in which it made them. One at a time runs, or as many as the actor was created with. ``async`` methods run on the
event loop, the others in threads of the actor's own, always the same ones, so that what belongs to a thread (a CUDA
context, a connection to SQLite) can be kept. With one call at a time there is one thread, and it makes the object, too.
Every method finds the task's context.

A caller that goes away takes back what it waits for; what it only told the actor stays. Each caller may have
:data:`~iriscw.hosted.model.WINDOW` calls under way, and while calls of too many bytes wait nobody is read from: so the
mailbox has bounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import logging
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, Final, TypeAlias

import attrs

from iriscw.hosted.drivers.link import ServerLink
from iriscw.hosted.errors import CallFailed, CallRefused, CallTooLarge, NoSuchMethod
from iriscw.hosted.frames import FrameHeader, FrameKind
from iriscw.hosted.model import ACTOR_PORT, MAX_CALL_BYTES, MAX_METHOD_CHARS, WINDOW
from iriscw.rpc.tokens import call_key, read_token_file
from iriscw.task.context import context
from iriscw.task.passing import passed, received
from iriscw.task.result import encode_exception
from iriscw.task.sources import without_ours

log = logging.getLogger(__name__)

MAX_CALLERS: Final = 4096
MAX_STRANGERS: Final = 256
"""Connections that have not greeted yet."""

GREETING_S: Final = 30.0
BACKLOG: Final = 1024

UNREAD_BYTES: Final = 2 * MAX_CALL_BYTES
"""Replies that a caller has not read; its further calls begin when it has."""

CALL_BYTES: Final = 2048
"""Of a call in the mailbox, beside what came of it: thousands may only have been told."""

WAITING_BYTES: Final = 2 * MAX_CALL_BYTES
"""Of all calls in the mailbox; beyond it nobody is read from."""


Answer: TypeAlias = "tuple[FrameKind, list[Any]]"

Outcome: TypeAlias = "tuple[Any, BaseException | None]"
"""What a function gave, and what it raised: not all of that can be an exception of a future."""


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
    withdrawn: bool = False
    task: asyncio.Task[Answer] | None = None
    """Of an ``async`` method that runs."""


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
        if header.kind in (FrameKind.CALL, FrameKind.TELL) and not self._admitted_bytes:
            size = CALL_BYTES + header.size_bytes
            if not self._host.has_room(self, size):
                self.pause_reading()
                return False
            self._admitted_bytes = size
        return True

    def take_frame(self, kind: FrameKind, call: int, parts: list[memoryview]) -> None:
        """Put a call into the mailbox, or take one back."""
        if kind is FrameKind.CANCEL:
            self.withdraw(call)
            return
        if kind not in (FrameKind.CALL, FrameKind.TELL) or len(parts) < 2 or len(parts[0]) > MAX_METHOD_CHARS:
            raise CallRefused("what came is no call")
        if call in self.calls or len(self.calls) >= WINDOW:
            raise CallRefused(f"more than {WINDOW} calls of one caller wait, or two have one number")
        size, self._admitted_bytes = self._admitted_bytes, 0
        made = MailboxCall(self, call, str(parts[0], "utf-8", "replace"), parts[1:], size, kind is FrameKind.TELL)
        if made.tell:
            self.send(FrameKind.TAKEN, call)
        else:
            self.calls[call] = made
        self._host.put(made)

    def withdraw(self, number: int) -> None:
        """Have a call not begin any more, or end what can be ended of it."""
        call = self.calls.pop(number, None)
        if call is not None:
            call.withdrawn = True
            if call.task is not None:
                call.task.cancel()

    def resume_writing(self) -> None:
        """Let the calls begin that waited for replies to be read."""
        super().resume_writing()
        self._host.unpark(self)

    def ended(self) -> None:
        """Take back what the caller waited for."""
        for number in [*self.calls]:
            self.withdraw(number)
        self._host.leave(self, self._admitted_bytes)


class ActorHost:
    """Serves one object.

    Args:
        key: of this attempt: who has it may call.
        concurrency: how many calls run at once.
    """

    def __init__(self, key: bytes, concurrency: int = 1) -> None:
        self.key = key
        self._concurrency = concurrency
        self._threads = ActorThreads(concurrency)
        self._instance: Any = None
        self._mailbox: deque[MailboxCall] = deque()
        self._news = asyncio.Event()
        self._waiting_bytes = 0
        """Of calls in the mailbox, of parked ones, and of those that are being read."""
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
        told = [each for each in link.parked if each.tell]
        freed = admitted_bytes + sum(each.size_bytes for each in link.parked if not each.tell)
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

    async def _take(self) -> MailboxCall:
        """Return the next call whose caller has read what it asked for before."""
        while True:
            while not self._mailbox:
                self._news.clear()
                await self._news.wait()
            call = self._mailbox.popleft()
            if not call.withdrawn and not call.tell and call.link.unsent_bytes > UNREAD_BYTES:
                call.link.parked.append(call)
                continue
            self._free(call.size_bytes)
            return call

    async def _work_off(self) -> None:
        while True:
            call = await self._take()
            if not call.withdrawn:
                await self._answer(call)

    async def _answer(self, call: MailboxCall) -> None:
        """Make a call, and send what it gives."""
        try:
            kind, parts = await self._made(call)
        except BaseException as error:
            runner = asyncio.current_task()
            if runner is not None and runner.cancelling():  # this host ends
                raise
            kind, parts = _failed(call, error)
        call.parts = []
        if call.tell or call.link.calls.pop(call.number, None) is None:
            return
        try:
            call.link.send(kind, call.number, parts)
        except CallTooLarge as error:
            call.link.send(FrameKind.FAILED, call.number, [encode_exception(error)])

    async def _made(self, call: MailboxCall) -> Answer:
        method = self._method(call.method)
        if not inspect.iscoroutinefunction(method):
            made: Answer = await self._threads.call(functools.partial(_called, method, call))
            return made
        call.task = asyncio.create_task(_awaited(method, call))
        try:
            await asyncio.wait([call.task])
        except asyncio.CancelledError:  # this host ends
            call.task.cancel()
            raise
        return (FrameKind.FAILED, []) if call.task.cancelled() else call.task.result()

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
        server = await asyncio.get_running_loop().create_server(lambda: HostedLink(self), host, port, backlog=BACKLOG)
        self.listening.set_result(server.sockets[0].getsockname()[1])
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(self._concurrency):
                    tasks.create_task(self._work_off())
        finally:
            server.close()
            for link in [*self._links]:
                link.close()


class ActorThreads:
    """The threads in which methods run. They end with the process, which waits for none of them: one may never return.

    Args:
        count: how many.
    """

    def __init__(self, count: int) -> None:
        self._work: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Outcome]]] = SimpleQueue()
        for number in range(count):
            threading.Thread(target=self._run, name=f"actor-{number}", daemon=True).start()

    async def call(self, function: Callable[[], Any]) -> Any:
        """Call a function in the next thread that is free, in the context of this task; raises what it raises."""
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._work.put((functools.partial(contextvars.copy_context().run, function), done))
        value, error = await done
        if error is not None:
            raise error
        return value

    def _run(self) -> None:
        while True:
            function, done = self._work.get()
            outcome: Outcome
            try:
                outcome = function(), None
            except BaseException as error:  # noqa: BLE001 - it is raised where it was called
                outcome = None, error
            try:
                done.get_loop().call_soon_threadsafe(_settle, done, outcome)
            except RuntimeError:  # the loop has ended
                return


def _settle(done: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not done.done():
        done.set_result(outcome)


def _called(method: Callable[..., Any], call: MailboxCall) -> Answer:
    try:
        args, kwargs = received(call.parts)
        return FrameKind.REPLY, passed(method(*args, **kwargs))
    except BaseException as error:  # noqa: BLE001 - whatever the method raised is its caller's
        return _failed(call, error)


async def _awaited(method: Callable[..., Any], call: MailboxCall) -> Answer:
    try:
        args, kwargs = received(call.parts)
        return FrameKind.REPLY, passed(await method(*args, **kwargs))
    except asyncio.CancelledError as error:
        if call.withdrawn:
            raise
        return _failed(call, error)
    except BaseException as error:  # noqa: BLE001 - an event loop would end with what ends a process
        return _failed(call, error)


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


def host_actor(pickled: bytes, concurrency: int) -> None:
    """Be the process of a hosted actor: the entrypoint of its job. Never returns.

    Args:
        pickled: the class, and what it is made with, as :func:`~iriscw.task.passing.passed_whole` gives it.
        concurrency: how many calls run at once.

    Raises:
        Exception: what making the object raises.
    """
    kind, args, kwargs = received([memoryview(pickled)])
    asyncio.run(_host(kind, args, kwargs, concurrency))


async def _host(kind: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], concurrency: int) -> None:
    task = context()
    key = call_key(read_token_file(task.token_file))
    make = functools.partial(kind, *args, **kwargs)
    await ActorHost(key, concurrency).serve(make, task.bind_host, task.port(ACTOR_PORT))
