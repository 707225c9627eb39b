"""A machine whose processes can be frozen: simulated ports, driven by the real decisions and the real desk.

Every await of a port is a point at which the process that freezes may die, and so is every place before and after a
record. Nothing waits: coroutines are stepped by hand, so a run is exact and takes less than a millisecond.

What a crash leaves is drawn: the CRIU of the dead life goes on for a while or is gone at once; a call to the driver
that was under way has no effect, or has it later. The world objects at once (:class:`Broken`) to what no order
of events excuses: an unverified image given to CRIU, a call of unknown outcome made again, two living copies.
"""

import contextlib
import inspect

import attrs

from iriscw.freeze import freezing, thawing
from iriscw.freeze.drivers.desk import Desk
from iriscw.freeze.messages import CancelOperation, FreezeTree, OperationEnded, ThawTree
from iriscw.freeze.model import (
    ArtifactRefused,
    ArtifactUnknown,
    CriuAbility,
    CriuFailed,
    CudaAbility,
    CudaNoMemory,
    CudaOverdue,
    CudaRefused,
    CudaState,
    CudaTask,
    DumpReport,
    FreeMemory,
    FreezePhase,
    FreezePlan,
    GuardRefused,
    Hook,
    HookKind,
    ImageHost,
    Kept,
    LazyPages,
    Met,
    NvmlGpu,
    Outcome,
    PagingFailed,
    ProcessTree,
    RestoreReport,
    Room,
    Sealed,
    TargetGone,
    TaskIdentity,
    ThawPhase,
    ThawPlan,
    TreeProcess,
)
from iriscw.freeze.traits import CarriedFolder, FolderSight, FolderStanding, Hindrance
from iriscw.runtime.vocabulary import (
    Cancel,
    CancelTimer,
    Completed,
    Continue,
    Decision,
    Emit,
    Failed,
    Run,
    SetTimer,
)
from iriscw.testing.contexts import FakeContext

BOOT = "boot-1"
GUARD = "/attempt"
MIB = 1 << 20
BUDGET = 64 << 30
ABROAD = 1000
"""What numbers here differ by from those in a PID namespace of its own."""

LIMIT = 4_000
"""Boundaries of one run. A clean freeze has about sixty."""

HOOK = Hook(HookKind.EXEC, ("rest",))


class Broken(AssertionError):
    """The decisions did what they must never do."""


class Cancelled(BaseException):
    """Stands for the cancellation of an effect."""


@attrs.define
class Process:
    """One simulated process."""

    identity: TaskIdentity
    parent: int
    alive: bool = True
    stopped: bool = False
    was_stopped: bool = False
    held: bool = False
    cuda: CudaState | None = None
    device_bytes: int = 0
    resting: bool = False
    progress: int = 0
    changed: bool = False
    """It is traced, and would not be what it was if its tracer ended now."""
    came_back_at: int = 0
    """Its progress when it was thawed."""
    ours: bool = True
    fresh: bool = False
    """It lives in a PID namespace of its own."""

    @property
    def number(self) -> int:
        """Its number as it sees it."""
        return self.identity.pid - (ABROAD if self.fresh else 0)

    @property
    def runs(self) -> bool:
        """Whether all of it makes progress."""
        return self.alive and not self.stopped and not self.held and self.cuda in (None, CudaState.RUNNING)


@attrs.define
class Artifact:
    """What one operation wrote."""

    reserved: int = 0
    written: bool = False
    snapshot: tuple = ()
    frozen: object = None
    sealed: bool = False
    published: bool = False
    facts: object = None
    pins: list = attrs.field(factory=list)
    returned: tuple = ()


@attrs.define
class CriuRun:
    """A CRIU that runs."""

    kind: str
    life: int
    pids: tuple[int, ...]
    ending: bool = False


class Await:
    """What a port waits for: one boundary."""

    def __await__(self):
        yield self


