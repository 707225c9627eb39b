"""Work of a higher band takes the room of a lower one: scheduler, jobs and links, with scripted workers and agents."""

import attrs
import pytest
from jobs_world import ScriptedWorker, World, command_spec, worker_info

from iriscw.cloud.model import Capacity
from iriscw.fleet.messages import DemandChanged
from iriscw.jobs.actor import JobsConfig
from iriscw.jobs.messages import DescribeJob, ListTasks, TerminateJob
from iriscw.jobs.model import AttemptEnd, Band, Ending, JobState, Observation, Preemption, Suspension, TaskState
from iriscw.jobs.settings import JobSettings
from iriscw.jobs.suspension.effects import DropCheckpoint, FreezeAttempt, Frozen, ThawAttempt, Thawed
from iriscw.jobs.suspension.messages import ResumeTask, SuspendTask
from iriscw.runtime.vocabulary import SECOND

GIB = 1 << 30
RUNS = Observation("", TaskState.RUNNING, started=True)
PATIENCE = 12


def runs(order):
    """Run for ever; work of the band PRODUCTION for 30 s."""
    if order.spec.band is Band.PRODUCTION:
        end = Observation("", TaskState.RUNNING, AttemptEnd(Ending.SUCCEEDED, exit_code=0), started=True)
        return [(0.1, RUNS), (30, end)]
    return [(0.1, RUNS)]


