"""How a system ends, on both event loops: ordered stop, cancellation, escalation, bugs, a lost journal."""

# ruff: noqa: PT012 - what has to raise is the whole block, with the error inside it

import asyncio
import gc
import threading
import time
from contextlib import AsyncExitStack

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from puppet import Add, Do, Job, Log, Read, ledger, puppet

from iriscw._errors import ActorStopped, JournalLost, OutcomeUnknown, RestartsExhausted, SystemClosed, WrongTask
from iriscw.journal.memory import MemoryDisk, MemoryJournal
from iriscw.journal.sqlite import SqliteJournal
from iriscw.runtime import (
    MICROSECOND,
    MILLISECOND,
    SECOND,
    ActorSystem,
    Backoff,
    Behavior,
    ChildSpec,
    Emit,
    FailureReport,
    Reply,
    Restart,
    Run,
    SetTimer,
    Shutdown,
    StopSelf,
    Supervision,
    delivery,
    dispatcher,
)
from iriscw.runtime.dispatcher import Dispatcher
from iriscw.runtime.edge.driver import SystemClock
from raised import that


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    """Run each test on both event loops."""
    return request.param


def ends(system):
    """Note the end of each actor, in order."""
    order = []
    finish = system._dispatcher.lifecycle._finish

    def spy(cell, reason):
        order.append(str(cell.path))
        finish(cell, reason)

    system._dispatcher.lifecycle._finish = spy
    return order


def lingering(order, name, seconds):
    """Give a behavior with one effect that takes so long to heed its cancel."""

    async def linger(job):
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(seconds)
                order.append(f"effect of {name}")

    return puppet(effects={Job: linger}, resume=lambda state, ctx: (Run("k", Job()),))


class Skewed(SystemClock):
    """A clock that a test can put forward."""

    ahead = 0

    def now(self):
        return SystemClock.now() + self.ahead


async def the_end():
    """Wait for the block to be cancelled, as it must be."""
    with anyio.fail_after(10):
        await anyio.sleep_forever()


class Boom(Exception):
    """Raised by tests."""


# The ordered stop


async def test_stop_is_in_reverse_order():
    """Last started, first stopped, all the way down; each actor's effects end before it does."""
    async with ActorSystem() as system:
        order = ends(system)
        inner = puppet(children=(ChildSpec("x", puppet()), ChildSpec("y", lingering(order, "y", 0.01))))
        system.spawn("a", inner)
        system.spawn("b", lingering(order, "b", 0.01))
        await wait_all_tasks_blocked()
    assert order == ["effect of b", "/b", "effect of y", "/a/y", "/a/x", "/a", "/"]
    seen = system.statistics()
    assert (seen.live, seen.starts, seen.operations) == (0, seen.stops, 0)


async def test_what_waits_at_the_stop():
    """STOP makes dead letters of what waits; STOP_AFTER_MAILBOX decides on it first."""
    log, dropped = Log(), Log()
    async with ActorSystem() as system:
        patient = system.spawn("patient", puppet(log), shutdown=Shutdown.STOP_AFTER_MAILBOX)
        hasty = system.spawn("hasty", puppet(dropped))
        for number in range(200):
            patient.tell(number)
            hasty.tell(number)
    assert log == list(range(200))
    assert dropped == []
    assert system.statistics().dead == 200


async def test_a_budget_that_is_over():
    """An actor whose effect does not heed its cancel is gone when its budget is; the block waits for the task."""
    order = []
    async with ActorSystem() as system:
        order = ends(system)
        system.spawn("first", puppet())
        system.spawn("slow", lingering(order, "slow", 0.2), shutdown_budget_s=0.02)
        await wait_all_tasks_blocked()
    assert order == ["/slow", "/first", "/", "effect of slow"]


async def test_the_grace_bounds_everything():
    """The whole stop is forced when the system's grace is over, whatever the actors' own budgets say."""
    async with ActorSystem(grace_s=0.02) as system:
        order = ends(system)
        system.spawn("first", puppet())
        system.spawn("slow", lingering(order, "slow", 0.2), shutdown_budget_s=3_600)
        await wait_all_tasks_blocked()
    assert order == ["/slow", "/first", "/", "effect of slow"]


async def test_the_grace_counts_from_the_stop():
    """A system that slept for longer than its grace still stops in order: the budget is not used up by sleeping."""
    system = ActorSystem(grace_s=5)
    clock = system._dispatcher.clock = Skewed()
    async with system:
        order = ends(system)
        system.spawn("slow", lingering(order, "slow", 0.02), shutdown_budget_s=4)
        await wait_all_tasks_blocked()
        clock.ahead = 60 * SECOND
    assert order == ["effect of slow", "/slow", "/"]


