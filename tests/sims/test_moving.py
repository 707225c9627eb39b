"""Tasks that simulated users suspend, and have go on."""

import attrs
import pytest

from iriscw.jobs.messages import TaskChanged
from iriscw.jobs.model import Ending, JobState, TaskState
from iriscw.jobs.suspension.messages import ResumeTask, SuspendTask
from iriscw.jobs.suspension.model import Stage
from iriscw.jobs.suspension.records import AttemptResumed, AttemptResuming, AttemptSuspended, CheckpointDropped
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.swarm import MOVE_CHANCES, MOVE_FAULTS, STOPS_AMID_A_MOVE, SUSPENDS, Fault, draw_plan
from iriscw_sims.world import World

LONG = ("attempt runs long", 1000)


@pytest.fixture
def moving_plan(calm_plan):
    """Return a calm plan of one job of one task that runs for a while, in which users suspend tasks at some moments."""

    def make(*moments, faults=(), rates=(), **spec):
        plan = calm_plan(2)
        group = attrs.evolve(plan.groups[0], num_vms=1, min_slices=0, max_slices=2, buffer_slices=0, quota_pool="")
        patient = {"timeout_ns": 0, "scheduling_timeout_ns": 0, "max_retries_preemption": 100, **spec}
        job = plan.jobs[0]
        job = attrs.evolve(job, at=0, terminate_after=None, spec=attrs.evolve(job.spec, **patient))
        job = attrs.evolve(job, spec=attrs.evolve(job.spec, replicas=1, group_by=None, constraints=()))
        asked = [Fault(at * SECOND, SUSPENDS, 1 << 16 | 2) for at in moments]
        return attrs.evolve(
            plan,
            groups=(group,),
            jobs=(job,),
            faults=tuple(sorted((*asked, *faults), key=lambda fault: fault.at)),
            rates=(LONG, *rates),
            safety=300 * SECOND,
        )

    return make


def written(world):
    """Note the records of suspensions that a world writes."""
    records, disk = [], world.system.disk
    before = disk.written

    def note(path, record):
        records.append(record)
        before(path, record)

    disk.written = note
    return records


def of(records, *kinds):
    """Return the records of some kinds."""
    return [record for record in records if isinstance(record, kinds)]


def runs_at(world):
    """Let time pass until the task runs; give the process."""
    while not world.job_checks.running:
        world.go_on(world.simulation.now + SECOND)
    (process,) = world.job_checks.running.values()
    return process


def suspended(world):
    """Have the task that runs suspended; give its attempt's uid."""
    order = runs_at(world).attempt.order
    world.go_on(world.simulation.now + 2 * SECOND)  # until its job knows that it runs
    world.system.question(f"/jobs/{order.job_id}", SuspendTask(order.index, "mine"))
    while world.move_checks.moves[order.uid].stage is not Stage.SUSPENDED:
        world.go_on(world.simulation.now + SECOND)
    return order.uid


def test_a_task_is_suspended_and_goes_on(moving_plan):
    """It keeps its attempt, which runs in one place at a time and ends well; its checkpoint goes."""
    world = World(2, moving_plan(60))
    records = written(world)
    run = world.run()
    assert not run.violations, run.report
    assert of(records, AttemptSuspended)
    assert len(of(records, AttemptSuspended)) == len(of(records, AttemptResumed)) == len(of(records, CheckpointDropped))
    (attempt,) = world.job_checks.attempts.values()
    assert attempt.ending is Ending.SUCCEEDED
    assert not world.freezing.checkpoints


def test_its_slice_may_go_away_meanwhile(moving_plan):
    """The attempt goes on with the worker of another slice: the same uid, and nothing counts as a loss."""
    world = World(2, moving_plan())
    records = written(world)
    uid = suspended(world)
    known = world.job_checks.attempts[uid]
    before = known.worker_id
    assert known.away
    assert not world.job_checks.running
    world.cloud.delete_pool_from_outside(before.rpartition("-")[0])
    world.go_on(world.simulation.now + 60 * SECOND)
    assert before not in [worker.worker_id for worker in world.workers.live]
    world.system.question(f"/jobs/{known.job_id}", ResumeTask(0, "mine"))
    run = world.run()
    assert not run.violations, run.report
    (named,) = of(records, AttemptResuming)
    assert named.worker_id != before
    assert known.ending is Ending.SUCCEEDED
    (job,) = world.job_checks.jobs.values()
    assert (job.ended, job.tasks[0].preemptions, job.tasks[0].failures) == (JobState.SUCCEEDED, 0, 0)


