"""What S3's answers mean: which failures they are, and what those are in the words of the ObjectStore port.

The table errs on the side of doubt: a code that nobody thought of never reads as absence (INV-C11).
"""

from __future__ import annotations

from iriscw._errors import OperationError
from iriscw.objects.drivers.failure import TEXT_LENGTH, TryFailure, port_error_of

NOT_BEGUN = frozenset({"SlowDown", "ServiceUnavailable", "Throttling", "ThrottlingException", "RequestLimitExceeded"})
"""Codes of servers that are too busy to begin."""

IN_THE_WAY = frozenset({"ConditionalRequestConflict", "OperationAborted"})
"""Codes for: another request was at the same object at the same time. Nothing was done, and it may be tried again."""

NO_BODY = "RequestTimeout"
"""The body did not come in time: status 400, although nothing was wrong with the request."""

NO_ROOM = frozenset({"QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "EntityTooLarge"})

REFUSED = frozenset(
    {
        "AuthorizationHeaderMalformed",  # the region is another one, and does not say which
        "IllegalLocationConstraintException",
        "InvalidBucketName",
        "NotImplemented",
        "PathStyleRequestNotAllowed",
        "PermanentRedirect",
    }
)
"""Codes for: as this store is set up, never."""


def answered(status: int, code: str, message: str) -> TryFailure:
    """Return the failure that a server told."""
    said = f"{status} {code}: {message}"[:TEXT_LENGTH]
    if code in NOT_BEGUN or code in IN_THE_WAY or code == NO_BODY or status == 429:
        return TryFailure(said, status, code, certain=True)
    if status == 501:
        return TryFailure(said, status, code or "NotImplemented", certain=True, passing=False)
    full = code in NO_ROOM or status == 507
    if 300 <= status < 500:
        return TryFailure(said, status, code, certain=True, passing=False, full=full)
    return TryFailure(said, status, code, full=full)


def port_error(failure: TryFailure, what: str) -> OperationError:
    """Return the port's error for a failure of this service (:func:`~iriscw.objects.drivers.failure.port_error_of`)."""
    never = failure.denied or failure.code in REFUSED
    return port_error_of(failure, what, no_bucket=failure.code == "NoSuchBucket", never=never)
