"""Watches as iterations, over servers of ill will: nothing is missed, nobody spins, nothing outlives them."""

import asyncio
import time
import tracemalloc
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

import anyio
import attrs
import pytest
from drivers_world import LIMITS, SETTINGS, pod, pods
from raw_server import serving

from iriscw.cloud.drivers.kube.calls import Caller
from iriscw.cloud.drivers.kube.drivers import open_drivers
from iriscw.cloud.drivers.kube.watching import watched
from iriscw.cloud.kube.messages import ApiResponse
from iriscw.cloud.kube.watching import PodWatch
from iriscw.cloud.model import Forbidden, Relisted, Removed, Unavailable, Upserted
from iriscw.runtime.vocabulary import MILLISECOND, SECOND
from raised import that
from waiting import until

EXPIRED = {"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410, "message": "too old"}


@asynccontextmanager
async def watching(script, limits=LIMITS, **changes):
    """A server with a script, and a watch of its pods."""
    settings = attrs.evolve(SETTINGS, **changes)
    async with (
        serving(script) as server,
        open_drivers(server.access, settings, limits=limits) as drivers,
        aclosing(drivers.pods.watch({})) as events,
    ):
        yield server, drivers, events


async def quiet(peer):
    """Begin a watch that brings nothing."""
    await peer.begin()
    await peer.reader.read()


def names(event):
    return [each.name for each in event.objects]


def busy(drivers):
    """Return the one source of the one watch that is open."""
    (found,) = drivers.statistics().watches
    return found.sources["pods"]


# What is shown


async def test_everything_then_every_change():
    """Objects that appear, change, and go."""

    async def script(peer):
        if not peer.asked.watches:
            await peer.answer(200, pods(pod(1, 5), version=10))
            return
        assert peer.asked.query["resourceVersion"] == ["10"]
        await peer.begin()
        await peer.event("ADDED", pod(2, 11))
        await peer.event("MODIFIED", pod(1, 12, status={"phase": "Running"}))
        await peer.event("DELETED", pod(2, 13))
        await peer.reader.read()

    async with watching(script) as (server, _drivers, events):
        assert names(await anext(events)) == ["p1"]
        shown = [await anext(events) for _ in range(3)]
        assert [type(event) for event in shown] == [Upserted, Upserted, Removed]
        assert [event.object.name for event in shown] == ["p2", "p1", "p2"]
        assert (server.lists, server.watches) == (1, 1)


async def test_a_watch_that_ends_is_taken_up_where_it_was():
    """At the version of the last thing it told, a bookmark included; nothing is listed again."""

    async def script(peer):
        if not peer.asked.watches:
            await peer.answer(200, pods(pod(1, 5), version=10))
            return
        await peer.begin()
        if server.watches == 1:
            await peer.event("BOOKMARK", {"metadata": {"resourceVersion": "20"}})
        elif server.watches == 2:
            assert peer.asked.query["resourceVersion"] == ["20"]
            await peer.event("ADDED", pod(2, 30))
        else:
            assert peer.asked.query["resourceVersion"] == ["30"]
            await peer.event("ADDED", pod(3, 40))
            await peer.reader.read()
        await peer.end()

    async with watching(script) as (server, _drivers, events):
        await anext(events)
        assert [(await anext(events)).object.name for _ in range(2)] == ["p2", "p3"]
        assert (server.lists, server.watches) == (1, 3)


@pytest.mark.parametrize("disguise", ["a code", "an event", "a reason"])
async def test_410_in_three_disguises(disguise):
    """The history is forgotten: the watch lists again, and shows what is different. It never asks the same again."""

    async def script(peer):
        if not peer.asked.watches:
            objects = [pod(1, 5), pod(2, 6)] if server.lists == 1 else [pod(2, 6), pod(3, 70)]
            await peer.answer(200, pods(*objects, version=server.lists * 100))
        elif peer.asked.query["resourceVersion"] != ["100"]:
            await quiet(peer)
        elif disguise == "a code":
            await peer.answer(410, EXPIRED)
        else:
            await peer.begin()
            await peer.event("ERROR", EXPIRED if disguise == "an event" else {"reason": "Expired"})
            await peer.end()

    async with watching(script) as (server, drivers, events):
        assert names(await anext(events)) == ["p1", "p2"]
        shown = [await anext(events) for _ in range(2)]
        assert {(type(event), event.object.name) for event in shown} == {(Removed, "p1"), (Upserted, "p3")}
        assert busy(drivers).expired == 1
        assert [each.query["resourceVersion"] for each in server.asked if each.watches][:1] == [["100"]]
        assert sum(each.query.get("resourceVersion") == ["100"] for each in server.asked) == 1


async def test_a_break_within_an_event_loses_nothing():
    """What was cut off comes again."""

    async def script(peer):
        if not peer.asked.watches:
            await peer.answer(200, pods(version=10))
            return
        await peer.begin()
        if server.watches == 1:
            await peer.event("ADDED", pod(1, 11))
            await peer.chunk(b'{"type": "ADDED", "object": {"metadata"')
            peer.cut()
        else:
            assert peer.asked.query["resourceVersion"] == ["11"]
            await peer.event("ADDED", pod(2, 12))
            await peer.reader.read()

    async with watching(script) as (server, _drivers, events):
        assert names(await anext(events)) == []
        assert [(await anext(events)).object.name for _ in range(2)] == ["p1", "p2"]
        assert server.watches == 2


async def test_a_half_open_watch_is_noticed():
    """The connection goes silent without an end; another one is made."""

    async def script(peer):
        if not peer.asked.watches:
            await peer.answer(200, pods(version=10))
        elif server.watches == 1:
            await quiet(peer)
        else:
            await peer.begin()
            await peer.event("ADDED", pod(1, 11))
            await peer.reader.read()

    async with watching(script, attrs.evolve(LIMITS, silence_s=0.1)) as (server, drivers, events):
        await anext(events)
        with anyio.fail_after(5):
            assert (await anext(events)).object.name == "p1"
        assert server.watches == 2
        assert drivers.statistics().api.unreachable == 1


async def test_a_watch_that_outlives_its_timeout():
    """A server that drips bookmarks for ever is left by the driver's own alarm."""

    async def script(peer):
        if not peer.asked.watches:
            await peer.answer(200, pods(version=10 * server.lists))
            return
        await peer.begin()
        version = 10 * server.lists
        while True:
            version += 1
            await peer.event("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})
            await asyncio.sleep(0.02)

    timeouts = {"watch_timeout": 100 * MILLISECOND, "watch_margin": 50 * MILLISECOND}
    async with watching(script, **timeouts) as (server, drivers, events):
        await anext(events)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anext, events)
            await until(lambda: server.watches >= 3)
            await until(lambda: drivers.statistics().api.open_watches == 1)
            tasks.cancel_scope.cancel()
    assert drivers.statistics().api.open_watches == 0


async def test_a_server_that_goes_and_comes_back():
    """With other objects, and none in between: the watch finds what is there now, and tells the difference."""

    def script_of(*objects, version):
        async def script(peer):
            if not peer.asked.watches:
                await peer.answer(200, pods(*objects, version=version))
            elif peer.asked.query["resourceVersion"] == [str(version)]:
                await quiet(peer)
            else:
                await peer.answer(410, EXPIRED)

        return script

    async with AsyncExitStack() as stack, AsyncExitStack() as first:
        server = await first.enter_async_context(serving(script_of(pod(1, 5), pod(2, 6), version=10)))
        drivers = await stack.enter_async_context(open_drivers(server.access, SETTINGS, limits=LIMITS))
        events = await stack.enter_async_context(aclosing(drivers.pods.watch({})))
        assert names(await anext(events)) == ["p1", "p2"]
        coming = asyncio.ensure_future(anext(events))
        await until(lambda: server.watches)
        await first.aclose()
        await until(lambda: drivers.statistics().api.unreachable > 2)
        assert not coming.done()
        await stack.enter_async_context(serving(script_of(pod(2, 6), pod(3, 70), version=100), server.port))
        shown = [await coming, await anext(events)]
        assert {(type(event), event.object.name) for event in shown} == {(Removed, "p1"), (Upserted, "p3")}


# How it ends


async def test_refused_credentials_end_it():
    """With the contract's error; the connection and its tasks are gone by then."""
    before = len(asyncio.all_tasks())

    async def script(peer):
        if peer.asked.watches:
            await peer.answer(403, {"code": 403, "message": "no"})
        else:
            await peer.answer(200, pods())

    async with watching(script) as (_server, drivers, events):
        await anext(events)
        with pytest.raises(Forbidden):
            await anext(events)
        assert drivers.statistics().watches == ()
        with pytest.raises(StopAsyncIteration):
            await anext(events)
    assert len(asyncio.all_tasks()) <= before + 1


async def test_patience_ends():
    """Nobody answers for longer than the driver is willing to try."""

    async def script(peer):
        peer.cut()

    async with watching(script, patience=300 * MILLISECOND) as (server, _drivers, events):
        began = time.monotonic()
        with pytest.raises(Unavailable, check=that(names="0")):
            await anext(events)
        assert time.monotonic() - began >= 0.3
        assert len(server.asked) < 30


async def test_a_bug_of_the_transport_comes_out():
    """What is no contract's error is not taken for a broken connection: it ends the watch as it is."""

    class Broken:
        async def request(self, _request):
            return ApiResponse(200, pods())

        async def watch(self, _request):
            yield {"type": "BOOKMARK", "object": {}}
            raise ZeroDivisionError

    events = watched(Caller(Broken(), SETTINGS), PodWatch(SETTINGS, {}))
    assert names(await anext(events)) == []
    with pytest.raises(ZeroDivisionError):
        await anext(events)


# Nobody spins

ILL_WILL = {
    "refuses": lambda peer: peer.cut(),
    "ends at once": lambda peer: peer.answer(200, b""),
    "too many": lambda peer: peer.answer(429, {}, Retry_After="0"),
    "expired": lambda peer: peer.answer(410, EXPIRED),
    "a proxy": lambda peer: peer.answer(502, b"<html>"),
    "sign in": lambda peer: peer.answer(200, b"<html>sign in\n</html>\n"),
    "a redirect": lambda peer: peer.answer(302, b"", Location="/"),
    "not found": lambda peer: peer.answer(404, {}),
}


@pytest.mark.sampled(3, by="will")
@pytest.mark.parametrize("well", [True, False], ids=["only watches fail", "all fails"])
@pytest.mark.parametrize("will", ILL_WILL)
async def test_nobody_spins(will, well):
    """Whatever a server does, it is asked at a bounded rate, ever more slowly."""

    async def script(peer):
        if well and not peer.asked.watches:
            await peer.answer(200, pods(version=server.lists))
            return
        said = ILL_WILL[will](peer)
        if said is not None:
            await said

    pauses = {"watch_interval": 10 * MILLISECOND, "watch_pause_most": 100 * MILLISECOND}
    async with watching(script, **pauses) as (server, _drivers, events):
        with anyio.move_on_after(0.5):
            while True:
                await anext(events)
        # Pauses of 10, 20, 40, 80, 100, 100... ms, at least half of each, with two requests between them at most.
        assert 2 <= len(server.asked) < 40
    await server.gone()


# Memory, and a slow consumer


async def test_a_slow_consumer_holds_the_server_up():
    """Nothing is read for a consumer that does not come; when it does, it gets everything, in order."""
    sent, last = 0, 30_000

    async def script(peer):
        nonlocal sent
        if not peer.asked.watches:
            await peer.answer(200, pods(version=1))
            return
        await peer.begin()
        while sent < last:
            sent += 1
            phase = "Running" if sent % 2 else "Pending"
            await peer.event("MODIFIED", pod(1, sent + 1, status={"phase": phase}, padding="x" * 2000))
        await peer.reader.read()

    async with watching(script) as (_server, drivers, events):
        await anext(events)
        first = await anext(events)
        before = -1
        while sent > before:
            before = sent
            await asyncio.sleep(0.3)
        assert sent < 10_000
        assert busy(drivers).events < 5
        versions = [int(first.object.resource_version)]
        while len(versions) < 2000:
            versions.append(int((await anext(events)).object.resource_version))
        assert versions == list(range(2, 2002))


async def test_memory_is_bounded_behind_a_slow_consumer():
    """However long it is away, alarms and connections of the time between pile up nowhere."""

    async def script(peer):
        if not peer.asked.watches:
            await peer.answer(200, pods(*(pod(number, server.lists * 100 + number) for number in range(50))))
            return
        await peer.begin()
        for version in range(10**9):
            await peer.event("MODIFIED", pod(1, 10**6 + version, padding="x" * 100_000))

    timeouts = {"watch_timeout": 100 * MILLISECOND, "watch_margin": 10 * MILLISECOND}
    async with watching(script, **timeouts) as (server, drivers, events):
        await anext(events)
        await anext(events)
        asked = len(server.asked)
        tracemalloc.start()
        try:
            await asyncio.sleep(1)
            held = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert held < 4 * 2**20
        assert len(server.asked) <= asked + 1
        for _ in range(5):
            await anext(events)
        assert busy(drivers).objects == 50


async def test_a_line_of_300_mb_is_not_held():
    """The watch breaks over it, and goes on behind it, by a list."""
    piece = b"x" * (256 * 1024)

    async def script(peer):
        if not peer.asked.watches:
            await peer.answer(200, pods(pod(server.lists, server.lists), version=server.lists))
            return
        await peer.begin()
        if server.watches > 1:
            await peer.reader.read()
        for _ in range(1200):
            await peer.chunk(piece)

    limits = attrs.evolve(LIMITS, line_bytes=2**20)
    tracemalloc.start()
    try:
        async with watching(script, limits) as (server, _drivers, events):
            await anext(events)
            shown = [await anext(events) for _ in range(2)]
            assert {event.object.name for event in shown} == {"p1", "p2"}
            assert server.lists == 2
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * 2**20


# Leaving


@pytest.mark.parametrize("way", ["cancelled", "closed", "forgotten", "killed"])
async def test_left_at_any_moment(way):
    """No task, no connection, no watch is left, whenever and however a consumer goes."""
    before = len(asyncio.all_tasks())

    async def script(peer):
        await asyncio.sleep(0.001)
        if not peer.asked.watches:
            await peer.answer(200, pods(*(pod(number, number) for number in range(20)), version=100))
            return
        await peer.begin()
        for number in range(40):
            await asyncio.sleep(0.0005)
            await peer.event("ADDED", pod(100 + number, 101 + number))
        if server.watches % 3:
            await peer.end()
        else:
            peer.cut()

    async def consume(drivers, count):
        events = drivers.pods.watch({})
        async for _event in events:
            count -= 1
            if count < 0:
                break
        if way == "closed":
            await events.aclose()

    async with serving(script) as server, open_drivers(server.access, SETTINGS, limits=LIMITS) as drivers:
        for step in range(25):
            if way == "cancelled":
                with anyio.move_on_after(step * 0.001):
                    await consume(drivers, 10**9)
            elif way == "killed":
                task = asyncio.ensure_future(consume(drivers, 10**9))
                await asyncio.sleep(step * 0.001)
                task.cancel()
                await asyncio.wait([task])
            else:
                await consume(drivers, step)
        await until(lambda: not drivers.statistics().watches and not drivers.statistics().api.open_watches)
    await server.gone()
    await until(lambda: len(asyncio.all_tasks()) <= before)


async def test_nothing_is_asked_before_somebody_asks():
    """A watch that nobody iterates costs nothing."""

    async def script(peer):
        raise AssertionError("it was asked")

    async with watching(script) as (server, drivers, _events):
        await asyncio.sleep(0.05)
        assert not server.asked
        assert drivers.statistics().watches == ()


async def test_watches_wait_their_turn():
    """Their requests count against the rate, like all others (INV-F9)."""

    async def script(peer):
        if peer.asked.watches:
            await peer.answer(200, b"")
        else:
            await peer.answer(200, pods())

    rate = {"qps": 5, "burst": 1, "watch_pause_most": 20 * MILLISECOND, "watch_lasting": SECOND}
    async with watching(script, **rate) as (server, _drivers, events):
        with anyio.move_on_after(1):
            while True:
                event = await anext(events)
                assert isinstance(event, Relisted)
        assert 1 <= len(server.asked) <= 7
