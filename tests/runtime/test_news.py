"""News of an actor's end or restart rests on the records that led to it (R9); nothing is half done (R3)."""

import pytest

from iriscw._errors import ActorRestarted, ActorStopped, InvalidDecision
from iriscw.journal.records import record
from iriscw.runtime import (
    SECOND,
    ActorPath,
    ActorSystem,
    Behavior,
    ChildSpec,
    Decision,
    Reply,
    Request,
    RequestFailed,
    Restart,
    Run,
    Spawn,
    Stash,
    StopChild,
    StopSelf,
    Tell,
    Terminated,
    Unstash,
    Watch,
    message,
)
from iriscw.testing import SimSystem, checks


@record("test.news_told")
@message
class Told:
    """Something was told."""

    what: str = ""


@message
class End:
    """Write it down, and end."""


@message
class Ask:
    """Ask, and announce what comes of it."""


@message
class Keep:
    """Owe an answer."""


@message
class Fail:
    """Raise, if anything was written down."""


@message
class Announce:
    """An effect: tell the world."""

    what: str


async def _announce(effect):
    raise NotImplementedError


def note(state, fact):
    """Apply a record."""
    state.append(fact.what)


def announced(sim):
    """Return what the world was told."""
    return [operation.effect.what for operation in sim.pending.values()]


def stalled(sim):
    """Have the disk take nothing more, then do all there is to do."""
    checks.watch(sim.simulation)
    sim.run_until_idle()
    sim.journal.stall()


def asker(about):
    """Return an actor that asks ``about`` and announces how that failed."""
    return Behavior(
        on={
            Ask: lambda state, received, ctx: (
                Request(ActorPath(about), Keep(), "q", 5 * SECOND),
                Tell(ActorPath(about), End()),
                Tell(ActorPath(about), Fail()),
            ),
            RequestFailed: lambda state, received, ctx: (Run("tell", Announce(type(received.error).__name__)),),
        },
        effects={Announce: _announce},
    )


def fail(state, received, ctx):
    """Raise on account of what is written down."""
    if state:
        raise ValueError("as told")


@pytest.mark.parametrize(
    ("commands", "error"), [((StopSelf(),), ActorStopped), ((), ActorRestarted)], ids=["ended", "began anew"]
)
def test_who_asked_hears_of_an_end_when_its_records_are_durable(commands, error):
    """The host's question waits for the disk; an actor is told at once, and what it then does waits."""
    told = Behavior(
        initial=list,
        on={
            Keep: lambda state, received, ctx: None,
            End: lambda state, received, ctx: Decision(records=(Told("end"),), commands=commands),
            Fail: fail,
        },
        evolve=note,
    )
    sim = SimSystem(Behavior(children=(ChildSpec("a", told, Restart.TRANSIENT), ChildSpec("b", asker("/a")))))
    stalled(sim)
    question = sim.question("/a", Keep())
    sim.tell("/b", Ask())
    sim.run_until_idle()
    assert sim.journal.appended > sim.journal.durable
    assert announced(sim) == []
    assert not question.done
    sim.journal.resume()
    sim.advance(1)
    assert announced(sim) == [error.__name__]
    assert type(question.error) is error


def test_who_watches_hears_of_a_stopped_child_when_its_parents_record_is_durable():
    """A crash that loses the record brings the child back: then nobody in the world was told that it is gone."""
    child = Behavior(on={Keep: lambda state, received, ctx: (Reply("here"),)})
    parent = Behavior(
        initial=list,
        on={End: lambda state, received, ctx: Decision(records=(Told("gone"),), commands=(StopChild("c"),))},
        evolve=note,
        resume=lambda state, ctx: () if state else (Spawn(ChildSpec("c", child)),),
    )
    watcher = Behavior(
        on={
            Ask: lambda state, received, ctx: (Watch(ActorPath("/p/c")),),
            Terminated: lambda state, received, ctx: (Run("tell", Announce("gone for ever")),),
        },
        effects={Announce: _announce},
    )
    sim = SimSystem(Behavior(children=(ChildSpec("p", parent), ChildSpec("w", watcher))))
    sim.run_until_idle()
    sim.tell("/w", Ask())
    stalled(sim)
    sim.tell("/p", End())
    sim.run_until_idle()
    assert announced(sim) == []
    sim.crash(0)
    sim.restart()
    sim.run_until_idle()
    assert sim.ask("/p/c", Keep()) == "here"


