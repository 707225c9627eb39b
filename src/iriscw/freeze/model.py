"""Values of freezing and thawing: who is frozen, what the GPU and CRIU say, and how each of them refuses.

Durations are integer nanoseconds, named ``..._ns``; sizes are bytes. Recovery goes by classes of errors (INV-C5, C6).
"""

from __future__ import annotations

import enum

import attrs

from iriscw._errors import OperationError, UsageError
from iriscw.freeze.traits import CarriedFolder, Hindrance, Holder, OpenFile, Traits

MAX_TASKS = 1024
"""Processes of one tree. CRIU itself has no bound; a tree that is larger is a runaway, not a workload."""


@attrs.frozen(order=True)
class TaskIdentity:
    """One process, for ever: its number, ``start_ticks`` (field 22 of its ``stat``) and the boot it runs in.

    The number is that of the namespace in which iriscw runs.
    """

    pid: int
    start_ticks: int
    boot_id: str


@attrs.frozen
class Met:
    """Whom a thaw would meet."""

    heirs: tuple[TaskIdentity, ...] = ()
    """Who came of what was thawed before from the same checkpoint."""
    locks: tuple[Holder, ...] = ()
    """Who holds locks on files that keep out those that the tree held."""
    names: tuple[Holder, ...] = ()
    """Who has Unix sockets by the names of those that the tree had."""
    ports: tuple[Holder, ...] = ()
    """Who has the ports that the tree listened on."""


@attrs.frozen
class TreeProcess:
    """One process of a tree, as it is now."""

    identity: TaskIdentity
    parent_pid: int
    name: str
    memory_bytes: int
    """What a dump of it writes of memory that is its own: private pages, in memory or swapped out."""
    stopped: bool = False
    """It was stopped (SIGSTOP, Ctrl-Z) and must be so again after the operation."""
    traced_by: int = 0
    inner_pid: int = 0
    """Its number in its own PID namespace, where that is not ours: it has the same one after a thaw."""
    traits: Traits | None = None
    """None: nobody looked, as in a manifest of an older iriscw."""

    @property
    def number(self) -> int:
        """Return the number that it has in images."""
        return self.inner_pid or self.identity.pid


@attrs.frozen
class ProcessTree:
    """A process with all below it: parents before their children, the root first."""

    tasks: tuple[TreeProcess, ...]
    hindrances: tuple[Hindrance, ...] = ()
    shared_bytes: int = 0
    """What a dump writes of memory that several may share, and of files without a name: each of them once."""
    files: tuple[OpenFile, ...] = ()
    namespaces: tuple[tuple[str, int], ...] = ()
    """Kinds of namespaces that the root shares with who looked at it, and which: a thaw has to be made from there."""
    group: str = ""
    """The control group that limits the root's memory: see :func:`iriscw.processes.memory.group_of`."""

    @property
    def root(self) -> TaskIdentity:
        """Return the process that was named."""
        return self.tasks[0].identity

    @property
    def identities(self) -> tuple[TaskIdentity, ...]:
        """Return all of them, parents first."""
        return tuple(task.identity for task in self.tasks)

    @property
    def memory_bytes(self) -> int:
        """Return what a dump of it writes of memory."""
        return sum(task.memory_bytes for task in self.tasks) + self.shared_bytes


@attrs.frozen
class ImageHost:
    """What an image depends on of the machine it was made on."""

    boot_id: str
    architecture: str
    """As ``uname -m`` says it."""
    page_size: int
    kernel: str
    """As ``uname -r`` says it."""
    node: str
    cpu_features: tuple[str, ...] = ()
    """The flags of ``/proc/cpuinfo``, sorted: code of a process may have chosen by any of them."""


@attrs.frozen
class FreeMemory:
    """What can be had without swapping, when a process is frozen: images count against us, device memory against it.

    A control group may limit us, or the process, or both: one that both are in, or one that is above those of both.
    """

    machine_bytes: int
    ours_bytes: int | None = None
    """What the groups leave that limit who freezes, and not the process; None without a limit."""
    its_bytes: int | None = None
    """What the groups leave that limit the process, and not who freezes it; likewise."""
    both_bytes: int | None = None
    """What the groups leave that limit both; likewise."""


