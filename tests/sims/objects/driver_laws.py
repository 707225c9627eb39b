"""The port on simulated storage in virtual time: a stage for asynchronous code, and laws under every fault."""

import asyncio
import functools

import anyio
from objects_world import BUCKET, KEY, SMALL, asker, made

from iriscw._errors import OperationError
from iriscw.objects.drivers.transfer import read_whole
from iriscw.objects.ports import IfAbsent, IfMatch, ObjectExists, ObjectNotFound
from iriscw_sims.objects.content import Content
from iriscw_sims.objects.driver import SimObjectStore, Through
from iriscw_sims.objects.front import ObjectFront
from iriscw_sims.objects.messages import PutObject
from iriscw_sims.objects.rules import KIB
from iriscw_sims.objects.settings import QUICK
from iriscw_sims.objects.virtual import LoopSurroundings
from iriscw_sims.transport.run import simulate

LIMIT_BYTES = 1 << 20


class Stage:
    """A storage, a front and stores on a virtual loop."""

    def __init__(self, seed, rates, rules=SMALL, settings=QUICK):
        self.surroundings = LoopSurroundings(asyncio.get_running_loop(), seed, rates)
        self.storage = made(rules)
        self.front = ObjectFront(self.storage, self.surroundings, settings)

    def store(self, part_bytes=8 * KIB):
        """Return a store."""
        return SimObjectStore(Through(self.front), BUCKET, KEY, part_bytes=part_bytes)

    async def until_done(self, call, *expected):
        """Repeat a call until it is done, or fails in an expected way."""
        rng = self.surroundings.rng("patience")
        while True:
            try:
                return await call()
            except expected:
                raise
            except OperationError:
                await anyio.sleep(rng.uniform(0, 5))


def perform(play, seed=0, rates=None, **options):
    """Run a play in virtual time; give what ``simulate`` gives, with the trace of the surroundings as its result."""

    async def main(_):
        stage = Stage(seed, rates, **options)
        await play(stage)
        return stage.surroundings.trace

    return simulate(main, seed=seed)


@functools.cache
def body_of(writer, version, size=20_000):
    """Return bytes that show who wrote them, at every place."""
    return f"{writer}:{version};".encode() * (size // 8)


def check_claims(seed, rates, count=4):
    """Of writers that race with ``IfAbsent`` and read when they heard nothing certain, exactly one wins."""
    winners = []

    async def claim(stage, writer):
        store, mine = stage.store(), body_of(writer, 0)

        async def once():
            try:
                await store.put("claims/k", mine, condition=IfAbsent())
            except ObjectExists:
                found = await read_whole(store, "claims/k", limit_bytes=LIMIT_BYTES)
                return found == mine
            return True

        if await stage.until_done(once):
            winners.append(mine)

    async def play(stage):
        async with anyio.create_task_group() as tasks:
            for writer in range(count):
                tasks.start_soon(claim, stage, writer)
        assert winners == [stage.storage.body(BUCKET, "claims/k").rendered()]

    return perform(play, seed, rates)


def check_readers(seed, rates, count=3):
    """Readers of an object that is written all the time, in one piece and in parts, see one version, or a failure."""
    read = []

    async def write(stage, writer, part_bytes):
        store = stage.store(part_bytes)
        for version in range(6):
            body = body_of(writer, version)
            await stage.until_done(lambda body=body: store.put("k", body))

    async def read_on(stage, writers):
        store = stage.store()
        while writers.is_set() is False:
            try:
                async with store.get("k") as reading:
                    got = b""
                    try:
                        async for chunk in reading:
                            got += chunk
                    finally:
                        check_one_version(got)
                assert len(got) == reading.info.size_bytes
                read.append(got)
            except OperationError:
                await anyio.sleep(0.5)

    async def play(stage):
        over = anyio.Event()
        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(read_on, stage, over)
            async with anyio.create_task_group() as writers:
                writers.start_soon(write, stage, 1, 8 * KIB)
                writers.start_soon(write, stage, 2, 64 * KIB)
            over.set()

    result = perform(play, seed, rates)
    assert read
    return result


def check_one_version(got):
    """Check that bytes are all of one version, or the beginning of one."""
    for writer in (1, 2):
        for version in range(6):
            if body_of(writer, version).startswith(got):
                return
    raise AssertionError(f"a torn or mixed object: {got[:20]!r} to {got[-20:]!r}")


def check_acknowledged(seed, rates, count=12):
    """What was acknowledged is there; what a failure said not to be there is not."""

    async def write(stage, number):
        key, body = f"o/{number}", body_of(number, 0, 3000 * number)
        try:
            info = await stage.store().put(key, body, condition=IfAbsent() if number % 2 else None)
        except OperationError:
            return
        there = stage.storage.body(BUCKET, key)
        assert there is not None
        assert there.rendered() == body
        assert info.size_bytes == len(body)

        async def read():
            return await read_whole(stage.store(), key, limit_bytes=LIMIT_BYTES)

        assert await stage.until_done(read, ObjectNotFound) == body

    async def play(stage):
        async with anyio.create_task_group() as tasks:
            for number in range(count):
                tasks.start_soon(write, stage, number)

    return perform(play, seed, rates)


def check_log(seed, rates, writers=3, entries=3):
    """Entries that are added with ``IfMatch``, again where nothing certain was heard, are each there exactly once."""

    async def add(stage, entry):
        store = stage.store()

        async def once():
            info = await store.stat("log")
            log = await read_whole(store, "log", limit_bytes=LIMIT_BYTES)
            if entry in log.split():
                return
            await store.put("log", log + b" " + entry, condition=IfMatch(info.etag))

        await stage.until_done(once)

    async def write(stage, writer):
        for number in range(entries):
            await add(stage, f"{writer}.{number}".encode())

    async def play(stage):
        asker(stage.storage)(PutObject("log", Content(b"begin")))
        async with anyio.create_task_group() as tasks:
            for writer in range(writers):
                tasks.start_soon(write, stage, writer)
        log = stage.storage.body(BUCKET, "log").rendered().split()
        expected = [f"{writer}.{number}".encode() for writer in range(writers) for number in range(entries)]
        assert sorted(log[1:]) == sorted(expected)

    return perform(play, seed, rates)