class World:
    """The machine. ``faults`` maps a method and the number of its call to the error it raises then.

    With ``remover`` somebody removes each artifact as soon as nobody has pinned it, while its tree still lives.
    With a ``grant`` the tree has a guard, which finds one (True) or none (False).
    With ``attrition`` this process of a thawed tree ends by itself after a crash, if it runs by then.
    Who brings the pages of a lazy thaw outlives a crash, unless it is ``forsaken``: then nothing of the tree goes on.
    With more than one of the ``gpus`` the first process is on the first one, and all others are on the second one.
    With a ``communicator`` the driver answers nothing about a process that uses CUDA while another one is LOCKED.
    """

    def __init__(
        self,
        tasks=3,
        cuda=(0, 2),
        orphan=False,
        late=False,
        faults=None,
        remover=False,
        attrition=-1,
        forsaken=False,
        uffd=True,
        by_pieces=True,
        grant=None,
        strangers=(),
        communicator=False,
        gpus=1,
    ) -> None:
        self.strangers = tuple(strangers)
        """Numbers that somebody else has."""
        self.forsaken, self.uffd, self.by_pieces = forsaken, uffd, by_pieces
        self.followed = 0
        self.cloned = False
        """Whether a second tree is wanted."""
        self.asked = 0
        """How often somebody said that a tree is what it was."""
        self.missing = False
        """Whether pages of the thawed tree are missing."""
        self.pager = False
        self.pages_at = 0
        self.lost_pages = False
        self.verified_but_pages = False
        self.grant = grant
        self.vouched: list[TaskIdentity] = []
        self.place = FolderSight(FolderStanding.ABSENT, free_bytes=BUDGET)
        """What is in the place of its folder before a thaw."""
        self.placed = self.left = ""
        """The thaw whose folder is in the place, and the one that has decided that."""
        self.orphan, self.late, self.remover, self.attrition = orphan, late, remover, attrition
        self.faults = dict(faults or {})
        self.calls: dict[str, int] = {}
        self.ticks = 1000
        self.memory, self.promised = FreeMemory(32 << 30), 0
        self.taken = 0
        """What other operations are about to take of the memory."""
        self.holding = ""
        """Who has memory that is not taken yet."""
        self.processes: list[Process] = []
        for index in range(tasks):
            identity = TaskIdentity(100 + index, 500 + index, BOOT)
            uses = index in cuda
            state = CudaState.RUNNING if uses else None
            size = 100 * MIB if uses else 0
            self.processes.append(Process(identity, 1 if index == 0 else 100, cuda=state, device_bytes=size))
        self.source = tuple(process.identity for process in self.processes)
        self.artifacts: dict[str, Artifact] = {}
        self.run: CriuRun | None = None
        self.landing: list[tuple[int, Process, CudaState]] = []
        self.in_flight: list[tuple[Process, CudaState]] = []
        self.unknown: list[TaskIdentity] = []
        self.communicator, self.gpus = communicator, gpus
        self.cuda_calls: list[tuple[str, int]] = []
        """What the driver was asked to change, and of which process."""
        self.told: dict[TaskIdentity, CudaState | None] = {}
        """What the driver said last of each process, None if it did not say."""
        self.verified = ""
        self.log: list[str] = []
        self.at_first_kill: dict[int, int] = {}
        self.killed_running = 0
        self.all_run = False
        """Whether the last process of a thawed tree was let run: before, what the others did may be lost."""
        self.after_crash: dict[str, type[Exception]] = {}
        self.always: dict[str, type[Exception]] = {}
        self.hopeless = False

    # What happens by itself

    def tick(self) -> None:
        self.ticks += 1
        for process in self.processes:
            if process.runs and (self.pager or not self.missing):
                process.progress += 1
        if self.missing and self.pager and self.ticks >= self.pages_at:
            self.missing = False
        due = [each for each in self.landing if each[0] <= self.ticks]
        self.landing = [each for each in self.landing if each[0] > self.ticks]
        for _, process, state in due:
            if process.alive:
                process.cuda = state
        if self.run is not None and self.run.life < 0 and self.ticks > -self.run.life:
            self._orphan_over()
        if self.remover and any(self.find(task).alive for task in self.source):
            for name in [name for name, each in self.artifacts.items() if each.published and not each.pins]:
                del self.artifacts[name]

    def crash(self, life: int) -> None:
        """The process that freezes is gone."""
        self.always, self.holding = self.after_crash, ""
        self.verified = ""
        if self.missing and self.forsaken:
            self.lose_pages()
        if self.run is not None:
            if self.orphan:
                self.run.life = -(self.ticks + 40)
            else:
                self._orphan_over()
        self.wear_out([each for each in self.living() if each.identity not in self.source], self.attrition)
        if self.late:
            self.landing += [(self.ticks + 6, *each) for each in self.in_flight]
        self.in_flight.clear()

    def lose_pages(self) -> None:
        """Who brings the pages is killed."""
        self.pager, self.lost_pages = False, True

    def wear_out(self, tree: list[Process], index: int) -> None:
        """A process of a tree ends by itself, if it runs."""
        for each in tree[index : index + 1] if index >= 0 else ():
            if each.runs:
                each.alive, each.cuda = False, None

    def _orphan_over(self) -> None:
        run, self.run = self.run, None
        for process in self.processes:
            if process.held:
                process.held = False
                if run.ending:
                    self.kill(process)

    def kill(self, process: Process) -> None:
        if process.alive:
            if not self.at_first_kill:
                self.at_first_kill = {each.identity.pid: each.progress for each in self.living()}
            process.alive, process.held = False, False
            process.cuda = None

    def find(self, identity: TaskIdentity) -> Process | None:
        return next((each for each in self.processes if each.identity == identity), None)

    def fault(self, method: str) -> Exception | None:
        number = self.calls[method] = self.calls.get(method, 0) + 1
        always = self.always.get(method)
        return always(f"simulated: {method}") if always else self.faults.pop((method, number), None)

    # What must hold once nothing is owed

    def used_bytes(self) -> int:
        return sum(each.reserved for each in self.artifacts.values())

    def hindrances(self) -> tuple[Hindrance, ...]:
        """Return what stands in the way of a freeze."""
        return ()

    def gpu_of(self, process: Process) -> str:
        """Return the GPU that a process uses, or used when it was frozen."""
        return "GPU-1" if self.gpus == 1 or process.number == self.source[0].pid else "GPU-2"

    def below(self, root: TaskIdentity) -> list[Process]:
        """Give the tree: all that live, unless some have left it."""
        return self.living()

    def living(self) -> list[Process]:
        return [each for each in self.processes if each.alive and each.ours]


