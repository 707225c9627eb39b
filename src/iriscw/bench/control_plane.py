"""How much work the control plane does: ``python -m iriscw.bench.control_plane [-o json]``.

A shared machine has no wall time worth reading. So figures are counts, which are the same in every run, and thread CPU
time, whose growth from one size to ten times that size is what is judged. Each figure is a function that gives a flat
dictionary; sizes are parameters, so that tests assert the same figures on small sizes.

``TARGETS`` are a tenth of what the peer's maintainers report of their controller and their machine. They are reported
against, never asserted: the machines differ.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from iriscw.bench.dispatching import crowd, dispatch
from iriscw.bench.plane import ControlPlane, Figures
from iriscw.bench.sizes import consecutive, large_job, list_jobs, memory_per_task
from iriscw.bench.submissions import accept_with

TARGETS = {
    (79, 5_000): {"dispatch_cpu_s": 0.375, "steady_cpu_ms": 25.7, "resync_cpu_s": 0.0257},
    (5_000, 5_000): {"dispatch_cpu_s": 1.27, "steady_cpu_ms": 430.0, "resync_cpu_s": 0.43},
}
"""By workers and tasks: a tenth of 3.75 s, 12.7 s, 257 ms and 4.3 s. The peer's steady step compares all workers with
what they should run; ours does so only when streams come back, hence the same bound for both."""

ROUNDS = 3
"""Runs of a figure in CPU time, of which the median is given."""


def per_job(tasks: int, workers: int = 100, slots: int = 4) -> Figures:
    """Run one job from its submission to its end; every attempt reports three times and succeeds."""
    plane = ControlPlane()
    plane.add_workers(workers, slots)
    before = plane.count()
    plane.finish(plane.submit("job", tasks))
    counts = plane.count().since(before)
    return {"tasks": tasks, **counts.figures(), "bytes_per_task": counts.bytes_journaled / tasks}


def acceptance(commit_ms: int, jobs_each: int = 20) -> Figures:
    """Have 64 submitters on a real journal whose commits take ``commit_ms`` longer."""
    with tempfile.TemporaryDirectory() as folder:
        accepted = accept_with(Path(folder) / "journal", commit_ms / 1e3, jobs_each)
    return {
        "commit_ms": commit_ms,
        "jobs": accepted.jobs,
        "commits": accepted.commits,
        "jobs_per_commit": accepted.jobs_per_commit,
        "cpu_ms_per_job": 1e3 * accepted.cpu_s / accepted.jobs,
    }


def median_of(rounds: int, measure: Callable[[], Figures]) -> Figures:
    """Measure ``rounds`` times; give the median of each figure."""
    runs = [measure() for _ in range(rounds)]
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def growth(figures: Sequence[Figures], size: str = "tasks") -> dict[str, float]:
    """Give how much each figure grew from the first to the last, per factor of growth of ``size``: 1 is linear."""
    first, last = figures[0], figures[-1]
    factor = last[size] / first[size]
    return {name: last[name] / first[name] / factor for name in first if name != size and first[name]}


def run(progress: Callable[[str], None], rounds: int = ROUNDS) -> dict[str, list[Figures]]:
    """Measure everything at full size; takes some minutes."""
    report: dict[str, list[Figures]] = {}

    def measure(name: str, rounds: int, figure: Callable[..., Figures], *sizes: Any, **options: Any) -> None:
        progress(f"{name} {sizes[0] if len(sizes) == 1 else sizes}")
        report.setdefault(name, []).append(median_of(rounds, lambda: figure(*sizes, **options)))

    for tasks in (1, 10, 100):
        measure("per_job", 1, per_job, tasks)
    for commit_ms in (5, 20):
        measure("acceptance", 1, acceptance, commit_ms)
    for workers, tasks in ((79, 500), (79, 5_000), (500, 500), (5_000, 5_000)):
        measure("dispatch", rounds, dispatch, workers, tasks)
    for waiting in (50, 500):
        measure("crowd_of_gangs", rounds, crowd, 1_000, waiting, gangs=True)
    for waiting in (50, 500):
        measure("crowd_of_demands", rounds, crowd, 1_000, waiting, gangs=False)
    for jobs in (1_000, 10_000):
        measure("list_jobs", rounds, list_jobs, jobs)
    measure("consecutive", 1, consecutive, 200)
    for replicas in (10_000, 100_000):
        measure("large_job", 1, large_job, replicas)
    for replicas in (10_000, 100_000):
        measure("memory_per_task", 1, memory_per_task, replicas)
    return report


def _rounded(value: float) -> float:
    return round(value) if abs(value) >= 1_000 else float(f"{value:.4g}")


def _progress(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(prog="python -m iriscw.bench.control_plane", description=__doc__)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    output = parser.parse_args(arguments).output
    report = run(_progress)
    if output == "json":
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
        return
    for name, rows in report.items():
        for row in rows:
            sys.stdout.write(f"{name}\n")
            target = TARGETS.get((int(row.get("workers", 0)), int(row.get("tasks", 0))), {})
            for figure, value in row.items():
                against = f"   target {target[figure]:g}" if figure in target else ""
                sys.stdout.write(f"  {figure:28} {_rounded(value):>12g}{against}\n")


if __name__ == "__main__":
    main()
