"""Reading a tree of processes from ``/proc``: who is below whom, and what stands in the way of freezing them.

A tree changes while it is read. So the walk is repeated until two passes after each other found the same processes;
what is forked meanwhile is found by the next pass, what ends meanwhile is left out.

The kernel lists the children of each thread, so a tree is read without a look at the rest of the machine. That list may
leave one out while others of it end. Of a tree that CRIU holds it is exact, and before that two passes have to agree;
but whoever *kills* looks at all processes of the machine (:func:`with_all_below`, :func:`descendants`), which misses
none that is there all the time.

Everything here blocks, for about a hundred microseconds a process of the tree, and twenty a process of the machine
where all are looked at.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from iriscw.freeze.drivers.identities import to_task
from iriscw.freeze.drivers.paging.notes import PAGER_NAME
from iriscw.freeze.drivers.processes.calling import CALLABLE
from iriscw.freeze.drivers.processes.descriptors import Descriptors
from iriscw.freeze.drivers.processes.outside import programs
from iriscw.freeze.drivers.processes.threads import threads_apart
from iriscw.freeze.drivers.processes.traits import mappings, other_for_children, read_traits, shared_memory
from iriscw.freeze.model import (
    MAX_TASKS,
    ProcessTree,
    RightsMissing,
    TargetGone,
    TargetUnfit,
    TaskIdentity,
    TreeProcess,
)
from iriscw.freeze.proc_text import (
    IO_URING_WAY_OUT,
    Mapping,
    ProcStatus,
    StatTail,
    parse_stat_tail,
    parse_status,
    waits_for_pages,
)
from iriscw.freeze.traits import Hindrance, Obstacle
from iriscw.processes.identity import (
    ProcessGone,
    ProcessIdentity,
    ProcessStat,
    boot_id,
    parse_stat,
    read_process_file,
    read_stat,
)

MAX_PASSES: Final = 20
"""Over a tree that does not hold still. A server that forks for each request changes every few milliseconds."""

_GONE = (FileNotFoundError, ProcessLookupError)


def read_text(pid: int, name: str) -> str:
    """Read a file of ``/proc/<pid>``.

    Raises:
        FileNotFoundError, ProcessLookupError: there is no such process any more.
        PermissionError: it may not be read.
    """
    return read_process_file(pid, name)


def below(root: int) -> list[ProcessStat]:
    """List a process and all below it, parents before their children; zombies are left out. One pass over ``/proc``.

    Raises:
        ProcessGone: there is no such process.
    """
    found = [read_stat(root)]
    children: dict[int, list[ProcessStat]] = {}
    for each in all_stats():
        children.setdefault(each.parent_pid, []).append(each)
    at = 0
    while at < len(found):
        found += children.get(found[at].pid, ())
        at += 1
    return [each for each in found if not each.ended]


def all_stats() -> Iterator[ProcessStat]:
    """Read all processes of the machine, zombies too; what ends meanwhile is left out."""
    for pid in _numbers():
        try:
            yield parse_stat(read_text(pid, "stat"))
        except _GONE:
            continue


def _numbers() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]  # noqa: PTH208  # a thousand paths


def listed_below(root: int) -> list[ProcessStat]:
    """List what :func:`below` does by the kernel's lists of children: exact if nothing of it ends meanwhile.

    Raises:
        ProcessGone: there is no such process.
    """
    if not _lists_children():
        return below(root)
    found = [read_stat(root)]
    for each in found:  # it grows
        for child in children_of(each.pid):
            with contextlib.suppress(ProcessGone):
                stat = read_stat(child)
                if stat.parent_pid == each.pid:  # else the number means another one by now, or its parent ended
                    found.append(stat)
    return [each for each in found if not each.ended]


@functools.cache
def _lists_children() -> bool:
    """Whether this kernel does: CRIU cannot work without, but it may be missing where there is no CRIU."""
    return Path("/proc/thread-self/children").exists()


def children_of(pid: int) -> Iterator[int]:
    """Yield the numbers of a process's children, each of which is a child of the thread that forked it."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208  # likewise
    except _GONE:
        return
    for thread in threads:
        with contextlib.suppress(*_GONE):
            yield from map(int, read_text(pid, f"task/{thread}/children").split())


