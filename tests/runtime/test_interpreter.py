"""Every command: what it does, and each form of it that is refused. A decision's commands happen all or not at all."""

import pytest
from puppet import Add, Added, Do, Job, Read, ledger, puppet

from iriscw._errors import ActorStopped, AskTimeout, InvalidDecision, MailboxFull
from iriscw.journal.records import record
from iriscw.runtime import (
    KEEP,
    SECOND,
    ActorPath,
    Arrived,
    Backoff,
    Behavior,
    Cancel,
    CancelTimer,
    ChildFailed,
    ChildSpec,
    Close,
    Completed,
    Continue,
    Decision,
    Emit,
    Feed,
    FeedRefused,
    Forget,
    Open,
    Refuse,
    Replied,
    Reply,
    ReplyTo,
    Request,
    RequestFailed,
    Restart,
    ReviveChild,
    Run,
    SetTimer,
    Spawn,
    Stash,
    StopChild,
    StopReason,
    StopSelf,
    Supervision,
    Tell,
    Terminated,
    Undelivered,
    Unstash,
    Unwatch,
    Watch,
    message,
)
from iriscw.runtime.dispatcher import Dispatcher
from iriscw.runtime.edge.driver import SystemClock
from iriscw.runtime.interpreter import MAX_COMMANDS, MAX_SESSION_ITEMS
from iriscw.runtime.tree import Tree
from iriscw.runtime.vocabulary import ROOT
from iriscw.testing import SimSystem, checks

A, B = ActorPath("/a"), ActorPath("/b")


@record("test.interpreter_unbearable")
@message
class Unbearable:
    """A fact that ``evolve`` cannot apply."""


@message
class Unwritten:
    """A fact that nobody declared as a record."""


async def _never(*words):
    raise NotImplementedError


def system(log=None, **options):
    """Return a checked system with a puppet at ``/a`` that keeps a log."""
    made = SimSystem(puppet(supervision=Supervision(restarts=1_000, backoff=Backoff(maximum=1))), **options)
    checks.watch(made.simulation)
    made.spawn("a", puppet(log, effects={Job: _never}, sessions={Job: _never}))
    made.run_until_idle()
    return made


def do(made, *commands, path="/a"):
    """Have the puppet carry these out."""
    made.tell(path, Do(commands))
    made.run_until_idle()


# All or nothing

GOOD = (
    Tell(B, "sent"),
    SetTimer("t", SECOND, "due"),
    Spawn(ChildSpec("child", Behavior())),
    Emit("event"),
    Run("k", Job()),
    Open("s", Job()),
    Watch(B),
    Request(B, "asked", "q", SECOND),
    Continue("on"),
    StopSelf(),
)

BAD = {
    "no command": "stop",
    "a class": StopSelf,
    "a message": Do(),
    "no spec": Spawn("child"),
    "no name": Spawn(ChildSpec("", Behavior())),
    "a path as a name": Spawn(ChildSpec("a/b", Behavior())),
    "a name that is taken": Spawn(ChildSpec("taken", Behavior())),
    "a name twice": Spawn(ChildSpec("child", Behavior())),
    "no room": Spawn(ChildSpec("tight", Behavior(), capacity=0)),
    "a past timer": SetTimer("u", -1, "due"),
    "seconds as a float": SetTimer("u", 0.5, "due"),
    "a flag for a time": SetTimer("u", True, "due"),
    "a timer without a name": SetTimer([], 1, "due"),
    "no time to answer": Request(B, "q", "r", 0),
    "a float deadline": Request(B, "q", "r", 1.0),
    "a request without a key": Request(B, "q", [], SECOND),
    "a request to a list": Request(["/b"], "q", "r", SECOND),
    "an unknown effect": Run("l", "job"),
    "an effect without a key": Run({}, Job()),
    "an unknown session": Open("l", "job"),
    "a session without a key": Open([], Job()),
    "no inbound room": Open("l", Job(), inbound=0),
    "no outbound room": Open("l", Job(), outbound=0),
    "too much room": Open("l", Job(), inbound=MAX_SESSION_ITEMS + 1),
    "a tell to a list": Tell(["/b"], "x"),
    "a tell under a list": Tell(B, "x", conflate=[]),
    "a watch on a list": Watch(["/b"]),
    "an unwatch of a list": Unwatch(["/b"]),
    "a cancel of a list": Cancel([]),
    "a timer of a list": CancelTimer([]),
    "a feed to a list": Feed([], "item"),
    "a close of a list": Close([]),
    "a child of a list": StopChild([]),
    "a revival of a list": ReviveChild([]),
    "an answer to nobody": Reply(1),
    "a refusal to nobody": Refuse(ValueError()),
    "a refusal without an error": Refuse("no", to=ReplyTo(1)),
}