async def test_timers_count_from_the_ask():
    """A timer that a start sets in an inline ask, after a long sleep of the system, is not due at once."""
    log = Log()
    late = puppet(log, resume=lambda state, ctx: (SetTimer("t", 50 * SECOND, "due"),))
    system = ActorSystem()
    clock = system._dispatcher.clock = Skewed()
    async with system:
        await wait_all_tasks_blocked()
        clock.ahead = 60 * SECOND
        ref = system.spawn("a", late)
        assert await ref.ask(Do((Reply("up"),))) == "up"
        await wait_all_tasks_blocked()
        assert log == []


async def test_cancellation_of_the_host():
    """The host's scope is cancelled: the actors still stop in order, within the grace, and the scope ends."""
    order = []
    with anyio.CancelScope() as scope:
        async with ActorSystem() as system:
            order = ends(system)
            system.spawn("a", lingering(order, "a", 0.01))
            system.spawn("b", puppet())
            await wait_all_tasks_blocked()
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert order == ["/b", "effect of a", "/a", "/"]


async def test_an_error_of_the_block():
    """The block's own error leaves as it is, after an ordered stop."""
    order = []
    with pytest.raises(Boom):
        async with ActorSystem() as system:
            order = ends(system)
            system.spawn("a", lingering(order, "a", 0.01))
            await wait_all_tasks_blocked()
            raise Boom
    assert order == ["effect of a", "/a", "/"]


async def test_the_root_may_stop_itself():
    """A root that stops itself ends the system in order, without an error; the host meets closed doors."""
    async with ActorSystem(puppet()) as system:
        order = ends(system)
        ref = system.spawn("a", puppet())
        system.tell("/", Do((StopSelf(),)))
        await wait_all_tasks_blocked()
        assert order == ["/a", "/"]
        with pytest.raises(SystemClosed):
            ref.tell("late")
        assert system.failure is None


# Ends that nobody asked for


async def test_escalation_past_the_root():
    """What the root cannot contain raises from the block, in a group, with its cause; the block is cancelled."""
    reports = []
    with pytest.raises(ExceptionGroup) as caught:
        async with ActorSystem(puppet(supervision=Supervision(restarts=1)), on_event=reports.append) as system:
            ref = system.spawn("a", puppet())
            for _ in range(2):
                ref.tell(Do(error=Boom("poison")))
                await wait_all_tasks_blocked()
            await the_end()
    (error,) = caught.value.exceptions
    assert type(error) is RestartsExhausted
    assert type(error.__cause__) is Boom
    assert system.failure is error
    assert [(report.path, report.verdict) for report in reports] == [
        ("/a", "restart"),
        ("/a", "escalate"),
        ("/", "escalate"),
    ]


async def test_a_root_that_raises():
    """The root's own failure raises from the block."""
    with pytest.raises(ExceptionGroup) as caught:
        async with ActorSystem(puppet()) as system:
            system.tell("/", Do(error=Boom()))
            await the_end()
    assert [type(error) for error in caught.value.exceptions] == [Boom]


async def test_a_bug_of_the_dispatcher_crashes_the_block(monkeypatch):
    """An exception of the dispatcher itself is never kept quiet: it raises from the block."""

    def buggy(*words, **options):
        raise Boom("in the dispatcher")

    with pytest.raises(ExceptionGroup) as caught:
        async with ActorSystem() as system:
            ref = system.spawn("a", puppet())
            monkeypatch.setattr(Dispatcher, "_turns", buggy)
            ref.tell("x")
            await the_end()
    assert caught.group_contains(Boom)


@pytest.mark.parametrize("waiting", [False, True])
async def test_a_bug_in_an_ask_crashes_the_block(monkeypatch, waiting):
    """A bug that shows in an asker's task is raised there and from the block, even if the asker caught it."""

    def buggy(*words, **options):
        raise Boom("in the dispatcher")

    with pytest.raises(ExceptionGroup) as caught:
        async with ActorSystem() as system:
            ref = system.spawn("a", puppet())
            for module in (dispatcher, delivery):
                monkeypatch.setattr(module, "question", buggy)
            if waiting:
                ref.tell("before")  # so that the question is queued, and the asker drives the dispatcher
            with pytest.raises(Boom):
                await ref.ask("x")
            await the_end()
    assert caught.group_contains(Boom)


async def test_a_listener_that_raises_crashes_the_block():
    """Events are not dropped quietly: what the listener raises comes out of the block."""

    def listen(event):
        raise Boom(event)

    with pytest.raises(ExceptionGroup) as caught:
        async with ActorSystem(on_event=listen) as system:
            system.spawn("a", puppet()).tell(Do((Emit("news"),)))
            await the_end()
    assert caught.group_contains(Boom)


