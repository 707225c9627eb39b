"""Work per job, and the report that collects all figures."""

import json

import pytest

from iriscw.bench import control_plane
from iriscw.bench.control_plane import acceptance, growth, median_of, per_job


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


@pytest.mark.parametrize("output", ["json", "text"])
def test_the_report_is_printed(output, monkeypatch, capsys):
    """The report goes to the standard output as it was asked for, with the targets it is held against."""
    report = {"dispatch": [{"workers": 79, "tasks": 5_000, "dispatch_cpu_s": 0.1234567}]}
    monkeypatch.setattr(control_plane, "run", lambda progress: report)
    control_plane.main(["-o", output])
    printed = capsys.readouterr().out
    if output == "json":
        assert json.loads(printed) == report
    else:
        assert "0.1235" in printed
        assert "target 0.375" in printed


def test_every_figure_is_run(monkeypatch):
    """The full report names each figure, with its sizes from small to large."""
    for name in ("per_job", "acceptance", "dispatch", "crowd", "list_jobs", "consecutive", "large_job"):
        monkeypatch.setattr(control_plane, name, lambda *sizes, **options: {"size": sizes[-1]})
    monkeypatch.setattr(control_plane, "memory_per_task", lambda size: {"size": size})
    lines = []
    report = control_plane.run(lines.append, rounds=1)
    assert [row["size"] for row in report["per_job"]] == [1, 10, 100]
    assert [row["size"] for row in report["acceptance"]] == [5, 20]
    assert {"dispatch", "crowd_of_gangs", "large_job", "memory_per_task"} <= report.keys()
    assert len(lines) == sum(map(len, report.values()))
