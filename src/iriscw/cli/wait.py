"""``wait``."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import click

from iriscw._errors import OperationError, UsageError
from iriscw.cli.attempts import fields
from iriscw.cli.connection import connection_options, find_job, with_client
from iriscw.cli.following import code_of
from iriscw.cli.kinds import Duration
from iriscw.cli.outcome import DONE, UNWELL
from iriscw.cli.output import cell, emit, format_option, to_json, to_yaml
from iriscw.client.client import Client
from iriscw.client.errors import WaitTimeout
from iriscw.client.job import Job
from iriscw.client.model import JobStatus


@click.command()
@click.argument("job_ids", metavar="JOB...", nargs=-1, required=True)
@click.option("--timeout", type=Duration(), help="How long to wait, such as 30m; default: until the jobs have ended.")
@connection_options
@format_option
def wait(
    *, job_ids: tuple[str, ...], timeout: float | None, form: str, address: str | None, token_file: Path | None
) -> int:
    """Wait until jobs have ended, and exit as they did; JOB is an id, or the name of the latest such job.

    Prints the id and the state of each job when it has ended; -o json gives a list of all. The exit code is 0 if all
    succeeded. Otherwise it is 1 for several jobs, and for one job that of `iriscw submit -f`: the program's own if the
    job's only task failed. It is 3 if a job has not ended after --timeout; whoever stops waiting ends no job.
    """

    async def waited(client: Client) -> int:
        found = {each.id: each for each in [await find_job(client, job_id) for job_id in job_ids]}
        ended, codes = await _wait_for(tuple(found.values()), timeout, told=form == "table")
        if form != "table":
            rows = [fields(ended[job_id]) for job_id in found]
            emit(to_json(rows) if form == "json" else to_yaml(rows))
        if len(codes) == 1:
            return codes[0]
        return UNWELL if any(codes) else DONE

    return with_client(address, token_file, waited)


async def _wait_for(
    jobs: tuple[Job, ...], timeout_s: float | None, *, told: bool
) -> tuple[dict[str, JobStatus], list[int]]:
    """Wait for all at once, so that none is forgotten by the controller before its turn; give statuses and exit codes.

    Raises:
        WaitTimeout: some have not ended in time.
        OperationError: the controller cannot be reached for minutes.
    """
    ended: dict[str, JobStatus] = {}
    codes: list[int] = []
    late: list[WaitTimeout] = []
    failed: list[Exception] = []

    async def one(job: Job) -> None:
        try:
            status = job.seen if job.seen is not None and job.seen.is_over else await job.wait(timeout_s)
            codes.append(await code_of(job, status))
            ended[job.id] = status
            if told:
                emit(f"{job.id} {status.state.value}\n")
            if status.reason:
                sys.stderr.write(f"{job.id}: {cell(status.reason)}\n")
        except WaitTimeout as error:
            late.append(error)
        except (OperationError, UsageError, OSError) as error:  # of several jobs at once, too: one of them is told
            failed.append(error)
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for each in jobs:
            tasks.start_soon(one, each)
    if failed:
        raise failed[0]
    if late:
        raise WaitTimeout("; ".join(sorted(map(str, late))))
    return ended, codes
