"""How a command ends: its exit code, and one line about what went wrong.

==== ============================================================================================
code meaning
==== ============================================================================================
0    done
1    a job or a check (``demo``, ``bench``, ``sim``, ``doctor``) failed, or ``manifests --diff`` found differences
2    the command or its arguments are wrong, or nothing says where a controller is: change that
3    the world said no (a controller does not answer, no room, a full disk): it may work later
4    a bug of iriscw, or an error that it does not know
130  interrupted (Ctrl-C, SIGTERM, a closed terminal); what became of a freeze or a thaw by then is said all the same
==== ============================================================================================
"""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from collections.abc import Callable, Coroutine, Mapping
from contextlib import nullcontext
from typing import Any, Final, TypeVar

from iriscw._errors import OperationError, UsageError
from iriscw.cli.output import visible

DONE: Final = 0
UNWELL: Final = 1
USAGE: Final = 2
REFUSED: Final = 3
BUG: Final = 4
INTERRUPTED: Final = 130

MEANINGS: Final = {
    DONE: "done",
    UNWELL: "a job or a check (`demo`, `bench`, `sim`, `doctor`) failed, or `manifests --diff` found differences",
    USAGE: "the command or its arguments are wrong, or nothing says where a controller is: change that",
    REFUSED: "the world said no (a controller does not answer, no room, a full disk): it may work later",
    BUG: "a bug of iriscw, or an error that it does not know",
    INTERRUPTED: "interrupted (Ctrl-C, SIGTERM, a closed terminal)",
}

Value = TypeVar("Value")


class CheckFailed(OperationError):
    """A check of the command's own did not hold; the text says which."""


class NoSuchSelection(UsageError):
    """There is nothing of the kind that an option names: no such task, attempt or scale group."""


_OF_PROGRAMS: Final = frozenset(
    {errno.EBADF, errno.EFAULT, errno.EINVAL, errno.ENOTSOCK, errno.ENOTTY, errno.EDESTADDRREQ, errno.ENOSYS}
)
"""What the operating system answers a program that asks the wrong way: no file, disk or network is the cause of it."""


def is_of_the_machine(error: BaseException) -> bool:
    """Whether the operating system refused something: a path, a full disk, a network. Nobody's bug, then.

    An ``OSError`` without a number is a library's own, which says nothing of the machine; nor do OpenSSL's numbers.
    """
    if any(each.__name__ == "SSLError" for each in type(error).__mro__):
        return False
    return isinstance(error, OSError) and error.errno is not None and error.errno not in _OF_PROGRAMS


def exit_code(error: BaseException) -> int:
    """Return the exit code of a command that ended with ``error``."""
    from iriscw.client.errors import JobFailed

    match error:
        case JobFailed() | CheckFailed():
            return UNWELL
        case UsageError():
            return USAGE
        case OperationError():
            return REFUSED
        case KeyboardInterrupt():
            return INTERRUPTED
        case _ if is_of_the_machine(error):
            return REFUSED
        case _:
            return BUG


def way_out(error: BaseException) -> str:
    """Return what the user can do about it; empty if the error says so itself."""
    known = _WAYS_OUT.get(type(error).__name__)
    if known is not None:
        return known
    if isinstance(error, OSError) and is_of_the_machine(error):
        return _WAYS_OUT_OF_THE_MACHINE.get(error.errno or 0, "--verbose shows what asked for it")
    return "please report it, with the output of --verbose" if exit_code(error) == BUG else ""


_OTHER_PLACE: Final = "choose a place that this user may use"
_ROOM: Final = "make room there, or choose another place"
_NO_SUCH: Final = "is the path right?"

_WAYS_OUT_OF_THE_MACHINE: Final = {
    errno.ENOENT: _NO_SUCH,
    errno.ENOTDIR: _NO_SUCH,
    errno.EISDIR: "name a file in it",
    errno.ENAMETOOLONG: _NO_SUCH,
    errno.ELOOP: _NO_SUCH,
    errno.EACCES: _OTHER_PLACE,
    errno.EPERM: _OTHER_PLACE,
    errno.EROFS: _OTHER_PLACE,
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EMFILE: "raise the limit of open files (`ulimit -n`)",
    errno.ENFILE: "the machine has too many open files; end something",
    errno.ENOMEM: "the machine has too little memory; end something",
}

