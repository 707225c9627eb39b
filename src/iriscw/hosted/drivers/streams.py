"""Both ends of a stream over a connection, on its event loop: who gives items, and who takes them.

What a method yields goes from the actor to its caller, an iterator among the arguments the other way: both ways have
the same ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from iriscw.hosted.drivers.link import Part
from iriscw.hosted.errors import CallRefused
from iriscw.hosted.model import STREAM_ITEMS
from iriscw.hosted.streams import StreamWindow


class ReaderLeft(Exception):
    """Nobody reads the stream any more."""


class StreamSender:
    """Who gives the items of a stream.

    Args:
        send: sends an item; raises ``CallTooLarge`` if it has sent nothing.
    """

    def __init__(self, send: Callable[[Sequence[Part]], None]) -> None:
        self._send = send
        self._window = StreamWindow()
        self._news = asyncio.Event()
        self._left = False

    async def room(self) -> None:
        """Wait until one more item may be made.

        Raises:
            ReaderLeft: none will be read.
        """
        while not self._left and not self._window.has_room:
            self._news.clear()
            await self._news.wait()
        if self._left:
            raise ReaderLeft

    def give(self, parts: Sequence[Part]) -> None:
        """Send an item.

        Raises:
            CallTooLarge: no item may be so long; nothing was sent.
        """
        self._send(parts)
        self._window.gave(sum(len(each) for each in parts))

    async def given(self, parts: Sequence[Part]) -> None:
        """Send an item, and wait until the next one may be made; raises as :meth:`give` and :meth:`room`."""
        if self._left:
            raise ReaderLeft
        self.give(parts)
        await self.room()

    def taken(self, count: int) -> None:
        """Take note of what the reader has taken; raises ``CallRefused`` if that cannot be."""
        self._window.taken(count)
        self._news.set()

    def close(self) -> None:
        """Have no more items made."""
        self._left = True
        self._news.set()


class StreamArrivals:
    """Who takes the items of a stream.

    Args:
        more: tells the other side how many items were taken.
        ask: whether to tell it, with 0, before the first one: else it gives items by itself.
    """

    def __init__(self, more: Callable[[int], None], *, ask: bool = False) -> None:
        self._more = more
        self._ask = ask
        self._items: deque[list[memoryview]] = deque()
        self._taken = 0
        self._news = asyncio.Event()
        self._ended = False
        self._error: BaseException | None = None

    def put(self, parts: list[memoryview]) -> None:
        """Take an item in.

        Raises:
            CallRefused: the other side runs too far ahead.
        """
        if len(self._items) >= STREAM_ITEMS or not parts:
            raise CallRefused(f"more than {STREAM_ITEMS} items of a stream came, or one of nothing")
        self._items.append(parts)
        self._news.set()

    def end(self, error: BaseException | None = None) -> None:
        """Have the stream end after the items that have come, with an error or without; the first end counts."""
        if not self._ended:
            self._ended, self._error = True, error
            self._news.set()

    async def next(self) -> list[memoryview] | None:
        """Return the next item; None at the end. Raises the error that the stream has ended with.

        It can be cancelled: no item is lost then.
        """
        if self._ask and not self._ended:
            self._ask = False
            self._more(0)
        while not self._items:
            if self._ended:
                if self._error is not None:
                    raise self._error
                return None
            self._news.clear()
            await self._news.wait()
        parts = self._items.popleft()
        self._taken += 1
        if not self._ended and (not self._items or 2 * self._taken >= STREAM_ITEMS):
            count, self._taken = self._taken, 0
            self._more(count)
        return parts
