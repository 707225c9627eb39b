"""A job in any order of events that scheduler, workers and log store can bring: its clocks, and what others know."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, strategies as st
from job_walk import Walk
from jobs_world import command_spec

from iriscw.jobs.job import views
from iriscw.jobs.job.ledger import JobLedger, compact, evolve
from iriscw.jobs.messages import Settle
from iriscw.jobs.model import TASK_TERMINAL, TaskState
from iriscw.runtime.vocabulary import SECOND
from profiles import examples

STEPS = 20
SPECS = st.builds(
    command_spec,
    replicas=st.just(3),
    max_retries_failure=st.integers(0, 1),
    max_retries_preemption=st.integers(0, 2),
    timeout_ns=st.sampled_from([0, 50 * SECOND]),
    scheduling_timeout_ns=st.sampled_from([0, 100 * SECOND]),
)


@examples(120)
@given(SPECS, st.data())
def test_any_history(spec, data):
    """After each step its clocks, what others know, and what a snapshot keeps fit its ledger; it ends with nothing
    left.
    """
    walk = Walk(spec)
    checks = (
        deadlines_have_clocks,
        the_scheduler_knows,
        workers_know,
        listeners_hear_once,
        a_snapshot_keeps_the_order,
        *[the_registry_knows] * data.draw(st.booleans()),  # it lets time pass
    )
    for _ in range(data.draw(st.integers(0, STEPS))):
        choices = dict(walk.choices())
        choices[data.draw(st.sampled_from(list(choices)))]()
        for check in checks:
            check(walk)
    if data.draw(st.booleans()):
        walk.catch_up()
        assert {*walk.orders} == {*walk.ledger.live}
        assert walk.ledger.open or {*walk.orders.values()} <= {"stop"}
    walk.settle()
    assert walk.ledger.ended is not None
    assert (walk.room, walk.orders, walk.calls, walk.withdrawn) == ({}, {}, {}, True)
    left = {key for key in walk.clocks if key not in ("link", "registry", "scheduler")}
    assert {key for key in left if key[0] != "lease"} == set()
    before = len(walk.done)
    walk.send(Settle(walk.ledger.shown()))
    assert len(walk.done) == before == 1


def deadlines_have_clocks(walk):
    """While a job is open: for the oldest attempt under a timeout, for what waits too long, for each silent worker."""
    ledger, clocks = walk.ledger, walk.clocks
    if ledger.open:
        assert ("timeout" in clocks) >= bool(ledger.timed)
        waits = ledger.spec.scheduling_timeout_ns and (ledger.untouched or ledger.waiting)
        assert ("scheduling" in clocks) >= bool(waits)
    elif ledger.ended is None:
        assert "scheduling" not in clocks
    for place in ledger.suspects:
        assert ("lease", *place) in clocks or place not in ledger.places
    for key in clocks:
        assert key[0] != "lease" or key[1:] in ledger.suspects
    assert all(clock.delay >= 0 for clock in clocks.values())


def the_scheduler_knows(walk):
    """Exactly the live attempts hold room (INV-J3), and what waits may be placed, until nothing more may."""
    ledger = walk.ledger
    assert walk.room == ledger.live
    waits = {index for first, end in ledger.pending_ranges() for index in range(first, end)}
    assert {*walk.waiting} == waits
    assert walk.withdrawn == (not ledger.open)


def workers_know(walk):
    """Each live attempt was ordered; once its end is written down its worker may forget it (INV-J2).

    A worker whose link has no room learns it a little later.
    """
    late = [worker for _, worker, _ in walk.late()]
    assert _elsewhere(walk, walk.orders, late) == _elsewhere(walk, walk.ledger.live, late)
    if not (walk.ledger.open or late):
        assert {*walk.orders.values()} <= {"stop"}


def _elsewhere(walk, uids, workers):
    """Return those that are on none of these workers."""
    return {uid for uid in uids if walk.where[uid][0] not in workers}


def the_registry_knows(walk):
    """What listings show is what is true, or a clock runs at which it is told; an end is told once, with all counts."""
    ledger = walk.ledger
    if ledger.ended is not None:
        (done,) = walk.done
        assert (done.state, done.tally) == (ledger.ended.state, views.tally(ledger))
        assert "tally" not in walk.clocks
    elif not ledger.fresh:
        told = walk.advanced
        current = told is not None and told.tally.counts == views.tally(ledger).counts
        assert (current and told.state is ledger.shown()) or "tally" in walk.clocks
        for _ in range(3):
            if "tally" in walk.clocks:
                walk.ring("tally")
        assert "tally" not in walk.clocks, "it rings for ever"
        assert walk.advanced.tally == views.tally(ledger) or ledger.suspects


def listeners_hear_once(walk):
    """Of a job each change of its state; of a task its end only when its log is stored, as far as it will be (J8)."""
    ledger = walk.ledger
    states = [each.state for each in walk.states]
    assert all(one is not other for one, other in pairwise(states))
    ended = [(each.index, each.uid) for each in walk.tasks if each.state in TASK_TERMINAL]
    assert len(ended) == len({*ended})
    due = {*ledger.due.values()}
    assert not due & {uid for _, uid in ended}
    for index, task in ledger.tasks.items():
        if task.state in TASK_TERMINAL and not task.logs_due and task.attempt.ending is not None:
            assert (index, task.attempt.uid) in ended or task.state is not TaskState.SUCCEEDED


def a_snapshot_keeps_the_order(walk):
    """Who waits longest, whose timeout ends first: a ledger that is built again has them in the same order."""
    ledger = walk.ledger
    again = built_again(ledger)
    assert [*again.timed.items()] == [*ledger.timed.items()]
    assert [*again.waiting] == [*ledger.waiting]
    assert {**again.tasks} == {**ledger.tasks}
    assert (again.live, again.places, again.due, again.culprit) == (
        ledger.live,
        ledger.places,
        ledger.due,
        ledger.culprit,
    )


def built_again(ledger):
    """Return a ledger of what a snapshot of this one keeps."""
    again = JobLedger(ledger.job_id, ledger.order, ledger.spec, ledger.submitted_wall_ns)
    for record in compact(ledger):
        evolve(again, record)
    return again


def test_a_snapshot_keeps_the_order_of_what_began_at_one_moment():
    """The tasks of a worker that was lost wait again in the order in which they were placed."""
    walk = Walk(command_spec(replicas=3))
    for step in ("place 0 on w0", "place 2 on w0", "place 1 on w0", "u1 SUCCEEDED 0", "w0 lost, fenced: True"):
        dict(walk.choices())[step]()
    assert [*walk.ledger.waiting] == [*built_again(walk.ledger).waiting] == [2, 1]
