"""A program in a container of its own, seen from outside of it: through the files in its folder, and nothing else.

The supervisor is the container's first process (see :mod:`iriscw.processes.supervisor`). Its process numbers mean
nothing out here, no signal and no pipe gets there; what is shared is the folder, on a disk of the same machine, and the
kernel's clock. So everything is a file (see :mod:`iriscw.processes.status` for the others):

=====================  ===============================================================================================
``order.json``         what to run. The supervisor takes it by renaming it to ``order.json.taken``, we withdraw it by
                       renaming it to ``order.json.withdrawn``: whoever comes second finds none. So it is certain that
                       an order which was withdrawn is never carried out, however late a container starts, and however
                       often
``report.json``        that it runs, and with which GPUs, or at which step and why it does not
``stop``               the order to end it; there is one where it can be read
=====================  ===============================================================================================

All functions block.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import attrs

from iriscw.files import decode_json, make_private_folder, read_bounded, write_atomic
from iriscw.processes.ends import ProcessEnd
from iriscw.processes.status import (
    MAX_STATUS_BYTES,
    NEVER_READ,
    STOP_LINE_BYTES,
    StatusDamaged,
    read_end,
    read_identity,
)
from iriscw.processes.supervised import NotStarted, Program, not_started, order_of

ORDER = "order.json"
TAKEN = f"{ORDER}.taken"
WITHDRAWN = f"{ORDER}.withdrawn"
REPORT = "report.json"

MAX_GPUS = 64
"""Of one container, parts of GPUs included: no machine has so many."""

_GPU = re.compile(r"(GPU|MIG)-[0-9a-zA-Z/-]{1,72}")

SUPERVISOR = "supervisor.py"
"""The name of the copy that containers are shown."""


MAX_HOST_CHARS = 255
"""Of a host's name, as DNS has it."""


@attrs.frozen
class StartReport:
    """What a supervisor says of the start: it runs, or ``failure`` says why not.

    ``gpus``: those that its container was given, by UUID, as far as whoever made the container said so.
    """

    failure: NotStarted | None = None
    gpus: tuple[str, ...] = ()
    host: str = ""
    """The address that others reach it at, as its container was told; empty: it was not, or says something else."""


def provide_supervisor(folder: Path) -> Path:
    """Put a copy of the supervisor into a folder that containers are shown: theirs is then of our version.

    Raises:
        OSError: as the file system says it.
    """
    make_private_folder(folder)
    path = folder / SUPERVISOR
    write_atomic(path, Path(__file__).with_name("supervisor.py").read_bytes(), durable=False)
    return path


def command(interpreter: str, supervisor: Path, folder: Path) -> tuple[str, ...]:
    """Return what a container runs."""
    return interpreter, "-I", "-S", str(supervisor), str(folder / ORDER)


def write_order(program: Program) -> None:
    """Write down what is to run; from here on a container may take it.

    Raises:
        OSError: as the file system says it.
    """
    write_atomic(program.folder / ORDER, order_of(program), durable=False)


def withdraw(folder: Path) -> bool:
    """Have the order never be carried out; give False where it was taken already, and True ever after otherwise.

    Raises:
        OSError: the disk does not say.
    """
    try:
        os.rename(folder / ORDER, folder / WITHDRAWN)  # noqa: PTH104 - raises what is documented
    except FileNotFoundError:
        return not os.path.lexists(folder / TAKEN)
    return True


def read_report(folder: Path, name: str, workdir: Path) -> StartReport | None:
    """Read what the supervisor says of the start; None while it has said nothing.

    Args:
        folder: of the program.
        name: of the program, for the error.
        workdir: where it should run.

    Raises:
        StatusDamaged: it is no report.
        OSError: it cannot be read just now.
    """
    try:
        content = decode_json(read_bounded(folder / REPORT, MAX_STATUS_BYTES))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise StatusDamaged(f"{folder / REPORT}: {error}") from error
    except OSError as error:
        if error.errno in NEVER_READ:
            raise StatusDamaged(f"{folder / REPORT}: {error}") from error
        raise
    match content:
        case {"failure": {"step": str(), "errno": int(), "text": str()} as failure}:
            return StartReport(not_started(name, workdir, failure))
        case {"identity": {}, "gpus": str() as gpus, "host": str() as host}:
            return StartReport(gpus=named_gpus(gpus), host=host[:MAX_HOST_CHARS])
        case {"identity": {}}:  # of an earlier version
            return StartReport()
    raise StatusDamaged(f"{folder / REPORT} holds something else")


def named_gpus(text: str) -> tuple[str, ...]:
    """Return the UUIDs in ``NVIDIA_VISIBLE_DEVICES``; what says no UUIDs (``all``, ``void``, numbers) says nothing."""
    words = [word.strip() for word in text.split(",")]
    known = len(words) <= MAX_GPUS and all(_GPU.fullmatch(word) for word in words)
    return tuple(dict.fromkeys(words)) if known else ()


def is_ordered_to_stop(folder: Path) -> bool:
    """Whether somebody has ordered its end, us or an earlier process of ours."""
    try:
        descriptor = os.open(folder / "stop", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False  # it did not begin, or has spoilt the file: then nobody can say
    try:
        return bool(os.read(descriptor, STOP_LINE_BYTES).strip(b"\0 "))
    except OSError:
        return False  # a folder, or a pipe: spoilt as well
    finally:
        os.close(descriptor)


@attrs.frozen
class FoundStart:
    """What the folder says: how far it came. ``began``: something of the program may have been executed."""

    report: StartReport | None = None
    began: bool = False
    ending: ProcessEnd | None = None
    stopping: bool = False


def look(folder: Path, argv: tuple[str, ...], workdir: Path) -> FoundStart:
    """Read all there is. What a program made of its files is taken for what it can be: it costs only the program.

    Raises:
        OSError: it cannot be read just now.
    """
    try:
        report = read_report(folder, argv[0] if argv else "", workdir)
    except StatusDamaged:
        report = StartReport()  # something that ran wrote it
    try:
        began = read_identity(folder) is not None
    except StatusDamaged:
        began = True
    try:
        ending = read_end(folder)
    except StatusDamaged:
        ending = None
    return FoundStart(report, began, ending, is_ordered_to_stop(folder))
