"""What the scheduler answers who asks why tasks wait."""

from __future__ import annotations

from itertools import islice

from iriscw.jobs.scheduling import preempting
from iriscw.jobs.scheduling.messages import ExplainDemandJobs, ExplainJobs, ExplainPending, JobReasons
from iriscw.jobs.scheduling.queues import Shape
from iriscw.jobs.scheduling.reasons import explain
from iriscw.jobs.scheduling.refusals import explain_rest
from iriscw.jobs.scheduling.state import Scheduler, demand_id
from iriscw.runtime.vocabulary import Context, Outcome, Reply

EXPLAINED_HOSTS = 10_000
"""Looks at a worker in one step that gives reasons to a listing: about 10 ms."""


JOBS_TOLD = 3
"""Of one demand: who wants all of them lists the jobs that wait."""


def explain_demand_jobs(state: Scheduler, message: ExplainDemandJobs, ctx: Context) -> Outcome:
    """Say tasks of which jobs wait as some demand."""
    if ctx.reply_to is None:
        return None
    asked = dict.fromkeys(message.demand_ids)
    found = tuple(
        (demand_id(shape), tuple(job.job_id for job in islice(shape.jobs, JOBS_TOLD)))
        for shape in state.queues.blocked.values()
        if demand_id(shape) in asked
    )
    return (Reply(found),)


def explain_pending(state: Scheduler, message: ExplainPending, ctx: Context) -> Outcome:
    """Say why a job's tasks wait."""
    return None if ctx.reply_to is None else (Reply(_explain(state, message.job_id, ctx)),)


def explain_jobs(state: Scheduler, message: ExplainJobs, ctx: Context) -> Outcome:
    """Say why the tasks of several jobs wait, as far as one step may take it."""
    if ctx.reply_to is None:
        return None
    reasons: list[tuple[str, str]] = []
    said: dict[Shape, str] = {}
    looks = EXPLAINED_HOSTS
    for job_id in message.job_ids:
        job = state.jobs.get(job_id)
        shape = None if job is None or state.syncing else job.shape
        if shape is None or shape not in said:
            if looks <= 0:
                break
            looks -= 1 if shape is None else max(1, len(state.inventory.hosts))
            reason = _explain(state, job_id, ctx)
        else:
            reason = said[shape]
        if shape is not None:
            said[shape] = reason
        reasons.append((job_id, reason))
    return (Reply(JobReasons(tuple(reasons), message.job_ids[len(reasons) :])),)


def _explain(state: Scheduler, job_id: str, ctx: Context) -> str:
    if state.syncing:
        return f"the scheduler has just started and waits for {len(state.asked) + len(state.unasked)} jobs"
    job = state.jobs.get(job_id)
    if job is None or job.spec is None or not job.count:
        if job is not None and job.resting:
            return explain_rest(job, ctx.now)
        return "about to be placed" if job is not None else "waits for the job that it replaces to end"
    shape = job.shape
    assert shape is not None
    gang = (shape.gang, job.count) if shape.gang is not None else None
    reason = explain(state.inventory, shape.wish, gang=gang, now=ctx.now)
    routed = state.routed.get(demand_id(shape), "")
    said = (reason, preempting.waits_for(state, shape, ctx.now), preempting.behind(state, shape), routed)
    return "; ".join(each for each in said if each)
