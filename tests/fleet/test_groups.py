"""A group: its slices, what the cloud shows of them, and what it answers when the scheduler misses workers."""

from __future__ import annotations

import pytest
from group_desk import begin, requested, row, send, told
from group_walk import Walk

from iriscw.cloud.effects import DeleteNodePool
from iriscw.cloud.model import NodePool, Pod
from iriscw.fleet.groups import group as groups
from iriscw.fleet.messages import (
    Cordon,
    SchedulerStarted,
    SliceGone,
    WorkersMissed,
)
from iriscw.fleet.model import SliceState, Trouble
from iriscw.fleet.records import (
    SliceDoomed,
    SlicePoolCreated,
    SlicePromise,
    SliceRequested,
    compact,
    evolve,
)
from iriscw.fleet.signals import (
    Dismiss,
    Evaluate,
    GroupReported,
    PodsListed,
    PoolsListed,
    SliceBriefed,
    SliceStarted,
    SlicesWanted,
    Takeover,
    TryAgain,
)
from iriscw.runtime.vocabulary import (
    SECOND,
    ActorPath,
    Run,
    SetTimer,
    Spawn,
    StopReason,
    Terminated,
    Undelivered,
)

S = SliceState


@pytest.fixture
def ctx(ctx):
    ctx.path = ActorPath("/fleet/gpu")
    return ctx


@pytest.fixture
def opened(group, ctx):
    """A group that knows all that it waits for."""
    return lambda **changes: begin(group(**changes), ctx)


@pytest.fixture
def walk(group, ctx):
    """A group before an honest world."""
    return lambda **changes: Walk(group, ctx, **changes)


# Slices


def test_a_pool_that_was_seen_is_promised(opened, ctx):
    """Its uid is written down once, and is what a successor of the group starts from."""
    it = opened()
    (name,) = requested(send(it, ctx, SlicesWanted(1))[0])
    facts, _ = send(it, ctx, row(name, S.BOOTING, ctx, uid=f"pool-of-{name}"))
    assert facts == [SlicePoolCreated(name, f"pool-of-{name}")]
    assert it.promises[name].pool_uid == f"pool-of-{name}"
    assert send(it, ctx, row(name, S.BOOTING, ctx, uid=f"pool-of-{name}"))[0] == []
    promises: dict[str, SlicePromise] = {}
    for fact in compact(it.promises):
        evolve(promises, fact)
    assert promises == it.promises


def test_replay_gives_equal_promises_and_restarts_every_slice(opened, ctx, group):
    """A snapshot replayed gives an equal group; resuming starts each slice and dismisses the doomed again."""
    it = opened()
    names = requested(send(it, ctx, SlicesWanted(3))[0])
    groups.apply(it, SliceDoomed(names[1], "idle"))
    again = group()
    for fact in groups.snapshot(it):
        groups.apply(again, fact)
    assert again == it
    commands = groups.resume(again, ctx)
    assert [c.spec.name for c in commands if isinstance(c, Spawn)] == names
    for name in names:
        send(again, ctx, SliceStarted(name))
    for message in (PoolsListed(()), PodsListed(()), Takeover()):
        _, commands = send(again, ctx, message)
    assert [each.doomed for each in told(commands, SliceBriefed)] == ["", "idle", ""]
    assert told(commands, Dismiss) == [Dismiss("idle")]


def test_restarted_doomed_slice_is_dismissed_again(opened, ctx):
    """A slice whose actor begins anew in the middle of its end is told to go again."""
    it = opened()
    facts, _ = send(it, ctx, SlicesWanted(1))
    name = facts[0].slice_id
    send(it, ctx, SliceStarted(name))
    send(it, ctx, row(name, S.FAILED, ctx))
    assert it.sight.dismissals == {}
    _, commands = send(it, ctx, SliceStarted(name))
    assert told(commands, Dismiss) == [Dismiss("why")]


def test_a_quarantined_slice_is_shown_and_left_alone(walk):
    """An operator must look; a slice that stopped as it was told to is not shown as failed."""
    it = walk()
    it.send(SlicesWanted(1))
    (name,) = it.slices
    it.ctx.later(1)
    it.report(name, S.READY, idle=True)
    before = it.rows[name]
    it.send(Terminated(it.ctx.path / name, StopReason.NORMAL))
    assert it.rows[name] == before
    it.send(Terminated(it.ctx.path / name, StopReason.QUARANTINED))
    assert it.rows[name].state is S.FAILED
    assert "quarantine" in it.rows[name].reason
    assert it.rows[name].requested_at == before.since - SECOND
    assert it.reported.row.ready == 0
    assert not it.it.promises[name].doomed
    it.send(Terminated(it.ctx.path / "iris-gpu-unknown", StopReason.QUARANTINED))
    assert [*it.rows] == [name]


def test_the_end_of_a_slice_is_told_to_whoever_shows_or_uses_it(walk):
    """Its promise and its row go, its actor stops, the scheduler hears that its workers never return; a pod that is
    still shown is an orphan.
    """
    it = walk()
    it.send(SlicesWanted(1))
    (name,) = it.slices
    it.report(name, S.READY)
    it.it.sight.pods[name] = {"p": Pod("p", "pu", "1", it.labels(name))}
    it.report(name, S.FAILED, Trouble.WORKERS)
    it.report(name, S.GONE)
    assert (it.rows, it.slices, it.gone, it.it.promises) == ({}, {}, [name], {})
    assert it.it.sight.orphans.names == ("pod:p",)


# What the cloud shows


