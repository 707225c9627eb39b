"""``connect``: the way to the controller of a cluster on Kubernetes, for other commands, or around one program.

Files that a client needs (the authority's certificate, the token) lie in a folder of mode 0700 for as long as the way
is open, on the runtime directory where there is one, which is not on a disk. What one left that was killed goes with
the next.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.abc
import anyio.to_thread
import attrs
import click

from iriscw._errors import OperationError, UsageError
from iriscw.cli.manifests import CONFIG, cluster_options
from iriscw.cli.outcome import DONE, INTERRUPTED, run_async
from iriscw.cli.output import format_option, show_one, visible
from iriscw.client.discovery import context_path, read_context, remove_context, write_context
from iriscw.files import read_bounded, write_atomic
from iriscw.processes.stopping import stopping_signals
from iriscw.rpc.errors import InvalidTls
from iriscw.rpc.tls import client_tls
from iriscw.rpc.tokens import Secret, read_token_file, write_token_file
from iriscw.task.environment import CA_VARIABLE, PLAINTEXT_VARIABLE, SERVER_NAME_VARIABLE

if TYPE_CHECKING:
    from iriscw.deploy.reaching import ControllerGate, WantedController

AUTHORITY_BYTES: Final = 2**20
"""Of a file with certificates: the bundles of whole distributions have 250 KiB."""

CHECK_S: Final = 30.0
"""Seconds until the controller has to answer through a new tunnel: a pod that serves does at once, a node on which it
has just started takes up to 30 s until it can be reached."""

SIGNALLED: Final = 128
"""What shells add to the number of the signal that ended a program."""

OF_A_TASK: Final = ("IRIS_WORKDIR", "IRIS_JOB_ID")
"""Variables by which a program would take another controller for its own."""


class NoSuchProgram(UsageError):
    """The program behind ``--`` cannot be started."""


class TunnelLost(OperationError):
    """The way to the controller was opened, and did not lead there."""

    retryable = True


class _Beside(click.Command):
    """A command with a program behind ``--``: the words of that are none of ours."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set the program aside, and read the rest."""
        if "--" in args:
            at = args.index("--")
            args, ctx.meta[__name__] = args[:at], tuple(args[at + 1 :])
            if not ctx.meta[__name__]:
                raise click.UsageError("there is no program behind --", ctx)
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return what stands behind the command's name in its usage."""
        return [*super().collect_usage_pieces(ctx), "[-- PROGRAM ...]"]