def sessions_and_groups() -> frozenset[int]:
    """Return the numbers of all sessions and process groups: the kernel gives none of them to a new process.

    A daemon that its session's first process left behind keeps that number from coming back, though nobody has it.
    """
    return frozenset(number for each in all_stats() for number in (each.session_id, each.group_id))


def in_session(number: int) -> tuple[TaskIdentity, ...]:
    """Return the processes of a session that live."""
    return tuple(identity_of(each) for each in all_stats() if each.session_id == number and not each.ended)


def process_of(number: int) -> int:
    """Return the process whose thread has this number, which is its own for its first one; 0 if nobody has it.

    Threads are in no listing of ``/proc``, but each has its files there.
    """
    try:
        lines = read_text(number, "status").splitlines()
    except _GONE:
        return 0
    return next(int(line.removeprefix("Tgid:")) for line in lines if line.startswith("Tgid:"))


def running_threads(pid: int) -> tuple[int, ...]:
    """Return the threads that go on in a process whose first thread has ended.

    None if it is a plain zombie, or gone.
    """
    try:
        if not read_stat(pid).ended:
            return ()
        numbers = [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]
    except (ProcessGone, *_GONE):
        return ()
    found = []
    for number in numbers:
        with contextlib.suppress(*_GONE):
            if not parse_stat(read_text(pid, f"task/{number}/stat")).ended:
                found.append(number)
    return tuple(found)


def identity_of(each: ProcessStat) -> TaskIdentity:
    """Return the identity of a process that was read."""
    return to_task(ProcessIdentity(each.pid, each.start_ticks, boot_id()))


def descendants(root: int) -> tuple[TaskIdentity, ...]:
    """Return those below a process, without itself; none if it has ended."""
    try:
        return tuple(identity_of(each) for each in below(root) if each.pid != root)
    except ProcessGone:
        return ()


def held_below(root: int) -> tuple[TaskIdentity, ...]:
    """Return those below a process, without itself, where somebody holds all of them, so that one pass is exact."""
    try:
        return tuple(identity_of(each) for each in listed_below(root) if each.pid != root)
    except ProcessGone:
        return ()


def ancestors(task: TaskIdentity) -> tuple[TaskIdentity, ...]:
    """Return those above a process, the nearest first; none if it has ended.

    Where one of them ends while it is being read, the process has another parent by then: it is read again.
    """
    for _ in range(MAX_PASSES):
        found: list[TaskIdentity] = []
        try:
            here = read_stat(task.pid)
        except ProcessGone:
            return ()
        if identity_of(here) != task:
            return ()
        with contextlib.suppress(ProcessGone):
            while here.parent_pid > 0:
                here = read_stat(here.parent_pid)
                found.append(identity_of(here))
            return tuple(found)
    return tuple(found)


def with_all_below(tasks: Sequence[TaskIdentity], heirs: Sequence[TaskIdentity] = ()) -> tuple[TaskIdentity, ...]:
    """Return those of the processes that live, and all that live below them, parents first. One pass over ``/proc``.

    A number that means another process by now leads nowhere. If none of them runs on there is nothing to look for.
    With ``heirs``, also :func:`came_of` them, and what lives below that.
    """
    if not heirs and not any(_runs_on(task) for task in tasks):
        return ()
    stats: dict[int, ProcessStat] = {}
    children: dict[int, list[ProcessStat]] = {}
    for each in all_stats():
        stats[each.pid] = each
        children.setdefault(each.parent_pid, []).append(each)
    found: dict[TaskIdentity, None] = {}
    for task in (*tasks, *came_of(heirs, stats)):
        here = stats.get(task.pid)
        line = [here] if here is not None and identity_of(here) == task else []
        for each in line:  # it grows
            if identity_of(each) not in found:
                found[identity_of(each)] = None
                line += children.get(each.pid, ())
    return tuple(task for task in found if not stats[task.pid].ended)


def came_of(tasks: Sequence[TaskIdentity], stats: dict[int, ProcessStat]) -> tuple[TaskIdentity, ...]:
    """Return the processes in a session or process group that one of them leads, or led, and that began after it.

    Whoever forks passes both on, so whose child one is by now does not matter. The kernel gives a number to nobody else
    as long as a session or a group is called so: where another one has it, theirs is over.
    """
    began = {task.pid: task.start_ticks for task in tasks if task.boot_id == boot_id()}
    found = []
    for each in stats.values():
        for number in (each.session_id, each.group_id):
            leader = stats.get(number)
            reused = leader is not None and leader.start_ticks != began.get(number)
            if number in began and not reused and each.start_ticks >= began[number]:
                found.append(identity_of(each))
                break
    return tuple(found)


