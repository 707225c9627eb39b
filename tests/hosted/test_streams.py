"""Streams of hosted actors, both ways, over a real connection in one process; and their window, by itself."""

import asyncio
import contextlib
import functools
import socket
import threading
from contextlib import aclosing, asynccontextmanager

import pytest

from iriscw.client.actors import ActorHandle, methods_of
from iriscw.client.blocking_actors import BlockingActorHandle
from iriscw.client.hosted import ActorId, HostedCalls
from iriscw.errors import CallLost, CallRefused, NotPicklable, RemoteTraceback, StreamMismatch
from iriscw.hosted.drivers.streams import StreamArrivals
from iriscw.hosted.model import STREAM_BYTES, STREAM_ITEMS
from iriscw.hosted.streams import StreamWindow
from iriscw.proto.iriscw.v1 import HostedActorUpdate
from iriscw.task.hosting import ActorHost
from raised import that

pytestmark = pytest.mark.anyio

KEY = b"k" * 32
PATIENCE_S = 30


@pytest.fixture
def anyio_backend():
    """The protocol is asyncio's."""
    return "asyncio"


def wrapped(function):
    """Decorate a method so that nothing says any more that it is ``async``."""

    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    del wrapper.__wrapped__
    return wrapper


class Rows:
    """The actor."""

    def __init__(self):
        self.made, self.closed, self.entered = 0, asyncio.Event(), asyncio.Event()
        self.loop = asyncio.get_running_loop()

    def _end(self):
        self.loop.call_soon_threadsafe(self.closed.set)

    async def count(self, number, size=0):
        try:
            for each in range(number):
                self.made = each + 1
                yield (each, bytes(size)) if size else each
        finally:
            await asyncio.sleep(0)  # may wait
            self._end()

    def count_in_thread(self, number):
        try:
            for each in range(number):
                self.made = each + 1
                yield each
        finally:
            self._end()

    @wrapped
    async def hidden(self, number):
        await asyncio.sleep(0)
        return number

    @wrapped
    async def hidden_rows(self, number):
        yield number

    async def fail(self):
        yield 1
        yield 2
        raise KeyError("three")

    async def hang(self):
        try:
            yield 1
            self.entered.set()
            await asyncio.Event().wait()
        finally:
            self._end()

    async def stays(self):
        yield 1
        yield threading.Lock()

    async def total(self, numbers, *, first=False):
        found = 0
        async for each in numbers:
            found += each
            if first:
                break
        return found

    def total_in_thread(self, numbers):
        return sum(numbers)

    async def doubled(self, numbers):
        async for each in numbers:
            yield 2 * each

    def total_after(self, slow, numbers):
        return slow + sum(numbers)

    def plain(self):
        return 5


class Slow:
    """An argument that takes its time to be unpickled, in a thread of the actor's."""

    entered, gate = threading.Event(), threading.Event()

    @classmethod
    def made(cls):
        cls.entered.set()
        cls.gate.wait(PATIENCE_S)
        return 0

    def __reduce__(self):
        return Slow.made, ()


class Directory:
    """What the controller says of an actor."""

    def __init__(self, port):
        self.update = HostedActorUpdate(attempt_uid="a", host="127.0.0.1", port=port, call_key=KEY)

    async def stream(self, method, request, reply_type):
        yield self.update
        await asyncio.Event().wait()


@asynccontextmanager
async def hosted():
    """Serve one, and give it with a handle of it."""
    subject = Rows()
    host = ActorHost(KEY)
    serving = asyncio.create_task(host.serve(lambda: subject, "127.0.0.1", 0))
    directory = Directory(await host.listening)

    async def opened():
        return directory

    home = HostedCalls(opened)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield subject, ActorHandle(ActorId("job-a", "uid", "rows"), methods_of(Rows), home, None), host
    finally:
        home.close()
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


async def settled(subject):
    """Give the actor its time; say how many items it has made."""
    made = -1
    while made != subject.made:
        made = subject.made
        await asyncio.sleep(0.02)
    return made


def test_a_window_has_room_for_so_many_items_and_bytes():
    """And always for one; nobody takes what was not given."""
    window = StreamWindow()
    for _ in range(STREAM_ITEMS):
        assert window.has_room
        window.gave(1)
    assert not window.has_room
    window.taken(STREAM_ITEMS)
    window.gave(STREAM_BYTES + 1)
    assert not window.has_room
    window.taken(1)
    assert window.has_room
    with pytest.raises(CallRefused):
        window.taken(1)


def test_who_runs_too_far_ahead_is_cut_off():
    """The window is kept by who reads, too."""
    arrivals = StreamArrivals(lambda count: None)
    for _ in range(STREAM_ITEMS):
        arrivals.put([memoryview(b"x")])
    with pytest.raises(CallRefused):
        arrivals.put([memoryview(b"x")])


@pytest.mark.parametrize("name", ["count", "count_in_thread"])
async def test_what_a_method_yields_is_iterated_over(name):
    """More than the window has room for; it has its turn until then, and the next call comes after it."""
    async with hosted() as (subject, handle, _):
        method = getattr(handle, name)
        reading = method.stream(3 * STREAM_ITEMS)
        assert await anext(reading) == 0
        after = handle.plain.remote()
        assert [each async for each in reading] == [*range(1, 3 * STREAM_ITEMS)]
        assert await after == 5
        assert subject.closed.is_set()
        assert [each async for each in method.stream(0)] == []


