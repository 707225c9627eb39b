"""Idle slices that nothing that waits could use: which ones they are, and when one goes for another."""

from __future__ import annotations

import random

import attrs
import pytest
from group_desk import send, told
from test_routing import NEW, OLD, WORKER, entry, idle_slice, offer

from iriscw.cloud.model import Attributes, Constraint, Mode, Op
from iriscw.fleet.groups import group as groups
from iriscw.fleet.groups.renewal import LONGEST_PAUSE, Newcomers, Renewal, kind_of
from iriscw.fleet.groups.scaling import OF_NO_USE
from iriscw.fleet.messages import Cordon, Uncordon
from iriscw.fleet.model import Availability, SliceRow, SliceState, Trouble
from iriscw.fleet.records import SliceDoomed, SliceRequested
from iriscw.fleet.routing import route
from iriscw.fleet.signals import (
    CordonAnswered,
    Evaluate,
    GroupReported,
    PodsListed,
    PoolsListed,
    SliceReported,
    SliceStarted,
    SlicesWanted,
    Takeover,
)
from iriscw.fleet.useless import could_run, is_choosy, useless
from iriscw.runtime.vocabulary import SECOND, ActorPath

ASKS_NEW = (Constraint("python", Op.EQ, ("3.12",)),)
LIKES_NEW = (Constraint("python", Op.EQ, ("3.12",), Mode.PREFERRED),)
FULL = {"room": 0, "later": 0, "availability": Availability.AT_MAX}


def workers(*said):
    return tuple(Attributes(each) for each in said)


@pytest.mark.parametrize(
    ("demand", "there", "runs"),
    [
        (entry(constraints=ASKS_NEW), (OLD,), False),
        (entry(constraints=ASKS_NEW), (OLD, NEW), True),
        (entry(constraints=LIKES_NEW), (OLD,), True),
        (entry(count=16, gang=16, constraints=ASKS_NEW), (OLD, NEW), False),  # a worker holds eight
        (entry(count=16, gang=16, constraints=ASKS_NEW), (NEW, OLD, NEW), True),
        (entry(count=8, gang=8, by="worker-id", constraints=ASKS_NEW), (OLD, NEW), True),
        (entry(count=16, gang=16, by="python"), (OLD, NEW), False),
        (entry(count=16, gang=16, by="python"), (OLD, OLD), True),
        (entry(count=16, gang=16, by="python", constraints=ASKS_NEW), (OLD, OLD), False),
        (entry(count=16, gang=16, by="python"), ({},), False),
    ],
)
def test_what_could_run_on_a_slice(demand, there, runs):
    """Required constraints decide, of as many workers as a gang needs; what spreads needs all, with one value."""
    assert could_run(workers(*there), demand, WORKER) is runs
    named = useless([demand], [idle_slice("s1", *there)], WORKER)
    assert named == (() if runs else ("s1",))


def test_a_slice_is_of_use_if_anything_that_waits_could_run_there():
    """And where nothing waits none is called useless; they come in the order in which they were given."""
    known = [idle_slice("s2", OLD), idle_slice("s1", OLD), idle_slice("s3", NEW)]
    assert useless([entry(constraints=ASKS_NEW)], known, WORKER) == ("s2", "s1")
    assert useless([entry(constraints=ASKS_NEW), entry("b")], known, WORKER) == ()
    assert useless([], known, WORKER) == ()


@pytest.mark.parametrize(
    ("demand", "choosy"),
    [
        (entry(), False),
        (entry(constraints=LIKES_NEW), False),
        (entry(constraints=ASKS_NEW), True),
        (entry(count=2, gang=2), False),
        (entry(count=2, gang=2, by="worker-id"), False),
        (entry(count=2, gang=2, by="region"), True),
    ],
)
def test_what_tells_slices_apart(demand, choosy):
    """All else fits either all slices of a group or none."""
    assert is_choosy(demand) is choosy


