"""Values of what is true of a process beside who it is: what stands in the way of a freeze, and what a thaw gives back.

Traits are read when a tree is held, stand in its manifest, and are compared with what came back before that is let run.
"""

from __future__ import annotations

import enum

import attrs


class Obstacle(enum.Enum):
    """What makes a process one that cannot be frozen, or not without an option."""

    IO_URING = "io_uring"
    """It holds an io_uring: CRIU cannot dump one."""
    TERMINAL = "terminal"
    """It has a terminal whose other side is outside of the tree: ``shell_job`` is needed, and the terminal at the thaw
    is another one."""
    LEADER = "leader"
    """It leads the session of such a terminal: it would come back without it."""
    NO_LEADER = "no_leader"
    """It is the first of its tree, and leads no session: ``shell_job`` is needed."""
    TCP = "tcp"
    """It has an established connection: ``tcp_established`` or ``tcp_close`` is needed."""
    TRACED = "traced"
    """A debugger traces it, or another CRIU."""
    KERNEL = "kernel"
    """It is a thread of the kernel."""
    NAMESPACE = "namespace"
    """It is the first process of its PID namespace: only its container's runtime brings it back."""
    ELSEWHERE = "elsewhere"
    """It is in a PID namespace that iriscw did not make for it: only its container's runtime brings it back."""
    OURS = "ours"
    """It is the process that freezes, or one above it."""
    DEVICE = "device"
    """It holds a device that cannot be dumped, and it is no GPU."""
    PAGES = "pages"
    """A lazy thaw still brings its pages: what is missing would be empty in the images."""
    MOUNTS = "mounts"
    """It is in another mount namespace than who freezes it: CRIU takes that for a container, and cannot restore it."""
    CHILDREN = "children"
    """Its children are to be in other namespaces than itself: CRIU brings it back without that."""
    PIPE = "pipe"
    """It shares a pipe or FIFO with a living process outside of its tree: a thaw would cut that."""
    SHARED = "shared"
    """It shares memory, a socket, an open file or the like with a living process outside of its tree: likewise."""
    UNLINKED = "unlinked"
    """It has a file open whose name was removed, and another name of it is left."""
    DEATH_SIGNAL = "death_signal"
    """Its first process is to be signalled when its parent ends: after a thaw that is CRIU, which ends at once."""
    NUMBERED = "numbered"
    """It has a file or folder of ``/proc`` open that is of a process or thread outside of its tree, or of none."""
    THREAD = "thread"
    """One of its threads has descriptors, folders or a namespace of its own: it would come back with the others'."""
    SCHEDULING = "scheduling"
    """A thread has a scheduling policy that CRIU does not bring back: the tree would never be thawed."""
    SEMAPHORE = "semaphore"
    """It has an eventfd that counts as a semaphore: CRIU brings it back as one that gives all at once."""
    MAPPED_LOCKS = "mapped_locks"
    """It holds POSIX locks on a mapped file: CRIU loses them, and nothing sets them again on this architecture."""


@attrs.frozen
class Hindrance:
    """An obstacle, where it stands, and one sentence about it."""

    obstacle: Obstacle
    pid: int
    text: str


@attrs.frozen
class ThreadTraits:
    """What CRIU does not bring back of a thread. It is set again after a thaw."""

    cpus: str = ""
    """The processors that it may run on, as ``Cpus_allowed_list`` of its status: ``0-3,8``."""
    io_priority: int = 0
    """As ``ioprio_get`` gives it."""
    timer_slack_ns: int = 0
    memory_policy: str = "default"
    """On which NUMA nodes its new memory lies, as ``numa_maps`` names it: ``bind:0-1``."""
    flags: int = 0
    """Those of its ``stat`` that say what is to happen at broken memory (``PR_MCE_KILL``)."""
    speculation: tuple[tuple[str, str], ...] = ()
    """What a processor may guess for it (``PR_SET_SPECULATION_CTRL``): lines of its status."""