def _runs_on(task: TaskIdentity) -> bool:
    """Whether any thread of this very process does: its first one may be a zombie, and the others fork."""
    try:
        each = read_stat(task.pid)
        if not each.ended or identity_of(each) != task:
            return identity_of(each) == task
        return len(os.listdir(f"/proc/{task.pid}/task")) > 1  # noqa: PTH208  # names are all that is wanted
    except (ProcessGone, *_GONE):
        return False


def writers_of(file: Path, started_after: int) -> tuple[TaskIdentity, ...]:
    """Return those who have this very file open for writing, with all below them; we ourselves are none of them.

    Only who is not older than ``started_after`` (clock ticks since boot) is looked at. None if the file is not there.
    """
    try:
        meant = file.stat()
    except OSError:
        return ()
    found: dict[TaskIdentity, None] = {}
    for each in all_stats():
        if each.start_ticks < started_after or each.ended or each.pid == os.getpid():
            continue
        if _writes_to(each.pid, (meant.st_dev, meant.st_ino)):
            with contextlib.suppress(ProcessGone):
                later = [one for one in below(each.pid) if one.start_ticks >= started_after]
                found.update(dict.fromkeys(identity_of(one) for one in later))
    return tuple(found)


def _writes_to(pid: int, meant: tuple[int, int]) -> bool:
    """Whether a process has a descriptor of this file with which it may write."""
    try:
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(*_GONE):
                if path.lstat().st_mode & stat.S_IWUSR and (path.stat().st_dev, path.stat().st_ino) == meant:
                    return True
    except (*_GONE, PermissionError):
        return False
    return False


def members(root: TaskIdentity) -> dict[TaskIdentity, bool]:
    """Return the processes of a tree, and whether each is stopped, in one pass.

    Raises:
        TargetGone: the root has ended.
        TargetUnfit: the tree is too large.
    """
    return {identity_of(each): each.state == "T" for each in _members(root)}


def held_tree(root: TaskIdentity) -> tuple[TaskIdentity, ...]:
    """Return the processes of a tree that somebody holds, so that one pass is exact; parents before their children.

    Raises:
        TargetGone: the root has ended.
        TargetUnfit: the tree is too large.
    """
    return tuple(identity_of(each) for each in _members(root))


def _members(root: TaskIdentity) -> list[ProcessStat]:
    try:
        stats = listed_below(root.pid)
    except ProcessGone as error:
        raise TargetGone(str(error)) from error
    if not stats or identity_of(stats[0]) != root:
        raise TargetGone(f"process {root.pid} has ended")
    if len(stats) > MAX_TASKS:
        raise TargetUnfit(f"below process {root.pid} are {len(stats)} processes; {MAX_TASKS} is the most")
    return stats


def read_tree(root: TaskIdentity, *, closely: bool = False) -> ProcessTree:
    """Read the tree below a process; closely: with the traits of each process, and the files that they have open.

    Raises:
        TargetGone: the root has ended.
        TargetUnfit: the tree is too large, or never holds still.
        RightsMissing: it may not be looked at.
    """
    before: list[TaskIdentity] = []
    for _ in range(MAX_PASSES):
        stats = _members(root)
        identities = [identity_of(each) for each in stats]
        if identities == before:
            try:
                return _looked_at(stats, closely=closely)
            except _GONE:  # one has ended just now
                before = []
                continue
            except PermissionError as error:
                raise RightsMissing(f"the processes below {root.pid} may not be looked at: {error}") from error
        before = identities
    raise TargetUnfit(f"the tree below process {root.pid} does not hold still: processes come and go all the time")


