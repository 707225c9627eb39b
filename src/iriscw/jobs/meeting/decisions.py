"""What a job makes of where its tasks are reached: see :mod:`iriscw.jobs.meeting.places`."""

from __future__ import annotations

from collections.abc import Iterator

from iriscw.jobs.job.ends import Ends
from iriscw.jobs.job.ledger import JobLedger
from iriscw.jobs.meeting.messages import EndpointPage, EndpointRow, EndpointsChanged, ListEndpoints
from iriscw.jobs.meeting.places import LEADER, is_met
from iriscw.jobs.messages import MAX_PAGE, StartRest
from iriscw.jobs.model import TASK_TERMINAL, Ending, Observation, Suspension, TaskState
from iriscw.jobs.records import GangMet
from iriscw.runtime.vocabulary import Context, Continue, Emit, Outcome, Reply


def heard(ledger: JobLedger, index: int, seen: Observation, ends: Ends) -> None:
    """Take note of where an attempt is reached; once it is the leader's, have the others started."""
    if seen.ending is None and seen.host and seen.suspension is not Suspension.SUSPENDED:
        reached = (seen.host, seen.ports)
        if ledger.reached.get(seen.uid) != reached:
            ledger.reached[seen.uid] = reached
            ends.commands.append(Emit(EndpointsChanged(ledger.job_id)))
    if ledger.gang and index == LEADER and not is_met(ledger) and _has_begun(seen):
        ends.records.append(GangMet(seen.uid, seen.host, seen.rendezvous_port))
        ends.commands.append(Continue(StartRest(tuple(ledger.live), 0)))


def _has_begun(seen: Observation) -> bool:
    return seen.ending is Ending.SUCCEEDED or (seen.ending is None and seen.state is TaskState.RUNNING)


def list_endpoints(ledger: JobLedger, message: ListEndpoints, ctx: Context) -> Outcome:
    """Say where the tasks are reached that live."""
    if ctx.reply_to is None:
        return None
    start = max(message.start, 0)
    end = min(start + min(max(message.limit, 1), MAX_PAGE), ledger.spec.replicas)
    over = tuple(index for index in range(start, end) if ledger.state_of(index) in TASK_TERMINAL)
    more = end if end < ledger.spec.replicas else -1
    return (Reply(EndpointPage(tuple(_rows(ledger, start, end)), over, more, ledger.ended is not None)),)


def _rows(ledger: JobLedger, start: int, end: int) -> Iterator[EndpointRow]:
    for index in range(start, end):
        attempt = ledger.holder(index)
        reached = None if attempt is None else ledger.reached.get(attempt.uid)
        if attempt is not None and reached is not None:
            yield EndpointRow(index, attempt.uid, *reached)
