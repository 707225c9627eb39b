"""How a session talks to its actor: items in both directions, each way with room for a bounded number."""

from __future__ import annotations

from typing import Any, Self

import anyio

from iriscw.runtime.operations import Operation
from iriscw.runtime.tree import Tree
from iriscw.runtime.vocabulary import Arrived


class SessionPort:
    """How a session talks to its actor."""

    __slots__ = ("_fed", "_operation", "_room", "_tree")

    def __init__(self, tree: Tree, operation: Operation) -> None:
        self._tree = tree
        self._operation = operation
        self._room = anyio.Event()
        self._fed = anyio.Event()

    async def send(self, item: Any) -> None:
        """Give the actor an item; waits until there is room for it."""
        while not self._tree.arrived(self._operation, Arrived(self._operation.key, item)):
            self._room = anyio.Event()
            await self._room.wait()

    async def receive(self) -> Any:
        """Take the next item that the actor fed; waits for it."""
        outbox = self._operation.outbox
        assert outbox is not None
        while not outbox:
            self._fed = anyio.Event()
            await self._fed.wait()
        self._operation.promised -= 1
        return outbox.popleft()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return await self.receive()

    def notice_room(self) -> None:
        """Take note that the actor took an item."""
        self._room.set()

    def notice_fed(self) -> None:
        """Take note that the actor fed an item."""
        self._fed.set()


__all__ = ["SessionPort"]
