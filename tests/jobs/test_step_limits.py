"""No decision on jobs is larger than a step, however large the job is (INV-R10); and steps are linear."""

import pytest
from hypothesis import given, strategies as st
from metering import Meter, OneSlice

from iriscw.jobs.messages import DescribeJob, TerminateJob
from iriscw.jobs.model import AttemptEnd, Ending, JobState, Observation, TaskState
from iriscw.jobs.scheduling.placement import MAX_ATTEMPTS_PER_WORKER
from iriscw.jobs.step_limits import STEP_ATTEMPTS, STEP_BYTES, STEP_WORKERS, parts_of, steps_of
from iriscw.jobs.traits import Fault
from iriscw.runtime.vocabulary import SECOND

LARGEST_BYTES = 64 * 1024
"""What one decision may journal, faults included."""

LARGEST_COMMANDS = 2 * STEP_ATTEMPTS + 3 * STEP_WORKERS
"""What one decision may tell: two things of each attempt, and three of each worker."""

SIZES = [1, STEP_ATTEMPTS, STEP_ATTEMPTS + 1, pytest.param(1_000, marks=pytest.mark.slow)]


def runs_and_is_stopped(plane, tasks, **fields):
    """Place all tasks, have them run, and terminate the job."""
    job_id = plane.submit("large", tasks, **fields)
    plane.dispatched(tasks)
    plane.all_run()
    assert dict(plane.system.ask(f"/jobs/{job_id}", DescribeJob()).counts) == {TaskState.RUNNING: tasks}
    plane.system.ask("/jobs", TerminateJob(job_id))
    plane.finish(job_id)
    return JobState.KILLED


def gang_is_stopped(plane, tasks):
    """The same of a gang."""
    return runs_and_is_stopped(plane, tasks, group_by="slice-id")


def takes_too_long(plane, tasks):
    """All tasks run into their timeout at once."""
    job_id = plane.submit("large", tasks, timeout_ns=10 * SECOND, max_task_failures=tasks)
    plane.dispatched(tasks)
    plane.all_run()
    plane.finish(job_id)
    return JobState.SUCCEEDED


def loses_its_slice(plane, tasks, **fields):
    """All workers are gone at once; others come, and everything runs again."""
    job_id = plane.submit("large", tasks, **fields)
    workers = len(plane.workers)
    plane.dispatched(tasks)
    plane.all_run()
    plane.lose_slice()
    view = plane.system.ask(f"/jobs/{job_id}", DescribeJob())
    assert dict(view.counts) == {TaskState.PENDING: tasks}
    assert view.preemptions == tasks
    plane.runs = True
    plane.add(workers, -(-tasks // workers))
    plane.finish(job_id)
    return JobState.SUCCEEDED


def gang_loses_its_slice(plane, tasks):
    """The same of a gang."""
    return loses_its_slice(plane, tasks, group_by="slice-id")


def survives_a_crash(plane, tasks):
    """The controller dies while everything runs, and again while it stops."""
    job_id = plane.submit("large", tasks)
    plane.dispatched(tasks)
    plane.all_run()
    plane.crash()
    assert plane.system.state("/jobs/scheduler").placements == 0
    assert len(plane.system.state("/jobs/scheduler").inventory.where) == tasks
    plane.system.ask("/jobs", TerminateJob(job_id))
    plane.crash()
    plane.finish(job_id)
    return JobState.KILLED


def runs_well(plane, tasks):
    """Every task ends well."""
    plane.runs = True
    plane.finish(plane.submit("large", tasks))
    return JobState.SUCCEEDED


STORIES = [
    runs_well,
    runs_and_is_stopped,
    gang_is_stopped,
    takes_too_long,
    loses_its_slice,
    gang_loses_its_slice,
    survives_a_crash,
]


def told(monkeypatch, story, tasks, slots=100):
    """Let a story happen to a job; give the meter."""
    meter = Meter(monkeypatch)
    plane = OneSlice(monkeypatch, runs=False)
    plane.add(-(-tasks // slots), slots)
    expected = story(plane, tasks)
    (entry,) = plane.system.state("/jobs").entries.values()
    assert entry.state is expected
    state = plane.system.state("/jobs/scheduler")
    assert not state.inventory.where
    assert not state.absent
    assert not state.gone
    assert not state.links
    return meter


def check(meter):
    """Check that every decision was a step."""
    largest = meter.largest
    assert largest.bytes_journaled <= LARGEST_BYTES, largest
    assert largest.records <= STEP_ATTEMPTS + 2, largest
    assert largest.commands <= LARGEST_COMMANDS, largest
    assert largest.items <= MAX_ATTEMPTS_PER_WORKER, largest


@pytest.mark.parametrize("tasks", SIZES)
@pytest.mark.parametrize("story", STORIES)
def test_every_decision_is_a_step(monkeypatch, story, tasks):
    """A job of any size is placed, stopped, lost and recovered in decisions of at most one step."""
    check(told(monkeypatch, story, tasks))


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("slots", [4, 250])
@pytest.mark.parametrize("story", STORIES)
def test_every_decision_of_3_000_tasks_is_a_step(monkeypatch, story, slots):
    """The same of 3,000 tasks, on 750 workers or on 12."""
    check(told(monkeypatch, story, 3_000, slots))


@pytest.mark.soak
@pytest.mark.parametrize("slots", [4, 250])
@pytest.mark.parametrize("story", STORIES)
def test_every_decision_of_10_000_tasks_is_a_step(monkeypatch, story, slots):
    """The same of 10,000 tasks, on 2,500 workers or on 40."""
    check(told(monkeypatch, story, 10_000, slots))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("story", STORIES)
def test_steps_are_linear(monkeypatch, story):
    """Four times the tasks on four times the workers are at most four times the decisions."""
    small = told(monkeypatch, story, 130, slots=10)
    monkeypatch.undo()
    large = told(monkeypatch, story, 520, slots=10)
    assert large.decisions <= 4.2 * small.decisions


@given(st.lists(st.tuples(st.integers(0, 4_096), st.integers(0, 1_024), st.booleans()), max_size=300))
def test_what_workers_say_is_cut(sizes):
    """Nothing is lost or moved; each part is small enough to be recorded by one decision, unless it is a single one."""
    seen = tuple(
        Observation(
            str(n),
            TaskState.RUNNING,
            AttemptEnd(
                Ending.FAILED, exit_code=1, fault=Fault("", ("é" if odd else "f") * fault + "\n" + "r" * reason)
            ),
            True,
        )
        for n, (fault, reason, odd) in enumerate(sizes)
    )
    parts = list(steps_of(seen))
    assert tuple(each for part in parts for each in part) == seen
    for part in parts:
        assert 0 < len(part) <= STEP_ATTEMPTS
        assert len(part) == 1 or sum(len(each.details) + len(each.reason) for each in part) <= STEP_BYTES


@given(st.lists(st.integers(), max_size=50), st.integers(1, 7))
def test_parts(items, size):
    """Parts hold everything, in order, and all but the last are full."""
    parts = list(parts_of(tuple(items), size))
    assert [each for part in parts for each in part] == items
    assert all(len(part) == size for part in parts[:-1])
    assert all(parts)
