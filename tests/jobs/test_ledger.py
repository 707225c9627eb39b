"""The ledger: laws over random lives of a job."""

import attrs
from hypothesis import given, strategies as st
from jobs_world import command_spec, job_context

from iriscw.jobs.job import ends as ends_module, ledger as ledger_module, views
from iriscw.jobs.job.decisions import JobDecisions
from iriscw.jobs.job.ledger import JobLedger, compact, evolve
from iriscw.jobs.messages import (
    AttemptsLost,
    AttemptsObserved,
    DescribeJob,
    Due,
    Placed,
    Placement,
    Settle,
    TerminateJob,
)
from iriscw.jobs.model import (
    MAX_ATTEMPTS_SHOWN,
    TASK_LIVE,
    TASK_TERMINAL,
    AttemptEnd,
    Ending,
    JobState,
    Observation,
    TaskState,
)
from iriscw.jobs.traits import Fault
from iriscw.runtime.vocabulary import Completed, Continue, Decision, Run

REPLICAS = 4
WORKERS = st.integers(0, 2)
SPECS = st.builds(
    command_spec,
    replicas=st.just(REPLICAS),
    max_retries_failure=st.integers(0, 2),
    max_retries_preemption=st.integers(0, 2),
    max_task_failures=st.integers(0, 2),
    timeout_ns=st.sampled_from([0, 5]),
    scheduling_timeout_ns=st.sampled_from([0, 1000]),
    group_by=st.sampled_from([None, None, "slice-id"]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("place"), st.integers(0, REPLICAS - 1), WORKERS),
        st.tuples(st.just("see"), st.integers(0, 9), st.sampled_from([TaskState.BUILDING, TaskState.RUNNING])),
        st.tuples(st.just("end"), st.integers(0, 9), st.tuples(st.sampled_from(Ending), st.booleans(), st.booleans())),
        st.tuples(st.just("stranger"), st.integers(0, 9), st.sampled_from(Ending)),
        st.tuples(st.just("lose"), WORKERS, st.booleans()),
        st.tuples(st.just("due"), st.sampled_from(["lease", "timeout", "scheduling"]), WORKERS),
        st.tuples(st.just("logs"), st.integers(0, 9), st.booleans()),
        st.tuples(st.just("terminate"), st.none(), st.none()),
    ),
    max_size=60,
)


class Life:
    """A job whose decisions are called directly; its records are kept."""

    def __init__(self, spec):
        self.ctx = job_context()
        self.decisions = JobDecisions()
        self.rules = self.decisions.rules()
        self.ledger = JobLedger("job-a", 0, spec, self.ctx.wall)
        self.records = []
        self.runs = {}
        self.ends = []
        self.gone = []

    def decide(self, message):
        """Decide, apply, and go on with what the job tells itself."""
        self.ctx.wall += 1
        outcome = self.rules[type(message)](self.ledger, message, self.ctx)
        commands = outcome.commands if isinstance(outcome, Decision) else outcome or ()
        if isinstance(outcome, Decision):
            for record in outcome.records:
                evolve(self.ledger, record)
                self.records.append(record)
                if type(record).__name__ == "JobEnded":
                    self.ends.append(record.state)
        for command in commands:
            if isinstance(command, Run):
                self.runs[command.key] = command.effect
            elif isinstance(command, Continue):
                self.decide(command.message)

    def step(self, kind, one, other):
        """Carry out one drawn step."""
        live = list(self.ledger.live)
        uid = live[one % len(live)] if live and isinstance(one, int) else None
        if kind == "place":
            self.decide(Placed((Placement(one, f"u{len(self.records)}", f"w{other}", "a"),)))
        elif kind == "see" and uid:
            self.observe(uid, Observation(uid, other, gpus=(f"GPU-{one}",) * (one % 2)))
        elif kind == "end" and uid:
            ending, started, logs = other
            said = "boom\n" * (ending is Ending.FAILED) * one
            seen = Observation(
                uid,
                TaskState.RUNNING,
                AttemptEnd(ending, fault=Fault("", said) if said else None),
                started,
                log_offset=3 * logs,
            )
            self.gone.append(uid)
            self.observe(uid, seen)
        elif kind == "stranger" and self.gone:
            gone = self.gone[one % len(self.gone)]
            before = attrs.evolve(self.ledger)
            self.decide(AttemptsObserved("w0", "a", (Observation(gone, TaskState.RUNNING, AttemptEnd(other), True),)))
            assert before.counts == self.ledger.counts
        elif kind == "lose":
            self.decide(AttemptsLost(f"w{one}", "a", other, "test"))
        elif kind == "due":
            self.decide(Due(one, f"w{other}", "a"))
        elif kind == "logs" and self.runs:
            key = list(self.runs)[one % len(self.runs)]
            effect = self.runs.pop(key)
            self.decide(Completed(key, effect, effect.offset if other else 0))
        elif kind == "terminate":
            self.decide(TerminateJob("job-a"))

    def observe(self, uid, seen):
        """Let a worker say something about its attempt."""
        attempt = self.ledger.tasks[self.ledger.live[uid]].attempt
        self.decide(AttemptsObserved(attempt.worker_id, attempt.incarnation, (seen,)))


