"""What callers gave, looked at before it travels: an argument of a wrong kind is named, with what it should be."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from iriscw._errors import InvalidArgument

_KINDS: Final[Mapping[str, tuple[type, str]]] = {
    "string": (str, "a text"),
    "bool": (bool, "True or False"),
    "int32": (int, "a whole number"),
    "uint32": (int, "a whole number"),
    "int64": (int, "a whole number"),
    "uint64": (int, "a whole number"),
}
"""What a field of the wire takes."""

_ARGUMENTS: Final = {"id_prefix": "prefix", "task_index": "task", "attempt_number": "attempt", "tail_lines": "tail"}
"""What callers call a field of the wire, where that is another name."""


def check_seconds(name: str, value: object) -> None:
    """Look at a time to wait.

    Raises:
        InvalidArgument: it is neither a number of seconds nor None.
    """
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise InvalidArgument(f"{name}: {value!r:.64} is not a number of seconds")


def check_count(name: str, value: object) -> None:
    """Look at a number that is not negative.

    Raises:
        InvalidArgument: it is neither such a number nor None.
    """
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise InvalidArgument(f"{name}: {value!r:.64} is not a whole number")
    if value is not None and value < 0:
        raise InvalidArgument(f"{name}: {value} is negative")


def check_request(request: Any) -> None:
    """Look at a message that is about to travel: where it is built, its fields take anything.

    Raises:
        InvalidArgument: one holds what it cannot.
    """
    if not dataclasses.is_dataclass(request):
        return
    for field in dataclasses.fields(request):
        known = field.metadata.get("betterproto")
        value = getattr(request, field.name)
        if known is None or value is None:
            continue
        name = _ARGUMENTS.get(field.name, field.name)
        if known.proto_type == "map":
            for key, each in value.items():
                _check(f"{name}: {key!r:.64}", "string", each if isinstance(key, str) else key)
        elif not known.repeated:
            _check(name, known.proto_type, value)


def _check(name: str, proto_type: str, value: object) -> None:
    if proto_type not in _KINDS:
        return
    kind, said = _KINDS[proto_type]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InvalidArgument(f"{name}: {value!r:.64} is not {said}")
