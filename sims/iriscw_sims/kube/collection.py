"""All objects of one kind, in the order of their keys, and the recent history of their changes.

Theory of operation. Objects are frozen, so a change replaces a reference and its event keeps both: what was, and what
is. Three things follow without a copy of anything. A watch is a position in the history. A list at an older revision
is the present with the events since undone. A watch with a selector sees an object enter or leave its selection, since
the event says what the object was before.

The history is bounded in length, and cut by compaction; both move :attr:`Collection.horizon`, and who asks for what
lies before it gets 410 Expired.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

import attrs

from iriscw_sims.kube.frozen import FrozenDict
from iriscw_sims.kube.kinds import Kind

HISTORY_LIMIT = 20_000
"""Events a kind remembers. The real watch cache grows to 102,400 per kind so as to hold 75 s (``watch_cache.go``)."""


@attrs.define(eq=False)
class Event:
    """One change. ``old`` is ``None`` for a creation; for a deletion, ``new`` is the object as it was last seen."""

    revision: int
    key: str
    old: FrozenDict | None
    new: FrozenDict
    deleted: bool
    at: int = 0
    """When it happened, in ns since 1970."""


class Collection:
    """The objects of one kind. Keys are ``namespace/name``, or ``name`` alone: etcd's own order."""

    def __init__(self, kind: Kind, revision: int) -> None:
        self.kind = kind
        self.objects: dict[str, FrozenDict] = {}
        self.keys: list[str] = []
        self.events: list[Event] = []
        self.horizon = revision
        """The oldest revision whose state can still be told."""
        self.revision = revision
        """The revision of the newest change here."""
        self.forgotten = 0
        """The revision of the newest change that nobody can be told of any more."""
        self.storage: Collection | None = None
        """Where the objects are stored, if this only shows them in another version."""
        self.views: list[Collection] = []
        """What shows these objects in other versions."""
        self.bodies: dict[str, FrozenDict] = {}
        """What was written of objects that have views, beside metadata: without the defaults that reading adds."""
        self.closed = False
        """Whether the kind is no longer served, and its watches are over."""
        self.hollow: set[str] = set()
        """Keys of custom resources whose metadata an apply left with empty parts in storage. Nobody reads them, but the
        next write is one even if it changes nothing else: the server compares what it stores."""
        self._entries: dict[str, FrozenDict] = {}

    def put(self, key: str, new: FrozenDict, revision: int, at: int = 0) -> None:
        """Create or replace an object."""
        old = self.objects.get(key)
        if old is None:
            insort(self.keys, key)
        self.objects[key] = new
        self._record(Event(revision, key, old, new, deleted=False, at=at))

    def remove(self, key: str, last: FrozenDict, revision: int, at: int = 0) -> None:
        """Remove an object; ``last`` is how its deletion is told."""
        old = self.objects.pop(key)
        self.hollow.discard(key)
        self.bodies.pop(key, None)
        del self.keys[bisect_left(self.keys, key)]
        self._record(Event(revision, key, old, last, deleted=True, at=at))

    def _record(self, event: Event) -> None:
        self._entries.pop(event.key, None)
        self.revision = event.revision
        self.events.append(event)
        if len(self.events) >= 2 * HISTORY_LIMIT:  # cut in halves, so that a cut costs a constant per event
            self.horizon = self.events[HISTORY_LIMIT - 1].revision
            self._forget(HISTORY_LIMIT)

    def compact(self, before: int) -> None:
        """Forget how things were before revision ``before``."""
        if before <= self.horizon:
            return
        self.horizon = before
        self._forget(self._position(before))

    def _forget(self, count: int) -> None:
        if count:
            self.forgotten = self.events[count - 1].revision
            del self.events[:count]

    def _position(self, revision: int) -> int:
        return bisect_right(self.events, revision, key=lambda event: event.revision)

    def since(self, revision: int) -> list[Event]:
        """Return the events after ``revision``, which is not before the horizon."""
        if revision >= self.revision:
            return []
        return self.events[self._position(revision) :]

    def span(self, prefix: str, start: str = "") -> tuple[int, int]:
        """Return the positions in ``keys`` of what begins with ``prefix`` and is not before ``start``."""
        low = bisect_left(self.keys, start or prefix)
        # 0x10FFFF sorts behind every character a name may have.
        return low, max(low, bisect_left(self.keys, prefix + "\U0010ffff") if prefix else len(self.keys))

    def entry(self, key: str) -> FrozenDict:
        """Return an object as it stands in a list: built-in kinds leave ``kind`` and ``apiVersion`` to the list."""
        if not self.kind.typed:
            return self.objects[key]
        found = self._entries.get(key)
        if found is None:
            found = self._entries[key] = self.bare(self.objects[key])
        return found

    def bare(self, item: FrozenDict) -> FrozenDict:
        """Return any object as a list tells it."""
        if not self.kind.typed:
            return item
        return FrozenDict({name: part for name, part in item.items() if name not in ("kind", "apiVersion")})

    def at(self, revision: int, prefix: str) -> list[tuple[str, FrozenDict]]:
        """Return keys and objects as they were at ``revision``, which is not before the horizon."""
        was: dict[str, FrozenDict | None] = {}
        for event in reversed(self.since(revision)):
            if event.key.startswith(prefix):
                was[event.key] = event.old
        low, high = self.span(prefix)
        state = {key: self.objects[key] for key in self.keys[low:high]}
        for key, old in was.items():
            if old is None:
                state.pop(key, None)
            else:
                state[key] = old
        return sorted(state.items())
