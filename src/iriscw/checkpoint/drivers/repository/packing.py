"""Puts chunks one after the other into packs, and writes each pack while the next one is filled.

A pack is a buffer that is used again when it is written, so memory is that of :data:`UPLOADS` packs that are written
and of one that is filled (INV-C13). Chunks get their places in the order of the files; their bytes are copied by
threads, and a pack is written as soon as it is full and nothing is copied into it any more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import anyio.to_thread
import attrs
from anyio.abc import TaskGroup

from iriscw.checkpoint.drivers.repository.encoding import Piece

PACK_BYTES: Final = 16 << 20
"""The most that a pack has: one request, and little enough to hold several in memory."""

UPLOADS: Final = 4
"""Packs that are written at the same time."""


@attrs.define(eq=False)
class Pack:
    """A pack that is filled or written."""

    name: str
    buffer: bytearray
    filled: int = 0
    copying: int = 0
    """Chunks that have a place in it, and are not copied there yet."""
    full: bool = False


@attrs.frozen
class Copied:
    """A chunk that is to be copied into its pack."""

    pack: Pack
    offset: int
    stored: Piece


@attrs.define(eq=False)
class Packing:
    """The packs of one attempt.

    Args:
        attempt: whose packs they are.
        write: writes a pack of this name.
        begun: called before a pack is filled.
        tasks: where packs are written.
    """

    attempt: str
    write: Callable[[str, memoryview], Awaitable[None]]
    begun: Callable[[], Awaitable[None]]
    tasks: TaskGroup
    number: int = attrs.field(default=0, init=False)
    """Of the next pack."""
    _open: Pack | None = attrs.field(default=None, init=False)
    _copies: list[Copied] = attrs.field(factory=list, init=False)
    _free: list[bytearray] = attrs.field(factory=list, init=False)
    _buffers: anyio.Semaphore = attrs.field(factory=lambda: anyio.Semaphore(UPLOADS + 1), init=False)

    async def place(self, stored: Piece) -> tuple[str, int]:
        """Give a chunk its place: the pack, and where it begins there. :meth:`copies` has it from then on.

        Waits while too many packs are written. Only one caller at a time has the turn to place chunks.
        """
        pack = self._open
        if pack is None or pack.filled + len(stored) > len(pack.buffer):
            await self.copy(self.copies())  # what waits for a buffer must not be what one waits for
            pack = await self._next(len(stored))
        offset = pack.filled
        pack.filled += len(stored)
        pack.copying += 1
        self._copies.append(Copied(pack, offset, stored))
        return pack.name, offset

    def copies(self) -> list[Copied]:
        """Take over what is to be copied, for :meth:`copy`."""
        found, self._copies = self._copies, []
        return found

    async def copy(self, copies: list[Copied]) -> None:
        """Copy chunks in a thread."""
        if copies:
            await anyio.to_thread.run_sync(_copy, copies)
        for each in copies:
            each.pack.copying -= 1
            self._written_if_done(each.pack)

    async def finish(self) -> None:
        """Write what is left; all that was placed is copied."""
        await self.copy(self.copies())
        self._close()

    async def _next(self, least: int) -> Pack:
        self._close()
        await self.begun()
        await self._buffers.acquire()
        buffer = self._free.pop() if self._free else None
        if buffer is None or len(buffer) < least:  # in a thread: the kernel takes milliseconds to give that much
            buffer = await anyio.to_thread.run_sync(bytearray, max(least, PACK_BYTES))
        self._open = Pack(f"{self.attempt}-{self.number}", buffer)
        self.number += 1
        return self._open

    def _close(self) -> None:
        pack, self._open = self._open, None
        if pack is not None:
            pack.full = True
            self._written_if_done(pack)

    def _written_if_done(self, pack: Pack) -> None:
        if pack.full and not pack.copying:
            self.tasks.start_soon(self._write, pack)

    async def _write(self, pack: Pack) -> None:
        await self.write(pack.name, memoryview(pack.buffer)[: pack.filled].toreadonly())
        self._free.append(pack.buffer)
        self._buffers.release()


def _copy(copies: list[Copied]) -> None:
    for each in copies:
        memoryview(each.pack.buffer)[each.offset : each.offset + len(each.stored)] = each.stored
