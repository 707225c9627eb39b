"""The host's side of an actor system, on both event loops: tells, asks, refusals, threads, timers."""

import sys
import threading

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from anyio.lowlevel import checkpoint
from puppet import Add, Do, Log, Read, ledger, puppet

from iriscw._errors import (
    ActorRestarted,
    ActorStopped,
    AskInsideDecision,
    AskTimeout,
    InvalidArgument,
    JournalUnavailable,
    MailboxFull,
    NoSuchActor,
    OutcomeUnknown,
    SystemClosed,
    TellInsideDecision,
    UnhandledMessage,
)
from iriscw.journal.memory import MemoryDisk, MemoryJournal
from iriscw.runtime import (
    MILLISECOND,
    ActorSystem,
    Behavior,
    ChildSpec,
    Continue,
    Decision,
    Refuse,
    Reply,
    Restart,
    SetTimer,
    StopSelf,
    Supervision,
)
from raised import that


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    """Run each test on both event loops."""
    return request.param


# Telling


async def test_tell_then_ask():
    """What was told first is decided on first; the answer is the decision's."""
    counter = Behavior(
        initial=int,
        on={
            Add: lambda state, told, ctx: Decision(state + told.amount),
            Read: lambda state, told, ctx: (Reply(state),),
        },
    )
    async with ActorSystem() as system:
        ref = system.spawn("counter", counter)
        for amount in range(10):
            ref.tell(Add(amount))
        assert await ref.ask(Read()) == 45
        assert await system.ask("/counter", Read()) == 45
        assert ref.path == "/counter"
        assert repr(ref) == "<ActorRef /counter>"


async def test_order_of_one_sender():
    """Thousands of tells, more than one step takes, arrive in order."""
    log = Log()
    async with ActorSystem() as system:
        ref = system.spawn("a", puppet(log), capacity=3_000)
        for number in range(3_000):
            ref.tell(number)
        await log.wait(3_000)
    assert log == list(range(3_000))


async def test_tell_never_runs_the_decision():
    """A tell only queues: the sender's stack holds no decision."""
    log = Log()
    async with ActorSystem() as system:
        system.spawn("a", puppet(log)).tell("x")
        assert log == []
        await log.wait()


async def test_dead_letters_are_counted():
    """A message to an actor that stopped, or to a path without one, raises nothing and is counted."""
    async with ActorSystem() as system:
        ref = system.spawn("a", puppet(), restart=Restart.TEMPORARY)
        ref.tell(Do((StopSelf(),)))
        await wait_all_tasks_blocked()
        assert not ref.alive
        ref.tell("late")
        ref.tell_latest("late", "key")
        system.tell("/nowhere", "lost")
        seen = system.statistics()
        assert (seen.dead, seen.sent, seen.delivered) == (3, 4, 1)


async def test_a_full_mailbox_refuses_by_name():
    """Tells and asks past the capacity raise MailboxFull; what waits stays, and later there is room again."""
    log = Log()
    async with ActorSystem() as system:
        ref = system.spawn("a", puppet(log), capacity=2)
        ref.tell(1)
        ref.tell(2)
        with pytest.raises(MailboxFull, check=that(comes_from="reference.ActorRef.tell", names=("/a", "2"))):
            ref.tell(3)
        with pytest.raises(MailboxFull):
            ref.tell_latest(3, "key")
        with pytest.raises(MailboxFull):
            await ref.ask(3)
        await log.wait(2)
        ref.tell(4)
        await log.wait(3)
    assert log == [1, 2, 4]


async def test_the_latest_replaces_what_waits():
    """Of one key only the latest is seen, in the place where it was sent; another key is another message."""
    log = Log()
    async with ActorSystem() as system:
        ref = system.spawn("a", puppet(log), capacity=3)
        ref.tell_latest("old", "k")
        ref.tell("plain")
        ref.tell_latest("other", "l")
        ref.tell_latest("new", "k")
        await wait_all_tasks_blocked()
        assert system.statistics().conflated == 1
        ref.tell_latest("next", "k")
        await log.wait(4)
    assert log == ["plain", "other", "new", "next"]


# Asking


