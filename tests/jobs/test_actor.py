"""The life of jobs on the real dispatcher, in virtual time."""

from collections import Counter

import attrs
import pytest
from jobs_world import GIB, World, command_spec, succeed, worker_info

from iriscw._errors import InvalidArgument
from iriscw.cloud.model import Capacity, Constraint, Op
from iriscw.fleet.messages import (
    ActivityChanged,
    Cordon,
    Cordoned,
    DemandChanged,
    Uncordon,
    WorkerLost,
    WorkerReady,
)
from iriscw.jobs.actor import JobsConfig
from iriscw.jobs.errors import JobExists, KeyReused, NoSuchJob, TooManyJobs, TooManyTasks
from iriscw.jobs.messages import (
    DescribeJob,
    JobChanged,
    ListJobs,
    ListTasks,
    SchedulerFigures,
    SubmitJob,
    TaskChanged,
    TerminateJob,
)
from iriscw.jobs.model import (
    AttemptEnd,
    Band,
    Ending,
    Existing,
    JobState,
    Observation,
    TaskState,
)
from iriscw.jobs.registry import JobRegistryDecisions, RegistryLimits
from iriscw.jobs.traits import Fault
from iriscw.runtime.vocabulary import SECOND
from raised import that

NOTHING = Capacity()


def view(world, job_id):
    """Describe a job."""
    return world.sim.ask(f"/jobs/{job_id}", DescribeJob())


def rows(world, job_id, **page):
    """List a job's tasks."""
    return world.sim.ask(f"/jobs/{job_id}", ListTasks(**page)).rows


def figures(world, *workers):
    """Return the scheduler's figures, and those of some workers."""
    return world.sim.ask("/jobs/scheduler", SchedulerFigures(workers))


def forever(order):
    """Run until stopped."""
    return [(0.1, Observation("", TaskState.RUNNING, started=True))]


def failing(order):
    """Run for a second and fail."""
    return [
        (0.1, Observation("", TaskState.RUNNING, started=True)),
        (
            1.0,
            Observation("", TaskState.RUNNING, AttemptEnd(Ending.FAILED, exit_code=1, fault=Fault("", "boom")), True),
        ),
    ]


def refusing(order):
    """End before the user's code ran."""
    return [(0.1, Observation("", TaskState.ASSIGNED, AttemptEnd(Ending.REFUSED, fault=Fault("", "no room"))))]


def test_job_succeeds(world):
    """A job is placed, run, and ends as SUCCEEDED; all room comes back and the fleet is told each change."""
    world.add(worker_info(0), worker_info(1))
    job_id = world.submit(command_spec(replicas=6))
    world.sim.advance(0.5)
    assert view(world, job_id).state is JobState.RUNNING
    assert figures(world).live_attempts == 6
    asked = figures(world, "slice-1-1", "nobody", "slice-0-0")
    assert asked.attempts == (("slice-1-1", 2), ("slice-0-0", 4))
    assert [taken.cpu_milli for _, taken in asked.committed] == [2_000, 4_000]
    assert (figures(world).attempts, figures(world).committed) == ((), ()), "nobody's own were asked for"
    world.sim.advance(5)
    seen = view(world, job_id)
    assert seen.state is JobState.SUCCEEDED
    assert seen.counts == ((TaskState.SUCCEEDED, 6),)
    assert all(row.attempt.number == 1 and row.attempt.exit_code == 0 for row in rows(world, job_id))
    assert [taken for _, taken in figures(world, "slice-0-0", "slice-1-1").committed] == [NOTHING, NOTHING]
    last = {each.worker_id: each.live_attempts for each in world.told(ActivityChanged)}
    assert last == {"slice-0-0": 0, "slice-1-1": 0}
    assert not world.sim.failures


def test_states_are_published_in_order(world):
    """Each task is published ASSIGNED, BUILDING, RUNNING, SUCCEEDED; the job PENDING to SUCCEEDED, last of all."""
    world.add(worker_info(0))
    world.submit(command_spec())
    world.sim.advance(5)
    states = [event.state for event in world.sim.events if isinstance(event, TaskChanged)]
    assert states == [TaskState.ASSIGNED, TaskState.BUILDING, TaskState.RUNNING, TaskState.SUCCEEDED]
    jobs = [event.state for event in world.sim.events if isinstance(event, JobChanged)]
    assert jobs == [JobState.PENDING, JobState.BUILDING, JobState.RUNNING, JobState.SUCCEEDED]
    assert isinstance(world.sim.events[-1], JobChanged)


