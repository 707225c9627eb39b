"""A gang that is placed in parts runs whole or not at all (INV-J4), wherever the parts are torn."""

import attrs
import pytest
from jobs_world import World, command_spec, job_context, worker_info

from iriscw.cloud.model import Capacity
from iriscw.jobs.job.decisions import JobDecisions
from iriscw.jobs.job.ledger import JobLedger, compact, evolve
from iriscw.jobs.messages import (
    AttemptsLost,
    AttemptsOver,
    Disband,
    JobReport,
    LinkNeedsDesired,
    Placed,
    Placement,
    ReportJob,
    RunAttempts,
    StartRest,
    StopAttempts,
    TerminateJob,
)
from iriscw.jobs.model import Assembly, Ending, JobState, TaskState
from iriscw.jobs.records import AttemptEnded, AttemptPlaced, VerdictReached
from iriscw.jobs.step_limits import STEP_ATTEMPTS
from iriscw.jobs.suspension.messages import PreemptAttempts
from iriscw.runtime.vocabulary import Continue, Decision, Tell

SIZE = 6
GIB = 1 << 30


class Gang:
    """A gang of six, placed in parts of two, whose decisions are called directly."""

    def __init__(self):
        self.ledger = JobLedger("job-a", 0, command_spec(replicas=SIZE, group_by="slice-id"), 0)
        self.rules = JobDecisions().rules()
        self.ctx = job_context()
        self.records = []
        self.out = []

    def send(self, message):
        """Decide, and on what it tells itself; give what others are told."""
        outcome = self.rules[type(message)](self.ledger, message, self.ctx)
        decided = outcome if isinstance(outcome, Decision) else Decision(commands=outcome or ())
        for record in decided.records:
            evolve(self.ledger, record)
        self.records += decided.records
        self.out = [command.message for command in decided.commands if isinstance(command, Tell)]
        told = list(self.out)
        for command in decided.commands:
            if isinstance(command, Continue):
                told += self.send(command.message)
        return told

    def part(self, number):
        """Place a part."""
        indexes = range(2 * number, 2 * number + 2)
        placements = tuple(Placement(index, f"u{index}", f"w{index}", "a") for index in indexes)
        return self.send(Placed(placements, number, more=number < SIZE // 2 - 1))

    def check_taken_back(self, told, uids):
        """Check that these members are over, counted against nothing, and that no worker heard of them."""
        ended = [record for record in self.records if isinstance(record, AttemptEnded)]
        assert [record.uid for record in ended] == uids
        assert not any(record.failure or record.preemption for record in ended)
        assert all(record.unstarted == (record.end.ending is not Ending.GANG_STOPPED) for record in ended)
        assert not any(isinstance(message, RunAttempts | StopAttempts) for message in told)
        assert not self.ledger.live
        assert self.ledger.assembly is Assembly.NONE

    def check_waits_again(self, told):
        """Check that the scheduler was told, once, that all members wait."""
        assert [each.pending for each in told if isinstance(each, AttemptsOver) and each.pending] == [((2, 6), (0, 2))]


def told(messages, kind):
    """Return the messages of one kind."""
    return [message for message in messages if isinstance(message, kind)]


def test_nothing_runs_before_the_last_part():
    """Orders leave when all is recorded; until then links are told of nothing, whoever asks."""
    gang = Gang()
    for number in (0, 1):
        assert not gang.part(number)
        assert gang.ledger.assembly is Assembly.GATHERING
        (desired,) = gang.send(LinkNeedsDesired("w0", "a"))
        assert desired.attempts == ()
    orders = told(gang.part(2), RunAttempts)
    assert [each.uid for order in orders for each in order.orders] == [f"u{index}" for index in range(SIZE)]
    assert gang.ledger.assembly is Assembly.NONE
    assert not gang.ledger.broken
    (desired,) = gang.send(LinkNeedsDesired("w0", "a"))
    assert [each.stop for each in desired.attempts] == [None]


def test_a_report_means_that_a_part_was_lost():
    """Whoever gathers and is asked for a report disbands, and waits again."""
    gang = Gang()
    gang.part(0)
    out = gang.send(ReportJob(1))
    (report,) = told(out, JobReport)
    assert [each.uid for each in report.live] == ["u0", "u1"]
    assert report.pending == ()
    gang.check_taken_back(out, ["u0", "u1"])
    gang.check_waits_again(out)


def test_a_part_that_comes_too_late_is_declined():
    """After the gang has disbanded the room of later parts goes back; a new placement is taken."""
    gang = Gang()
    gang.part(0)
    gang.send(ReportJob(1))
    assert gang.part(1) == [AttemptsOver("job-a", ("u2", "u3"))]
    assert gang.ledger.assembly is Assembly.NONE
    placements = tuple(Placement(index, f"v{index}", "w", "a") for index in range(SIZE))
    assert len(told(gang.send(Placed(placements)), RunAttempts)) == 1


def test_a_lost_worker_disbands():
    """A member whose worker is lost while the gang gathers takes the others with it; none counts."""
    gang = Gang()
    gang.part(0)
    out = gang.send(AttemptsLost("w1", "a", True, "gone"))
    gang.check_taken_back(out, ["u1", "u0"])


def test_the_only_member_may_be_lost():
    """Nothing is left to take back: later parts are declined all the same."""
    gang = Gang()
    gang.send(Placed((Placement(0, "u0", "w0", "a"),), 0, more=True))
    out = gang.send(AttemptsLost("w0", "a", True, "gone"))
    gang.check_taken_back(out, ["u0"])
    assert gang.part(1) == [AttemptsOver("job-a", ("u2", "u3"))]


def test_a_job_that_ends_takes_its_gang_back():
    """Terminated while it gathers, it ends without a word to any worker."""
    gang = Gang()
    gang.part(0)
    out = gang.send(TerminateJob("job-a"))
    gang.check_taken_back(out, ["u0", "u1"])
    assert gang.ledger.ended.state is JobState.KILLED
    assert told(gang.part(1), AttemptsOver)
    assert not gang.ledger.live


def test_parts_that_do_not_make_it_whole_disband():
    """A last part that leaves tasks out is a gang that is not whole."""
    gang = Gang()
    gang.part(0)
    out = gang.part(2)
    gang.check_taken_back(out, ["u0", "u1", "u4", "u5"])


def test_a_member_that_ends_while_others_are_started():
    """Who has not been ordered yet is ordered to run and to stop: its worker has the last word on it."""
    gang = Gang()
    placements = tuple(Placement(index, f"u{index}", f"w{index}", "a") for index in range(SIZE))
    gang.send(Placed(placements))
    gang.send(AttemptsLost("w0", "a", True, "gone"))
    assert gang.ledger.broken
    out = gang.send(StartRest(tuple(f"u{index}" for index in range(SIZE)), 0))
    assert [len(told(out, kind)) for kind in (RunAttempts, StopAttempts)] == [5, 5]
    assert {each.ending for each in told(out, StopAttempts)} == {Ending.GANG_STOPPED}


def test_a_gang_that_gives_way_while_it_is_started():
    """One member ends as preempted, which counts once; the others are stopped with it, those too that start later."""
    gang = Gang()
    gang.send(Placed(tuple(Placement(index, f"u{index}", f"w{index}", "a") for index in range(SIZE))))
    uids = tuple(f"u{index}" for index in range(SIZE))
    gang.send(PreemptAttempts(uids, "high (production)"))
    out = gang.send(StartRest(uids, 0))
    assert {each.uids: each.ending for each in told(out, StopAttempts)} == {
        (uid,): Ending.GANG_STOPPED if uid != "u0" else Ending.PREEMPTED for uid in uids
    }


@pytest.mark.parametrize("assembly", [Assembly.GATHERING, Assembly.DISBANDING])
def test_a_new_incarnation_knows_where_it_stands(assembly):
    """Snapshots hold it; what was being disbanded goes on, what gathers waits for its parts or for the question."""
    gang = Gang()
    gang.part(0)
    gang.ledger.assembly = assembly
    again = JobLedger("job-a", 0, gang.ledger.spec, 0)
    for record in compact(gang.ledger):
        evolve(again, record)
    assert again == gang.ledger
    commands = list(JobDecisions().resume(again, attrs.evolve(gang.ctx, incarnation=1)))
    assert (Continue(Disband()) in commands) == (assembly is Assembly.DISBANDING)
    assert all(not each.message.attempts for each in commands if hasattr(getattr(each, "message", None), "attempts"))


def test_nobody_else_disbands():
    """A gang that is whole, or waits, takes nothing back."""
    gang = Gang()
    assert gang.send(Disband()) == []
    for number in range(3):
        gang.part(number)
    assert gang.send(Disband()) == []
    assert len(gang.ledger.live) == SIZE


@attrs.define
class Poison:
    """A message no actor has a rule for: it fails whoever gets it."""


class Torn:
    """A world with one large gang, and a check of each order that reaches a worker."""

    def __init__(self):
        self.world = World()
        self.sim = self.world.sim
        self.size = 2 * STEP_ATTEMPTS + 10
        spec = command_spec("gang", replicas=self.size, group_by="slice-id", demand=Capacity(10, GIB // 100))
        self.job_id = self.world.submit(spec)
        self.script, self.world.script = self.world.script, self.checked
        for number in range(2):
            self.world.add_now(worker_info(number, cpus=4, slice_id="s"))

    def checked(self, order):
        """Run it, if all members were placed."""
        placed = [each for each in self.sim.journal.read(f"/jobs/{self.job_id}") if isinstance(each, AttemptPlaced)]
        assert len({each.index for each in placed}) == self.size, "INV-J4: started before all are placed"
        assert self.sim.state(f"/jobs/{self.job_id}").assembly is Assembly.NONE
        return self.script(order)

    def begin(self, steps):
        """Let some steps happen from when the first part is told."""
        ledger = self.sim.state(f"/jobs/{self.job_id}")
        while not ledger.live:
            assert self.sim.simulation.step() or self.sim.advance(0.01) is None
        for _ in range(steps):
            self.sim.simulation.step()

    def check(self):
        """Check that it ends well, that all room is back, and that nobody counted a loss of what never ran."""
        self.sim.advance(90)
        assert self.sim.state("/jobs").entries[self.job_id].state is JobState.SUCCEEDED
        assert not self.sim.state("/jobs/scheduler").inventory.where
        ledger = self.sim.state(f"/jobs/{self.job_id}")
        assert dict(ledger.visible_counts()) == {TaskState.SUCCEEDED: self.size}
        unexpected = [each for each in self.sim.failures if type(each.cause) is not Poison]
        assert not unexpected, unexpected[:3]


MOMENTS = [1, *(pytest.param(steps, marks=pytest.mark.slow) for steps in (0, 3, 8))]
"""After how many steps the parts are torn. Each of these worlds takes a second."""


@pytest.mark.parametrize("steps", MOMENTS)
def test_a_crash_between_two_parts(steps):
    """The controller dies while parts are recorded or orders leave, and starts again on its disk."""
    torn = Torn()
    torn.begin(steps)
    torn.sim.crash()
    for worker in torn.world.workers.values():
        worker.handle = None
    torn.sim.restart()
    torn.sim.advance(1)
    torn.check()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("steps", MOMENTS)
@pytest.mark.parametrize(
    "who", ["/jobs/{}", *(pytest.param(each, marks=pytest.mark.slow) for each in ("/jobs/scheduler", "/jobs/links"))]
)
def test_an_actor_that_fails_between_two_parts(who, steps):
    """The job, the scheduler or the links begin anew while parts are recorded or orders leave."""
    torn = Torn()
    torn.begin(steps)
    torn.sim.tell(who.format(torn.job_id), Poison())
    torn.check()


@pytest.mark.slow
def test_a_part_that_finds_no_room():
    """A part comes back because the job's mailbox was full: the gang disbands, and is placed again."""
    torn = Torn()
    cell = torn.sim.tree.cells[f"/jobs/{torn.job_id}"]
    spec, cell.spec = cell.spec, attrs.evolve(cell.spec, capacity=2)
    cell.capacity = 2
    torn.begin(0)
    cell.spec, cell.capacity = spec, spec.capacity
    torn.check()
    ended = [each for each in torn.sim.journal.read(f"/jobs/{torn.job_id}") if isinstance(each, AttemptEnded)]
    assert Ending.GANG_STOPPED in [each.end.ending for each in ended]


def test_a_gang_that_is_terminated_while_it_gathers():
    """It ends as KILLED, and no worker ever heard of it."""
    torn = Torn()
    torn.begin(1)
    torn.sim.tell(f"/jobs/{torn.job_id}", TerminateJob(torn.job_id))
    torn.sim.advance(5)
    records = torn.sim.journal.read(f"/jobs/{torn.job_id}")
    assert [each.state for each in records if isinstance(each, VerdictReached)] == [JobState.KILLED]
    assert torn.sim.state("/jobs").entries[torn.job_id].state is JobState.KILLED
    assert not any(worker.starts for worker in torn.world.workers.values())
