"""What is known of the objects of one collection, and what each piece of news changes about it.

Theory of operation. Resource versions are opaque: two can only be equal or not. So news is judged by memory: a version
of an object that was seen before, whether current or older, is a repetition and says nothing; any other one is new.
A few versions back are remembered of each object, and of those that vanished (*tombstones*), because what arrives late
or twice is recent. An object that vanished may come back under its uid (it left the selection, and entered it again),
but not while another one has its name.

A complete list is the truth, whatever was seen before it: the view becomes it, and tells the differences.
"""

from __future__ import annotations

from collections.abc import Mapping

from iriscw.cloud.kube.exchange import ItemChanged, Thing, Vanished

RECENT = 4
"""Versions of an object that are remembered: repetitions come within one connection, right after the original."""

MAX_TOMBSTONES = 1000
"""Objects whose end is remembered, the latest ones. One that is forgotten could be shown again by a late repetition,
until the next list."""

Key = tuple[str, str]
"""Namespace and name."""


def uid_of(thing: Thing) -> str:
    """Return an object's uid."""
    uid: str = thing["metadata"]["uid"]
    return uid


def version_of(thing: Thing) -> str:
    """Return an object's resource version."""
    version: str = thing["metadata"]["resourceVersion"]
    return version


class View:
    """The objects of a collection as they were last seen, by namespace and name."""

    def __init__(self) -> None:
        self.objects: dict[Key, Thing] = {}
        self._recent: dict[str, tuple[str, ...]] = {}
        """By uid of an object that is there: versions seen, the present one last."""
        self._tombstones: dict[str, tuple[str, ...]] = {}
        """By uid of an object that is not: versions seen, oldest end first."""

    def replace(self, found: Mapping[Key, Thing]) -> list[ItemChanged | Vanished]:
        """Take a complete list as the truth, and tell what is different: first who is gone, then who changed."""
        shown: list[ItemChanged | Vanished] = []
        for key, old in self.objects.items():
            new = found.get(key)
            if new is None or uid_of(new) != uid_of(old):
                shown.append(Vanished(old))
        for key, new in found.items():
            known = self.objects.get(key)
            if known is None or uid_of(known) != uid_of(new) or version_of(known) != version_of(new):
                shown.append(ItemChanged(new))
        self.objects = dict(found)
        self._recent = {uid_of(thing): (version_of(thing),) for thing in self.objects.values()}
        self._tombstones = {}  # nothing from before the list can arrive any more
        return shown

    def changed(self, key: Key, thing: Thing) -> list[ItemChanged | Vanished] | None:
        """Take in that an object is there, and tell what is different; None if that was a repetition."""
        uid, version, known = uid_of(thing), version_of(thing), self.objects.get(key)
        if known is not None and uid_of(known) != uid:
            if uid in self._tombstones:
                return None  # its successor has its name already
            gone = self._bury(key, version_of(known))
            return [Vanished(gone), *(self.changed(key, thing) or ())]
        seen = self._recent.get(uid) or self._tombstones.get(uid, ())
        if version in seen:
            return None
        self._tombstones.pop(uid, None)
        self._recent[uid] = (*seen, version)[-RECENT:]
        self.objects[key] = thing
        return [ItemChanged(thing)]

    def vanished(self, key: Key, thing: Thing) -> list[ItemChanged | Vanished] | None:
        """Take in that an object is gone, and tell what is different; None if that was a repetition."""
        uid, version, known = uid_of(thing), version_of(thing), self.objects.get(key)
        if known is None or uid_of(known) != uid:
            return None if version in self._tombstones.get(uid, ()) else []
        # The version of the end is a new one; some servers tell the last one of the life.
        if version in self._recent[uid][:-1]:
            return None
        self._bury(key, version)
        return [Vanished(thing)]

    def _bury(self, key: Key, version: str) -> Thing:
        gone = self.objects.pop(key)
        uid = uid_of(gone)
        self._tombstones[uid] = (*self._recent.pop(uid), version)[-RECENT:]
        if len(self._tombstones) > MAX_TOMBSTONES:
            del self._tombstones[next(iter(self._tombstones))]
        return gone
