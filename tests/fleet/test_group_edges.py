"""A scale group at its edges: instants, bounds, and what is told in the same decision."""

from __future__ import annotations

import pytest
from group_walk import Walk

from iriscw.fleet.groups.experience import CHURN_WINDOW, MIN_SAMPLES, SHORT_LIFE, Experience
from iriscw.fleet.groups.scaling import ANSWER_AGE, KEEP_ABOVE_CHURN_PERCENT, availability, close, count_slices
from iriscw.fleet.messages import ReopenGroup, SchedulerStarted, SliceGone
from iriscw.fleet.model import Availability, SliceState, Trouble
from iriscw.fleet.pacing import TokenBucket
from iriscw.fleet.signals import CordonAnswered, Evaluate, PodsListed, PoolsListed, SliceStarted, SlicesWanted
from iriscw.runtime.vocabulary import SECOND, StopReason, Terminated

S = SliceState


@pytest.fixture
def walk(group, ctx):
    return lambda **changes: Walk(group, ctx, **changes)


def grown(it, count=1, *, idle=True):
    """Have so many slices asked for and be ready; nothing is wanted after that."""
    it.send(SlicesWanted(count))
    names = [*it.slices]
    assert len(names) == count
    for name in names:
        it.ctx.later(1)
        it.report(name, S.READY, idle=idle)
    it.send(SlicesWanted(0))
    return names


def test_new_slices_are_shown_at_once(walk):
    """The report of a look counts what that look has asked for, and what can still be."""
    it = walk(max_slices=3)
    it.send(SlicesWanted(2))
    assert (it.reported.row.slices, it.reported.absorbing, it.reported.room) == (2, 2, 1)
    assert it.reported.availability is Availability.COOLDOWN
    it.send(SlicesWanted(0))
    close(it.it, Trouble.QUOTA, "no quota", it.ctx)
    it.send(Evaluate())
    assert (it.reported.availability, it.reported.room) == (Availability.QUOTA_EXCEEDED, 0)


def test_a_reopened_group_asks_at_once(walk):
    """Whoever mended what closed it does not wait for a pause, nor for the delay between two rounds."""
    it = walk(max_slices=3)
    it.send(SlicesWanted(1))
    (name,) = it.slices
    it.report(name, S.FAILED, Trouble.QUOTA)
    it.send(SlicesWanted(3))
    assert len(it.slices) == 1
    it.send(ReopenGroup("gpu"))
    assert len(it.slices) == 3
    assert it.it.sight.failures == {}


@pytest.mark.parametrize(("age", "goes"), [(ANSWER_AGE, True), (ANSWER_AGE + 1, False)])
def test_an_answer_is_believed_up_to_its_age(walk, age, goes):
    """Exactly so old is young enough."""
    it = walk()
    (name,) = grown(it)
    it.ctx.later(40)
    it.send(Evaluate())
    asked = it.it.sight.cordon
    told = it.slices[name]
    it.send(CordonAnswered(name, 0, asked.round, told.idle_since, it.ctx.now - age))
    assert bool(it.it.promises[name].doomed) == goes
    assert (name in it.closed) == goes


def test_a_busy_slice_is_not_asked_about_again_at_once(walk):
    """An answer that something runs, or that another one is idle for longer, earns a pause."""
    it = walk()
    grown(it)
    it.ctx.later(40)
    it.send(Evaluate())
    it.answer_cordon(1)
    assert len(it.cordons) == 1
    assert "cordon" not in it.clocks
    it.ctx.later(it.it.config.timing.evaluation_interval / SECOND)
    it.send(Evaluate())
    assert len(it.cordons) == 2


def test_a_question_without_an_answer_is_withdrawn_for_a_while(walk):
    """And put again after as long as it waited."""
    it = walk()
    grown(it)
    it.ctx.later(40)
    it.send(Evaluate())
    it.ring("cordon")
    assert it.closed == {}
    it.ctx.later(it.it.config.timing.cordon_timeout / SECOND - 1)
    it.send(Evaluate())
    assert len(it.cordons) == 1
    it.ctx.later(1)
    it.send(Evaluate())
    assert len(it.cordons) == 2


def test_a_slice_goes_when_it_was_idle_for_exactly_the_delay(walk):
    """The look that was set for that instant finds it due, and the one before does not."""
    it = walk()
    grown(it)
    since = it.it.sight.reports[next(iter(it.slices))].idle_since
    it.ctx.now = since + it.it.config.timing.scale_down_delay - 1
    it.send(Evaluate())
    assert it.cordons == []
    it.ring("evaluate")
    assert (it.ctx.now, len(it.cordons)) == (since + it.it.config.timing.scale_down_delay, 1)


