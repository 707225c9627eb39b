"""Work per job, and the report that collects all figures."""

import pytest

from iriscw.bench import control_plane
from iriscw.bench.control_plane import FULL, QUICK, acceptance, growth, median_of, per_job


@pytest.fixture(scope="module")
def jobs():
    """Figures of jobs of 1, 10 and 100 tasks."""
    return [per_job(tasks, workers=25) for tasks in (1, 10, 100)]


def test_records_per_job(jobs):
    """A job is five records, and each of its tasks four more."""
    assert [figures["records"] for figures in jobs] == [9, 45, 405]


def test_decisions_per_task(jobs):
    """A task costs at most 15 decisions and 8 messages on top of a job's 15, however many there are."""
    for figures in jobs:
        assert figures["decisions"] <= 15 + 15 * figures["tasks"]
        assert figures["messages"] <= 10 + 8 * figures["tasks"]


def test_bytes_per_task(jobs):
    """A task journals less than a kilobyte, beside its job's specification."""
    assert jobs[0]["bytes_journaled"] < 2_048
    assert jobs[2]["bytes_per_task"] < 1_024


def test_ten_times_the_tasks_are_at_most_ten_times_the_work(jobs):
    """All counts grow by at most a tenth of the tasks' growth more than the tasks."""
    for name, grew in growth(jobs[1:]).items():
        if name != "bytes_per_task":
            assert grew < 1.1, name


def test_growth_is_per_factor_of_size():
    """Linear growth is 1, constant cost a tenth, quadratic work ten."""
    small = {"tasks": 10, "linear": 5, "constant": 5, "quadratic": 100, "none": 0}
    large = {"tasks": 100, "linear": 50, "constant": 5, "quadratic": 10_000, "none": 0}
    assert growth([small, large]) == {"linear": 1, "constant": 0.1, "quadratic": 10}


def test_median_of_each_figure():
    """Each figure is the median of its own values."""
    runs = iter([{"a": 1, "b": 30}, {"a": 2, "b": 10}, {"a": 9, "b": 20}])
    assert median_of(3, lambda: next(runs)) == {"a": 2, "b": 20}


def test_acceptance_counts_every_job():
    """The figure of 64 submitters has all their jobs, and fewer commits than jobs."""
    figures = acceptance(5, jobs_each=2)
    assert figures["jobs"] == 128
    assert figures["commits"] < 64


@pytest.mark.parametrize(("sizes", "commits_ms"), [(FULL, [5, 20]), (QUICK, [5])], ids=["full", "quick"])
def test_every_figure_is_run(monkeypatch, sizes, commits_ms):
    """The report names each figure, with its sizes from small to large, and what they are held against."""
    for name in ("per_job", "acceptance", "dispatch", "crowd", "list_jobs", "consecutive", "large_job"):
        monkeypatch.setattr(control_plane, name, lambda *of, **options: {"size": of[0]})
    monkeypatch.setattr(control_plane, "memory_per_task", lambda size: {"size": size})
    lines = []
    report = control_plane.run(lines.append, sizes, rounds=1)
    figures = report["figures"]
    assert [row["size"] for row in figures["per_job"]] == [1, 10, 100]
    assert [row["size"] for row in figures["acceptance"]] == commits_ms
    assert {"dispatch", "crowd_of_gangs", "large_job", "memory_per_task"} <= figures.keys()
    assert len(lines) == sum(map(len, figures.values()))
    assert (report["targets"], report["rounds"]) == (control_plane.TARGETS, 1)
    for rows in figures.values():
        assert [row["size"] for row in rows] == sorted(row["size"] for row in rows)


@pytest.mark.parametrize("sizes", [FULL, QUICK], ids=["full", "quick"])
def test_a_target_has_its_figure(sizes):
    """Both choices of sizes have a dispatch that a target is about."""
    assert {(each["workers"], each["tasks"]) for each in control_plane.TARGETS} & set(sizes.dispatch)
