"""The registry: which jobs there are, and what it answers. Its part in the life of jobs is in test_actor.py."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import example, given, strategies as st
from jobs_world import command_spec, job_context

from iriscw.jobs.errors import ParentOver
from iriscw.jobs.messages import (
    EndChildren,
    JobAbsent,
    JobAdvanced,
    JobDone,
    JobIntroduced,
    JobsKnown,
    JobTally,
    ListJobs,
    SchedulerAwake,
    SubmitJob,
    Submitted,
    Sweep,
    TerminateJob,
)
from iriscw.jobs.model import JOB_TERMINAL, Band, Existing, JobState, TaskState
from iriscw.jobs.naming.messages import FindNames, FindNamespace
from iriscw.jobs.records import JobAccepted
from iriscw.jobs.registry import (
    END_BATCH,
    MAX_KEY_LENGTH,
    SWEEP_BATCH,
    JobRegistry,
    JobRegistryDecisions,
    RegisteredJob,
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

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(0, 2), st.sampled_from(Existing)),
        st.tuples(st.just("done"), st.integers(0, 9), st.sampled_from([JobState.SUCCEEDED, JobState.KILLED])),
        st.tuples(st.just("advance"), st.integers(0, 9), st.sampled_from([JobState.RUNNING, JobState.PENDING])),
        st.tuples(st.just("gone"), st.integers(0, 9), st.none()),
        st.tuples(st.just("restart"), st.just(0), st.none()),
        st.tuples(st.just("child"), st.integers(0, 9), st.booleans()),
    ),
    max_size=40,
)
BETWEEN_FORGOTTEN = (
    ("submit", 2, Existing.ERROR),
    ("submit", 2, Existing.RECREATE),
    ("submit", 2, Existing.RECREATE),
    ("done", 1, JobState.KILLED),
    ("gone", 1, None),
)
"""Of three jobs of a name the second, whose place the third took, is forgotten while the first still runs."""


class Bench:
    """A registry whose decisions are called directly."""

    def __init__(self, **limits):
        self.ctx = job_context(path="/jobs")
        self.decisions = JobRegistryDecisions(
            lambda entry: ChildSpec(entry.job_id, Behavior()), RegistryLimits(**limits)
        )
        self.rules = self.decisions.rules()
        self.state = JobRegistry()
        self.records = []
        self.introduced = []

    def decide(self, message, asked=False):
        """Decide, and apply; give the commands."""
        self.ctx.reply_to = ReplyTo(1) if asked else None
        outcome = self.rules[type(message)](self.state, message, self.ctx)
        records = outcome.records if isinstance(outcome, Decision) else ()
        commands = outcome.commands if isinstance(outcome, Decision) else outcome or ()
        for record in records:
            evolve(self.state, record)
        self.records += records
        told = [command.message for command in commands if isinstance(command, Tell)]
        self.introduced += [message.job_id for message in told if isinstance(message, JobIntroduced)]
        return commands

    def submit(self, name, existing=Existing.ERROR, **changes):
        """Submit a job; give its id, or None if it was refused."""
        key = f"key{len(self.records)}"
        commands = self.decide(SubmitJob(command_spec(name, **changes), key, existing), asked=True)
        (answer,) = [command for command in commands if isinstance(command, (Reply, Refuse))]
        if isinstance(answer, Refuse):
            return None
        assert isinstance(answer.value, Submitted)
        assert any(isinstance(command, Spawn) for command in commands) == answer.value.fresh
        return answer.value.job_id

    def step(self, kind, number, other):
        """Carry out one drawn step."""
        jobs = list(self.state.entries)
        if kind == "submit":
            self.submit(f"name{number}", other)
        elif kind == "restart":
            self.state = replayed(compact(self.state), self.state)
        elif jobs:
            job_id = jobs[number % len(jobs)]
            if kind == "child":
                existing = Existing.RECREATE if other else Existing.ERROR
                self.submit(f"name{number % 3}", existing, parent_job_id=job_id, detached=other)
            elif kind == "done":
                self.decide(JobDone(job_id, other, "", 1))
            elif kind == "advance":
                self.decide(JobAdvanced(job_id, other))
            else:
                self.decide(Terminated(ActorPath("/jobs") / job_id, StopReason.NORMAL))


def replayed(records, state):
    """Return the registry that records build.

    It equals ``state``, its orders too, and no record names an unknown job.
    """
    again = JobRegistry()
    for record in records:
        if isinstance(record, JobAccepted):
            assert record.replaces in ("", *again.entries)
        evolve(again, record)
    assert attrs.asdict(again, recurse=False) == attrs.asdict(state, recurse=False)
    assert ([*again.entries], [*again.finished]) == ([*state.entries], [*state.finished])
    return again


def spaces(entry):
    """Give the namespaces in which a job is found."""
    return (entry.root, "") if entry.root == entry.job_id else (entry.root,)


@given(STEPS)
@example([*BETWEEN_FORGOTTEN])
@example([("submit", 0, Existing.ERROR), ("child", 0, True), ("done", 1, JobState.KILLED)])
@example([*BETWEEN_FORGOTTEN, ("done", 1, JobState.KILLED)])
@example([*BETWEEN_FORGOTTEN, ("restart", 0, None), ("done", 0, JobState.KILLED)])
def test_laws(steps):
    """Sums agree with entries; replay and snapshot give the same registry; live jobs of a name run one by one."""
    bench = Bench()
    for step in steps:
        bench.step(*step)
        state = bench.state
        live = [entry for entry in state.entries.values() if not entry.ended]
        assert state.live_jobs == len(live)
        assert state.live_tasks == sum(entry.spec.replicas for entry in live)
        assert state.specs_bytes == sum(entry.size_bytes for entry in state.entries.values())
        assert state.names == {entry.place: entry.job_id for entry in live}
        for index, of in ((state.called, lambda each: (each.spec.name,)), (state.within, spaces)):
            assert {key: [*ids] for key, ids in index.items()} == {
                key: [each.job_id for each in state.entries.values() if key in of(each)]
                for each in state.entries.values()
                for key in of(each)
            }
        free = [entry.place for entry in live if not entry.after]
        assert len(free) == len(set(free))
        assert {entry.job_id for entry in live if not entry.after} <= set(bench.introduced)
        assert not {entry.job_id for entry in live if entry.after} & set(bench.introduced)
        bound = [each for each in live if each.spec.parent_job_id and not each.spec.detached]
        assert state.children == {
            parent: {each.job_id: None for each in bound if each.spec.parent_job_id == parent}
            for parent in {each.spec.parent_job_id for each in bound}
        }
    assert len(bench.introduced) == len(set(bench.introduced))
    for records in (bench.records, compact(bench.state)):
        replayed(records, bench.state)


def test_forgetting_takes_the_oldest_and_its_records():
    """Beyond the limit the job that ended first is stopped; its records go when it is gone, not before."""
    bench = Bench(finished=1)
    jobs = [bench.submit(name) for name in "abc"]
    for job_id in (jobs[1], jobs[0]):
        bench.decide(JobDone(job_id, JobState.SUCCEEDED, "", 1))
    stops = [command.name for command in bench.decide(Sweep()) if hasattr(command, "name")]
    assert stops == [jobs[1]]
    assert jobs[1] in bench.state.entries
    commands = bench.decide(Terminated(ActorPath("/jobs") / jobs[1], StopReason.NORMAL))
    assert commands == (Forget(jobs[1]),)
    assert list(bench.state.entries) == [jobs[0], jobs[2]]


def listed(bench):
    """Return the rows of a listing."""
    (reply,) = bench.decide(ListJobs(), asked=True)
    return {row.job_id: row for row in reply.value.rows}


def test_a_row_is_kept_until_anything_of_its_job_changes():
    """A job that is listed again is listed with the same row; whatever of it is set makes that a new one."""
    bench = Bench()
    job_id = bench.submit("a")
    first = listed(bench)[job_id]
    assert listed(bench)[job_id] is first
    entry = bench.state.entries[job_id]
    for field in attrs.fields(RegisteredJob):
        if field.name != "row":
            before = listed(bench)[job_id]
            setattr(entry, field.name, getattr(entry, field.name))
            after = listed(bench)[job_id]
            assert (after == before, after is before) == (True, False), field.name


def test_an_untouched_job_waits_with_all_its_tasks():
    """A job that has told nothing yet is listed with all tasks pending."""
    bench = Bench()
    job_id = bench.submit("a")
    assert listed(bench)[job_id].tally.counts == ((TaskState.PENDING, 1),)
    bench.decide(JobAdvanced(job_id, JobState.RUNNING))
    assert listed(bench)[job_id].tally.counts == ()


def test_a_listing_says_what_was_asked_for():
    """Size, priority and parent of a job are listed as they were submitted, without asking the job."""
    bench = Bench()
    parent = bench.submit("p")
    job_id = bench.submit("a", band=Band.BATCH, parent_job_id=parent)
    row = listed(bench)[job_id]
    assert (row.demand, row.band, row.parent_job_id) == (command_spec().demand, Band.BATCH, parent)


def ended_by(bench, commands):
    """Carry out the steps in which children are ended; give the jobs that are told to end, and how often it went on."""
    told, steps = [], 0
    for command in commands:
        if isinstance(command, Tell) and isinstance(command.message, TerminateJob):
            told.append((command.to.name, command.message.reason))
        elif isinstance(command, Continue) and isinstance(command.message, EndChildren):
            more, further = ended_by(bench, bench.decide(command.message))
            told, steps = [*told, *more], steps + 1 + further
    return told, steps


@pytest.mark.parametrize("state", JOB_TERMINAL)
def test_children_end_with_their_parent(state):
    """However a job ends, those that its tasks submitted are told to end, and why; not those that are detached."""
    bench = Bench()
    parent = bench.submit("p")
    child, other = bench.submit("c", parent_job_id=parent), bench.submit("o")
    bench.submit("d", parent_job_id=parent, detached=True)
    bench.submit("grandchild", parent_job_id=child)
    over = bench.submit("over", parent_job_id=parent)
    bench.decide(JobDone(over, JobState.SUCCEEDED, "", 1))
    assert ended_by(bench, bench.decide(JobDone(other, state, "", 1))) == ([], 0)
    told, _ = ended_by(bench, bench.decide(JobDone(parent, state, "", 1)))
    assert told == [(child, f"its parent {parent} ended as {state.value}")]


def test_many_children_end_in_steps():
    """A job of thousands of children does not hold up the others for as long as telling all of them takes."""
    bench = Bench()
    parent = bench.submit("p")
    children = [bench.submit(f"c{number}", parent_job_id=parent) for number in range(2 * END_BATCH + 1)]
    told, steps = ended_by(bench, bench.decide(JobDone(parent, JobState.KILLED, "", 1)))
    assert ([job_id for job_id, _ in told], steps) == (children, 3)


def test_children_are_ended_again_by_each_start():
    """A controller that dies before children have heard of their parent's end tells them when it is back."""
    bench = Bench()
    parent = bench.submit("p")
    child, _ = bench.submit("c", parent_job_id=parent), bench.submit("d", parent_job_id=parent, detached=True)
    assert ended_by(bench, bench.decisions.resume(bench.state, bench.ctx)) == ([], 0)
    bench.decide(JobDone(parent, JobState.SUCCEEDED, "", 1))
    bench.decide(Terminated(ActorPath("/jobs") / parent, StopReason.NORMAL))  # forgotten meanwhile
    bench.state = replayed(compact(bench.state), bench.state)
    for commands in (bench.decisions.resume(bench.state, bench.ctx), bench.decide(SchedulerAwake())):
        told, _ = ended_by(bench, commands)
        assert told == [(child, f"its parent {parent} ended")]


