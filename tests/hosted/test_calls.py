"""Calls of a hosted actor over a real connection, in one process: the actor's host, and callers of it."""

import asyncio
import contextlib
import os
import pickle
import threading
from contextlib import asynccontextmanager

import pytest

from iriscw.client.actors import ActorGroup, ActorHandle
from iriscw.client.blocking_actors import BlockingActorGroup
from iriscw.client.creating import ActorCreation
from iriscw.client.hosted import ActorCalls, ActorId, HostedCalls
from iriscw.errors import (
    ActorOver,
    CallFailed,
    CallLost,
    CallTooLarge,
    ClientClosed,
    NoSuchMethod,
    NotPicklable,
    PermissionDenied,
    PythonDiffers,
    RemoteTraceback,
)
from iriscw.hosted.drivers import link as links
from iriscw.hosted.frames import FrameKind, Greeting, Tagging, proof, written_header
from iriscw.hosted.model import WINDOW
from iriscw.proto.iriscw.v1 import HostedActorUpdate
from iriscw.task import hosting
from iriscw.task.hosting import ActorHost
from iriscw.task.passing import passed, received
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


def unreadable():
    raise Unreadable


class Unreadable(Exception):
    """An error that nobody can tell."""

    def __str__(self):
        raise ValueError("nobody can")


class Evil(Exception):
    """An error that another one is raised by where it is read."""

    def __reduce__(self):
        return unreadable, ()


class Lazy:
    """A method of the class, and an error of its objects."""

    def __init__(self, function):
        self.function = function

    def __get__(self, instance, owner):
        if instance is None:
            return self.function
        raise RuntimeError("not configured")


class Array:
    """A buffer, as numpy has them."""

    def __init__(self, data):
        self.data = data

    def __reduce_ex__(self, protocol):
        return Array, (pickle.PickleBuffer(self.data),)


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

    def large(self):
        return b"x" * (8 << 20)

    def raise_evil(self):
        raise Evil

    @Lazy
    def lazy(self):
        """Be a method, as far as the class says."""

    def written(self, array):
        array.data[0] += 1
        return array

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


class Caller(ActorCalls):
    """Calls by name."""

    def call(self, method, args=(), kwargs=None, *, tell=False):
        parts = [method.encode(), *passed((args, kwargs or {}))]
        return super().call(FrameKind.TELL if tell else FrameKind.CALL, parts)

    async def linked(self):
        await super().call(None, [])
        return self._link


class Scene:
    """A host, its subject, and how to call it."""

    def __init__(self, host, subject, port):
        self.host, self.subject, self.port = host, subject, port
        self.directory = Directory(self.at())
        self.made = []

    def at(self, key=KEY, **fields):
        return HostedActorUpdate(attempt_uid="a", host="127.0.0.1", port=self.port, call_key=key, **fields)

    def caller(self, directory=None):
        async def opened():
            return directory or self.directory

        made = Caller(HostedCalls(opened), ActorId("job-a", "uid", "subject"))
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
        caller = scene.caller()
        calling = asyncio.ensure_future(caller.call("say", ("x",)))
        await until(lambda: caller._refusal)
        scene.directory.tell(HostedActorUpdate(over=True, reason="enough"))
        with pytest.raises(ActorOver, check=that(names="enough")):
            await calling
        assert scene.subject.said == []


async def test_a_caller_without_the_key_is_not_heard():
    """Its greeting has the right form; the connection ends, and its call is not read."""
    async with hosted() as scene:
        reader, writer = await asyncio.open_connection("127.0.0.1", scene.port)
        server = await reader.readexactly(links.GREETING_BYTES)
        own = Greeting(links.PYTHON, os.urandom(32)).encode()
        body = passed((("x",), {}))[0]
        call = written_header(FrameKind.CALL, 1, [3, len(body)]) + b"say" + body
        writer.write(own + proof(b"another key", b"caller", server, own) + call)
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        assert scene.subject.said == []


async def listening(said):
    """Listen as something that is no actor; return the port, and what is heard of each caller to its end."""
    heard = []

    async def meet(reader, writer):
        writer.write(said)
        data = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := await reader.read(1 << 16):
                data += piece
                if len(data) == links.GREETING_BYTES + links.PROOF_BYTES:
                    writer.write(bytes(links.PROOF_BYTES))
        writer.close()
        heard.append(data)

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1], heard


