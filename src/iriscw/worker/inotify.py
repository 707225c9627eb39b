"""Learn that a file grew, without asking again and again: the kernel's inotify.

One :class:`FileWatch` serves all logs of a worker, because the kernel allows a user 128 of them by default
but tens of thousands of watched files. Network file systems do not tell of others' writes; attempts' logs
are on a local disk.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

_IN_MODIFY = 0x2
_IN_MOVED_TO = 0x80
_EVENT = struct.Struct("iIII")
_READ_BYTES = 64 << 10


class FileWatch:
    """Tells who waits for a file that it was written to. Run ``serve`` in a task for as long as it is used."""

    def __init__(self) -> None:
        """Open it.

        Raises:
            OSError: the user's limit of such instances is reached (``EMFILE``).
        """
        self._library = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._checked(self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._events: dict[int, dict[object, anyio.Event]] = {}

    def close(self) -> None:
        """Give the descriptor back. Closing twice is fine."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    async def serve(self) -> None:
        """Wake those who wait, until cancelled."""
        while True:
            await anyio.wait_readable(self._descriptor)
            try:
                data = os.read(self._descriptor, _READ_BYTES)
            except BlockingIOError:
                continue
            for number in _numbers(data):
                for event in self._waiting(number):
                    event.set()

    @contextmanager
    def watching(self, path: Path, *, arrivals: bool = False) -> Iterator[Growth]:
        """Watch a file for as long as the block lasts; with ``arrivals`` a folder, for what is moved to it.

        Raises:
            OSError: the file is not there, or the kernel watches no more files for this user (``ENOSPC``).
        """
        wanted = ctypes.c_uint32(_IN_MOVED_TO if arrivals else _IN_MODIFY)
        number = self._checked(self._library.inotify_add_watch(self._descriptor, os.fsencode(path), wanted))
        growth = Growth(self._events.setdefault(number, {}))
        try:
            yield growth
        finally:
            growth.forget()
            if not self._events.get(number):
                self._events.pop(number, None)
                if self._descriptor >= 0:
                    self._library.inotify_rm_watch(self._descriptor, number)

    def _waiting(self, number: int) -> list[anyio.Event]:
        if number == -1:  # the kernel's queue ran over: anybody's file may have grown
            return [event for events in self._events.values() for event in events.values()]
        return list(self._events.get(number, {}).values())

    @staticmethod
    def _checked(result: int) -> int:
        if result < 0:
            number = ctypes.get_errno() or errno.EIO
            raise OSError(number, os.strerror(number))
        return result


class Growth:
    """One reader's wait for one file."""

    def __init__(self, events: dict[object, anyio.Event]) -> None:
        """Take the place where the watch finds the events of its file."""
        self._events = events
        self._events[self] = anyio.Event()

    def rearm(self) -> None:
        """Begin to notice again. Call it *before* reading: what is written after is then noticed."""
        self._events[self] = anyio.Event()

    async def wait(self) -> None:
        """Wait until the file was written to since ``rearm``."""
        await self._events[self].wait()

    @property
    def seen(self) -> bool:
        """Whether the file was written to since ``rearm``."""
        return self._events[self].is_set()

    def forget(self) -> None:
        """Wait no more."""
        self._events.pop(self, None)


async def either(*files: Growth) -> None:
    """Wait until one of the files was written to since its ``rearm``."""

    async def wait(file: Growth) -> None:
        await file.wait()
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for file in files:
            tasks.start_soon(wait, file)


def _numbers(data: bytes) -> Iterator[int]:
    position = 0
    while position < len(data):
        number, _, _, name_bytes = _EVENT.unpack_from(data, position)
        yield number
        position += _EVENT.size + name_bytes
