"""Programs of API requests that mean the same in two worlds.

A program is a list of steps: plain, JSON-able values, so a failing one can be printed, kept and run again. A step
cannot name a uid, a resourceVersion or a continue token, since each world makes its own. It says where it got it from:

- ``${rv:PATH}`` in a string: the resourceVersion of the object at PATH when this world last answered with it;
  ``${rv1:PATH}`` the one before that, and so on; ``${uid:PATH}`` likewise. ``${since:PATH}`` is a version to read or
  watch from: as ``rv``, but of what was never seen it is the present. ``${list:PATH}`` and ``${continue:PATH}`` are of
  the last list of a collection, or of its refusal because a token was too old. ``${run}`` is a number that no other run
  of a program on this server has.
- ``{"$seen": PATH, "$patch": {...}, "$else": {...}}`` as a body: that object as last seen (in a world that never saw
  it, ``$else``), changed by a merge patch.

What was never seen has a value too (``NEVER``), so removing any step from a program gives a program: shrinking needs
that.
"""

from __future__ import annotations

import copy
import http.client
import re
from collections.abc import Sequence
from typing import Any

import attrs

JSON = "application/json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

NEVER = {"rv": "1", "uid": "00000000-0000-4000-8000-000000000000", "since": "0", "list": "0", "continue": ""}
"""Stands for what a world has not seen."""

_REFERENCE = re.compile(r"\$\{(rv|uid|since|list|continue|run)(\d*)(?::([^}]*))?\}")
_OF_NAMESPACES = ("status", "finalize")
"""Subresources of a namespace: at their place, other paths have a collection."""


@attrs.frozen
class Ask:
    """One request and its answer."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: Any = None
    content_type: str = JSON
    user: str = "admin"
    accept: str = JSON


@attrs.frozen
class OpenWatch:
    """A watch that stays open under a name of the program's; its answer is that it began, or why not."""

    name: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    user: str = "admin"


@attrs.frozen
class Drain:
    """The events that came on a watch since it was opened or last drained."""

    name: str


@attrs.frozen
class Compact:
    """All versions before the present are forgotten, and the server starts with empty caches: no watch survives."""


@attrs.frozen
class Wait:
    """Time passes, in whole seconds."""

    time_s: int


Step = Ask | OpenWatch | Drain | Compact | Wait
Program = tuple[Step, ...]


def complete(program: Sequence[Step]) -> Program:
    """Drain every watch at the end: what was never looked at was never compared."""
    names = dict.fromkeys(step.name for step in program if isinstance(step, OpenWatch))
    return (*program, *(Drain(name) for name in names))


@attrs.frozen
class Answer:
    """What a world said to an :class:`Ask` or an :class:`OpenWatch`; of headers only what the API means by them."""

    code: int
    body: Any
    warnings: tuple[str, ...] = ()
    retry_after: str = ""


@attrs.frozen
class Events:
    """What a :class:`Drain` found; ``closed`` when the server ended the watch."""

    events: tuple[dict[str, Any], ...]
    closed: bool = False


def merge(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386) and give the result; nothing given is changed."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def _parts(path: str) -> tuple[list[str], list[str]]:
    """Split a path into its collection over all namespaces and what is below: a name, a subresource."""
    parts = path.strip("/").split("/")
    group, rest = (parts[:2], parts[2:]) if parts[0] == "api" else (parts[:3], parts[3:])
    if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] not in _OF_NAMESPACES:
        rest = rest[2:]
    return [*group, *rest[:1]], rest[1:]


def object_path(path: str) -> str:
    """Return the path of the object that a subresource belongs to; other paths stay."""
    _, below = _parts(path)
    return path.rpartition("/")[0] if len(below) > 1 else path


def collection_of(path: str) -> str:
    """Return the path that lists the kind at ``path``, without the namespace: ``/api/v1/pods``."""
    return "/" + "/".join(_parts(path)[0])


class Memory:
    """What one world has told so far in one run of a program."""

    def __init__(self, run: int) -> None:
        """Remember nothing."""
        self.run = run
        self._objects: dict[str, list[dict[str, Any]]] = {}
        self._lists: dict[str, dict[str, str]] = {}

    def learn(self, step: Ask, answer: Answer) -> None:
        """Take in the answer to a resolved ``step``."""
        body = answer.body
        if answer.code == http.client.GONE and step.path in self._lists:
            self._lists[step.path]["continue"] = body["metadata"].get("continue", "")
        if answer.code >= 300 or not isinstance(body, dict) or not isinstance(body.get("metadata"), dict):
            return
        metadata = body["metadata"]
        if "items" in body:
            self._lists[step.path] = {
                "list": metadata.get("resourceVersion", NEVER["list"]),
                "continue": metadata.get("continue", ""),
            }
        elif "uid" in metadata and "resourceVersion" in metadata:  # a dry run makes objects without a version
            path = object_path(step.path)
            if step.method == "POST" and path == step.path:
                path = f"{path}/{metadata['name']}"
            self._objects.setdefault(path, []).append(body)

    def _value(self, what: str, back: int, path: str) -> str:
        if what == "run":
            return str(self.run)
        if what in ("list", "continue"):
            return self._lists.get(path, NEVER)[what]
        seen = self._objects.get(path, ())
        if len(seen) <= back:
            return NEVER[what]
        metadata = seen[-1 - back]["metadata"]
        value: str = metadata["uid" if what == "uid" else "resourceVersion"]
        return value

    def resolve(self, value: Any) -> Any:
        """Return ``value`` with every reference replaced by what this world has seen."""
        if isinstance(value, str):
            value = value.replace("${run}", str(self.run))
            return _REFERENCE.sub(lambda found: self._value(found[1], int(found[2] or 0), found[3] or ""), value)
        if isinstance(value, list | tuple):
            return [self.resolve(item) for item in value]
        if isinstance(value, dict):
            if "$seen" in value:
                seen = self._objects.get(self.resolve(value["$seen"]))
                base = seen[-1] if seen else self.resolve(value.get("$else", {}))
                return merge(base, self.resolve(value.get("$patch", {})))
            return {self.resolve(key): self.resolve(item) for key, item in value.items()}
        return value

    def resolve_step(self, step: Ask | OpenWatch) -> Any:
        """Return ``step`` as this world has to send it."""
        query = tuple((key, self.resolve(value)) for key, value in step.query)
        changes: dict[str, Any] = {"path": self.resolve(step.path), "query": query}
        if isinstance(step, Ask):
            changes["body"] = self.resolve(step.body)
        return attrs.evolve(step, **changes)