@attrs.frozen
class FileLock:
    """One lock that a process holds on a file, as ``/proc/<pid>/fdinfo`` has it."""

    descriptor: int
    kind: str
    """``POSIX`` (fcntl), ``OFDLCK`` (of the open file), ``FLOCK`` or ``LEASE``."""
    mode: str
    """``READ`` or ``WRITE``."""
    start: int
    end: int
    """Of its last byte; -1: to the end of the file."""
    path: str = attrs.field(default="", eq=False)
    """Of the file, for a thaw; empty if it has no name. A file that was removed comes back as another one."""
    place: str = attrs.field(default="", eq=False)
    """Its device and inode, as the kernel names them in lists of locks."""
    mapped: bool = False
    """The process has this file mapped as well: CRIU loses its POSIX locks then, and they are taken again."""


@attrs.frozen
class Area:
    """Memory of a process that is marked."""

    begin: int
    end: int
    flag: str
    """As ``VmFlags`` has it: ``sl`` (sealed), or ``lf`` (each page is locked when it is touched)."""


@attrs.frozen
class Traits:
    """What else is true of a process, and has to be so again before it is let run."""

    first: ThreadTraits = ThreadTraits()
    """Of its first thread."""
    threads: tuple[int, ...] = ()
    """The numbers of its other threads, as they are in images, in order."""
    odd_threads: tuple[tuple[int, ThreadTraits], ...] = ()
    """Those of them whose traits are not those of the first, by number."""
    personality: int = 0
    """As ``/proc/<pid>/personality`` has it. CRIU loses it; it is set again."""
    dump_filter: int = 0
    """As ``/proc/<pid>/coredump_filter`` has it; likewise."""
    placed: tuple[tuple[int, int, str], ...] = ()
    """Memory with a NUMA policy of its own: where it begins and ends, and which; likewise."""
    flagged: tuple[Area, ...] = ()
    """By their beginning. CRIU brings them back without these marks; likewise."""
    locks: tuple[FileLock, ...] = ()
    """By descriptor."""
    layout: tuple[int, ...] = ()
    """Where its program, stack and data begin: chosen at random whenever a program is executed. Empty if it is not."""
    kept: tuple[tuple[str, str], ...] = ()
    """What CRIU brings back by itself: a name (a line of its status, a limit), and its text. Compared after a thaw."""


@attrs.frozen
class OpenFile:
    """A file with a name that a tree has open, as it was."""

    path: str
    pid: int
    """Of a process that has it open: for people."""
    device: int
    inode: int
    size_bytes: int
    changed_ns: int
    """When its content was changed last, as the file system says it."""
    appended: bool = False
    """It is only ever written to at its end, or only read: it may grow, or another file may have its name by then."""
    guarded: bool = False
    """A process that writes to it holds locks, on this file or others: nobody else may have changed it."""


@attrs.frozen
class Holder:
    """A process outside of a tree that has what the tree had."""

    what: str
    """The path of a file."""
    pid: int
    """0: it is not seen from here."""
    name: str

    @property
    def who(self) -> str:
        """Give it for a sentence."""
        if not self.pid:
            return "a process that is not seen from here"
        return f"process {self.pid} ({self.name})" if self.name else f"process {self.pid}"


# The folder of an attempt


@attrs.frozen
class CarriedFolder:
    """The folder of an attempt that is a part of its checkpoint."""

    path: str
    """Absolute, with no link in it: where the images look for it."""
    checkpoint: str
    user: int
    """The number of the user to whom it belongs."""
    files: int = 0
    size_bytes: int = 0
    """What all of its files take, without their holes."""

    def has(self, path: str) -> bool:
        """Whether a file is carried."""
        return path.startswith(f"{self.path}/")


class FolderStanding(enum.Enum):
    """What is in the place of a folder that is carried."""

    ABSENT = "absent"
    SAME = "same"
    """The folder that was packed, or a copy of that."""
    LEFT = "left"
    """Another state of it, which is nobody's."""
    KEPT = "kept"
    """Somebody's."""


@attrs.frozen
class FolderSight:
    """What a look at the place of a folder found."""

    standing: FolderStanding
    trouble: str = ""
    """Why nothing can be put there; empty if it can."""
    free_bytes: int = 0
