"""Everything the API server says no with: one function per kind of Status, with the server's own words.

A refusal is raised wherever it is found out and becomes a response at the outermost edge of the store. The shapes and
messages follow ``k8s.io/apimachinery/pkg/api/errors`` and are part of the protocol: clients tell an AlreadyExists from
a Conflict by ``reason``, and people read ``message``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from iriscw._errors import OperationError
from iriscw_sims.kube.messages import Response


class Refused(OperationError):
    """The API server refuses a request; the Status says why."""

    def __init__(self, status: dict[str, Any]) -> None:
        super().__init__(status["message"])
        self.status = status

    def response(self) -> Response:
        """Return the response that carries this refusal."""
        seconds = self.status.get("details", {}).get("retryAfterSeconds")
        return Response(self.status["code"], self.status, (("Retry-After", str(seconds)),) if seconds else ())


@attrs.frozen
class Cause:
    """One field that is wrong: ``kind`` is ``FieldValueInvalid`` and the like, ``text`` what is said about it."""

    kind: str
    field: str
    text: str

    def as_status(self) -> dict[str, Any]:
        """Return the entry of ``details.causes``."""
        return {"reason": self.kind, "message": self.text, "field": self.field}


def quoted(value: Any) -> str:
    """Return a value as Go's ``%q`` or ``%v`` shows it within a field error."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if value is None:
        return "null"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    return _json(value)


