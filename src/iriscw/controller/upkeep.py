"""Drop what belongs to forgotten jobs.

Logs, results and snapshots of hosted actors live as long as their jobs are listed. When jobs have ended, those that the
registry has forgotten are found by asking it, and their files are removed. Until then the stores' own limits hold.

What is in an object store another controller may have written, if that has taken the journal over and we do not know
yet: to us its jobs would look forgotten. Therefore it is made sure of, *after* what is there was listed, that nobody
had taken over by then. Whatever was listed is then our own, or of those before us, and what the registry says of it is
true for whoever comes after us as well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from iriscw.controller.doors.access import Access
from iriscw.controller.stores.archive import Archive
from iriscw.controller.stores.logs import LogStore
from iriscw.controller.stores.results import ResultStore
from iriscw.jobs.messages import MAX_PAGE, JobChanged, JobPage, ListJobs
from iriscw.jobs.model import JOB_TERMINAL

SWEEP_AFTER = 64
"""Jobs that have ended since the last sweep."""


class JobSweep:
    """See the module.

    Args:
        access: asks the registry.
        logs: to be tidied.
        results: to be tidied.
        states: of hosted actors; to be tidied.
        finished: ended jobs that stay listed; with fewer ends than that nothing was forgotten.
        confirm: returns if it is certain that nobody else has taken the journal over up to now, and raises an
            ``OperationError`` otherwise.
    """

    def __init__(
        self,
        access: Access,
        logs: LogStore,
        results: ResultStore,
        states: Archive,
        finished: int,
        confirm: Callable[[], Awaitable[None]],
    ) -> None:
        self._access = access
        self._logs = logs
        self._results = results
        self._states = states
        self._confirm = confirm
        self._sweep_after = min(SWEEP_AFTER, max(1, finished))
        self._ended = self._sweep_after  # the first round sweeps what an earlier controller left

    def notice(self, event: Any) -> None:
        """Take note of an event."""
        if isinstance(event, JobChanged) and event.state in JOB_TERMINAL:
            self._ended += 1
            self._logs.job_finished(event.job_id)

    async def round(self) -> None:
        """Sweep if enough jobs have ended since the last time.

        Raises:
            OperationError: nobody can say now what was forgotten; the next round comes.
        """
        ended = self._ended
        if ended >= self._sweep_after:
            await self.sweep()
            self._ended -= ended

    async def sweep(self) -> None:
        """Drop what belongs to jobs that the registry has forgotten.

        Raises:
            OperationError: nobody can say now which they are.
        """
        stored = dict.fromkeys([*self._logs.jobs(), *await self._results.jobs(), *await self._states.jobs()])
        listed: dict[str, None] = {}
        over: list[str] = []
        token = ""
        while True:
            page: JobPage = await self._access.ask("/jobs", ListJobs(token, MAX_PAGE))
            for row in page.rows:
                listed[row.job_id] = None
                if row.state in JOB_TERMINAL:
                    over.append(row.job_id)
            token = page.next
            if not token:
                break
        for job_id in reversed(over):
            self._logs.job_finished(job_id)
        gone = [job_id for job_id in stored if job_id not in listed and not await self._exists(job_id)]
        if gone:
            await self._confirm()
        for job_id in gone:
            await self._logs.forget(job_id)
            await self._results.forget(job_id)
            await self._states.forget(job_id)

    async def _exists(self, job_id: str) -> bool:
        """Ask again: a job that was submitted while the pages were read is on none of them."""
        page: JobPage = await self._access.ask("/jobs", ListJobs(limit=MAX_PAGE))
        return any(row.job_id == job_id for row in page.rows)