@pytest.mark.parametrize("where", ["first", "last"])
@pytest.mark.parametrize("what", BAD)
def test_one_bad_command_undoes_all(what, where):
    """Whichever command is refused, and wherever it stands, none of the others happened; the parent hears why."""
    log = []
    made = system(log)
    made.spawn("b", puppet(log))
    do(made, Spawn(ChildSpec("taken", Behavior())))
    before = made.statistics()
    commands = (BAD[what], *GOOD) if where == "first" else (*GOOD, BAD[what])
    do(made, *commands)
    (failure,) = made.failures
    assert type(failure.error) is InvalidDecision
    after = made.statistics()
    assert log == []
    assert made.events == []
    assert not made.pending
    assert "/a/child" not in made.tree.cells
    assert after.sent == before.sent + 1  # the order itself
    assert after.timers == before.timers
    assert after.restarts == 1


@pytest.mark.parametrize("lone", [Tell(["/b"], "x"), Tell(A, "x", conflate=[])])
def test_a_lone_bad_tell_is_not_counted(lone):
    """The fast path of a single Tell keeps the books right as well."""
    made = system()
    do(made, lone)
    assert len(made.failures) == 1
    assert made.statistics().sent == 1


@pytest.mark.parametrize(
    "outcome",
    [
        "text",
        [Emit("x")],
        {},
        True,
        Decision(commands=[Emit("x")]),
        Decision(state=1, records=(Added(1),)),
        Decision(records=(Added(1),)),
        Emit("x"),
        (Emit("x"),) * (MAX_COMMANDS + 1),
    ],
)
def test_what_is_no_outcome(outcome):
    """Anything but None, a tuple of commands or a sound Decision fails the decision, and nothing happened."""
    made = SimSystem(puppet(supervision=Supervision(restarts=1_000)))
    made.spawn("a", Behavior(initial=lambda: "untouched", decide=lambda state, told, ctx: outcome))
    made.tell("/a", "x")
    made.run_until_idle()
    (failure,) = made.failures
    assert type(failure.error) is InvalidDecision
    assert made.events == []
    assert made.state("/a") == "untouched"


def test_records_are_applied_before_they_are_written():
    """A record that cannot be applied, or not be written, is never in the journal; the state is what was recorded."""
    made = SimSystem(puppet(supervision=Supervision(restarts=1_000)))
    plain = ledger()

    def evolve(state, fact):
        if type(fact) is Unbearable:
            state[0] = -1
            raise RuntimeError("cannot apply")
        if type(fact) is not Unwritten:
            plain.evolve(state, fact)

    def decide(state, told, ctx):
        return Decision(records=told, commands=(Emit("never"),))

    made.spawn("a", Behavior(initial=plain.initial, on={**plain.on, tuple: decide}, evolve=evolve))
    assert made.ask("/a", Add(2)) == 2
    for records in ((Added(5), Unbearable()), (Added(5), Unwritten()), (Unwritten(),)):
        made.tell("/a", records)
        made.run_until_idle()
        assert made.ask("/a", Read()) == 2
    assert made.journal.read("/a") == [Added(2)]
    assert made.events == []
    assert len(made.failures) == 3