def test_what_finds_no_room_may_have_that_of_useless_slices():
    """Only what is left, only where nothing else waits that could use them, and only where others could come."""
    known = [idle_slice("s1", OLD), idle_slice("s2", OLD), idle_slice("s3", NEW)]
    asks = entry(count=17, constraints=ASKS_NEW)
    full = offer(idle=3, known=known, **FULL)
    routing = route([asks], [full])
    assert (routing.wanted, routing.renew, routing.useless) == ({"g": 0}, {"g": 2}, {"g": ("s1", "s2")})
    assert "16 tasks for new slices of 'g' in the place of idle ones" in routing.reasons[0][1]
    assert "no group takes 1 more now" in routing.reasons[0][1]
    assert route([asks], [offer(idle=3, known=known, room=1)]).renew == {"g": 2}
    assert route([asks], [offer(idle=3, known=known, room=3)]).renew == {"g": 0}
    assert route([asks], [full, offer("h")]).renew == {"g": 0, "h": 0}
    assert route([asks, entry("b")], [full]).useless == {"g": ()}
    closed = offer(idle=3, known=known, room=0, availability=Availability.QUOTA_EXCEEDED)
    assert (route([asks], [closed]).renew, route([asks], [closed]).useless) == ({"g": 0}, {"g": ()})
    elsewhere = entry("b", constraints=(Constraint("region", Op.EQ, ("ord1",)),))
    assert route([asks, elsewhere], [full]).renew == {"g": 2}, "what no slice of the group could run does not count"


def test_a_gang_that_spreads_may_have_the_room_of_useless_slices():
    """If all of it finds room so; what is there is kept, and places of slices on their way out count."""
    known = [idle_slice("s1", OLD), idle_slice("s2", NEW)]
    gang = entry(count=16, gang=16, by="region", constraints=ASKS_NEW)
    routing = route([gang], [offer(idle=2, known=known, **FULL)])
    assert (routing.spread, routing.unfit) == ({"g": 1}, {"g": ("s1",)})
    assert (routing.renew, routing.useless) == ({"g": 1}, {"g": ("s1",)})
    larger = entry(count=24, gang=24, by="region", constraints=ASKS_NEW)
    assert route([larger], [offer(idle=2, known=known, **FULL)]).renew == {"g": 0}
    going = route([larger], [offer(idle=2, known=known, going=1, **FULL)])
    assert (going.renew, going.useless) == ({"g": 2}, {"g": ("s1",)})
    waiting = offer("h", waiting=9, room=0, availability=Availability.NO_CAPACITY)
    assert route([gang], [offer(idle=2, known=known, **FULL), waiting]).renew == {"g": 0, "h": 0}, "it costs a slice"


# When one goes


OLD_ONES, NEW_ONES = workers(OLD), workers(NEW)


@pytest.mark.parametrize(
    ("useless", "readied", "kinds", "trial"),
    [
        (("a",), {"a": 1}, {"a": OLD_ONES}, Newcomers.PENDING),
        (("a",), {"a": 1, "b": 9}, {"a": OLD_ONES, "b": NEW_ONES}, Newcomers.HELPED),
        (("a",), {"a": 1, "b": 9}, {"a": OLD_ONES, "b": OLD_ONES}, Newcomers.FAILED),  # b is busy
        (("a", "b"), {"a": 1, "b": 9}, {"a": OLD_ONES, "b": NEW_ONES}, Newcomers.FAILED),
        (("b",), {"b": 9}, {"b": NEW_ONES}, Newcomers.FAILED),
        (("a",), {"a": 1, "b": 9, "c": 9}, {"a": OLD_ONES, "b": NEW_ONES, "c": OLD_ONES}, Newcomers.FAILED),
    ],
)
def test_what_came_of_a_trial(useless, readied, kinds, trial):
    """Those that became ready since then tell: of no use is what is named, and what says the same as one that is."""
    known = {name: kind_of(each) for name, each in kinds.items()}
    assert Renewal().trial(useless, readied, known) is Newcomers.NONE
    assert Renewal(tries=1, since=5, until=99).trial(useless, readied, known) is trial


