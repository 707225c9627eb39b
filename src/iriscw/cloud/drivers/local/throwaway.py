"""Folders of throw-away clusters: made, owned by one process, and removed when that was killed.

Theory of operation. A cluster without a folder of its own takes a temporary one, and removes it when it ends. One
that is killed cannot: its folder stays, with tokens in it, and for a while its processes. So the folder says who owns
it (``owner.json``), and whoever makes the next one looks for those whose owner is dead:

* The owner is known by process number, start time and boot, beside the machine's name and the process namespace in
  which the number counts; where one of these does not fit, nobody can tell whether it lives, and nothing is done. The
  owner also holds a lock on the file, which goes with it; whoever cleans up takes that lock, so two never do at once.
* Only a real folder of this user that nobody else may enter is looked at (uid, mode 0700, no link), in a parent where
  nobody else could have put it in the place of another one.
* Pods are ended through their supervisors, which leave nothing of them; what was started by a supervisor that is gone
  is found by its environment: the pod's marker, and the working folders of attempts.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import platform
import shutil
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Self

import anyio
import anyio.to_thread
import attrs

from iriscw.cloud.drivers.local.folder import Folder, WorkdirLocked, remove_tree
from iriscw.cloud.drivers.local.platform import POD_MARKER
from iriscw.cloud.drivers.local.records import PodRecord
from iriscw.errors import OperationError
from iriscw.files import write_atomic
from iriscw.processes.identity import ProcessIdentity, boot_id, identify, is_alive
from iriscw.processes.supervised import adopt
from iriscw.processes.sweep import sweep, sweep_told_of

log = logging.getLogger(__name__)

PREFIX: Final = "iriscw-"
OWNER_FILE: Final = "owner.json"
PLATFORM_FOLDER: Final = "platform"
"""Within a cluster's folder: the root of its local platform."""

ATTEMPT_FOLDER: Final = "IRIS_WORKDIR"
"""The variable by which the processes of attempts are found, their supervisors included."""

MAX_OWNER_BYTES: Final = 4096
"""A few numbers and names."""

ORPHAN_AFTER_S: Final = 60.0
"""For how long workers of a throw-away cluster wait for their controller: no other ever comes. Three leases of the
local platform's default, so a controller that only stalls finds them again.
"""

END_TIMEOUT_S: Final = 30.0
"""For the processes of one abandoned cluster: they are killed without grace."""


@attrs.frozen
class Owner:
    """Whose folder it is, and where that can be told."""

    process: ProcessIdentity
    host: str
    pid_namespace: str
    """In which the process number counts: two containers of one machine have the same boot."""

    @property
    def is_dead(self) -> bool:
        """Whether it certainly runs no more; False where that cannot be told."""
        if self.host != platform.node():
            return False
        if self.process.boot_id != boot_id():
            return True
        return self.pid_namespace == _pid_namespace() and not is_alive(self.process)


@attrs.frozen
class Abandoned:
    """A folder that was removed, and who had left it."""

    folder: Path
    owner: ProcessIdentity


