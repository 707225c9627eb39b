"""What the fleet says, as events and lanes."""

import pytest

from iriscw.fleet.model import Availability, GroupRow, PodState, SliceRow, SliceState, Trouble
from iriscw.fleet.records import SliceDeleted, SliceDoomed, SliceRequested
from iriscw.fleet.signals import GroupReported, PodReported, SliceReported
from iriscw_sims.timeline.fleet_story import FleetStory
from iriscw_sims.timeline.model import Level, Tone
from iriscw_sims.timeline.recorder import Recorder


@pytest.fixture
def recorder():
    """An empty recorder."""
    return Recorder()


@pytest.fixture
def tell(recorder):
    """Tell the story of messages and records; times count by themselves."""
    story = FleetStory(recorder)
    now = iter(range(1, 1_000))

    def one(message, path="/fleet/g"):
        if type(message) in story.durable:
            story.durable[type(message)](next(now), path, message)
        else:
            story.delivered[type(message)](next(now), message)

    one.story = story
    return one


def reported(state, *, trouble=Trouble.NONE, reason=""):
    """Report of a slice."""
    return SliceReported(SliceRow("iris-g-a", "g", state, trouble, reason, 0, 0), "", None, None, False, False, False)


def pod(state, reason=""):
    """Report of a pod's place."""
    return PodReported("iris-g-a-0", state, None, reason, 0)


def test_the_life_of_a_slice(recorder, tell):
    """Promise, states, doom and end are spans and events, in the group's lane."""
    tell(SliceRequested("iris-g-a", 0))
    for state in (SliceState.CREATING, SliceState.BOOTING, SliceState.READY, SliceState.DRAINING):
        tell(reported(state, reason="" if state is SliceState.READY else "so it is"))
    tell(SliceDoomed("iris-g-a", "idle"))
    tell(SliceDeleted("iris-g-a"))
    timeline = recorder.finish(100)
    assert [lane.subject for lane in timeline.lanes] == ["group/g", "slice/iris-g-a"]
    states = ["requested", "creating", "booting", "ready", "draining"]
    assert [span.state for span in timeline.spans] == states
    assert timeline.spans[-1].outcome == "gone"
    what = [event.what for event in timeline.events]
    assert what == ["promised on the disk", *states[1:], "written down as going", "gone"]
    assert next(event for event in timeline.events if event.what == "ready").why == "all of its workers are registered"


def test_what_is_repeated_is_told_once(recorder, tell):
    """Another reason in the same state is a detail; the same one nothing."""
    for reason in ("0 of 2", "0 of 2", "1 of 2"):
        tell(reported(SliceState.BOOTING, reason=reason))
    assert [(event.why, event.level) for event in recorder.finish(9).events] == [
        ("0 of 2", Level.CHANGE),
        ("1 of 2", Level.DETAIL),
    ]


def test_trouble_is_told_with_the_state(recorder, tell):
    """A slice that waits for machines says so."""
    tell(reported(SliceState.BOOTING, trouble=Trouble.CAPACITY, reason="queued"))
    [event] = recorder.finish(9).events
    assert (event.what, event.why, event.tone) == ("booting, no capacity", "queued", Tone.BAD)


def test_a_new_actor_takes_its_slice_up(recorder, tell):
    """An actor that begins with what is on the disk does not send its slice back to the start."""
    tell(reported(SliceState.READY))
    tell.story.new_controller()
    tell(reported(SliceState.REQUESTED))
    tell(reported(SliceState.READY))
    timeline = recorder.finish(9)
    assert [span.state for span in timeline.spans] == ["ready"]
    assert timeline.events[1].what == "taken up again"


def test_workers_go_with_their_slice(recorder, tell):
    """When nothing of a slice is left, its workers' lanes end, because of that."""
    tell(reported(SliceState.READY))
    tell(pod(PodState.STARTING, "the worker pod is pending"))
    tell(pod(PodState.REGISTERED))
    tell(SliceDeleted("iris-g-a"))
    spans = [span for span in recorder.finish(9).spans if span.lane == "worker/iris-g-a-0"]
    assert [(span.state, span.end_why) for span in spans] == [
        ("starting", "its worker dialled, and has what its group promises"),
        ("registered", "its slice is gone"),
    ]


@pytest.mark.parametrize("state", [PodState.VACANT, PodState.REMOVED])
def test_a_place_without_a_pod_is_empty(recorder, tell, state):
    """Its lane is in no state then."""
    tell(pod(PodState.REGISTERED))
    tell(pod(state, "gone"))
    assert recorder.state("worker/iris-g-a-0") == ""


@pytest.mark.parametrize(
    ("availability", "state", "tone"),
    [
        (Availability.COOLDOWN, "open", Tone.PLAIN),
        (Availability.AT_MAX, "at max_slices", Tone.PLAIN),
        (Availability.QUOTA_EXCEEDED, "quota exceeded", Tone.BAD),
    ],
)
def test_a_group_is_open_or_says_why_not(recorder, tell, availability, state, tone):
    """Short pauses are open; what closes a group is its state."""
    row = GroupRow("g", availability, "because", 2, 1, 2, 0, 3, 0)
    tell(GroupReported(row, availability, 0, 0, 1))
    tell(GroupReported(row, availability, 0, 0, 1))
    timeline = recorder.finish(9)
    [event] = timeline.events
    assert (event.what, event.tone) == (state, tone)
    [(_, [point])] = timeline.points
    assert (point.slices, point.ready, point.wanted) == (2, 1, 2)
