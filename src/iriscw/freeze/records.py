"""The facts that a freeze or a thaw keeps over the death of the process that runs it.

``...Began`` is written before the step it names is taken: what is found after a crash is the last step that *may* have
been taken. No environment variables, memory or secrets of the target are ever among them (INV-C14).
"""

from __future__ import annotations

from iriscw.freeze.model import (
    CudaTask,
    FreezePhase,
    FreezePlan,
    FrozenTree,
    Kept,
    Outcome,
    ProcessTree,
    RestoreRequest,
    Room,
    Sealed,
    TaskIdentity,
    ThawPlan,
)
from iriscw.freeze.traits import CarriedFolder
from iriscw.journal.records import record
from iriscw.runtime.vocabulary import message

# Of a freeze


@record("freeze.freeze_accepted")
@message
class FreezeAccepted:
    """It was asked for, and looks at its target."""

    plan: FreezePlan
    wall_ns: int


@record("freeze.freeze_measured")
@message
class FreezeMeasured:
    """What the target and the machine are; all gates are passed, and room is being reserved."""

    frozen: FrozenTree
    reserved_bytes: int


@record("freeze.freeze_began")
@message
class FreezeBegan:
    """A step is being taken."""

    phase: FreezePhase


@record("freeze.freeze_housed")
@message
class FreezeHoused:
    """There is room for the artifact."""

    room: Room


@record("freeze.freeze_dumped")
@message
class FreezeDumped:
    """The images are written; this is who is in them."""

    tree: ProcessTree
    cuda_tasks: tuple[CudaTask, ...]
    wall_ns: int
    folder: CarriedFolder | None = None
    """The folder that was packed with them, of a tree that runs on."""


@record("freeze.freeze_sealed")
@message
class FreezeSealed:
    """Every byte has its digest."""

    sealed: Sealed


@record("freeze.freeze_undoing")
@message
class FreezeUndoing:
    """It will not come to its end, and why; the target is brought back to running."""

    kind: str
    text: str


@record("freeze.freeze_fate_known")
@message
class FreezeFateKnown:
    """What became of the tree that was to run on: empty if it runs, else why it does not."""

    gone: str


@record("freeze.freeze_unheard")
@message
class FreezeUnheard:
    """The application could not be told to go on, and why."""

    text: str


@record("freeze.freeze_ended")
@message
class FreezeEnded:
    """Nothing is owed any more."""

    outcome: Outcome
    kind: str
    text: str
    wall_ns: int


# Of a thaw


@record("freeze.thaw_accepted")
@message
class ThawAccepted:
    """It was asked for, and looks at the artifact."""

    plan: ThawPlan
    wall_ns: int


@record("freeze.thaw_opened")
@message
class ThawOpened:
    """All gates are passed; this is what comes back, and the machine's time (``Processes.ticks``) then."""

    kept: Kept
    ticks: int
    eager: str = ""
    """Why its pages all come before it runs, although it was asked otherwise."""
    fresh: bool = False
    """It comes back in a PID namespace of its own."""


@record("freeze.thaw_restoring")
@message
class ThawRestoring:
    """CRIU is being started with this request."""

    request: RestoreRequest


@record("freeze.thaw_made")
@message
class ThawMade:
    """The tree is back, and stopped: this is who it is. It is compared with what was frozen before it may run."""

    tasks: tuple[TaskIdentity, ...]


@record("freeze.thaw_restored")
@message
class ThawRestored:
    """The tree is back, and what it was: it is let run."""

    tasks: tuple[TaskIdentity, ...]
    differs: str = ""
    """In what it differs from what was frozen, if that was taken."""


@record("freeze.thaw_ready")
@message
class ThawReady:
    """All but one process was let run, and that one is as it was: from now on what it does would be lost."""

    wall_ns: int


@record("freeze.thaw_confirming")
@message
class ThawConfirming:
    """It runs, with all that it had, and somebody is asked whether it is what it was."""

    wall_ns: int


@record("freeze.thaw_paging")
@message
class ThawPaging:
    """The tree was let run, and pages of it are missing: it cannot go on without who brings them."""

    wall_ns: int


@record("freeze.thaw_taken_up")
@message
class ThawTakenUp:
    """Another life found it while the tree was let run: nobody knows for how long it has run since."""

    wall_ns: int


@record("freeze.thaw_let_go")
@message
class ThawLetGo:
    """All of the tree runs, with CUDA: it is not ours any more. What became of it meanwhile, if it is not whole."""

    note: str


@record("freeze.thaw_unheard")
@message
class ThawUnheard:
    """The application could not be told that it was thawed, and why."""

    text: str


@record("freeze.thaw_ending")
@message
class ThawEnding:
    """It will not come to its end, and why; whatever came back is killed."""

    kind: str
    text: str


@record("freeze.thaw_ended")
@message
class ThawEnded:
    """Nothing is owed any more."""

    outcome: Outcome
    kind: str
    text: str
    wall_ns: int
