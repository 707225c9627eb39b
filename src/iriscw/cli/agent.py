"""``agent serve``: the node agent as a process of its own."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import anyio
import click

from iriscw.cli.agent_health import health
from iriscw.cli.freezing import place_options
from iriscw.cli.kinds import Duration
from iriscw.cli.outcome import run_async
from iriscw.processes.stopping import stopping_signals


@click.group()
def agent() -> None:
    """The node agent: freezing and thawing for others, on a unix socket."""


agent.add_command(health)


@agent.command(name="serve")
@click.option(
    "--socket",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to listen. Default: /run/kybernate/shim.sock for root, else $XDG_RUNTIME_DIR/iriscw/agent.sock, "
    "else agent/agent.sock in the state folder.",
)
@click.option(
    "--root",
    "roots",
    multiple=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder below which callers may have checkpoints put; may be repeated. Default: none.",
)
@click.option(
    "--runtime-root",
    "runtime_roots",
    multiple=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where a container runtime keeps its state; may be repeated. Default: /run/containerd/runc and /run/runc.",
)
@click.option(
    "--max-operations", type=click.IntRange(1, 256), default=16, show_default=True, help="Operations at once."
)
@click.option(
    "--stop-patience",
    type=Duration(),
    default="20s",
    show_default=True,
    help="What the undoing of running operations may take at the end; the next agent does the rest.",
)
@click.option(
    "--lock-patience",
    type=Duration(),
    default="3s",
    show_default=True,
    help="How long to wait for the state of an agent that was just killed: a program that it ran may hold it still.",
)
@place_options
def serve(
    *,
    socket: Path | None,
    roots: tuple[Path, ...],
    runtime_roots: tuple[Path, ...],
    max_operations: int,
    stop_patience: float,
    lock_patience: float,
    state_dir: Path | None,
    ram_budget: int | None,
    disk_budget: int | None,
) -> None:
    """Serve until SIGTERM, SIGHUP or Ctrl-C: what runs then is undone. Logs go to standard error.

    What an earlier agent of the same state left is finished or undone first, by the same rules as for a command that
    was killed.
    """
    import logging

    from iriscw.agent.containers import RUNTIME_ROOTS
    from iriscw.agent.daemon import Agent, AgentSettings, default_socket
    from iriscw.agent.local import state_folder
    from iriscw.agent.machine import this_machine
    from iriscw.agent.paths import Root

    state = state_dir.absolute() if state_dir is not None else state_folder(os.environ)
    settings = AgentSettings(
        state=state,
        socket=socket.absolute() if socket is not None else default_socket(os.environ, state),
        roots=tuple(Root.of(root) for root in roots),
        runtime_roots=tuple(root.absolute() for root in runtime_roots) or RUNTIME_ROOTS,
        max_operations=max_operations,
        stop_patience_s=stop_patience,
        lock_patience_s=lock_patience,
    )
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    machine = this_machine(state, ram_bytes=ram_budget or 0, disk_bytes=disk_budget or 0).machine

    async def run() -> None:
        with anyio.open_signal_receiver(*stopping_signals()) as signals:  # before anything is begun
            async with Agent(settings, machine) as made:
                sys.stderr.write(f"iriscw agent at {made.address}\n")
                sys.stderr.flush()
                received = await anext(signals)
                logging.getLogger(__name__).info("stopping on %s", signal.Signals(received).name)

    run_async(run)
