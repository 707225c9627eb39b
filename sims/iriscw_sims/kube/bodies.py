"""Bodies: what a caller sent, read as an object of the kind that the path names.

Built-in kinds are read by their Go types: a value of another type is a 400, a field that does not exist is dropped,
and told as a warning, or as a 400, or not at all, as the caller's ``fieldValidation`` wants it. Custom resources are
pruned and given their defaults; their values are judged later, with causes (422).
"""

from __future__ import annotations

from iriscw_sims.kube import structural
from iriscw_sims.kube.call import Call
from iriscw_sims.kube.frozen import thaw
from iriscw_sims.kube.kinds import Json, nested
from iriscw_sims.kube.options import check_options, validation_of
from iriscw_sims.kube.refusals import (
    Refused,
    bad_request,
    invalid,
    invalid_value,
    unsupported_media_type,
)
from iriscw_sims.kube.schema import Unreadable, core_schema, read

OBJECT_TYPES = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "")
UNKNOWN_TYPE = (
    "the body of the request was in an unknown format - accepted media types include: application/json, "
    "application/yaml, application/vnd.kubernetes.protobuf"
)


def read_object(call: Call) -> Json:
    """Read the body as a new object of the call's kind, complete with kind, apiVersion and defaults.

    Raises:
        Refused: 400, it is none, or has fields it may not have; 415, it is of no known type.
    """
    check_options(call, "CreateOptions" if call.request.method == "POST" else "UpdateOptions")
    if call.request.content_type.partition(";")[0].strip() not in OBJECT_TYPES:
        raise unsupported_media_type(UNKNOWN_TYPE)
    body = call.request.body
    if not isinstance(body, dict):
        raise bad_request(f"couldn't get version/kind; json parse error: not an object: {type(body).__name__}")
    new: Json = thaw(body)
    _check_kind(call, new)
    unknown: list[str] = []
    try:
        new = read_as(call, new, unknown)
    except Unreadable as wrong:
        raise bad_request(f"{_cannot(call)}: {wrong}") from wrong
    if unknown and validation_of(call) == "Strict":
        raise bad_request(f"{_cannot(call)}: strict decoding error: {_listed(unknown)}")
    _warn(call, unknown)
    return new


def read_patched(call: Call, patched: Json) -> Json:
    """Read what a patch made of an object.

    Raises:
        Refused: 422, it is not an object of its kind any more, or has fields it may not have.
    """
    if patched.get("apiVersion") != call.kind.api_version or patched.get("kind") != call.kind.kind:
        _check_kind(call, patched)
    unknown: list[str] = []
    try:
        new = read_as(call, patched, unknown)
    except Unreadable as wrong:
        raise invalid("", "", "", [invalid_value("patch", patched, str(wrong))]) from wrong
    if unknown and validation_of(call) == "Strict":
        said = f"strict decoding error: {_listed(unknown)}"
        raise invalid("", "", "", [invalid_value("patch", patched, said)])
    _warn(call, unknown)
    return new


def read_as(call: Call, value: Json, unknown: list[str]) -> Json:
    """Read a value as the call's kind, with defaults; ``unknown`` gets the fields that were dropped.

    Raises:
        Unreadable: A value is of another type than a built-in type's field, or than metadata.
    """
    kind = call.kind
    if call.objects.storage is not None:
        value = thaw(value)  # what a view shows has not been given its version's defaults
    if kind.typed:
        assert kind.schema is not None
        new: Json = read(kind.schema, value, "", unknown)
        new["kind"], new["apiVersion"] = kind.kind, kind.api_version
    else:
        metadata = read(core_schema("ObjectMeta"), value.get("metadata") or {}, "metadata", unknown)
        new = {**value, "metadata": metadata}
        if kind.schema is not None:
            new = structural.complete(kind.schema, new, unknown)
    if nested(value, "metadata", "managedFields") == []:
        new["metadata"] = {**new["metadata"], "managedFields": []}  # empty, it means more than absent
    kind.default(new, None)
    return new


def _warn(call: Call, unknown: list[str]) -> None:
    if validation_of(call) in ("", "Warn"):
        call.warnings.extend(f'unknown field "{field}"' for field in unknown)


def _listed(unknown: list[str]) -> str:
    return ", ".join(f'unknown field "{field}"' for field in unknown)


def _cannot(call: Call) -> str:
    return f'{call.kind.kind} in version "{call.kind.version}" cannot be handled as a {call.kind.kind}'


def _check_kind(call: Call, new: Json) -> None:
    kind = call.kind
    version, name = new.get("apiVersion") or "", new.get("kind") or ""
    if kind.typed:
        version, name = version or kind.api_version, name or kind.kind
    elif not name:
        raise bad_request("Object 'Kind' is missing")
    if version != kind.api_version:
        raise _other_version(call, version)
    if name != kind.kind:
        raise bad_request(
            f'{name} in version "{kind.version}" cannot be handled as a {kind.kind}: the object provided is '
            f"unrecognized (must be of type {kind.kind})"
        )


def _other_version(call: Call, version: str) -> Refused:
    said = f"the API version in the data ({version}) does not match the expected API version ({call.kind.api_version})"
    return bad_request(said)
