"""Parts of a timeline."""

import pytest

from iriscw_sims.timeline.model import Level, kind_of
from iriscw_sims.timeline.selection import Selection, select


@pytest.fixture
def whole(replayed):
    """A timeline with slices, jobs and faults."""
    return replayed(3)[1]


def test_everything_is_the_default(whole):
    """Nothing chosen is all of it, details apart."""
    got = select(whole, Selection(level=Level.DETAIL))
    assert got == whole
    assert all(event.level > Level.DETAIL for event in select(whole, Selection()).events)


def test_a_subject_comes_with_what_concerns_it(whole):
    """The events of a slice have its workers' and the attempts that were placed there."""
    slices = [span.lane for span in whole.spans if span.state == "ready"]
    got = select(whole, Selection((slices[0],)))
    assert slices[0].startswith("slice/")
    kinds = {kind_of(event.subject) for event in got.events}
    assert {"slice", "worker", "node"} <= kinds <= {"slice", "worker", "node", "task", "fault"}
    assert all(slices[0] in (event.subject, *event.about) for event in got.events)


def test_a_lane_comes_with_those_above_and_below(whole):
    """A slice's picture has its group, itself and its workers."""
    chosen = next(span.lane for span in whole.spans if span.state == "ready")
    lanes = [lane.subject for lane in select(whole, Selection((chosen,))).lanes]
    assert [kind_of(lane) for lane in lanes[:2]] == ["group", "slice"]
    assert lanes[1] == chosen
    assert {kind_of(lane) for lane in lanes[2:]} == {"node", "worker"}


def test_a_stretch_of_time_cuts_spans(whole):
    """Events and spans are those of the time, and nothing sticks out."""
    since, until = 60_000_000_000, 120_000_000_000
    got = select(whole, Selection(since=since, until=until))
    assert got.events
    assert all(since <= event.at <= until for event in got.events)
    assert got.spans
    assert all(since <= span.began <= span.ended <= until for span in got.spans)
    assert got.ended == until


def test_nothing_fits(whole):
    """A name that nobody has gives an empty timeline, not an error."""
    got = select(whole, Selection(("no such thing",)))
    assert (got.events, got.lanes, got.spans) == ((), (), ())


def test_a_time_behind_the_end_is_empty(whole):
    """The end of the part is never before its beginning."""
    got = select(whole, Selection(since=whole.ended * 2))
    assert (got.events, got.spans, got.ended) == ((), (), whole.ended * 2)