def clean(ledger):
    """Leave out counts of zero."""
    return attrs.evolve(ledger, counts={key: count for key, count in ledger.counts.items() if count})


def check(ledger):
    """Check that what is kept beside the tasks agrees with them."""
    states = [ledger.state_of(index) for index in range(ledger.spec.replicas)]
    assert {state: number for state, number in ledger.counts.items() if number} == {
        state: states.count(state) for state in states
    }
    live = {
        task.attempt.uid: index
        for index, task in ledger.tasks.items()
        if task.attempt is not None and task.attempt.live
    }
    assert ledger.live == live
    assert {uid for uids in ledger.places.values() for uid in uids} == set(live)
    assert all(states[index] in TASK_LIVE for index in live.values())
    assert all(uid in live for uid in ledger.timed)
    assert all(ledger.tasks[index].logs_due for index in ledger.due)
    earlier = [each.uid for task in ledger.tasks.values() for each in task.earlier]
    assert sorted(ledger.earlier) == sorted(earlier)
    assert not ledger.earlier.keys() & live.keys()
    kept = [each for task in ledger.tasks.values() for each in (task.attempt, *task.earlier)]
    assert ledger.faults_chars == sum(len(each.details) for each in kept)
    failed = [index for index, state in enumerate(states) if state is TaskState.FAILED]
    assert ledger.culprit == min(failed, default=None)
    if ledger.open:
        ranges = [index for first, end in ledger.pending_ranges() for index in range(first, end)]
        assert sorted(ranges) == [index for index, state in enumerate(states) if state is TaskState.PENDING]
    if ledger.ended is not None:
        assert not ledger.live
        assert not ledger.due
        assert sum(ledger.counts.get(state, 0) for state in TASK_TERMINAL) == ledger.spec.replicas
        assert all(state in TASK_TERMINAL for state in states)


@given(SPECS, STEPS)
def test_laws(spec, steps):
    """At every step: indexes agree with tasks, replay and snapshot give the same state, a job ends at most once."""
    life = Life(spec)
    for step in steps:
        life.step(*step)
        check(life.ledger)
    for records in (life.records, list(compact(life.ledger))):
        again = JobLedger("job-a", 0, spec, life.ledger.submitted_wall_ns)
        for record in records:
            evolve(again, record)
        assert clean(again) == clean(life.ledger)
        assert list(again.timed) == list(life.ledger.timed)
        assert list(again.earlier) == list(life.ledger.earlier)
    assert len(life.ends) <= 1
    for task in life.ledger.tasks.values():
        assert task.failures <= spec.max_retries_failure + 1
        assert task.preemptions <= spec.max_retries_preemption + 1


@given(SPECS, STEPS, st.sampled_from(list(Ending)))
def test_every_job_can_end(spec, steps, ending):
    """However it went so far, a terminated job ends when its attempts do and its logs are settled."""
    life = Life(spec)
    for step in steps:
        life.step(*step)
    life.decide(TerminateJob("job-a"))
    for uid in list(life.ledger.live):
        if uid in life.ledger.live:  # a gang's member that has ended is over with the last of the others
            life.observe(uid, Observation(uid, TaskState.RUNNING, AttemptEnd(ending), True))
    for key, effect in list(life.runs.items()):
        life.decide(Completed(key, effect, effect.offset))
    life.decide(Settle(JobState.PENDING))
    assert life.ledger.ended is not None
    check(life.ledger)


def test_resume_covers_every_obligation():
    """A new incarnation asks for logs again, waits for leases again, tells its links and the scheduler, and settles."""
    life = Life(command_spec(replicas=3))
    life.step("place", 0, 0)
    life.step("place", 1, 1)
    life.step("end", 0, (Ending.SUCCEEDED, True, True))
    life.step("lose", 1, False)
    again = list(life.decisions.resume(life.ledger, life.ctx))
    kinds = [type(getattr(command, "message", None) or command).__name__ for command in again]
    assert kinds == ["JobAwake", "DesiredOn", "Due", "Run", "Settle"]


