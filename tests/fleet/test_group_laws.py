"""What generated bugs of a scale group showed to be unsaid: each test is the law that one of them broke."""

from __future__ import annotations

import pytest
from group_desk import send, told

from iriscw.fleet.groups import group as groups
from iriscw.fleet.groups.group import Closure
from iriscw.fleet.groups.scaling import is_closed
from iriscw.fleet.messages import Cordon, WorkersMissed
from iriscw.fleet.model import Availability, SliceRow, SliceState, Trouble
from iriscw.fleet.records import SliceDoomed, SlicePoolCreated, SlicePromise, SliceRequested, compact, evolve
from iriscw.fleet.signals import (
    Dismiss,
    Evaluate,
    GroupReported,
    PodsListed,
    PoolsListed,
    SliceReported,
    SliceStarted,
    SlicesWanted,
    Takeover,
    TryAgain,
)
from iriscw.runtime.vocabulary import ActorPath, SetTimer, Undelivered


@pytest.fixture
def ctx(ctx):
    ctx.path = ActorPath("/fleet/gpu")
    return ctx


def row(name, state, ctx, trouble=Trouble.NONE):
    ready = state is SliceState.READY
    return SliceReported(
        row=SliceRow(name, "gpu", state, trouble, "why", ctx.wall, ctx.wall, workers=("w",)),
        pool_uid=f"pool-of-{name}",
        idle_since=ctx.now if ready else None,
        ready_since=ctx.now if ready else None,
        used=True,
        stuck=False,
        bare=False,
    )


@pytest.fixture
def opened(group, ctx):
    def make(**changes):
        it = group(**changes)
        groups.resume(it, ctx)
        for message in (PoolsListed(()), PodsListed(()), Takeover()):
            send(it, ctx, message)
        return it

    return make


def requested(facts):
    return [fact.slice_id for fact in facts if isinstance(fact, SliceRequested)]


def test_a_pool_that_was_seen_is_promised(opened, ctx):
    """Its uid is written down once, and is what a successor of the group starts from."""
    it = opened()
    (name,) = requested(send(it, ctx, SlicesWanted(1))[0])
    facts, _ = send(it, ctx, row(name, SliceState.BOOTING, ctx))
    assert facts == [SlicePoolCreated(name, f"pool-of-{name}")]
    assert it.promises[name].pool_uid == f"pool-of-{name}"
    assert send(it, ctx, row(name, SliceState.BOOTING, ctx))[0] == []
    promises: dict[str, SlicePromise] = {}
    for fact in compact(it.promises):
        evolve(promises, fact)
    assert promises == it.promises


def test_slices_that_die_young_stop_the_group(opened, ctx):
    """Three short lives within the window: nothing more is asked for, and that is said."""
    it = opened(max_slices=1)
    reports = []
    for _ in range(3):
        (name,) = requested(send(it, ctx, SlicesWanted(1))[0] + send(it, ctx, Evaluate())[0])
        send(it, ctx, SliceStarted(name))
        send(it, ctx, row(name, SliceState.READY, ctx))
        facts, commands = send(it, ctx, row(name, SliceState.FAILED, ctx, Trouble.WORKERS))
        assert any(isinstance(fact, SliceDoomed) for fact in facts)
        send(it, ctx, row(name, SliceState.GONE, ctx))
        ctx.later(200)
        reports += told(commands, GroupReported)
    _, commands = send(it, ctx, Evaluate())
    reports += told(commands, GroupReported)
    assert it.sight.experience.churn_percent(ctx.now) == 100
    assert reports[-1].availability is Availability.CHURNING
    assert requested(send(it, ctx, SlicesWanted(2))[0]) == []


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


def test_missed_workers_are_not_told_again(opened, ctx):
    """The scheduler asks again by itself."""
    missed = WorkersMissed((("w-0", "i"),))
    assert send(opened(), ctx, Undelivered(ActorPath("/fleet/gpu/x"), missed)) == ([], [])


def test_a_cordon_that_found_a_full_mailbox_is_left_to_its_deadline(opened, ctx):
    """It is not told twice: the round may be another one by then."""
    _, commands = send(opened(), ctx, Undelivered(ActorPath("/jobs/scheduler"), Cordon("s", (), 1)))
    assert told(commands, Cordon) == []


def test_a_closure_ends_exactly_at_its_time(opened, ctx):
    """Not an instant later: a look that was set for that moment would find nothing to do."""
    it = opened()
    it.sight.closure = Closure(Trouble.QUOTA, "why", ctx.now + 5, ctx.wall + 5)
    assert is_closed(it, ctx.now + 4)
    assert not is_closed(it, ctx.now + 5)
    it.sight.closure = Closure(Trouble.INVALID, "why", None, None)
    assert is_closed(it, ctx.now + 10**18)
