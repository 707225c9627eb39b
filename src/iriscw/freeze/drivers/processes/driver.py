"""The processes of this machine behind the port ``iriscw.freeze.ports.Processes``: by ``/proc`` and pidfds."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import anyio.to_thread
import attrs

from iriscw.freeze.drivers.identities import Watched, identify_task, lives, open_task, to_process
from iriscw.freeze.drivers.namespace import space
from iriscw.freeze.drivers.processes import promises
from iriscw.freeze.drivers.processes.meeting import meet
from iriscw.freeze.drivers.processes.proving import forget_continued, prove
from iriscw.freeze.drivers.processes.reading import (
    members,
    process_of,
    read_text,
    read_tree,
    running_threads,
    sessions_and_groups,
    with_all_below,
)
from iriscw.freeze.drivers.processes.traits import namespaces
from iriscw.freeze.model import (
    FreeMemory,
    FrozenTree,
    GuardRefused,
    GuardUntold,
    ImageHost,
    Met,
    NoRoom,
    ProcessTree,
    RightsMissing,
    TargetGone,
    TargetUnfit,
    TaskIdentity,
    TreeProcess,
)
from iriscw.freeze.proc_text import parse_stat_tail, parse_status
from iriscw.freeze.traits import Hindrance, Obstacle, OpenFile
from iriscw.processes.identity import ProcessGone, boot_id, read_stat
from iriscw.processes.memory import GROUPS, free_bytes, group_free_bytes, group_of, limits_on, machine_free_bytes
from iriscw.processes.names import SocketNameTaken, hold
from iriscw.processes.status import StatusDamaged, read_identity, write_thawed

_CPUINFO = Path("/proc/cpuinfo")

REAP_PATIENCE_S = 2.0
"""What the parent of a process that ended gets to reap it: init does so at once, a shell with its next prompt."""

CATCH_ROUNDS = 20
"""Over a tree that forks while it is being stopped: each round stops all that the one before had forked."""

STOP_PATIENCE_S = 10.0
"""A busy machine lets a process wait for seconds before it hears that it is to stop."""
KERNEL_PATIENCE_S = 1.0
"""For those that wait in the kernel where no signal reaches them: some do for a moment, others for a dead disk."""
STOP_LOOK_S = 0.001
"""Between two looks at whether all are stopped: nobody is told of that but a parent, and a tracer."""

GUARD_LOOK_S = 0.005
"""Between two looks at what a supervisor that came back writes down: the folder may be a mount of another machine's."""

RUN_PATIENCE_S = 1.0
"""For all processes that were let run to get a processor. A busy machine may keep them waiting for longer."""
FIRST_RUN_LOOK_S = 0.0002
RUN_LOOK_S = 0.005

REAP_LOOK_S = 0.01
"""Between two looks: nobody is told when a zombie is reaped, unless it is the parent."""


