"""A timeline as text."""

import json

import attrs
import pytest

from iriscw_sims.timeline.model import Event, Level, Tone
from iriscw_sims.timeline.recorder import Recorder
from iriscw_sims.timeline.text import as_values, clock, lines, shown

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("at", "written"),
    [
        (0, "0:00.000"),
        (1_999_999, "0:00.001"),
        (83_456_000_000, "1:23.456"),
        (59_999_999_999, "0:59.999"),
        (3_600 * SECOND, "1:00:00.000"),
        (100 * 3_600 * SECOND + 61 * SECOND, "100:01:01.000"),
    ],
)
def test_a_moment_is_written_as_on_a_clock(at, written):
    """Minutes, seconds and milliseconds; hours where there are some; never rounded up."""
    assert clock(at) == written


def test_columns_are_aligned():
    """When, who, what and why stand below their heads."""
    recorder = Recorder()
    recorder.event(SECOND, "slice/a", "booting", "it was asked for")
    recorder.event(700 * SECOND, "group/a-longer-name", "open", "it takes demand")
    head, first, second = lines(recorder.finish(800 * SECOND))
    assert head.split() == ["TIME", "WHO", "WHAT", "WHY"]
    for name, texts in {
        "WHO": ("slice/a", "group/a"),
        "WHAT": ("booting", "open"),
        "WHY": ("it was", "it takes"),
    }.items():
        place = head.index(name)
        assert first[place:].startswith(texts[0])
        assert second[place:].startswith(texts[1])
    assert first.startswith(" 0:01.000")


def test_a_long_text_moves_its_own_line_only():
    """A column makes no room for one text that is much longer than the others."""
    recorder = Recorder()
    recorder.event(1, "a", "short", "why")
    recorder.event(2, "a", "long " * 40, "why")
    _, first, second = lines(recorder.finish(3))
    assert len(first) < 40
    assert second.endswith("why")


def test_nothing_commands_the_terminal():
    """Names come from users: what a terminal would obey is an escape, with and without colours."""
    recorder = Recorder()
    recorder.event(1, "job/\x1b[2J", "accepted: \x1b]0;mine\x07", "line\nfeed \u202e", tone=Tone.BAD)
    plain = "\n".join(list(lines(recorder.finish(2)))[1:])
    assert plain.isprintable()
    assert "\\x1b[2J" in plain
    coloured = list(lines(recorder.finish(2), colour=True))[1]
    assert (coloured.count("\x1b"), coloured.startswith("\x1b[33m"), coloured.endswith("\x1b[0m")) == (2, True, True)


def test_shown_leaves_plain_text_alone():
    """Letters of any language stay."""
    assert shown("größer · 東京") == "größer · 東京"


def test_what_was_let_go_is_said():
    """A reader of a thinned timeline knows what is missing."""
    recorder = Recorder(max_events=4)
    for at in range(9):
        recorder.event(at * SECOND, "a", "b")
    assert "events and spans before 0:0" in list(lines(recorder.finish(9 * SECOND)))[1]


def test_values_hold_every_field(replayed):
    """The JSON has all that events, spans and lanes have, and survives being written."""
    timeline = replayed(3)[1]
    values = json.loads(json.dumps(as_values(timeline)))
    assert len(values["events"]) == len(timeline.events)
    event, span = values["events"][0], values["spans"][0]
    assert {*event} == {"at_ns", *(field.name for field in attrs.fields(Event) if field.name != "at")}
    assert event["level"] in [level.name.lower() for level in Level]
    assert {"lane", "state", "began_ns", "ended_ns", "why", "end_why", "outcome"} <= {*span}
    assert values["ended_ns"] == timeline.ended
