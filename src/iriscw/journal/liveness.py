"""Which entries still count.

A path's records count from its *start*: the first record after it was last forgotten, or its last snapshot.
Forgets reach down the tree of paths, so the paths form one here too: forgetting costs what is below, never
what is beside. Memory is proportional to the live paths, not to the entries.
"""

from __future__ import annotations

from iriscw.journal.entries import EMPTY_SNAPSHOT, Entry, EntryKind


class _Node:
    __slots__ = ("children", "live", "start")

    def __init__(self) -> None:
        self.start = 0
        self.live = 0
        self.children: dict[str, None] = {}


def _parent(path: str) -> str | None:
    return None if path == "/" else path.rpartition("/")[0] or "/"


class Liveness:
    """Entries applied in order, and where each path's records start."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self.live = 0
        """Live entries of all paths."""

    def __contains__(self, path: str) -> bool:
        return path in self._nodes

    def start(self, path: str) -> int | None:
        """Return the sequence of the first entry of ``path`` that counts; None if it has none."""
        node = self._nodes.get(path)
        return node.start if node is not None and node.live else None

    def count(self, path: str) -> int:
        """Return how many entries of ``path`` count."""
        node = self._nodes.get(path)
        return node.live if node is not None else 0

    def paths(self) -> list[str]:
        """Return the paths with live entries, by their start."""
        return sorted(
            (path for path, node in self._nodes.items() if node.live),
            key=lambda path: self._nodes[path].start,
        )

    def counts(self, entry: Entry) -> bool:
        """Say whether ``entry``, applied earlier, still counts."""
        start = self.start(entry.path)
        return start is not None and entry.sequence >= start and entry.kind in (EntryKind.RECORD, EntryKind.SNAPSHOT)

    def apply(self, entry: Entry) -> list[str]:
        """Take the next entry.

        Returns:
            The paths that it forgot.
        """
        if entry.kind == EntryKind.RECORD:
            node = self._nodes.get(entry.path) or self._grow(entry.path)
            if not node.live:
                node.start = entry.sequence
            node.live += 1
            self.live += 1
        elif entry.kind == EntryKind.SNAPSHOT:
            node = self._nodes.get(entry.path) or self._grow(entry.path)
            kept = 0 if entry.payload == EMPTY_SNAPSHOT else 1
            self.live += kept - node.live
            node.start, node.live = entry.sequence, kept
            self._prune(entry.path)
        elif entry.kind == EntryKind.FORGET:
            return self._drop(entry.path)
        return []

    def _grow(self, path: str) -> _Node:
        node = self._nodes[path] = _Node()
        child, parent = path, _parent(path)
        while parent is not None:
            above = self._nodes.get(parent)
            if above is not None:
                above.children[child] = None
                break
            above = self._nodes[parent] = _Node()
            above.children[child] = None
            child, parent = parent, _parent(parent)
        return node

    def _drop(self, path: str) -> list[str]:
        if path not in self._nodes:
            return []
        dropped = [path]
        for each in dropped:  # grows while it is walked: first the path, then what is below
            node = self._nodes.pop(each)
            self.live -= node.live
            dropped.extend(node.children)
        self._unlink(path)
        return dropped

    def _prune(self, path: str) -> None:
        """Remove ``path`` and what is above it as long as nothing is left there."""
        node = self._nodes[path]
        if not node.live and not node.children:
            del self._nodes[path]
            self._unlink(path)

    def _unlink(self, path: str) -> None:
        parent = _parent(path)
        if parent is not None:
            del self._nodes[parent].children[path]
            self._prune(parent)
