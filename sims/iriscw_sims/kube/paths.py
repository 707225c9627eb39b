"""Paths of the API, taken apart: group, version, resource, namespace, name, subresource."""

from __future__ import annotations

import attrs


@attrs.frozen
class Route:
    """What a path names. ``name`` ``""`` is the whole collection, ``namespace`` ``""`` all namespaces."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def route(path: str) -> Route | None:
    """Take a path apart, ``None`` if no resource can be there."""
    parts = path.strip("/").split("/")
    if "" in parts:
        return None
    if len(parts) >= 3 and parts[0] == "api":
        return _below("", parts[1], parts[2:])
    if len(parts) >= 4 and parts[0] == "apis":
        return _below(parts[1], parts[2], parts[3:])
    return None


def _below(group: str, version: str, rest: list[str]) -> Route | None:
    if rest[0] == "namespaces" and len(rest) >= 3 and not (len(rest) == 3 and rest[2] in ("status", "finalize")):
        return _in(group, version, rest[1], rest[2:])
    return _in(group, version, "", rest)


def _in(group: str, version: str, namespace: str, rest: list[str]) -> Route | None:
    if len(rest) > 3:
        return None
    plural, name, subresource = [*rest, "", ""][:3]
    if group == "" and plural == "namespaces":
        namespace = name
    return Route(group, version, plural, namespace, name, subresource)
