"""The registry at its edges: limits, keys, pages, and what it tells a scheduler that is new."""

from __future__ import annotations

import pytest
from jobs_world import command_spec, job_context

from iriscw.jobs.messages import (
    JobAbsent,
    JobAdvanced,
    JobDone,
    JobIntroduced,
    JobsKnown,
    ListJobs,
    SchedulerAwake,
    SubmitJob,
    Sweep,
    TerminateJob,
)
from iriscw.jobs.model import Existing, JobState, TaskState
from iriscw.jobs.registry import (
    MAX_KEY_LENGTH,
    SWEEP_BATCH,
    JobRegistry,
    JobRegistryDecisions,
    RegistryLimits,
    compact,
    evolve,
)
from iriscw.runtime.behavior import Behavior, ChildSpec
from iriscw.runtime.vocabulary import (
    SECOND,
    ActorPath,
    Continue,
    Decision,
    Emit,
    Forget,
    Refuse,
    Replied,
    Reply,
    ReplyTo,
    Request,
    RequestFailed,
    Spawn,
    StopChild,
    StopReason,
    Tell,
    Terminated,
    Undelivered,
    Watch,
)

JOBS, SCHEDULER = ActorPath("/jobs"), ActorPath("/jobs/scheduler")


class Bench:
    """A registry whose decisions are called directly."""

    def __init__(self, **limits):
        self.ctx = job_context(path=JOBS)
        self.decisions = JobRegistryDecisions(
            lambda entry: ChildSpec(entry.job_id, Behavior()), RegistryLimits(**limits)
        )
        self.state = JobRegistry()

    def send(self, message, *, asked=True):
        """Decide, and apply; give the commands."""
        self.ctx.reply_to = ReplyTo(1) if asked else None
        outcome = self.decisions.rules()[type(message)](self.state, message, self.ctx)
        if isinstance(outcome, Decision):
            for record in outcome.records:
                evolve(self.state, record)
            outcome = outcome.commands
        return tuple(outcome or ())

    def submit(self, name="a", key=None, existing=Existing.ERROR, **fields):
        """Submit a job; give the answer, whatever it is."""
        self.said = self.send(SubmitJob(command_spec(name, **fields), key or f"key-{name}", existing))
        (answer,) = [each for each in self.said if isinstance(each, Reply | Refuse)]
        return answer.value if isinstance(answer, Reply) else type(answer.error).__name__

    def end(self, job_id, state=JobState.SUCCEEDED):
        """Have a job end."""
        return self.send(JobDone(job_id, state, "why", self.ctx.wall, None), asked=False)

    def restart(self):
        """Go on from a snapshot."""
        records, self.state = compact(self.state), JobRegistry()
        for record in records:
            evolve(self.state, record)

    def page(self, **question):
        """List; give the ids."""
        (reply,) = self.send(ListJobs(**question))
        return [row.job_id for row in reply.value.rows], reply.value.next


@pytest.fixture
def bench():
    """A registry without a job."""
    return Bench()


def test_nobody_who_asks_nothing_is_answered(bench):
    """A request without a way to answer is not carried out."""
    for message in (SubmitJob(command_spec(), "key", Existing.ERROR), ListJobs(), TerminateJob("x")):
        assert bench.send(message, asked=False) == ()
    assert bench.state.entries == {}


@pytest.mark.parametrize(
    ("length", "taken"), [(0, False), (1, True), (MAX_KEY_LENGTH, True), (MAX_KEY_LENGTH + 1, False)]
)
def test_a_key_has_its_bounds(bench, length, taken):
    """From one character to the most that are stored."""
    answer = bench.send(SubmitJob(command_spec(), "k" * length, Existing.ERROR))[-1 if not taken else 1]
    assert isinstance(answer, Reply if taken else Refuse)


def test_a_key_names_its_job_as_long_as_that_is_listed(bench):
    """Repeated it is the same job; with another specification it is refused; forgotten it is free."""
    first = bench.submit()
    again = bench.submit()
    assert (again.job_id, first.fresh, again.fresh) == (first.job_id, True, False)
    assert bench.submit("b", key="key-a") == "KeyReused"
    bench.end(first.job_id)
    assert bench.submit().job_id == first.job_id
    bench.send(Terminated(JOBS / first.job_id, StopReason.NORMAL), asked=False)
    assert bench.submit().fresh