def test_failures_are_retried_within_their_budget():
    """A failing task has 1 + max_retries_failure attempts; then the job is FAILED and says why."""
    world = World(script=failing)
    world.add(worker_info(0))
    job_id = world.submit(command_spec(max_retries_failure=2))
    world.sim.advance(20)
    (row,) = rows(world, job_id)
    assert (row.state, row.attempt.number, row.failures, row.preemptions) == (TaskState.FAILED, 3, 3, 0)
    seen = view(world, job_id)
    assert seen.state is JobState.FAILED
    assert seen.reason == "1 of 1 tasks; task 0: boom"


def test_some_tasks_may_fail():
    """With max_task_failures a job succeeds although so many tasks failed."""
    world = World(script=lambda order: failing(order) if order.index == 0 else succeed(order))
    world.add(worker_info(0))
    job_id = world.submit(command_spec(replicas=3, max_task_failures=1))
    world.sim.advance(20)
    assert view(world, job_id).state is JobState.SUCCEEDED
    assert view(world, job_id).counts == ((TaskState.SUCCEEDED, 2), (TaskState.FAILED, 1))
    assert view(world, job_id).reason == "1 of 3 tasks failed; task 0: boom"


def test_first_failure_stops_the_others():
    """A failure beyond the budget has the other tasks killed, those that wait as well as those that run."""
    world = World(script=lambda order: failing(order) if order.index == 0 else forever(order))
    world.add(worker_info(0, cpus=2))
    job_id = world.submit(command_spec(replicas=4))
    world.sim.advance(20)
    assert view(world, job_id).state is JobState.FAILED
    assert view(world, job_id).counts == ((TaskState.FAILED, 1), (TaskState.KILLED, 3))
    assert world.workers["slice-0-0"].running == []


def test_unstarted_attempts_count_against_nothing():
    """An attempt that never ran is retried without a count; one that no worker can start ends as UNSCHEDULABLE."""
    world = World(script=refusing)
    world.add(worker_info(0))
    job_id = world.submit(command_spec(max_retries_preemption=0))
    world.sim.advance(3_600)
    (row,) = rows(world, job_id)
    assert (row.state, row.failures, row.preemptions) == (TaskState.PENDING, 0, 0)
    world.sim.advance(3_600)
    (row,) = rows(world, job_id)
    assert (row.state, row.failures, row.preemptions) == (TaskState.UNSCHEDULABLE, 0, 0)
    assert view(world, job_id).state is JobState.UNSCHEDULABLE


def test_fenced_loss_is_retried_elsewhere():
    """The attempts of a fenced worker are over at once and count as preemptions."""
    world = World(script=forever)
    world.add(worker_info(0), worker_info(1))
    job_id = world.submit(command_spec(replicas=2))
    world.sim.advance(1)
    del world.workers["slice-0-0"]
    world.sim.tell("/jobs/scheduler", WorkerLost("slice-0-0", "a", "pod deleted", fenced=True))
    world.sim.advance(1)
    assert [(row.worker_id, row.attempt.number, row.preemptions) for row in rows(world, job_id)] == [
        ("slice-1-1", 2, 1),
        ("slice-1-1", 2, 1),
    ]
    assert figures(world).workers == 1


def test_unfenced_loss_waits_for_the_lease():
    """Attempts of a silent worker keep their tasks until the lease grace is over."""
    world = World(script=forever)
    world.add(worker_info(0))
    job_id = world.submit(command_spec())
    world.sim.advance(1)
    world.workers["slice-0-0"].hang_up()
    world.add(worker_info(1))
    world.sim.tell("/jobs/scheduler", WorkerLost("slice-0-0", "a", "silent", fenced=False))
    world.sim.advance(59)
    (row,) = rows(world, job_id)
    assert row.worker_id == "slice-0-0"
    assert row.reason == "worker out of reach (silent): waits until it is fenced or its lease is over"
    world.sim.advance(2)
    (row,) = rows(world, job_id)
    assert (row.worker_id, row.preemptions) == ("slice-1-1", 1)


