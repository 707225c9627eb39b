"""The page as a whole."""

import re
from html.parser import HTMLParser

import pytest

from iriscw_sims.swarm import FAULTS
from iriscw_sims.timeline.model import Level, Tone
from iriscw_sims.timeline.picture.page import MAX_STORY, Caption, facts_of, page
from iriscw_sims.timeline.recorder import Recorder

SECOND = 1_000_000_000
VOID = ("meta", "rect", "line", "path", "input")
LARGEST_BYTES = 8_000_000

HOSTILE = "</script><script>alert(1)</script><img src=x onerror='alert(1)'>\"&\x1b[2J\u202e"


class Reader(HTMLParser):
    """Reads a page, and says what it is made of."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attributes]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attributes]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)


def read(html):
    """Read a page; it must be well formed."""
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture
def drawn(replayed):
    """The page of a seed."""

    def draw(seed):
        timeline = replayed(seed)[1]
        return page(timeline, Caption(f"seed {seed}", facts_of(timeline)))

    return draw


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", [3, 26, 28])
def test_the_page_is_whole_and_well_formed(drawn, seed):
    """All that is opened is closed; one style, one script, nothing from elsewhere."""
    html = drawn(seed)
    reader = read(html)
    assert html.startswith("<!doctype html>")
    assert (reader.tags.count("script"), reader.tags.count("style"), reader.tags.count("title") > 10) == (1, 1, True)
    assert not {"link", "img", "iframe", "object"} & {*reader.tags}
    outside = [each for each in reader.attributes if each[1] in ("src", "href") or "//" in str(each[2])]
    assert outside == []
    assert "url(" not in html
    assert "default-src 'none'" in html


def test_no_attribute_runs_code(drawn):
    """What the page does is in its one script."""
    assert [name for _, name, _ in read(drawn(3)).attributes if name.startswith("on")] == []


def test_everything_has_a_place(drawn, replayed):
    """Each lane has a row, each fault a mark, each event of weight a line in the story."""
    timeline = replayed(28)[1]
    reader = read(drawn(28))
    rows = [value for _, name, value in reader.attributes if name == "data-s"]
    assert {lane.subject for lane in timeline.lanes} - {*rows} == set()
    planned = sum(count for name, count in timeline.fired if name in FAULTS)
    marks = reader.attributes.count(("path", "class", "fault"))
    assert marks == planned + 1, "and one in the legend"
    chances = reader.attributes.count(("rect", "class", "tick"))
    assert chances == sum(count for _, count in timeline.fired) - planned + 1
    told = [value for tag, name, value in reader.attributes if (tag, name) == ("li", "data-at")]
    assert told == [str(event.at) for event in timeline.events if event.level > Level.DETAIL]


def test_hostile_names_are_shown_not_obeyed():
    """Names of jobs and reasons come from users: they are text, in every place of the page."""
    recorder = Recorder()
    recorder.enter(0, f"group/{HOSTILE}", HOSTILE, HOSTILE, label=HOSTILE)
    recorder.lane(f"job/{HOSTILE}", title=HOSTILE)
    recorder.event(1, f"job/{HOSTILE}", HOSTILE, HOSTILE, tone=Tone.BAD, about=(HOSTILE,))
    recorder.fault(2, HOSTILE, on=HOSTILE)
    recorder.leave(2, f"group/{HOSTILE}", HOSTILE, outcome=HOSTILE, tone=Tone.BAD)
    html = page(recorder.finish(3, [f"INV-X: {HOSTILE}"]), Caption(HOSTILE, (HOSTILE,)))
    reader = read(html)
    assert (reader.tags.count("script"), reader.tags.count("img")) == (1, 0)
    assert not [name for _, name, _ in reader.attributes if name.startswith("on")]
    assert all(each.isprintable() or each == "\n" for each in html)
    assert "alert(1)" in "".join(reader.text)


def test_a_broken_run_is_unmistakable():
    """The title, a banner, the legend, a mark and the story say it."""
    html = page(Recorder().finish(SECOND, ["INV-J2: two processes"]), Caption("seed 7"))
    assert "<title>seed 7: broken</title>" in html
    assert "<p class=violation role=alert>INV-J2: two processes</p>" in html
    for part in ("an invariant broke", "INV-J2 breaks", 'class="broken"'):
        assert part in html
    held = page(Recorder().finish(SECOND), Caption("seed 7"))
    assert "<title>seed 7: held</title>" in held
    assert "role=alert" not in held


def test_a_long_run_is_a_page_of_bounded_size():
    """However much happened, a browser opens it; what is left out is said."""
    recorder = Recorder()
    recorder.lane("group/g")
    for number in range(20_000):
        slice_id = f"slice/iris-g-{number:08}"
        at = number * SECOND
        recorder.lane(slice_id, "group/g")
        recorder.enter(at, slice_id, "booting", "a reason that is as long as reasons are, most of the time")
        recorder.event(at, slice_id, "booting", "a reason that is as long as reasons are, most of the time")
        recorder.fault(at, "node dies")
        recorder.leave(at + SECOND, slice_id, "it was the longest idle", outcome="gone")
    timeline = recorder.finish(20_000 * SECOND)
    html = page(timeline, Caption("seed 1", facts_of(timeline)))
    assert len(html) < LARGEST_BYTES
    assert html.count("<li ") <= MAX_STORY + 1
    assert re.search(r"\d+ rows are left out", html)
    assert re.search(r"\d+ events of less weight are left out", html)


def test_a_part_has_its_own_axis(replayed):
    """A picture of some minutes begins with them."""
    html = page(replayed(3)[1], Caption("seed 3"), since=60 * SECOND)
    assert f"data-began={60 * SECOND}" in html
    assert ">0 s</text>" not in html


def test_an_empty_timeline_is_a_page():
    """A run in which nothing happened can be drawn."""
    read(page(Recorder().finish(0), Caption("nothing")))


def test_facts_sum_up():
    """Jobs with their ends, slices, faults, and how long the controller was away."""
    recorder = Recorder()
    recorder.enter(0, "controller", "up")
    recorder.enter(10 * SECOND, "controller", "down")
    recorder.enter(111 * SECOND, "controller", "up")
    recorder.lane("group/g")
    recorder.fault(1, "node dies")
    recorder.fault(2, "api lost", planned=False)
    for number, outcome in enumerate(("succeeded", "killed", "succeeded")):
        recorder.enter(1, f"job/j{number}", "running")
        recorder.lane(f"task/j{number}/0", f"job/j{number}")
        recorder.leave(2, f"job/j{number}", "so it is", outcome=outcome)
    assert facts_of(recorder.finish(300 * SECOND)) == (
        "5 min of simulated time",
        "3 jobs (2 succeeded, 1 killed), 3 tasks",
        "1 group, 0 slices in all",
        "1 fault of the plan, 1 by chance",
        "the controller was away for 1 min 41 s",
    )
