"""A group: pure decisions about its size, its closures and its cordons."""

from __future__ import annotations

import attrs
import pytest
from group_desk import send, told

from iriscw.cloud.effects import DeleteNodePool
from iriscw.cloud.model import NodePool, Pod
from iriscw.fleet.groups import group as groups
from iriscw.fleet.groups.scaling import ANSWER_AGE, POLICY_REPORTS_EVERY, close, count_slices, view_of
from iriscw.fleet.messages import Cordon, PolicyFailed, SchedulerStarted, Uncordon
from iriscw.fleet.model import Availability, SliceRow, SliceState, Trouble
from iriscw.fleet.records import SliceDeleted, SliceDoomed, SliceRequested
from iriscw.fleet.signals import (
    CordonAnswered,
    Dismiss,
    Evaluate,
    GroupReported,
    Overdue,
    PodsListed,
    PoolsListed,
    SliceBriefed,
    SliceReported,
    SliceStarted,
    SlicesWanted,
    Takeover,
)
from iriscw.runtime.vocabulary import SECOND, ActorPath, Continue, Emit, Run, Spawn, StopChild


@pytest.fixture
def ctx(ctx):
    ctx.path = ActorPath("/fleet/gpu")
    return ctx


def row(name, state, ctx, *, trouble=Trouble.NONE, idle=False, used=True, bare=False, workers=("w",)):
    return SliceReported(
        row=SliceRow(name, "gpu", state, trouble, "why", ctx.wall, ctx.wall, workers=workers),
        pool_uid="u",
        idle_since=ctx.now if idle else None,
        ready_since=ctx.now if state is SliceState.READY else None,
        used=used,
        stuck=False,
        bare=bare,
    )


@pytest.fixture
def opened(group, ctx):
    def make(**changes):
        it = group(**changes)
        groups.resume(it, ctx)
        for message in (PoolsListed(()), PodsListed(()), Takeover()):
            send(it, ctx, message)
        assert it.sight.opened
        return it

    return make


def ready_slices(it, ctx, count):
    """Have so many slices requested and ready, each idle from a second later than the one before."""
    facts, _ = send(it, ctx, SlicesWanted(count))
    names = [fact.slice_id for fact in facts if isinstance(fact, SliceRequested)]
    assert len(names) == count
    for name in names:
        send(it, ctx, SliceStarted(name))
        send(it, ctx, row(name, SliceState.READY, ctx, idle=True))
        ctx.later(1)
    send(it, ctx, SlicesWanted(0))
    return names


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


