"""JSON patch (RFC 6902) and JSON merge patch (RFC 7396) on trees that may be frozen.

Both give a new tree that shares what did not change. JSON patch follows ``gopkg.in/evanphx/json-patch.v4`` where the
API server's library is looser or stricter than the RFC.
"""

from __future__ import annotations

from typing import Any

from iriscw_sims.kube.frozen import thaw
from iriscw_sims.kube.refusals import Refused, bad_request, status_failure

OPERATIONS_LIMIT = 10_000
"""Operations of one JSON patch, as in ``patch.go`` (``maxJSONPatchOperations``)."""


def merge(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch: ``null`` removes, objects merge, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    base = target if isinstance(target, dict) else {}
    merged = dict(base)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(base.get(name), value)
    return merged


def json_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON patch.

    Raises:
        Refused: 400 for what is no patch, 413 for too many operations, 422 for one that does not fit the target.
    """
    if not isinstance(patch, list) or not all(isinstance(operation, dict) for operation in patch):
        raise bad_request("error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    if len(patch) > OPERATIONS_LIMIT:
        said = f"The allowed maximum operations in a JSON patch is {OPERATIONS_LIMIT}, got {len(patch)}"
        raise Refused(status_failure(413, "RequestEntityTooLarge", f"Request entity too large: {said}"))
    for operation in patch:
        target = _operate(target, operation)
    return target


def _unfit() -> Refused:
    return Refused(status_failure(422, "Invalid", "the server rejected our request due to an error in our request", {}))


def _operate(target: Any, operation: dict[str, Any]) -> Any:
    name = operation.get("op")
    path = operation.get("path")
    if not isinstance(path, str):
        raise _unfit()
    keys = _pointer(path)
    if name == "add":
        return _changed(target, keys, operation.get("value"), "add")
    if name == "replace":
        return _changed(target, keys, operation.get("value"), "replace")
    if name == "remove":
        return _changed(target, keys, None, "remove")
    if name == "test":
        found = _found(target, keys, "test")
        if found != operation.get("value") or isinstance(found, bool) != isinstance(operation.get("value"), bool):
            raise _unfit()
        return target
    if name in ("move", "copy"):
        source = _pointer(str(operation.get("from", "")))
        value = thaw(_found(target, source, name))  # frozen branches are the store's own only where they were
        if name == "move":
            target = _changed(target, source, None, "remove")
        return _changed(target, keys, value, "add")
    raise _unfit()


def _pointer(path: str) -> list[str]:
    if path == "":
        return []
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _index(items: list[Any], key: str) -> int:
    if not key.removeprefix("-").isdecimal():
        raise _unfit()
    index = int(key)
    if index < 0:
        index += len(items)
    if not 0 <= index < len(items):
        raise _unfit()
    return index


def _found(target: Any, keys: list[str], verb: str) -> Any:
    for index, key in enumerate(keys):
        if isinstance(target, dict) and key in target:
            target = target[key]
        elif isinstance(target, list):
            target = target[_index(target, key)]
        elif isinstance(target, dict) and verb != "move" and index == len(keys) - 1:
            return None  # what is missing at the end is null, for test and copy
        else:
            raise _unfit()
    return target


def _changed(target: Any, keys: list[str], value: Any, verb: str) -> Any:
    if not keys:
        if verb != "replace" or not isinstance(value, dict | list):
            raise _unfit()
        return value
    key, rest = keys[0], keys[1:]
    if isinstance(target, dict):
        return _changed_object(target, key, rest, value, verb)
    if isinstance(target, list):
        return _changed_array(target, key, rest, value, verb)
    raise _unfit()


def _changed_object(target: dict[str, Any], key: str, rest: list[str], value: Any, verb: str) -> Any:
    changed = dict(target)
    if key not in changed and (rest or verb == "remove"):
        raise _unfit()  # a replacement of what is missing adds it, whatever RFC 6902 says
    if rest:
        changed[key] = _changed(changed[key], rest, value, verb)
    elif verb == "remove":
        del changed[key]
    else:
        changed[key] = value
    return changed


def _changed_array(target: list[Any], key: str, rest: list[str], value: Any, verb: str) -> Any:
    changed = list(target)
    if rest:
        index = _index(changed, key)
        changed[index] = _changed(changed[index], rest, value, verb)
    elif verb == "add":
        if key == "-":
            changed.append(value)
        else:
            changed.insert(_index([*changed, None], key), value)  # -1 is behind the last
    elif verb == "remove":
        del changed[_index(changed, key)]
    else:
        changed[_index(changed, key)] = value
    return changed
