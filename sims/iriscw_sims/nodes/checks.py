"""INV-C and INV-P2 over one simulated machine: what no order of events excuses.

They are fed by what happens: calls of ports as they touch something, records as they become durable, ends. They judge
by the truth, never by what the agent believes; what an operation *said* of its outcome is compared with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from iriscw.freeze.deadlines import DUMP_BYTES_PER_S, PAGING_BYTES_PER_S, RESTORE_BYTES_PER_S
from iriscw.freeze.freezing import TRIES
from iriscw.freeze.model import CudaState, FreezePhase, LazyPages, Outcome, RestoreRequest, TaskIdentity, ThawPhase
from iriscw.freeze.records import (
    FreezeAccepted,
    FreezeBegan,
    FreezeDumped,
    FreezeEnded,
    FreezeMeasured,
    FreezeSealed,
    FreezeUndoing,
    ThawAccepted,
    ThawConfirming,
    ThawEnded,
    ThawEnding,
    ThawLetGo,
    ThawMade,
    ThawOpened,
    ThawPaging,
    ThawReady,
    ThawRestored,
    ThawRestoring,
    ThawTakenUp,
)
from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.nodes import thaw_checks

if TYPE_CHECKING:
    from iriscw_sims.nodes.machine import Machine, Process
    from iriscw_sims.nodes.shelves import Artifact, Shelf

LONGEST_NS = 24 * 3600 * SECOND
"""A deadline that is later than this is none."""

TROUBLE = 5
"""So often the driver failed for a tree that giving it up is no fault of ours: half of the readings there are."""

_NEEDED_TO_END = ("sweep", "resume", "held_end", "end", "proceed", "vouched", "state", "cuda_restore", "unlock")
"""What an operation cannot end its tree without, or say how it is."""

_STEP_OF = {
    "quiesce": FreezePhase.QUIESCING,
    "lock": FreezePhase.LOCKING,
    "checkpoint": FreezePhase.CHECKPOINTING,
    "dump": FreezePhase.DUMPING,
    "seal": FreezePhase.SEALING,
    "publish": FreezePhase.PUBLISHING,
    "held_end": FreezePhase.ENDING,
    "restore": ThawPhase.RESTORING,
    "prove": ThawPhase.PROVING,
    "came_back": ThawPhase.PROVING,
    "proceed": ThawPhase.STARTING,
    "vouched": ThawPhase.STARTING,
    "paging": ThawPhase.STARTING,
    "confirm": ThawPhase.CONFIRMING,
}
"""The step that has to be on the disk before a port is called so."""


@attrs.frozen
class Verified:
    """What an operation has compared: of which artifact, in which life, and whether all but its pages."""

    artifact: str = ""
    life: int = -1
    but_pages: bool = False


@attrs.define(eq=False)
class Watched:
    """One operation, as its durable records say."""

    name: str
    thaws: str = ""
    """The artifact that it thaws; empty for a freeze."""
    tree: str = ""
    root: TaskIdentity | None = None
    boot_id: str = ""
    began_at: int = 0
    steps: list[object] = attrs.field(factory=list)
    leave_running: bool = False
    cuda: tuple[TaskIdentity, ...] = ()
    """Who used CUDA when it was looked at."""
    told: dict[TaskIdentity, CudaState | None] = attrs.field(factory=dict)
    """What the driver said last of each process, None if it did not say."""
    measured: tuple[TaskIdentity, ...] = ()
    dumped: tuple[TaskIdentity, ...] = ()
    restored: tuple[TaskIdentity, ...] = ()
    ready: bool = False
    """Whether the last process of a thaw may run: before, what the others do may be lost."""
    taken_up: bool = False
    ended: object | None = None
    verified: Verified = Verified()
    withdrawn: bool = False
    """Its caller left before it had its target: it never begins."""
    failures: Counter[str] = attrs.field(factory=Counter)
    """Errors that its ports raised, by the method and by the class."""
    killed: list[TaskIdentity] = attrs.field(factory=list)
    given_away: bool = False
    """Its artifact was removed, after it had let it go."""
    unpinned: bool = False
    """It has let its artifact go, as the last thing that it does."""
    root_left: bool = False
    """The tree's first process ended by itself while it ran."""
    left: set[TaskIdentity] = attrs.field(factory=set)
    """All of the tree that did."""

    @property
    def tasks(self) -> tuple[TaskIdentity, ...]:
        """Whose they are while it runs, as far as it is known."""
        return self.restored or self.dumped or self.measured

    @property
    def owed(self) -> bool:
        """Whether it has begun and not ended."""
        return self.ended is None