def test_failed_slice_is_doomed_and_closes_the_group(opened, ctx):
    """Each trouble closes the group in its own way; the record precedes the dismissal (INV-F5)."""
    for trouble, availability in (
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
        facts, commands = send(it, ctx, row(name, SliceState.FAILED, ctx, trouble=trouble))
        assert SliceDoomed(name, "why") in facts
        assert told(commands, Dismiss) == [Dismiss("why")]
        assert told(commands, GroupReported)[-1].availability is availability
        assert (it.sight.closure.until is None) == (trouble is Trouble.INVALID)


def test_a_slice_that_fails_is_replaced_where_no_other_one_may_be(opened, ctx):
    """`min_slices` keeps none that cannot be used: it goes at `max_slices` as well, and another one comes when it is
    gone and the pause is over.
    """
    it = opened(min_slices=1, max_slices=1)
    name = next(iter(it.promises))
    for pauses in range(1, 4):
        send(it, ctx, SliceStarted(name))
        facts, commands = send(it, ctx, row(name, SliceState.FAILED, ctx, trouble=Trouble.WORKERS))
        assert (SliceDoomed(name, "why") in facts, told(commands, Dismiss)) == (True, [Dismiss("why")])
        send(it, ctx, row(name, SliceState.DELETING, ctx))
        paused = it.sight.closure.until - ctx.now
        assert 2 ** (pauses - 1) * it.config.timing.failure_backoff >= paused > 0
        assert not [each for each in send(it, ctx.later(3600), Evaluate())[0] if isinstance(each, SliceRequested)]
        facts, _ = send(it, ctx, row(name, SliceState.GONE, ctx))
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
        send(it, ctx, row(name, SliceState.FAILED, ctx, trouble=Trouble.SLOW_BOOT))
        pauses.append(it.sight.closure.until - ctx.now)
        send(it, ctx, row(name, SliceState.GONE, ctx))
        ctx.later(200)
    assert pauses[0] < pauses[1] < pauses[2]
    facts, _ = send(it, ctx, Evaluate())
    send(it, ctx, row(facts[0].slice_id, SliceState.READY, ctx))
    assert it.sight.failures == {}
    assert it.sight.closure is None


def answer(it, ctx, name, live, round_, **changes):
    """Send the scheduler's answer as it comes by way of the slice, which knows what its last report said."""
    told = {"idle_since": it.sight.reports[name].idle_since, "at": ctx.now, **changes}
    return send(it, ctx, CordonAnswered(name, live, round_, **told))


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


@pytest.mark.parametrize("why", ["busy", "late", "wanted", "other round", "idle anew", "not idle", "old"])
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
            it.sight.reports[names[0]] = row(names[0], SliceState.READY, ctx, idle=False)
            facts, commands = answer(it, ctx, names[0], 0, cordon.round)
        case "idle anew":  # the report that would have said so waits somewhere
            facts, commands = answer(it, ctx, names[0], 0, cordon.round, idle_since=ctx.now - SECOND)
        case "not idle":
            facts, commands = answer(it, ctx, names[0], 0, cordon.round, idle_since=None)
        case "old":  # the answer itself waited
            facts, commands = answer(it, ctx, names[0], 0, cordon.round, at=ctx.now - ANSWER_AGE - 1)
        case _:
            assert answer(it, ctx, names[0], 0, cordon.round - 1) == ([], [])
            return
    assert not any(isinstance(fact, SliceDoomed) for fact in facts)
    assert told(commands, Uncordon) == [Uncordon(names[0], cordon.round)]


def test_a_slice_that_is_not_the_longest_idle_any_more_stays(opened, ctx):
    """What is learned between the question and its answer counts: the slice is opened again (INV-F3)."""
    it = opened()
    names = ready_slices(it, ctx, 2)
    (cordon,) = told(send(it, ctx.later(40), Evaluate())[1], Cordon)
    send(it, ctx, row(names[0], SliceState.READY, ctx, idle=True))
    facts, commands = answer(it, ctx, names[0], 0, cordon.round)
    assert facts == []
    assert told(commands, Uncordon) == [Uncordon(names[0], cordon.round)]
    assert told(commands, Cordon) == []
    (cordon,) = told(send(it, ctx.later(10), Evaluate())[1], Cordon)
    assert cordon.slice_id == names[1]


def test_new_scheduler_first_hears_what_runs(opened, ctx):
    """After the scheduler began anew no cordon is answered or asked for a while (INV-F3)."""
    it = opened()
    names = ready_slices(it, ctx, 1)
    (cordon,) = told(send(it, ctx.later(40), Evaluate())[1], Cordon)
    send(it, ctx, SchedulerStarted())
    assert answer(it, ctx, names[0], 0, cordon.round) == ([], [])
    assert told(send(it, ctx.later(20), Evaluate())[1], Cordon) == []
    assert len(told(send(it, ctx.later(20), Evaluate())[1], Cordon)) == 1


def test_gone_slice_is_forgotten_and_its_rest_reclaimed(opened, ctx, labels):
    """The promise ends with the slice; a pod that is still shown becomes an orphan."""
    it = opened()
    facts, _ = send(it, ctx, SlicesWanted(1))
    name = facts[0].slice_id
    it.sight.pods[name] = {"p": Pod("p", "pu", "1", labels(name, f"{name}-0", "x"))}
    facts, commands = send(it, ctx, row(name, SliceState.GONE, ctx))
    assert SliceDeleted(name) in facts
    assert StopChild(name) in commands
    assert it.sight.orphans.names == ("pod:p",)


def test_late_pool_of_a_forgotten_slice_is_deleted(opened, ctx, labels):
    """A create that lands after its slice is gone is reclaimed by name and uid (INV-F1)."""
    it = opened()
    late = NodePool("iris-gpu-old", "u7", "1", labels("iris-gpu-old"))
    _, commands = send(it, ctx, PoolsListed((late,)))
    assert [c.effect for c in commands if isinstance(c, Run)] == [DeleteNodePool("iris-gpu-old", "u7")]


def test_mass_failure_is_paced(opened, ctx):
    """Hundreds of failures at once are dismissed within the rate, and all of them in the end (INV-F9)."""
    it = opened(max_slices=300)
    for index in range(200):
        name = f"iris-gpu-{index}"
        groups.apply(it, SliceRequested(name, 0))
        send(it, ctx, SliceStarted(name))
    dismissed = 0
    for index in range(200):
        report = row(f"iris-gpu-{index}", SliceState.FAILED, ctx, trouble=Trouble.WORKERS)
        dismissed += len(told(send(it, ctx, report)[1], Dismiss))
    assert dismissed <= 32
    for _ in range(400):
        dismissed += len(told(send(it, ctx.later(1), Evaluate())[1], Dismiss))
    assert dismissed == 200


def test_replay_gives_equal_promises_and_restarts_every_slice(opened, ctx, group):
    """A snapshot replayed gives an equal group; resuming starts each slice and dismisses the doomed again."""
    it = opened()
    names = ready_slices(it, ctx, 3)
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


def test_a_look_costs_one_pass_over_the_slices(opened, ctx):
    """With a thousand slices heartbeats do not reach the group, and a busy slice's report asks for no look."""
    it = opened(max_slices=1000)
    for index in range(1000):
        groups.apply(it, SliceRequested(f"s{index}", 0))
        it.sight.reports[f"s{index}"] = row(f"s{index}", SliceState.READY, ctx)
    _, commands = send(it, ctx.later(1), row("s5", SliceState.READY, ctx, idle=True))
    assert not [c for c in commands if isinstance(c, Continue)]
    assert ctx.now > SECOND


def test_restarted_doomed_slice_is_dismissed_again(opened, ctx):
    """A slice whose actor begins anew in the middle of its end is told to go again."""
    it = opened()
    facts, _ = send(it, ctx, SlicesWanted(1))
    name = facts[0].slice_id
    send(it, ctx, SliceStarted(name))
    send(it, ctx, row(name, SliceState.FAILED, ctx))
    assert it.sight.dismissals == {}
    _, commands = send(it, ctx, SliceStarted(name))
    assert told(commands, Dismiss) == [Dismiss("why")]


# Policies


def with_policy(it, policy):
    """Have the group ask this policy from now on."""
    it.seed = attrs.evolve(it.seed, policy=policy)
    return it


def requested(facts):
    return [fact for fact in facts if isinstance(fact, SliceRequested)]


def emitted(commands):
    return [command.event for command in commands if isinstance(command, Emit)]


def test_a_policy_says_how_many(opened, ctx):
    """Without any demand: what it wants is asked for, and what it does not want any more goes, the longest idle."""
    it = with_policy(opened(), lambda view: 3 if view.ready < 3 and not view.idle else 1)
    facts, _ = send(it, ctx, Evaluate())
    assert len(requested(facts)) == 3
    for fact in requested(facts):
        send(it, ctx.later(1), row(fact.slice_id, SliceState.READY, ctx, idle=True))
    (cordon,) = told(send(it, ctx.later(40), Evaluate())[1], Cordon)
    assert cordon.slice_id == requested(facts)[0].slice_id


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
    send(it, ctx, row(names[2], SliceState.READY, ctx, idle=False))
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
