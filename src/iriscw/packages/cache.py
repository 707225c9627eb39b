"""Environments of packages on a worker: made once for each content, shared by all attempts that want the same.

::

    <root>/<digest>/                 one environment; without made.json it is half-made, and nobody uses it
    <root>/<digest>/env/             the virtual environment, not writable
    <root>/<digest>/made.json        written last: how large it is; its time of change is its last use
    <root>/<digest>/uses/<name>      who has it: the folder of an attempt. One that is gone uses nothing
    <root>/locks/<xx>                held by whoever makes or removes one whose digest begins so

The digest is over all that decides what is in it: the requirements in their normal form with their hashes, the Python
and its platform, the installer and its version, where it gets packages from, and where iriscw's own are. An
environment cannot be moved once it is made (its programs name their Python by its path), so it is made where it stays,
and ``made.json`` is what puts it in place.

Several workers may share a root. A lock is the kernel's, so it ends with its holder. An installer has a supervisor that
ends it with its worker's lease; whoever has the lock next ends what is left of it, and begins anew.

Whoever uses an environment says so before it looks whether the environment is there; whoever removes one takes
``made.json`` away before it looks whether somebody uses it. So one of the two always sees the other.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import sys
import sysconfig
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import attrs

from iriscw._errors import OperationError
from iriscw.files import make_private_folder, read_bounded, remove_tree, write_atomic
from iriscw.packages.installers import (
    Installer,
    disk_is_full,
    fallback_folders,
    installer_environment,
    network_is_away,
    source_of,
    without_credentials,
)
from iriscw.packages.requirements import normal
from iriscw.processes.supervised import NotStarted, Program, adopt, launch

MAX_ENVIRONMENTS = 64
MAX_BYTES = 64 << 30
"""Of all environments of a machine; one with PyTorch has 6 GB."""

START_GRACE_S = 600.0
"""A use whose attempt has no folder yet counts for so long: the attempt is being started."""

TRIES = 4
PAUSE_S = 2.0
"""Before an installer that reached nobody is tried again; doubled each time."""

LOG_BYTES = 1 << 20
"""Of each output of an installer; what is older goes."""

SHOWN_LINES, SHOWN_BYTES = 20, 4 << 10
"""Of what an installer said last, in the reason of a failure."""

LOCK_PAUSE_S = 0.1
"""Between two looks whether another worker has let a lock go: the kernel tells no event loop of that."""

MARKER = "IRISCW_INSTALLS"
"""The variable by which an installer's processes are found."""

_MADE, _USES = "made.json", "uses"
_MAX_STATUS_BYTES = 64 << 10


class DependenciesFailed(OperationError):
    """The packages that a job asks for cannot be installed: there is no such version, or one cannot be built."""


class DependenciesTimeout(OperationError):
    """Installing the packages that a job asks for took longer than the job allows."""


class DependenciesConflict(OperationError):
    """iriscw cannot run beside the packages that a job asks for, so no callable can."""


class PackagesUnavailable(OperationError):
    """Packages cannot be installed here just now: no index is reached, there is no room, or nothing that installs."""

    retryable = True


@attrs.frozen
class Installed:
    """An environment that is there."""

    folder: Path
    hindrance: str = ""
    """Why iriscw, and with it callables, cannot run in it; empty: they can."""

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"


@attrs.define(eq=False)
class EnvironmentCounts:
    """What came of the requests: counts since the worker began."""

    made: int = 0
    reused: int = 0
    removed: int = 0
    failed: int = 0


@attrs.frozen
class CacheLimits:
    """What all environments below one root may take."""

    environments: int = MAX_ENVIRONMENTS
    total_bytes: int = MAX_BYTES


