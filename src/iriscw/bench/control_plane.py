"""How much work the control plane does: ``iriscw bench control-plane``.

A shared machine has no wall time worth reading. So figures are counts, which are the same in every run, and thread CPU
time, whose growth from one size to ten times that size is what is judged. Each figure is a function that gives a flat
dictionary; sizes are parameters, so that tests assert the same figures on small sizes.

``TARGETS`` are a tenth of what the peer's maintainers report of their controller and their machine. They are reported
against, never asserted: the machines differ.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from iriscw.bench.dispatching import crowd, dispatch
from iriscw.bench.plane import ControlPlane, Figures
from iriscw.bench.sizes import consecutive, large_job, list_jobs, memory_per_task
from iriscw.bench.submissions import accept_with

TARGETS: list[Figures] = [
    {"workers": 79, "tasks": 5_000, "dispatch_cpu_s": 0.375, "steady_cpu_ms": 25.7, "resync_cpu_s": 0.0257},
    {"workers": 5_000, "tasks": 5_000, "dispatch_cpu_s": 1.27, "steady_cpu_ms": 430.0, "resync_cpu_s": 0.43},
]
"""Of dispatch, by workers and tasks: a tenth of 3.75 s, 12.7 s, 257 ms and 4.3 s. The peer's steady step compares all
workers with what they should run; ours does so only when streams come back, hence the same bound for both."""

Report: TypeAlias = dict[str, Any]

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
    """Return how much each figure grew from the first to the last, per factor of growth of ``size``: 1 is linear."""
    first, last = figures[0], figures[-1]
    factor = last[size] / first[size]
    return {name: last[name] / first[name] / factor for name in first if name != size and first[name]}


@attrs.frozen
class PlaneSizes:
    """At which sizes the figures are taken, from small to large.

    Args:
        tasks: of the jobs whose work is counted.
        commits_ms: how long a commit of the journal takes.
        submissions: of each submitter.
        dispatch: workers and tasks.
        crowd_workers: that are full while a crowd waits.
        crowds: jobs that wait.
        listed: jobs of a listing.
        consecutive: jobs, one after the other.
        replicas: of the jobs that are called large.
    """

    tasks: tuple[int, ...] = (1, 10, 100)
    commits_ms: tuple[int, ...] = (5, 20)
    submissions: int = 20
    dispatch: tuple[tuple[int, int], ...] = ((79, 500), (79, 5_000), (500, 500), (5_000, 5_000))
    crowd_workers: int = 1_000
    crowds: tuple[int, ...] = (50, 500)
    listed: tuple[int, ...] = (1_000, 10_000)
    consecutive: int = 200
    replicas: tuple[int, ...] = (10_000, 100_000)


FULL = PlaneSizes()
QUICK = PlaneSizes(
    commits_ms=(5,),
    submissions=5,
    dispatch=((79, 500), (79, 5_000)),
    crowd_workers=200,
    crowds=(10, 100),
    listed=(100, 1_000),
    consecutive=40,
    replicas=(500, 5_000),
)
"""Seconds instead of minutes: enough to see growth, and the figures of one of the two targets."""


def run(progress: Callable[[str], None], sizes: PlaneSizes = FULL, rounds: int = ROUNDS) -> Report:
    """Measure everything and give the report of ``iriscw bench control-plane -o json``.

    Raises:
        MeasurementFailed: the control plane did not do what was to be measured.
    """
    figures: dict[str, list[Figures]] = {}

    def measure(name: str, rounds: int, figure: Callable[..., Figures], *of: Any, **options: Any) -> None:
        progress(f"{name} {of[0] if len(of) == 1 else of}")
        figures.setdefault(name, []).append(median_of(rounds, lambda: figure(*of, **options)))

    for tasks in sizes.tasks:
        measure("per_job", 1, per_job, tasks)
    for commit_ms in sizes.commits_ms:
        measure("acceptance", 1, acceptance, commit_ms, sizes.submissions)
    for workers, tasks in sizes.dispatch:
        measure("dispatch", rounds, dispatch, workers, tasks)
    for waiting in sizes.crowds:
        measure("crowd_of_gangs", rounds, crowd, sizes.crowd_workers, waiting, gangs=True)
    for waiting in sizes.crowds:
        measure("crowd_of_demands", rounds, crowd, sizes.crowd_workers, waiting, gangs=False)
    for jobs in sizes.listed:
        measure("list_jobs", rounds, list_jobs, jobs)
    measure("consecutive", 1, consecutive, sizes.consecutive)
    for replicas in sizes.replicas:
        measure("large_job", 1, large_job, replicas)
    for replicas in sizes.replicas:
        measure("memory_per_task", 1, memory_per_task, replicas)
    return {"figures": figures, "targets": TARGETS, "rounds": rounds}
