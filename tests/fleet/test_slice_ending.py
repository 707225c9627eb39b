"""How a slice goes: its pods, its pool, and what is late, twice, or never answered."""

from __future__ import annotations

import pytest
from slice_desk import FIRST, NAME, OTHER, brief, runs, send, stopped, timers, told, unregistered, whole
from slice_walk import Walk

from iriscw.cloud.effects import CreateNodePool, DeleteNodePool, ListNodePools
from iriscw.cloud.model import Gone, Unavailable
from iriscw.fleet.model import PodState, SliceState, Trouble
from iriscw.fleet.signals import (
    Dismiss,
    Overdue,
    PodStarted,
    PoolSeen,
    PoolVanished,
    RemovePod,
    SliceReported,
    TryAgain,
)
from iriscw.runtime.vocabulary import ActorPath, Completed, Failed, StopReason, Terminated

S = SliceState


@pytest.fixture
def walk(piece, ctx):
    """A slice of two workers before an honest world."""
    return Walk(piece, ctx)


@pytest.fixture
def lived(walk):
    """The same, and it is ready."""
    walk.settle()
    return walk


@pytest.fixture
def ready(piece, ctx, pool):
    """A ready slice of two workers."""
    return whole(piece(num_vms=2), ctx, pool)


# A create under way


def test_end_waits_for_the_answer_to_the_create(piece, ctx, pool):
    """A slice dismissed during its create deletes what the create brings, and is not gone before."""
    it = piece()
    (create,) = runs(send(it, ctx, brief()))
    assert runs(send(it, ctx, Dismiss("unwanted"))) == []
    assert it.state is S.DELETING
    assert runs(send(it, ctx, Completed("pool", create, pool()))) == [DeleteNodePool(NAME, "u1")]
    send(it, ctx, PoolVanished("u1"))
    assert it.state is S.GONE


def test_stuck_create_does_not_hold_up_the_end_for_ever(piece, ctx):
    """A call that is never answered is given up on when the deletion is overdue."""
    it = piece()
    send(it, ctx, brief())
    send(it, ctx, Dismiss("unwanted"))
    assert isinstance(runs(send(it, ctx, Overdue("deletion")))[0], ListNodePools)
    assert it.stuck


def test_a_slice_that_never_saw_its_pool_looks_for_it(walk):
    """It stops what it repeated, and does nothing more once it is told that there is no pool."""
    walk.answer("pool", Unavailable("x"))
    commands = walk.send(Dismiss("enough"))
    assert {"pool", "stage", "startup", "slow"} <= {*stopped(commands)}
    assert walk.calls["pool"] == [ListNodePools(walk.it.seed.labels)]
    walk.answer("pool")
    assert walk.it.state is S.GONE


def test_a_create_that_lands_after_the_pool_vanished_is_looked_for(walk):
    """It was sent twice, and answered by silence each time: the second pool may be there when the first has gone."""
    steps = ("the create lands, unanswered", "ring pool", "0 nodes", "pool vanishes", "the create lands, unanswered")
    for step in steps:
        dict(walk.choices())[step]()
    walk.send(Dismiss("enough"))
    walk.settle()
    assert (walk.it.state, walk.pool) == (S.GONE, None)


def test_a_slice_that_goes_waits_for_the_answer_to_its_create(walk):
    """Its pool has vanished, and another one may come of the create that is under way."""
    for step in ("the create lands, unanswered", "ring pool", "0 nodes", "dismiss", "pool vanishes"):
        dict(walk.choices())[step]()
    assert walk.it.state is S.DELETING
    walk.lose_answer()
    walk.settle()
    assert (walk.it.state, walk.pool) == (S.GONE, None)


# Pods


def test_pool_is_deleted_when_pods_had_their_time(ready, ctx):
    """Pods that do not end do not keep the pool; the slice is gone only when both are."""
    assert runs(send(ready, ctx, Dismiss("idle"))) == []
    assert runs(send(ready, ctx, Overdue("pods"))) == [DeleteNodePool(NAME, "u1")]
    (report,) = told(send(ready, ctx, PoolVanished("u1")), SliceReported)
    assert (report.row.state, report.row.trouble) == (S.DELETING, Trouble.NONE)
    for index in (0, 1):
        send(ready, ctx, unregistered(index, PodState.REMOVED))
    assert ready.state is S.GONE


def test_the_end_of_the_drain_stops_its_clock(ready, ctx):
    """Pods that are gone in time are not waited for."""
    send(ready, ctx, Dismiss("idle"))
    send(ready, ctx, unregistered(0, PodState.REMOVED))
    assert "pods" in stopped(send(ready, ctx, unregistered(1, PodState.REMOVED)))
    assert ready.state is S.DELETING


def test_the_last_place_that_fails_ends_the_drain(piece, ctx, pool):
    """A slice that goes does not wait for a place that cannot say anything any more."""
    it = piece(num_vms=1)
    send(it, ctx, brief(pool(nodes=1, total=1)))
    send(it, ctx, Dismiss("idle"))
    assert it.state is S.DRAINING
    commands = send(it, ctx, Terminated(ActorPath(f"/fleet/gpu/{NAME}/{FIRST}"), StopReason.QUARANTINED))
    assert it.state is S.DELETING
    assert len(runs(commands)) == 1


