"""What a tree shares with processes outside of it, and would not share any more after a thaw.

CRIU writes down what a tree has, and makes it anew. Who is outside keeps the old one: neither hears of the other again,
and nobody tells them. So whatever both have is looked for in all processes of the machine, once, and only for what can
be shared so:

- a pipe or a FIFO, a socket: known by its inode;
- memory and files without a name (``MAP_SHARED``, ``memfd``): likewise, unless neither side writes;
- an eventfd, epoll, timer, inotify or fanotify, which all have one inode: the kernel is asked (``kcmp``) whether both
  descriptors lead to one open file;
- a terminal whose master the tree has: its other side by its inode, its master as those before;
- a file that is written to: likewise. Its position is of the open file, so after a thaw each side would write over what
  the other one wrote. With ``O_APPEND`` there is no harm, and a log that a parent keeps open is mostly such.

A file that is only read is no obstacle, although its position is shared as well: each goes on from where it was. Nor is
a device, which has no state of its own here, a pidfd, or a signalfd, which tells of the signals of who reads it.

Everything here blocks.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import fcntl
import functools
import os
import platform
import stat
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, TypeAlias

import attrs

from iriscw.freeze.drivers.processes.threads import KCMP
from iriscw.freeze.proc_text import Mapping, open_flags, parse_mappings
from iriscw.freeze.traits import Hindrance, Obstacle
from iriscw.processes.identity import ProcessGone, ProcessStat, read_process_file, read_stat

EVENTFD: Final = "anon_inode:[eventfd]"

STATEFUL: Final = {
    EVENTFD: "an eventfd",
    "anon_inode:[eventpoll]": "an epoll",
    "anon_inode:[timerfd]": "a timer",
    "anon_inode:inotify": "an inotify",
    "anon_inode:[fanotify]": "a fanotify",
}
"""Where the links of descriptors lead that have one inode for all, and what they are."""

KTHREADD: Final = 2
"""The parent of the kernel's threads."""

KERNEL_FILES: Final = ("/proc/", "/sys/")
"""Positions in these mean nothing."""

F_GET_SEALS: Final = 1034
SEALS_WRITE: Final = 0x8 | 0x10
"""``F_SEAL_WRITE`` and ``F_SEAL_FUTURE_WRITE``."""

WAY_OUT: Final = "freeze a process above both, or "

Inode: TypeAlias = tuple[int, int]
"""Device and number."""


@attrs.define(eq=False)
class SharedThing:
    """One thing that a process of the tree has, which somebody outside may have as well."""

    pid: int
    name: str
    descriptor: str
    """Empty if it is mapped."""
    what: str
    instead: str
    """What else to do than to freeze both."""
    inode: Inode | None = None
    """By which it is known; None: the kernel is asked."""
    read: bool = False
    written: bool = False
    known: bool = False
    """A pipe, a socket or a terminal: it is shared whoever writes."""
    told: bool = False

    def add(self, access: int) -> None:
        """Note what a descriptor may do: its link says it as the rights of its owner."""
        self.read = self.read or bool(access & stat.S_IRUSR)
        self.written = self.written or bool(access & stat.S_IWUSR)

    @property
    def is_pipe(self) -> bool:
        """Whether it is one, or a FIFO."""
        return self.known and self.what.startswith(("a pipe", "the FIFO"))

    @property
    def place(self) -> str:
        """Say where it is."""
        return f"descriptor {self.descriptor}" if self.descriptor else "mapped"


