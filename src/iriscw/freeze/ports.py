"""The ports of freezing and thawing, and the error contract of each method.

Rules for all. A method raises only the errors its docstring names (they stand in :mod:`iriscw.freeze.model`), each with
a sentence for users; what lies underneath is translated by the driver. ``within_ns`` is a deadline the driver keeps by
itself, with the kill of all that it started: it returns or raises by then, or at most :data:`KILL_PATIENCE_NS` later
(INV-C2). A call that is cancelled ends what it started before it lets the cancellation pass. Processes are
named by :class:`~iriscw.freeze.model.TaskIdentity`; a driver checks it *after* it has opened a pidfd and touches
nothing else (INV-C3). No call is repeated by a driver: who asked reads the state and decides (INV-C5). Nothing that a
driver writes to a log or an error holds environment variables or memory of the target (INV-C14).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

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
    LazyPages,
    Met,
    NvmlGpu,
    Outcome,
    ProcessTree,
    Progress,
    RestoreReport,
    RestoreRequest,
    Room,
    Sealed,
    SweepRequest,
    TaskIdentity,
    TreeProcess,
)
from iriscw.freeze.traits import CarriedFolder, FolderSight, OpenFile

KILL_PATIENCE_NS = 10_000_000_000
"""How long past its deadline a call may take to kill what it started: a process in a driver dies slowly."""

Report = Callable[[Progress], None]
"""Takes progress. It returns at once and raises nothing; a driver may leave it uncalled."""


class Processes(Protocol):
    """The processes of this machine."""

    async def host(self) -> ImageHost:
        """Say what machine this is. Raises nothing."""
        ...

    async def identify(self, pid: int) -> TaskIdentity:
        """Say who has this number now.

        Raises:
            TargetGone: nobody, or a zombie.
            TargetUnfit: one whose first thread has ended, while others go on.
        """
        ...

    async def tree(self, root: TaskIdentity, *, closely: bool = False) -> ProcessTree:
        """Read the tree below a process, with what stands in the way of freezing it (``Tree.hindrances``).

        Closely: also the traits of each process, and the files that are open. The tree has to be held for that, or
        stopped: of one that runs they are none of one moment.

        What ends meanwhile is left out; what was forked meanwhile is found (the walk is repeated until it is stable,
        or a bound is reached).

        Raises:
            TargetGone: the root has ended.
            TargetUnfit: the tree has more than ``MAX_TASKS`` tasks, or never holds still.
            RightsMissing: the tree may not be looked at.
        """
        ...

    async def members(self, root: TaskIdentity) -> Mapping[TaskIdentity, bool]:
        """Return the processes of a tree, and whether each is stopped, and nothing else of them: it is soon read.

        Raises:
            TargetGone: the root has ended.
            TargetUnfit: the tree has more than ``MAX_TASKS`` tasks.
        """
        ...

    async def living(self, tasks: Sequence[TaskIdentity]) -> tuple[TaskIdentity, ...]:
        """Return those that live, in the order given. Raises nothing.

        A zombie does not live, nor does one that was killed already and has only not gone yet (SIGKILL is pending, or
        it is exiting): what it was told cannot be taken back.
        """
        ...

    async def taken(self, pids: Sequence[int]) -> tuple[int, ...]:
        """Return those numbers that a process (a zombie too), a thread, a session or a process group has now.

        Zombies of ours are reaped before.
        """
        ...

    async def free_memory_bytes(self, group: str = "") -> int:
        """Return what the machine, or a control group (without one: ours), can still hand out. Raises nothing."""
        ...

    async def promise_memory(self, operation: str, size_bytes: int, group: str, besides_bytes: int = 0) -> int:
        """Let all who freeze or thaw on this machine know that an operation is about to take memory of processes.

        It counts until :meth:`memory_taken`, or until this process ends. Who is asked again forgets what it was told.

        Args:
            operation: who is about to.
            size_bytes: how much.
            group: where: a control group, or ours if it is empty.
            besides_bytes: what tiers will take of the machine.

        Returns:
            What is left for it there, ``size_bytes`` included, once all others have taken what they are about to. Less
            than nothing, if they take too much.

        Raises:
            NoRoom: it cannot be made known, for want of descriptors.
        """
        ...

    def memory_taken(self, operation: str) -> None:
        """Take that back: it is taken, or will not be. Never blocks, and may be repeated. Raises nothing."""
        ...

    async def namespaces(self) -> tuple[tuple[str, int], ...]:
        """Return the namespaces of this process, by kind. Raises nothing."""
        ...

    async def files(self, opened: Sequence[OpenFile]) -> tuple[OpenFile | None, ...]:
        """Look at files by their names; None for what is not there, or cannot be looked at. Raises nothing."""
        ...

    async def meet(self, frozen: FrozenTree, images: str, returned: Sequence[TaskIdentity]) -> Met:
        """Look for those whom a thaw would meet. Raises nothing.

        Args:
            frozen: what was frozen.
            images: the folder of its images.
            returned: who was thawed from it before.
        """
        ...

    async def prove(self, frozen: Sequence[TreeProcess], made: Sequence[TaskIdentity]) -> None:
        """Set again what CRIU loses of a tree that is stopped, and compare it with what was frozen.

        Processes whose traits nobody read are not compared. May be repeated.

        Raises:
            TreeChanged: it is not what it was; the text says in what.
            TargetGone: a process of it has ended.
            RightsMissing: it may not be looked at, or not be changed.
        """
        ...

    async def free_memory(self, task: TaskIdentity) -> FreeMemory:
        """Return what the machine, our control group and that of another process can still hand out. Raises nothing."""
        ...

    async def ticks(self) -> int:
        """Return the clock ticks since boot, as ``stat`` counts them: what starts from now on is not older."""
        ...

    async def proceed(self, tasks: Sequence[TaskIdentity], *, below: bool = False) -> None:
        """Let stopped processes run (SIGCONT), children before their parents: so no parent sees one that is stopped.

        With ``below``, all but the first, and each parent, that one included, forgets before that its children were
        stopped. For that it is traced: if we are killed meanwhile, the kernel kills it.

        They are given parents first. Those that run or have ended are left alone. Returns when each of them has been on
        a processor since, or has ended: what was only waiting to kill it has done so by then. It waits for that no
        longer than a moment.

        Raises:
            RightsMissing: a signal was refused.
        """
        ...

    async def guard(self, root: TaskIdentity) -> str:
        """Return the folder of its program, absolute, if this process is a supervisor of iriscw; empty if it is none.

        Raises nothing.
        """
        ...

    async def vouched(self, tree: Sequence[TaskIdentity], guard: str, within_ns: int) -> None:
        """Let the first process of a tree run alone, and wait until it says in its folder that the rest may.

        It is a supervisor of iriscw (see :mod:`iriscw.processes.supervisor`). It is told who came back, and writes down
        its own new identity. May be repeated.

        Raises:
            GuardRefused: it has ended instead, or said nothing within that time.
            GuardUntold: it cannot be told, and has not said so before.
            RightsMissing: a signal was refused.
        """
        ...

    async def end(
        self, tasks: Sequence[TaskIdentity], within_ns: int, *, heirs: bool = False
    ) -> tuple[TaskIdentity, ...]:
        """Kill processes with all below them (SIGKILL through pidfds), wait until each has ended, reap what is ours.

        They are killed in the order given: as long as the first one was not, none was.
        They are stopped first, so that what they fork meanwhile is found: by descent, never by name. Should this
        process die between the two, they are left stopped: who has begun to end a tree ends it.

        With ``heirs``, also those that began after one of them in the session or process group that this one leads: of
        a tree that was thawed they came of it, though whoever forked them has ended and nothing leads to them. One that
        was frozen may have left others there before, which are in no image.

        Returns:
            Those that still live after ``within_ns``; none, if all went well.
        """
        ...


class Cuda(Protocol):
    """The checkpoint interface of NVIDIA's driver, one process at a time. Every call runs outside of this process."""

    async def ability(self) -> CudaAbility:
        """Probe what the driver can do. No GPU is an answer, not an error. Raises nothing."""
        ...

    async def tasks(self, identities: Sequence[TaskIdentity], within_ns: int) -> tuple[CudaTask, ...]:
        """Return those of the processes that have a CUDA context (that have a restore thread), in the order given.

        Raises:
            CudaRefused: the driver does not tell.
            CudaOverdue: it does not answer.
            RightsMissing: it may not be asked.
        """
        ...

    async def state(self, task: TaskIdentity, within_ns: int) -> CudaState:
        """Read the state of a process. Nothing is changed by it, and several may be read at the same time.

        Raises:
            TargetGone: the process has ended.
            CudaRefused: the driver does not tell.
            CudaOverdue: it does not answer (the process may be within another call).
            RightsMissing: it may not be asked.
        """
        ...

    async def lock(self, task: TaskIdentity, within_ns: int) -> None:
        """RUNNING to LOCKED: no new work is begun and the work on the device is over.

        The driver gets the same time, less a margin, as its own limit, so that it says no before it is killed.

        Raises:
            TargetGone: the process has ended.
            CudaRefused: the driver said no; a lock that ran out of time usually leaves RUNNING. Read the state.
            CudaOverdue: no answer: the outcome is unknown. Read the state.
            RightsMissing: it may not be done.
        """
        ...

    async def checkpoint(self, task: TaskIdentity, within_ns: int) -> None:
        """LOCKED to CHECKPOINTED: device memory goes to memory of the process, the GPU is let go.

        Raises: as :meth:`lock`.
        """
        ...

    async def restore(self, task: TaskIdentity, within_ns: int, gpus: Mapping[str, str]) -> None:
        """CHECKPOINTED to LOCKED. ``gpus`` gives for each UUID that was used the new one; empty: the same ones.

        Raises: as :meth:`lock`, and
            CudaNoMemory: the GPU has too little memory; the process can only be killed.
        """
        ...

    async def unlock(self, task: TaskIdentity, within_ns: int) -> None:
        """LOCKED to RUNNING. Raises: as :meth:`lock`."""
        ...