async def test_a_host_hears_that_an_actor_has_stopped_when_that_is_durable(tmp_path):
    """Asking a reference whose actor is gone waits for the records that may have ended it."""
    from iriscw.journal.memory import MemoryDisk, MemoryJournal

    journal = MemoryJournal(MemoryDisk(), auto=True)
    ender = Behavior(
        initial=list,
        on={End: lambda state, received, ctx: Decision(records=(Told("end"),), commands=(StopSelf(),))},
        evolve=note,
    )
    async with ActorSystem(journal=journal) as system:
        reference = system.spawn("a", ender, restart=Restart.TEMPORARY)
        reference.tell(End())
        with pytest.raises(ActorStopped):
            await reference.ask(End())
        with pytest.raises(ActorStopped):
            await reference.ask(End())
        assert journal.durable == journal.appended


def test_a_snapshot_that_fails_takes_nothing_back():
    """The records are written and the answer is given; the failure is reported, and it is tried again later."""
    tried = []

    def compact(state):
        tried.append(len(state))
        if len(tried) < 2:
            raise ValueError("no snapshot today")
        return [Told(what) for what in state]

    book = Behavior(
        initial=list,
        on={
            Keep: lambda state, received, ctx: Decision(records=(Told(str(len(state))),), commands=(Reply("kept"),)),
            Ask: lambda state, received, ctx: (Reply(list(state)),),
        },
        evolve=note,
        compact=compact,
        snapshot_every=2,
    )
    sim = SimSystem(Behavior(children=(ChildSpec("a", book),)))
    for _ in range(5):
        assert sim.ask("/a", Keep()) == "kept"
    assert tried == [2, 4]
    assert [(str(failure.error), failure.verdict) for failure in sim.failures] == [("no snapshot today", "none")]
    sim.crash(0)
    sim.restart()
    sim.run_until_idle()
    assert sim.ask("/a", Ask()) == ["0", "1", "2", "3", "4"]


def test_what_was_put_aside_comes_before_what_waits_for_the_disk():
    """Unstashed while the disk is full, a message keeps its place before those that came after it (R2)."""
    gate = {"open": False}

    def write(state, received, ctx):
        if not gate["open"] and received.what == "first":
            return (Stash(),)
        return Decision(records=(Told(received.what),))

    def open_gate(state, received, ctx):
        gate["open"] = True
        return (Unstash(), Reply("open"))

    book = Behavior(
        initial=list,
        on={Announce: write, Ask: open_gate, Keep: lambda state, received, ctx: (Reply(list(state)),)},
        evolve=note,
    )
    sim = SimSystem(Behavior(children=(ChildSpec("a", book),)))
    sim.run_until_idle()
    sim.tell("/a", Announce("first"))
    sim.run_until_idle()
    sim.journal.fill()
    sim.tell("/a", Announce("second"))
    sim.run_until_idle()
    assert sim.ask("/a", Ask()) == "open"
    assert sim.ask("/a", Keep()) == []
    sim.journal.free()
    sim.advance(1)
    assert sim.ask("/a", Keep()) == ["first", "second"]


@pytest.mark.parametrize(
    "bad",
    [
        Reply(1, to="x"),
        Spawn(ChildSpec("c", Behavior(), shutdown_budget="x")),
        Spawn(ChildSpec("c", None)),
        Spawn(ChildSpec(5, Behavior())),
    ],
    ids=["reply", "budget", "behavior", "name"],
)
def test_what_is_of_a_wrong_type_is_found_before_anything_happens(bad):
    """No record is written and no message sent by a decision that cannot be carried out as a whole."""
    got = []
    sink = Behavior(on={Announce: lambda state, received, ctx: got.append(received.what)})
    actor = Behavior(
        initial=list,
        on={
            End: lambda state, received, ctx: Decision(
                records=(Told("half"),), commands=(Tell(ActorPath("/t"), Announce("half")), bad)
            )
        },
        evolve=note,
    )
    sim = SimSystem(Behavior(children=(ChildSpec("t", sink), ChildSpec("a", actor))))
    with pytest.raises(InvalidDecision):
        sim.ask("/a", End())
    assert got == []
    assert sim.journal.appended == 0