def test_pauses_double_up_to_a_limit():
    """As long as no new slice is of use; one that is ends that."""
    renewal, rng, pauses = Renewal(), random.Random(1), []
    now = 0
    for _ in range(12):
        renewal.begin(Newcomers.FAILED if now else Newcomers.NONE, now, now + 7, 1800 * SECOND, rng)
        assert renewal.retry_at == renewal.until + 7
        assert not renewal.may_begin(Newcomers.FAILED, renewal.until - 1)
        assert not renewal.may_begin(Newcomers.PENDING, renewal.until - 1)
        assert renewal.may_begin(Newcomers.FAILED, renewal.until)
        pauses.append(renewal.until - now)
        now = renewal.until
    assert pauses[0] < pauses[1] < pauses[2] < pauses[3]
    assert LONGEST_PAUSE * 3 // 4 < pauses[-1] <= LONGEST_PAUSE
    assert renewal.may_begin(Newcomers.HELPED, 0)
    renewal.begin(Newcomers.HELPED, now, now, SECOND, rng)
    assert (renewal.tries, renewal.until) == (0, now)


@pytest.fixture
def ctx(ctx):
    ctx.path = ActorPath("/fleet/gpu")
    return ctx


def ready(name, ctx, said=OLD, *, idle=True):
    return SliceReported(
        row=SliceRow(name, "gpu", SliceState.READY, Trouble.NONE, "", ctx.wall, ctx.wall, workers=("w",)),
        pool_uid="u",
        idle_since=ctx.now if idle else None,
        ready_since=ctx.now,
        used=True,
        stuck=False,
        bare=False,
        workers=workers(said),
    )


@pytest.fixture
def full(group, ctx):
    """Make a group that has the three slices that it may, and keeps them: each idle a second longer than the next."""
    it = group(min_slices=3, max_slices=3)
    groups.resume(it, ctx)
    facts = []
    for message in (PoolsListed(()), PodsListed(()), Takeover()):
        facts += send(it, ctx, message)[0]
    names = [fact.slice_id for fact in facts]
    assert len(names) == 3
    for name in names:
        send(it, ctx, SliceStarted(name))
        send(it, ctx.later(1), ready(name, ctx))
    return it, names


def replace(it, ctx, name, *, live=0):
    """Have the scheduler answer for a slice."""
    asked = it.sight.cordon
    assert (asked.slice_id, asked.useless) == (name, True)
    idle_since = it.sight.reports[name].idle_since
    return send(it, ctx, CordonAnswered(name, live, asked.round, idle_since, ctx.now))


def come(it, ctx, gone, said):
    """Have a slice go, and another come in its place."""
    from_gone, _ = send(it, ctx, attrs.evolve(ready(gone, ctx), row=row_of(gone, ctx)))
    facts = from_gone + send(it, ctx.later(11), Evaluate())[0]
    (name,) = (fact.slice_id for fact in facts if isinstance(fact, SliceRequested))
    send(it, ctx, SliceStarted(name))
    send(it, ctx.later(5), ready(name, ctx, said))
    return name


def row_of(name, ctx):
    return SliceRow(name, "gpu", SliceState.GONE, Trouble.NONE, "", ctx.wall, ctx.wall)


def reason(commands):
    return told(commands, GroupReported)[-1].row.reason


def test_a_useless_slice_goes_though_there_are_no_more_than_the_least(full, ctx):
    """Of the useless ones the longest idle, after ``scale_down_delay``, with a reason; another takes its place."""
    it, names = full
    _, commands = send(it, ctx, SlicesWanted(0, renew=1, useless=(names[2], names[1])))
    assert told(commands, Cordon) == []
    assert "nothing that waits could run on 2 that are idle: one goes for another once it was idle for" in reason(
        commands
    )
    (cordon,) = told(send(it, ctx.later(40), Evaluate())[1], Cordon)
    assert cordon.slice_id == names[1]
    facts, commands = replace(it, ctx, names[1])
    assert [(fact.slice_id, fact.reason.startswith(OF_NO_USE)) for fact in facts] == [(names[1], True)]
    assert told(commands, GroupReported)[-1].going == 1
    assert "1 of them goes for another: nothing that waits could run there" in reason(commands)
    assert told(send(it, ctx.later(40), Evaluate())[1], Cordon) == [], "the place of one on its way out is the one"
    come(it, ctx, names[1], NEW)
    assert it.promises.keys() >= {names[0], names[2]}
    assert len(it.promises) == 3


