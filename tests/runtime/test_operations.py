"""The life of an operation: each phase as its table says, one at a time per path and key."""

import pytest
from puppet import Add, Do, Job, ledger, puppet

from iriscw._errors import DispatcherBug
from iriscw.runtime import SECOND, Arrived, Cancel, Close, Completed, Feed, Open, Restart, Run, StopSelf
from iriscw.runtime.operations import OperationPhase
from iriscw.runtime.vocabulary import ROOT
from iriscw.testing import SimSystem, checks


async def _never(*words):
    raise NotImplementedError


def system(log=None, **options):
    """Return a checked system with a puppet at ``/a`` whose operations stay pending."""
    made = SimSystem(**options)
    checks.watch(made.simulation)
    made.spawn("a", puppet(log, effects={Job: _never}, sessions={Job: _never}))
    made.run_until_idle()
    return made


def do(made, *commands):
    """Have the puppet carry these out."""
    made.tell("/a", Do(commands))
    made.run_until_idle()


def current(made, key="k"):
    """Return the operation that the actor waits for."""
    return made.tree.cells[ROOT / "a"].operations[key]


def test_run_to_the_end():
    """HELD and RUNNING pass at once without records to wait for; the end frees the slot."""
    log = []
    made = system(log)
    do(made, Run("k", Job("x")))
    operation = current(made)
    assert operation.phase is OperationPhase.RUNNING
    assert operation.slot == ("/a", "k")
    assert repr(operation) == f"<Operation {operation.id} /a 'k' running>"
    made.pending[operation.id].complete("value")
    made.run_until_idle()
    assert operation.phase is OperationPhase.ENDED
    assert log == [Completed("k", Job("x"), "value")]
    assert made.statistics().operations == 0


def test_held_until_durable():
    """An effect that rests on a record waits for the disk; cancelled there it never starts."""
    made = SimSystem(sync_ns=None)
    behavior = ledger()
    effects = {Job: _never}
    decide = behavior.on[Add]

    def add_and_run(state, told, ctx):
        outcome = decide(state, told, ctx)
        outcome.commands = (Run("k", Job()),)
        return outcome

    on = {Add: add_and_run, Do: lambda state, told, ctx: told.commands}
    made.spawn("a", type(behavior)(initial=behavior.initial, on=on, evolve=behavior.evolve, effects=effects))
    made.tell("/a", Add(1))
    made.run_until_idle()
    held = current(made)
    assert held.phase is OperationPhase.HELD
    do(made, Cancel("k"))
    made.tell("/a", Add(1))
    made.run_until_idle()
    second = current(made)
    made.journal.commit()
    made.run_until_idle()
    assert (held.phase, second.phase) == (OperationPhase.ENDED, OperationPhase.RUNNING)
    assert [handle.operation for handle in made.pending.values()] == [second]


def test_queued_behind_its_predecessor():
    """A successor waits until the cancelled one has really ended; of several successors the last one starts."""
    made = system()
    do(made, Run("k", Job("1")))
    first = current(made)
    made.pending[first.id].deaf = True
    do(made, Run("k", Job("2")))
    second = current(made)
    do(made, Run("k", Job("3")))
    third = current(made)
    assert [each.phase for each in (first, second, third)] == [
        OperationPhase.CANCELLING,
        OperationPhase.ENDED,
        OperationPhase.QUEUED,
    ]
    made.pending[first.id].complete("too late")
    made.run_until_idle()
    assert third.phase is OperationPhase.RUNNING


def test_a_cancelled_successor_never_starts():
    """A queued operation that is given up leaves nothing."""
    made = system()
    do(made, Run("k", Job("1")))
    first = current(made)
    made.pending[first.id].deaf = True
    do(made, Run("k", Job("2")))
    second = current(made)
    do(made, Cancel("k"))
    assert second.phase is OperationPhase.ENDED
    made.pending[first.id].complete()
    made.run_until_idle()
    assert not made.pending
    assert not made.tree.queued


def test_the_slot_outlives_the_actor():
    """Whoever takes the path and key next waits for an operation that the former owner left behind."""
    log = []
    made = SimSystem()
    behavior = puppet(log, effects={Job: _never})
    made.spawn("a", behavior, restart=Restart.TEMPORARY, shutdown_budget=SECOND)
    do(made, Run("k", Job("old")))
    old = current(made)
    made.pending[old.id].deaf = True
    do(made, StopSelf())
    made.advance(2)
    assert "/a" not in made.tree.cells
    made.spawn("a", behavior)
    do(made, Run("k", Job("new")))
    new = current(made)
    assert new.phase is OperationPhase.QUEUED
    made.pending[old.id].complete("of the old one")
    made.run_until_idle()
    assert new.phase is OperationPhase.RUNNING
    assert log == []


def test_a_second_end_is_ignored():
    """An edge that reports an end twice changes nothing; one that reports a stranger's is a bug, by name."""
    log = []
    made = system(log)
    do(made, Run("k", Job()))
    operation = current(made)
    made.tree.ended(operation, 1, None)
    made.tree.ended(operation, 2, None)
    made.run_until_idle()
    assert log == [Completed("k", Job(), 1)]
    do(made, Run("k", Job()))
    stranger = current(made)
    del made.tree.running[stranger.slot]
    with pytest.raises(DispatcherBug):
        made.tree.ended(stranger, None, None)


def test_a_session_counts_what_waits():
    """Inbound items count while they are in the mailbox, outbound ones until the session took them."""
    made = system([])
    do(made, Open("k", Job(), inbound=2, outbound=2), Feed("k", 1), Feed("k", 2))
    session = current(made)
    handle = made.pending[session.id]
    assert (session.session, session.promised) == (True, 2)
    assert [handle.send(number) for number in range(3)] == [True, True, False]
    assert session.unseen == 2
    made.run_until_idle()
    assert session.unseen == 0
    assert handle.take_fed() == [1, 2]
    assert session.promised == 0
    do(made, Close("k"))
    assert not handle.send("late")


def test_items_come_before_the_end():
    """What a session sent before it ended is seen before Closed."""
    log = []
    made = system(log)
    do(made, Open("k", Job()))
    handle = made.pending[current(made).id]
    handle.send(1)
    handle.send(2)
    handle.complete()
    made.run_until_idle()
    assert log[:2] == [Arrived("k", 1), Arrived("k", 2)]
    assert type(log[2]).__name__ == "Closed"
