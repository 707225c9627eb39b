"""The terminal of this process: who is in its foreground, its modes and its size, and how all that is put back.

A process that is not in the foreground and changes any of it is stopped (SIGTTOU), unless it holds that signal back:
whoever lends a terminal has to take it back from the background.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import stat
import termios
from collections.abc import Iterator
from typing import Any

import attrs


@attrs.define(eq=False)
class ControllingTerminal:
    """The terminal of this session, with what it was when it was found. Use :func:`lendable`."""

    descriptor: int
    """A description of its own: what somebody does to its flags is not seen by the shell."""
    group: int
    """Our own process group, which was in its foreground."""
    modes: list[Any]
    """As ``termios`` gives them."""
    size: bytes
    owner: tuple[int, int]

    def foreground(self) -> int:
        """Return the process group in its foreground; 0 if there is none, or the terminal is gone."""
        try:
            return os.tcgetpgrp(self.descriptor)
        except OSError:
            return 0

    def give(self, group: int) -> bool:
        """Put a process group into its foreground; say whether that could be."""
        with holding_back_sigttou():
            try:
                os.tcsetpgrp(self.descriptor, group)
            except OSError:  # the group has ended, is of another session, or the terminal is gone
                return False
            return True

    def modes_now(self) -> list[Any]:
        """Return its modes; those that it had when it was found if they cannot be read any more."""
        try:
            return termios.tcgetattr(self.descriptor)
        except termios.error:
            return self.modes

    def size_now(self) -> bytes:
        """Return its size, likewise."""
        try:
            return fcntl.ioctl(self.descriptor, termios.TIOCGWINSZ, bytes(len(self.size)))
        except OSError:
            return self.size

    def set_modes(self, modes: list[Any]) -> None:
        """Give it other modes. A terminal that is gone has none."""
        with holding_back_sigttou(), contextlib.suppress(termios.error):
            termios.tcsetattr(self.descriptor, termios.TCSANOW, modes)

    def put_size_back(self) -> None:
        """Give it the size and the owner that it had: CRIU restores those of the terminal that a tree was frozen in."""
        with holding_back_sigttou(), contextlib.suppress(OSError):
            if self.size_now() != self.size:
                fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, self.size)
            now = os.fstat(self.descriptor)
            if (now.st_uid, now.st_gid) != self.owner:
                os.fchown(self.descriptor, *self.owner)

    def put_back(self) -> None:
        """Leave it as it was found. May be repeated."""
        self.give(self.group)
        self.set_modes(self.modes)
        self.put_size_back()

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.descriptor)


def lendable() -> ControllingTerminal | None:
    """Return the terminal that is standard input, if it is that of this session and we are in its foreground."""
    try:
        if os.tcgetpgrp(0) != os.getpgrp():  # an error if it is not a terminal, or that of another session
            return None
        descriptor = _opened()
    except OSError:
        return None
    try:
        owner = os.fstat(descriptor)
        size = fcntl.ioctl(descriptor, termios.TIOCGWINSZ, bytes(8))
        modes = termios.tcgetattr(descriptor)
        return ControllingTerminal(descriptor, os.getpgrp(), modes, size, (owner.st_uid, owner.st_gid))
    except (OSError, termios.error):
        os.close(descriptor)
        return None


def _opened() -> int:
    """Open it anew by its name, not as ``/dev/tty``, which CRIU cannot freeze; where no name leads there, take it.

    Raises:
        OSError: it can neither be opened, nor be read and written as it is.
    """
    here = os.fstat(0)
    try:
        descriptor = os.open(os.ttyname(0), os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        found = os.fstat(descriptor)
        if stat.S_ISCHR(found.st_mode) and (found.st_rdev, found.st_dev) == (here.st_rdev, here.st_dev):
            return descriptor
        os.close(descriptor)
    except OSError:
        descriptor = -1
    if fcntl.fcntl(0, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDWR:
        raise OSError("standard input is open for reading only")
    return fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)


@contextlib.contextmanager
def holding_back_sigttou() -> Iterator[None]:
    """Have the kernel let this thread use the terminal from the background."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