async def test_an_asker_gets_what_the_decision_raised():
    """The error reaches the asker as it is, and supervision as well."""
    reports = []
    async with ActorSystem(on_event=reports.append) as system:
        ref = system.spawn("a", puppet())
        with pytest.raises(ZeroDivisionError):
            await ref.ask(Do(error=ZeroDivisionError("as told")))
        with pytest.raises(KeyError, check=that(names="refused")):
            await ref.ask(Do((Refuse(KeyError("refused")),)))
        await wait_all_tasks_blocked()
    (report,) = reports
    assert (report.path, report.incarnation, report.verdict) == ("/a", 0, "restart")
    assert type(report.error) is ZeroDivisionError
    assert report.cause == Do(error=report.error)


async def test_a_message_without_a_rule():
    """An unknown type is UnhandledMessage for the asker, naming actor and type."""
    async with ActorSystem() as system:
        ref = system.spawn("a", Behavior())
        with pytest.raises(UnhandledMessage, check=that(comes_from="behavior._unhandled", names=("/a", "Read"))):
            await ref.ask(Read())


async def test_no_answer_within_the_deadline():
    """AskTimeout; the question is forgotten, so a late answer goes nowhere."""
    kept = []
    slow = Behavior(decide=lambda state, told, ctx: kept.append(ctx.reply_to) if told == "q" else (Reply(1, kept[0]),))
    async with ActorSystem() as system:
        ref = system.spawn("a", slow)
        with pytest.raises(AskTimeout, check=that(comes_from="reference.ActorRef._wait", names=("/a", "0.01"))):
            await ref.ask("q", timeout_s=0.01)
        assert not ref._cell.slots
        ref.tell("answer")
        await wait_all_tasks_blocked()
        assert ref.alive
        assert system.statistics().failures == 0


async def test_a_late_answer_in_time():
    """An answer that was put off reaches its asker."""
    kept = []

    def decide(state, told, ctx):
        if told == "q":
            kept.append(ctx.reply_to)
            return (SetTimer("t", MILLISECOND, "now"),)
        return (Reply("late", kept[0]),)

    async with ActorSystem() as system:
        assert await system.spawn("a", Behavior(decide=decide)).ask("q") == "late"


async def test_a_cancelled_asker_leaves_nothing():
    """Cancelling an ask gives the question up."""
    async with ActorSystem() as system:
        ref = system.spawn("a", puppet())
        with anyio.move_on_after(0.01) as scope:
            await ref.ask(Do())
        assert scope.cancelled_caught
        assert not ref._cell.slots
        assert not system._driver.waiting


@pytest.mark.parametrize(
    ("how", "error"), [(Do(error=RuntimeError("x")), ActorRestarted), (Do((StopSelf(),)), ActorStopped)]
)
async def test_askers_are_told_at_once(how, error):
    """Who waits for an actor that is restarted, or stops, is told by name and does not wait for the deadline."""
    async with ActorSystem() as system:
        ref = system.spawn("a", puppet(), restart=Restart.TRANSIENT)
        failures = Log()

        async def ask():
            with pytest.raises(error):
                await ref.ask(Do(), timeout_s=3_600)
            failures.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            tasks.start_soon(ask)
            await wait_all_tasks_blocked()
            ref.tell(how)
            await failures.wait(2)


async def test_asking_the_dead():
    """A ref outlives its actor: it answers ActorStopped, also when another one took the place."""
    async with ActorSystem() as system:
        ref = system.spawn("a", puppet(), restart=Restart.TEMPORARY)
        ref.tell(Do((StopSelf(),)))
        await wait_all_tasks_blocked()
        system.spawn("a", puppet())
        with pytest.raises(ActorStopped):
            await ref.ask(Do((Reply(1),)))
        assert await system.ask("/a", Do((Reply(2),))) == 2
        with pytest.raises(NoSuchActor, check=that(comes_from="system.ActorSystem.ref", names="/b")):
            await system.ask("/b", "q")


async def test_asking_an_actor_that_is_starting():
    """A question waits until the children have started and resume has run."""
    born = []
    child = ChildSpec("child", Behavior(initial=lambda: born.append("child"), resume=lambda state, ctx: ()))
    parent = puppet(children=(child,), resume=lambda state, ctx: born.append("resume") or ())
    async with ActorSystem() as system:
        assert await system.spawn("a", parent).ask(Do((Reply("up"),))) == "up"
        assert born == ["child", "resume"]


async def test_asks_yield_to_the_host():
    """A task that asks in a loop lets others run: at least each 64 asks."""
    turns = 0
    done = False

    async def count():
        nonlocal turns
        while not done:
            turns += 1
            await checkpoint()

    async with ActorSystem() as system, anyio.create_task_group() as tasks:
        ref = system.spawn("a", puppet())
        tasks.start_soon(count)
        for _ in range(2_000):
            await ref.ask(Do((Reply(),)))
        done = True
    assert turns >= 2_000 // 64


