"""The controller under faults: seeds in three sizes, and what the world itself promises."""

import ast
import inspect
import os
import subprocess
import sys
import textwrap

import attrs
import pytest

from iriscw.jobs.model import JobState
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims import fleet_checks, job_checks
from iriscw_sims.pace import QUICK, TIMING, rest_bound
from iriscw_sims.swarm import RESTART_FAULTS, Fault, draw_plan
from iriscw_sims.world import World

SEEDS = 8
"""What `make test` runs."""

SLOW_SEEDS = 608
"""Of those up to here `.ci/run` has a third."""

SOAK_SEEDS = 10_000
BATCH = 40

REGRESSIONS = {
    24: "a group decided on notes that a decision without its records had left",
    429: "slices that were let go before their promise was on the disk",
    617: "an order that had waited in a socket for longer than the lease",
    1792: "a slice without workers on which an attempt lived by the journal only",
    2104: "a slice that was restarted, and lost all, never told the scheduler that its workers were gone",
    1987: "an attempt whose end waited for a stalled disk",
    4841: "the end of a suspended attempt, of which the check thought that its slice had been busy until then",
}
"""Seeds that once found something, and what it was."""

RESTARTS = {
    5: "workers that went while the controller was down, of a slice that stayed, were waited for",
    167: "a pool that took the name of one that had gone while its slice's pods had not was never deleted",
    53: "a slice was removed for having been idle before the disk was full",
    2712: "a worker was told to forget an end of which a job had not heard, because the journal took nothing",
    1121234: "an end on a worker whose pod had gone, untold: for the check its slice had been idle before",
}
"""The same for faults around restarts."""

PROGRAM = """
import sys
from iriscw_sims.world import World
for seed in (3,):
    sys.stdout.write(World(seed).run().trace + chr(10))
"""


def hold(seeds):
    """Run seeds; fail with the report of the first that breaks something."""
    for seed in seeds:
        run = World(seed).run()
        assert not run.violations, run.report


def test_some_seeds_hold():
    """No seed breaks an invariant."""
    hold(range(SEEDS))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", REGRESSIONS)
def test_seeds_that_found_something_hold(seed):
    """What was found once stays fixed. The plan is the one of then: faults around restarts came later."""
    plan = draw_plan(seed)
    for kind in RESTART_FAULTS:
        plan = plan.without(kind)
    run = World(seed, plan).run()
    assert not run.violations, run.report


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", RESTARTS)
def test_seeds_that_found_something_around_a_restart_hold(seed):
    """What was found once stays fixed."""
    hold([seed])


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("first", range(SEEDS, SLOW_SEEDS, BATCH))
def test_many_seeds_hold(first):
    """No seed breaks an invariant, in a larger sample."""
    hold(range(first, first + BATCH))


@pytest.mark.soak
@pytest.mark.parametrize("first", range(SLOW_SEEDS, SLOW_SEEDS + SOAK_SEEDS, BATCH))
def test_thousands_of_seeds_hold(first):
    """No seed breaks an invariant, in a sample that takes minutes."""
    hold(range(first, first + BATCH))


def test_one_seed_gives_one_trace():
    """The same seed gives the same trace in another process with other hashes."""
    ours = "".join(World(seed).run().trace + "\n" for seed in (3,))
    environment = {**os.environ, "PYTHONHASHSEED": "4711"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == ours


def test_another_seed_gives_another_trace():
    """The trace depends on the seed."""
    assert World(3).run().trace != World(15).run().trace


def test_without_faults_all_jobs_end_as_they_should(calm_plan):
    """In a calm world every job succeeds that nobody stops."""
    plan = calm_plan(2)
    patient = {"timeout_ns": 0, "scheduling_timeout_ns": 0}
    jobs = tuple(attrs.evolve(job, terminate_after=None, spec=attrs.evolve(job.spec, **patient)) for job in plan.jobs)
    world = World(2, attrs.evolve(plan, jobs=jobs))
    run = world.run()
    assert not run.violations, run.report
    ends = [job.ended for job in world.job_checks.jobs.values() if not job.terminated]
    assert ends == [JobState.SUCCEEDED] * len(ends) != []


def test_the_plan_decides_what_happens(calm_plan):
    """A plan with one fault has exactly that fault."""
    plan = attrs.evolve(calm_plan(0), faults=(Fault(30_000_000_000, "controller crashes", 7),))
    run = World(0, plan).run()
    assert dict(run.fired) == {"controller crashes": 1, "controller down": 1}


def test_a_failure_says_how_to_repeat_it():
    """The report names the seed, what was broken, the faults that fired, the trace and the command."""
    world = World(0)
    world.simulation.call_after(60_000_000_000, world.violate, "X1", "planted")
    run = world.run()
    assert run.violations == ("INV-X1: planted",)
    for part in ("seed 0", "INV-X1: planted", "faults that fired", run.trace, "iriscw sim replay 0"):
        assert part in run.report


def test_a_job_that_never_ends_is_found(monkeypatch):
    """Liveness is checked: a world that does not come to rest within its bound is broken."""
    world = World(0, pace=attrs.evolve(QUICK, converge=100_000_000_000))
    monkeypatch.setattr(world.job_checks, "unfinished", lambda: "not ended: planted")
    assert world.run().violations[0].startswith("INV-liveness: not at rest 100 s after")


def test_the_bound_of_liveness_follows_from_the_delays(calm_plan):
    """It is what the slowest group's own delays and the driver's add up to; nobody has to guess it."""
    plan = calm_plan(0)
    assert World(0, plan).converge == rest_bound(QUICK.driver, [TIMING]) == 925 * SECOND
    slow = attrs.evolve(TIMING, startup_grace=TIMING.startup_grace + 50 * SECOND)
    groups = (attrs.evolve(plan.groups[0], timing=slow), *plan.groups[1:])
    assert World(0, attrs.evolve(plan, groups=groups)).converge == 1025 * SECOND


def test_a_group_that_churned_has_more_time(monkeypatch):
    """It does less for as long as it remembers: that is its right, for half an hour, and no longer."""
    world = World(0, pace=attrs.evolve(QUICK, converge=100_000_000_000))
    monkeypatch.setattr(world.job_checks, "unfinished", lambda: "not ended: planted")
    monkeypatch.setattr(world.fleet_checks, "churns", lambda: True)
    assert world.run().violations[0].startswith("INV-liveness: not at rest 1900 s after")


def test_plans_are_drawn_from_the_seed_alone():
    """Equal seeds draw equal plans, others draw others."""
    assert draw_plan(5) == draw_plan(5)
    assert draw_plan(5) != draw_plan(6)


@pytest.mark.parametrize(
    ("module", "checks"), [(fleet_checks, fleet_checks.FleetChecks), (job_checks, job_checks.JobChecks)]
)
def test_checks_hear_of_all_that_they_judge(module, checks):
    """Whoever adds a message to ``delivered`` and not to ``HEARD`` would have a check that is never asked."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(checks.delivered)))
    judged = [node.cls.id for node in ast.walk(tree) if isinstance(node, ast.MatchClass)]
    judged += [
        node.args[1].id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "isinstance"
        and ast.unparse(node.args[0]) == "message"
    ]
    assert judged
    assert sorted(judged) == sorted(kind.__name__ for kind in module.HEARD)
