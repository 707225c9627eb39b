"""Attempts that would run for ever."""

import attrs

from iriscw.jobs.model import Ending
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.world import World


def test_attempts_that_never_end_are_stopped(calm_plan):
    """Every attempt hangs: each is stopped by its job's timeout, and the job ends as its budgets say (iris 4)."""
    plan = calm_plan(2)
    patient = {"timeout_ns": 30 * SECOND, "scheduling_timeout_ns": 0, "max_retries_failure": 1}
    jobs = tuple(attrs.evolve(job, terminate_after=None, spec=attrs.evolve(job.spec, **patient)) for job in plan.jobs)
    world = World(2, attrs.evolve(plan, jobs=jobs[:1], rates=(("attempt never ends", 1000),)))
    run = world.run()
    assert not run.violations, run.report
    endings = [attempt.ending for attempt in world.job_checks.attempts.values()]
    assert Ending.TIMED_OUT in endings
