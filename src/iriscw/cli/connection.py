"""Which controller a command talks to, and how it names jobs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click

from iriscw.cli.outcome import run_async
from iriscw.client.client import Client, connect
from iriscw.client.errors import NoSuchJob
from iriscw.client.job import Job
from iriscw.rpc.tokens import read_token_file

Value = TypeVar("Value")
Function = TypeVar("Function", bound=Callable[..., Any])


def connection_options(function: Function) -> Function:
    """Add ``--address`` and ``--token-file`` to a command."""
    function = click.option(
        "--token-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Holds the cluster's token; default: the one that belongs to the address.",
    )(function)
    return click.option(
        "--address", help="The controller, as HOST:PORT; default: the task's own, or what `iriscw up` keeps."
    )(function)


def with_client(
    address: str | None, token_file: Path | None, function: Callable[[Client], Coroutine[Any, Any, Value]]
) -> Value:
    """Run ``function`` with a client of the controller."""

    async def connected() -> Value:
        token = read_token_file(token_file) if token_file is not None else None
        async with connect(address, token) as client:
            return await function(client)

    return run_async(connected)


async def find_job(client: Client, name: str) -> Job:
    """Find a job by its id, else the latest one of that name.

    Raises:
        NoSuchJob: there is neither.
        OperationError: the controller cannot be reached.
    """
    try:
        return await client.job(name)
    except NoSuchJob:
        named = [job for job in await client.jobs() if job.name == name]
    if not named:
        raise NoSuchJob(f"there is no job {name!r}")
    return max(named, key=lambda job: job.seen.submitted_at_ms if job.seen is not None else 0)
