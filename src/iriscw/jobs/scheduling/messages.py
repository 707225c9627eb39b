"""What is asked of the scheduler about demand."""

from __future__ import annotations

from iriscw.runtime.vocabulary import message


@message
class ExplainDemandJobs:
    """Asked of the scheduler: which jobs have tasks that wait as these demands.

    Answered with a tuple of ``(demand_id, job_ids)`` of those that are known: the first few jobs of each.
    """

    demand_ids: tuple[str, ...]