def test_worker_that_returns_in_time_keeps_its_attempts():
    """A worker that dials in again before its lease is over goes on; nothing is counted, nothing is started twice."""
    world = World(script=forever)
    world.add(worker_info(0))
    job_id = world.submit(command_spec())
    world.sim.advance(1)
    worker = world.workers["slice-0-0"]
    worker.connected = False
    worker.hang_up()
    world.sim.tell("/jobs/scheduler", WorkerLost("slice-0-0", "a", "silent", fenced=False))
    world.sim.advance(30)
    world.sim.tell("/jobs/scheduler", WorkerReady(worker.info))
    world.reconnect("slice-0-0")
    world.sim.advance(100)
    (row,) = rows(world, job_id)
    assert (row.state, row.attempt.number, row.preemptions, row.reason) == (TaskState.RUNNING, 1, 0, "")
    assert len(worker.starts) == 1


def test_worker_that_forgot_an_attempt():
    """What a worker should run, had started and does not know is MISSING: an infrastructure loss."""
    world = World(script=forever)
    world.add(worker_info(0))
    job_id = world.submit(command_spec())
    world.sim.advance(1)
    worker = world.workers["slice-0-0"]
    worker.connected = False
    worker.hang_up()
    worker.attempts.clear()
    world.sim.advance(1)
    world.reconnect("slice-0-0")
    world.sim.advance(2)
    (row,) = rows(world, job_id)
    assert (row.attempt.number, row.preemptions, row.state) == (2, 1, TaskState.RUNNING)


def test_unknown_attempts_are_stopped(world):
    """A worker that runs what nobody wants is told to stop it and to forget it."""
    info = worker_info(0)
    world.add(info)
    worker = world.workers[info.worker_id]
    worker.attempts["f" * 16] = Observation("f" * 16, TaskState.RUNNING, started=True)
    worker.hang_up()
    world.sim.advance(1)
    assert worker.running == []
    assert worker.attempts == {}


def test_terminate(world):
    """Termination stops what runs, and the job is KILLED; again or afterwards it changes nothing."""
    world.script = forever
    world.add(worker_info(0, cpus=1))
    job_id = world.submit(command_spec(replicas=3))
    world.sim.advance(1)
    assert world.sim.ask("/jobs", TerminateJob(job_id)) is None
    world.sim.advance(1)
    world.sim.ask("/jobs", TerminateJob(job_id))
    assert view(world, job_id).state is JobState.KILLED
    assert view(world, job_id).counts == ((TaskState.KILLED, 3),)
    with pytest.raises(NoSuchJob):
        world.sim.ask("/jobs", TerminateJob("job-nowhere"))


@pytest.mark.parametrize("stored", [0, 40, 99])
def test_terminal_state_waits_for_the_log(world, stored):
    """A task's end is shown when its last log byte is stored, and its room is free before that."""
    world.script = lambda order: [
        *succeed(order)[:2],
        (
            1.2,
            Observation(
                "",
                TaskState.RUNNING,
                AttemptEnd(Ending.SUCCEEDED, exit_code=0),
                True,
                log_offset=100,
                logs_stored=stored,
            ),
        ),
    ]
    world.add(worker_info(0))
    job_id = world.submit(command_spec())
    world.sim.advance(3)
    assert view(world, job_id).state is JobState.RUNNING
    assert view(world, job_id).counts == ((TaskState.RUNNING, 1),)
    assert figures(world).live_attempts == 0
    (waiting,) = world.log_waits
    assert (waiting.effect.offset, waiting.effect.uid) == (100, rows(world, job_id)[0].uid)
    waiting.complete(100)
    world.sim.advance(1)
    (row,) = rows(world, job_id)
    assert (row.state, row.logs_complete) == (TaskState.SUCCEEDED, True)
    assert view(world, job_id).state is JobState.SUCCEEDED


@pytest.mark.parametrize("stored", [40, 99])
def test_lost_log_is_named(world, stored):
    """A log store that gives up lets the task end, which says that its log is incomplete, by a byte too."""
    world.logs_stored = stored
    world.script = lambda order: [
        (
            1.2,
            Observation(
                "", TaskState.RUNNING, AttemptEnd(Ending.SUCCEEDED, exit_code=0), True, log_offset=100, logs_stored=40
            ),
        )
    ]
    world.add(worker_info(0))
    job_id = world.submit(command_spec())
    world.sim.advance(3)
    (row,) = rows(world, job_id)
    assert (row.state, row.logs_complete) == (TaskState.SUCCEEDED, False)
    assert row.reason == "the last log lines may be missing"


