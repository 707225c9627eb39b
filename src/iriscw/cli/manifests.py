"""``manifests`` and ``down``: an installation on Kubernetes, written, made, compared and taken away.

What it consists of is :mod:`iriscw.deploy`'s; here it is asked for, and told. What became of each object is a result,
and stands on standard output; what is being waited for stands on standard error.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from iriscw._errors import UsageError
from iriscw.cli.kinds import Duration
from iriscw.cli.local_end import end_local
from iriscw.cli.outcome import UNWELL, run_async
from iriscw.cli.output import emit, visible
from iriscw.client.discovery import context_path

if TYPE_CHECKING:
    from iriscw.cloud.drivers.kube.objects import Objects
    from iriscw.deploy.installation import Installation
    from iriscw.deploy.removing import Removal
    from iriscw.deploy.rendering import RenderedObject

Value = TypeVar("Value")
Function = TypeVar("Function", bound=Callable[..., Any])

END_S: Final = 180.0
"""Seconds for the controller's pod to end: its own grace is 60."""

CONFIG: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER: Final = click.Path(file_okay=False, path_type=Path)


class NotConfirmed(UsageError):
    """It was asked whether to delete, and the answer was not yes."""


def cluster_options(function: Function) -> Function:
    """Add ``--kubeconfig`` and ``--context`` to a command."""
    function = click.option("--context", help="Which context of the kubeconfig; default: its current one.")(function)
    return click.option(
        "--kubeconfig",
        type=CONFIG,
        help="The way to the cluster; default: what the configuration says, else $KUBECONFIG, else the pod's own.",
    )(function)


