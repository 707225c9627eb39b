"""What is no ``Exception`` ends the actor whose code raised it, and nobody else (INV-R7)."""

import asyncio

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from puppet import Added, Do, Job, Log, Read, puppet

from iriscw._errors import StrayExit
from iriscw.journal.memory import MemoryDisk, MemoryJournal
from iriscw.runtime import (
    ActorSystem,
    Behavior,
    Cancel,
    Closed,
    Completed,
    Decision,
    Emit,
    Failed,
    FailureReport,
    Open,
    Reply,
    Run,
)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    """Run each test on both event loops."""
    return request.param


class Panic(BaseException):
    """What libraries in other languages raise, so that nobody catches it by mistake."""


async def stray():
    """Raise a cancellation whose scope was left long ago, as a shared look-up does whose first waiter left."""
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class() as cancelled:
            kept = cancelled
            raise
    raise kept


async def exits():
    """Raise what ``sys.exit`` raises."""
    raise SystemExit(2)


async def panics():
    """Raise an exception of a kind of its own."""
    raise Panic("index out of range")


async def several():
    """Raise a group that no ``except Exception`` catches."""
    raise BaseExceptionGroup("two", [ValueError(), Panic()])


async def of_a_future():
    """Wait for somebody else's future, which is cancelled."""
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def of_itself():
    """Cancel the task that runs this."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


EVERYWHERE = [stray, exits, panics, several]
ASYNCIO = [of_a_future, of_itself]


def performing(function):
    """Return an effect, and a session, that does this if its job is called bad."""

    async def perform(job, port=None):
        if job.name == "bad":
            await function()
        return "well"

    return perform


@pytest.mark.parametrize("function", [*EVERYWHERE, *ASYNCIO])
@pytest.mark.parametrize("command", [Run, Open])
async def test_an_effect(function, command, anyio_backend):
    """It fails as an effect or session; the actor is told, its other effects and its neighbours go on."""
    if function in ASYNCIO and anyio_backend != "asyncio":
        pytest.skip("futures and tasks of asyncio's")
    log = Log()
    perform = performing(function)
    async with ActorSystem() as system:
        first = system.spawn("a", puppet(log, effects={Job: perform}, sessions={Job: perform}))
        other = system.spawn("b", Behavior(initial=int, on={Read: lambda state, read, ctx: (Reply(7),)}))
        first.tell(Do((command("k", Job("bad")),)))
        await log.wait()
        assert await other.ask(Read()) == 7
        first.tell(Do((Run("l", Job("good")),)))
        await log.wait(2)
        assert system.statistics().operations == 0
    assert type(log[0]) is (Failed if command is Run else Closed)
    assert type(log[0].error) is StrayExit
    assert isinstance(log[0].error.__cause__, BaseException)
    assert log[1] == Completed("l", Job("good"), "well")


@pytest.mark.parametrize("function", [*EVERYWHERE, of_a_future])
async def test_an_effect_that_is_cancelled(function, anyio_backend):
    """What it raises after it was given up ends nobody; the next effect of its key begins."""
    if function in ASYNCIO and anyio_backend != "asyncio":
        pytest.skip("futures of asyncio's")

    async def perform(job):
        try:
            await anyio.sleep(0 if job.name == "next" else 3_600)
        finally:
            if job.name != "next":
                with anyio.CancelScope(shield=True):
                    await function()

    log = Log()
    async with ActorSystem() as system:
        ref = system.spawn("a", puppet(log, effects={Job: perform}))
        ref.tell(Do((Run("k", Job()),)))
        await wait_all_tasks_blocked()
        ref.tell(Do((Cancel("k"),)))
        await wait_all_tasks_blocked()
        assert system.statistics().operations == 0
        ref.tell(Do((Run("k", Job("next")),)))
        await log.wait()
    assert log == [Completed("k", Job("next"), None)]


CANCELLED = asyncio.CancelledError("of a future")


@pytest.mark.parametrize("error", [CANCELLED, SystemExit(1), Panic("x")])
async def test_a_decision(error):
    """It is that actor's failure: reported with its message, told to the asker, and the actor is restarted."""
    reports = []
    async with ActorSystem(on_event=reports.append) as system:
        first, other = system.spawn("a", puppet()), system.spawn("b", puppet())
        with pytest.raises(StrayExit) as told:
            await first.ask(Do(error=error))
        first.tell(Do(error=error))
        await wait_all_tasks_blocked()
        assert await first.ask(Do((Reply(1),))) == 1
        assert await other.ask(Do((Reply(2),))) == 2
        assert system.statistics().failures == 2
    assert told.value.__cause__ is error
    assert [(type(each), type(each.error), each.verdict) for each in reports] == [
        (FailureReport, StrayExit, "restart")
    ] * 2


async def test_a_beginning():
    """An actor whose initial state cannot be made fails, and its siblings go on."""

    def initial():
        raise SystemExit("no licence")

    reports = []
    async with ActorSystem(on_event=reports.append) as system:
        other = system.spawn("b", puppet())
        system.spawn("a", Behavior(initial=initial), entity=True)
        await wait_all_tasks_blocked()
        assert await other.ask(Do((Reply(2),))) == 2
    assert reports
    assert {type(each.error) for each in reports} == {StrayExit}


async def test_resuming_and_records():
    """What restarts an actor, applies its records or compacts them may raise anything: that actor's failure."""

    def evolve(state, fact):
        if fact.amount < 0:
            raise Panic("negative")

    journal = MemoryJournal(MemoryDisk())
    reports = []
    async with ActorSystem(on_event=reports.append, journal=journal) as system:
        durable = Behavior(
            initial=int,
            on={Do: lambda state, do, ctx: Decision(records=do.commands)},
            evolve=evolve,
        )
        ref = system.spawn("a", durable, entity=True)
        with pytest.raises(StrayExit):
            await ref.ask(Do((Added(-1),)))
        ref.tell(Do((Added(1),)))
        await wait_all_tasks_blocked()
        journal.commit()
        assert list(journal.read("/a")) == [Added(1)]  # what cannot be applied was not written

        def resume(state, ctx):
            raise SystemExit

        system.spawn("c", Behavior(initial=int, resume=resume), entity=True)
        await wait_all_tasks_blocked()
        ref.tell(Do((Added(2),)))
        await wait_all_tasks_blocked()
        journal.commit()
        assert list(journal.read("/a")) == [Added(1), Added(2)]
    assert {type(each.error) for each in reports} == {StrayExit}


async def hosted(command, on_event=None, **options):
    """Have an actor carry a command out, in a host that waits for ever."""
    async with ActorSystem(on_event=on_event) as system:
        system.spawn("a", puppet(**options)).tell(Do((command,)))
        await anyio.sleep_forever()


async def test_a_listener():
    """A listener that raises it crashes the host's block, by name: it is not taken for the host's own cancellation."""

    def on_event(event):
        raise CANCELLED

    with pytest.raises(BaseExceptionGroup) as caught:
        await hosted(Emit("news"), on_event=on_event)
    assert caught.group_contains(StrayExit)


async def test_an_interrupt_is_a_persons():
    """It is nobody's failure: it goes through."""

    async def perform(job):
        raise KeyboardInterrupt

    if anyio.get_cancelled_exc_class() is asyncio.CancelledError:
        pytest.skip("asyncio takes it out of the loop before anybody sees it")
    with pytest.raises(BaseExceptionGroup) as caught:
        await hosted(Run("k", Job()), effects={Job: perform})
    assert caught.group_contains(KeyboardInterrupt)
