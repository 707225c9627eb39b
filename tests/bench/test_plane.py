"""The control plane that is measured does real work, and the same work every time."""

import pytest

from iriscw.bench.plane import ControlPlane, MeasurementFailed, Stopwatch
from iriscw.jobs.model import Ending, JobState, TaskState
from raised import that


def ran(tasks):
    """Run one job; give the plane and the job's id."""
    plane = ControlPlane()
    plane.add_workers(3, 2)
    job_id = plane.submit("job", tasks)
    plane.finish(job_id)
    return plane, job_id


def test_jobs_really_end():
    """A job whose attempts all follow the script has SUCCEEDED, and its workers have forgotten them."""
    plane, job_id = ran(7)
    assert plane.system.state("/jobs").entries[job_id].state is JobState.SUCCEEDED
    assert plane.orders == 7
    assert not any(worker.attempts for worker in plane.workers.values())


def test_same_counts_every_time():
    """All counts but the time are equal in two runs."""
    first, second = (ran(7)[0].count() for _ in range(2))
    assert first.figures() == second.figures()
    assert first.commits == second.commits > 0


def test_a_job_that_does_not_end_fails_the_measurement():
    """Waiting for a job without workers raises instead of giving a figure."""
    plane = ControlPlane()
    job_id = plane.submit("job", 1)
    with pytest.raises(MeasurementFailed, check=that(comes_from="plane.ControlPlane.finish")):
        plane.finish(job_id)
    with pytest.raises(MeasurementFailed, check=that(comes_from="plane.ControlPlane.dispatched", names=("0", "1"))):
        plane.dispatched(1)


def test_a_decision_that_fails_stops_the_measurement():
    """The report of a failed decision raises: a figure must not hide it."""
    plane = ControlPlane()
    plane.system.tell("/jobs/scheduler", "not a message of the scheduler")
    with pytest.raises(
        MeasurementFailed, check=that(comes_from="plane.QuietSystem.publish", names=("/jobs/scheduler", "str"))
    ):
        plane.system.run_until_idle()


def test_workers_hang_up_and_come_back():
    """A worker that lost its stream gets it back, with all that it runs, and nothing is ordered twice."""
    plane = ControlPlane(runs=False)
    plane.add_workers(2, 2)
    plane.submit("job", 4)
    plane.dispatched(4)
    plane.system.advance(1)
    for worker in plane.workers.values():
        worker.hang_up()
        assert worker.handle is None
    plane.system.advance(5)
    assert all(worker.handle is not None for worker in plane.workers.values())
    assert plane.orders == 4
    worker = next(iter(plane.workers.values()))
    worker.report(next(iter(worker.attempts)), TaskState.RUNNING, Ending.SUCCEEDED)
    plane.system.advance(1)
    assert len(worker.attempts) == 1


def test_stopwatch_reads_cpu_time():
    """A block that computes takes CPU time."""
    with Stopwatch() as watch:
        sum(range(200_000))
    assert watch.cpu_s > 0