def test_only_records_change_a_durable_state():
    """A durable actor that returns a state fails, by name."""
    made = SimSystem(puppet(supervision=Supervision(restarts=1_000)))
    behavior = ledger()
    made.spawn(
        "a", Behavior(initial=behavior.initial, evolve=behavior.evolve, decide=lambda *words: Decision(state=[9]))
    )
    made.tell("/a", "x")
    made.run_until_idle()
    assert type(made.failures[0].error) is InvalidDecision
    assert made.state("/a") == [0]


def test_no_journal():
    """Without a journal nothing can be recorded, forgotten, or started as durable."""
    events = []

    class Edge:
        def publish(self, event):
            events.append(event)

        def wake(self):
            """Nobody sleeps."""

    dispatcher = Dispatcher(SystemClock())
    tree = Tree(dispatcher, Edge(), name="t", seed="0", journal=None)
    dispatcher.trees.append(tree)
    root = dispatcher.lifecycle.plant(tree, ChildSpec("", puppet(supervision=Supervision(restarts=1_000))))
    dispatcher.step()
    cell = dispatcher.lifecycle.spawn(root, ChildSpec("a", puppet(), restart=Restart.PERMANENT))
    for commands in ((Forget(),), (Spawn(ChildSpec("d", ledger())),)):
        events.clear()
        while dispatcher.busy:
            dispatcher.step()
        cell.box().append(Do(commands))
        dispatcher.schedule(cell)
        dispatcher.step()
        assert [type(event.error) for event in events] == [InvalidDecision]


def test_a_durable_child_of_a_behavior_needs_a_journal():
    """A behavior's own durable child fails by name as it starts."""
    made = SimSystem(puppet())
    made.tree.journal = None
    made.spawn("a", puppet(children=(ChildSpec("d", ledger(), restart=Restart.TEMPORARY),)))
    made.run_until_idle()
    assert "durable" in str(made.failures[0].error)
    assert made.failures[0].path == "/a/d"


# Each command


def test_tell():
    """A message arrives; to nobody it is a dead letter; to a full mailbox it comes back."""
    log, heard = [], []
    made = system(log)
    made.spawn("b", puppet(heard), capacity=1)
    do(made, Tell(B, 1), Tell(ActorPath("/nobody"), 2), Tell(B, 3))
    assert heard == [1]
    assert log == [Undelivered(B, 3)]
    seen = made.statistics()
    assert (seen.dead, seen.undelivered) == (1, 1)


def test_tell_conflated():
    """Of one sender and key the latest is delivered, last; other senders' and other keys are not touched."""
    heard = []
    made = system()
    made.spawn("b", puppet(heard), capacity=4)
    made.spawn("c", puppet())
    made.run_until_idle()
    commands = (Tell(B, 1, "k"), Tell(B, 2, "l"), Tell(B, 3), Tell(B, 4, "k"))
    made.tell("/a", Do(commands))
    made.tell("/c", Do((Tell(B, 5, "k"),)))
    made.run_until_idle()
    assert [item for item in heard if item != 5] == [2, 3, 4]
    assert 5 in heard
    assert made.statistics().conflated == 1


def test_tell_conflated_after_a_stash():
    """What was put aside and comes back is not the latest any more: the latest is still replaced by a later one."""
    heard = []

    def decide(state, received, ctx):
        if type(received) is Do:
            return received.commands
        heard.append(received)
        match heard:
            case [1]:
                return (Stash(),)
            case [1, "go"]:
                return (Unstash(), Tell(ctx.path, 2, "k"))
            case [1, "go", 1]:
                return (Tell(ctx.path, 3, "k"),)
            case _:
                return None

    made = system()
    made.spawn("b", Behavior(decide=decide))
    made.tell(B, Do((Tell(B, 1, "k"), Tell(B, "go"))))
    made.run_until_idle()
    assert heard == [1, "go", 1, 3]
    assert made.statistics().conflated == 1


