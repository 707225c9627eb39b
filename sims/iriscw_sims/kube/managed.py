"""managedFields: who last set which field, for every way of writing.

Theory of operation. Each writer has an entry per way of writing (manager, operation, subresource) with the set of
fields it owns. An update takes over what it changed, and whoever owned that loses it; what it removed nobody owns any
more. An entry's time is that of its last gain. Fields that are the server's own are nobody's.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import attrs

from iriscw_sims.kube.call import Call
from iriscw_sims.kube.clock import written
from iriscw_sims.kube.fitting import unfit
from iriscw_sims.kube.frozen import EMPTY, FrozenDict, freeze, thaw
from iriscw_sims.kube.kinds import Json, Kind
from iriscw_sims.kube.ownership import Path, Tree, compare, gathered, insert, members, remove
from iriscw_sims.kube.schema import ANY, Schema, read

UNNAMED = "unknown"
"""The manager of a request that names none; the real server takes the first word of its User-Agent."""

UPDATERS_LIMIT = 10
"""Entries of updates that an object keeps; the oldest are joined in one (``DefaultMaxUpdateManagers``)."""

ANCIENT = "ancient-changes"
"""Who owns what the oldest updates owned."""

_STATUS: tuple[Path, ...] = (("f:status",),)
_META = "f:metadata"
_STRIPPED: tuple[Path, ...] = (
    ("f:apiVersion",),
    ("f:kind",),
    (_META,),
    *(
        (_META, f"f:{name}")
        for name in (
            "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields",
            "resourceVersion",
        )
    ),
)  # fmt: skip


@attrs.frozen
class Manager:
    """One way of writing of one writer."""

    name: str
    operation: str
    version: str
    subresource: str = ""


@attrs.define
class Managed:
    """The owners of an object's fields: entries in the order in which they are found, and when each last gained."""

    fields: dict[Manager, Tree] = attrs.Factory(dict)
    times: dict[Manager, str] = attrs.Factory(dict)

    @classmethod
    def of(cls, entries: Iterable[Any]) -> Managed:
        """Read managedFields."""
        managed = cls()
        for entry in entries:
            version, subresource = entry.get("apiVersion", ""), entry.get("subresource", "")
            manager = Manager(entry.get("manager", ""), entry.get("operation", ""), version, subresource)
            managed.fields[manager] = entry.get("fieldsV1") or {}
            if entry.get("time"):
                managed.times[manager] = entry["time"]
        return managed

    def written(self) -> list[Json]:
        """Return managedFields, in the server's order."""
        entries: list[Json] = []
        for manager, tree in self.fields.items():
            entry: Json = {"manager": manager.name, "operation": manager.operation, "apiVersion": manager.version}
            if manager in self.times:
                entry["time"] = self.times[manager]
            entry |= {"fieldsType": "FieldsV1", "fieldsV1": tree}
            if manager.subresource:
                entry["subresource"] = manager.subresource
            entries.append(entry)
        return in_order(entries)

    def lose(self, paths: Iterable[Path], keep: Manager | None = None) -> None:
        """Take fields from everybody but ``keep``."""
        paths = list(paths)
        for manager, tree in [*self.fields.items()]:
            if manager == keep:
                continue
            left: Tree | None = tree
            for path in paths:
                left = remove(left, path) if left else left
            if not left:
                del self.fields[manager]
                self.times.pop(manager, None)
            else:
                self.fields[manager] = left

    def forget(self, applier: Manager) -> Tree | None:
        """Take out what somebody applied, in whatever version that was, and give it."""
        for each in self.fields:
            if attrs.evolve(each, version=applier.version) == applier:
                if each != applier and each in self.times:
                    self.times[applier] = self.times.pop(each)
                return self.fields.pop(each)
        return None

    def cap(self) -> None:
        """Join the oldest entries of updates, one by one, until there are few enough."""
        updaters = [each for each in self.fields if each.operation == "Update"]
        excess = len(updaters) - UPDATERS_LIMIT
        if excess <= 0:
            return
        updaters.sort(key=lambda each: (self.times.get(each, ""), attrs.astuple(each)))
        first: dict[str, Manager] = {}
        for each in updaters:
            if excess == 0:
                return
            oldest = first.setdefault(each.version, each)
            if oldest is each:
                continue
            bucket = Manager(ANCIENT, "Update", each.version)
            if bucket not in self.fields:
                self.fields[bucket] = self.fields.pop(oldest)
                self.times.pop(oldest, None)
            tree = self.fields[bucket]
            for path in members(self.fields.pop(each)):
                tree = insert(tree, path)
            self.fields[bucket] = tree
            self.times[bucket] = self.times.pop(each, "")
            excess -= 1


