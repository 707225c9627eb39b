"""Pools of hosted actors: who gets which call, and what becomes of those of a member that dies."""

import asyncio
import concurrent.futures
import pickle
import threading
from contextlib import aclosing

import pytest

from iriscw.client.actors import ActorFuture, ActorHandle
from iriscw.client.blocking_actors import BlockingActorHandle
from iriscw.client.hosted import ActorId, HostedCalls
from iriscw.client.pools import ActorPool, BlockingActorPool
from iriscw.errors import ActorOver, CallLost, InvalidArgument, NoActorLeft, NoSuchMethod, NotPicklable, RemoteTraceback
from iriscw.task.passing import received

pytestmark = pytest.mark.anyio

PATIENCE_S = 20


@pytest.fixture
def anyio_backend():
    """Handles belong to loops of asyncio."""
    return "asyncio"


class Subject:
    """What members are said to be."""

    def work(self, number):
        """Be called."""


class Member(ActorHandle):
    """A member whose answers are the test's; ``auto`` answers by itself, with what it was called with."""

    def __init__(self, name, *, ready=True, auto=False):
        home = HostedCalls(None, asyncio.get_running_loop())
        super().__init__(ActorId(name, name, name), ("work",), home, None)
        self.takes, self.over, self.auto, self.calls = asyncio.Event(), None, auto, []
        if ready:
            self.takes.set()

    async def wait_ready(self):
        await self.takes.wait()
        if self.over is not None:
            raise self.over

    async def _called(self, kind, parts):
        args, _ = received([memoryview(each) for each in parts[1:]])
        future = asyncio.get_running_loop().create_future()
        self.calls.append((*args, future))
        if self.auto:
            future.set_result(args[0])
        return await future

    def _connected(self):
        return self.takes.is_set()

    def numbers(self):
        return [number for number, _ in self.calls]

    def answer(self, value, call=-1):
        """Answer a call; with an error as the link would raise it."""
        future = self.calls[call][1]
        if isinstance(value, Exception):
            future.set_exception(value)
        else:
            future.set_result(value)