@pytest.mark.parametrize("why", ["busy", "of use", "room", "nothing waits", "closed", "late"])
def test_it_stays_where_the_answer_finds_it_otherwise(full, ctx, why):
    """Whatever is not as it was when the scheduler was asked: the slice is opened again."""
    it, names = full
    wanted = SlicesWanted(0, renew=1, useless=(names[1],))
    send(it, ctx, wanted)
    (cordon,) = told(send(it, ctx.later(40), Evaluate())[1], Cordon)
    match why:
        case "of use":
            it.sight.wanted = SlicesWanted(0, renew=1, useless=(names[2],))
        case "room":
            it.seed = attrs.evolve(it.seed, config=attrs.evolve(it.config, max_slices=4))
        case "nothing waits":
            it.sight.wanted = SlicesWanted(0)
        case "closed":
            it.sight.closure = groups.Closure(Trouble.QUOTA, "", None, None)
        case "late":
            ctx.later(6)
    asked_at = ctx.now - (6 * SECOND if why == "late" else 0)
    idle_since = it.sight.reports[names[1]].idle_since
    facts, commands = send(it, ctx, CordonAnswered(names[1], int(why == "busy"), cordon.round, idle_since, asked_at))
    assert [fact for fact in facts if isinstance(fact, SliceDoomed)] == []
    assert Uncordon(names[1], cordon.round) in told(commands, Uncordon)


def test_the_next_waits_for_what_the_first_shows(full, ctx):
    """One that is no better: a pause that doubles, told with its end."""
    it, names = full
    send(it, ctx.later(40), SlicesWanted(0, renew=3, useless=tuple(names)))
    replace(it, ctx, names[0])
    assert told(send(it, ctx.later(10), Evaluate())[1], Cordon) == []
    worse = come(it, ctx, names[0], OLD)
    _, commands = send(it, ctx, SlicesWanted(0, renew=3, useless=(*names[1:], worse)))
    assert told(commands, Cordon) == []
    assert "nor on the last 1 that came for others: the next one goes at " in reason(commands)
    first = it.sight.renewal.until - it.sight.renewal.since
    ctx.now = it.sight.renewal.until
    (cordon,) = told(send(it, ctx, Evaluate())[1], Cordon)
    assert cordon.slice_id == names[1]
    replace(it, ctx, names[1])
    assert it.sight.renewal.until - it.sight.renewal.since > first * 3 // 2
    better = come(it, ctx, names[1], NEW)
    ctx.later(40)
    _, commands = send(it, ctx, SlicesWanted(0, renew=2, useless=(names[2], worse)))
    assert better not in it.sight.wanted.useless
    assert told(commands, Cordon) == [], "two came, and one of them is like those that are of no use"


def test_once_a_new_one_is_of_use_the_others_go_at_once(full, ctx):
    """Without waiting until those in their place are there: as many as could run what waits."""
    it, names = full
    send(it, ctx.later(40), SlicesWanted(0, renew=3, useless=tuple(names)))
    replace(it, ctx, names[0])
    better = come(it, ctx, names[0], NEW)
    send(it, ctx, ready(better, ctx, NEW, idle=False))
    send(it, ctx.later(1), SlicesWanted(0, renew=2, useless=tuple(names[1:])))
    replace(it, ctx, names[1])
    send(it, ctx, Evaluate())
    facts, _ = replace(it, ctx, names[2])
    assert [fact.slice_id for fact in facts] == [names[2]]
    assert it.sight.renewal.tries == 0


def test_what_is_on_its_way_shows_first_whether_new_ones_are_better(group, ctx):
    """No slice goes for a trial that is under way anyhow."""
    it = group(min_slices=2, max_slices=2)
    groups.resume(it, ctx)
    facts = []
    for message in (PoolsListed(()), PodsListed(()), Takeover()):
        facts += send(it, ctx, message)[0]
    for fact in facts:
        send(it, ctx, SliceStarted(fact.slice_id))
    name = facts[0].slice_id
    send(it, ctx, ready(name, ctx))
    _, commands = send(it, ctx.later(40), SlicesWanted(0, renew=1, useless=(name,)))
    assert told(commands, Cordon) == []
    assert "those on their way will show whether new ones are better" in reason(commands)
    _, commands = send(it, ctx, ready(facts[1].slice_id, ctx, NEW, idle=False))
    assert [each.slice_id for each in told(commands, Cordon)] == [name]
