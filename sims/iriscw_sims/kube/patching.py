"""PATCH: which kind of patch it is, and what it makes of the object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from iriscw_sims.kube.apply import apply
from iriscw_sims.kube.bodies import read_patched
from iriscw_sims.kube.call import Call
from iriscw_sims.kube.frozen import FrozenDict, thaw
from iriscw_sims.kube.kinds import Json
from iriscw_sims.kube.options import check_options
from iriscw_sims.kube.patches import json_patch, merge
from iriscw_sims.kube.refusals import bad_request, unsupported_media_type
from iriscw_sims.kube.strategic import strategic
from iriscw_sims.kube.writes import update

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

Patch: TypeAlias = Callable[[Call, FrozenDict, Any], Any]


def patch(call: Call) -> tuple[int, FrozenDict]:
    """Patch the object that the path names: 200 (201 for an apply that creates) and the object.

    Raises:
        Refused: 400, 404, 409, 413, 415 or 422.
    """
    kind = call.request.content_type.partition(";")[0].strip()
    accepted = _accepted(call)
    if kind not in accepted:
        raise unsupported_media_type(
            f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
        )
    check_options(call, "PatchOptions", applies=kind == APPLY)
    if kind == APPLY:
        return apply(call)
    change = accepted[kind]
    assert change is not None
    body = thaw(call.request.body)  # frozen branches are taken for the store's own
    return 200, update(call, call.found(), lambda old: _changed(call, change(call, old, body)))


def _changed(call: Call, patched: Json) -> Json:
    """Read what a patch made, which is still the object that the path names."""
    metadata = patched.get("metadata")
    if isinstance(metadata, dict):
        name, namespace = metadata.get("name", ""), metadata.get("namespace", "")
        if name != call.route.name:
            raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({call.route.name})")
        if call.kind.namespaced and namespace != call.route.namespace:
            said = f"the namespace of the object ({namespace}) does not match the namespace on the URL"
            raise bad_request(f"{said} ({call.route.namespace})")
    return read_patched(call, dict(patched))


def _accepted(call: Call) -> dict[str, Patch | None]:
    patches: dict[str, Patch | None] = {JSON_PATCH: _json, MERGE_PATCH: _merge}
    if call.kind.typed:
        patches[STRATEGIC] = _strategic
    return patches | {APPLY: None}


def _json(call: Call, old: FrozenDict, body: Any) -> Json:
    patched = json_patch(old, body)
    if not isinstance(patched, dict):
        raise bad_request("json: cannot unmarshal into an object")
    return patched


def _merge(call: Call, old: FrozenDict, body: Any) -> Json:
    if not isinstance(body, dict):
        raise bad_request("error decoding patch: json: cannot unmarshal into Go value of type map[string]interface {}")
    merged: Json = merge(old, body)
    return merged


def _strategic(call: Call, old: FrozenDict, body: Any) -> Json:
    assert call.kind.schema is not None
    return strategic(call.kind.schema, old, body)
