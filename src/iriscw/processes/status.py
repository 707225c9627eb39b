"""What the supervisor of a program leaves in the program's folder, and what is left there for it.

=================  ===================================================================================================
``identity.json``  who runs: written before the program is executed. Where there is none, nothing of it ever was
``exit.json``      how it ended; its room on the disk is taken before the program is executed
``thawed.json``    who runs after a thaw: written by who thaws them, who alone sees the machine's clock
``stop``           how long the program gets when the supervisor is told to end it: in place, in room taken likewise
=================  ===================================================================================================

The program may run as the same user, and do with these files what it likes. That costs it its own end, which is then
unknown (:class:`StatusDamaged`), and must cost nobody else anything.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from pathlib import Path

from iriscw._errors import OperationError
from iriscw.files import decode_json, read_bounded, write_atomic
from iriscw.processes.ends import ProcessEnd
from iriscw.processes.identity import ProcessIdentity, decode_identity

MAX_STATUS_BYTES = 64 << 10
"""The status files hold a few hundred bytes."""

STOP_LINE_BYTES = 64
"""A grace twice: a reader may see half of a write. ``supervisor.py`` has the same number."""

NEVER_READ = (errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EACCES, errno.EIO)
"""Something that is not a file of ours stands there, or the disk has lost it: waiting changes nothing."""


class StatusDamaged(OperationError):
    """A status file of a program is not what its supervisor wrote."""


def read_identity(folder: Path) -> tuple[ProcessIdentity, ProcessIdentity] | None:
    """Return the supervisor and the program of ``folder``; None if nothing of the program was executed.

    Raises:
        StatusDamaged: it cannot be told who they are.
        OSError: it cannot be read just now.
    """
    content = _read(folder / "identity.json")
    if content is None:
        return None
    try:
        return decode_identities(content)
    except ValueError as error:
        raise StatusDamaged(f"{folder}/identity.json: {error}") from error


def decode_identities(content: object) -> tuple[ProcessIdentity, ProcessIdentity]:
    """Return the supervisor and the program that ``identity.json`` names, and the supervisor's report.

    Raises:
        ValueError: it is something else.
    """
    match content:
        case {"boot_id": boot, "supervisor": {**supervisor}, "target": {**target}}:
            return decode_identity({**supervisor, "boot_id": boot}), decode_identity({**target, "boot_id": boot})
    raise ValueError("it names no supervisor and no program")


def read_end(folder: Path) -> ProcessEnd | None:
    """Read how the program of ``folder`` ended; None while it runs, or when nobody saw the end.

    Raises:
        StatusDamaged: what stands there is no end.
        OSError: it cannot be read just now.
    """
    content = _read(folder / "exit.json")
    match content:
        case None:
            return None
        case {
            "code": int() | None as code,
            "signal": int() | None as signal,
            "stopped": bool(stopped),
            "killed": bool(killed),
            "lease_over": bool(lease_over),
            "out_of_memory": bool(out_of_memory),
            "max_rss_bytes": int(max_rss_bytes),
        } if (code is None) is not (signal is None):
            # A supervisor may be older than that word.
            perhaps = isinstance(content, dict) and content.get("perhaps_out_of_memory") is True
            return ProcessEnd(code, signal, stopped, killed, lease_over, out_of_memory, max_rss_bytes, perhaps)
    raise StatusDamaged(f"{folder}/exit.json holds something else")


def write_stop(folder: Path, grace_s: float) -> None:
    """Say how long the program gets, before its supervisor is told to end it.

    Raises:
        OSError: the file that the supervisor made is gone, or is none any more.
    """
    descriptor = os.open(folder / "stop", os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        os.pwrite(descriptor, f"{grace_s:.3f} {grace_s:.3f}".encode().ljust(STOP_LINE_BYTES), 0)
    finally:
        os.close(descriptor)


def write_thawed(folder: Path, tasks: Sequence[ProcessIdentity], numbers: Sequence[int]) -> None:
    """Tell a supervisor that was brought back from its images who it is now, and who came back with it.

    Args:
        folder: of its program.
        tasks: who came back, as they are named here.
        numbers: for each the number by which the supervisor knows it, in what may be a PID namespace of its own.

    Nothing of it is secret, and the supervisor may be another user's than who thaws it.

    Raises:
        OSError: as the file system says it.
    """
    named = [[task.pid, task.start_ticks] for task in tasks]
    content = {"boot_id": tasks[0].boot_id, "tasks": named, "numbers": list(numbers)}
    write_atomic(folder / "thawed.json", json.dumps(content).encode(), mode=0o644, durable=False)


def _read(path: Path) -> object:
    """Read a status file; None if there is none."""
    try:
        return decode_json(read_bounded(path, MAX_STATUS_BYTES))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise StatusDamaged(f"{path}: {error}") from error
    except OSError as error:
        if error.errno in NEVER_READ:
            raise StatusDamaged(f"{path}: {error}") from error
        raise
