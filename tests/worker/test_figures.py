"""What the worker's port shows."""

from iriscw.packages.cache import EnvironmentCounts
from iriscw.worker.doors.http import WorkerFigures
from iriscw.worker.gpu_readings import GpuLook, GpuReading
from iriscw.worker.gpus import Gpu
from iriscw.worker.runtimes.pod_view import ViewStatistics
from iriscw.worker.wire import gpus_message


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


def test_figures_of_environments_are_those_of_now() -> None:
    """By what came of the requests; a worker that installs nothing shows none."""
    figures, counts = WorkerFigures("w-0", "1"), EnvironmentCounts()
    assert "environments" not in body_of(figures)
    figures.show_packages(counts)
    counts.made, counts.reused = 1, 4
    for outcome, count in (("made", 1), ("reused", 4), ("removed", 0), ("failed", 0)):
        assert f'\niriscw_worker_environments_total{{outcome="{outcome}"}} {count}.0\n' in body_of(figures)


GPUS = (Gpu("H100", "GPU-a", 80 << 30, 0), Gpu("H100", "GPU-b", 80 << 30, 1))


def test_figures_of_gpus_are_those_of_the_last_look() -> None:
    """One line for each GPU and figure; what is not known is not there, and without GPUs nothing is."""
    figures = WorkerFigures("w-0", "1")
    assert "gpu" not in body_of(figures)
    look = GpuLook(
        GPUS, {"GPU-a": GpuReading("GPU-a", 97, 5 << 20, 9 << 20, 61, 688_250), "GPU-b": GpuReading("GPU-b")}
    )
    figures.show_gpus(lambda: look)
    for name, value in (
        ("utilization_ratio", "0.97"),
        ("memory_used_bytes", f"{float(5 << 20)}"),
        ("memory_total_bytes", f"{float(9 << 20)}"),
        ("temperature_celsius", "61.0"),
        ("power_watts", "688.25"),
    ):
        (line,) = (each for each in body_of(figures).splitlines() if each.startswith(f"iriscw_worker_gpu_{name}{{"))
        assert line.split("}")[0].endswith('gpu="GPU-a",index="0"')
        assert float(line.split()[-1]) == float(value)
    look = GpuLook(GPUS, {}, "it hangs", 3)
    assert "GPU-" not in body_of(figures)
    assert "\niriscw_worker_gpu_look_failures_total 3.0\n" in body_of(figures)


def test_gpus_are_listed_whether_or_not_they_say_anything() -> None:
    """What they are is known from the start; a figure that is not known is absent, and 0 is 0."""
    look = GpuLook(GPUS, {"GPU-a": GpuReading("GPU-a", 0, 0, 9, 0, 0)}, "it hangs", 1)
    first, second = gpus_message(look).gpus
    assert (first.uuid, first.utilization_percent, first.memory_used_bytes, first.power_mw) == ("GPU-a", 0, 0, 0)
    assert (first.memory_total_bytes, first.problem) == (9, "it hangs")
    assert (second.index, second.utilization_percent, second.temperature_c) == (1, None, None)
    assert second.memory_total_bytes == 80 << 30
