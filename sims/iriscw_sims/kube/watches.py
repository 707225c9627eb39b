"""Watches: a position in a kind's history, read by whoever holds it.

Theory of operation. A watch costs nothing until it is asked: :meth:`Watch.take` gives the events since the last call,
from the collection's own history. An object that enters or leaves the selection is told as ADDED or DELETED, whatever
happened to it. A watch that lags behind the history is closed, as the server closes one that does not read.

Bookmarks come only to who allowed them: one after the initial events (if those were asked for, annotated), then one
per :data:`BOOKMARK_PERIOD`, and one just before the server ends a watch at its timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from iriscw_sims.kube.collection import Collection, Event
from iriscw_sims.kube.frozen import FrozenDict, freeze
from iriscw_sims.kube.kinds import Json
from iriscw_sims.kube.selectors import Selection

BOOKMARK_PERIOD = 60_000_000_000
"""ns between two bookmarks: about a minute, as in ``cacher.go`` (``defaultBookmarkFrequency``)."""

BOOKMARK_BEFORE_END = 2_000_000_000
"""ns before the timeout at which the last bookmark is sent (``cacher.go``: 2 s)."""

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Watch:
    """One open watch. Made by the store."""

    def __init__(
        self,
        collection: Collection,
        prefix: str,
        selection: Selection,
        revision: int,
        *,
        now: int,
        timeout: int,
        bookmarks: bool,
        progress: Callable[[], int] = lambda: 0,
        render: Callable[[Json, int], Json] | None = None,
    ) -> None:
        self.closed = False
        """Whether the server ended it: its time is over, an ERROR was told, or it could not keep up."""
        self._collection = collection
        self._prefix = prefix
        self._selection = selection
        self._revision = revision
        self._pending: list[Json] = []
        self._bookmarks = bookmarks
        self._progress = progress
        self._render = render
        self._columns_told = False
        self._over = False
        self._next_bookmark = now + BOOKMARK_PERIOD
        self._end = now + timeout
        if bookmarks:
            self._next_bookmark = min(self._next_bookmark, max(now, self._end - BOOKMARK_BEFORE_END))

    @classmethod
    def refused(cls, collection: Collection, status: Json, now: int) -> Watch:
        """Return a watch that tells one ERROR and ends: how the server says 410 to a watch."""
        watch = cls(collection, "", Selection(), 0, now=now, timeout=0, bookmarks=False)
        watch._pending.append({"type": "ERROR", "object": freeze(status)})
        watch._over = True
        return watch

    def begin_with(self, items: Iterable[FrozenDict], mark_end: int = 0) -> None:
        """Tell the present state first, and, with ``mark_end``, that it was all, as of that revision."""
        self._pending.extend({"type": "ADDED", "object": item} for item in items)
        if mark_end:
            self._pending.append(self._bookmark(mark_end, {INITIAL_EVENTS_END: "true"}))

    def take(self, now: int) -> list[Json]:
        """Return the events that are there at ``now``, each once."""
        if self.closed:
            return []
        told, self._pending = self._pending, []
        collection = self._collection
        if self._over or self._revision < collection.forgotten:
            self.closed = True  # what it missed cannot be told any more
            return told
        for event in collection.since(self._revision):
            if event.at < self._end:  # nobody looked since, but the server ended the watch at its time
                self._tell(event, told)
        self._revision = max(self._revision, collection.revision)
        if self._bookmarks and self._next_bookmark <= now < self._end:  # none behind the end: events there are untold
            # Nothing happened here until now, whatever happened elsewhere: etcd notifies the server of its progress.
            told.append(self._bookmark(max(self._revision, self._progress())))
            self._next_bookmark = now + BOOKMARK_PERIOD
            if self._next_bookmark > self._end - BOOKMARK_BEFORE_END > now:
                self._next_bookmark = self._end - BOOKMARK_BEFORE_END
        if now >= self._end or collection.closed:
            self.closed = True
        return [self._rendered(event, now) for event in told] if self._render else told

    def _rendered(self, event: Json, now: int) -> Json:
        """Return an event with a table of one row; the columns are told once."""
        if self._render is None or event["type"] in ("ERROR", "BOOKMARK"):
            return event
        rendered = self._render(event["object"], now)
        if self._columns_told:
            rendered["columnDefinitions"] = None
        self._columns_told = True
        return {"type": event["type"], "object": rendered}

    def close(self) -> None:
        """End the watch from the client's side."""
        self.closed = True
        self._pending = []

    def _tell(self, event: Event, told: list[Json]) -> None:
        if not event.key.startswith(self._prefix):
            return
        matches = self._selection.matches
        was = event.old is not None and matches(event.old)
        is_now = not event.deleted and matches(event.new)
        if is_now:
            told.append({"type": "MODIFIED" if was else "ADDED", "object": event.new})
        elif was:
            told.append({"type": "DELETED", "object": self._last_seen(event)})

    @staticmethod
    def _last_seen(event: Event) -> FrozenDict:
        """Return what a DELETED tells: the object as it was selected, at the revision of the change."""
        if event.deleted or event.old is None:
            return event.new
        metadata = FrozenDict({**event.old["metadata"], "resourceVersion": str(event.revision)})
        return FrozenDict({**event.old, "metadata": metadata})

    def _bookmark(self, revision: int, annotations: dict[str, Any] | None = None) -> Json:
        kind = self._collection.kind
        metadata: Json = {"resourceVersion": str(revision)}
        if annotations:
            metadata["annotations"] = annotations
        bookmark = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        return {"type": "BOOKMARK", "object": freeze(bookmark)}
