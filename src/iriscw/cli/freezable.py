"""``freezable``: becomes a program that can be frozen."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import click

from iriscw._errors import OperationError
from iriscw.processes.supervised import FilterRefused, not_started
from iriscw.processes.supervisor import install_filter
from iriscw.processes.syscall_filter import FREEZABLE, hindrance


class NoSession(OperationError):
    """The command cannot lead a session of its own from where it was called."""


@click.command(context_settings={"allow_interspersed_args": False})  # what follows the program is the program's
@click.argument("argv", metavar="COMMAND [ARGS]...", nargs=-1, required=True, type=click.UNPROCESSED)
def freezable(argv: tuple[str, ...]) -> None:
    """Become a command that can be frozen: `iriscw freezable -- python server.py > log 2>&1 &`.

    The command keeps this one's process number, for `iriscw checkpoint --pid`. The kernel tells it, and all that it
    starts, that there is no io_uring (ENOSYS), since CRIU cannot dump one; uvloop, which would make one, does without.
    Without CAP_SYS_ADMIN, setuid programs gain no rights below it. It leads a session of its own, so that neither
    Ctrl-C nor the end of the terminal reaches it, and reads /dev/null instead of a terminal. Where it writes stays as
    it is: to files or pipes, since a terminal cannot be frozen.
    """
    if why := hindrance():
        raise FilterRefused(f"{argv[0]!r} was not started: {why}")
    _lead_session()
    if os.isatty(0):
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if os.isatty(1) or os.isatty(2):
        sys.stderr.write("iriscw: the output goes to a terminal, which cannot be frozen: have it go to a file\n")
    for reset in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these two
        signal.signal(reset, signal.SIG_DFL)
    step = "filter"
    try:
        install_filter(FREEZABLE)
        step = "exec"
        os.execvp(argv[0], argv)  # noqa: S606 - no shell is the point
    except OSError as error:
        raise not_started(argv[0], Path(), {"step": step, "errno": error.errno, "text": error.strerror}) from error


def _lead_session() -> None:
    """Lead a session without a terminal, as this very process: a fork would have another number.

    Raises:
        NoSession: the kernel does not let it.
    """
    try:
        if os.getsid(0) != os.getpid():
            if os.getpgrp() == os.getpid():  # a job of an interactive shell: who leads a group may begin no session
                os.setpgid(0, os.getpgid(os.getppid()))
            os.setsid()
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except PermissionError as error:
        raise NoSession(_NO_SESSION) from error
    except OSError:  # there is no terminal
        return
    os.close(terminal)
    raise NoSession(_NO_SESSION)


_NO_SESSION = "it cannot lead a session without a terminal from here: put `setsid` in front of `iriscw freezable`"
