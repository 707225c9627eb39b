"""Hand changes to watchers: everything there is first, then each change, in bounded memory.

A watcher that does not keep up loses its place: what waits for it is thrown away and it gets a fresh
``Relisted``, as a watch of Kubernetes does after "410 Gone". So a slow watcher costs ``MAX_WAITING`` events
and misses nothing that lasts.
"""

from __future__ import annotations

import collections
from collections.abc import AsyncGenerator, Callable, Mapping

import anyio
import attrs

from iriscw.cloud.model import NodePool, Pod, Relisted, Removed, Upserted, WatchEvent

MAX_WAITING = 1000
"""Events that wait for one watcher; as many as a fleet of 300 slices has in one burst."""


def carries(object_: NodePool | Pod, labels: Mapping[str, str]) -> bool:
    """Whether ``object_`` has all these labels with these values."""
    return all(object_.labels.get(name) == value for name, value in labels.items())


@attrs.define(eq=False)
class _Watcher:
    labels: Mapping[str, str]
    waiting: collections.deque[Upserted | Removed] = attrs.field(factory=collections.deque)
    lost: bool = True
    """The next item must be a ``Relisted``."""
    woken: anyio.Event = attrs.field(factory=anyio.Event)

    def add(self, event: Upserted | Removed) -> None:
        if self.lost:
            return
        if len(self.waiting) == MAX_WAITING:
            self.waiting.clear()
            self.lost = True
        else:
            self.waiting.append(event)
        self.woken.set()


class Watchers:
    """All watchers of one kind of object."""

    def __init__(self, objects: Callable[[], tuple[NodePool | Pod, ...]]) -> None:
        """Take a function that gives all objects that exist now."""
        self._objects = objects
        self._watchers: list[_Watcher] = []

    def tell(self, event: Upserted | Removed) -> None:
        """Tell all whose labels fit. The change is in what ``objects`` gives already."""
        for watcher in self._watchers:
            if carries(event.object, watcher.labels):
                watcher.add(event)

    async def watch(self, labels: Mapping[str, str]) -> AsyncGenerator[WatchEvent, None]:
        """Yield a ``Relisted``, then each change in order, for ever."""
        watcher = _Watcher(labels)
        self._watchers.append(watcher)
        try:
            while True:
                if watcher.lost:
                    watcher.lost = False
                    yield Relisted(tuple(each for each in self._objects() if carries(each, labels)))
                elif watcher.waiting:
                    yield watcher.waiting.popleft()
                else:
                    watcher.woken = anyio.Event()
                    await watcher.woken.wait()
        finally:
            self._watchers.remove(watcher)
