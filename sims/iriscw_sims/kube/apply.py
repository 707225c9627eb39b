"""Server-side apply: a manager says what it wants of an object, and gets it, or is told whose wish it would break.

Theory of operation. The applied configuration is merged into the live object. Fields that the manager applied before
and does not any more are removed, unless somebody else owns them. What that changes against another owner is a
conflict, unless forced. What the manager applied is what it owns, whether or not it changed.
"""

from __future__ import annotations

from typing import Any

from iriscw_sims.kube.bodies import read_as
from iriscw_sims.kube.call import Call
from iriscw_sims.kube.clock import written
from iriscw_sims.kube.fitting import unfit
from iriscw_sims.kube.frozen import FrozenDict, thaw
from iriscw_sims.kube.kinds import Json
from iriscw_sims.kube.managed import (
    Managed,
    Manager,
    known_to_all,
    manager_of,
    reset_by,
    schema_of,
    stripped,
    unwritten,
    without_managed,
)
from iriscw_sims.kube.ownership import (
    SELF,
    Path,
    Tree,
    below,
    compare,
    element_name,
    fields_of,
    gathered,
    has,
    joined,
    shown,
    without,
)
from iriscw_sims.kube.refusals import (
    Refused,
    apply_conflict,
    bad_request,
    conflict,
    internal,
    not_found,
)
from iriscw_sims.kube.schema import ANY, Schema, Unreadable
from iriscw_sims.kube.writes import check_place, create_object, update

_HOLLOW = ("labels", "annotations", "finalizers", "ownerReferences")
FIRST = "before-first-apply"
"""Who owns what an object had before anybody's writing was tracked."""


def apply(call: Call) -> tuple[int, FrozenDict]:
    """Apply the body as the request's ``fieldManager``: 200, or 201 if that created the object.

    Raises:
        Refused: 400, 404, 409 (conflicts are causes of it), 422, or 500 for fields that the kind does not have.
    """
    old = call.objects.objects.get(call.key)
    if old is None and call.route.subresource:
        raise not_found(call.kind.group, call.kind.plural, call.route.name)
    config = _configuration(call)
    manager = manager_of(call, "Apply")
    if old is not None:
        return 200, update(call, old, lambda live: applied(call, live, config, manager), applied=True)
    if config["metadata"].get("uid"):
        uid = config["metadata"]["uid"]
        said = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        raise conflict(call.kind.group, call.kind.plural, call.route.name, said)
    new = applied(call, None, config, manager)
    new["metadata"] = dict(new["metadata"])
    check_place(call, new)
    return 201, create_object(call, new)


def _configuration(call: Call) -> Json:
    """Read and check what is applied."""
    body = call.request.body
    if not isinstance(body, dict):
        raise bad_request("error decoding YAML: the body is not an object")
    config: Json = thaw(body)
    if config.get("kind") is None or config.get("kind") == "":
        raise bad_request("Object 'Kind' is missing")
    if config.get("apiVersion") != call.kind.api_version:
        said = f"Specified patch version: {config.get('apiVersion', '')}, expected: {call.kind.api_version}"
        raise bad_request(f"Incorrect version specified in apply patch. {said}")
    if config.get("metadata") is None:
        config["metadata"] = {}
    metadata = config["metadata"]
    if not isinstance(metadata, dict):
        raise _untyped(call, ".metadata: expected map")
    if metadata.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    name = metadata.setdefault("name", call.route.name)
    if name != call.route.name:
        said = f"the name of the object ({name}) does not match the name on the URL ({call.route.name})"
        raise bad_request(said)
    if call.kind.namespaced:
        metadata.setdefault("namespace", call.route.namespace)
    problem = unfit(schema_of(call.kind), config)
    if problem:
        raise _untyped(call, problem)
    return config


def _untyped(call: Call, said: str) -> Refused:
    kind = call.kind
    where = f"{call.route.namespace}/{call.route.name}" if kind.namespaced else f"/{call.route.name}"
    group = f"{kind.group}/{kind.version}" if kind.group else f"/{kind.version}"
    return internal(f"failed to create typed patch object ({where}; {group}, Kind={kind.kind}): {said}")


def applied(call: Call, live: FrozenDict | None, config: Json, manager: Manager) -> Json:
    """Return the object that an apply leads to, with its managedFields.

    Raises:
        Refused: 409, others own what would change.
    """
    schema = schema_of(call.kind)
    entries = live["metadata"].get("managedFields", ()) if live is not None else ()
    managed = Managed.of(entries)
    if live is not None and not entries:
        first = Manager(FIRST, "Update", call.kind.api_version, call.route.subresource)
        managed.fields[first] = _everything(call, live)
        managed.times[first] = written(call.now)
    before = without_managed(live) if live is not None else thaw(unwritten(call.kind))  # what is frozen has defaults
    merged = merge(schema, before, config)
    if not known_to_all(call, managed, before, merged):
        raise internal("failed to convert object to the version of a manager: field not declared in schema")
    last = managed.forget(manager)
    managed.fields[manager] = without(fields_of(schema, config), reset_by(call))
    if last:
        owned = joined([*managed.fields.values()])
        merged = _pruned(schema, merged, last, owned)
    _settle_conflicts(call, managed, manager, compare(schema, before, merged, reset_by(call)))
    _strip(managed, manager)
    if merged != before and manager in managed.fields:
        managed.times[manager] = written(call.now)
    new = _read(call, merged) if merged != before else dict(before)
    new["metadata"] = dict(new["metadata"])
    if managed.fields:
        new["metadata"]["managedFields"] = managed.written()
    if not call.kind.typed and not call.route.subresource:
        call.hollow = any(not merged["metadata"].get(name, name) for name in _HOLLOW)
    return new