async def test_what_listens_without_the_key_is_told_nothing(monkeypatch):
    """Whatever it says, and however long it says nothing: the connection ends, and the call goes to the actor."""
    monkeypatch.setattr("iriscw.client.hosted.DIAL_S", 0.1)
    for said in (b"", Greeting(links.PYTHON, bytes(32)).encode(), Greeting((2, 7), bytes(32)).encode()):
        async with hosted() as scene:
            server, port, heard = await listening(said)
            async with server:
                at = scene.at()
                at.port = port
                directory = Directory(at)
                calling = asyncio.ensure_future(scene.caller(directory).call("say", ("secret",)))
                await until(lambda heard=heard: heard)
                directory.tell(scene.at())
                assert await calling == ("secret",)
                assert len(heard[0]) == (links.GREETING_BYTES + links.PROOF_BYTES if said else 0)


async def test_an_actor_of_another_python_says_so(monkeypatch):
    """Once it has proved to be the actor; before that nobody is believed."""
    monkeypatch.setattr(links.ServerLink, "begin", begin_as_python_2)
    async with hosted() as scene:
        with pytest.raises(PythonDiffers):
            await scene.caller().call("say", ("x",))


def begin_as_python_2(link):
    link._own = Greeting((2, 7), os.urandom(32))
    link.write(link._own.encode())


async def test_a_caller_keeps_its_window():
    """Further calls wait here, and none is lost."""
    async with hosted() as scene:
        caller = scene.caller()
        calls = [asyncio.ensure_future(caller.call("wait")) for _ in range(WINDOW + 20)]
        await until(lambda: scene.subject.waits and len(caller._line) == 20)
        scene.subject.gate.set()
        assert all(await asyncio.gather(*calls))


async def test_a_caller_with_too_many_calls_is_cut_off(monkeypatch):
    """The window is the caller's to keep; one that does not keep it is none of ours."""
    monkeypatch.setattr("iriscw.client.hosted.WINDOW", 2 * WINDOW)
    async with hosted() as scene:
        caller = scene.caller()
        calls = [asyncio.ensure_future(caller.call("wait")) for _ in range(WINDOW + 2)]
        done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_EXCEPTION)
        assert all(isinstance(each.exception(), CallLost) for each in done)


async def test_the_mailbox_has_bounds(monkeypatch):
    """A call for which there is no room waits on its way; cancelling gets past it, and then all goes on."""
    monkeypatch.setattr(hosting, "WAITING_BYTES", 1 << 20)
    async with hosted() as scene:
        caller, other = scene.caller(), scene.caller()
        hanging = asyncio.ensure_future(other.call("hang"))
        await scene.subject.begun.wait()
        calls = [asyncio.ensure_future(caller.call("echo", (b"x" * (1 << 19),))) for _ in range(16)]
        await until(lambda: scene.host._held)
        assert scene.host._waiting_bytes <= 1 << 20
        hanging.cancel()
        await scene.subject.cancelled.wait()
        assert len(await asyncio.gather(*calls)) == 16
        assert scene.host._waiting_bytes == 0


async def test_who_does_not_read_holds_up_nobody_else(monkeypatch):
    """Its next calls begin when it has read; those of others go on, and nothing is lost."""
    monkeypatch.setattr(hosting, "UNREAD_BYTES", 1 << 20)
    async with hosted() as scene:
        slow, other = scene.caller(), scene.caller()
        link = await slow.linked()
        link.pause_reading()
        calls = [asyncio.ensure_future(slow.call("large")) for _ in range(8)]
        await until(lambda: any(each.parked for each in scene.host._links))
        assert await other.call("say", ("x",)) == ("x",)
        link.go_on()
        assert {len(each) for each in await asyncio.gather(*calls)} == {8 << 20}


async def test_what_goes_wrong_around_a_method_is_its_callers():
    """A descriptor that raises, what only the metaclass has, an error that cannot be read: the actor goes on."""
    async with hosted() as scene:
        caller = scene.caller()
        with pytest.raises(NoSuchMethod):
            await caller.call("mro")
        for name, error in (("lazy", RuntimeError), ("raise_evil", CallFailed)):
            with pytest.raises(error):
                await caller.call(name)
        assert await caller.call("say", ("on",)) == ("on",)


async def test_calls_of_a_closed_client_end():
    """Those that wait for the connection, for room, and for their answers; nothing is sent after that."""
    async with hosted() as scene:
        caller, unheard = scene.caller(), scene.caller(Directory())
        calls = [asyncio.ensure_future(caller.call("wait")) for _ in range(WINDOW + 8)]
        calls.append(asyncio.ensure_future(unheard.call("say", ("x",))))
        await until(lambda: scene.subject.waits)
        caller.close()
        unheard.close()
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(each) for each in found} == {CallLost, ClientClosed}
        with pytest.raises(ClientClosed):
            await caller.call("say", ("x",))
        await until(lambda: not scene.host._links)
        assert scene.subject.said == []


