"""What grows with a job's tasks, with the jobs that are listed, and with the jobs that were."""

from __future__ import annotations

import gc
import tracemalloc

from iriscw.bench.plane import ControlPlane, Figures, Stopwatch
from iriscw.jobs.messages import MAX_PAGE, ListJobs, ListTasks, TerminateJob
from iriscw.jobs.scheduling.placement import MAX_ATTEMPTS_PER_WORKER

OURS = (tracemalloc.Filter(True, "*/iriscw/jobs/*"), tracemalloc.Filter(True, "*/iriscw/runtime/*"))
"""Memory of the actors; that of the simulated disk and of the scripted workers is not part of a controller."""


def large_job(replicas: int, workers: int = 1_000, page: int = MAX_PAGE) -> Figures:
    """Submit a job of many tasks while there is no worker, let it run to its end, and list all its tasks."""
    plane = ControlPlane()
    before = plane.count()
    with Stopwatch() as submission:
        job_id = plane.submit("large", replicas)
    plane.system.advance(1)
    submitted = plane.count().since(before)
    with Stopwatch() as run:
        plane.add_workers(workers, min(-(-replicas // workers), MAX_ATTEMPTS_PER_WORKER))
        plane.finish(job_id)
    counts = plane.count().since(before)
    pages, first_cpu_s, last_cpu_s = _list_tasks(plane, job_id, replicas, page)
    return {
        "tasks": replicas,
        "submission_decisions": submitted.decisions,
        "submission_records": submitted.records,
        "submission_bytes_journaled": submitted.bytes_journaled,
        "submission_cpu_ms": 1e3 * submission.cpu_s,
        **counts.figures(),
        "run_cpu_s": run.cpu_s,
        "pages": pages,
        "first_page_cpu_ms": 1e3 * first_cpu_s,
        "last_page_cpu_ms": 1e3 * last_cpu_s,
    }


def _list_tasks(plane: ControlPlane, job_id: str, replicas: int, page: int) -> tuple[int, float, float]:
    """Read all pages of a job's tasks; give their number, and the CPU time of the first and of the last."""
    spent: list[float] = []
    start = rows = 0
    while start >= 0:
        with Stopwatch() as watch:
            found = plane.system.ask(f"/jobs/{job_id}", ListTasks(start, page))
        spent.append(watch.cpu_s)
        start = found.next
        rows += len(found.rows)
    assert rows == replicas, f"{rows} rows of {replicas} tasks"
    return len(spent), spent[0], spent[-1]


def memory_per_task(replicas: int, workers: int = 1_000) -> Figures:
    """Look at the actors' memory while all tasks of a job wait, and while all of them are on workers."""
    plane = ControlPlane(runs=False)
    tracemalloc.start()
    try:
        job_id = plane.submit("large", replicas)
        plane.system.advance(1)
        waiting_bytes = memory_bytes()
        plane.system.ask("/jobs", TerminateJob(job_id))
        plane.finish(job_id)
        plane.add_workers(workers, min(-(-replicas // workers), MAX_ATTEMPTS_PER_WORKER))
        idle_bytes = memory_bytes()
        plane.submit("placed", replicas)
        plane.dispatched(replicas)
        plane.system.advance(1)
        placed_bytes = memory_bytes() - idle_bytes
    finally:
        tracemalloc.stop()
    return {"tasks": replicas, "waiting_bytes": waiting_bytes, "placed_bytes_per_task": placed_bytes / replicas}


def memory_bytes() -> int:
    """Return the memory of the actors that is traced now."""
    gc.collect()
    taken = tracemalloc.take_snapshot().filter_traces(OURS)
    return sum(trace.size for trace in taken.traces)


def consecutive(jobs: int, tasks: int = 10, finished: int = 20) -> Figures:
    """Run jobs one after the other; compare what is left after half of them with what is left after all."""
    plane = ControlPlane(finished=finished)
    plane.add_workers(10, 4)
    left: list[tuple[int, int, int, int]] = []
    tracemalloc.start()
    try:
        for number in range(jobs):
            plane.finish(plane.submit(f"job-{number}", tasks))
            if number + 1 in (jobs // 2, jobs):
                tree, journal = plane.system.statistics(), plane.system.journal.statistics()
                left.append((tree.live, journal.live, tree.operations, memory_bytes()))
    finally:
        tracemalloc.stop()
    half, whole = left
    return {
        "jobs": jobs,
        "tasks": tasks,
        "actors_half": half[0],
        "actors": whole[0],
        "live_records_half": half[1],
        "live_records": whole[1],
        "operations_half": half[2],
        "operations": whole[2],
        "memory_bytes_half": half[3],
        "memory_bytes": whole[3],
        "bytes_kept_per_job": (whole[3] - half[3]) / (jobs - jobs // 2),
    }


def list_jobs(jobs: int, page: int = MAX_PAGE) -> Figures:
    """Read all pages of a listing of ``jobs`` jobs that wait."""
    plane = ControlPlane()
    for number in range(jobs):
        plane.submit(f"job-{number}", 1)
    pages = rows = 0
    after = ""
    with Stopwatch() as watch:
        while not pages or after:
            found = plane.system.ask("/jobs", ListJobs(after, page))
            after = found.next
            pages += 1
            rows += len(found.rows)
    assert rows == jobs, f"{rows} rows of {jobs} jobs"
    return {"jobs": jobs, "pages": pages, "page_cpu_ms": 1e3 * watch.cpu_s / pages}
