"""CRIU on a simulated machine: a program of its own, that an agent which is killed leaves behind.

A :class:`Run` goes on step by step: while its agent lives the port drives it, and after that the machine does, until it
comes to its end by itself or somebody kills it. A dump that nobody listens to lets its tree run on. A restore that
nobody listens to leaves what it made, stopped: its record says so to who sweeps.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from iriscw._errors import OperationError
from iriscw.freeze.gates import USERFAULTFD
from iriscw.freeze.model import (
    ArtifactRefused,
    CriuAbility,
    CriuFailed,
    CriuOverdue,
    CudaState,
    DumpReport,
    DumpRequest,
    LazyPages,
    NoRoom,
    PagingFailed,
    RestoreReport,
    RestoreRequest,
    SweepRequest,
    TargetGone,
    TaskIdentity,
)
from iriscw.freeze.ports import Report
from iriscw.runtime.vocabulary import MILLISECOND
from iriscw_sims.nodes.checks import Checks
from iriscw_sims.nodes.machine import Machine, Process
from iriscw_sims.nodes.paging import COMPLETE, REFUSED, Pager
from iriscw_sims.nodes.ports import Port
from iriscw_sims.nodes.shelves import Artifact, Image, Shelf
from iriscw_sims.nodes.stepping import Await, Cancelled

LOOKS_EVERY = 50 * MILLISECOND
"""Between two looks of who waits for pages whether they are there."""

SLICES = 3
"""In so many parts a CRIU writes its images."""

ORPHAN_STEP = 10
"""Ticks between two steps of a CRIU whose agent is gone."""


@attrs.define(eq=False)
class Run:
    """One CRIU."""

    machine: Machine
    checks: Checks
    operation: str
    artifact: Artifact
    tasks: list[Process]
    """Whom a dump holds, or a restore made."""
    within_ns: int = 0
    error: Exception | None = None
    """What it fails with at its end."""
    ending: bool = False
    """It was told to end the tree."""
    over: bool = False
    orphan: bool = False
    due: int = 0
    """The tick at which an orphan takes its next step."""
    _steps: Iterator[int] | None = None

    def work(self) -> Iterator[int]:
        """Do what it is for: give after each step how long the next one takes."""
        raise NotImplementedError

    def advance(self) -> int | None:
        """Take one step; give how long the next one takes, ns, or None if there is none.

        Raises:
            OperationError: it failed, and undid what it did.
        """
        if self._steps is None:
            self._steps = self.work()
        try:
            return next(self._steps)
        except StopIteration:
            return None
        except Exception:
            self.abort()
            raise

    def orphaned(self) -> None:
        """Its agent is gone: it goes with it, or it goes on."""
        if self.machine.fate.may("criu outlives its agent", f"operation/{self.operation}"):
            self.orphan, self.due = True, self.machine.ticks + ORPHAN_STEP
        else:
            self.abort()

    def tick(self) -> None:
        """Go on without an agent."""
        if not self.orphan or self.over or self.machine.ticks < self.due:
            return
        self.due = self.machine.ticks + ORPHAN_STEP
        try:
            if self.advance() is None:
                self.unheard()
        except OperationError:
            self.over = True  # nobody hears it, and what it did is undone

    def unheard(self) -> None:
        """Come to its end with nobody who listens."""
        raise NotImplementedError

    def abort(self) -> None:
        """It is killed, or has failed."""
        raise NotImplementedError

    def _end(self) -> None:
        self.over = True
        self.machine.runs = [each for each in self.machine.runs if each is not self]

    def _fails(self, method: str) -> Iterator[int]:
        if isinstance(self.error, CriuOverdue):
            yield self.machine.fate.lasts(f"{method} hangs", self.within_ns)
        if self.error is not None:
            raise self.error


@attrs.define(eq=False)
class Dump(Run):
    """A CRIU that dumps, and holds the tree afterwards."""

    shelf: Shelf | None = None

    def work(self) -> Iterator[int]:
        """Hold the tree, and write its images."""
        fate = self.machine.fate
        for process in self.tasks:
            process.held = process.alive
        yield fate.lasts("dump", 0)
        if any(each.cuda not in (None, CudaState.CHECKPOINTED) for each in self.tasks):
            raise CriuFailed("device files are open")
        size = sum(each.resident_bytes for each in self.tasks)
        for _ in range(SLICES):
            self._write(size // SLICES)
            yield fate.lasts("dump", size // SLICES)
        yield from self._fails("dump")
        if not self.tasks[0].alive:
            raise TargetGone(f"process {self.tasks[0].pid} ended while it was dumped")
        alive = [each for each in self.tasks if each.alive]
        self.artifact.change(snapshot=tuple(Image(each.pid, each.progress, each.was_stopped) for each in alive))
        self.artifact.frozen = tuple(attrs.evolve(each) for each in alive)
        self.artifact.tree = self.tasks[0].tree

    def _write(self, size_bytes: int) -> None:
        if self.shelf is not None and self.shelf.free_bytes < size_bytes:
            raise NoRoom(f"the file system of tier {self.shelf.name} is full")
        self.artifact.change(images_bytes=self.artifact.now.images_bytes + size_bytes)
        self.checks.memory()

    def unheard(self) -> None:
        """Let the tree go."""
        self.abort()

    def abort(self) -> None:
        """Let the tree go; end what is left of it if that had begun."""
        if self.over:
            return
        for process in self.tasks:
            if process.held:
                process.held = False
                if self.ending:
                    self.checks.ends(self.operation, process)
                    self.machine.kill(process)
        self._end()


@attrs.define(eq=False)
class Restore(Run):
    """A CRIU that restores. What it made stays stopped. With a pager, most of its memory is still to come."""

    pager: Pager | None = None

    def work(self) -> Iterator[int]:
        """Make the tree anew."""
        machine = self.machine
        for was in self.artifact.frozen:
            assert isinstance(was, Process)
            yield machine.fate.lasts("restore", was.memory_bytes)
            if machine.takes(was.pid) or any(machine.takes(each) for each in was.threads):
                raise CriuFailed(f"process number {was.pid} is taken")
            identity = TaskIdentity(was.pid, machine.ticks, machine.boot_id)
            made = attrs.evolve(
                was,
                identity=identity,
                stopped=True,
                held=False,
                cuda=CudaState.CHECKPOINTED if was.cuda is not None else None,
                made_by=self.operation,
                came_back_at=was.progress,
                session=self.tasks[0].pid if self.tasks else was.pid,  # of a shell's job, the process group
                pager=self.pager,
                made_up=False,
            )
            machine.processes.append(made)
            self.tasks.append(made)
            self.checks.memory()
        yield machine.fate.lasts("restore", 0)
        yield from self._fails("restore")
        if self.pager is not None:
            self.pager.begin()

    def unheard(self) -> None:
        """Leave what it made: the record stays until somebody sweeps."""
        self.over = True

    def abort(self) -> None:
        """End what it made."""
        for process in self.tasks:
            if process.alive:
                self.checks.ends(self.operation, process)
                self.machine.kill(process)
        if self.pager is not None:
            self.pager.killed_with_its_guard()
        self._end()


class SimCriu(Port):
    """CRIU, as the agent sees it."""

    async def ability(self) -> CriuAbility:
        """See the port."""
        return CriuAbility("criu", "4.2", features=(USERFAULTFD,) if self.machine.userfaultfd else ())

    async def dump(self, request: DumpRequest, report: Report) -> SimHeld:
        """See the port."""
        machine = self.machine
        self._alive(request.root)
        error = machine.fate.fault("dump", self.operation)
        artifact = machine.hosted[request.operation]
        shelf = next(each for each in machine.shelves.values() if request.operation in each.artifacts)
        tree = machine.below(request.root)
        size = sum(each.resident_bytes for each in tree)
        self.checks.dump_begins(self.operation, tree, artifact, request.within_ns, size)
        run = Dump(machine, self.checks, self.operation, artifact, tree, request.within_ns, error=error, shelf=shelf)
        await self._driven(run)
        self.checks.called(self.operation, "dump")
        return SimHeld(self, run)

    async def paging(self, work: str, within_ns: int, report: Report) -> None:
        """See the port."""
        self.checks.limited(self.operation, "paging", within_ns)
        await self._step("paging")
        pager = self.machine.pager_of(self.operation)
        if pager is None:
            raise PagingFailed("nobody can say who brings its pages")
        for _ in range(within_ns // LOOKS_EVERY):
            if pager.over:
                break
            await Await(LOOKS_EVERY)
        if not pager.over:
            raise PagingFailed("who brings its pages does not come to an end")
        if pager.end == REFUSED:
            raise ArtifactRefused("pages-1.img was changed: the digest of a piece is another one")
        if pager.end != COMPLETE:
            raise PagingFailed("who brought its pages was killed")

    async def restore(self, request: RestoreRequest, report: Report, pages: LazyPages | None = None) -> RestoreReport:
        """See the port."""
        machine = self.machine
        error = machine.fate.fault("lazy restore" if request.lazy else "restore", self.operation)
        artifact = next(each for each in machine.hosted.values() if images_of(each) == request.images)
        self.checks.restore_begins(self.operation, artifact, request, pages, self.life)
        pager = Pager(machine, self.operation, artifact) if request.lazy else None
        if pager is not None:
            machine.pagers.append(pager)
        run = Restore(machine, self.checks, self.operation, artifact, [], request.within_ns, error=error, pager=pager)
        await self._driven(run)
        run._end()
        self.checks.called(self.operation, "restore")
        return RestoreReport(tuple(each.identity for each in run.tasks))

    async def _driven(self, run: Run) -> None:
        """Drive a run until it has nothing more to do by itself."""
        self.machine.runs.append(run)
        try:
            while (pause := run.advance()) is not None:
                await Await(pause)
                if run.over:
                    raise CriuFailed("CRIU was killed")
        except Cancelled:
            run.abort()
            raise

    async def sweep(self, request: SweepRequest) -> tuple[TaskIdentity, ...]:
        """See the port."""
        await self._step("sweep")
        machine = self.machine
        killed = []
        for run in [each for each in machine.runs if each.operation == request.operation]:
            run.ending = False  # it is killed in its turn, whatever it was doing
            killed += [each.identity for each in run.tasks if request.pids and each.alive]
            run.abort()
        pager = machine.pager_of(request.operation)
        for process in machine.living() if request.pids else ():
            told = process.pid in request.pids and process.identity.start_ticks >= request.started_after
            if (told or pager is not None) and process.made_by == request.operation:  # of a lazy one, forks as well
                self.checks.ends(self.operation, process)
                machine.kill(process)
                killed.append(process.identity)
        if pager is not None and request.pids:
            pager.killed_with_its_guard()
        return tuple(killed)


class SimHeld:
    """A tree that the simulated CRIU holds."""

    report = DumpReport()

    def __init__(self, port: SimCriu, run: Dump) -> None:
        self.port, self.run = port, run

    async def resume(self, within_ns: int) -> None:
        """See the port."""
        self.port.checks.limited(self.port.operation, "resume", within_ns)
        await self.port._step("resume")
        self.run.ending = False
        self.run.abort()

    async def end(self, within_ns: int) -> None:
        """See the port."""
        self.port.checks.limited(self.port.operation, "held_end", within_ns)
        await self.port._step("held_end")
        self.run.ending = True
        for process in self.run.tasks:
            await Await(self.port.machine.fate.lasts("end", 0))
            if process.alive:
                self.port.checks.ends(self.port.operation, process)
                self.port.machine.kill(process)
        self.run._end()


def images_of(artifact: Artifact) -> str:
    """Return the folder of an artifact's images."""
    return f"/tier/artifacts/{artifact.operation}/images"
