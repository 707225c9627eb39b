"""What the controller's stores share: bytes of files by position, and one named error for whatever a disk does."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from iriscw._errors import OperationError
from iriscw.files import PRIVATE_FILE_MODE, make_private_folder


@contextlib.contextmanager
def naming(kind: type[OperationError], what: str, path: Path) -> Iterator[None]:
    """Raise what the file system says inside the block as an error of the store's own.

    Raises:
        OperationError: of this kind; ``what`` at ``path`` fails.
    """
    try:
        yield
    except OSError as error:
        raise kind(f"{what} at {path} fails: {error.strerror or error}") from error


def read_at(path: Path, position: int, count: int) -> bytes:
    """Read at most ``count`` bytes of a file that is not a link, from ``position`` on. Blocks on the disk.

    Raises:
        OSError: as the file system says it.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return os.pread(descriptor, count, position)
    finally:
        os.close(descriptor)


def open_plain(path: Path) -> BinaryIO:
    """Open a file that is not a link, to be read from its start. Blocks on the disk.

    Raises:
        OSError: as the file system says it.
    """
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb")


def append_whole(path: Path, data: bytes) -> None:
    """Append all of ``data``, or nothing, to a file that is not a link; it is made (0600) if need be. Blocks on disk.

    Raises:
        OSError: as the file system says it; the file is as long as it was.
    """
    make_private_folder(path.parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, PRIVATE_FILE_MODE)
    try:
        before = os.fstat(descriptor).st_size
        try:
            write_all(descriptor, data)
        except OSError:
            os.ftruncate(descriptor, before)  # half a line would become one with the next
            raise
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of ``data``, in as many pieces as the system takes. Blocks on the disk.

    Raises:
        OSError: as the file system says it; a part may have been written.
    """
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
