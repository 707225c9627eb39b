"""The scale subresource: how many replicas, without having to know the kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from iriscw_sims.kube.call import Call
from iriscw_sims.kube.frozen import FrozenDict, thaw
from iriscw_sims.kube.kinds import Json, nested
from iriscw_sims.kube.managed import Managed, in_order, manager_of
from iriscw_sims.kube.ownership import Path, has, insert, remove
from iriscw_sims.kube.patches import json_patch, merge
from iriscw_sims.kube.refusals import (
    Cause,
    bad_request,
    internal_error,
    invalid,
    invalid_value,
    method_not_allowed,
)
from iriscw_sims.kube.writes import update

MOST = (1 << 31) - 1


def scale(call: Call) -> tuple[int, Json]:
    """Read or change an object's scale: 200 and a Scale.

    Raises:
        Refused: 400, 404, 405, 409 or 422.
    """
    item = call.found()
    shown = scale_of(call, item)
    method, body = call.request.method, call.request.body
    if method == "GET":
        assert call.kind.scale is not None
        path = call.kind.scale.wanted
        if not call.kind.typed and nested(item, *_names(path)) is None:
            raise internal_error(f'the spec replicas field "{path}" does not exist')
        return 200, shown
    if method == "PUT" and isinstance(body, dict):
        wanted = body
    elif method == "PATCH":
        is_json_patch = call.request.content_type.partition(";")[0] == "application/json-patch+json"
        wanted = json_patch(shown, thaw(body)) if is_json_patch else merge(shown, thaw(body))
    else:
        raise method_not_allowed()
    replicas = nested(wanted, "spec", "replicas") or 0
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        raise bad_request("json: cannot unmarshal into Go struct field ScaleSpec.spec.replicas of type int32")
    if replicas < 0 and call.kind.typed:  # a custom resource's own validation says so
        said = "must be greater than or equal to 0"
        name = call.route.name
        raise invalid("autoscaling", "Scale", name, [invalid_value("spec.replicas", replicas, said)])
    version = nested(wanted, "metadata", "resourceVersion")
    updated = update(call, item, lambda old: _scaled(call, old, replicas, version), applied=True)
    return 200, scale_of(call, updated)


def _scaled(call: Call, old: FrozenDict, replicas: int, version: Any) -> Json:
    assert call.kind.scale is not None
    path = _names(call.kind.scale.wanted)
    new = _with(old, path, replicas)
    entries = _owned(call, old, nested(old, *path) or 0, replicas)
    metadata = {name: part for name, part in old["metadata"].items() if name != "managedFields"}
    new["metadata"] = metadata | ({"managedFields": entries} if entries else {})
    if version:
        new["metadata"]["resourceVersion"] = version
    return new


def _owned(call: Call, old: FrozenDict, was: int, replicas: int) -> Any:
    """Return managedFields after a change of the number: whoever owned it loses it to who scaled.

    A Scale leaves out a zero, so nobody owns that; and who nobody owns anything of, nobody tracks.
    """
    assert call.kind.scale is not None
    path = tuple(f"f:{name}" for name in _names(call.kind.scale.wanted))
    managed = Managed.of(old["metadata"].get("managedFields") or ())
    if was == replicas:
        return _set_apart(call, managed, path)
    if any(has(tree, path) for tree in managed.fields.values()):
        managed.lose([path])
        if replicas:
            manager = manager_of(call, "Update")
            managed.fields[manager] = insert(managed.fields.get(manager) or {}, path)
    return managed.written()


def _set_apart(call: Call, managed: Managed, path: Path) -> list[Json]:
    """Return managedFields after a scaling that changed nothing: an oddity of the real server, which does change them.

    It does not know its updaters again after their entries were a Scale's: their number is taken from them, and given
    to an entry of the same name, without a time. The next who reads both takes the later one for all there is.
    """
    owners = [each for each, tree in managed.fields.items() if each.operation == "Update" and has(tree, path)]
    for owner in owners:
        left = remove(managed.fields.pop(owner), path)
        if left:
            managed.fields[owner] = left
        else:
            managed.times.pop(owner, None)
    apart = Managed({attrs.evolve(owner, version=call.kind.api_version): insert({}, path) for owner in owners})
    return in_order([*managed.written(), *apart.written()])


def _with(value: Json, path: list[str], leaf: int) -> Json:
    inner = leaf if len(path) == 1 else _with(value.get(path[0]) or {}, path[1:], leaf)
    return {**value, path[0]: inner}


def scale_of(call: Call, item: Json) -> Json:
    """Return an object's Scale."""
    paths = call.kind.scale
    assert paths is not None
    metadata = item["metadata"]
    kept = {
        name: metadata[name]
        for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        if name in metadata
    }
    status: Json = {"replicas": nested(item, *_names(paths.current)) or 0}
    selector = _selector(nested(item, *_names(paths.selector))) if paths.selector else ""
    if selector:
        status["selector"] = selector
    replicas = nested(item, *_names(paths.wanted)) or 0
    spec = {"replicas": replicas} if replicas else {}
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": kept, "spec": spec, "status": status}


def _selector(value: Any) -> str:
    if isinstance(value, str):
        return value
    labels = nested(value, "matchLabels") or {}
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels))


def _names(path: str) -> list[str]:
    return path.strip(".").split(".")


def judge_replicas(path: str, item: Json) -> Iterator[Cause]:
    """Judge a number of replicas where a custom resource keeps it."""
    value = nested(item, *_names(path))
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        yield invalid_value(path, 0, f"{path} accessor error: is not an integer")
    elif value < 0:
        yield invalid_value(path, value, "should be a non-negative integer")
    elif value > MOST:
        yield invalid_value(path, value, f"should be less than or equal to {MOST}")
