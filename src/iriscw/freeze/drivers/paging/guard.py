"""Ends the tree of a pager that cannot go on, before a single empty page is given out for one that is missing.

The kernel gives empty pages as soon as nobody has the descriptor of a space any more. A pager that is killed would
leave that behind: a tree that runs on with zeros in its memory. So a second process has the same descriptors, *the same
table of them*: what the pager receives, both have in the same instant. When the pager is gone, and not because it was
done, the guard kills the tree, and only then ends itself.

Should both be killed at the same time, nothing keeps the tree: who takes up the operation next kills it.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
from pathlib import Path
from typing import Final

from iriscw.freeze.drivers.paging.notes import COMPLETE, FAILED, KILLED, End, read_end, read_pager, write_end
from iriscw.processes.identity import ProcessIdentity, identify, is_alive

CLONE3: Final = 435
CLONE_FILES: Final = 0x400
SIGCHLD: Final = 17
END_NS: Final = 60_000_000_000

_ARGUMENTS: Final = struct.Struct("=8Q")
"""Of ``clone3``: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls."""


def start(work: Path) -> ProcessIdentity:
    """Start a guard that has all descriptors of this process, also those to come. This process must have one thread.

    Raises:
        OSError: the kernel does not let us.
    """
    watched = os.pidfd_open(os.getpid())
    pid = _clone()
    if pid == 0:
        code = 1
        try:
            os.setsid()  # who kills the pager's group does not mean us
            _watch(watched, work)
            code = 0
        finally:
            os._exit(code)
    return identify(pid)


def _clone() -> int:
    """Fork, with one table of descriptors for both."""
    arguments = ctypes.create_string_buffer(_ARGUMENTS.pack(CLONE_FILES, 0, 0, 0, SIGCHLD, 0, 0, 0), _ARGUMENTS.size)
    # PyDLL keeps Python's lock: in the child nobody else is there who could give it back.
    call = ctypes.PyDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    pid = int(call(ctypes.c_long(CLONE3), arguments, ctypes.c_size_t(_ARGUMENTS.size)))
    if pid < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"a guard cannot be made: {os.strerror(number)}")
    return pid


def _watch(watched: int, work: Path) -> None:
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    poll.poll()
    end_tree(work)


def told(guard: ProcessIdentity, work: Path) -> None:
    """Do the guard's work where there is none any more; called by a pager that is about to end."""
    if not is_alive(guard):
        end_tree(work)


def end_tree(work: Path) -> None:
    """Kill the tree, unless all its pages are there; write down that it came to an end, if nobody has."""
    end = read_end(work)
    if end is not None and end.kind == COMPLETE:
        return
    import anyio

    from iriscw.freeze.drivers.identities import to_task
    from iriscw.freeze.drivers.processes.driver import KernelProcesses

    write_end(work, End(FAILED, KILLED))
    record = read_pager(work)
    tasks = [to_task(each) for each in record.tasks] if record is not None else []
    anyio.run(KernelProcesses().end, tasks, END_NS)
