"""Laws that a driver keeps on a service that fails in every way that its simulation knows, over HTTP and in real time.

Each is a play on a stage; :func:`under_faults` plays it under faults that are drawn.
"""

import functools

import anyio
import attrs
from hypothesis import HealthCheck, given

from iriscw.objects.drivers.transfer import read_whole
from iriscw.objects.ports import (
    IfAbsent,
    IfMatch,
    ObjectChanged,
    ObjectExists,
    ObjectNotFound,
    StoreAccessDenied,
    StoreUnreachable,
)
from iriscw.runtime.vocabulary import MILLISECOND
from iriscw_sims.coreweave.settings import Span
from iriscw_sims.objects.serve.http import HASTY
from profiles import examples

LIMIT_BYTES = 1 << 21
PATIENCE_S = 120.0
IMPATIENT = attrs.evolve(
    HASTY,
    patience=60 * MILLISECOND,
    latency_slow=Span(5 * MILLISECOND, 30 * MILLISECOND),
    landing_late=Span(0, 60 * MILLISECOND),
    denial=Span(5 * MILLISECOND, 30 * MILLISECOND),
)


def under_faults(play, swarms, staged):
    """Return a test that plays under faults that are drawn.

    Args:
        play: A law.
        swarms: Which faults there are, and how often each comes, in thousandths; and what ``staged`` makes of the rest.
        staged: Makes a stage of a swarm.
    """

    @functools.wraps(play)
    def played(swarm):
        async def main():
            async with staged(dict(swarm)) as stage:
                with anyio.fail_after(PATIENCE_S):
                    await play(stage)

        anyio.run(main)

    del played.__wrapped__
    fixtures = HealthCheck.function_scoped_fixture  # the environment is the same for all examples
    return examples(2, suppress_health_check=[fixtures])(given(swarm=swarms)(played))


async def until_done(call, *expected):
    """Repeat a call until it is done, or fails in an expected way."""
    while True:
        try:
            return await call()
        except expected:
            raise
        except (StoreUnreachable, StoreAccessDenied, ObjectChanged):
            await anyio.sleep(0.01)


def body_of(writer, version, size):
    """Return bytes that show whose they are."""
    return f"{writer}:{version};".encode() * (size // 8)


async def a_claim_has_one_winner(stage) -> None:
    """Of writers with ``IfAbsent``, short and in parts, that read when nothing certain was told, exactly one wins."""
    store = stage.store()
    winners = []

    async def claim(writer):
        mine = body_of(writer, 0, stage.long_bytes if writer % 2 else 100)
        told = False

        async def once():
            nonlocal told
            try:
                await store.put("prize", mine, condition=IfAbsent())
                told = True
            except ObjectExists:
                return await read_whole(store, "prize", limit_bytes=LIMIT_BYTES) == mine
            return True

        won = await until_done(once)
        assert won or not told
        if won:
            winners.append(mine)

    async with anyio.create_task_group() as tasks:
        for writer in range(5):
            tasks.start_soon(claim, writer)
    assert winners == [stage.bodies()["prize"]]


async def certain_refusals_are_true(stage) -> None:
    """Who is told that there was an object already has not written it: nobody finds an object that nobody claims."""
    store = stage.store()
    refused, done = [], []

    async def claim(writer):
        mine = body_of(writer, 1, stage.long_bytes if writer % 2 else 100)
        try:
            await store.put("prize", mine, condition=IfAbsent())
            done.append(mine)
        except ObjectExists:
            refused.append(mine)
        except (StoreUnreachable, StoreAccessDenied):
            pass  # it may be theirs

    async with anyio.create_task_group() as tasks:
        for writer in range(6):
            tasks.start_soon(claim, writer)
    await anyio.sleep(0.2)  # what lands late has landed
    there = stage.bodies().get("prize")
    assert len(done) <= 1
    assert not done or done == [there]
    assert there not in refused


async def what_was_acknowledged_is_there(stage) -> None:
    """As a whole; and what was not is there as a whole, or not at all."""
    store = stage.store()

    async def write(number):
        key, body = f"o/{number}", body_of(number, 0, 1 + stage.long_bytes // 5 * number)
        try:
            info = await store.put(key, body, condition=IfAbsent() if number % 2 else None)
        except (StoreUnreachable, StoreAccessDenied):
            assert stage.bodies().get(key, body) == body
            return
        assert stage.bodies()[key] == body
        assert info.size_bytes == len(body)
        assert await until_done(lambda: read_whole(store, key, limit_bytes=LIMIT_BYTES), ObjectNotFound) == body

    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(write, number)


async def a_log_loses_and_doubles_nothing(stage) -> None:
    """Entries that are added with ``IfMatch``, again where nothing certain was told, are there once each."""
    store = stage.store()
    await until_done(lambda: store.put("log", b"begin"))

    async def add(entry):
        async def once():
            info = await store.stat("log")
            log = await read_whole(store, "log", limit_bytes=LIMIT_BYTES)
            if entry not in log.split():
                await store.put("log", log + b" " + entry, condition=IfMatch(info.etag))

        await until_done(once)

    async def write(writer):
        for number in range(2):
            await add(f"{writer}.{number}".encode())

    async with anyio.create_task_group() as tasks:
        for writer in range(3):
            tasks.start_soon(write, writer)
    expected = [f"{writer}.{number}".encode() for writer in range(3) for number in range(2)]
    assert sorted(stage.bodies()["log"].split()[1:]) == sorted(expected)


async def a_reader_sees_one_version(stage) -> None:
    """Whatever is written meanwhile, and however often a body is torn."""
    store = stage.store()
    versions = [body_of(0, version, stage.long_bytes) for version in range(4)]
    await until_done(lambda: store.put("k", versions[0]))
    over = anyio.Event()

    async def read():
        while not over.is_set():
            got = b""
            try:
                async with store.get("k") as reading:
                    async for chunk in reading:
                        got += chunk
                assert got in versions
            except (StoreUnreachable, StoreAccessDenied):
                assert any(version.startswith(got) for version in versions)
                await anyio.sleep(0.01)

    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(read)
        for version in versions[1:]:
            await until_done(lambda version=version: store.put("k", version))
        over.set()
