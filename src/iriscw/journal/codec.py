"""From a type to its JSON and back, decided once per type.

:func:`codec_for` builds a pair of functions for a type: one writes a value as JSON text, one reads parsed
JSON. Both are strict: a field holds exactly what its annotation says, or the value is refused. So what was
written can be read, and reading gives an equal value of the same type.

The text is canonical: object keys sorted, no spaces, ASCII only. Supported: ``None``, ``bool``, ``int``,
``str`` and its subclasses (an ``ActorPath`` comes back as one), ``bytes`` (base64), enums whose values are
texts or integers, ``Literal``, ``X | None``, ``tuple[X, ...]``, ``tuple[X, Y]``, ``list[X]``, ``dict[str,
X]`` or ``Mapping[str, X]``, and attrs classes made of these. Floats are refused when a type is declared: a
journaled number is an integer whose unit is in its name, as sums and roundings of floats differ between
versions. Sets are refused as they have no order; a mapping comes back in the order of its keys.

The encoders write text directly and do not build dictionaries first: a record of six fields takes 2 to 3 us
instead of 9 with :func:`json.dumps`.
"""

from __future__ import annotations

import binascii
import collections.abc
import enum
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, NamedTuple, TypeAlias

import attrs

from iriscw._errors import InvalidArgument


class Mismatch(Exception):
    """A value that is not of its type. The text says where and why."""


Annotation: TypeAlias = Any
"""A type as it stands behind a field's colon; Python has no type for those yet."""
Value: TypeAlias = Any
"""A value to be journaled."""
Json: TypeAlias = Any
"""Parsed JSON."""

Encode: TypeAlias = Callable[[Value], str]
Decode: TypeAlias = Callable[[Json], Value]


class Codec(NamedTuple):
    """How one type is written and read. ``encode`` and ``decode`` raise :class:`Mismatch`."""

    encode: Encode
    decode: Decode


def codec_for(type_: Annotation) -> Codec:
    """Build the codec of ``type_``.

    Raises:
        InvalidArgument: the type, or one inside it, cannot be journaled.
    """
    simple = _SIMPLE.get(type_)
    if simple is not None:
        return simple
    origin: Any = typing.get_origin(type_)
    if isinstance(type_, typing.NewType):
        return codec_for(type_.__supertype__)
    if origin in (typing.Union, types.UnionType):
        return _optional(type_)
    if origin is typing.Literal:
        return _one_of(type_, {choice: choice for choice in typing.get_args(type_)})
    if origin is tuple:
        return _tuple(type_)
    if origin is list:
        (item,) = typing.get_args(type_)
        return _sequence(codec_for(item), list)
    if origin in (dict, collections.abc.Mapping):
        return _mapping(type_)
    if inspect.isclass(type_):
        if issubclass(type_, enum.Enum):
            return _one_of(type_, {member.value: member for member in type_})
        if issubclass(type_, str):
            return _text(type_)
        if attrs.has(type_):
            return _attrs(type_)
    raise InvalidArgument(f"{_name(type_)} cannot be journaled{_ADVICE.get(type_, '')}")


_ADVICE = {
    float: ": use an integer, with its unit in the name",
    set: ": use a tuple",
    frozenset: ": use a tuple",
}


def _name(type_: Annotation) -> str:
    return type_.__name__ if inspect.isclass(type_) else str(type_)


def _wrong(value: object, expected: str) -> Mismatch:
    return Mismatch(f"expected {expected}, got {type(value).__name__}")


# Single values


def _encode_none(value: Value) -> str:
    if value is not None:
        raise _wrong(value, "None")
    return "null"


def _encode_bool(value: Value) -> str:
    if value is True:
        return "true"
    if value is False:
        return "false"
    raise _wrong(value, "bool")


def _encode_int(value: Value) -> str:
    if type(value) is not int:
        raise _wrong(value, "int")
    return int.__repr__(value)


def _encode_str(value: Value) -> str:
    if type(value) is not str:
        raise _wrong(value, "str")
    return quoted(value)


