"""A member of a gang that ends before the cause of it is known: what it did because another was lost is no failure."""

import attrs
import pytest
from jobs_world import ScriptedWorker, World, command_spec, worker_info

from iriscw.fleet.messages import WorkerLost
from iriscw.jobs.messages import DescribeJob, ListTasks, TerminateJob
from iriscw.jobs.model import AttemptEnd, Ending, JobState, Observation, TaskState
from iriscw.jobs.records import AttemptEnded
from iriscw.jobs.step_limits import STEP_ATTEMPTS

RUNS = [(0.1, Observation("", TaskState.RUNNING, started=True))]
FAILS = Observation("", TaskState.RUNNING, AttemptEnd(Ending.FAILED, exit_code=1), True)
OVERRUN = Observation("", TaskState.RUNNING, AttemptEnd(Ending.TIMED_OUT, exit_code=-9), True)
SUCCEEDS = Observation("", TaskState.RUNNING, AttemptEnd(Ending.SUCCEEDED, exit_code=0), True)


class Pair:
    """A gang on a slice of machines, one member each; the machine of member 0 can go, and the others notice first."""

    def __init__(self, size=2, **fields):
        self.endings = {}
        self.world = World(script=self.script)
        self.sim = self.world.sim
        self.size = size
        self.world.add(*(worker_info(number, cpus=1, slice_id="s") for number in range(size)))
        spec = command_spec(replicas=size, group_by="slice-id", max_retries_preemption=1, **fields)
        self.job_id = self.world.submit(spec)
        self.path = f"/jobs/{self.job_id}"
        self.sim.advance(2)

    def script(self, order):
        """Run; end as it was said for this run of the member."""
        return [*RUNS, *self.endings.get((order.index, order.number), [])]

    @property
    def ledger(self):
        """The job's."""
        return self.sim.state(self.path)

    def uid(self, index):
        """The latest attempt of a member."""
        return self.ledger.tasks[index].attempt.uid

    def worker(self, index):
        """The worker of a member."""
        return self.world.workers[self.ledger.tasks[index].attempt.worker_id]

    def ends(self, index, seen=FAILS):
        """Have a member's worker say that it ended by itself."""
        self.worker(index).becomes(attrs.evolve(seen, uid=self.uid(index)))
        self.sim.run_until_idle()

    def loses(self, index):
        """Have the machine of a member go: nobody is told."""
        worker = self.worker(index)
        worker.hang_up()
        worker.connected = False
        return worker

    def learns(self, worker):
        """Have the controller learn of it."""
        info = worker.info
        del self.world.workers[info.worker_id]
        self.sim.tell("/jobs/scheduler", WorkerLost(info.worker_id, info.incarnation, "its machine is gone", True))
        self.sim.run_until_idle()

    def comes_back(self):
        """Have another slice come up."""
        self.world.add(*(worker_info(10 + number, cpus=1, slice_id="t") for number in range(self.size)))
        self.sim.advance(3)

    def records(self):
        """The ends that were written down: index, ending, whether it counts as failure, as preemption."""
        self.sim.advance(0.1)  # the journal's
        ended = [each for each in self.sim.journal.read(self.path) if isinstance(each, AttemptEnded)]
        return [(each.index, each.end.ending, each.failure, each.preemption) for each in ended]


@pytest.mark.parametrize("seen", [FAILS, OVERRUN])
def test_a_failure_because_a_peer_died(seen):
    """It counts against nothing: the loss is the preemption, once, and the gang runs again."""
    pair = Pair()
    gone = pair.loses(0)
    pair.ends(1, seen)
    assert pair.records() == []
    assert pair.ledger.state_of(1) is TaskState.RUNNING
    pair.learns(gone)
    assert pair.records() == [(0, Ending.WORKER_LOST, False, True), (1, Ending.GANG_STOPPED, False, False)]
    assert (pair.ledger.failures, pair.ledger.preemptions) == (0, 1)
    pair.comes_back()
    assert pair.ledger.counts[TaskState.RUNNING] == 2
    (row,) = [each for each in pair.sim.ask(pair.path, ListTasks()).rows if each.index == 1]
    earlier = row.earlier[0]
    assert earlier.exit_code == seen.exit_code
    assert earlier.reason == f"exit code {seen.exit_code}, as task 0 of its gang was lost"


def test_a_failure_after_the_loss_is_known(monkeypatch):
    """The same: its program ended before it was stopped."""
    pair = Pair(3)
    gone = pair.loses(0)
    monkeypatch.setattr(ScriptedWorker, "obey", lambda worker, orders: None)  # it has not come to it yet
    pair.learns(gone)
    pair.ends(1)
    pair.ends(2)
    assert (1, Ending.GANG_STOPPED, False, False) in pair.records()
    assert pair.ledger.failures == 0
    assert pair.ledger.open


def test_a_failure_of_its_own():
    """Nobody was lost: it is a failure, known as soon as the others have ended, and fails the job."""
    pair = Pair(3)
    pair.ends(1)
    assert sorted(pair.records()) == [
        (0, Ending.GANG_STOPPED, False, False),
        (1, Ending.FAILED, True, False),
        (2, Ending.GANG_STOPPED, False, False),
    ]
    pair.sim.advance(1)
    assert pair.sim.ask(pair.path, DescribeJob()).state is JobState.FAILED


