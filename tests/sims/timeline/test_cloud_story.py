"""What the simulated cloud notes, as events and lanes."""

import pytest

from iriscw_sims import World
from iriscw_sims.timeline.cloud_story import KNOWN, WHO, CloudStory
from iriscw_sims.timeline.model import Level, Tone, kind_of
from iriscw_sims.timeline.recorder import Recorder

POOL = "iris-g-a"
NODE = f"node/{POOL}/0"


@pytest.fixture
def recorder():
    """A recorder that knows a slice."""
    made = Recorder()
    made.lane(f"slice/{POOL}", "group/g")
    return made


@pytest.fixture
def story(recorder):
    """Tell the story of notes; times count by themselves."""
    made = CloudStory(recorder)
    now = iter(range(1, 1_000))

    def tell(*what):
        made.noted(next(now), (WHO, *what))

    tell.story = made
    return tell


def test_machines_come_and_go_in_a_slot(recorder, story):
    """The slot's lane has each machine's life, with the machine as its label."""
    story("node boots", POOL, 0, 5)
    story("node joins", POOL, 0, "m1")
    story("node lost", "m1", 5)
    story("node back", "m1")
    story("node dies", "m1", "its node died")
    story("node gone", "m1", "its node was replaced")
    story("node boots", POOL, 0, 5)
    story("node joins", POOL, 0, "m2")
    story("node leaves", "m2", "its node went into triage", 5)
    timeline = recorder.finish(99)
    assert [lane.subject for lane in timeline.lanes] == [f"slice/{POOL}", NODE]
    assert [(span.state, span.label, span.outcome) for span in timeline.spans] == [
        ("boots", "", ""),
        ("in service", "m1", ""),
        ("out of reach", "m1", ""),
        ("in service", "m1", ""),
        ("dead", "m1", "gone"),
        ("boots", "", ""),
        ("in service", "m2", ""),
        ("leaves", "m2", ""),
    ]
    assert timeline.spans[4].end_why == "its node was replaced"
    dead = next(event for event in timeline.events if event.what == "node dead")
    assert (dead.why, dead.tone, dead.about) == ("its node died", Tone.BAD, (f"slice/{POOL}",))


def test_nodes_go_with_their_pool(recorder, story):
    """When the pool is gone, its slots are empty."""
    story("node boots", POOL, 0, 5)
    story("node joins", POOL, 0, "m1")
    story("pool gone", POOL)
    assert recorder.state(NODE) == ""


def test_things_of_others_have_no_lane(recorder, story):
    """Pools that are no slice of ours are left out; whom a fault hit there is known all the same."""
    story("pool judged", "somebody-elses", "")
    story("node boots", "somebody-elses", 0, 5)
    story("node joins", "somebody-elses", 0, "m1")
    assert story.story.subject("node/m1") == "node/somebody-elses/0"
    timeline = recorder.finish(9)
    assert (len(timeline.lanes), timeline.spans, timeline.events) == (1, (), ())


@pytest.mark.parametrize(
    ("note", "why", "level", "tone"),
    [
        (("pool judged", POOL, ""), "the cloud's own doing", Level.DETAIL, Tone.PLAIN),
        (("pool judged", POOL, "no such instance type"), "no such instance type", Level.CHANGE, Tone.BAD),
        (("pool has no quota", POOL, "Over"), "Over", Level.CHANGE, Tone.BAD),
        (("pool deleted", POOL, 12), "the cloud's own doing", Level.DETAIL, Tone.PLAIN),
    ],
)
def test_trouble_of_a_pool_is_a_change(recorder, story, note, why, level, tone):
    """What goes as it should is a detail."""
    story(*note)
    [event] = recorder.finish(9).events
    assert (event.subject, event.why, event.level, event.tone) == (f"slice/{POOL}", why, level, tone)


def test_containers_are_told_of_their_place(recorder, story):
    """A pod's name leads to the worker whose place it has."""
    story("container starts", f"{POOL}-1-inc", "m1", 0)
    story("container exits", f"{POOL}-1-inc", 137, "OOMKilled")
    first, second = recorder.finish(9).events
    assert (first.subject, first.what, first.why, first.level) == (
        f"worker/{POOL}-1",
        "its container starts",
        "m1",
        Level.DETAIL,
    )
    assert (second.what, second.why, second.tone) == ("its container exits", "OOMKilled", Tone.BAD)
    assert second.about == (f"slice/{POOL}",)


@pytest.mark.parametrize("note", [(), ("something new", 1, 2), ("node joins",), (5,), ("node dies", "nobody", "why")])
def test_unknown_notes_are_left_out(recorder, story, note):
    """A cloud that says more than is known here breaks nothing."""
    story(*note)
    assert recorder.finish(9).events == ()


def test_all_that_the_cloud_says_is_known():
    """Some busy seeds: each first word is in the table, so that a new one is thought about."""
    said = {}
    for seed in (1, 28):
        world = World(seed)
        world.cloud.noted = lambda *what: said.setdefault(what[1]) if what[0] == WHO else None
        world.run()
    assert [first for first in said if first not in KNOWN] == []
    assert len(said) > 15


def test_a_real_run_has_nodes(replayed):
    """The seam to the cloud holds: slices that were ready had nodes in service."""
    timeline = replayed(28)[1]
    nodes = [span for span in timeline.spans if kind_of(span.lane) == "node" and span.state == "in service"]
    ready = [span.lane for span in timeline.spans if kind_of(span.lane) == "slice" and span.state == "ready"]
    assert {f"slice/{span.lane.split('/')[1]}" for span in nodes} >= {*ready} != set()


@pytest.mark.parametrize(
    ("about", "subject"),
    [
        ("node/m1", NODE),
        ("node/nobody", "node/nobody"),
        (f"slot/{POOL}/3", f"node/{POOL}/3"),
        (f"pool/{POOL}", f"slice/{POOL}"),
        (f"pod/{POOL}-1-inc", f"worker/{POOL}-1"),
        (f"worker/{POOL}-1", f"worker/{POOL}-1"),
        ("/fleet/g0", "/fleet/g0"),
        ("disk", "disk"),
        ("", ""),
    ],
)
def test_whom_a_fault_hit_is_a_subject(story, about, subject):
    """Machines are told by their slots, pools and pods by their slices and workers."""
    story("node joins", POOL, 0, "m1")
    assert story.story.subject(about) == subject
