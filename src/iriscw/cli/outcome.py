"""How a command ends: its exit code, and one line about what went wrong.

==== ============================================================================================
code meaning
==== ============================================================================================
0    done
1    a job or a check of ``demo``, ``bench``, ``sim`` or ``doctor`` did not end well; ``manifests --diff`` found some
2    the command or its arguments cannot be: change them
3    the world said no (no controller there, no room, a full disk): it may work later
4    a bug of iriscw, or an error that it does not know
130  interrupted (Ctrl-C)
==== ============================================================================================
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from iriscw.cli.output import visible
from iriscw.client.errors import JobFailed
from iriscw.errors import OperationError, UsageError

DONE: Final = 0
UNWELL: Final = 1
USAGE: Final = 2
REFUSED: Final = 3
BUG: Final = 4
INTERRUPTED: Final = 130

MEANINGS: Final = {
    DONE: "done",
    UNWELL: "a job or a check of `demo`, `bench`, `sim` or `doctor` did not end well; `manifests --diff` found some",
    USAGE: "the command or its arguments cannot be: change them",
    REFUSED: "the world said no (no controller there, no room, a full disk): it may work later",
    BUG: "a bug of iriscw, or an error that it does not know",
    INTERRUPTED: "interrupted (Ctrl-C)",
}

Value = TypeVar("Value")


class CheckFailed(OperationError):
    """A check of the command's own did not hold; the text says which."""


class NoSuchSelection(UsageError):
    """There is nothing of the kind that an option names: no such task, attempt or scale group."""


def exit_code(error: BaseException) -> int:
    """Give the exit code of a command that ended with ``error``."""
    match error:
        case JobFailed() | CheckFailed():
            return UNWELL
        case UsageError():
            return USAGE
        case OperationError():
            return REFUSED
        case KeyboardInterrupt():
            return INTERRUPTED
        case _:
            return BUG


def way_out(error: BaseException) -> str:
    """Give what the user can do about it; empty if the error says so itself."""
    known = _WAYS_OUT.get(type(error).__name__)
    if known is not None:
        return known
    return "please report it, with the output of --verbose" if exit_code(error) == BUG else ""


_WAYS_OUT: Final = {
    "RpcUnavailable": "is the controller running? `iriscw up` starts one here",
    "RpcDeadline": "it may still happen; look with `iriscw jobs`",
    "Unauthenticated": "give the cluster's token with --token-file",
    "NoSuchJob": "`iriscw jobs` lists those there are",
    "JobExists": "choose another --name, or say --existing keep or --existing recreate",
    "AddressInUse": "choose another --port, or 0 for any",
    "WorkdirLocked": "another controller uses this folder; stop it, or choose another --workdir",
    "JournalLocked": "another controller uses this journal; stop it first",
}


def alone(error: BaseException) -> BaseException:
    """Give the one error inside of groups that hold nothing else."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def report(error: BaseException, *, verbose: bool) -> int:
    """Say on standard error what went wrong, in one line; ``verbose`` adds the rest. Give the exit code."""
    error = alone(error)
    if verbose:
        traceback.print_exception(error)
    if isinstance(error, KeyboardInterrupt):
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    first, _, rest = visible(str(error)).partition("\n")
    kind = type(error).__name__
    line = f"iriscw: {first or kind}" if exit_code(error) in (UNWELL, USAGE) else f"iriscw: {kind}: {first}"
    hint = way_out(error)
    sys.stderr.write(f"{line}; {hint}\n" if hint else f"{line}\n")
    if rest and isinstance(error, JobFailed | UsageError):  # a task's traceback, a configuration's list of problems
        sys.stderr.write(f"{rest}\n")
    if not verbose and exit_code(error) == BUG:
        sys.stderr.write("(--verbose shows where)\n")
    return exit_code(error)


def silence_output() -> None:
    """Let nothing more be written to a pipe whose reader has gone, at exit either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run_async(function: Callable[..., Coroutine[Any, Any, Value]], *args: Any) -> Value:
    """Run ``function(*args)`` on an event loop of its own, and raise what it raises without groups around it."""
    import anyio

    try:
        return anyio.run(function, *args)
    except BaseExceptionGroup as group:
        raise alone(group) from None
