"""Workers that refuse are avoided for a while, tasks that are refused rest; neither hurries, and none is forgotten."""

from collections import Counter

import attrs
import pytest
from hypothesis import given, strategies as st
from jobs_world import GIB, World, command_spec, succeed, worker_info
from test_scheduler import Bench

from iriscw.cloud.model import Capacity
from iriscw.fleet.messages import WorkerLost, WorkerReady
from iriscw.jobs.lifecycle import MAX_UNSTARTED
from iriscw.jobs.messages import (
    AttemptsOver,
    DescribeJob,
    Due,
    JobAbsent,
    JobAwake,
    JobIntroduced,
    JobWithdrawn,
    Placed,
    Refusal,
    Rested,
)
from iriscw.jobs.model import AttemptEnd, Ending, JobState, Observation, TaskState
from iriscw.jobs.scheduling.explaining import explain_pending
from iriscw.jobs.scheduling.messages import ExplainPending
from iriscw.jobs.scheduling.refusals import (
    FIRST_PAUSE,
    FORGIVEN,
    LONGEST_PAUSE,
    MAX_REASON_CHARS,
    TRIES_AT_ONCE,
    pause_of,
    rest_of,
)
from iriscw.jobs.traits import Fault
from iriscw.runtime.vocabulary import SECOND, ReplyTo
from profiles import examples

SPEC = command_spec()
PAUSES_S = (1, 2, 4, 8, 16, 32, 60, 60)
FULL = "[Errno 28] No space left on device"
NO_PAYLOAD = "there is no object payloads/00"


def refusing(order, *, reason=FULL, unstartable=False):
    """Refuse at once."""
    return [
        (
            0,
            Observation(
                "", TaskState.ASSIGNED, AttemptEnd(Ending.REFUSED, fault=Fault("", reason)), unstartable=unstartable
            ),
        )
    ]


