"""The virtual loop: its order, its clock, and what it refuses."""

import asyncio
import math
import threading

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from hypothesis import given, strategies as st

from iriscw._errors import InvalidArgument
from iriscw_sims.transport.errors import CallbackFailed, HorizonPassed, SpinningLoop, StuckLoop, Unsimulated
from iriscw_sims.transport.loop import SteadyTask, Threads, VirtualLoop
from iriscw_sims.transport.network import Network
from iriscw_sims.transport.run import simulate
from raised import that


def run(main, **options):
    """Run a coroutine function without arguments on a loop of its own."""

    async def with_network(_: Network) -> object:
        return await main()

    return simulate(with_network, **options)


@given(st.lists(st.integers(0, 5), max_size=30))
def test_timers_fire_in_the_order_of_time_then_number(delays) -> None:
    """Timers of one instant fire in the order in which they were set, and the clock says their time."""
    loop = VirtualLoop()
    fired: list[tuple[float, int]] = []
    for number, delay in enumerate(delays):
        loop.call_later(delay, lambda number=number: fired.append((loop.time(), number)))
    loop.call_later(6, loop.stop)
    loop.run_forever()
    assert fired == sorted((float(delay), number) for number, delay in enumerate(delays))


@given(st.floats(0, 1e7), st.floats(0, 1e-3))
def test_no_timer_is_early(begin, delay) -> None:
    """Whoever is woken at a time finds that it has come, however the float rounds."""
    loop = VirtualLoop(horizon_s=2e7)
    seen: list[bool] = []

    def later() -> None:
        when = loop.time() + delay
        loop.call_at(when, lambda: (seen.append(loop.time() >= when), loop.stop()))

    loop.call_later(begin, later)
    loop.run_forever()
    assert seen == [True]


def test_callbacks_run_in_order_and_time_stands_still() -> None:
    """What is ready runs first, in order; a day passes in no wall time."""
    loop = VirtualLoop()
    order: list[str] = []
    loop.call_later(86_400, lambda: (order.append("day"), loop.stop()))
    loop.call_soon(lambda: (order.append("a"), loop.call_soon(order.append, "c")))
    loop.call_soon(order.append, "b")
    loop.call_later(1, order.append, "never").cancel()
    loop.run_forever()
    assert order == ["a", "b", "c", "day"]
    assert loop.time() == 86_400


def test_a_stuck_loop_says_who_waits_for_what() -> None:
    """Tasks that wait for each other end the run, by name and line, instead of hanging it."""

    async def wait_for_the_other(event: anyio.Event) -> None:
        await event.wait()

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_for_the_other, anyio.Event(), name="the one")
            tasks.start_soon(anyio.sleep_forever, name="the other")

    with pytest.raises(
        StuckLoop,
        check=that(
            comes_from="loop.VirtualLoop._advance",
            names=("one:", "test_loop.py", "wait_for_the_other"),
        ),
    ):
        run(main)


def test_a_spinning_loop_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callbacks without end, in which no time passes, end the run."""
    monkeypatch.setattr("iriscw_sims.transport.loop.MAX_CALLBACKS_PER_INSTANT", 1000)

    async def spin() -> None:
        while True:
            await anyio.lowlevel.checkpoint()

    with pytest.raises(SpinningLoop, check=that(comes_from="loop.VirtualLoop._turn", names=("1000", "0"))):
        run(spin)


def test_the_horizon() -> None:
    """A run that goes on for longer than it may is ended, and says what it did."""

    async def beat() -> None:
        while True:  # noqa: ASYNC110 - it waits for nothing
            await anyio.sleep(10)

    with pytest.raises(
        HorizonPassed,
        check=that(
            comes_from="loop.VirtualLoop._advance",
            names=("60", "beat"),
        ),
    ):
        run(beat, horizon_s=60)
    with pytest.raises(InvalidArgument, check=that(comes_from="loop.VirtualLoop.__init__")):
        VirtualLoop(horizon_s=0)


@pytest.mark.parametrize("thread", [anyio.to_thread.run_sync, asyncio.to_thread])
def test_threads(thread) -> None:
    """A function that is to run in a thread runs inline where that was declared, errors included, else not at all."""

    async def main() -> int:
        with pytest.raises(ZeroDivisionError):
            await thread(lambda: 1 // 0)
        return await thread(threading.get_ident)

    assert run(main, threads=Threads.INLINE).result == threading.get_ident()
    with pytest.raises(Unsimulated, check=that(comes_from="loop.VirtualLoop.require_inline")):
        run(main)


def test_another_thread_may_not_call_in() -> None:
    """A call from this thread is scheduled like any other; one from another thread has no place in the order."""

    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        got: list[str] = []
        loop.call_soon_threadsafe(got.append, "own")

        def foreign() -> None:
            try:
                loop.call_soon_threadsafe(got.append, "foreign")
            except Unsimulated as error:
                got.append(str(error)[:14])

        thread = threading.Thread(target=foreign)
        thread.start()
        thread.join()
        await anyio.sleep(1)
        return got

    assert run(main).result == ["another thread", "own"]


async def _real_socket() -> None:
    await anyio.wait_readable(0)


async def _process() -> None:
    await asyncio.create_subprocess_exec("true")


async def _unix() -> None:
    await asyncio.open_unix_connection("/x")


async def _tls() -> None:
    await asyncio.open_connection("127.0.0.1", 1, ssl=True)


@pytest.mark.parametrize("reach", [_real_socket, _process, _unix, _tls])
def test_the_machine_is_out_of_reach(reach) -> None:
    """Real descriptors, processes, unix sockets and TLS are refused by name."""
    with pytest.raises(Unsimulated):
        run(reach)


def test_failures_nobody_saw() -> None:
    """A callback that raises, or a task whose error nobody takes, fails the run when it has ended."""

    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        task = asyncio.ensure_future(_fail())
        await anyio.sleep(1)
        del task

    async def _fail() -> None:
        raise LookupError("nobody looks")

    with pytest.raises(
        CallbackFailed, check=that(comes_from="run.simulate", names=("ZeroDivisionError", "SteadyTask", "LookupError"))
    ):
        run(main)


def test_lost_generators_are_closed_by_the_loop() -> None:
    """An asynchronous generator that its reader left is closed in a task, as with asyncio; others at the end."""
    closed: list[float] = []
    held: list[object] = []

    async def numbers():
        try:
            yield 1
            yield 2
        finally:
            await anyio.sleep(1)
            closed.append(anyio.current_time())

    async def main() -> None:
        async for _ in numbers():
            break
        await anyio.sleep(2)
        held.append(kept := numbers())
        await anext(kept)
        closed.append(-1)

    run(main)
    assert closed == [1.0, -1, 3.0]


def test_a_closed_loop_takes_nothing() -> None:
    """As with asyncio's own; and tasks have their numbers for hashes."""
    loop = VirtualLoop()

    async def nothing() -> int:
        return hash(asyncio.current_task())

    assert loop.run_until_complete(nothing()) == 1
    coroutine = nothing()
    assert isinstance(loop.create_task(coroutine), SteadyTask)
    coroutine.close()
    loop.close()
    with pytest.raises(RuntimeError, check=that(comes_from="loop.VirtualLoop._check_open")):
        loop.call_soon(print)
    assert loop.is_closed()
    assert math.isfinite(loop.time())
