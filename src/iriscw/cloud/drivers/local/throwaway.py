"""Folders of throw-away clusters: made, owned by one process, and removed when that was killed.

Theory of operation. A cluster without a folder of its own takes a temporary one, and removes it when it ends. One
that is killed cannot: its folder stays, with tokens in it, and for a while its processes. So the folder says who owns
it (``owner.json``), and whoever makes the next one looks for those whose owner is dead. The way to a cluster elsewhere
(``iriscw connect``) has its token in such a folder, too.

* The owner is known by process number, start time and boot, beside the machine's name and the process namespace in
  which the number counts; where one of these does not fit, nobody can tell whether it lives, and nothing is done. The
  owner also holds a lock on the file, which goes with it; whoever cleans up takes that lock, so two never do at once.
* Only a real folder of this user that nobody else may enter is looked at (uid, mode 0700, no link), in a parent where
  nobody else could have put it in the place of another one.
* One that was killed while it made its folder has left it empty, but for the beginning of that file. Such a folder is
  removed without asking; whoever was making it all the same makes another one.
* Pods are ended through their supervisors, which leave nothing of them; what was started by a supervisor that is gone
  is found by its environment: the pod's marker, and the working folders of attempts.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import platform
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Self

import anyio
import anyio.to_thread
import attrs

from iriscw._errors import OperationError
from iriscw.cloud.drivers.local.attempts import ATTEMPT_FOLDER
from iriscw.cloud.drivers.local.folder import Folder, WorkdirLocked
from iriscw.cloud.drivers.local.platform import POD_MARKER
from iriscw.cloud.drivers.local.records import PodRecord
from iriscw.files import TEMPORARY_PREFIX, decode_json, read_bounded, remove_tree, write_atomic
from iriscw.processes.identity import ProcessIdentity, boot_id, decode_identity, identify, is_alive
from iriscw.processes.supervised import adopt
from iriscw.processes.sweep import sweep, sweep_told_of

log = logging.getLogger(__name__)

PREFIX: Final = "iriscw-"
OWNER_FILE: Final = "owner.json"
PLATFORM_FOLDER: Final = "platform"
"""Within a cluster's folder: the root of its local platform."""

SECRETS_FOLDER: Final = "secrets"
"""Within a cluster's folder: its tokens, which go first."""

MAX_OWNER_BYTES: Final = 4096
"""A few numbers and names."""

MAX_TRIES: Final = 8
"""To make a folder, when others that begin at the same moment take it for an abandoned one."""

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
    def make(cls, parent: Path | None = None) -> Self:
        """Make one, with a name that nobody else has, in ``parent`` or where temporary files are.

        Raises:
            OSError: as the file system says it; nothing is left.
        """
        for tries_left in reversed(range(MAX_TRIES)):
            path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
            try:
                return cls(path, _own(path))
            except BaseException as error:
                remove_tree(path)
                if not tries_left or not isinstance(error, FileNotFoundError):  # which is: somebody cleaned up
                    raise
        raise AssertionError("the last try returns or raises")

    def remove(self) -> None:
        """Remove it with all below it.

        Raises:
            OSError: as the file system says it.
        """
        try:
            remove_tree(self.path, first=(SECRETS_FOLDER,), last=OWNER_FILE)
        finally:
            os.close(self._lock)


async def remove_abandoned(also: Iterable[Path] = (), *, parent: Path | None = None) -> tuple[Abandoned, ...]:
    """End and remove what killed owners left in ``parent`` or the folder for temporary files, and in ``also``.

    What cannot be removed stays, with a line in the log: it is no reason not to begin.
    """
    removed: list[Abandoned] = []
    for folder in await anyio.to_thread.run_sync(_candidates, tuple(also), parent):
        try:
            owner = await anyio.to_thread.run_sync(_dead_owner_of, folder)
            if owner is None or _lives_in(folder):
                continue
            with anyio.fail_after(END_TIMEOUT_S):
                gone = await _remove(folder)
        except Exception as error:  # noqa: BLE001  # whatever one of them is like, it keeps nobody from beginning
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
        await anyio.to_thread.run_sync(_remove_files, folder)
    except (BlockingIOError, WorkdirLocked):  # somebody cleans up, or has taken the cluster over
        return False
    finally:
        os.close(lock)
    return True


def _remove_files(folder: Path) -> None:
    remove_tree(folder, first=(SECRETS_FOLDER,), last=OWNER_FILE)


def _own(folder: Path) -> int:
    """Write down that this process owns the folder; give the lock."""
    owner = Owner(identify(os.getpid()), platform.node(), _pid_namespace())
    write_atomic(folder / OWNER_FILE, json.dumps(attrs.asdict(owner)).encode())
    lock = os.open(folder / OWNER_FILE, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # at once: nobody takes it from an owner that lives
    except BaseException:
        os.close(lock)
        raise
    return lock


def _candidates(also: tuple[Path, ...], parent: Path | None) -> list[Path]:
    parent = parent or Path(tempfile.gettempdir())
    try:
        found = sorted(path for path in parent.iterdir() if path.name.startswith(PREFIX))
    except OSError:  # it is not ours to list: what is in it is not found
        found = []
    return list(dict.fromkeys((*also, *found)))


def _dead_owner_of(folder: Path) -> Owner | None:
    """Read who left a throw-away folder of this user, and is dead; None for everything else.

    Raises:
        ValueError: it says who owns it, and that cannot be read.
        OSError: likewise.
    """
    try:
        parent, found = folder.parent.stat(), folder.lstat()
        if not (stat.S_ISDIR(found.st_mode) and _is_private(found) and _keeps_names(parent)):
            return None
        if not _is_private((folder / OWNER_FILE).lstat()):
            return None
        content = read_bounded(folder / OWNER_FILE, MAX_OWNER_BYTES)
    except FileNotFoundError:
        _remove_unowned(folder)
        return None
    owner = decode_owner(content)
    return owner if owner.is_dead else None


def decode_owner(content: bytes) -> Owner:
    """Read what says who owns a folder.

    Raises:
        ValueError: it is something else.
    """
    match decode_json(content):
        case {"process": process, "host": str(host), "pid_namespace": str(pid_namespace)}:
            return Owner(decode_identity(process), host, pid_namespace)
    raise ValueError(f"{OWNER_FILE} names no owner")


def _remove_unowned(folder: Path) -> None:
    """Remove a folder that was made, and whose maker was killed before it owned it: there is nothing else in it."""
    with contextlib.suppress(OSError):  # something is in it, or it is gone
        folder.rmdir()
        return
    with contextlib.suppress(OSError):
        names = [path.name for path in folder.iterdir()]
        if all(name.startswith(TEMPORARY_PREFIX) and name.endswith(f"-{OWNER_FILE}") for name in names):
            for name in names:
                (folder / name).unlink()
            folder.rmdir()


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