def test_each_thing_that_comes_due_is_looked_at_in_its_instant(walk):
    """The end of a pause, of the delay between rounds, of the wait before slices are given up."""
    timing = walk().it.config.timing
    it = walk()
    it.send(SlicesWanted(1))
    asked_at = it.ctx.now
    it.ctx.later(9)
    it.send(Evaluate())
    it.ring("evaluate")
    assert it.ctx.now == asked_at + timing.scale_up_delay
    it.send(SlicesWanted(0))
    unwanted_at = it.ctx.now
    (name,) = it.slices
    it.report(name, S.BOOTING)
    while it.ctx.now < unwanted_at + timing.scale_down_delay:
        assert not it.it.promises[name].doomed
        it.ring("evaluate")
    assert it.ctx.now == unwanted_at + timing.scale_down_delay
    assert it.it.promises[name].doomed
    close(it.it, Trouble.QUOTA, "no quota", it.ctx)
    until = it.it.sight.closure.until
    it.send(Evaluate())
    while it.ctx.now < until:
        it.ring("evaluate")
    assert it.ctx.now == until
    assert it.reported.availability is Availability.AVAILABLE


def test_slices_that_are_wanted_again_are_kept(walk):
    """The wait before slices on their way are given up begins anew each time that they are too many."""
    it = walk()
    it.send(SlicesWanted(1))
    (name,) = it.slices
    it.report(name, S.BOOTING)
    for _ in range(4):
        it.send(SlicesWanted(0))
        it.ctx.later(20)
        it.send(Evaluate())
        it.send(SlicesWanted(1))
        it.ctx.later(20)
        it.send(Evaluate())
    assert not it.it.promises[name].doomed


def test_a_slice_in_the_queue_that_is_given_up_closes_the_group(walk):
    """Else demand would come straight back to the queue that it just left; one that boots closes nothing."""
    for trouble in (Trouble.CAPACITY, Trouble.NONE):
        it = walk()
        it.send(SlicesWanted(1))
        (name,) = it.slices
        it.report(name, S.BOOTING, trouble)
        it.send(SlicesWanted(0))
        it.ctx.later(40)
        it.send(Evaluate())
        it.ctx.later(40)
        it.send(Evaluate())
        assert it.it.promises[name].doomed
        assert (it.it.sight.closure is not None) == (trouble is Trouble.CAPACITY)


def test_a_group_that_left_the_queue_says_that_there_are_no_machines(walk):
    """And for how long it asks for none: nobody is sent to mend a specification that is right (INV-F5)."""
    it = walk()
    it.send(SlicesWanted(1))
    (name,) = it.slices
    it.report(name, S.BOOTING, Trouble.CAPACITY)
    it.send(SlicesWanted(0))
    it.ring("evaluate")
    while not it.it.promises[name].doomed:
        it.ring("evaluate")
    told = it.reported
    assert (told.availability, told.row.availability) == (Availability.NO_CAPACITY, Availability.NO_CAPACITY)
    assert told.row.retry_at > it.ctx.wall
    it.ctx.later((told.row.retry_at - it.ctx.wall) / SECOND)
    it.report(name, S.GONE)
    it.send(Evaluate())
    assert it.reported.availability is Availability.AVAILABLE


@pytest.mark.parametrize("trouble", [Trouble.QUOTA, Trouble.SLOW_BOOT])
def test_machines_that_came_end_the_pauses_for_them_alone(walk, trouble):
    """Nodes that are ready say that there is quota; only workers that are ready say that all is well."""
    it = walk(max_slices=4)
    it.send(SlicesWanted(2))
    first, second = it.slices
    it.report(first, S.FAILED, trouble)
    assert it.it.sight.failures
    it.report(second, S.INITIALIZING)
    assert (it.it.sight.closure is None) == (not it.it.sight.failures) == (trouble is Trouble.QUOTA)
    it.report(second, S.READY)
    assert (it.it.sight.closure, it.it.sight.failures) == (None, {})


def test_a_closed_group_counts_no_more_failures(walk, ctx):
    """A hundred slices that fail together are one failure; an invalid specification is always said."""
    it = walk().it
    close(it, Trouble.QUOTA, "first", ctx)
    close(it, Trouble.WORKERS, "second", ctx)
    assert (it.sight.closure.reason, it.sight.failures) == ("first", {Trouble.QUOTA: 1})
    assert it.sight.closure.retry_at - ctx.wall == it.sight.closure.until - ctx.now > 0
    close(it, Trouble.INVALID, "third", ctx)
    assert (it.sight.closure.reason, it.sight.closure.until) == ("third", None)


def test_availability_says_what_keeps_a_group_from_growing(walk):
    """Waiting for machines before the bound, the bound before churn, churn before the delay."""

    def now(it):
        return availability(it.it, count_slices(it.it, it.ctx.now), it.ctx.now)[0]

    it = walk(max_slices=1)
    assert now(it) is Availability.AVAILABLE
    it.send(SlicesWanted(1))
    assert now(it) is Availability.AT_MAX
    (name,) = it.slices
    it.report(name, S.BOOTING, Trouble.CAPACITY)
    assert now(it) is Availability.NO_CAPACITY
    it = walk(max_slices=2)
    it.send(SlicesWanted(1))
    assert now(it) is Availability.COOLDOWN
    for _ in range(MIN_SAMPLES):
        it.it.sight.experience.ended(it.ctx.now, lived=0, failed=True)
    assert now(it) is Availability.CHURNING


