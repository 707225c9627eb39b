"""What is watched is told: laws that hold of every run's timeline."""

import itertools
import os
import subprocess
import sys

import attrs
import pytest

from iriscw_sims import Fault, World, draw_plan
from iriscw_sims.timeline.model import CONTROLLER, DISK, FAULT, Level, Tone, kind_of
from iriscw_sims.timeline.watching import replay, watch

SEEDS = (3, 8, 26, 28)

SECOND = 1_000_000_000

PROGRAM = """
import sys
from iriscw_sims.timeline.picture.page import Caption, page
from iriscw_sims.timeline.text import lines
from iriscw_sims.timeline.watching import replay
for seed in (3, 8):
    run, timeline = replay(seed)
    sys.stdout.write(chr(10).join(lines(timeline)) + page(timeline, Caption("seed")))
"""


@pytest.fixture
def calm(replayed):
    """Return a plan in which nothing goes wrong, but for the faults given."""

    def make(*faults, seed=0):
        plan = draw_plan(seed)
        return attrs.evolve(plan, faults=faults, rates=())

    return make


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", SEEDS)
def test_watching_changes_nothing(seed, replayed):
    """A run that is watched is the run that is not: the same trace, to the last step."""
    assert replayed(seed)[0] == World(seed).run()


@pytest.mark.parametrize("seed", SEEDS)
def test_spans_never_overlap(seed, replayed):
    """A lane is in one state at a time, and within the run."""
    timeline = replayed(seed)[1]
    for lane in timeline.lanes:
        spans = [span for span in timeline.spans if span.lane == lane.subject]
        assert all(before.ended <= after.began for before, after in itertools.pairwise(spans)), lane
        assert all(0 <= span.began <= span.ended <= timeline.ended for span in spans)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_fault_that_fired_stands_in_the_timeline(seed, replayed):
    """As often as it came true, at the moment when it did."""
    run, timeline = replayed(seed)
    told = [event.subject.partition("/")[2] for event in timeline.events if kind_of(event.subject) == FAULT]
    assert tuple(sorted((name, told.count(name)) for name in {*told})) == run.fired == timeline.fired


@pytest.mark.parametrize("seed", SEEDS)
def test_every_end_has_a_cause(seed, replayed):
    """Spans say why they ended; so do events that are no good news."""
    timeline = replayed(seed)[1]
    assert all(span.end_why for span in timeline.spans)
    silent = [each for each in timeline.events if each.tone in (Tone.BAD, Tone.BROKEN) and not each.why]
    assert silent == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_job_and_slice_has_its_whole_life(seed, replayed):
    """Each job that was accepted has a lane and an outcome; each slice that is gone left its lane."""
    timeline = replayed(seed)[1]
    jobs = [lane.subject for lane in timeline.lanes if kind_of(lane.subject) == "job"]
    ended = [span.lane for span in timeline.spans if span.outcome]
    assert jobs == [job for job in jobs if job in ended]
    slices = [span for span in timeline.spans if kind_of(span.lane) == "slice" and span.cut]
    assert all(span.state == "ready" for span in slices), "at rest only ready slices are left"
    assert {*jobs} <= {lane.above for lane in timeline.lanes} | {""}


def test_events_are_in_order(replayed):
    """A timeline is read from top to bottom."""
    times = [event.at for event in replayed(28)[1].events]
    assert times == sorted(times)


@pytest.mark.slow
def test_one_seed_gives_one_text():
    """The same seed gives the same timeline and the same picture in other processes with other hashes."""
    told = []
    for hash_seed in ("1", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, timeout=60, check=True
        )
        told.append(done.stdout)
    assert told[0] == told[1]
    assert len(told[0]) > 50_000


def test_a_crash_is_a_span_with_its_cause(calm):
    """The controller is down from its crash until it is started again, because of the fault."""
    timeline = replay(0, calm(Fault(30 * SECOND, "controller crashes", 9 << 8)))[1]
    [down] = [span for span in timeline.spans if span.lane == CONTROLLER and span.state == "down"]
    assert (down.began, down.ended, down.why) == (30 * SECOND, 40 * SECOND, "fault: controller crashes")


def test_a_crash_that_comes_later_names_what_armed_it(calm):
    """A fault that stops the controller some steps later is told as the cause, with how long ago it was."""
    timeline = replay(0, calm(Fault(30 * SECOND, "controller crashes between two steps", 200)))[1]
    [down] = [event for event in timeline.events if event.subject == CONTROLLER and event.what == "down"]
    assert down.why.startswith("fault: controller crashes between two steps, ")


