"""Whether a tree that was brought back, and is stopped, is what was frozen; what CRIU lost is set again before.

Each process is read as it was read when it was held, and compared. What differs is set again if it can be: from
outside, or by a call in the stopped process (:mod:`.calling`). Then it is read once more, and what differs still is
what is said. Everything here blocks.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import re
import signal
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from iriscw.freeze.drivers.identities import lives
from iriscw.freeze.drivers.processes.calling import CALLABLE, HERE, CallingThread, Here, NotCallable, calling
from iriscw.freeze.drivers.processes.descriptors import GONE, Descriptors
from iriscw.freeze.drivers.processes.reading import children_of
from iriscw.freeze.drivers.processes.traits import IOPRIO, IOPRIO_WHO_PROCESS, capture
from iriscw.freeze.model import RightsMissing, TargetGone, TaskIdentity, TreeChanged, TreeProcess
from iriscw.freeze.proc_text import ASKED_FOR_ITSELF, EARLY, SPECULATION, parse_status
from iriscw.freeze.traits import FileLock, ThreadTraits, Traits
from iriscw.processes.identity import ProcessGone, read_process_file, read_stat

MAX_SAID: Final = 4
"""Differences in one error: the first is the one to mend."""

_FCNTL, _PERSONALITY, _MBIND, _SET_MEMPOLICY, _WAITID = 72, 135, 237, 238, 247
_PRCTL, _MLOCK2, _MSEAL = 157, 325, 462
_GETPID, _RT_SIGTIMEDWAIT, _RT_SIGQUEUEINFO = 39, 128, 129
"""Numbers of calls on x86_64, the one architecture of :mod:`.calling`."""

_SIGINFO_BYTES: Final = 128

_SET_MEMORY_FAILURE, _SET_HUGE_PAGES_OFF, _SET_SPECULATION = 33, 41, 53
"""Of ``prctl``: ``PR_MCE_KILL``, ``PR_SET_THP_DISABLE``, ``PR_SET_SPECULATION_CTRL``."""

_BUT_FOR_ADVISED: Final = 2
"""``PR_THP_DISABLE_EXCEPT_ADVISED``."""

_ON_FAULT: Final = 1
"""``MLOCK_ONFAULT``."""

_SAFER: Final = {
    "thread mitigated": 4,
    "thread force mitigated": 8,
    "conditional disabled": 4,
    "conditional force disabled": 8,
}
"""What a status says of a thread for which a processor may not guess, and ``PR_SPEC_DISABLE`` or what is for ever."""

_FREER: Final = ("thread vulnerable", "conditional enabled")

_POLICIES: Final = {
    "default": 0,
    "prefer": 1,
    "bind": 2,
    "interleave": 3,
    "local": 4,
    "prefer (many)": 5,
    "weighted interleave": 6,
}
_POLICY_FLAGS: Final = {"static": 1 << 15, "relative": 1 << 14}
_POLICY: Final = re.compile(
    r"(?P<mode>[a-z]+(?: \(many\)| interleave)?)(?:=(?P<flags>[a-z|]+))?(?::(?P<nodes>[0-9,-]+))?"
)
_MASK_BITS: Final = 1024


def prove(frozen: tuple[TreeProcess, ...], made: tuple[TaskIdentity, ...]) -> None:
    """Set again what CRIU lost of a tree that is stopped, and compare all of it with what was frozen.

    Args:
        frozen: its processes, as they were.
        made: who they are now, in the same order.

    Raises:
        TreeChanged: it is not the same; the text says in what.
        TargetGone: one of them has ended.
        RightsMissing: something may not be looked at, or not be set.
    """
    differences: list[str] = []
    for was, now in zip(frozen, made, strict=True):
        if was.traits is None:
            continue
        try:
            differences += _proved(was, was.traits, now)
        except (*GONE, ProcessGone) as error:
            raise TargetGone(f"process {now.pid} ended before it was let run") from error
        except PermissionError as error:
            raise RightsMissing(f"process {now.pid} may not be compared with what was frozen: {error}") from error
        if not lives(now):
            raise TargetGone(f"process {now.pid} ended before it was let run")
    if differences:
        more = f"; and {len(differences) - MAX_SAID} more" if len(differences) > MAX_SAID else ""
        raise TreeChanged(f"it came back otherwise than it was: {'; '.join(differences[:MAX_SAID])}{more}")


def _proved(was: TreeProcess, wanted: Traits, now: TaskIdentity) -> Iterator[str]:
    marked = bool(wanted.flagged)  # nothing that comes back is, until we do it
    found = _read(now.pid, marked=marked)
    trouble: list[str] = []
    if _differs(wanted, found):
        for step in _steps(now.pid, wanted, found):
            try:
                step()
            except (NotCallable, OSError) as error:
                if isinstance(error, TargetGone | ProcessGone | PermissionError | FileNotFoundError):
                    raise
                trouble.append(error.strerror or str(error))
        found = _read(now.pid, marked=marked)
    why = f" ({trouble[0]})" if trouble else ""
    for each in _differences(wanted, found):
        yield f"process {now.pid} ({was.name}) {each}{why}"


def _read(pid: int, *, marked: bool) -> Traits:
    return capture(pid, Descriptors(closely=True).look(read_stat(pid)), marked=marked)


def _differs(wanted: Traits, found: Traits) -> bool:
    return next(_differences(wanted, found), None) is not None


def _differences(wanted: Traits, found: Traits) -> Iterator[str]:
    """Say in what one differs from the other, one sentence for each."""
    if wanted.threads != found.threads:
        yield f"has {len(found.threads) + 1} threads, or others than the {len(wanted.threads) + 1} that it had"
    else:
        for number, before, after in _threads(wanted, found):
            which = f"in thread {number} " if number else ""
            for name, title in _THREAD_NAMES:
                one, other = getattr(before, name), getattr(after, name)
                if one != other and not (name == "cpus" and _within(other, one)):
                    yield f"{which}has {title} {other}, and had {one}"
            if freer(before.speculation, after.speculation):
                yield f"{which}has a processor guess what it must not"
    if wanted.personality != found.personality:
        yield f"has personality {found.personality:08x}, and had {wanted.personality:08x}"
    if wanted.dump_filter != found.dump_filter:
        yield f"has coredump filter {found.dump_filter:x}, and had {wanted.dump_filter:x}"
    if wanted.placed != found.placed:
        yield "has memory with another NUMA policy than it had"
    if any(each not in found.flagged for each in wanted.flagged):
        yield "has memory that is not sealed, or locked otherwise than it was"
    missing = [lock for lock in wanted.locks if lock not in found.locks]
    more = [lock for lock in found.locks if lock not in wanted.locks]
    if missing:
        yield f"lacks a lock that it had: {_said(missing[0])}"
    if more:
        yield f"has a lock that it did not have: {_said(more[0])}"
    kept = dict(found.kept)
    for name, text in wanted.kept:
        if kept.get(name, text) != text:
            way = _RAISE if name.startswith("Max ") else ""
            yield f"has {name} {kept[name]!r}, and had {text!r}{way}"


_RAISE: Final = ": raise that limit of who thaws it (ulimit), or give it CAP_SYS_RESOURCE"


_THREAD_NAMES: Final = (
    ("cpus", "processors"),
    ("io_priority", "I/O priority"),
    ("timer_slack_ns", "timer slack"),
    ("memory_policy", "NUMA policy"),
    ("flags", "flags for broken memory"),
)


def _said(lock: FileLock) -> str:
    end = "its end" if lock.end < 0 else lock.end
    return f"{lock.kind} {lock.mode} on descriptor {lock.descriptor}, from {lock.start} to {end}"


def _threads(wanted: Traits, found: Traits) -> Iterator[tuple[int, ThreadTraits, ThreadTraits]]:
    yield 0, wanted.first, found.first
    before, after = dict(wanted.odd_threads), dict(found.odd_threads)
    for number in wanted.threads:
        yield number, before.get(number, wanted.first), after.get(number, found.first)


def cpus_of(text: str) -> frozenset[int]:
    """Read a list of processors or nodes, such as ``0-3,8``."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first:
            found += range(int(first), int(last or first) + 1)
    return frozenset(found)