def test_with_much_churn_idle_slices_are_kept(walk):
    """They may be the only ones that live."""
    it = walk()
    grown(it)
    it.ctx.later(40)
    for short in (True, False):
        for _ in range(MIN_SAMPLES):
            it.it.sight.experience.ended(it.ctx.now, lived=0, failed=short)
    assert it.it.sight.experience.churn_percent(it.ctx.now) == KEEP_ABOVE_CHURN_PERCENT
    it.send(Evaluate())
    assert it.cordons == []
    it.it.sight.experience.ended(it.ctx.now, lived=0, failed=False)
    it.send(Evaluate())
    assert len(it.cordons) == 1


def test_boots_are_learned_from_slices_asked_for_here(walk):
    """From the request until ready, once for each slice."""
    it = walk(max_slices=2)
    it.send(SlicesWanted(1))
    (name,) = it.slices
    it.ctx.later(17)
    it.report(name, S.READY)
    assert it.it.sight.experience.boot_estimate(0) == 17 * SECOND
    it.report(name, S.INITIALIZING)
    it.ctx.later(100)
    it.report(name, S.READY)
    assert [*it.it.sight.experience.boots] == [17 * SECOND]
    it.send(SliceStarted(name))
    assert it.briefed[name].boot_estimate == 17 * SECOND
    assert it.briefed[name].slow_after > 17 * SECOND


@pytest.mark.parametrize(("lived", "short"), [(SHORT_LIFE - 1, 100), (SHORT_LIFE, 0)])
def test_a_life_is_measured_from_ready_to_its_end(walk, lived, short):
    """One that failed before its time is short; one that had its time is not."""
    it = walk(max_slices=9)
    it.send(SlicesWanted(3))
    for name in list(it.slices):
        it.report(name, S.READY)
    it.ctx.now += lived
    for name in list(it.slices):
        it.report(name, S.FAILED, Trouble.WORKERS)
    assert it.it.sight.experience.churn_percent(it.ctx.now) == short


def test_a_life_leaves_the_window_at_its_end():
    """Not an instant before."""
    known = Experience()
    for _ in range(MIN_SAMPLES):
        known.ended(5, lived=0, failed=True)
    assert known.churn_percent(5 + CHURN_WINDOW - 1) == 100
    assert known.churn_percent(5 + CHURN_WINDOW) == 0


@pytest.mark.parametrize(("short", "of", "allowed"), [(19, 100, 40), (20, 100, 20), (49, 100, 20), (50, 100, 4)])
def test_the_steps_of_churn_are_where_they_are(short, of, allowed):
    """20, 50 and 80 percent themselves belong to the step that they begin."""
    known = Experience()
    for index in range(of):
        known.ended(0, lived=0, failed=index < short)
    assert known.allowed(40, 1) == allowed


@pytest.mark.parametrize(("short", "allowed"), [(79, 4), (80, 0)])
def test_with_so_much_churn_nothing_is_asked_for(short, allowed):
    """A tenth below it."""
    known = Experience()
    for index in range(100):
        known.ended(0, lived=0, failed=index < short)
    assert known.allowed(40, 1) == allowed


def test_a_full_bucket_saves_nothing_up():
    """Time that passes while it is full, or fills it, does not count for the next token."""
    bucket = TokenBucket(2, 10)
    bucket.take(1, 0)
    assert bucket.take(2, 15) == 2
    assert bucket.wait(15) == 10


def test_a_quarantined_slice_is_shown_and_left_alone(walk):
    """An operator must look; a slice that stopped as it was told to is not shown as failed."""
    it = walk()
    (name,) = grown(it)
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
    """Its row goes, its actor stops, the scheduler hears that its workers never return."""
    it = walk()
    (name,) = grown(it)
    it.report(name, S.FAILED, Trouble.WORKERS)
    it.report(name, S.GONE)
    assert (it.rows, it.slices, it.gone) == ({}, {}, [name])
    assert it.it.promises == {}


def test_a_new_scheduler_is_told_by_every_slice(group, ctx):
    """Each slice that was started hears of it, and no question of the old one stands."""
    it = Walk(group, ctx)
    names = grown(it, 2)
    it.ctx.later(40)
    it.send(Evaluate())
    heard = []
    it._told, told = lambda name, message: heard.append((name, message)) or told(name, message), it._told
    it.forget()
    assert [name for name, message in heard if message == SchedulerStarted()] == names
    assert "cordon" not in it.clocks
    assert not any(isinstance(message, SliceGone) for _, message in heard)


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