@pytest.mark.parametrize("stored", [100, 101])
def test_stored_log_needs_no_waiting(world, stored):
    """If the door has stored the whole log already nobody is asked."""
    world.script = lambda order: [
        (
            1.2,
            Observation(
                "",
                TaskState.RUNNING,
                AttemptEnd(Ending.SUCCEEDED, exit_code=0),
                True,
                log_offset=100,
                logs_stored=stored,
            ),
        )
    ]
    world.add(worker_info(0))
    job_id = world.submit(command_spec())
    world.sim.advance(3)
    assert view(world, job_id).state is JobState.SUCCEEDED
    assert world.log_waits == []


def test_timeout():
    """An attempt that runs too long is stopped, and that counts as a failure."""
    world = World(script=forever)
    world.add(worker_info(0))
    job_id = world.submit(command_spec(timeout_ns=10 * 10**9, max_retries_failure=1))
    world.sim.advance(9)
    assert rows(world, job_id)[0].attempt.number == 1
    world.sim.advance(15)
    (row,) = rows(world, job_id)
    assert (row.state, row.attempt.number, row.failures, row.ending) == (TaskState.FAILED, 2, 2, Ending.TIMED_OUT)
    assert row.reason == "TaskTimeout: it ran for its timeout of 10 s"


def test_scheduling_timeout(world):
    """A job that no worker takes in time is UNSCHEDULABLE and says so."""
    job_id = world.submit(command_spec(replicas=2, scheduling_timeout_ns=10 * 10**9))
    world.sim.advance(11)
    seen = view(world, job_id)
    assert seen.state is JobState.UNSCHEDULABLE
    assert seen.reason == "no worker took 2 of 2 tasks within 10 s"
    assert seen.counts == ((TaskState.UNSCHEDULABLE, 2),)
    assert {row.reason for row in rows(world, job_id)} == {seen.reason}


def test_what_is_given_up_says_why_it_waited(world):
    """The scheduler's last word, if anybody asked for it, is in the reason of the job and of its tasks."""
    job_id = world.submit(command_spec(replicas=2, scheduling_timeout_ns=10 * 10**9))
    world.sim.advance(9)
    assert view(world, job_id).pending_reason == "no worker is connected"
    world.sim.advance(2)
    seen = view(world, job_id)
    assert seen.state is JobState.UNSCHEDULABLE
    assert seen.reason == "no worker took 2 of 2 tasks within 10 s; last heard: no worker is connected"
    assert {row.reason for row in rows(world, job_id)} == {seen.reason}


def test_pending_tasks_have_a_reason(world):
    """The reason counts workers by what they lack."""
    no = Constraint("zone", Op.EQ, ("b",))
    assert view(world, world.submit(command_spec("early"))).pending_reason == "no worker is connected"
    world.add(worker_info(0, cpus=2, zone="a"), worker_info(1, cpus=2, zone="b"))
    world.sim.advance(2)
    job_id = world.submit(command_spec("zone", replicas=3, constraints=(no,)))
    world.sim.advance(0.5)
    assert view(world, job_id).pending_reason == (
        "of 2 workers: 1 fails the constraint zone=b, 1 lacks CPU, 1 lacks memory"
    )
    big = world.submit(command_spec("big", demand=Capacity(8000, GIB)))
    assert view(world, big).pending_reason == "of 2 workers: 2 are too small (8 CPU asked, 2 there)"


def test_python_mismatch(world):
    """A callable is never placed on another Python; that makes no demand, and the reason names both versions."""
    world.add(worker_info(0))
    spec = command_spec()
    spec = attrs.evolve(spec, entrypoint=attrs.evolve(spec.entrypoint, python="3.12"))
    job_id = world.submit(spec)
    world.sim.advance(5)
    assert view(world, job_id).pending_reason == "of 1 worker: 1 runs Python 3.11, not 3.12"
    assert world.told(DemandChanged) == [DemandChanged(())], "what an earlier scheduler told is taken back"


