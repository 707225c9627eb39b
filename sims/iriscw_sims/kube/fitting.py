"""Whether a value fits the type by which its fields are owned: what server-side apply asks before all else.

Looser than reading (a time is any scalar here, a number may have a fraction) and stricter (a field that the type does
not have is wrong, and so are two entries of a list that are one by its keys). A null fits everywhere. The rules are
those of ``structured-merge-diff`` on the types of ``kube-openapi``'s ``schemaconv``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from iriscw_sims.kube.frozen import FrozenDict, FrozenList
from iriscw_sims.kube.schema import ANY, Schema

_TEXTS = ("string", "bytes")
_NUMBERS = ("integer", "number")


def unfit(schema: Schema, value: Any, *, duplicates: bool = False) -> str:
    """Say what of a value does not fit its type, ``""`` if all does.

    Args:
        schema: The type.
        value: JSON; frozen branches have been read by this very type before, and fit.
        duplicates: Whether two entries of a list may be one by its keys: what was written so must be readable.
    """
    return next(_Walk(duplicates).wrong(schema, value, "", keep=False), "")


class _Walk:
    def __init__(self, duplicates: bool) -> None:
        self.duplicates = duplicates

    def wrong(self, schema: Schema, value: Any, at: str, *, keep: bool) -> Iterator[str]:
        """Tell what is wrong, in order; ``keep``: something above lets fields stand that nobody declared."""
        kind = schema.kind
        if value is None or kind == "any" or type(value) is FrozenDict or type(value) is FrozenList:
            return
        if isinstance(value, dict):
            yield from self._wrong_map(schema, value, at, keep=keep)
        elif isinstance(value, list):
            yield from self._wrong_list(schema, value, at, keep=keep)
        elif kind in ("object", "map"):
            yield f"{at}: expected map, got {value!r}"
        elif kind == "list":
            yield f"{at}: expected list, got {value!r}"
        elif not _is_scalar_of(schema, value):
            yield f"{at}: expected {kind}, got {value!r}"

    def _wrong_map(self, schema: Schema, value: dict[str, Any], at: str, *, keep: bool) -> Iterator[str]:
        if schema.kind not in ("object", "map"):
            if not _is_anything(schema):
                yield f"{at}: expected {schema.kind}, got a map"
            return
        keep = keep or schema.keep_unknown
        free = keep or (schema.kind == "object" and not schema.fields)
        for name, item in value.items():
            field = schema.fields.get(name)
            if field is not None and type(item) is FrozenDict:
                continue
            if field is not None:
                yield from self.wrong(field.schema, item, f"{at}.{name}", keep=keep)
            elif schema.element is not None:
                yield from self.wrong(schema.element, item, f"{at}.{name}", keep=keep)
            elif not free and (at or name not in ("apiVersion", "kind")):
                yield f"{at}.{name}: field not declared in schema"

    def _wrong_list(self, schema: Schema, value: list[Any], at: str, *, keep: bool) -> Iterator[str]:
        if schema.kind != "list":
            if not _is_anything(schema):
                yield f"{at}: expected {schema.kind}, got a list"
            return
        seen: list[Any] = []
        for index, item in enumerate(value):
            if schema.list_type in ("map", "set"):
                problem, name = _named(schema, item)
                if problem:
                    yield f"{at}: element {index}: {problem}"
                    return
                if name in seen and not self.duplicates:
                    yield f"{at}: duplicate entries for key {name}"
                seen.append(name)
            yield from self.wrong(schema.element or ANY, item, f"{at}[{index}]", keep=keep)


def _named(schema: Schema, item: Any) -> tuple[str, Any]:
    """Return what is wrong with an entry as one of a keyed list or a set, and what it is told from others by."""
    if schema.list_type == "set":
        wrong = "no scalar" if item is None or isinstance(item, dict | list) else ""
        return wrong, (type(item) is bool, item)
    if not isinstance(item, dict):
        return "associative list with keys may not have non-map elements", None
    key = [(name, item.get(name, schema.key_defaults.get(name))) for name in schema.keys]
    if all(name not in item and name not in schema.key_defaults for name in schema.keys):
        return f"associative list with keys has an element that omits all key fields {list(schema.keys)}", None
    return "", key


def _is_anything(schema: Schema) -> bool:
    """Tell whether a type without a name in its source lets everything stand."""
    return schema.kind == "int-or-string" and schema.source is not None


def _is_scalar_of(schema: Schema, value: Any) -> bool:
    kind = schema.kind
    if kind in _TEXTS:
        return isinstance(value, str) or bool(schema.source and schema.source.get("format") not in (None, "", "byte"))
    if kind in _NUMBERS:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "boolean":
        return isinstance(value, bool)
    return True  # times, quantities and the like are scalars of any kind