_WAYS_OUT: Final = {
    "RpcUnavailable": "is the controller running? `iriscw up` starts one here; one that had a --workdir needs the same",
    "RpcDeadline": "it may still happen; look with `iriscw jobs`",
    "Unauthenticated": "give the cluster's token with --token-file",
    "NoSuchJob": "`iriscw jobs` lists those there are",
    "ArtifactUnknown": "`iriscw checkpoints` lists those there are",
    "JobExists": "choose another --name, or say --existing keep or --existing recreate",
    "ParentOver": "say --detached, if it is to outlive the job of the task that submits it",
    "AddressInUse": "choose another --port (0: any free one) or --socket",
    "AddressUnavailable": "choose another --host, --port or --socket",
    "StateUnusable": "name a folder that this user can write to: --state-dir, or --workdir of `iriscw up`",
    "NoAccess": "say --kubeconfig FILE, or set KUBECONFIG",
    "NoStoreCredentials": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; for gs:// "
    "GOOGLE_APPLICATION_CREDENTIALS",
    "UnsafeSocketFolder": "`chmod 700` it, or name a socket in a folder of its own: --socket",
    "WorkdirLocked": "stop it (`iriscw down` ends an `iriscw up`), or choose another --workdir",
    "JournalLocked": "another controller uses this journal; stop it first (`iriscw down` ends an `iriscw up`)",
}


def alone(error: BaseException) -> BaseException:
    """Return the one error inside of groups that hold nothing else."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def interrupted() -> int:
    """Say that somebody ended the command; give the exit code.

    A second Ctrl-C may cut off what the first one was ending. Python tells of each coroutine that it takes apart then,
    with a traceback; to whoever wanted an end that is no news.
    """
    sys.stderr.write("interrupted\n")
    if sys.unraisablehook is sys.__unraisablehook__:  # else somebody else listens
        sys.unraisablehook = lambda _: None
    return INTERRUPTED


def spelled(text: str, options: Mapping[str, str]) -> str:
    """Write an error about an argument with the options of the command: what calls it has other names for them.

    Args:
        text: what the error says: of an argument first its name, then a colon.
        options: how each parameter of the command is spelled, by its name.
    """
    first, colon, _ = text.partition(":")
    if not colon or first not in options:
        return text
    for name, option in options.items():
        text = re.sub(rf"\b{name}=, (?={option}\b)", "", text)
        if name == first or "_" in name:
            text = re.sub(rf"(?<![\w.-]){name}(?![\w=])", option, text)
    return text


def report(error: BaseException, *, verbose: bool, options: Mapping[str, str] | None = None) -> int:
    """Say on standard error what went wrong, in one line; ``verbose`` adds the rest. Give the exit code.

    ``options`` are those of the command, as :func:`spelled` takes them.
    """
    from iriscw.client.errors import JobFailed

    error = alone(error)
    if verbose:
        traceback.print_exception(error)
    if isinstance(error, KeyboardInterrupt):
        return interrupted()
    _, _, rest = visible(_text_of(error)).partition("\n")
    said = headline(error)
    line = f"iriscw: {spelled(said, options or {}) if isinstance(error, UsageError) else said}"
    hint = way_out(error)
    sys.stderr.write(f"{line}; {hint}\n" if hint else f"{line}\n")
    if rest and isinstance(error, JobFailed | UsageError):  # a task's traceback, a configuration's list of problems
        sys.stderr.write(f"{rest}\n")
    if not verbose and exit_code(error) == BUG:
        sys.stderr.write("(--verbose shows where)\n")
    return exit_code(error)


_SENTENCES: Final = ("FreezeUndone", "ThawFailed", "TreeLost")
"""Errors that begin with what their name says; the name of their cause stands behind that, and one name is enough."""


def headline(error: BaseException) -> str:
    """Return the first line of an error, with its name before it where that tells more than the text."""
    first, _, _ = visible(_text_of(error)).partition("\n")
    kind = type(error).__name__
    plain = exit_code(error) in (UNWELL, USAGE) or is_of_the_machine(error) or kind in _SENTENCES
    return (first or kind) if plain else f"{kind}: {first}"


def _text_of(error: BaseException) -> str:
    """Return what an error says; of the operating system's the path before its words, and no number."""
    if isinstance(error, OSError) and is_of_the_machine(error):
        said = error.strerror or str(error)
        return said if error.filename is None else f"{os.fsdecode(error.filename)}: {said}"
    return str(error)


def silence_output() -> None:
    """Let nothing more be written to a pipe whose reader has gone, at exit either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run_async(
    function: Callable[..., Coroutine[Any, Any, Value]],
    *args: Any,
    loop_factory: Callable[[], Any] | None = None,
) -> Value:
    """Run ``function(*args)`` on an event loop of its own, and raise what it raises without groups around it."""
    import anyio

    from iriscw.cli.interrupts import asyncio_listens, raised_between_steps

    listens = asyncio_listens()

    async def interruptible() -> Value:
        with raised_between_steps() if listens else nullcontext():
            return await function(*args)

    try:
        return anyio.run(interruptible, backend_options={"loop_factory": loop_factory} if loop_factory else None)
    except BaseExceptionGroup as group:
        raise alone(group) from None