class KernelProcesses:
    """The processes of this machine."""

    def __init__(self) -> None:
        self._promised: dict[str, socket.socket] = {}
        """What operations of ours are about to take, by operation: the names that say so."""

    async def host(self) -> ImageHost:
        """Say what machine this is."""
        return await anyio.to_thread.run_sync(_host)

    async def identify(self, pid: int) -> TaskIdentity:
        """Say who has this number now (see the port)."""
        if (process := process_of(pid)) not in (0, pid):
            raise TargetUnfit(f"{pid} is a thread of process {process}: name the process, which is frozen as a whole")
        try:
            return identify_task(pid)
        except TargetGone:
            if others := running_threads(pid):
                gone = f"the first thread of process {pid} has ended, and {len(others)} others go on"
                raise TargetUnfit(f"{gone}: CRIU cannot freeze that") from None
            raise

    async def tree(self, root: TaskIdentity, *, closely: bool = False) -> ProcessTree:
        """Read the tree below a process (see the port)."""
        return await anyio.to_thread.run_sync(_tree, root, closely)

    async def members(self, root: TaskIdentity) -> Mapping[TaskIdentity, bool]:
        """Return the processes of a tree, and whether each is stopped (see the port)."""
        return await anyio.to_thread.run_sync(members, root)

    async def living(self, tasks: Sequence[TaskIdentity]) -> tuple[TaskIdentity, ...]:
        """Return those that live (see the port)."""
        return tuple(task for task in tasks if lives_on(task))

    async def taken(self, pids: Sequence[int]) -> tuple[int, ...]:
        """Return those numbers that somebody has (see the port), after a wait for zombies to be reaped."""
        with anyio.move_on_after(REAP_PATIENCE_S):
            while any(_is_zombie(pid) for pid in pids):  # noqa: ASYNC110 - no event comes of a reaping
                await anyio.sleep(REAP_LOOK_S)
        led = await anyio.to_thread.run_sync(sessions_and_groups)
        return tuple(pid for pid in pids if _is_taken(pid) or pid in led)

    async def ticks(self) -> int:
        """Return the clock ticks since boot."""
        hertz = os.sysconf("SC_CLK_TCK")
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) * hertz // 1_000_000_000

    async def free_memory_bytes(self, group: str = "") -> int:
        """Return the memory that can be had without swapping: the machine's, or what is left of a group's."""
        return await anyio.to_thread.run_sync(_free_in, group) if group else await anyio.to_thread.run_sync(free_bytes)

    async def promise_memory(self, operation: str, size_bytes: int, group: str, besides_bytes: int = 0) -> int:
        """Say what an operation is about to take, and give what is left for it (see the port)."""
        self.memory_taken(operation)
        group = group or group_of()
        try:
            self._promised[operation] = hold(promises.named(operation, size_bytes, group))
        except (SocketNameTaken, OSError) as error:
            raise NoRoom(f"nobody can be told how much memory {operation} is about to take: {error}") from error
        return await anyio.to_thread.run_sync(_left, operation, group, besides_bytes)

    def memory_taken(self, operation: str) -> None:
        """Take that back (see the port)."""
        held = self._promised.pop(operation, None)
        if held is not None:
            held.close()

    async def namespaces(self) -> tuple[tuple[str, int], ...]:
        """Return the namespaces of this process."""
        return tuple((await anyio.to_thread.run_sync(namespaces, "self")).items())

    async def files(self, opened: Sequence[OpenFile]) -> tuple[OpenFile | None, ...]:
        """Look at files by their names (see the port)."""
        return await anyio.to_thread.run_sync(_files, opened)

    async def meet(self, frozen: FrozenTree, images: str, returned: Sequence[TaskIdentity]) -> Met:
        """Look for those whom a thaw would meet (see the port)."""
        return await anyio.to_thread.run_sync(meet, frozen, Path(images), returned)

    async def prove(self, frozen: Sequence[TreeProcess], made: Sequence[TaskIdentity]) -> None:
        """Set again what CRIU loses, and compare (see the port)."""
        await anyio.to_thread.run_sync(prove, tuple(frozen), tuple(made))

    async def free_memory(self, task: TaskIdentity) -> FreeMemory:
        """Return what is left to us and to another process (see the port)."""
        return await anyio.to_thread.run_sync(_free_memory, task)

    async def proceed(self, tasks: Sequence[TaskIdentity], *, below: bool = False) -> None:
        """Let stopped processes run (see the port)."""
        ran: dict[TaskIdentity, str] = {}
        for task in reversed(tasks):
            if below:
                await anyio.to_thread.run_sync(forget_continued, task)
                if task == tasks[0]:
                    break
            try:
                descriptor = open_task(task)
            except TargetGone:
                continue
            try:
                if read_stat(task.pid).state == "T":
                    ran[task] = _ran(task)
                    signal.pidfd_send_signal(descriptor, signal.SIGCONT)
            except (ProcessGone, ProcessLookupError):
                continue
            except PermissionError as error:
                raise RightsMissing(f"process {task.pid} may not be signalled") from error
            finally:
                os.close(descriptor)
        pause_s = FIRST_RUN_LOOK_S
        with anyio.move_on_after(RUN_PATIENCE_S):
            while ran := {task: before for task, before in ran.items() if _ran(task) == before and lives(task)}:
                await anyio.sleep(pause_s)  # there is no event
                pause_s = min(2 * pause_s, RUN_LOOK_S)

    async def guard(self, root: TaskIdentity) -> str:
        """Return the folder of its program if it is a supervisor (see the port)."""
        return await anyio.to_thread.run_sync(_guarded, root)

    async def vouched(self, tree: Sequence[TaskIdentity], guard: str, within_ns: int) -> None:
        """Tell the supervisor who came back, let it run, and wait until it has written that down (see the port)."""
        root = tree[0]
        if await anyio.to_thread.run_sync(_vouches, root, Path(guard)):
            return  # in an earlier life of ours, and it may have run since
        try:
            await anyio.to_thread.run_sync(_tell, Path(guard), tree)
        except TargetGone as error:
            raise GuardRefused(f"process {root.pid} came back, and ended before it was told who it is") from error
        except OSError as error:
            raise GuardUntold(f"process {root.pid} cannot be told who came back: {error}") from error
        await self.proceed((root,))
        with anyio.move_on_after(within_ns / 1e9):
            while True:
                lived = lives(root)  # looked at before the file: it may write it and end
                if await anyio.to_thread.run_sync(_vouches, root, Path(guard)):
                    return
                if not lived:
                    raise GuardRefused(f"process {root.pid} came back, found no grant to go on, and ended")
                await anyio.sleep(GUARD_LOOK_S)
        raise GuardRefused(f"process {root.pid} came back, and has not said that the rest may run")

    async def end(
        self, tasks: Sequence[TaskIdentity], within_ns: int, *, heirs: bool = False
    ) -> tuple[TaskIdentity, ...]:
        """Kill processes with all below them, and wait until each has ended (see the port)."""
        return await end_tasks(await _caught(tasks, tasks if heirs else ()), within_ns)


