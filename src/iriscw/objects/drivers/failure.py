"""Why an attempt at a request to a storage service came to nothing: what all services' drivers say of it.

A failure has two sides that matter. It is *certain* if the request has changed nothing and never will: the server said
no before it began, or was never reached. Silence, a broken connection and a server's own error are not certain: the
request may have been done, or may be done yet. And it is *passing* if the same request may go well later.

Which answer is what, is said by each service's own table (:mod:`~iriscw.objects.drivers.s3_failure`,
:mod:`~iriscw.objects.drivers.gs_failure`).
"""

from __future__ import annotations

import attrs

from iriscw._errors import OperationError
from iriscw.objects.ports import StoreAccessDenied, StoreFull, StoreUnreachable

TEXT_LENGTH = 300
"""Of what a server said, in letters."""


class NoStoreCredentials(StoreAccessDenied):
    """There are no credentials for the store: neither in the environment nor in the files where they are looked for."""


class NoSuchBucket(StoreAccessDenied):
    """The service knows no bucket of this name. Says nothing of the absence of objects: it may be another service."""


@attrs.frozen
class TryFailure:
    """How an attempt failed."""

    said: str
    """For people; without secrets."""
    status: int = 0
    """HTTP's; 0: no answer came."""
    code: str = ""
    """The service's; some answers have none."""
    certain: bool = False
    """Whether nothing has happened, and nothing will."""
    passing: bool = True
    """Whether the same may go well later."""
    credentials: bool = False
    """Whether there were none to ask with."""
    full: bool = False
    """Whether there was no room."""

    @property
    def denied(self) -> bool:
        """Whether the server refused because of who asked."""
        return self.status in {401, 403} and not self.full


GIVEN_UP = TryFailure("the request was given up inside of the HTTP client")
"""A cancellation that came out of the client although nobody cancelled the request."""


class AttemptFailed(OperationError):
    """A request came to nothing; for the driver's own use, which makes an error of the port of it."""

    def __init__(self, failure: TryFailure) -> None:
        self.failure = failure
        super().__init__(failure.said)


def port_error_of(failure: TryFailure, what: str, *, no_bucket: bool, never: bool) -> OperationError:
    """Return the port's error for a failure, where its meaning depends on neither method nor condition.

    Args:
        failure: How the last attempt failed; certain only if all did so.
        what: Was asked for, for people.
        no_bucket: Whether the service says that the bucket is not there.
        never: Whether it says that it will not, as this store is set up or as who asks.
    """
    said = f"{what}: {failure.said}"
    if failure.credentials:
        return NoStoreCredentials(said)
    if not failure.certain:
        return StoreUnreachable(said)
    if failure.full:
        return StoreFull(said)
    if no_bucket:
        return NoSuchBucket(said)
    if never:
        return StoreAccessDenied(said)
    return StoreUnreachable(said)
