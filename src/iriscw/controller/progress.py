"""How far tasks are, as their workers pass it on: kept in memory while their jobs run, and nowhere else.

A worker tells it again on each of its streams, so a controller that has restarted knows it as soon as its workers are
back. It goes with the attempt that told it: an attempt that takes its place begins with none.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable

import attrs

from iriscw.jobs.messages import JobChanged, TaskChanged
from iriscw.jobs.model import JOB_TERMINAL, TaskState
from iriscw.proto.iriscw import v1

TOLD_EVERY_S = 1.0
"""Between two rings for the same job: each has those who watch it read the job."""

MAX_TASKS = 100_000
"""Tasks whose progress is kept, half a kilobyte each: beyond, the job that told longest ago is forgotten."""


_MOST = (1 << 63) - 1
"""What a number of a message holds: beyond, a sum is not told exactly."""


@attrs.define
class _JobProgress:
    tasks: dict[int, tuple[str, v1.Progress | str]] = attrs.field(factory=dict)
    """By index: which attempt, and what it said; of one that has not begun, what its worker does for it."""
    text: str = ""
    whole: v1.Progress | None = None
    """Of all together; None: to be reckoned anew."""
    rung_s: float = float("-inf")
    waits: bool = False


class ProgressBoard:
    """See the module.

    Args:
        changed: told of jobs of which something is new, each once a second at most.
    """

    def __init__(self, changed: Callable[[str], None] = lambda _: None) -> None:
        self._changed = changed
        self._jobs: collections.OrderedDict[str, _JobProgress] = collections.OrderedDict()
        self._tasks = 0

    def put(self, job_id: str, index: int, uid: str, said: v1.Progress | str) -> None:
        """Take what an attempt says, or what is done for it before it begins. To be called on the event loop."""
        job = self._jobs.setdefault(job_id, _JobProgress())
        if job.tasks.get(index) == (uid, said):
            return
        self._tasks += index not in job.tasks
        job.tasks[index] = (uid, said)
        job.whole = None
        if isinstance(said, v1.Progress):
            job.text = said.text
        self._jobs.move_to_end(job_id)
        while self._tasks > MAX_TASKS and len(self._jobs) > 1:
            self._forget(next(iter(self._jobs)))
        self._ring(job_id, job)

    def _ring(self, job_id: str, job: _JobProgress) -> None:
        loop = asyncio.get_running_loop()
        wait_s = job.rung_s + TOLD_EVERY_S - loop.time()
        if wait_s > 0:
            if not job.waits:
                job.waits = True
                loop.call_later(wait_s, self._rest_is_over, job_id, job)
            return
        job.rung_s = loop.time()
        self._changed(job_id)

    def _rest_is_over(self, job_id: str, job: _JobProgress) -> None:
        job.waits = False
        if self._jobs.get(job_id) is job:
            self._ring(job_id, job)

    def note(self, event: JobChanged | TaskChanged) -> None:
        """Forget what an event makes untrue: the attempt is another one, or none; the job is over."""
        job = self._jobs.get(event.job_id)
        if job is None:
            return
        if isinstance(event, JobChanged):
            if event.state in JOB_TERMINAL:
                self._forget(event.job_id)
            return
        known = job.tasks.get(event.index)
        if known is not None and (known[0] != event.uid or event.state is TaskState.PENDING):
            del job.tasks[event.index]
            self._tasks -= 1
            job.whole = None

    def _forget(self, job_id: str) -> None:
        self._tasks -= len(self._jobs.pop(job_id).tasks)

    def of_task(self, job_id: str, index: int, uid: str) -> v1.Progress | None:
        """Return what this attempt of a task has said last."""
        job = self._jobs.get(job_id)
        known = job.tasks.get(index) if job is not None else None
        return known[1] if known is not None and known[0] == uid and isinstance(known[1], v1.Progress) else None

    def doing(self, job_id: str, index: int, uid: str) -> str:
        """Return what is done for this attempt of a task before it begins; empty: nothing is known of."""
        job = self._jobs.get(job_id)
        known = job.tasks.get(index) if job is not None else None
        return known[1] if known is not None and known[0] == uid and isinstance(known[1], str) else ""

    def doing_of_job(self, job_id: str) -> str:
        """Return what is done for one of the tasks of a job before it begins; empty: nothing is known of."""
        job = self._jobs.get(job_id)
        said = () if job is None else job.tasks.values()
        return next((each for _, each in said if each and isinstance(each, str)), "")

    def of_job(self, job_id: str) -> v1.Progress | None:
        """Return how far the tasks of a job are together, as far as they tell."""
        job = self._jobs.get(job_id)
        if job is None or not job.tasks:
            return None
        if job.whole is None:
            said = [each for _, each in job.tasks.values() if isinstance(each, v1.Progress)]
            if not said:
                return None
            total = sum(each.total_milli for each in said) if all(each.total_milli for each in said) else 0
            done = sum(each.done_milli for each in said)
            job.whole = v1.Progress(done_milli=min(done, _MOST), total_milli=min(total, _MOST), text=job.text)
        return job.whole