def in_order(entries: Iterable[Json]) -> list[Json]:
    """Sort managedFields as the server does."""
    return sorted(
        entries,
        key=lambda e: (e["operation"], e.get("time", ""), e["manager"], e["apiVersion"], e.get("subresource", "")),
    )


def stripped(tree: Tree) -> Tree:
    """Return a set of fields without those that are the server's own; what is below them stays."""
    left: Tree | None = tree
    for path in _STRIPPED:
        left = remove(left, path) if left else left
    return left or {}


def schema_of(kind: Kind) -> Schema:
    """Return the type by which fields of a kind are owned."""
    return kind.schema or ANY


def unwritten(kind: Kind) -> Json:
    """Return an object of a kind before anything was written: what Go makes of nothing."""
    bare = _bare(kind.schema) if kind.typed and kind.schema is not None else EMPTY
    return {**bare, "kind": kind.kind, "apiVersion": kind.api_version}


@cache
def _bare(schema: Schema) -> FrozenDict:
    found: FrozenDict = freeze(read(schema, {}, "", []))
    return found


def without_managed(item: Json) -> Json:
    """Return an object without its managedFields; shares the rest."""
    metadata = item.get("metadata") or EMPTY
    if "managedFields" not in metadata:
        return item
    return {**item, "metadata": {name: part for name, part in metadata.items() if name != "managedFields"}}


def manager_of(call: Call, operation: str) -> Manager:
    """Return the entry that a request writes as."""
    name = call.request.parameter("fieldManager") or UNNAMED
    return Manager(name, operation, call.kind.api_version, call.route.subresource)


def owned_by_update(call: Call, new: Json, old: FrozenDict | None) -> None:
    """Credit the writer of a create or update with what it changed, in ``new``'s managedFields.

    Comes before the server keeps what an update may not touch: who tries to change such a field may get to own it.
    What the server always resets (the status, or all but the status) is nobody's by such a request.
    """
    metadata = new["metadata"]
    given = metadata.pop("managedFields", None)
    before = old["metadata"].get("managedFields") if old is not None else None
    if call.route.subresource:
        given = None
    entries = () if given in ([], [{}]) else given or before or ()  # empty: the way to give up tracking
    if old is not None and not entries:
        return
    schema = schema_of(call.kind)
    if not call.kind.typed and unfit(schema, new, duplicates=True):
        return  # so upstream, which can compare what fits the type only
    managed = Managed.of(entries)
    before = without_managed(old) if old is not None else unwritten(call.kind)
    if not known_to_all(call, managed, before, new):
        return
    changed = compare(schema, before, new, reset_by(call))
    gained = [path for path in (*changed.modified, *changed.added) if path not in _STRIPPED and path]
    if not gained and not changed.removed:
        if entries:  # two of one writer are one as soon as they are read, the later one: a Scale leaves such
            metadata["managedFields"] = entries if len(managed.fields) == len(entries) else managed.written()
        return
    manager = manager_of(call, "Update")
    own = managed.fields.get(manager) or {}
    managed.lose((*gained, *changed.removed))
    if gained:
        for path in changed.removed:
            own = (remove(own, path) if own else own) or {}
        for path in gained if own else ():
            own = insert(own, path)
        managed.fields[manager] = own or gathered(gained)
        managed.times[manager] = written(call.now)
    managed.cap()
    if managed.fields:
        metadata["managedFields"] = managed.written()


def known_to_all(call: Call, managed: Managed, *states: Json) -> bool:
    """Tell whether states of an object fit every version in which somebody wrote it; who wrote in none is forgotten.

    Upstream compares once for each such version, and what is compared is converted by name only.
    """
    if call.kind.typed:
        return True
    for version in {manager.version: None for manager in managed.fields if manager.version != call.kind.api_version}:
        other = call.ground.version_of(call.kind, version)
        if other is None:
            for manager in [each for each in managed.fields if each.version == version]:
                del managed.fields[manager]
        elif any(unfit(schema_of(other), thaw({**state, "metadata": {}}), duplicates=True) for state in states):
            return False
    return True


def reset_by(call: Call) -> tuple[Path, ...]:
    """Return what a request cannot write, whatever it says: the status, or what an update of the status keeps."""
    if call.route.subresource == "status":
        return call.kind.kept_by_status
    return _STATUS if call.kind.status else ()
