"""``sim serve``: a simulated cluster behind a port, for kubectl and other clients of Kubernetes."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from iriscw._errors import UsageError
from iriscw.cli.interrupts import as_interrupts
from iriscw.cli.kinds import NewFile
from iriscw.cli.outcome import run_async
from iriscw.cli.sim.kinds import SEED
from iriscw.client.discovery import context_path
from iriscw.files import decode_json, make_private_folder, read_bounded
from iriscw.processes.stopping import stopping_signals
from iriscw.rpc.errors import InsecureDoor

if TYPE_CHECKING:
    from iriscw_sims.serve.settings import ServeSettings

MOST_NODES: Final = 10_000
"""Nodes of one pool to begin with: ten times the largest fleet that this was sized for."""

_KUBECONFIG_BYTES: Final = 2**20
_FILE: Final[Any] = click.Path(exists=True, dir_okay=False, path_type=Path)
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class KubeconfigInUse(UsageError):
    """The file that ``--kubeconfig`` names holds something else, which would be lost."""


class PoolArgument(click.ParamType["tuple[str, int, str]"]):
    """``NAME=NODES`` or ``NAME=NODES:INSTANCE_TYPE``."""

    name = "name=nodes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int, str]:
        """Read it."""
        if isinstance(value, tuple):
            return value
        name, _, rest = str(value).partition("=")
        nodes, _, instance_type = rest.partition(":")
        if not _NAME.fullmatch(name):
            self.fail(f"{name!r} cannot name a node pool: lower-case letters, digits and '-'", param, ctx)
        if not (nodes.isascii() and nodes.isdigit() and len(nodes) < 9 and 0 <= int(nodes) <= MOST_NODES):
            self.fail(f"{value!r}: a pool has 0 to {MOST_NODES} nodes; write NAME=NODES", param, ctx)
        return name, int(nodes), instance_type


class Rate(click.ParamType["tuple[str, float]"]):
    """``NAME=RATE``: how often a fault comes true, 0 to 1."""

    name = "name=rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        """Read it; which faults there are is the simulator's to know."""
        if isinstance(value, tuple):
            return value
        name, _, rate = str(value).rpartition("=")
        try:
            return name, float(rate)
        except ValueError:
            self.fail(f"{value!r}: write NAME=RATE, the rate between 0 and 1", param, ctx)


class Quota(click.ParamType["tuple[str, int]"]):
    """``TYPE=NODES``: how many nodes of an instance type may be had at once."""

    name = "type=nodes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Read it."""
        if isinstance(value, tuple):
            return value
        instance_type, _, nodes = str(value).rpartition("=")
        if not (instance_type and nodes.isascii() and nodes.isdigit() and len(nodes) < 9):
            self.fail(f"{value!r}: write TYPE=NODES", param, ctx)
        return instance_type, int(nodes)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port; 0, the default: any free one.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="What is drawn at random follows from it.")
