"""``up``, ``controller serve`` and ``worker serve``: commands that go on until they are told to stop."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click
from click.core import ParameterSource

from iriscw._errors import UsageError
from iriscw.cli.groups import CommandGroup
from iriscw.cli.interrupts import as_interrupts
from iriscw.cli.kinds import NodeCpu, SizeType
from iriscw.cli.local_end import last_words
from iriscw.cli.outcome import run_async
from iriscw.client.discovery import check_context, context_path, read_context, remove_context, write_context
from iriscw.config.load import load_config
from iriscw.config.model import PlatformKind
from iriscw.processes.stopping import stopping_signals

if TYPE_CHECKING:
    from iriscw.cluster import Cluster
    from iriscw.controller.assembly import Controller

OF_PROCESSES = ("nodes", "cpu", "memory", "scale_down_delay", "orphan_after", "worker_lease", "port")
"""Options of ``up`` that describe a cluster of processes; a configuration says such things itself."""


class ClusterIsUp(UsageError):
    """A cluster is up here already, and its context would be lost."""


@click.command()
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The cluster's configuration, with no option but --workdir beside it; default: processes of this machine, "
    "as the options below say.",
)
@click.option("--nodes", type=int, default=4, show_default=True, help="Nodes that there may be at once.")
@click.option("--cpu", type=NodeCpu(), default="1", show_default=True, help="CPU cores of each node.")
@click.option(
    "--memory", type=SizeType(1), default="1GiB", show_default=True, help="Memory of each node; digits: bytes."
)
@click.option("--scale-down-delay", type=float, default=30.0, show_default=True, help="Idle seconds of a node.")
@click.option(
    "--orphan-after",
    type=float,
    help="Seconds after which workers end themselves if this process is killed; 0: never. "
    "Default: 60 in a temporary folder, 600 in --workdir, and at least --worker-lease.",
)
@click.option(
    "--worker-lease",
    type=float,
    help="Seconds for which tasks go on meanwhile, from 10 to 86400. A task that is lost with its worker may wait for "
    "as long, and 10 s more, before it is tried again. Default: 20.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Where the controller listens; 0: any free port."
)
@click.option(
    "--workdir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the cluster keeps its state; jobs there are taken up again. Default: a folder that goes with it.",
)
def up(
    *,
    config: Path | None,
    nodes: int,
    cpu: str,
    memory: int,
    scale_down_delay: float,
    orphan_after: float | None,
    worker_lease: float | None,
    port: int,
    workdir: Path | None,
) -> None:
    """Run a cluster here, for the other commands, until Ctrl-C, SIGTERM or the end of the terminal.

    Its address and token are left in a file that only you can read: $IRISCW_CONTEXT, else
    $XDG_RUNTIME_DIR/iriscw/context.json, else ~/.local/state/iriscw/context.json. First, whatever killed
    clusters in temporary folders left running is ended, and their folders are removed. A second Ctrl-C ends without
    grace for calls under way.
    """
    from iriscw.cluster import Cluster

    path = context_path()
    left = read_context(path)
    if left is not None and left.is_alive:
        raise ClusterIsUp(
            f"a cluster is up at {left.address} (process {left.owner.pid});"
            " end it first (`iriscw down`), or set IRISCW_CONTEXT"
        )
    check_context(path)
    if config is not None:
        _refuse_beside_config(click.get_current_context())
        cluster = Cluster.open(load_config(config), workdir=workdir)
    else:
        cluster = Cluster.local(
            nodes=nodes,
            cpu=cpu,
            memory=memory,
            scale_down_delay=scale_down_delay,
            orphan_after=orphan_after,
            worker_lease=worker_lease,
            workdir=workdir,
            port=port,
        )
    dead = () if left is None or left.workdir is None else (left.workdir,)
    run_async(functools.partial(_keep_up, kept=workdir is not None or config is not None), cluster, path, dead)


def _refuse_beside_config(ctx: click.Context) -> None:
    names = [
        f"--{name.replace('_', '-')}"
        for name in OF_PROCESSES
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if names:
        raise click.UsageError(f"{', '.join(names)}: with --config the configuration says it", ctx)


async def _keep_up(cluster: Cluster, path: Path, dead: tuple[Path, ...], *, kept: bool) -> None:
    from iriscw.cloud.drivers.local.throwaway import remove_abandoned

    platform = cluster.config.platform
    left = "" if platform.kind is PlatformKind.LOCAL else platform.name
    with contextlib.ExitStack() as stack:  # before anything starts: it must end in order, too
        signals = stack.enter_context(anyio.open_signal_receiver(*stopping_signals()))
        for each in await remove_abandoned(dead):
            _say(f"removed {each.folder}, left by a cluster that was killed (process {each.owner.pid})")
        async with cluster:
            address, token, workdir = cluster.address, cluster.admin_token, cluster.workdir
            written = write_context(path, address, token, workdir, kept=kept, left=left)
            try:
                _say(f"iriscw is up at {cluster.address}; try `iriscw submit -f -- echo hello` in another terminal")
                await anext(signals)
                stack.close()
                stack.enter_context(as_interrupts(stopping=True))
                _say("stopping ... (Ctrl-C stops it at once)")
            finally:
                remove_context(path, written)
    _say(last_words(left))


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal was closed: what goes on does not depend on being told
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


@click.group(cls=CommandGroup)
def controller() -> None:
    """The controller as a process of its own."""


@controller.command(name="serve")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="The cluster's configuration.",
)
@click.option("--host", help="The address to listen on; default: the configuration's.")
@click.option("--port", type=click.IntRange(0, 65535), help="Likewise the port; 0: any free one.")
@click.option("--bundle-prefix", help="Where bundles are kept: a file://, s3:// or gs:// address.")
@click.option("--state-dir", type=click.Path(file_okay=False, path_type=Path), help="Where journal and logs are kept.")
@click.option("--insecure-plaintext", is_flag=True, help="Listen without TLS off loopback: the network is trusted.")
def controller_serve(
    *,
    config: Path,
    host: str | None,
    port: int | None,
    bundle_prefix: str | None,
    state_dir: Path | None,
    insecure_plaintext: bool,
) -> None:
    """Serve until SIGTERM, SIGHUP or Ctrl-C. Logs go to standard error, as JSON lines.

    Machines are left running: the next controller takes them up again.
    """
    from iriscw.controller.logging import configure
    from iriscw.controller.serve import serve
    from iriscw.rpc.pacing import short_turned_loop

    def ready(made: Controller) -> None:
        _say(f"iriscw controller at {made.address}; its token is in {made.secrets_dir}")

    configure()
    run_async(
        functools.partial(
            serve,
            load_config(config),
            state_dir=state_dir,
            host=host,
            port=port,
            bundle_prefix=bundle_prefix,
            insecure_plaintext=insecure_plaintext,
            ready=ready,
        ),
        loop_factory=short_turned_loop,
    )


@click.group(cls=CommandGroup)
def worker() -> None:
    """A worker as a process of its own."""


@worker.command(
    name="serve",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def worker_serve(*, arguments: tuple[str, ...]) -> None:
    """Serve until SIGTERM, SIGHUP or Ctrl-C: `iriscw worker serve --help` lists the options and exit codes.

    This process becomes `python -m iriscw.worker serve`.
    """
    argv = [sys.executable, "-m", "iriscw.worker", "serve", *arguments]
    os.execv(argv[0], argv)  # noqa: S606 - this very interpreter, and what the user typed