class Fleet(World):
    """Workers of which some refuse; notes when, s, by worker."""

    def __init__(self, good, bad, cpus=2):
        self.bad = {f"slice-{number}-{number}" for number in range(bad)}
        self.refused = []
        super().__init__(script=self.play)
        self.add(*(worker_info(number, cpus=cpus) for number in range(bad + good)))

    def play(self, order):
        """Do what the worker does that has the attempt."""
        worker_id = next(name for name, worker in self.workers.items() if order.uid in worker.attempts)
        if worker_id not in self.bad:
            return succeed(order)
        self.refused.append((self.sim.simulation.now // SECOND, worker_id))
        return refusing(order)

    def view(self, job_id):
        """Describe a job."""
        return self.sim.ask(f"/jobs/{job_id}", DescribeJob())


class Lone(Bench):
    """A scheduler with a job of one task; ``slice-0-0`` takes it first."""

    def __init__(self, workers=2, spec=SPEC):
        super().__init__()
        for number in range(workers):
            self.worker(number)
        self.tell(JobIntroduced("job-a", 0, spec))

    def placed(self):
        """Return what was placed last."""
        return self.heard(Placed)[-1].placements[0]

    def over(self, *, refused=True, rest_ns=0, began=False):
        """Have the attempt be over, and its task wait again."""
        last = self.last = self.placed() if self.heard(Placed) else self.last
        refusal = Refusal(last.worker_id, last.incarnation, FULL) if refused else None
        uids = (last.uid,)
        self.tell(AttemptsOver("job-a", uids, ((0, 1),), rest_ns, uids if began else (), refusal))

    def try_again(self, number=0):
        """Let a pause be over."""
        self.ctx.now = self.state.inventory.hosts[f"slice-{number}-{number}"].refusing.until
        self.tell(Due("refusal", f"slice-{number}-{number}", "a"))

    def reason(self):
        """Ask why the task waits."""
        asked = attrs.evolve(self.ctx, reply_to=ReplyTo(1))
        return explain_pending(self.state, ExplainPending("job-a"), asked)[0].value


def test_pauses_double_and_rests_come_late():
    """1 s to 60 s; the first attempts of a task go round at once, and a hundred of them take more than an hour."""
    assert [pause_of(count) // SECOND for count in range(1, 9)] == list(PAUSES_S)
    assert pause_of(10_000) == LONGEST_PAUSE
    assert rest_of(TRIES_AT_ONCE) == 0
    assert rest_of(TRIES_AT_ONCE + 1) == FIRST_PAUSE
    assert sum(map(rest_of, range(MAX_UNSTARTED))) > 3_600 * SECOND


def test_who_refused_is_avoided():
    """The task goes to another worker at once, and so does the next one when the pause is over: others come first."""
    bench = Lone()
    assert bench.placed().worker_id == "slice-0-0"
    bench.over()
    assert bench.placed().worker_id == "slice-1-1"
    bench.try_again()
    bench.over(refused=False)
    assert bench.placed().worker_id == "slice-1-1"
    bench.worker(2, cpus=8, zone="b")
    bench.tell(WorkerLost("slice-1-1", "a", "gone", fenced=True))
    bench.over(refused=False)
    assert bench.placed().worker_id == "slice-2-2"
    bench.tell(WorkerLost("slice-2-2", "a", "gone", fenced=True))
    bench.over(refused=False)
    assert bench.placed().worker_id == "slice-0-0"


def test_the_only_worker_is_tried_again():
    """After its pause, which doubles; what waits is told which worker, why, and when."""
    bench = Lone(workers=1)
    for pause_s in PAUSES_S:
        bench.over()
        assert bench.heard(Placed) == []
        assert bench.timers.count(Due("refusal", "slice-0-0", "a")) == 1
        said = f"worker slice-0-0 refuses: {FULL}; tried again in {pause_s} s"
        assert bench.reason() == f"of 1 worker: 1 refuses attempts; {said}"
        bench.try_again()
        assert bench.placed().worker_id == "slice-0-0"


def test_what_was_on_its_way_is_the_same_refusal():
    """Attempts that are refused during the pause do not prolong it."""
    bench = Lone(workers=1, spec=command_spec(replicas=3))
    host = bench.state.inventory.hosts["slice-0-0"]
    for each in bench.placed(), *bench.heard(Placed)[-1].placements[1:]:
        bench.tell(AttemptsOver("job-a", (each.uid,), (), refused=Refusal("slice-0-0", "a", FULL)))
        assert (host.refusing.count, host.refusing.until) == (1, FIRST_PAUSE)


def test_an_attempt_that_began_ends_the_row():
    """One that was placed since the last refusal; an older one says nothing, and time forgives as well."""
    bench = Lone(workers=1)
    host = bench.state.inventory.hosts["slice-0-0"]
    bench.over()
    bench.try_again()
    bench.over(refused=False, began=True)
    assert host.refusing is None
    old = bench.placed()
    for _ in range(2):
        bench.tell(AttemptsOver("job-a", (), refused=Refusal("slice-0-0", "a", FULL)))
        bench.try_again()
    bench.tell(AttemptsOver("job-a", (old.uid,), (), began=(old.uid,)))
    assert host.refusing.count == 2
    bench.ctx.now += FORGIVEN + 1
    bench.tell(AttemptsOver("job-a", (), refused=Refusal("slice-0-0", "a", FULL)))
    assert host.refusing.count == 1


def test_a_pause_belongs_to_an_incarnation():
    """One that registers anew with less goes on pausing; another one does not, and hears nothing of its predecessor."""
    bench = Lone(workers=1)
    bench.over()
    bench.worker(0, cpus=3)
    assert bench.heard(Placed) == []
    bench.try_again()
    assert bench.placed().incarnation == "a"
    bench.over()
    bench.tell(WorkerReady(worker_info(0, incarnation="b")))
    bench.worker(0, incarnation="b")
    assert bench.placed().incarnation == "b"
    bench.tell(AttemptsOver("job-a", (), refused=Refusal("slice-0-0", "a", FULL)))
    assert bench.state.inventory.hosts["slice-0-0"].refusing is None


def test_a_task_rests():
    """It is neither placed nor forgotten, and who asks hears why."""
    bench = Lone()
    bench.over(rest_ns=16 * SECOND)
    assert bench.heard(Placed) == []
    assert bench.reason() == f"worker slice-0-0 refuses: {FULL}; tried again in 16 s"
    assert Rested("job-a", 0) in bench.timers
    bench.tell(Rested("job-a", 0))
    assert bench.placed().worker_id == "slice-1-1"
    bench.tell(Rested("job-a", 0))
    assert bench.heard(Placed) == []


@pytest.mark.parametrize("message", [JobWithdrawn("job-a"), JobAbsent("job-a"), JobAwake("job-a")])
def test_a_rest_is_over_when_the_job_says_so(message):
    """A job that ends, is absent or reports has said anew what waits: a rest that ends later places nothing twice."""
    bench = Lone()
    bench.over(rest_ns=SECOND)
    bench.tell(message)
    bench.tell(Rested("job-a", 0))
    assert bench.heard(Placed) == []
    if isinstance(message, JobAwake):
        bench.report("job-a", pending=((0, 1),))
        assert len(bench.heard(Placed)[0].placements) == 1


def test_a_long_reason_is_cut():
    """What is told is bounded, and who says nothing is named all the same."""
    bench = Lone(workers=1)
    bench.tell(AttemptsOver("job-a", (bench.placed().uid,), ((0, 1),), refused=Refusal("slice-0-0", "a", "x" * 999)))
    assert bench.reason().count("x") == MAX_REASON_CHARS
    bench.try_again()
    bench.tell(AttemptsOver("job-a", (bench.placed().uid,), ((0, 1),), refused=Refusal("slice-0-0", "a", "")))
    assert "slice-0-0 refuses: no reason given; tried" in bench.reason()


def test_a_gang_goes_elsewhere():
    """A member that is refused takes its gang down once; the gang runs on another slice at once."""
    fleet = Fleet(good=1, bad=1)
    job_id = fleet.submit(command_spec(replicas=2, group_by="slice-id"))
    fleet.sim.advance(10)
    assert fleet.view(job_id).state is JobState.SUCCEEDED
    assert {worker_id for _, worker_id in fleet.refused} == {"slice-0-0"}
    assert len(fleet.refused) <= 2


def test_a_gang_rests_as_a_whole():
    """With refusing workers only, a gang goes round ever more slowly, and says why it waits."""
    fleet = Fleet(good=0, bad=20)
    job_id = fleet.submit(command_spec(replicas=2, group_by="slice-id"))
    fleet.sim.advance(600)
    assert TRIES_AT_ONCE < len(fleet.refused) < 2 * 30
    assert f"refuses: {FULL}; tried again in" in fleet.view(job_id).pending_reason


def test_nobody_waits_for_what_no_worker_can_start():
    """The worker is not to blame: others run there at once, and the job soon ends, with the reason."""
    world = World(script=lambda order: refusing(order, reason=NO_PAYLOAD, unstartable=True))
    world.add(worker_info(0))
    job_id = world.submit(command_spec())
    world.sim.advance(30)
    seen = world.sim.ask(f"/jobs/{job_id}", DescribeJob())
    assert (seen.state, seen.reason) == (JobState.UNSCHEDULABLE, f"1 of 1 tasks; task 0: {NO_PAYLOAD}")
    world.script = succeed
    job_id = world.submit(command_spec("next"))
    world.sim.advance(2)
    assert world.sim.ask(f"/jobs/{job_id}", DescribeJob()).state is JobState.SUCCEEDED


@examples(25)
@given(st.integers(0, 2), st.integers(1, 3), st.integers(1, 4), st.integers(1, 8))
def test_no_refusal_loop_runs_hot(good, bad, cpus, replicas):
    """In no minute does a worker refuse more often than its pauses allow, times its room. With room elsewhere all tasks
    run there at once; without, the job waits with a reason, and runs when one worker is well again.
    """
    fleet = Fleet(good, bad, cpus)
    job_id = fleet.submit(command_spec(replicas=replicas, demand=Capacity(1000, GIB)))
    fleet.sim.advance(2 + 2 * -(-replicas // (good * cpus)) if good else 300)
    if not good:
        assert "; tried again in" in fleet.view(job_id).pending_reason
        fleet.bad.pop()
        fleet.sim.advance((bad + 1) * LONGEST_PAUSE // SECOND + 2 * replicas)
    assert fleet.view(job_id).state is JobState.SUCCEEDED
    minutes = Counter((at // 60, worker_id) for at, worker_id in fleet.refused)
    assert all(count <= 7 * cpus for count in minutes.values())


def test_a_disk_that_is_full_for_hours_ends_no_job():
    """Neither on one worker nor on many, however many of them refuse at once."""
    for bad in (1, 40):
        fleet = Fleet(good=0, bad=bad)
        job_id = fleet.submit(attrs.evolve(SPEC, replicas=2))
        fleet.sim.advance(3_600)
        fleet.bad.clear()
        fleet.sim.advance(150)
        assert fleet.view(job_id).state is JobState.SUCCEEDED