class CudaState(enum.Enum):
    """The state of one process as the driver tells it."""

    RUNNING = "running"
    LOCKED = "locked"
    CHECKPOINTED = "checkpointed"
    FAILED = "failed"
    """Terminal: nothing brings it back (CUDA says so)."""
    UNKNOWN = "unknown"
    """One that iriscw does not know: a newer driver has more. CUDA 13.4 names two, CHECKPOINTING and RESTORING: another
    program copies the memory of the process, and has not said that it is done. It is none of the above."""


@attrs.frozen
class CudaAbility:
    """What the driver of this machine can do, as probed and not as read off its version."""

    available: bool
    driver_version: str = ""
    """Such as ``580.105.08``."""
    interface: str = ""
    """``api``, ``binary`` or ``stand-in``."""
    can_map_gpus: bool = False
    """Whether a restore may name other GPUs (from 580 on)."""
    reason: str = ""
    """If not available: one sentence that says why, and how to get it."""


@attrs.frozen
class CudaTask:
    """A process that has a CUDA context."""

    identity: TaskIdentity
    state: CudaState
    restore_thread: int
    """The thread that must run during a restore."""
    device_bytes: int
    """What it holds on GPUs now, at most: see ``held``. 0 when it is checkpointed."""
    gpus: tuple[str, ...] = ()
    """The UUIDs of the GPUs it holds memory on."""
    held: tuple[tuple[str, int], ...] = ()
    """What it holds of each of them: where NVML does not tell, all that is used of that GPU, which is an upper bound.
    Empty in what an older iriscw wrote down: it kept the sum alone."""

    @property
    def by_gpu(self) -> dict[str, int]:
        """Return what it holds of each GPU, at most. Where only the sum is known, all of it may be on any of them."""
        told = dict(self.held)
        return {uuid: told.get(uuid, self.device_bytes) for uuid in dict.fromkeys((*self.gpus, *told))}


@attrs.frozen
class NvmlGpu:
    """One GPU as NVML shows it."""

    uuid: str
    model: str
    index: int
    total_bytes: int
    used_bytes: int

    @property
    def free_bytes(self) -> int:
        """Return what nobody uses."""
        return max(0, self.total_bytes - self.used_bytes)


# CRIU.


@attrs.frozen
class CriuAbility:
    """What the CRIU of this machine is and can, as ``criu check`` says."""

    path: str
    version: str
    """Such as ``4.2``."""
    git_id: str = ""
    features: tuple[str, ...] = ()
    """Names as ``criu check --feature`` knows them, sorted."""


@attrs.frozen
class CriuOptions:
    """How a tree is dumped. A thaw uses the same: they are facts of the image, not settings."""

    tcp_established: bool = False
    """Established TCP connections are kept: their peers are held off meanwhile."""
    tcp_close: bool = False
    """They are given up: what had one finds it closed after a thaw, and its peer when the tree ends. Not together with
    ``tcp_established``."""
    shell_job: bool = False
    file_locks: bool = True
    external_unix_sockets: bool = False
    """For containers, whose runtime asks for it."""
    link_remap: bool = False
    """Likewise. CRIU gives an open file whose name was removed a new name beside the old one, and leaves it there."""
    ghost_limit_bytes: int = (1 << 32) - 1
    """Files without a name that are open are kept in the image, up to this size each: the most that CRIU can be told.
    What is reserved bounds them all."""


@attrs.frozen
class Container:
    """A container whose state is its runtime's: the runtime calls CRIU, and iriscw decides what becomes of it."""

    container_id: str
    root: str
    """Where its runtime keeps state: what ``runc --root`` is given. Absolute."""
    cgroups_mode: str = ""
    """``--manage-cgroups-mode``; empty: the runtime's own."""
    empty_namespaces: tuple[str, ...] = ()
    """``--empty-ns``: namespaces that come back without what was in them."""


@attrs.frozen
class DumpRequest:
    """Write the images of a tree."""

    operation: str
    root: TaskIdentity
    images: str
    """An empty folder, absolute: CRIU's own files go here, and nothing else."""
    work: str
    """A folder for logs, statistics and sockets, absolute. It is not part of the artifact."""
    options: CriuOptions
    within_ns: int
    container: Container | None = None
    """It is done through this container's runtime; None: the tree is one of processes alone."""
    most_bytes: int = 0
    """What may be written: beyond that it is broken off. 0: no bound."""


@attrs.frozen
class DumpReport:
    """What CRIU said of a dump (``stats-dump``); what it did not say is 0."""

    freezing_us: int = 0
    frozen_us: int = 0
    memory_dump_us: int = 0
    memory_write_us: int = 0
    pages_scanned: int = 0
    pages_written: int = 0


