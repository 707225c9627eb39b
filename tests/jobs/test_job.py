"""Decisions of one job that no ordinary run shows: its workers' words, full mailboxes, late clocks. Its life is in
test_actor.py, its laws in test_ledger.py.
"""

from __future__ import annotations

import pytest
from job_walk import Walk
from jobs_world import command_spec, job_context

from iriscw.jobs.job import views
from iriscw.jobs.job.decisions import JobDecisions
from iriscw.jobs.job.ledger import JobLedger, evolve
from iriscw.jobs.messages import (
    AttemptsLost,
    AttemptsObserved,
    AttemptsOver,
    DesiredOn,
    Due,
    JobAdvanced,
    JobAwake,
    JobDone,
    LinkNeedsDesired,
    Placed,
    Placement,
    ReleaseAttempts,
    RunAttempts,
    Settle,
    StopAttempts,
    StopRest,
    TerminateJob,
)
from iriscw.jobs.model import AttemptEnd, Ending, JobState, Observation, TaskState
from iriscw.jobs.records import (
    AttemptAdvanced,
    AttemptEnded,
    AttemptPlaced,
    JobEnded,
    VerdictReached,
    WorkerReturned,
    WorkerSuspected,
)
from iriscw.jobs.settings import DEFAULT_SETTINGS
from iriscw.jobs.step_limits import STEP_ATTEMPTS
from iriscw.runtime.vocabulary import SECOND, ActorPath, CancelTimer, Continue, Decision, SetTimer, Tell, Undelivered

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


def test_a_stale_end_changes_nothing():
    """The end of an earlier attempt, told late by the same worker, is forgotten there and is not the present one's."""
    ledger = ledger_with(
        AttemptPlaced(0, "first", 1, "w", "a", 1),
        AttemptEnded(0, "first", AttemptEnd(Ending.FAILED), TaskState.PENDING, 2, failure=True),
        AttemptPlaced(0, "second", 2, "w", "a", 3),
        max_retries_failure=1,
    )
    stale = (Observation("first", TaskState.RUNNING, AttemptEnd(Ending.FAILED, exit_code=1), True),)
    outcome = DECISIONS.observed(ledger, AttemptsObserved("w", "a", stale), job_context())
    assert isinstance(outcome, Decision)
    assert outcome.records == ()
    assert told(outcome, object) == [("w", ReleaseAttempts("a", ("first",)))]
    assert ledger.state_of(0) is TaskState.ASSIGNED


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


# With neighbours

SCHEDULER, REGISTRY, LINK = ActorPath("/jobs/scheduler"), ActorPath("/jobs"), ActorPath("/jobs/links/w0")


@pytest.fixture
def walk():
    """A job of three tasks, one of them placed."""
    it = Walk(command_spec(replicas=3, max_retries_preemption=9))
    it.place(0, "w0")
    return it


def heard(walk, message):
    """Have the job decide; give what it tells."""
    told = []
    walk._told, kept = lambda name, each: told.append((name, each)) or (), walk._told
    walk.send(message)
    walk._told = kept
    return told


@pytest.mark.parametrize(
    ("to", "message", "name", "kind"),
    [
        (SCHEDULER, AttemptsOver("job-a", ()), "scheduler", JobAwake),
        (REGISTRY, JobAdvanced("job-a", JobState.RUNNING), "jobs", JobAdvanced),
        (LINK, RunAttempts("a", ()), "w0", DesiredOn),
        (LINK, StopAttempts("a", ("u1",), Ending.KILLED), "w0", DesiredOn),
        (LINK, ReleaseAttempts("a", ("u0",)), "w0", DesiredOn),
        (LINK, DesiredOn("job-a", "a", ()), "w0", DesiredOn),
    ],
)
def test_who_had_no_room_is_told_the_whole_truth_in_a_while(walk, to, message, name, kind):
    """To the scheduler: to ask. To the registry: the present counts. To a link: all that should run there."""
    (clock,) = walk.rules[Undelivered](walk.ledger, Undelivered(to, message), walk.ctx)
    assert isinstance(clock, SetTimer)
    assert clock.delay == SECOND
    ((receiver, told),) = heard(walk, clock.message)
    assert (receiver, type(told)) == (name, kind)
    if kind is DesiredOn:
        assert told.incarnation == "a"
        assert [each.order.uid for each in told.attempts] == [*walk.ledger.live]


