"""One job for people: facts, tasks, retries, and what was said last."""

from iriscw.cli.attempts import MAX_COMMAND_CHARS, MAX_RETRIES_SHOWN, describe, progress_text, short_gpus
from iriscw.client.model import (
    AttemptStatus,
    JobStatus,
    ProgressStatus,
    TaskCheckpoint,
    TaskCheckpoints,
    TaskStatus,
    TaskSuspension,
)
from iriscw.jobs.model import JobState, Suspension, TaskState
from iriscw.jobs.traits import one_line

NOW_MS = 10_000_000
TRACEBACK = "Traceback (most recent call last):\n  File x\nValueError: boom"


def job(state=JobState.RUNNING, **more):
    """A job of two tasks."""
    fields = {"reason": "", "submitted_at_ms": NOW_MS - 90_000, "started_at_ms": NOW_MS - 30_000}
    return JobStatus("job-1", "uid", "train", state, 1, 2, {TaskState.RUNNING: 2}, **{**fields, **more})


def attempt(number, state=TaskState.FAILED, *, ended_s=0, fault="", **more):
    """An attempt that ended so many seconds ago, after 5 s."""
    ended_ms = NOW_MS - ended_s * 1000
    return AttemptStatus(
        f"u{number}",
        number,
        state,
        "worker-1",
        reason=one_line(fault),
        fault=fault,
        started_at_ms=ended_ms - 5_000,
        finished_at_ms=ended_ms,
        **more,
    )


def task(index, *attempts, **more):
    """A task with attempts, newest first."""
    return TaskStatus(f"job-1/{index}", index, TaskState.RUNNING, attempts=attempts, **more)


def test_a_job_without_retries():
    """Facts and tasks, and nothing about retries that were not."""
    text = describe(job(), [task(0, attempt(0, TaskState.RUNNING)), task(1, reason="no room")], NOW_MS)
    assert "times    submitted 90s ago, started 30s ago\n" in text
    assert "no room" in text
    assert "TRIED" not in text
    assert "ended with" not in text


def test_gpus_have_a_column_where_there_are_any():
    """By their first digits, of the latest attempt."""
    gpus = ("GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c", "GPU-0f1e2d3c-1111-2222-3333-444444444444")
    text = describe(job(), [task(0, attempt(0, TaskState.RUNNING, gpus=gpus)), task(1)], NOW_MS)
    assert "GPUS" in text
    assert " 4cf8db2d,0f1e2d3c" in text
    assert "GPUS" not in describe(job(), [task(0, attempt(0, TaskState.RUNNING))], NOW_MS)


def test_checkpoints_of_tasks_that_run_on_have_a_table():
    """The newest of each task, and what a reader should know of the latest."""
    kept = (TaskCheckpoint("ck-2", "n1", NOW_MS - 90_000), TaskCheckpoint("ck-1", "n1", NOW_MS - 200_000))
    found = TaskCheckpoints(kept, failure="no room\x1b", times_gone_back=2, gone_back_to="ck-0", gone_back_at_ms=NOW_MS)
    text = describe(job(), [task(0, checkpoints=found), task(1), task(2, checkpoints=TaskCheckpoints())], NOW_MS)
    shown = text[text.index("COPIED") :].splitlines()
    assert shown[1].split()[:5] == ["0", "2", "ck-2", "n1", "90s"]
    assert "the latest was not made: no room\\x1b; it went back 2 times, last to ck-0" in shown[1]
    assert shown[2].split() == ["2", "0", "-"]
    assert "COPIED" not in describe(job(), [task(0)], NOW_MS)


def test_progress_has_a_column_where_there_is_any():
    """What a task's code says commands no terminal, and looks like a number that people read."""
    said = ProgressStatus(12, 1000.0, "loss \x1b[31m0.3\nx")
    text = describe(job(progress=ProgressStatus(12.0)), [task(0, progress=said), task(1)], NOW_MS)
    assert "progress 12\n" in text
    assert r"12/1000 (1%) loss \x1b[31m0.3 x" in text
    assert "PROGRESS" not in describe(job(), [task(0)], NOW_MS)
    shown = [progress_text(ProgressStatus(done, total)) for done, total in ((0.5, 1.0), (3.0, 2.0), (1e15, 0.0))]
    assert shown == ["0.5/1 (50%)", "3/2 (100%)", "1e+15"]


