"""Why watched jobs wait: looked at for all who watch together, and told where it has become another reason.

A reason is a sentence that the scheduler makes when it is asked, from all workers there are, so no event says that it
is another one now. A job that is watched while tasks of it wait is therefore asked about again every
``LOOK_INTERVAL_S``: one question for all such jobs, of which the scheduler answers what one step may take; those that
are left come first the next time. Who is rung takes the sentence from here and asks nobody. So what it costs does not
depend on how many watch a job, and is nothing while nobody does.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator

import anyio

from iriscw._errors import OperationError
from iriscw.controller.doors.access import Access
from iriscw.controller.events import EventHub
from iriscw.jobs.scheduling.messages import ExplainJobs, JobReasons

log = logging.getLogger(__name__)

LOOK_INTERVAL_S = 2.0
"""Between two looks: who watches reads sentences, and a look costs the scheduler a step of about 10 ms at most."""

_NUMBER = re.compile(r"(?<![\w-])\d+(?![\w-])")
"""One by itself: a count of machines, or of seconds. Digits of a name are none."""


def steady(reason: str) -> str:
    """Return what must change of a reason to be told of: its words, not what it counts."""
    return _NUMBER.sub("#", reason)


class WaitingReasons:
    """See the module.

    Args:
        access: asks the scheduler.
        hub: rings those who watch.
    """

    def __init__(self, access: Access, hub: EventHub) -> None:
        self._access = access
        self._hub = hub
        self._watchers: dict[str, int] = {}
        """How many watch each job, the one that was looked at longest ago first."""
        self._known: dict[str, str] = {}
        """What each of them waited for when the first one began to watch, or at the last look."""
        self._news = anyio.Event()

    @contextlib.contextmanager
    def watched(self, job_id: str, reason: str) -> Iterator[None]:
        """Have the job's watchers rung, for as long as the block lasts, when a look finds another reason than this.

        Who begins to watch, or watches again, rings nobody: else the watchers of one job would wake each other.
        """
        self._known.setdefault(job_id, reason)
        self._watchers[job_id] = self._watchers.get(job_id, 0) + 1
        self._news.set()
        try:
            yield
        finally:
            self._watchers[job_id] -= 1
            if not self._watchers[job_id]:
                del self._watchers[job_id], self._known[job_id]

    def known(self, job_id: str, reason: str) -> str:
        """Return what a job that is watched waited for at the last look; ``reason`` if nobody watches it."""
        return self._known.get(job_id, reason)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            while self._watchers:
                await anyio.sleep(LOOK_INTERVAL_S)
                if self._watchers:  # all may have left meanwhile
                    await self.look()

    async def look(self) -> None:
        """Ask once, and ring those whose job waits for another reason now."""
        try:
            answer: JobReasons = await self._access.ask("/jobs/scheduler", ExplainJobs(tuple(self._watchers)))
        except OperationError as error:
            # It is being started; the next look comes.
            log.debug("reasons are not known now: %s: %s", type(error).__name__, error)
            return
        for job_id, reason in answer.reasons:
            if job_id in self._watchers:
                self._watchers[job_id] = self._watchers.pop(job_id)
                before, self._known[job_id] = self._known[job_id], reason
                if steady(before) != steady(reason):
                    self._hub.ring(job_id)
