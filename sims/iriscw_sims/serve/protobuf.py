"""Objects that clients send as protobuf, as JSON would have them.

A program with client-go sends the kinds of Kubernetes itself as Kubernetes' own protobuf, unless it says otherwise;
kubectl does so here and there. Both take a 415 for the end. So every such kind that is served is read, by a table that
is made from Kubernetes' own sources (``protobuf_types.txt``, whose head says how it reads). An object with something in
a field that is in no table is refused: nothing is lost in silence. Nothing is ever written as protobuf: every client
takes JSON for an answer.

The envelope is four bytes and a message ``Unknown``: the object's apiVersion and kind, and the object.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.kube.clock import written, written_micro

MAGIC = b"k8s\0"

_TABLE = Path(__file__).with_name("protobuf_types.txt")
_ENVELOPE = "Unknown 1:typeMeta:TypeMeta 2:raw:y\nTypeMeta 1:apiVersion:s 2:kind:s\n"
_FIELD = re.compile(r"(\d+):([^:]+):(\[\]|\{\}|\?|!|)(.+)")

DEPTH = 64
"""Messages within each other: the schema of a definition has most."""

UNSET_LEVELS = 4
"""Levels of a field that was never set; a deployment's strategy and a container's probes have two."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_ANY_GROUP = "DeleteOptions"
"""Each group has it, and it is the same in all."""


@attrs.frozen
class _Field:
    """One field: what JSON calls it, its type, and whether it is a list ([]), a map ({}), or when it is left out."""

    name: str
    kind: str
    flag: str


def _table() -> dict[str, dict[int, _Field]]:
    lines = (_ENVELOPE + _TABLE.read_text(encoding="utf-8")).splitlines()
    table: dict[str, dict[int, _Field]] = {}
    for name, *fields in (line.split() for line in lines if not line.startswith("#")):
        found = (_FIELD.fullmatch(each) for each in fields)
        table[name] = {int(each[1]): _Field(each[2], each[4], each[3]) for each in found if each is not None}
    return table


_MESSAGES = _table()


class Undecodable(ValueError):
    """A body that is not a protobuf, or of a kind that is not read as protobuf here."""


def decode(data: bytes) -> dict[str, Any]:
    """Return the object in a body, as JSON would have it.

    Raises:
        Undecodable: it is none, or of a kind that is not in the table.
    """
    if not data.startswith(MAGIC):
        raise Undecodable("the body is no Kubernetes protobuf")
    envelope = _message("Unknown", data[len(MAGIC) :], DEPTH)
    meta = envelope.get("typeMeta", {})
    version, kind = meta.get("apiVersion", ""), meta.get("kind", "")
    name = f"meta/v1/{kind}" if kind == _ANY_GROUP else f"{version}/{kind}"
    if name not in _MESSAGES:
        raise Undecodable(f"{name[:100]} is not read as protobuf here")
    return {"apiVersion": version, "kind": kind, **_message(name, base64.b64decode(envelope.get("raw", "")), DEPTH)}


def _message(name: str, data: bytes, depth: int) -> Any:
    """Read one message: an object, mostly."""
    if not depth:
        raise Undecodable(f"more than {DEPTH} messages within each other")
    fields = _MESSAGES[name]
    result: dict[str, Any] = {}
    for number, wire, value in _pairs(data):
        field = fields.get(number)
        if field is None:
            if not _is_unset(value):
                raise Undecodable(f"field {number} of {name} is not read as protobuf here")
        elif field.flag == "{}":
            key, item = _entry(field.kind, wire, value, depth)
            result.setdefault(field.name, {})[key] = item
        else:
            read = _value(field.kind, wire, value, depth)
            if field.flag == "[]":
                if not isinstance(result.setdefault(field.name, []), list):
                    result[field.name] = []  # it has come in place of what stood for it
                result[field.name].append(read)
            elif field.name == "~":
                result |= read
            elif read is not None and (read or field.flag or isinstance(read, dict | list)):
                result[field.name] = read
    return result.get("=", []) if "=" in (each.name for each in fields.values()) else result


def _is_unset(value: int | bytes, levels: int = UNSET_LEVELS) -> bool:
    """Tell whether a field is one of those that Go writes although they were never set."""
    if isinstance(value, int):
        return value == 0
    try:
        return levels > 0 and all(_is_unset(inner, levels - 1) for _, _, inner in _pairs(value))
    except Undecodable:
        return False  # a text


def _value(kind: str, wire: int, value: int | bytes, depth: int) -> Any:
    if kind in ("i", "b"):
        if not isinstance(value, int) or wire != _VARINT:
            raise Undecodable("a number is none")
        if kind == "b":
            return bool(value)
        return value - 2**64 if value >= 2**63 else value
    if not isinstance(value, bytes) or wire != (_FIXED64 if kind == "d" else _BYTES):
        raise Undecodable("a text is none")
    match kind:
        case "s":
            return _text(value)
        case "y":
            return base64.b64encode(value).decode()
        case "d":
            return _number(value)
        case "t" | "m":
            return _time(value, micro=kind == "m")
        case "q":
            return _text(_field_of(value, 1, b"")) or "0"
        case "x":
            text = _field_of(value, 1, 0) == 1
            return _text(_field_of(value, 3, b"")) if text else _value("i", _VARINT, _field_of(value, 2, 0), depth)
        case "n":
            return _json(_field_of(value, 1, b""))
    return _message(kind, value, depth - 1)


def _field_of(data: bytes, wanted: int, default: Any) -> Any:
    """Return the last value of a field, if it is of the same type as what it is when it is not there."""
    found = default
    for number, _, value in _pairs(data):
        if number == wanted:
            found = value
    if not isinstance(found, type(default)):
        raise Undecodable("a value is of another type")
    return found


def _number(value: bytes) -> float | int:
    (number,) = struct.unpack("<d", value)
    if number != number or number in (float("inf"), float("-inf")):
        raise Undecodable("a number is none")
    return int(number) if number == int(number) else number


def _json(data: bytes) -> Any:
    try:
        return json.loads(data) if data else None
    except (ValueError, RecursionError) as wrong:
        raise Undecodable("what should be JSON is none") from wrong


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as wrong:
        raise Undecodable("a text is no UTF-8") from wrong


def _time(data: bytes, *, micro: bool) -> str | None:
    seconds, nanos = _field_of(data, 1, 0), _field_of(data, 2, 0)
    if not 0 < seconds < 2**33 or not 0 <= nanos < SECOND:
        return None  # nothing, as Go writes it
    now = seconds * SECOND + nanos
    return written_micro(now) if micro else written(now)


def _entry(kind: str, wire: int, value: int | bytes, depth: int) -> tuple[str, Any]:
    """Read one entry of a map."""
    if not isinstance(value, bytes) or wire != _BYTES:
        raise Undecodable("an entry of a map is none")
    key: Any = ""
    item: Any = ""
    for number, inner, each in _pairs(value):
        if number == 1:
            key = _value("s", inner, each, depth)
        elif number == 2:
            item = _value(kind, inner, each, depth)
    return key, item


def _pairs(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield the fields of a message: number, wire type, and a number or bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, wire, value
            continue
        if wire == _BYTES:
            length, at = _varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
        else:
            raise Undecodable("an unknown wire type")
        if length > len(data) - at:
            raise Undecodable("the body ends early")
        yield number, wire, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            raise Undecodable("the body ends early")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), at
    raise Undecodable("a number is too long")