def _looked_at(stats: list[ProcessStat], *, closely: bool) -> ProcessTree:
    tasks: list[TreeProcess] = []
    hindrances: list[Hindrance] = []
    ours = own_line()
    lazily = PAGER_NAME in _names()  # it is asked before the rest is read: a pager ends at any time
    descriptors = Descriptors(closely)
    shared: dict[tuple[int, int], int] = {}
    for each in stats:
        status = parse_status(read_text(each.pid, "status"))
        tail = parse_stat_tail(read_text(each.pid, "stat"))
        hindrances += _of_status(each, status, tail, ours)
        descriptors.controlled(each, tail.terminal)
        locks = descriptors.look(each)
        mapped = mappings(each.pid)
        shared |= shared_memory(each.pid, mapped)
        descriptors.outside.map(each, mapped)
        hindrances += _of_namespaces_and_rings(each, mapped)
        if closely:
            hindrances += threads_apart(each)
        traits = read_traits(each.pid, status, tail, locks) if closely else None
        if traits is not None and platform.machine() not in CALLABLE and any(lock.mapped for lock in traits.locks):
            hindrances.append(_mapped_locks(each))
        tasks.append(
            TreeProcess(
                identity=identity_of(each),
                parent_pid=each.parent_pid,
                name=each.name,
                memory_bytes=status.memory_bytes,
                stopped=each.state == "T",
                traced_by=status.traced_by,
                inner_pid=status.inner_pid,
                traits=traits,
            )
        )
        if lazily and _waits_for_pages(each.pid):
            who = f"process {each.pid} ({each.name})"
            hindrances.append(
                Hindrance(Obstacle.PAGES, each.pid, f"{who} waits for pages of a lazy thaw: let that end")
            )
    hindrances += descriptors.hindrances
    hindrances += descriptors.outside_terminals(stats[0])
    hindrances += descriptors.unreadable_terminals()
    hindrances += descriptors.strange_numbers([each.pid for each in stats])
    tracers = {task.traced_by for task in tasks}
    hindrances += descriptors.outside.cut([each.pid for each in stats], tracers)
    return ProcessTree(
        tuple(tasks),
        tuple(hindrances),
        shared_bytes=sum((descriptors.nameless | shared).values()),
        files=tuple(descriptors.files.values()),
    )


def _of_namespaces_and_rings(each: ProcessStat, mapped: Sequence[Mapping]) -> Iterator[Hindrance]:
    who = f"process {each.pid} ({each.name})"
    if any(each.ring for each in mapped):
        yield Hindrance(Obstacle.IO_URING, each.pid, f"{who} has an io_uring mapped ({IO_URING_WAY_OUT})")
    if kind := other_for_children(each.pid):
        text = f"{who} has set another {kind} namespace for its children: start it in there, or freeze it before"
        yield Hindrance(Obstacle.CHILDREN, each.pid, text)


def _mapped_locks(each: ProcessStat) -> Hindrance:
    who = f"process {each.pid} ({each.name})"
    text = f"{who} holds locks on a file that it has mapped: on this architecture they would be lost"
    return Hindrance(Obstacle.MAPPED_LOCKS, each.pid, text)


def _names() -> Iterator[str]:
    """Yield the names of all programs of the machine: a third of the work of reading what else they are."""
    for pid in programs():
        with contextlib.suppress(*_GONE):
            yield read_text(pid, "comm").rstrip("\n")


def _waits_for_pages(pid: int) -> bool:
    """The kernel walks over all pages of a process for this: some milliseconds a gigabyte."""
    with Path(f"/proc/{pid}/smaps").open(encoding="utf-8", errors="surrogateescape") as lines:
        return waits_for_pages(lines)


def own_line() -> tuple[int, ...]:
    """Return this process and all above it."""
    line = [os.getpid()]
    while line[-1] > 1:
        try:
            line.append(read_stat(line[-1]).parent_pid)
        except ProcessGone:
            break
    return tuple(line)


def _of_status(each: ProcessStat, status: ProcStatus, tail: StatTail, ours: tuple[int, ...]) -> list[Hindrance]:
    who = f"process {each.pid} ({each.name})"
    found = []
    if each.pid in ours:
        found.append(Hindrance(Obstacle.OURS, each.pid, f"{who} is the one that freezes, or one above it"))
    if tail.of_the_kernel:
        found.append(Hindrance(Obstacle.KERNEL, each.pid, f"{who} is a thread of the kernel"))
    elif status.first_of_namespace:
        found.append(Hindrance(Obstacle.NAMESPACE, each.pid, f"{who} is the first process of its PID namespace"))
    if status.traced_by:
        found.append(Hindrance(Obstacle.TRACED, each.pid, f"{who} is traced by process {status.traced_by}"))
    return found
