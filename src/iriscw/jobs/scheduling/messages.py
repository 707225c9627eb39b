"""What is asked of the scheduler about what waits."""

from __future__ import annotations

from iriscw.runtime.vocabulary import message


@message
class ExplainDemandJobs:
    """Asked of the scheduler: which jobs have tasks that wait as these demands.

    Answered with a tuple of ``(demand_id, job_ids)`` of those that are known: the first few jobs of each.
    """

    demand_ids: tuple[str, ...]


@message
class ExplainPending:
    """Asked of the scheduler: why does this job's pending task wait? Answered with one sentence."""

    job_id: str


@message
class ExplainJobs:
    """Asked of the scheduler: why do the pending tasks of these jobs wait? Answered with :class:`JobReasons`."""

    job_ids: tuple[str, ...]


@message
class JobReasons:
    """One sentence for each job, in the order of the question; ``rest`` are to be asked for again.

    Jobs whose tasks are placed alike share their reason. A step looks at so many workers and no more.
    """

    reasons: tuple[tuple[str, str], ...]
    rest: tuple[str, ...]