@click.command()
@click.argument("config", type=CONFIG)
@click.option("--apply", "action", flag_value="apply", help="Make it so in the cluster, and wait for the controller.")
@click.option("--diff", "action", flag_value="diff", help="Show what --apply would change; exit code 1 if anything.")
@click.option("--secrets-to", type=FOLDER, help="Make the tokens and certificates that are missing in this folder.")
@click.option("--secrets-from", type=FOLDER, help="With --apply: send what --secrets-to made.")
@click.option("--force-conflicts", is_flag=True, help="With --apply: take fields over that others own.")
@click.option(
    "--wait",
    type=Duration(),
    help="How long --apply waits for the controller; 0s: not at all. Default: the boot timeout and 10 minutes.",
)
@cluster_options
@click.pass_context
def manifests(
    ctx: click.Context,
    *,
    config: Path,
    action: str | None,
    secrets_to: Path | None,
    secrets_from: Path | None,
    force_conflicts: bool,
    wait: float | None,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Write what a cluster on CoreWeave consists of, as YAML for `kubectl apply -f -`.

    CONFIG is the cluster's configuration. The same file gives the same text. Secrets are referred to and never
    written; the text's head says which there are.
    """
    from iriscw.deploy.controller import rollout_s
    from iriscw.deploy.rendering import render
    from iriscw.deploy.writing import stream

    if action != "apply" and (secrets_from is not None or force_conflicts):
        raise click.UsageError("--secrets-from and --force-conflicts go with --apply", ctx)
    if action is not None and secrets_to is not None:
        raise click.UsageError("--secrets-to stands alone: look at what it made, then apply", ctx)
    installation, found = _installation(config)
    rendered = render(installation)
    if secrets_to is not None:
        _make_secrets(installation, secrets_to)
    elif action is None:
        _warn(installation)
        emit(stream(installation, rendered))
    elif action == "diff":
        differences = _in_cluster(kubeconfig or found, context, _compare, rendered)
        emit("".join(differences))
        if differences:
            ctx.exit(UNWELL)
    else:
        _warn(installation)
        applied = _with_secrets(installation, rendered, secrets_from)
        wait_s = rollout_s(installation) if wait is None else wait
        _in_cluster(kubeconfig or found, context, _apply, installation, applied, force_conflicts, wait_s)


@click.command()
@click.argument("config", type=CONFIG, required=False)
@click.option(
    "--keep-pools", "pools", flag_value="keep", help="Leave all node pools (they cost money) and the namespace."
)
@click.option("--delete-pools", "pools", flag_value="delete", help="Delete them; they take half an hour to come back.")
@click.option("--keep-state", is_flag=True, help="Leave the namespace with the controller's volume and the Secrets.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_options
@click.pass_context
def down(
    ctx: click.Context,
    *,
    config: Path | None,
    pools: str | None,
    keep_state: bool,
    yes: bool,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """End the cluster that `iriscw up` keeps here; with CONFIG, take a deployed one away, the controller first.

    Without CONFIG it is no error if no cluster is up.

    What is taken away is what `iriscw manifests --apply` made. Either --keep-pools or --delete-pools has to be said.
    Pools that are kept are taken up by the next controller in the namespace, so that stays, too. Without --keep-state
    the controller's volume goes, and every job that it knows of.
    """
    from iriscw.deploy.removing import Removal
    from iriscw.deploy.rendering import render

    if config is None:
        _refuse_without_config(ctx)
        end_local(context_path())
        return
    if pools is None:
        raise click.UsageError("say --keep-pools or --delete-pools: nodes cost money, and are slow to come back", ctx)
    installation, found = _installation(config)
    rendered, removal = render(installation), Removal(pools=pools == "delete", state=not keep_state)
    if not yes:
        listed = _in_cluster(kubeconfig or found, context, _going, installation, rendered, removal)
        _ask(listed, removal)
    _in_cluster(kubeconfig or found, context, _remove, installation, rendered, removal)


def _refuse_without_config(ctx: click.Context) -> None:
    given = [name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if given:
        names = ", ".join("--keep-pools or --delete-pools" if each == "pools" else f"--{each}" for each in given)
        raise click.UsageError(f"{names.replace('_', '-')}: name the CONFIG of the cluster to take away", ctx)


def _installation(config: Path) -> tuple[Installation, Path | None]:
    """Read a configuration; give the installation, and the kubeconfig that the file names."""
    from iriscw.config.load import load_config
    from iriscw.deploy.installation import installation_of

    loaded = load_config(config)
    platform = loaded.platform.coreweave
    named = platform.kubeconfig_path if platform is not None else ""
    return installation_of(loaded), Path(named).expanduser() if named else None


def _warn(installation: Installation) -> None:
    if not installation.controller.instance_type:
        _say(
            "note: controller.coreweave.instance_type is empty, so no node pool is made for the controller: it goes to "
            "any node that takes it"
        )


def _make_secrets(installation: Installation, folder: Path) -> None:
    from iriscw.cli.secret_files import make_missing

    made = make_missing(folder, installation.cluster, installation.host_names)
    _say(f"made {', '.join(made)}" if made else "nothing was missing")
    _say(f"keep {folder} to yourself; `--apply --secrets-from {folder}` sends all of it but ca.key")


def _with_secrets(
    installation: Installation, rendered: Sequence[RenderedObject], folder: Path | None
) -> tuple[RenderedObject, ...]:
    """Put the Secrets behind the namespace that they live in."""
    if folder is None:
        return tuple(rendered)
    from iriscw.cli.secret_files import read_files
    from iriscw.deploy.secrets import secret_manifests

    first, *rest = rendered
    return (first, *secret_manifests(installation, read_files(folder)), *rest)


def _in_cluster(
    kubeconfig: Path | None, context: str | None, function: Callable[..., Coroutine[Any, Any, Value]], *arguments: Any
) -> Value:
    """Run ``function(objects, *arguments)`` with the objects of a cluster."""

    async def connected() -> Value:
        from iriscw.cloud.drivers.kube.access import find_access
        from iriscw.cloud.drivers.kube.objects import open_objects

        access = await find_access(kubeconfig, context)
        _say(f"the cluster at {access.server}")
        async with open_objects(access) as objects:
            return await function(objects, *arguments)

    return run_async(connected)


async def _compare(objects: Objects, rendered: Sequence[RenderedObject]) -> tuple[str, ...]:
    from iriscw.deploy.applying import compare

    return tuple(each.text for each in await compare(objects, rendered))


async def _apply(
    objects: Objects, installation: Installation, applied: Sequence[RenderedObject], force: bool, wait_s: float
) -> None:
    from iriscw.deploy.applying import apply
    from iriscw.deploy.awaiting import await_available, missing_secrets

    await apply(objects, applied, _result, force=force)
    for line in await missing_secrets(objects, installation):
        _say(f"note: {line}")
    if wait_s:
        await await_available(objects, installation, wait_s, _say)
        _result(f"the controller serves at {installation.host}:{installation.controller.port}")


async def _going(
    objects: Objects, installation: Installation, rendered: Sequence[RenderedObject], removal: Removal
) -> tuple[str, ...]:
    from iriscw.deploy.removing import going, slice_pools

    slices = await slice_pools(objects, installation) if removal.pools else ()
    names = [each.name for each in going(rendered, removal)]
    return (*names, *(f"NodePool/{each['metadata']['name']}, a slice with whatever runs on it" for each in slices))


def _ask(names: Sequence[str], removal: Removal) -> None:
    """Say what goes, and go on only if that is confirmed."""
    _say("this deletes:\n" + "\n".join(f"  {name}" for name in names))
    if removal.state:
        _say("the controller's journal is on its volume: every job that it knows of goes, too")
    if removal.state and removal.pools:
        _say("the namespace goes with all that is in it, the Secrets included")
    if not _confirmed():
        raise NotConfirmed("nothing was deleted")


async def _remove(
    objects: Objects, installation: Installation, rendered: Sequence[RenderedObject], removal: Removal
) -> None:
    from iriscw.deploy.removing import remove

    await remove(objects, installation, rendered, removal, _result, timeout_s=END_S)


def _confirmed() -> bool:
    try:
        return click.confirm("Go on?", default=False, err=True)
    except click.Abort:  # no answer can come: standard input is closed, or no terminal
        return False


def _result(text: str) -> None:
    emit(f"{visible(text)}\n")


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal was closed: what goes on does not depend on being told
        sys.stderr.write(f"{visible(text)}\n")
        sys.stderr.flush()