@pytest.mark.parametrize("name", ["count", "count_in_thread"])
async def test_an_actor_does_not_run_ahead_of_the_reader(name):
    """Neither by items nor by bytes; breaking off closes its generator, and the actor goes on."""
    async with hosted() as (subject, handle, _):
        async for each in getattr(handle, name).stream(1000):
            made = await settled(subject)
            assert each < made <= each + STREAM_ITEMS + 1
            if each == STREAM_ITEMS:
                break
        await subject.closed.wait()
        assert subject.made < 1000
        assert await handle.plain() == 5


async def test_large_items_are_fewer():
    """Their bytes are bounded, not only their number."""
    async with hosted() as (subject, handle, _), aclosing(handle.count.stream(50, STREAM_BYTES // 3)) as reading:
        assert (await anext(reading))[0] == 0
        assert await settled(subject) <= 5


async def test_a_reader_that_is_cancelled_closes_the_generator():
    """Where it waits, too."""
    async with hosted() as (subject, handle, _):

        async def read():
            async for _ in handle.hang.stream():
                pass

        reading = asyncio.create_task(read())
        await subject.entered.wait()
        reading.cancel()
        await subject.closed.wait()
        assert await handle.plain() == 5


async def test_an_error_comes_after_the_items_before_it():
    """With the actor's traceback, as of a call; what cannot travel ends the stream."""
    async with hosted() as (_, handle, _):
        found = []
        with pytest.raises(KeyError) as caught:
            found.extend([each async for each in collected(handle.fail.stream(), found)])
        assert found == [1, 2]
        assert isinstance(caught.value.__cause__, RemoteTraceback)
        with pytest.raises(NotPicklable):
            [each async for each in handle.stays.stream()]
        assert await handle.plain() == 5


async def collected(items, found):
    """Pass items on, and take note of them."""
    async for each in items:
        found.append(each)
        yield each


async def test_a_lost_connection_is_told_after_the_items():
    """Those that had come are read first; the generator is closed."""
    async with hosted() as (subject, handle, host):
        reading = handle.count.stream(1000)
        assert await anext(reading) == 0
        [call] = handle._found()[1]._link.waiting.values()
        while len(call.arrivals._items) < STREAM_ITEMS - 1:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.001)
        for link in (*host._links, handle._found()[1]._link):  # and who is gone without a word is noticed
            assert link._transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        for link in [*host._links]:
            link.close()
        found = []
        with pytest.raises(CallLost):
            [each async for each in collected(reading, found)]
        assert found == [*range(1, len(found) + 1)]
        assert len(found) >= STREAM_ITEMS - 1
        await subject.closed.wait()


async def test_streams_and_calls_are_not_mixed_up():
    """The error says how the method is called; a decorated coroutine is awaited, and a decorated generator read."""
    async with hosted() as (_, handle, _):
        for wrong in (handle.count(1), handle.count_in_thread(1)):
            with pytest.raises(StreamMismatch, check=that(names="stream(...)")):
                await wrong
        with pytest.raises(StreamMismatch):
            [each async for each in handle.plain.stream()]
        with pytest.raises(StreamMismatch):
            [each async for each in handle.hidden.stream(1)]
        assert await handle.hidden(7) == 7
        assert [each async for each in handle.hidden_rows.stream(7)] == [7]


async def test_a_script_iterates_too():
    """And closes the generator by leaving its loop."""
    async with hosted() as (subject, handle, _):
        blocking = BlockingActorHandle(handle)

        def read():
            assert [*blocking.count.stream(3)] == [0, 1, 2]
            for each in blocking.count.stream(1000):
                if each == 3:
                    break
            assert blocking.total(each for each in range(100)) == 4950

        await asyncio.to_thread(read)
        await subject.closed.wait()
        assert subject.made < 1000


async def test_iterators_are_arguments():
    """Generators and async ones, for methods of both kinds; they are not asked for more than there is room for."""
    given = []

    async def numbers(count):
        for each in range(count):
            given.append(each)
            yield each

    async with hosted() as (_, handle, _):
        assert await handle.total(numbers(100)) == 4950
        assert await handle.total_in_thread(numbers(100)) == 4950
        assert await handle.total_in_thread(each for each in range(100)) == 4950
        assert [each async for each in handle.doubled.stream(numbers(40))] == [2 * each for each in range(40)]
        given.clear()
        waiting = handle.count.stream(1)
        await anext(waiting)
        calling = asyncio.ensure_future(handle.total(numbers(1000), first=True))
        await asyncio.sleep(0)
        assert given == []  # its turn has not come
        await waiting.aclose()
        assert await calling == 0
        assert len(given) <= STREAM_ITEMS + 1


async def test_an_iterator_that_fails_is_the_methods_to_hear_of():
    """And what is not sent once at most cannot have one; the iterator is closed when the call is over."""
    closed = asyncio.Event()

    async def numbers(fails):
        try:
            yield 1
            if fails:
                raise KeyError("mine")
            await asyncio.Event().wait()
        finally:
            closed.set()

    async with hosted() as (_, handle, _):
        with pytest.raises(KeyError):
            await handle.total(numbers(fails=True))
        closed.clear()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await handle.total(numbers(fails=False))
        await closed.wait()
        with pytest.raises(NotPicklable):
            handle.total.tell(numbers(fails=False))
        assert await handle.plain() == 5


async def test_a_call_that_is_taken_back_while_it_is_unpickled_reads_nothing():
    """Its iterator would never give anything, and the actor's thread would wait for ever."""
    async with hosted() as (_, handle, host):
        calling = handle.total_after.remote(Slow(), (each for each in range(3)))
        await asyncio.to_thread(Slow.entered.wait, PATIENCE_S)
        calling.cancel()
        while any(link.calls for link in host._links):  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.001)
        Slow.gate.set()
        assert await handle.plain() == 5
