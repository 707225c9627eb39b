"""Types as values: how an object of a kind is read, merged and owned, field by field.

A :class:`Schema` stands for one type. It is made of the table of built-in types (:func:`core_schema`) or of a custom
resource's own schema (:mod:`iriscw_sims.kube.structural`), and used in four ways: reading a body (unknown fields are
dropped and told, what Go would leave out is left out), strategic merge patches, field ownership, server-side apply.

Reading skips what is frozen: a frozen branch was read before, at this very place, by this very type.
"""

from __future__ import annotations

import base64
import binascii
import re
from functools import cache
from typing import Any

import attrs

from iriscw_sims.kube import clock, quantity
from iriscw_sims.kube.core_types import TYPES
from iriscw_sims.kube.frozen import FrozenDict, FrozenList


@attrs.define(eq=False)
class Schema:
    """One type. ``kind`` is ``object``, ``map``, ``list``, ``any`` or a scalar's name.

    ``list_type`` is ``atomic``, ``set`` or ``map`` with ``keys``; ``atomic`` is for maps and objects that are owned as
    a whole. ``element`` is the type of a list's or map's values.
    """

    kind: str
    name: str = ""
    fields: dict[str, Field] = attrs.Factory(dict)
    element: Schema | None = None
    list_type: str = ""
    keys: tuple[str, ...] = ()
    key_defaults: dict[str, Any] = attrs.Factory(dict)
    atomic: bool = False
    keep_unknown: bool = False
    source: Any = None
    """The JSON schema it was made of, for a custom resource."""
    always: list[tuple[str, Field]] | None = None
    """The fields that are written whatever they hold; found when first asked for."""
    defaults: list[tuple[str, Schema, Any]] | None = None
    """Fields of a custom resource that have a default, and which; found when first asked for."""


@attrs.frozen(eq=False)
class Field:
    """One field of an object.

    ``kept`` is written even if empty, a ``pointer`` if it is set at all, ``brief`` not even as ``null``.
    ``merge_key`` is the key by which a strategic merge patch merges a list (``""`` for a list of scalars).
    """

    schema: Schema
    kept: bool = False
    pointer: bool = False
    brief: bool = False
    merge_key: str | None = None
    retain_keys: bool = False


ANY = Schema("any", keep_unknown=True)
_SCALARS = {
    "s": Schema("string"),
    "i": Schema("integer", name="int32"),
    "l": Schema("integer", name="int64"),
    "n": Schema("number"),
    "b": Schema("boolean"),
    "q": Schema("quantity"),
    "t": Schema("time"),
    "m": Schema("microtime"),
    "x": Schema("int-or-string"),
    "y": Schema("bytes"),
    "a": ANY,
    "S": ANY,
}
_KEY_DEFAULTS: dict[str, Any] = {"protocol": "TCP"}
"""Defaults of key fields that upstream's schema declares, so that a list is keyed before defaults are filled in."""


@cache
def _table() -> dict[str, tuple[bool, str]]:
    paragraphs: dict[str, tuple[bool, str]] = {}
    for paragraph in re.split(r"\n(?!  )", TYPES.strip("\n")):
        head, _, fields = paragraph.partition(" ")
        name, _, flag = head.partition("@")
        paragraphs[name] = (flag == "A", fields)
    return paragraphs


@cache
def core_schema(name: str) -> Schema:
    """Return the type of a built-in kind or of a part of one."""
    atomic, text = _table()[name]
    schema = Schema("object", name=name, atomic=atomic)
    for word in text.split():
        field, _, rest = word.partition(":")
        kind, _, flags = rest.partition(":")
        schema.fields[field] = _field(kind, flags)
    return schema


_FLAGS = re.compile(
    r"(?P<pointer>\*)?(?P<kept>!)?(?P<brief>0)?(?:@(?P<list>[asmA])(?:\((?P<keys>[^)]*)\))?)?(?P<tail>.*)"
)
_LIST_TYPES = {"a": "atomic", "s": "set", "m": "map"}


def _field(kind: str, flags: str) -> Field:
    found = _FLAGS.fullmatch(flags)
    assert found is not None, flags
    schema = _type(kind)
    if found["list"]:
        keys = tuple((found["keys"] or "").split(",")) if found["keys"] else ()
        schema = attrs.evolve(
            schema,
            list_type=_LIST_TYPES.get(found["list"], ""),
            atomic=found["list"] == "A" or schema.atomic,
            keys=keys,
            key_defaults={key: value for key, value in _KEY_DEFAULTS.items() if key in keys},
        )
    tail = found["tail"]
    merge = re.search(r"%(\w*)", tail)
    return Field(
        schema,
        kept=bool(found["kept"]),
        pointer=bool(found["pointer"]),
        brief=bool(found["brief"]),
        merge_key=merge[1] if merge else None,
        retain_keys="^" in tail,
    )


def _type(kind: str) -> Schema:
    if kind.startswith("[]"):
        return Schema("list", element=_type(kind[2:]), list_type="atomic")
    if kind.startswith("{}"):
        return Schema("map", element=_type(kind[2:]))
    return _SCALARS[kind] if kind in _SCALARS else core_schema(kind)


class Unreadable(Exception):
    """A value does not fit its type; the text is Go's."""


_ZERO: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False, "quantity": "0"}
_BOUNDS = {"int32": 1 << 31, "int64": 1 << 63}
_GO = {"string": "string", "number": "float64", "boolean": "bool", "bytes": "[]uint8"}
_EMPTY: tuple[Any, ...] = ("", 0, False)