class Port:
    """What all ports of one life of the process that freezes have."""

    def __init__(self, world: World, life: int) -> None:
        self.world, self.life = world, life

    def _peers(self):
        return [each for each in self.world.living() if each.cuda is not None]

    async def _step(self, method: str) -> None:
        world = self.world
        error = world.fault(method)
        await Await()
        world.log.append(method)
        if error is not None:
            raise error

    def _alive(self, task: TaskIdentity) -> Process:
        process = self.world.find(task)
        if process is None or not process.alive:
            raise TargetGone(f"process {task.pid} has ended")
        return process


class SimProcesses(Port):
    """Processes."""

    async def host(self):
        return ImageHost(BOOT, "x86_64", 4096, "6.1", "node-1", ("avx",))

    async def tree(self, root, *, closely=False):
        await self._step("tree")
        self._alive(root)
        return ProcessTree(tuple(self._task(each) for each in self.world.below(root)), self.world.hindrances())

    async def members(self, root):
        await self._step("members")
        self._alive(root)
        return {each.identity: each.was_stopped for each in self.world.below(root)}

    def _task(self, process: Process) -> TreeProcess:
        name = f"task-{process.identity.pid}"
        return TreeProcess(process.identity, process.parent, name, 10 * MIB, stopped=process.was_stopped)

    async def living(self, tasks):
        await self._step("living")
        found = [self.world.find(task) for task in tasks]
        return tuple(each.identity for each in found if each is not None and each.alive)

    async def taken(self, pids):
        found = (*self.world.strangers, *(each.identity.pid for each in self.world.processes if each.alive))
        return tuple(pid for pid in pids if pid in found)

    async def promise_memory(self, operation, size_bytes, group, besides_bytes=0):
        self.world.holding = operation
        return self.world.memory.machine_bytes - besides_bytes - self.world.taken

    def memory_taken(self, operation):
        self.world.holding = ""

    async def free_memory_bytes(self, group=""):
        return 32 << 30

    async def namespaces(self):
        return ()

    async def files(self, opened):
        return tuple(opened)

    async def meet(self, frozen, images, returned):
        return Met()

    async def prove(self, frozen, made):
        await self._step("prove")
        for was, task in zip(frozen, made, strict=True):
            process = self._alive(task)
            expect(process.number == was.number, f"{task.pid} is compared with {was.number}")
            expect(process.progress == process.came_back_at, f"{task.pid} has run before it was compared")

    async def free_memory(self, task):
        return self.world.memory

    async def ticks(self):
        return self.world.ticks

    async def proceed(self, tasks, *, below=False):
        self.world.all_run = self.world.all_run or not below
        for task in reversed(tasks):
            process = self.world.find(task)
            if process is not None:
                expect(not process.changed, f"{task.pid} is let run, and is not as it was")
                process.changed = below
            await self._step("proceed")
            if process is not None:
                process.changed = False
            if below and task == tasks[0]:
                break
            if self.world.missing and not self.world.pager:
                raise Broken("C9: a tree is let run whose pages nobody brings")
            if process is not None and process.alive:
                known = [each for artifact in self.world.artifacts.values() for each in artifact.returned]
                expect(task in self.world.source or task in known, f"{task.pid} is let run, and nobody wrote it down")
                process.stopped = False

    async def guard(self, root):
        return "" if self.world.grant is None else GUARD

    async def vouched(self, tree, guard, within_ns):
        assert within_ns > 0
        assert guard == GUARD
        await self._step("vouched")
        root = self.world.find(tree[0])
        if tree[0] not in self.world.vouched:
            if not root.alive:
                raise GuardRefused("simulated: it has ended")
            root.stopped = root.was_stopped = False
            await Await()
            if not self.world.grant:
                for task in reversed(tree):
                    self.world.kill(self.world.find(task))
                raise GuardRefused("simulated: there is no grant")
            self.world.vouched.append(tree[0])

    async def end(self, tasks, within_ns, *, heirs=False):
        assert within_ns > 0
        for task in tasks:
            await Await()
            process = self.world.find(task)
            if process is not None and process.alive:
                process.stopped = True
        for task in tasks:
            await self._step("end")
            process = self.world.find(task)
            if process is not None and process.alive:
                if process.progress > process.came_back_at and self.world.all_run:
                    self.world.killed_running += 1
                self.world.kill(process)
        return ()


