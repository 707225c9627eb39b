"""The kernel's userfaultfd: its calls and what it tells, as in ``linux/userfaultfd.h``.

Every call gives a number of the kernel instead of raising: at the speed of pages an error is an ordinary answer.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

_COPY: Final = 0xC028AA03
_ZEROPAGE: Final = 0xC020AA04
_WAKE: Final = 0x8010AA02

FAULT: Final = 0x12
FORK: Final = 0x13
REMAP: Final = 0x14
REMOVE: Final = 0x15
UNMAP: Final = 0x16

_MESSAGE: Final = struct.Struct("=B7x24s")
_NUMBERS: Final = struct.Struct("=3Q")
_MESSAGES: Final = 64
"""That are read with one call."""

_libc: Final = ctypes.CDLL(None, use_errno=True)
_ioctl: Final = _libc.ioctl
_ioctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)
_ioctl.restype = ctypes.c_int


class Event(NamedTuple):
    """What the kernel tells of an address space.

    ========== ========================================================================
    kind       numbers
    ========== ========================================================================
    FAULT      flags, address, -
    FORK       the descriptor of the new space, -, -; the descriptor is the reader's
    REMAP      from, to, length
    REMOVE     first address, the one after the last, -; its contents are given up
    UNMAP      the same; it is not part of the space any more
    ========== ========================================================================
    """

    kind: int
    numbers: tuple[int, int, int]


class _Copy(ctypes.Structure):
    _fields_ = (
        ("dst", ctypes.c_uint64),
        ("src", ctypes.c_uint64),
        ("len", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("copy", ctypes.c_int64),
    )


class _Zeropage(ctypes.Structure):
    _fields_ = (
        ("start", ctypes.c_uint64),
        ("len", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("zeropage", ctypes.c_int64),
    )


class _Range(ctypes.Structure):
    _fields_ = (("start", ctypes.c_uint64), ("len", ctypes.c_uint64))


def copy(descriptor: int, to: int, source: int, length: int) -> tuple[int, int]:
    """Put pages into a space, from an address of ours, and wake who waits for them.

    Returns:
        How many bytes were put there, and the kernel's number of the error that ended it (0: none). ``EAGAIN``: there
        is something to read first. ``EEXIST``: a page is there already. ``ENOENT``: nothing is there that waits for
        pages, or not in one piece. ``ESRCH``: the space is gone.
    """
    asked = _Copy(to, source, length, 0, 0)
    if _ioctl(descriptor, _COPY, ctypes.byref(asked)) == 0:
        return asked.copy, 0
    number = ctypes.get_errno()
    return (asked.copy, errno.EAGAIN) if asked.copy > 0 else (0, number)


def zero(descriptor: int, to: int, length: int) -> int:
    """Put empty pages into a space, and wake who waits for them; give the kernel's number as :func:`copy`."""
    asked = _Zeropage(to, length, 0, 0)
    return 0 if _ioctl(descriptor, _ZEROPAGE, ctypes.byref(asked)) == 0 else ctypes.get_errno()


def wake(descriptor: int, start: int, length: int) -> None:
    """Have who waits for these pages look again."""
    asked = _Range(start, length)
    _ioctl(descriptor, _WAKE, ctypes.byref(asked))


def events(descriptor: int) -> Iterator[Event]:
    """Read what the kernel has to tell, without waiting.

    Raises:
        OSError: it cannot be read: there are no descriptors left for a space that was forked off, for one.
    """
    try:
        data = os.read(descriptor, _MESSAGES * _MESSAGE.size)
    except BlockingIOError:
        return
    for kind, rest in _MESSAGE.iter_unpack(data):
        numbers = _NUMBERS.unpack(rest)
        yield Event(kind, (numbers[0] & 0xFFFFFFFF, 0, 0) if kind == FORK else numbers)
