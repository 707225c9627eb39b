"""What a freeze and a thaw ask of the world, as values: put them into ``Run``.

Each is carried out by :class:`~iriscw.freeze.drivers.desk.Desk` through the ports; its errors are those of the methods
it calls. All may be cancelled, and end what they began before they let the cancellation pass.

=============== =============================================================== ====================
value           what is done                                                    ``Completed.value``
=============== =============================================================== ====================
Look            what the machine, the tree, CRIU, CUDA and the tier are         Seen
Reserve         Artifacts.reserve                                               Room
Quiesce         Hooks.quiesce                                                   None
Wake            Hooks.wake                                                      None
LockCuda        Cuda.lock, each                                                 None
CheckpointCuda  Cuda.checkpoint, each                                           None
RestoreCuda     Cuda.restore, each                                              None
UnlockCuda      Cuda.unlock, each                                               None
Dump            Criu.dump, then Processes.tree and Cuda.tasks of what is held   Dumped
Release         HeldTree.resume; Criu.sweep where this life holds nothing       None
EndTree         HeldTree.end or Processes.end                                   those that live
ReadStates      Processes.living, Cuda.state of each that lives                 States
Seal            AttemptFolders.pack where one is carried, then Artifacts.seal   Sealed
Publish         Artifacts.publish                                               None
Discard         Artifacts.discard                                               None
Open            Artifacts.pin, and a look at what this machine is               Opened
Verify          Artifacts.verify, or Artifacts.verify_but_pages                 None
Restore         AttemptFolders.place where one is carried, then Criu.restore    RestoreReport
Prove           Processes.prove, then Artifacts.came_back                       what differs: a text
Confirm         Hooks.confirm                                                   None
AwaitPages      Criu.paging                                                     None
Sweep           Criu.sweep                                                      tasks that were killed
Proceed         AttemptFolders.granted and Processes.vouched, Processes.proceed None
LeaveFolder     AttemptFolders.leave                                            None
Unpin           Artifacts.unpin                                                 whether it is there
=============== =============================================================== ====================
"""

from __future__ import annotations

from iriscw.freeze.model import (
    CriuAbility,
    CudaAbility,
    CudaState,
    CudaTask,
    DumpReport,
    DumpRequest,
    FreeMemory,
    FrozenTree,
    Hook,
    ImageHost,
    Kept,
    Met,
    NvmlGpu,
    OperationEnding,
    Outcome,
    ProcessTree,
    RestoreRequest,
    SweepRequest,
    TaskIdentity,
    TreeProcess,
)
from iriscw.freeze.traits import CarriedFolder, FolderSight, OpenFile
from iriscw.runtime.vocabulary import message


@message
class Look:
    """Look at the target and at this machine, before anything is touched."""

    root: TaskIdentity
    tier: str
    within_ns: int
    carried_as: str = ""
    """The artifact that the root's folder is to be a part of; empty: of none."""


@message
class Looked:
    """What a :class:`Look` found."""

    host: ImageHost
    tree: ProcessTree
    criu: CriuAbility
    cuda: CudaAbility
    cuda_tasks: tuple[CudaTask, ...]
    gpus: tuple[NvmlGpu, ...]
    memory: FreeMemory
    promised_bytes: int | None
    """What others may still write into the tier, if it is memory; None if it is a disk."""
    guard: str = ""
    """Where the root is a supervisor of iriscw: the folder of its program."""
    folder: CarriedFolder | None = None
    """That, where it is to be carried."""


@message
class Reserve:
    """Take room for an artifact, and memory for what CUDA will copy into the processes."""

    operation: str
    tier: str
    size_bytes: int
    device_bytes: int = 0
    group: str = ""
    """The control group of the processes."""


@message
class Quiesce:
    """Bring the application to rest."""

    hook: Hook
    root: TaskIdentity


@message
class Wake:
    """Tell the application to go on."""

    hook: Hook
    root: TaskIdentity
    tries: int = 0


@message
class LockCuda:
    """Lock all, one after the other in the order given, each within its own time."""

    tasks: tuple[TaskIdentity, ...]
    within_ns: int


@message
class CheckpointCuda:
    """Checkpoint all, one after the other in the order given."""

    operation: str
    tasks: tuple[TaskIdentity, ...]
    within_ns: int


@message
class RestoreCuda:
    """Restore all, one after the other in the order given."""

    tasks: tuple[TaskIdentity, ...]
    within_ns: int
    gpus: tuple[tuple[str, str], ...] = ()
    """Every GPU that was used, with the one it comes to; none if all come to the same ones."""
    reading: int = 0
    """Which reading of the states this follows: see :mod:`iriscw.freeze.settling`."""


@message
class UnlockCuda:
    """Unlock all, one after the other in the order given."""

    tasks: tuple[TaskIdentity, ...]
    within_ns: int
    reading: int = 0


@message
class Dump:
    """Write the images, and hold the tree."""

    request: DumpRequest
    ends: bool = True
    """Whether the tree stays held until the images are sealed. One that is to run on waits for nothing but CRIU, and
    for its folder if that is carried."""
    carried: CarriedFolder | None = None
    """The folder that is packed before the tree runs on; None: none, or it is packed when the images are sealed."""