class SimCuda(Port):
    """The driver."""

    async def ability(self):
        return CudaAbility(True, "580.1", "api", True)

    async def tasks(self, identities, within_ns):
        assert within_ns > 0
        await self._step("tasks")
        found = [self.world.find(each) for each in identities]
        return tuple(
            CudaTask(
                each.identity,
                each.cuda,
                each.identity.pid,
                each.device_bytes,
                (self.world.gpu_of(each),),
                ((self.world.gpu_of(each), each.device_bytes),),
            )
            for each in found
            if each is not None and each.alive and each.cuda is not None
        )

    async def state(self, task, within_ns):
        assert within_ns > 0
        self.world.told[task] = None
        await self._step("state")
        process = self._alive(task)
        if any(each[1] is process for each in self.world.landing):
            raise CudaOverdue("the process is within another call")
        self._answers(process)
        if task in self.world.unknown:
            self.world.unknown.remove(task)
        self.world.told[task] = process.cuda
        return process.cuda

    def _answers(self, process):
        """Nothing is said of one of a communicator while another one is locked."""
        if self.world.communicator and any(
            each.cuda is CudaState.LOCKED for each in self._peers() if each is not process
        ):
            raise CudaOverdue("the driver does not answer while another one is locked")

    def _last_first(self, method, task, state):
        """Who was locked last is let go first (INV-C4); only one that nobody could read does not count."""
        after = False
        for each in self._peers():
            if after and each.cuda is state and self.world.told.get(each.identity) is state:
                raise Broken(
                    f"C4: {method} of {task.pid} before that of {each.identity.pid}, which was locked after it"
                )
            after = after or each.identity == task

    async def _verb(self, method, task, within_ns, before, after):
        world = self.world
        assert within_ns > 0
        world.cuda_calls.append((method, task.pid))
        if task in world.unknown:
            raise Broken(f"C5: {method} of {task.pid} before its state was read")
        error = world.fault(method)
        world.unknown.append(task)
        if isinstance(error, CudaOverdue):
            world.landing.append((world.ticks + 6, self._alive(task), after))
            await Await()
            raise error
        flight = (self._alive(task), after)
        if method == "lock":
            self._answers(flight[0])
        world.in_flight.append(flight)
        try:
            await Await()
        finally:
            if flight in world.in_flight:
                world.in_flight.remove(flight)
        world.log.append(method)
        process = self._alive(task)
        if isinstance(error, CudaNoMemory):
            process.cuda = CudaState.FAILED
        if error is not None:
            raise error
        if process.cuda is not before:
            raise CudaRefused(f"{method}: {process.cuda}", 401)
        process.cuda = after
        await Await()
        world.unknown.remove(task)

    async def lock(self, task, within_ns):
        await self._verb("lock", task, within_ns, CudaState.RUNNING, CudaState.LOCKED)

    async def checkpoint(self, task, within_ns):
        if any(each.cuda is CudaState.RUNNING for each in self._peers()):
            raise Broken("C4: a process is checkpointed before all are locked")
        await self._verb("checkpoint", task, within_ns, CudaState.LOCKED, CudaState.CHECKPOINTED)

    async def restore(self, task, within_ns, gpus):
        lacking = [each for each in map(self.world.gpu_of, self._peers()) if gpus and each not in gpus]
        if lacking:
            raise Broken(f"the map {gpus} lacks {lacking[0]}, which was checkpointed")
        self._last_first("restore", task, CudaState.CHECKPOINTED)
        await self._verb("cuda_restore", task, within_ns, CudaState.CHECKPOINTED, CudaState.LOCKED)

    async def unlock(self, task, within_ns):
        if any(each.cuda is CudaState.CHECKPOINTED for each in self._peers()):
            raise Broken("C4: a process is unlocked before all are restored")
        self._last_first("unlock", task, CudaState.LOCKED)
        await self._verb("unlock", task, within_ns, CudaState.LOCKED, CudaState.RUNNING)