class EnvironmentCache:
    """The environments below ``root``.

    Args:
        root: where they are; may be shared by workers of this machine.
        installer: what installs.
        ours: the worker's own environment, from which the installer's settings are.
        users: the folder below which attempts have theirs.
        lease: the file by which an installer ends with its worker; None: it does not.
        limits: of what is kept.
    """

    def __init__(
        self,
        root: Path,
        installer: Installer,
        *,
        ours: Mapping[str, str] | None = None,
        users: Path,
        lease: Path | None = None,
        limits: CacheLimits | None = None,
        pause_s: float = PAUSE_S,
    ) -> None:
        self.root = root.absolute()
        self.installer = installer
        self._version = ""
        self.counts = EnvironmentCounts()
        self._environment = installer_environment(dict(os.environ) if ours is None else ours)
        self._users = users.absolute()
        self._lease = lease
        self._limits = limits or CacheLimits()
        self._pause_s = pause_s
        self._locks: dict[str, anyio.Lock] = {}
        self._fallback = fallback_folders()

    async def sweep(self) -> None:
        """Remove what was left half-made by workers that are gone, and what is beyond the limits. At the start.

        Raises:
            OSError: the folder cannot be read or changed.
        """
        await anyio.to_thread.run_sync(make_private_folder, self.root / "locks")
        for folder in await anyio.to_thread.run_sync(self._folders):
            if not (folder / _MADE).exists():
                async with self._locked(folder.name, wait=False) as held:
                    if held and not (folder / _MADE).exists():
                        await self._discard(folder)
        await self._make_room(0)

    async def provide(
        self,
        requirements: tuple[str, ...],
        uid: str,
        timeout_s: float,
        say: Callable[[str], None] = lambda text: None,
    ) -> Installed:
        """Return an environment with these packages; make it if it is not here.

        Args:
            requirements: as a job gave them.
            uid: of the attempt for which it is: for as long as its folder is there, the environment stays.
            timeout_s: of the making.
            say: is told what is being done.

        Raises:
            InvalidDependency: a requirement is none.
            DependenciesFailed, DependenciesTimeout: they cannot be installed.
            PackagesUnavailable: not now.
            OSError: the folder cannot be written.
        """
        wanted, user = normal(requirements), self._users / uid
        digest = await anyio.to_thread.run_sync(self.digest, wanted)
        folder = self.root / digest
        found = await anyio.to_thread.run_sync(self._taken, folder, user)
        if found is not None:
            self.counts.reused += 1
            return found
        say(f"waits for {_named(wanted)} to be installed")
        async with self._locked(digest):
            found = await anyio.to_thread.run_sync(self._taken, folder, user)
            if found is not None:
                self.counts.reused += 1
                return found
            say(f"installs {_named(wanted)}")
            await self._make_room(1, digest)
            try:
                await self._make(folder, wanted, timeout_s, say)
            except BaseException:
                self.counts.failed += 1
                with anyio.CancelScope(shield=True):  # bounded: a kill, and a number of files
                    await self._discard(folder)
                raise
            self.counts.made += 1
            found = await anyio.to_thread.run_sync(self._taken, folder, user)
        if found is None:
            raise PackagesUnavailable(f"what was just installed in {folder} is not there any more")
        return found

    def digest(self, wanted: tuple[str, ...]) -> str:
        """Return the name of the environment that holds these requirements, in their normal form, here. Blocks.

        Raises:
            PackagesUnavailable: the installer does not say its version.
        """
        self._version = self._version or self.installer.version()
        if not self._version:
            raise PackagesUnavailable(f"{self.installer.argv[0]} does not say its version")
        parts = {
            "requirements": wanted,
            "python": (sys.version, os.path.realpath(sys.executable)),
            "platform": (sysconfig.get_platform(), platform.libc_ver()),
            "installer": (self.installer.name, self._version),
            "source": source_of(self._environment),
            "iriscw": self._fallback,
        }
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    # Making

    async def _make(self, folder: Path, wanted: tuple[str, ...], timeout_s: float, say: Callable[[str], None]) -> None:
        await self._discard(folder)
        await anyio.to_thread.run_sync(make_private_folder, folder)
        requirements = folder / "requirements.txt"
        await anyio.to_thread.run_sync(partial(write_atomic, requirements, "\n".join((*wanted, "")).encode()))
        environment = folder / "env"
        try:
            with anyio.fail_after(timeout_s):
                create, install = self.installer.commands(environment, requirements)
                await self._run(folder, "create", create)
                await self._install(folder, install, lambda why: say(f"installs {_named(wanted)} once more: {why}"))
                await anyio.to_thread.run_sync(self._lean_on_ours, environment)
                hindrance = await self._hindrance(folder, environment)
        except TimeoutError as error:
            text = f"installing {_named(wanted)} took longer than {timeout_s:g} s"
            raise DependenciesTimeout(await anyio.to_thread.run_sync(_told, folder, text)) from error
        await anyio.to_thread.run_sync(_finish, folder, hindrance)

    async def _install(self, folder: Path, command: tuple[str, ...], say: Callable[[str], None]) -> None:
        for number in range(1, TRIES + 1):
            try:
                await self._run(folder, f"install-{number}", command)
            except PackagesUnavailable as error:
                if number == TRIES:
                    raise
                say(str(error).splitlines()[-1])
                await anyio.sleep(self._pause_s * 2 ** (number - 1))
            else:
                return

    async def _run(self, folder: Path, name: str, argv: tuple[str, ...]) -> None:
        """Run an installer's command to its end.

        Raises:
            DependenciesFailed, PackagesUnavailable: it failed.
        """
        own = folder / f"run-{name}"
        program = Program(
            argv=argv,
            folder=own,
            workdir=Path("/"),  # where it finds no project's settings
            stdout=own / "out.log",
            stderr=own / "err.log",
            environment=self._environment,
            markers={MARKER: str(folder)},
            lease=self._lease,
            log_limit_bytes=LOG_BYTES,
        )
        try:
            running = await launch(program)
        except (NotStarted, OSError) as error:
            raise PackagesUnavailable(f"{Path(argv[0]).name} cannot be started: {error}") from error
        try:
            end = await running.wait()
        except BaseException:
            with anyio.CancelScope(shield=True):  # bounded: it gets no grace
                await running.stop(0)
            raise
        if end.succeeded:
            return
        said = await anyio.to_thread.run_sync(_output, own)
        kind: type[OperationError] = PackagesUnavailable
        if end.lease_over:
            text = "the worker's lease was over while packages were being installed"
        elif disk_is_full(said):
            text = f"there is no room left for packages in {self.root}"
        elif network_is_away(said):
            text = "no package index was reached"
        else:
            kind, text = DependenciesFailed, f"the packages cannot be installed: {end.reason}"
        raise kind(await anyio.to_thread.run_sync(_told, folder, text))

    def _lean_on_ours(self, environment: Path) -> None:
        """Have its Python look for what it does not have among the packages of ours: iriscw, and what that needs.

        What is in the environment comes first, so that a job's own versions win.
        """
        installed, plain = self._fallback
        lines = [f"import site; site.addsitedir({each!r})" for each in installed]
        for site_packages in environment.glob("lib/python*/site-packages"):
            write_atomic(site_packages / "zz-iriscw.pth", "\n".join((*plain, *lines, "")).encode(), mode=0o644)

    async def _hindrance(self, folder: Path, environment: Path) -> str:
        """Say why iriscw does not run in it; empty if it does."""
        try:
            await self._run(folder, "try", (str(environment / "bin" / "python"), "-m", "iriscw.task", "--try"))
        except DependenciesFailed:
            said = await anyio.to_thread.run_sync(_output, folder / "run-try")
            return (said.strip().splitlines() or ["no reason"])[-1][:500]
        return ""

    # Using

    def _taken(self, folder: Path, user: Path) -> Installed | None:
        """Say that somebody uses it, if it is there. Blocks."""
        if not (folder / _MADE).exists():
            return None
        make_private_folder(folder / _USES)
        write_atomic(folder / _USES / user.name, os.fsencode(user), durable=False)
        try:
            made = json.loads(read_bounded(folder / _MADE, _MAX_STATUS_BYTES))
            os.utime(folder / _MADE)
        except FileNotFoundError:  # it is being removed
            return None
        return Installed(folder / "env", str(made.get("hindrance", "")))

    def _used(self, folder: Path) -> bool:
        """Whether somebody uses it; forgets those that are gone. Blocks."""
        try:
            uses = list((folder / _USES).iterdir())
        except FileNotFoundError:
            return False
        found = False
        for use in uses:
            try:
                user = Path(os.fsdecode(read_bounded(use, _MAX_STATUS_BYTES)))
                fresh = time.time() - use.stat().st_mtime < START_GRACE_S
            except FileNotFoundError:
                continue
            if fresh or user.is_dir():
                found = True
            else:
                use.unlink(missing_ok=True)
        return found

    # Removing

    async def _make_room(self, coming: int, holder: str = "") -> None:
        """Remove those that were used longest ago until the limits hold, ``coming`` more included.

        Args:
            coming: how many are about to be made.
            holder: the digest of the one whose lock the caller has.

        Raises:
            PackagesUnavailable: what is in use leaves no room for another.
        """
        known = await anyio.to_thread.run_sync(self._sizes)
        count, total = len(known) + coming, sum(size for _, _, size in known)
        full = self._limits.total_bytes
        for _, folder, size in sorted(known, key=lambda each: each[:2]):
            if count <= self._limits.environments and (total <= full and not (coming and total == full)):
                return
            async with self._locked(folder.name, wait=False, holder=holder) as held:
                if held and await anyio.to_thread.run_sync(self._withdraw, folder):
                    await self._discard(folder)
                    self.counts.removed += 1
                    count, total = count - 1, total - size
        if coming and (count > self._limits.environments or total >= full):
            text = f"{count - coming} environments with {total} bytes are in use, as many as may be"
            raise PackagesUnavailable(f"there is no room for another environment in {self.root}: {text}")

    def _withdraw(self, folder: Path) -> bool:
        """Take one away from those that may begin to use it; False if somebody does. Blocks."""
        if self._used(folder):
            return False
        made = read_bounded(folder / _MADE, _MAX_STATUS_BYTES)
        (folder / _MADE).unlink()
        if self._used(folder):
            write_atomic(folder / _MADE, made)
            return False
        return True

    def _sizes(self) -> list[tuple[float, Path, int]]:
        """List those that are whole, with the time of their last use and their size in bytes. Blocks."""
        found = []
        for folder in self._folders():
            try:
                made = json.loads(read_bounded(folder / _MADE, _MAX_STATUS_BYTES))
                found.append(((folder / _MADE).stat().st_mtime, folder, int(made["size_bytes"])))
            except FileNotFoundError:
                continue
        return found

    def _folders(self) -> list[Path]:
        found = [path for path in self.root.iterdir() if len(path.name) == 64 and path.is_dir()]
        return sorted(found)

    async def _discard(self, folder: Path) -> None:
        """End what still installs into it, and remove it. Only with its lock.

        Raises:
            SweepFailed: what installs into it does not die.
            OSError: it cannot be removed.
        """
        if not await anyio.to_thread.run_sync(folder.exists):
            return
        markers = {MARKER: str(folder)}
        for own in sorted(await anyio.to_thread.run_sync(lambda: list(folder.glob("run-*")))):
            left = await adopt(own, markers)
            if left is not None and left.alive:
                await left.stop(0)
        await anyio.to_thread.run_sync(remove_tree, folder)

    @asynccontextmanager
    async def _locked(self, digest: str, *, wait: bool = True, holder: str = "") -> AsyncIterator[bool]:
        """Hold the lock of an environment, or with ``wait=False`` yield whether it was free, or is the holder's."""
        name = digest[:2]
        if holder[:2] == name:
            yield True
            return
        lock = self._locks.setdefault(name, anyio.Lock())
        if not wait and lock.locked():
            yield False
            return
        async with lock:
            with (self.root / "locks" / name).open("ab") as file:
                while not _lock(file.fileno()):
                    if not wait:
                        yield False
                        return
                    await anyio.sleep(LOCK_PAUSE_S)
                yield True


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _finish(folder: Path, hindrance: str) -> None:
    """Close an environment to writing, and put it in place."""
    size_bytes = 0
    for own in folder.glob("run-*"):
        shutil.rmtree(own)
    for parent, _, files in os.walk(folder / "env"):
        for name in files:
            path = Path(parent, name)
            status = path.lstat()
            size_bytes += status.st_blocks * 512
        Path(parent).chmod(0o555)  # read by tasks, written by nobody
    write_atomic(folder / _MADE, json.dumps({"size_bytes": size_bytes, "hindrance": hindrance}).encode())


def _output(own: Path) -> str:
    """Return the end of what a command of an installer printed; its errors last."""
    said = ""
    for name in ("out.log", "err.log"):
        with contextlib.suppress(FileNotFoundError), (own / name).open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4 * SHOWN_BYTES))
            said += file.read(4 * SHOWN_BYTES).decode(errors="replace")
    return without_credentials(said)


def _told(folder: Path, text: str) -> str:
    """Return what the last command printed last, and then a sentence with the last line of that."""
    runs = sorted(folder.glob("run-*"), key=lambda own: own.stat().st_mtime)
    lines = [line for line in _output(runs[-1]).splitlines() if line.strip()] if runs else []
    said = [line[:SHOWN_BYTES] for line in lines[-SHOWN_LINES:]]
    return "\n".join((*said, f"{text}: {said[-1].strip()}" if said else text))


def _named(wanted: tuple[str, ...]) -> str:
    shown = [each.partition(" --hash")[0] for each in wanted[:3]]
    return ", ".join(shown) + (f" and {len(wanted) - 3} more" if len(wanted) > 3 else "")
