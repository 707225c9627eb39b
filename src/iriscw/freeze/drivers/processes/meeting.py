"""Who a thaw would meet: who came of what was thawed before, and who has by now what the tree would take again.

Nothing here is looked at unless the checkpoint makes it possible: the locks of the machine where the tree held one,
Unix sockets where it was bound to a name, ports where it listened on one, and all processes where something was thawed
from it before.

Everything here blocks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from iriscw.freeze.criu_images import NotFiles, bound_ports, socket_names
from iriscw.freeze.drivers.processes.reading import all_stats, came_of, identity_of, own_line
from iriscw.freeze.model import FrozenTree, Met, TaskIdentity
from iriscw.freeze.proc_text import HeldLock, parse_held_locks, parse_stat_tail
from iriscw.freeze.traits import FileLock, Holder
from iriscw.processes.identity import ProcessGone, ProcessStat, boot_id, read_process_file, read_stat

_FILES: Final = "files.img"
_LEASE: Final = "LEASE"
_FLOCK: Final = "FLOCK"
_LISTENS: Final = "00010000"


def meet(frozen: FrozenTree, images: Path, returned: Sequence[TaskIdentity]) -> Met:
    """Look for those whom a thaw would meet.

    Args:
        frozen: what was frozen.
        images: the folder of its images.
        returned: who was thawed from it before.
    """
    # In a network namespace of its own a tree has its ports for itself.
    ports = tuple(_port_holders(images)) if "net" in dict(frozen.namespaces) else ()
    return Met(heirs(frozen, returned), tuple(_lock_holders(frozen)), tuple(_name_holders(images)), ports)


# What was thawed before


def heirs(frozen: FrozenTree, returned: Sequence[TaskIdentity]) -> tuple[TaskIdentity, ...]:
    """Return the processes that came of those that were thawed before, though these themselves have ended.

    They began after the thaw, and are in a session or process group of one of them, or have their program, stack and
    data where the frozen tree had them: the kernel chooses that at random whenever a program is executed, a fork keeps
    it, and a freeze and a thaw do. Who has it from a process that was there before the thaw is a relative, and no heir.
    """
    began = {task.pid: task.start_ticks for task in returned if task.boot_id == boot_id()}
    if not began:
        return ()
    first = min(began.values())
    layouts = [task.traits.layout for task in frozen.tasks if task.traits is not None and task.traits.layout]
    stats = {each.pid: each for each in all_stats()}
    ours = own_line()

    theirs = came_of(returned, stats)

    def forked(each: ProcessStat) -> bool:
        if not layouts or _layout(each.pid) not in layouts:
            return False
        above = stats.get(each.parent_pid)
        for _ in stats:  # no line is longer
            if above is None:
                break
            if above.start_ticks < first and _layout(above.pid) in layouts:
                return False
            above = stats.get(above.parent_pid)
        return True

    return tuple(
        identity_of(each)
        for each in stats.values()
        if each.start_ticks >= first
        and not each.ended
        and each.pid not in ours
        and (identity_of(each) in theirs or forked(each))
    )


def _layout(pid: int) -> tuple[int, ...]:
    try:
        return parse_stat_tail(read_process_file(pid, "stat")).layout
    except (OSError, ValueError):
        return ()


# Locks


def _lock_holders(frozen: FrozenTree) -> Iterator[Holder]:
    wanted = [
        lock
        for task in frozen.tasks
        if task.traits is not None
        for lock in task.traits.locks
        if lock.place and lock.path and lock.kind != _LEASE
    ]
    if not wanted:
        return
    with contextlib.suppress(OSError):
        held = parse_held_locks(Path("/proc/locks").read_text(encoding="ascii", errors="replace"))
        for lock in wanted:
            other = next((each for each in held if _collide(lock, each)), None)
            if other is not None and _is_at(lock):
                yield Holder(lock.path, max(0, other.pid), _name(other.pid))


def _collide(lock: FileLock, other: HeldLock) -> bool:
    """Whether one of them keeps the other out."""
    if lock.place != other.place or other.kind == _LEASE or "WRITE" not in (lock.mode, other.mode):
        return False
    if _FLOCK in (lock.kind, other.kind):
        return lock.kind == other.kind
    return (other.end < 0 or lock.start <= other.end) and (lock.end < 0 or other.start <= lock.end)


def _is_at(lock: FileLock) -> bool:
    """Whether that file still has its name: else its number may be that of another one by now."""
    try:
        return str(Path(lock.path).stat().st_ino) == lock.place.rpartition(":")[2]
    except OSError:
        return False


# Names of Unix sockets


def _name_holders(images: Path) -> Iterator[Holder]:
    try:
        names = socket_names((images / _FILES).read_bytes())
    except (OSError, NotFiles):  # whoever verifies the images says it
        return
    for path in dict.fromkeys(each.path for each in names):
        if somebody_has(path):
            pid = _bound_to(path)
            yield Holder(os.fsdecode(path), pid, _name(pid) if pid else "")


def somebody_has(path: bytes) -> bool:
    """Whether a Unix socket is bound to this very file, in whatever network namespace.

    Asked by a datagram socket, which is told that it is of the wrong kind, or connected, which nobody notices; a file
    that is nobody's refuses it.
    """
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as asking:
            asking.connect(f"/proc/self/fd/{descriptor}")
    except OSError as error:
        return error.errno in (errno.EPROTOTYPE, errno.EPERM)
    finally:
        os.close(descriptor)
    return True


# Ports


def _port_holders(images: Path) -> Iterator[Holder]:
    """CRIU has each socket share its port while it brings it back, so two of them may come to listen on one."""
    try:
        ports = bound_ports((images / _FILES).read_bytes())
    except (OSError, NotFiles):  # as above
        return
    tables = {table: _bound(table) for table in {each.table for each in ports}}
    for each in dict.fromkeys(ports):
        for address, port, inode in tables[each.table]:
            anywhere = not int(address, 16) or not int(each.address, 16)
            if port == each.port and (anywhere or address == each.address):
                pid = _having([f"socket:[{inode}]"])
                yield Holder(f"{each.table.rstrip('6').upper()} port {port}", pid, _name(pid) if pid else "")
                break


def _bound(table: str) -> list[tuple[str, int, str]]:
    """Return address, port and inode of the sockets of a table that hear from anybody."""
    wanted = "0A" if table.startswith("tcp") else "07"
    try:
        lines = read_process_file(os.getpid(), f"net/{table}").splitlines()[1:]
    except OSError:  # a kernel without IPv6
        return []
    found = []
    for line in lines:
        fields = line.split()
        if len(fields) > 9 and fields[3] == wanted:
            address, _, port = fields[1].partition(":")
            found.append((address, int(port, 16), fields[9]))
    return found


def _bound_to(path: bytes) -> int:
    """Return the process that has the socket of this name, one that listens first; 0 if none is seen."""
    name, found = os.fsdecode(path), dict[str, bool]()
    try:
        lines = read_process_file(os.getpid(), "net/unix").splitlines()[1:]
    except OSError:
        return 0
    for line in lines:
        fields = line.split(None, 7)
        if len(fields) == 8 and fields[7] == name:
            found[f"socket:[{fields[6]}]"] = fields[3] == _LISTENS
    return _having([link for link, listens in found.items() if listens] or list(found))


def _having(links: Sequence[str]) -> int:
    """Return a process that has a descriptor with one of these links; 0 if none is seen."""
    for each in all_stats() if links else ():
        folder = f"/proc/{each.pid}/fd"
        with contextlib.suppress(OSError):
            for descriptor in os.listdir(folder):  # noqa: PTH208  # names are all that is wanted
                with contextlib.suppress(OSError):
                    if os.readlink(f"{folder}/{descriptor}") in links:  # noqa: PTH115  # a thousand of them
                        return each.pid
    return 0


def _name(pid: int) -> str:
    try:
        return read_stat(pid).name if pid > 0 else ""
    except ProcessGone:
        return ""