async def test_foreign_askers_hear_of_the_end():
    """An asker outside the block does not wait for its deadline when the system crashes."""
    failed = Log()
    refs = []

    async def ask():
        with pytest.raises(ActorStopped):
            await refs[0].ask(Do(), timeout_s=3_600)
        failed.append("told")

    async with anyio.create_task_group() as tasks:
        with pytest.raises(ExceptionGroup):
            async with ActorSystem(puppet()) as system:
                refs.append(system.spawn("a", puppet()))
                tasks.start_soon(ask)
                await wait_all_tasks_blocked()
                system.tell("/", Do(error=Boom()))
                await the_end()
        await failed.wait()


# The journal


async def test_a_lost_journal_ends_the_block():
    """A failed sync ends the system with JournalLost; who waits for it does not know the outcome."""
    journal = MemoryJournal(MemoryDisk())
    unknown = Log()
    refs = []

    async def ask():
        with pytest.raises(OutcomeUnknown):
            await refs[0].ask(Add(1), timeout_s=3_600)
        unknown.append("told")

    async with anyio.create_task_group() as tasks:
        with pytest.raises(ExceptionGroup) as caught:
            async with ActorSystem(journal=journal) as system:
                refs.append(system.spawn("a", ledger()))
                tasks.start_soon(ask)
                await wait_all_tasks_blocked()
                journal.lose()
                await the_end()
        await unknown.wait()
    assert [type(error) for error in caught.value.exceptions] == [JournalLost]
    assert type(system.failure) is JournalLost


async def test_a_real_journal_survives_the_process(tmp_path):
    """A durable counter on a real disk goes on where it was: what was answered is there."""
    for boot in range(3):
        journal = SqliteJournal.open(tmp_path / "journal")
        try:
            async with ActorSystem(journal=journal) as system:
                ref = system.spawn("ledger", ledger())
                assert await ref.ask(Read()) == boot * 10
                answers = []

                async def add(ref=ref, answers=answers):
                    answers.append(await ref.ask(Add(1)))

                async with anyio.create_task_group() as tasks:
                    for _ in range(10):
                        tasks.start_soon(add)
                assert sorted(answers) == [boot * 10 + count for count in range(1, 11)]
        finally:
            journal.close()


# Side by side, and what is left


async def test_two_systems_in_one_host():
    """Systems share nothing: same paths, own actors, own ends."""
    async with ActorSystem(name="outer") as outer:
        kept = outer.spawn("a", puppet())
        async with ActorSystem(name="inner") as inner:
            inner.spawn("a", puppet())
            assert await inner.ask("/a", Do((Reply("inner"),))) == "inner"
            assert await kept.ask(Do((Reply("outer"),))) == "outer"
        assert await kept.ask(Do((Reply("still"),))) == "still"


async def test_one_system_crashes_the_other_goes_on():
    """The end of one system is not the other's."""
    async with ActorSystem() as outer:
        kept = outer.spawn("a", puppet())
        with pytest.raises(ExceptionGroup):
            async with ActorSystem(puppet()) as inner:
                inner.tell("/", Do(error=Boom()))
                await the_end()
        assert await kept.ask(Do((Reply("still"),))) == "still"


async def test_ten_thousand_actors():
    """They start, are told, and stop in order, within steps that let the host run; nothing is left over."""
    log = []
    quiet = Behavior(decide=lambda state, told, ctx: log.append(told))
    async with ActorSystem(grace_s=60) as system:
        for number in range(10_000):
            system.spawn(str(number), quiet).tell(number)
        await wait_all_tasks_blocked()
        assert log == list(range(10_000))
        assert system.statistics().live == 10_001
    seen = system.statistics()
    assert (seen.live, seen.stops, seen.dead) == (0, 10_001, 0)


async def test_nothing_is_left_behind():
    """After the block there are the tasks and threads that were there before."""

    async def wait(job, *port):
        await anyio.sleep_forever()

    tasks = {task.id for task in anyio.get_running_tasks()}
    threads = threading.active_count()
    async with ActorSystem() as system:
        for number in range(5):
            ref = system.spawn(str(number), puppet(effects={Job: wait}))
            ref.tell(Do((Run("k", Job()),)))
        await wait_all_tasks_blocked()
        assert len(anyio.get_running_tasks()) == len(tasks) + 6
    assert {task.id for task in anyio.get_running_tasks()} == tasks
    assert threading.active_count() == threads
    gc.collect()  # an object that complains when it is collected fails the test: warnings are errors


async def test_restarts_use_the_real_clock():
    """A restart comes no earlier than its backoff says, and meanwhile messages wait."""
    log = Log()
    rules = Supervision(backoff=Backoff(50 * MILLISECOND, jitter=0.0))
    async with ActorSystem(puppet(supervision=rules)) as system:
        ref = system.spawn("a", puppet(log))
        began = time.monotonic_ns()
        ref.tell(Do(error=Boom()))
        ref.tell("kept")
        await log.wait()
        waited = time.monotonic_ns() - began
    assert log == ["kept"]
    assert waited >= 50 * MILLISECOND
    assert system.statistics().restarts == 1