def test_standing_still_is_a_span_of_its_length(calm):
    """A controller whose process gets no time stands still for as long, and is up before and after."""
    timeline = replay(0, calm(Fault(30 * SECOND, "controller stands still", 15 << 8)))[1]
    spans = [span for span in timeline.spans if span.lane == CONTROLLER]
    assert [span.state for span in spans] == ["up", "stands still", "up"]
    assert spans[1].ended - spans[1].began == 20 * SECOND
    assert 0 <= spans[1].began - 30 * SECOND <= 2 * SECOND


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("kind", "state"), [("disk stalls", "stalled"), ("disk full", "full")])
def test_trouble_of_the_disk_is_a_span(calm, kind, state):
    """The disk's lane shows how long it took nothing."""
    timeline = replay(0, calm(Fault(30 * SECOND, kind, 11 << 8)))[1]
    [span] = [span for span in timeline.spans if span.lane == DISK]
    assert (span.state, span.began) == (state, 30 * SECOND)
    assert 12 * SECOND <= span.ended - span.began < 13 * SECOND


def test_a_broken_invariant_is_the_last_landmark():
    """The event names the invariant; the timeline says that the run broke, and where."""
    world = World(0)
    world.simulation.call_after(60 * SECOND, world.violate, "X1", "planted")
    watcher = watch(world)
    world.run()
    timeline = watcher.finish()
    assert timeline.violations == ("INV-X1: planted",)
    assert timeline.ended == 60 * SECOND
    last = timeline.events[-1]
    assert (last.subject, last.what, last.level, last.tone) == (
        "invariant/INV-X1",
        "planted",
        Level.LANDMARK,
        Tone.BROKEN,
    )


def test_a_run_at_rest_says_so(replayed):
    """The last event of a run that held is that it came to rest, after all faults were ended."""
    timeline = replayed(8)[1]
    assert [event.what for event in timeline.events if event.subject == "world"] == ["all faults are ended", "at rest"]
    assert timeline.healed is not None
    assert timeline.healed < timeline.ended


def test_other_watchers_are_not_replaced():
    """Who watched the world before goes on to be shown everything."""
    world, shown = World(8), []
    before = world.simulation.seen
    world.simulation.seen = lambda cell, message: (before(cell, message), shown.append(message))
    watch(world)
    assert not world.run().violations
    assert len(shown) > 100


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("kind", "on"),
    [
        ("worker hangs", "worker/"),
        ("worker cut off", "worker/"),
        ("stream breaks", "worker/"),
        ("node dies", "node/"),
        ("node cordoned for a while", "node/"),
        ("pod removed from outside", "worker/"),
        ("pool removed from outside", "slice/"),
        ("actor poisoned", "/"),
        ("controller crashes", CONTROLLER),
        ("disk full", DISK),
    ],
)
def test_a_fault_names_whom_it_hit(calm, kind, on):
    """Also where several faults come true in one step; what lasts says how long."""
    timeline = replay(0, calm(Fault(60 * SECOND, kind, 7 << 8), Fault(60 * SECOND, "api forgets its past", 1)))[1]
    told = {event.what.partition(":")[0]: event for event in timeline.events if kind_of(event.subject) == FAULT}
    assert told["api forgets its past"].about == ("api",)
    [about] = told[kind].about
    assert about.startswith(on)
    ends_itself = kind in (
        "worker hangs",
        "worker cut off",
        "node cordoned for a while",
        "controller crashes",
        "disk full",
    )
    assert (", for " in told[kind].why) == ends_itself


@pytest.mark.parametrize("seed", SEEDS)
def test_whom_a_fault_of_the_cloud_hit_was_there(seed, replayed):
    """Each slice and worker that a fault names has had a part in the story."""
    timeline = replayed(seed)[1]
    faults = [event for event in timeline.events if kind_of(event.subject) == FAULT]
    assert faults
    known = {event.subject for event in timeline.events} | {lane.subject for lane in timeline.lanes}
    hit = [about for fault in faults for about in fault.about if kind_of(about) == "worker" and "iris-" in about]
    assert [about for about in hit if about not in known] == []


def test_outages_of_the_api_are_told_with_their_length(calm):
    """What goes wrong with the API as a whole is a fault of the plan, and says how long it lasts."""
    kinds = ("api out of reach", "api takes no writes", "credentials expire", "right revoked")
    faults = [Fault((40 + 40 * turn) * SECOND, kind, 10 << 8) for turn, kind in enumerate(kinds)]
    replaced = Fault(35 * SECOND, "pool replaced by a stranger", 0)
    run, timeline = replay(2, calm(replaced, *faults, seed=2))
    assert not run.violations
    told = {event.what: event for event in timeline.events if kind_of(event.subject) == FAULT or event.subject == FAULT}
    for kind in kinds:
        (text,) = [each for each in told if each.startswith(kind)]
        assert "for 15 s" in told[text].why
