"""A block that lives in a task of its own: entered and left anywhere, its errors and the host's told apart."""

import asyncio
import contextlib

import anyio
import pytest

from iriscw.rpc.errors import NeedsAsyncio, WrongLoop
from iriscw.rpc.keeping import KeptContext
from raised import that


class Broken(Exception):
    """What ends a block from inside."""


class Block:
    """A block with a task group, as clusters have; notes what happens to it."""

    def __init__(self, *, at_start=None, at_end=None, end_s=0.0):
        self.at_start, self.at_end, self.end_s = at_start, at_end, end_s
        self.broken, self.closing = anyio.Event(), anyio.Event()
        self.said = []
        self.kept = KeptContext(self.open(), "a block")

    @contextlib.asynccontextmanager
    async def open(self):
        try:
            async with anyio.create_task_group() as tasks:
                if self.at_start is not None:
                    await self.at_start()
                tasks.start_soon(self.breaks)
                try:
                    yield self
                finally:
                    tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            self.closing.set()
            try:
                await asyncio.sleep(self.end_s)
            except asyncio.CancelledError:
                self.said.append("hurried")
            self.said.append("closed")
            if self.at_end is not None:
                raise self.at_end

    async def breaks(self):
        await self.broken.wait()
        raise Broken


async def test_entered_and_left_in_different_tasks():
    """As the fixtures of test frameworks do it: neither task is the other's, and the first has ended."""
    block = Block()
    assert await asyncio.create_task(block.kept.__aenter__()) is block
    await asyncio.create_task(block.kept.__aexit__(None, None, None))
    assert block.said == ["closed"]


@pytest.mark.parametrize(
    "error", [ValueError("mine"), ExceptionGroup("mine", [ExceptionGroup("inner", [ValueError(1)])]), SystemExit(3)]
)
async def test_the_hosts_error_leaves_as_it_was(error):
    """The same object, groups and notes included, and without a word of the block's own."""
    block = Block()
    with pytest.raises(type(error)) as caught:
        async with block.kept:
            raise error
    assert (caught.value, caught.value.__context__, block.said) == (error, None, ["closed"])


async def test_what_ends_the_block_reaches_the_host():
    """Its code is cancelled, the error is the block's, and nothing of the cancellation is left."""
    block = Block()

    async def host():
        async with block.kept:
            block.broken.set()
            await anyio.sleep_forever()

    with pytest.raises(Broken):
        await host()
    assert asyncio.current_task().cancelling() == 0
    await anyio.lowlevel.checkpoint()


async def test_what_ends_the_block_while_the_host_ends():
    """A host that ends before it hears of its cancellation is not cancelled later."""

    async def host(block, raised):
        async with block.kept:
            block.broken.set()
            while not block.kept._interrupted:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
            if raised is not None:
                raise raised

    for raised in (None, KeyError("host")):
        with pytest.raises(Broken):
            await host(Block(), raised)
        assert asyncio.current_task().cancelling() == 0
        await anyio.lowlevel.checkpoint()


async def test_a_host_that_has_ended_hears_of_it_when_it_is_left():
    """Nobody is cancelled who may have nothing to do with the block."""
    block = Block()
    await asyncio.create_task(block.kept.__aenter__())
    block.broken.set()
    await asyncio.wait((block.kept._keeper,))
    with pytest.raises(Broken):
        await block.kept.__aexit__(None, None, None)


async def test_others_cancellation_is_not_taken_for_ours():
    """Who cancels the host while the block breaks still does so."""
    block = Block()

    async def host():
        async with block.kept:
            block.broken.set()
            await anyio.sleep_forever()

    task = asyncio.create_task(host())
    while not block.kept._interrupted:  # noqa: ASYNC110 - a step of the loop each
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    assert (task.cancelled() or isinstance(task.exception(), Broken), task.cancelling()) == (True, 1)


async def test_a_start_that_fails_raises_that():
    """As it was raised, and the block is closed."""

    async def at_start():
        raise KeyError("start")

    block = Block(at_start=at_start)
    with pytest.raises(KeyError, check=that(args=("start",))):
        async with block.kept:
            pytest.fail("it was entered")
    assert block.said == ["closed"]


async def test_a_start_that_is_cancelled_is_undone():
    """By the time that the host goes on, nothing is open."""
    block = Block(at_start=anyio.sleep_forever)
    with anyio.move_on_after(0.01) as scope:
        async with block.kept:
            pytest.fail("it was entered")
    assert (scope.cancelled_caught, block.said) == (True, ["closed"])


async def test_a_host_that_is_cancelled_is_left_in_order():
    """A scope's cancellation ends the host's code, not the order in which the block ends."""
    block = Block(end_s=0.01)
    with anyio.move_on_after(0.01) as scope:
        async with block.kept:
            await anyio.sleep_forever()
    assert (scope.cancelled_caught, block.said) == (True, ["closed"])


async def test_a_second_cancellation_hurries_it():
    """It is passed on, and waited for all the same."""
    block = Block(end_s=1000)

    async def host():
        async with block.kept:
            pass

    task = asyncio.create_task(host())
    await block.closing.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert block.said == ["hurried", "closed"]


async def test_what_leaving_raises_is_raised():
    """With the host's own error as its context."""
    block = Block(at_end=Broken())
    with pytest.raises(Broken) as caught:
        async with block.kept:
            raise ValueError
    assert isinstance(caught.value.__context__, ValueError)


async def test_another_loop_is_named():
    """To leave a block there would wait for ever."""
    block = Block()
    async with block.kept:

        def elsewhere():
            with pytest.raises(WrongLoop, check=that(comes_from="keeping.KeptContext.__aexit__")):
                asyncio.run(block.kept.__aexit__(None, None, None))

        await anyio.to_thread.run_sync(elsewhere)
    assert block.said == ["closed"]


def test_a_loop_that_ends_closes_what_nobody_left():
    """As a notebook's does."""
    block = Block()
    asyncio.run(block.kept.__aenter__())
    assert block.said == ["hurried", "closed"] or block.said == ["closed"]


def test_only_on_asyncio():
    """Other loops have no tasks that outlive their parents."""
    with pytest.raises(NeedsAsyncio):
        anyio.run(Block().kept.__aenter__, backend="trio")
