"""The truth about one simulated machine: its processes, GPUs, memory, and the CRIUs that run on it.

Theory of operation. A :class:`Machine` is what there is, whoever looks. The ports (:mod:`iriscw_sims.nodes.ports`)
change it as the drivers would; what happens by itself (processes run, end and fork, a CRIU goes on after the agent that
started it was killed) happens to it directly. Nothing in it reads a clock: :meth:`Machine.tick` is called at each
boundary, and everything that runs makes a step of progress then. So whoever ran on between two boundaries is known.

A :class:`Fate` decides what goes wrong and how long things take, and judges: the checkers hang there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import attrs

from iriscw.freeze.model import CudaState, FreeMemory, NvmlGpu, TaskIdentity
from iriscw_sims.nodes.paging import Pager
from iriscw_sims.nodes.shelves import Artifact, Shelf

MIB = 1 << 20
GIB = 1 << 30

STRANGER = "stranger"
"""How the names of trees begin that are nobody's workload, and who claims for a command without an agent."""

DRIVER = "580.105.08"
"""Of the GPUs of every machine, to begin with."""

FIRST_NUMBER = 100
"""Of the first process."""


@attrs.define(eq=False)
class Process:
    """One process. ``tree`` names whose it is: a workload's, or a stranger's."""

    identity: TaskIdentity
    parent: int
    alive: bool = True
    stopped: bool = False
    was_stopped: bool = False
    """Somebody else stopped it, and it must be so again afterwards."""
    held: bool = False
    """A CRIU holds it."""
    cuda: CudaState | None = None
    device_bytes: int = 0
    resting: bool = False
    """Its application was told to come to rest."""
    progress: int = 0
    came_back_at: int = 0
    """Its progress when it was thawed."""
    session: int = 0
    """The number of who leads its session: the first process of its tree."""
    tree: str = ""
    gpu: str = "GPU-1"
    memory_bytes: int = 10 * MIB
    threads: tuple[int, ...] = ()
    """The numbers of its other threads."""
    connections: int = 0
    """Established TCP connections."""
    made_by: str = ""
    """The thaw that made it, or made the one that it was forked from."""
    forked: bool = False
    """It is in no images: a living one made it."""
    pager: Pager | None = None
    """Who brings pages of its memory that are missing; None: none is."""
    made_up: bool = False
    """It went on with empty pages in place of missing ones."""
    supervises: str = ""
    """The folder of the program that it supervises, if it is a supervisor of iriscw."""

    @property
    def runs(self) -> bool:
        """Whether all of it makes progress."""
        return self.alive and not self.stopped and not self.held and self.cuda in (None, CudaState.RUNNING)

    @property
    def pid(self) -> int:
        """Its number."""
        return self.identity.pid

    @property
    def on_gpu_bytes(self) -> int:
        """What it holds of its GPU now."""
        there = self.alive and self.cuda in (CudaState.RUNNING, CudaState.LOCKED, CudaState.FAILED)
        return self.device_bytes if there else 0

    @property
    def resident_bytes(self) -> int:
        """What it holds of the memory of its machine now: CUDA moves device memory there."""
        moved = self.device_bytes if self.cuda is CudaState.CHECKPOINTED else 0
        return self.memory_bytes + moved if self.alive else 0


class CriuRun(Protocol):
    """A CRIU that runs, or ran and left a record of itself: see :mod:`iriscw_sims.nodes.criu`."""

    operation: str
    tasks: list[Process]
    over: bool
    ending: bool

    def tick(self) -> None:
        """Time passes."""
        ...

    def orphaned(self) -> None:
        """Its agent is gone."""
        ...

    def abort(self) -> None:
        """It is killed."""
        ...


class Fate(Protocol):
    """Decides what goes wrong, how long things take, and whether what happens may happen."""

    def fault(self, method: str, about: str) -> Exception | None:
        """Return the error that this call of a port raises; None: it goes well."""
        ...

    def lasts(self, method: str, size_bytes: int) -> int:
        """Return how long a step takes that handles so many bytes, ns."""
        ...

    def may(self, name: str, about: str) -> bool:
        """Whether a thing that may happen at this point does."""
        ...

    def violate(self, invariant: str, what: str) -> None:
        """Note that an invariant is broken."""
        ...


