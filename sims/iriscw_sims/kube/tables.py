"""Tables: what ``kubectl get`` asks for instead of a list, so that the server chooses the columns.

Columns of built-in kinds follow upstream's ``printers/internalversion/printers.go``; custom resources name theirs in
their definition, as JSON paths.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.kube.clock import parsed
from iriscw_sims.kube.kinds import Column, Json, Kind, nested

META = "meta.k8s.io/v1"
_NAME_SAID = (
    "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a "
    "client to request the generation of an appropriate name automatically. Name is primarily intended for creation "
    "idempotence and configuration definition. Cannot be updated. More info: "
    "https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"
)
_NAME = Column("Name", "string", lambda item, _now: item["metadata"]["name"], "name", _NAME_SAID)


def wants_table(accept: str) -> bool:
    """Tell whether the caller's first choice is a table."""
    first = accept.split(",", maxsplit=1)[0]
    return "as=Table" in first and "g=meta.k8s.io" in first


def table(kind: Kind, items: Sequence[Json], metadata: Json, now: int, include: str) -> Json:
    """Return a table of objects.

    Args:
        kind: Of the objects.
        items: The objects, in order.
        metadata: Of the list, or of the one object.
        now: For ages, in ns since 1970.
        include: How much of each object comes along: ``None``, ``Metadata`` (also for ``""``) or ``Object``.
    """
    columns = (_NAME, *(kind.columns or (age_column(),)))
    definitions = [
        {
            "name": each.name,
            "type": each.kind,
            "format": each.format,
            "description": each.description,
            "priority": each.priority,
        }
        for each in columns
    ]
    rows = [
        {"cells": [each.read(item, now) for each in columns], "object": _row_object(item, include)} for item in items
    ]
    if include == "None":
        for row in rows:
            del row["object"]
    return {
        "kind": "Table",
        "apiVersion": META,
        "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    }


def _row_object(item: Json, include: str) -> Json:
    return item if include == "Object" else partial(item)


def wants_partial(accept: str) -> bool:
    """Tell whether the caller's first choice is metadata alone."""
    first = accept.split(",", maxsplit=1)[0]
    return "as=PartialObjectMetadata" in first and "g=meta.k8s.io" in first


def partial(item: Json) -> Json:
    """Return an object without all but its metadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": item["metadata"]}


def age(text: Any, now: int) -> str:
    """Return how long ago a time was, in one or two units, as ``duration.HumanDuration`` does."""
    at = parsed(text) if isinstance(text, str) else None
    if at is None:
        return "<unknown>"
    seconds = (now - at) // SECOND
    if seconds < -1:
        return "<invalid>"
    seconds = max(0, seconds)
    if seconds < 120:
        return f"{seconds}s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    return _two(days // 365, "y", days % 365, "d") if days < 8 * 365 else f"{days // 365}y"


def _two(first: int, unit: str, second: int, smaller: str) -> str:
    return f"{first}{unit}{second}{smaller}" if second else f"{first}{unit}"


def age_column() -> Column:
    """Return the column that tells an object's age."""
    return Column("Age", "string", lambda item, now: age(item["metadata"].get("creationTimestamp"), now))


def column(name: str, read: Callable[[Json], Any], kind: str = "string", priority: int = 0) -> Column:
    """Return a column that does not depend on the time."""
    return Column(name, kind, lambda item, _now: read(item), priority=priority)


def custom_columns(declared: Sequence[Json]) -> tuple[Column, ...]:
    """Compile the columns that a definition declares."""
    return tuple(_custom(each) for each in declared)


def _custom(declared: Json) -> Column:
    path = _steps(declared["jsonPath"])
    date = declared["type"] == "date"

    def read(item: Json, now: int) -> Any:
        found = _walk(item, path)
        if date:
            return age(found, now)
        return _cell(declared["type"], found)

    return Column(
        declared["name"],
        declared["type"],
        read,
        declared.get("format", ""),
        declared.get("description")
        or f"Custom resource definition column (in JSONPath format): {declared['jsonPath']}",
        declared.get("priority", 0),
    )


def _cell(kind: str, value: Any) -> Any:
    if value is None:
        return None
    if kind in ("integer", "number", "boolean"):
        return value if isinstance(value, int | float) else None
    return value if isinstance(value, str) else str(value)


_STEP = re.compile(r"\.([\w/\0-]+)|\['([^']+)'\]|\[(\d+)\]|\[\?\(@\.([\w.]+)==[\"']([^\"']*)[\"']\)\]")


def _steps(path: str) -> list[Callable[[Any], Any]]:
    steps: list[Callable[[Any], Any]] = []
    for name, quoted, index, field, wanted in _STEP.findall(path.replace("\\.", "\0")):
        if field:
            steps.append(_first_with(field, wanted))
        elif index:
            steps.append(_at(int(index)))
        else:
            steps.append(_named((name or quoted).replace("\0", ".")))
    return steps


def _named(name: str) -> Callable[[Any], Any]:
    return lambda value: value.get(name) if isinstance(value, dict) else None


def _at(index: int) -> Callable[[Any], Any]:
    return lambda value: value[index] if isinstance(value, list) and index < len(value) else None


def _first_with(field: str, wanted: str) -> Callable[[Any], Any]:
    def find(value: Any) -> Any:
        for each in value if isinstance(value, list) else ():
            if str(nested(each, *field.split("."))) == wanted:
                return each
        return None

    return find


def _walk(item: Json, steps: list[Callable[[Any], Any]]) -> Any:
    value: Any = item
    for step in steps:
        value = step(value)
        if value is None:
            return None
    return value
