"""Calls of a hosted actor over a real connection, in one process: the actor's host, and callers of it."""

import asyncio
import contextlib
import os
import threading
from contextlib import asynccontextmanager

import pytest

from iriscw.client.hosted import ActorCalls, ActorId
from iriscw.errors import ActorOver, CallFailed, CallLost, CallTooLarge, NoSuchMethod, NotPicklable, RemoteTraceback
from iriscw.hosted.drivers import link as links
from iriscw.hosted.frames import Tagging
from iriscw.hosted.model import WINDOW
from iriscw.proto.iriscw.v1 import HostedActorUpdate
from iriscw.task import hosting
from iriscw.task.hosting import ActorHost
from raised import that

pytestmark = pytest.mark.anyio

KEY = b"k" * 32
PATIENCE_S = 30


@pytest.fixture
def anyio_backend():
    """The protocol is asyncio's."""
    return "asyncio"


class Unpicklable(Exception):
    """An error that cannot travel."""

    def __reduce__(self):
        raise TypeError("it stays here")


class Subject:
    """The actor."""

    def __init__(self):
        self.said, self.gate, self.waits = [], threading.Event(), False
        self.begun, self.cancelled = asyncio.Event(), asyncio.Event()
        self.thread = threading.get_ident()

    def say(self, text):
        self.said.append(text)
        return tuple(self.said)

    def wait(self):
        self.waits = True
        return self.gate.wait(PATIENCE_S)

    def open(self):
        self.gate.set()

    def same_thread(self):
        return threading.get_ident() == self.thread

    def echo(self, *args, **kwargs):
        return args, kwargs

    def raise_it(self, error):
        raise error

    def unpicklable(self):
        raise Unpicklable("no")

    def stays(self):
        return threading.Lock()

    async def hang(self):
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()

    async def leave(self):
        raise SystemExit(3)

    def _hidden(self):
        return 1

    attribute = 5


class Directory:
    """What the controller says of an actor, as a stream of updates."""

    def __init__(self, *updates):
        self.updates, self.news = [*updates], asyncio.Event()

    def tell(self, update):
        self.updates.append(update)
        self.news.set()

    async def stream(self, method, request, reply_type):
        given = 0
        while True:
            while given < len(self.updates):
                given += 1
                yield self.updates[given - 1]
            await self.news.wait()
            self.news.clear()


class Scene:
    """A host, its subject, and how to call it."""

    def __init__(self, host, subject, port):
        self.host, self.subject, self.port = host, subject, port
        self.directory = Directory(self.at())
        self.made = []

    def at(self, key=KEY, **fields):
        return HostedActorUpdate(attempt_uid="a", host="127.0.0.1", port=self.port, call_key=key, **fields)

    def caller(self, directory=None):
        made = ActorCalls(directory or self.directory, ActorId("job-a", "uid", "subject"), None)
        self.made.append(made)
        return made


@asynccontextmanager
async def hosted(concurrency=1):
    """Serve one."""
    subject = Subject()
    host = ActorHost(KEY, concurrency)

    def make():
        subject.thread = threading.get_ident()
        return subject

    serving = asyncio.create_task(host.serve(make, "127.0.0.1", 0))
    scene = Scene(host, subject, await host.listening)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield scene
    finally:
        subject.gate.set()
        for each in scene.made:
            each.close()
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


async def until(holds):
    """Wait for what no event tells of."""
    while not holds():  # noqa: ASYNC110 - see above
        await asyncio.sleep(0.001)


async def test_a_call_gives_what_the_method_returns():
    """With all kinds of arguments; in the thread in which the object was made."""
    async with hosted() as scene:
        call = scene.caller().call
        assert await call("echo", (1, "x"), {"y": {"z": [b"b"]}}) == ((1, "x"), {"y": {"z": [b"b"]}})
        assert await call("same_thread", (), {})
        large = bytearray(os.urandom(3 << 20))
        assert await call("echo", (large, b"s" * links.BUFFER_BYTES), {}) == ((large, b"s" * links.BUFFER_BYTES), {})


