"""What a group publishes of its slices: each state and each trouble, once."""

import attrs
import pytest
from group_desk import begin, send

from iriscw.fleet.groups import group as groups
from iriscw.fleet.messages import SliceChanged
from iriscw.fleet.model import SliceRow, SliceState, Trouble
from iriscw.fleet.records import SlicePoolCreated, SliceRequested
from iriscw.fleet.signals import SliceReported
from iriscw.runtime.vocabulary import ActorPath, Emit, StopReason, Terminated

S, T = SliceState, Trouble


@pytest.fixture
def ctx(ctx):
    ctx.path = ActorPath("/fleet/gpu")
    return ctx


@pytest.fixture
def one(group, ctx):
    """A group with one slice, that has begun."""
    it = group(min_slices=1)
    groups.apply(it, SliceRequested("s1", ctx.wall))
    return begin(it, ctx)


def report(state, ctx, trouble=T.NONE, *, reason="why", uid="u"):
    row = SliceRow("s1", "gpu", state, trouble, reason, ctx.wall, ctx.wall)
    ready = ctx.now if state is S.READY else None
    return SliceReported(row, uid, idle_since=None, ready_since=ready, used=True, stuck=False, bare=False)


def published(commands):
    return [each.event for each in commands if isinstance(each, Emit)]


def test_each_state_and_each_trouble_is_published_once(one, ctx):
    """With what was before; a sentence that changes is no news."""
    told = []
    for state, trouble, reason in [
        (S.BOOTING, T.NONE, "0 of 2 nodes are ready"),
        (S.BOOTING, T.NONE, "1 of 2 nodes are ready"),
        (S.BOOTING, T.CAPACITY, "no machines"),
        (S.BOOTING, T.CAPACITY, "still no machines"),
        (S.INITIALIZING, T.NONE, ""),
        (S.READY, T.NONE, ""),
        (S.READY, T.NONE, ""),
    ]:
        told += published(send(one, ctx, report(state, ctx, trouble, reason=reason))[1])
    assert [(each.was, each.trouble_was, each.row.state, each.row.trouble) for each in told] == [
        (None, T.NONE, S.BOOTING, T.NONE),
        (S.BOOTING, T.NONE, S.BOOTING, T.CAPACITY),
        (S.BOOTING, T.CAPACITY, S.INITIALIZING, T.NONE),
        (S.INITIALIZING, T.NONE, S.READY, T.NONE),
    ]
    assert all(type(each) is SliceChanged and (each.pool_uid, each.at) == ("u", ctx.wall) for each in told)


def test_a_slice_that_goes_still_names_its_pool(one, ctx):
    """The one that was written down, when the slice itself knows of none any more."""
    send(one, ctx, report(S.READY, ctx))
    groups.apply(one, SlicePoolCreated("s1", "u"))
    (event,) = published(send(one, ctx, report(S.FAILED, ctx, T.WORKERS, uid=""))[1])
    assert (event.row.trouble, event.pool_uid) == (T.WORKERS, "u")
    (event,) = published(send(one, ctx, report(S.GONE, ctx, uid=""))[1])
    assert event.row.state is S.GONE


def test_a_slice_whose_actor_is_given_up_is_published(one, ctx):
    """It is in trouble that nobody else reports."""
    send(one, ctx, report(S.READY, ctx))
    gone = Terminated(ActorPath("/fleet/gpu/s1"), StopReason.QUARANTINED)
    (event,) = published(send(one, ctx, gone)[1])
    assert (event.was, event.row.state, event.row.trouble) == (S.READY, S.FAILED, T.WORKERS)
    assert "quarantine" in event.row.reason


def test_after_a_restart_nothing_is_known_of_before(one, ctx):
    """What is published says so."""
    send(one, ctx, report(S.READY, ctx))
    begin(one, ctx)
    (event,) = published(send(one, ctx, report(S.READY, ctx))[1])
    assert event == attrs.evolve(event, was=None, trouble_was=T.NONE)
