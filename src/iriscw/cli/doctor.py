"""``doctor``: what this machine has that iriscw could use."""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path

import attrs
import click

from iriscw._version import __version__
from iriscw.cli.output import cell, format_option, show, size
from iriscw.client.discovery import context_path, read_context
from iriscw.errors import IriscwError


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
    return [*found, *_machine(), _context(), *(_program(name) for name in ("criu", "nvidia-smi", "kubectl"))]


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
@format_option
def doctor(*, form: str) -> None:
    """Say what this machine has that iriscw could use."""
    show(
        examine(),
        form,
        {
            "WHAT": lambda each: each.what,
            "FOUND": lambda each: cell(each.found),
            "NOTE": lambda each: "" if each.good else "<- look here",
        },
    )
