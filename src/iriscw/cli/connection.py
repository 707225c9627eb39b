"""Which controller a command talks to, and how it names jobs."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from iriscw.cli.outcome import run_async

if TYPE_CHECKING:  # a client takes a fifth of a second to import, and some commands only might need one
    from iriscw.client.client import Client
    from iriscw.client.job import Job

Value = TypeVar("Value")
Function = TypeVar("Function", bound=Callable[..., Any])


_CHECKPOINT: Final = re.compile("ck-[0-9a-z]{1,64}")


@contextmanager
def job_named(*names: str) -> Iterator[None]:
    """Where the block finds no job, or no controller, say so of the ids of checkpoints among its jobs' names.

    Raises:
        click.UsageError: one of them is such an id.
    """
    from iriscw.client.errors import NoController, NoSuchJob

    try:
        yield
    except (NoController, NoSuchJob):
        for name in filter(_CHECKPOINT.fullmatch, names):
            raise click.UsageError(
                f"{name} is a checkpoint, and a JOB is wanted: `iriscw restore {name}` brings it back, "
                "and of a suspended task `iriscw resume JOB` does"
            ) from None
        raise


def connection_options(function: Function) -> Function:
    """Add ``--address`` and ``--token-file`` to a command: its parameters ``address`` and ``token_file``."""
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
    """Run ``function`` with a client of the controller.

    Where nobody listens it ends after seconds, if only a process of this machine could listen there. Elsewhere the
    controller may be moving: Kubernetes refuses connections to a Service until its pod is ready. So may a task's own.
    """
    from iriscw.client.client import connected_to
    from iriscw.client.contact import REFUSED_S
    from iriscw.client.discovery import discover
    from iriscw.rpc.address import Address
    from iriscw.rpc.tokens import read_token_file

    async def connected() -> Value:
        token = read_token_file(token_file) if token_file is not None else None
        found = discover(address, token)
        may_move = bool(found.job_id) or not Address.parse(found.address).is_loopback
        async with connected_to(found, refused_s=None if may_move else REFUSED_S) as client:
            return await function(client)

    return run_async(connected)


async def find_job(client: Client, name: str, *, to_end: bool = False) -> Job:
    """Find a job by its id, its name or its path, as :meth:`Client.job`.

    Args:
        client: asks for it.
        name: what was given.
        to_end: whether the job will be ended. Then a name by itself does not find one of another tree's: of several
            jobs of a name, in different namespaces, the others may have ended just now.

    Raises:
        NoSuchJob: there is none.
        NameAmbiguous: several have this name, or another one may be meant.
        OperationError: the controller cannot be reached.
    """
    from iriscw.client.errors import NameAmbiguous

    found = await client.job(name)
    parent = found.seen.parent_job_id if found.seen is not None else ""
    if to_end and parent and name == found.name and not client.is_of_task:
        text = (
            f"{name!r} is {found.id}, which {parent} submitted: give that id, or a path such as /TOP/{name}, to end it"
        )
        raise NameAmbiguous(text)
    return found
