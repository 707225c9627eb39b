"""Doing something in another namespace, or without our keys: in a thread of its own, because both are a thread's."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import threading
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

CLONE_FS: Final = 0x200
CLONE_NEWNS: Final = 0x20000
CLONE_NEWPID: Final = 0x20000000
CLONE_NEWNET: Final = 0x40000000

KEYCTL: Final = {"x86_64": 250, "aarch64": 219}
"""The number of a call that the C library does not have."""

_JOIN_SESSION_KEYRING: Final = 1

_NO_KEYS: Final = (errno.ENOSYS, errno.EPERM)
"""A kernel without keys, or a container that may not ask for any (as Docker's may not)."""


def within(namespaces: Sequence[tuple[int, int]], work: Callable[[], T]) -> T:
    """Do it in these namespaces. A PID namespace is that of processes which ``work`` starts: they are our children.

    Args:
        namespaces: for each its open descriptor and its kind (``CLONE_NEW...``), in the order to enter them.
        work: what is done.

    Raises:
        OSError: the kernel does not let us in.
        Exception: whatever ``work`` raises.
    """

    def enter() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if any(kind == CLONE_NEWNS for _, kind in namespaces):  # a root directory that threads share keeps them out
            _check(libc.unshare(CLONE_FS))
        for descriptor, kind in namespaces:
            _check(libc.setns(descriptor, kind))

    return _apart(enter, work)


def without_keys(work: Callable[[], T]) -> T:
    """Do it with an empty session keyring, which is that of all processes that ``work`` starts.

    Who has a keyring may use the keys in it, whoever owns them: what is thawed must not get those of who thaws it.

    Args:
        work: what is done.

    Raises:
        OSError: the kernel has no room for one more keyring.
        Exception: whatever ``work`` raises.
    """

    def leave() -> None:
        number = KEYCTL.get(platform.machine())
        if number is None or ctypes.CDLL(None, use_errno=True).syscall(number, _JOIN_SESSION_KEYRING, None) > 0:
            return
        if (code := ctypes.get_errno()) not in _NO_KEYS:
            raise OSError(code, os.strerror(code))

    return _apart(leave, work)


def _apart(prepare: Callable[[], None], work: Callable[[], T]) -> T:
    """Do it in a thread of its own, so that nobody else is where it is."""
    done: list[T] = []
    failures: list[Exception] = []

    def both() -> None:
        try:
            prepare()
            done.append(work())
        except Exception as error:  # noqa: BLE001 - raised by the caller
            failures.append(error)

    thread = threading.Thread(target=both, name="iriscw-namespace")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return done[0]


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
