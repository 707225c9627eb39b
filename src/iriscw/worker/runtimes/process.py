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

On another machine its folder comes with its checkpoint, when that is thawed: until then there is nothing to put a grant
into. So a worker that may have it makes the place, and offers the grant as soon as the folder is there, and again
whenever another one is there in its stead; who thaws it waits for that. Only this worker ever offers this grant, and
once it has taken that back it offers it no more.

The environment is: what a login shell has, then the defaults of programs, then the user's variables, then iriscw's,
which win.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import attrs

from iriscw._errors import InvalidArgument
from iriscw.files import make_private_folder, read_bounded, write_atomic
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
from iriscw.worker.inotify import FileWatch, Growth, either
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

MOVED = "moved"
MAX_PATH_BYTES = 4096

MARKER = "IRIS_ATTEMPT_UID"
"""The variable by which all processes of an attempt are found."""

CALLABLE_ARGV = (sys.executable, "-m", "iriscw.task")


@attrs.frozen(eq=False)
class ProcessAttempt(FolderAttempt):
    """An attempt that is a process; see :class:`~iriscw.worker.ports.RunningAttempt`."""

    supervised: Supervised
    forget: Callable[[], None] | None = None
    """Of one that a worker has by its name: removes what that worker keeps of it beside its folder. Blocks."""

    async def remove(self) -> None:
        """Remove its files, unless somebody else has taken it over, and then what says where they were."""
        if await anyio.to_thread.run_sync(self.supervised.ours):
            await super().remove()
        if self.forget is not None:
            await anyio.to_thread.run_sync(self.forget)

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


