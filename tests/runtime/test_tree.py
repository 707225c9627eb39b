"""The tree: its books balance, outputs wait for the disk, answers are given once."""

import attrs
import pytest
from puppet import Add, Added, Do, ledger, puppet

from iriscw.runtime import (
    SECOND,
    ActorPath,
    Behavior,
    Continue,
    Decision,
    Emit,
    Reply,
    Request,
    Restart,
    SetTimer,
    Spawn,
    Stash,
    StopSelf,
    Tell,
    TreeStatistics,
)
from iriscw.runtime.behavior import ChildSpec, Supervision
from iriscw.runtime.envelope import Slot
from iriscw.testing import SimSystem, checks

B = ActorPath("/b")


def system(**options):
    """Return a checked system."""
    made = SimSystem(puppet(supervision=Supervision(restarts=1_000)), **options)
    checks.watch(made.simulation)
    return made


def test_messages_are_accounted_for():
    """INV-R1: each message is delivered, dead, undelivered, conflated, queued or stashed, and the figures say which."""
    made = system()
    made.spawn("a", puppet())
    made.spawn("b", puppet(), capacity=2)
    made.run_until_idle()
    tells = (Tell(B, 1, "k"), Tell(B, 2, "k"), Tell(B, 3), Tell(B, 4), Tell(ActorPath("/nobody"), 5))
    made.tell("/a", Do(tells))
    made.tell("/a", Do((Stash(),)))
    made.simulation.dispatcher.step(1)
    seen = made.statistics()
    assert (seen.conflated, seen.undelivered, seen.dead) == (1, 1, 1)
    assert seen.sent == 7
    made.run_until_idle()
    seen = made.statistics()
    assert (seen.delivered, seen.stashed, seen.queued) == (3, 1, 0)
    assert seen.sent == seen.delivered + seen.dead + seen.undelivered + seen.conflated + seen.queued + seen.stashed
    assert (seen.answers, seen.answers_delivered) == (1, 1)


def test_lives_are_accounted_for():
    """INV-R5: starts are stops plus the living; restarts, failures and quarantines are counted apart."""
    made = system()
    made.spawn("a", puppet(supervision=Supervision(restarts=1)))
    made.run_until_idle()
    made.tell("/a", Do((Spawn(ChildSpec("x", puppet(), entity=True)), Spawn(ChildSpec("y", puppet())))))
    made.run_until_idle()
    for _ in range(2):
        made.tell("/a/x", Do(error=RuntimeError()))
        made.advance(1)
    seen = made.statistics()
    assert (seen.starts, seen.stops, seen.live) == (4, 1, 3)
    assert (seen.failures, seen.restarts, seen.quarantined) == (2, 1, 1)


def test_timers_and_events_are_counted():
    """Set timers and published events, the held ones apart."""
    made = system(sync_ns=None)
    made.spawn("a", puppet())
    behavior = ledger()
    noisy = Behavior(
        initial=behavior.initial,
        evolve=behavior.evolve,
        decide=lambda state, told, ctx: Decision(records=(Added(1),), commands=(Emit("news"),)),
    )
    made.spawn("b", noisy)
    made.tell("/a", Do((SetTimer("t", SECOND, "x"), Emit("free"))))
    made.tell("/b", "x")
    made.run_until_idle()
    seen = made.statistics()
    assert (seen.timers, seen.events, seen.held) == (1, 1, 1)
    made.journal.commit()
    made.run_until_idle()
    seen = made.statistics()
    assert (seen.events, seen.held) == (2, 0)


def test_statistics_are_frozen():
    """They are a value of one moment."""
    seen = SimSystem().statistics()
    assert isinstance(seen, TreeStatistics)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        seen.live = 7


def test_outputs_leave_in_order():
    """What waits for the disk leaves by record, and what rests on one record in the order in which it was asked for."""
    made = SimSystem(sync_ns=None)
    made.run_until_idle()
    out = []
    tree = made.tree
    tree.let_out(0, out.append, "free")
    tree.let_out(2, out.append, "2a")
    tree.let_out(1, out.append, "1")
    tree.let_out(2, out.append, "2b")
    assert (out, tree.held) == (["free"], 3)
    made.journal.append("/a", [Added(1), Added(1)])
    for durable, expected in ((1, ["free", "1"]), (2, ["free", "1", "2a", "2b"])):
        made.journal.commit(1)
        tree.release()
        assert tree.durable == durable
        assert out == expected


def test_marks_travel_with_messages():
    """Who heard of an uncommitted record may not speak of it outside before it is durable; others may."""
    made = system(sync_ns=None)
    behavior = ledger()
    teller = Behavior(
        initial=behavior.initial,
        evolve=behavior.evolve,
        decide=lambda state, told, ctx: Decision(records=(Added(1),), commands=(Tell(B, Do((Emit("heard"),))),)),
    )
    made.spawn("a", teller)
    made.spawn("b", puppet())
    made.spawn("c", puppet())
    made.tell("/a", "x")
    made.tell("/c", Do((Emit("else"),)))
    made.run_until_idle()
    assert made.events == ["else"]
    made.journal.commit()
    made.run_until_idle()
    assert made.events == ["else", "heard"]


def test_a_slot_is_filled_once():
    """The first answer stands."""
    slot = Slot(None, "q")
    slot.fill(1, None)
    slot.fill(2, ValueError())
    assert (slot.done, slot.value, slot.error) == (True, 1, None)


def test_answers_to_the_stopped_are_stale():
    """An answer for somebody who is gone is counted, not delivered."""
    made = system()
    made.spawn("a", puppet(), restart=Restart.TEMPORARY)
    made.spawn("b", puppet())
    kept = []
    made.spawn(
        "c",
        Behavior(decide=lambda state, told, ctx: kept.append(ctx.reply_to) if told == "q" else (Reply(1, kept[0]),)),
    )
    made.tell("/a", Do((Request(ActorPath("/c"), "q", "k", SECOND),)))
    made.run_until_idle()
    made.tell("/a", Do((Continue("never"), StopSelf())))
    made.tell("/c", "answer")
    made.run_until_idle()
    seen = made.statistics()
    assert seen.answers_stale == 1
    assert seen.answers == seen.answers_delivered + seen.answers_stale + seen.answers_queued


def test_a_crashed_tree_does_nothing():
    """After a crash no end, item or release changes anything."""
    made = system(sync_ns=None)
    made.spawn("a", ledger())
    slot = made.question("/a", Add(1))
    made.run_until_idle()
    assert slot.held
    tree = made.tree
    made.crash(keep=0)
    tree.release()
    assert not slot.done
    made.restart()
    made.spawn("a", ledger())
    assert made.journal.read("/a") == []