async def settled():
    """Let everything happen that waits for nothing outside."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_each_member_has_one_call_at_a_time():
    """The next one waits in line for whoever is idle first; one that is not ready is given none."""
    one, two, late = Member("one"), Member("two"), Member("late", ready=False)
    pool = ActorPool([one, two, late])
    first, second = await pool.submit(Subject.work, 1), await pool.submit("work", 2)
    third, fourth = (asyncio.create_task(pool.submit(Subject.work, number)) for number in (3, 4))
    await settled()
    assert (one.numbers(), two.numbers(), late.numbers()) == ([1], [2], [])
    two.answer("b")
    assert await second == "b"
    late.takes.set()
    await third, await fourth
    await settled()
    assert (one.numbers(), two.numbers(), late.numbers()) == ([1], [2, 3], [4])
    one.answer(ValueError())
    with pytest.raises(ValueError):
        await first
    await pool.submit(Subject.work, 5)
    await settled()
    assert one.numbers() == [1, 5]
    late.answer("c")
    await settled()
    late.takes.clear()
    two.answer("d")
    await pool.submit(Subject.work, 6)
    await settled()
    assert (two.numbers(), late.numbers()) == ([2, 3, 6], [4])
    with pytest.raises(NoSuchMethod):
        await pool.submit("wrok", 1)
    for actors in ([], [Subject()]):
        with pytest.raises(InvalidArgument):
            ActorPool(actors)
    with pytest.raises(InvalidArgument):
        ActorPool([one], retries=-1)


async def test_a_lost_call_is_its_callers():
    """Its member is given no call until it takes them again; with retries another one is, first, and so many times."""
    one, two = Member("one"), Member("two", ready=False)
    pool = ActorPool([one, two])
    lost = await pool.submit(Subject.work, 1)
    await settled()
    one.takes.clear()
    one.answer(CallLost("gone"))
    with pytest.raises(CallLost):
        await lost
    waiting = asyncio.create_task(pool.submit(Subject.work, 2))
    await settled()
    assert not waiting.done()
    one.takes.set()
    await waiting
    again = ActorPool([one, two], retries=1)
    future = await again.submit(Subject.work, 3)
    behind = asyncio.create_task(again.submit(Subject.work, 4))
    await settled()
    one.takes.clear()
    one.answer(CallLost("gone"))
    await settled()
    two.takes.set()
    await settled()
    assert (two.numbers(), behind.done()) == ([3], False)
    two.takes.clear()
    last = CallLost("gone")
    two.answer(last)
    with pytest.raises(CallLost, check=lambda error: error is last):
        await future
    behind.cancel()


async def test_one_that_is_over_is_left_out():
    """What was not sent to it goes to another; when all are over, whoever waits is told why."""
    one, two = Member("one"), Member("two")
    pool = ActorPool([one, two])
    first, second = await pool.submit(Subject.work, 1), await pool.submit(Subject.work, 2)
    waiting = asyncio.create_task(pool.submit(Subject.work, 3))
    await settled()
    one.answer(ActorOver("stopped"))
    two.answer("b")
    assert await second == "b"
    await settled()
    assert (two.numbers(), len(pool), waiting.done()) == ([2, 1], 1, False)
    nested = ActorOver("another one's")
    nested.__cause__ = RemoteTraceback("there")
    two.answer(nested)
    with pytest.raises(ActorOver, check=lambda error: error is nested):
        await first
    third = await waiting
    fourth = asyncio.create_task(pool.submit(Subject.work, 4))
    await settled()
    two.answer(CallLost("gone"))
    two.over = ActorOver("stopped")
    for waited in (third, fourth):
        with pytest.raises((CallLost, NoActorLeft)):
            await waited
    assert len(pool) == 0
    with pytest.raises(NoActorLeft, check=lambda error: error.__cause__ is two.over):
        await pool.submit(Subject.work, 5)


async def test_whoever_does_not_wait_takes_nothing():
    """A submission that is cancelled in line leaves the member to others, and a call that is makes it idle."""
    one = Member("one")
    pool = ActorPool([one])
    first = await pool.submit(Subject.work, 1)
    gone, stays = (asyncio.create_task(pool.submit(Subject.work, number)) for number in (2, 3))
    await settled()
    one.answer("a")
    await asyncio.sleep(0)
    gone.cancel()
    await stays
    await settled()
    assert (one.numbers(), await first) == ([1, 3], "a")
    (await stays).cancel()
    await pool.submit(Subject.work, 4)
    await settled()
    assert one.numbers() == [1, 3, 4]
    with pytest.raises(NotPicklable):
        await pool.submit(Subject.work, threading.Lock())


async def test_map_keeps_the_order():
    """While one call takes its time, no more values are taken than the pool can have ahead of it."""
    quick, slow = Member("quick", auto=True), Member("slow")
    taken = []

    def values():
        for number in range(8):
            taken.append(number)
            yield number

    async with aclosing(ActorPool([quick, slow]).map(Subject.work, values())) as results:
        assert await anext(results) == 0
        reading = asyncio.create_task(anext(results))
        await settled()
        assert (slow.numbers(), quick.numbers(), reading.done()) == ([1], [0, 2, 3, 4], False)
        assert len(taken) == 6
        slow.auto = True
        slow.answer(1)
        assert [await reading, *[value async for value in results]] == [1, 2, 3, 4, 5, 6, 7]


async def test_map_unordered_gives_what_is_there():
    """What takes its time comes last."""
    quick, slow = Member("quick", auto=True), Member("slow")
    async with aclosing(ActorPool([quick, slow]).map_unordered(Subject.work, range(8))) as results:
        assert [await anext(results) for _ in range(7)] == [0, 2, 3, 4, 5, 6, 7]
        slow.answer(1)
        assert [value async for value in results] == [1]


@pytest.mark.parametrize("name", ["map", "map_unordered"])
async def test_the_first_error_ends_a_map(name):
    """And takes back the calls under way, as who stops iterating does."""
    one, two = Member("one"), Member("two")
    pool = ActorPool([one, two])
    for error in (KeyError("no"), None):
        async with aclosing(getattr(pool, name)(Subject.work, [0, 1])) as results:
            reading = asyncio.create_task(anext(results))
            await settled()
            one.answer(error or "value")
            if error is None:
                assert await reading == "value"
            else:
                with pytest.raises(KeyError):
                    await reading
        await settled()
        assert two.calls[-1][1].cancelled()


async def test_pools_travel():
    """As their handles do, each as a pool of its own."""
    handles = [ActorHandle(ActorId(name, name, name), ("work",), None, None) for name in ("one", "two")]
    for kind in (ActorPool, BlockingActorPool):
        pool = kind(handles, retries=2)
        again = pickle.loads(pickle.dumps(pool))
        assert (type(again), len(again), again.__reduce__()[1]) == (kind, 2, pool.__reduce__()[1])
        assert again.__reduce__()[0].keywords == {"retries": 2}


async def test_scripts():
    """The same from a thread without an event loop, whose values are made in that thread."""
    members = [Member(name, auto=True) for name in ("one", "two", "three")]
    pool = BlockingActorPool([BlockingActorHandle(members[0]), *members[1:]])

    def script():
        here = threading.get_ident()

        def values():
            for number in range(20):
                assert threading.get_ident() == here
                yield number

        found = [*pool.map(Subject.work, values())], sorted(pool.map_unordered("work", values()))
        assert (pool.call(Subject.work, 7), pool.submit(Subject.work, 8).result(PATIENCE_S)) == (7, 8)
        return found

    ordered, unordered = await asyncio.to_thread(script)
    assert ordered == unordered == [*range(20)]
    assert len(pool) == 3


async def test_another_loop_may_wait():
    """As in a task that has a loop of its own, where handles are called on another one."""
    member = Member("one", auto=True)

    async def elsewhere():
        pool = ActorPool([member])
        values = [value async for value in pool.map(Subject.work, range(5))]
        return values, [value async for value in pool.map_unordered(Subject.work, range(5))], await pool.call("work", 3)

    assert await asyncio.to_thread(asyncio.run, elsewhere()) == ([*range(5)], [*range(5)], 3)


async def test_who_is_interrupted_in_a_map_takes_all_of_it_back(monkeypatch):
    """The call that was waited for, too."""
    begun = []

    class Interrupted(concurrent.futures.Future):
        def result(self, timeout=None):
            raise KeyboardInterrupt

    def submit(method, value):
        begun.append(ActorFuture(Interrupted()))
        return begun[-1]

    pool = BlockingActorPool([Member("one")])
    monkeypatch.setattr(pool, "submit", submit)

    def read():
        with pytest.raises(KeyboardInterrupt):
            [*pool.map(Subject.work, range(5))]

    await asyncio.to_thread(read)
    assert len(begun) == 2
    assert all(each._inner.cancelled() for each in begun)
