"""``submit``, ``jobs``, ``job``, ``logs`` and ``stop``."""

from __future__ import annotations

import sys
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import click

from iriscw.cli.attempts import describe
from iriscw.cli.connection import connection_options, find_job, with_client
from iriscw.cli.outcome import DONE, UNWELL
from iriscw.cli.output import age, cell, counts, format_option, plain, show, show_one, to_json, to_yaml
from iriscw.client.client import Client
from iriscw.client.job import Job
from iriscw.client.model import JobStatus, LogLine
from iriscw.client.submission import Command
from iriscw.config.quantities import DurationError, parse_duration
from iriscw.jobs.model import JOB_TERMINAL, JobState, TaskState
from iriscw.resources import Resources

_NS_PER_S = 1_000_000_000


class Duration(click.ParamType[float]):
    """Text such as ``90s``, ``30m`` or ``2h`` to seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        if isinstance(value, float):
            return value
        try:
            return parse_duration(value) / _NS_PER_S
        except DurationError as error:
            self.fail(str(error), param, ctx)


class Assignment(click.ParamType[tuple[str, str]]):
    """``NAME=VALUE``."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Read it."""
        if isinstance(value, tuple):
            return value
        name, equals, text = str(value).partition("=")
        if not equals or not name:
            self.fail(f"{value!r} is no NAME=VALUE", param, ctx)
        return name, text


@click.command()
@click.option("--name", help="For people, and to find the job by; default: the program's name.")
@click.option("--replicas", type=int, default=1, show_default=True, help="How many tasks run the command.")
@click.option("--cpu", default="1", show_default=True, help="CPU cores of each task: 4, 0.5 or 500m.")
@click.option("--memory", default="1GiB", show_default=True, help="Memory of each task.")
@click.option("--disk", help="Disk space of each task, such as 10GiB.")
@click.option("--gpu", type=int, default=0, help="GPUs of each task.")
@click.option("--gpu-class", help="Which, such as H100.")
@click.option("--env", type=Assignment(), multiple=True, metavar="NAME=VALUE", help="A variable; may be repeated.")
@click.option("--port", "ports", multiple=True, metavar="NAME", help="A port to set aside; may be repeated.")
@click.option(
    "--constraint",
    "constraints",
    multiple=True,
    help="Which workers will do: 'key=value', 'key>=4', 'key in a,b', 'key' or '!key'; may be repeated.",
)
@click.option("--coscheduling", metavar="ATTRIBUTE", help="Run all tasks at once, on workers that share its value.")
@click.option(
    "--priority",
    type=click.Choice(["production", "interactive", "batch"]),
    default="interactive",
    show_default=True,
    help="Who is placed first.",
)
@click.option("--timeout", type=Duration(), help="How long one attempt may run, such as 30m.")
@click.option("--scheduling-timeout", type=Duration(), help="How long a task may wait for a worker.")
@click.option("--max-retries-failure", type=int, default=0, show_default=True, help="Failed attempts of a task.")
@click.option(
    "--max-retries-preemption", type=int, default=100, show_default=True, help="Attempts lost to the infrastructure."
)
@click.option(
    "--existing",
    type=click.Choice(["error", "keep", "recreate"]),
    default="error",
    show_default=True,
    help="What to do about a job of this name that has not ended.",
)
@click.option("-f", "--follow", is_flag=True, help="Show the job's log and wait for its end.")
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED)
@connection_options
@format_option
def submit(
    *,
    argv: tuple[str, ...],
    name: str | None,
    follow: bool,
    form: str,
    address: str | None,
    token_file: Path | None,
    **wishes: Any,
) -> int:
    """Run a command on the cluster: `iriscw submit --replicas 4 -- python train.py`.

    Prints the job's id. With -f the exit code is 1 if the job does not end well.
    """
    sizes = {key: wishes.pop(key) for key in ("cpu", "memory", "gpu", "gpu_class")}
    if (disk := wishes.pop("disk")) is not None:
        sizes["disk"] = disk
    wishes["environment"] = dict(wishes.pop("env"))
    command, resources = Command(argv), Resources(**sizes)

    async def submitted(client: Client) -> int:
        job = await client.submit(command, name=name or Path(argv[0]).name, resources=resources, **wishes)
        status = await job.status()
        if not follow:
            show_one(status, form, lambda: f"{job.id}\n")
            return DONE
        sys.stderr.write(f"{job.id}\n")
        await write_logs(job, with_task=status.num_tasks > 1, follow=True)
        return await conclude(job, form)

    return with_client(address, token_file, submitted)