def test_tell_conflated_while_the_journal_takes_nothing():
    """What waits for the journal waits: it is replaced, though its actor has looked at it already."""
    made = system()
    made.spawn(
        "b",
        Behavior(
            initial=list,
            decide=lambda state, received, ctx: Decision(records=(Added(received),)),
            evolve=lambda state, fact: state.append(fact.amount),
        ),
    )
    made.run_until_idle()
    made.journal.fill()
    for each in (1, 2, 3):
        do(made, Tell(B, each, "k"))
    assert [item.message for item in made.tree.cells[B].parked] == [3]
    made.journal.free()
    made.run_until_idle()
    assert made.tree.cells[B].state == [3]
    assert made.statistics().conflated == 2


def test_request():
    """The answer comes under its key; a refusal, a timeout, a dead or a full target is RequestFailed."""
    log = []
    made = system(log)
    made.spawn("b", puppet(), capacity=1)
    do(made, Request(B, Do((Reply(7),)), "q", SECOND))
    assert log.pop() == Replied("q", 7)
    refusal = ValueError("no")
    do(made, Request(B, Do((Refuse(refusal),)), "q", SECOND))
    assert log.pop() == RequestFailed("q", refusal)
    do(made, Request(ActorPath("/nobody"), "q", "q", SECOND))
    assert type(log.pop().error) is ActorStopped
    do(made, Tell(B, Do()), Request(B, Do(), "q", SECOND))
    assert type(log.pop().error) is MailboxFull
    do(made, Request(B, Do(), "q", SECOND))
    assert log == []
    made.advance(1)
    assert type(log.pop().error) is AskTimeout
    assert log == []


def test_request_raises():
    """What the asked decision raises is the requester's answer, and its own failure."""
    log = []
    made = system(log)
    made.spawn("b", puppet())
    error = RuntimeError("x")
    do(made, Request(B, Do(error=error), "q", SECOND))
    assert log == [RequestFailed("q", error)]
    assert made.failures[0].path == B


def test_request_again():
    """A request replaces an earlier one of its key: only the second answer is seen."""
    log, kept = [], []
    made = system(log)
    made.spawn(
        "b",
        Behavior(
            decide=lambda state, told, ctx: (
                kept.append(ctx.reply_to) if told != "go" else tuple(Reply(n, to) for n, to in enumerate(kept))
            )
        ),
    )
    do(made, Request(B, "first", "q", SECOND))
    do(made, Request(B, "second", "q", SECOND))
    made.tell("/b", "go")
    made.run_until_idle()
    assert log == [Replied("q", 1)]


def test_reply_is_given_once():
    """The first answer counts; a second, or one to a question that nobody waits for any more, is ignored."""
    made = system()
    assert made.ask("/a", Do((Reply(1), Reply(2), Refuse(ValueError())))) == 1
    do(made, Reply(3, to=ReplyTo(123_456)))
    assert made.failures == []


def test_continue():
    """A message to oneself comes after what waits already, and is for this incarnation only."""
    log = []
    made = system(log)
    made.tell("/a", Do((Continue("on"),)))
    made.tell("/a", "before")
    made.run_until_idle()
    assert log == ["before", "on"]
    made.tell("/a", Do((Continue("lost"),)))
    made.tell("/a", Do(error=RuntimeError()))
    made.advance(1)
    assert log == ["before", "on"]


def test_stash():
    """What was stashed comes back in front, oldest first, when it is unstashed."""
    log = []

    def decide(state, told, ctx):
        if told == "open":
            return Decision(state="open", commands=(Unstash(),))
        if state != "open":
            return (Stash(),)
        log.append(told)
        return None

    made = system()
    made.spawn("b", Behavior(decide=decide), capacity=3)
    for told in (1, 2):
        made.tell("/b", told)
    made.run_until_idle()
    assert made.statistics().stashed == 2
    made.tell("/b", "open")
    made.tell("/b", "late")  # no room: what is stashed counts
    made.run_until_idle()
    assert log == [1, 2]
    assert made.statistics().dead == 1


