"""What generated bugs of a job showed to be unsaid: each test is the law that one of them broke."""

from jobs_world import command_spec, job_context

from iriscw.jobs.job.decisions import JobDecisions
from iriscw.jobs.job.ledger import JobLedger, evolve
from iriscw.jobs.messages import AttemptsLost, AttemptsObserved, Due, LinkNeedsDesired, ReleaseAttempts, StopAttempts
from iriscw.jobs.model import AttemptEnd, Ending, JobState, Observation, TaskState
from iriscw.jobs.records import (
    AttemptAdvanced,
    AttemptEnded,
    AttemptPlaced,
    VerdictReached,
    WorkerReturned,
    WorkerSuspected,
)
from iriscw.jobs.settings import DEFAULT_SETTINGS
from iriscw.runtime.vocabulary import CancelTimer, Decision, SetTimer, Tell

DECISIONS = JobDecisions()
PLACED = AttemptPlaced(0, "u", 1, "w", "a", 1)
RUNS = AttemptAdvanced(0, "u", TaskState.RUNNING, 2)


def ledger_with(*records, **fields):
    """Return a ledger after some records."""
    ledger = JobLedger("job-a", 0, command_spec(**fields), 0)
    for record in records:
        evolve(ledger, record)
    return ledger


def told(outcome, kind):
    """Return the messages of one kind, with the names of those who get them."""
    commands = outcome.commands if isinstance(outcome, Decision) else outcome or ()
    return [(c.to.name, c.message) for c in commands if isinstance(c, Tell) and isinstance(c.message, kind)]


def test_what_is_none_of_ours_is_stopped_or_forgotten():
    """An attempt nobody wants is stopped where it runs, and forgotten where it ended; nothing is recorded."""
    alive, over = (
        Observation("x", TaskState.RUNNING),
        Observation("y", TaskState.RUNNING, AttemptEnd(Ending.FAILED), True),
    )
    outcome = DECISIONS.observed(ledger_with(), AttemptsObserved("w", "a", (alive, over)), job_context())
    assert told(outcome, StopAttempts) == [("w", StopAttempts("a", ("x",), Ending.KILLED))]
    assert told(outcome, ReleaseAttempts) == [("w", ReleaseAttempts("a", ("y",)))]
    assert outcome.records == ()


def test_a_lease_runs_on_the_attentive_clock():
    """A stall of the controller ends no attempt: the wait for a silent worker counts listening time alone."""
    outcome = DECISIONS.lost(ledger_with(PLACED, RUNS), AttemptsLost("w", "a", False, "silent"), job_context())
    assert [type(record) for record in outcome.records] == [WorkerSuspected]
    (clock,) = outcome.commands
    assert clock == SetTimer(
        ("lease", "w", "a"), DEFAULT_SETTINGS.lease_grace_ns, Due("lease", "w", "a"), attentive=True
    )


def test_a_worker_is_suspected_once():
    """A second report of its silence starts no second wait."""
    suspected = WorkerSuspected("w", "a", "silent", 3)
    ledger = ledger_with(PLACED, RUNS, suspected)
    assert DECISIONS.lost(ledger, AttemptsLost("w", "a", False, "silent"), job_context()) is None


def test_a_word_of_the_worker_takes_the_suspicion_back():
    """Whatever it says; and the clock stops."""
    ledger = ledger_with(PLACED, RUNS, WorkerSuspected("w", "a", "silent", 3))
    seen = Observation("u", TaskState.RUNNING, None, True)
    outcome = DECISIONS.observed(ledger, AttemptsObserved("w", "a", (seen,)), job_context())
    assert outcome.records == (WorkerReturned("w", "a"),)
    assert CancelTimer(("lease", "w", "a")) in outcome.commands


def test_a_fenced_worker_is_not_waited_for():
    """What it ran is over at once, and a suspicion with it."""
    ledger = ledger_with(PLACED, RUNS, WorkerSuspected("w", "a", "silent", 3), max_retries_preemption=1)
    outcome = DECISIONS.lost(ledger, AttemptsLost("w", "a", True, "its pod is gone"), job_context())
    (end, returned) = outcome.records
    assert (type(end), end.end.ending, end.then) == (AttemptEnded, Ending.WORKER_LOST, TaskState.PENDING)
    assert returned == WorkerReturned("w", "a")
    assert CancelTimer(("lease", "w", "a")) in outcome.commands


def test_a_lease_that_ends_after_the_worker_is_back_ends_nothing():
    """The clock may have been on its way."""
    assert DECISIONS.due(ledger_with(PLACED, RUNS), Due("lease", "w", "a"), job_context()) is None


def test_progress_never_goes_back():
    """An older word, told late, records nothing."""
    ledger = ledger_with(PLACED, RUNS)
    for state in (TaskState.ASSIGNED, TaskState.BUILDING, TaskState.RUNNING):
        outcome = DECISIONS.observed(ledger, AttemptsObserved("w", "a", (Observation("u", state),)), job_context())
        assert not isinstance(outcome, Decision) or outcome.records == ()


def test_a_link_hears_with_which_ending_attempts_are_stopped():
    """A gang that is over stops its members as such; any other verdict kills."""
    for waiting, ending in ((TaskState.COSCHED_FAILED, Ending.GANG_STOPPED), (TaskState.KILLED, Ending.KILLED)):
        ledger = ledger_with(PLACED, RUNS, VerdictReached(JobState.FAILED, waiting, "why", 3))
        (command,) = DECISIONS.link_needs_desired(ledger, LinkNeedsDesired("w", "a"), job_context())
        assert [each.stop for each in command.message.attempts] == [ending]