class Gpus(Protocol):
    """The GPUs of this machine, by NVML."""

    async def list(self) -> tuple[NvmlGpu, ...]:
        """Give them by index, with their memory; none where there is no NVML. Raises nothing."""
        ...

    async def used_by(self, pids: Sequence[int]) -> Mapping[int, Mapping[str, int]]:
        """Return for each process the bytes it holds by GPU UUID, at most. Who holds none is left out.

        Where a GPU does not tell how much a process holds, that is all that is used of the GPU.

        Raises:
            CudaRefused: they cannot be looked at, or one does not tell who uses it: that is not nobody.
        """
        ...


class HeldTree(Protocol):
    """A tree whose images are complete and that makes no progress meanwhile.

    If this process dies, or the object is dropped, whatever holds the tree lets it run again by itself, as far as that
    can be had (INV-C6): CRIU's own post-dump notification does that, and undoes network locks and remapped links.
    """

    @property
    def report(self) -> DumpReport:
        """What CRIU said of the dump."""
        ...

    async def resume(self, within_ns: int) -> None:
        """Let the tree run on as it was before the dump (those that were stopped stay so). May be repeated.

        Raises:
            TreeLeft: it does not run again; the text names who does not.
        """
        ...

    async def end(self, within_ns: int) -> None:
        """Kill the tree, its first task before all others, and wait until all of it has ended. May be repeated.

        Raises:
            TreeLeft: some still live; the text names them.
        """
        ...


