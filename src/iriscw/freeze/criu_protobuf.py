"""The little of protobuf that CRIU's requests, answers and statistics need: numbers, texts, messages in messages.

CRIU's own descriptions are not compiled into iriscw: of a hundred fields a dozen are used, and what CRIU adds must not
matter. So a message is a mapping from field numbers to values here; unknown fields are read over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

Value = int | bytes
Fields = Iterable[tuple[int, "Value | str | bool | Fields"]]

MAX_VARINT_BYTES = 10
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


class NotProtobuf(ValueError):
    """These bytes are no message."""


def encode(fields: Fields) -> bytes:
    """Encode a message: pairs of a field's number and its value, in this order.

    Integers are ``int32``, ``uint32``, ``uint64``, enums or booleans; a text or bytes is a string; pairs are a message.
    """
    out = bytearray()
    for number, value in fields:
        if isinstance(value, int):
            out += _varint(number << 3 | _VARINT) + _varint(int(value) & (1 << 64) - 1)
            continue
        data = value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else encode(value)
        out += _varint(number << 3 | _LENGTH) + _varint(len(data)) + data
    return bytes(out)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode(data: bytes) -> dict[int, Value]:
    """Decode a message; of a field that comes several times, the last one counts.

    Raises:
        NotProtobuf: it is cut off, or something else.
    """
    return dict(_fields(data))


def messages(data: bytes, number: int) -> Iterator[bytes]:
    """Yield all texts, or messages, of a field that may come several times.

    Raises:
        NotProtobuf: it is cut off, or something else.
    """
    for found, value in _fields(data):
        if found == number and isinstance(value, bytes):
            yield value


def numbers(data: bytes, number: int) -> Iterator[int]:
    """Yield all numbers of a field that may come several times, each by itself or many in one.

    Raises:
        NotProtobuf: it is cut off, or something else.
    """
    for found, value in _fields(data):
        if found != number:
            continue
        if isinstance(value, int):
            yield value
            continue
        at = 0
        while at < len(value):
            each, at = _read_varint(value, at)
            yield each


def replaced(data: bytes, fields: Sequence[tuple[int, Value | str | None]]) -> bytes:
    """Return a message with these fields in place of all that have their numbers; None leaves one out.

    Raises:
        NotProtobuf: it is cut off, or something else.
    """
    numbers = [number for number, _ in fields]
    kept = b"".join(data[begin:end] for number, begin, end, _ in _pieces(data) if number not in numbers)
    return kept + encode([(number, value) for number, value in fields if value is not None])


def _fields(data: bytes) -> Iterator[tuple[int, Value]]:
    for number, _, _, value in _pieces(data):
        yield number, value


def _pieces(data: bytes) -> Iterator[tuple[int, int, int, Value]]:
    """Yield each field with its number, where it begins and ends, and its value."""
    at = 0
    while at < len(data):
        begin = at
        tag, at = _read_varint(data, at)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise NotProtobuf("a field without a number")
        if kind == _VARINT:
            value, at = _read_varint(data, at)
            yield number, begin, at, value
            continue
        if kind == _LENGTH:
            length, at = _read_varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise NotProtobuf(f"a field of kind {kind}")
        if at + length > len(data):
            raise NotProtobuf("a field is cut off")
        piece = data[at : at + length]
        at += length
        yield number, begin, at, piece if kind == _LENGTH else int.from_bytes(piece, "little")


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(MAX_VARINT_BYTES):
        if at >= len(data):
            raise NotProtobuf("a number is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, at
    raise NotProtobuf("a number is longer than any is")


def signed(value: Value | None) -> int:
    """Read a number as the signed one it was written as; what is missing is 0."""
    if not isinstance(value, int):
        return 0
    return value - (1 << 64) if value >= 1 << 63 else value


def unsigned(value: Value | None) -> int:
    """Read a number; what is missing is 0."""
    return value if isinstance(value, int) else 0


def text(value: Value | None) -> str:
    """Read a text; what is missing is empty."""
    return value.decode(errors="replace") if isinstance(value, bytes) else ""


def message(value: Value | None) -> dict[int, Value]:
    """Read a message within another one; what is missing is empty.

    Raises:
        NotProtobuf: it is none.
    """
    return decode(value) if isinstance(value, bytes) else {}
