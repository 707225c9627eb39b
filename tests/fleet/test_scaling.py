"""A group's size: what it asks for, what keeps it from that, what goes, and what a policy says."""

from __future__ import annotations

import pytest
from group_desk import answer, begin, ready_slices, row, send, told
from group_walk import Walk

from iriscw.fleet.groups import group as groups
from iriscw.fleet.groups.experience import MIN_SAMPLES, SHORT_LIFE
from iriscw.fleet.groups.group import Closure
from iriscw.fleet.groups.scaling import (
    ANSWER_AGE,
    KEEP_ABOVE_CHURN_PERCENT,
    availability,
    close,
    count_slices,
    is_closed,
)
from iriscw.fleet.messages import (
    Cordon,
    ReopenGroup,
    SchedulerStarted,
    Uncordon,
)
from iriscw.fleet.model import Availability, SliceState, Trouble
from iriscw.fleet.records import (
    SliceDoomed,
    SliceRequested,
)
from iriscw.fleet.signals import (
    CordonAnswered,
    Dismiss,
    Evaluate,
    GroupReported,
    Overdue,
    PodsListed,
    PoolsListed,
    SliceStarted,
    SlicesWanted,
    Takeover,
)
from iriscw.runtime.vocabulary import (
    SECOND,
    ActorPath,
    Continue,
    Run,
    Spawn,
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


# Growing


@pytest.mark.parametrize("missing", [PoolsListed(()), PodsListed(()), Takeover()])
def test_nothing_happens_before_all_is_known(group, ctx, missing):
    """Without both lists and the takeover a group asks for nothing, however much is wanted (INV-F8)."""
    it = group(min_slices=2)
    groups.resume(it, ctx)
    for message in (PoolsListed(()), PodsListed(()), Takeover(), SlicesWanted(3)):
        if message != missing:
            facts, commands = send(it, ctx, message)
            assert facts == []
            assert not [c for c in commands if isinstance(c, Run | Spawn)]
    facts, _ = send(it, ctx, missing)
    assert {type(fact) for fact in facts} == {SliceRequested}


def test_promise_comes_with_the_child(opened, ctx):
    """Each new slice is a record and a child of the same name in one decision (INV-F1)."""
    facts, commands = send(opened(), ctx, SlicesWanted(3))
    spawned = [c.spec.name for c in commands if isinstance(c, Spawn)]
    assert [fact.slice_id for fact in facts] == spawned
    assert len(set(spawned)) == 3


def test_rounds_are_apart_by_the_delay(opened, ctx):
    """After one round of requests the next waits for scale_up_delay."""
    it = opened(max_slices=9)
    send(it, ctx, SlicesWanted(1))
    facts, _ = send(it, ctx.later(9), SlicesWanted(2))
    assert facts == []
    facts, _ = send(it, ctx.later(1), Evaluate())
    assert len(facts) == 1


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
    it.send(Evaluate())
    assert it.reported.availability is Availability.CHURNING


def test_a_look_costs_one_pass_over_the_slices(opened, ctx):
    """With a thousand slices heartbeats do not reach the group, and a busy slice's report asks for no look."""
    it = opened(max_slices=1000)
    for index in range(1000):
        groups.apply(it, SliceRequested(f"s{index}", 0))
        it.sight.reports[f"s{index}"] = row(f"s{index}", S.READY, ctx)
    _, commands = send(it, ctx.later(1), row("s5", S.READY, ctx, idle=True))
    assert not [c for c in commands if isinstance(c, Continue)]
    assert ctx.now > SECOND


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


# Failures and pauses


def test_failed_slice_is_doomed_and_closes_the_group(opened, ctx):
    """Each trouble closes the group in its own way; the record precedes the dismissal (INV-F5)."""
    for trouble, said in (
        (Trouble.QUOTA, Availability.QUOTA_EXCEEDED),
        (Trouble.INVALID, Availability.INVALID),
        (Trouble.SLOW_BOOT, Availability.BACKOFF),
        (Trouble.WORKERS, Availability.BACKOFF),
        (Trouble.NAME_TAKEN, Availability.BACKOFF),
    ):
        it = opened()
        facts, _ = send(it, ctx, SlicesWanted(1))
        name = facts[0].slice_id
        send(it, ctx, SliceStarted(name))
        facts, commands = send(it, ctx, row(name, S.FAILED, ctx, trouble))
        assert SliceDoomed(name, "why") in facts
        assert told(commands, Dismiss) == [Dismiss("why")]
        assert told(commands, GroupReported)[-1].availability is said
        assert (it.sight.closure.until is None) == (trouble is Trouble.INVALID)


def test_a_slice_that_fails_is_replaced_where_no_other_one_may_be(opened, ctx):
    """`min_slices` keeps none that cannot be used: it goes at `max_slices` as well, and another one comes when it is
    gone and the pause is over.
    """
    it = opened(min_slices=1, max_slices=1)
    name = next(iter(it.promises))
    for pauses in range(1, 4):
        send(it, ctx, SliceStarted(name))
        facts, commands = send(it, ctx, row(name, S.FAILED, ctx, Trouble.WORKERS))
        assert (SliceDoomed(name, "why") in facts, told(commands, Dismiss)) == (True, [Dismiss("why")])
        send(it, ctx, row(name, S.DELETING, ctx))
        paused = it.sight.closure.until - ctx.now
        assert 2 ** (pauses - 1) * it.config.timing.failure_backoff >= paused > 0
        assert not [each for each in send(it, ctx.later(3600), Evaluate())[0] if isinstance(each, SliceRequested)]
        facts, _ = send(it, ctx, row(name, S.GONE, ctx))
        facts += send(it, ctx, Evaluate())[0]
        (name,) = [each.slice_id for each in facts if isinstance(each, SliceRequested)]


def test_the_worse_of_two_troubles_closes_the_group(opened, ctx):
    """A short pause does not end what a slice learned of the quota, nor that one a wrong specification."""
    orders = (
        ((Trouble.WORKERS, Trouble.QUOTA), Trouble.QUOTA),
        ((Trouble.QUOTA, Trouble.WORKERS), Trouble.QUOTA),
        ((Trouble.QUOTA, Trouble.INVALID, Trouble.QUOTA), Trouble.INVALID),
        ((Trouble.WORKERS, Trouble.SLOW_BOOT), Trouble.WORKERS),
    )
    for troubles, closed_for in orders:
        it = opened()
        until = 0
        for trouble in troubles:
            close(it, trouble, trouble.value, ctx)
            closure = it.sight.closure
            assert closure.until is None or closure.until >= until, "no trouble ends a pause early"
            until = closure.until or 0
        assert (it.sight.closure.trouble, it.sight.closure.reason) == (closed_for, closed_for.value)


def test_a_worse_trouble_ends_no_longer_pause_early(opened, ctx):
    """A quota's own pause may be the shorter one, after many failures."""
    it = opened()
    for _ in range(12):  # pauses double with each failure
        it.sight.closure = None
        close(it, Trouble.WORKERS, "failed", ctx)
    long = it.sight.closure.until
    close(it, Trouble.QUOTA, "no quota", ctx)
    assert it.sight.closure.trouble is Trouble.QUOTA
    assert it.sight.closure.until == long > ctx.now + it.config.timing.quota_backoff


def test_pauses_double_and_success_ends_them(opened, ctx):
    """Failures in a row pause longer each time; a ready slice starts them anew."""
    it = opened()
    pauses = []
    for _ in range(3):
        facts, _ = send(it, ctx, SlicesWanted(1) if not pauses else Evaluate())
        name = next(fact.slice_id for fact in facts if isinstance(fact, SliceRequested))
        send(it, ctx, SliceStarted(name))
        send(it, ctx, row(name, S.FAILED, ctx, Trouble.SLOW_BOOT))
        pauses.append(it.sight.closure.until - ctx.now)
        send(it, ctx, row(name, S.GONE, ctx))
        ctx.later(200)
    assert pauses[0] < pauses[1] < pauses[2]
    facts, _ = send(it, ctx, Evaluate())
    send(it, ctx, row(facts[0].slice_id, S.READY, ctx))
    assert it.sight.failures == {}
    assert it.sight.closure is None


def test_a_closed_group_counts_no_more_failures(walk, ctx):
    """A hundred slices that fail together are one failure; an invalid specification is always said."""
    it = walk().it
    close(it, Trouble.QUOTA, "first", ctx)
    close(it, Trouble.WORKERS, "second", ctx)
    assert (it.sight.closure.reason, it.sight.failures) == ("first", {Trouble.QUOTA: 1})
    assert it.sight.closure.retry_at - ctx.wall == it.sight.closure.until - ctx.now > 0
    close(it, Trouble.INVALID, "third", ctx)
    assert (it.sight.closure.reason, it.sight.closure.until) == ("third", None)


def test_a_closure_ends_exactly_at_its_time(opened, ctx):
    """Not an instant later: a look that was set for that moment would find nothing to do."""
    it = opened()
    it.sight.closure = Closure(Trouble.QUOTA, "why", ctx.now + 5, ctx.wall + 5)
    assert is_closed(it, ctx.now + 4)
    assert not is_closed(it, ctx.now + 5)
    it.sight.closure = Closure(Trouble.INVALID, "why", None, None)
    assert is_closed(it, ctx.now + 10**18)


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


def test_a_slice_that_boots_and_is_given_up_closes_nothing(walk):
    """Only one that waits in the queue for machines does: else demand would come straight back to that queue."""
    it = walk()
    it.send(SlicesWanted(1))
    (name,) = it.slices
    it.report(name, S.BOOTING)
    it.send(SlicesWanted(0))
    for _ in range(2):
        it.ctx.later(40)
        it.send(Evaluate())
    assert it.it.promises[name].doomed
    assert it.it.sight.closure is None


def test_mass_failure_is_paced(opened, ctx):
    """Hundreds of failures at once are dismissed within the rate, and all of them in the end (INV-F9)."""
    it = opened(max_slices=300)
    for index in range(200):
        name = f"iris-gpu-{index}"
        groups.apply(it, SliceRequested(name, 0))
        send(it, ctx, SliceStarted(name))
    dismissed = 0
    for index in range(200):
        report = row(f"iris-gpu-{index}", S.FAILED, ctx, Trouble.WORKERS)
        dismissed += len(told(send(it, ctx, report)[1], Dismiss))
    assert dismissed <= 32
    for _ in range(400):
        dismissed += len(told(send(it, ctx.later(1), Evaluate())[1], Dismiss))
    assert dismissed == 200


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


# Shrinking


def test_longest_idle_is_asked_about_first(opened, ctx):
    """One at a time, the longest idle, and only after scale_down_delay (INV-F3)."""
    it = opened()
    names = ready_slices(it, ctx, 3)
    assert told(send(it, ctx.later(25), Evaluate())[1], Cordon) == []
    (cordon,) = told(send(it, ctx.later(10), Evaluate())[1], Cordon)
    assert cordon.slice_id == names[0]
    assert told(send(it, ctx, Evaluate())[1], Cordon) == []
    facts, commands = answer(it, ctx, names[0], 0, cordon.round)
    assert [fact.slice_id for fact in facts] == [names[0]]
    assert len(told(commands, Dismiss)) == 1


@pytest.mark.parametrize("why", ["busy", "late", "wanted", "other round", "idle anew", "not idle"])
def test_any_other_answer_keeps_the_slice(opened, ctx, why):
    """Running attempts, new demand, silence, or what is not what was believed: it stays, and opens again (INV-F3)."""
    it = opened()
    names = ready_slices(it, ctx, 1)
    (cordon,) = told(send(it, ctx.later(40), Evaluate())[1], Cordon)
    match why:
        case "busy":
            facts, commands = answer(it, ctx, names[0], 1, cordon.round)
        case "late":
            facts, commands = send(it, ctx, Overdue("cordon"))
            assert answer(it, ctx, names[0], 0, cordon.round) == ([], [])
        case "wanted":
            it.sight.reports[names[0]] = row(names[0], S.READY, ctx, idle=False)
            facts, commands = answer(it, ctx, names[0], 0, cordon.round)
        case "idle anew":  # the report that would have said so waits somewhere
            facts, commands = answer(it, ctx, names[0], 0, cordon.round, idle_since=ctx.now - SECOND)
        case "not idle":
            facts, commands = answer(it, ctx, names[0], 0, cordon.round, idle_since=None)
        case _:
            assert answer(it, ctx, names[0], 0, cordon.round - 1) == ([], [])
            return
    assert not any(isinstance(fact, SliceDoomed) for fact in facts)
    assert told(commands, Uncordon) == [Uncordon(names[0], cordon.round)]


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


def test_a_slice_that_is_not_the_longest_idle_any_more_stays(opened, ctx):
    """What is learned between the question and its answer counts: the slice is opened again (INV-F3)."""
    it = opened()
    names = ready_slices(it, ctx, 2)
    (cordon,) = told(send(it, ctx.later(40), Evaluate())[1], Cordon)
    send(it, ctx, row(names[0], S.READY, ctx, idle=True))
    facts, commands = answer(it, ctx, names[0], 0, cordon.round)
    assert facts == []
    assert told(commands, Uncordon) == [Uncordon(names[0], cordon.round)]
    assert told(commands, Cordon) == []
    (cordon,) = told(send(it, ctx.later(10), Evaluate())[1], Cordon)
    assert cordon.slice_id == names[1]


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


def test_new_scheduler_first_hears_what_runs(opened, ctx):
    """After the scheduler began anew no cordon is answered or asked for a while (INV-F3)."""
    it = opened()
    names = ready_slices(it, ctx, 1)
    (cordon,) = told(send(it, ctx.later(40), Evaluate())[1], Cordon)
    send(it, ctx, SchedulerStarted())
    assert answer(it, ctx, names[0], 0, cordon.round) == ([], [])
    assert told(send(it, ctx.later(20), Evaluate())[1], Cordon) == []
    assert len(told(send(it, ctx.later(20), Evaluate())[1], Cordon)) == 1


def test_what_a_gang_waits_on_is_kept(walk):
    """Slices become ready long before the last one: none goes, none is asked for, and all go when it does not wait."""
    walk = walk(max_slices=9)
    walk.send(SlicesWanted(3, spread=3))
    names = [*walk.slices]
    for name in names:
        walk.report(name, S.READY, idle=True)
        for _ in range(5):
            walk.ctx.later(40)
            walk.send(Evaluate())
        assert [*walk.slices] == names
        assert walk.cordons == []
    walk.settle(0, rounds=40)
    assert walk.slices == {}


def test_what_is_not_wanted_any_more_goes_one_by_one(walk):
    """The longest idle first, none before it was idle for ``scale_down_delay``, and all of them in the end."""
    walk = walk(max_slices=3)
    walk.send(SlicesWanted(3))
    names = [*walk.slices]
    assert len(names) == 3
    for name in reversed(names):
        walk.ctx.later(1)
        walk.report(name, S.READY, idle=True)
    began = walk.ctx.now
    walk.settle(0, rounds=40)
    assert [each.slice_id for each in walk.cordons] == names[::-1]
    assert walk.slices == walk.rows == {}
    assert sorted(walk.gone) == sorted(names)
    assert walk.ctx.now - began > walk.it.config.timing.scale_down_delay
    assert walk.reported.row.slices == 0
