"""The normal form of what a world answered: equal where two worlds mean the same.

Left out or replaced, and why:

- A uid, a generated name, a service's address: each world draws its own. Each becomes a number in order of appearance,
  so that *which* of them is named is still compared.
- A resourceVersion becomes its rank among all that the run showed of objects: order and equality are compared, across
  kinds too. That of a list lies between two of objects, and is compared as that: the server also counts writes that
  a program does not see.
- Times that the server sets. Times that a client sets (a lease's) are compared. ``${run}``, the number of the run, and
  the server's own port.
- Continue tokens: opaque.
- Human-readable texts, except of the reasons in ``COMPARED_MESSAGES``, which people and our own logs see most. Reason,
  code and all of ``details`` but the causes' texts are compared; causes in order of field, since the server itself
  gives those of a custom resource in the order of a Go map.
- The order of ``managedFields``: the server orders by second, then name.
- The order of a namespace's finalizers: a delete of one writes them in the order of a Go map.
- Bookmarks: they come by the clock. The one that ends initial events is compared. (``kube_worlds`` leaves them out.)
"""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kube_program import Answer, Ask, Events
from kube_worlds import Exchange

COMPARED_MESSAGES = ("NotFound", "AlreadyExists", "Forbidden")
NAMESPACE_LABEL = "kubernetes.io/metadata.name"
"""Every namespace has it, and hardly anything else."""

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_RUN = re.compile(r"\brun-\d+")
_SERVER = re.compile(r"127\.0\.0\.1:\d+")
_GENERATED = 5
"""Characters that the server adds to a generateName."""
_SERVER_TIMES = ("creationTimestamp", "deletionTimestamp", "lastTransitionTime")


def _is_list(value: dict[str, Any]) -> bool:
    """Tell lists and tables, also those whose ``items`` are null."""
    return "items" in value or isinstance(value.get("rows"), list)


def _objects(body: Any) -> Iterator[dict[str, Any]]:
    """Walk all API objects in an answer: itself, or its items."""
    if isinstance(body, dict) and isinstance(body.get("metadata"), dict):
        if _is_list(body):
            for item in body.get("items") or ():
                yield from _objects(item)
            for row in body.get("rows") or ():
                yield from _objects(row.get("object"))
        elif "name" in body["metadata"]:
            yield body


def _bodies(exchanges: Sequence[Exchange]) -> Iterator[Any]:
    for exchange in exchanges:
        answer = exchange.answer
        if isinstance(answer, Answer):
            yield answer.body
        else:
            for event in answer.events:
                yield event["object"]


class _Drawn:
    """What one world drew during one run, numbered in order of appearance."""

    def __init__(self, exchanges: Sequence[Exchange]) -> None:
        revisions = set()
        self.names: dict[str, str] = {}
        self.addresses: dict[str, str] = {}
        self.uids: dict[str, str] = {}
        for each in (found for body in _bodies(exchanges) for found in _objects(body)):
            metadata = each["metadata"]
            if "uid" in metadata:
                self.uids.setdefault(metadata["uid"], f"uid#{len(self.uids)}")
            if metadata.get("resourceVersion", "").isdecimal():
                revisions.add(int(metadata["resourceVersion"]))
            self._learn_name(metadata["name"], metadata.get("generateName"))
            address = each.get("spec", {}).get("clusterIP") if each.get("kind") == "Service" else None
            if address and address != "None":
                self.addresses.setdefault(address, f"address#{len(self.addresses)}")
        self._revisions = sorted(revisions)
        for exchange in exchanges:
            self._learn_refused_name(exchange)

    def _learn_name(self, name: str, prefix: str | None) -> None:
        if prefix and re.fullmatch(re.escape(prefix) + rf"[a-z0-9]{{{_GENERATED}}}", name):
            self.names.setdefault(name, f"{prefix}#{len(self.names)}")

    def _learn_refused_name(self, exchange: Exchange) -> None:
        """A name that was generated for an object that was then refused: only the refusal has it."""
        step, answer = exchange.step, exchange.answer
        if isinstance(step, Ask) and isinstance(answer, Answer) and isinstance(step.body, dict):
            name = (answer.body.get("details") or {}).get("name", "") if isinstance(answer.body, dict) else ""
            metadata = step.body.get("metadata")
            if isinstance(metadata, dict):
                self._learn_name(name, metadata.get("generateName"))

    def revision(self, value: str, *, of_list: bool) -> str:
        if not value.isdecimal():
            return value
        rank = bisect.bisect_right(self._revisions, int(value))
        return f"after#{rank}" if of_list else f"revision#{rank}"

    def text(self, value: str) -> str:
        """Replace what was drawn in ``value``, wherever in it."""
        if value in self.addresses:
            return self.addresses[value]
        for name, token in self.names.items():
            if name in value:
                value = value.replace(name, token)
        value = _SERVER.sub("<server>", _RUN.sub("run-#", value))
        return _UID.sub(lambda found: self.uids.get(found[0], found[0]), value)