def _json(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{quoted(key)}:{_json(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    return quoted(value)


def invalid_value(field: str, value: Any, detail: str) -> Cause:
    """A value that may not stand there."""
    return Cause("FieldValueInvalid", field, f"Invalid value: {quoted(value)}: {detail}")


def required_value(field: str, detail: str = "") -> Cause:
    """A value that is missing."""
    return Cause("FieldValueRequired", field, "Required value" + (f": {detail}" if detail else ""))


def unsupported_value(field: str, value: Any, supported: Sequence[str]) -> Cause:
    """A value that is none of an enumeration's."""
    names = ", ".join(quoted(name) for name in supported)
    return Cause("FieldValueNotSupported", field, f"Unsupported value: {quoted(value)}: supported values: {names}")


def forbidden_value(field: str, detail: str) -> Cause:
    """A field that may not be set, or not be changed."""
    return Cause("FieldValueForbidden", field, f"Forbidden: {detail}")


def duplicate_value(field: str, value: Any) -> Cause:
    """A value that stands twice where each may stand once."""
    return Cause("FieldValueDuplicate", field, f"Duplicate value: {quoted(value)}")


def type_invalid(field: str, value: Any, detail: str) -> Cause:
    """A value of the wrong type."""
    return Cause("FieldValueTypeInvalid", field, f"Invalid value: {quoted(value)}: {detail}")


def too_long(field: str, limit: int) -> Cause:
    """A value that is longer than ``limit``."""
    return Cause("FieldValueTooLong", field, f"Too long: may not be more than {limit} bytes")


def status_failure(code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a Status that says no. ``details`` that are empty are left out, as are its empty fields."""
    body: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
    }
    if reason:
        body["reason"] = reason
    if details is not None:
        body["details"] = {key: value for key, value in details.items() if value}
    body["code"] = code
    return body


def qualified(group: str, plural: str) -> str:
    """Return a resource's name as messages say it: ``pods``, ``leases.coordination.k8s.io``."""
    return f"{plural}.{group}" if group else plural


def _named(group: str, plural: str, name: str) -> dict[str, Any]:
    return {"name": name, "group": group, "kind": plural}


def not_found(group: str, plural: str, name: str) -> Refused:
    """No object of this name."""
    message = f"{qualified(group, plural)} {quoted(name)} not found"
    return Refused(status_failure(404, "NotFound", message, _named(group, plural, name)))


def no_such_resource() -> Refused:
    """No resource at this path."""
    message = "the server could not find the requested resource"
    return Refused(status_failure(404, "NotFound", message, {}))


def already_exists(group: str, plural: str, name: str, *, generated: bool = False, going: bool = False) -> Refused:
    """An object of this name is there.

    ``generated``: the name could be the server's own choice, so try again. ``going``: what is there is being deleted.
    """
    message = f"{qualified(group, plural)} {quoted(name)} already exists"
    if going:
        message = f"object is being deleted: {message}"
    details = _named(group, plural, name)
    if generated:
        message += ", the server was not able to generate a unique name for the object"
        details["retryAfterSeconds"] = 1
    return Refused(status_failure(409, "AlreadyExists", message, details))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(group: str, plural: str, name: str, detail: str = MODIFIED) -> Refused:
    """What the caller knows of the object is out of date."""
    message = f"Operation cannot be fulfilled on {qualified(group, plural)} {quoted(name)}: {detail}"
    return Refused(status_failure(409, "Conflict", message, _named(group, plural, name)))


def apply_conflict(causes: Sequence[tuple[str, str]], message: str) -> Refused:
    """Others own fields that an apply would change: pairs of field path and what is said about it."""
    listed = [{"reason": "FieldManagerConflict", "message": text, "field": field} for field, text in causes]
    return Refused(status_failure(409, "Conflict", message, {"causes": listed}))


def invalid(group: str, kind: str, name: str, causes: Sequence[Cause]) -> Refused:
    """The object breaks rules of its kind: 422, with one cause per field."""
    said = [f"{cause.field}: {cause.text}" if cause.field else cause.text for cause in causes]
    distinct = [*dict.fromkeys(said)]
    text = distinct[0] if len(distinct) == 1 else "[" + ", ".join(distinct) + "]"
    message = f"{qualified(group, kind)} {quoted(name)} is invalid: {text}"
    details = {"name": name, "group": group, "kind": kind, "causes": [cause.as_status() for cause in causes]}
    return Refused(status_failure(422, "Invalid", message, details))


def bad_request(message: str) -> Refused:
    """The request itself makes no sense."""
    return Refused(status_failure(400, "BadRequest", message))


def forbidden(group: str, plural: str, name: str, detail: str, causes: Sequence[dict[str, Any]] = ()) -> Refused:
    """The caller may not do this, or nobody may now."""
    resource = qualified(group, plural)
    subject = (f"{resource} {quoted(name)}" if name else resource) + " is forbidden" if resource else "forbidden"
    details = {**_named(group, plural, name), "causes": [*causes]}
    return Refused(status_failure(403, "Forbidden", f"{subject}: {detail}", details))


def expired(message: str, resume_from: str = "") -> Refused:
    """What was asked for is compacted away. ``resume_from`` is a token for an inconsistent rest of a list."""
    status = status_failure(410, "Expired", message)
    if resume_from:
        status["metadata"] = {"continue": resume_from}
    return Refused(status)


def method_not_supported(group: str, plural: str, action: str) -> Refused:
    """The resource has no such verb."""
    message = f"{action} is not supported on resources of kind {quoted(qualified(group, plural))}"
    return Refused(status_failure(405, "MethodNotAllowed", message, {"group": group, "kind": plural}))


def method_not_allowed() -> Refused:
    """The path has no such method."""
    message = "the server does not allow this method on the requested resource"
    return Refused(status_failure(405, "MethodNotAllowed", message, {}))


def unsupported_media_type(message: str) -> Refused:
    """The body is of a type that nobody reads here."""
    return Refused(status_failure(415, "UnsupportedMediaType", message))


def too_large_version(version: int, current: int) -> Refused:
    """The caller has seen a future that this server has not: 504, try again."""
    message = f"Too large resource version: {version}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    details = {"causes": causes, "retryAfterSeconds": 1}
    return Refused(status_failure(504, "Timeout", f"Timeout: {message}", details))


def too_many_requests(message: str, seconds: int = 0, causes: Sequence[dict[str, Any]] = ()) -> Refused:
    """Not now: 429 with ``Retry-After``, if there is one."""
    details = {"causes": [*causes], "retryAfterSeconds": seconds}
    return Refused(status_failure(429, "TooManyRequests", message, details))


def internal(message: str, reason: str = "") -> Refused:
    """An error that the server classes as its own."""
    return Refused(status_failure(500, reason, message))


def internal_error(message: str) -> Refused:
    """An error that the server classes as its own, and says so."""
    details = {"causes": [{"message": message}]}
    return Refused(status_failure(500, "InternalError", f"Internal error occurred: {message}", details))
