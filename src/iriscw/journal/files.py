"""The journal's folder: who may write, which file counts, and how one file takes another's place.

The folder (0700) holds ``journal.lock`` and ``journal-<generation>.db`` (0600) with SQLite's ``-wal`` and
``-shm`` files beside it. Compaction writes the next generation as a *draft* (``.new``), syncs it, renames it
and syncs the folder; only then is it used and the older one removed. So after a crash the highest generation
is the journal, and drafts and older generations are leftovers. Generations have names of their own because
SQLite would apply the ``-wal`` file of a replaced database to its successor.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from iriscw._errors import JournalLocked

_DATABASE = re.compile(r"journal-(\d{6,})\.db")
_LEFTOVER = re.compile(r"journal-(\d{6,})\.db(-wal|-shm|-journal|\.new|\.new-journal)?")
_LOCK = "journal.lock"
_ASIDE = "replaced.db"
PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700


def prepare(directory: Path) -> None:
    """Make the folder, or make it private if others may look into it."""
    directory.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    if stat.S_IMODE(directory.stat().st_mode) & 0o077:
        directory.chmod(PRIVATE_FOLDER)


def create_private(file: Path) -> None:
    """Make an empty file that only its owner may read; SQLite gives the files beside a database its mode."""
    os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, PRIVATE_FILE))


def sync(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def database(directory: Path, generation: int) -> Path:
    """Return the file of a generation."""
    return directory / f"journal-{generation:06}.db"


def draft(file: Path) -> Path:
    """Return the name under which ``file`` is written until it is complete."""
    return file.with_name(file.name + ".new")


def generation_of(file: Path) -> int:
    """Return the generation of a database file."""
    found = _DATABASE.fullmatch(file.name)
    assert found is not None
    return int(found[1])


def newest(directory: Path) -> Path | None:
    """Return the database that counts, or None if there is none yet."""
    found = [entry for entry in directory.iterdir() if _DATABASE.fullmatch(entry.name)] if directory.is_dir() else []
    return max(found, key=generation_of, default=None)


def set_aside(file: Path) -> None:
    """Move a database away that another one replaces, with its write-ahead log: one is kept, for people."""
    for suffix in ("-wal", "-shm", ""):
        old = file.with_name(file.name + suffix)
        if old.exists():
            old.replace(file.with_name(f"{_ASIDE}{suffix}"))


def leftovers(directory: Path, current: Path) -> Iterator[Path]:
    """Yield the drafts and the files of other generations than that of ``current``."""
    for entry in sorted(directory.iterdir()):
        found = _LEFTOVER.fullmatch(entry.name)
        if found and (int(found[1]) != generation_of(current) or (found[2] or "").startswith(".new")):
            yield entry


def size_bytes(current: Path) -> int:
    """Return what a database and its write-ahead log take."""
    files = (current, current.with_name(current.name + "-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


def free_bytes(current: Path) -> int | None:
    """Return what its disk has left for this user; None if the disk does not say. Waits for a disk that hangs."""
    try:
        disk = os.statvfs(current)
    except OSError:  # it is asked for a message about another failure, which counts
        return None
    return disk.f_bavail * disk.f_frsize


class Lock:
    """The right to write a journal: held by one process, and gone with it.

    Raises:
        JournalLocked: another process, or another journal of this one, has it; the error names its pid.
    """

    def __init__(self, directory: Path) -> None:
        self._descriptor = os.open(directory / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._descriptor)
            raise JournalLocked(f"the journal in {directory} is written by process {holder}") from None
        except OSError:
            os.close(self._descriptor)
            raise
        # The pid is for people only: what counts is the lock, which the kernel drops with its holder.
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode("ascii"), 0)

    def release(self) -> None:
        """Let others write."""
        os.close(self._descriptor)
