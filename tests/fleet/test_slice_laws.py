"""What generated bugs of a slice showed to be unsaid: each test is the law that one of them broke."""

from __future__ import annotations

import attrs
import pytest
from slice_desk import NAME, brief, registered, runs, send, told

from iriscw.cloud.effects import CreateNodePool, DeletePod, ListNodePools, ListPods
from iriscw.cloud.model import Condition, Node, NodePool, Pod, Throttled, Unavailable
from iriscw.fleet.messages import ActivityChanged, Cordon, Uncordon, WorkerReady
from iriscw.fleet.model import PodState, SliceState, Trouble, worker_name
from iriscw.fleet.signals import (
    Dismiss,
    Overdue,
    PodReported,
    PodSeen,
    PodStarted,
    PoolSeen,
    PoolVanished,
    RemovePod,
    SliceReported,
    TryAgain,
)
from iriscw.runtime.vocabulary import (
    SECOND,
    ActorPath,
    CancelTimer,
    Completed,
    Failed,
    SetTimer,
    StopReason,
    Terminated,
    Undelivered,
)

FIRST, SECOND_ONE = worker_name(NAME, 0), worker_name(NAME, 1)


def timers(commands):
    return {command.key: command for command in commands if isinstance(command, SetTimer)}


@pytest.fixture
def pool(labels):
    def make(nodes=0, uid="u1", total=2, **changes):
        ready = tuple(Node(f"n{index}", f"nu{index}", ready=True) for index in range(nodes))
        return NodePool(NAME, uid, "1", labels(NAME), total, nodes=ready, **changes)

    return make


def unregistered(index):
    return PodReported(worker_name(NAME, index), PodState.STARTING, None, "pulling its image", 0)


@pytest.fixture
def ready(piece, ctx, pool):
    """A ready slice of two workers."""
    it = piece(num_vms=2)
    send(it, ctx, brief(pool(nodes=2)))
    send(it, ctx, registered(it, 0))
    send(it, ctx, registered(it, 1))
    assert it.state is SliceState.READY
    return it


# What the cloud asks for, and what it says


@pytest.mark.parametrize("effect", ["create", "list"])
def test_a_cloud_that_asks_for_time_gets_it(piece, ctx, effect):
    """A call that was throttled is repeated not before the time that the cloud named."""
    it = piece()
    (call,) = runs(send(it, ctx, brief(uid="u1" if effect == "list" else "")))
    assert isinstance(call, ListNodePools if effect == "list" else CreateNodePool)
    commands = send(it, ctx, Failed("pool", call, Throttled(retry_after=300 * SECOND)))
    assert timers(commands)["pool"].delay == 300 * SECOND
    assert it.trouble is Trouble.API


def test_an_impatient_cloud_is_not_hurried(piece, ctx):
    """A shorter time than one's own pause changes nothing about that."""
    it = piece()
    (call,) = runs(send(it, ctx, brief()))
    commands = send(it, ctx, Failed("pool", call, Throttled(retry_after=1)))
    assert timers(commands)["pool"].delay > 1


def test_a_call_that_failed_is_reported(piece, ctx):
    """Users read why the slice waits, whatever the call was."""
    it = piece()
    (look,) = runs(send(it, ctx, brief(uid="u1")))
    (report,) = told(send(it, ctx, Failed("pool", look, Unavailable("no route"))), SliceReported)
    assert (report.row.trouble, "no route" in report.row.reason) == (Trouble.API, True)


def test_troubles_of_the_boot_end_with_it(piece, ctx, pool):
    """A slice whose nodes are ready is in no trouble any more, and a ready one neither."""
    it = piece(num_vms=1)
    send(it, ctx, brief(pool(total=1)))
    send(it, ctx, Overdue("slow"))
    assert it.trouble is Trouble.SLOW_BOOT
    send(it, ctx, PoolSeen(pool(nodes=1, total=1)))
    assert (it.state, it.trouble) == (SliceState.INITIALIZING, Trouble.NONE)


def test_trouble_with_workers_stays_while_nodes_are_ready(ready, ctx, pool):
    """What a pool shows says nothing about what is wrong with workers."""
    send(ready, ctx, unregistered(1))
    assert ready.state is SliceState.INITIALIZING
    ready.trouble = Trouble.WORKERS
    send(ready, ctx, PoolSeen(pool(nodes=2)))
    assert ready.trouble is Trouble.WORKERS


def test_a_pool_removed_from_outside_is_trouble_with_a_name(ready, ctx):
    """The slice fails, says what happened, and its group is told of it."""
    (report,) = told(send(ready, ctx, PoolVanished("u1")), SliceReported)
    assert (report.row.state, report.row.trouble) == (SliceState.FAILED, Trouble.WORKERS)
    assert "removed from outside" in report.row.reason


