"""Behaviors: what they accept, what they refuse, and their defaults."""

import pytest

from iriscw._errors import InvalidArgument, UnhandledMessage
from iriscw.runtime import Backoff, Behavior, ChildSpec, Restart, Shutdown, Strategy, Supervision
from iriscw.runtime.behavior import RuleTable
from iriscw.runtime.envelope import Envelope, Slot
from iriscw.testing import SimSystem
from raised import that


class Place:
    """As much of a context as an unhandled message needs."""

    path = "/a"


def first(state, told, ctx):
    """Decide nothing."""


def other(state, told, ctx):
    """Decide nothing either."""


def test_a_rule_for_each_type():
    """The type's own rule comes first, then ``decide``; subclasses have no part in it."""
    table = RuleTable({int: first}, other, plain=True)
    assert table[int] is first
    assert table[str] is other
    assert table[bool] is other
    assert table.answers(bool)


def test_no_rule():
    """Without ``decide`` a type without a rule raises, naming the actor and the type, the first time and later."""
    table = RuleTable({int: first}, None, plain=True)
    for _ in range(2):
        with pytest.raises(UnhandledMessage, check=that(comes_from="behavior._unhandled", names=("/a", "str"))):
            table[str](None, "x", Place())
    assert table.answers(int)
    assert not table.answers(str)


def test_the_runtimes_own():
    """Envelopes and questions are the runtime's: no rule of the actor sees them, not even ``decide``."""
    table = Behavior(decide=first).rules
    assert table[Envelope] is None
    assert table[Slot] is None


def test_rules_are_compiled_once():
    """Two behaviors have tables of their own, and filling one in leaves the given mapping alone."""
    given = {int: first}
    one, two = Behavior(on=given, decide=other), Behavior(on=given)
    assert one.rules is not two.rules
    assert one.rules[str] is other
    assert given == {int: first}


def test_durable():
    """An actor with ``evolve`` is durable."""
    assert not Behavior().durable
    assert Behavior(evolve=lambda state, fact: None).durable


@pytest.mark.parametrize("names", [("a", "a"), ("",), ("a/b",)])
def test_impossible_children(names):
    """Children need names that can be told apart; one finds out when the behavior is made."""
    with pytest.raises(InvalidArgument, check=that(comes_from="behavior._distinct")):
        Behavior(children=tuple(ChildSpec(name, Behavior()) for name in names))


def test_defaults():
    """What one gets by saying nothing; the documentation states the same."""
    spec = ChildSpec("a", Behavior())
    assert (spec.restart, spec.shutdown, spec.entity) == (Restart.PERMANENT, Shutdown.STOP, False)
    assert (spec.shutdown_budget, spec.capacity) == (5_000_000_000, 1024)
    rules = Supervision()
    assert (rules.strategy, rules.restarts, rules.period) == (Strategy.ONE_FOR_ONE, 5, 60_000_000_000)
    assert rules.backoff == Backoff(0, 30_000_000_000, 0.2, 60_000_000_000)
    assert Behavior().initial() is None
    assert Behavior().snapshot_every == 10_000


def test_behaviors_are_themselves():
    """Behaviors hold functions, so two are never equal; a system may use one for many actors."""
    one = Behavior(decide=first)
    assert one != Behavior(decide=first)
    assert one == one


@pytest.mark.parametrize("awaits", [False, True])
def test_awaiting_the_journal(awaits):
    """With ``awaits_journal`` nothing is decided, and so nothing noted, while the journal takes no records."""
    notes = []
    made = SimSystem()
    note = Behavior(
        decide=lambda state, told, ctx: notes.append(told), evolve=lambda state, record: None, awaits_journal=awaits
    )
    made.spawn("a", note)
    made.run_until_idle()
    made.journal.fill()
    made.tell("/a", 1)
    made.tell("/a", 2)
    made.run_until_idle()
    assert notes == ([] if awaits else [1, 2])
    made.journal.free()
    made.run_until_idle()
    assert notes == [1, 2]
