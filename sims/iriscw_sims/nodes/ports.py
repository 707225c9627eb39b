"""The ports of freezing on a simulated machine: processes, CUDA, GPUs and applications.

Each keeps the contract of :mod:`iriscw.freeze.ports`, whatever goes wrong. One set of ports serves one operation in one
life of the process that runs it, so that whoever touches something is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from iriscw.freeze.cuda_codes import ILLEGAL_STATE, refusal
from iriscw.freeze.model import (
    CudaAbility,
    CudaNoMemory,
    CudaOverdue,
    CudaState,
    CudaTask,
    FreeMemory,
    FrozenTree,
    GuardRefused,
    Hook,
    ImageHost,
    Met,
    NvmlGpu,
    ProcessTree,
    TargetGone,
    TaskIdentity,
    TreeProcess,
    VerifyFailed,
)
from iriscw.freeze.traits import Hindrance, Obstacle, OpenFile
from iriscw.runtime.vocabulary import MILLISECOND
from iriscw_sims.nodes.checks import Checks
from iriscw_sims.nodes.machine import Machine, Process
from iriscw_sims.nodes.stepping import Await, Cancelled

LANDS_AFTER = 6
"""Ticks after which a call that nobody waits for any more may have its effect."""

LOOKS_EVERY = 20 * MILLISECOND
"""Between two looks of who waits for a supervisor's word."""


class Port:
    """What all ports have: their machine, who judges, and for whom and in which life of the agent they work."""

    def __init__(self, machine: Machine, checks: Checks, operation: str, life: int) -> None:
        self.machine, self.checks, self.operation, self.life = machine, checks, operation, life

    async def _step(self, method: str, size_bytes: int = 0) -> None:
        """Take a step of a call: it may fail at its end."""
        error = self.machine.fate.fault(method, self.operation)
        await Await(self.machine.fate.lasts(method, size_bytes))
        self.checks.called(self.operation, method)
        if error is not None:
            raise error

    def _alive(self, task: TaskIdentity) -> Process:
        process = self.machine.find(task)
        if process is None or not process.alive:
            raise TargetGone(f"process {task.pid} has ended")
        return process


