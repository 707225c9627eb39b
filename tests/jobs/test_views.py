"""What users see of a job."""

from jobs_world import command_spec

from iriscw.jobs.job import views
from iriscw.jobs.job.ledger import JobLedger, evolve
from iriscw.jobs.messages import MAX_PAGE, DescribeJob, ListTasks
from iriscw.jobs.model import AttemptEnd, Ending, JobState, TaskState
from iriscw.jobs.records import (
    AttemptAdvanced,
    AttemptEnded,
    AttemptPlaced,
    JobEnded,
    LogsSettled,
    VerdictReached,
    WorkerSuspected,
)
from iriscw.jobs.traits import Fault


def ledger_with(*records, **fields):
    """Return a ledger after some records."""
    ledger = JobLedger("job-a", 0, command_spec(**fields), 5)
    for record in records:
        evolve(ledger, record)
    return ledger


RUNNING = (AttemptPlaced(0, "u", 1, "w", "a", 6), AttemptAdvanced(0, "u", TaskState.RUNNING, 7))


def ended(ending, then, exit_code=None, fault=None, **fields):
    """Return the record of an end."""
    return AttemptEnded(0, "u", AttemptEnd(ending, exit_code, fault), then, 8, log_offset=9, **fields)


def test_untouched_tasks_are_shown():
    """Tasks that were never placed are rows too, in the state that their job gives them."""
    ledger = ledger_with(replicas=3)
    page = views.answer(ledger, ListTasks(), "why")
    assert [(row.index, row.state, row.uid) for row in page.rows] == [(n, TaskState.PENDING, "") for n in range(3)]
    assert page.pending_reason == "why"
    evolve(ledger, VerdictReached(JobState.KILLED, TaskState.KILLED, "", 6))
    assert views.answer(ledger, ListTasks(), "").rows[2].state is TaskState.KILLED


def test_pages_are_bounded():
    """No question gives more rows than a page has; a nonsense one gives the nearest sense."""
    ledger = ledger_with(replicas=5000)
    assert len(views.answer(ledger, ListTasks(limit=10**9), "").rows) == MAX_PAGE
    assert [row.index for row in views.answer(ledger, ListTasks(start=-5, limit=0), "").rows] == [0]
    assert views.answer(ledger, ListTasks(start=10**6), "").rows == ()


def test_ends_wait_for_logs():
    """While log lines are due neither the row nor the counts show the end (INV-J8)."""
    ledger = ledger_with(*RUNNING, ended(Ending.SUCCEEDED, TaskState.SUCCEEDED, exit_code=0, logs_due=True))
    (row,) = views.answer(ledger, ListTasks(), "").rows
    assert (row.state, row.ending, row.attempt.exit_code, row.logs_complete) == (TaskState.RUNNING, None, None, False)
    assert views.answer(ledger, DescribeJob(), "").counts == ((TaskState.RUNNING, 1),)
    evolve(ledger, LogsSettled(0, "u", complete=True))
    (row,) = views.answer(ledger, ListTasks(), "").rows
    assert (row.state, row.attempt.exit_code, row.logs_complete) == (TaskState.SUCCEEDED, 0, True)


def test_lost_logs_and_workers_are_named():
    """A row says that its worker is out of reach, and that the last lines of its log may be missing."""
    ledger = ledger_with(*RUNNING, WorkerSuspected("w", "a", "silent", 8))
    assert "out of reach (silent)" in views.answer(ledger, ListTasks(), "").rows[0].reason
    assert "1 workers out of reach, first w" in views.answer(ledger, DescribeJob(), "").reason
    evolve(ledger, ended(Ending.WORKER_LOST, TaskState.WORKER_FAILED, fault=Fault("", "gone")))
    (row,) = views.answer(ledger, ListTasks(), "").rows
    assert (row.reason, row.logs_complete) == ("gone; the last log lines may be missing", False)


def test_a_lost_log_is_the_attempts_own():
    """The attempt that lost the end of its log says so, not the one that follows it."""
    ledger = ledger_with(
        *RUNNING, ended(Ending.WORKER_LOST, TaskState.PENDING, preemption=True, fault=Fault("", "gone"))
    )
    evolve(ledger, AttemptPlaced(0, "v", 2, "w", "a", 9))
    (row,) = views.answer(ledger, ListTasks(), "").rows
    assert (row.uid, row.reason) == ("v", "")
    assert [(each.uid, each.reason) for each in row.earlier] == [("u", "gone; the last log lines may be missing")]