class SimGpus(Port):
    """The GPUs."""

    async def list(self):
        return tuple(NvmlGpu(f"GPU-{number + 1}", "H200", number, 80 << 30, 0) for number in range(self.world.gpus))

    async def used_by(self, pids):
        await self._step("used_by")
        held = {each.identity.pid: each for each in self._peers() if each.cuda is not CudaState.CHECKPOINTED}
        return {pid: {self.world.gpu_of(held[pid]): held[pid].device_bytes} for pid in pids if pid in held}


class SimCriu(Port):
    """CRIU."""

    async def ability(self):
        return CriuAbility("criu", "4.2", features=("uffd-noncoop",) if self.world.uffd else ())

    async def dump(self, request, report):
        world = self.world
        assert request.within_ns > 0
        if world.run is not None:
            raise Broken("two CRIUs at once")
        self._alive(request.root)
        error = world.fault("dump")
        world.run = CriuRun("dump", self.life, ())
        artifact = world.artifacts[request.operation]
        tree = world.below(request.root)
        for process in tree:
            process.held = True
        try:
            await Await()
            if any(each.cuda not in (None, CudaState.CHECKPOINTED) for each in tree):
                raise CriuFailed("device files are open")  # noqa: TRY301 - the simulated CRIU undoes below
            artifact.written = True
            await Await()
            if error is not None:
                raise error  # noqa: TRY301 - the simulated CRIU undoes below
        except (Exception, Cancelled):
            world._orphan_over()
            raise
        artifact.snapshot = tuple((each.identity.pid, each.progress, each.was_stopped) for each in tree)
        artifact.frozen = [attrs.evolve(each) for each in tree]
        world.log.append("dump")
        return Held(self, tree)

    async def restore(self, request, report, pages=None):
        world = self.world
        assert request.within_ns > 0
        artifact = next(each for each in world.artifacts.values() if f"images-{id(each)}" == request.images)
        if world.verified != request.images:
            raise Broken("C9: CRIU gets images that were not verified by this life")
        if world.verified_but_pages != (request.lazy and pages is not None):
            raise Broken("C9: CRIU reads pages that nobody verified")
        if not artifact.published:
            raise Broken("C8: a restore of what was never published")
        if artifact.facts.carried is not None and world.placed != request.operation:
            raise Broken("a restore before the folder is in its place")
        if world.living() and not world.cloned:
            raise Broken("P1: two living copies")
        fresh = request.new_pid_namespace
        if not fresh and set(request.pids) & set(world.strangers):
            raise Broken("a restore of numbers that somebody else has")
        error = world.fault("restore")
        world.run = CriuRun("restore", self.life, request.pids)
        made = []
        try:
            for was in artifact.frozen:
                await Await()
                identity = TaskIdentity(was.identity.pid + (ABROAD if fresh else 0), world.ticks, BOOT)
                state = CudaState.CHECKPOINTED if was.cuda is not None else None
                process = attrs.evolve(was, identity=identity, alive=True, stopped=True, held=False, cuda=state)
                process.came_back_at, process.fresh = process.progress, fresh
                world.processes.append(process)
                made.append(process)
            await Await()
            if error is not None:
                raise error  # noqa: TRY301 - the simulated CRIU undoes below
        except (Exception, Cancelled):
            world.run = None
            for process in made:
                world.kill(process)
            raise
        world.run = None
        if request.lazy:
            world.missing = world.pager = True
            world.pages_at = world.ticks + 30
        world.log.append("restore")
        return RestoreReport(tuple(each.identity for each in made))

    async def paging(self, work, within_ns, report):
        world = self.world
        assert within_ns > 0
        error = world.fault("paging")
        await Await()
        world.log.append("paging")
        if isinstance(error, OSError):  # nobody can tell: that is no error of the pages
            raise error
        if error is not None and world.missing:
            world.lose_pages()
            raise error
        while world.missing and world.pager:
            await Await()
        if world.missing:
            raise PagingFailed("who brought its pages was killed")

    async def sweep(self, request):
        world = self.world
        await self._step("sweep")
        world.pager = False
        if world.run is not None and world.run.life < 0:
            world.run.ending = False  # it is killed in its turn, whatever it was doing
            world._orphan_over()
        killed = []
        if request.pids and any(each.fresh for each in world.living()):
            raise Broken("C3: a sweep by numbers that mean others here")
        for process in world.living():
            told = process.fresh or process.identity.pid in request.pids
            if told and process.identity.start_ticks >= request.started_after:
                if not process.stopped and not world.hopeless and world.all_run:
                    world.killed_running += 1
                world.kill(process)
                killed.append(process.identity)
        return tuple(killed)


