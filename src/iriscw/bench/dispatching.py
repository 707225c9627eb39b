"""What it costs to hand out many tasks, and what a step costs while they run."""

from __future__ import annotations

from iriscw.bench.plane import TASK, ControlPlane, Figures, Stopwatch
from iriscw.cloud.model import Capacity
from iriscw.jobs.messages import Pass
from iriscw.jobs.model import Ending, TaskState

REPLACEMENTS = 100
"""Ends of attempts over which the cost of one is averaged."""

END_EVERY_S = 0.01
"""Virtual seconds between two ends where their number, not their rate, is of interest."""

SETTLE_S = 2
"""Virtual seconds after which jobs have told listings of the last change: they do so once a second."""

IDLE_S = 60
"""Virtual seconds in which nothing happens; all that recurs does so within 30."""


def dispatch(workers: int, tasks: int) -> Figures:
    """Submit one job and stop when every order was handed to the stream of its worker; then look at a step.

    The steady costs are of a cluster where all tasks run and a second job waits for room:

    * ``pass``: the scheduler looks whether anything can be placed.
    * ``idle``: a minute in which nothing happens, all timers included.
    * ``replace``: one attempt ends and the next is ordered of that worker.
    * ``resync``: the streams of all workers break, and come back with all that their workers know.

    ``steady_cpu_ms`` is the dearest step that a quiet second can have: a pass and a replacement.
    """
    slots = -(-tasks // workers)
    plane = ControlPlane(runs=False)
    with Stopwatch() as admission:
        plane.add_workers(workers, slots)
    before = plane.count()
    with Stopwatch() as dispatched:
        plane.submit("first", tasks)
        plane.dispatched(tasks)
    counts = plane.count().since(before)
    plane.system.advance(1)
    plane.submit("second", workers * slots - tasks + 2 * REPLACEMENTS)
    plane.system.advance(1)
    return {
        "workers": workers,
        "tasks": tasks,
        "admission_cpu_s": admission.cpu_s,
        "dispatch_cpu_s": dispatched.cpu_s,
        **counts.figures(),
        **_steady(plane),
    }


def _steady(plane: ControlPlane) -> Figures:
    replaced = _replacements(plane, REPLACEMENTS)
    before = plane.count()
    with Stopwatch() as passes:
        for _ in range(REPLACEMENTS):
            plane.system.tell("/jobs/scheduler", Pass())
            plane.system.run_until_idle()
    passed = plane.count().since(before).decisions / REPLACEMENTS
    plane.system.advance(SETTLE_S)
    after = plane.count()
    with Stopwatch() as idle:
        plane.system.advance(IDLE_S)
    idled = plane.count().since(after).decisions
    for worker in plane.workers.values():
        worker.hang_up()
    before = plane.count()
    with Stopwatch() as resync:
        plane.system.advance(10)
    assert all(worker.handle is not None for worker in plane.workers.values()), "a stream did not come back"
    return {
        "steady_cpu_ms": 1e3 * (passes.cpu_s / REPLACEMENTS) + replaced["replace_cpu_ms"],
        "pass_decisions": passed,
        "pass_cpu_ms": 1e3 * passes.cpu_s / REPLACEMENTS,
        "idle_decisions": idled,
        "idle_cpu_ms": 1e3 * idle.cpu_s,
        **replaced,
        "resync_decisions": plane.count().since(before).decisions,
        "resync_cpu_s": resync.cpu_s,
    }


def _replacements(plane: ControlPlane, number: int) -> Figures:
    """End attempts, one after the other, each on another worker as far as there are so many."""
    workers = list(plane.workers.values())
    before = plane.count()
    with Stopwatch() as watch:
        for index in range(number):
            worker = workers[index % len(workers)]
            uid = next(iter(worker.attempts))
            orders = plane.orders
            worker.report(uid, TaskState.RUNNING, Ending.SUCCEEDED)
            plane.dispatched(orders + 1)
    counts = plane.count().since(before)
    return {
        "replace_decisions": counts.decisions / number,
        "replace_records": counts.records / number,
        "replace_cpu_ms": 1e3 * watch.cpu_s / number,
    }


def crowd(workers: int, waiting: int, *, gangs: bool) -> Figures:
    """End attempts on full workers, one after the other, while many jobs wait, each of a shape of its own.

    Either they are gangs of two, for which one free place is no room, or tasks of slightly different demands, one of
    which takes the place.
    """
    plane = ControlPlane(runs=False)
    plane.add_workers(workers, 1)
    plane.submit("first", workers)
    plane.dispatched(workers)
    ends = min(REPLACEMENTS, workers)
    for index in range(waiting):
        if gangs:
            plane.submit(f"gang-{index}", 2, group_by="slice-id")
        else:
            plane.submit(f"job-{index}", ends, demand=Capacity(TASK.cpu_milli, TASK.memory_bytes - index))
    plane.system.advance(1)
    before = plane.count()
    with Stopwatch() as watch:
        for worker in list(plane.workers.values())[:ends]:
            worker.report(next(iter(worker.attempts)), TaskState.RUNNING, Ending.SUCCEEDED)
            plane.system.advance(END_EVERY_S)
    counts = plane.count().since(before)
    return {
        "workers": workers,
        "waiting": waiting,
        "placed": plane.orders - workers,
        "end_decisions": counts.decisions / ends,
        "end_cpu_ms": 1e3 * watch.cpu_s / ends,
    }
