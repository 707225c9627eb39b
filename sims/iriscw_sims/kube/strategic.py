"""Strategic merge patches: merge patches that know which lists are keyed, for built-in kinds only.

Directives: ``$patch`` (replace, delete, merge), ``$deleteFromPrimitiveList/x``, ``$setElementOrder/x`` and
``$retainKeys``, as in ``k8s.io/apimachinery/pkg/util/strategicpatch``.
"""

from __future__ import annotations

from typing import Any

from iriscw_sims.kube.kinds import Json
from iriscw_sims.kube.refusals import bad_request, internal
from iriscw_sims.kube.schema import Field, Schema

_PATCH = "$patch"
_ORDER = "$setElementOrder/"
_DELETE = "$deleteFromPrimitiveList/"
_RETAIN = "$retainKeys"


def strategic(schema: Schema, old: Any, patch: Any) -> Json:
    """Apply a strategic merge patch to an object of a type.

    Raises:
        Refused: 400, the patch is none.
    """
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: the body is not an object")
    return _merge(schema, old or {}, patch)


def _merge(schema: Schema, old: Json, patch: Json) -> Json:
    directive = patch.get(_PATCH)
    if directive == "replace":
        return {name: part for name, part in patch.items() if name != _PATCH}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"Unknown patch type found: {directive}")
    merged = dict(old)
    if _RETAIN in patch:
        merged = {name: part for name, part in merged.items() if name in patch[_RETAIN]}
    for name, item in patch.items():
        if name.startswith("$"):
            continue
        if item is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge_field(schema, name, old.get(name), item, patch.get(_ORDER + name))
    for name, items in patch.items():
        if name.startswith(_DELETE):
            field = name.removeprefix(_DELETE)
            merged[field] = [item for item in merged.get(field) or () if item not in items]
        elif name.startswith(_ORDER) and name.removeprefix(_ORDER) not in patch:
            field = name.removeprefix(_ORDER)
            known = schema.fields.get(field)
            key = (known.merge_key if known is not None else "") or ""
            merged[field] = _ordered(merged.get(field) or [], merged.get(field) or [], items, key)
    return merged


def _merge_field(schema: Schema, name: str, old: Any, item: Any, order: Any) -> Any:
    field = schema.fields.get(name)
    inner = field.schema if field is not None else schema.element
    if isinstance(item, dict):
        base = old if isinstance(old, dict) else {}
        return _merge(inner, base, item) if inner is not None else _merge(Schema("map"), base, item)
    if isinstance(item, list) and field is not None and field.merge_key is not None:
        return _merge_list(field, old if isinstance(old, list) else [], item, order)
    return _without_directives(item)


def _merge_list(field: Field, old: list[Any], patch: list[Any], order: list[Any] | None) -> list[Any]:
    key = field.merge_key
    if not key:
        merged = [*old, *(item for item in patch if item not in old)]
        return _ordered(merged, old, patch if order is None else order, "")
    if any(isinstance(item, dict) and item.get(_PATCH) == "replace" for item in patch):
        return [item for item in patch if item.get(_PATCH) != "replace"]
    element = field.schema.element or Schema("map")
    merged = list(old)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise internal(f"map: {item} does not contain declared merge key: {key}")
        index = next((i for i, each in enumerate(merged) if each.get(key) == item[key]), None)
        if item.get(_PATCH) == "delete":
            merged = [each for each in merged if each.get(key) != item[key]]
        elif index is None:
            merged.append(_without_directives(item))
        else:
            merged[index] = _merge(element, merged[index], item)
    return _ordered(merged, old, patch if order is None else order, key)


def _ordered(merged: list[Any], old: list[Any], order: list[Any], key: str) -> list[Any]:
    """Put what the patch names into its order; what only the server has keeps its place as far as it can."""

    def name(item: Any) -> Any:
        return item.get(key) if key and isinstance(item, dict) else item

    wanted, before = [name(item) for item in order], [name(item) for item in old]
    patched = [item for each in wanted for item in merged if name(item) == each]
    left = sorted((item for item in merged if name(item) not in wanted), key=lambda item: before.index(name(item)))
    result: list[Any] = []
    while left and patched:
        first, second = name(left[0]), name(patched[0])
        comes_first = second in before and before.index(first) < before.index(second)
        result.append(left.pop(0) if comes_first else patched.pop(0))
    return result + left + patched


def _without_directives(item: Any) -> Any:
    if isinstance(item, dict):
        return {name: _without_directives(part) for name, part in item.items() if not name.startswith("$")}
    if isinstance(item, list):
        return [_without_directives(part) for part in item]
    return item
