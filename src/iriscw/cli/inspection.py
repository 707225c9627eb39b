"""``inspect``: the actors of a running controller, worker or node agent, and the GPUs of a worker."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from iriscw.cli.connection import connection_options, with_client
from iriscw.cli.groups import CommandGroup
from iriscw.cli.output import age, emit, format_option, show
from iriscw.client.client import Client
from iriscw.client.model import ActorStatus


@click.group(cls=CommandGroup)
def inspect() -> None:
    """What goes on inside a process of iriscw."""


@inspect.command()
@click.argument("path", default="/")
@click.option("--depth", type=click.IntRange(min=0), help="Levels below PATH; default: all.")
@click.option(
    "--troubled", is_flag=True, help="Only actors that are not active, have failed, or have a half-full mailbox."
)
@click.option("--agent", is_flag=True, help="Ask the node agent of this machine, at its usual socket.")
@connection_options
@format_option
def tree(
    *,
    path: str,
    depth: int | None,
    troubled: bool,
    agent: bool,
    address: str | None,
    token_file: Path | None,
    form: str,
) -> None:
    """Show the supervision tree of a process, from the actor at PATH.

    Without options it is the controller's. --address may also be a worker's, with that worker's token, or
    unix:/path for the socket of an agent. An actor that is WAITING starts or will be restarted; one that is QUARANTINED
    failed too often, and the others go on without it. A mailbox is shown as soon as messages wait in it.
    """
    if agent:
        if address is not None:
            raise click.UsageError("--agent and --address both say whom to ask: leave one out")
        address = _agents_socket()
    path = path.rstrip("/") or "/"

    async def listed(client: Client) -> None:
        found = await client.actors(path, depth=depth, troubled=troubled)
        if form == "table" and troubled and not found:
            emit(f"no actor at or below {path} is in trouble\n")
            return
        show(
            found,
            form,
            {
                "ACTOR": lambda each: each.path if troubled or each.path == path else each.path.rpartition("/")[2],
                "STATE": lambda each: each.state,
                "UP": lambda each: lasted(each.up_ms),
                "RESTARTS": lambda each: each.restarts or "-",
                "MAILBOX": lambda each: f"{each.queued}/{each.capacity}" if each.queued else "-",
                "EFFECTS": lambda each: each.operations or "-",
                "LAST FAILURE": lambda each: f"{lasted(each.failed_ms)} ago: {each.failure}" if each.failure else "",
            },
            kept=("STATE",),
            level=None if troubled else lambda each: level(each, path),
        )

    with_client(address, token_file, listed)


@inspect.command()
@connection_options
@format_option
def gpus(*, address: str | None, token_file: Path | None, form: str) -> None:
    """Show the GPUs that a worker hands out: how busy, full and warm they are, and what they draw.

    --address is that worker's, with its token. It looks every 15 s; what its machine does not say is "-". A worker
    without GPUs has none to show, nor has any other process.
    """

    async def listed(client: Client) -> None:
        found = await client.gpus()
        if form == "table" and not found:
            emit("it hands out no GPUs\n")
            return
        show(
            found,
            form,
            {
                "GPU": lambda each: each.uuid,
                "INDEX": lambda each: each.index,
                "NAME": lambda each: each.name,
                "BUSY": lambda each: figure(each.utilization_percent, "%"),
                "MEMORY": lambda each: f"{_gib(each.memory_used_bytes)}/{_gib(each.memory_total_bytes)} GiB",
                "TEMPERATURE": lambda each: figure(each.temperature_c, " C"),
                "POWER": lambda each: figure(each.power_w, " W"),
                "PROBLEM": lambda each: each.problem,
            },
            kept=("INDEX", "GPU"),
        )

    with_client(address, token_file, listed)


def figure(value: float | None, unit: str) -> str:
    """Write a figure with its unit, in whole units; "-" for one that is not known."""
    return "-" if value is None else f"{value:.0f}{unit}"


def _gib(size_bytes: int | None) -> str:
    return "-" if size_bytes is None else f"{size_bytes / 2**30:.1f}"


def level(actor: ActorStatus, path: str) -> int:
    """Say how many levels below ``path`` an actor is."""
    return len(actor.path.removeprefix(path).strip("/").split("/")) if actor.path != path else 0


def lasted(duration_ms: int) -> str:
    """Write how long something lasted: ``42s``, ``7m``, ``3h``, ``2d``."""
    now_ms = time.time_ns() // 1_000_000
    return age(now_ms - max(0, duration_ms), now_ms)


def _agents_socket() -> str:
    from iriscw.agent.daemon import default_socket
    from iriscw.agent.local import state_folder

    return f"unix:{default_socket(os.environ, state_folder(os.environ))}"