def test_a_name_is_held_until_its_job_ends(bench):
    """Then it is free; meanwhile it is refused, kept, or taken over, as the submitter wants."""
    first = bench.submit()
    assert bench.submit(key="other") == "JobExists"
    assert bench.submit(key="other", existing=Existing.KEEP).job_id == first.job_id
    second = bench.submit(key="other", existing=Existing.RECREATE)
    assert second.fresh
    told = [each for each in bench.said if isinstance(each, Tell)]
    assert [(each.to, type(each.message)) for each in told] == [(JOBS / first.job_id, TerminateJob)]
    told = [each.message for each in bench.end(first.job_id, JobState.KILLED) if isinstance(each, Tell)]
    assert [each.job_id for each in told if isinstance(each, JobIntroduced)] == [second.job_id]
    bench.end(second.job_id)
    assert bench.submit(key="third").fresh


def test_a_new_job_is_started_introduced_and_published(bench):
    """In one decision with its record."""
    answer = bench.submit()
    assert [type(each) for each in bench.said] == [Spawn, Reply, Emit, Tell]
    assert bench.said[-1].to == SCHEDULER
    assert bench.said[-1].message.job_id == answer.job_id


@pytest.mark.parametrize(
    ("limits", "error"),
    [({"jobs": 2}, "TooManyJobs"), ({"tasks": 7}, "TooManyTasks"), ({"specs_bytes": 2048}, "TooManyJobs")],
)
def test_limits_are_exact(limits, error):
    """As much as they say is taken; what comes on top is refused by name, until room is back."""
    bench = Bench(**limits)
    first = bench.submit("a", replicas=3)
    assert bench.submit("b", replicas=4).fresh
    assert bench.submit("c", replicas=1) == error
    bench.end(first.job_id)
    bench.send(Terminated(JOBS / first.job_id, StopReason.NORMAL), asked=False)
    assert bench.submit("c", replicas=1).fresh


def test_finished_jobs_are_forgotten_in_batches(bench):
    """The oldest beyond the limit, each stopped and watched; its records go when it is gone."""
    bench = Bench(finished=2)
    names = [bench.submit(f"n{number}").job_id for number in range(SWEEP_BATCH + 4)]
    swept = [Continue(Sweep()) in bench.end(name) for name in names]
    assert swept == [False, False] + [True] * (SWEEP_BATCH + 2)
    stopped = bench.send(Sweep(), asked=False)
    assert [each.name for each in stopped if isinstance(each, StopChild)] == names[:SWEEP_BATCH]
    assert [each.path.name for each in stopped if isinstance(each, Watch)] == names[:SWEEP_BATCH]
    for index, name in enumerate(names[: SWEEP_BATCH + 2]):
        commands = bench.send(Terminated(JOBS / name, StopReason.NORMAL), asked=False)
        assert Forget(name) in commands
        assert (Continue(Sweep()) in commands) == (index < SWEEP_BATCH + 1)
    assert [*bench.state.entries] == names[-2:]
    assert bench.send(Sweep(), asked=False) == ()


def test_the_end_of_an_actor_is_the_end_of_no_job(bench):
    """One that has not finished stays listed; a quarantined one is not waited for; a stranger is nobody."""
    job_id = bench.submit().job_id
    assert bench.send(Terminated(JOBS / job_id, StopReason.NORMAL), asked=False) == ()
    (told,) = bench.send(Terminated(JOBS / job_id, StopReason.QUARANTINED), asked=False)
    assert (told.to, told.message) == (SCHEDULER, JobAbsent(job_id))
    assert [*bench.state.entries] == [job_id]
    assert bench.send(Terminated(JOBS / "job-x", StopReason.QUARANTINED), asked=False) == ()


def test_pages_follow_one_another(bench):
    """The latest first, so many at a time, each once; the last page says that it is one."""
    ids = [bench.submit(f"n{number}").job_id for number in range(5)][::-1]
    assert bench.page(limit=2) == (ids[:2], ids[1])
    assert bench.page(limit=2, after=ids[1]) == (ids[2:4], ids[3])
    assert bench.page(limit=2, after=ids[3]) == (ids[4:], "")
    assert bench.page(limit=5) == (ids, "")
    assert bench.page(limit=0) == (ids[:1], ids[0])
    (refused,) = bench.send(ListJobs(after="job-x"))
    assert isinstance(refused, Refuse)


def test_a_listing_is_narrowed_by_state_and_name(bench):
    """Both must hold."""
    first, second = bench.submit("a").job_id, bench.submit("b").job_id
    bench.end(first)
    assert bench.page(states=(JobState.SUCCEEDED,)) == ([first], "")
    assert bench.page(name="b") == ([second], "")
    assert bench.page(name="b", states=(JobState.SUCCEEDED,)) == ([], "")