def test_a_link_is_told_again_what_its_own_incarnation_should_run(walk):
    """A worker that came back while its last incarnation is still waited for: each has its own clock and its own truth.

    Of an incarnation on which nothing lives any more the truth is that: what ended there may be forgotten.
    """
    walk.send(AttemptsLost("w0", "a", False, "silent"))
    walk.send(Placed((Placement(1, "second", "w0", "b"),)))
    for incarnation, live in (("a", ["u1"]), ("b", ["second"]), ("c", [])):
        release = Undelivered(LINK, ReleaseAttempts(incarnation, ("over",)))
        (clock,) = walk.rules[Undelivered](walk.ledger, release, walk.ctx)
        assert clock.key == ("link", "w0", incarnation)
        ((_, told),) = heard(walk, clock.message)
        assert told.incarnation == incarnation
        assert [each.order.uid for each in told.attempts] == live


def test_the_last_end_of_a_job_is_let_forget_although_its_link_had_no_room():
    """The job is over by then: else the worker would keep what ended for as long as it is connected."""
    walk = Walk(command_spec(replicas=1))
    walk.place(0, "w0")
    walk.full["w0"] = None
    walk.see("u1", Observation("u1", TaskState.RUNNING, AttemptEnd(Ending.SUCCEEDED), True))
    assert walk.ledger.ended is not None
    assert [*walk.orders] == ["u1"]
    walk.catch_up()
    assert not walk.orders
    assert len(walk.done) == 1


def test_what_it_tells_itself_is_told_again_as_it_was(walk):
    """A job whose own mailbox is full has not forgotten what it was about to do."""
    lost = AttemptsLost("w0", "a", True, "gone")
    (clock,) = walk.rules[Undelivered](walk.ledger, Undelivered(walk.ctx.path, lost), walk.ctx)
    assert clock.message == lost
    another = Undelivered(walk.ctx.path, AttemptsLost("w1", "a", True, "gone"))
    assert walk.rules[Undelivered](walk.ledger, another, walk.ctx)[0].key != clock.key


def test_a_link_that_asks_hears_of_its_worker_alone(walk):
    """Also if there is nothing for it."""
    walk.place(1, "w1")
    for worker, number in (("w0", 1), ("w1", 1), ("w2", 0)):
        ((name, told),) = heard(walk, LinkNeedsDesired(worker, "a"))
        assert (name, len(told.attempts)) == (worker, number)


def test_a_clock_that_rings_late_does_nothing(walk):
    """Of a worker that has spoken since, of a job that waits for nothing any more."""
    assert heard(walk, Due("lease", "w0", "a")) == []
    assert walk.ledger.open
    for index in (1, 2):
        walk.place(index, "w1")
    assert heard(walk, Due("scheduling")) == []
    assert walk.ledger.open


def test_silence_beyond_its_lease_is_a_loss(walk):
    """With the reason for which the worker was silent; it counts against preemptions."""
    walk.see("u1", Observation("u1", TaskState.RUNNING, started=True))
    walk.send(AttemptsLost("w0", "a", False, "no contact"))
    walk.ring(("lease", "w0", "a"))
    attempt = walk.ledger.tasks[0].attempt
    assert (attempt.ending, "no contact" in attempt.reason) == (Ending.WORKER_LOST, True)
    assert (walk.ledger.preemptions, walk.ledger.failures) == (1, 0)
    assert walk.room == {}


def test_a_task_says_since_when_it_waits_or_runs(walk):
    """Since it was placed, and since its attempt was over."""
    told = []
    for happens in (
        lambda: None,
        lambda: walk.send(AttemptsLost("w0", "a", True, "gone")),
        lambda: walk.place(0, "w1"),
    ):
        happens()
        told.append(walk.ledger.tasks[0].since_wall_ns)
        assert walk.ctx.wall - 50 < told[-1] <= walk.ctx.wall
        walk.ctx.wall += 100
    assert told == sorted({*told})


def test_the_registry_is_not_told_what_it_knows(walk):
    """Settling twice tells nothing the second time, nor does the clock if nothing has changed since."""
    walk.ring("tally")
    assert walk.advanced is not None
    for _ in range(2):
        told = heard(walk, Settle(walk.ledger.shown()))
        assert [each for _, each in told if isinstance(each, JobAdvanced)] == []
    while "tally" in walk.clocks:
        walk.clocks.pop("tally")
        assert heard(walk, Due("tally")) == []


