"""``agent serve``: the node agent as a process of its own; ``agent token``: what it proves its node with."""

from __future__ import annotations

import os
import signal
import socket as socketlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import click

from iriscw.cli.agent_health import health
from iriscw.cli.balancing import DEFAULT_POLICY, policy_options, refuse_without_balance
from iriscw.cli.connection import connection_options, with_client
from iriscw.cli.groups import CommandGroup
from iriscw.cli.kinds import Duration, NewFile
from iriscw.cli.outcome import run_async
from iriscw.cli.output import emit
from iriscw.cli.retaining import Retention
from iriscw.cli.tier_options import budgets_of, keys_of, place_options, repository_of
from iriscw.processes.stopping import stopping_signals

if TYPE_CHECKING:
    from iriscw.agent.balancing import Balancing
    from iriscw.agent.uplink.stream import Uplink
    from iriscw.checkpoint.retention import RetentionPolicy
    from iriscw.checkpoint.tiering.model import Watermarks
    from iriscw.client.client import Client

DIALS_NONE: Final = (
    "no controller is dialled: for `iriscw checkpoint JOB`, say --controller HOST:PORT and --token-file FILE"
    " (`iriscw agent token FILE` makes it)\n"
)
"""What an agent says that serves this machine alone."""

EXISTING_FOLDER: Final = click.Path(exists=True, file_okay=False, executable=True, path_type=Path)
"""A folder that is there, and that the agent may look into: nothing would ever be found below a misspelt one."""


@click.group(cls=CommandGroup)
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
    type=EXISTING_FOLDER,
    help="A folder below which callers may have checkpoints put; may be repeated. Default: none.",
)
@click.option(
    "--runtime-root",
    "runtime_roots",
    multiple=True,
    type=EXISTING_FOLDER,
    help="Where a container runtime keeps its state; may be repeated. Default: /run/containerd/runc and /run/runc, "
    "as far as they are there.",
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
@click.option(
    "--controller",
    metavar="ADDRESS",
    envvar="IRISCW_AGENT_CONTROLLER",
    show_envvar=True,
    help="Dial this controller, tell it what is here, and do what it orders. Default: nobody is dialled.",
)
@click.option(
    "--node",
    envvar="IRISCW_NODE",
    show_envvar=True,
    help="The name of this machine, as its workers say it. Default: its host name.",
)
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="IRISCW_AGENT_TOKEN_FILE",
    show_envvar=True,
    help="The token of this node's agent, read each time it dials: `iriscw agent token` gives it, on Kubernetes "
    "the kubelet.",
)
@click.option(
    "--ca-file",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="IRISCW_CA_FILE",
    show_envvar=True,
    help="The authority of an https:// controller, in PEM. Default: the system's.",
)
@click.option("--insecure-plaintext", is_flag=True, help="The network is trusted: the token may cross it in the open.")
@click.option(
    "--retain",
    "retention",
    type=Retention(),
    metavar="POLICY",
    help="Remove the oldest checkpoints of this machine beyond max-checkpoints=N or max-total-size=SIZE, and all "
    "beyond max-age=TIME or max-checkpoint-size=SIZE, as `iriscw checkpoints --retain` does, whenever that is due.",
)
@click.option("--balance", is_flag=True, help="Move checkpoints between tiers by a policy, after each operation.")
@policy_options
@place_options
def serve(
    *,
    socket: Path | None,
    roots: tuple[Path, ...],
    runtime_roots: tuple[Path, ...],
    max_operations: int,
    stop_patience: float,
    lock_patience: float,
    controller: str | None,
    node: str | None,
    token_file: Path | None,
    ca_file: Path | None,
    insecure_plaintext: bool,
    balance: bool,
    policy: str | None,
    marks: tuple[tuple[str, Watermarks], ...],
    retention: RetentionPolicy | None,
    state_dir: Path | None,
    **places: Any,
) -> None:
    """Serve until SIGTERM, SIGHUP or Ctrl-C: what runs then is undone. Logs go to standard error.

    A controller that is away changes nothing for those who call the agent; it is dialled until it is there.

    What an earlier agent of the same state left is finished or undone first, by the same rules as for a command that
    was killed.
    """
    import logging

    from iriscw.agent.containers import RUNTIME_ROOTS
    from iriscw.agent.daemon import Agent, AgentSettings, default_socket
    from iriscw.agent.local import state_folder
    from iriscw.agent.machine import this_machine
    from iriscw.agent.paths import Root

    uplink, dials = None, DIALS_NONE
    if controller is not None:
        uplink, dials = _uplink(controller, node, token_file, ca_file, insecure_plaintext=insecure_plaintext), ""
    elif token_file is not None:
        raise click.UsageError("--token-file: --controller says whom to dial")
    state = state_dir.absolute() if state_dir is not None else state_folder(os.environ)
    settings = AgentSettings(
        state=state,
        socket=socket.absolute() if socket is not None else default_socket(os.environ, state),
        roots=tuple(Root.of(root) for root in roots),
        runtime_roots=tuple(root.absolute() for root in runtime_roots) or RUNTIME_ROOTS,
        max_operations=max_operations,
        stop_patience_s=stop_patience,
        lock_patience_s=lock_patience,
        uplink=uplink,
        balancing=_balancing(policy, dict(marks), balance=balance),
        retention=retention,
    )
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    machine = this_machine(
        state, budgets=budgets_of(places), containers=True, repository=repository_of(places), keys=keys_of(places)
    ).machine

    async def run() -> None:
        with anyio.open_signal_receiver(*stopping_signals()) as signals:  # before anything is begun
            async with Agent(settings, machine) as made:
                sys.stderr.write(f"{dials}iriscw agent at {made.address}\n")
                sys.stderr.flush()
                received = await anext(signals)
                logging.getLogger(__name__).info("stopping on %s", signal.Signals(received).name)

    run_async(run)


