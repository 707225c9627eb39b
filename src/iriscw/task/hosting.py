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
import contextvars
import functools
import inspect
import logging
import sys
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeAlias

import attrs

from iriscw.hosted.drivers.link import ServerLink
from iriscw.hosted.errors import CallRefused, CallTooLarge, NoSuchMethod
from iriscw.hosted.frames import FrameKind
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
"""Replies that a caller has not read; one with more is cut off."""

CALL_BYTES: Final = 2048
"""Of a call in the mailbox, beside what came of it: thousands may only have been told."""

WAITING_BYTES: Final = 2 * MAX_CALL_BYTES
"""Of all calls in the mailbox; beyond it nobody is read from."""


Answer: TypeAlias = "tuple[FrameKind, list[Any]]"


@attrs.define(eq=False)
class MailboxCall:
    """A call in the mailbox."""

    link: HostedLink
    number: int
    method: str
    parts: list[memoryview]
    tell: bool
    withdrawn: bool = False
    task: asyncio.Task[Answer] | None = None
    """Of an ``async`` method that runs."""

    @property
    def size_bytes(self) -> int:
        """What it holds in memory, about: a short call is more than its bytes."""
        return CALL_BYTES + sum(len(each) for each in self.parts)


class HostedLink(ServerLink):
    """The connection of one caller."""

    def __init__(self, host: ActorHost) -> None:
        super().__init__(host.key)
        self._host = host
        self.calls: dict[int, MailboxCall] = {}
        """Those that are not answered yet."""

    def begin(self) -> None:
        """Greet, unless there are too many already."""
        if self._host.admit(self):
            super().begin()

    def take_frame(self, kind: FrameKind, call: int, parts: list[memoryview]) -> None:
        """Put a call into the mailbox, or take one back."""
        if kind is FrameKind.CANCEL:
            self.withdraw(call)
            return
        if kind not in (FrameKind.CALL, FrameKind.TELL) or len(parts) < 2 or len(parts[0]) > MAX_METHOD_CHARS:
            raise CallRefused("what came is no call")
        if call in self.calls or len(self.calls) >= WINDOW:
            raise CallRefused(f"more than {WINDOW} calls of one caller wait, or two have one number")
        made = MailboxCall(self, call, str(parts[0], "utf-8", "replace"), parts[1:], kind is FrameKind.TELL)
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

    def ended(self) -> None:
        """Take back what the caller waited for."""
        for number in [*self.calls]:
            self.withdraw(number)
        self._host.leave(self)


class ActorHost:
    """Serves one object.

    Args:
        key: of this attempt: who has it may call.
        concurrency: how many calls run at once.
    """

    def __init__(self, key: bytes, concurrency: int = 1) -> None:
        self.key = key
        self._concurrency = concurrency
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="actor")
        self._instance: Any = None
        self._mailbox: deque[MailboxCall] = deque()
        self._news = asyncio.Event()
        self._waiting_bytes = 0
        self._links: dict[HostedLink, None] = {}
        self.listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """The port, once callers can connect."""

    # Connections

    def admit(self, link: HostedLink) -> bool:
        """Let a connection in, for a while without a greeting; or close it."""
        strangers = sum(not each.greeted.done() for each in self._links)
        if len(self._links) >= MAX_CALLERS or strangers >= MAX_STRANGERS:
            link.close(CallRefused("the actor has too many callers"))
            return False
        self._links[link] = None
        asyncio.get_running_loop().call_later(GREETING_S, self._greeted_by_now, link)
        return True

    @staticmethod
    def _greeted_by_now(link: HostedLink) -> None:
        if not link.greeted.done():
            link.close(CallRefused("it did not greet in time"))

    def leave(self, link: HostedLink) -> None:
        """Forget a connection."""
        self._links.pop(link, None)

    # The mailbox

    def put(self, call: MailboxCall) -> None:
        """Let a call wait for its turn."""
        self._mailbox.append(call)
        self._waiting_bytes += call.size_bytes
        if self._waiting_bytes > WAITING_BYTES:
            for link in self._links:
                link.pause_reading()
        self._news.set()

    async def _take(self) -> MailboxCall:
        while not self._mailbox:
            self._news.clear()
            await self._news.wait()
        call = self._mailbox.popleft()
        before = self._waiting_bytes
        self._waiting_bytes -= call.size_bytes  # its parts are as they came
        if self._waiting_bytes <= WAITING_BYTES < before:
            for link in self._links:
                link.resume_reading()
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
        except NoSuchMethod as error:
            kind, parts = FrameKind.FAILED, [encode_exception(error)]
        call.parts = []
        if call.tell or call.link.calls.pop(call.number, None) is None:
            return
        try:
            call.link.send(kind, call.number, parts)
        except CallTooLarge as error:
            call.link.send(FrameKind.FAILED, call.number, [encode_exception(error)])
        if call.link.unsent_bytes > UNREAD_BYTES:
            call.link.close(CallRefused("the caller does not read what it asked for"))

    async def _made(self, call: MailboxCall) -> Answer:
        method = self._method(call.method)
        if not inspect.iscoroutinefunction(method):
            run = functools.partial(contextvars.copy_context().run, _called, method, call)
            made: Answer = await asyncio.get_running_loop().run_in_executor(self._threads, run)
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
            NoSuchMethod: the object has none of this name.
        """
        kind = type(self._instance)
        if name.startswith("_") or not callable(getattr(kind, name, None)):
            raise NoSuchMethod(f"{kind.__qualname__} has no public method {name!r}")
        found: Callable[..., Any] = getattr(self._instance, name)
        return found

    # The whole

    async def serve(self, make: Callable[[], Any], host: str, port: int) -> None:
        """Make the object, listen, and answer calls until it is cancelled.

        Raises:
            Exception: what ``make`` raises.
            OSError: nothing can listen there.
        """
        loop = asyncio.get_running_loop()
        try:
            run = functools.partial(contextvars.copy_context().run, make)
            self._instance = await loop.run_in_executor(self._threads, run)
            server = await loop.create_server(lambda: HostedLink(self), host, port, backlog=BACKLOG)
            self.listening.set_result(server.sockets[0].getsockname()[1])
            async with server, asyncio.TaskGroup() as tasks:
                for _ in range(self._concurrency):
                    tasks.create_task(self._work_off())
        finally:
            for link in [*self._links]:
                link.close()
            self._threads.shutdown(wait=False, cancel_futures=True)


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
    if call.tell:
        sys.stderr.write(f"a call of {call.method} that nobody waits for failed:\n")
        traceback.print_exception(without_ours(error))
    return FrameKind.FAILED, [encode_exception(error)]


def host_actor(pickled: bytes, concurrency: int) -> None:
    """Be the process of a hosted actor: the entrypoint of its job. Never returns.

    Args:
        pickled: the class, and what it is made with, as :func:`~iriscw.task.passing.passed` gives it.
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