@attrs.define(eq=False)
class Machine:
    """One machine.

    ``shelves`` are its tiers, by name. ``limit_bytes`` is what the control group of the agent may use, and
    ``group_bytes`` what that of all workloads may: None, no limit.
    """

    fate: Fate
    boot_id: str
    node: str = "node-1"
    gpus: tuple[NvmlGpu, ...] = (NvmlGpu("GPU-1", "H200", 0, 80 << 30, 0),)
    memory_bytes: int = 32 << 30
    limit_bytes: int | None = None
    group_bytes: int | None = None
    shelves: dict[str, Shelf] = attrs.field(factory=dict)
    processes: list[Process] = attrs.field(factory=list)
    runs: list[CriuRun] = attrs.field(factory=list)
    """CRIUs that run, or whose record nobody has swept yet."""
    promised: dict[str, int] = attrs.field(factory=dict)
    """The memory that operations are about to take, by operation."""
    claims: dict[str, str] = attrs.field(factory=dict)
    """Who holds each target, by the name of the target."""
    landing: list[tuple[int, Process, CudaState]] = attrs.field(factory=list)
    """Effects of calls to the driver that are still to come: when (:attr:`ticks`), to whom, what."""
    in_flight: list[tuple[Process, CudaState]] = attrs.field(factory=list)
    """Calls to the driver that somebody waits for, with the effect that each will have."""
    unknown: list[TaskIdentity] = attrs.field(factory=list)
    """Whose CUDA state nobody knows: a call had no answer, and it was not read since."""
    pagers: list[Pager] = attrs.field(factory=list)
    """Those that bring pages, or have come to their end."""
    grants: list[str] = attrs.field(factory=list)
    """Folders of programs in which a grant lies: a grant for one thaw."""
    vouched: list[TaskIdentity] = attrs.field(factory=list)
    """Supervisors that came back, had a grant, and have written that down."""
    vram_taken_at: int = 0
    """The tick at which a stranger last took memory of a GPU."""
    driver: str = DRIVER
    """The version of NVIDIA's driver."""
    userfaultfd: bool = True
    """Whether its kernel and CRIU can bring pages later."""
    ticks: int = 1000
    """Clock ticks since boot."""
    next_number: int = FIRST_NUMBER

    # Who there is

    def find(self, identity: TaskIdentity) -> Process | None:
        """Return a process, whether it lives or not."""
        return next((each for each in self.processes if each.identity == identity), None)

    def living(self) -> list[Process]:
        """Return those that live."""
        return [each for each in self.processes if each.alive]

    def of(self, tree: str) -> list[Process]:
        """Return the living ones of a workload."""
        return [each for each in self.processes if each.alive and each.tree == tree]

    def below(self, root: TaskIdentity) -> list[Process]:
        """Return a process with all that descends from it, parents first."""
        found = [each for each in self.processes if each.alive and each.identity == root]
        numbers = [each.pid for each in found]
        more = True
        while more:
            more = False
            for each in self.processes:
                if each.alive and each.parent in numbers and each not in found:
                    found.append(each)
                    numbers.append(each.pid)
                    more = True
        return found

    def came_of(self, tasks: Sequence[TaskIdentity]) -> list[Process]:
        """Return those that live in a session that one of them leads, or led, and that began after it."""
        began = {task.pid: task.start_ticks for task in tasks if task.boot_id == self.boot_id}
        return [
            each
            for each in self.processes
            if each.alive and began.get(each.session, each.identity.start_ticks + 1) <= each.identity.start_ticks
        ]

    def takes(self, number: int) -> bool:
        """Whether a living process or thread has a number, or a session of one has it."""
        return any(
            each.alive and (number in (each.pid, each.session) or number in each.threads) for each in self.processes
        )

    def number(self, count: int = 1) -> tuple[int, ...]:
        """Return numbers that nobody ever had."""
        first = self.next_number
        self.next_number += count
        return tuple(range(first, first + count))

    # How much there is

    def kept_in_memory_bytes(self) -> int:
        """Return what the tiers take that are memory."""
        return sum(shelf.bytes for shelf in self.shelves.values() if shelf.volatile)

    def resident_bytes(self) -> int:
        """Return what all processes take."""
        return sum(each.resident_bytes for each in self.processes)

    def free_bytes(self) -> int:
        """Return what nobody takes."""
        return self.memory_bytes - self.resident_bytes() - self.kept_in_memory_bytes()

    def spare_bytes(self) -> int:
        """Return what it and its groups have left once all that is promised is written, and GPUs are moved there.

        Who comes takes no more: nothing reserves that for a tree that is frozen, and the kernel would end one of them.
        """
        promised = sum(shelf.promised_bytes for shelf in self.shelves.values() if shelf.volatile)
        on_gpus = sum(each.device_bytes for each in self.living() if each.cuda not in (None, CudaState.CHECKPOINTED))
        taken = sum(self.promised.values())
        spare = self.free_bytes() - promised - on_gpus - taken
        if self.limit_bytes is not None:
            spare = min(spare, self.limit_bytes - self.kept_in_memory_bytes() - promised)
        if self.group_bytes is not None:
            spare = min(spare, self.group_bytes - self.resident_bytes() - on_gpus - taken)
        return spare

    def free_where_trees_land(self, operation: str = "", besides_bytes: int = 0) -> int:
        """Return what a tree may still take that comes back, beside what operations other than this one will take."""
        others = sum(size for name, size in self.promised.items() if name != operation) if operation else 0
        free = self.free_bytes() - besides_bytes - others
        return free if self.group_bytes is None else min(free, self.group_bytes - self.resident_bytes() - others)

    def free_for_tiers(self) -> int:
        """Return what a tier that is memory may still take: the agent's group may have less than the machine."""
        free = self.free_bytes()
        return free if self.limit_bytes is None else min(free, self.limit_bytes - self.kept_in_memory_bytes())

    def free_memory(self) -> FreeMemory:
        """Return what who freezes may still take, and what the workloads may."""
        ours = None if self.limit_bytes is None else max(0, self.limit_bytes - self.kept_in_memory_bytes())
        its = None if self.group_bytes is None else max(0, self.group_bytes - self.resident_bytes())
        return FreeMemory(max(0, self.free_bytes()), ours, its)

    def gpus_now(self) -> tuple[NvmlGpu, ...]:
        """Return the GPUs, with what is used of each."""
        used = {gpu.uuid: gpu.used_bytes for gpu in self.gpus}
        for each in self.processes:
            if each.gpu in used:
                used[each.gpu] += each.on_gpu_bytes
        return tuple(attrs.evolve(gpu, used_bytes=used[gpu.uuid]) for gpu in self.gpus)

    # What happens

    def tick(self) -> None:
        """Let time pass: all that runs makes progress, and late effects of the driver land."""
        self.ticks += 1
        for process in self.processes:
            if process.runs:
                process.progress += 1
                process.made_up = process.made_up or (process.pager is not None and process.pager.lost)
        for each in [each for each in self.processes if each.supervises and each.made_by and each.runs]:
            self._supervises(each)
        for run in list(self.runs):
            run.tick()
        for pager in self.pagers:
            pager.tick()
        if self.landing:
            due = [each for each in self.landing if each[0] <= self.ticks]
            self.landing = [each for each in self.landing if each[0] > self.ticks]
            for _, process, state in due:
                if process.alive:
                    process.cuda = state

    def _supervises(self, process: Process) -> None:
        """A supervisor that came back takes its grant, or ends all of what came back with it."""
        if process.identity in self.vouched:
            return
        if process.supervises in self.grants:
            self.grants.remove(process.supervises)
            self.vouched.append(process.identity)
            return
        for each in self.living():
            if each.made_by == process.made_by:
                self.kill(each)

    def pager_of(self, operation: str) -> Pager | None:
        """Return the pager of an operation, be it alive or not."""
        return next((each for each in self.pagers if each.operation == operation), None)

    def kill(self, process: Process) -> None:
        """End a process; its children are init's from now on."""
        if process.alive:
            process.alive = process.held = False
            process.cuda = None
            for each in self.processes:
                if each.alive and each.parent == process.pid and each.made_by == process.made_by:
                    each.parent = 1

    def let_go(self, tasks: Iterable[Process]) -> None:
        """Let run what a CRIU held."""
        for each in tasks:
            each.held = False

    def strangers_leave(self) -> None:
        """Those who are nobody's workload end, and give back what they claimed."""
        self.claims = {target: holder for target, holder in self.claims.items() if holder != STRANGER}
        for process in self.living():
            if process.tree.startswith(STRANGER):
                self.kill(process)

    def agent_dies(self) -> None:
        """The process that freezes is gone, and all that went only with it."""
        self.promised.clear()
        self.claims = {target: holder for target, holder in self.claims.items() if holder == STRANGER}
        for run in list(self.runs):
            if not run.over:
                run.orphaned()
        for process, state in self.in_flight:
            if self.fate.may("driver call lands late", f"process/{process.pid}"):
                self.landing.append((self.ticks + 6, process, state))
        self.in_flight.clear()

    def reboots(self, boot_id: str) -> None:
        """Begin anew: no process lives, what was in memory is gone."""
        for process in self.processes:
            process.alive = process.held = False
            process.cuda = None
        self.processes.clear()
        self.runs.clear()
        self.landing.clear()
        self.in_flight.clear()
        self.unknown.clear()
        self.claims.clear()
        self.promised.clear()
        self.pagers.clear()
        self.vouched.clear()
        for shelf in self.shelves.values():
            if shelf.volatile:
                shelf.artifacts.clear()
        self.boot_id = boot_id

    @property
    def hosted(self) -> dict[str, Artifact]:
        """All artifacts of all tiers, by operation."""
        return {name: each for shelf in self.shelves.values() for name, each in shelf.artifacts.items()}