@attrs.frozen
class ClientWay:
    """What a client is told: an open way, and where its files lie."""

    namespace: str
    service: str
    address: str
    server_name: str
    ca_file: str
    token_file: str

    @property
    def variables(self) -> dict[str, str]:
        """The variables by which programs find it; those without a value are not to be set."""
        return {
            "IRIS_CONTROLLER_ADDRESS": self.address,
            "IRIS_TOKEN_FILE": self.token_file,
            CA_VARIABLE: self.ca_file,
            SERVER_NAME_VARIABLE: self.server_name,
            PLAINTEXT_VARIABLE: "" if self.ca_file else "1",
        }

    def environment(self, ours: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a program that is to find it, made of ours."""
        kept = {name: value for name, value in ours.items() if name not in (*self.variables, *OF_A_TASK)}
        return {**kept, **{name: value for name, value in self.variables.items() if value}}

    def exports(self) -> str:
        """Write the variables for a shell."""
        return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in self.variables.items() if value)


@click.command(cls=_Beside)
@click.argument("config", type=CONFIG, required=False)
@click.option("--namespace", help="Where the controller is; default: what CONFIG says, else where there is one.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="The port of this machine that leads there; 0: a free one."
)
@click.option("--ca-file", type=CONFIG, help="The authority to trust; default: the one in the cluster's Secret.")
@click.option("--token-file", type=CONFIG, help="Who asks; default: the administrators' token in the cluster's Secret.")
@cluster_options
@format_option
@click.pass_context
def connect(
    ctx: click.Context,
    *,
    config: Path | None,
    namespace: str | None,
    port: int,
    ca_file: Path | None,
    token_file: Path | None,
    kubeconfig: Path | None,
    context: str | None,
    form: str,
) -> int:
    """Find the controller of a cluster on Kubernetes, and lead to it through the cluster's API until Ctrl-C.

    Neither kubectl nor an open port of the cluster is needed. Meanwhile the other commands find the controller, in this
    terminal's siblings too; what is printed is for other programs. With a program behind --, that program finds it, and
    its exit code is this command's.
    """
    from iriscw.kubernetes import read_wish

    if config is not None and namespace is not None:
        raise click.UsageError("--namespace: CONFIG says it", ctx)
    program: tuple[str, ...] = ctx.meta.get(__name__, ())
    wish, named = read_wish(config, namespace or "")
    given = attrs.evolve(wish, port=port, authority=_text(ca_file), token=_token(token_file))
    return run_async(_connect, given, kubeconfig or named, context, program, form)


def _text(path: Path | None) -> str:
    """Read an authority.

    Raises:
        InvalidTls: it is none, or cannot be read.
    """
    if path is None:
        return ""
    try:
        text = read_bounded(path, AUTHORITY_BYTES).decode("ascii", "replace")  # comments may be in any language
    except (OSError, ValueError) as error:
        raise InvalidTls(f"authority {path} cannot be used: {getattr(error, 'strerror', None) or error}") from error
    client_tls(authority=path)
    return text


def _token(path: Path | None) -> Secret | None:
    return None if path is None else read_token_file(path)


async def _connect(
    wish: WantedController, kubeconfig: Path | None, context: str | None, program: Sequence[str], form: str
) -> int:
    """Open the way; have the program run, or stay. Give the exit code."""
    code = INTERRUPTED
    with anyio.open_signal_receiver(*stopping_signals()) as signals:
        async with anyio.create_task_group() as tasks:
            signalled = _Signalled(tasks.cancel_scope)
            tasks.start_soon(signalled.follow, signals)
            async with _opened(wish, kubeconfig, context) as (way, token):
                if program:
                    code = await signalled.run(program, way.environment(os.environ))
                else:
                    code = DONE
                    with _known(way, token):
                        show_one(way, form, way.exports)
                        _say("Ctrl-C ends it; `iriscw jobs` in another terminal finds it")
                        await anyio.sleep_forever()
            tasks.cancel_scope.cancel()
    return code


@contextlib.asynccontextmanager
async def _opened(
    wish: WantedController, kubeconfig: Path | None, context: str | None
) -> AsyncIterator[tuple[ClientWay, Secret]]:
    """Open the way, and see that it leads there."""
    from iriscw.cloud.drivers.kube.access import find_access
    from iriscw.cloud.drivers.local.throwaway import ThrowawayFolder, remove_abandoned
    from iriscw.deploy.reaching import open_gate

    access = await find_access(kubeconfig, context)
    _say(f"the cluster at {access.server}")
    async with open_gate(access, wish) as gate:
        await _check(gate)
        named = os.environ.get("XDG_RUNTIME_DIR")
        parent = Path(named) if named else None
        for each in await remove_abandoned(parent=parent):
            _say(f"removed {visible(str(each.folder))}, which process {each.owner.pid} had left")
        folder = await anyio.to_thread.run_sync(ThrowawayFolder.make, parent)
        try:
            yield _written(gate, folder.path), gate.token
        finally:
            folder.remove()


async def _check(gate: ControllerGate) -> None:
    """Ask the controller something, so that whoever is told of the way can rely on it.

    Raises:
        TunnelLost: the way does not lead there.
        OperationError: the controller is not the one of the certificate, or does not answer.
    """
    from iriscw.kubernetes import client_of
    from iriscw.rpc.errors import RpcUnavailable

    try:
        async with client_of(gate) as client:
            with anyio.fail_after(CHECK_S):
                status = await client.status()
    except (RpcUnavailable, TimeoutError) as error:
        why = gate.tunnel.last_error if gate.tunnel is not None else None
        raise TunnelLost(f"there is no way to {gate.place}: {why or str(error) or 'no answer'}") from error
    _say(f"connected to {status.name or gate.place}: {gate.place}")


def _written(gate: ControllerGate, folder: Path) -> ClientWay:
    token, authority = folder / "token", folder / "ca.crt"
    write_token_file(token, gate.token)
    if gate.authority:
        write_atomic(authority, gate.authority.encode())
    ca_file = str(authority) if gate.authority else ""
    return ClientWay(gate.place.namespace, gate.place.service, gate.address, gate.server_name, ca_file, str(token))


@contextlib.contextmanager
def _known(way: ClientWay, token: Secret) -> Iterator[None]:
    """Let the other commands find it, unless they have a cluster already."""
    path = context_path()
    left = read_context(path)
    if left is not None and left.is_alive:
        _say(f"note: other commands go on to use {left.address} (process {left.owner.pid}); here they do after:")
        yield
        return
    authority = Path(way.ca_file) if way.ca_file else None
    written = write_context(path, way.address, token, server_name=way.server_name, authority=authority)
    try:
        yield
    finally:
        remove_context(path, written)


class _Signalled:
    """What a signal does: it ends the connecting or the staying, or goes to the program.

    Args:
        scope: What is ended while no program runs.
    """

    def __init__(self, scope: anyio.CancelScope) -> None:
        self._scope = scope
        self._process: anyio.abc.Process | None = None

    async def follow(self, signals: AsyncIterator[signal.Signals]) -> None:
        """Do so, for each that comes."""
        async for number in signals:
            if self._process is None:
                self._scope.cancel()
            elif number is not signal.SIGINT or not _in_foreground():  # a terminal tells the program as well
                with contextlib.suppress(ProcessLookupError):
                    self._process.send_signal(number)

    async def run(self, program: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run a program to its end with our own standard streams, and give its exit code as a shell does.

        Raises:
            NoSuchProgram: it cannot be started.
        """
        streams: dict[str, Any] = {"stdin": None, "stdout": None, "stderr": None}
        try:
            process = await anyio.open_process(list(program), env=environment, **streams)
        except OSError as error:
            raise NoSuchProgram(f"{program[0]} cannot be started: {error.strerror or error}") from error
        self._process = process
        try:
            code = await process.wait()
        except BaseException:
            process.kill()
            with anyio.CancelScope(shield=True):  # bounded: it was killed
                await process.wait()
            raise
        finally:
            self._process = None
        return code if code >= 0 else SIGNALLED - code


def _in_foreground() -> bool:
    """Tell whether a terminal's Ctrl-C goes to our process group, and so to the program as well."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal was closed
        sys.stderr.write(f"{visible(text)}\n")
        sys.stderr.flush()