@attrs.frozen
class _Permitted:
    """What was permitted: the folder, which may be yet to come, the grant, and what its context will say."""

    folder: AttemptFolder
    grant: Grant
    where: Whereabouts


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
    _permitted: dict[str, _Permitted] = attrs.field(factory=dict, init=False, repr=False)
    """By uid; who takes a grant back takes it out first, under the lock, so that nobody offers it after that."""
    _offered: dict[str, tuple[str, int, int]] = attrs.field(factory=dict, init=False, repr=False)
    """By uid: the grant that this life offered last, and in which folder: its device and its number there."""
    _offering: threading.Lock = attrs.field(factory=threading.Lock, init=False, repr=False, eq=False)

    async def start(self, spec: AttemptSpec) -> ProcessAttempt:
        """Start an attempt."""
        argv = argv_of(spec, _callable_argv(spec))
        folder = AttemptFolder(self.root, spec.uid, self.one_log)
        variables = task_environment(spec.facts, folder.work)
        markers = _markers(folder)
        for name in markers:
            del variables[name]
        check_environment(spec.environment)
        syscall_filter = filter_of(spec)
        await prepare(folder, spec, argv)
        program = Program(
            argv=folder.steps(sys.executable) if spec.setup.steps else argv,
            folder=folder.path,
            workdir=folder.work,
            stdout=folder.stdout,
            stderr=folder.stderr,
            environment={**self._environment(spec), **variables},
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

    def _environment(self, spec: AttemptSpec) -> dict[str, str]:
        """Return its variables but for those that iriscw sets for every task."""
        given = {**basic_environment(self.ours), **PROGRAM_DEFAULTS}
        if spec.installed is None:
            return {**given, **spec.environment}
        given.pop("PYTHONPATH", None)  # its packages would win over those that are installed; iriscw's own are found
        told = {**given, **spec.environment}
        folder = spec.installed.folder
        return {**told, "PATH": f"{folder / 'bin'}{os.pathsep}{told['PATH']}", "VIRTUAL_ENV": str(folder)}

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

    async def permit(self, uid: str, folder: Path, grant: str, where: Whereabouts) -> ProcessAttempt:
        """Take it over, and let it be brought back."""
        if self.lease is None or not self.owner:
            raise ResumeRefused("this worker has no lease by which an attempt could live")
        offered = Grant(grant, self.owner, self.lease.path)
        try:
            return await anyio.to_thread.run_sync(self._permit, uid, folder, offered, where)
        except OSError as error:
            raise WorkerTrouble(f"{uid} cannot be let go on: {error}") from error

    def _permit(self, uid: str, path: Path, offered: Grant, where: Whereabouts) -> ProcessAttempt:
        folder = AttemptFolder(path.parent, uid, self.one_log)
        if where.anew and path.is_absolute() and path == folder.path:
            self._clear(folder, offered.id)
        if not path.is_absolute() or path != folder.path or not (folder.began() or self._may_come(path)):
            raise ResumeRefused(f"{path} is not a folder of the attempt {uid}")
        permitted = _Permitted(folder, offered, where)
        if folder.began():
            self._check(permitted)
        if path.parent != self.root:  # written down before it is ours, so that it is found again
            make_private_folder(self._references)
            write_atomic(self._references / uid, os.fsencode(path))
        self._permitted[uid] = permitted
        try:
            self._make_place(permitted)
            self._offer(permitted)
        except GrantRefused:
            del self._permitted[uid]
            if owner_of(path) != self.owner:
                (self._references / uid).unlink(missing_ok=True)
            raise
        return self._at(folder)

    def _clear(self, folder: AttemptFolder, grant: str) -> None:
        """Remove the folder of a life that is over, in the place of which an earlier state of it is to come.

        One that is nobody's stays: it may have come just now, and who brings one puts aside what was let go.
        """
        path = folder.path
        if not os.path.lexists(path) or owner_of(path) == NOBODY or standing_of(path, grant) is not GrantStanding.NONE:
            return
        if path.lstat().st_uid != os.geteuid() or not stat.S_ISDIR(path.lstat().st_mode):
            raise ResumeRefused(f"{path} is somebody else's")
        if self._at(folder).supervised.alive:
            raise ResumeRefused(f"{folder.uid} runs: whoever has it would lose it")
        folder.remove()

    def _may_come(self, path: Path) -> bool:
        """Whether a folder that is not there may come with a checkpoint: it lay where such folders lie here, too."""
        here, there = self.root, path.parent
        alike = there.name == here.name and [*there.parents][2:] == [*here.parents][2:]
        return alike and os.path.normpath(path) == str(path) and not os.path.lexists(path)

    def _check(self, permitted: _Permitted) -> None:
        """Refuse a folder that is somebody else's, or whose program runs already."""
        folder, path = permitted.folder, permitted.folder.path
        if path.lstat().st_uid != os.geteuid() or not stat.S_ISDIR(path.lstat().st_mode):
            raise ResumeRefused(f"{path} is somebody else's")
        if self._at(folder).supervised.alive and standing_of(path, permitted.grant.id) is not GrantStanding.TAKEN:
            raise ResumeRefused(f"{folder.uid} runs: whoever has it would lose it")

    def _make_place(self, permitted: _Permitted) -> None:
        """Make the folder into which it may come: whoever thaws it needs that. May be repeated."""
        with self._offering:
            if self._permitted.get(permitted.folder.uid) == permitted:
                make_private_folder(permitted.folder.root)

    def _offer(self, permitted: _Permitted) -> None:
        """Offer the grant, if the folder is there, and nobody has taken it back meanwhile. May be repeated."""
        folder = permitted.folder
        with self._offering:
            if self._permitted.get(folder.uid) != permitted or not folder.began():
                return
            self._check(permitted)
            offered = _which(folder.path, permitted.grant.id)
            if standing_of(folder.path, permitted.grant.id) in (GrantStanding.OFFERED, GrantStanding.TAKEN):
                self._offered[folder.uid] = offered
                return
            try:
                folder.moved(permitted.where)
                folder.log_goes_on(permitted.where.log_offset)
            except ValueError as error:  # the program's own doing: it goes on without it
                log.warning("the context of %s is not what it was: %s", folder.uid, error)
            offer(folder.path, permitted.grant)
            self._offered[folder.uid] = offered

    async def thawed(self, uid: str, grant: str) -> ProcessAttempt:
        """Wait until its supervisor has taken the grant and said who it is now."""
        permitted = self._permitted.get(uid)
        folder = self._home(uid) if permitted is None else permitted.folder
        if folder is None or self.watch is None:
            raise ResumeRefused(f"{uid} was never permitted to go on here")
        try:
            while True:
                if permitted is not None:
                    await anyio.to_thread.run_sync(self._make_place, permitted)
                # Anew each time: another worker may have removed the one above meanwhile, which ends its watch.
                with self.watch.watching(folder.root, arrivals=True) as comings:
                    if permitted is not None:
                        await anyio.to_thread.run_sync(self._offer, permitted)
                    if await self._taken_in(folder, grant, comings):
                        return self._at(folder)
        except OSError as error:
            raise WorkerTrouble(f"nobody can tell whether {uid} runs: {error}") from error

    async def _taken_in(self, folder: AttemptFolder, grant: str, comings: Growth) -> bool:
        """Wait until the grant was taken in the folder that is there now, or another one may be; say which."""
        assert self.watch is not None
        try:
            with self.watch.watching(folder.path, arrivals=True) as arrivals:
                while not comings.seen:
                    arrivals.rearm()
                    if await anyio.to_thread.run_sync(_came_back, folder.path, grant):
                        return True
                    await either(arrivals, comings)
        except FileNotFoundError:
            await comings.wait()
        return False

    async def revoke(self, uid: str, grant: str) -> ProcessAttempt | None:
        """Take the grant back, unless its supervisor has it."""
        try:
            return await anyio.to_thread.run_sync(self._revoke, uid, grant)
        except OSError as error:
            raise WorkerTrouble(f"the grant of {uid} cannot be taken back: {error}") from error

    def _revoke(self, uid: str, grant: str) -> ProcessAttempt | None:
        self._offer_no_more(uid)
        path = self._place(uid)
        try:
            which = _which(path, grant)
        except (FileNotFoundError, NotADirectoryError):  # it never came to be offered, or what it was offered in went
            return None
        standing = withdraw(path, grant)
        # The program may have removed what says that the grant was taken; nobody else removes an offer from a folder.
        vanished = standing is GrantStanding.NONE and self._offered.get(uid) == which
        taken = vanished or standing is GrantStanding.TAKEN
        return self._at(AttemptFolder(path.parent, uid, self.one_log)) if taken else None

    def _offer_no_more(self, uid: str) -> None:
        with self._offering:
            self._permitted.pop(uid, None)

    async def let_go(self, uid: str) -> None:
        """Say in its folder that it is nobody's."""
        try:
            await anyio.to_thread.run_sync(self._let_go, uid)
        except OSError as error:
            raise WorkerTrouble(f"{uid} cannot be let go: {error}") from error

    def _let_go(self, uid: str) -> None:
        self._offer_no_more(uid)
        folder = self._home(uid)
        if folder is not None and owner_of(folder.path) in (None, self.owner):
            let_go(folder.path)
        self._forget(uid, self._place(uid).parent)

    def _forget(self, uid: str, root: Path) -> None:
        """Remove what says where an attempt is that began elsewhere, and the folders above it in which nothing is.

        One into which another attempt may yet come stays.
        """
        with self._offering:
            self._permitted.pop(uid, None)
            self._offered.pop(uid, None)
            if root == self.root:
                return
            (self._references / uid).unlink(missing_ok=True)
            if any(each.folder.root == root for each in self._permitted.values()):
                return
            with contextlib.suppress(OSError):  # something else is in there
                for above in (root, *root.parents[:2]):
                    above.rmdir()

    @property
    def _references(self) -> Path:
        return self.root.parent / MOVED

    def _home(self, uid: str) -> AttemptFolder | None:
        """Find the folder of an attempt, here or where it began; None if it is not there."""
        path = self._place(uid)
        folder = AttemptFolder(path.parent, uid, self.one_log)
        return folder if folder.path == path and folder.began() else None

    def _place(self, uid: str) -> Path:
        try:
            return Path(os.fsdecode(read_bounded(self._references / uid, MAX_PATH_BYTES)))
        except FileNotFoundError:
            return self.root / uid

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
        return ProcessAttempt(folder, supervised, partial(self._forget, folder.uid, folder.root))

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


def _which(folder: Path, grant: str) -> tuple[str, int, int]:
    """Tell a folder, with a grant, from another one that is in its place later."""
    found = folder.lstat()
    return grant, found.st_dev, found.st_ino


def _came_back(folder: Path, grant: str) -> bool:
    """Whether its supervisor has the grant and has said who it is, or how it ended."""
    if standing_of(folder, grant) is not GrantStanding.TAKEN:
        return False
    try:
        found = read_identity(folder)
        return read_end(folder) is not None or (found is not None and is_alive(found[0]))
    except StatusDamaged:
        return True


def _callable_argv(spec: AttemptSpec) -> tuple[str, ...]:
    if spec.installed is None:
        return CALLABLE_ARGV
    return (str(spec.installed.python), *CALLABLE_ARGV[1:])


def _markers(folder: AttemptFolder) -> dict[str, str]:
    """Return what the attempt's processes are known by: the folder too, so that a worker never sweeps another's."""
    return {MARKER: folder.uid, "IRIS_WORKDIR": str(folder.work)}
