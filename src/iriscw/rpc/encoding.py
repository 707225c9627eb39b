"""Encodes and decodes messages as betterproto2 does, at a fraction of its cost.

The library finds out anew for each field of each message what its default is (with all warnings' filters set and reset
around it), and what kind it is of. Here that is found out once for each class: a list of functions, one for each field.
What comes out is the same, byte by byte and field by field; ``tests/rpc/test_encoding.py`` compares the two. A class
with a kind of field that none of our protocols has is left to the library.

Pure. :func:`decode` is for bytes that :func:`iriscw.rpc.anatomy.examine` has passed: it does not look again whether a
length lies within its message, or a field has another's wire type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import attrs
import betterproto2

M = TypeVar("M", bound=betterproto2.Message)

Write = Callable[[Any], bytes]
"""Gives the whole field, its tag included, for its value."""

Read = Callable[[Any], Any]
"""Gives the value of a field, for its number or its bytes."""

_VARINT, _FIXED_64, _LENGTH = 0, 1, 2
_NEGATIVE = 1 << 64
_TEXTS = (betterproto2.TYPE_STRING, betterproto2.TYPE_BYTES)
_WORDS = (betterproto2.TYPE_INT32, betterproto2.TYPE_INT64, betterproto2.TYPE_UINT32, betterproto2.TYPE_UINT64)
_NUMBERS = (*_WORDS, betterproto2.TYPE_BOOL, betterproto2.TYPE_ENUM)
_HELD = (betterproto2.TYPE_MESSAGE, betterproto2.TYPE_MAP)


@attrs.frozen(eq=False)
class _Incoming:
    """How a field is taken in, by the tag it has on the wire."""

    name: str
    read: Read
    repeated: bool = False
    packed: bool = False
    is_map: bool = False


@attrs.frozen(eq=False)
class _Plan:
    """How messages of one class are written and read."""

    outgoing: list[tuple[str, bool, Write]]
    """Of each field: its name, whether None alone says that it is not there, and how it is written."""
    incoming: dict[int, _Incoming]


_plans: dict[type[Any], _Plan | None] = {}


def encode(message: betterproto2.Message) -> bytes:
    """Encode a message.

    Raises:
        UnicodeEncodeError: it holds text that is no UTF-8.
        ValueError: it holds a number of more than 64 bits.
    """
    plan = _plan_of(type(message))
    if plan is None:
        return bytes(message)
    values = message.__dict__
    parts = []
    for name, optional, write in plan.outgoing:
        value = values[name]
        if value is None or not (optional or value):
            continue
        parts.append(write(value))
    parts.append(message._unknown_fields)
    return b"".join(parts)


def decode(data: bytes, message_type: type[M]) -> M:
    """Decode what :func:`~iriscw.rpc.anatomy.examine` has passed for this class.

    Raises:
        UnicodeDecodeError: it holds text that is no UTF-8.
    """
    plan = _plan_of(message_type)
    if plan is None:
        return message_type.parse(data)
    message = message_type()
    values = message.__dict__
    position, end = 0, len(data)
    while position < end:
        start = position
        tag, position = _varint(data, position)
        wire = tag & 7
        value: Any
        if wire == _VARINT:
            value, position = _varint(data, position)
        elif wire == _LENGTH:
            size, position = _varint(data, position)
            value = data[position : position + size]
            position += size
        else:
            position += 8 if wire == _FIXED_64 else 4
        field = plan.incoming.get(tag)
        if field is None:
            message._unknown_fields += data[start:position]
        elif field.packed:
            values[field.name].extend(_unpacked(value, field.read))
        elif field.is_map:
            entry = field.read(value)
            values[field.name][entry.key] = entry.value
        elif field.repeated:
            values[field.name].append(field.read(value))
        else:
            values[field.name] = field.read(value)
    return message


def _plan_of(message_type: type[Any]) -> _Plan | None:
    try:
        return _plans[message_type]
    except KeyError:
        plan = _plans[message_type] = _made(message_type)
        return plan


def _made(message_type: type[Any]) -> _Plan | None:
    if message_type.__bytes__ is not betterproto2.Message.__bytes__:
        return None  # it knows better how it is written
    known = message_type._betterproto
    outgoing: list[tuple[str, bool, Write]] = []
    incoming: dict[int, _Incoming] = {}
    for name, meta in known.meta_by_field_name.items():
        kind = meta.proto_type
        if kind not in (*_NUMBERS, *_TEXTS, *_HELD) or meta.unwrap or any(each.unwrap for each in meta.map_meta or ()):
            return None
        if kind == betterproto2.TYPE_MAP:
            write = _map_writer(meta)
            if write is None:
                return None
        else:
            write = _writer(kind, meta.number)
            if meta.repeated:
                write = _packed_writer(meta.number) if kind in _NUMBERS else _repeated(write)
        # Fields of a oneof, those called optional, and messages are there unless they are None.
        outgoing.append((name, known.default_gen[name]() is None, write))
        read = _reader(kind, known.cls_by_field[name])
        wire = _VARINT if kind in _NUMBERS else _LENGTH
        repeated, is_map = bool(meta.repeated), kind == betterproto2.TYPE_MAP
        incoming[meta.number << 3 | wire] = _Incoming(name, read, repeated=repeated, is_map=is_map)
        if repeated and kind in _NUMBERS:
            incoming[meta.number << 3 | _LENGTH] = _Incoming(name, read, packed=True)
    return _Plan(outgoing, incoming)


# Writing


def _number(value: int) -> bytes:
    """Write a number: 7 bits in a byte, those of least weight first."""
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    if value < 0:
        value += _NEGATIVE
        if value < _NEGATIVE >> 1:
            raise ValueError("a number has more than 64 bits")
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


_ONE_BYTE = [bytes([value]) for value in range(0x80)]


def _writer(kind: str, number: int) -> Write:
    if kind in _NUMBERS:
        tag = _number(number << 3 | _VARINT)
        return lambda value: tag + _number(value)
    tag = _number(number << 3 | _LENGTH)
    if kind == betterproto2.TYPE_BYTES:
        return lambda value: b"".join((tag, _number(len(value)), value))
    content: Callable[[Any], bytes] = str.encode if kind == betterproto2.TYPE_STRING else encode

    def write(value: Any) -> bytes:
        data = content(value)
        return tag + _number(len(data)) + data

    return write


def _repeated(write: Write) -> Write:
    return lambda values: b"".join([write(value) for value in values])


def _packed_writer(number: int) -> Write:
    tag = _number(number << 3 | _LENGTH)

    def write(values: Any) -> bytes:
        data = b"".join([_number(value) for value in values])
        return tag + _number(len(data)) + data

    return write


def _map_writer(meta: betterproto2.FieldMetadata) -> Write | None:
    assert meta.map_meta is not None
    of_key, of_value = meta.map_meta
    if any(each.proto_type not in (*_NUMBERS, *_TEXTS, betterproto2.TYPE_MESSAGE) for each in meta.map_meta):
        return None
    tag = _number(meta.number << 3 | _LENGTH)
    write_key, write_value = _writer(of_key.proto_type, 1), _writer(of_value.proto_type, 2)

    def write(values: Any) -> bytes:
        parts: list[bytes] = []
        for key, value in values.items():
            entry = write_key(key) + write_value(value)
            parts += (tag, _number(len(entry)), entry)
        return b"".join(parts)

    return write


# Reading


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Read a number; give it, and where it ends."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return byte, position
    value, shift = byte & 0x7F, 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _unpacked(data: bytes, read: Read) -> list[Any]:
    found, position = [], 0
    while position < len(data):
        value, position = _varint(data, position)
        found.append(read(value))
    return found


def _reader(kind: str, held: type[Any]) -> Read:
    if kind == betterproto2.TYPE_STRING:
        return bytes.decode
    if kind == betterproto2.TYPE_BYTES:
        return bytes
    if kind in _HELD:
        return lambda data: decode(data, held)
    if kind == betterproto2.TYPE_BOOL:
        return lambda value: value > 0
    bits = 64 if kind in (betterproto2.TYPE_INT64, betterproto2.TYPE_UINT64, betterproto2.TYPE_ENUM) else 32
    mask, sign = (1 << bits) - 1, 1 << (bits - 1)
    if kind in (betterproto2.TYPE_UINT32, betterproto2.TYPE_UINT64):
        return lambda value: value & mask
    if kind == betterproto2.TYPE_ENUM:
        return lambda value: held(((value & mask) ^ sign) - sign)
    return lambda value: ((value & mask) ^ sign) - sign