def test_a_suspended_task_does_not_run():
    """Its state stays what it was, and the table says what it is; so does the job."""
    away = TaskSuspension(1, "u0", phase=Suspension.SUSPENDED, checkpoint="ck-1", node="n1")
    text = describe(job(suspended=1), [task(0, attempt(0)), task(1, attempt(0), suspension=away)], NOW_MS)
    assert "tasks    2: 1 RUNNING, 1 SUSPENDED\n" in text
    assert [line.split()[1] for line in text.splitlines() if line.startswith(("0 ", "1 "))] == ["RUNNING", "SUSPENDED"]
    assert "suspended (ck-1 on n1)" in text
    assert "state    SUSPENDED\n" in describe(job(suspended=2), [], NOW_MS)


def test_a_reason_is_told_once():
    """Tasks that wait for what the job waits for, or for what the one above does, say so in two words."""
    tasks = [task(0, reason="no room"), task(1, reason="no  room"), task(2, reason="zone=a"), task(3, reason="zone=a")]
    text = describe(job(JobState.PENDING, reason="no room"), tasks, NOW_MS)
    assert [line.split()[5:] for line in text[text.index("TASK") :].splitlines()[1:]] == [
        ["as", "above"],
        ["as", "above"],
        ["zone=a"],
        ["as", "above"],
    ]


def test_attempts_are_counted_as_what_they_are():
    """Failed attempts are no retries: the last of them had none."""
    assert "attempts 3 failed, 2 lost with their workers\n" in describe(job(failures=3, preemptions=2), [], NOW_MS)


def test_a_long_command_is_cut():
    """People see the beginning of what a job runs, and how much more there is."""
    text = describe(job(entrypoint="x" * (MAX_COMMAND_CHARS + 7)), [], NOW_MS)
    assert f"runs     {'x' * MAX_COMMAND_CHARS}... and 7 characters: -o json has them\n" in text


def test_retries_have_reasons():
    """Each attempt that was followed by another is a line: task, number, end, worker, exit, times and reason."""
    failed = attempt(1, ended_s=60, fault=TRACEBACK, exit_code=1)
    retried = task(1, attempt(2, TaskState.RUNNING), failed, attempt(0, ended_s=120))
    text = describe(job(), [task(0), retried], NOW_MS)
    lines = text[text.index("TRIED") :].splitlines()
    assert lines[1].split() == ["1", "1", "FAILED", "worker-1", "1", "5s", "60s", "ValueError:", "boom"]
    assert lines[2].split() == ["1", "0", "FAILED", "worker-1", "-", "5s", "2m", "-"]
    assert "task 1, attempt 1, ended with\n  Traceback (most recent call last):\n    File x\n  ValueError: boom" in text


def test_an_exit_code_is_its_attempts_own():
    """The row of an attempt that runs has none, whatever the one before it ended with; the retries have that one."""
    text = describe(job(), [task(0, attempt(1, TaskState.RUNNING), attempt(0, ended_s=9, exit_code=-9))], NOW_MS)
    assert text[text.index("TASK") :].splitlines()[1].split() == ["0", "RUNNING", "-", "1", "-", "-"]
    assert "-9" in text[text.index("TRIED") :]


def test_many_retries_are_cut():
    """A screenful of retries is shown, the latest, and how many more there are."""
    tasks = [task(index, attempt(1), attempt(0, ended_s=index)) for index in range(MAX_RETRIES_SHOWN + 5)]
    text = describe(job(), tasks, NOW_MS)
    assert "and 5 more: -o json has them\n" in text
    shown = text[text.index("TRIED") :].splitlines()[1:-1]
    assert [int(line.split()[0]) for line in shown] == list(range(MAX_RETRIES_SHOWN))


def test_a_failed_jobs_own_fault_comes_first():
    """Of a job that failed the task is shown that failed it, not the one that said something last."""
    tasks = [task(0, attempt(0, ended_s=9, fault="a\nfirst")), task(1, attempt(0, ended_s=1, fault="a\nsecond"))]
    text = describe(job(JobState.FAILED, fault="a\nfirst"), tasks, NOW_MS)
    assert "task 0, attempt 0, ended with\n  a\n  first\n" in text


def test_terminals_see_no_escapes():
    """What a program said is escaped wherever it is shown, line by line."""
    bad = "Traceback\x1b[2J\nValueError: \x1b]0;title\x07\rhidden\u202e"
    text = describe(job(reason=bad, fault=bad), [task(0, attempt(1, fault=bad), attempt(0, fault=bad))], NOW_MS)
    assert text.replace("\n", "").isprintable()
    assert "\\x1b]0;title\\x07\\rhidden\\u202e" in text


def test_gpus_are_told_apart_by_eight_digits():
    """Those of a part of one (MIG), too."""
    assert short_gpus(["GPU-4cf8db2d-06c0", "MIG-4dde2b0e-0000"]) == "4cf8db2d,MIG-4dde2b0e"
