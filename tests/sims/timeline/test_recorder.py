"""A recorder keeps what it is told, in order, without overlaps, and within its bounds."""

import itertools

import pytest
from hypothesis import given, strategies as st

from iriscw_sims.timeline.model import Level, Point, Tone
from iriscw_sims.timeline.recorder import Recorder
from raised import that


def test_states_follow_each_other():
    """Entering a state leaves the one before, for the reason for which the new one begins."""
    recorder = Recorder()
    assert recorder.enter(1, "slice/a", "booting", "asked")
    assert recorder.enter(5, "slice/a", "ready", "all registered")
    assert recorder.state("slice/a") == "ready"
    assert recorder.leave(9, "slice/a", "removed", outcome="gone", tone=Tone.BAD)
    first, second = recorder.finish(10).spans
    assert (first.state, first.began, first.ended, first.why, first.end_why) == (
        "booting",
        1,
        5,
        "asked",
        "all registered",
    )
    assert (second.state, second.end_why, second.outcome, second.tone) == ("ready", "removed", "gone", Tone.BAD)


def test_the_same_state_again_changes_nothing():
    """What is repeated is no new span, unless it is another one's: the next attempt of a task."""
    recorder = Recorder()
    recorder.enter(1, "task/j/0", "running", "so it says", label="attempt 1")
    assert not recorder.enter(2, "task/j/0", "running", "so it says", label="attempt 1")
    assert recorder.enter(3, "task/j/0", "running", "so it says", label="attempt 2")
    assert [(each.began, each.ended) for each in recorder.finish(4).spans] == [(1, 3), (3, 4)]


def test_what_is_open_at_the_end_is_cut():
    """The end of the run ends all spans, and says so."""
    recorder = Recorder()
    recorder.enter(1, "a", "up")
    [span] = recorder.finish(7).spans
    assert (span.ended, span.cut, span.end_why) == (7, True, "the run ended")


def test_a_state_of_no_time_is_not_kept():
    """Nobody could see it; but what ended in no time has an outcome, and is."""
    recorder = Recorder()
    recorder.enter(3, "a", "x")
    recorder.enter(3, "a", "y")
    recorder.leave(3, "a", "over", outcome="failed")
    assert [each.state for each in recorder.finish(4).spans] == ["y"]


def test_leaving_needs_a_cause():
    """Without one it is a bug of whoever tells."""
    recorder = Recorder()
    recorder.enter(1, "a", "x")
    with pytest.raises(AssertionError, check=that(comes_from="recorder.Recorder.leave")):
        recorder.leave(2, "a", "")
    assert not recorder.leave(2, "b", "it never was")


def test_lanes_hang_below_each_other():
    """Each stands behind the one above it; those with numbers by their numbers, others as they came."""
    recorder = Recorder()
    for subject, above in (("job/j", ""), ("group/g", ""), ("slice/s", "group/g"), ("slice/a", "group/g")):
        recorder.lane(subject, above)
    for number in (10, 2, 0):
        recorder.lane(f"worker/s-{number}", "slice/s")
    got = [lane.subject for lane in recorder.finish(1).lanes]
    workers = ["worker/s-0", "worker/s-2", "worker/s-10"]
    assert got == ["job/j", "group/g", "slice/s", *workers, "slice/a"]


def test_points_are_kept_when_they_differ():
    """A group that reports the same figures again has no new point."""
    recorder = Recorder()
    for at, ready in ((1, 0), (2, 0), (3, 1)):
        recorder.point("group/g", Point(at, 2, ready, 2))
    [(_, points)] = recorder.finish(4).points
    assert [point.at for point in points] == [1, 3]


def test_a_fault_is_counted_and_names_its_victim():
    """The event says what it was and whom it hit."""
    recorder = Recorder()
    recorder.fault(5, "node dies", on="slice/a", lasts=1_500_000_000)
    recorder.fault(6, "api lost", planned=False)
    timeline = recorder.finish(7)
    assert timeline.fired == (("api lost", 1), ("node dies", 1))
    assert [each.why for each in timeline.events] == ["planned for this moment, for 1.5 s", "one of the plan's chances"]
    assert [(each.subject, each.what, each.about) for each in timeline.events] == [
        ("fault/node dies", "node dies: slice/a", ("slice/a",)),
        ("fault/api lost", "api lost", ()),
    ]


LANES = st.sampled_from(["a", "b", "c"])
STEPS = st.tuples(LANES, st.sampled_from(["x", "y", ""]), st.integers(0, 3), st.booleans())


@given(st.lists(STEPS, max_size=60))
def test_spans_of_a_lane_never_overlap(steps):
    """Whatever is told, in whatever order: spans of a lane follow each other, and each has the cause of its end."""
    recorder, now = Recorder(), 0
    for lane, state, later, outcome in steps:
        now += later
        if state:
            recorder.enter(now, lane, state, "because")
        else:
            recorder.leave(now, lane, "it went", outcome="gone" if outcome else "")
    timeline = recorder.finish(now + 1)
    for lane in "abc":
        spans = [span for span in timeline.spans if span.lane == lane]
        assert all(span.began <= span.ended and span.end_why for span in spans)
        assert all(before.ended <= after.began for before, after in itertools.pairwise(spans))


@given(st.lists(st.sampled_from(list(Level)), min_size=1, max_size=300), st.integers(4, 40))
def test_events_stay_within_their_bound(levels, most):
    """The oldest of the least weight go first; what went is counted, and the latest landmark always stays."""
    recorder = Recorder(max_events=most)
    for at, level in enumerate(levels):
        recorder.event(at, "a", str(at), level=level)
    timeline = recorder.finish(len(levels))
    assert len(timeline.events) <= most
    assert len(timeline.events) + timeline.thinned == len(levels)
    kept = [event.at for event in timeline.events]
    assert kept == sorted(kept)
    gone = [at for at in range(len(levels)) if at not in kept]
    assert all(at <= timeline.thinned_until for at in gone)
    landmarks = [at for at, level in enumerate(levels) if level is Level.LANDMARK]
    assert not landmarks or landmarks[-1] in kept


def test_a_simulated_year_is_flat():
    """Spans, lanes and points of a run without an end stay within their bounds, and faults are counted all the same."""
    recorder = Recorder(max_events=100, max_spans=50, max_lanes=20, max_points=30)
    recorder.lane("group/g")
    for number in range(2_000):
        slice_id = f"slice/s{number}"
        recorder.lane(slice_id, "group/g")
        recorder.enter(number, slice_id, "ready")
        recorder.point("group/g", Point(number, number, 0, 0))
        recorder.fault(number, "api lost")
        recorder.leave(number + 1, slice_id, "idle", outcome="gone")
    timeline = recorder.finish(2_000)
    assert dict(timeline.fired) == {"api lost": 2_000}
    assert len(timeline.events) <= 100
    assert len(timeline.spans) <= 50
    assert len(timeline.lanes) <= 20
    assert all(len(points) <= 30 for _, points in timeline.points)
    assert timeline.lanes[0].subject == "group/g"
    assert timeline.lanes[-1].subject == "slice/s1999"
    assert timeline.spans[-1].lane == "slice/s1999"
    assert timeline.thinned > 1_000


def test_lanes_in_use_are_kept():
    """When lanes go for want of room, those that are in a state stay."""
    recorder = Recorder(max_lanes=8)
    recorder.enter(0, "slice/first", "ready")
    for number in range(50):
        recorder.lane(f"slice/s{number}")
    recorder.leave(9, "slice/first", "removed")
    assert "slice/first" in recorder
    assert "slice/s0" not in recorder
