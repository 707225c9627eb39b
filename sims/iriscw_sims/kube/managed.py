"""managedFields: who last set which field, for every way of writing.

Theory of operation. Each writer has an entry per way of writing (manager, operation, subresource) with the set of
fields it owns. An update takes over what it changed, and whoever owned that loses it; what it removed nobody owns any
more. An entry's time is that of its last gain. Fields that are the server's own are nobody's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from iriscw_sims.kube.call import Call
from iriscw_sims.kube.clock import written
from iriscw_sims.kube.frozen import EMPTY, FrozenDict
from iriscw_sims.kube.kinds import Json, Kind
from iriscw_sims.kube.ownership import Difference, Path, Tree, compare, gathered, insert, remove
from iriscw_sims.kube.schema import ANY, Schema, read

UNNAMED = "unknown"
"""The manager of a request that names none; the real server takes the first word of its User-Agent."""

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
        """Give managedFields, in the server's order."""
        entries: list[Json] = []
        for manager, tree in self.fields.items():
            entry: Json = {"manager": manager.name, "operation": manager.operation, "apiVersion": manager.version}
            if manager in self.times:
                entry["time"] = self.times[manager]
            entry |= {"fieldsType": "FieldsV1", "fieldsV1": tree}
            if manager.subresource:
                entry["subresource"] = manager.subresource
            entries.append(entry)
        entries.sort(
            key=lambda e: (e["operation"], e.get("time", ""), e["manager"], e["apiVersion"], e.get("subresource", ""))
        )
        return entries

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

    def strip(self) -> None:
        """Take from everybody what is the server's own."""
        for manager, tree in [*self.fields.items()]:
            left = stripped(tree)
            if left:
                self.fields[manager] = left
            else:
                del self.fields[manager]
                self.times.pop(manager, None)


def stripped(tree: Tree) -> Tree:
    """Give a set of fields without those that are the server's own."""
    left: Tree | None = tree
    for path in _STRIPPED:
        left = remove(left, path) if left else left
    return left or {}


def schema_of(kind: Kind) -> Schema:
    """Give the type by which fields of a kind are owned."""
    return kind.schema or ANY


def unwritten(kind: Kind) -> Json:
    """Give an object of a kind before anything was written: what Go makes of nothing."""
    bare: Json = read(kind.schema, {}, "", []) if kind.typed and kind.schema is not None else {}
    return {**bare, "kind": kind.kind, "apiVersion": kind.api_version}


def without_managed(item: Json) -> Json:
    """Give an object without its managedFields; shares the rest."""
    metadata = item.get("metadata") or EMPTY
    if "managedFields" not in metadata:
        return item
    return {**item, "metadata": {name: part for name, part in metadata.items() if name != "managedFields"}}


def manager_of(call: Call, operation: str) -> Manager:
    """Give the entry that a request writes as."""
    name = call.request.parameter("fieldManager") or UNNAMED
    return Manager(name, operation, call.kind.api_version, call.route.subresource)


def owned_by_update(call: Call, new: Json, old: FrozenDict | None) -> None:
    """Credit the writer of a create or update with what it changed, in ``new``'s managedFields."""
    metadata = new["metadata"]
    given = metadata.pop("managedFields", None)
    before = old["metadata"].get("managedFields") if old is not None else None
    if given in ([], [{}]) and not call.route.subresource:
        return  # the way to give up tracking
    entries = given or before or ()
    if old is not None and not entries:
        return
    changed = compare(schema_of(call.kind), without_managed(old) if old is not None else unwritten(call.kind), new)
    if call.kind.status and not call.route.subresource:
        changed = _but_status(changed)
    gained = [path for path in (*changed.modified, *changed.added) if path not in _STRIPPED and path]
    if not gained and not changed.removed:
        if entries:
            metadata["managedFields"] = entries
        return
    managed = Managed.of(entries)
    managed.lose((*gained, *changed.removed))
    if gained:
        manager = manager_of(call, "Update")
        tree = Managed.of(entries).fields.get(manager) or {}
        for path in changed.removed:
            tree = (remove(tree, path) if tree else tree) or {}
        if tree:
            for path in gained:
                tree = insert(tree, path)
        else:
            tree = gathered(gained)
        managed.fields[manager] = tree
        managed.times[manager] = written(call.now)
    managed.strip()
    if managed.fields:
        metadata["managedFields"] = managed.written()


def _but_status(changed: Difference) -> Difference:
    def rest(paths: list[Path]) -> list[Path]:
        return [path for path in paths if not path or path[0] != "f:status"]

    return Difference(rest(changed.added), rest(changed.modified), rest(changed.removed))