class SimHooks(Port):
    """The application."""

    async def quiesce(self, hook, root):
        await self._step("quiesce")
        self._alive(root).resting = True

    async def wake(self, hook, root):
        await self._step("wake")
        self._alive(root).resting = False

    async def confirm(self, hook, root):
        await self._step("confirm")
        process = self._alive(root)
        expect(not process.resting, f"{root.pid} is asked about before it was told to go on")
        self.world.asked += 1


class SimArtifacts(Port):
    """The tiers."""

    def _written(self, operation):
        if operation not in self.world.artifacts:
            raise ArtifactUnknown(f"operation {operation} has no room in any tier")
        return self.world.artifacts[operation]

    async def promised(self, tier=""):
        return self.world.promised if tier in ("ram", "") else None

    async def reserve(self, operation, tier, size_bytes):
        await self._step("reserve")
        artifact = self.world.artifacts.setdefault(operation, Artifact())
        artifact.reserved = size_bytes
        if self.world.used_bytes() > BUDGET:
            raise Broken("P2: the budget is exceeded")
        await Await()
        return Room(f"images-{id(artifact)}", "work")

    def following(self, operation, images):
        self.world.followed += 1
        return contextlib.nullcontext()

    async def seal(self, operation, frozen, labels, report):
        await self._step("seal")
        artifact = self._written(operation)
        if not artifact.snapshot:
            raise ArtifactRefused("no images")
        artifact.sealed = True
        artifact.facts = frozen
        await Await()
        return Sealed(30 * MIB, "d", 3)

    async def publish(self, operation):
        await self._step("publish")
        artifact = self._written(operation)
        if not artifact.sealed:
            raise Broken("C8: published before it was sealed")
        artifact.published = True
        if operation not in artifact.pins:
            artifact.pins.append(operation)
        artifact.reserved = 30 * MIB
        await Await()

    async def discard(self, operation):
        await self._step("discard")
        self.world.artifacts.pop(operation, None)
        await Await()

    async def pin(self, artifact, operation):
        await self._step("pin")
        kept = self.world.artifacts.get(artifact)
        if kept is None or not kept.published:
            raise ArtifactUnknown(artifact)
        if operation not in kept.pins:
            kept.pins.append(operation)
        room = Room(f"images-{id(kept)}", "work")
        sealed = Sealed(30 * MIB, "d", 3)
        return Kept(kept.facts, room, sealed, by_pieces=self.world.by_pieces, returned=kept.returned)

    async def came_back(self, artifact, tasks):
        await self._step("came_back")
        self.world.artifacts[artifact].returned = tuple(tasks)
        await Await()

    async def verify(self, artifact, report):
        await self._step("verify")
        self.world.verified = f"images-{id(self.world.artifacts[artifact])}"
        self.world.verified_but_pages = False

    async def verify_but_pages(self, artifact, report):
        await self.verify(artifact, report)
        self.world.verified_but_pages = True
        return LazyPages("sha256-8m", 8 * MIB, ())

    async def unpin(self, artifact, operation):
        await self._step("unpin")
        kept = self.world.artifacts.get(artifact)
        if kept is not None and operation in kept.pins:
            kept.pins.remove(operation)
        return kept is not None and kept.published