def test_a_pool_that_goes_with_its_slice_is_no_trouble(ready, ctx):
    """What was asked for is not reported as damage."""
    send(ready, ctx, Dismiss("idle"))
    (report,) = told(send(ready, ctx, PoolVanished("u1")), SliceReported)
    assert report.row.trouble is Trouble.NONE


def test_a_pod_without_a_place_is_deleted(ready, ctx, labels):
    """By name and uid, and nothing else is done about it."""
    stray = Pod("x", "u9", "1", labels(NAME, worker_name(NAME, 7), "i1"))
    (run,) = send(ready, ctx, PodSeen(stray))
    assert (run.key, run.effect) == (("stray", "x"), DeletePod("x", "u9"))
    assert send(ready, ctx, Failed(("stray", "x"), run.effect, Unavailable("x"))) == ()


def test_a_failed_list_of_missed_workers_is_no_call_about_the_pool(ready, ctx):
    """It waits under a clock of its own."""
    commands = send(ready, ctx, Failed("missed", ListPods(ready.seed.labels), Unavailable("x")))
    assert [*timers(commands)] == ["missed"]
    assert send(ready, ctx, TryAgain("missed")) == ()
    assert ready.missed == ()


def test_quota_that_shows_later_is_quota(piece, ctx, pool):
    """A pool that exists already may be refused still."""
    it = piece(num_vms=2)
    send(it, ctx, brief(pool()))
    over = Condition("Quota", "False", "Over", "quota exceeded")
    send(it, ctx, PoolSeen(pool(conditions=(over,))))
    assert (it.state, it.trouble) == (SliceState.FAILED, Trouble.QUOTA)


@pytest.mark.parametrize("total", [1, 3])
@pytest.mark.parametrize("nodes", [0, 1, 3])
def test_a_pool_of_another_size_fails_its_slice_at_once(piece, ctx, pool, nodes, total):
    """Its own size says nothing of the slice's, whether it is on the way or was ready (seed 9179, INV-F6)."""
    it = piece(num_vms=2)
    send(it, ctx, brief(pool()))
    send(it, ctx, PoolSeen(pool(nodes=nodes, total=total)))
    assert (it.state, it.trouble) == (SliceState.FAILED, Trouble.WORKERS)
    assert f"resized from outside: {total} nodes, not 2" in it.reason


def test_a_ready_slice_whose_pool_is_resized_fails_too(ready, ctx, pool):
    """What runs there ends with it, and the group makes another: it never waits for a node that will not come."""
    send(ready, ctx, PoolSeen(pool(nodes=2, total=1)))
    assert (ready.state, ready.trouble) == (SliceState.FAILED, Trouble.WORKERS)


# Places


def test_a_place_that_begins_anew_makes_the_slice_incomplete(ready, ctx):
    """It is closed at once, and said to be; the place is briefed."""
    commands = send(ready, ctx, PodStarted(SECOND_ONE))
    assert ready.state is SliceState.INITIALIZING
    (cordon,) = told(commands, Cordon)
    assert cordon.worker_ids == (FIRST,)
    assert [report.row.state for report in told(commands, SliceReported)] == [SliceState.INITIALIZING]


def test_a_place_that_begins_for_the_first_time_changes_nothing(piece, ctx, pool):
    """The slice is on its way as before, and says nothing new."""
    it = piece(num_vms=2)
    send(it, ctx, brief(pool(nodes=2)))
    commands = send(it, ctx, PodStarted(FIRST))
    assert len(commands) == 1
    assert told(commands, SliceReported) == []


def test_a_place_of_a_slice_that_goes_is_told_to(ready, ctx):
    """Whenever it begins."""
    send(ready, ctx, Dismiss("idle"))
    assert len(told(send(ready, ctx, PodStarted(FIRST)), RemovePod)) == 1


def test_attempts_of_an_earlier_incarnation_do_not_count(ready, ctx):
    """They are over, or never to be trusted again: the slice may be idle."""
    send(ready, ctx, ActivityChanged(FIRST, "i1", 2))
    assert ready.live_total == 2
    commands = send(ready, ctx, registered(ready, 0, "i2"))
    assert ready.live_total == 0
    assert ready.idle_since == ctx.now
    assert [each.info.incarnation for each in told(commands, WorkerReady)] == ["i2"]


def test_a_report_without_news_keeps_the_count(ready, ctx):
    """The same incarnation runs what it ran, and is not announced again."""
    send(ready, ctx, ActivityChanged(FIRST, "i1", 2))
    commands = send(ready, ctx, registered(ready, 0, "i1"))
    assert ready.live_total == 2
    assert told(commands, WorkerReady) == []