def _sorted(items: list[Any], key: Callable[[Any], Any]) -> list[Any]:
    return sorted(items, key=lambda item: json.dumps(key(item), sort_keys=True))


def _metadata(metadata: dict[str, Any], drawn: _Drawn, *, of_list: bool) -> dict[str, Any]:
    result: dict[str, Any] = _value(metadata, drawn)
    if "resourceVersion" in metadata:
        result["resourceVersion"] = drawn.revision(metadata["resourceVersion"], of_list=of_list)
    if metadata.get("continue"):
        result["continue"] = "<continue>"
    if "managedFields" in metadata:
        fields = [{key: value for key, value in entry.items() if key != "time"} for entry in result["managedFields"]]
        result["managedFields"] = _sorted(fields, lambda entry: {**entry, "fieldsV1": None})
    if metadata.get("finalizers") and NAMESPACE_LABEL in (metadata.get("labels") or {}):
        result["finalizers"] = sorted(result["finalizers"])
    return result


def _status(body: dict[str, Any], drawn: _Drawn) -> dict[str, Any]:
    result = {key: _value(value, drawn) for key, value in body.items() if key != "message"}
    if body.get("metadata"):
        result["metadata"] = _metadata(body["metadata"], drawn, of_list=True)
    if body.get("reason") in COMPARED_MESSAGES:
        result["message"] = drawn.text(body.get("message", ""))
    causes = body.get("details", {}).get("causes")
    if causes:
        kept = [{key: cause[key] for key in ("reason", "field") if key in cause} for cause in causes]
        result["details"]["causes"] = _sorted(kept, lambda cause: [cause.get("field"), cause.get("reason")])
    return result


def _value(value: Any, drawn: _Drawn) -> Any:
    if isinstance(value, str):
        return drawn.text(value)
    if isinstance(value, list):
        return [_value(item, drawn) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("kind") == "Status" and "status" in value:
        return _status(value, drawn)
    result = {drawn.text(key): _value(item, drawn) for key, item in value.items()}
    result |= {key: f"<{key}>" for key in _SERVER_TIMES if value.get(key)}
    if isinstance(value.get("disruptedPods"), dict):
        result["disruptedPods"] = dict.fromkeys(result["disruptedPods"], "<time>")
    if isinstance(value.get("metadata"), dict):
        result["metadata"] = _metadata(value["metadata"], drawn, of_list=_is_list(value))
    return result


def normal_form(exchanges: Sequence[Exchange]) -> list[dict[str, Any]]:
    """Return one JSON value for each step of one world's run."""
    drawn = _Drawn(exchanges)
    result: list[dict[str, Any]] = []
    for exchange in exchanges:
        answer = exchange.answer
        if isinstance(answer, Events):
            result.append({"events": [_value(event, drawn) for event in answer.events], "closed": answer.closed})
            continue
        entry: dict[str, Any] = {"code": answer.code, "body": _value(answer.body, drawn)}
        if answer.warnings:
            entry["warnings"] = len(answer.warnings)
        if answer.retry_after:
            entry["retry_after"] = True
        result.append(entry)
    return result