def test_demand_is_told_once_and_withdrawn(world):
    """The fleet hears what cannot be placed, with its shape and count, and hears when it can."""
    world.submit(command_spec(replicas=6, band=Band.BATCH))
    world.sim.run_until_idle()
    nothing, told = world.told(DemandChanged)
    assert nothing.entries == (), "what an earlier scheduler told is taken back"
    (entry,) = told.entries
    assert (entry.count, entry.gang_size, entry.band) == (6, 1, 3)
    world.script = forever
    world.add(worker_info(0))
    world.sim.advance(0.2)
    assert world.told(DemandChanged)[-1].entries[0].count == 2
    assert world.told(DemandChanged)[-1].entries[0].demand_id == entry.demand_id
    world.add(worker_info(1))
    world.sim.advance(0.2)
    assert world.told(DemandChanged)[-1].entries == ()


def test_demand_is_repeated(world):
    """Unmet demand is told again now and then: a new fleet knows nothing of it."""
    world.submit(command_spec())
    world.sim.advance(25)
    assert [len(told.entries) for told in world.told(DemandChanged)] == [0, 1, 1, 1]


def test_cordon(world):
    """Nothing is placed on a cordoned slice, the answer counts what lives there, uncordoning undoes it."""
    world.script = forever
    world.add(worker_info(0))
    world.submit(command_spec("first", replicas=3))
    world.sim.advance(1)
    world.sim.tell("/jobs/scheduler", Cordon("slice-0", ("slice-0-0",), 1))
    job_id = world.submit(command_spec("second"))
    world.sim.advance(1)
    assert world.told(Cordoned) == [Cordoned("slice-0", 3, 1)]
    assert view(world, job_id).pending_reason == "of 1 worker: 1 is being drained"
    world.sim.tell("/jobs/scheduler", Uncordon("slice-0", 0))
    world.sim.advance(1)
    assert figures(world).live_attempts == 3
    world.sim.tell("/jobs/scheduler", Uncordon("slice-0", 1))
    world.sim.advance(1)
    assert figures(world).live_attempts == 4


