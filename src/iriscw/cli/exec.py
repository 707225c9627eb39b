"""``exec``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from iriscw.cli.connection import connection_options, find_job, job_named, with_client
from iriscw.cli.kinds import Duration
from iriscw.cli.output import emit_bytes
from iriscw.client.client import Client
from iriscw.client.model import ExecOutput


@click.command("exec")
@click.option("--task", type=click.IntRange(min=0), help="Beside which task; default: the first that runs.")
@click.option("--timeout", type=Duration(), default="1h", show_default=True, help="When the command is killed.")
@click.argument("job_id", metavar="JOB")
@click.argument("argv", metavar="-- COMMAND [ARGS]...", nargs=-1, required=True, type=click.UNPROCESSED)
@connection_options
def exec_command(
    *,
    job_id: str,
    argv: tuple[str, ...],
    task: int | None,
    timeout: float,
    address: str | None,
    token_file: Path | None,
) -> int:
    """Run a command beside a task that runs: `iriscw exec JOB -- nvidia-smi`.

    It is where the task is: in its container, its working folder, with its variables and its GPUs. No shell is
    involved, and standard input is empty. The outputs and the exit code are the command's. Ctrl-C kills it, and so does
    the end of the task. JOB is an id, or the name of the latest such job.
    """

    def say(said: ExecOutput) -> None:
        emit_bytes(said.data, sys.stderr if said.stderr else sys.stdout)

    async def run(client: Client) -> int:
        found = await find_job(client, job_id)
        return (await found.exec(argv, task=task, timeout_s=timeout, output=say)).exit_code

    with job_named(job_id):
        return with_client(address, token_file, run)