class Checks:
    """The checks of one machine."""

    def __init__(self, violate: Callable[[str, str], None]) -> None:
        self.violate = violate
        self.operations: dict[str, Watched] = {}
        self.machine: Machine | None = None
        self.given_up: dict[str, str] = {}
        """Trees that were killed or left because CUDA, or a right, left no other way, and by which operation."""
        self.excused: dict[str, None] = {}
        """Operations that ended with something left, and said so."""

    @property
    def _machine(self) -> Machine:
        assert self.machine is not None
        return self.machine

    def of(self, operation: str) -> Watched:
        """Return what is known of an operation."""
        if operation not in self.operations:
            self.operations[operation] = Watched(operation)
        return self.operations[operation]

    # Records

    def durable(self, operation: str, record: Any) -> None:
        """A record of an operation is on the disk."""
        known = self.of(operation)
        match record:
            case FreezeAccepted() | ThawAccepted() if known.withdrawn:
                self.violate("R3", f"operation {operation} begins, and its caller left before it had its target")
            case FreezeAccepted(plan=plan):
                root = self._machine.find(plan.root)
                known.root = plan.root
                known.tree, known.leave_running = (root.tree if root else ""), plan.leave_running
                known.boot_id, known.began_at = plan.root.boot_id, self._machine.ticks
                known.steps.append(FreezePhase.LOOKING)
            case FreezeMeasured(frozen=frozen):
                known.steps.append(FreezePhase.RESERVING)
                known.measured = tuple(task.identity for task in frozen.tasks)
                known.cuda = tuple(task.identity for task in frozen.cuda_tasks)
            case FreezeBegan(phase=phase):
                known.steps.append(phase)
            case FreezeDumped(tree=tree):
                known.dumped = tree.identities
            case FreezeUndoing():
                known.steps.append(FreezePhase.UNDOING)
            case FreezeSealed():
                known.steps.append(record)
            case ThawAccepted(plan=plan):
                artifact = self._machine.hosted.get(plan.artifact)
                known.thaws, known.tree = plan.artifact, artifact.tree if artifact else ""
                known.boot_id, known.began_at = self._machine.boot_id, self._machine.ticks
                known.steps.append(ThawPhase.OPENING)
            case ThawOpened():
                known.steps.append(ThawPhase.VERIFYING)
            case ThawRestoring():
                known.steps.append(ThawPhase.RESTORING)
            case ThawMade(tasks=tasks):
                known.steps.append(ThawPhase.PROVING)
                known.restored = tasks
            case ThawConfirming():
                known.steps.append(ThawPhase.CONFIRMING)
            case ThawRestored(tasks=tasks):
                known.steps.append(ThawPhase.STARTING)
                known.restored = tasks
            case ThawPaging():
                known.steps.append(ThawPhase.PAGING)
            case ThawReady():
                known.ready = True
            case ThawTakenUp():
                known.taken_up = True
            case ThawLetGo():
                known.steps.append(ThawPhase.LEAVING)
            case ThawEnding():
                known.steps.append(ThawPhase.KILLING)
            case FreezeEnded(outcome=outcome, kind=kind, text=text):
                known.ended = record
                self._frozen(known, outcome, kind, text)
            case ThawEnded(outcome=outcome, kind=kind, text=text):
                known.ended = record
                self._thawed(known, outcome, f"{kind}: {text}")

    # What ports do

    def called(self, operation: str, method: str) -> None:
        """A call of a port had its effect, or fails now."""
        step = _STEP_OF.get(method)
        known = self.operations.get(operation)
        if known is not None:
            known.unpinned = known.unpinned or method == "unpin"
        if step is not None and known is not None and step not in known.steps:
            self.violate("R9", f"operation {operation} calls {method} before {step} is on the disk")

    def failed(self, operation: str, method: str, error: Exception) -> None:
        """A port fails for an operation."""
        known = self.of(operation)
        known.failures[method] += 1
        known.failures[type(error).__name__] += 1

    def limited(self, operation: str, method: str, within_ns: int, least_ns: int = 1) -> None:
        """A call has a deadline, and one that grows with what it handles (INV-C2)."""
        if not least_ns <= within_ns <= LONGEST_NS:
            self.violate(
                "C2", f"operation {operation}: {method} gets {within_ns} ns, and at least {least_ns} are needed"
            )

    def touched(self, operation: str, process: Process) -> None:
        """A process is stopped, let run or changed (INV-C3)."""
        known = self.of(operation)
        if known.tree and process.tree != known.tree:
            self.violate("C3", f"operation {operation} touches process {process.pid}, which is {process.tree}'s")

    def driver_called(self, operation: str, method: str, task: TaskIdentity, within_ns: int) -> None:
        """The driver is asked to change a process."""
        machine = self._machine
        self.limited(operation, method, within_ns)
        if task in machine.unknown:
            self.violate("C5", f"operation {operation}: {method} of {task.pid} before its state was read")
        process = machine.find(task)
        if process is None or not process.alive:
            return
        self.touched(operation, process)
        known = self.of(operation)
        peers = [each for each in machine.of(process.tree) if each.identity in (*known.cuda, *known.restored)]
        if method == "checkpoint" and any(each.cuda is CudaState.RUNNING for each in peers):
            self.violate("C4", f"operation {operation}: {task.pid} is checkpointed before all are locked")
        if method == "unlock" and any(each.cuda is CudaState.CHECKPOINTED for each in peers):
            self.violate("C4", f"operation {operation}: {task.pid} is unlocked before all are restored")
        held = {"unlock": CudaState.LOCKED, "cuda_restore": CudaState.CHECKPOINTED}.get(method)
        order = known.cuda or known.restored
        for later in order[order.index(task) + 1 :] if held is not None and task in order else ():
            other = machine.find(later)
            if other is not None and other.alive and other.cuda is held and known.told.get(later) is held:
                text = f"operation {operation}: {method} of {task.pid} before that of {later.pid}"
                self.violate("C4", f"{text}, which was locked after it")

    def told(self, operation: str, task: TaskIdentity, state: CudaState | None) -> None:
        """The driver says the state of a process, or does not."""
        self.of(operation).told[task] = state

    def dump_begins(
        self, operation: str, tree: Sequence[Process], artifact: Artifact, within_ns: int, size_bytes: int
    ) -> None:
        """CRIU begins to write images."""
        self.called(operation, "dump")
        measured = min(size_bytes, artifact.now.reserved)  # nobody knows what a tree has grown by since
        self.limited(operation, "dump", within_ns, measured * SECOND // DUMP_BYTES_PER_S)
        if not artifact.now.reserved:
            self.violate("P2", f"operation {operation} writes images and has reserved nothing")
        for process in tree:
            self.touched(operation, process)
            if process.held:
                self.violate("C3", f"operation {operation} dumps process {process.pid}, which another CRIU holds")
            if process.pager is not None and not process.pager.lost:
                self.violate("C8", f"operation {operation} dumps process {process.pid}, whose pages are still to come")

    def verified(self, operation: str, artifact: str, life: int, *, but_pages: bool = False) -> None:
        """Every byte of an artifact was read and compared, or all but its pages."""
        self.of(operation).verified = Verified(artifact, life, but_pages)

    def restore_begins(
        self, operation: str, artifact: Artifact, request: RestoreRequest, pages: LazyPages | None, life: int
    ) -> None:
        """CRIU gets images."""
        known = self.of(operation)
        self.called(operation, "restore")
        size = artifact.now.images_bytes
        self.limited(operation, "restore", request.within_ns, size * SECOND // RESTORE_BYTES_PER_S)
        if request.lazy:
            self.limited(operation, "its pages", request.paging_ns, size * SECOND // PAGING_BYTES_PER_S)
        for text in thaw_checks.unverified(known, artifact, request, pages, life):
            self.violate("C9", f"operation {operation}: {text}")
        for text in thaw_checks.unfit_gpus(self._machine, known, artifact):
            self.violate("C7", f"operation {operation} is restored: {text}")
        if not artifact.visible:
            self.violate("C8", f"operation {operation} restores what was never published")
        frozen = artifact.facts.tasks if artifact.facts is not None else ()
        source = [each for each in (self._machine.find(task.identity) for task in frozen) if each and each.alive]
        back = [each for each in self._machine.of(artifact.tree) if each.made_by in self._thaws_of(artifact)]
        copies = [each for each in back if not each.forked]  # nobody knows whose child an orphan was
        if source or copies:
            self.violate("P1", f"operation {operation} restores a tree that lives")

    def _thaws_of(self, artifact: Artifact) -> list[str]:
        return [each.name for each in self.operations.values() if each.thaws == artifact.operation]

    def proven(self, operation: str, process: Process) -> None:
        """A process that came back is compared with what was frozen."""
        self.touched(operation, process)
        if process.progress > process.came_back_at:
            self.violate("C8", f"operation {operation} compares process {process.pid}, which has run already")

    def let_run(self, operation: str, process: Process) -> None:
        """A process that came back is let run."""
        self.touched(operation, process)
        for invariant, text in thaw_checks.let_run_too_early(self._machine, self.of(operation), process):
            self.violate(invariant, f"operation {operation}: {text}")

    def all_run(self, operation: str) -> None:
        """The last process of a thaw is let run."""
        if not self.of(operation).ready:
            self.violate("R9", f"operation {operation} lets all of it run, and that is not on the disk")

    def ends(self, operation: str, process: Process) -> None:
        """A process is about to be killed for an operation."""
        known = self.of(operation)
        self.touched(operation, process)
        first = not known.killed
        known.killed.append(process.identity)
        hopeless = self._hopeless(known, process)
        if hopeless or known.root_left:
            self.given_up[process.tree] = operation
        if known.thaws:
            if process.made_by != operation:
                self.violate("C3", f"operation {operation} kills process {process.pid}, which it did not make")
            elif process.progress > process.came_back_at and known.ready and not hopeless and not known.root_left:
                invariant, text = thaw_checks.killed_wrongly(self._machine, known, process)
                self.violate(invariant, f"operation {operation}: {text}")
            return
        artifact = self._machine.hosted.get(operation)
        if hopeless or known.root_left:
            return
        if artifact is None or not artifact.whole or not artifact.durable:
            self.violate("C8", f"operation {operation} kills process {process.pid}, whose state is nowhere whole")
        elif first:
            self._nothing_lost(known, artifact)

    def _nothing_lost(self, known: Watched, artifact: Artifact) -> None:
        now = {each.pid: each.progress for each in self._machine.of(known.tree)}
        for image in artifact.now.snapshot:
            if now.get(image.pid, image.progress) != image.progress:
                self.violate("C8", f"operation {known.name}: {image.pid} ran on after its image was written")

    def _hopeless(self, known: Watched, process: Process) -> bool:
        """Whether CUDA, a right that is missing, or whom the user had asked about it, leaves no other way."""
        if known.failures["confirm"]:
            return True
        trouble = sum(known.failures[each] for each in ("state", "cuda_restore", "unlock"))
        if max(known.failures["resume"], known.failures["sweep"]) > TRIES:
            return True
        failed = any(each.cuda is CudaState.FAILED for each in self._machine.of(process.tree))
        if thaw_checks.pages_lost(self._machine, known):
            return True
        return failed or bool(known.failures["CudaNoMemory"]) or trouble >= TROUBLE or bool(known.failures["proceed"])

    def left(self, process: Process) -> None:
        """A process ended by itself, while it ran."""
        for known in self.operations.values():
            tasks = known.restored or known.dumped
            if known.owed and known.tree == process.tree:
                known.left.add(process.identity)
                known.root_left = known.root_left or not tasks or tasks[0] == process.identity

    # Room

    def tier(self, shelf: Shelf) -> None:
        """A tier stays within its budget (INV-P2)."""
        if shelf.charged_bytes > shelf.budget_bytes:
            self.violate("P2", f"tier {shelf.name} has {shelf.charged_bytes} bytes of {shelf.budget_bytes}")

    def memory(self) -> None:
        """The machine, and the control groups, hold what they are given (INV-P2)."""
        machine = self._machine
        if machine.free_bytes() < 0:
            self.violate("P2", f"{machine.node} runs out of memory: {-machine.free_bytes()} bytes too many")
        if machine.limit_bytes is not None and machine.kept_in_memory_bytes() > machine.limit_bytes:
            self.violate("P2", f"the control group of the agent on {machine.node} runs out of memory")
        if machine.group_bytes is not None and machine.resident_bytes() > machine.group_bytes:
            self.violate("P2", f"the control group of the workloads on {machine.node} runs out of memory")

    def published(self, operation: str, artifact: Artifact) -> None:
        """An artifact is about to become visible (INV-C8)."""
        self.called(operation, "publish")
        if not artifact.now.sealed or not artifact.durable or not artifact.now.snapshot:
            self.violate("C8", f"operation {operation} publishes what is not sealed, or not on the disk")

    def removed(self, artifact: Artifact, by: str) -> None:
        """An artifact is about to go (INV-C10, C12). ``by`` is the operation that removes it; empty: a caller does."""
        if by and self._last_of_its_tree(self.of(by), artifact):
            self.violate("C10", f"operation {by} removes the last that there is of tree {artifact.tree}")
        if not artifact.visible:
            return
        for known in self.operations.values():
            if not known.owed or known.name == by:
                continue
            opened = known.thaws == artifact.operation and ThawPhase.VERIFYING in known.steps
            if (opened or known.name == artifact.operation) and not known.unpinned:
                self.violate("C12", f"artifact {artifact.operation} goes, and operation {known.name} needs it")
        self.of(artifact.operation).given_away = True

    def _last_of_its_tree(self, known: Watched, artifact: Artifact) -> bool:
        """Whether nothing of a tree lives, and its images are known to be whole and can be made visible.

        Those that ran on after their freeze was undone, and ended by themselves, need no images: these are out of date.
        """
        sealed = any(isinstance(step, FreezeSealed) for step in known.steps)
        whole = artifact.now.sealed and artifact.durable and not artifact.now.damaged and bool(artifact.now.snapshot)
        unneeded = self._machine.of(artifact.tree) or known.left.issuperset(known.dumped)
        return sealed and whole and not unneeded and known.failures["Publish"] <= TRIES

    # How it ended

    def _rests(self, known: Watched, process: Process) -> str:
        """Say how a living process does not run as it should; empty if it does."""
        if process.made_up:
            return f"C9: process {process.pid} went on with pages that nobody brought"
        if process.cuda not in (None, CudaState.RUNNING):
            return f"C1: process {process.pid} is left {process.cuda.value}"
        if process.held:
            return f"C6: process {process.pid} is left in the hands of CRIU"
        if process.stopped != process.was_stopped:
            return f"C6: process {process.pid} is left {'stopped' if process.stopped else 'running'}"
        if process.resting and not known.failures["wake"]:
            return f"C6: process {process.pid} was told to rest and never to go on"
        return ""

    def _all_run(self, known: Watched) -> None:
        others = [task for each in self.operations.values() if each.owed for task in each.tasks]
        for task in known.tasks:
            process = self._machine.find(task)
            if process is None or not process.alive or task in others:
                continue
            trouble = self._rests(known, process)
            if trouble:
                invariant, _, text = trouble.partition(": ")
                self.violate(invariant, f"operation {known.name} is over, and {text}")

    def _frozen(self, known: Watched, outcome: Outcome, kind: str, text: str) -> None:
        machine = self._machine
        artifact = machine.hosted.get(known.name)
        rebooted = known.boot_id != machine.boot_id
        whole = artifact is not None and artifact.visible and artifact.now.sealed and artifact.durable
        alive = [each.pid for each in map(machine.find, known.dumped) if each is not None and each.alive]
        match outcome:
            case Outcome.FROZEN | Outcome.COPIED:
                if not whole and not rebooted and not known.given_away:
                    self.violate("C8", f"operation {known.name} is {outcome.value}, and there is no whole artifact")
                if outcome is Outcome.FROZEN and alive:
                    self.violate("C8", f"operation {known.name} is frozen, and process {alive[0]} lives")
                if outcome is Outcome.COPIED:
                    self._all_run(known)
            case Outcome.UNDONE:
                self._all_run(known)
                if artifact is not None and not artifact.empty and known.failures["discard"] <= TRIES:
                    self.violate("C8", f"operation {known.name} was undone, and {artifact.now} is left of it")
            case Outcome.LOST:
                self._all_run(known)
                if not known.killed and not rebooted and not known.root_left and machine.of(known.tree):
                    self.violate("C6", f"operation {known.name} is lost ({kind}: {text}), and its tree lives")
            case Outcome.LEFT:
                self._left_alone(known, f"{kind}: {text}")
            case _:
                self.violate("C6", f"a freeze ends as {outcome}")
        if known.killed and outcome in (Outcome.UNDONE, Outcome.COPIED):
            self.violate("C6", f"operation {known.name} is {outcome.value}, and it has killed {known.killed[0].pid}")

    def _thawed(self, known: Watched, outcome: Outcome, why: str) -> None:
        machine = self._machine
        mine = [each for each in machine.living() if each.made_by == known.name]
        match outcome:
            case Outcome.THAWED:
                self._all_run(known)
                if known.killed:
                    self.violate("C6", f"operation {known.name} thawed, and it has killed {known.killed[0].pid}")
                for process in mine:
                    for invariant, text in thaw_checks.came_back_wrongly(machine, process):
                        self.violate(invariant, f"operation {known.name}: {text}")
            case Outcome.FAILED:
                if mine:
                    self.violate("C6", f"operation {known.name} failed, and process {mine[0].pid} is left of it")
            case Outcome.LEFT:
                self._left_alone(known, why)
            case _:
                self.violate("C6", f"a thaw ends as {outcome}")

    def _left_alone(self, known: Watched, why: str) -> None:
        """An operation could not bring its tree to an end: what it needs for that failed again and again."""
        self.given_up[known.tree] = known.name
        self.excused[known.name] = None
        if sum(known.failures[method] for method in _NEEDED_TO_END) <= TRIES:
            self.violate("C6", f"operation {known.name} leaves its tree, and nothing kept it from an end: {why}")

    def closed(self, operation: str) -> None:
        """Nothing of an operation is left to do, says the agent: so nothing of it is there."""
        machine, known = self._machine, self.of(operation)
        left = known.ended is not None and getattr(known.ended, "outcome", None) is Outcome.LEFT
        if not left and any(run.operation == operation and not run.over for run in machine.runs):
            self.violate("C6", f"operation {operation} is over, and its CRIU runs")
        pager = machine.pager_of(operation)
        if not left and pager is not None and not pager.over:
            self.violate("C6", f"operation {operation} is over, and its pager runs")
        if operation in machine.claims.values():
            self.violate("C6", f"operation {operation} is over, and its target is still claimed")
        if known.ended is None or left:
            return
        artifact = machine.hosted.get(operation)
        if artifact is not None and artifact.now.reserved and known.failures["discard"] <= TRIES:
            self.violate("P2", f"operation {operation} is over, and {artifact.now.reserved} bytes stay reserved")
        if known.failures["unpin"] <= TRIES and any(operation in each.now.pins for each in machine.hosted.values()):
            self.violate("C12", f"operation {operation} is over, and an artifact stays pinned for it")

    # From time to time, and at the end

    def look(self) -> None:
        """Whoever does not run is in the hands of an operation that is written down (INV-C1)."""
        owed = {each.tree: each.name for each in self.operations.values() if each.owed and each.steps}
        for process in self._machine.processes:
            if process.alive and not process.runs and process.tree not in owed and process.tree not in self.given_up:
                trouble = self._rests(Watched(""), process)
                if trouble:
                    self.violate("C1", f"nobody owes anything, and {trouble[4:]}")

    def rest(self) -> None:
        """Nothing is left of operations that are over, and nobody is locked, held or stopped."""
        machine = self._machine
        for process in machine.living():
            trouble = self._rests(Watched(""), process)
            if trouble and process.tree not in self.given_up:
                self.violate("C1", f"at rest {trouble[4:]}")
        for name, artifact in machine.hosted.items():
            known = self.of(name)
            if artifact.now.reserved and known.failures["discard"] <= TRIES and name not in self.excused:
                self.violate("P2", f"at rest {artifact.now.reserved} bytes stay reserved for operation {name}")
            pins = [pin for pin in artifact.now.pins if self.of(pin).failures["unpin"] <= TRIES]
            if pins:
                self.violate("C12", f"at rest artifact {name} is pinned for operation {pins[0]}")
            hidden = not artifact.visible and not artifact.now.trash and name not in self.excused
            if artifact.now.images_bytes and hidden and known.failures["discard"] <= TRIES:
                self.violate("C8", f"at rest {artifact.now.images_bytes} bytes of {name} lie where nobody sees them")
        for target, holder in machine.claims.items():
            self.violate("C6", f"at rest {target} is claimed by {holder}")