def test_a_job_is_not_begun_to_be_ended():
    """While its parent is not over a job is taken; afterwards only if it is detached, and the refusal says so."""
    bench = Bench()
    parent = bench.submit("p")
    assert bench.submit("c", parent_job_id=parent) is not None
    bench.decide(JobDone(parent, JobState.SUCCEEDED, "", 1))
    for gone in (parent, "job-forgotten"):
        refused = SubmitJob(command_spec("late", parent_job_id=gone), gone, Existing.ERROR)
        (answer,) = bench.decide(refused, asked=True)
        assert isinstance(answer.error, ParentOver)
        assert "detached=True" in str(answer.error)
        assert bench.submit(f"d{gone}", parent_job_id=gone, detached=True) is not None


def test_a_namespace_is_the_job_at_the_top():
    """All that descends from a job has its id as its namespace, whoever is forgotten in between."""
    bench = Bench()
    top = bench.submit("top")
    child = bench.submit("child", parent_job_id=top)
    grandchild = bench.submit("grandchild", parent_job_id=child)
    for gone in (top, child):
        bench.decide(JobDone(gone, JobState.SUCCEEDED, "", 1))
        bench.decide(Terminated(ActorPath("/jobs") / gone, StopReason.NORMAL))
    bench.state = replayed(compact(bench.state), bench.state)
    last = bench.submit("last", parent_job_id=grandchild)
    assert {entry.root for entry in bench.state.entries.values()} == {top}
    assert [*bench.state.entries] == [grandchild, last]