async def test_calls_of_one_caller_begin_in_their_order():
    """However many are under way, more than the window has room for."""
    async with hosted() as scene:
        caller = scene.caller()
        texts = [str(number) for number in range(2 * WINDOW)]
        await asyncio.gather(
            *(caller.call("say", (text,), {}, tell=number % 2 == 0) for number, text in enumerate(texts))
        )
        assert await caller.call("say", ("end",), {}) == (*texts, "end")


async def test_several_calls_at_once_where_that_is_asked_for():
    """One waits for the other; with one at a time it would wait for ever."""
    async with hosted(concurrency=2) as scene:
        caller = scene.caller()
        waiting = asyncio.create_task(caller.call("wait", (), {}))
        await caller.call("open", (), {})
        assert await waiting


async def test_what_a_method_raises_is_raised():
    """With the actor's traceback as its cause; what cannot be raised here arrives as ours."""
    async with hosted() as scene:
        call = scene.caller().call
        with pytest.raises(KeyError, check=lambda error: "raise_it" in str(error.__cause__)) as caught:
            await call("raise_it", (KeyError("x"),), {})
        assert isinstance(caught.value.__cause__, RemoteTraceback)
        for name, args, kind in (
            ("unpicklable", (), "Unpicklable"),
            ("raise_it", (SystemExit(2),), "SystemExit"),
            ("leave", (), "SystemExit"),
            ("raise_it", (StopIteration(),), "StopIteration"),
        ):
            with pytest.raises(CallFailed, check=lambda error, kind=kind: error.error_type.endswith(kind)):
                await call(name, args, {})
        with pytest.raises(NotPicklable):
            await call("stays", (), {})
        assert await call("say", ("on",), {}) == ("on",)


@pytest.mark.parametrize("name", ["nothing", "_hidden", "__init__", "attribute", "said"])
async def test_only_public_methods_can_be_called(name):
    """Whatever a caller asks for."""
    async with hosted() as scene:
        with pytest.raises(NoSuchMethod):
            await scene.caller().call(name, (), {})


async def test_what_cannot_travel_is_not_sent(monkeypatch):
    """The actor never hears of it, and the connection goes on."""
    async with hosted() as scene:
        call = scene.caller().call
        with pytest.raises(NotPicklable):
            await call("echo", (threading.Lock(),), {})
        monkeypatch.setattr("iriscw.hosted.frames.MAX_CALL_BYTES", 1000)
        with pytest.raises(CallTooLarge):
            await call("echo", (b"x" * 1001,), {})
        with pytest.raises(CallTooLarge):  # the value
            await call("echo", (b"x" * 990,), {})
        assert await call("echo", (), {}) == ((), {})


async def test_a_cancelled_call_that_waits_never_begins():
    """Neither one whose caller has gone; what was told is done."""
    async with hosted() as scene:
        first, second = scene.caller(), scene.caller()
        waiting = asyncio.create_task(first.call("wait", (), {}))
        await until(lambda: scene.subject.waits)
        dropped = asyncio.create_task(first.call("say", ("dropped",), {}))
        gone = asyncio.create_task(second.call("say", ("gone",), {}))
        await second.call("say", ("told",), {}, tell=True)
        await until(lambda: len(scene.host._mailbox) == 3)
        dropped.cancel()
        second.close()
        with pytest.raises(CallLost):
            await gone
        await until(lambda: sum(each.withdrawn for each in scene.host._mailbox) == 2)
        scene.subject.gate.set()
        assert await waiting
        assert await first.call("say", ("end",), {}) == ("told", "end")


async def test_an_async_method_is_cancelled_with_its_call():
    """A deadline of the caller reaches the actor."""
    async with hosted() as scene:
        caller = scene.caller()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await caller.call("hang", (), {})
        if scene.subject.begun.is_set():
            await scene.subject.cancelled.wait()
        assert await caller.call("say", ("on",), {}) == ("on",)


