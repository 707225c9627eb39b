"""Losses while the controller is down, stops at the worst moment, and what is asked of those who come after."""

import attrs
import pytest

from iriscw.cloud.model import LABEL_SLICE
from iriscw.fleet.groups import rules as group_rules
from iriscw.fleet.messages import WorkersMissed
from iriscw.jobs.model import Ending, JobState
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.coreweave.settings import seconds
from iriscw_sims.pace import QUICK, TIMING
from iriscw_sims.restarts import CLOUD_LOST, MACHINES_LOST, MEETS_NEW, STOPS_BEHIND, Poison
from iriscw_sims.swarm import RESTART_FAULTS, Fault, draw_plan
from iriscw_sims.world import World

KILLED, CLOSED = 2 << 8, (2 << 8) + 1
"""Picks of a fault: the controller is down for three seconds, killed or closed in order."""


@pytest.fixture
def long_plan(calm_plan):
    """Return the plan of one job of two tasks that need a worker each, on one slice, and these faults."""

    def make(*faults, **timing):
        plan = calm_plan(2)
        group = attrs.evolve(
            plan.groups[0],
            num_vms=2,
            min_slices=0,
            max_slices=1,
            buffer_slices=0,
            quota_pool="",
            timing=attrs.evolve(TIMING, **timing),
        )
        (planned, *_) = plan.jobs
        spec = attrs.evolve(
            planned.spec,
            demand=group.per_worker,
            replicas=2,
            constraints=(),
            group_by=None,
            timeout_ns=0,
            scheduling_timeout_ns=0,
            max_retries_failure=0,
            max_retries_preemption=1,
            max_task_failures=0,
        )
        job = attrs.evolve(planned, at=0, spec=spec, terminate_after=None)
        return attrs.evolve(plan, groups=(group,), jobs=(job,), faults=faults, safety=300 * SECOND, takeover_delay=0)

    return make


def runs_for(world, span):
    """Have every attempt run for as long."""
    draw = world.workers.rng.randrange

    def drawn(least, *most):
        return span if most and least == SECOND else draw(least, *most)

    world.workers.rng.randrange = drawn


def the_job(world):
    """Return the one job, and the endings of all its attempts, oldest first."""
    (job,) = world.job_checks.jobs.values()
    return job, [each.ending for each in world.job_checks.attempts.values()]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("pick", [KILLED, CLOSED], ids=["killed", "closed"])
@pytest.mark.parametrize("kind", [CLOUD_LOST, MACHINES_LOST, STOPS_BEHIND, MEETS_NEW])
def test_what_is_lost_while_the_controller_is_down_counts_as_preempted(kind, pick, long_plan):
    """However the loss is told, each task loses one attempt, nothing fails, and the job succeeds."""
    world = World(3, long_plan(Fault(40 * SECOND, kind, pick | 2)))
    runs_for(world, 100 * SECOND)
    run = world.run()
    assert not run.violations, run.report
    assert dict(run.fired)[kind] == 1
    job, endings = the_job(world)
    assert endings == [Ending.WORKER_LOST] * 2 + [Ending.SUCCEEDED] * 2
    assert [(task.failures, task.preemptions) for task in job.tasks.values()] == [(0, 1)] * 2
    assert job.ended is JobState.SUCCEEDED


@pytest.mark.parametrize("lost", ["controller", "scheduler"])
def test_what_runs_beside_a_machine_that_is_gone_runs_on(lost, long_plan):
    """A slice that is incomplete for longer than any lease: its other worker is vouched for, and nothing runs twice."""
    patient = {"init_timeout": 250 * SECOND, "boot_timeout": 400 * SECOND, "startup_grace": 600 * SECOND}
    world = World(3, long_plan(**patient))
    runs_for(world, 180 * SECOND)
    gone_for = 200
    assert gone_for * SECOND > 60 * SECOND + QUICK.lease_grace

    def strike():
        site = world.cloud.coreweave.site
        site.settings = attrs.evolve(site.settings, repair=seconds(gone_for, gone_for))
        assert len(world.job_checks.running) == 2
        ours = [name for name, node in world.cloud.nodes.items() if node.labels.get(LABEL_SLICE) in world.cloud.pools]
        nodes = [name for name in ours if world.cloud.nodes[name].labels[LABEL_SLICE].startswith("iris-")]
        assert world.cloud.kill_node(nodes[0])
        if lost == "controller":
            world.crash(3)
        else:
            world.simulation.call_after(20 * SECOND, world.system.tell, "/jobs/scheduler", Poison())

    world.simulation.call_after(50 * SECOND, strike)
    run = world.run()
    assert not run.violations, run.report
    _, endings = the_job(world)
    assert sorted(ending.name for ending in endings) == ["SUCCEEDED", "SUCCEEDED", "WORKER_LOST"]


def test_an_order_to_close_ends_everything_in_order(long_plan):
    """A controller that closes has written all it promised, and its workers go on without it."""
    world = World(3, long_plan(Fault(40 * SECOND, "controller closes", KILLED)))
    runs_for(world, 100 * SECOND)
    run = world.run()
    assert not run.violations, run.report
    assert dict(run.fired) == {"controller closes": 1, "controller down": 1}
    assert the_job(world)[1] == [Ending.SUCCEEDED] * 2


def test_an_attempt_without_a_pod_is_not_waited_for_in_vain(long_plan, monkeypatch):
    """The check bites: with groups that do not answer who is missed, an attempt outlives its pod (J11)."""
    monkeypatch.setitem(group_rules.RULES, WorkersMissed, lambda *_: None)
    world = World(3, long_plan(Fault(40 * SECOND, MACHINES_LOST, KILLED | 2)))
    runs_for(world, 100 * SECOND)
    assert world.run().violations[0].startswith("INV-J11")


def test_plans_without_them_are_what_they_were():
    """Faults around restarts are drawn by themselves: taken out, they leave the rest of a plan as it was."""
    plan = draw_plan(3)
    for kind in RESTART_FAULTS:
        plan = plan.without(kind)
    assert [fault.kind for fault in plan.faults] == [
        fault.kind for fault in draw_plan(3).faults if fault.kind not in RESTART_FAULTS
    ]