def _within(found: str, wanted: str) -> bool:
    """Whether a thread may run on nothing but what it might before: a machine may have fewer processors by now."""
    return bool(found) and cpus_of(found) <= cpus_of(wanted)


def freer(wanted: Sequence[tuple[str, str]], found: Sequence[tuple[str, str]]) -> list[tuple[int, int]]:
    """Return what a processor may guess for a thread, and might not: numbers of the kernel's for which, and for how.

    Args:
        wanted: lines of its status, as they were.
        found: as they are. Another machine may be safe in another way, or in none.
    """
    now = dict(found)
    return [
        (SPECULATION.index(name), _SAFER[text]) for name, text in wanted if text in _SAFER and now.get(name) in _FREER
    ]


def _steps(pid: int, wanted: Traits, found: Traits) -> Iterator[Callable[[], object]]:
    """Yield what has to be done for a process to have what is wanted, step by step."""
    numbers = _numbers(pid)
    if wanted.threads == found.threads:
        for number, before, after in _threads(wanted, found):
            thread = numbers.get(number, pid) if number else pid
            yield from _thread_steps(pid, thread, before, after)
            if wanted.personality != found.personality:
                yield _call(pid, thread, _PERSONALITY, wanted.personality)
    if wanted.dump_filter != found.dump_filter:
        yield _write(pid, "coredump_filter", f"0x{wanted.dump_filter:x}")
    for each in wanted.placed:
        if each not in found.placed:
            yield _place(pid, *each)
    for lock in wanted.locks:
        if lock.kind == "POSIX" and lock not in found.locks:
            yield _lock(pid, lock)
    if (dict(wanted.kept).get("THP_enabled"), dict(found.kept).get("THP_enabled")) == ("1", "0"):
        # CRIU asks whether they are off, which they were but for memory that is advised, and puts them off.
        yield _call(pid, pid, _PRCTL, _SET_HUGE_PAGES_OFF, 1, _BUT_FOR_ADVISED, 0, 0)
    for area in sorted(wanted.flagged, key=lambda each: each.flag):  # what is sealed last
        if area not in found.flagged:
            size = area.end - area.begin
            call = (_MSEAL, area.begin, size, 0) if area.flag == "sl" else (_MLOCK2, area.begin, size, _ON_FAULT)
            yield _call(pid, pid, *call)