@attrs.frozen(eq=False)
class ThrowawayFolder:
    """A folder (mode 0700) of this process, until :meth:`remove`. All methods block."""

    path: Path
    _lock: int

    @classmethod
    def make(cls) -> Self:
        """Make one, with a name that nobody else has, where temporary files are.

        Raises:
            OSError: as the file system says it; nothing is left.
        """
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        try:
            owner = Owner(identify(os.getpid()), platform.node(), _pid_namespace())
            write_atomic(path / OWNER_FILE, json.dumps(attrs.asdict(owner)).encode())
            lock = os.open(path / OWNER_FILE, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            fcntl.flock(lock, fcntl.LOCK_EX)  # at once: nobody takes it from an owner that lives
        except BaseException:
            shutil.rmtree(path)
            raise
        return cls(path, lock)

    def remove(self) -> None:
        """Remove it with all below it.

        Raises:
            OSError: as the file system says it.
        """
        try:
            remove_tree(self.path, OWNER_FILE)
        finally:
            os.close(self._lock)


async def remove_abandoned(also: Iterable[Path] = ()) -> tuple[Abandoned, ...]:
    """End and remove what killed owners left in the folder for temporary files, and in ``also``.

    What cannot be removed stays, with a line in the log: it is no reason not to begin.
    """
    removed: list[Abandoned] = []
    for folder in await anyio.to_thread.run_sync(_candidates, tuple(also)):
        owner = await anyio.to_thread.run_sync(_owner_of, folder)
        if owner is None or not owner.is_dead or _lives_in(folder):
            continue
        try:
            with anyio.fail_after(END_TIMEOUT_S):
                gone = await _remove(folder)
        except (OperationError, OSError, ValueError) as error:  # a time-out is an OSError, a damaged file the last
            log.warning("what a cluster left that was killed stays at %s: %s: %s", folder, type(error).__name__, error)
            continue
        if gone:
            log.info("removed %s, which process %d had left", folder, owner.process.pid)
            removed.append(Abandoned(folder, owner.process))
    return tuple(removed)


async def end_all(root: Path) -> None:
    """End every pod of the platform in ``root`` without grace, and start nothing. The records stay.

    Raises:
        WorkdirLocked: a controller uses it.
        WorkdirCorrupt: a record cannot be read.
        SweepFailed: processes are left that do not die.
        OSError: as the file system says it.
    """
    folder = Folder(root)
    with folder.locked():
        _, pods = await anyio.to_thread.run_sync(folder.load)
        failures: list[OperationError] = []
        async with anyio.create_task_group() as tasks:
            for pod in pods:
                tasks.start_soon(_end_pod, folder, pod, failures)
    if failures:
        raise failures[0]


async def _end_pod(folder: Folder, pod: PodRecord, failures: list[OperationError]) -> None:
    markers = {POD_MARKER: pod.uid}
    try:
        running = await adopt(folder.pod(pod), markers)
        if running is not None:
            await running.stop(0)
        await sweep(markers)  # commands that were run in it through a connection
    except OperationError as error:
        failures.append(error)


async def _remove(folder: Path) -> bool:
    """Remove a folder whose owner is dead; give whether it is gone."""
    try:
        lock = os.open(folder / OWNER_FILE, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:  # somebody else was faster
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if (folder / PLATFORM_FOLDER).is_dir():
            await end_all(folder / PLATFORM_FOLDER)
        await sweep_told_of(ATTEMPT_FOLDER, folder)
        await anyio.to_thread.run_sync(remove_tree, folder, OWNER_FILE)
    except (BlockingIOError, WorkdirLocked):  # somebody cleans up, or has taken the cluster over
        return False
    finally:
        os.close(lock)
    return True


def _candidates(also: tuple[Path, ...]) -> list[Path]:
    parent = Path(tempfile.gettempdir())
    try:
        found = sorted(path for path in parent.iterdir() if path.name.startswith(PREFIX))
    except OSError:  # it is not ours to list: what is in it is not found
        found = []
    return list(dict.fromkeys((*also, *found)))


def _owner_of(folder: Path) -> Owner | None:
    """Read who owns a throw-away folder of this user; None for everything else."""
    try:
        parent, found = folder.parent.stat(), folder.lstat()
        if not (stat.S_ISDIR(found.st_mode) and _is_private(found) and _keeps_names(parent)):
            return None
        descriptor = os.open(folder / OWNER_FILE, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not _is_private(os.fstat(descriptor)):
                return None
            content = json.loads(file.read(MAX_OWNER_BYTES))
        return Owner(ProcessIdentity(**content["process"]), str(content["host"]), str(content["pid_namespace"]))
    except (OSError, ValueError, KeyError, TypeError):  # none, or none that can be told
        return None


def _is_private(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077


def _keeps_names(parent: os.stat_result) -> bool:
    """Whether nobody else can rename what is in this folder."""
    open_to_others = bool(parent.st_mode & 0o022)
    return parent.st_uid in (0, os.geteuid()) and (not open_to_others or bool(parent.st_mode & stat.S_ISVTX))


def _lives_in(folder: Path) -> bool:
    """Whether this process is itself part of that cluster: of an attempt that was not ended yet."""
    return Path(os.environ.get(ATTEMPT_FOLDER, "/")).is_relative_to(folder)


def _pid_namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())
