"""A scale group in any order of events that an honest world can bring: its size, its cordons, its reports."""

from __future__ import annotations

from group_walk import Walk
from hypothesis import HealthCheck, given, strategies as st

from iriscw.cloud.model import LABEL_SLICE
from iriscw.fleet.groups.experience import CHURN_WINDOW
from iriscw.fleet.model import SliceState
from iriscw.fleet.signals import Evaluate, SlicesWanted
from iriscw.runtime.vocabulary import SECOND
from profiles import examples

WALKS = examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
STEPS = 25


def steps(walk, data):
    """Take steps, each drawn from all that may come next."""
    for _ in range(data.draw(st.integers(0, STEPS))):
        choices = dict(walk.choices())
        choices[data.draw(st.sampled_from(list(choices)))]()
        yield


@WALKS
@given(st.data())
def test_a_group_looks_again_in_time(group, ctx, data):
    """Never later than the evaluation interval, and exactly one clock runs for a question to the scheduler."""
    walk = Walk(group, ctx, min_slices=1)
    for _ in steps(walk, data):
        assert 0 < walk.clocks["evaluate"].delay <= walk.it.config.timing.evaluation_interval
        assert ("cordon" in walk.clocks) == (walk.it.sight.cordon is not None)


@WALKS
@given(st.data())
def test_what_is_closed_is_asked_about_or_goes(group, ctx, data):
    """The scheduler keeps no cordon that nobody will lift, and is never asked about two slices at a time (INV-F3)."""
    walk = Walk(group, ctx, min_slices=1)
    for _ in steps(walk, data):
        asked = walk.it.sight.cordon
        for name in walk.closed:
            promise = walk.it.promises.get(name)
            assert promise is None or promise.doomed or (asked is not None and asked.slice_id == name)
        rounds = [each.round for each in walk.cordons]
        assert rounds == sorted({*rounds})


@WALKS
@given(st.data())
def test_the_fleet_shows_each_slice_as_it_is(group, ctx, data):
    """The row of each slice is what it said last; of one that is gone there is none."""
    walk = Walk(group, ctx, min_slices=1)
    for _ in steps(walk, data):
        said = {name: told.row for name, told in walk.slices.items() if told is not None}
        assert walk.rows == {**walk.rows, **said}
        assert {*walk.rows} <= {*walk.slices}
        assert {*walk.slices} == {*walk.it.promises}
        assert {*walk.briefed} >= {*walk.slices}


@WALKS
@given(st.data())
def test_the_fleet_knows_whatever_the_group_would_say(group, ctx, data):
    """After each look: counts, bounds, what can be asked for, and what keeps it from that."""
    walk = Walk(group, ctx, min_slices=1, max_slices=3)
    for _ in steps(walk, data):
        walk.send(Evaluate())
        told, sight = walk.reported, walk.it.sight
        alive = [each for each in walk.slices.values() if each is None or not each.stuck]
        ready = [each for each in walk.slices.values() if each is not None and each.row.state is SliceState.READY]
        doomed = [name for name, promise in walk.it.promises.items() if promise.doomed]
        assert told.row.slices == len(alive)
        assert len(walk.slices.keys() - walk.were_stuck.keys()) <= 3
        assert told.row.ready == len([each for each in ready if each.row.slice_id not in doomed])
        assert told.row.wanted == sight.wanted.count
        idle = [each for each in ready if each.row.slice_id not in doomed and each.idle_since is not None]
        assert told.idle <= len(idle) <= told.idle + told.absorbing, "those that are only just ready take demand"
        assert told.room == (max(0, 3 - len(alive)) if told.availability.accepts else 0)
        assert told.row.orphans == sight.orphans.names
        assert (told.row.retry_at is not None) <= (sight.closure is not None)


@WALKS
@given(st.data())
def test_only_what_was_idle_for_long_or_never_ready_goes(group, ctx, data):
    """A slice on which something runs is dismissed only if it failed (INV-F3)."""
    walk = Walk(group, ctx, min_slices=1)
    before = {}
    for _ in steps(walk, data):
        for name, promise in walk.it.promises.items():
            told = before.get(name)
            if not promise.doomed or told is None or told.row.state is not SliceState.READY:
                continue
            now = walk.slices[name]
            assert now.row.state is not SliceState.READY or told.idle_since is not None
            if now.row.state is SliceState.READY and now == told:
                assert walk.ctx.now - told.idle_since >= walk.it.config.timing.scale_down_delay
        doomed = [name for name, promise in walk.it.promises.items() if promise.doomed]
        before = {name: told for name, told in walk.slices.items() if name not in doomed}


@WALKS
@given(st.data(), st.sampled_from([0, 1, 2]), st.sampled_from([0, 1]))
def test_a_healed_group_has_the_size_it_should_have(group, ctx, data, least, spare):
    """In the end: ``min_slices`` and ``buffer_slices`` ready and idle, no promise beyond, no orphan, no cordon."""
    walk = Walk(group, ctx, min_slices=least, buffer_slices=spare)
    for _ in steps(walk, data):
        pass
    walk.settle()
    walk.ctx.later(CHURN_WINDOW / SECOND)  # one that lost many slices keeps what it has until that is forgotten
    walk.settle(rounds=30)
    assert len(walk.slices) == max(least, spare)
    assert {told.row.state for told in walk.slices.values()} <= {SliceState.READY}
    assert walk.it.sight.orphans.names == ()
    assert (walk.pools, walk.pods) == ({}, {})
    assert not {*walk.closed} & {*walk.slices}


@WALKS
@given(st.data())
def test_what_belongs_to_nobody_goes(group, ctx, data):
    """A pool or a pod of a slice that is not promised is known, and has a call or a clock (INV-F1)."""
    walk = Walk(group, ctx)
    for _ in steps(walk, data):
        orphans = walk.it.sight.orphans
        for kind, table in (("pool", walk.pools), ("pod", walk.pods)):
            for name, thing in table.items():
                if thing.labels[LABEL_SLICE] in walk.it.promises:
                    continue
                key = f"{kind}:{name}"
                assert key in orphans.known
                owed = ("orphan", key)
                assert owed in walk.calls or owed in walk.clocks or key in orphans.waiting


def test_what_a_gang_waits_on_is_kept(group, ctx):
    """Slices become ready long before the last one: none goes, none is asked for, and all go when it does not wait."""
    walk = Walk(group, ctx, max_slices=9)
    walk.send(SlicesWanted(3, spread=3))
    names = [*walk.slices]
    for name in names:
        walk.report(name, SliceState.READY, idle=True)
        for _ in range(5):
            walk.ctx.later(40)
            walk.send(Evaluate())
        assert [*walk.slices] == names
        assert walk.cordons == []
    walk.settle(0, rounds=40)
    assert walk.slices == {}


def test_what_is_not_wanted_any_more_goes_one_by_one(group, ctx):
    """The longest idle first, none before it was idle for ``scale_down_delay``, and all of them in the end."""
    walk = Walk(group, ctx, max_slices=3)
    walk.send(SlicesWanted(3))
    names = [*walk.slices]
    assert len(names) == 3
    for name in reversed(names):
        walk.ctx.later(1)
        walk.report(name, SliceState.READY, idle=True)
    began = walk.ctx.now
    walk.settle(0, rounds=40)
    assert [each.slice_id for each in walk.cordons] == names[::-1]
    assert walk.slices == walk.rows == {}
    assert sorted(walk.gone) == sorted(names)
    assert walk.ctx.now - began > walk.it.config.timing.scale_down_delay
    assert walk.reported.row.slices == 0