def test_bands_and_interleaving(world):
    """Higher bands first; within a band one task of each job per round."""
    world.script = forever
    world.submit(command_spec("batch", replicas=4, band=Band.BATCH))
    world.submit(command_spec("one", replicas=4))
    world.submit(command_spec("two", replicas=4))
    world.submit(command_spec("other", replicas=4, demand=Capacity(1000, GIB // 2)))
    world.add(worker_info(0, cpus=6))
    world.sim.advance(1)
    names = {job: entry.spec.name for job, entry in world.sim.state("/jobs").entries.items()}
    live = world.sim.state("/jobs/scheduler").jobs.values()
    assert Counter({names[job.job_id]: len(job.live) for job in live}) == {
        "batch": 0,
        "one": 2,
        "two": 2,
        "other": 2,
    }


def test_gang_is_placed_whole_and_goes_down_whole():
    """A gang waits for one slice with room for all; a member's failure restarts all of it, counted once."""
    fail_once = {"left": 1}

    def script(order):
        if order.index == 1 and fail_once["left"]:
            fail_once["left"] -= 1
            return failing(order)
        return [
            *succeed(order)[:2],
            (3.0, Observation("", TaskState.RUNNING, AttemptEnd(Ending.SUCCEEDED, exit_code=0), True)),
        ]

    world = World(script=script)
    world.add(*(worker_info(number, cpus=1, slice_id=f"s{number % 2}") for number in range(3)))
    spec = command_spec(replicas=3, group_by="slice-id", max_retries_failure=1)
    job_id = world.submit(spec)
    world.sim.advance(2)
    assert figures(world).live_attempts == 0
    assert "no 3 tasks fit where slice-id is the same" in view(world, job_id).pending_reason
    assert world.told(DemandChanged)[-1].entries[0].gang_size == 3
    world.add(worker_info(4, cpus=1, slice_id="s0"))
    world.sim.advance(30)
    assert view(world, job_id).state is JobState.SUCCEEDED
    assert [(row.attempt.number, row.failures) for row in rows(world, job_id)] == [(2, 0), (2, 1), (2, 0)]
    assert all(row.worker_id.startswith("s0-") for row in rows(world, job_id))


def test_gang_member_without_budget_ends_the_gang():
    """When a member's budget is spent the others are COSCHED_FAILED and the job is FAILED."""
    world = World(script=lambda order: failing(order) if order.index == 1 else forever(order))
    world.add(*(worker_info(number, cpus=1, slice_id="s") for number in range(3)))
    job_id = world.submit(command_spec(replicas=3, group_by="slice-id"))
    world.sim.advance(10)
    assert view(world, job_id).counts == ((TaskState.FAILED, 1), (TaskState.COSCHED_FAILED, 2))
    assert view(world, job_id).state is JobState.FAILED
    assert figures(world).live_attempts == 0


# Submission


def test_idempotency(world):
    """The same key and specification give the same job; another specification is refused."""
    job_id = world.submit(command_spec(), key="k")
    again = world.sim.ask("/jobs", SubmitJob(command_spec(), "k"))
    assert (again.job_id, again.fresh) == (job_id, False)
    with pytest.raises(KeyReused):
        world.submit(command_spec(replicas=2), key="k")


def test_existing_policies(world):
    """A live job of the same name: refused, kept, or replaced, the successor only when the other has ended."""
    world.script = forever
    world.add(worker_info(0))
    first = world.submit(command_spec(), key="1")
    world.sim.advance(1)
    with pytest.raises(JobExists):
        world.submit(command_spec(), key="2")
    assert world.submit(command_spec(), key="3", existing=Existing.KEEP) == first
    second = world.submit(command_spec(), key="4", existing=Existing.RECREATE)
    world.sim.advance(2)
    assert view(world, first).state is JobState.KILLED
    assert view(world, second).state is JobState.RUNNING
    events = [(event.job_id, event.state) for event in world.sim.events if isinstance(event, (JobChanged, TaskChanged))]
    assert events.index((first, JobState.KILLED)) < events.index((second, TaskState.ASSIGNED))


def test_limits():
    """Jobs, tasks and replicas have limits; each is a named error and changes nothing."""
    world = World(config=JobsConfig(limits=RegistryLimits(jobs=2, tasks=10)))
    world.submit(command_spec("a", replicas=8))
    with pytest.raises(TooManyTasks):
        world.submit(command_spec("b", replicas=3))
    world.submit(command_spec("c"))
    with pytest.raises(TooManyJobs):
        world.submit(command_spec("d"))
    with pytest.raises(InvalidArgument, check=that(names="replicas")):
        world.submit(command_spec("e", replicas=100_001))
    with pytest.raises(InvalidArgument, check=that(comes_from="model.check_spec")):
        world.submit(command_spec("f", demand=NOTHING))
    assert len(world.sim.ask("/jobs", ListJobs()).rows) == 2


def test_listing_pages(world):
    """Jobs are listed latest first, page by page, by state and by name."""
    jobs = [world.submit(command_spec(f"job{number}")) for number in range(5)]
    world.sim.ask("/jobs", TerminateJob(jobs[0]))
    world.sim.run_until_idle()
    page = world.sim.ask("/jobs", ListJobs(limit=2))
    assert [row.job_id for row in page.rows] == [jobs[4], jobs[3]]
    page = world.sim.ask("/jobs", ListJobs(after=page.next, limit=3))
    assert [row.job_id for row in page.rows] == [jobs[2], jobs[1], jobs[0]]
    assert page.next == ""
    killed = world.sim.ask("/jobs", ListJobs(states=(JobState.KILLED,)))
    assert [row.job_id for row in killed.rows] == [jobs[0]]
    assert [row.name for row in world.sim.ask("/jobs", ListJobs(name="job3")).rows] == ["job3"]


def listed(world):
    """Return the rows of a listing by job."""
    return {row.job_id: row for row in world.sim.ask("/jobs", ListJobs()).rows}


def test_listing_shows_what_tasks_are_up_to():
    """A row counts tasks by state: at once when the job's state changes, else within a second, and to the end."""
    world = World(script=forever)
    job_id = world.submit(command_spec(replicas=6))
    assert listed(world)[job_id].tally.counts == ((TaskState.PENDING, 6),)
    world.add(worker_info(0))
    world.sim.advance(1.2)
    assert listed(world)[job_id].tally.counts == ((TaskState.PENDING, 2), (TaskState.RUNNING, 4))
    world.sim.ask("/jobs", TerminateJob(job_id))
    world.sim.advance(1)
    tally = listed(world)[job_id].tally
    assert tally.counts == ((TaskState.KILLED, 6),)
    assert tally.started_wall_ns == view(world, job_id).started_wall_ns > 0


def test_placed_tasks_of_silent_workers_are_listed():
    """Tasks that were placed are shown so within a second, even if their worker says nothing."""
    world = World(script=lambda order: [])
    world.add(worker_info(0))
    job_id = world.submit(command_spec(replicas=2))
    world.sim.advance(1.1)
    assert listed(world)[job_id].tally.counts == ((TaskState.ASSIGNED, 2),)


def test_listing_after_a_crash():
    """A new controller knows of each job, running or ended, how many of its tasks are in which state."""
    world = World(script=lambda order: forever(order) if order.spec.name == "long" else succeed(order))
    world.add(worker_info(0))
    long, short = (world.submit(command_spec(name, replicas=2)) for name in ("long", "short"))
    world.sim.advance(5)
    before = {job_id: row.tally for job_id, row in listed(world).items()}
    world.sim.crash()
    world.sim.restart()
    world.sim.advance(1)
    assert {job_id: row.tally for job_id, row in listed(world).items()} == before
    assert [before[job_id].counts for job_id in (long, short)] == [
        ((TaskState.RUNNING, 2),),
        ((TaskState.SUCCEEDED, 2),),
    ]


def test_a_large_job_tells_listings_once_a_second(monkeypatch):
    """1,280 tasks that change 3,840 times within seconds are a few words to the registry; a listing asks nobody."""
    told = []
    advanced = JobRegistryDecisions.advanced
    monkeypatch.setattr(
        JobRegistryDecisions,
        "advanced",
        lambda self, registry, message, ctx: told.append(ctx.now) or advanced(self, registry, message, ctx),
    )
    world = World()
    world.add(*(worker_info(number, cpus=8) for number in range(80)))
    job_id = world.submit(command_spec(replicas=1_280))
    world.sim.advance(20)
    seen = view(world, job_id)
    assert seen.state is JobState.SUCCEEDED
    seconds = (seen.ended_wall_ns - seen.submitted_wall_ns) / SECOND
    assert 2 <= len(told) <= 3 + seconds < 10, told
    before = world.sim.statistics().sent
    assert listed(world)[job_id].tally.counts == ((TaskState.SUCCEEDED, 1_280),)
    assert world.sim.statistics().sent - before <= 1


def test_finished_jobs_are_forgotten():
    """Beyond the limit the oldest finished job disappears, with its actor and its records."""
    world = World(config=JobsConfig(limits=RegistryLimits(finished=2)))
    world.add(worker_info(0))
    jobs = [world.submit(command_spec(f"job{number}")) for number in range(4)]
    world.sim.advance(10)
    listed = [row.job_id for row in world.sim.ask("/jobs", ListJobs()).rows]
    assert len(listed) == 2
    gone = [job_id for job_id in jobs if job_id not in listed]
    assert all(world.sim.state(f"/jobs/{job_id}") is None for job_id in gone)
    world.sim.crash()
    world.sim.restart()
    world.sim.advance(1)
    assert [row.job_id for row in world.sim.ask("/jobs", ListJobs()).rows] == listed
    assert not world.sim.failures


def test_task_pages(world):
    """Tasks are listed by index, page by page, those that never ran as well."""
    job_id = world.submit(command_spec(replicas=100_000))
    page = world.sim.ask(f"/jobs/{job_id}", ListTasks(start=99_990, limit=5))
    assert [row.index for row in page.rows] == list(range(99_990, 99_995))
    assert page.next == 99_995
    assert world.sim.ask(f"/jobs/{job_id}", ListTasks(start=99_995)).next == -1


# How much work


def test_operation_counts():
    """A task of a large job costs a bounded number of messages and four records; a job five of its own."""
    costs = []
    for replicas in (64, 640):
        world = World()
        world.add(*(worker_info(number, cpus=8) for number in range(80)))
        before = world.sim.statistics()
        records = world.sim.journal.appended
        job_id = world.submit(command_spec(replicas=replicas))
        world.sim.advance(10)
        after = world.sim.statistics()
        assert view(world, job_id).state is JobState.SUCCEEDED
        costs.append(((after.sent - before.sent) / replicas, world.sim.journal.appended - records - 4 * replicas))
    (small, small_records), (large, large_records) = costs
    assert large <= small
    assert large < 7
    assert small_records == large_records == 5
