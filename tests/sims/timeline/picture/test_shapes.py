"""The pieces of the picture."""

from html.parser import HTMLParser
from xml.etree import ElementTree

import attrs
import pytest
from hypothesis import given, strategies as st

from iriscw.fleet.model import PodState, SliceState
from iriscw.jobs.model import JobState, TaskState
from iriscw_sims.timeline.model import Point, Span, Tone
from iriscw_sims.timeline.picture.scale import Scale
from iriscw_sims.timeline.picture.shapes import (
    FAMILIES,
    bar,
    cap,
    family,
    flag,
    slices_and_ready,
    steps,
    tick,
    words,
)

SCALE = Scale.over(0, 100)
SPAN = Span("slice/a", "booting", 10, 60, "it was asked for", "all nodes are ready")


@given(st.text())
def test_words_are_only_words(text):
    """Whatever a name holds, HTML reads it back as text."""
    read = []

    class Reader(HTMLParser):
        def handle_data(self, data):
            read.append(data)

        def handle_starttag(self, tag, attributes):
            read.append((tag, attributes))

    reader = Reader()
    reader.feed(f'<p title="{words(text)}">{words(text)}')
    reader.close()
    (tag, [(name, value)]), *data = read
    assert (tag, name) == ("p", "title")
    assert value == "".join(data)
    assert value.isprintable()


def test_every_state_of_fleet_and_jobs_has_a_colour():
    """None of them falls into the family of trouble by accident: only what is trouble does."""
    live = [state.value for state in (*SliceState, *PodState) if state.value not in ("gone", "vacant", "removed")]
    live += [state.value.lower() for state in (TaskState.ASSIGNED, TaskState.BUILDING, TaskState.RUNNING)]
    live += [state.value.lower() for state in (JobState.PENDING, JobState.BUILDING, JobState.RUNNING)]
    bad = [state for state in live if family(attrs.evolve(SPAN, state=state)) == "bad"]
    assert bad == ["failed"]
    assert {family(attrs.evolve(SPAN, state=state)) for state in (*live, "waiting", "down")} < {*FAMILIES}


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"outcome": "succeeded", "tone": Tone.GOOD}, "good"),
        ({"outcome": "worker lost", "tone": Tone.BAD}, "bad"),
        ({"outcome": "killed"}, "end"),
        ({"state": "waiting", "outcome": "unschedulable", "tone": Tone.BAD}, "wait"),
        ({"state": "quota exceeded"}, "bad"),
    ],
)
def test_what_became_of_it_decides(changes, kind):
    """An outcome is stronger than a state; what only waited still waited."""
    assert family(attrs.evolve(SPAN, **changes)) == kind


def test_shapes_are_xml():
    """Each piece is well formed by itself, and says who, what, when and why."""
    hostile = attrs.evolve(SPAN, label="<b>'\"&", why="</title><script>", outcome="failed", tone=Tone.BAD)
    pieces = [
        bar(hostile, SCALE, 18, "slice/<a>"),
        cap(hostile, SCALE, 18),
        tick(50.0, 16, words("<tip>")),
        flag(50.0, 48, words("<tip>"), "<name>", 1, mirrored=True, kind="fault"),
        slices_and_ready([Point(0, 3, 1, 2), Point(50, 1, 1, 0)], SCALE),
    ]
    for piece in pieces:
        assert ElementTree.fromstring(piece.replace("class=s", "")).tag
    tip = ElementTree.fromstring(pieces[0].replace("class=s", "")).find("title").text
    assert tip.splitlines() == [
        "slice/<a>",
        "<b>'\"& booting then failed",
        "0:00.000 to 0:00.000, 0.00 s",
        "began: </title><script>",
        "ended: all nodes are ready",
    ]


def test_only_what_ended_badly_has_a_cross():
    """Colour is not all that says it; the legend explains the cross."""
    assert cap(SPAN, SCALE, 18) == ""
    assert cap(attrs.evolve(SPAN, outcome="succeeded", tone=Tone.GOOD), SCALE, 18) == ""
    assert "<path" in cap(attrs.evolve(SPAN, outcome="failed", tone=Tone.BAD), SCALE, 18)


def test_steps_keep_their_last_value():
    """The curve goes on to the right edge; without values, or when all are nothing, there is none."""
    scale = Scale.over(0, 1_000_000_000)
    assert steps([(0, 1), (500_000_000, 2)], scale, 2, "c", filled=False) == (
        '<path class="c" d="M0.00 50.0V50.0H500.00V0.0H1000" vector-effect="non-scaling-stroke"/>'
    )
    assert steps([], scale, 2, "c", filled=True) == steps([(0, 0)], scale, 0, "c", filled=True) == ""