@attrs.define(eq=False)
class SharedOutside:
    """What may be shared, of all processes of a tree."""

    links: dict[str, dict[Inode, SharedThing]] = attrs.field(factory=dict)
    """What is known by its inode: by the link of its descriptor, which is read before the inode."""
    asked: dict[str, list[SharedThing]] = attrs.field(factory=dict)
    """What is known by the kernel alone, by its link."""
    nameless: dict[Inode, SharedThing] = attrs.field(factory=dict)
    """Memory and files without a name."""

    def look(self, each: ProcessStat, descriptor: str, link: str, mode: os.stat_result, access: int) -> None:
        """Note what a descriptor leads to, if it may be shared."""
        inode = mode.st_dev, mode.st_ino
        if stat.S_ISFIFO(mode.st_mode):
            what = "the FIFO " + link if link.startswith("/") else "a pipe"
            self._known(each, descriptor, link, inode, what, "start it with files instead").add(access)
        elif stat.S_ISSOCK(mode.st_mode):
            self._known(each, descriptor, link, inode, "a socket", "start it without that socket: it opens one itself")
        elif link in STATEFUL:
            self._ask(each, descriptor, link, STATEFUL[link], "close it in one of them")
        elif not stat.S_ISREG(mode.st_mode):
            return
        elif not mode.st_nlink:
            held = SharedThing(each.pid, each.name, descriptor, _nameless(link), "close it in one of them", inode)
            held = self.nameless.setdefault(inode, held)
            self.links.setdefault(link, {})[inode] = held
            held.written = held.written or (bool(access & stat.S_IWUSR) and not _sealed(each.pid, descriptor))
        elif access & stat.S_IWUSR and not link.startswith(KERNEL_FILES):
            self._ask(each, descriptor, link, f"the position in {link}", "open that file anew, or to append (>>)")

    def terminal(self, each: ProcessStat, descriptor: str, link: str, number: int) -> None:
        """Note the two sides of a terminal whose master a process of the tree has."""
        beside = f"{os.path.dirname(link)}/{number}"  # noqa: PTH120  # in a file system of terminals that lies elsewhere
        for slave in (beside, f"/dev/pts/{number}"):
            with contextlib.suppress(OSError):  # nobody can open it any more, or in there
                found = os.stat(f"/proc/{each.pid}/root{slave}")  # noqa: PTH116  # as below
                inode = found.st_dev, found.st_ino
                self._known(each, descriptor, slave, inode, f"the terminal {slave}", "have the other process close it")
                break
        self._ask(each, descriptor, link, f"the master of {slave}", "close it in one of them")

    def map(self, each: ProcessStat, mapped: Sequence[Mapping]) -> None:
        """Note the memory and files without a name that a process has mapped, and shares."""
        for one in mapped:
            if one.nameless and one.shared:
                inode = os.makedev(*one.device), one.inode
                held = SharedThing(each.pid, each.name, "", "shared memory", "start it so that it maps its own", inode)
                held = self.nameless.setdefault(inode, held)
                held.written = held.written or one.written

    def cut(self, tree: Sequence[int], tracers: Collection[int]) -> Iterator[Hindrance]:
        """Yield what somebody outside of a tree has as well, each thing once.

        Args:
            tree: the numbers of its processes.
            tracers: who holds it, if it is held: CRIU has what is on its way to a process of the tree.
        """
        if not (self.links or self.asked or self.nameless):
            return
        orders = _Orders(self.asked)
        for pid in sorted(programs().difference(tree)):
            for held in (*self._descriptors(pid, orders), *self._memory(pid)):
                if pid in tracers:  # what is whole in the tree comes back, and with it what is on its way
                    if held.is_pipe and not (held.read and held.written):
                        yield _hindrance(held, _on_its_way(held))
                elif not held.told:
                    yield _hindrance(held, _shared(held, pid))

    def _known(
        self, each: ProcessStat, descriptor: str, link: str, inode: Inode, what: str, instead: str
    ) -> SharedThing:
        held = SharedThing(each.pid, each.name, descriptor, what, instead, inode, known=True)
        return self.links.setdefault(link, {}).setdefault(inode, held)

    def _ask(self, each: ProcessStat, descriptor: str, link: str, what: str, instead: str) -> None:
        self.asked.setdefault(link, []).append(SharedThing(each.pid, each.name, descriptor, what, instead))

    def _descriptors(self, pid: int, orders: _Orders) -> Iterator[SharedThing]:
        """Yield what a process has descriptors of; of one that may not be looked at, nothing."""
        folder = f"/proc/{pid}/fd"
        try:
            names = os.listdir(folder)  # noqa: PTH208  # a thousand paths
        except OSError:
            return
        for name in names:
            with contextlib.suppress(OSError):
                path = f"{folder}/{name}"
                link = os.readlink(path)  # noqa: PTH115  # likewise
                if link in self.links:
                    found = os.stat(path)  # noqa: PTH116  # likewise
                    held = self.links[link].get((found.st_dev, found.st_ino))
                    if held is not None and (held.known or held.written or _writes(pid, name)):
                        yield held
                if link in self.asked:
                    held = orders.same(link, pid, int(name))
                    if held is not None and (link in STATEFUL or not _appends(pid, name)):
                        yield held

    def _memory(self, pid: int) -> Iterator[SharedThing]:
        """Yield the memory without a name that a process has mapped as well."""
        if not self.nameless:
            return
        try:
            text = read_process_file(pid, "maps")
        except OSError:
            return
        if not any(f" {inode} " in text for _, inode in self.nameless):  # to read all of it takes long
            return
        for one in parse_mappings(text):
            held = self.nameless.get((os.makedev(*one.device), one.inode)) if one.shared else None
            if held is not None and (held.written or one.written):
                yield held


