"""What of one call has arrived and is not read: it takes the memory of its bytes, however small the frames were.

grpclib keeps each frame as it came, at some 300 bytes beside its content: a peer that sends a message in frames of one
byte had 300 times its size held. Here small frames are joined as they come; large ones are not copied before they are
read. Bytes lie in two places: *unread*, which fill the peer's HTTP/2 window, and *held*, which a reader has taken out
of the window and cannot use yet.

One reader at a time. A read that is cancelled loses nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

SMALL_BYTES = 1 << 10
"""Pieces below this size are joined: at it, what Python needs for a piece is a third of it."""

JOINED_BYTES = 16 << 10
"""Joined pieces grow up to this size, which is that of HTTP/2's frames."""


class Pieces:
    """Bytes in pieces, at either end."""

    def __init__(self) -> None:
        self.size = 0
        self._pieces: deque[bytes | bytearray | memoryview] = deque()

    def add(self, data: bytes | bytearray | memoryview) -> None:
        """Add a piece, joined to the last if both are small."""
        self.size += len(data)
        if len(data) >= SMALL_BYTES:
            self._pieces.append(data)
            return
        last = self._pieces[-1] if self._pieces else None
        if isinstance(last, bytearray) and len(last) + len(data) <= JOINED_BYTES:
            last += data
        elif data:
            self._pieces.append(bytearray(data))

    def take(self, size: int) -> bytes:
        """Remove ``size`` bytes, which must be here, and give them as one."""
        taken: list[bytes | bytearray | memoryview] = []
        self.size -= size
        while size:
            piece = self._pieces.popleft()
            if len(piece) > size:
                view = memoryview(piece)
                taken.append(view[:size])
                rest = view[size:]
                # A view of a joined piece would keep it from growing.
                self._pieces.appendleft(bytearray(rest) if len(rest) < SMALL_BYTES else rest)
                break
            taken.append(piece)
            size -= len(piece)
        return b"".join(taken)

    def pop(self) -> bytes | bytearray | memoryview:
        """Remove the first piece."""
        piece = self._pieces.popleft()
        self.size -= len(piece)
        return piece

    def clear(self) -> None:
        """Remove all."""
        self._pieces.clear()
        self.size = 0

    @property
    def pieces(self) -> int:
        """How many there are."""
        return len(self._pieces)


class MessageBuffer:
    """The bytes of one call, in order.

    Args:
        taken: told how much of the window a reader has taken, before it reads on. What it raises ends the read.
    """

    def __init__(self, taken: Callable[[int], None]) -> None:
        self._taken = taken
        self._unread = Pieces()
        self._window = 0
        self._held = Pieces()
        self._ended = False
        self._arrived = asyncio.Event()

    @property
    def held(self) -> int:
        """Bytes that were taken out of the window and not read yet."""
        return self._held.size

    @property
    def unread(self) -> int:
        """Bytes that wait in the window."""
        return self._unread.size

    def add(self, data: bytes, window: int) -> None:
        """Take a frame, which fills ``window`` bytes of the peer's window: its content and its padding."""
        self._unread.add(data)
        self._window += window
        self._arrived.set()

    def eof(self) -> None:
        """Note that nothing more will come."""
        self._ended = True
        self._arrived.set()

    async def read(self, size: int) -> bytes:
        """Read ``size`` bytes; empty if the peer ended the call before the first of them.

        Raises:
            AssertionError: the peer ended the call in the middle of them (as grpclib's buffer says it).
        """
        while self._held.size < size:
            if self._window:
                self._take()
            elif self._ended:
                break
            else:
                self._arrived.clear()
                await self._arrived.wait()
        if self._held.size < size:
            if not self._held.size:
                return b""
            raise AssertionError("the call ended in the middle of a message")
        return self._held.take(size)

    def _take(self) -> None:
        """Take a piece out of the window; with the last, what the padding of all filled."""
        if self._unread.pieces:
            piece = self._unread.pop()
            self._held.add(piece)
            window = len(piece) if self._unread.pieces else self._window
        else:
            window = self._window
        self._window -= window
        self._taken(window)

    def drop(self) -> None:
        """Forget what was taken: nobody will read it."""
        self._held.clear()

    def unacked_size(self) -> int:
        """Give up what is unread; give how much of the window it filled."""
        window, self._window = self._window, 0
        self._unread.clear()
        return window
