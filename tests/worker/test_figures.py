"""What the worker's port shows."""

from iriscw.worker.doors.http import WorkerFigures
from iriscw.worker.runtimes.pod_view import ViewStatistics


def body_of(figures: WorkerFigures) -> str:
    """Return the metrics as they are read."""
    return figures.routes()["/metrics"].respond().body.decode()


def test_figures_of_pods_are_those_of_now() -> None:
    """Read whenever somebody asks; a worker whose attempts have none shows none."""
    figures, now = WorkerFigures("w-0", "1"), ViewStatistics(3, 1, 2, 4)
    assert "task_pods" not in body_of(figures)
    figures.show_pods(lambda: now)
    for wanted in ("task_pods 3", "task_pods_stray 1", "task_pods_deleted_total 2", "task_pod_failures_total 4"):
        assert f"\niriscw_worker_{wanted}.0\n" in body_of(figures)
    now = ViewStatistics(0, 0, 3, 4)
    assert "\niriscw_worker_task_pods_deleted_total 3.0\n" in body_of(figures)