def test_tallies_are_noted_and_not_recorded():
    """What the tasks are up to is listed as it was told last, also of a job that has ended, and takes no record."""
    bench = Bench()
    job_id = bench.submit("a")
    running = JobTally(((TaskState.RUNNING, 1),), started_wall_ns=5, reason="why")
    bench.decide(JobAdvanced(job_id, JobState.RUNNING, running))
    records = len(bench.records)
    again = attrs.evolve(running, reason="because")
    bench.decide(JobAdvanced(job_id, JobState.RUNNING, again))
    row = listed(bench)[job_id]
    assert (row.tally, row.reason, len(bench.records)) == (again, "because", records)
    done = JobTally(((TaskState.SUCCEEDED, 1),))
    bench.decide(JobDone(job_id, JobState.SUCCEEDED, "", 1, done))
    assert (listed(bench)[job_id].tally, listed(bench)[job_id].reason) == (done, "")


def test_an_ended_job_tells_its_tally_again():
    """After a restart the end is known from records; the tally comes with the job's word that it has ended."""
    bench = Bench()
    job_id = bench.submit("a")
    bench.decide(JobDone(job_id, JobState.SUCCEEDED, "", 1))
    done = JobTally(((TaskState.SUCCEEDED, 1),))
    records = len(bench.records)
    bench.decide(JobDone(job_id, JobState.SUCCEEDED, "", 1, done))
    assert (listed(bench)[job_id].tally, len(bench.records)) == (done, records)


