"""Attempts as processes: a session of their own, files for output, nothing inherited.

Each attempt runs under a supervisor (see :mod:`iriscw.processes.supervisor`), so it outlives its worker, is
adopted by the next one, and takes every child with it when it ends. It outlives the worker for as long as the lease
lasts that the worker was given last: the supervisor ends it then, because the controller may have it run elsewhere
(INV-J2). Standard input is ``/dev/null`` and
output goes to files, so that no descriptor ties it to the worker: what freezing needs.

An attempt that is frozen can go on with another worker of its machine. Its folder stays where it is, because its images
name files in it: the worker that takes it over keeps a *reference* (a file below ``moved``, beside the folder of the
attempts, with the folder's path in it). Whose an attempt is stands in its own folder (:mod:`iriscw.processes.grants`),
so no worker touches what another one has taken over.

The environment is: what a login shell has, then the defaults of programs, then the user's variables, then iriscw's,
which win.
"""

from __future__ import annotations

import logging
import os
import stat
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import attrs

from iriscw._errors import InvalidArgument
from iriscw.files import decode_json, make_private_folder, read_bounded, write_atomic
from iriscw.processes.ends import ProcessEnd
from iriscw.processes.environment import basic_environment
from iriscw.processes.grants import (
    NOBODY,
    Grant,
    GrantRefused,
    GrantStanding,
    let_go,
    offer,
    owner_of,
    standing_of,
    withdraw,
    withdraw_all,
)
from iriscw.processes.identity import ProcessIdentity, is_alive
from iriscw.processes.lease import LeaseFile
from iriscw.processes.status import StatusDamaged, read_end, read_identity
from iriscw.processes.supervised import (
    BinaryRefused,
    FilterRefused,
    MissingBinary,
    NotStarted,
    Program,
    Supervised,
    adopt,
    find,
    launch,
)
from iriscw.task.environment import task_environment
from iriscw.worker.inotify import FileWatch
from iriscw.worker.ports import (
    AttemptSpec,
    NotFreezable,
    ProgramMissing,
    ResumeRefused,
    Whereabouts,
    WorkerTrouble,
)
from iriscw.worker.runtimes.attempt import FolderAttempt, prepare
from iriscw.worker.runtimes.input_checks import PROGRAM_DEFAULTS, argv_of, check_environment, filter_of
from iriscw.worker.runtimes.workdir import UID as _UID, AttemptFolder, folders_below

log = logging.getLogger(__name__)

CARRIED = "carried.json"
"""What whoever packs the folder of an attempt into a checkpoint, or puts it in its place, leaves in it."""

MAX_MARK_BYTES = 4096

MOVED = "moved"
MAX_PATH_BYTES = 4096

MARKER = "IRIS_ATTEMPT_UID"
"""The variable by which all processes of an attempt are found."""

CALLABLE_ARGV = (sys.executable, "-m", "iriscw.task")


@attrs.frozen(eq=False)
class ProcessAttempt(FolderAttempt):
    """An attempt that is a process; see :class:`~iriscw.worker.ports.RunningAttempt`."""

    supervised: Supervised
    reference: Path | None = None
    """Of one that began with another worker: what says here where its folder is."""

    async def remove(self) -> None:
        """Remove its files, unless somebody else has taken it over, and then what says where they were."""
        if await anyio.to_thread.run_sync(self.supervised.ours):
            await super().remove()
        if self.reference is not None:
            await anyio.to_thread.run_sync(partial(self.reference.unlink, missing_ok=True))

    @property
    def process(self) -> ProcessIdentity | None:
        """The program itself."""
        return self.supervised.target

    @property
    def supervisor(self) -> ProcessIdentity | None:
        """The process above it."""
        return self.supervised.supervisor

    async def wait(self) -> ProcessEnd:
        """Wait until it has ended."""
        return await self._end(await self.supervised.wait())

    async def stop(self, grace_s: float) -> ProcessEnd:
        """Ask it to end with SIGTERM, kill all of it after ``grace_s``."""
        return await self._end(await self.supervised.stop(grace_s))

    async def _end(self, end: ProcessEnd) -> ProcessEnd:
        return attrs.evolve(end, log_bytes=await anyio.to_thread.run_sync(self.folder.log_bytes))