async def conclude(job: Job, form: str) -> int:
    """Say how a job ended, and give the exit code for it."""
    status = await job.wait()
    if form != "table":
        show_one(status, form, str)
    reason = f": {cell(status.reason)}" if status.reason else ""
    sys.stderr.write(f"{job.id} {status.state.value}{reason}\n")
    return DONE if status.state is JobState.SUCCEEDED else UNWELL


async def write_logs(job: Job, *, with_task: bool, **which: Any) -> None:
    """Write a job's log to standard output, with the task's number where there are several."""
    async with aclosing(job.logs(**which)) as lines:
        async for line in lines:
            sys.stdout.write(log_text(line, with_task=with_task))
            sys.stdout.flush()


def log_text(line: LogLine, *, with_task: bool) -> str:
    """Write one line of a log."""
    return f"{line.task_index} | {line.text}\n" if with_task else f"{line.text}\n"


_WORDS = {
    TaskState.PENDING: "wait",
    TaskState.ASSIGNED: "start",
    TaskState.BUILDING: "start",
    TaskState.RUNNING: "run",
    TaskState.SUCCEEDED: "done",
    TaskState.KILLED: "killed",
}
"""Of a listing's tasks, so that a line of it fits a terminal; all other states have failed."""


def tasks_text(status: JobStatus) -> str:
    """Write how many of a job's tasks are how far: ``4 wait, 7 run, 1 done``."""
    words: dict[str, int] = {}
    for state, count in status.tasks.items():
        word = _WORDS.get(state, "failed")
        words[word] = words.get(word, 0) + count
    return counts(words) or str(status.num_tasks)


@click.command()
@click.option("--all", "all_states", is_flag=True, help="Those that have ended, too.")
@connection_options
@format_option
def jobs(*, all_states: bool, form: str, address: str | None, token_file: Path | None) -> None:
    """List the jobs that have not ended; --all lists the others, too.

    TASKS says how many tasks wait, start, run and have ended how, as it was a second ago at most; JSON and YAML count
    them by state. A terminal shows as much of the REASON as fits; `iriscw job` shows the whole.
    """
    now_ms = time.time_ns() // 1_000_000
    states = () if all_states else tuple(state for state in JobState if state not in JOB_TERMINAL)

    async def listed(client: Client) -> None:
        found = [job.seen for job in await client.jobs(states=states) if job.seen is not None]
        show(
            found,
            form,
            {
                "ID": lambda job: job.job_id,
                "NAME": lambda job: job.name,
                "STATE": lambda job: job.state.value,
                "TASKS": tasks_text,
                "AGE": lambda job: age(job.submitted_at_ms, now_ms),
                "REASON": lambda job: job.reason,
            },
        )

    with_client(address, token_file, listed)


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
            sys.stdout.write(describe(status, tasks, now_ms))
            return
        content = {**plain(status), "tasks": plain(tasks), "counts": plain(status.tasks)}
        sys.stdout.write(to_json(content) if form == "json" else to_yaml(content))

    with_client(address, token_file, shown)


@click.command()
@click.argument("job_id", metavar="JOB")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job ends.")
@click.option("--task", type=click.IntRange(min=0), help="Only this task.")
@click.option("--attempt", type=click.IntRange(min=0), help="Only attempts of this number.")
@click.option("--tail", type=click.IntRange(min=1), default=None, help="Begin so many lines before the end.")
@connection_options
def logs(
    *,
    job_id: str,
    follow: bool,
    task: int | None,
    attempt: int | None,
    tail: int | None,
    address: str | None,
    token_file: Path | None,
) -> None:
    """Show what a job's tasks have written; JOB is an id, or the name of the latest such job."""

    async def written(client: Client) -> None:
        found = await find_job(client, job_id)
        several = task is None and found.seen is not None and found.seen.num_tasks > 1
        await write_logs(found, with_task=several, follow=follow, task=task, attempt=attempt, tail=tail or 0)

    with_client(address, token_file, written)


@click.command()
@click.argument("job_id", metavar="JOB")
@click.option("--reason", default="stopped by hand", show_default=True, help="What the job's status says about it.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Return when the job has ended.")
@connection_options
def stop(*, job_id: str, reason: str, wait: bool, address: str | None, token_file: Path | None) -> None:
    """End a job; JOB is an id, or the name of the latest such job."""

    async def stopped(client: Client) -> None:
        found = await find_job(client, job_id)
        status = await found.terminate(reason)
        if wait:
            status = await found.wait()
        sys.stdout.write(f"{found.id} {status.state.value}\n")

    with_client(address, token_file, stopped)