class _Orders:
    """The descriptors of a tree in the order that the kernel gives to open files, made when it is needed."""

    def __init__(self, asked: dict[str, list[SharedThing]]) -> None:
        self._asked = asked
        self._ordered: dict[str, list[SharedThing]] = {}

    def same(self, link: str, pid: int, descriptor: int) -> SharedThing | None:
        """Return that of the tree which leads to the same open file as this one of somebody else."""
        if link not in self._ordered:
            self._ordered[link] = sorted(self._asked[link], key=_key)
        ordered = self._ordered[link]
        wanted = pid, descriptor
        at = bisect.bisect_left(ordered, _ORDER(wanted), key=_key)
        if at < len(ordered) and not _compared(_place(ordered[at]), wanted):
            return ordered[at]
        return None


def _place(held: SharedThing) -> tuple[int, int]:
    return held.pid, int(held.descriptor)


def _compared(one: tuple[int, int], other: tuple[int, int]) -> int:
    """Compare two open files, each by a process and its descriptor. What is gone is like no other one."""
    # Kind 0 compares open files.
    answer = _library().syscall(KCMP.get(platform.machine(), -1), one[0], other[0], 0, one[1], other[1])
    return {0: 0, 2: 1}.get(answer, -1)


_ORDER: Final = functools.cmp_to_key(_compared)


def _key(held: SharedThing) -> Any:
    return _ORDER(_place(held))


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _hindrance(held: SharedThing, text: str) -> Hindrance:
    held.told = True
    return Hindrance(Obstacle.PIPE if held.is_pipe else Obstacle.SHARED, held.pid, text)


def _shared(held: SharedThing, pid: int) -> str:
    return (
        f"process {held.pid} ({held.name}) shares {held.what} ({held.place}) with process {pid} ({_name(pid)}), which "
        f"is not in its tree and would be cut off: {WAY_OUT}{held.instead}"
    )


def _on_its_way(held: SharedThing) -> str:
    return (
        f"process {held.pid} ({held.name}) has {held.what} ({held.place}) whose other end is on its way in a Unix "
        "socket (SCM_RIGHTS), and would be lost: freeze it when that was received"
    )


def _nameless(link: str) -> str:
    return "a memfd" if link.startswith("/memfd:") else f"the file {link}"


def _sealed(pid: int, descriptor: str) -> bool:
    """Whether nobody may write to the memory that a descriptor leads to."""
    try:
        opened = os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return bool(fcntl.fcntl(opened, F_GET_SEALS) & SEALS_WRITE)
    except OSError:  # a file that was removed, of a file system without seals
        return False
    finally:
        os.close(opened)


def _writes(pid: int, descriptor: str) -> bool:
    access = os.lstat(f"/proc/{pid}/fd/{descriptor}").st_mode  # as above
    return bool(access & stat.S_IWUSR) and not _sealed(pid, descriptor)


def _appends(pid: int, descriptor: str) -> bool:
    return bool(open_flags(read_process_file(pid, f"fdinfo/{descriptor}")) & os.O_APPEND)


def programs() -> frozenset[int]:
    """Return the numbers of all processes of the machine but the kernel's own threads.

    A machine with many processors has thousands of those, and none of them has descriptors or memory. All are children
    of one; in a PID namespace of its own nobody sees any, and a program may have that number.
    """
    numbers = frozenset(int(entry) for entry in os.listdir("/proc") if entry.isdigit())  # noqa: PTH208  # as above
    try:
        if read_process_file(KTHREADD, "comm") != "kthreadd\n" or read_process_file(KTHREADD, "cmdline"):
            return numbers
        return numbers - {KTHREADD, *map(int, read_process_file(KTHREADD, f"task/{KTHREADD}/children").split())}
    except OSError:
        return numbers


def _name(pid: int) -> str:
    try:
        return read_stat(pid).name
    except ProcessGone:
        return "which has ended since"