def _balancing(policy: str | None, marks: dict[str, Watermarks], *, balance: bool) -> Balancing | None:
    """Say by which policy tiers are balanced; a name that is none is refused before anything starts."""
    if not balance:
        refuse_without_balance(policy, tuple(marks))
        return None
    from iriscw.agent.balancing import Balancing
    from iriscw.checkpoint.drivers.policies import tiering_policy

    return Balancing(policy=tiering_policy(policy or DEFAULT_POLICY), marks=marks)


def _uplink(
    controller: str, node: str | None, token_file: Path | None, ca_file: Path | None, *, insecure_plaintext: bool
) -> Uplink:
    """Say where the controller is; what cannot be is refused before anything starts."""
    from iriscw.agent.uplink.stream import Uplink
    from iriscw.rpc.address import Address
    from iriscw.rpc.errors import InsecureDoor
    from iriscw.rpc.tls import client_tls
    from iriscw.rpc.tokens import read_token_file

    if token_file is None:
        raise click.UsageError("--controller: --token-file says as whom; `iriscw agent token` gives the token")
    read_token_file(token_file)
    address = Address.parse(controller)
    if not (address.tls or address.is_loopback or insecure_plaintext):
        raise InsecureDoor(f"the token would travel to {address} in plain text: use https://, or --insecure-plaintext")
    if ca_file is not None:
        client_tls(authority=ca_file)
    return Uplink(
        address=address,
        node=node or socketlib.gethostname(),
        token_file=token_file.absolute(),
        ca_file=ca_file.absolute() if ca_file is not None else None,
        insecure_plaintext=insecure_plaintext,
    )


@agent.command(name="token")
@click.argument("file", type=NewFile(makes_folders=True))
@click.option("--node", help="The node that its agent may speak of. Default: this machine's host name.")
@connection_options
def token(*, file: Path, node: str | None, address: str | None, token_file: Path | None) -> None:
    """Write the token of a node's agent to FILE (mode 0600), for `iriscw agent serve --token-file`.

    It is the same each time, for as long as the cluster has its secret.
    """
    from iriscw.rpc.tokens import write_token_file

    name, place = node or socketlib.gethostname(), file.absolute()

    async def fetched(client: Client) -> None:
        write_token_file(place, await client.agent_token(name))

    with_client(address, token_file, fetched)
    emit(f"the token of {name}'s agent is in {file}\n")
