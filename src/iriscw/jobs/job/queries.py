"""What a job is asked, and how it answers: with why its tasks wait, as the scheduler says it at that moment.

The job knows all but that. If tasks wait it asks the scheduler and answers when that has answered, or has not in time.
"""

from __future__ import annotations

from typing import Any

from iriscw.jobs.job import views
from iriscw.jobs.job.desired_attempts import scheduler_of
from iriscw.jobs.job.ledger import JobLedger
from iriscw.jobs.messages import DescribeJob, ListTasks
from iriscw.jobs.model import TaskState
from iriscw.jobs.scheduling.messages import ExplainPending
from iriscw.runtime.vocabulary import (
    SECOND,
    Command,
    Context,
    Outcome,
    Replied,
    Reply,
    ReplyTo,
    Request,
    RequestFailed,
)

EXPLAIN_TIMEOUT = 2 * SECOND
"""How long a description waits for the scheduler's reason."""

OWN_STATE = "the scheduler is starting; it gives its reasons in a moment"


def ask_reason(ledger: JobLedger, message: DescribeJob | ListTasks, ctx: Context) -> Outcome:
    """Answer at once, or with the scheduler's reason if tasks wait."""
    slot = ctx.reply_to
    if slot is None:
        return None
    if not ledger.open or not ledger.counts[TaskState.PENDING]:
        return (Reply(views.answer(ledger, message, "")),)
    # The question itself is the key: the answer needs it, and a durable actor keeps no notes.
    listing = (message.start, message.limit) if isinstance(message, ListTasks) else ()
    key = ("why", slot.slot, *listing)
    return (Request(scheduler_of(ctx), ExplainPending(ledger.job_id), key, EXPLAIN_TIMEOUT),)


def explained(ledger: JobLedger, message: Replied, ctx: Context) -> Outcome:
    """Pass the scheduler's reason on, and note it: if the tasks are given up, it is the best there is to say."""
    ledger.heard = str(message.value)
    return (_answer(ledger, message.key, ledger.heard),)


def unexplained(ledger: JobLedger, message: RequestFailed, ctx: Context) -> Outcome:
    """Answer without a reason of the scheduler: it has just started."""
    return (_answer(ledger, message.key, OWN_STATE),)


def _answer(ledger: JobLedger, key: Any, reason: str) -> Command:
    _, slot, *listing = key
    question = ListTasks(*listing) if listing else DescribeJob()
    return Reply(views.answer(ledger, question, reason), to=ReplyTo(slot))