async def test_a_stall_of_ours_counts_as_a_second():
    """The process stands still for a minute: plain timers are due, attentive ones lose one second at most."""
    log = Log()
    system = ActorSystem()
    clock = system._dispatcher.clock = Skewed()
    async with system:
        ref = system.spawn("a", puppet(log))
        await ref.ask(
            Do((SetTimer("p", 30 * SECOND, "plain"), SetTimer("a", 30 * SECOND, "attentive", attentive=True), Reply()))
        )
        before = system._dispatcher.attentive
        clock.ahead = 60 * SECOND
        system._driver.wake()
        await log.wait()
        passed = system._dispatcher.attentive - before
        assert log == ["plain"]
        assert SECOND <= passed < 2 * SECOND


async def test_idle_time_is_not_a_stall():
    """Once a decision has read the attentive clock, the system wakes often enough to tell idle time from a stall."""
    clocks = Log()

    def decide(state, told, ctx):
        clocks.append((ctx.now, ctx.attentive))

    async with ActorSystem() as system:
        ref = system.spawn("a", Behavior(decide=decide))
        ref.tell("first")
        await clocks.wait(1)  # the time asleep counts from the decision, not from the message
        await anyio.sleep(1.3)
        ref.tell("second")
        await clocks.wait(2)
    (now, attentive), (later, later_attentive) = clocks
    assert later - now >= 1.3 * SECOND
    assert abs((later - now) - (later_attentive - attentive)) < 200 * MILLISECOND


async def test_reports_name_the_system():
    """A failure report says which system, actor, incarnation, message and verdict."""
    reports = []
    async with ActorSystem(name="lab", on_event=reports.append) as system:
        ref = system.spawn("a", puppet(), restart=Restart.TEMPORARY)
        failing = Do(error=Boom("x"))
        ref.tell(failing)
        await wait_all_tasks_blocked()
    assert reports == [FailureReport("lab", ref.path, 0, failing, failing.error, "stop")]


async def test_slow_turns_are_named():
    """A decision that holds everybody up is counted, with its actor and how long it took."""
    system = ActorSystem()
    clock = system._dispatcher.clock = Skewed()

    def slow(state, told, ctx):
        clock.ahead += 80 * MILLISECOND

    async with system:
        system.spawn("quick", puppet()).tell("x")
        system.spawn("slow", Behavior(decide=slow)).tell("x")
        await wait_all_tasks_blocked()
        seen = system.statistics()
    assert (seen.slow_turns, seen.slowest_actor) == (1, "/slow")
    assert 80 * MILLISECOND <= seen.slowest_turn_ns < 10 * SECOND
    assert seen.slowest_turn_ns > MICROSECOND


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_stop_that_is_cut_waits_for_its_tasks(anyio_backend):
    """asyncio's own cancellation during the stop comes out once, after the end, and no exit stack spins on it."""
    order = []

    async def host():
        async with AsyncExitStack() as stack:  # two levels: contextlib's loop showed only in the outer one
            outer = await stack.enter_async_context(AsyncExitStack())
            system = await outer.enter_async_context(ActorSystem(grace_s=5.0))
            system.spawn("slow", lingering(order, "slow", 0.05))
            outer.push_async_callback(anyio.sleep_forever)  # where the second cancellation arrives
            inside.set()
            await anyio.sleep_forever()

    inside = anyio.Event()
    task = asyncio.create_task(host())
    await inside.wait()
    task.cancel()
    await wait_all_tasks_blocked()
    task.cancel()
    await wait_all_tasks_blocked()
    task.cancel()  # while the system stops
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    seen, error = [], caught.value
    while error is not None:
        assert error not in seen
        seen.append(error)
        error = error.__context__


async def test_another_task_that_leaves_is_told():
    """It stops the actors, in order, and says so; whoever entered can leave all the same."""
    system = ActorSystem(name="shop")
    order = ends(system)
    left = anyio.Event()

    async def host(*, task_status):
        async with system:
            system.spawn("a", puppet())
            system.spawn("b", puppet())
            task_status.started()
            await left.wait()

    async with anyio.create_task_group() as tasks:
        await tasks.start(host)
        with pytest.raises(WrongTask, check=that(comes_from="system.ActorSystem.__aexit__", names="shop")):
            await system.__aexit__(None, None, None)
        assert [each.rpartition("/")[2] for each in map(str, order)] == ["b", "a", ""]
        with pytest.raises(SystemClosed):
            system.spawn("c", puppet())
        left.set()
