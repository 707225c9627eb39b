"""Carries out what a freeze and a thaw ask for, through the ports: the only place where the two meet.

One desk serves one operation. It remembers the tree that is held, because that is a connection to a running CRIU and no
value; an operation that is taken up by another life has none, and lets go by ending CRIU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import anyio
import attrs

from iriscw.freeze.carried import FolderUnfit
from iriscw.freeze.deadlines import GRANT_NS, GUARD_NS
from iriscw.freeze.drivers.folder.driver import DiskFolders
from iriscw.freeze.effects import (
    AwaitPages,
    CheckpointCuda,
    Confirm,
    Discard,
    Dump,
    Dumped,
    EndTree,
    LeaveFolder,
    LockCuda,
    Look,
    Looked,
    OpenArtifact,
    Opened,
    Proceed,
    Prove,
    Publish,
    Quiesce,
    ReadStates,
    Release,
    Reserve,
    Restore,
    RestoreCuda,
    Seal,
    States,
    SweepRestore,
    UnlockCuda,
    Unpin,
    Verify,
    Wake,
)
from iriscw.freeze.gates import MEMORY_MARGIN_BYTES
from iriscw.freeze.model import (
    CudaOverdue,
    CudaRefused,
    CudaState,
    CudaTask,
    Kept,
    LazyPages,
    NoRoom,
    ProcessTree,
    Progress,
    RestoreReport,
    RightsMissing,
    Room,
    Sealed,
    TargetGone,
    TaskIdentity,
    TreeChanged,
    TreeLeft,
)
from iriscw.freeze.ports import Artifacts, AttemptFolders, Criu, Cuda, Gpus, HeldTree, Hooks, Processes, Report
from iriscw.freeze.traits import Obstacle

Effect = TypeVar("Effect")
Together = Callable[[Sequence[Callable[[], Awaitable[None]]]], Awaitable[None]]


async def together(calls: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Make calls at the same time, wait for all of them, then raise the first error there was.

    No call is given up because another one failed: what it did would not be known.
    """
    errors: list[Exception] = []

    async def one(call: Callable[[], Awaitable[None]]) -> None:
        try:
            await call()
        except Exception as error:  # noqa: BLE001 - raised below
            errors.append(error)

    async with anyio.create_task_group() as tasks:
        for call in calls:
            tasks.start_soon(one, call)
    if errors:
        raise errors[0]


def unseen(_: Progress) -> None:
    """Take progress that nobody looks at."""


def _as_before(held: ProcessTree, stopped: Mapping[TaskIdentity, bool]) -> ProcessTree:
    """Return a tree that CRIU holds as it was without that: who was stopped by somebody else, and traced by nobody."""
    tasks = tuple(attrs.evolve(task, stopped=stopped.get(task.identity, False), traced_by=0) for task in held.tasks)
    hindrances = tuple(each for each in held.hindrances if each.obstacle is not Obstacle.TRACED)
    return attrs.evolve(held, tasks=tasks, hindrances=hindrances)