def _encode_bytes(value: Value) -> str:
    if type(value) is not bytes:
        raise _wrong(value, "bytes")
    return f'"{binascii.b2a_base64(value, newline=False).decode("ascii")}"'


def _decode_bytes(value: Json) -> bytes:
    if type(value) is not str:
        raise _wrong(value, "base64")
    try:
        found = binascii.a2b_base64(value, strict_mode=True)
    except ValueError as error:
        raise Mismatch(f"expected base64: {error}") from error
    rest = len(found) % 3  # then its last letter has bits to spare, and several texts would be the same bytes
    if rest and binascii.b2a_base64(found[-rest:], newline=False).decode("ascii") != value[-4:]:
        raise Mismatch("expected base64: its last letter has bits that stand for nothing")
    return found


def _exactly(type_: type) -> Decode:
    def decode(value: Json) -> Value:
        if type(value) is not type_:
            raise _wrong(value, type_.__name__)
        return value

    return decode


_SIMPLE: dict[Any, Codec] = {
    None: Codec(_encode_none, _exactly(type(None))),
    type(None): Codec(_encode_none, _exactly(type(None))),
    bool: Codec(_encode_bool, _exactly(bool)),
    int: Codec(_encode_int, _exactly(int)),
    str: Codec(_encode_str, _exactly(str)),
    bytes: Codec(_encode_bytes, _decode_bytes),
}


def _text(type_: type[str]) -> Codec:
    """A subclass of ``str`` (``ActorPath``). Plain text is not accepted for it: it would come back as another
    type.
    """

    def encode(value: Value) -> str:
        if type(value) is not type_:
            raise _wrong(value, type_.__name__)
        return quoted(str(value))

    def decode(value: Json) -> Value:
        if type(value) is not str:
            raise _wrong(value, "str")
        return type_(value)

    return Codec(encode, decode)


def _one_of(type_: Annotation, values: dict[Any, Any]) -> Codec:
    """An enum (by value, which is more stable than a name) or a ``Literal``."""
    if any(type(plain) not in (str, int) for plain in values):
        raise InvalidArgument(f"{_name(type_)} cannot be journaled: its values are not all texts or integers")
    texts = {value: codec_for(type(plain)).encode(plain) for plain, value in values.items()}
    types_ = {type(value) for value in texts}

    def encode(value: Value) -> str:
        if type(value) not in types_ or value not in texts:
            raise _wrong(value, _name(type_))
        return texts[value]

    def decode(value: Json) -> Value:
        if type(value) not in (str, int) or value not in values:
            raise Mismatch(f"{value!r:.60} is not in {_name(type_)}")
        return values[value]

    return Codec(encode, decode)


def _optional(type_: Annotation) -> Codec:
    choices = [choice for choice in typing.get_args(type_) if choice is not type(None)]
    if len(choices) != 1:
        raise InvalidArgument(f"{type_} cannot be journaled: only unions of one type and None can")
    inner_encode, inner_decode = codec_for(choices[0])

    def encode(value: Value) -> str:
        return "null" if value is None else inner_encode(value)

    def decode(value: Json) -> Value:
        return None if value is None else inner_decode(value)

    return Codec(encode, decode)


# Containers


def _sequence(item: Codec, container: type[list[Any] | tuple[Any, ...]]) -> Codec:
    item_encode, item_decode = item

    def encode(value: Value) -> str:
        if type(value) is not container:
            raise _wrong(value, container.__name__)
        return f"[{','.join([item_encode(each) for each in value])}]"

    def decode(value: Json) -> Value:
        if type(value) is not list:
            raise _wrong(value, "array")
        return container([item_decode(each) for each in value])

    return Codec(encode, decode)