@attrs.frozen
class RestoreRequest:
    """Bring a tree back from its images. Every byte of them was verified (INV-C9)."""

    operation: str
    images: str
    work: str
    options: CriuOptions
    pids: tuple[int, ...]
    """The numbers the tasks have in the images: the root's first."""
    started_after: int
    """Clock ticks since boot when this was decided: no task of this restore is older (for the sweep)."""
    within_ns: int
    new_pid_namespace: bool = False
    """Restore into a PID namespace that is made for it, with a mount namespace that has its ``/proc``."""
    container: Container | None = None
    """Its runtime restores it; the numbers are new then, and ``inner_pids`` say who is who."""
    inner_pids: tuple[int, ...] = ()
    """What the tasks are called in their own PID namespace, in the order of ``pids``."""
    lazy: bool = False
    """Bring its pages while it runs (see :class:`LazyPages`)."""
    paging_ns: int = 0
    """For its pages, from the moment in which it is back."""


@attrs.frozen
class PageFile:
    """A file of memory's pages: its name, its size, and the digests of its pieces, of 32 bytes each, in order."""

    name: str
    size_bytes: int
    digests: bytes


@attrs.frozen
class LazyPages:
    """Files of pages of which nobody has read a byte yet: each piece is compared before anything of it is given out."""

    algorithm: str
    """How the digests are made, as the manifest names it."""
    piece_bytes: int
    files: tuple[PageFile, ...]


@attrs.frozen
class SweepRequest:
    """End what an earlier life of ours left running of one operation."""

    operation: str
    work: str
    pids: tuple[int, ...] = ()
    """The numbers of a restore's tasks; none for a dump."""
    started_after: int = 0
    within_ns: int = 30_000_000_000
    container: Container | None = None


@attrs.frozen
class RestoreReport:
    """A tree that was brought back and is stopped; numbers as seen from here, the root first."""

    tasks: tuple[TaskIdentity, ...]
    forking_us: int = 0
    restore_us: int = 0
    pages_restored: int = 0


# What is frozen, and how.


class HookKind(enum.Enum):
    """How an application is told to come to rest."""

    EXEC = "exec"
    """A program is run with ``freeze`` or ``thaw`` as its last argument; 0 is yes."""
    HTTP = "http"
    """A POST to the address with ``/freeze`` or ``/thaw`` after it; any 2xx is yes."""
    FILES = "files"
    """``freeze-requested`` is put into the folder; the application puts ``ready-to-freeze`` there when it rests, and
    goes on when ``thawed`` appears."""


@attrs.frozen
class Hook:
    """Who brings the application to rest before it is frozen, and tells it afterwards."""

    kind: HookKind
    target: tuple[str, ...]
    """The program and its arguments; or the address, or the folder, alone."""
    within_ns: int = 30_000_000_000


@attrs.frozen
class FreezePlan:
    """One freeze, as it was asked for. The artifact has the operation's id."""

    operation: str
    root: TaskIdentity
    tier: str
    """The name of the tier that the artifact is written to."""
    leave_running: bool = False
    force: bool = False
    """Go on when the application did not come to rest."""
    options: CriuOptions = CriuOptions()
    hook: Hook | None = None
    lock_within_ns: int = 60_000_000_000
    labels: tuple[tuple[str, str], ...] = ()
    guard: str = ""
    """Where the root is a supervisor of iriscw: the folder of its program, absolute. Empty: it is looked for."""
    carries_folder: bool = False
    """That folder becomes a part of the artifact: of a tree that runs on, as it was when that was dumped. Not for a
    container."""
    container: Container | None = None
    """The root is the first process of this container, and its runtime dumps it."""


class Numbers(enum.Enum):
    """Which process numbers a tree gets when it is thawed."""

    SAME = "same"
    """Those that it had, where anybody sees them; if one is taken, it is not thawed."""
    AUTO = "auto"
    """Those that it had; if one is taken, in a PID namespace of its own."""
    FRESH = "fresh"
    """In a PID namespace of its own: it sees the numbers that it had, everybody else sees others."""


