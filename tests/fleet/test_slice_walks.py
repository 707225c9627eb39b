"""A slice in any order of events that an honest world can bring: its clocks, its calls, its reports, its workers."""

from __future__ import annotations

import attrs
from hypothesis import HealthCheck, given, strategies as st
from slice_walk import Walk

from iriscw.fleet.model import SliceState, Trouble
from iriscw.fleet.signals import Dismiss
from profiles import examples

S = SliceState
WALKS = examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
STEPS = 25
GOING = (S.DRAINING, S.DELETING, S.GONE)
TO_READY = {"stage", "startup", "slow"}
CLOCKS = {
    S.REQUESTED: {"pool"},
    S.CREATING: {"pool", *TO_READY},
    S.BOOTING: {"pool", *TO_READY},
    S.INITIALIZING: {"pool", *TO_READY},
    S.READY: {"pool"},
    S.FAILED: {"pool"},
    S.DRAINING: {"pods", "stuck"},
    S.DELETING: {"pool", "stuck"},
    S.GONE: set(),
}
"""The clocks that may run in a state, but for that of missed workers."""


def steps(walk, data):
    """Take steps, each drawn from all that may come next; by and large the slice gets somewhere."""
    for _ in range(data.draw(st.integers(0, 3))):
        walk.settle()
        yield
        break
    for _ in range(data.draw(st.integers(0, STEPS))):
        if walk.it.state is S.GONE:
            return  # its group stops it
        choices = dict(walk.choices())
        choices[data.draw(st.sampled_from(list(choices)))]()
        yield


@WALKS
@given(st.data())
def test_each_state_has_its_clocks(piece, ctx, data):
    """A deadline runs in the stage it is for, and no clock outlives what it was for."""
    walk = Walk(piece, ctx)
    for _ in steps(walk, data):
        running = {key for key in walk.clocks if key != "missed"}
        assert running <= CLOCKS[walk.it.state], f"{running} in {walk.it.state}"


@WALKS
@given(st.data())
def test_what_is_owed_is_asked_for_or_has_a_deadline(piece, ctx, data):
    """No stage lasts for ever: but for the wait for machines, each has a deadline; calls are repeated (INV-F7)."""
    walk = Walk(piece, ctx)
    for _ in steps(walk, data):
        it, clocks = walk.it, walk.clocks
        if it.state in (S.CREATING, S.BOOTING, S.INITIALIZING):
            waits = it.trouble is Trouble.CAPACITY
            assert "stage" in clocks or waits
            assert "startup" in clocks or waits or it.state is S.INITIALIZING
        if it.state is S.CREATING or (it.state is S.DELETING and not it.pool_gone):
            assert "pool" in walk.calls or "pool" in clocks
        if it.state is S.DRAINING:
            assert "pods" in clocks or it.places == {}
        if it.state in (S.DRAINING, S.DELETING):
            assert "stuck" in clocks or it.stuck


@WALKS
@given(st.data())
def test_the_group_knows_whatever_its_slice_would_say(piece, ctx, data):
    """Whatever a decision changed of what a group judges by was told with it."""
    walk = Walk(piece, ctx)
    for _ in steps(walk, data):
        told, true = walk.reported, walk.truth()
        if walk.it.state is not S.READY:  # of others nobody asks for the workers
            told, true = (attrs.evolve(each, row=attrs.evolve(each.row, workers=())) for each in (told, true))
        assert told == true


@WALKS
@given(st.data())
def test_the_scheduler_knows_the_workers_of_a_ready_slice(piece, ctx, data):
    """All of them, in their present incarnations, and open; once the slice is incomplete it is closed (INV-F6)."""
    walk = Walk(piece, ctx)
    for _ in steps(walk, data):
        if walk.it.state is S.READY:
            assert walk.known == {name: told.info.incarnation for name, told in walk.places.items()}
            assert walk.closed is None
        elif walk.known and walk.it.state in (S.BOOTING, S.INITIALIZING, S.FAILED) and walk.it.workers:
            assert walk.closed is not None


@WALKS
@given(st.data())
def test_idle_begins_when_nothing_runs(piece, ctx, data):
    """A ready slice on which nothing lives is idle since it was so; one that is not ready never is."""
    walk = Walk(piece, ctx)
    for _ in steps(walk, data):
        it = walk.it
        assert (it.idle_since is not None) == (it.state is S.READY and it.live_total == 0)
        assert (it.idle_since is None) == (it.idle_since_wall is None)


@WALKS
@given(st.data())
def test_a_healed_slice_is_ready(piece, ctx, data):
    """Or it failed, and waits for its group with its clocks stopped; nothing in between lasts."""
    walk = Walk(piece, ctx)
    for _ in steps(walk, data):
        pass
    walk.settle()
    assert walk.it.state in (S.READY, S.FAILED, S.GONE), walk.it
    assert (walk.it.state is S.READY) <= (walk.it.trouble is Trouble.NONE)


@WALKS
@given(st.data())
def test_a_slice_that_is_dismissed_leaves_nothing(piece, ctx, data):
    """Whatever was under way: no pool, no pod, and no clock that would ring for somebody."""
    walk = Walk(piece, ctx)
    for _ in steps(walk, data):
        pass
    walk.send(Dismiss("enough"))
    walk.settle()
    assert walk.it.state is S.GONE, walk.it
    assert walk.pool is None
    assert {*walk.clocks} <= {"missed"}
