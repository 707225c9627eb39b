"""``down`` without a configuration: the end of the cluster that ``up`` keeps on this machine."""

from __future__ import annotations

import select
import signal
import sys
from pathlib import Path
from typing import Final

from iriscw._errors import OperationError, UsageError
from iriscw.cli.output import emit
from iriscw.client.discovery import read_context
from iriscw.processes.identity import ProcessGone, pidfd_of

PATIENCE_S: Final = 120.0
"""For calls under way, tasks and workers to end: each has bounds of its own below this."""


class NoClusterUp(UsageError):
    """The cluster of this user on this machine is not kept up by a process that could end it."""


class StillEnding(OperationError):
    """The cluster was told to end, and takes longer than its parts may."""

    retryable = True


def end_local(path: Path) -> None:
    """Have the ``up`` whose context this is end in order, and wait until it has.

    Where none is up all is as it was asked for, which is said: scripts may end a cluster twice.

    Raises:
        NoClusterUp: it was killed, and may have left something; or the context is of ``iriscw connect``, which only
            leads to a cluster.
        InvalidContextFile: the file is not a context.
        StillEnding: its process has not ended.
    """
    context = read_context(path)
    if context is None or (context.workdir is None and not context.is_alive):
        sys.stderr.write("no cluster of yours is up here; `iriscw down CONFIG` takes a deployed one away\n")
        return
    pid = context.owner.pid
    if not context.is_alive:
        raise NoClusterUp(
            f"iriscw up (process {pid}) was killed, and may have left something running: run it as before, then "
            "`iriscw down` again"
        )
    if context.workdir is None:
        raise NoClusterUp(f"`iriscw connect` (process {pid}) leads to {context.address}: Ctrl-C ends it")
    try:
        with pidfd_of(context.owner) as owner:
            signal.pidfd_send_signal(owner, signal.SIGTERM)
            sys.stderr.write(f"iriscw up (process {pid}) was told to end ...\n")
            if not select.select([owner], [], [], PATIENCE_S)[0]:
                raise StillEnding(f"iriscw up (process {pid}) has not ended in {PATIENCE_S:.0f} s")
    except ProcessGone:  # by itself, a moment before
        pass
    emit(last_words(context.left) + "\n")


def last_words(left: str) -> str:
    """Say what is left of a cluster that has ended: ``left`` is the platform whose machines run on."""
    if not left:
        return "stopped; nothing is left running"
    return f"stopped; machines of {left} are left running: the next controller of this cluster takes them up"
