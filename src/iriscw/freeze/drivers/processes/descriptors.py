"""What the descriptors of a tree lead to: what stands in the way, which files are open, which locks are held.

What may be shared with processes outside is noted for :mod:`.outside`, which looks for it in them.

Everything here blocks.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from iriscw.freeze.drivers.processes.outside import EVENTFD, SharedOutside
from iriscw.freeze.model import TargetUnfit
from iriscw.freeze.proc_text import (
    DELETED,
    IO_URING_WAY_OUT,
    MASTER,
    all_numbers,
    connected_sockets,
    counts_as_semaphore,
    master_index,
    name_of,
    numbers_in,
    obstacle_of_device,
    obstacle_of_link,
    open_flags,
    parse_locks,
    slave_index,
    terminal_device,
)
from iriscw.freeze.traits import FileLock, Hindrance, Obstacle, OpenFile
from iriscw.processes.identity import ProcessStat, read_process_file

GONE: Final = (FileNotFoundError, ProcessLookupError)

UNREADABLE: Final = "/secretmem"
"""What memory is called that not even the kernel may read: CRIU refuses it."""

MAX_FILES: Final = 50_000
"""Files with a name that a tree has open: more than any server that was seen."""


@attrs.define(eq=False)
class Descriptors:
    """What was found among the descriptors of a tree so far.

    Args:
        closely: whether files and locks are looked at, too.
    """

    closely: bool = False
    hindrances: list[Hindrance] = attrs.field(factory=list)
    files: dict[str, OpenFile] = attrs.field(factory=dict)
    nameless: dict[tuple[int, int], int] = attrs.field(factory=dict)
    """Files without a name, by device and inode: what they take."""
    numbered: list[tuple[ProcessStat, str, str]] = attrs.field(factory=list)
    """Files and folders of processes in ``/proc``: who has each open, its name, and the descriptor."""
    outside: SharedOutside = attrs.field(factory=SharedOutside)
    masters: dict[int, None] = attrs.field(factory=dict)
    """Pseudo-terminals whose master a process of the tree has."""
    terminals: dict[int, ProcessStat] = attrs.field(factory=dict)
    """Pseudo-terminals that a process of the tree has, or that its session has."""
    written: dict[int, Hindrance | None] = attrs.field(factory=dict)
    """Pseudo-terminals by whether the first descriptor of them only writes, from which CRIU reads what waits."""

    def look(self, each: ProcessStat) -> tuple[FileLock, ...]:
        """Look at all descriptors of a process; give the locks that it holds.

        Raises:
            FileNotFoundError, ProcessLookupError: it has ended.
            PermissionError: it may not be looked at.
            TargetUnfit: too many files are open.
        """
        found: dict[Obstacle, Hindrance] = {}
        connected: dict[str, str] | None = None
        locks: list[FileLock] = []
        opened: list[tuple[str, os.stat_result, int]] = []
        for path in Path(f"/proc/{each.pid}/fd").iterdir():
            try:
                link = str(path.readlink())
                mode = path.stat()
                access = path.lstat().st_mode
            except GONE:  # it was closed meanwhile
                continue
            obstacle = obstacle_of_link(link)
            self.outside.look(each, path.name, link, mode, access)
            if stat.S_ISCHR(mode.st_mode) or stat.S_ISBLK(mode.st_mode):
                device = os.major(mode.st_rdev), os.minor(mode.st_rdev)
                obstacle = obstacle_of_device(link, *device)
                if device == MASTER:
                    self._master(each, path.name, link)
                elif not link.endswith(DELETED):  # what was hung up comes back so
                    self._terminal(each, *device)
                    self._first(each, path.name, link, slave_index(*device), access)
            elif link.startswith("socket:["):
                if connected is None:
                    connected = connected_sockets(read_process_file(each.pid, "net/tcp")) | _tcp6(each.pid)
                if link[len("socket:[") : -1] in connected:
                    obstacle = Obstacle.TCP
            elif link == EVENTFD:
                if _semaphore(each.pid, path.name):
                    obstacle = Obstacle.SEMAPHORE
            elif numbers_in(link):
                self.numbered.append((each, link, path.name))
            elif stat.S_ISREG(mode.st_mode) or stat.S_ISDIR(mode.st_mode):
                if not mode.st_nlink:
                    self.nameless[(mode.st_dev, mode.st_ino)] = mode.st_blocks * 512
                elif stat.S_ISREG(mode.st_mode) and link.endswith(DELETED) and not link.startswith(UNREADABLE):
                    obstacle = Obstacle.UNLINKED
                if self.closely:
                    flags, held = _fdinfo(each.pid, path.name)
                    locks += [attrs.evolve(lock, path=_as_text(name_of(link))) for lock in held]
                    opened.append((name_of(link) if stat.S_ISREG(mode.st_mode) else "", mode, flags))
            if obstacle is not None:
                text = f"process {each.pid} ({each.name}) holds {_named(obstacle, link)}: descriptor {path.name}"
                found.setdefault(obstacle, Hindrance(obstacle, each.pid, text))
        self.hindrances += found.values()
        for name, mode, flags in opened:
            if name:
                self._open(each, name, mode, flags, guarded=bool(locks))
        return tuple(sorted(locks, key=lambda lock: (lock.descriptor, lock.start, lock.kind)))

    def _master(self, each: ProcessStat, descriptor: str, link: str) -> None:
        with contextlib.suppress(*GONE):
            index = master_index(read_process_file(each.pid, f"fdinfo/{descriptor}"))
            if index is not None:
                self.masters[index] = None
                self.outside.terminal(each, descriptor, link, index)

    def _terminal(self, each: ProcessStat, major: int, minor: int) -> None:
        index = slave_index(major, minor)
        if index is not None:
            self.terminals.setdefault(index, each)

    def _first(self, each: ProcessStat, descriptor: str, link: str, index: int | None, access: int) -> None:
        if index is not None and index not in self.written:
            text = (
                f"process {each.pid} ({each.name}) has {link} open for writing alone (descriptor {descriptor}), before "
                "any other descriptor of that terminal, and CRIU reads from the first: open it for both (<>)"
            )
            only = not access & stat.S_IRUSR
            self.written[index] = Hindrance(Obstacle.DEVICE, each.pid, text) if only else None

    def unreadable_terminals(self) -> Iterator[Hindrance]:
        """Yield those with both sides in the tree from which CRIU could not read: it would write what it read twice."""
        for index in self.masters:
            if hindrance := self.written.get(index):
                yield hindrance

    def controlled(self, each: ProcessStat, terminal: int) -> None:
        """Look at the controlling terminal of a process, as its stat has it."""
        device = terminal_device(terminal)
        if slave_index(*device) is not None:
            self._terminal(each, *device)
        elif terminal:
            text = f"process {each.pid} ({each.name}) has a console or a serial line as its terminal: start it without"
            self.hindrances.append(Hindrance(Obstacle.DEVICE, each.pid, text))

    def outside_terminals(self, root: ProcessStat) -> Iterator[Hindrance]:
        """Yield what stands in the way of a tree with terminals: those whose master is outside of it, and its session.

        CRIU knows a pseudo-terminal by its number alone, too.
        """
        leads = root.session_id == root.pid
        outside = {index: each for index, each in self.terminals.items() if index not in self.masters}
        for index, each in outside.items():
            who = f"process {each.pid} ({each.name})"
            text = f"{who} has the terminal /dev/pts/{index}, whose other side is outside of its tree"
            yield Hindrance(Obstacle.TERMINAL, each.pid, text)
        if outside and leads:
            text = f"process {root.pid} ({root.name}) leads the session of its terminal, and would come back without it"
            yield Hindrance(Obstacle.LEADER, root.pid, text)
        if not leads:
            text = f"process {root.pid} ({root.name}) leads no session of its own"
            yield Hindrance(Obstacle.NO_LEADER, root.pid, text)

    def _open(self, each: ProcessStat, name: str, mode: os.stat_result, flags: int, *, guarded: bool) -> None:
        try:
            name.encode()
        except UnicodeEncodeError:  # it is no text, and a manifest is one: CRIU looks for it by itself
            return
        writes = flags & os.O_ACCMODE != os.O_RDONLY
        found = OpenFile(
            path=name,
            pid=each.pid,
            device=mode.st_dev,
            inode=mode.st_ino,
            size_bytes=mode.st_size,
            changed_ns=mode.st_mtime_ns,
            appended=not writes or bool(flags & os.O_APPEND),
            guarded=guarded and writes and not flags & os.O_APPEND,
        )
        before = self.files.get(name, found)
        self.files[name] = attrs.evolve(
            before, appended=before.appended and found.appended, guarded=before.guarded or found.guarded
        )
        if len(self.files) > MAX_FILES:
            raise TargetUnfit(f"the tree has more than {MAX_FILES} files open")

    def strange_numbers(self, tree: Sequence[int]) -> Iterator[Hindrance]:
        """Yield the files and folders of ``/proc`` that are of no process or thread of a tree: nobody has them then.

        Args:
            tree: the numbers of its processes.
        """
        ours = _all_numbers(tree) if self.numbered else frozenset()
        for each, link, descriptor in self.numbered:
            if not ours.issuperset(numbers_in(link)) and _still(each.pid, descriptor, link):
                yield Hindrance(
                    Obstacle.NUMBERED,
                    each.pid,
                    f"process {each.pid} ({each.name}) has {link} open (descriptor {descriptor}), which is of a "
                    "process or thread that has ended, or is outside of its tree: close it before",
                )


def _named(obstacle: Obstacle, link: str) -> str:
    return {
        Obstacle.TCP: "an established TCP connection",
        Obstacle.DEVICE: f"the device {link}",
        Obstacle.UNLINKED: f"the file {link} open, which another name is left of: close it before, or remove that name",
        Obstacle.IO_URING: f"an io_uring ({IO_URING_WAY_OUT})",
        Obstacle.SEMAPHORE: "an eventfd that counts as a semaphore (it would come back as another kind): close it",
    }[obstacle]


def _semaphore(pid: int, descriptor: str) -> bool:
    try:
        return counts_as_semaphore(read_process_file(pid, f"fdinfo/{descriptor}"))
    except GONE:
        return False


def _fdinfo(pid: int, descriptor: str) -> tuple[int, tuple[FileLock, ...]]:
    try:
        text = read_process_file(pid, f"fdinfo/{descriptor}")
    except GONE:
        return 0, ()
    return open_flags(text), parse_locks(int(descriptor), text)


def _tcp6(pid: int) -> dict[str, str]:
    try:
        return connected_sockets(read_process_file(pid, "net/tcp6"))
    except FileNotFoundError:  # a kernel without IPv6; if the process is gone, other files say so
        return {}


def _still(pid: int, descriptor: str, link: str) -> bool:
    """Whether it is open yet: programs as ``top`` have files of others open for microseconds."""
    try:
        return str(Path(f"/proc/{pid}/fd/{descriptor}").readlink()) in (link, link + DELETED)
    except OSError:
        return False


def _as_text(name: str) -> str:
    """Return a name for a manifest, which is text; what is none is left out."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return ""
    return name


def _all_numbers(tree: Sequence[int]) -> frozenset[int]:
    """Return the numbers of all processes and threads of a tree, in each of their PID namespaces."""
    found: list[int] = []
    for pid in tree:
        with contextlib.suppress(*GONE):
            for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208  # names are all that is wanted
                found.append(int(thread))
                found += all_numbers(read_process_file(pid, f"task/{thread}/status"))
    return frozenset(found)
