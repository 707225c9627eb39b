"""How the members of a gang find each other, and where tasks are reached.

**Where tasks are reached.** A worker says with each word on an attempt that it has started at which address and ports
that is reached. The job notes it for as long as the attempt lives with that worker, and journals nothing: a worker says
it all again when its stream begins, and nobody is told an address of an attempt that is over (INV-J9).

**How a gang begins.** Its members are told before they start where they stand (rank, node) and where their leader,
member 0, is reached. That address is known when the leader has started: only its worker knows which port is free, and
a pod has no address before it runs. So a gang begins in two steps::

    leader      ordered ------> its worker sets a port aside, starts it, reports host and port
    job         GangMet is written down, all others are ordered again
    others      ordered, wait -----------------------------------------------> start

A member that waits has its bundle meanwhile, holds its room and shows BUILDING. Each order says everything and may be
repeated, so a crash anywhere leads to the same: a worker that comes back reports the leader again, a job that comes
back orders all of them anew, as of the record. A leader of which no address is to be had (its worker is of an earlier
version; it has ended) is not waited for.

**After a retry.** A member that fails has the whole gang stopped and placed again, with another address of its leader;
a record about an earlier attempt of member 0 means nothing then. What has succeeded is not run again: if that is
member 0, the others are told where it was.
"""

from __future__ import annotations

from collections.abc import Iterable

from iriscw.jobs.job.ledger import JobLedger
from iriscw.jobs.messages import Placement
from iriscw.jobs.model import GangPlace
from iriscw.runtime.vocabulary import replace

LEADER = 0
"""The member at whose address the others meet."""


def is_met(ledger: JobLedger) -> bool:
    """Tell whether it is known where the leader of a gang is, or was."""
    task = ledger.tasks.get(LEADER)
    attempt = None if task is None else task.attempt
    return attempt is not None and ledger.met is not None and ledger.met.uid == attempt.uid


def place_of(ledger: JobLedger, index: int) -> GangPlace | None:
    """Say where a member of a gang stands; None where the job is none. Takes time in proportion to it at first."""
    if not ledger.gang:
        return None
    if ledger.ranks is None:
        ledger.ranks = ranks({each: task.attempt.worker_id for each, task in ledger.tasks.items() if task.attempt})
    place = ledger.ranks[index]
    if is_met(ledger):
        assert ledger.met is not None
        return replace(place, leader_host=ledger.met.host, leader_port=ledger.met.port)
    return replace(place, waits=not place.leads and ledger.holder(LEADER) is not None)


def places_of(ledger: JobLedger, placements: Iterable[Placement]) -> dict[int, GangPlace]:
    """Say where the members of a gang stand that are about to be recorded; nothing where the job is not a gang."""
    if not ledger.gang:
        return {}
    workers = {each: task.attempt.worker_id for each, task in ledger.tasks.items() if task.attempt}
    new = {each.index: each.worker_id for each in placements}
    leads = LEADER in new
    met = ledger.met if is_met(ledger) and not leads else None
    found = ranks({**workers, **new})
    host, port = ("", 0) if met is None else (met.host, met.port)
    return {
        index: replace(found[index], waits=leads and index != LEADER, leader_host=host, leader_port=port)
        for index in new
    }


def ranks(workers: dict[int, str]) -> dict[int, GangPlace]:
    """Order the members of a gang: by index on each worker, and the workers by their first members."""
    members: dict[str, list[int]] = {}
    for index in sorted(workers):
        members.setdefault(workers[index], []).append(index)
    return {
        index: GangPlace(local, len(here), node, len(members), leads=index == LEADER)
        for node, here in enumerate(members.values())
        for local, index in enumerate(here)
    }
