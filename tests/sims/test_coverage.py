"""What the seeds reach: every kind of fault, and every state that has a name."""

import attrs
import pytest

from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.coverage import POINTS, Coverage
from iriscw_sims.restarts import Poison
from iriscw_sims.swarm import FAULTS, RATES, Fault, draw_plan
from iriscw_sims.world import World

NEVER = {
    "ending: PREEMPTED": "nothing preempts yet: priority bands do not displace what runs",
    "task: PREEMPTED": "the same",
    "task: MISSING": "a word of the wire: such an attempt has the ending MISSING, and its task waits or is given up",
}
"""What no run can reach, and why. Whoever makes one of them possible takes it off this list."""

ARRANGED = {
    "group: churning": "three slices of one group have to die young within half an hour",
    "stream: waits for the jobs": "a link has to be new while the journal takes nothing",
    "stream: not all jobs have spoken": "the same, for longer than a link waits",
}
"""What no seed of the first 200 reaches, and a test below does."""


def test_points_are_told_apart():
    """Each point is listed once, and every fault and chance is one."""
    assert len(POINTS) == len(dict.fromkeys(POINTS))
    named = [point.partition(": ")[2] for point in POINTS if point.startswith(("fault", "chance"))]
    assert named == [*FAULTS, *dict(RATES)]
    assert {*NEVER, *ARRANGED} <= {*POINTS}


@pytest.mark.soak
def test_two_hundred_seeds_reach_everything():
    """All that can be reached is; what cannot, or only on purpose, is exactly what is listed. Nothing is broken."""
    coverage = Coverage()
    for seed in range(200):
        run = coverage.run(seed)
        assert not run.violations, run.report
    assert coverage.missing == tuple(point for point in POINTS if point in (*NEVER, *ARRANGED)), coverage.report()


def test_a_run_that_is_watched_is_the_same_run():
    """Looking changes nothing."""
    assert Coverage().run(3).trace == World(3).run().trace


def test_a_calm_world_reaches_no_fault(calm_plan):
    """What did not happen is not counted."""
    coverage = Coverage()
    coverage.run(2, calm_plan(2))
    reached = [point for point in POINTS if coverage.reached[point]]
    assert [point for point in reached if point.startswith(("fault", "chance"))] == []
    assert {"slice: ready", "task: SUCCEEDED", "stream: up", "place: registered", "group: available"} <= {*reached}
    assert "slice: ready                                                  reached by 1 of 1 seeds" in coverage.report()


def test_slices_that_die_young_stop_their_group(calm_plan):
    """Three slices that are lost soon after they were ready: the group is churning, and the job ends all the same."""
    plan = calm_plan(2)
    group = attrs.evolve(plan.groups[0], min_slices=1, max_slices=1, num_vms=1, buffer_slices=0, quota_pool="")
    faults = tuple(Fault(at * SECOND, "pool removed from outside", 0) for at in range(60, 900, 60))
    coverage = Coverage()
    run = coverage.run(2, attrs.evolve(plan, groups=(group,), jobs=(), faults=faults, safety=900 * SECOND))
    assert not run.violations, run.report
    assert coverage.reached["group: churning"]


def test_links_that_are_new_while_the_journal_takes_nothing_wait_for_jobs():
    """All links begin anew while the disk is full: workers speak before the jobs do, and nothing breaks."""
    plan = attrs.evolve(draw_plan(3), rates=(("worker dials twice", 200),))
    moments = range(40, plan.safety // SECOND, 45)
    faults = tuple(Fault(at * SECOND, "disk full", 39 << 8) for at in moments)
    world = World(3, attrs.evolve(plan, faults=faults))

    def poison_links():
        for path in [path for path in world.system.tree.cells if path.startswith("/jobs/links/")]:
            world.system.tell(path, Poison())

    for at in moments:
        world.simulation.call_after((at + 5) * SECOND, poison_links)
    coverage = Coverage()
    coverage.watch(world)
    run = world.run()
    coverage.count(world, run)
    assert not run.violations, run.report
    assert coverage.reached["stream: waits for the jobs"]
    assert coverage.reached["stream: not all jobs have spoken"]
