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

WALKS = examples(60)
STEPS = 20
SPECS = st.builds(
    command_spec,
    replicas=st.just(3),
    max_retries_failure=st.integers(0, 1),
    max_retries_preemption=st.integers(0, 2),
    timeout_ns=st.sampled_from([0, 50 * SECOND]),
    scheduling_timeout_ns=st.sampled_from([0, 100 * SECOND]),
)


def steps(walk, data):
    """Take steps, each drawn from all that may come next."""
    for _ in range(data.draw(st.integers(0, STEPS))):
        choices = dict(walk.choices())
        choices[data.draw(st.sampled_from(list(choices)))]()
        yield


@WALKS
@given(SPECS, st.data())
def test_each_deadline_has_its_clock(spec, data):
    """While a job is open: for the oldest attempt under a timeout, for what waits too long, for each silent worker."""
    walk = Walk(spec)
    for _ in steps(walk, data):
        ledger, clocks = walk.ledger, walk.clocks
        if ledger.open:
            assert ("timeout" in clocks) >= bool(ledger.timed)
            waits = spec.scheduling_timeout_ns and (ledger.untouched or ledger.waiting)
            assert ("scheduling" in clocks) >= bool(waits)
        elif ledger.ended is None:
            assert "scheduling" not in clocks
        for place in ledger.suspects:
            assert ("lease", *place) in clocks or place not in ledger.places
        for key in clocks:
            assert key[0] != "lease" or key[1:] in ledger.suspects
        assert all(clock.delay >= 0 for clock in clocks.values())


@WALKS
@given(SPECS, st.data())
def test_the_scheduler_knows_what_holds_room_and_what_waits(spec, data):
    """Exactly the live attempts hold room (INV-J3), and what waits may be placed, until nothing more may."""
    walk = Walk(spec)
    for _ in steps(walk, data):
        ledger = walk.ledger
        assert walk.room == ledger.live
        waits = {index for first, end in ledger.pending_ranges() for index in range(first, end)}
        assert {*walk.waiting} == waits
        assert walk.withdrawn == (not ledger.open)


@WALKS
@given(SPECS, st.data())
def test_workers_run_what_lives_and_forget_what_is_over(spec, data):
    """Each live attempt was ordered; once its end is written down its worker may forget it (INV-J2).

    A worker whose link has no room learns it a little later.
    """
    walk = Walk(spec)
    for _ in steps(walk, data):
        late = [worker for _, worker, _ in walk.late()]
        assert _elsewhere(walk, walk.orders, late) == _elsewhere(walk, walk.ledger.live, late)
        if not (walk.ledger.open or late):
            assert {*walk.orders.values()} <= {"stop"}
    walk.catch_up()
    assert {*walk.orders} == {*walk.ledger.live}
    assert walk.ledger.open or {*walk.orders.values()} <= {"stop"}


def _elsewhere(walk, uids, workers):
    """Return those that are on none of these workers."""
    return {uid for uid in uids if walk.where[uid][0] not in workers}


@WALKS
@given(SPECS, st.data())
def test_the_registry_hears_within_its_time(spec, data):
    """What listings show is what is true, or a clock runs at which it is told; an end is told once, with all counts."""
    walk = Walk(spec)
    for _ in steps(walk, data):
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


@WALKS
@given(SPECS, st.data())
def test_listeners_hear_each_state_once(spec, data):
    """Of a job each change of its state; of a task its end only when its log is stored, as far as it will be (J8)."""
    walk = Walk(spec)
    for _ in steps(walk, data):
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


def built_again(ledger, spec):
    """Return a ledger of what a snapshot of this one keeps."""
    again = JobLedger(ledger.job_id, ledger.order, spec, ledger.submitted_wall_ns)
    for record in compact(ledger):
        evolve(again, record)
    return again


def test_a_snapshot_keeps_the_order_of_what_began_at_one_moment():
    """The tasks of a worker that was lost wait again in the order in which they were placed."""
    spec = command_spec(replicas=3)
    walk = Walk(spec)
    for step in ("place 0 on w0", "place 2 on w0", "place 1 on w0", "u1 SUCCEEDED 0", "w0 lost, fenced: True"):
        dict(walk.choices())[step]()
    assert [*walk.ledger.waiting] == [*built_again(walk.ledger, spec).waiting] == [2, 1]


@WALKS
@given(SPECS, st.data())
def test_a_snapshot_keeps_what_comes_first(spec, data):
    """Who waits longest, whose timeout ends first: a ledger that is built again has them in the same order."""
    walk = Walk(spec)
    for _ in steps(walk, data):
        ledger = walk.ledger
        again = built_again(ledger, spec)
        assert [*again.timed.items()] == [*ledger.timed.items()]
        assert [*again.waiting] == [*ledger.waiting]
        assert {**again.tasks} == {**ledger.tasks}
        assert (again.live, again.places, again.due, again.culprit) == (
            ledger.live,
            ledger.places,
            ledger.due,
            ledger.culprit,
        )


@WALKS
@given(SPECS, st.data())
def test_a_job_ends_with_nothing_left(spec, data):
    """Whatever happened: in one terminal state, without attempt, room, order, call or clock."""
    walk = Walk(spec)
    for _ in steps(walk, data):
        pass
    walk.settle()
    assert walk.ledger.ended is not None
    assert (walk.room, walk.orders, walk.calls, walk.withdrawn) == ({}, {}, {}, True)
    left = {key for key in walk.clocks if key not in ("link", "registry", "scheduler")}
    assert {key for key in left if key[0] != "lease"} == set()
    before = len(walk.done)
    walk.send(Settle(walk.ledger.shown()))
    assert len(walk.done) == before == 1