@attrs.frozen
class ThawPlan:
    """One thaw, as it was asked for."""

    operation: str
    artifact: str
    gpus: tuple[tuple[str, str], ...] = ()
    """For each GPU the artifact was frozen on the one it comes to; none: the same."""
    force: bool = False
    """Thaw although the processor lacks features that the old one had."""
    container: Container | None = None
    """Its runtime asked for it, and restores it as this container."""
    tier: str = ""
    """Where the artifact lies, if others with its id may lie elsewhere; empty: wherever it is found."""
    lazy: bool = False
    """Let it run before all of its memory was read, where that can be."""
    numbers: Numbers = Numbers.SAME
    clone: bool = False
    """Make one more of a tree that lives: the frozen one, or one that was thawed from the same artifact."""
    verify: Hook | None = None
    """Who is asked, once the tree runs, whether it is what it was; if the answer is no, it is ended. EXEC or HTTP."""
    terminal: bool = False
    """Who thaws it is in the foreground of a terminal, and stays there as its parent."""
    unused_gpus: bool = False
    """Whether the map may name GPUs that nothing of the artifact was on."""


@attrs.frozen
class Room:
    """Where an operation writes: absolute folders that are there, empty, and only ours."""

    images: str
    work: str


@attrs.frozen
class FrozenTree:
    """What is true of a frozen tree for ever: what a thaw has to find again. It stands in the manifest."""

    host: ImageHost
    criu: CriuAbility
    options: CriuOptions
    tasks: tuple[TreeProcess, ...]
    cuda_driver: str = ""
    cuda_tasks: tuple[CudaTask, ...] = ()
    """As they were before the lock, with what each held of which GPU."""
    gpus: tuple[NvmlGpu, ...] = ()
    """All GPUs of the machine, so that a map can be checked."""
    hook: Hook | None = None
    guard: str = ""
    """Of a supervisor of iriscw: at a thaw it is let run alone, until it says in this folder that the rest may."""
    left_running: bool = False
    frozen_wall_ns: int = 0
    container: Container | None = None
    """What it was a container of, if its runtime dumped it: only a runtime brings it back."""
    files: tuple[OpenFile, ...] = ()
    namespaces: tuple[tuple[str, int], ...] = ()
    group: str = ""
    """See :class:`ProcessTree`, for the namespaces, too."""
    carried: CarriedFolder | None = None
    """The guard's folder, where that is a part of the artifact."""

    @property
    def used_gpus(self) -> tuple[str, ...]:
        """Return the UUIDs of the GPUs that its processes held memory on, each once."""
        return tuple(dict.fromkeys(uuid for task in self.cuda_tasks for uuid in task.by_gpu))

    @property
    def device_bytes(self) -> int:
        """Return what has to fit on GPUs again."""
        return sum(task.device_bytes for task in self.cuda_tasks)


@attrs.frozen
class Sealed:
    """An artifact whose every byte has a digest."""

    size_bytes: int
    digest: str
    files: int


class FreezePhase(enum.Enum):
    """Which step of a freeze may have been taken: see :mod:`iriscw.freeze.freezing`."""

    NEW = "new"
    LOOKING = "looking"
    RESERVING = "reserving"
    QUIESCING = "quiescing"
    LOCKING = "locking"
    CHECKPOINTING = "checkpointing"
    DUMPING = "dumping"
    SEALING = "sealing"
    PUBLISHING = "publishing"
    ENDING = "ending"
    RESUMING = "resuming"
    UNDOING = "undoing"
    OVER = "over"


class ThawPhase(enum.Enum):
    """Which step of a thaw may have been taken: see :mod:`iriscw.freeze.thawing`."""

    NEW = "new"
    OPENING = "opening"
    VERIFYING = "verifying"
    RESTORING = "restoring"
    PROVING = "proving"
    STARTING = "starting"
    PAGING = "paging"
    CONFIRMING = "confirming"
    LEAVING = "leaving"
    KILLING = "killing"
    OVER = "over"


class Outcome(enum.Enum):
    """How an operation ended."""

    FROZEN = "frozen"
    """The artifact is whole and visible; nothing of the tree runs."""
    COPIED = "copied"
    """The artifact is whole and visible; the tree runs on. Of a move: it lies in both places."""
    UNDONE = "undone"
    """There is no artifact; the tree runs as before."""
    LOST = "lost"
    """There is no artifact and the tree is gone, or could not be let run: the text says which."""
    THAWED = "thawed"
    """The tree runs again."""
    FAILED = "failed"
    """Nothing of the tree runs here; the artifact is as it was."""
    LEFT = "left"
    """Tasks are left that could not be killed, or must not be: the text names them."""
    MOVED = "moved"
    """The artifact lies in another tier, whole and verified, and no more in the one where it lay."""
    STAYED = "stayed"
    """The artifact was not moved; it lies where it lay."""


