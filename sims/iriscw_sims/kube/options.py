"""Options of writes: judged together before anything else, so that a caller hears of all that is wrong with them."""

from __future__ import annotations

from iriscw_sims.kube.call import Call
from iriscw_sims.kube.refusals import Cause, forbidden_value, invalid, invalid_value, required_value, unsupported_value

VALIDATIONS = ("", "Ignore", "Strict", "Warn")
"""What to do about fields that a kind does not have; ``""`` warns."""

FIELD_MANAGER_LIMIT = 128
"""Characters of a field manager's name (``FieldManagerMaxLength``)."""


def validation_of(call: Call) -> str:
    """Return the request's ``fieldValidation``."""
    return call.request.parameter("fieldValidation")


def check_options(call: Call, kind: str, *, applies: bool = False) -> None:
    """Check the options of a write.

    Args:
        call: The request.
        kind: ``CreateOptions``, ``UpdateOptions`` or ``PatchOptions``, as messages name them.
        applies: Whether it is a server-side apply, which may be forced and must name its manager.

    Raises:
        Refused: 422, one of them has no such value, or does not go with the request.
    """
    if not call.request.query:
        if applies:
            raise _wrong(kind, [required_value("fieldManager", "is required for apply patch")])
        return
    manager = call.request.parameter("fieldManager")
    causes: list[Cause] = []
    if applies and not manager:
        causes.append(required_value("fieldManager", "is required for apply patch"))
    if kind == "PatchOptions" and not applies and any(name == "force" for name, _ in call.request.query):
        causes.append(forbidden_value("force", "may not be specified for non-apply patch"))
    if len(manager) > FIELD_MANAGER_LIMIT:
        text = f"Too long: may not be more than {FIELD_MANAGER_LIMIT} bytes"
        causes.append(Cause("FieldValueTooLong", "fieldManager", text))
    if not manager.isprintable():
        causes.append(invalid_value("fieldManager", manager, "should only contain printable characters"))
    dry = [value for name, value in call.request.query if name == "dryRun"]
    if any(value != "All" for value in dry):
        causes.append(unsupported_value("dryRun", dry, ("All",)))
    if validation_of(call) not in VALIDATIONS:
        causes.append(unsupported_value("fieldValidation", validation_of(call), VALIDATIONS))
    if causes:
        raise _wrong(kind, causes)


def _wrong(kind: str, causes: list[Cause]) -> Exception:
    return invalid("meta.k8s.io", kind, "", causes)
