"""``jobs``, ``job``, ``logs`` and ``stop``."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from iriscw.cli.attempts import describe, fields, progress_text
from iriscw.cli.connection import connection_options, find_job, job_named, with_client
from iriscw.cli.following import follow, write_logs
from iriscw.cli.kinds import StateType
from iriscw.cli.outcome import NoSuchSelection
from iriscw.cli.output import age, counts, emit, format_option, plain, rows_table, to_json, to_yaml
from iriscw.cli.watching import watch
from iriscw.client.client import Client
from iriscw.client.job import Job
from iriscw.client.model import JobState, JobStatus, Suspension, TaskState
from iriscw.jobs.model import JOB_TERMINAL

_WORDS: Final[Mapping[str, str]] = {
    TaskState.PENDING: "wait",
    TaskState.ASSIGNED: "start",
    TaskState.BUILDING: "start",
    TaskState.RUNNING: "run",
    TaskState.SUCCEEDED: "done",
    TaskState.KILLED: "killed",
    Suspension.SUSPENDED: "suspended",
}
"""Of a listing's tasks, so that a line of it fits a terminal; all other states have failed."""


UNLISTED = ("entrypoint", "fault")
"""What a listing does not say of a job; `iriscw job` does."""


def tasks_text(status: JobStatus) -> str:
    """Write how many of a job's tasks are how far: ``4 wait, 7 run, 2 suspended, 1 done``."""
    words: dict[str, int] = {}
    for state, count in status.shown_tasks.items():
        word = _WORDS.get(state, "failed")
        words[word] = words.get(word, 0) + count
    return counts(words) or str(status.num_tasks)


