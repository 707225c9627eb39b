"""Decisions of one job that no ordinary run shows. Its life is in test_actor.py, its laws in test_ledger.py."""

from jobs_world import command_spec, job_context

from iriscw.jobs.job import views
from iriscw.jobs.job.decisions import JobDecisions
from iriscw.jobs.job.ledger import JobLedger, evolve
from iriscw.jobs.messages import AttemptsObserved, AttemptsOver, JobDone, Placed, Placement
from iriscw.jobs.model import AttemptEnd, Ending, JobState, Observation, TaskState
from iriscw.jobs.records import AttemptPlaced, JobEnded
from iriscw.runtime.vocabulary import ActorPath, Decision, Tell

DECISIONS = JobDecisions()


def ledger_with(*records, **fields):
    """Return a ledger after some records."""
    ledger = JobLedger("job-a", 0, command_spec(**fields), 0)
    for record in records:
        evolve(ledger, record)
    return ledger


def test_only_the_attempts_own_incarnation_counts():
    """INV-J2: what another worker, or another incarnation of this one, says of an attempt changes nothing."""
    ledger = ledger_with(AttemptPlaced(0, "u", 1, "w", "a", 1))
    seen = (Observation("u", TaskState.RUNNING, AttemptEnd(Ending.SUCCEEDED, exit_code=0), True),)
    for worker_id, incarnation in (("w", "b"), ("x", "a")):
        outcome = DECISIONS.observed(ledger, AttemptsObserved(worker_id, incarnation, seen), job_context())
        assert not isinstance(outcome, Decision) or outcome.records == ()
    outcome = DECISIONS.observed(ledger, AttemptsObserved("w", "a", seen), job_context())
    assert len(outcome.records) == 1


def test_a_task_is_placed_once():
    """Of two places for one task the second is given back."""
    both = Placed((Placement(0, "u", "w", "a"), Placement(0, "v", "x", "a")))
    outcome = DECISIONS.placed(ledger_with(), both, job_context())
    assert [record.uid for record in outcome.records] == ["u"]
    assert Tell(ActorPath("/jobs/scheduler"), AttemptsOver("job-a", ("v",))) in outcome.commands


def test_an_end_is_told_again():
    """A new incarnation of a finished job tells the registry: the first message may have died with the process."""
    ledger = ledger_with(JobEnded(JobState.KILLED, "why", 7))
    done = JobDone("job-a", JobState.KILLED, "why", 7, views.tally(ledger))
    assert list(DECISIONS.resume(ledger, job_context())) == [Tell(ActorPath("/jobs"), done)]