def _read(call: Call, merged: Json) -> Json:
    """Read what an apply led to: only now is told what fits its type and is no value of it, such as a time."""
    try:
        return read_as(call, merged, [])
    except Unreadable as wrong:
        raise _untyped(call, str(wrong)) from wrong


def _everything(call: Call, live: FrozenDict) -> Tree:
    found = compare(schema_of(call.kind), unwritten(call.kind), without_managed(live), reset_by(call))
    return stripped(gathered((*found.added, *found.modified)))


def _settle_conflicts(call: Call, managed: Managed, manager: Manager, changed: Any) -> None:
    gained: list[Path] = [*changed.modified, *changed.added]
    against = [
        (other, path)
        for other, tree in managed.fields.items()
        if other != manager
        for path in gained
        if has(tree, path)
    ]
    if against and not call.request.flag("force"):
        raise _conflict(managed, against)
    managed.lose([*(path for _, path in against), *changed.removed], keep=manager)


def _strip(managed: Managed, manager: Manager) -> None:
    """Take from who applied what is the server's own."""
    tree = stripped(managed.fields.get(manager) or {})
    if tree:
        managed.fields[manager] = tree
    elif manager in managed.fields:
        del managed.fields[manager]
        managed.times.pop(manager, None)


def _conflict(managed: Managed, against: list[tuple[Manager, Path]]) -> Refused:
    named = sorted((_said(managed, other), shown(path)) for other, path in against)
    causes = [(field, f"conflict with {who}") for who, field in named]
    if len(named) == 1:
        who, field = named[0]
        return apply_conflict(causes, f"Apply failed with 1 conflict: conflict with {who}: {field}")
    lines: list[str] = []
    for who in dict.fromkeys(who for who, _ in named):
        lines.append(f"conflicts with {who}:")
        lines += [f"- {field}" for other, field in named if other == who]
    return apply_conflict(causes, f"Apply failed with {len(named)} conflicts: " + "\n".join(lines))


def _said(managed: Managed, manager: Manager) -> str:
    said = f'"{manager.name}"'
    if manager.subresource:
        said += f' with subresource "{manager.subresource}"'
    if manager.operation == "Update":
        said += f" using {manager.version}"
        time = managed.times.get(manager)
        said += f" at {time}" if time else ""
    return said


def merge(schema: Schema, live: Any, config: Any) -> Any:
    """Merge a configuration into a live value, entry by entry where the type allows it."""
    if config is None:
        return live
    if isinstance(config, dict) and isinstance(live, dict) and not schema.atomic:
        merged = dict(live)
        for name, item in config.items():
            merged[name] = merge(below(schema, name), live.get(name), item)
        return merged
    if isinstance(config, list) and isinstance(live, list) and schema.list_type in ("map", "set"):
        return _merge_list(schema, live, config)
    if config == live and isinstance(config, bool) == isinstance(live, bool):
        return live
    return config


def _merge_list(schema: Schema, live: list[Any], config: list[Any]) -> list[Any]:
    """Merge keyed entries: in the order of the configuration, what only the live list has stays where it was."""
    element = schema.element or ANY
    had = {element_name(schema, item): item for item in live}
    wanted = {element_name(schema, item): item for item in config}
    rest = list(had)
    merged: list[Any] = []
    told: list[str] = []
    for name, item in wanted.items():
        while rest and (rest[0] not in wanted or rest[0] in told):
            first = rest.pop(0)
            if first not in wanted:
                merged.append(had[first])
        merged.append(merge(element, had[name], item) if name in had else item)
        told.append(name)
        if rest and rest[0] == name:
            rest.pop(0)
    merged.extend(had[name] for name in rest if name not in wanted)
    return merged


_GONE: Any = object()


def _pruned(schema: Schema, value: Any, last: Tree, owned: Tree) -> Any:
    """Return a value without what was applied before and is nobody's now, ``None`` if nothing is left of it."""
    if isinstance(value, dict) and not schema.atomic:
        kept: Json = {}
        for name, item in value.items():
            is_field = name in schema.fields
            left = _pruned_entry(below(schema, name), item, f"f:{name}", last, owned, is_field=is_field)
            if left is not _GONE:
                kept[name] = left
        return kept or (None if value else value)
    if isinstance(value, list) and schema.list_type in ("map", "set"):
        element = schema.element or ANY
        entries = [_pruned_entry(element, item, element_name(schema, item), last, owned) for item in value]
        return [item for item in entries if item is not _GONE] or (None if value else value)
    return value


def _pruned_entry(schema: Schema, item: Any, name: str, last: Tree, owned: Tree, *, is_field: bool = False) -> Any:
    """Return one entry without what is nobody's any more, ``_GONE`` if that is all of it.

    A field of a type is owned by who owns anything below it, and goes as a whole: with what others never owned in it.
    An entry of a map or list is owned only by who owns it as such.
    """
    was, now = last.get(name), owned.get(name)
    if was is None:
        return item
    had = is_field or not was or SELF in was
    has_now = now is not None and (is_field or SELF in now)
    if had and not has_now:
        return _GONE
    if not was or not isinstance(item, dict | list):
        return item
    return _pruned(schema, item, was, now or {})