@click.command()
@click.option("--all", "all_states", is_flag=True, help="Those that have ended, too.")
@click.option(
    "--state",
    "named",
    type=StateType(),
    multiple=True,
    help="Only those in this state, such as RUNNING or FAILED; may be repeated.",
)
@click.option("-w", "--watch", "watched", is_flag=True, help="Draw the table anew whenever something changes.")
@connection_options
@format_option
def jobs(
    *,
    all_states: bool,
    named: tuple[JobState, ...],
    watched: bool,
    form: str,
    address: str | None,
    token_file: Path | None,
) -> None:
    """List the jobs that have not ended; --all lists the others, too, --state those in one state.

    TASKS says how many tasks wait, start, run and have ended how, as it was a second ago at most; JSON and YAML count
    them by state, as `task_counts`. PROGRESS is what tasks tell of themselves (`iriscw.progress`), where any does. A
    terminal shows as much of the REASON as fits; `iriscw job` shows the whole.

    With --watch the table is drawn anew whenever something changes, until Ctrl-C. Where standard output is no terminal,
    each table follows the one before; why tasks wait is read anew with the next change.
    """
    if all_states and named:
        raise click.UsageError("--all lists jobs in every state, and --state those in one", click.get_current_context())
    if watched and form != "table":
        raise click.UsageError("--watch draws a table, and takes no -o", click.get_current_context())
    states = named or (() if all_states else tuple(state for state in JobState if state not in JOB_TERMINAL))

    async def listed(client: Client) -> None:
        async def look() -> list[JobStatus]:
            return [job.seen for job in await client.jobs(states=states) if job.seen is not None]

        if watched:
            await watch(client, look, jobs_table)
            return
        found = await look()
        if form != "table":
            rows = [{name: each for name, each in fields(job).items() if name not in UNLISTED} for job in found]
            emit(to_json(rows) if form == "json" else to_yaml(rows))
            return
        emit(jobs_table(found, time.time_ns() // 1_000_000))

    with_client(address, token_file, listed)


def jobs_table(found: Sequence[JobStatus], now_ms: int) -> str:
    """Write jobs for people. ``now_ms`` is the time since 1970."""
    told = any(job.progress is not None for job in found)
    columns: dict[str, Callable[[JobStatus], object]] = {
        "ID": lambda job: job.job_id,
        "NAME": lambda job: job.name,
        "STATE": lambda job: job.shown_state,
        "TASKS": tasks_text,
        **({"PROGRESS": lambda job: progress_text(job.progress)} if told else {}),
        "AGE": lambda job: age(job.submitted_at_ms, now_ms),
        "REASON": lambda job: job.reason,
    }
    return rows_table(found, columns, kept=("STATE",))


@click.command()
@click.argument("job_id", metavar="JOB")
@connection_options
@format_option
def job(*, job_id: str, form: str, address: str | None, token_file: Path | None) -> None:
    """Show one job with its tasks and their retries; JOB is an id, or the name of the latest such job.

    A task has its last 16 attempts; -o json has all of them, the table the latest 40 that were followed by another.
    """
    now_ms = time.time_ns() // 1_000_000

    async def shown(client: Client) -> None:
        found = await find_job(client, job_id)
        status, tasks = await found.status(), await found.tasks()
        if form == "table":
            emit(describe(status, tasks, now_ms))
            return
        content = {**fields(status), "tasks": plain(tasks)}
        emit(to_json(content) if form == "json" else to_yaml(content))

    with job_named(job_id):
        with_client(address, token_file, shown)


@click.command()
@click.argument("job_id", metavar="JOB")
@click.option("-f", "--follow", "followed", is_flag=True, help="Go on until the job ends.")
@click.option("--task", type=click.IntRange(min=0), help="Only this task.")
@click.option("--attempt", type=click.IntRange(min=0), help="Only attempts of this number.")
@click.option(
    "--tail",
    type=click.IntRange(min=1),
    help="Begin so many lines before the end of each task's latest attempt; earlier ones are left out.",
)
@connection_options
def logs(
    *,
    job_id: str,
    followed: bool,
    task: int | None,
    attempt: int | None,
    tail: int | None,
    address: str | None,
    token_file: Path | None,
) -> None:
    """Show what a job's tasks have written; JOB is an id, or the name of the latest such job.

    Of a job with several tasks each line begins with the number of its task, in a colour on a terminal unless NO_COLOR
    is set. With -f lines come as fast as they are read, and what is not read waits where it was written. Standard error
    says where the log of another attempt begins, and what is no longer kept: of each attempt the last 48 to 64 MiB are.
    With -f the exit code is 0 however the job ended: `iriscw wait JOB` gives the job's own.
    """

    async def written(client: Client) -> None:
        found = await find_job(client, job_id)
        status = found.seen or await found.status()
        await check_selection(found, status, task, None if followed else attempt)
        several = task is None and status.num_tasks > 1
        write = follow if followed else write_logs
        await write(found, with_task=several, task=task, attempt=attempt, tail=tail or 0)

    with job_named(job_id):
        with_client(address, token_file, written)


async def check_selection(job: Job, status: JobStatus, task: int | None, attempt: int | None) -> None:
    """Refuse tasks and attempts that are not there: their empty logs would look like silence.

    Raises:
        NoSuchSelection: there is no such task, or no task that was selected has had such an attempt.
        OperationError: the controller cannot be reached.
    """
    if task is not None and task >= status.num_tasks:
        last = status.num_tasks - 1
        raise NoSuchSelection(f"--task {task}: {job.id} has {'tasks 0 to ' if last else 'only task '}{last}")
    if attempt is None:
        return
    chosen = [each for each in await job.tasks() if task in (None, each.index)]
    latest = max((each.attempts[0].number for each in chosen if each.attempts), default=-1)
    if attempt > latest:
        whose = job.id if task is None else f"task {task} of {job.id}"
        had = "no attempt yet" if latest < 0 else f"{'attempts 0 to ' if latest else 'only attempt '}{latest}"
        raise NoSuchSelection(f"--attempt {attempt}: {whose} has had {had}")


@click.command()
@click.argument("job_ids", metavar="JOB...", nargs=-1, required=True)
@click.option("--reason", default="stopped by hand", show_default=True, help="What the job's status says about it.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Return when the jobs have ended.")
@connection_options
def stop(*, job_ids: tuple[str, ...], reason: str, wait: bool, address: str | None, token_file: Path | None) -> None:
    """End jobs; JOB is an id, a path, or the name of a job at the top. If one is not there, none is ended.

    A job that a task submitted is not ended by its name alone, unless a task says so: other jobs of its name may have
    been meant. Give its id, or its path such as /TOP/NAME.
    """

    async def stopped(client: Client) -> None:
        found = {each.id: each for each in [await find_job(client, job_id, to_end=True) for job_id in job_ids]}
        last = {each.id: await each.terminate(reason) for each in found.values()}
        for each in found.values():
            status = await each.wait() if wait else last[each.id]
            emit(f"{each.id} {status.shown_state}\n")

    with job_named(*job_ids):
        with_client(address, token_file, stopped)


@click.command()
@click.argument("job_id", metavar="JOB")
@click.option("--task", type=click.IntRange(min=0), default=0, show_default=True, help="Which task of JOB.")
@connection_options
@format_option
def resume(*, job_id: str, task: int, form: str, **given: Any) -> None:
    """Have a suspended task go on, with what `iriscw checkpoint JOB` froze; JOB is an id, or the latest job's name.

    It goes on with a worker of the same machine, as soon as one has room. One that runs is left as it is. Whoever stops
    this command changes nothing: the task goes on all the same.
    """
    from iriscw.cli import at_controller

    with job_named(job_id):
        at_controller.resume(job_id, task, given, form)