def test_a_task_replaces_what_descends_from_its_job():
    """By a name that is taken; neither its own job, nor one above it or beside it, which it may not end."""
    bench = Bench()
    top = bench.submit("top")
    child, beside = (bench.submit(name, parent_job_id=top) for name in ("child", "beside"))
    below = bench.submit("below", parent_job_id=child)
    for name in ("top", "child", "beside"):
        assert bench.submit(name, Existing.RECREATE, parent_job_id=child) is None
    assert bench.submit("below", Existing.RECREATE, parent_job_id=child) is not None
    assert bench.submit("beside", Existing.RECREATE, parent_job_id=top) is not None
    assert [each.job_id for each in bench.state.entries.values() if each.superseded] == [beside, below]


def test_a_successor_says_what_it_waits_for():
    """A job that takes the place of another one names it until it has ended."""
    bench = Bench()
    older = bench.submit("a")
    newer = bench.submit("a", Existing.RECREATE)
    assert older in listed(bench)[newer].reason
    bench.decide(JobDone(older, JobState.KILLED, "", 1))
    assert listed(bench)[newer].reason == ""


# Limits, keys, pages, and what a new scheduler is told


JOBS, SCHEDULER = ActorPath("/jobs"), ActorPath("/jobs/scheduler")


class Desk(Bench):
    """The same, asked as people do."""

    def send(self, message, *, asked=True):
        """Decide, and apply; give the commands."""
        return tuple(self.decide(message, asked))

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
        self.state = replayed(compact(self.state), self.state)

    def page(self, **question):
        """List; give the ids."""
        (reply,) = self.send(ListJobs(**question))
        return [row.job_id for row in reply.value.rows], reply.value.next


