"""Looks at the bytes of a message before anything is built from them.

A message of 4 MiB may hold two million empty messages: decoding them takes ten seconds and half a gigabyte, in one go,
while nobody else is served. So every message is walked first: one pass over its bytes, which skips what is opaque,
enters what is a message, builds nothing, and gives up at a bound. What the walk counts is what decoding costs:

=======================================  ===========================
found on the wire                        parts
=======================================  ===========================
a field, known or not                    1
a nested message, an entry of a map      1 more
an enumeration                           1 more
a number of 6 bytes and more             1 more
a packed field                           1 for each of its bytes
=======================================  ===========================

What the decoder would take for something else is refused as well: a field of another wire type than its own (a number
packed into a list, a text that is a number), groups, what ends in the middle of a field. Unknown fields pass, since
newer peers send them, up to :data:`MAX_UNKNOWN_BYTES`: the decoder copies all it has of them for each further one.

Pure; the shape of each message class is read from the generated code once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import betterproto2

from iriscw._errors import InvalidArgument
from iriscw.rpc.errors import MalformedMessage, MessageTooLarge

MAX_DEPTH = 32
"""Of messages in messages. Our own take 6; protobuf's own decoders stop at 100."""

MAX_UNKNOWN_BYTES = 16 << 10
"""Of fields that this side does not know, in one message with all that is in it."""

_VARINT, _FIXED_64, _LENGTH, _FIXED_32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10
_SHORT_OF_LONGEST_BYTES = 3
"""A number counts twice from so many bytes below the longest but one: from 6 on, as a time in milliseconds has."""

_WIRE_TYPE: Mapping[str, int] = {
    **dict.fromkeys(betterproto2.WIRE_VARINT_TYPES, _VARINT),
    **dict.fromkeys(betterproto2.WIRE_FIXED_32_TYPES, _FIXED_32),
    **dict.fromkeys(betterproto2.WIRE_FIXED_64_TYPES, _FIXED_64),
    **dict.fromkeys(betterproto2.WIRE_LEN_DELIM_TYPES, _LENGTH),
}


@attrs.frozen(eq=False)
class Field:
    """What decoding one field of a message takes."""

    parts: int = 1
    packed: bool = False
    message: type[Any] | None = None
    """The class of the message that it holds; None for what is opaque."""


@attrs.frozen(eq=False)
class Anatomy:
    """What may be found in a message of one class: by the tag, which is number and wire type in one."""

    name: str
    fields: dict[int, Field]
    names: dict[int, str]
    """By the numbers of the fields: another wire type of one of these is malformed."""


_anatomies: dict[type[Any], Anatomy] = {}


def anatomy_of(message_type: type[Any]) -> Anatomy:
    """Return the shape of a generated class, which is read once."""
    found = _anatomies.get(message_type)
    if found is None:
        found = _anatomies[message_type] = _read(message_type)
    return found


def _read(message_type: type[Any]) -> Anatomy:
    known = message_type._betterproto
    fields: dict[int, Field] = {}
    for name, meta in known.meta_by_field_name.items():
        kind = meta.proto_type
        tag = meta.number << 3
        if kind in (betterproto2.TYPE_MESSAGE, betterproto2.TYPE_MAP):
            # What the generated code unwraps (google.protobuf's own values) is a message on the wire all the same.
            held = meta.unwrap() if meta.unwrap else known.cls_by_field[name]
            fields[tag | _LENGTH] = Field(parts=2, message=held)
            continue
        fields[tag | _WIRE_TYPE[kind]] = Field(parts=2 if kind == betterproto2.TYPE_ENUM else 1)
        if meta.repeated and kind in betterproto2.PACKED_TYPES:
            fields[tag | _LENGTH] = Field(packed=True)
    return Anatomy(message_type.__name__, fields, dict(known.field_name_by_number))


def by_number(message_type: type[Any], field_bytes: Mapping[str, int]) -> dict[int, int]:
    """Return sizes by the numbers of fields, for those by their names.

    Raises:
        InvalidArgument: the class has no field of that name.
    """
    numbers = {name: number for number, name in anatomy_of(message_type).names.items()}
    for name in field_bytes:
        if name not in numbers:
            raise InvalidArgument(f"{message_type.__name__} has no field {name!r}")
    return {numbers[name]: size for name, size in field_bytes.items()}