@attrs.frozen(eq=False)
class ExpectedFolder:
    """The folder of an attempt that comes with a checkpoint, and what it is granted then."""

    folder: Path
    grant: Grant
    where: Whereabouts
    checkpoint: str


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
    owner: str = ""
    """Who this is to other workers of the machine; without a name, or a lease, it takes over nothing."""
    watch: FileWatch | None = None
    """Tells that an attempt has come back; without it nobody waits for one."""
    expected: dict[str, ExpectedFolder] = attrs.field(factory=dict, eq=False)
    """Folders that come with their checkpoints, by uid."""
    granting: anyio.Lock = attrs.field(factory=anyio.Lock, eq=False)
    """Held while one is granted, or a grant is taken back."""

    async def start(self, spec: AttemptSpec) -> ProcessAttempt:
        """Start an attempt."""
        argv = argv_of(spec, CALLABLE_ARGV)
        folder = AttemptFolder(self.root, spec.uid, self.one_log)
        variables = task_environment(spec.facts, folder.work)
        markers = _markers(folder)
        for name in markers:
            del variables[name]
        check_environment(spec.environment)
        syscall_filter = filter_of(spec)
        await prepare(folder, spec)
        program = Program(
            argv=argv,
            folder=folder.path,
            workdir=folder.work,
            stdout=folder.stdout,
            stderr=folder.stderr,
            environment={**basic_environment(self.ours), **PROGRAM_DEFAULTS, **spec.environment, **variables},
            markers=markers,
            limits=spec.limits,
            lease=None if self.lease is None else self.lease.path,
            syscall_filter=syscall_filter,
        )
        until_ns = 0 if self.lease is None else self.lease.until_ns
        try:
            if self.lease is not None:  # orders that came in after a renewal must not overtake it
                await anyio.to_thread.run_sync(self.lease.write)
            supervised = await launch(program)
        except (MissingBinary, BinaryRefused) as error:
            await anyio.to_thread.run_sync(folder.discard)
            raise ProgramMissing(str(error)) from error
        except FilterRefused as error:
            await anyio.to_thread.run_sync(folder.discard)
            raise NotFreezable(str(error)) from error
        except (NotStarted, OSError) as error:
            await anyio.to_thread.run_sync(folder.discard)
            raise WorkerTrouble(str(error)) from error
        if self.lease is not None and self.lease.until_ns < until_ns:  # meanwhile, and perhaps after it was read
            supervised.look_at_lease()
        return self._attempt(folder, supervised)

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
            if self.lease is not None and self.lease.over and not supervised.alive:
                await anyio.to_thread.run_sync(withdraw_all, folder.path)  # what was frozen is not for us any more
            supervised.ours = partial(self._has, folder.path)
            if self.lease is not None and self.lease.over:  # its supervisor ends it too: whoever comes first
                await supervised.stop(0)
            found.append(self._attempt(folder, supervised))
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

    async def permit(
        self, uid: str, folder: Path, grant: str, where: Whereabouts, carried_by: str = ""
    ) -> ProcessAttempt | None:
        """Take it over, and let it be brought back: now, or when a thaw has put its folder in its place."""
        if self.lease is None or not self.owner:
            raise ResumeRefused("this worker has no lease by which an attempt could live")
        offered = Grant(grant, self.owner, self.lease.path)
        self.expected.pop(uid, None)
        try:
            if carried_by and await anyio.to_thread.run_sync(checkpoint_of, folder) != carried_by:
                await anyio.to_thread.run_sync(self._expect, uid, folder)
                self.expected[uid] = ExpectedFolder(folder, offered, where, carried_by)
                return None
            return await anyio.to_thread.run_sync(self._permit, uid, folder, offered, where)
        except OSError as error:
            raise WorkerTrouble(f"{uid} cannot be let go on: {error}") from error

    def _expect(self, uid: str, path: Path) -> None:
        """Make a place for a folder that comes with its checkpoint, and note where that is."""
        if not path.is_absolute() or path != AttemptFolder(path.parent, uid, self.one_log).path:
            raise ResumeRefused(f"{path} is not a folder of the attempt {uid}")
        make_private_folder(path.parent)
        self._refer(uid, path)

    def _refer(self, uid: str, path: Path) -> None:
        """Write down where the files of an attempt are, before it is ours: so it is found again."""
        if path.parent != self.root:
            make_private_folder(self._references)
            write_atomic(self._references / uid, os.fsencode(path))

    def _permit(self, uid: str, path: Path, offered: Grant, where: Whereabouts) -> ProcessAttempt:
        folder = AttemptFolder(path.parent, uid, self.one_log)
        if not path.is_absolute() or path != folder.path or not folder.began():
            raise ResumeRefused(f"{path} is not a folder of the attempt {uid}")
        if path.lstat().st_uid != os.geteuid() or not stat.S_ISDIR(path.lstat().st_mode):
            raise ResumeRefused(f"{path} is somebody else's")
        if self._at(folder).supervised.alive and standing_of(path, offered.id) is not GrantStanding.TAKEN:
            raise ResumeRefused(f"{uid} runs: whoever has it would lose it")
        self._refer(uid, path)
        try:
            folder.moved(where)
        except ValueError as error:  # the program's own doing: it goes on without it
            log.warning("the context of %s is not what it was: %s", uid, error)
        try:
            offer(path, offered)
        except GrantRefused:
            if owner_of(path) != self.owner:
                (self._references / uid).unlink(missing_ok=True)
            raise
        return self._at(folder)

    async def thawed(self, uid: str, grant: str) -> ProcessAttempt:
        """Wait until its supervisor has taken the grant and said who it is now."""
        expected = self.expected.get(uid)
        if expected is not None and self.watch is not None:
            return await self._arrived(uid, expected, self.watch)
        folder = self._home(uid)
        if folder is None or self.watch is None:
            raise ResumeRefused(f"{uid} was never permitted to go on here")
        return await self._taken(uid, folder, grant, self.watch)

    async def _arrived(self, uid: str, expected: ExpectedFolder, watch: FileWatch) -> ProcessAttempt:
        """Wait until its folder is there, grant it, and wait until it runs.

        A thaw that failed has taken the folder away again, and the next one brings it anew: with a grant neither time,
        so this one is given again.
        """
        came: list[ProcessAttempt] = []

        async def taken(folder: AttemptFolder, over: anyio.CancelScope) -> None:
            came.append(await self._taken(uid, folder, expected.grant.id, watch))
            over.cancel()

        try:
            with watch.watching(expected.folder.parent, arrivals=True) as arrivals:
                while not came:
                    arrivals.rearm()
                    folder = await self._granted_on_arrival(uid, expected)
                    async with anyio.create_task_group() as tasks:
                        if folder is not None:
                            tasks.start_soon(taken, folder, tasks.cancel_scope)
                        await arrivals.wait()
                        tasks.cancel_scope.cancel()
        except OSError as error:
            raise WorkerTrouble(f"nobody can tell whether the folder of {uid} is there: {error}") from error
        return came[0]

    async def _granted_on_arrival(self, uid: str, expected: ExpectedFolder) -> AttemptFolder | None:
        """Grant it if its folder is there, and if that is still wanted; give the folder."""
        async with self.granting:
            if self.expected.get(uid) is not expected:
                return None  # it was given back
            if await anyio.to_thread.run_sync(checkpoint_of, expected.folder) != expected.checkpoint:
                return None
            await anyio.to_thread.run_sync(self._permit, uid, expected.folder, expected.grant, expected.where)
            return self._home(uid)

    async def _taken(self, uid: str, folder: AttemptFolder, grant: str, watch: FileWatch) -> ProcessAttempt:
        try:
            with watch.watching(folder.path, arrivals=True) as arrivals:
                while True:
                    arrivals.rearm()
                    if await anyio.to_thread.run_sync(_came_back, folder.path, grant):
                        return self._at(folder)
                    await arrivals.wait()
        except OSError as error:
            raise WorkerTrouble(f"nobody can tell whether {uid} runs: {error}") from error

    async def revoke(self, uid: str, grant: str) -> ProcessAttempt | None:
        """Take the grant back, unless its supervisor has it."""
        self.expected.pop(uid, None)  # from here on no folder that comes gets it
        try:
            async with self.granting:
                folder = self._home(uid)
                if folder is None:  # it never came to be offered
                    return None
                standing = await anyio.to_thread.run_sync(withdraw, folder.path, grant)
        except OSError as error:
            raise WorkerTrouble(f"the grant of {uid} cannot be taken back: {error}") from error
        return self._at(folder) if standing is GrantStanding.TAKEN else None

    async def let_go(self, uid: str) -> None:
        """Say in its folder that it is nobody's."""
        try:
            await anyio.to_thread.run_sync(self._let_go, uid)
        except OSError as error:
            raise WorkerTrouble(f"{uid} cannot be let go: {error}") from error

    def _let_go(self, uid: str) -> None:
        folder = self._home(uid)
        if folder is not None and owner_of(folder.path) in (None, self.owner):
            let_go(folder.path)
        (self._references / uid).unlink(missing_ok=True)

    @property
    def _references(self) -> Path:
        return self.root.parent / MOVED

    def _home(self, uid: str) -> AttemptFolder | None:
        """Find the folder of an attempt, here or where it began."""
        try:
            path = Path(os.fsdecode(read_bounded(self._references / uid, MAX_PATH_BYTES)))
        except FileNotFoundError:
            path = self.root / uid
        folder = AttemptFolder(path.parent, uid, self.one_log)
        return folder if folder.path == path and folder.began() else None

    def _at(self, folder: AttemptFolder) -> ProcessAttempt:
        """Return an attempt as its files say it is now."""
        try:
            supervised = find(folder.path, _markers(folder))
        except StatusDamaged as error:
            log.warning("nobody can tell any more which processes %s has: %s", folder.uid, error)
            supervised = None
        lost = Supervised(folder.path, None, None, _markers(folder))
        return self._attempt(folder, supervised or lost)

    def _attempt(self, folder: AttemptFolder, supervised: Supervised) -> ProcessAttempt:
        supervised.ours = partial(self._has, folder.path)
        reference = None if folder.root == self.root else self._references / folder.uid
        return ProcessAttempt(folder, supervised, reference)

    def _has(self, path: Path) -> bool:
        """Whether an attempt is this worker's: began here and was not let go, or was granted to it last. Blocks."""
        owner = owner_of(path)
        return owner is None or (owner == self.owner and owner != NOBODY)

    def _tell_all(self) -> None:
        for path in [folder.path for folder in self._folders(tidy=False)]:
            try:
                supervised = find(path, {})
            except (StatusDamaged, OSError) as error:  # its supervisor looks when the time that it read has come
                log.warning("an attempt is not told that its lease is shorter: %s", error)
                continue
            if supervised is not None:
                supervised.look_at_lease()

    def strangers(self) -> list[Path]:
        """List the folders here of attempts that other workers have taken over, or may. Blocks."""
        return [path for path in folders_below(self.root) if owner_of(path) not in (None, self.owner)]

    def _folders(self, *, tidy: bool = True) -> list[AttemptFolder]:
        """Return those of attempts that are this worker's and were prepared; with ``tidy``, remove what was not.

        Attempts may leave here what they like.
        """
        folders: list[AttemptFolder] = []
        for reference in folders_below(self._references):
            home = self._home(reference.name) if _UID.fullmatch(reference.name) else None
            if home is not None and owner_of(home.path) == self.owner:
                folders.append(home)
        for path in folders_below(self.root):
            if owner_of(path) not in (None, self.owner):
                continue
            try:
                folder = AttemptFolder(self.root, path.name, self.one_log)
            except InvalidArgument as error:
                log.warning("not looked at: %s", error)
                continue
            if folder.began():
                folders.append(folder)
            elif tidy:
                folder.discard()
        return folders


def checkpoint_of(folder: Path) -> str:
    """Say which checkpoint the folder of an attempt was packed into, or came with; empty: none. Blocks.

    Raises:
        OSError: it cannot be looked at.
    """
    try:
        found = decode_json(read_bounded(folder / CARRIED, MAX_MARK_BYTES, below=folder))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError):
        return ""
    match found:
        case {"checkpoint": str(checkpoint)}:
            return checkpoint
    return ""


def _came_back(folder: Path, grant: str) -> bool:
    """Whether its supervisor has the grant and has said who it is, or how it ended."""
    if standing_of(folder, grant) is not GrantStanding.TAKEN:
        return False
    try:
        found = read_identity(folder)
        return read_end(folder) is not None or (found is not None and is_alive(found[0]))
    except StatusDamaged:
        return True


def _markers(folder: AttemptFolder) -> dict[str, str]:
    """Return what the attempt's processes are known by: the folder too, so that a worker never sweeps another's."""
    return {MARKER: folder.uid, "IRIS_WORKDIR": str(folder.work)}
