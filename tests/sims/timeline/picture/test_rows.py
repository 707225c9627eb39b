"""The rows of the picture."""

import itertools

import pytest

from iriscw_sims.swarm import FAULTS
from iriscw_sims.timeline.model import DISK
from iriscw_sims.timeline.picture.rows import (
    FLAG_LEVELS,
    MAX_ROWS,
    Places,
    fault_rows,
    lane_rows,
    left_out,
    task_counts,
)
from iriscw_sims.timeline.picture.scale import Scale
from iriscw_sims.timeline.recorder import Recorder

SECOND = 1_000_000_000
SCALE = Scale.over(0, 100 * SECOND)
PLANNED = dict.fromkeys(FAULTS)


@pytest.fixture
def recorder():
    """An empty recorder."""
    return Recorder()


def test_rows_are_in_three_parts(recorder):
    """Controller, fleet, jobs; a disk without trouble has no row."""
    recorder.enter(0, "controller", "up")
    recorder.lane(DISK)
    recorder.enter(0, "job/job-x", "running")
    recorder.enter(1, "task/job-x/3", "running")
    recorder.enter(0, "slice/iris-g0-abc", "ready")
    controller, fleet, jobs = lane_rows(recorder.finish(SECOND), SCALE)
    assert [row.subject for row in controller] == ["controller"]
    assert [row.subject for row in fleet] == ["slice/iris-g0-abc"]
    assert [row.subject for row in jobs] == ["job/job-x", "task/job-x/3"]


def test_labels_say_what_is_new_in_them(recorder):
    """A row below another does not repeat its name; what users chose is escaped."""
    recorder.lane("group/g0")
    recorder.lane("slice/iris-g0-abc", "group/g0")
    recorder.lane("worker/iris-g0-abc-7", "slice/iris-g0-abc")
    recorder.lane("job/job-x", title="<i>mine")
    recorder.lane("task/job-x/3", "job/job-x")
    _, fleet, jobs = lane_rows(recorder.finish(SECOND), SCALE)
    assert [row.label for row in (*fleet, *jobs)] == [
        "<b>group</b> <i>g0</i>",
        "slice <i>abc</i>",
        "worker <i>7</i>",
        "<b>&lt;i&gt;mine</b> <i>job-x</i>",
        "task <i>3</i>",
    ]


def test_too_many_rows_lose_the_deepest_first(recorder):
    """Workers go before slices, and the page says how many."""
    recorder.lane("group/g")
    for number in range(MAX_ROWS):
        recorder.lane(f"slice/s{number}", "group/g")
        recorder.lane(f"worker/s{number}-0", f"slice/s{number}")
    timeline = recorder.finish(SECOND)
    _, fleet, _ = lane_rows(timeline, SCALE)
    assert len(fleet) == MAX_ROWS
    assert [row.kind for row in fleet[:2]] == ["group", "slice"]
    assert fleet[-1].subject == f"slice/s{MAX_ROWS - 1}"
    assert left_out(timeline) == [f"{MAX_ROWS + 1} rows are left out"]


def test_planned_faults_have_names_and_chances_have_none(recorder):
    """Two rows: marks with names, and ticks."""
    recorder.fault(10 * SECOND, "node dies")
    recorder.fault(20 * SECOND, "api lost", planned=False)
    marks, ticks = fault_rows(recorder.finish(100 * SECOND), PLANNED, SCALE)
    assert ("node dies</text>" in marks.drawn, "api lost" in marks.drawn) == (True, False)
    assert "<title>api lost\nat 0:20.000" in ticks.drawn


def test_a_quiet_run_has_no_row_of_faults(recorder):
    """Nothing is drawn where nothing happened."""
    assert list(fault_rows(recorder.finish(SECOND), PLANNED, SCALE)) == []


def test_a_broken_run_says_so_in_the_row_of_faults(recorder):
    """The mark names the invariant, left of the edge."""
    [row] = fault_rows(recorder.finish(100 * SECOND, ["INV-J2: twice"]), PLANNED, SCALE)
    assert "INV-J2 breaks</text>" in row.drawn
    assert 'text-anchor="end"' in row.drawn


def test_rows_that_a_violation_speaks_of_are_named(recorder):
    """By their own name, or by the uid of an attempt; others are as they were."""
    for subject, label in (("task/j/0", "attempt 1 (0abc)"), ("task/j/1", "attempt 1 (0def)"), ("slice/iris-g-x", "")):
        recorder.enter(0, subject, "running", label=label)
    _, fleet, jobs = lane_rows(recorder.finish(SECOND, ["INV-J2: 0def starts on iris-g-x-0"]), SCALE)
    assert [row.kind for row in (*fleet, *jobs)] == ["slice named", "task", "task named"]


def test_names_do_not_run_into_each_other():
    """Each takes the first level where it has room; where there is none it has no name."""
    places = Places()
    levels = [places.find(50.0, "controller crashes")[0] for _ in range(FLAG_LEVELS + 1)]
    assert levels == [*range(FLAG_LEVELS), None]
    assert places.find(5.0, "x") == (0, False)
    assert places.find(99.9, "x") == (0, True)


def test_tasks_are_summed_up(recorder):
    """The sum counts tasks that wait or have an attempt; without tasks there is no row."""
    assert task_counts(recorder.finish(SECOND), SCALE) is None
    for lane, at in itertools.product(("task/j/0", "task/j/1"), (1, 2)):
        recorder.enter(at * SECOND, lane, "waiting" if at == 1 else "running")
    row = task_counts(recorder.finish(3 * SECOND), SCALE)
    assert "up to 2" in row.label
    assert row.drawn.count("<path") == 2
