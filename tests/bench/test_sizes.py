"""Large jobs are large only where something happened; ended jobs leave nothing; pages cost what they hold."""

from functools import partial

import pytest
from ratios import compare

from iriscw.bench.sizes import consecutive, large_job, list_jobs, memory_per_task
from iriscw.jobs.messages import MAX_PAGE

LINEAR = 25
"""What ten times the tasks may cost in CPU time, where quadratic work would cost a hundredfold."""

RECORDS_OF_THE_REGISTRY = 5
"""Of a job in the registry: accepted, shown as BUILDING and RUNNING, finished, forgotten. A snapshot drops them."""


def check_growth(small, large, times):
    """Check that a job with ``times`` the tasks costs as much to submit, and at most as much more to run."""
    for name in ("submission_decisions", "submission_records"):
        assert small[name] == large[name]
    assert large["submission_bytes_journaled"] <= small["submission_bytes_journaled"] + 4
    for name in ("decisions", "messages", "records"):
        assert large[name] <= 1.02 * times * small[name]


@pytest.mark.slow
def test_submission_does_not_grow():
    """A job of ten times the tasks is accepted with the same decisions and one record; its run is linear."""
    small, large = large_job(200, workers=50, page=50), large_job(2_000, workers=50, page=50)
    assert small["submission_records"] == 1
    check_growth(small, large, 10)
    assert large["bytes_journaled"] <= 10.5 * small["bytes_journaled"]
    assert (small["pages"], large["pages"]) == (4, 40)


def test_an_attempt_is_four_records():
    """An attempt that runs well is placed, building, running and ended: a record each."""
    figures = large_job(300, workers=50)
    assert figures["records"] <= 4 * 300 + 10


@pytest.mark.slow
def test_a_job_that_runs_well_makes_no_snapshot():
    """However large a job is, it journals the same for each task: snapshots would cost all of them each time."""
    small, large = large_job(500, workers=100), large_job(6_000, workers=100)
    assert large["bytes_journaled"] / 6_000 < 1.1 * small["bytes_journaled"] / 500


@pytest.mark.slow
def test_waiting_tasks_take_no_memory():
    """A job takes the same memory for ten times the waiting tasks, and a kilobyte or two for each task on a worker."""
    small, large = memory_per_task(200, workers=20), memory_per_task(2_000, workers=20)
    assert abs(large["waiting_bytes"] - small["waiting_bytes"]) < 4_096
    assert large["placed_bytes_per_task"] < 2_048
    assert large["placed_bytes_per_task"] < 1.5 * small["placed_bytes_per_task"]


def test_pages_of_jobs():
    """A listing has as many pages as it needs."""
    assert list_jobs(25, page=10)["pages"] == 3


def check_flat(figures):
    """Check that nothing is left of jobs that were forgotten, but for what the registry's next snapshot drops."""
    added = figures["jobs"] - figures["jobs"] // 2
    assert figures["actors"] == figures["actors_half"]
    assert figures["operations"] == figures["operations_half"]
    assert figures["live_records"] - figures["live_records_half"] == RECORDS_OF_THE_REGISTRY * added
    # The logs from which heaps are brought up to date: eight bytes per attempt, begun anew after some thousand entries.
    assert figures["bytes_kept_per_job"] < 400


@pytest.mark.slow
def test_jobs_leave_nothing():
    """The second half of 80 jobs leaves as many actors and operations as the first, and as much memory."""
    check_flat(consecutive(80, finished=10))


@pytest.mark.soak
def test_200_jobs_leave_nothing():
    """The second 100 of 200 jobs of 10 tasks leave as much as the first 100."""
    check_flat(consecutive(200))


@pytest.mark.parametrize(
    "tasks", [pytest.param(12_000, marks=pytest.mark.slow), pytest.param(100_000, marks=pytest.mark.soak)]
)
def test_large_job(tasks):
    """100,000 tasks are submitted like 10,000, run in ten times the operations, and are listed in 100 pages."""
    small, large = compare(partial(large_job, tasks // 10), partial(large_job, tasks), {"run_cpu_s": LINEAR})
    check_growth(small, large, 10)
    assert large["bytes_journaled"] <= 10.5 * small["bytes_journaled"]
    assert large["pages"] == tasks // MAX_PAGE


@pytest.mark.parametrize(
    "tasks", [pytest.param(8_000, marks=pytest.mark.slow), pytest.param(100_000, marks=pytest.mark.soak)]
)
def test_large_job_in_memory(tasks):
    """100,000 waiting tasks take no more than 10,000; each task on a worker takes about a kilobyte."""
    small, large = memory_per_task(tasks // 10), memory_per_task(tasks)
    assert abs(large["waiting_bytes"] - small["waiting_bytes"]) < 4_096
    assert large["placed_bytes_per_task"] < 2_048