def test_a_stopped_job_leaves_no_checkpoint(moving_plan):
    """What is suspended ends with its job at once, and what was kept of it is removed."""
    world = World(2, moving_plan())
    uid = suspended(world)
    assert world.freezing.checkpoints
    world.users.terminate(world.job_checks.attempts[uid].job_id)
    world.go_on(world.simulation.now + 20 * SECOND)
    assert world.job_checks.attempts[uid].ending is Ending.KILLED
    assert not world.freezing.checkpoints
    run = world.run()
    assert not run.violations, run.report


def test_the_log_of_what_is_stopped_on_its_way_back_is_not_called_complete(moving_plan):
    """INV-J8: who was to bring it back knows nothing of the log that it wrote where it was before, and that is lost."""
    world = World(2, moving_plan(rates=(("log lost", 1000), ("thaw fails", 1000))))
    uid = suspended(world)
    known = world.job_checks.attempts[uid]
    world.system.question(f"/jobs/{known.job_id}", ResumeTask(0, "mine"))
    while world.move_checks.moves[uid].stage is not Stage.RESUMING:
        world.go_on(world.simulation.now + SECOND)
    world.users.terminate(known.job_id)
    run = world.run()
    assert not run.violations, run.report
    shown = [event for event in world.system.events if isinstance(event, TaskChanged) and event.uid == uid][-1]
    assert (shown.state, shown.log_offset, shown.logs_complete) == (TaskState.KILLED, known.log_bytes, False)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("chance", [name for name, _ in MOVE_CHANCES if name != LONG[0]])
def test_the_world_survives_each_thing_that_goes_wrong_with_a_move(chance, moving_plan):
    """One kind of chance alone, every second time, breaks nothing; and it does come true."""
    stored = (("suspension stored", 800),) if chance == "store fails" else ()
    plan = moving_plan(*range(30, 280, 8), rates=((chance, 500), *stored))
    run = World(2, plan).run()
    assert not run.violations, run.report
    assert dict(run.fired)[chance]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", MOVE_FAULTS)
def test_faults_find_the_attempts_that_move(kind, moving_plan):
    """They wait for one that is on its way, and strike then."""
    plan = moving_plan(*range(30, 280, 8), faults=[Fault(at * SECOND, kind, at * 7919) for at in range(20, 280, 40)])
    run = World(2, plan).run()
    assert not run.violations, run.report
    assert dict(run.fired)[kind] >= 3


def test_the_controller_may_stop_behind_each_record_of_a_move(moving_plan):
    """Within a few steps of any of them: the next controller goes on with what is written down."""
    stops = tuple(Fault(10 * SECOND, STOPS_AMID_A_MOVE, pick) for pick in range(0, 30, 3))
    plan = moving_plan(*range(30, 280, 4), faults=stops)
    world = World(2, plan)
    records = written(world)
    run = world.run()
    assert not run.violations, run.report
    assert dict(run.fired)[STOPS_AMID_A_MOVE] >= 3
    assert of(records, AttemptSuspended)


def test_plans_without_moves_are_what_they_were():
    """What is drawn for moves comes from a stream of its own: about a third of all plans have it."""
    plans = [draw_plan(seed) for seed in range(200)]
    moving = [plan for plan in plans if any(fault.kind == SUSPENDS for fault in plan.faults)]
    assert 40 <= len(moving) <= 80
    names = {name for name, _ in MOVE_CHANCES}
    for plan in plans:
        if plan not in moving and not any(job.spec.checkpoint_every_ns for job in plan.jobs):
            assert not names & {*dict(plan.rates)}
        if plan not in moving:
            assert not {*MOVE_FAULTS} & {fault.kind for fault in plan.faults}


def test_a_second_body_is_noticed(moving_plan):
    """INV-J2: whoever thaws a checkpoint for a worker that the disk does not name is found out."""
    world = World(2, moving_plan())
    uid = suspended(world)
    (checkpoint,) = world.freezing.checkpoints.values()
    (worker,) = world.workers.live
    world.move_checks.thawed(worker, checkpoint.uid)
    assert world.violations[0].startswith(f"INV-J2: {uid} comes back on")
