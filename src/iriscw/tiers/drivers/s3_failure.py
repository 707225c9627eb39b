"""Why an attempt at a request came to nothing, and what that means in the words of the ObjectStore port.

A failure has two sides that matter. It is *certain* if the request has changed nothing and never will: the server said
no before it began, or was never reached. Silence, a broken connection and a server's own error are not certain: the
request may have been done, or may be done yet. And it is *passing* if the same request may go well later.

The table errs on the side of doubt: a code that nobody thought of never reads as absence (INV-C11).
"""

from __future__ import annotations

import attrs

from iriscw.errors import OperationError
from iriscw.tiers.ports import StoreAccessDenied, StoreFull, StoreUnreachable

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

TEXT_LENGTH = 300
"""Of what a server said, in letters."""


class NoStoreCredentials(StoreAccessDenied):
    """There are no credentials for the store: neither ``AWS_ACCESS_KEY_ID`` and ``AWS_SECRET_ACCESS_KEY``, nor a
    shared credentials file with the profile.
    """


class NoSuchBucket(StoreAccessDenied):
    """The service knows no bucket of this name. Says nothing of the absence of objects: it may be another service."""


@attrs.frozen
class Failure:
    """How an attempt failed."""

    said: str
    """For people; without secrets."""
    status: int = 0
    """HTTP's; 0: no answer came."""
    code: str = ""
    """S3's; HEAD has none."""
    certain: bool = False
    """Whether nothing has happened, and nothing will."""
    passing: bool = True
    """Whether the same may go well later."""
    credentials: bool = False
    """Whether there were none to sign with."""

    @property
    def denied(self) -> bool:
        """Whether the server refused because of who asked."""
        return self.status in {401, 403} and self.code not in NO_ROOM


class AttemptFailed(OperationError):
    """A request came to nothing; for the driver's own use, which makes an error of the port of it."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.said)


def answered(status: int, code: str, message: str) -> Failure:
    """Give the failure that a server told."""
    said = f"{status} {code}: {message}"[:TEXT_LENGTH]
    if code in NOT_BEGUN or code in IN_THE_WAY or code == NO_BODY or status == 429:
        return Failure(said, status, code, certain=True)
    if status == 501:
        return Failure(said, status, code or "NotImplemented", certain=True, passing=False)
    if 300 <= status < 500:
        return Failure(said, status, code, certain=True, passing=False)
    return Failure(said, status, code)


def port_error(failure: Failure, what: str) -> OperationError:
    """Give the port's error for a failure, where its meaning depends on neither method nor condition.

    Args:
        failure: How the last attempt failed; certain only if all did so.
        what: Was asked for, for people.
    """
    said = f"{what}: {failure.said}"
    if failure.credentials:
        return NoStoreCredentials(said)
    if not failure.certain:
        return StoreUnreachable(said)
    if failure.code in NO_ROOM or failure.status == 507:
        return StoreFull(said)
    if failure.code == "NoSuchBucket":
        return NoSuchBucket(said)
    if failure.denied or failure.code in REFUSED:
        return StoreAccessDenied(said)
    return StoreUnreachable(said)
