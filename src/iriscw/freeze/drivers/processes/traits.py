"""Reading what is true of a process beside who it is: see :class:`~iriscw.freeze.model.Traits`.

All of it stands in ``/proc``, in the same form before a freeze and after a thaw, and is read of a tree that is held or
stopped: so what differs was changed by neither of us. Everything here blocks, for some hundred microseconds a process
and some ten more for each thread.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from iriscw.freeze.drivers.processes.calling import CALLABLE
from iriscw.freeze.proc_text import (
    Mapping,
    ProcStatus,
    StatTail,
    first_policy,
    flagged,
    parse_limits,
    parse_mappings,
    parse_placed,
    parse_stat_tail,
    parse_status,
)
from iriscw.freeze.traits import Area, FileLock, ThreadTraits, Traits
from iriscw.processes.identity import read_process_file

IOPRIO_WHO_PROCESS: Final = 1
IOPRIO: Final = {"x86_64": (252, 251), "aarch64": (31, 30)}
"""The numbers of ``ioprio_get`` and ``ioprio_set``, which the C library does not have."""

NAMESPACES: Final = ("mnt", "net", "ipc", "uts", "user", "cgroup", "time")

_NODES: Final = Path("/sys/devices/system/node/online")
_FIRST_LINE: Final = 512


def read_traits(
    pid: int, status: ProcStatus, tail: StatTail, locks: tuple[FileLock, ...], *, marked: bool = True
) -> Traits:
    """Read the traits of a process.

    Args:
        pid: its number.
        status: what its status says.
        tail: what its stat says.
        locks: what it holds.
        marked: whether it is looked for memory that is marked, which takes some ten milliseconds a gigabyte.

    Raises:
        FileNotFoundError, ProcessLookupError: it has ended.
        PermissionError: it may not be looked at.
    """
    first = _thread(pid, status)
    threads: list[int] = []
    odd: list[tuple[int, ThreadTraits]] = []
    for number in sorted(int(name) for name in os.listdir(f"/proc/{pid}/task")):  # noqa: PTH208  # names are wanted
        if number == pid:
            continue
        its = parse_status(read_process_file(pid, f"task/{number}/status"))
        inner = its.inner_pid or number
        threads.append(inner)
        traits = _thread(number, its)
        if traits != first:
            odd.append((inner, traits))
    mapped = mappings(pid) if any(lock.kind == "POSIX" for lock in locks) else ()
    return Traits(
        first=first,
        threads=tuple(threads),
        odd_threads=tuple(odd),
        personality=_hexadecimal(pid, "personality"),
        dump_filter=_hexadecimal(pid, "coredump_filter"),
        placed=_placed(pid, first.memory_policy),
        flagged=_flagged(pid) if marked and _callable() else (),
        locks=tuple(_with_mapping(pid, lock, mapped) for lock in locks),
        layout=() if fixed_layout(_hexadecimal(pid, "personality")) else tail.layout,
        kept=(
            *status.kept,
            ("nice", str(tail.nice)),
            ("scheduling", tail.policy),
            ("oom_score_adj", read_process_file(pid, "oom_score_adj").strip()),
            *parse_limits(read_process_file(pid, "limits")),
        ),
    )


def _thread(number: int, status: ProcStatus) -> ThreadTraits:
    return ThreadTraits(
        cpus=status.cpus,
        io_priority=io_priority(number),
        timer_slack_ns=_timer_slack(number),
        memory_policy=_policy(number),
        flags=parse_stat_tail(read_process_file(number, "stat")).at_broken_memory if _callable() else 0,
        speculation=status.speculation if _callable() else (),
    )


def _callable() -> bool:
    """Whether what takes a call in a process could be set again. Else nobody asks: it comes back without."""
    return platform.machine() in CALLABLE


def io_priority(number: int) -> int:
    """Return the I/O priority of a thread as the kernel has it; 0 on an architecture that iriscw does not know."""
    numbers = IOPRIO.get(platform.machine())
    if numbers is None:
        return 0
    found: int = _library().syscall(numbers[0], IOPRIO_WHO_PROCESS, number)
    if found < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return found


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _timer_slack(number: int) -> int:
    """A thread of real time has none, and without ``CAP_SYS_NICE`` that of others is not told."""
    try:
        return int(read_process_file(number, "timerslack_ns"))
    except PermissionError:
        return 0


def _policy(number: int) -> str:
    """The policy of a thread is that of memory without one of its own; the first memory of a program has none."""
    try:
        with Path(f"/proc/{number}/numa_maps").open(encoding="utf-8", errors="surrogateescape") as lines:
            return first_policy(lines.readline(_FIRST_LINE))
    except FileNotFoundError:
        if Path("/proc/self/numa_maps").exists():
            raise
        return "default"  # a kernel without NUMA


def _placed(pid: int, policy: str) -> tuple[tuple[int, int, str], ...]:
    """The kernel walks over all pages for this: it is asked only where there is more than one node to lie on."""
    if not many_nodes():
        return ()
    with Path(f"/proc/{pid}/numa_maps").open(encoding="utf-8", errors="surrogateescape") as lines:
        return parse_placed(lines, read_process_file(pid, "maps").splitlines(), policy)


def _flagged(pid: int) -> tuple[Area, ...]:
    """The kernel walks over all pages for this, as it does for CRIU."""
    with Path(f"/proc/{pid}/smaps").open(encoding="utf-8", errors="surrogateescape") as lines:
        return flagged(lines)


@functools.cache
def many_nodes() -> bool:
    """Whether this machine has more than one NUMA node."""
    try:
        return _NODES.read_text(encoding="ascii").strip() not in ("", "0")
    except OSError:
        return False


def fixed_layout(personality: int) -> bool:
    """Whether a program of this personality lies where every other one of its kind does."""
    try:
        random = Path("/proc/sys/kernel/randomize_va_space").read_text(encoding="ascii").strip() != "0"
    except OSError:
        random = False
    return not random or bool(personality & _NOT_RANDOM)


_NOT_RANDOM: Final = 0x0040000


def _hexadecimal(pid: int, name: str) -> int:
    text = read_process_file(pid, name)
    if not text:  # it has no memory any more
        raise ProcessLookupError(f"process {pid} has ended")
    return int(text, 16)


def _with_mapping(pid: int, lock: FileLock, mapped: Sequence[Mapping]) -> FileLock:
    """Say whether the file that is locked is mapped as well.

    Which file a mapping means is told by its own link: on some file systems ``maps`` has another device.
    """
    if lock.kind != "POSIX":
        return lock
    meant = Path(f"/proc/{pid}/fd/{lock.descriptor}").stat()
    for each in mapped:
        if each.inode == meant.st_ino:
            found = Path(f"/proc/{pid}/map_files/{each.span}").stat()
            if (found.st_dev, found.st_ino) == (meant.st_dev, meant.st_ino):
                return attrs.evolve(lock, mapped=True)
    return lock


def mappings(pid: int) -> tuple[Mapping, ...]:
    """Return what a process has mapped of files and of shared memory."""
    return parse_mappings(read_process_file(pid, "maps"))


def shared_memory(pid: int, mapped: Sequence[Mapping]) -> dict[tuple[int, int], int]:
    """Return the memory that a process shares and the files without a name that it has mapped, and what each takes.

    By device and inode: those of all processes of a tree together are what CRIU writes, each once.
    """
    found: dict[tuple[int, int], int] = {}
    for each in mapped:
        if each.nameless:
            try:
                seen = Path(f"/proc/{pid}/map_files/{each.span}").stat()
            except FileNotFoundError:  # it was unmapped meanwhile
                continue
            found[(seen.st_dev, seen.st_ino)] = seen.st_blocks * 512
    return found


def namespaces(pid: int | str) -> dict[str, int]:
    """Return the namespaces of a process by kind; a kind that this kernel does not have is left out."""
    found = {}
    for kind in NAMESPACES:
        path = Path(f"/proc/{pid}/ns/{kind}")
        try:
            found[kind] = path.stat().st_ino
        except FileNotFoundError:
            if Path(f"/proc/self/ns/{kind}").exists():
                raise
    return found


def other_for_children(pid: int) -> str:
    """Return the kind of namespace that the children of a process are to be in, and itself is not; empty if none."""
    for kind in ("pid", "time"):
        try:
            if os.stat(f"/proc/{pid}/ns/{kind}_for_children").st_ino != os.stat(f"/proc/{pid}/ns/{kind}").st_ino:  # noqa: PTH116  # links
                return kind
        except FileNotFoundError:  # nobody is in a namespace for children yet; or a kernel without them
            return kind if kind == "pid" and Path(f"/proc/{pid}/ns/pid").exists() else ""
    return ""


def capture(pid: int, locks: tuple[FileLock, ...], *, marked: bool) -> Traits:
    """Read all that :func:`read_traits` needs, and that."""
    status = parse_status(read_process_file(pid, "status"))
    tail = parse_stat_tail(read_process_file(pid, "stat"))
    return read_traits(pid, status, tail, locks, marked=marked)