class Bench:
    """A world whose workers have 4 CPUs each."""

    def __init__(self, workers=1, **config):
        self.world = World(script=runs, config=JobsConfig(**config))
        self.sim = self.world.sim
        self.world.add(*(worker_info(number, cpus=4) for number in range(workers)))

    def submit(self, name, band, cpus=4, **fields):
        """Submit a job; give its id."""
        demand = Capacity(cpu_milli=cpus * 1000, memory_bytes=GIB // 4)
        job = self.world.submit(command_spec(name, band=band, demand=demand, **fields))
        self.sim.advance(1)
        return job

    def rows(self, job):
        """Return a job's tasks."""
        return self.sim.ask(f"/jobs/{job}", ListTasks()).rows

    def states(self, job):
        """Return the states of a job's tasks, in short."""
        return [row.state.value for row in self.rows(job)]

    def why(self, job):
        """Return why a job waits."""
        return self.sim.ask(f"/jobs/{job}", DescribeJob()).pending_reason

    def effect(self, kind):
        """Take the one effect of a kind that waits."""
        (operation,) = [each for each in self.world.freezes if isinstance(each.effect, kind) and not each.ended]
        self.world.freezes.remove(operation)
        return operation

    def freeze(self, outcome=Frozen.FROZEN):
        """Answer the freeze."""
        operation = self.effect(FreezeAttempt)
        operation.complete(self.world.bodies.freeze(operation.effect, outcome))
        self.sim.advance(1)

    def thaw(self):
        """Answer the thaw."""
        operation = self.effect(ThawAttempt)
        operation.complete(self.world.bodies.thaw(operation.effect, Thawed.THAWED))
        self.sim.advance(1)

    def claims(self):
        """Return what is kept for somebody."""
        return self.sim.state("/jobs/scheduler").claims


def test_a_task_of_a_lower_band_is_stopped_and_waits_again():
    """It counts as a preemption; the other one runs in its place, and it comes back when that has ended."""
    bench = Bench()
    low = bench.submit("low", Band.BATCH)
    high = bench.submit("high", Band.PRODUCTION)
    assert bench.states(high) == ["PENDING"]
    bench.sim.advance(PATIENCE)
    assert (bench.states(high), bench.states(low)) == (["RUNNING"], ["PENDING"])
    (row,) = bench.rows(low)
    assert (row.preemptions, row.failures, row.ending, row.reason) == (
        1,
        0,
        Ending.PREEMPTED,
        "it gave way to high (production)",
    )
    assert not bench.claims().made
    bench.sim.advance(40)
    assert (bench.states(high), bench.states(low)) == (["SUCCEEDED"], ["RUNNING"])


def test_never_of_its_own_band_nor_where_it_is_switched_off():
    """Nor one that never gives way, nor where too little would come of it."""
    for band, fields, config in (
        (Band.PRODUCTION, {}, {}),
        (Band.BATCH, {"preemption": Preemption.NEVER}, {}),
        (Band.BATCH, {}, {"preempts": False}),
    ):
        bench = Bench(**config)
        low = bench.submit("low", band, **fields)
        high = bench.submit("high", Band.INTERACTIVE if band is Band.PRODUCTION else Band.PRODUCTION)
        bench.sim.advance(PATIENCE)
        assert (bench.states(low), bench.states(high)) == (["RUNNING"], ["PENDING"])
    bench = Bench()
    bench.submit("mine", Band.PRODUCTION, cpus=2)
    low = bench.submit("low", Band.BATCH, cpus=2)
    bench.submit("high", Band.PRODUCTION, cpus=4)
    bench.sim.advance(PATIENCE)
    assert bench.states(low) == ["RUNNING"]


def test_room_that_comes_by_itself_costs_nobody_anything():
    """A task waits a while before anybody has to give way."""
    bench = Bench()
    low = bench.submit("low", Band.BATCH)
    high = bench.submit("high", Band.PRODUCTION)
    bench.sim.advance(5)
    bench.world.add(worker_info(1, cpus=4))
    bench.sim.advance(PATIENCE)
    assert (bench.states(low), bench.states(high)) == (["RUNNING"], ["RUNNING"])


def test_what_waits_says_for_whom_and_the_fleet_is_not_asked_for_it(monkeypatch):
    """While its victim leaves, room is kept for it: a smaller task of its own band does not take that."""
    bench = Bench()
    bench.submit("low", Band.BATCH)
    high = bench.submit("high", Band.PRODUCTION)
    monkeypatch.setattr(ScriptedWorker, "becomes", lambda worker, seen: None)  # it ends nothing
    bench.sim.advance(PATIENCE)
    assert "1 attempt of low must give way first, on slice-0-0, since" in bench.why(high)
    demand = [each for each in bench.world.heard if isinstance(each, DemandChanged)][-1]
    assert demand.entries == ()
    small = bench.submit("small", Band.PRODUCTION, cpus=1)
    assert bench.states(small) == ["PENDING"]
    late = bench.submit("late", Band.BATCH, cpus=1)
    assert "1 task of a higher band waits, too" in bench.why(late) or "2 tasks of higher bands" in bench.why(late)


def test_one_that_is_frozen_keeps_its_budget_and_comes_back_by_itself():
    """It is brought back when there is room on its machine, and not before."""
    bench = Bench()
    low = bench.submit("low", Band.BATCH, preemption=Preemption.FREEZE)
    high = bench.submit("high", Band.PRODUCTION)
    bench.sim.advance(PATIENCE)
    (row,) = bench.rows(low)
    assert (row.suspension.phase, row.suspension.reason) == (
        Suspension.SUSPENDING,
        "it gives way to high (production)",
    )
    bench.freeze()
    (row,) = bench.rows(low)
    assert row.suspension.phase is Suspension.SUSPENDED
    assert row.suspension.reason == "it gives way to high (production); waits for a worker with room on node"
    assert bench.states(high) == ["RUNNING"]
    bench.sim.advance(31)
    assert bench.states(high) == ["SUCCEEDED"]
    bench.thaw()
    (row,) = bench.rows(low)
    assert (row.state, row.suspension.phase, row.preemptions) == (TaskState.RUNNING, Suspension.NONE, 0)
    assert len(bench.world.starts) == 2, "the one that was frozen was not started anew"


def test_it_stays_frozen_while_a_task_of_a_higher_band_waits_that_would_have_it_leave_again():
    """No ping-pong: room for a part of what waits is not given to who gave way before."""
    bench = Bench()
    low = bench.submit("low", Band.BATCH, cpus=2, preemption=Preemption.FREEZE)
    other = bench.submit("other", Band.BATCH, cpus=2)
    first = bench.submit("first", Band.PRODUCTION, cpus=2)
    bench.sim.advance(PATIENCE)
    bench.freeze()
    bench.sim.advance(25)
    second = bench.submit("second", Band.PRODUCTION, cpus=4)
    bench.sim.advance(6)
    assert bench.states(first) == ["SUCCEEDED"]
    assert [row.suspension.phase for row in bench.rows(low)] == [Suspension.SUSPENDED]
    bench.sim.advance(PATIENCE)
    assert (bench.states(second), bench.states(other)) == (["RUNNING"], ["PENDING"])
    bench.sim.advance(31)
    bench.thaw()
    assert (bench.states(low), bench.states(other)) == (["RUNNING"], ["RUNNING"])


def test_nobody_is_held_back_for_what_could_not_run_anyway():
    """A task for which there is no room, whoever leaves, keeps nobody frozen."""
    bench = Bench()
    low = bench.submit("low", Band.BATCH, cpus=2, preemption=Preemption.FREEZE)
    bench.submit("fixed", Band.BATCH, cpus=2, preemption=Preemption.NEVER)
    bench.submit("first", Band.PRODUCTION, cpus=2)
    bench.sim.advance(PATIENCE)
    bench.freeze()
    bench.submit("never", Band.PRODUCTION, cpus=4)
    bench.sim.advance(31)
    bench.thaw()
    assert bench.states(low) == ["RUNNING"]


def test_nobody_is_held_back_where_all_of_lower_bands_are_suspended():
    """Nobody could leave for what waits: it keeps nobody frozen either."""
    bench = Bench()
    bench.submit("mine", Band.INTERACTIVE, cpus=2)
    low = bench.submit("low", Band.BATCH, cpus=2)
    bench.sim.ask(f"/jobs/{low}", SuspendTask(0, "s"))
    bench.sim.advance(1)
    bench.freeze()
    bench.submit("never", Band.INTERACTIVE, cpus=4)
    bench.sim.ask(f"/jobs/{low}", ResumeTask(0, "r"))
    bench.sim.advance(PATIENCE)
    bench.thaw()
    assert bench.states(low) == ["RUNNING"]


def test_what_cannot_be_frozen_is_stopped():
    """Its freeze is undone, or takes too long, or it has not begun."""
    bench = Bench(settings=JobSettings(yield_limit_ns=20 * SECOND))
    low = bench.submit("low", Band.BATCH, preemption=Preemption.FREEZE)
    high = bench.submit("high", Band.PRODUCTION)
    bench.sim.advance(PATIENCE)
    bench.freeze(Frozen.UNDONE)
    assert (bench.states(high), [row.preemptions for row in bench.rows(low)]) == (["RUNNING"], [1])
    bench.sim.advance(31)
    late = bench.submit("late", Band.PRODUCTION)
    bench.sim.advance(PATIENCE)
    assert bench.effect(FreezeAttempt)
    assert bench.states(late) == ["PENDING"]
    bench.sim.advance(20)
    assert (bench.states(late), [row.preemptions for row in bench.rows(low)]) == (["RUNNING"], [2])
    assert bench.effect(DropCheckpoint), "what the freeze may have made after all is removed"


def test_a_freeze_that_somebody_asked_for_goes_on():
    """Its room comes back when it is done; nobody is stopped, and it stays suspended as it was asked for."""
    bench = Bench()
    low = bench.submit("low", Band.BATCH)
    bench.sim.ask(f"/jobs/{low}", SuspendTask(0, "mine"))
    high = bench.submit("high", Band.PRODUCTION)
    bench.sim.advance(PATIENCE)
    assert [row.suspension.phase for row in bench.rows(low)] == [Suspension.SUSPENDING]
    bench.freeze()
    assert bench.states(high) == ["RUNNING"]
    bench.sim.advance(40)
    (row,) = bench.rows(low)
    assert (row.suspension.phase, row.suspension.resuming, row.preemptions) == (Suspension.SUSPENDED, False, 0)
    bench.sim.ask(f"/jobs/{low}", ResumeTask(0, "go"))
    bench.sim.advance(1)
    bench.thaw()
    assert bench.states(low) == ["RUNNING"]


def test_one_whose_asked_for_freeze_is_undone_gives_way_then():
    """It was left alone, and has to leave all the same."""
    bench = Bench()
    low = bench.submit("low", Band.BATCH)
    bench.sim.ask(f"/jobs/{low}", SuspendTask(0, "mine"))
    high = bench.submit("high", Band.PRODUCTION)
    bench.sim.advance(PATIENCE)
    bench.freeze(Frozen.UNDONE)
    assert (bench.states(high), [row.ending for row in bench.rows(low)]) == (["RUNNING"], [Ending.PREEMPTED])


def test_a_gang_takes_room_whole_and_gives_it_whole():
    """For a gang of two as many leave as it needs on one slice; of a gang that leaves one task counts a preemption."""
    bench = Bench(workers=0)
    bench.world.add(*(worker_info(number, cpus=4, slice_id="s") for number in range(2)))
    gang = bench.submit("gang", Band.BATCH, replicas=2, group_by="slice-id")
    assert bench.states(gang) == ["RUNNING", "RUNNING"]
    high = bench.submit("high", Band.PRODUCTION, replicas=2, group_by="slice-id")
    bench.sim.advance(PATIENCE)
    assert bench.states(high) == ["RUNNING", "RUNNING"]
    assert (bench.states(gang), sum(row.preemptions for row in bench.rows(gang))) == (["PENDING", "PENDING"], 1)
    assert {row.reason for row in bench.rows(gang)} == {
        "it gave way to high (production)",
        "stopped because its gang gave way to high (production)",
    }
    bench.sim.advance(40)
    assert bench.states(gang) == ["RUNNING", "RUNNING"]


def test_nobody_leaves_for_half_a_gang():
    """Where one of its workers is taken by its own band there is no room, whoever left on the other."""
    bench = Bench(workers=0)
    bench.world.add(*(worker_info(number, cpus=4, slice_id="s") for number in range(2)))
    bench.submit("mine", Band.PRODUCTION, cpus=3, preemption=Preemption.NEVER)
    low = bench.submit("low", Band.BATCH, cpus=4)
    bench.submit("high", Band.PRODUCTION, replicas=2, group_by="slice-id")
    bench.sim.advance(PATIENCE)
    assert bench.states(low) == ["RUNNING"]


def test_many_tasks_take_as_many_as_they_need_and_no_more():
    """Three tasks of one CPU take the three youngest of four."""
    bench = Bench()
    lows = [bench.submit(f"low{number}", Band.BATCH, cpus=1) for number in range(4)]
    high = bench.submit("high", Band.INTERACTIVE, cpus=1, replicas=3)
    bench.sim.advance(PATIENCE)
    assert bench.states(high) == ["RUNNING"] * 3
    assert [bench.states(low) for low in lows] == [["RUNNING"], *[["PENDING"]] * 3]


def test_a_restart_does_not_choose_anew(monkeypatch):
    """A controller that comes back while a victim leaves asks nobody else; the victim leaves all the same."""
    bench = Bench(workers=2)
    low, other = (bench.submit(name, Band.BATCH) for name in ("low", "other"))
    high = bench.submit("high", Band.PRODUCTION)
    slow = []
    becomes = ScriptedWorker.becomes
    monkeypatch.setattr(
        ScriptedWorker,
        "becomes",
        lambda worker, seen: slow.append((worker, seen)) if seen.ending else becomes(worker, seen),
    )
    bench.sim.advance(PATIENCE)
    assert len(slow) == 1
    bench.sim.crash()
    bench.sim.restart()
    bench.sim.advance(30)
    for worker, seen in slow:
        becomes(worker, seen)
    bench.sim.advance(5)
    states = [bench.states(each) for each in (low, other, high)]
    assert sorted(states) == [["PENDING"], ["RUNNING"], ["RUNNING"]]
    assert bench.states(high) == ["RUNNING"]


def test_claims_end_with_whoever_waited():
    """Room is everybody's again when the job that it was kept for is withdrawn."""
    bench = Bench()
    low = bench.submit("low", Band.BATCH, preemption=Preemption.FREEZE)
    high = bench.submit("high", Band.PRODUCTION)
    bench.sim.advance(PATIENCE)
    assert bench.claims().made
    bench.sim.ask("/jobs", TerminateJob(high))
    bench.sim.advance(1)
    assert not bench.claims().made
    bench.freeze()
    bench.thaw()
    assert bench.states(low) == ["RUNNING"]
    assert attrs.asdict(bench.sim.state("/jobs/scheduler").inventory.hosts["slice-0-0"].free)["cpu_milli"] == 0
    assert bench.sim.ask(f"/jobs/{high}", DescribeJob()).state is JobState.KILLED


@pytest.mark.parametrize("ends", ["withdrawn", "too late"])
def test_room_that_is_kept_no_longer_is_given_at_once(ends):
    """A smaller task behind waits for nothing else to happen."""
    bench = Bench(settings=JobSettings(yield_limit_ns=5_000 * SECOND))
    bench.submit("low", Band.BATCH, cpus=2, preemption=Preemption.FREEZE)
    high = bench.submit("high", Band.PRODUCTION)
    bench.sim.advance(PATIENCE)
    behind = bench.submit("behind", Band.BATCH, cpus=2)
    bench.sim.advance(5)
    assert bench.states(behind) == ["PENDING"]
    if ends == "withdrawn":
        bench.sim.ask("/jobs", TerminateJob(high))
        bench.sim.advance(2)
    else:
        bench.sim.advance(900)
    assert (bench.claims().made, bench.states(behind)) == ({}, ["RUNNING"])


def test_no_room_is_kept_for_tasks_that_found_some_elsewhere():
    """Of three tasks two are placed on workers that came meanwhile: room for one is kept."""
    bench = Bench(workers=3)
    bench.submit("low", Band.BATCH, preemption=Preemption.FREEZE, replicas=3)
    high = bench.submit("high", Band.PRODUCTION, replicas=3)
    bench.sim.advance(PATIENCE)
    assert len(bench.claims().made) == 3
    bench.world.add(*(worker_info(number, cpus=4) for number in (7, 8)))
    bench.sim.advance(3)
    assert (sorted(bench.states(high)), len(bench.claims().made)) == (["PENDING", "RUNNING", "RUNNING"], 1)
