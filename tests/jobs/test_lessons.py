"""What other systems have learned the hard way, as laws of jobs: planted bugs repeat each (tests/sims/mutants)."""

from jobs_world import command_spec, job_context

from iriscw.jobs.job.decisions import JobDecisions
from iriscw.jobs.job.ledger import JobLedger, evolve
from iriscw.jobs.messages import AttemptsObserved, ReleaseAttempts
from iriscw.jobs.model import AttemptEnd, Ending, Observation, TaskState
from iriscw.jobs.records import AttemptEnded, AttemptPlaced
from iriscw.runtime.vocabulary import Decision, Tell

DECISIONS = JobDecisions()


def test_a_stale_end_changes_nothing():
    """The end of an earlier attempt, told late by the same worker, is forgotten there and is not the present one's."""
    ledger = JobLedger("job-a", 0, command_spec(max_retries_failure=1), 0)
    for record in (
        AttemptPlaced(0, "first", 1, "w", "a", 1),
        AttemptEnded(0, "first", AttemptEnd(Ending.FAILED), TaskState.PENDING, 2, failure=True),
        AttemptPlaced(0, "second", 2, "w", "a", 3),
    ):
        evolve(ledger, record)
    stale = (Observation("first", TaskState.RUNNING, AttemptEnd(Ending.FAILED, exit_code=1), True),)
    outcome = DECISIONS.observed(ledger, AttemptsObserved("w", "a", stale), job_context())
    assert isinstance(outcome, Decision)
    assert outcome.records == ()
    told = [command.message for command in outcome.commands if isinstance(command, Tell)]
    assert told == [ReleaseAttempts("a", ("first",))]
    assert ledger.state_of(0) is TaskState.ASSIGNED