def test_an_attempt_that_ran_too_long_is_stopped_once():
    """It is written down, so that a new incarnation stops it again; its timeout runs no more."""
    walk = Walk(command_spec(replicas=1, timeout_ns=5 * SECOND))
    walk.place(0, "w0")
    walk.see("u1", Observation("u1", TaskState.RUNNING, started=True))
    walk.ring("timeout")
    attempt = walk.ledger.tasks[0].attempt
    assert (attempt.overran, walk.ledger.timed, walk.orders) == (True, {}, {"u1": "stop"})
    ((_, told),) = heard(walk, LinkNeedsDesired("w0", "a"))
    assert told.attempts[0].stop is Ending.TIMED_OUT


def endings(told):
    """Return what those who are stopped are to be called."""
    return {each.ending for _, each in told if isinstance(each, StopAttempts)}


def test_who_is_stopped_with_its_job_was_killed(walk):
    """By whoever ended the job, or by the failure of another task."""
    walk.place(1, "w1")
    assert endings(heard(walk, TerminateJob("job-a", "enough"))) == {Ending.KILLED}


def test_who_is_stopped_with_its_gang_is_called_so():
    """It has done nothing itself, whatever the gang's job comes to."""
    walk = Walk(command_spec(replicas=3, group_by="slice-id"))
    placements = tuple(Placement(index, f"u{index}", "w0", "a") for index in range(3))
    walk.waiting.clear()
    walk.send(Placed(placements))
    failed = Observation("u0", TaskState.RUNNING, AttemptEnd(Ending.FAILED, exit_code=1), True)
    assert endings(heard(walk, AttemptsObserved("w0", "a", (failed,)))) == {Ending.GANG_STOPPED}
    assert walk.ledger.verdict is None  # it may be that one of them was lost
    stopped = [Observation(f"u{index}", TaskState.RUNNING, AttemptEnd(Ending.GANG_STOPPED), True) for index in (1, 2)]
    heard(walk, AttemptsObserved("w0", "a", tuple(stopped)))
    walk.settle()
    assert walk.ledger.ended.state is JobState.FAILED


def test_further_steps_of_a_stop_are_about_those_that_live_still(walk):
    """Who has ended since is not stopped; its worker may not know it any more."""
    told = heard(walk, StopRest(("over", "u1", "gone"), 0, Ending.KILLED))
    assert told == [("w0", StopAttempts("a", ("u1",), Ending.KILLED))]
    assert heard(walk, StopRest(("u1", "over"), 1, Ending.KILLED)) == []
    for number, more in ((STEP_ATTEMPTS, ()), (STEP_ATTEMPTS + 1, (STEP_ATTEMPTS,))):
        rest = StopRest(("over",) * number, 0, Ending.KILLED)
        out = walk.rules[StopRest](walk.ledger, rest, walk.ctx)
        assert out == tuple(Continue(StopRest(rest.uids, first, Ending.KILLED)) for first in more)


def test_a_place_for_a_job_that_is_over_is_given_back(walk):
    """Nothing is ordered for it."""
    walk.settle()
    told = heard(walk, Placed((Placement(0, "late", "w1", "a"),)))
    assert told == [("scheduler", AttemptsOver("job-a", ("late",)))]


def test_what_the_scheduler_said_is_forgotten_when_a_task_is_placed(walk):
    """It was true before that; what could not be used changes nothing."""
    walk.ledger.heard = "of 1 worker: 1 is too small"
    walk.send(Placed((Placement(0, "again", "w1", "a"),)))
    assert walk.ledger.heard
    walk.place(1, "w1")
    assert walk.ledger.heard == ""


def test_what_is_left_of_a_lost_worker_is_told_again_to_itself():
    """Nobody else would tell of it again, however many attempts were there; its lease runs until the last has ended."""
    walk = Walk(command_spec(replicas=STEP_ATTEMPTS + 1, max_retries_preemption=9))
    walk.send(Placed(tuple(Placement(index, f"u{index}", "w0", "a") for index in range(STEP_ATTEMPTS + 1))))
    walk.send(AttemptsLost("w0", "a", False, "silent"))
    lost = AttemptsLost("w0", "a", True, "gone")
    for told, live, suspects in (([lost], 1, 1), ([], 0, 0)):
        assert [each for name, each in heard(walk, lost) if name == "job-a"] == told
        assert (len(walk.ledger.live), len(walk.ledger.suspects)) == (live, suspects)
        assert (("lease", "w0", "a") in walk.clocks) == bool(suspects)