class SimFolders(Port):
    """The folder of the tree, where it is carried."""

    async def measure(self, folder, checkpoint):
        assert folder == GUARD
        await self._step("measure")
        return CarriedFolder(folder, checkpoint, 0, 2, 3 * MIB)

    async def pack(self, carried, images, most_bytes, report, *, runs_on=False):
        expect(not any(each.runs for each in self.world.living()), "the folder of a tree that runs is packed")
        expect(most_bytes > carried.size_bytes, "P2: no room was reserved for the folder")
        await self._step("pack")
        return attrs.evolve(carried, files=3)

    async def look(self, carried):
        return self.world.place

    async def place(self, carried, images, operation):
        expect(images == self.world.verified, "C9: a folder is unpacked that was not verified by this life")
        await self._step("place")
        self.world.placed = operation
        await Await()

    async def granted(self, folder, within_ns):
        assert (folder, within_ns > 0) == (GUARD, True)
        await self._step("granted")

    async def leave(self, carried, operation, outcome):
        await self._step("leave")
        if outcome is Outcome.FAILED and not self.world.vouched:
            expect(not self.world.living(), "a folder is taken from a tree that lives")
            self.world.placed = ""
        self.world.left = operation
        await Await()


class Held:
    """A tree that the simulated CRIU holds."""

    report = DumpReport()

    def __init__(self, ports: SimCriu, tree: list[Process]) -> None:
        self.ports, self.tree = ports, tree

    async def resume(self, within_ns):
        await self.ports._step("resume")
        self.ports.world._orphan_over()

    async def end(self, within_ns):
        world = self.ports.world
        await self.ports._step("held_end")
        if world.run is not None:
            world.run.ending = True
        for process in self.tree:
            await Await()
            world.kill(process)
        world.run = None


def context(world: World) -> FakeContext:
    """Return what decisions may know: one clock, the world's."""
    return FakeContext(now=world.ticks, attentive=world.ticks, wall=world.ticks)


class Crash(BaseException):
    """The process that freezes dies here."""


async def one_by_one(calls):
    """Stand in for ``together``: all are made, then the first error is raised."""
    errors = []
    for call in calls:
        try:
            await call()
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]


class Runner:
    """One operation on a world, over all its lives. ``crashes`` are the numbers of boundaries at which it dies."""

    def __init__(self, world, logic, crashes=(), cancel_at=0) -> None:
        self.world, self.logic = world, logic
        self.crashes, self.cancel_at = tuple(crashes), cancel_at
        self.records: list[object] = []
        self.events: list[object] = []
        self.boundary = 0
        self.life = 0
        self.lives = 0
        self.graveyard: list[object] = []

    def run(self, message) -> object:
        """Run until nothing is owed; give the state."""
        self._begin()
        self.queue.append(message)
        while True:
            try:
                if not self._turn():
                    break
            except Crash:
                self._die()
        if self.effect is not None or self.timers:
            raise Broken("something is left to do and nobody does it")
        return self.state

    def _begin(self) -> None:
        self.life += 1
        self.lives += 1
        self.state = (freezing.Freeze if self.logic is freezing else thawing.Thaw)()
        world, life = self.world, self.life
        self.desk = Desk(
            *(port(world, life) for port in (SimProcesses, SimCriu, SimCuda, SimGpus, SimHooks, SimArtifacts)),
            together=one_by_one,
            folders=SimFolders(world, life),
        )
        self.functions = self.desk.effects()
        self.effect = None
        self.waiting: list[Run] = []
        self.queue: list[object] = []
        self.timers: dict[object, object] = {}
        for record in self.records:
            self.logic.evolve(self.state, record)
        self._carry_out(self.logic.resume(self.state, context(world)))

    def _die(self) -> None:
        # Never closed: what dies runs no "finally". What it holds open closes by itself, and that is `World.crash`.
        self.graveyard.append((self.effect, self.desk))
        if self.effect is not None and inspect.getcoroutinestate(self.effect[1]) == inspect.CORO_CREATED:
            self.effect[1].close()  # it had not begun, and Python warns of one that never does
        self.world.crash(self.life)
        self._begin()

    def _cross(self) -> None:
        self.boundary += 1
        if self.boundary > LIMIT:
            raise Broken("it never comes to an end")
        self.world.tick()
        if self.boundary in self.crashes:
            raise Crash

    def _turn(self) -> bool:
        if self.cancel_at and self.boundary >= self.cancel_at:
            self.cancel_at = 0
            self.queue.insert(0, CancelOperation("somebody pressed a key"))
        if self.queue:
            self._decide(self.queue.pop(0))
        elif self.effect is not None:
            self._advance()
        elif self.timers:
            for _ in range(8):
                self.world.tick()
            _, message = self.timers.popitem()
            self.queue.append(message)
        else:
            return False
        return True

    def _decide(self, message) -> None:
        rule = self.logic.rules()[type(message)]
        outcome = rule(self.state, message, context(self.world))
        records = outcome.records if isinstance(outcome, Decision) else ()
        commands = (outcome.commands if isinstance(outcome, Decision) else outcome) or ()
        self._cross()  # before the records are on the disk
        for record in records:
            self.logic.evolve(self.state, record)
            self.records.append(record)
        self._cross()  # after that, before anything has left
        self._carry_out(commands)

    def _carry_out(self, commands) -> None:
        for command in commands:
            match command:
                case Run():
                    if self.effect is None:
                        self._start(command)
                    else:
                        raise Broken(f"{command} while {self.effect[0]} runs")
                case Cancel():
                    self._cancel()
                case SetTimer(key=key, message=message):
                    self.timers[key] = message
                case CancelTimer(key=key):
                    self.timers.pop(key, None)
                case Continue(message=message):
                    self.queue.append(message)
                case Emit(event=event):
                    self.events.append(event)
                case _:
                    raise Broken(f"an unexpected command: {command}")

    def _start(self, command: Run) -> None:
        self.effect = (command, self.functions[type(command.effect)](command.effect))

    def _cancel(self) -> None:
        if self.effect is None:
            return
        _, coroutine = self.effect
        self.effect = None
        try:
            coroutine.throw(Cancelled())
        except (Cancelled, StopIteration):
            return
        raise Broken("an effect went on after it was cancelled")

    def _advance(self) -> None:
        command, coroutine = self.effect
        try:
            coroutine.send(None)
        except StopIteration as stop:
            self.effect = None
            self.queue.append(Completed(command.key, command.effect, stop.value))
        except (Broken, Crash):
            raise
        except Exception as error:
            self.effect = None
            self.queue.append(Failed(command.key, command.effect, error))
        else:
            self._cross()


