"""What an attempt is given, checked before anything of it is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from iriscw._errors import InvalidArgument
from iriscw.processes.syscall_filter import FREEZABLE, hindrance
from iriscw.task.framing import FrameCorrupt, PythonMismatch, UnknownFormat, python_name, this_python
from iriscw.task.payload import read_summary
from iriscw.worker.ports import AttemptSpec, NotFreezable, PayloadRefused

PROGRAM_DEFAULTS: Final[Mapping[str, str]] = {"PYTHONUNBUFFERED": "1"}
"""Variables that a program has unless its job says otherwise. Output goes to files, into which Python writes blocks of
8 KiB: the log of a training run would show nothing for minutes, and lose the end of it with a process that is killed.
"""


def argv_of(spec: AttemptSpec, callable_argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return what is executed: the program, or what makes the call.

    Raises:
        InvalidArgument: not exactly one of program and callable is given, or a word cannot be.
        PayloadRefused: see :func:`check_payload`.
    """
    if bool(spec.argv) == bool(spec.payload):
        raise InvalidArgument("an attempt has either a program or a callable")
    if spec.argv:
        if any("\0" in word for word in spec.argv):
            raise InvalidArgument("a word of the command holds a NUL")
        return spec.argv
    check_payload(spec.payload)
    return callable_argv


def check_payload(payload: bytes) -> None:
    """Refuse a callable that could not be loaded here, without unpickling it.

    Raises:
        PayloadRefused: it is damaged, or was written by another Python.
    """
    try:
        summary = read_summary(payload)
    except (FrameCorrupt, UnknownFormat, PythonMismatch) as error:
        raise PayloadRefused(f"the callable cannot be loaded: {error}") from error
    ours = python_name(this_python())
    if summary.python != ours:
        raise PayloadRefused(f"the callable was pickled by Python {summary.python}; this worker has {ours}")


def check_environment(environment: Mapping[str, str]) -> None:
    """Refuse variables that no program can be given.

    Raises:
        InvalidArgument: a name is none, or a value holds a NUL.
    """
    for name, value in environment.items():
        if not name or "=" in name or "\0" in name + value:
            raise InvalidArgument(f"{name!r} is not a valid variable name, or its value holds a NUL")


def check_contained(spec: AttemptSpec) -> None:
    """Refuse packages of this machine for an attempt with an image of its own: their Python is not in that.

    Raises:
        InvalidArgument: it has some.
    """
    if spec.installed is not None:
        raise InvalidArgument("dependencies: a task with an image of its own has the packages of that")


def filter_of(spec: AttemptSpec) -> bytes:
    """Return the filter of system calls under which the program begins; empty if it begins under none.

    Raises:
        NotFreezable: it is to be freezable, and no filter is known for this machine.
    """
    if not spec.freezable:
        return b""
    if why := hindrance():
        raise NotFreezable(f"{spec.uid} was not started: {why}")
    return FREEZABLE
