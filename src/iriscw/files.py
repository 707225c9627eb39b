"""Files that are whole or absent, and folders nobody else reads.

Everything iriscw keeps in files (state of the local platform, identities of processes, results of tasks,
objects) is written here: to a temporary name beside the target, flushed to the disk, then renamed. A reader
sees the old file or the new one, never a part, at any crash point. Folders are made with mode 0700 and files
with 0600, because job environments, tokens and checkpoints are private to the user who runs the process.

These functions block; call them from a thread when an event loop must go on.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path

PRIVATE_FILE_MODE = 0o600
PRIVATE_FOLDER_MODE = 0o700

TEMPORARY_PREFIX = ".iriscw-"
"""How the names of unfinished files begin; whoever lists a folder skips them."""

_numbers = itertools.count()


def make_private_folder(path: Path) -> None:
    """Create ``path`` and what is missing above it with mode 0700; one that exists keeps its mode.

    Raises:
        OSError: the folder cannot be created, or something else has its name.
    """
    missing: list[Path] = []
    current = path
    while not current.exists():
        missing.append(current)
        current = current.parent
    for folder in reversed(missing):
        folder.mkdir(mode=PRIVATE_FOLDER_MODE, exist_ok=True)
    if not path.is_dir():
        raise NotADirectoryError(f"{path} is not a folder")


def temporary_name(name: str) -> str:
    """Give a name for the unfinished ``name`` that no other call in any process gives at the same time."""
    return f"{TEMPORARY_PREFIX}{os.getpid()}-{next(_numbers)}-{name[:128]}"


def write_atomic(path: Path, data: bytes, *, mode: int = PRIVATE_FILE_MODE, durable: bool = True) -> None:
    """Give ``path`` the content ``data``, as a whole or not at all.

    ``durable`` also waits until the file and its name are on the disk; without it a power cut may undo the
    write, but never leaves a part of it.

    Raises:
        OSError: as the file system says it; the old content is untouched.
    """
    temporary = path.with_name(temporary_name(path.name))
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Wait until the names in the folder ``path`` are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_bounded(path: Path, limit_bytes: int) -> bytes:
    """Read a file that is no link and at most ``limit_bytes`` long.

    Raises:
        ValueError: the file is longer; nothing beyond the limit was read.
        OSError: as the file system says it; ``ELOOP`` for a link.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise ValueError(f"{path} is longer than {limit_bytes} bytes")
    return data
