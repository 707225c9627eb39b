"""A scale group in any order of events that an honest world can bring: its size, its cordons, its reports."""

from __future__ import annotations

from group_walk import Walk
from hypothesis import HealthCheck, given, strategies as st

from iriscw.cloud.model import LABEL_SLICE
from iriscw.fleet.groups.experience import CHURN_WINDOW
from iriscw.fleet.model import SliceState
from iriscw.fleet.signals import Evaluate
from iriscw.runtime.vocabulary import SECOND
from profiles import examples

STEPS = 25
MOST = 3


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.sampled_from([0, 1, 2]), st.sampled_from([0, 1]), st.booleans())
def test_any_history_of_an_honest_world(group, ctx, data, least, spare, looks):
    """After each step clocks, cordons, orphans and rows fit what is there; after each look the report does. Healed,
    ``min_slices`` and ``buffer_slices`` are ready and idle: no promise beyond, no orphan, no cordon.
    """
    walk = Walk(group, ctx, min_slices=least, buffer_slices=spare, max_slices=MOST)
    removals = Removals()
    for _ in range(data.draw(st.integers(0, STEPS))):
        choices = dict(walk.choices())
        choices[data.draw(st.sampled_from(list(choices)))]()
        for check in (looks_again_in_time, closes_what_it_asks_about, shows_each_slice, reclaims, removals.are_right):
            check(walk)
        if looks:
            walk.send(Evaluate())
            is_reported(walk)
    if data.draw(st.integers(0, 2)):
        return  # a whole year of settling costs more than all the steps
    walk.settle()
    walk.ctx.later(CHURN_WINDOW / SECOND)  # one that lost many slices keeps what it has until that is forgotten
    walk.settle(rounds=30)
    assert len(walk.slices) == max(least, spare)
    assert {told.row.state for told in walk.slices.values()} <= {SliceState.READY}
    assert walk.it.sight.orphans.names == ()
    assert (walk.pools, walk.pods) == ({}, {})
    assert not {*walk.closed} & {*walk.slices}


def looks_again_in_time(walk):
    """Never later than the evaluation interval, and exactly one clock runs for a question to the scheduler."""
    assert 0 < walk.clocks["evaluate"].delay <= walk.it.config.timing.evaluation_interval
    assert ("cordon" in walk.clocks) == (walk.it.sight.cordon is not None)


def closes_what_it_asks_about(walk):
    """The scheduler keeps no cordon that nobody will lift, and is never asked about two slices at a time (INV-F3)."""
    asked = walk.it.sight.cordon
    for name in walk.closed:
        promise = walk.it.promises.get(name)
        assert promise is None or promise.doomed or (asked is not None and asked.slice_id == name)
    rounds = [each.round for each in walk.cordons]
    assert rounds == sorted({*rounds})


def shows_each_slice(walk):
    """The row of each slice is what it said last; of one that is gone there is none."""
    said = {name: told.row for name, told in walk.slices.items() if told is not None}
    assert walk.rows == {**walk.rows, **said}
    assert {*walk.rows} <= {*walk.slices}
    assert {*walk.slices} == {*walk.it.promises}
    assert {*walk.briefed} >= {*walk.slices}


def is_reported(walk):
    """After a look: counts, bounds, what can be asked for, and what keeps it from that."""
    told, sight = walk.reported, walk.it.sight
    alive = [each for each in walk.slices.values() if each is None or not each.stuck]
    ready = [each for each in walk.slices.values() if each is not None and each.row.state is SliceState.READY]
    doomed = [name for name, promise in walk.it.promises.items() if promise.doomed]
    assert told.row.slices == len(alive)
    assert len(walk.slices.keys() - walk.were_stuck.keys()) <= MOST
    assert told.row.ready == len([each for each in ready if each.row.slice_id not in doomed])
    assert told.row.wanted == sight.wanted.count
    idle = [each for each in ready if each.row.slice_id not in doomed and each.idle_since is not None]
    assert told.idle <= len(idle) <= told.idle + told.absorbing, "those that are only just ready take demand"
    assert told.room == (max(0, MOST - len(alive)) if told.availability.accepts else 0)
    assert told.row.orphans == sight.orphans.names
    assert (told.row.retry_at is not None) <= (sight.closure is not None)


def reclaims(walk):
    """A pool or a pod of a slice that is not promised is known, and has a call or a clock (INV-F1)."""
    orphans = walk.it.sight.orphans
    for kind, table in (("pool", walk.pools), ("pod", walk.pods)):
        for name, thing in table.items():
            if thing.labels[LABEL_SLICE] in walk.it.promises:
                continue
            key = f"{kind}:{name}"
            assert key in orphans.known
            owed = ("orphan", key)
            assert owed in walk.calls or owed in walk.clocks or key in orphans.waiting


class Removals:
    """A ready slice on which something runs is dismissed only if it failed (INV-F3)."""

    def __init__(self) -> None:
        self.before = {}

    def are_right(self, walk):
        for name, promise in walk.it.promises.items():
            told = self.before.get(name)
            if not promise.doomed or told is None or told.row.state is not SliceState.READY:
                continue
            now = walk.slices[name]
            assert now.row.state is not SliceState.READY or told.idle_since is not None
            if now.row.state is SliceState.READY and now == told:
                assert walk.ctx.now - told.idle_since >= walk.it.config.timing.scale_down_delay
        doomed = [name for name, promise in walk.it.promises.items() if promise.doomed]
        self.before = {name: told for name, told in walk.slices.items() if name not in doomed}