class Criu(Protocol):
    """CRIU, each run in a process group of its own and, where there is the right, in the cgroup of the target."""

    async def ability(self) -> CriuAbility:
        """Find it and have it check itself (``criu check``). What was found may be kept for later calls.

        Raises:
            CriuMissing: there is none.
            CriuUnfit: it does not work here.
            RightsMissing: it may not do here what it must.
            NoRoom: it could not be asked, for want of processes, memory or descriptors.
        """
        ...

    async def dump(self, request: DumpRequest, report: Report) -> HeldTree:
        """Write the images of a tree, and hold it. CRIU's CUDA plugin is never loaded.

        After an error the tree runs as before, and what was written is garbage that the caller removes.

        Raises:
            TargetGone: the process has ended, or its number means another one.
            CriuMissing, CriuUnfit, RightsMissing: as :meth:`ability`.
            TargetUnfit: CRIU cannot dump this tree; the text is what its log says.
            NoRoom: the file system of the images is full.
            CriuFailed: CRIU failed for another reason.
            CriuOverdue: it was killed at its deadline.
            UnsafeRequest: a folder is missing or not absolute, or the deadline is not positive.
        """
        ...

    async def restore(self, request: RestoreRequest, report: Report, pages: LazyPages | None = None) -> RestoreReport:
        """Bring a tree back, and leave all of it stopped: it has not run yet when this returns.

        With ``pages``, most of its memory is not there yet: a process of its own, which outlives this one, brings it,
        on demand and by itself, and compares each piece before. :meth:`paging` waits for that. What CRIU reads of these
        files by itself is compared before CRIU is asked.

        The tree is nobody's child but init's (or a subreaper's above us): it outlives this process. One that was dumped
        as a shell's job is our child, in the terminal that is our standard input, and in its foreground; should we end
        before it was let run, the kernel tells it to hang up and to go on. After an error nothing of it is left.

        Raises:
            CriuMissing, CriuUnfit, RightsMissing: as :meth:`ability`.
            NoRoom: there is not enough memory.
            CriuFailed: CRIU failed; what it had begun is gone.
            CriuOverdue: it was killed at its deadline, with what it had begun.
            TreeLeft: as those two, but the named tasks still live.
            ArtifactRefused: a piece that was needed is not what was sealed.
            PagingFailed: nobody can bring its pages.
            GateRefused: somebody has the number of a terminal that has to be made again.
            UnsafeRequest: as :meth:`dump`; or a shell's job, and standard input is not a terminal to lend.
        """
        ...

    async def paging(self, work: str, within_ns: int, report: Report) -> None:
        """Wait until all pages of a tree are there, whichever life of ours brought it back. May be repeated.

        After an error the tree is killed, or about to be: no page was made up for one that is missing.

        Args:
            work: ``RestoreRequest.work``.
            within_ns: Beyond the deadline that who brings them has.
            report: Takes progress.

        Raises:
            ArtifactRefused: a piece is not what was sealed; nothing of it was given out.
            PagingFailed: who brought them is gone, or did not come to an end.
            OSError: that cannot be told at present, and nothing was ended: ask again.
        """
        ...

    async def sweep(self, request: SweepRequest) -> tuple[TaskIdentity, ...]:
        """After a crash of ours: end the CRIU run that an earlier life of this operation left, and what it made.

        The run is known from its own record in ``request.work`` (written before CRIU does anything). The tree of a dump
        runs on; the tasks of a restore are killed: they are written down, or are not older than ``started_after`` and
        descend from that run or carry its mark. Whoever else has one of ``pids`` is left alone. Where nothing was
        begun, or all is over, nothing is done. May be repeated. Of a lazy restore all that the tree forked is killed as
        well, and then who brings its pages.

        Returns:
            The tasks of a restore that were killed.

        Raises:
            TreeLeft: some could not be killed, or the run itself could not, or somebody has one of ``pids`` of whom
                nobody can say whether it came of that run.
        """
        ...