def test_spawn_and_stop():
    """A child starts, and is stopped by name; unknown names are ignored; the name is free again afterwards."""
    log = []
    made = system(log)
    do(made, Spawn(ChildSpec("child", puppet(log))))
    do(made, Tell(A / "child", "hello"))
    do(made, StopChild("child"), StopChild("unknown"))
    assert log == ["hello", Terminated(A / "child", StopReason.NORMAL)]
    do(made, Spawn(ChildSpec("child", puppet())))
    assert A / "child" in made.tree.cells


def test_revive():
    """A quarantined child comes back with a fresh state and budget; one that is well is left alone."""
    made = system()
    made.spawn("b", puppet(supervision=Supervision(restarts=0)))
    do(made, Spawn(ChildSpec("child", puppet(), entity=True)), path="/b")
    do(made, ReviveChild("child"), ReviveChild("unknown"), path="/b")
    made.tell("/b/child", Do(error=RuntimeError()))
    made.run_until_idle()
    assert made.statistics().quarantined == 1
    do(made, ReviveChild("child"), path="/b")
    assert made.statistics().quarantined == 0
    assert made.ask("/b/child", Do((Reply("well"),))) == "well"


def test_children_that_fail_are_reported():
    """A parent with a rule for ChildFailed is told which child, which message, which error."""
    heard = []
    made = system()
    made.spawn(
        "b",
        Behavior(
            on={ChildFailed: lambda state, told, ctx: heard.append(told), Do: lambda state, told, ctx: told.commands}
        ),
    )
    do(made, Spawn(ChildSpec("child", puppet())), path="/b")
    failing = Do(error=RuntimeError("x"))
    made.tell("/b/child", failing)
    made.run_until_idle()
    assert heard == [ChildFailed(B / "child", 0, failing, failing.error, False)]


def test_stop_self():
    """A temporary actor that stops itself is gone, after the rest of its decision."""
    log = []
    made = system(log)
    made.spawn("b", puppet(), restart=Restart.TEMPORARY)
    made.tell("/b", Do((StopSelf(), Tell(A, "farewell"))))
    made.run_until_idle()
    assert log == ["farewell"]
    assert B not in made.tree.cells


def test_forget():
    """Records of the actor, or of a child and all below it, leave the journal."""
    made = SimSystem()
    behavior = ledger()
    parent = Behavior(
        initial=behavior.initial,
        evolve=behavior.evolve,
        on={**behavior.on, Do: lambda state, told, ctx: told.commands},
        children=(ChildSpec("child", behavior),),
    )
    made.spawn("a", parent)
    made.ask("/a", Add(1))
    made.ask("/a/child", Add(2))
    do(made, Forget("child"))
    assert made.journal.read("/a") == [Added(1)]
    assert made.journal.read("/a/child") == []
    do(made, Forget())
    assert made.journal.paths() == []


def test_watch():
    """Terminated comes once, after the last message of the watched; at once when there is nobody."""
    log = []
    made = system(log)
    made.spawn("b", puppet(), restart=Restart.TEMPORARY)
    do(made, Watch(B), Watch(B), Watch(ActorPath("/nobody")))
    assert log == [Terminated(ActorPath("/nobody"), StopReason.ABSENT)]
    made.tell("/b", Do((Tell(A, "last"), StopSelf())))
    made.run_until_idle()
    assert log[1:] == ["last", Terminated(B, StopReason.NORMAL)]


def test_unwatch():
    """A watch that was withdrawn is not answered, not even if the answer waits already."""
    log = []
    made = system(log)
    made.spawn("b", puppet(), restart=Restart.TEMPORARY)
    do(made, Watch(B), Unwatch(B), Unwatch(ActorPath("/unknown")))
    do(made, Watch(ActorPath("/nobody")), Unwatch(ActorPath("/nobody")))
    made.tell("/b", Do((StopSelf(),)))
    made.run_until_idle()
    assert log == []


def test_timers():
    """A timer comes when it is due, once; a key holds one timer; a cancelled one never comes."""
    log = []
    made = system(log)
    do(made, SetTimer("t", SECOND, "one"), SetTimer("u", SECOND, "two"), SetTimer("t", 2 * SECOND, "three"))
    do(made, CancelTimer("u"))
    made.advance(1.9)
    assert log == []
    made.advance(5)
    assert log == ["three"]


