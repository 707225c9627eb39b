"""Attempts as processes: a session of their own, files for output, nothing inherited.

Each attempt runs under a supervisor (see :mod:`iriscw.processes.supervisor`), so it outlives its worker, is
adopted by the next one, and takes every child with it when it ends. It outlives the worker for as long as the lease
lasts that the worker was given last: the supervisor ends it then, because the controller may have it run elsewhere
(INV-J2). Standard input is ``/dev/null`` and
output goes to files, so that no descriptor ties it to the worker: what freezing needs.

The environment is: what a login shell has, then the user's variables, then iriscw's, which win.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import anyio.to_thread
import attrs

from iriscw.errors import InvalidArgument
from iriscw.processes.environment import basic_environment
from iriscw.processes.identity import ProcessIdentity
from iriscw.processes.lease import LeaseFile
from iriscw.processes.status import Ending, StatusDamaged
from iriscw.processes.supervised import (
    BinaryRefused,
    MissingBinary,
    NotStarted,
    Program,
    Supervised,
    adopt,
    find,
    launch,
)
from iriscw.task.environment import task_environment
from iriscw.worker.ports import (
    AttemptEnd,
    AttemptSpec,
    ProgramMissing,
    WorkerTrouble,
)
from iriscw.worker.runtimes.attempt import FolderAttempt, prepare
from iriscw.worker.runtimes.ends import classify
from iriscw.worker.runtimes.given import argv_of, check_environment
from iriscw.worker.runtimes.workdir import AttemptFolder, folders_below

log = logging.getLogger(__name__)

MARKER = "IRIS_ATTEMPT_UID"
"""The variable by which all processes of an attempt are found."""

CALLABLE_ARGV = (sys.executable, "-m", "iriscw.task")


@attrs.frozen(eq=False)
class ProcessAttempt(FolderAttempt):
    """An attempt that is a process; see :class:`~iriscw.worker.ports.RunningAttempt`."""

    supervised: Supervised

    @property
    def process(self) -> ProcessIdentity | None:
        """The program itself."""
        return self.supervised.target

    async def wait(self) -> AttemptEnd:
        """Wait until it has ended."""
        return await self._end(await self.supervised.wait())

    async def stop(self, grace_s: float) -> AttemptEnd:
        """Ask it to end with SIGTERM, kill all of it after ``grace_s``."""
        return await self._end(await self.supervised.stop(grace_s))

    async def _end(self, ending: Ending) -> AttemptEnd:
        stdout_bytes, stderr_bytes = await anyio.to_thread.run_sync(self.folder.log_bytes)
        return attrs.evolve(classify(ending), stdout_bytes=stdout_bytes, stderr_bytes=stderr_bytes)


@attrs.frozen
class ProcessRuntime:
    """Runs attempts as processes below ``root``; see :class:`~iriscw.worker.ports.TaskRuntime`.

    ``ours`` is the environment of which :func:`basic_environment` goes to the attempts. With ``one_log`` both outputs
    of an attempt go to one file. Without a ``lease`` attempts run until they are told to end.
    """

    root: Path
    ours: Mapping[str, str] = attrs.field(factory=lambda: dict(os.environ), repr=False)
    one_log: bool = False
    lease: LeaseFile | None = None

    async def start(self, spec: AttemptSpec) -> ProcessAttempt:
        """Start an attempt."""
        argv = argv_of(spec, CALLABLE_ARGV)
        folder = AttemptFolder(self.root, spec.uid, self.one_log)
        variables = task_environment(spec.facts, folder.work)
        markers = _markers(folder)
        for name in markers:
            del variables[name]
        check_environment(spec.environment)
        await prepare(folder, spec)
        program = Program(
            argv=argv,
            folder=folder.path,
            workdir=folder.work,
            stdout=folder.stdout,
            stderr=folder.stderr,
            environment={**basic_environment(self.ours), **spec.environment, **variables},
            markers=markers,
            limits=spec.limits,
            lease=None if self.lease is None else self.lease.path,
        )
        until_ns = 0 if self.lease is None else self.lease.until_ns
        try:
            if self.lease is not None:  # orders that came in after a renewal must not overtake it
                await anyio.to_thread.run_sync(self.lease.write)
            supervised = await launch(program)
        except (MissingBinary, BinaryRefused) as error:
            await anyio.to_thread.run_sync(folder.discard)
            raise ProgramMissing(str(error)) from error
        except (NotStarted, OSError) as error:
            await anyio.to_thread.run_sync(folder.discard)
            raise WorkerTrouble(str(error)) from error
        if self.lease is not None and self.lease.until_ns < until_ns:  # meanwhile, and perhaps after it was read
            supervised.look_at_lease()
        return ProcessAttempt(folder, supervised)

    def withdraw(self, uid: str) -> None:
        """Nothing is to be done: a start takes milliseconds."""

    async def adopt(self) -> tuple[ProcessAttempt, ...]:
        """Find the attempts of an earlier worker process; remove what it never finished preparing."""
        try:
            folders = await anyio.to_thread.run_sync(self._folders)
        except OSError as error:
            raise WorkerTrouble(f"the attempts in {self.root} cannot be read: {error}") from error
        found: list[ProcessAttempt] = []
        for folder in folders:
            try:
                supervised = await adopt(folder.path, _markers(folder))
            except OSError as error:
                raise WorkerTrouble(f"the attempt {folder.uid} cannot be found again: {error}") from error
            if supervised is None:  # prepared, but never launched
                await anyio.to_thread.run_sync(folder.discard)
                continue
            if self.lease is not None and self.lease.over:  # its supervisor ends it too: whoever comes first
                await supervised.stop(0)
            found.append(ProcessAttempt(folder, supervised))
        return tuple(found)

    async def hold(self, until_ns: int) -> None:
        """Write down until when attempts may run; supervisors look there by themselves, unless it is sooner."""
        if self.lease is None:
            return
        sooner = self.lease.hold(until_ns)
        try:
            await anyio.to_thread.run_sync(self.lease.write)
            if sooner:
                await anyio.to_thread.run_sync(self._tell_all)
        except OSError as error:
            raise WorkerTrouble(f"the lease cannot be written: {error}") from error

    def _tell_all(self) -> None:
        for path in self.root.iterdir() if self.root.exists() else ():
            try:
                supervised = find(path, {})
            except (StatusDamaged, OSError) as error:  # its supervisor looks when the time that it read has come
                log.warning("an attempt is not told that its lease is shorter: %s", error)
                continue
            if supervised is not None:
                supervised.look_at_lease()

    def _folders(self) -> list[AttemptFolder]:
        """Give those of attempts that were prepared; remove what was not. Attempts may leave here what they like."""
        folders: list[AttemptFolder] = []
        for path in folders_below(self.root):
            try:
                folder = AttemptFolder(self.root, path.name, self.one_log)
            except InvalidArgument as error:
                log.warning("not looked at: %s", error)
                continue
            if folder.began():
                folders.append(folder)
            else:
                folder.discard()
        return folders


def _markers(folder: AttemptFolder) -> dict[str, str]:
    """Give what the attempt's processes are known by: the folder too, so that a worker never sweeps another's."""
    return {MARKER: folder.uid, "IRIS_WORKDIR": str(folder.work)}