def _tree(root: TaskIdentity, closely: bool) -> ProcessTree:
    tree = read_tree(root, closely=closely)
    first = tree.tasks[0]
    made = space.of(root) if first.inner_pid else None
    found = list(tree.hindrances)
    if first.inner_pid and made is None:
        if not lives(root):
            raise TargetGone(f"process {root.pid} has ended")
        who = f"process {root.pid} ({first.name})"
        text = f"{who} is in a PID namespace that iriscw did not make: freeze it as a container"
        found.append(Hindrance(Obstacle.ELSEWHERE, root.pid, text))
    try:
        ours = namespaces("self")
        place = namespaces(root.pid if made is None else made.pid)
        shared = tuple((kind, number) for kind, number in place.items() if ours.get(kind) == number and kind in _SHARED)
        there = ours if made is None else place  # CRIU runs in the namespace that we made, and its mounts
        found += [
            _other_mounts(task) for task in tree.tasks if namespaces(task.identity.pid).get("mnt") != there.get("mnt")
        ]
    except (FileNotFoundError, ProcessLookupError) as error:
        raise TargetGone(f"a process of the tree below {root.pid} has ended") from error
    except PermissionError as error:
        raise RightsMissing(f"the namespaces of process {root.pid} may not be looked at") from error
    return attrs.evolve(tree, hindrances=tuple(found), namespaces=shared, group=group_of(root.pid))


_SHARED = ("mnt", "net", "ipc", "uts", "user")
"""Namespaces that a tree comes back in which does not have its own: those of who thaws it."""


def _other_mounts(task: TreeProcess) -> Hindrance:
    who = f"process {task.identity.pid} ({task.name})"
    text = (
        f"{who} has mounts of its own (another mount namespace than who freezes it): run the command in there "
        f"(nsenter --target {task.identity.pid} --mount), or freeze it as a container"
    )
    return Hindrance(Obstacle.MOUNTS, task.identity.pid, text)