def test_a_slice_told_to_go_again_repeats_itself(lived):
    """While it drains, and to a place that begins; after that there is nobody left to be told."""
    lived.send(Dismiss("enough"))
    assert len(told(lived.send(Dismiss("again")), RemovePod)) == 2
    assert len(told(lived.send(PodStarted(FIRST)), RemovePod)) == 1
    lived.ring("pods")
    assert told(lived.send(Dismiss("again")), RemovePod) == []


def test_a_pool_that_is_gone_while_pods_drain_is_not_deleted(lived):
    """The slice is gone with its last pod."""
    lived.send(Dismiss("enough"))
    lived.lose_pool()
    lived.ring("pods")
    assert (lived.it.state, lived.calls) == (S.DELETING, {})
    for name in (FIRST, OTHER):
        lived.report(name, PodState.REMOVED)
    assert (lived.it.state, lived.clocks) == (S.GONE, {})


# The pool


def test_a_teardown_is_asked_for_until_it_happens(piece, ctx, pool):
    """Acknowledged, it is repeated with growing pauses for as long as the pool is there."""
    it = piece()
    send(it, ctx, brief(pool(total=1)))
    (delete,) = runs(send(it, ctx, Dismiss("nobody needs it")))
    assert (delete, it.state) == (DeleteNodePool(NAME, "u1"), S.DELETING)
    delays = []
    for _ in range(6):
        (clock,) = timers(send(it, ctx, Completed("pool", delete, None))).values()
        delays.append(clock.delay)
        assert runs(send(it, ctx, clock.message)) == [delete]
    assert delays[-1] > delays[0]
    assert it.pool_uid == "u1"


def test_only_a_slice_that_goes_repeats_a_deletion(ready, ctx):
    """A late answer about the pool of a ready one is of no consequence."""
    assert send(ready, ctx, Completed("pool", CreateNodePool(ready.seed.pool), ready.pool))
    assert runs(send(ready, ctx, TryAgain("pool"))) == []


def test_what_a_late_create_brought_is_deleted_too(lived, pool):
    """A pool of another uid than the one that is being deleted: one deletion for each, by uid."""
    lived.send(Dismiss("enough"))
    lived.ring("pods")
    fresh = pool(uid="u99")
    assert runs(lived.send(PoolSeen(fresh))) == [DeleteNodePool(NAME, "u99")]
    assert runs(lived.send(PoolSeen(fresh))) == []


def test_what_took_the_name_of_a_pool_that_is_gone_is_deleted_too(lived, pool):
    """Its slice still waits for its pods then; it did not end before the newcomer was gone, and nobody removed that."""
    lived.send(Dismiss("enough"))
    lived.ring("pods")
    lived.send(Failed("pool", DeleteNodePool(NAME, lived.it.pool_uid), Gone("x")))
    assert runs(lived.send(PoolSeen(pool(uid="u99")))) == [DeleteNodePool(NAME, "u99")]
    lived.send(Failed("pool", DeleteNodePool(NAME, "u99"), Gone("x")))
    assert lived.it.pool_gone


def test_the_absence_of_another_pool_says_nothing(lived):
    """Only the uid that was to be deleted can be gone."""
    lived.send(Dismiss("enough"))
    lived.ring("pods")
    uid = lived.it.pool_uid
    assert lived.send(Failed("pool", DeleteNodePool(NAME, "u99"), Gone("x"))) == ()
    lived.send(Failed("pool", DeleteNodePool(NAME, uid), Gone("x")))
    assert lived.it.pool_gone


# A deletion that is stuck


def test_a_stuck_deletion_says_what_is_stuck(lived):
    """Pods while it drains, the pool after that; it is said once, and the pool is asked to go again."""
    lived.send(Dismiss("enough"))
    lived.send(Overdue("deletion"))
    assert "worker pods" in lived.it.reason
    assert (lived.it.stuck, lived.it.trouble) == (True, Trouble.STUCK_DELETION)
    lived.ring("pods")
    lived.it.stuck = False
    lived.answer("pool")
    commands = lived.send(Overdue("deletion"))
    assert "node pool" in lived.it.reason
    assert [type(each) for each in runs(commands)] == [DeleteNodePool]
    assert runs(lived.send(Overdue("deletion"))) == []
    lived.it.stuck = False
    lived.lose_pool()
    assert runs(lived.send(Overdue("deletion"))) == []
    assert "worker pods" in lived.it.reason


@pytest.mark.parametrize("state", [S.READY, S.FAILED])
def test_no_deletion_is_stuck_before_it_began(lived, state):
    """A clock that rings late says nothing."""
    if state is S.FAILED:
        lived.end(FIRST)
    lived.send(Overdue("deletion"))
    assert not lived.it.stuck
