"""A worker's link in any order of events that jobs, scheduler and worker can bring."""

from __future__ import annotations

from hypothesis import given, strategies as st
from link_walk import JOBS, Walk

from iriscw.jobs.model import Suspension
from profiles import examples

STEPS = 25
MOVING = ("wants", "runs", "frozen", "gone", "leaves", "comes back", "is back", "stream", "ring open", "briefed")


@examples(120)
@given(st.data(), st.sampled_from([("",), MOVING]))
def test_any_history(data, words):
    """What a job wants is left alone, what has left is not stopped; in the end each attempt is as its job has it."""
    walk = Walk()
    for _ in range(data.draw(st.integers(0, STEPS))):
        choices = {name: each for name, each in walk.choices() if any(word in name for word in words)}
        choices[data.draw(st.sampled_from(list(choices)))]()
        wanted_are_left_alone(walk)
        if words is MOVING:
            gone_are_not_stopped(walk)
        is_ready_when_all_have_spoken(walk)
        assert len(walk.ended) == len({*walk.ended}), "an end is told once, to the job that wants the attempt"
    walk.settle()
    attempts_are_as_wanted(walk)


def wanted_are_left_alone(walk):
    """An attempt is stopped only if its job ordered that, and its end is told before its worker may forget it."""
    for job in JOBS:
        for uid, wanted in walk.jobs[job].items():
            assert wanted.stop is not None or uid not in walk.stopping
            assert uid in walk.worker or not wanted.started


def gone_are_not_stopped(walk):
    """It may be with another worker by now: this one is told to let it go, and nothing else, however late (INV-J2)."""
    assert not {*walk.stopping} & {*walk.away}
    for uid in walk.away:
        assert uid not in walk.worker or walk.worker[uid].suspension is Suspension.SUSPENDED


def is_ready_when_all_have_spoken(walk):
    """Or when it has waited long enough; the clock for that runs until then."""
    link = walk.link
    waits = link.briefed and not link.synced
    assert ("sync" in walk.clocks) >= bool(waits and link.expected)
    assert not (link.briefed and not link.expected) or link.synced


def attempts_are_as_wanted(walk):
    """Each that is to run, none that nobody wants, none that may be forgotten (INV-J2). It is frozen only if it may
    be, and back if it has a new leave.
    """
    wanted = {uid: each for job in JOBS for uid, each in walk.jobs[job].items()}
    assert {*walk.worker} == {*walk.link.held} == {*wanted}
    assert all(seen.ending is None for seen in walk.worker.values())
    assert not {*walk.stopping} & {*wanted}
    for each in wanted.values():
        seen = walk.worker[each.order.uid]
        if each.stop is None and not each.asked:
            assert seen.suspension in (Suspension.NONE, Suspension.RESUMING)
        elif each.stop is None and seen.suspension is not Suspension.SUSPENDED:
            assert each.freeze == (seen.suspension is Suspension.SUSPENDING)