def read(schema: Schema, value: Any, at: str, unknown: list[str]) -> Any:
    """Read a value by its type: give it as the server would write it, and note fields it does not know.

    Args:
        schema: The type.
        value: JSON; frozen branches are taken as read before.
        at: The path of the value, for messages.
        unknown: Gets the paths of fields that the type does not have.

    Raises:
        Unreadable: The value is of another type.
    """
    kind = schema.kind
    if kind == "string":
        if type(value) is not str:
            raise _mismatch(value, at, "string")
        return value
    if kind == "object":
        return value if type(value) is FrozenDict else _read_object(schema, value, at, unknown)
    if kind == "list":
        if type(value) is FrozenList:
            return value
        if not isinstance(value, list):
            raise _mismatch(value, at, "slice")
        assert schema.element is not None
        element = schema.element
        return [_read_element(element, item, f"{at}[{index}]", unknown) for index, item in enumerate(value)]
    if kind == "map":
        if type(value) is FrozenDict:
            return value
        if not isinstance(value, dict):
            raise _mismatch(value, at, "map")
        assert schema.element is not None
        element = schema.element
        return {name: _read_element(element, item, f"{at}.{name}", unknown) for name, item in value.items()}
    if kind == "integer":
        return _read_integer(schema.name, value, at)
    return value if kind == "any" else _read_scalar(kind, value, at)


def _read_element(schema: Schema, value: Any, at: str, unknown: list[str]) -> Any:
    if value is None:  # Go keeps the zero value
        return {} if schema.kind in ("object", "map") else _ZERO.get(schema.kind)
    return read(schema, value, at, unknown)


def _read_object(schema: Schema, value: Any, at: str, unknown: list[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _mismatch(value, at, schema.name or "object")
    fields = schema.fields
    result: dict[str, Any] = {}
    for name, item in value.items():
        field = fields.get(name)
        if field is None:
            if schema.keep_unknown:
                result[name] = item
            elif at or name not in ("kind", "apiVersion"):
                unknown.append(f"{at}.{name}" if at else name)
            else:
                result[name] = item
        elif item is not None:
            read_item = read(field.schema, item, f"{at}.{name}" if at else name, unknown)
            is_pointer = field.pointer and field.schema.kind not in ("map", "list")
            if field.kept or is_pointer or not _is_empty(field, read_item):
                result[name] = read_item
    for name, field in _always(schema):
        if name not in result:
            result[name] = _absent(field)
    return result


def _is_empty(field: Field, value: Any) -> bool:
    kind = field.schema.kind
    if kind in ("map", "list"):
        return not value
    return kind in _ZERO and value in _EMPTY


def _always(schema: Schema) -> list[tuple[str, Field]]:
    if schema.always is None:
        schema.always = [(name, field) for name, field in schema.fields.items() if _is_always(field)]
    return schema.always


def _is_always(field: Field) -> bool:
    """Tell whether Go writes a field that is not set: structs, times, and what has no ``omitempty``."""
    if field.brief:
        return False
    if field.kept:
        return True
    return not field.pointer and field.schema.kind in ("object", "time", "microtime")


def _absent(field: Field) -> Any:
    kind = field.schema.kind
    if field.pointer or kind not in ("object", *_ZERO):
        return None
    return {name: _absent(inner) for name, inner in _always(field.schema)} if kind == "object" else _ZERO[kind]


def _read_integer(name: str, value: Any, at: str) -> int:
    """Read an integer of the Go type ``name``; of a custom resource, whose schema says what it may be, any."""
    if type(value) is not int and not (type(value) is float and value.is_integer()):
        raise _mismatch(value, at, name or "int64")
    bound = _BOUNDS.get(name)
    if bound is not None and not -bound <= value < bound:
        raise _mismatch(value, at, name)
    return int(value)


def _read_scalar(kind: str, value: Any, at: str) -> Any:
    if kind == "boolean":
        if not isinstance(value, bool):
            raise _mismatch(value, at, "boolean")
        return value
    if kind == "number":
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _mismatch(value, at, "number")
        return value
    if kind == "quantity":
        return _read_quantity(value)
    if kind == "int-or-string":
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise _mismatch(value, at, "string")
        return value
    return _read_text(kind, value, at)


def _read_quantity(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise Unreadable("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    found = quantity.canonical(str(value))
    if found is None:
        raise Unreadable("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    return found


def _read_text(kind: str, value: Any, at: str) -> Any:
    if not isinstance(value, str):
        raise _mismatch(value, at, kind)
    if kind == "bytes":
        try:
            base64.b64decode(value, validate=True)
        except binascii.Error as wrong:
            raise Unreadable(f"illegal base64 data: {wrong}") from wrong
        return value
    if kind == "microtime":
        precise = clock.micro(value)
        if precise is None:
            layout = "2006-01-02T15:04:05.000000Z07:00"
            raise Unreadable(f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"')
        return precise
    at_ns = clock.parsed(value)
    if at_ns is None:
        layout = "2006-01-02T15:04:05Z07:00"
        raise Unreadable(f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"')
    return clock.written(at_ns)


def _mismatch(value: Any, at: str, wanted: str) -> Unreadable:
    if isinstance(value, bool):
        given = "bool"
    elif isinstance(value, int | float):
        given = f"number {value}"
    elif isinstance(value, str):
        given = "string"
    else:
        given = "array" if isinstance(value, list) else "object"
    return Unreadable(f"json: cannot unmarshal {given} into Go struct field {at} of type {_GO.get(wanted, wanted)}")
