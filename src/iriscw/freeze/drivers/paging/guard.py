"""Ends the tree of a pager that cannot go on, before a single empty page is given out for one that is missing.

The kernel gives empty pages as soon as nobody has the descriptor of a space any more. A pager that is killed would
leave that behind: a tree that runs on with zeros in its memory. So a second process has the same descriptors, *the same
table of them*: what the pager receives, both have in the same instant. When the pager is gone, and not because it was
done, the guard kills the tree, and only then ends itself.

So nothing may end it before. It has loaded all its code before it says that the tree may run, and has descriptors that
the pager leaves to it; that the tree is whole it hears through memory, not from a file; and whatever fails is tried
again, for as long as it takes. Who has waited long enough kills the tree, and the guard after that.

It loads that code itself (:mod:`iriscw.freeze.drivers.paging.ending`), while the pager listens to CRIU already.

A pager whose guard was killed makes another one, as soon as it hears of that. Should both be killed before it has,
nothing keeps the tree: who takes up the operation next kills it.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import resource
import select
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from iriscw.freeze.drivers.paging.notes import FAILED, KILLED, PagingEnd, read_pager, say, write_complete, write_end
from iriscw.processes.identity import ProcessIdentity, identify, is_alive

CLONE3: Final = 435
CLONE_FILES: Final = 0x400
SIGCHLD: Final = 17
AGAIN_S: Final = 0.2
"""Until what failed is tried again: nobody is told when there is room, or a descriptor, again."""
SPARE_DESCRIPTORS: Final = 4 * 1024
"""That the pager does not use, so that a guard can open every process of the largest tree, twice, and its own few."""

GUARDED: Final = b"guarded\n"
"""What it says on standard output, which is the pager's, when the tree may run."""

_ARGUMENTS: Final = struct.Struct("=8Q")
"""Of ``clone3``: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls."""


class Guard:
    """A guard, as its pager has it.

    Args:
        identity: Who it is.
        whole: Memory that both have: whether all pages are there.
        work: The folder with the notes of both.
        ended: Can be read when it has ended.
        watched: What it looks at to see whether its pager has ended: both have one table of descriptors.
    """

    def __init__(
        self, identity: ProcessIdentity, whole: mmap.mmap, work: Path, ended: int = -1, watched: int = -1
    ) -> None:
        self.identity, self.ended = identity, ended
        self._whole, self._work, self._watched = whole, work, watched

    def renewed(self) -> Guard:
        """Start another one where this one has ended: pages are missing, and somebody has to have the descriptors.

        Raises:
            OSError: the kernel does not let us.
        """
        for descriptor in (self.ended, self._watched):
            os.close(descriptor)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.identity.pid, 0)
        return start(self._work)

    def has_all(self) -> None:
        """Tell it that no page is missing any more. It is a byte in memory that both have: that cannot fail."""
        self._whole[0] = 1

    def take_over(self) -> None:
        """Do its work; called by a pager that is about to end, be it that pages are missing.

        It is left to the guard only where it cannot be done here: one that was killed seems to live until it has ended.
        """
        insist(self._over)

    def _over(self) -> bool:
        if self._whole[0]:
            return True
        try:
            return end_tree(self._work)
        except Exception as error:
            if not is_alive(self.identity):
                raise
            say("the guard is to end the tree", error)
        return True


def start(work: Path) -> Guard:
    """Start a guard that has all descriptors of this process, also those to come. This process must have one thread.

    It says :data:`GUARDED` when it has loaded its code and the pager has written down that it is there.

    Raises:
        OSError: the kernel does not let us.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # what is left to it is left by us alone
    whole = mmap.mmap(-1, 1)  # shared with who is cloned
    watched = os.pidfd_open(os.getpid())
    pid = _clone()
    if pid == 0:
        try:
            insist(lambda: _ready(watched, work))
            insist(lambda: _watch(watched, whole, work))
        finally:
            os._exit(0)
    _leave_descriptors()
    return Guard(identify(pid), whole, work, os.pidfd_open(pid), watched)


def _leave_descriptors() -> None:
    """Use fewer than there may be in the table that both have: each process has a limit of its own."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(most - SPARE_DESCRIPTORS, most // 2), most))


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


def insist(step: Callable[[], bool]) -> None:
    """Do this until it says that it is done. Whatever it raises, this process stays, and with it the descriptors."""
    said: type[BaseException] | None = None
    while True:
        try:
            if step():
                return
        except BaseException as error:  # noqa: BLE001 - whoever ended here would end all that keeps the tree waiting
            if said is not type(error):
                said = type(error)
                say("tried again", error)
        select.select((), (), (), AGAIN_S)


def _ready(watched: int, work: Path) -> bool:
    """Load what is needed to end a tree, and say so once everybody can know who guards it; or the pager has ended."""
    from iriscw.freeze.drivers.paging import ending  # see the theory of operation

    ending.warm()
    record = read_pager(work)
    if record is None or record.guard is None or record.guard.pid != os.getpid():
        return bool(select.select([watched], [], [], 0)[0])
    with contextlib.suppress(BrokenPipeError):  # who thaws is gone, and lets nothing run
        os.write(1, GUARDED)
    return True


def _watch(watched: int, whole: mmap.mmap, work: Path) -> bool:
    if os.getsid(0) != os.getpid():
        os.setsid()  # who kills the pager's group does not mean us
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    poll.poll()
    if not whole[0]:
        return end_tree(work)
    try:
        write_complete(work)  # the pager may have been killed just before it could
    except OSError as error:
        say("that all pages came cannot be written down", error)
    return True


def end_tree(work: Path) -> bool:
    """Kill the tree, and then write down that it came to an end, if nobody has; say whether all of it has ended.

    Raises:
        OSError: it cannot be told who is of the tree, or they cannot be opened.
    """
    from iriscw.freeze.drivers.paging import ending  # a guard has loaded it; a pager does when its guard is gone

    record = read_pager(work)
    if record is not None and record.tasks and not ending.end_all(record.tasks):
        return False
    try:
        write_end(work, PagingEnd(FAILED, KILLED))
    except OSError as error:
        say(f"{KILLED}, and that cannot be written down", error)
    return True
