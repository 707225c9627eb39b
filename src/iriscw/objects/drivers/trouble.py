"""What an ``OSError`` means in the words of the ObjectStore port.

The table errs on the side of "unreachable": an errno that nobody thought of must never read as absence
(INV-C11).
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from iriscw.objects.ports import StoreAccessDenied, StoreFull, StoreUnreachable

_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextlib.contextmanager
def translated(key: str, root: Path | None = None) -> Iterator[None]:
    """Turn an ``OSError`` of the block into the port's error; all others pass through.

    Whoever writes gives the folder of the store as ``root``: the error then says where room is missing.

    Raises:
        StoreAccessDenied: permissions, a read-only file system, or a link.
        StoreFull: no room.
        StoreUnreachable: anything else.
    """
    try:
        yield
    except OSError as error:
        text = f"{key}: {error.strerror or error}"
        if error.errno in _DENIED:
            raise StoreAccessDenied(text) from error
        if error.errno in _FULL:
            raise StoreFull(text + _room(root)) from error
        raise StoreUnreachable(text) from error


def _room(root: Path | None) -> str:
    if root is None:
        return ""
    try:
        disk = os.statvfs(root)
    except OSError:  # it is asked for a message about another failure, which counts
        return f" in {root}"
    return f" in {root} ({disk.f_bavail * disk.f_frsize} bytes free)"