def test_a_place_that_failed_for_good_condemns_the_slice(ready, ctx):
    """It fails with all that follows: its clocks stop, its worker is closed, its group is told."""
    commands = send(ready, ctx, Terminated(ActorPath(f"/fleet/gpu/{NAME}/{FIRST}"), StopReason.QUARANTINED))
    assert ready.state is SliceState.FAILED
    assert {"stage", "startup", "slow"} <= {each.key for each in commands if isinstance(each, CancelTimer)}
    assert told(commands, Cordon)
    assert [report.row.state for report in told(commands, SliceReported)] == [SliceState.FAILED]


def test_the_last_place_that_fails_ends_the_drain(piece, ctx, pool):
    """A slice that goes does not wait for a place that cannot say anything any more."""
    it = piece(num_vms=1)
    send(it, ctx, brief(pool(nodes=1, total=1)))
    send(it, ctx, Dismiss("idle"))
    assert it.state is SliceState.DRAINING
    commands = send(it, ctx, Terminated(ActorPath(f"/fleet/gpu/{NAME}/{FIRST}"), StopReason.QUARANTINED))
    assert it.state is SliceState.DELETING
    assert len(runs(commands)) == 1


# The scheduler


def test_a_cordon_is_lifted_once(ready, ctx):
    """A slice that is whole again opens itself; the next time it is whole there is nothing to lift."""
    send(ready, ctx, unregistered(1))
    assert len(told(send(ready, ctx, registered(ready, 1, "i2")), Uncordon)) == 1
    assert ready.cordon is None
    assert told(send(ready, ctx, registered(ready, 0, "i3")), Uncordon) == []


def test_what_found_a_full_mailbox_is_told_again(ready, ctx):
    """A cordon as it is, if it is still meant; all else as it is true then."""
    send(ready, ctx, unregistered(1))
    cordon = Cordon(NAME, (FIRST,), ready.cordon)
    for message in (cordon, Uncordon(NAME, 3)):
        (clock,) = send(ready, ctx, Undelivered(ready.seed.scheduler, message))
        assert (clock.key, clock.message) == ("cordon", message)
    assert told(send(ready, ctx, cordon), Cordon) == [cordon]
    assert send(ready, ctx, attrs.evolve(cordon, round=cordon.round + 1)) == ()
    (clock,) = send(ready, ctx, Undelivered(ready.seed.scheduler, WorkerReady(registered(ready, 0).info)))
    assert clock.message == TryAgain("retell")


def test_a_ready_slice_announces_all_when_it_tells_again(ready, ctx):
    """And a slice that goes repeats itself to its places."""
    assert len(told(send(ready, ctx, TryAgain("retell")), WorkerReady)) == 2
    send(ready, ctx, Dismiss("idle"))
    commands = send(ready, ctx, TryAgain("retell"))
    assert told(commands, WorkerReady) == []
    assert len(told(commands, RemovePod)) == 2


# The end


def test_the_end_stops_what_was_repeated(piece, ctx):
    """A slice that is dismissed repeats none of the calls of its life."""
    it = piece()
    (call,) = runs(send(it, ctx, brief()))
    assert "pool" in timers(send(it, ctx, Failed("pool", call, Unavailable("x"))))
    commands = send(it, ctx, Dismiss("nobody needs it"))
    cancelled = [each.key for each in commands if isinstance(each, CancelTimer)]
    assert {"pool", "stage", "startup", "slow"} <= {*cancelled}


def test_the_end_of_the_drain_stops_its_clock(ready, ctx):
    """Pods that are gone in time are not waited for."""
    send(ready, ctx, Dismiss("idle"))
    for index in (0, 1):
        gone = PodReported(worker_name(NAME, index), PodState.REMOVED, None, "gone", 0)
        commands = send(ready, ctx, gone)
    assert ready.state is SliceState.DELETING
    assert "pods" in [each.key for each in commands if isinstance(each, CancelTimer)]


def test_an_answer_about_the_pool_after_the_end_of_the_slice_deletes_nothing_twice(ready, ctx):
    """Only a slice that is being deleted repeats its deletion."""
    assert send(ready, ctx, Completed("pool", CreateNodePool(ready.seed.pool), ready.pool))
    assert runs(send(ready, ctx, TryAgain("pool"))) == []


def test_a_create_that_failed_is_answered(piece, ctx):
    """Nothing waits for it any more: a slice that goes looks for its pool at once."""
    it = piece()
    (call,) = runs(send(it, ctx, brief()))
    send(it, ctx, Failed("pool", call, Unavailable("no answer in time")))
    (look,) = runs(send(it, ctx, Dismiss("nobody needs it")))
    assert look == ListNodePools(it.seed.labels)