async def test_calls_of_a_closed_client_end_though_nobody_reads(monkeypatch):
    """What was not read any more is not waited for."""
    monkeypatch.setattr(hosting, "WAITING_BYTES", 1 << 20)
    async with hosted() as scene:
        caller = scene.caller()
        waiting = asyncio.ensure_future(scene.caller().call("wait"))
        await until(lambda: scene.subject.waits)
        calls = [asyncio.ensure_future(caller.call("echo", (b"x" * (16 << 20),))) for _ in range(4)]
        await until(lambda: scene.host._held)
        caller.close()
        assert all(
            isinstance(each, CallLost | ClientClosed) for each in await asyncio.gather(*calls, return_exceptions=True)
        )
        scene.subject.gate.set()
        assert await waiting


async def test_buffers_travel_as_they_were():
    """Whatever their size; what arrives can be written to, and writing to what was sent changes nothing of it."""
    async with hosted() as scene:
        caller = scene.caller()
        for size in (1000, hosting.CALL_BYTES, 100_000, 1 << 20):
            sent = Array(bytearray(size))
            calling = caller.begin(FrameKind.CALL, [b"written", *passed(((sent,), {}))])
            sent.data[:] = b"x" * size
            found = caller.read(*await calling)
            assert (len(found.data), found.data[0], found.data[-1]) == (size, 1, 0)


def test_what_is_written_to_after_it_was_passed_does_not_travel():
    """Neither an array of the actor's, which its next method changes."""
    array = Array(bytearray(1 << 20))
    parts = passed(array)
    array.data[:] = b"x" * len(array.data)
    assert received([memoryview(each) for each in parts]).data == bytes(1 << 20)
    view = memoryview(bytearray(1 << 20))  # of what others write to
    parts = passed(Array(view.toreadonly()))
    view[:] = b"x" * len(view)
    assert received([memoryview(each) for each in parts]).data == bytes(1 << 20)


async def test_an_object_that_cannot_be_made_ends_its_process():
    """Whatever it raises: also what no future can hold."""

    def make():
        next(iter([]))

    with pytest.raises(RuntimeError):
        await ActorHost(KEY).serve(make, "127.0.0.1", 0)


async def test_strangers_keep_nobody_out(monkeypatch):
    """Of too many that do not greet the first has to go; nothing is kept of those that left."""
    monkeypatch.setattr(hosting, "MAX_STRANGERS", 4)
    async with hosted() as scene:
        strangers = [await asyncio.open_connection("127.0.0.1", scene.port) for _ in range(8)]
        await until(lambda: len(scene.host._links) == 4)
        assert await scene.caller().call("say", ("x",)) == ("x",)
        for _, writer in strangers:
            writer.close()
        await until(lambda: len(scene.host._links) == 1)


async def test_an_actor_that_is_over_says_why():
    """Before a call is sent, and the next ones too."""
    async with hosted() as scene:
        directory = Directory(HostedActorUpdate(reason="no worker yet"))
        caller = scene.caller(directory)
        calling = asyncio.create_task(caller.call("say", ("x",), {}))
        directory.tell(HostedActorUpdate(over=True, reason="ValueError: no"))
        with pytest.raises(ActorOver, check=that(names="ValueError")):
            await calling


async def test_a_group_is_not_ready_when_one_of_it_is_over():
    """Though others are still waited for: its error is raised, in a script, too."""

    async def over():
        return Directory(HostedActorUpdate(over=True, reason="enough"))

    async def unheard():
        return Directory()

    handles = [
        ActorHandle(ActorId("job-a", uid, uid), ["say"], HostedCalls(opened), None)
        for uid, opened in (("u1", unheard), ("u2", over))
    ]
    group = ActorGroup(handles)
    with pytest.raises(ActorOver):
        await group.wait_ready()
    with pytest.raises(ActorOver):
        await asyncio.to_thread(BlockingActorGroup(group).wait_ready)


class Ending:
    """A job that is asked to end."""

    def __init__(self, error=None):
        self.error, self.asked = error, 0

    async def terminate(self, reason):
        self.asked += 1
        if self.error:
            raise self.error


async def test_jobs_are_ended_whose_actors_nobody_could_call():
    """Of a group that was not made: all of them, though one may not be; the first error is told."""
    jobs = [Ending(), Ending(PermissionDenied("not yours")), Ending()]
    with pytest.raises(KeyError):
        async with ActorCreation()._ended_unless_made(jobs):
            raise KeyError("the first")
    assert [each.asked for each in jobs] == [1, 1, 1]
    async with ActorCreation()._ended_unless_made(jobs):
        pass
    assert [each.asked for each in jobs] == [1, 1, 1]