def _files(opened: Sequence[OpenFile]) -> tuple[OpenFile | None, ...]:
    found: list[OpenFile | None] = []
    for each in opened:
        try:
            seen = Path(each.path).stat()
        except OSError:
            found.append(None)
            continue
        now = attrs.evolve(
            each, device=seen.st_dev, inode=seen.st_ino, size_bytes=seen.st_size, changed_ns=seen.st_mtime_ns
        )
        found.append(now)
    return tuple(found)


def _free_in(group: str) -> int:
    left = group_free_bytes(group)
    return machine_free_bytes() if left is None else min(machine_free_bytes(), left)


def _ran(task: TaskIdentity) -> str:
    """Return for how many nanoseconds a process was on a processor; empty if it has ended, or that is not told."""
    try:
        return read_text(task.pid, "schedstat").split()[0]
    except (OSError, IndexError):
        return ""


def _guarded(root: TaskIdentity) -> str:
    """A supervisor has its errors in the folder of its program, and is named there. Nobody else is both."""
    try:
        folder = Path(f"/proc/{root.pid}/fd/2").readlink().parent
    except OSError:
        return ""
    return str(folder) if folder.is_absolute() and _vouches(root, folder) else ""


def supervised(task: TaskIdentity) -> bool:
    """Whether the parent of a process is a supervisor of iriscw."""
    try:
        parent = identify_task(read_stat(task.pid).parent_pid)
    except (ProcessGone, TargetGone):
        return False
    return bool(_guarded(parent))


def _tell(guard: Path, tree: Sequence[TaskIdentity]) -> None:
    """Tell a supervisor who came back and lives: it sees the numbers of its namespace, everybody else those of ours.

    Raises:
        TargetGone: the supervisor has ended.
        OSError: as the file system says it.
    """
    numbers = {tree[0]: space.number_inside(tree[0])}
    for task in tree[1:]:
        with contextlib.suppress(TargetGone):
            numbers[task] = space.number_inside(task)
    write_thawed(guard, [to_process(task) for task in numbers], list(numbers.values()))


def _vouches(root: TaskIdentity, guard: Path) -> bool:
    try:
        found = read_identity(guard)
    except (StatusDamaged, OSError):
        return False
    return found is not None and found[0] == to_process(root)


async def _caught(tasks: Sequence[TaskIdentity], heirs: Sequence[TaskIdentity]) -> tuple[TaskIdentity, ...]:
    """Stop processes, look for what they have forked meanwhile, stop that, until there is nobody new; kill all of them.

    Who is stopped forks nothing, and stays the parent of what it forked: killed at once, it would leave children that
    nothing leads to any more. Who does not stop in time waits in the kernel, and forks nothing there either: it was
    told, and is not waited for again.
    """
    found: dict[TaskIdentity, None] = dict.fromkeys(tasks)
    new = list(found)
    with anyio.CancelScope(shield=True):  # it is bounded, and stopped they must not stay
        try:
            for _ in range(CATCH_ROUNDS):
                await _stop(new)
                below = await anyio.to_thread.run_sync(with_all_below, tuple(found), heirs)
                new = [task for task in below if task not in found]
                found.update(dict.fromkeys(new))
                if not new:
                    break
        finally:
            doom(tuple(found))
    return tuple(found)


async def _stop(tasks: Sequence[TaskIdentity]) -> None:
    """Tell processes to stop, and wait until they have; less long for those that wait where no signal reaches them."""
    left, in_kernel = list(tasks), dict[TaskIdentity, float]()
    with anyio.move_on_after(STOP_PATIENCE_S):
        while True:
            left = [task for task in left if not _stopped(task)]
            now = anyio.current_time()
            in_kernel = {task: in_kernel.get(task, now) for task in left if _waits_in_kernel(task)}
            if all(now - in_kernel.get(task, now) >= KERNEL_PATIENCE_S for task in left):
                return
            await anyio.sleep(STOP_LOOK_S)  # there is no event


