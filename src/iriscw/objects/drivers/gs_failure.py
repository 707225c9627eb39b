"""What Google's answers mean: which failures they are, and what those are in the words of the ObjectStore port.

Google says why in a *reason* (``notFound``, ``conditionNotMet``); what is not of its JSON interface says a status only.
A missing object and a missing bucket have the same reason: whoever asked for an object looks for the bucket before it
is called absent (INV-C11). The table errs on the side of doubt: a server's own error, 503 included, may have had its
effect.
"""

from __future__ import annotations

import json

from iriscw._errors import OperationError
from iriscw.objects.drivers.failure import TEXT_LENGTH, TryFailure, port_error_of

TOO_FAST = frozenset({"rateLimitExceeded", "userRateLimitExceeded"})
"""Reasons of servers that did not begin."""

NO_ROOM = frozenset({"quotaExceeded", "storageQuotaExceeded", "uploadTooLarge"})

REFUSED = frozenset({301, 302, 303, 307, 401, 403, 405, 501})
"""Statuses that mean: as this store is set up, or as who asks, never."""


def answered(status: int, body: bytes) -> TryFailure:
    """Return the failure that a server told.

    Args:
        status: HTTP's.
        body: As far as it was read.
    """
    reason, message = _told(body)
    said = f"{status} {reason}: {message}"[:TEXT_LENGTH]
    full = reason in NO_ROOM or status in {413, 507}
    if status == 429 or reason in TOO_FAST:
        return TryFailure(said, status, reason, certain=True)
    if status == 408:
        return TryFailure(said, status, reason)
    certain = 300 <= status < 500 or status == 501
    return TryFailure(said, status, reason, certain=certain, passing=not certain, full=full)


def _told(body: bytes) -> tuple[str, str]:
    """Return reason and message; of anything that is no JSON of Google's, its first words."""
    try:
        error = json.loads(body)["error"]
        message = str(error.get("message", ""))
        reasons = [str(each.get("reason", "")) for each in error.get("errors", [])]
    except (ValueError, TypeError, LookupError, AttributeError):
        return "", " ".join(body[: 2 * TEXT_LENGTH].decode(errors="replace").split())
    return reasons[0] if reasons else "", message


def port_error(failure: TryFailure, what: str) -> OperationError:
    """Return the port's error for a failure of this service (:func:`~iriscw.objects.drivers.failure.port_error_of`)."""
    never = failure.status in REFUSED and failure.code not in TOO_FAST
    return port_error_of(failure, what, no_bucket=failure.status == 404, never=never)