def test_a_state_is_written_down_when_it_is_another(bench):
    """Once; an end comes with its reason by another way, and nothing changes it after that."""
    job_id = bench.submit().job_id
    bench.send(JobAdvanced(job_id, JobState.RUNNING, None), asked=False)
    assert bench.state.entries[job_id].state is JobState.RUNNING
    bench.send(JobAdvanced(job_id, JobState.KILLED, None), asked=False)
    assert bench.state.entries[job_id].state is JobState.RUNNING
    bench.end(job_id)
    bench.end(job_id, JobState.KILLED)
    bench.send(JobAdvanced(job_id, JobState.RUNNING, None), asked=False)
    assert bench.state.entries[job_id].state is JobState.SUCCEEDED
    assert bench.send(JobAdvanced("job-x", JobState.RUNNING, None), asked=False) == ()
    assert bench.end("job-x") == ()


def test_a_new_scheduler_hears_of_the_jobs_that_may_be_placed(bench):
    """Not of those that ended, nor of those that wait for another to end; which is reminded."""
    done, old = bench.submit("done").job_id, bench.submit("a").job_id
    bench.end(done)
    new = bench.submit("a", key="again", existing=Existing.RECREATE).job_id
    known, *reminders = bench.send(SchedulerAwake(), asked=False)
    assert (known.to, known.message) == (SCHEDULER, JobsKnown((old,)))
    assert [(each.to, type(each.message)) for each in reminders] == [(JOBS / old, TerminateJob)]
    (row,) = [each for each in bench.send(ListJobs())[0].value.rows if each.job_id == new]
    assert old in row.reason
    assert row.tally.counts == ((TaskState.PENDING, 1),)


def test_a_restart_starts_all_jobs_and_goes_on(bench):
    """Also those that ended: somebody may ask them; who is replaced is reminded, and the sweep goes on."""
    done, old = bench.submit("done").job_id, bench.submit("a").job_id
    bench.end(done)
    new = bench.submit("a", key="again", existing=Existing.RECREATE).job_id
    again = JobRegistry()
    for record in compact(bench.state):
        evolve(again, record)
    commands = list(bench.decisions.resume(again, bench.ctx))
    assert [each.spec.name for each in commands if isinstance(each, Spawn)] == [done, old, new]
    assert [each.to for each in commands if isinstance(each, Tell)] == [JOBS / old]
    assert commands[-1] == Continue(Sweep())
    assert again == bench.state


def test_a_restart_keeps_jobs_of_a_name_apart(bench):
    """Also when the one between them is forgotten: the last waits, and when it ends the first has its name again."""
    first, second, third = (bench.submit(key=key, existing=Existing.RECREATE).job_id for key in ("1", "2", "3"))
    bench.end(second, JobState.KILLED)
    bench.send(Terminated(JOBS / second, StopReason.NORMAL), asked=False)
    bench.restart()
    (known, _) = bench.send(SchedulerAwake(), asked=False)
    assert known.message == JobsKnown((first,))
    bench.end(third, JobState.KILLED)
    bench.restart()
    assert bench.submit(key="4") == "JobExists"
    fourth = bench.submit(key="4", existing=Existing.RECREATE).job_id
    (known, _) = bench.send(SchedulerAwake(), asked=False)
    assert known.message == JobsKnown((first,))
    (told,) = [each.message for each in bench.end(first) if isinstance(each, Tell)]
    assert (type(told), told.job_id) == (JobIntroduced, fourth)


def test_a_termination_is_the_jobs_to_answer(bench):
    """Whatever that says; a job that is not listed is refused at once."""
    job_id = bench.submit().job_id
    message = TerminateJob(job_id, "enough")
    (request,) = bench.send(message)
    assert isinstance(request, Request)
    assert (request.to, request.message) == (JOBS / job_id, message)
    (answer,) = bench.send(Replied(request.key, None), asked=False)
    assert answer == Reply(None, to=ReplyTo(1))
    error = TimeoutError("no answer")
    (refused,) = bench.send(RequestFailed(request.key, error), asked=False)
    assert (refused.error, refused.to) == (error, ReplyTo(1))
    (refused,) = bench.send(TerminateJob("job-x"))
    assert isinstance(refused, Refuse)


def test_a_scheduler_without_room_is_told_again(bench):
    """All that it has to know."""
    (clock,) = bench.send(Undelivered(SCHEDULER, JobsKnown(())), asked=False)
    assert (clock.delay, clock.message) == (SECOND, SchedulerAwake())