def _stopped(task: TaskIdentity) -> bool:
    """Tell a process to stop; say whether it has, or has ended."""
    try:
        descriptor = open_task(task)
    except TargetGone:
        return True
    try:
        if read_stat(task.pid).state in "Tt":
            return True
        signal.pidfd_send_signal(descriptor, signal.SIGSTOP)
    except (ProcessGone, ProcessLookupError, PermissionError):  # who may not be signalled is told by living on
        return True
    finally:
        os.close(descriptor)
    return False


def _waits_in_kernel(task: TaskIdentity) -> bool:
    """Whether a process waits where only what it waits for can wake it."""
    try:
        return read_stat(task.pid).state == "D"
    except ProcessGone:
        return False


async def end_tasks(tasks: Sequence[TaskIdentity], within_ns: int) -> tuple[TaskIdentity, ...]:
    """Kill processes, wait until each has ended, reap what is ours; give those that still live after this time."""
    watched = Watched(tasks)
    try:
        _kill(watched)
        left = await watched.all_ended(within_ns)
    finally:
        watched.close()
    for task in tasks:
        if task not in left:
            _reap(task.pid)
    return left


def doom(tasks: Sequence[TaskIdentity]) -> None:
    """Kill processes, and do not wait for their end."""
    watched = Watched(tasks)
    try:
        _kill(watched)
    finally:
        watched.close()


def _kill(watched: Watched) -> None:
    for _, descriptor in watched.descriptors:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # who may not be killed is told by living on
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)


def _reap(pid: int) -> None:
    """Reap a zombie that is this process's own child."""
    try:
        each = read_stat(pid)
        if each.ended and each.parent_pid == os.getpid():
            os.waitpid(pid, os.WNOHANG)
    except (ProcessGone, ChildProcessError):
        return


def _is_zombie(pid: int) -> bool:
    """Whether the number is kept by a process that has ended; one of ours is reaped first."""
    _reap(pid)
    try:
        return read_stat(pid).ended
    except ProcessGone:
        return False


def _is_taken(pid: int) -> bool:
    _reap(pid)
    return Path(f"/proc/{pid}").exists()  # a thread's number, too, though no list names it


def lives_on(task: TaskIdentity) -> bool:
    """Whether a process lives and was not killed already: what it was told cannot be taken back."""
    try:
        status = parse_status(read_text(task.pid, "status"))
        tail = parse_stat_tail(read_text(task.pid, "stat"))
    except (FileNotFoundError, ProcessLookupError):
        return False
    return lives(task) and not status.killed and not tail.exiting


def _host() -> ImageHost:
    system = platform.uname()
    try:
        lines = _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features"))), [])
    return ImageHost(
        boot_id=boot_id(),
        architecture=system.machine,
        page_size=os.sysconf("SC_PAGE_SIZE"),
        kernel=system.release,
        node=socket.gethostname(),
        cpu_features=tuple(sorted(flags)),
    )


def _left(operation: str, group: str, besides_bytes: int) -> int:
    limits = {str(place.relative_to(GROUPS)): free for place, free in limits_on(group).items()}
    return promises.left(machine_free_bytes(), limits, promises.of_others(operation), besides_bytes)


def _free_memory(task: TaskIdentity) -> FreeMemory:
    return free_memory_of(machine_free_bytes(), limits_on(group_of()), limits_on(group_of(task.pid)))


def free_memory_of(machine_bytes: int, ours: Mapping[Path, int], its: Mapping[Path, int]) -> FreeMemory:
    """Put together what the machine leaves, and each group with a limit on us and on a process."""
    return FreeMemory(
        machine_bytes=machine_bytes,
        ours_bytes=min((left for place, left in ours.items() if place not in its), default=None),
        its_bytes=min((left for place, left in its.items() if place not in ours), default=None),
        both_bytes=min((left for place, left in its.items() if place in ours), default=None),
    )
