"""Names that one process of the machine holds at a time: those of abstract sockets.

The kernel keeps the list. Whoever has a name keeps everybody else from taking it, whatever user and folder they have;
all can read the list; and a name goes with the process that holds it, however that ends. It counts within one network
namespace.
"""

from __future__ import annotations

import errno
import socket
from pathlib import Path
from typing import Final

MAX_NAME_CHARS: Final = 107
"""Of a name, as the kernel takes it. In ASCII each is a byte."""

_LIST: Final = Path("/proc/self/net/unix")


class SocketNameTaken(Exception):
    """Another socket has this name: of another process, or of this one."""


def hold(name: str) -> socket.socket:
    """Hold a name, which has no space, for as long as the socket is open.

    Raises:
        NameTaken: see there.
        OSError: there are no descriptors, or the name is too long.
    """
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        held.bind(f"\0{name}")
    except OSError as error:
        held.close()
        if error.errno == errno.EADDRINUSE:
            raise SocketNameTaken(name) from None
        raise
    return held


def held_names(prefix: str) -> tuple[str, ...]:
    """Return all names that anybody holds and that begin so, without that beginning. Blocks.

    Raises:
        OSError: the kernel does not say.
    """
    lines = _LIST.read_text(encoding="utf-8", errors="replace").splitlines()
    names = (line.rpartition(" ")[2] for line in lines)  # an abstract one is written with @ for its zero byte
    return tuple(name.removeprefix(f"@{prefix}") for name in names if name.startswith(f"@{prefix}"))
