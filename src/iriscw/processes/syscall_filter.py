"""The filter of system calls under which a program can be frozen: it never gets an io_uring.

CRIU cannot dump an io_uring, and libuv makes one for its loop where the kernel lets it, in uvloop whatever
``UV_USE_IO_URING`` says. Where the kernel says that it has no such call (ENOSYS) libuv, and whatever else can use an
io_uring, does without, as on a kernel that is older than they are. So ``io_uring_setup`` is answered with that, and
nothing else is touched: its two companions need the descriptor of a ring.

The filter is a program of classic BPF, as seccomp takes it (``linux/filter.h``, ``linux/seccomp.h``): the same bytes
on every machine, since it looks at the architecture of each call itself. It is inherited by all that the program
starts, it cannot be taken off, and CRIU brings it back with the program.
"""

from __future__ import annotations

import errno
import os
import struct
from typing import Final

MACHINES: Final = ("x86_64", "aarch64")
"""As ``uname -m`` names them. What runs on others is not filtered: nobody has tried it."""

ARCHITECTURES: Final = {
    "x86_64": 0xC000003E,
    "aarch64": 0xC00000B7,
    "i386": 0x40000003,
    "arm": 0x40000028,
}
"""As the kernel names them to a filter (``AUDIT_ARCH_...``): of those machines, and of 32-bit programs there."""

IO_URING_SETUP: Final = 425
"""On all of these."""

X32_BIT: Final = 0x40000000
"""In the number of a call of a program with 32-bit pointers on x86_64, whose architecture is said to be x86_64."""

ALLOW: Final = 0x7FFF0000
REFUSE: Final = 0x00050000 | errno.ENOSYS

_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06  # BPF_LD|BPF_W|BPF_ABS, BPF_JMP|BPF_JEQ|BPF_K, BPF_RET|BPF_K
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4  # in struct seccomp_data


def _instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)  # struct sock_filter


def _program() -> bytes:
    known = list(ARCHITECTURES.values())
    return b"".join(
        [
            _instruction(_LOAD, _ARCHITECTURE_AT),
            *(_instruction(_JUMP_IF_EQUAL, each, len(known) - at) for at, each in enumerate(known)),
            _instruction(_RETURN, ALLOW),
            _instruction(_LOAD, _NUMBER_AT),
            _instruction(_JUMP_IF_EQUAL, IO_URING_SETUP, 2),
            _instruction(_JUMP_IF_EQUAL, IO_URING_SETUP | X32_BIT, 1),
            _instruction(_RETURN, ALLOW),
            _instruction(_RETURN, REFUSE),
        ]
    )


FREEZABLE: Final = _program()
"""The filter."""


def hindrance(machine: str = "") -> str:
    """Say why programs cannot have the filter on this machine; empty if they can.

    Args:
        machine: as ``uname -m`` names it; this one by default.
    """
    machine = machine or os.uname().machine
    return (
        ""
        if machine in MACHINES
        else f"no filter of system calls is known for {machine}, only for {', '.join(MACHINES)}"
    )