@pytest.mark.parametrize("other", [SUCCEEDS, FAILS])
def test_the_last_ones_failure_is_its_own(other):
    """Its worker lives and says so: it is believed at once, though that machine may go a second later."""
    pair = Pair()
    pair.ends(0, other)
    pair.ends(1, FAILS)
    pair.sim.advance(1)
    assert pair.sim.ask(pair.path, DescribeJob()).state is JobState.FAILED
    assert (pair.ledger.failures, pair.ledger.preemptions) == (1, 0)
    pair.learns(pair.loses(1))
    pair.sim.advance(1)
    assert (pair.ledger.failures, pair.ledger.preemptions) == (1, 0)
    assert pair.sim.ask(pair.path, DescribeJob()).state is JobState.FAILED


def test_who_was_stopped_hears_because_of_whom():
    """Its worker knows only that it was told to end it. A job that its user ends has no such member."""
    pair = Pair(3)
    pair.ends(1)
    pair.sim.advance(1)
    rows = pair.sim.ask(pair.path, ListTasks()).rows
    assert [each.reason for each in (rows[0], rows[2])] == ["stopped because task 1 of its gang failed"] * 2
    assert "stopped because" not in rows[1].reason
    pair = Pair(2)
    pair.ends(1, attrs.evolve(SUCCEEDS, end=AttemptEnd(Ending.PREEMPTED, 0)))
    assert (0, Ending.GANG_STOPPED, False, False) in pair.records()
    (before,) = pair.sim.ask(pair.path, ListTasks()).rows[0].earlier
    assert before.reason == "stopped because another task of its gang ended"
    pair = Pair(2)
    pair.sim.ask(pair.path, TerminateJob("enough"))
    pair.sim.run_until_idle()
    assert "of its gang" not in "".join(each.reason for each in pair.sim.ask(pair.path, ListTasks()).rows)


def test_the_gang_is_taken_down_once(monkeypatch):
    """However many fail by themselves, each member is asked to stop once."""
    pair = Pair(4)
    stopped = []
    monkeypatch.setattr(ScriptedWorker, "obey", lambda worker, orders: stopped.extend(orders.stop))
    pair.ends(1)
    pair.ends(2)
    assert sorted(each.uid for each in stopped) == sorted(pair.uid(index) for index in (0, 2, 3))


def test_more_failures_than_a_step(monkeypatch):
    """Their ends are written down in steps, and all of them."""
    pair = Pair(STEP_ATTEMPTS + 3, max_retries_failure=1)
    gone = pair.loses(0)
    with monkeypatch.context() as patch:
        patch.setattr(ScriptedWorker, "obey", lambda worker, orders: None)  # they all end before they are stopped
        for index in range(1, pair.size):
            pair.ends(index)
    assert pair.records() == []
    pair.learns(gone)
    pair.sim.run_until_idle()
    assert len(pair.records()) == pair.size
    assert (pair.ledger.failures, pair.ledger.preemptions) == (0, 1)
    pair.comes_back()
    assert pair.ledger.counts[TaskState.RUNNING] == pair.size


def test_a_worker_that_was_only_silent():
    """It is back with its member, which is stopped: the failure was one."""
    pair = Pair()
    worker = pair.loses(0)
    pair.ends(1)
    assert pair.records() == []
    pair.world.reconnect(worker.info.worker_id)
    pair.sim.run_until_idle()
    assert sorted(pair.records()) == [(0, Ending.GANG_STOPPED, False, False), (1, Ending.FAILED, True, False)]


def test_the_failed_ones_machine_goes_as_well():
    """Then nobody knows what its end was worth: it is lost with its machine."""
    pair = Pair()
    first = pair.loses(0)
    pair.ends(1)
    second = pair.loses(1)
    pair.learns(second)
    pair.learns(first)
    assert sorted(pair.records()) == [(0, Ending.WORKER_LOST, False, True), (1, Ending.WORKER_LOST, False, True)]


def test_a_member_that_had_succeeded():
    """It stays so, and is not run again."""
    pair = Pair(3)
    pair.ends(2, SUCCEEDS)
    gone = pair.loses(0)
    pair.ends(1)
    pair.learns(gone)
    pair.comes_back()
    assert pair.ledger.counts[TaskState.SUCCEEDED] == 1
    assert pair.ledger.counts[TaskState.RUNNING] == 2
    assert pair.ledger.failures == 0


@pytest.mark.parametrize("crash", [True, False])
def test_a_controller_that_begins_anew_meanwhile(crash):
    """The worker says again how the member ended; what follows is the same."""
    pair = Pair()
    gone = pair.loses(0)
    pair.ends(1)
    if crash:
        pair.sim.crash()
        for worker in pair.world.workers.values():
            worker.handle = None
        pair.sim.restart()
        pair.sim.advance(1)
    pair.learns(gone)
    pair.sim.advance(90)
    assert sorted(pair.records()) == [(0, Ending.WORKER_LOST, False, True), (1, Ending.GANG_STOPPED, False, False)]
    assert pair.ledger.open


def test_a_job_that_is_stopped_meanwhile():
    """It ends when the lost one is known to be over; nobody waits for ever."""
    pair = Pair()
    gone = pair.loses(0)
    pair.ends(1)
    pair.sim.tell(pair.path, TerminateJob(pair.job_id))
    pair.sim.run_until_idle()
    pair.learns(gone)
    pair.sim.advance(1)
    assert pair.sim.ask(pair.path, DescribeJob()).state is JobState.KILLED
