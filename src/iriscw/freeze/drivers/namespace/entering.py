"""Doing something in another namespace: in a thread of its own, because namespaces are a thread's."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

CLONE_FS: Final = 0x200
CLONE_NEWNS: Final = 0x20000
CLONE_NEWPID: Final = 0x20000000
CLONE_NEWNET: Final = 0x40000000


def within(namespaces: Sequence[tuple[int, int]], work: Callable[[], T]) -> T:
    """Do it in these namespaces. A PID namespace is that of processes which ``work`` starts: they are our children.

    Args:
        namespaces: for each its open descriptor and its kind (``CLONE_NEW...``), in the order to enter them.
        work: what is done.

    Raises:
        OSError: the kernel does not let us in.
        Exception: whatever ``work`` raises.
    """
    done: list[T] = []
    failures: list[Exception] = []

    def enter() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        try:
            if any(kind == CLONE_NEWNS for _, kind in namespaces):  # a root directory that threads share keeps them out
                _check(libc.unshare(CLONE_FS))
            for descriptor, kind in namespaces:
                _check(libc.setns(descriptor, kind))
            done.append(work())
        except Exception as error:  # noqa: BLE001 - raised by the caller
            failures.append(error)

    thread = threading.Thread(target=enter, name="iriscw-namespace")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return done[0]


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