def test_late_pool_of_a_forgotten_slice_is_deleted(opened, ctx, labels):
    """A create that lands after its slice is gone is reclaimed by name and uid (INV-F1)."""
    it = opened()
    late = NodePool("iris-gpu-old", "u7", "1", labels("iris-gpu-old"))
    _, commands = send(it, ctx, PoolsListed((late,)))
    assert [c.effect for c in commands if isinstance(c, Run)] == [DeleteNodePool("iris-gpu-old", "u7")]


def test_an_orphan_that_is_found_gone_is_not_shown_any_more(walk):
    """At once: the answer to its deletion says that there is nothing to delete."""
    it = walk()
    it.late()
    (key,) = it.calls
    assert it.reported.row.orphans == (key[1],)
    it.pools.clear()
    it.answer(key)
    assert it.reported.row.orphans == ()


@pytest.mark.parametrize("kind", ["pool", "pod"])
def test_what_a_list_does_not_show_is_gone(walk, kind):
    """Of a slice: it is told. Of nobody: it is forgotten; and lists of one kind say nothing about the other."""
    it = walk()
    for _ in range(2):
        it.late()
    assert it.it.sight.orphans.names == ("pod:iris-gpu-old2", "pool:iris-gpu-old1")
    it.send(PoolsListed(()) if kind == "pool" else PodsListed(()))
    assert [name.partition(":")[0] for name in it.it.sight.orphans.names] == ["pod" if kind == "pool" else "pool"]


# The scheduler


def test_a_new_scheduler_is_told_by_every_slice(group, ctx):
    """Each slice that was started hears of it, and no question of the old one stands."""
    it = Walk(group, ctx)
    it.send(SlicesWanted(2))
    names = [*it.slices]
    for name in names:
        it.report(name, S.READY, idle=True)
    it.send(SlicesWanted(0))
    it.ctx.later(40)
    it.send(Evaluate())
    heard = []
    it._told, told = lambda name, message: heard.append((name, message)) or told(name, message), it._told
    it.forget()
    assert [name for name, message in heard if message == SchedulerStarted()] == names
    assert "cordon" not in it.clocks
    assert not any(isinstance(message, SliceGone) for _, message in heard)


def test_a_report_that_found_a_full_mailbox_is_told_again(opened, ctx):
    """Even though nothing has changed since; what a slice missed it is told when it asks anew."""
    it = opened()
    before = it.sight.told
    assert before is not None
    _, (clock,) = send(it, ctx, Undelivered(ActorPath("/fleet"), before))
    assert (clock.message, isinstance(clock, SetTimer)) == (TryAgain("retell"), True)
    _, commands = send(it, ctx, clock.message)
    assert told(commands, GroupReported) == [before]
    (name,) = requested(send(it, ctx, SlicesWanted(1))[0])
    _, (clock,) = send(it, ctx, Undelivered(ctx.path / name, Dismiss("x")))
    assert clock.message == SliceStarted(name)


def test_what_is_asked_again_anyhow_is_not_told_again(opened, ctx):
    """The scheduler asks again for those it misses; a cordon has a deadline, and may be of another round by then."""
    missed = WorkersMissed((("w-0", "i"),))
    assert send(opened(), ctx, Undelivered(ActorPath("/fleet/gpu/x"), missed)) == ([], [])
    _, commands = send(opened(), ctx, Undelivered(ActorPath("/jobs/scheduler"), Cordon("s", (), 1)))
    assert told(commands, Cordon) == []


MISSED = (("kept-0", "i1"), ("left-0", "i1"), ("gone-0", "i1"), ("gone-1", "i1"), ("kept-1", "i2"))


def answers(it, ctx):
    """Return what a group tells whom about the missed."""
    return [(each.to.name, each.message) for each in groups.workers_missed(it, MISSED, ctx)]


def test_only_what_is_certainly_gone_is_told(group, ctx, labels):
    """Nothing before the lists are complete; then no promised slice and none of which a pool is left (J2)."""
    it = group()
    groups.apply(it, SliceRequested("kept", 0))
    groups.resume(it, ctx)
    left = NodePool("left", "u", "1", labels("left"))
    groups.pools_listed(it, (left,), ctx)
    groups.pods_listed(it, (), ctx)
    assert answers(it, ctx) == []
    it.sight.takeover_over = True
    groups.try_open(it, ctx)
    assert answers(it, ctx) == [("scheduler", SliceGone("gone"))]
    groups.pool_removed(it, left, ctx)
    assert answers(it, ctx) == [("scheduler", SliceGone("left")), ("scheduler", SliceGone("gone"))]


def test_a_pod_that_is_left_keeps_its_slice_from_being_gone(group, ctx, labels):
    """Somebody may still run there, though the pool is gone and the slice is not promised (J2)."""
    it = group()
    groups.resume(it, ctx)
    it.sight.takeover_over = True
    pod = Pod("gone-0-i1", "u", "1", labels("gone", "gone-0", "i1"))
    groups.pools_listed(it, (), ctx)
    groups.pods_listed(it, (pod,), ctx)
    assert answers(it, ctx) == [("scheduler", SliceGone("kept")), ("scheduler", SliceGone("left"))]


def test_slices_that_live_are_asked(group, ctx):
    """A slice that was started says itself what became of its workers."""
    it = group()
    groups.apply(it, SliceRequested("kept", 0))
    groups.resume(it, ctx)
    it.sight.takeover_over = True
    groups.pools_listed(it, (), ctx)
    groups.pods_listed(it, (), ctx)
    groups.slice_started(it, "kept", ctx)
    assert ("kept", WorkersMissed((MISSED[0], MISSED[4]))) in answers(it, ctx)