def _numbers(pid: int) -> dict[int, int]:
    """Return the numbers that everybody sees of threads by those that they have in images."""
    found = {}
    for name in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208  # names are all that is wanted
        inner = parse_status(read_process_file(pid, f"task/{name}/status")).inner_pid
        found[inner or int(name)] = int(name)
    return found


def _thread_steps(pid: int, thread: int, wanted: ThreadTraits, found: ThreadTraits) -> Iterator[Callable[[], object]]:
    if wanted.cpus != found.cpus:
        yield lambda: os.sched_setaffinity(thread, cpus_of(wanted.cpus))
    if wanted.io_priority != found.io_priority:
        yield lambda: _set_io_priority(thread, wanted.io_priority)
    if wanted.timer_slack_ns != found.timer_slack_ns:
        yield _write(thread, "timerslack_ns", str(wanted.timer_slack_ns))
    if wanted.flags != found.flags:
        own, early = (int(bool(wanted.flags & bit)) for bit in (ASKED_FOR_ITSELF, EARLY))
        yield _call(pid, thread, _PRCTL, _SET_MEMORY_FAILURE, own, early, 0, 0)
    for which, how in freer(wanted.speculation, found.speculation):
        yield _call(pid, thread, _PRCTL, _SET_SPECULATION, which, how, 0, 0)
    if wanted.memory_policy != found.memory_policy:
        mode, nodes = policy_of(wanted.memory_policy)
        mask = _mask(nodes)
        if nodes:
            yield _call(pid, thread, _SET_MEMPOLICY, mode, HERE, _MASK_BITS, memory=mask)
        else:
            yield _call(pid, thread, _SET_MEMPOLICY, mode, 0, 0)


