"""What fills on a worker's machine: attempts are refused, or fail, for a reason with a name; and then not any more."""

import attrs
import pytest

from iriscw.cloud.model import Capacity
from iriscw.jobs.model import Ending
from iriscw.jobs.records import AttemptEnded
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.fills import KILLED, NO_SPACE, NO_VIDEO_MEMORY, OUT_OF_MEMORY, Fills
from iriscw_sims.swarm import Fault
from iriscw_sims.world import World

SEED = 17
"""Its first group has GPUs."""


def plan_of(calm_plan, kind="", **changes):
    """Return a plan with one job of many patient GPU tasks, and one kind of fault every 8 s."""
    plan = calm_plan(SEED)
    patient = {"timeout_ns": 0, "scheduling_timeout_ns": 0, "max_retries_failure": 100, "max_retries_preemption": 100}
    wants = Capacity(500, 1 << 30, gpu_count=2)
    spec = attrs.evolve(plan.jobs[0].spec, replicas=6, group_by=None, constraints=(), demand=wants, **patient)
    job = attrs.evolve(plan.jobs[0], at=30 * SECOND, spec=spec, terminate_after=None)
    faults = tuple(Fault(at * SECOND, kind, at * 7919) for at in range(20, plan.safety // SECOND, 8)) if kind else ()
    return attrs.evolve(plan, jobs=(job,), faults=faults, **changes)


def ends(plan):
    """Run a plan, and give how attempts ended: ending, exit code, reason, and what it counted for."""
    world, seen = World(SEED, plan), []
    written = world.system.disk.written

    def durable(path, record):
        if isinstance(record, AttemptEnded):
            seen.append((record.end.ending, record.end.exit_code, record.end.reason, record.failure, record.preemption))
        written(path, record)

    world.system.disk.written = durable
    run = world.run()
    assert not run.violations, run.report
    assert [ending for ending, *_ in seen].count(Ending.SUCCEEDED) == 6
    return seen


def test_without_faults_nothing_fails(calm_plan):
    """All six tasks succeed at once."""
    assert len(ends(plan_of(calm_plan))) == 6


@pytest.mark.parametrize(
    ("kind", "end"),
    [
        ("scratch disk full", (Ending.REFUSED, None, NO_SPACE, False, False)),
        ("video memory held", (Ending.FAILED, 1, NO_VIDEO_MEMORY, True, False)),
    ],
)
def test_what_is_full_has_a_name(kind, end, calm_plan):
    """A bundle that cannot be written counts for nothing, memory that is held for a failure; all end well."""
    assert end in ends(plan_of(calm_plan, kind))


def test_the_kernel_kills_an_attempt_without_its_pod(calm_plan):
    """Its worker goes on, and says so."""
    seen = ends(plan_of(calm_plan, rates=(("attempt out of memory", 500),)))
    assert (Ending.FAILED, KILLED, OUT_OF_MEMORY, True, False) in seen
    assert Ending.WORKER_LOST not in [ending for ending, *_ in seen]


class _World:
    """A clock."""

    def __init__(self):
        self.simulation, self.healed, self.now = self, False, 0


def test_room_is_given_back():
    """After a time, or when all is repaired; who wants no GPU does not care about its memory."""
    world = _World()
    fills, gpu = Fills(world), Capacity(gpu_count=1)
    assert not fills.refuses()
    fills.fill_scratch(5)
    fills.hold_video_memory(10)
    assert (fills.refuses(), fills.fails(gpu), fills.fails(Capacity(1))) == (NO_SPACE, NO_VIDEO_MEMORY, "")
    world.now = 5
    assert (fills.refuses(), fills.fails(gpu)) == ("", NO_VIDEO_MEMORY)
    world.healed = True
    assert not fills.fails(gpu)


def test_a_full_disk_is_less_capacity():
    """A worker that registers meanwhile does not promise what it does not have."""
    fills, has = Fills(_World()), Capacity(4000, 1 << 30, disk_bytes=1 << 40)
    assert fills.left_of(has) == has
    fills.fill_scratch(5)
    assert fills.left_of(has) == attrs.evolve(has, disk_bytes=0)