async def test_who_has_another_key_is_refused_by_both_sides():
    """A caller without the key of this attempt, and an actor without it: the call goes to the one that has it."""
    async with hosted() as scene, hosted() as other:
        other.host.key = b"o" * 32
        directory = Directory(other.at())
        calling = asyncio.create_task(scene.caller(directory).call("say", ("x",), {}))
        directory.tell(scene.at())
        assert await calling == ("x",)
        assert other.subject.said == []


async def test_who_does_not_greet_is_shown_out(monkeypatch):
    """And whoever says something else; a frame is not read before that."""
    monkeypatch.setattr(hosting, "GREETING_S", 0.05)
    async with hosted() as scene:
        for said in (b"", b"GET / HTTP/1.1\r\nHost: here.example:8000\r\nAccept: */*\r\nUser-Agent: none\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", scene.port)
            writer.write(said)
            await reader.readexactly(links.GREETING_BYTES)
            assert await reader.read() == b""
            writer.close()
        assert not scene.host._links


async def test_frames_have_tags_where_the_connection_leaves_the_machine(monkeypatch):
    """A frame that was changed ends it; nobody gets anything of it."""
    monkeypatch.setattr(links.ActorLink, "stays_here", False)
    async with hosted() as scene:
        caller = scene.caller()
        assert await caller.call("echo", (b"x" * (1 << 20),), {}) == ((b"x" * (1 << 20),), {})
        link = await caller.linked()
        link._sending = Tagging(b"another key")
        with pytest.raises(CallLost):
            await caller.call("say", ("changed",), {})
        assert await caller.call("say", ("again",), {}) == ("again",)


async def test_a_caller_on_another_machine_has_to_tag(monkeypatch):
    """What a caller says of itself is not believed."""
    async with hosted() as scene:
        monkeypatch.setattr(links.ServerLink, "stays_here", False)
        calling = asyncio.create_task(scene.caller().call("say", ("x",), {}))
        scene.directory.tell(HostedActorUpdate(over=True, reason="enough"))
        with pytest.raises(ActorOver, check=that(names="enough")):
            await calling
        assert scene.subject.said == []


async def test_a_caller_with_too_many_calls_is_cut_off():
    """The window is the caller's to keep; one that does not keep it is none of ours."""
    async with hosted() as scene:
        caller = scene.caller()
        link = await caller.linked()
        link.window = asyncio.Semaphore(2 * WINDOW)
        scene.subject.gate.clear()
        calls = [asyncio.create_task(caller.call("wait", (), {})) for _ in range(WINDOW + 1)]
        done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_EXCEPTION)
        assert all(isinstance(each.exception(), CallLost) for each in done)


async def test_the_mailbox_has_bounds(monkeypatch):
    """While too many bytes wait, nobody is read from; then all goes on."""
    monkeypatch.setattr(hosting, "WAITING_BYTES", 1 << 20)
    async with hosted() as scene:
        caller = scene.caller()
        waiting = asyncio.create_task(caller.call("wait", (), {}))
        calls = [asyncio.create_task(caller.call("echo", (b"x" * (1 << 19),), {})) for _ in range(16)]
        await until(lambda: scene.host._waiting_bytes > 1 << 20)
        link = next(iter(scene.host._links))
        assert not link._transport.is_reading()
        scene.subject.gate.set()
        assert await waiting
        assert len(await asyncio.gather(*calls)) == 16


async def test_an_actor_that_is_over_says_why():
    """Before a call is sent, and the next ones too."""
    async with hosted() as scene:
        directory = Directory(HostedActorUpdate(reason="no worker yet"))
        caller = scene.caller(directory)
        calling = asyncio.create_task(caller.call("say", ("x",), {}))
        directory.tell(HostedActorUpdate(over=True, reason="ValueError: no"))
        with pytest.raises(ActorOver, check=that(names="ValueError")):
            await calling
