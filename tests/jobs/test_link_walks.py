"""A worker's link in any order of events that jobs, scheduler and worker can bring."""

from __future__ import annotations

from hypothesis import given, strategies as st
from link_walk import JOBS, Walk

from iriscw.jobs.model import Suspension
from profiles import examples

WALKS = examples(60)
STEPS = 25


def steps(walk, data, words=("",)):
    """Take steps, each drawn from all that may come next, or from those with one of these words in their names."""
    for _ in range(data.draw(st.integers(0, STEPS))):
        choices = {name: each for name, each in walk.choices() if any(word in name for word in words)}
        choices[data.draw(st.sampled_from(list(choices)))]()
        yield


@WALKS
@given(st.data())
def test_a_worker_has_what_jobs_want(data):
    """In the end: each attempt that is to run, none that nobody wants, none that it may forget (INV-J2)."""
    walk = Walk()
    for _ in steps(walk, data):
        pass
    walk.settle()
    wanted = {uid for job in JOBS for uid in walk.jobs[job]}
    assert {*walk.worker} == wanted
    assert all(seen.ending is None for seen in walk.worker.values())
    assert not {*walk.stopping} & wanted
    assert {*walk.link.held} == wanted


@WALKS
@given(st.data())
def test_what_a_job_wants_is_left_alone(data):
    """An attempt is stopped only if its job ordered that, and its end is told before its worker may forget it."""
    walk = Walk()
    for _ in steps(walk, data):
        for job in JOBS:
            for uid, wanted in walk.jobs[job].items():
                assert wanted.stop is not None or uid not in walk.stopping
                assert uid in walk.worker or not wanted.started


@WALKS
@given(st.data())
def test_what_has_left_is_not_stopped(data):
    """It may be with another worker by now: this one is told to let it go, and nothing else, however late (INV-J2)."""
    walk = Walk()
    for _ in steps(walk, data, MOVING):
        assert not {*walk.stopping} & {*walk.away}
        for uid in walk.away:
            assert uid not in walk.worker or walk.worker[uid].suspension is Suspension.SUSPENDED


@WALKS
@given(st.data())
def test_whoever_comes_back_is_brought_back(data):
    """In the end each attempt is as its job wants it: frozen only if it may be, and back if it has a new leave."""
    walk = Walk()
    for _ in steps(walk, data, MOVING):
        pass
    walk.settle()
    for wanted in (each for job in JOBS for each in walk.jobs[job].values()):
        seen = walk.worker[wanted.order.uid]
        if wanted.stop is None and not wanted.asked:
            assert seen.suspension in (Suspension.NONE, Suspension.RESUMING)
        elif wanted.stop is None and seen.suspension is not Suspension.SUSPENDED:
            assert wanted.freeze == (seen.suspension is Suspension.SUSPENDING)
    assert {*walk.worker} == {uid for job in JOBS for uid in walk.jobs[job]}


MOVING = ("wants", "runs", "frozen", "gone", "leaves", "comes back", "is back", "stream", "ring open", "briefed")


@WALKS
@given(st.data())
def test_an_end_is_told_once(data):
    """To the job that wants the attempt, and to no other."""
    walk = Walk()
    for _ in steps(walk, data):
        assert len(walk.ended) == len({*walk.ended})


@WALKS
@given(st.data())
def test_a_link_is_ready_when_all_have_spoken(data):
    """Or when it has waited long enough; the clock for that runs until then."""
    walk = Walk()
    for _ in steps(walk, data):
        link = walk.link
        waits = link.briefed and not link.synced
        assert ("sync" in walk.clocks) >= bool(waits and link.expected)
        assert not (link.briefed and not link.expected) or link.synced