@click.option("--speed", type=float, default=1.0, show_default=True, help="Simulated seconds per second.")
@click.option("--quick", is_flag=True, help="Machines boot within seconds, not in CoreWeave's 14 to 30 minutes.")
@click.option(
    "--pool",
    "pools",
    type=PoolArgument(),
    multiple=True,
    metavar="NAME=NODES[:TYPE]",
    default=["demo=2"],
    show_default=True,
    help="A node pool to begin with; may be repeated.",
)
@click.option("--empty", is_flag=True, help="Begin without node pools.")
@click.option(
    "--quota",
    "quotas",
    type=Quota(),
    multiple=True,
    metavar="TYPE=NODES",
    help="How many nodes of an instance type may be had at once; may be repeated. What is not named has no limit.",
)
@click.option(
    "--fault",
    "faults",
    type=Rate(),
    multiple=True,
    metavar="NAME=RATE",
    help="How often something goes wrong, 0 to 1, as `node dies early=0.1`; may be repeated.",
)
@click.option("--tls-cert", type=_FILE, help="A certificate chain in PEM: the server speaks TLS.")
@click.option("--tls-key", type=_FILE, help="The certificate's private key.")
@click.option("--insecure-plaintext", is_flag=True, help="Listen without TLS off loopback: the network is trusted.")
@click.option(
    "--kubeconfig",
    type=NewFile(),
    help="Where to leave the address and token, for kubectl. Default: a file that goes with the server.",
)
def serve(
    *,
    host: str,
    port: int,
    seed: int,
    speed: float,
    quick: bool,
    pools: tuple[tuple[str, int, str], ...],
    empty: bool,
    quotas: tuple[tuple[str, int], ...],
    faults: tuple[tuple[str, float], ...],
    tls_cert: Path | None,
    tls_key: Path | None,
    insecure_plaintext: bool,
    kubeconfig: Path | None,
) -> None:
    """Serve a simulated CoreWeave cluster over HTTP, until Ctrl-C, SIGTERM or the end of the terminal.

    Node pools, nodes and pods behave as the real ones do, in real time or faster; nothing outlives the command. Try it
    with `kubectl get nodes -w` in another terminal.
    """
    from iriscw_sims.serve.settings import ServeSettings, Timing

    if kubeconfig is not None and kubeconfig.exists() and not _is_ours(kubeconfig):
        raise KubeconfigInUse(f"{kubeconfig} is not a kubeconfig of a simulation; choose another file")
    path = kubeconfig if kubeconfig is not None else _own_kubeconfig()
    settings = ServeSettings(
        host=host,
        port=port,
        seed=seed,
        speed=speed,
        kubeconfig=path,
        pools=() if empty else _pools(pools),
        timing=Timing.QUICK if quick else Timing.FAITHFUL,
        quotas=dict(quotas),
        faults=dict(faults),
        tls_cert=tls_cert,
        tls_key=tls_key,
        insecure_plaintext=insecure_plaintext,
    )
    with _removed_at_the_end(path if kubeconfig is None else None):
        try:
            run_async(_serve, settings, path)
        except InsecureDoor as error:
            text = "whoever is on the network could read the token: give --tls-cert and --tls-key"
            raise InsecureDoor(f"{host}: {text}, or say --insecure-plaintext") from error


def _pools(pools: tuple[tuple[str, int, str], ...]) -> Any:
    """Return the pools as the settings take them; Any, because the field's converter hides its type."""
    from iriscw_sims.serve.settings import PoolToBegin

    return tuple(
        PoolToBegin(name, instance_type, nodes) if instance_type else PoolToBegin(name, nodes=nodes)
        for name, nodes, instance_type in pools
    )


async def _serve(settings: ServeSettings, kubeconfig: Path) -> None:
    import anyio

    from iriscw_sims.serve.server import SimServer

    with contextlib.ExitStack() as stack:  # before anything starts: it must end in order, too
        signals = stack.enter_context(anyio.open_signal_receiver(*stopping_signals()))
        async with SimServer(settings) as server:
            _say(_welcome(server.url, kubeconfig, settings.speed))
            await anext(signals)
            stack.close()
            stack.enter_context(as_interrupts(stopping=True))
            _say("stopping ... (Ctrl-C stops it at once)")
    _say("stopped; nothing is left running")


def _welcome(url: str, kubeconfig: Path, speed: float) -> str:
    pace = "in real time" if speed == 1 else f"{speed:g} times as fast as real time"
    return (
        f"a simulated cluster is at {url}, {pace}; in another terminal:\n\n"
        f"  export KUBECONFIG={kubeconfig}\n"
        "  kubectl get nodepools\n"
        "  kubectl get nodes -w\n\n"
        "Ctrl-C ends it."
    )


def _own_kubeconfig() -> Path:
    """Return a place for the kubeconfig that goes with the server, beside the context of `iriscw up`.

    Raises:
        click.UsageError: there is none.
    """
    folder = context_path().parent
    try:
        make_private_folder(folder)
    except OSError as error:
        text = f"no kubeconfig can be left in {folder} ({error.strerror}): say where, with --kubeconfig"
        raise click.UsageError(text) from error
    return folder / f"sim-{os.getpid()}.kubeconfig"


def _is_ours(path: Path) -> bool:
    """Whether a file is a kubeconfig that a server of ours left there."""
    from iriscw_sims.serve.kubeconfig import NAME

    try:
        found = decode_json(read_bounded(path, _KUBECONFIG_BYTES))
    except (OSError, ValueError):  # YAML, as kubectl writes it, or anything else
        return False
    return isinstance(found, dict) and found.get("current-context") == NAME


@contextlib.contextmanager
def _removed_at_the_end(path: Path | None) -> Iterator[None]:
    try:
        yield
    finally:
        if path is not None:
            path.unlink(missing_ok=True)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal was closed: what goes on does not depend on being told
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