@pytest.fixture
def bench():
    """A registry without a job."""
    return Desk()


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


def found(bench, namespace, name=""):
    """Return the jobs that have a name, or any, in a namespace."""
    return [row.job_id for row in bench.send(FindNames(namespace, name))[0].value.rows]


def test_a_name_is_held_in_its_namespace(bench):
    """That of a root: two of them may have children of one name. Each is found by it, and nothing else is."""
    roots = [bench.submit(name, key=name).job_id for name in "ab"]
    children = [bench.submit("w-1", key=root, parent_job_id=root).job_id for root in roots]
    assert bench.submit("w-1", key="again", parent_job_id=children[0]) == "JobExists"
    assert bench.submit("a", key="like its root", parent_job_id=children[0]) == "JobExists"
    longer = bench.submit("w-10", key="longer", parent_job_id=children[0]).job_id
    bench.restart()
    assert [found(bench, root, "w-1") for root in roots] == [[each] for each in children]
    assert found(bench, roots[0], "a") == found(bench, "", "a") == [roots[0]]
    assert found(bench, roots[0], "w-") == found(bench, "", "w-1") == found(bench, "job-none", "w-1") == []
    assert (found(bench, roots[0]), found(bench, "")) == ([roots[0], children[0], longer], roots)
    pages = [bench.send(FindNames(roots[0], limit=2))[0].value]
    pages.append(bench.send(FindNames(roots[0], after=pages[0].next, limit=2))[0].value)
    assert [[row.job_id for row in page.rows] for page in pages] == [[roots[0], children[0]], [longer]]
    assert pages[1].next == -1
    assert [bench.send(FindNamespace(each))[0].value for each in (longer, "job-none")] == [roots[0], ""]
    bench.end(children[0])
    bench.end(roots[1])
    assert found(bench, roots[0], "w-1") == found(bench, roots[1], "b") == found(bench, "", "b") == []
    assert (found(bench, roots[0]), found(bench, roots[1])) == ([roots[0], longer], [children[1]])
    assert bench.submit("w-1", key="anew", parent_job_id=roots[0]).fresh


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
    bench = Desk(**limits)
    first = bench.submit("a", replicas=3)
    assert bench.submit("b", replicas=4).fresh
    assert bench.submit("c", replicas=1) == error
    bench.end(first.job_id)
    bench.send(Terminated(JOBS / first.job_id, StopReason.NORMAL), asked=False)
    assert bench.submit("c", replicas=1).fresh


def test_finished_jobs_are_forgotten_in_batches(bench):
    """The oldest beyond the limit, each stopped and watched; its records go when it is gone."""
    bench = Desk(finished=2)
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
    bench.restart()
    commands = list(bench.decisions.resume(bench.state, bench.ctx))
    assert [each.spec.name for each in commands if isinstance(each, Spawn)] == [done, old, new]
    assert [each.to for each in commands if isinstance(each, Tell)] == [JOBS / old]
    assert commands[-1] == Continue(Sweep())


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
