"""Until when programs may run: one line in a file, written by who starts them, read by their supervisors.

A worker may run its attempts for as long as the controller counts on them, and the controller may give them to
another worker afterwards. So the end of the lease must not depend on the worker: it may have been killed. It writes
down until when, and each supervisor (see :mod:`iriscw.processes.supervisor`) looks there when the time it read last
has come: if it was not moved, it ends its program.

The time is CLOCK_MONOTONIC, which is the same for all processes of one boot and no wall clock moves. It stands still
while the machine is suspended, and so do the clocks of the worker, and of the controller of a cluster on one machine:
there nothing is lost by closing the lid. A worker elsewhere that was suspended wakes with what was left of its lease.
The line holds the boot as well, so what an earlier boot wrote has run out.

The line has a fixed length and is written in place: renewing a lease needs no room on a full disk. It says the time
twice, because a reader may see half of a write. Whoever removes the file, or puts something else in its place, stops
nobody: the writer makes another one, and supervisors open it anew for each look. While there is none they go by what
they read last, for ten seconds at most. They do not hold it open: what is frozen is brought back only where each file
is that it had open, and its worker may be gone by then.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from pathlib import Path

from iriscw.files import temporary_name, write_atomic
from iriscw.processes.identity import boot_id

NEVER_NS = 1 << 62
"""The end of a lease without an end: 146 years after the machine booted."""

MAX_LINE_BYTES = 128
"""A boot id and two times."""


def encode(boot: str, until_ns: int) -> bytes:
    """Return the line."""
    return f"{boot} {until_ns:020d} {until_ns:020d}\n".encode()


def decode(line: bytes, boot: str) -> int:
    """Return until when, in ns; 0 for what was never written, is damaged, or is of another boot."""
    words = line.split()
    if len(words) != 3 or words[0] != boot.encode() or words[1] != words[2] or not words[1].isdigit():
        return 0
    return int(words[1])


class LeaseFile:
    """The writer's side. Safe to use from several threads; there is one writer at a time.

    Args:
        path: of the file; it is made (0600) if it is not there, and has run out then.

    Raises:
        OSError: as the file system says it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._descriptor = _open(path, os.O_CREAT)
        try:
            self.until_ns = decode(os.pread(self._descriptor, MAX_LINE_BYTES, 0), boot_id())
            self.write()
        except BaseException:
            self.close()
            raise

    @property
    def over(self) -> bool:
        """Whether it has run out."""
        return time.monotonic_ns() >= self.until_ns

    def hold(self, until_ns: int) -> bool:
        """Say until when programs may run; :meth:`write` tells them. Give whether that is sooner than it was."""
        sooner = until_ns < self.until_ns
        self.until_ns = until_ns
        return sooner

    def write(self) -> None:
        """Write down what holds now. Blocks for as long as the disk does.

        Raises:
            OSError: as the file system says it; supervisors see what was written last.
        """
        with self._lock:
            line = encode(boot_id(), self.until_ns)
            os.pwrite(self._descriptor, line, 0)  # first: whoever has just opened it is told, wherever its name went
            if not self._in_place():
                self._replace(line)

    def close(self) -> None:
        """Let go of the file; what was written holds on. Repeating it is fine."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _in_place(self) -> bool:
        """Whether a supervisor that starts now opens the file that is written."""
        try:
            found, ours = self.path.lstat(), os.fstat(self._descriptor)
        except FileNotFoundError:
            return False
        return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)

    def _replace(self, line: bytes) -> None:
        """Put a new file where the old one was. A link goes; a folder, which may hold something, is moved aside."""
        if self.path.is_dir() and not self.path.is_symlink():
            self.path.rename(self.path.with_name(temporary_name(self.path.name)))
        write_atomic(self.path, line, durable=False)
        descriptor = _open(self.path)
        os.close(self._descriptor)
        self._descriptor = descriptor


def _open(path: Path, more: int = 0) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | more
    descriptor = os.open(path, flags, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a plain file")
    return descriptor