class Hooks(Protocol):
    """Tells applications that they will be frozen, and that they were thawed."""

    async def quiesce(self, hook: Hook, root: TaskIdentity) -> None:
        """Ask the application to come to rest, and wait until it says that it did.

        Raises:
            HookFailed: it did not, within ``hook.within_ns``.
        """
        ...

    async def wake(self, hook: Hook, root: TaskIdentity) -> None:
        """Tell the application to go on: after a thaw, and after a freeze that was undone. May be repeated.

        Raises:
            HookFailed: it could not be told.
        """
        ...

    async def confirm(self, hook: Hook, root: TaskIdentity) -> None:
        """Ask whether a tree that was thawed is what it was. May be repeated.

        EXEC: the program is run with ``verify`` and the number of the first process as its last arguments; 0 is yes.
        HTTP: the address is read until it answers 2xx.

        Raises:
            VerifyFailed: the answer was no, or there was none within ``hook.within_ns``.
        """
        ...


class AttemptFolders(Protocol):
    """The folder of an attempt, where it is a part of the artifact."""

    async def measure(self, folder: str, checkpoint: str) -> CarriedFolder:
        """Say how much a folder is, which nothing has to stand still for.

        Args:
            folder: absolute, with no link in it.
            checkpoint: the artifact that it is to be a part of.

        Raises:
            FolderUnfit: it cannot be carried; the text says what is in the way.
            OSError: it cannot be read.
        """
        ...

    async def pack(
        self, carried: CarriedFolder, images: str, most_bytes: int, report: Report, *, runs_on: bool = False
    ) -> CarriedFolder:
        """Write a folder into a file among the images, and give it as it is. Nothing of its tree runs. May be repeated.

        With ``runs_on`` its tree will, and change it: then nothing says of the folder that it is as it was packed.

        Raises:
            FolderUnfit: as :meth:`measure`.
            NoRoom: all images together would take more than ``most_bytes``, or the file system is full.
            OSError: it cannot be read.
        """
        ...

    async def look(self, carried: CarriedFolder) -> FolderSight:
        """Look at the place of a folder.

        Raises:
            OSError: it cannot be looked at.
        """
        ...

    async def place(self, carried: CarriedFolder, images: str, operation: str) -> None:
        """Put a folder in its place, as a whole, unless it is there: nobody's, and with no grant. May be repeated.

        Its images were verified. What was in its place is kept until :meth:`leave`.

        Raises:
            FolderInTheWay: what is there is somebody's, or nothing may be put there.
            FolderDamaged: what is carried is none of ours.
            NoRoom: the file system is full.
            OSError: as the file system says it.
        """
        ...

    async def granted(self, folder: str, within_ns: int) -> None:
        """Wait until a folder that a thaw has put there has a grant, so long at most; for other folders not at all.

        Raises:
            OSError: it cannot be looked at.
        """
        ...

    async def leave(self, carried: CarriedFolder, operation: str, outcome: Outcome) -> None:
        """Decide what stays in the place of a folder, when a thaw is over that may have put it there. May be repeated.

        Once a grant was taken in it, or the tree runs, the new one stays. After a thaw that failed it goes, and what
        was there before is there again.

        Raises:
            OSError: as the file system says it.
        """
        ...