def test_effects_and_sessions():
    """Run and Open are answered under their keys; Cancel and Close end them; a Feed finds its session or comes back."""
    log = []
    made = system(log)
    do(
        made,
        Run("k", Job("e")),
        Open("s", Job("s"), outbound=1),
        Feed("s", 1),
        Feed("s", 2),
        Feed("k", 3),
        Feed("x", 4),
    )
    assert log == [FeedRefused("s", 2), FeedRefused("k", 3), FeedRefused("x", 4)]
    by_name = {handle.effect.name: handle for handle in made.pending.values()}
    assert by_name["s"].take_fed() == [1]
    by_name["s"].send("item")
    by_name["e"].complete("done")
    made.run_until_idle()
    assert sorted(map(repr, log[3:])) == sorted(map(repr, [Arrived("s", "item"), Completed("k", Job("e"), "done")]))
    do(made, Close("s"), Cancel("unknown"))
    assert not made.pending
    assert len(log) == 5


def test_emit():
    """An event goes to the system's listeners."""
    made = system()
    do(made, Emit("news"))
    assert made.events == ["news"]
    assert made.statistics().events == 1


def test_states():
    """KEEP keeps the state, anything else replaces it, None too."""
    made = system()
    made.spawn("b", Behavior(initial=lambda: 1, decide=lambda state, told, ctx: told))
    for outcome, state in (
        (Decision(), 1),
        (Decision(KEEP, (Emit("x"),)), 1),
        (Decision(2), 2),
        (Decision(None), None),
    ):
        made.tell("/b", outcome)
        made.run_until_idle()
        assert made.state("/b") == state
    assert made.statistics().failures == 0
    assert made.tree.cells[ROOT].children is not None


def test_a_revived_actor_has_its_whole_mailbox():
    """What was stashed when an actor was quarantined takes no room from its next life."""
    made = system()
    made.spawn("b", puppet(supervision=Supervision(restarts=0)))
    do(made, Spawn(ChildSpec("child", puppet(), entity=True, capacity=2)), path="/b")
    made.tell("/b/child", Do((Stash(),)))
    made.tell("/b/child", Do(error=RuntimeError()))
    made.run_until_idle()
    assert made.statistics().quarantined == 1
    do(made, ReviveChild("child"), path="/b")
    made.tell("/b/child", 1)
    made.tell("/b/child", 2)
    assert made.statistics().queued == 2
    made.run_until_idle()


def test_stashed_answers():
    """An answer that is stashed comes back with the messages, in order; bounds and books hold meanwhile."""
    log = []

    def decide(state, told, ctx):
        if type(told) is Do:
            return told.commands
        if state is None:
            return (Stash(),)
        log.append(told)
        return None

    made = system()
    on = {Read: lambda state, told, ctx: Decision("open", (Unstash(),))}
    made.spawn("b", Behavior(decide=decide, on=on), capacity=4)
    made.tell("/b", Do((SetTimer("t", SECOND, "due"), Continue("on"))))
    made.tell("/b", "told")
    made.advance(2)
    assert log == []
    made.tell("/b", Read())
    made.run_until_idle()
    assert log == ["told", "on", "due"]


def test_stashed_answers_take_no_room():
    """Answers that are stashed while the mailbox is full push it past no bound, and cost no message its place."""

    def decide(state, told, ctx):
        return told.commands if type(told) is Do else (Stash(),)

    made = system()
    made.spawn("b", Behavior(decide=decide), capacity=2)
    made.tell("/b", Do((Continue("on"),)))
    made.tell("/b", 1)
    made.step()
    made.tell("/b", 2)
    made.run_until_idle()
    seen = made.statistics()
    assert (seen.stashed, seen.answers_queued, seen.dead) == (2, 1, 0)
    assert made.tree.cells[B].full
    made.tell("/", Do((StopChild("b"),)))
    made.run_until_idle()
    seen = made.statistics()
    assert (seen.dead, seen.answers_stale) == (2, 1)
