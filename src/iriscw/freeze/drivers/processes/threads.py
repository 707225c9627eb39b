"""What a thread has apart from the first one of its process, and CRIU does not bring back.

CRIU takes folders, descriptors and namespaces of a process for those of all its threads, and gives each thread those of
the first one. Threads that left these (``unshare``, ``setns``, ``clone`` without ``CLONE_FS`` or ``CLONE_FILES``) are
rare: file servers change folder by thread, and Go programs enter a network namespace by one.

Everything here blocks, for some 50 microseconds a thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import platform
from collections.abc import Iterator
from typing import Final

from iriscw.freeze.traits import Hindrance, Obstacle
from iriscw.processes.identity import ProcessStat

KCMP: Final = {"x86_64": 312, "aarch64": 272}
_SHARED: Final = ((2, "a table of descriptors"), (3, "a root or working folder"))
"""What ``kcmp`` compares for us: ``KCMP_FILES`` and ``KCMP_FS``."""

_NAMESPACES: Final = ("mnt", "net", "uts", "ipc", "cgroup", "pid_for_children", "time_for_children")
"""Those that a thread can leave alone, for itself or for its children."""

_RESTORED: Final = (0, 1, 2, 3, 5)
"""Scheduling policies that CRIU brings back: all but those of deadlines (6) and of BPF programs (7)."""

_DIFFERENT: Final = (1, 2, 3)


def threads_apart(each: ProcessStat) -> Iterator[Hindrance]:
    """Yield what keeps a process's threads from coming back as they are.

    Args:
        each: the process.

    Raises:
        FileNotFoundError, ProcessLookupError: it has ended.
        PermissionError: it may not be looked at.
    """
    if each.state == "Z":  # its first thread has ended, for which it is refused
        return
    own = ""
    place: tuple[str, ...] = ()
    who = f"process {each.pid} ({each.name})"
    for number in map(int, os.listdir(f"/proc/{each.pid}/task")):  # noqa: PTH208  # names are all that is wanted
        with contextlib.suppress(ProcessLookupError):  # a thread may end at any time
            policy = os.sched_getscheduler(number) & ~os.SCHED_RESET_ON_FORK
            if policy not in _RESTORED:
                text = (
                    f"thread {number} of {who} has a scheduling policy (number {policy}) that CRIU does not bring back"
                )
                yield Hindrance(Obstacle.SCHEDULING, each.pid, f"{text}: set another one before (chrt)")
        if number != each.pid and not own:
            place = place or _namespaces(each.pid, each.pid)
            own = _own(each.pid, number, place)
            if own:
                text = f"thread {number} of {who} has {own} of its own, and would come back with that of the others"
                yield Hindrance(Obstacle.THREAD, each.pid, f"{text}: freeze it before or after it needs that")


def _own(pid: int, number: int, place: tuple[str, ...]) -> str:
    for kind, what in _SHARED:
        call = KCMP.get(platform.machine(), -1)
        if _library().syscall(call, number, pid, kind, ctypes.c_ulong(0), ctypes.c_ulong(0)) in _DIFFERENT:
            return what
    its = _namespaces(pid, number)
    if its[0]:  # else it has ended
        for name, one, other in zip(_NAMESPACES, its, place, strict=True):
            if one != other:
                return f"a {name.partition('_')[0]} namespace"
    return ""


def _namespaces(pid: int, number: int) -> tuple[str, ...]:
    """Return the namespaces of a thread; empty is one of which nothing is known."""
    found = []
    for name in _NAMESPACES:
        try:
            found.append(os.readlink(f"/proc/{pid}/task/{number}/ns/{name}"))  # noqa: PTH115  # a thousand of them
        except FileNotFoundError:  # one for children that has no process yet, an older kernel, or the thread has ended
            found.append("")
    return tuple(found)


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
