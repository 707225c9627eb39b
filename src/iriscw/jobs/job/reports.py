"""What a job tells a scheduler that asks: all it needs of the job, in parts of one step (INV-R10).

What lives is told part by part, what waits with the last one. In between attempts may end; that is told as over, in
order with the parts, so that the scheduler frees what a part has named. None is placed in between: the scheduler
places nothing for a job that reports.
"""

from __future__ import annotations

from iriscw.jobs.job.desired_attempts import latest_attempt, scheduler_of, stop_for
from iriscw.jobs.job.ledger import JobLedger
from iriscw.jobs.messages import JobReport, LiveAttempt, ReportRest
from iriscw.jobs.model import Attempt
from iriscw.jobs.step_limits import STEP_ATTEMPTS
from iriscw.jobs.suspension.model import SUSPENDING
from iriscw.jobs.suspension.moves import waiting_for, waits_for_worker
from iriscw.runtime.vocabulary import Command, Context, Continue, Tell


def report(ledger: JobLedger, token: int, ctx: Context) -> tuple[Command, ...]:
    """Tell the first part of it."""
    return report_part(ledger, ReportRest(token, (*ledger.live, *ledger.away), 0), ctx)


def report_part(ledger: JobLedger, rest: ReportRest, ctx: Context) -> tuple[Command, ...]:
    """Tell a part of it. What ends meanwhile is told as over, in order with the parts."""
    end = rest.first + STEP_ATTEMPTS
    more = end < len(rest.uids)
    live, suspended = [], []
    for uid in rest.uids[rest.first : end]:
        index = ledger.live.get(uid)
        if index is not None:
            attempt = latest_attempt(ledger, index)
            place = (attempt.worker_id, attempt.incarnation)
            live.append(LiveAttempt(uid, index, *place, attempt.placed_wall_ns, _leaves(ledger, uid, attempt)))
        elif uid in ledger.away and ledger.open and waits_for_worker(ledger.moves[uid]):
            suspended.append(waiting_for(uid, ledger.away[uid], ledger.moves[uid], ctx.wall))
    waits = more or (ledger.gang and bool(ledger.live))
    pending = () if waits else ledger.pending_ranges()
    report = JobReport(
        ledger.job_id,
        rest.token,
        ledger.order,
        ledger.spec,
        ledger.open,
        pending,
        tuple(live),
        more,
        tuple(suspended),
    )
    told = Tell(scheduler_of(ctx), report)
    return (told, Continue(ReportRest(rest.token, rest.uids, end))) if more else (told,)


def _leaves(ledger: JobLedger, uid: str, attempt: Attempt) -> bool:
    move = ledger.moves.get(uid)
    return stop_for(ledger, attempt) is not None or (move is not None and move.stage in SUSPENDING)