def again_and_again(life, index, times, fault=""):
    """Have a task's attempts fail, one after the other, before the user's code ran or (with a fault) by its doing."""
    for _ in range(times):
        life.step("place", index, 0)
        (uid,) = life.ledger.live
        ending = Ending.FAILED if fault else Ending.REFUSED
        life.observe(
            uid,
            Observation(
                uid, TaskState.RUNNING, AttemptEnd(ending, fault=Fault("", fault) if fault else None), bool(fault)
            ),
        )


def restored(life):
    """Return the ledger that the job's snapshot makes."""
    again = JobLedger("job-a", 0, life.ledger.spec, life.ledger.submitted_wall_ns)
    for record in compact(life.ledger):
        evolve(again, record)
    return again


def test_a_task_keeps_its_newest_attempts():
    """Of 20 attempts of one task the last 16 are kept, the latest included, through a snapshot as well."""
    life = Life(command_spec())
    again_and_again(life, 0, 20)
    check(life.ledger)
    task = life.ledger.tasks[0]
    assert [each.number for each in (*task.earlier, task.attempt)] == list(range(20 - MAX_ATTEMPTS_SHOWN + 1, 21))
    assert clean(restored(life)) == clean(life.ledger)


def test_a_job_keeps_its_newest_attempts(monkeypatch):
    """Beyond the job's own limit the attempt that was followed first is forgotten, whichever task it was of."""
    monkeypatch.setattr(ledger_module, "MAX_EARLIER_ATTEMPTS", 5)
    life = Life(command_spec(replicas=3))
    for index in (0, 1, 2, 0, 1, 2):
        again_and_again(life, index, 2)
        check(life.ledger)
    kept = [[each.number for each in life.ledger.tasks[index].earlier] for index in range(3)]
    assert kept == [[3], [2, 3], [2, 3]]
    assert clean(restored(life)) == clean(life.ledger)


def test_what_a_job_says_is_bounded(monkeypatch):
    """When a job's faults have filled their room, further ones are left out; room comes back with what is forgotten."""
    monkeypatch.setattr(ends_module, "MAX_FAULTS_CHARS", 25)
    monkeypatch.setattr(ledger_module, "MAX_EARLIER_ATTEMPTS", 3)
    life = Life(command_spec(max_retries_failure=9))
    again_and_again(life, 0, 6, fault="01234\n6789")
    check(life.ledger)
    task = life.ledger.tasks[0]
    assert [len(each.details) for each in (*task.earlier, task.attempt)] == [0, 0, 10, 10]
    assert life.ledger.faults_chars == 20


def test_a_start_is_remembered():
    """When the user's code first ran is kept through snapshots, and known of an attempt that was never seen running."""
    life = Life(command_spec(replicas=2, max_retries_failure=9))
    life.step("place", 0, 0)
    (uid,) = life.ledger.live
    assert life.ledger.started_wall_ns == 0
    life.observe(uid, Observation(uid, TaskState.RUNNING, AttemptEnd(Ending.FAILED), True))
    began = life.ledger.started_wall_ns
    assert began == life.ledger.tasks[0].attempt.started_wall_ns > 0
    again_and_again(life, 0, 1, fault="x")
    assert restored(life).started_wall_ns == life.ledger.started_wall_ns == began


def test_what_one_step_says_is_bounded_as_well(monkeypatch):
    """Faults that are recorded together fill the same room: what the first took the last does not get."""
    monkeypatch.setattr(ends_module, "MAX_FAULTS_CHARS", 25)
    life = Life(command_spec(replicas=3, max_task_failures=9))
    for index in range(3):
        life.step("place", index, 0)
    seen = tuple(
        Observation(uid, TaskState.RUNNING, AttemptEnd(Ending.FAILED, fault=Fault("", "01234\n6789")), True)
        for uid in life.ledger.live
    )
    life.decide(AttemptsObserved("w0", "a", seen))
    check(life.ledger)
    assert [len(task.attempt.details) for task in life.ledger.tasks.values()] == [10, 10, 0]


def test_the_fault_of_a_job_is_that_of_the_task_it_names():
    """The lowest of those that failed, whichever was the first; through a snapshot as well."""
    life = Life(command_spec(replicas=3, max_task_failures=2))
    for index in (1, 0, 2):
        again_and_again(life, index, 1, fault=f"of\ntask {index}")
        check(life.ledger)
    for ledger in (life.ledger, restored(life)):
        view = views.answer(ledger, DescribeJob(), "")
        assert (view.reason, view.fault) == ("3 of 3 tasks; task 0: task 0", "of\ntask 0")