def policy_of(text: str) -> tuple[int, frozenset[int]]:
    """Read a NUMA policy as ``numa_maps`` names it: its mode and flags as a number, and its nodes.

    Raises:
        NotCallable: this version does not know it.
    """
    match = _POLICY.fullmatch(text)
    mode = _POLICIES.get(match["mode"]) if match else None
    if match is None or mode is None:
        raise NotCallable(errno.EINVAL, f"NUMA policy {text!r} is not known")
    for flag in (match["flags"] or "").split("|"):
        mode |= _POLICY_FLAGS.get(flag, 0)
    return mode, cpus_of(match["nodes"] or "")


def _mask(nodes: frozenset[int]) -> bytes:
    return sum(1 << node for node in nodes).to_bytes(_MASK_BITS // 8, "little")


def _set_io_priority(thread: int, value: int) -> None:
    number = IOPRIO[platform.machine()][1]
    if ctypes.CDLL(None, use_errno=True).syscall(number, IOPRIO_WHO_PROCESS, thread, value) < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _write(number: int, name: str, text: str) -> Callable[[], object]:
    return lambda: Path(f"/proc/{number}/{name}").write_text(text, encoding="ascii")


def _call(pid: int, thread: int, call: int, *arguments: object, memory: bytes = b"") -> Callable[[], object]:
    def made() -> None:
        with calling(pid, thread) as caller:
            caller(call, *arguments, memory=memory)

    return made


def _place(pid: int, begin: int, end: int, policy: str) -> Callable[[], object]:
    def made() -> None:
        mode, nodes = policy_of(policy)
        with calling(pid, pid) as caller:
            caller(_MBIND, begin, end - begin, mode, HERE if nodes else 0, _MASK_BITS, 0, memory=_mask(nodes))

    return made


def _lock(pid: int, lock: FileLock) -> Callable[[], object]:
    def made() -> None:
        kind = fcntl.F_WRLCK if lock.mode == "WRITE" else fcntl.F_RDLCK
        length = 0 if lock.end < 0 else lock.end - lock.start + 1
        data = struct.pack("hhqqi4x", kind, os.SEEK_SET, lock.start, length, 0)
        with calling(pid, pid) as caller:
            try:
                caller(_FCNTL, lock.descriptor, fcntl.F_SETLK, HERE, memory=data)
            except (BlockingIOError, PermissionError) as error:
                raise OSError(error.errno, "somebody else has that lock by now") from error

    return made


def forget_continued(parent: TaskIdentity) -> None:
    """Have a stopped parent hear nothing of its children having been stopped, and let run before it.

    The kernel tells that whoever waits for it, as job control may, and by a signal: ``script`` stops itself at that.
    Where it cannot be taken back, it is told.
    """
    with contextlib.suppress(OSError, TargetGone, ProcessGone, RightsMissing):
        if read_stat(parent.pid).state != "T" or platform.machine() not in CALLABLE:
            return
        children = [each for each in children_of(parent.pid) if read_stat(each).state != "T"]
        if not children:
            return
        with calling(parent.pid, parent.pid) as caller:
            for child in children:
                number = parse_status(read_process_file(child, "status")).inner_pid or child
                with contextlib.suppress(ChildProcessError):
                    caller(_WAITID, os.P_PID, number, 0, os.WCONTINUED | os.WNOHANG, 0)
            _forget_stop(caller)


def _forget_stop(caller: CallingThread) -> None:
    """Take the signal off a parent's queue that tells of a child that was stopped or let run; leave any other there."""
    memory = struct.pack("Q", 1 << signal.SIGCHLD - 1) + bytes(_SIGINFO_BYTES) + bytes(16)  # which, what, no time
    with contextlib.suppress(BlockingIOError):  # there is none
        caller(_RT_SIGTIMEDWAIT, HERE, Here(8), Here(8 + _SIGINFO_BYTES), 8, memory=memory)
        found = caller.left[8 : 8 + _SIGINFO_BYTES]
        (code,) = struct.unpack_from("i", found, 8)
        if code not in (os.CLD_STOPPED, os.CLD_CONTINUED):
            caller(_RT_SIGQUEUEINFO, caller(_GETPID), signal.SIGCHLD, HERE, memory=found)
