"""What an ``OSError`` means in the words of the ObjectStore port.

The table errs on the side of "unreachable": an errno that nobody thought of must never read as absence
(INV-C11).
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from iriscw.tiers.ports import StoreAccessDenied, StoreFull, StoreUnreachable

_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextlib.contextmanager
def translated(key: str) -> Iterator[None]:
    """Turn an ``OSError`` of the block into the port's error; all others pass through.

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
            raise StoreFull(text) from error
        raise StoreUnreachable(text) from error