class Artifacts(Protocol):
    """Where artifacts are kept, by tier, each tier within its budget (INV-P2)."""

    async def promised(self, tier: str = "") -> int | None:
        """Return what running operations may still write into a tier that is memory; None for one that is a disk.

        Without a name: into all that are memory.

        Raises:
            UnsafeRequest: there is no such tier, or it is somebody else's.
        """
        ...

    async def reserve(self, operation: str, tier: str, size_bytes: int) -> Room:
        """Take room for an artifact before anything is written. The same operation gets the same room again.

        Raises:
            NoRoom: the tier's budget, its file system, or the memory that it is, has less.
            UnsafeRequest: there is no such tier.
        """
        ...

    def following(self, operation: str, images: str) -> AbstractContextManager[None]:
        """Read what is written into this folder as long as the block lasts, so that less is left for :meth:`seal`.

        When the block has ended well all of it is written, and the rest is read as well, beside what is done next.
        Never blocks, and nothing rests on it: what was not read is read then.
        """
        ...

    async def seal(
        self, operation: str, frozen: FrozenTree, labels: tuple[tuple[str, str], ...], report: Report
    ) -> Sealed:
        """Check that the images are whole, give every byte a digest, put all on the disk. May be repeated.

        Raises:
            NoRoom: the file system is full.
            ArtifactRefused: what CRIU left is not an image.
        """
        ...

    async def publish(self, operation: str) -> None:
        """Make the sealed artifact visible, as a whole; what was reserved and not used is returned. May be repeated.

        Its own operation pins it before it can be seen: nobody removes it until that operation has ended.

        Raises:
            NoRoom: the file system is full.
            ArtifactUnknown: it was never sealed.
        """
        ...

    async def discard(self, operation: str) -> None:
        """Remove all that the operation wrote, published or not, and return what it had reserved. May be repeated.

        Raises:
            OSError: something cannot be removed yet. What is left counts against the budget until it is.
        """
        ...

    async def pin(self, artifact: str, operation: str) -> Kept:
        """Keep an artifact from being removed, and read what it says of itself. May be repeated.

        ``Kept.room.work`` is a folder of the operation's own.

        Raises:
            ArtifactUnknown: there is none.
            ArtifactRefused: its manifest is none of ours.
        """
        ...

    async def came_back(self, artifact: str, tasks: Sequence[TaskIdentity]) -> None:
        """Write down beside an artifact who came back from it, in place of what was written there; durably.

        Raises:
            ArtifactUnknown: there is none.
            NoRoom: the file system is full.
        """
        ...

    async def verify(self, artifact: str, report: Report) -> None:
        """Read every byte and compare (INV-C9).

        Raises:
            ArtifactUnknown: there is none.
            ArtifactRefused: a byte differs, a file is missing, or there is one too many.
        """
        ...

    async def verify_but_pages(self, artifact: str, report: Report) -> LazyPages:
        """Read every byte and compare, but those of the files whose every piece has a digest of its own: give these.

        Raises: as :meth:`verify`.
        """
        ...

    async def unpin(self, artifact: str, operation: str) -> bool:
        """Let the artifact be removed again, and say whether it was there until then. May be repeated.

        Raises:
            UnsafeRequest: the folder of the tier is somebody else's.
            OSError: it cannot be written down yet. Until it is, nobody removes the artifact.
        """
        ...