@message
class Dumped:
    """A tree that is held, as it is in the images."""

    report: DumpReport
    tree: ProcessTree
    cuda_tasks: tuple[CudaTask, ...]
    folder: CarriedFolder | None = None
    """As it was packed, if it was."""


@message
class Release:
    """Let the tree of a dump run: the one this life holds, or the one that an earlier life left with CRIU."""

    sweep: SweepRequest
    tries: int = 0


@message
class EndTree:
    """Kill tasks, and wait until they have ended."""

    operation: str
    tasks: tuple[TaskIdentity, ...]
    within_ns: int
    tries: int = 0
    thawed: bool = False
    """Whether a thaw made them: then what they forked is killed, too, although whoever forked it has ended."""
    given_up: bool = False
    """Whether it is killed even if somebody has let it run on meanwhile; else that is an error, and nothing is done."""


@message
class ReadStates:
    """Read who lives, and the CUDA state of those among ``cuda``."""

    tasks: tuple[TaskIdentity, ...]
    cuda: tuple[TaskIdentity, ...]
    within_ns: int
    reading: int = 0
    """How many readings there were before this one."""


@message
class States:
    """What :class:`ReadStates` found. A state that the driver does not tell is None."""

    living: tuple[TaskIdentity, ...]
    cuda: tuple[tuple[TaskIdentity, CudaState | None], ...]


@message
class Seal:
    """Pack the folder that is carried, if one is and it is not packed yet; give every byte a digest, and write all to
    the disk.
    """

    operation: str
    frozen: FrozenTree
    labels: tuple[tuple[str, str], ...]
    images: str = ""
    """Where they are."""
    most_bytes: int = 0
    """What they may take with the folder."""
    packed: bool = False
    """Whether the folder is among them already: the tree runs, and changes it."""


@message
class Publish:
    """Make the artifact visible."""

    operation: str
    tries: int = 0


@message
class Discard:
    """Remove all that the operation wrote, and return what it had reserved."""

    operation: str
    tries: int = 0


@message
class OpenArtifact:
    """Pin an artifact, read its manifest and look at this machine. Nothing is touched."""

    artifact: str
    operation: str
    within_ns: int


@message
class Opened:
    """What :class:`OpenArtifact` found."""

    kept: Kept
    host: ImageHost
    criu: CriuAbility
    cuda: CudaAbility
    gpus: tuple[NvmlGpu, ...]
    taken: tuple[int, ...]
    """Numbers of the artifact's tasks, as they are in its images, that somebody has now."""
    living: tuple[TaskIdentity, ...]
    """Tasks of the artifact's source that still live, and those that were thawed from it."""
    free_memory_bytes: int
    """Where the tree will land."""
    ticks: int
    namespaces: tuple[tuple[str, int], ...] = ()
    """Those of who thaws it."""
    files: tuple[OpenFile | None, ...] = ()
    """The files that it has open as they are now, in the order in which they were frozen; None: it is not there."""
    met: Met = Met()
    folder: FolderSight | None = None
    """What is in the place of the folder that is carried; None if none is."""


@message
class Verify:
    """Read every byte of an artifact and compare; with ``lazy`` not those of its pages."""

    artifact: str
    lazy: bool = False


@message
class Restore:
    """Bring the tree back, stopped."""

    request: RestoreRequest
    size_bytes: int
    """The memory that it will take."""
    group: str
    """The control group where it lands; empty: ours."""
    carried: CarriedFolder | None = None
    """What has to be in its place before."""


@message
class Prove:
    """Set again what CRIU lost of a tree that is back and stopped, compare it with what was frozen, and write down
    beside the artifact who came back. Nothing of it has run.
    """

    operation: str
    artifact: str
    frozen: tuple[TreeProcess, ...]
    tasks: tuple[TaskIdentity, ...]
    returned: tuple[TaskIdentity, ...]
    """Who came back from it before."""
    force: bool = False
    """Whether what differs is told, and no error."""


@message
class Confirm:
    """Ask whom the user named whether the tree that runs is what it was."""

    hook: Hook
    root: TaskIdentity


@message
class AwaitPages:
    """Wait until all pages of a tree are there."""

    operation: str
    work: str
    within_ns: int
    tries: int = 0


@message
class SweepRestore:
    """End what a restore of unknown outcome left."""

    request: SweepRequest
    tries: int = 0


@message
class Proceed:
    """Let stopped tasks run. With a ``guard``, the first of them alone until it vouches for the rest."""

    tasks: tuple[TaskIdentity, ...]
    tries: int = 0
    guard: str = ""
    tree: tuple[TaskIdentity, ...] = ()
    """With a guard: all tasks of the tree, those that stay stopped included."""
    below: bool = False
    """All but the first of the tasks; that one is only made ready."""
    carried: bool = False
    """Whether the guard's folder came with the artifact: then somebody is about to put a grant into it."""


@message
class LeaveFolder:
    """Decide what stays in the place of a folder that is carried, at the end of a thaw."""

    carried: CarriedFolder
    operation: str
    outcome: Outcome
    ending: OperationEnding | None = None
    """As :class:`Unpin` has it."""
    tries: int = 0


@message
class Unpin:
    """Let an artifact be removed again, at the end of an operation."""

    artifact: str
    operation: str
    ending: OperationEnding | None = None
    """How the operation ends then; None: as its records say."""
    tries: int = 0
