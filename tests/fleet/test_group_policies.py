"""What a group's policy says, and what becomes of it."""

from __future__ import annotations

import attrs
import pytest
from group_desk import answer, begin, ready_slices, requested, row, send, told

from iriscw.fleet.groups.scaling import (
    POLICY_REPORTS_EVERY,
    close,
    count_slices,
    view_of,
)
from iriscw.fleet.messages import Cordon, PolicyFailed, Uncordon
from iriscw.fleet.model import Availability, SliceState, Trouble
from iriscw.fleet.signals import (
    Evaluate,
    GroupReported,
    SlicesWanted,
)
from iriscw.runtime.vocabulary import SECOND, ActorPath, Emit

S = SliceState


@pytest.fixture
def ctx(ctx):
    ctx.path = ActorPath("/fleet/gpu")
    return ctx


@pytest.fixture
def opened(group, ctx):
    """A group that knows all that it waits for."""
    return lambda **changes: begin(group(**changes), ctx)


def with_policy(it, policy):
    """Have the group ask this policy from now on."""
    it.seed = attrs.evolve(it.seed, policy=policy)
    return it


def emitted(commands):
    return [command.event for command in commands if isinstance(command, Emit)]


def test_a_policy_says_how_many(opened, ctx):
    """Without any demand: what it wants is asked for, and what it does not want any more goes, the longest idle."""
    it = with_policy(opened(), lambda view: 3 if view.ready < 3 and not view.idle else 1)
    facts, _ = send(it, ctx, Evaluate())
    assert len(requested(facts)) == 3
    for fact in requested(facts):
        send(it, ctx.later(1), row(fact, S.READY, ctx, idle=True))
    (cordon,) = told(send(it, ctx.later(40), Evaluate())[1], Cordon)
    assert cordon.slice_id == requested(facts)[0]


def test_a_policy_asks_no_faster_than_pauses_allow(opened, ctx):
    """A closed group asks for nothing, whatever its policy wants; the policy can see that (INV-F5)."""
    seen = []
    it = with_policy(opened(), lambda view: seen.append(view) or 4)
    close(it, Trouble.QUOTA, "no quota", ctx)
    facts, _ = send(it, ctx, Evaluate())
    assert facts == []
    assert seen[-1].availability is Availability.QUOTA_EXCEEDED
    assert 0 < seen[-1].retry_in <= it.config.timing.quota_backoff
    facts, _ = send(it, ctx.later(60), Evaluate())
    assert len(requested(facts)) == 4
    assert (seen[-1].availability, seen[-1].retry_in) == (Availability.AVAILABLE, None)


def test_a_policy_that_fails_is_reported(opened, ctx):
    """The default decides; each failure is counted, one in a minute is published."""

    def policy(view):
        raise ValueError("never")

    it = with_policy(opened(), policy)
    facts, commands = send(it, ctx, SlicesWanted(2))
    assert len(requested(facts)) == 2
    assert emitted(commands) == [PolicyFailed("gpu", "ValueError: never")]
    assert told(commands, GroupReported)[-1].row.policy_failures == 1
    _, commands = send(it, ctx.later(POLICY_REPORTS_EVERY / SECOND - 1), Evaluate())
    assert emitted(commands) == []
    assert told(commands, GroupReported)[-1].row.policy_failures == 2
    assert len(emitted(send(it, ctx.later(1), Evaluate())[1])) == 1


def test_a_policy_is_asked_anew_before_a_slice_goes(opened, ctx):
    """What it wants when the scheduler has answered counts, not what it wanted before (INV-F3)."""
    wanted = [0]
    it = with_policy(opened(), lambda view: max(wanted[0], view.wanted))
    (name,) = ready_slices(it, ctx, 1)
    (cordon,) = told(send(it, ctx.later(40), Evaluate())[1], Cordon)
    wanted[0] = 1
    facts, commands = answer(it, ctx, name, 0, cordon.round)
    assert facts == []
    assert told(commands, Uncordon) == [Uncordon(name, cordon.round)]


def test_a_view_shows_the_group(opened, ctx):
    """Each slice is counted where it stands, idle ones with how long they have been."""
    it = opened()
    names = ready_slices(it, ctx, 3)
    send(it, ctx, row(names[2], S.READY, ctx, idle=False))
    it.sight.wanted = SlicesWanted(5, spread=3)
    census = count_slices(it, ctx.later(5).now)
    view = view_of(it, census, ctx)
    assert (view.group, view.min_slices, view.max_slices, view.buffer_slices) == ("gpu", 0, 4, 0)
    assert (view.ready, view.busy, view.fresh) == (3, 1, 0)
    assert (view.kept, view.wanted, view.needed) == (2, 3, 6), "a gang keeps what is idle, and waits for the rest"
    it.sight.wanted = SlicesWanted(5, spread=3, unfit=(names[0], "gone"))
    narrow = view_of(it, census, ctx)
    assert (narrow.kept, narrow.wanted, narrow.needed) == (1, 4, 6), "but nothing on which it could not run"
    assert view.idle == tuple(ctx.now - since for since, _ in census.idle)
    assert list(view.idle) == sorted(view.idle, reverse=True)
    assert view.alive == census.alive
    assert view.absorbing == census.absorbing
    assert (view.now, view.wall) == (ctx.now, ctx.wall)
    assert view.boot_estimate > 0