def _tuple(type_: Annotation) -> Codec:
    arguments = typing.get_args(type_)
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return _sequence(codec_for(arguments[0]), tuple)
    codecs = [codec_for(argument) for argument in arguments]

    def check(value: Value, container: type[list[Any] | tuple[Any, ...]]) -> None:
        if type(value) is not container or len(value) != len(codecs):
            raise _wrong(value, f"{len(codecs)} items")

    def encode(value: Value) -> str:
        check(value, tuple)
        return f"[{','.join([codec.encode(each) for codec, each in zip(codecs, value, strict=True)])}]"

    def decode(value: Json) -> Value:
        check(value, list)
        return tuple(codec.decode(each) for codec, each in zip(codecs, value, strict=True))

    return Codec(encode, decode)


def _mapping(type_: Annotation) -> Codec:
    key, item = typing.get_args(type_)
    if key is not str:
        raise InvalidArgument(f"{type_} cannot be journaled: its keys are not str")
    item_encode, item_decode = codec_for(item)

    def encode(value: Value) -> str:
        if not isinstance(value, Mapping):
            raise _wrong(value, "a mapping")
        # The keys are checked before they are sorted: sorting mixed keys raises a TypeError that says
        # nothing.
        texts = {key: f"{_encode_str(key)}:{item_encode(each)}" for key, each in value.items()}
        return f"{{{','.join([texts[key] for key in sorted(texts)])}}}"

    def decode(value: Json) -> Value:
        if type(value) is not dict:
            raise _wrong(value, "object")
        return {key: item_decode(each) for key, each in value.items()}

    return Codec(encode, decode)


# Classes


def _attrs(type_: type) -> Codec:
    try:
        hints = typing.get_type_hints(type_)
    except NameError as error:
        raise InvalidArgument(
            f"{type_.__name__} cannot be journaled: {error}; import it, and declare it first"
        ) from None
    fields = attrs.fields(type_)
    for field in fields:
        if not field.init:
            raise InvalidArgument(
                f"{type_.__name__}.{field.name} cannot be journaled: it is not an argument of __init__"
            )
    codecs = {field.name: _field_codec(type_, field.name, hints[field.name]) for field in fields}
    return Codec(_encode_attrs(type_, codecs), _decode_attrs(type_, fields, codecs))


def _field_codec(owner: type, name: str, hint: Annotation) -> Codec:
    try:
        return codec_for(hint)
    except InvalidArgument as error:
        raise InvalidArgument(f"{owner.__name__}.{name}: {error}") from None


def _encode_attrs(type_: type, codecs: Mapping[str, Codec]) -> Encode:
    parts = [
        (f"{'{' if index == 0 else ','}{quoted(name)}:", name, codecs[name].encode)
        for index, name in enumerate(sorted(codecs))
    ]

    def encode(value: Value) -> str:
        if type(value) is not type_:
            raise _wrong(value, type_.__name__)
        if not parts:
            return "{}"
        name = ""
        try:
            text = ""
            for label, name, encode_field in parts:
                text += label + encode_field(getattr(value, name))
        except Mismatch as error:
            raise Mismatch(f"{type_.__name__}.{name}: {error}") from None
        return text + "}"

    return encode


def _decode_attrs(type_: type, fields: tuple[Any, ...], codecs: Mapping[str, Codec]) -> Decode:
    decoders = [
        (field.name, field.alias, codecs[field.name].decode, field.default is attrs.NOTHING) for field in fields
    ]

    def decode(value: Json) -> Value:
        if type(value) is not dict:
            raise _wrong(value, "object")
        known = 0
        arguments = {}
        for name, alias, decode_field, required in decoders:
            if name in value:
                known += 1
                try:
                    arguments[alias] = decode_field(value[name])
                except Mismatch as error:
                    raise Mismatch(f"{type_.__name__}.{name}: {error}") from None
            elif required:
                raise Mismatch(f"{type_.__name__}.{name} is missing")
        if known != len(value):
            unknown = sorted(set(value) - set(codecs))
            raise Mismatch(f"{type_.__name__} has no {', '.join(unknown)}")
        try:
            return type_(**arguments)
        except (TypeError, ValueError) as error:
            raise Mismatch(f"{type_.__name__} refused its fields: {error}") from error

    return decode