def freeze(world, crashes=(), cancel_at=0, tier="ram", unheard=False, **plan) -> Runner:
    """Freeze the world's tree; give the runner when nothing is owed."""
    runner = Runner(world, freezing, crashes, cancel_at)
    runner.run(FreezeTree(FreezePlan("op-1", world.source[0], tier, **plan)))
    check(world, runner, unheard=unheard)
    return runner


def thaw(world, crashes=(), cancel_at=0, unheard=False, **plan) -> Runner:
    """Thaw what :func:`freeze` froze."""
    runner = Runner(world, thawing, crashes, cancel_at)
    runner.run(ThawTree(ThawPlan("op-2", "op-1", **plan)))
    check(world, runner, unheard=unheard)
    return runner


def check(world: World, runner: Runner, *, unheard: bool = False) -> None:
    """What holds when nothing is owed, however it came to that; ``unheard``: the application cannot be told."""
    state = runner.state
    over = state.phase in (FreezePhase.OVER, ThawPhase.OVER, FreezePhase.NEW, ThawPhase.NEW)
    expect(over, f"nothing is owed, and it is {state.phase}")
    expect(not world.holding, "P2: memory is promised to what is over")
    ends = [each for each in runner.events if isinstance(each, OperationEnded)]
    expect(len(ends) <= 1, "it ended twice")
    for process in world.living():
        expect(process.cuda in (None, CudaState.RUNNING), f"C1: {process.identity.pid} is left {process.cuda}")
        expect(not process.held, f"C6: {process.identity.pid} is left held")
        expect(process.stopped == process.was_stopped, f"C6: {process.identity.pid} is left stopped")
        expect(unheard or not process.resting, f"{process.identity.pid} was told to rest and never to go on")
    expect(world.run is None or world.run.life < 0, "a CRIU is left")
    expect(not (world.missing and world.living()), "C9: a tree is left of which pages are missing")
    for name, artifact in world.artifacts.items():
        expect(artifact.published, f"C8: {name} is neither whole nor removed, and takes {artifact.reserved} bytes")
        expect(artifact.sealed, f"C8: {name} is visible and was never sealed")
        expect(artifact.reserved == 30 * MIB, "P2: what was reserved and not used never came back")
        expect(not artifact.pins, f"C12: {name} is pinned for ever")


def expect(holds: bool, text: str) -> None:
    """Raise :class:`Broken` if it does not hold."""
    if not holds:
        raise Broken(text)