@attrs.define(eq=False)
class Desk:
    """The ports of one operation."""

    processes: Processes
    criu: Criu
    cuda: Cuda
    gpus: Gpus
    hooks: Hooks
    artifacts: Artifacts
    report: Report = unseen
    together: Together = together
    folders: AttemptFolders = attrs.field(factory=DiskFolders)
    _held: HeldTree | None = attrs.field(default=None, init=False)
    _pages: LazyPages | None = attrs.field(default=None, init=False)
    """What was left out when the artifact was verified. Whoever takes up a restore kills it, so it needs no record."""

    def effects(self) -> dict[type, Callable[..., Awaitable[object]]]:
        """Return the function for each effect."""
        return {
            Look: self.look,
            Reserve: self.reserve,
            Quiesce: self.quiesce,
            Wake: self.wake,
            LockCuda: self.lock,
            CheckpointCuda: self.checkpoint,
            RestoreCuda: self.restore_cuda,
            UnlockCuda: self.unlock,
            Dump: self.dump,
            Release: self.release,
            EndTree: self.end_tree,
            ReadStates: self.read_states,
            Seal: self.seal,
            Publish: self.publish,
            Discard: self.discard,
            OpenArtifact: self.open,
            Verify: self.verify,
            Restore: self.restore,
            Prove: self.prove,
            Confirm: self.confirm,
            AwaitPages: self.await_pages,
            SweepRestore: self.sweep,
            Proceed: self.proceed,
            LeaveFolder: self.leave_folder,
            Unpin: self.unpin,
        }

    # The target, and this machine

    async def look(self, effect: Look) -> Looked:
        """Look at both, cheapest first: a missing CRIU is said before anything is asked of the driver."""
        host = await self.processes.host()
        tree = await self.processes.tree(effect.root)
        criu = await self.criu.ability()
        ability = await self.cuda.ability()
        found = await self.cuda.tasks(tree.identities, effect.within_ns)  # without a driver too: a GPU may be in use
        gpus = await self.gpus.list() if found else ()  # asking takes longer than all else here
        promised = await self.artifacts.promised(effect.tier)
        memory = await self.processes.free_memory(effect.root)
        guard = await self.processes.guard(effect.root)
        if effect.carried_as and not guard:
            raise FolderUnfit(
                f"process {effect.root.pid} is not a supervisor of iriscw: no folder of it can be carried"
            )
        folder = await self.folders.measure(guard, effect.carried_as) if effect.carried_as else None
        return Looked(host, tree, criu, ability, found, gpus, memory, promised, guard, folder)

    async def read_states(self, effect: ReadStates) -> States:
        """Read who lives, and what CUDA says of those: at the same time, so that one that hangs holds up no other."""
        living = await self.processes.living(effect.tasks)
        told: dict[TaskIdentity, CudaState | None] = {}
        asked = [task for task in effect.cuda if task in living]
        await self.together([partial(self._read_state, task, effect.within_ns, told) for task in asked])
        return States(living, tuple((task, told[task]) for task in asked if task in told))

    async def _read_state(self, task: TaskIdentity, within_ns: int, told: dict[TaskIdentity, CudaState | None]) -> None:
        try:
            told[task] = await self.cuda.state(task, within_ns)
        except TargetGone:
            return
        except (CudaRefused, CudaOverdue, RightsMissing):
            told[task] = None

    async def end_tree(self, effect: EndTree) -> tuple[TaskIdentity, ...]:
        """Kill the tree that is held, and whatever else is left of these tasks."""
        if self._held is not None:
            try:
                await self._held.end(effect.within_ns)
            except TreeLeft:
                if not effect.given_up:
                    raise
            self._held = None
        return await self.processes.end(effect.tasks, effect.within_ns, heirs=effect.thawed)

    async def proceed(self, effect: Proceed) -> None:
        """Let stopped tasks run; where there is a guard, the rest only once it vouches for them."""
        if effect.carried:
            await self.folders.granted(effect.guard, GRANT_NS)
        if effect.guard:
            await self.processes.vouched(effect.tree, effect.guard, GUARD_NS)
        await self.processes.proceed(effect.tasks, below=effect.below)

    # The application

    async def quiesce(self, effect: Quiesce) -> None:
        """Bring it to rest."""
        await self.hooks.quiesce(effect.hook, effect.root)

    async def wake(self, effect: Wake) -> None:
        """Tell it to go on."""
        await self.hooks.wake(effect.hook, effect.root)

    # CUDA

    async def lock(self, effect: LockCuda) -> None:
        """Lock one after the other, in the order given: after one that is refused, no other is touched."""
        for task in effect.tasks:
            await self.cuda.lock(task, effect.within_ns)

    async def checkpoint(self, effect: CheckpointCuda) -> None:
        """Checkpoint one after the other, in the order given."""
        for task in effect.tasks:
            await self.cuda.checkpoint(task, effect.within_ns)
        self.processes.memory_taken(effect.operation)

    async def restore_cuda(self, effect: RestoreCuda) -> None:
        """Restore one after the other, in the order given: each needs its memory."""
        for task in effect.tasks:
            await self.cuda.restore(task, effect.within_ns, dict(effect.gpus))

    async def unlock(self, effect: UnlockCuda) -> None:
        """Unlock one after the other, in the order given."""
        for task in effect.tasks:
            await self.cuda.unlock(task, effect.within_ns)

    # CRIU

    async def dump(self, effect: Dump) -> Dumped:
        """Dump the tree and keep it held; say who is in the images, and who uses CUDA although it is not known to.

        The folder of one that is to run on is packed now, while nothing of it runs.
        """
        cuda: tuple[CudaTask, ...] = ()
        available = (await self.cuda.ability()).available
        before = await self.processes.members(effect.request.root)
        if available:  # before CRIU stops them: a stopped process may be unable to answer the driver
            cuda = await self.cuda.tasks(tuple(before), effect.request.within_ns)
        operation, images = effect.request.operation, effect.request.images
        # To read beside CRIU costs it some speed, and only who stays held until all is read gains by it.
        with self.artifacts.following(operation, images) if effect.ends else contextlib.nullcontext():
            self._held = await self.criu.dump(effect.request, self.report)
        tree = _as_before(await self.processes.tree(effect.request.root, closely=True), before)
        if available:
            cuda += await self._strangers(tree, cuda)
        folder = None
        if effect.carried is not None:
            most_bytes = effect.request.most_bytes
            folder = await self.folders.pack(effect.carried, images, most_bytes, self.report, runs_on=True)
        return Dumped(self._held.report, tree, cuda, folder)

    async def _strangers(self, tree: ProcessTree, known: tuple[CudaTask, ...]) -> tuple[CudaTask, ...]:
        """Return those who hold device memory although all that was known of is checkpointed.

        Where the GPUs cannot be looked at, a tree without CUDA is frozen all the same: who began to use it since would
        hold devices, which CRIU refuses.
        """
        identities = [task.identity for task in known]
        try:
            used = await self.gpus.used_by([identity.pid for identity in tree.identities])
        except CudaRefused:
            if known:
                raise
            return ()
        return tuple(
            CudaTask(identity, CudaState.RUNNING, 0, sum(held.values()), tuple(held), tuple(held.items()))
            for identity, held in ((each, used.get(each.pid)) for each in tree.identities)
            if held is not None and identity not in identities
        )

    async def release(self, effect: Release) -> None:
        """Let the tree run, by letting it go or by ending the CRIU of an earlier life."""
        if self._held is not None:
            await self._held.resume(effect.sweep.within_ns)
            self._held = None
        else:
            await self.criu.sweep(effect.sweep)

    async def restore(self, effect: Restore) -> RestoreReport:
        """Bring a tree back, stopped. Of a lazy one the memory is taken when its pages are there, or it is killed."""
        request = effect.request
        await self._promise(request.operation, effect.size_bytes, effect.group, await self.artifacts.promised() or 0)
        if effect.carried is not None:
            await self.folders.place(effect.carried, request.images, request.operation)
        report = await self.criu.restore(request, self.report, self._pages if request.lazy else None)
        if not request.lazy:
            self.processes.memory_taken(request.operation)
        return report

    async def prove(self, effect: Prove) -> str:
        """Compare what is back with what was frozen, and write down who it is; give what differs, if that is taken."""
        differs = ""
        try:
            await self.processes.prove(effect.frozen, effect.tasks)
        except TreeChanged as error:
            if not effect.force:
                raise
            differs = str(error)
        before = await self.processes.living(effect.returned)
        await self.artifacts.came_back(effect.artifact, (*before, *effect.tasks))
        return differs

    async def confirm(self, effect: Confirm) -> None:
        """Ask whether what runs is what it was."""
        await self.hooks.confirm(effect.hook, effect.root)

    async def await_pages(self, effect: AwaitPages) -> None:
        """Wait until all pages of a tree are there."""
        await self.criu.paging(effect.work, effect.within_ns, self.report)
        self.processes.memory_taken(effect.operation)

    async def sweep(self, effect: SweepRestore) -> tuple[TaskIdentity, ...]:
        """End what a restore left."""
        return await self.criu.sweep(effect.request)

    # Artifacts

    async def reserve(self, effect: Reserve) -> Room:
        """Take room in the tier, and memory for what comes off the GPUs."""
        room = await self.artifacts.reserve(effect.operation, effect.tier, effect.size_bytes)
        promised = await self.artifacts.promised() or 0
        if effect.device_bytes or promised:
            await self._promise(effect.operation, effect.device_bytes, effect.group, promised)
        return room

    async def _promise(self, operation: str, size_bytes: int, group: str, besides_bytes: int) -> None:
        """Take memory, as long as it is not taken by what needs it."""
        left = await self.processes.promise_memory(operation, size_bytes, group, besides_bytes)
        needed = size_bytes + MEMORY_MARGIN_BYTES
        if left < needed:
            self.processes.memory_taken(operation)
            raise NoRoom(
                f"{max(0, left) >> 20} MiB of memory are left where it lands beside what others are about to take, and "
                f"{needed >> 20} are needed"
            )

    async def seal(self, effect: Seal) -> Sealed:
        """Pack the folder that is carried, and give every byte a digest."""
        frozen = effect.frozen
        if frozen.carried is not None and not effect.packed:
            packed = await self.folders.pack(frozen.carried, effect.images, effect.most_bytes, self.report)
            frozen = attrs.evolve(frozen, carried=packed)
        return await self.artifacts.seal(effect.operation, frozen, effect.labels, self.report)

    async def publish(self, effect: Publish) -> None:
        """Make it visible."""
        await self.artifacts.publish(effect.operation)

    async def discard(self, effect: Discard) -> None:
        """Remove what was written."""
        self.processes.memory_taken(effect.operation)
        await self.artifacts.discard(effect.operation)

    async def open(self, effect: OpenArtifact) -> Opened:
        """Pin an artifact, and look at what a thaw needs to know."""
        return await self.compare(await self.artifacts.pin(effect.artifact, effect.operation))

    async def compare(self, kept: Kept) -> Opened:
        """Look at what of this machine a thaw of an artifact has to do with."""
        frozen = kept.frozen
        identities = tuple(task.identity for task in frozen.tasks)
        ability = await self.cuda.ability()
        threads = (number for task in frozen.tasks if task.traits is not None for number in task.traits.threads)
        return Opened(
            kept=kept,
            host=await self.processes.host(),
            criu=await self.criu.ability(),
            cuda=ability,
            gpus=await self.gpus.list() if frozen.cuda_tasks else (),
            living=await self.processes.living((*identities, *kept.returned)),
            taken=await self.processes.taken([*(task.number for task in frozen.tasks), *threads]),
            free_memory_bytes=await self.processes.free_memory_bytes(frozen.group),
            ticks=await self.processes.ticks(),
            namespaces=await self.processes.namespaces(),
            files=await self.processes.files(frozen.files),
            met=await self.processes.meet(frozen, kept.room.images, kept.returned),
            folder=None if frozen.carried is None else await self.folders.look(frozen.carried),
        )

    async def verify(self, effect: Verify) -> None:
        """Read every byte and compare, or all but the pages."""
        if effect.lazy:
            self._pages = await self.artifacts.verify_but_pages(effect.artifact, self.report)
        else:
            await self.artifacts.verify(effect.artifact, self.report)

    async def leave_folder(self, effect: LeaveFolder) -> None:
        """Keep the folder that was put in its place, or what was there before."""
        await self.folders.leave(effect.carried, effect.operation, effect.outcome)

    async def unpin(self, effect: Unpin) -> bool:
        """Let it be removed again, and say whether it is there."""
        self.processes.memory_taken(effect.operation)
        return await self.artifacts.unpin(effect.artifact, effect.operation)
