"""What a run of CRIU leaves in its folder for the life after ours: who ran, and which tasks it made.

Written before CRIU was asked, and again when all tasks of a restore exist and none has run. So after any crash of ours
either the record names every task that can have run, or CRIU was never let go on and undoes what it made by itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import attrs

from iriscw.files import decode_json, read_bounded, write_atomic
from iriscw.freeze.drivers.identities import to_task
from iriscw.freeze.model import TaskIdentity
from iriscw.processes.identity import decode_identity

NAME: Final = "criu-run.json"
MAX_BYTES: Final = 1 << 20


@attrs.frozen
class CriuRun:
    """One run: the CRIU, and the tasks of a restore; or, of a dump, the first task of its tree."""

    criu: TaskIdentity
    restore: bool
    tasks: tuple[TaskIdentity, ...] = ()
    first: TaskIdentity | None = None
    """Of a restore into a PID namespace that was made for it: the first process of that."""
    images: str = ""
    """Of a dump: the folder that it writes to."""
    silenced: bool = False
    """Of a dump: whether it silences the peers of connections."""


def write_run(work: Path, run: CriuRun) -> None:
    """Write the record, as a whole.

    Raises:
        OSError: it cannot be written.
    """
    content = {
        "criu": attrs.asdict(run.criu),
        "restore": run.restore,
        "tasks": [attrs.asdict(task) for task in run.tasks],
        "images": run.images,
        "silenced": run.silenced,
        "first": None if run.first is None else attrs.asdict(run.first),
    }
    # It is for the crash of a process, not of the machine: after a boot nothing that it names lives.
    write_atomic(work / NAME, json.dumps(content).encode(), durable=False)


def read_run(work: Path) -> CriuRun | None:
    """Read the record; None if there is none, or none that says who ran."""
    try:
        match decode_json(read_bounded(work / NAME, MAX_BYTES)):
            case {"criu": dict(criu), "restore": bool(restore), "tasks": list(tasks), **rest}:
                first = rest.get("first")
                return CriuRun(
                    to_task(decode_identity(criu)),
                    restore,
                    tuple(to_task(decode_identity(each)) for each in tasks),
                    None if first is None else to_task(decode_identity(first)),
                    str(rest.get("images", "")),
                    rest.get("silenced", bool(tasks) and not restore) is True,  # an older one names a tree only then
                )
    except (OSError, ValueError):
        return None
    return None


def forget_run(work: Path) -> None:
    """Remove the record of a run of which nothing is left.

    Raises:
        OSError: it cannot be removed.
    """
    (work / NAME).unlink(missing_ok=True)