def test_reasons_name_the_first_culprit():
    """A failed job says how many tasks failed, and what the one of lowest index says."""
    ledger = ledger_with(*RUNNING, ended(Ending.FAILED, TaskState.FAILED, exit_code=3), replicas=2)
    assert views.reason_of(ledger, JobState.FAILED) == "1 of 2 tasks; task 0: exit code 3"
    assert views.reason_of(ledger, JobState.SUCCEEDED) == "1 of 2 tasks failed; task 0: exit code 3"
    assert views.reason_of(ledger, JobState.KILLED) == ""


def test_retries_are_rows():
    """A task's row has its earlier attempts, newest first, each with how it ended, where and when."""
    ledger = ledger_with(
        *RUNNING,
        AttemptEnded(0, "u", AttemptEnd(Ending.FAILED, 1, Fault("", "a\nboom")), TaskState.PENDING, 8, True),
        AttemptPlaced(0, "v", 2, "x", "b", 9),
        AttemptEnded(0, "v", AttemptEnd(Ending.REFUSED, fault=Fault("", "no room")), TaskState.PENDING, 10),
        AttemptPlaced(0, "y", 3, "w", "a", 11),
    )
    (row,) = views.answer(ledger, ListTasks(), "").rows
    assert (row.uid, row.attempt.number, row.attempt.placed_wall_ns, row.attempt.details) == ("y", 3, 11, "")
    assert [(each.uid, each.number, each.worker_id, each.ending) for each in row.earlier] == [
        ("v", 2, "x", Ending.REFUSED),
        ("u", 1, "w", Ending.FAILED),
    ]
    first = row.earlier[1]
    assert (first.exit_code, first.reason, first.details) == (1, "boom", "a\nboom")
    assert (first.placed_wall_ns, first.started_wall_ns, first.ended_wall_ns) == (6, 7, 8)
    assert row.earlier[0].started_wall_ns == 0


def test_faults_wait_for_logs_and_end_up_in_the_job():
    """What the user's code said is shown with the end of its log, not before; a failed job says it too."""
    ledger = ledger_with(*RUNNING, ended(Ending.FAILED, TaskState.FAILED, fault=Fault("", "a\nb"), logs_due=True))
    row = views.answer(ledger, ListTasks(), "").rows[0]
    assert (row.attempt.details, row.attempt_reason) == ("", views.LAST_LINES_DUE)
    evolve(ledger, LogsSettled(0, "u", complete=True))
    assert views.answer(ledger, ListTasks(), "").rows[0].attempt.details == "a\nb"
    assert views.answer(ledger, DescribeJob(), "").fault == ""
    evolve(ledger, JobEnded(JobState.FAILED, "why", 9))
    view = views.answer(ledger, DescribeJob(), "")
    assert (view.fault, view.started_wall_ns) == ("a\nb", 7)


def test_a_tally_is_what_a_listing_shows():
    """The tally has the counts that users see, and why the job is not further."""
    ledger = ledger_with(*RUNNING, WorkerSuspected("w", "a", "silent", 8), replicas=3)
    tally = views.tally(ledger)
    assert tally.counts == ((TaskState.PENDING, 2), (TaskState.RUNNING, 1))
    assert (tally.failures, tally.preemptions, tally.started_wall_ns) == (0, 0, 7)
    assert "out of reach" in tally.reason


def test_waiting_tasks_follow_the_verdict():
    """What becomes of tasks that wait depends on the verdict, and on whether they are a gang."""
    spec, gang = command_spec(), command_spec(group_by="slice-id")
    assert views.waiting_state(spec, JobState.UNSCHEDULABLE) is TaskState.UNSCHEDULABLE
    assert views.waiting_state(spec, JobState.FAILED) is TaskState.KILLED
    assert views.waiting_state(gang, JobState.FAILED) is TaskState.COSCHED_FAILED
    assert views.waiting_state(gang, JobState.KILLED) is TaskState.KILLED