def examine(data: bytes, message_type: type[Any], max_parts: int, field_bytes: Mapping[int, int]) -> int:
    """Walk an encoded message; give its parts. Ends at ``max_parts``, however much is left.

    Args:
        data: the message.
        message_type: the generated class that it is to be decoded as.
        max_parts: how many it may have.
        field_bytes: bounds of fields of the message itself, by number.

    Raises:
        MessageTooLarge: it has more parts, or a field of more bytes, or is too deep.
        MalformedMessage: it is not a message of this class.
    """
    try:
        return _walk(data, message_type, max_parts, field_bytes)
    except IndexError:
        raise _cut(message_type.__name__) from None


def _walk(data: bytes, message_type: type[Any], max_parts: int, field_bytes: Mapping[int, int]) -> int:
    # One loop with a stack of its own, and no calls for what is common: it runs for every message that is received.
    anatomy = anatomy_of(message_type)
    position, end, parts, unknown = 0, len(data), 0, 0
    outer: list[tuple[int, Anatomy]] = []
    while True:
        while position >= end:
            if position > end:
                raise _cut(anatomy.name)
            if not outer:
                return parts
            end, anatomy = outer.pop()
        if parts >= max_parts:
            raise MessageTooLarge(f"a {message_type.__name__} of more than {max_parts} parts was received")
        start = position
        tag = data[position]
        position += 1
        if tag > 0x7F:
            tag, position = _varint(data, start)
        field = anatomy.fields.get(tag)
        parts += 1 if field is None else field.parts
        wire = tag & 7
        if wire == _LENGTH:
            size = data[position]
            position += 1
            if size > 0x7F:
                size, position = _varint(data, position - 1)
            if not outer and size > field_bytes.get(tag >> 3, size):
                raise _too_long(anatomy, tag >> 3, size, field_bytes[tag >> 3])
            if field is not None and field.message is not None:
                if position + size > end:
                    raise _cut(anatomy.name)
                if len(outer) >= MAX_DEPTH:
                    raise MessageTooLarge(f"a {message_type.__name__} deeper than {MAX_DEPTH} messages was received")
                outer.append((end, anatomy))
                anatomy = anatomy_of(field.message)
                end = position + size
                continue
            position += size
            if field is not None and field.packed:
                parts += size
        elif wire == _VARINT:
            last = position + _MAX_VARINT_BYTES - 1
            while data[position] > 0x7F:
                if position == last:
                    raise MalformedMessage(f"a {anatomy.name} has a number of more than {_MAX_VARINT_BYTES} bytes")
                position += 1
            position += 1
            if position >= last - _SHORT_OF_LONGEST_BYTES:
                parts += 1
        elif wire == _FIXED_64:
            position += 8
        elif wire == _FIXED_32:
            position += 4
        else:
            raise MalformedMessage(f"a {anatomy.name} has a field of wire type {wire}")
        if field is None:
            _refuse_misfit(anatomy, tag)
            unknown += position - start
            if unknown > MAX_UNKNOWN_BYTES:
                text = (
                    f"more than {MAX_UNKNOWN_BYTES} bytes of unknown fields were received in a {message_type.__name__}"
                )
                raise MessageTooLarge(text)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Read a tag or a length, of 32 bits and 5 bytes at most; give it, and where it ends."""
    value = 0
    for shift in range(0, 35, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            return value, position
    raise MalformedMessage("a message has a tag or a length of more than 5 bytes")


def _refuse_misfit(anatomy: Anatomy, tag: int) -> None:
    number = tag >> 3
    if number in anatomy.names:
        raise MalformedMessage(
            f"{anatomy.name}.{anatomy.names[number]} has the wire type {tag & 7}, which is another's"
        )
    if number == 0:
        raise MalformedMessage(f"a {anatomy.name} has a field without a number")


def _cut(name: str) -> MalformedMessage:
    return MalformedMessage(f"a {name} ends in the middle of a field")


def _too_long(anatomy: Anatomy, number: int, size: int, limit: int) -> MessageTooLarge:
    name = f"{anatomy.name}.{anatomy.names.get(number, number)}"
    return MessageTooLarge(f"a {name} of {size} bytes was received, the limit is {limit}")
