"""``doctor``: what this machine has that iriscw could use, and what is wrong with a cluster.

The checks of a cluster are :mod:`iriscw.doctor`'s; here they are asked for, and told.
"""

from __future__ import annotations

import contextlib
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import attrs
import click

from iriscw._errors import IriscwError
from iriscw._version import __version__
from iriscw.cli.interrupts import as_interrupts
from iriscw.cli.manifests import CONFIG, cluster_options
from iriscw.cli.outcome import UNWELL, run_async
from iriscw.cli.output import cell, emit, format_option, show, size, table, terminal_columns, visible
from iriscw.client.discovery import context_path, read_context

if TYPE_CHECKING:
    from iriscw.doctor.findings import Finding as ClusterFinding


@attrs.frozen
class Finding:
    """One thing that was looked for."""

    what: str
    found: str
    good: bool = True


def examine() -> list[Finding]:
    """Look at everything; nothing here raises or changes anything."""
    version = sys.version_info[:2]
    found = [
        Finding("iriscw", __version__),
        Finding("python", platform.python_version(), good=(3, 11) <= version <= (3, 13)),
        Finding("system", f"{platform.system()} {platform.release()}", good=sys.platform == "linux"),
    ]
    programs = [_program(name) for name in ("nvidia-smi", "kubectl")]
    return [*found, *_machine(), _context(), *programs, *_freezing()]


def _freezing() -> list[Finding]:
    """Say what is there for freezing and thawing, and for what is not how to get it."""
    from iriscw.doctor.findings import Health
    from iriscw.doctor.freezing import look_at_freezing

    return [
        Finding(
            each.check,
            f"{each.found}; {each.advice}" if each.advice else each.found,
            good=each.verdict is not Health.WRONG,
        )
        for each in anyio.run(look_at_freezing)
    ]


def _machine() -> list[Finding]:
    from iriscw.worker.probe import probe

    try:
        has = probe(disk=Path.cwd(), controller_host="127.0.0.1").capacity
    except (IriscwError, OSError, ValueError) as error:
        return [Finding("machine", str(error), good=False)]
    return [
        Finding("cpu", f"{has.cpu_milli / 1000:g}"),
        Finding("memory", size(has.memory_bytes)),
        Finding("disk", size(has.disk_bytes)),
        Finding("gpus", f"{has.gpu_count} {has.gpu_class}".strip()),
    ]


def _context() -> Finding:
    path = context_path()
    try:
        left = read_context(path)
    except IriscwError as error:
        return Finding("cluster", str(error), good=False)
    if left is None:
        return Finding("cluster", f"none is up (no {path})")
    state = "up" if left.is_alive else "its process has ended"
    return Finding("cluster", f"{left.address}: {state}", good=left.is_alive)


def _program(name: str) -> Finding:
    return Finding(name, shutil.which(name) or "not installed")


@click.command()
@click.option(
    "--kube",
    "config",
    type=CONFIG,
    metavar="CONFIG",
    help="Examine the cluster on CoreWeave that this configuration describes, instead of this machine.",
)
@click.option(
    "--probe",
    is_flag=True,
    help="With --kube: make an empty node pool of each instance type, read its quota, and delete it again.",
)
@cluster_options
@format_option
@click.pass_context
def doctor(
    ctx: click.Context, *, config: Path | None, probe: bool, kubeconfig: Path | None, context: str | None, form: str
) -> None:
    """Say what this machine has that iriscw could use; with --kube, what is wrong with a cluster, and what to do.

    With --kube the exit code is 1 if something is wrong; warnings leave it at 0. Only --probe writes to the cluster;
    to each object store that is configured a small object is written, and deleted.
    """
    if config is not None:
        if not _examine_cluster(config, kubeconfig, context, probe, form):
            ctx.exit(UNWELL)
        return
    if probe or kubeconfig is not None or context is not None:
        raise click.UsageError("--probe, --kubeconfig and --context go with --kube CONFIG", ctx)
    show(
        examine(),
        form,
        {
            "WHAT": lambda each: each.what,
            "NOTE": lambda each: "" if each.good else "look here",
            "FOUND": lambda each: each.found,
        },
        whole=True,
    )


def _examine_cluster(config: Path, kubeconfig: Path | None, context: str | None, probe: bool, form: str) -> bool:
    """Examine a cluster and show what was found; give whether nothing is wrong."""
    from iriscw.config.load import load_config
    from iriscw.deploy.installation import installation_of
    from iriscw.doctor.examination import Examination
    from iriscw.doctor.findings import Health
    from iriscw.doctor.pools import how_deleted

    loaded = load_config(config)
    platform = loaded.platform.coreweave
    named = platform.kubeconfig_path if platform is not None else ""
    examination = Examination(
        installation_of(loaded),
        kubeconfig=kubeconfig,
        configured=Path(named).expanduser() if named else None,
        context=context,
        probe=probe,
    )
    findings: list[ClusterFinding] = []
    try:
        with as_interrupts():
            findings = run_async(examination.run)
    except BaseException:
        if examination.left:
            _say(f"empty node pools may be left: {how_deleted(list(examination.left))}")
        raise
    if form == "table":
        lines = [line for each in findings for line in _lines(each)]
        emit(table(["CHECK", "", "FOUND"], lines, terminal_columns(), whole=True))
    else:
        show(findings, form, {})
    return all(each.verdict is not Health.WRONG for each in findings)


def _lines(finding: ClusterFinding) -> Iterator[list[str]]:
    """Yield the rows of one finding. Nothing is cut: half a command is none."""
    yield [cell(finding.check), finding.verdict.value, cell(finding.found)]
    if finding.advice:
        yield ["", "", f"-> {cell(finding.advice)}"]


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal was closed
        sys.stderr.write(f"{visible(text)}\n")
        sys.stderr.flush()
