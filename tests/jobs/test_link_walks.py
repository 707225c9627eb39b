"""A worker's link in any order of events that jobs, scheduler and worker can bring."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st
from link_walk import JOBS, Walk

WALKS = settings(max_examples=60, deadline=None, derandomize=True)
STEPS = 25


def steps(walk, data):
    """Take steps, each drawn from all that may come next."""
    for _ in range(data.draw(st.integers(0, STEPS))):
        choices = dict(walk.choices())
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
