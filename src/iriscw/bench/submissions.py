"""How many jobs one sync of the journal accepts: many submitters, one slow disk.

Here everything is real: the actor system on its event loop, ``/jobs`` and its children, and the journal in a file with
its writer thread. Only the time of a commit is injected, into that thread. Each submitter sends its next job when the
last one was acknowledged, so at most as many jobs as submitters are on their way, and one sync can accept at most that
many. There are no workers: what is measured is the promise, not the work.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import attrs

from iriscw.bench.plane import FLEET_CAPACITY, command
from iriscw.jobs.actor import REGISTRY_CAPACITY, jobs_behavior
from iriscw.jobs.messages import SubmitJob
from iriscw.jobs.model import AwaitLogs, WorkerStream
from iriscw.journal.sqlite import SqliteJournal
from iriscw.runtime.behavior import Behavior
from iriscw.runtime.edge.reference import ActorRef
from iriscw.runtime.edge.system import ActorSystem

ASK_TIMEOUT_S = 60.0
"""More than any commit that is injected takes; a submission that waits longer hangs."""


@attrs.frozen
class AcceptedSubmissions:
    """What some submitters got done.

    Args:
        jobs: acknowledged, each after its record was durable.
        commits: syncs of the journal in that time.
        largest_batch: journal entries that one of them wrote.
        cpu_s: thread CPU time of the event loop: encoding included, the writer thread not.
    """

    jobs: int
    commits: int
    largest_batch: int
    cpu_s: float

    @property
    def jobs_per_commit(self) -> float:
        """How many jobs one sync accepted, on average."""
        return self.jobs / self.commits


class _NoWorkers:
    """The doors of a cluster without workers: nothing ever dials in."""

    async def serve(self, session: WorkerStream, port: object) -> None:
        await anyio.sleep_forever()

    async def await_logs(self, effect: AwaitLogs) -> int:
        return effect.offset


async def accept(
    directory: Path,
    commit: Callable[[], None],
    submitters: int = 64,
    jobs_each: int = 20,
    started: Callable[[ActorSystem], None] = lambda system: None,
) -> AcceptedSubmissions:
    """Submit ``submitters * jobs_each`` jobs and count the commits that it takes.

    Args:
        directory: where the journal goes.
        commit: called within each commit, in the journal's thread; what it waits is the commit's time.
        submitters: jobs on their way at a time.
        jobs_each: jobs of one submitter, one after the other.
        started: called with the system before the first submission.
    """
    journal = SqliteJournal.open(directory, before_commit=commit)
    nothing = _NoWorkers()
    try:
        async with ActorSystem(journal=journal, seed="bench") as system:
            system.spawn("fleet", Behavior(decide=_ignore, initial=list, name="fleet"), capacity=FLEET_CAPACITY)
            jobs = system.spawn("jobs", jobs_behavior(nothing, nothing), capacity=REGISTRY_CAPACITY)
            started(system)
            before = journal.statistics().commits
            cpu_s = time.thread_time()
            async with anyio.create_task_group() as tasks:
                for number in range(submitters):
                    tasks.start_soon(_submit, jobs, number, jobs_each)
            cpu_s = time.thread_time() - cpu_s
            after = journal.statistics()
    finally:
        journal.close()
    return AcceptedSubmissions(submitters * jobs_each, after.commits - before, after.largest_batch, cpu_s)


def _ignore(state: Any, message: Any, ctx: Any) -> None:
    """Stand in for the fleet."""


async def _submit(jobs: ActorRef, number: int, count: int) -> None:
    for index in range(count):
        name = f"job-{number}-{index}"
        await jobs.ask(SubmitJob(command(name), name), timeout_s=ASK_TIMEOUT_S)


def accept_with(directory: Path, commit_s: float, jobs_each: int) -> AcceptedSubmissions:
    """Run :func:`accept` with 64 submitters on a loop of its own, with commits that take ``commit_s`` longer."""
    slow = functools.partial(time.sleep, commit_s)
    return anyio.run(functools.partial(accept, directory, slow, jobs_each=jobs_each))
