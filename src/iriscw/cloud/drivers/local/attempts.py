"""The attempts of a pod's worker, wherever they run: what ends with the pod, and what has moved away from it.

An attempt begins below its worker, and so below its pod's supervisor, which ends it with the pod. One that was
suspended and brought back does not: it is below nobody of the pod, and it may be another worker's by then. So no
variable says which pod an attempt is of. Whose it is stands in its folder (:mod:`iriscw.processes.grants`), and every
process of it names that folder in its environment.

A worker keeps what it has in the folder of its *life*, ``<cache>/<worker id>/<incarnation>``: ``attempts/<uid>``,
``moved/<uid>`` (the path of a folder in another life), ``lease``. When a pod's processes have ended, its life is ended
before anybody is told: then nobody can be brought back for it either, because its lease is over and what it had granted
is withdrawn. A life is removed when nothing in it is wanted any more.

What blocks runs in threads.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import anyio.to_thread
import attrs

from iriscw.files import read_bounded, remove_tree
from iriscw.processes.grants import NOBODY, owner_of, withdraw_all
from iriscw.processes.lease import LeaseFile
from iriscw.processes.sweep import sweep_whose

ATTEMPT_FOLDER: Final = "IRIS_WORKDIR"
"""The variable by which the processes of attempts are found, their supervisors included: the folder below theirs."""

_ATTEMPTS: Final = "attempts"
_MOVED: Final = "moved"
_PARTS: Final = (_ATTEMPTS, _MOVED, "journal", "lease", "specifications")
"""Of the folder of a life: one that has any of these is one, also when the rest was removed already."""
_LEASE: Final = "lease"
_CONTAINERS: Final = "tasks"
"""Where attempts have containers of their own: those end by their lease alone, and are their workers' to remove."""
_MAX_PATH_BYTES: Final = 4096
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""As workers name lives and attempts."""


@attrs.frozen
class WorkerLife:
    """One incarnation of a worker, by its folder."""

    folder: Path

    @property
    def owner(self) -> str:
        """What it is called where grants name it."""
        return f"{self.folder.parent.name}/{self.folder.name}"

    def has(self, attempt: Path) -> bool:
        """Whether the attempt in this folder is this life's now. Blocks.

        Raises:
            OSError: that cannot be read.
        """
        began_here = attempt.parent == self.folder / _ATTEMPTS
        owner = owner_of(attempt)
        return owner == self.owner or (began_here and owner in (None, NOBODY))

    def attempts(self) -> list[Path]:
        """List the folders of attempts that began here. Blocks.

        Raises:
            OSError: they cannot be read.
        """
        return _below(self.folder / _ATTEMPTS)

    def moved_here(self) -> list[Path]:
        """List the folders elsewhere of attempts that this life has, or had, taken over. Blocks.

        Raises:
            OSError: they cannot be read.
        """
        found = []
        for reference in _below(self.folder / _MOVED):
            with contextlib.suppress(FileNotFoundError):  # let go meanwhile
                found.append(Path(os.fsdecode(read_bounded(reference, _MAX_PATH_BYTES))))
        return found


def life_of(cache: Path, environment: Mapping[str, str]) -> WorkerLife | None:
    """Return the life of a pod's worker, by what the pod was told; None for a pod that is not a worker's."""
    worker_id, incarnation = environment.get("IRIS_WORKER_ID"), environment.get("IRIS_INCARNATION")
    return WorkerLife(cache / worker_id / incarnation) if worker_id and incarnation else None


async def end_life(cache: Path, life: WorkerLife) -> None:
    """End all attempts that this life has now, wherever they began, and let none come back for it.

    Its worker's process has to be gone. Repeating it is fine.

    Raises:
        SweepFailed: something does not die.
        OSError: the files cannot be read or written now.
    """
    if (life.folder / _CONTAINERS).is_dir():
        return
    await anyio.to_thread.run_sync(_close, life)

    def has(workdir: Path) -> bool:
        attempt = _attempt_of(cache, workdir)
        return attempt is not None and life.has(attempt)

    await sweep_whose(ATTEMPT_FOLDER, has, f"attempts of {life.owner}")


def _close(life: WorkerLife) -> None:
    """Have its lease be over, and take back what it granted: first the lease, which holds for whoever has come back."""
    if (life.folder / _LEASE).exists():
        with contextlib.closing(LeaseFile(life.folder / _LEASE)) as lease:
            lease.hold(0)
            lease.write()
    for attempt in (*life.attempts(), *life.moved_here()):
        with contextlib.suppress(PermissionError, NotADirectoryError):  # spoilt by its program: nobody brings it back
            if owner_of(attempt) == life.owner:
                withdraw_all(attempt)


def _attempt_of(cache: Path, workdir: Path) -> Path | None:
    """Return the folder of the attempt that a process says it is of; None if there can be none."""
    try:
        names = workdir.relative_to(cache).parts
    except ValueError:
        return None
    if len(names) != 5 or names[2] != _ATTEMPTS or not all(_NAME.fullmatch(name) for name in names):
        return None
    return workdir.parent


def lives(cache: Path) -> list[WorkerLife]:
    """List the lives that have a folder, but for those whose attempts have containers. Blocks.

    Raises:
        OSError: they cannot be read.
    """
    found = (WorkerLife(life) for worker in _below(cache) if worker.is_dir() for life in _below(worker))
    return [
        life
        for life in found
        if any((life.folder / part).exists() for part in _PARTS) and not (life.folder / _CONTAINERS).is_dir()
    ]


def unowned(life: WorkerLife, *, over: bool) -> list[Path]:
    """List the folders of attempts in a life that no worker removes: nobody has them, or their worker is gone. Blocks.

    Args:
        life: where they began.
        over: whether the life is.

    Raises:
        OSError: they cannot be read.
    """
    return [path for path in life.attempts() if over or owner_of(path) == NOBODY]


def remove(folders: Iterable[Path]) -> None:
    """Remove the folders of attempts that nobody wants any more. Blocks.

    Raises:
        OSError: as the file system says it.
    """
    for folder in folders:
        remove_tree(folder, first=("attempt.json",))


def remove_life(life: WorkerLife) -> bool:
    """Remove a life that is over, if no attempt is left in it; give whether it is gone. Blocks.

    Raises:
        OSError: as the file system says it.
    """
    if life.attempts():
        return False
    remove_tree(life.folder)
    with contextlib.suppress(OSError):  # its worker has another one
        life.folder.parent.rmdir()
    return True


def _below(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
