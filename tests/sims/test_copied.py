"""Tasks of which checkpoints are made while they run, in the simulated world."""

import attrs

from iriscw.jobs.suspension.effects import DropCheckpoint
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.copy_checks import COPY
from iriscw_sims.swarm import draw_plan
from iriscw_sims.world import World


def copied_plan(calm_plan, **spec):
    """Return a calm plan of one job of one task, which is copied while it runs for half a minute."""
    plan = calm_plan(2)
    group = attrs.evolve(plan.groups[0], num_vms=1, min_slices=0, max_slices=2, buffer_slices=0, quota_pool="")
    wanted = {
        "timeout_ns": 0,
        "scheduling_timeout_ns": 0,
        "replicas": 1,
        "group_by": None,
        "constraints": (),
        "checkpoint_every_ns": 10 * SECOND,
        "retry_from_checkpoint": True,
        "max_retries_failure": 20,
        **spec,
    }
    job = attrs.evolve(plan.jobs[0], at=0, terminate_after=None, spec=attrs.evolve(plan.jobs[0].spec, **wanted))
    return attrs.evolve(plan, groups=(group,), jobs=(job,), task_length=(30 * SECOND, 35 * SECOND))


def test_what_fails_goes_back_and_nothing_is_left(calm_plan):
    """As the same attempt, until it ends well; each life counts once."""
    world = World(2, attrs.evolve(copied_plan(calm_plan), rates=(("attempt fails", 1000),)))
    run = world.run()
    assert not run.violations, run.report
    (task,) = (task for job in world.job_checks.jobs.values() for task in job.tasks.values())
    assert world.copy_checks.went_back == task.failures > 0
    assert len(world.job_checks.attempts) == 1
    assert not world.freezing.checkpoints


def test_removing_what_is_kept_is_noticed(calm_plan):
    """INV-C10."""
    world = World(2, copied_plan(calm_plan))
    while not world.copy_checks.made:
        world.go_on(world.simulation.now + SECOND)
    (uid,) = world.copy_checks.copies
    world.copy_checks.drops(DropCheckpoint(f"{COPY}{uid}-1"))
    assert world.violations == [f"INV-C10: {COPY}{uid}-1 is to be removed, and is kept by the disk"]


def test_a_share_of_the_plans_has_them():
    """What is drawn for copies comes last, and from a stream of its own."""
    plans = [draw_plan(seed) for seed in range(200)]
    copied = [plan for plan in plans if any(job.spec.checkpoint_every_ns for job in plan.jobs)]
    assert 35 <= len(copied) <= 80