async def test_asks_can_be_cancelled_in_a_loop():
    """A loop of asks that are answered at once still heeds its deadline."""
    async with ActorSystem() as system:
        ref = system.spawn("a", puppet())
        with anyio.move_on_after(0.05) as scope:
            while True:
                await ref.ask(Do((Reply(),)))
    assert scope.cancelled_caught


# The journal's part in it


async def test_an_answer_waits_for_the_disk():
    """What rests on a record is answered after the commit; what does not is answered meanwhile."""
    journal = MemoryJournal(MemoryDisk())
    answers = Log()
    async with ActorSystem(journal=journal) as system:
        system.spawn("a", ledger())
        system.spawn("b", puppet())

        async def add():
            answers.append(await system.ask("/a", Add(5)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(add)
            await wait_all_tasks_blocked()
            assert answers == []
            assert system.statistics().held == 1
            assert await system.ask("/b", Do((Reply("free"),))) == "free"
            journal.commit()
            await answers.wait()
    assert answers == [5]


async def test_the_outcome_is_unknown():
    """The deadline passes while the answer waits for the disk: OutcomeUnknown, not AskTimeout."""
    journal = MemoryJournal(MemoryDisk())
    async with ActorSystem(journal=journal) as system:
        system.spawn("a", ledger())
        with pytest.raises(OutcomeUnknown, check=that(comes_from="reference.ActorRef._wait")):
            await system.ask("/a", Add(5), timeout_s=0.01)


async def test_a_full_disk_refuses_by_name():
    """With a full journal an ask that needs records fails at once, retryable; reading goes on."""
    journal = MemoryJournal(MemoryDisk(), auto=True)
    async with ActorSystem(journal=journal) as system:
        system.spawn("a", ledger())
        assert await system.ask("/a", Add(1)) == 1
        journal.fill()
        with pytest.raises(JournalUnavailable) as caught:
            await system.ask("/a", Add(1))
        assert caught.value.retryable
        assert await system.ask("/a", Read()) == 1
        journal.free()
        assert await system.ask("/a", Add(1)) == 2


# Closed doors


async def test_closed_before_and_after():
    """Before it is entered and after its block a system refuses by name."""
    system = ActorSystem()
    with pytest.raises(SystemClosed):
        system.spawn("a", puppet())
    with pytest.raises(SystemClosed):
        await system.stop()
    async with system:
        ref = system.spawn("a", puppet())
        await system.stop()
        await system.stop()
        with pytest.raises(SystemClosed):
            system.spawn("b", puppet())
    for refused in (ref.tell, lambda told: ref.tell_latest(told, "k"), lambda told: system.tell("/nowhere", told)):
        with pytest.raises(SystemClosed):
            refused("late")
    with pytest.raises(SystemClosed):
        await ref.ask("late")
    with pytest.raises(SystemClosed, check=that(comes_from="system.ActorSystem.__aenter__")):
        async with system:
            pass


@pytest.mark.parametrize("name", ["", "a/b", "taken"])
async def test_impossible_names(name):
    """A name that is empty, holds a slash or is taken is refused, and nothing was started."""
    async with ActorSystem() as system:
        system.spawn("taken", puppet())
        before = system.statistics().starts
        with pytest.raises(InvalidArgument):
            system.spawn(name, puppet())
        assert system.statistics().starts == before


async def test_a_mailbox_holds_something():
    """A capacity below one is refused: such an actor could never be told anything."""
    async with ActorSystem() as system:
        with pytest.raises(InvalidArgument, check=that(comes_from="system.ActorSystem.spawn")):
            system.spawn("a", puppet(), capacity=0)


async def test_a_durable_actor_needs_a_journal():
    """Without a journal a durable actor is refused by the host's spawn."""
    async with ActorSystem() as system:
        with pytest.raises(InvalidArgument, check=that(comes_from="system.ActorSystem.spawn")):
            system.spawn("a", ledger())


# Nothing gets in while a decision runs


async def test_a_decision_cannot_use_a_ref():
    """Telling, asking, spawning in a decision raise by name; the decision can tell, and nothing was sent."""
    caught = []

    def decide(state, told, ctx):
        for attempt in (
            lambda: ref.tell("x"),
            lambda: ref.tell_latest("x", "k"),
            lambda: system.spawn("b", puppet()),
            lambda: ref.ask("x").send(None),
        ):
            try:
                attempt()
            except Exception as error:
                caught.append(type(error))

    async with ActorSystem() as system:
        ref = system.spawn("a", Behavior(decide=decide))
        ref.tell("go")
        await wait_all_tasks_blocked()
        assert caught == [TellInsideDecision, TellInsideDecision, TellInsideDecision, AskInsideDecision]
        assert system.statistics().sent == 1


async def test_a_finaliser_cannot_tell():
    """An object that is collected while a decision runs cannot tell: order never depends on the collector."""
    caught = []

    class Finalised:
        def __del__(self):
            try:
                ref.tell("x")
            except TellInsideDecision as error:
                caught.append(error)

    def decide(state, told, ctx):
        state.clear()

    async with ActorSystem() as system:
        ref = system.spawn("a", Behavior(initial=lambda: [Finalised()], decide=decide))
        ref.tell("go")
        await wait_all_tasks_blocked()
        assert len(caught) == 1


async def test_a_profiler_cannot_tell():
    """A trace hook that tells while a decision runs raises as well."""
    caught = []

    def hook(frame, event, argument):
        if event == "call" and frame.f_code.co_name == "decide":
            try:
                ref.tell("x")
            except TellInsideDecision as error:
                caught.append(error)

    def decide(state, told, ctx):
        return None

    before = sys.getprofile()
    async with ActorSystem() as system:
        ref = system.spawn("a", Behavior(decide=decide))
        sys.setprofile(hook)
        try:
            ref.tell("go")
            await wait_all_tasks_blocked()
        finally:
            sys.setprofile(before)
        assert len(caught) == 1


# Threads


async def test_threads_keep_their_order():
    """Each thread's messages arrive in the order of its calls."""
    log = Log()
    each = 200

    def tell(number):
        for count in range(each):
            ref.tell_from_thread((number, count))

    async with ActorSystem() as system:
        ref = system.spawn("a", puppet(log), capacity=10_000)
        threads = [threading.Thread(target=tell, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        await log.wait(4 * each)
        for thread in threads:
            thread.join()
    for number in range(4):
        assert [count for thread, count in log if thread == number] == list(range(each))


async def test_threads_hear_nothing_of_refusals():
    """From a thread, what a full mailbox refuses is a dead letter, and so is what comes too late."""
    async with ActorSystem() as system:
        ref = system.spawn("a", puppet(), capacity=1)
        ref.tell_from_thread(1)
        ref.tell_from_thread(2)
        await wait_all_tasks_blocked()
        seen = system.statistics()
        assert (seen.sent, seen.delivered, seen.dead) == (2, 1, 1)
    ref.tell_from_thread(3)
    await wait_all_tasks_blocked()
    assert system.statistics().dead == 2


def test_threads_outlive_the_loop():
    """A thread that tells after the event loop has gone is not harmed."""

    async def main():
        async with ActorSystem() as system:
            return system.spawn("a", puppet())

    for backend in ("asyncio", "trio"):
        anyio.run(main, backend=backend).tell_from_thread("late")


# Timers


async def test_timers_of_an_inline_ask_wake_the_system():
    """A timer that is set while the system sleeps fires, although its decision ran in the asker's task."""
    log = Log()
    async with ActorSystem() as system:
        ref = system.spawn("a", puppet(log))
        await wait_all_tasks_blocked()
        for key, attentive in (("t", False), ("u", True)):
            await ref.ask(Do((SetTimer(key, 5 * MILLISECOND, key, attentive), Reply())))
            await log.wait(len(log) + 1)
    assert log == ["t", "u"]


async def test_continue_lets_the_host_run():
    """An actor that keeps itself busy starves neither the host's tasks nor its peers."""
    busy = Behavior(decide=lambda state, told, ctx: (Continue("on"),))
    async with ActorSystem() as system:
        system.spawn("busy", busy).tell("on")
        peer = system.spawn("peer", puppet())
        for _ in range(5):
            assert await peer.ask(Do((Reply("here"),))) == "here"
            await anyio.sleep(0.001)


async def test_restarts_are_decided_by_the_given_root():
    """The root's supervision is the top level's."""
    root = puppet(supervision=Supervision(restarts=0))
    async with ActorSystem(root) as system:
        ref = system.spawn("a", puppet(), entity=True)
        ref.tell(Do(error=RuntimeError("x")))
        await wait_all_tasks_blocked()
        assert not ref.alive
        assert system.statistics().quarantined == 1