class SimProcesses(Port):
    """Processes."""

    async def host(self) -> ImageHost:
        """See the port."""
        machine = self.machine
        return ImageHost(machine.boot_id, "x86_64", 4096, "6.1", machine.node, ("avx",))

    async def identify(self, pid: int) -> TaskIdentity:
        """See the port."""
        for process in self.machine.living():
            if process.pid == pid:
                return process.identity
        raise TargetGone(f"there is no process {pid}")

    async def tree(self, root: TaskIdentity, *, closely: bool = False) -> ProcessTree:
        """See the port."""
        await self._step("tree")
        self._alive(root)
        found = self.machine.below(root)
        hindrances = tuple(
            Hindrance(Obstacle.TCP, each.pid, f"process {each.pid} has an established TCP connection")
            for each in found
            if each.connections
        )
        pages = tuple(
            Hindrance(Obstacle.PAGES, each.pid, f"pages of process {each.pid} are still to come")
            for each in found
            if each.pager is not None and not each.pager.over
        )
        return ProcessTree(tuple(self._task(each) for each in found), (*hindrances, *pages))

    async def members(self, root: TaskIdentity) -> Mapping[TaskIdentity, bool]:
        """See the port."""
        await self._step("members")
        self._alive(root)
        return {each.identity: each.stopped for each in self.machine.below(root)}

    def _task(self, process: Process) -> TreeProcess:
        name = f"task-{process.pid}"
        return TreeProcess(process.identity, process.parent, name, process.memory_bytes, stopped=process.stopped)

    async def living(self, tasks: Sequence[TaskIdentity]) -> tuple[TaskIdentity, ...]:
        """See the port."""
        await self._step("living")
        found = [self.machine.find(task) for task in tasks]
        return tuple(each.identity for each in found if each is not None and each.alive)

    async def taken(self, pids: Sequence[int]) -> tuple[int, ...]:
        """See the port."""
        return tuple(pid for pid in pids if self.machine.takes(pid))

    async def free_memory_bytes(self, group: str = "") -> int:
        """See the port."""
        return max(0, self.machine.free_where_trees_land())

    async def promise_memory(self, operation: str, size_bytes: int, group: str, besides_bytes: int = 0) -> int:
        """See the port."""
        self.machine.promised[operation] = size_bytes
        return self.machine.free_where_trees_land(operation, besides_bytes)

    def memory_taken(self, operation: str) -> None:
        """See the port."""
        self.machine.promised.pop(operation, None)

    async def namespaces(self) -> tuple[tuple[str, int], ...]:
        """See the port."""
        return ()

    async def files(self, opened: Sequence[OpenFile]) -> tuple[OpenFile | None, ...]:
        """See the port."""
        return tuple(opened)

    async def meet(self, frozen: FrozenTree, images: str, returned: Sequence[TaskIdentity]) -> Met:
        """See the port: nothing here has locks, names or heirs."""
        return Met()

    async def prove(self, frozen: Sequence[TreeProcess], made: Sequence[TaskIdentity]) -> None:
        """See the port."""
        await self._step("prove")
        for task in made:
            self.checks.proven(self.operation, self._alive(task))

    async def free_memory(self, task: TaskIdentity) -> FreeMemory:
        """See the port."""
        return self.machine.free_memory()

    async def ticks(self) -> int:
        """See the port."""
        return self.machine.ticks

    async def guard(self, root: TaskIdentity) -> str:
        """See the port."""
        process = self.machine.find(root)
        return process.supervises if process is not None else ""

    async def vouched(self, tree: Sequence[TaskIdentity], guard: str, within_ns: int) -> None:
        """See the port."""
        self.checks.limited(self.operation, "vouched", within_ns)
        await self._step("vouched")
        first = self.machine.find(tree[0])
        for _ in range(within_ns // LOOKS_EVERY):
            if tree[0] in self.machine.vouched:
                return
            if first is None or not first.alive:
                raise GuardRefused(f"process {tree[0].pid}, which guards it, has ended: it has no grant to go on")
            self.checks.touched(self.operation, first)
            first.stopped = first.was_stopped = False  # one that somebody had stopped runs, too: nobody else can vouch
            await Await(LOOKS_EVERY)
        raise GuardRefused(f"process {tree[0].pid}, which guards it, says nothing")

    async def proceed(self, tasks: Sequence[TaskIdentity], *, below: bool = False) -> None:
        """See the port."""
        if not below:
            self.checks.all_run(self.operation)
        for task in tasks[1:] if below else tasks:
            await self._step("proceed")
            process = self.machine.find(task)
            if process is not None and process.alive:
                self.checks.let_run(self.operation, process)
                process.stopped = False

    async def end(
        self, tasks: Sequence[TaskIdentity], within_ns: int, *, heirs: bool = False
    ) -> tuple[TaskIdentity, ...]:
        """See the port."""
        self.checks.limited(self.operation, "end", within_ns)
        for task in tasks:
            await Await(self.machine.fate.lasts("end", 0))
            for process in self.machine.below(task):
                self.checks.touched(self.operation, process)
                process.stopped = True
        left = []
        orphans = self.machine.came_of(tasks) if heirs else []
        for process in orphans:
            self.checks.touched(self.operation, process)
            process.stopped = True
        for task in (*tasks, *(each.identity for each in orphans)):
            await self._step("end")
            for process in self.machine.below(task):
                if self.machine.fate.may("process dies slowly", f"process/{process.pid}"):
                    left.append(process.identity)
                    self.checks.of(self.operation).failures["end"] += 1
                    continue
                self.checks.ends(self.operation, process)
                self.machine.kill(process)
        return tuple(left)


class SimCuda(Port):
    """The driver: every call is a program of its own, which an agent that is killed leaves behind."""

    async def ability(self) -> CudaAbility:
        """See the port."""
        return CudaAbility(True, self.machine.driver, "api", True)

    async def tasks(self, identities: Sequence[TaskIdentity], within_ns: int) -> tuple[CudaTask, ...]:
        """See the port."""
        self.checks.limited(self.operation, "tasks", within_ns)
        await self._step("tasks")
        found = [self.machine.find(each) for each in identities]
        return tuple(
            CudaTask(
                each.identity, each.cuda, each.pid, each.device_bytes, (each.gpu,), ((each.gpu, each.device_bytes),)
            )
            for each in found
            if each is not None and each.alive and each.cuda is not None
        )

    async def state(self, task: TaskIdentity, within_ns: int) -> CudaState:
        """See the port."""
        self.checks.limited(self.operation, "state", within_ns)
        self.checks.told(self.operation, task, None)
        await self._step("state")
        process = self._alive(task)
        if any(each[1] is process for each in self.machine.landing):
            raise CudaOverdue("the process is within another call")
        if process.cuda is None:
            raise TargetGone(f"process {task.pid} does not use CUDA any more")
        if task in self.machine.unknown:
            self.machine.unknown.remove(task)
        self.checks.told(self.operation, task, process.cuda)
        return process.cuda

    async def lock(self, task: TaskIdentity, within_ns: int) -> None:
        """See the port."""
        await self._verb("lock", task, within_ns, CudaState.RUNNING, CudaState.LOCKED)

    async def checkpoint(self, task: TaskIdentity, within_ns: int) -> None:
        """See the port."""
        await self._verb("checkpoint", task, within_ns, CudaState.LOCKED, CudaState.CHECKPOINTED)
        self.checks.memory()

    async def restore(self, task: TaskIdentity, within_ns: int, gpus: Mapping[str, str]) -> None:
        """See the port."""
        await self._verb("cuda_restore", task, within_ns, CudaState.CHECKPOINTED, CudaState.LOCKED, gpus)

    async def unlock(self, task: TaskIdentity, within_ns: int) -> None:
        """See the port."""
        await self._verb("unlock", task, within_ns, CudaState.LOCKED, CudaState.RUNNING)

    async def _verb(
        self,
        method: str,
        task: TaskIdentity,
        within_ns: int,
        before: CudaState,
        after: CudaState,
        gpus: Mapping[str, str] | None = None,
    ) -> None:
        machine = self.machine
        self.checks.driver_called(self.operation, method, task, within_ns)
        error = machine.fate.fault(method, self.operation)
        machine.unknown.append(task)
        if isinstance(error, CudaOverdue):
            if machine.fate.may("driver call lands late", f"process/{task.pid}"):
                machine.landing.append((machine.ticks + LANDS_AFTER, self._alive(task), after))
            await Await(machine.fate.lasts(f"{method} hangs", within_ns))
            raise error
        process = self._alive(task)
        flight = (process, after)
        machine.in_flight.append(flight)
        try:
            await Await(machine.fate.lasts(method, process.device_bytes))
        except Cancelled:
            if machine.fate.may("driver call lands late", f"process/{task.pid}"):
                machine.landing.append((machine.ticks + LANDS_AFTER, process, after))
            raise
        finally:
            if flight in machine.in_flight:
                machine.in_flight.remove(flight)
        self.checks.called(self.operation, method)
        process = self._alive(task)
        if method == "cuda_restore" and error is None:
            error = self._moved(process, gpus or {})
        if isinstance(error, CudaNoMemory):
            process.cuda = CudaState.FAILED
        if error is not None:
            raise error
        if process.cuda is not before:
            raise refusal(method, task.pid, ILLEGAL_STATE, root=True)
        process.cuda = after
        await Await(machine.fate.lasts(method, 0))
        machine.unknown.remove(task)

    def _moved(self, process: Process, gpus: Mapping[str, str]) -> Exception | None:
        """Put a process on its GPU again, if there is room."""
        if gpus and process.gpu not in gpus:
            self.checks.violate("C7", f"operation {self.operation}: the map lacks a GPU that was used: {process.gpu}")
        wanted = gpus.get(process.gpu, process.gpu)
        found = next((gpu for gpu in self.machine.gpus_now() if gpu.uuid == wanted), None)
        if process.cuda is not CudaState.CHECKPOINTED:
            return None
        if found is None or found.free_bytes < process.device_bytes:
            return refusal("cuda_restore", process.pid, 2, root=True)
        process.gpu = wanted
        return None


class SimGpus(Port):
    """The GPUs."""

    async def list(self) -> tuple[NvmlGpu, ...]:
        """See the port."""
        return self.machine.gpus_now()

    async def used_by(self, pids: Sequence[int]) -> Mapping[int, Mapping[str, int]]:
        """See the port."""
        await self._step("used_by")
        held = {each.pid: each for each in self.machine.living() if each.on_gpu_bytes}
        return {pid: {held[pid].gpu: held[pid].device_bytes} for pid in pids if pid in held}


class SimHooks(Port):
    """Applications."""

    async def quiesce(self, hook: Hook, root: TaskIdentity) -> None:
        """See the port."""
        await self._step("quiesce")
        self._alive(root).resting = True

    async def wake(self, hook: Hook, root: TaskIdentity) -> None:
        """See the port."""
        await self._step("wake")
        self._alive(root).resting = False

    async def confirm(self, hook: Hook, root: TaskIdentity) -> None:
        """See the port."""
        await self._step("confirm")
        process = self.machine.find(root)
        if process is None or not process.alive:
            raise VerifyFailed(f"process {root.pid} does not answer")
