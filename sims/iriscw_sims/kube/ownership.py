"""Sets of fields: which fields two states differ in, and which an object has, in the form that managedFields stores.

Theory of operation. A set of fields is a tree of dicts, as ``FieldsV1`` is: ``f:name`` a field, ``k:{...}`` an entry
of a list that is keyed, ``v:value`` an entry of a set; ``{}`` is a member, and a tree with ``.`` in it is a member that
has members below. Trees are never changed: every operation gives a tree that shares what stayed.

Comparing skips branches that are the same frozen object, so that a small change of a large object costs little.
What is compared how (atomic or not, keyed by what) is the type's to say; see ``structured-merge-diff``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, TypeAlias

import attrs

from iriscw_sims.kube.schema import ANY, Schema

Tree: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str, ...]

SELF = "."


def gathered(paths: Iterable[Path]) -> Tree:
    """Return the tree of some members, built in place: what a first write owns."""
    tree: Tree = {}
    for path in paths:
        node, fresh = tree, False
        for name in path:
            if name in node:
                node = node[name]
                fresh = False
            else:
                if node is not tree and not node and not fresh:
                    node[SELF] = {}  # it was a member and had none below
                node[name] = {}
                node, fresh = node[name], True
        if node and SELF not in node:
            node[SELF] = {}
    return tree


def insert(tree: Tree, path: Path) -> Tree:
    """Return a tree with one more member."""
    if not path:
        return tree if not tree or SELF in tree else {SELF: {}, **tree}
    head, rest = path[0], path[1:]
    inner = tree.get(head)
    if inner is None:
        return {**tree, head: _alone(rest)}
    if rest and not inner:
        return {**tree, head: {SELF: {}, rest[0]: _alone(rest[1:])}}
    return {**tree, head: insert(inner, rest)}


def _alone(path: Path) -> Tree:
    tree: Tree = {}
    for name in reversed(path):
        tree = {name: tree}
    return tree


def remove(tree: Tree, path: Path) -> Tree | None:
    """Return a tree without a member (what is below it stays), ``None`` if nothing is left."""
    head, rest = path[0], path[1:]
    inner = tree.get(head)
    if inner is None:
        return tree
    if rest:
        left = remove(inner, rest) if inner else inner
    else:
        left = {name: part for name, part in inner.items() if name != SELF} or None
    if left is inner:
        return tree
    if left is not None:
        if set(left) == {SELF}:
            left = {}
        return {**tree, head: left}
    return {name: part for name, part in tree.items() if name != head} or None


def without(tree: Tree, branches: Iterable[Path]) -> Tree:
    """Return a tree without some members and all that is below them."""
    for path in branches:
        tree = _pruned(tree, path) or {}
    return tree


def _pruned(tree: Tree, path: Path) -> Tree | None:
    head, rest = path[0], path[1:]
    if head not in tree:
        return tree
    left = _pruned(tree[head], rest) if rest and tree[head] else (tree[head] if rest else None)
    if left is tree[head]:
        return tree
    if left is not None:
        return {**tree, head: {} if set(left) == {SELF} else left}
    return {name: part for name, part in tree.items() if name != head} or None


def members(tree: Tree, at: Path = ()) -> Iterator[Path]:
    """Yield the members of a tree."""
    if not tree:
        if at:
            yield at
        return
    for name, inner in tree.items():
        if name == SELF:
            yield at
        else:
            yield from members(inner, (*at, name))


def has(tree: Tree, path: Path) -> bool:
    """Tell whether a path is a member."""
    for name in path:
        found = tree.get(name)
        if found is None:
            return False
        tree = found
    return not tree or SELF in tree


def joined(trees: list[Tree]) -> Tree:
    """Return the union of trees. Built fresh; leaves are told apart from inner members no more."""
    union: Tree = {}
    for tree in trees:
        for path in members(tree):
            node = union
            for name in path:
                node = node.setdefault(name, {})
            node[SELF] = {}
    return union


@attrs.define
class Difference:
    """What a change did, as paths."""

    added: list[Path] = attrs.Factory(list)
    modified: list[Path] = attrs.Factory(list)
    removed: list[Path] = attrs.Factory(list)


_ABSENT: Any = object()
"""Differs from ``null``: a built-in object that was never written has a null where its lists will be."""


def compare(schema: Schema, old: Any, new: Any, leave_out: Iterable[Path] = ()) -> Difference:
    """Return what differs between two states of an object, but for branches that are left out."""
    found = Difference()
    for path in leave_out:
        old, new = _but(old, path), _but(new, path)
    _compare(schema, old, new, (), found)
    return found


def _but(value: Any, path: Path) -> Any:
    """Return a value without one branch."""
    name = path[0].removeprefix("f:")
    if not isinstance(value, dict) or name not in value:
        return value
    if len(path) > 1:
        return {**value, name: _but(value[name], path[1:])}
    return {key: item for key, item in value.items() if key != name}


def _compare(schema: Schema, old: Any, new: Any, at: Path, found: Difference) -> None:
    if old is new:
        return
    was, now = None if old is _ABSENT else old, None if new is _ABSENT else new
    kind = _shape(schema, was if now is None else now)
    if kind == "leaf" or (not was and not now) or (was is not None and now is not None and kind != _shape(schema, was)):
        if old is _ABSENT:
            found.added.append(at)
        elif new is _ABSENT:
            found.removed.append(at)
        elif old != new or isinstance(old, bool) != isinstance(new, bool):
            found.modified.append(at)
        return
    if kind == "map":
        _compare_maps(schema, was or {}, now or {}, at, found)
    else:
        _compare_lists(schema, was or [], now or [], at, found)
    if old is _ABSENT:
        found.added.append(at)
    elif new is _ABSENT:
        found.removed.append(at)


def _compare_maps(schema: Schema, old: Tree, new: Tree, at: Path, found: Difference) -> None:
    for name, item in new.items():
        was = old.get(name, _ABSENT)
        if was is item or (type(item) is str and type(was) is str and was == item):
            continue  # most of it
        _compare(below(schema, name), was, item, (*at, f"f:{name}"), found)
    for name, item in old.items():
        if name not in new:
            _compare(below(schema, name), item, _ABSENT, (*at, f"f:{name}"), found)


def _compare_lists(schema: Schema, old: list[Any], new: list[Any], at: Path, found: Difference) -> None:
    element = schema.element or ANY
    was = {element_name(schema, item): item for item in old}
    now = {element_name(schema, item): item for item in new}
    for name, item in now.items():
        _compare(element, was.get(name, _ABSENT), item, (*at, name), found)
    for name, item in was.items():
        if name not in now:
            _compare(element, item, _ABSENT, (*at, name), found)


def fields_of(schema: Schema, value: Any) -> Tree:
    """Return the fields that a value has: its leaves, and the entries of lists and maps."""
    return gathered(_fields(schema, value, ()))


def _fields(schema: Schema, value: Any, at: Path) -> Iterator[Path]:
    kind = _shape(schema, value)
    if kind == "leaf":
        yield at
    elif kind == "map":
        for name, item in value.items():
            inner = (*at, f"f:{name}")
            yield from _fields(below(schema, name), item, inner)
            if item is None or item == {} or name not in schema.fields:
                yield inner
    else:
        for item in value:
            inner = (*at, element_name(schema, item))
            yield from _fields(schema.element or ANY, item, inner)
            yield inner


def _shape(schema: Schema, value: Any) -> str:
    """Tell how a value is owned: ``leaf`` as a whole, ``map`` or ``list`` entry by entry."""
    if isinstance(value, dict):
        return "leaf" if schema.atomic else "map"
    if isinstance(value, list):
        return "list" if schema.list_type in ("map", "set") else "leaf"
    return "leaf"


def below(schema: Schema, name: str) -> Schema:
    """Return the type of a field or of a map's entry."""
    field = schema.fields.get(name)
    if field is not None:
        return field.schema
    return schema.element or ANY


def element_name(schema: Schema, item: Any) -> str:
    """Return the path element of a list's entry."""
    if schema.list_type == "map" and isinstance(item, dict):
        defaults = schema.key_defaults
        names = schema.keys
        if len(names) == 1 and type(item.get(names[0])) is str:
            return _name_of(names[0], item[names[0]])
        key = {name: item.get(name, defaults.get(name)) for name in sorted(names)}
        return "k:" + json.dumps({k: v for k, v in key.items() if v is not None}, separators=(",", ":"))
    return "v:" + json.dumps(item, separators=(",", ":"))


@lru_cache(maxsize=4096)
def _name_of(key: str, value: str) -> str:
    return f'k:{{"{key}":{json.dumps(value)}}}'


def shown(path: Path) -> str:
    """Return a path as conflicts name it: ``.spec.containers[name="a"].image``."""
    said = ""
    for part in path:
        kind, _, rest = part.partition(":")
        if kind == "f":
            said += f".{rest}"
        elif kind == "k":
            keys = json.loads(rest)
            said += "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in keys.items()) + "]"
        else:
            said += f"[={rest}]"
    return said