@attrs.frozen
class OperationEnding:
    """How an operation is about to end, while it clears away what nobody needs afterwards."""

    outcome: Outcome
    kind: str = ""
    """The class of the error that turned it round; empty if none did."""
    text: str = ""


@attrs.frozen
class Kept:
    """A published artifact: what is in it, where it lies, and how large it is."""

    frozen: FrozenTree
    room: Room
    sealed: Sealed
    by_pieces: bool = False
    """Whether every piece of its pages has a digest of its own, so that one can be compared without the others."""
    returned: tuple[TaskIdentity, ...] = ()
    """Who came back from it so far, of every thaw whose tree may still live."""


@attrs.frozen
class Progress:
    """How far a step is: bytes done, of how many (0: not known)."""

    phase: str
    done_bytes: int
    total_bytes: int = 0


# Errors. What is certain afterwards stands in each docstring.


class TargetGone(OperationError, LookupError):
    """A process that was meant has ended; its number may belong to another one by now. Nothing was touched."""


class TargetUnfit(OperationError):
    """The tree cannot be frozen as it is; the text says what stands in the way. Nothing was touched."""


class RightsMissing(OperationError):
    """The kernel does not let this user do it; the text says which right is missing. Nothing was touched."""


class CriuMissing(OperationError):
    """There is no CRIU; the text says where it was looked for and how to get one. Nothing was touched."""


class CriuUnfit(OperationError):
    """The CRIU that is there does not work on this kernel, or is too old. Nothing was touched."""


class CriuFailed(OperationError):
    """CRIU said no, and the text is what its log says.

    After a dump the tree is as it was before; after a restore nothing of the tree is left.
    """


class CriuOverdue(CriuFailed):
    """CRIU did not come to an end within its deadline and was killed. What is certain is as after a refusal."""

    retryable = True


class NoRoom(OperationError):
    """The disk or the memory file system is full, or the budget of the tier is used up. The text says which."""

    retryable = True


class PagingFailed(OperationError):
    """Pages of a tree that ran could not be brought to it, and the text says why.

    It was ended: without them it cannot go on. Its checkpoint is as it was; what the tree did since is lost.
    """


class TreeLeft(OperationError):
    """After a restore that failed, some tasks could not be killed within the time for that: they are named."""


class CudaMissing(OperationError):
    """There is no NVIDIA driver that can checkpoint, or no right to call it. Nothing was touched."""


class CudaRefused(OperationError):
    """The driver answered with an error. The state of the process must be read before anything else is done."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code  # CUDA's number: 304 operating system, 401 illegal state, 801 not supported


class CudaNoMemory(CudaRefused):
    """The GPU has too little free memory. After a restore that failed so the process can only be killed."""


class CudaOverdue(OperationError):
    """The driver did not answer within the deadline; the program that called it was killed.

    Whether it happened is unknown: the state must be read, and may not be readable for a while.
    """

    retryable = True


class TreeChanged(OperationError):
    """A tree that was brought back is not what was frozen; the text says in what. It has not run."""


class HookFailed(OperationError):
    """The application did not come to rest, or did not say so in time."""

    retryable = True


class VerifyFailed(OperationError):
    """Whoever was asked about a tree that was brought back said no, or nothing in time. The tree was ended."""

    retryable = True


class GuardRefused(OperationError):
    """The first process of a tree that was brought back did not say that the rest may run: none of that has run."""


class GuardUntold(OperationError):
    """The first process of a tree that was brought back cannot be told so now: none of the rest has run meanwhile."""


class ArtifactUnknown(UsageError, LookupError):
    """There is certainly no artifact with this id here."""


class ArtifactRefused(OperationError):
    """An artifact is not what its manifest says, or its manifest is not one of ours; the text names what is wrong.

    It was not used. It stays where it is, for people to look at.
    """


class ArtifactInUse(OperationError):
    """An operation of a living process uses the artifact."""

    retryable = True


class GateRefused(OperationError):
    """Something is not as it has to be, and the text says what. Nothing was touched. ``gate`` names the check."""

    def __init__(self, text: str, gate: str = "") -> None:
        super().__init__(text)
        self.gate = gate


class UnsafeRequest(UsageError, ValueError):
    """A request names a folder that is not absolute, a deadline that is not positive, or no process."""
