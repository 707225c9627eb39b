"""Everything the storage says no with: S3's named errors, their status and their words.

A refusal is raised wherever it is found out and becomes an :class:`~iriscw_sims.objects.messages.Answer` at the edge
of the storage. Clients tell errors apart by the code, and by the status alone where an answer has no body.
"""

from __future__ import annotations

from iriscw._errors import OperationError
from iriscw_sims.objects.messages import Answer, HeadBucket, HeadObject, Operation

CODES: dict[str, tuple[int, str]] = {
    "AccessDenied": (403, "Access Denied."),
    "BadDigest": (400, "The Content-MD5 that you specified did not match what we received."),
    "BucketAlreadyOwnedByYou": (409, "The bucket that you tried to create already exists, and you own it."),
    "BucketNotEmpty": (409, "The bucket that you tried to delete is not empty."),
    "ConditionalRequestConflict": (409, "The conditional request cannot succeed due to a conflicting operation."),
    "EntityTooLarge": (400, "Your proposed upload exceeds the maximum allowed object size."),
    "EntityTooSmall": (400, "Your proposed upload is smaller than the minimum allowed object size."),
    "InternalError": (500, "We encountered an internal error. Please try again."),
    "InvalidAccessKeyId": (403, "The access key ID that you provided does not exist in our records."),
    "InvalidArgument": (400, "Invalid argument."),
    "InvalidBucketName": (400, "The specified bucket is not valid."),
    "InvalidPart": (400, "One or more of the specified parts could not be found."),
    "InvalidPartOrder": (400, "The list of parts was not in ascending order."),
    "InvalidRange": (416, "The requested range is not satisfiable."),
    "InvalidRequest": (400, "The request is not valid."),
    "KeyTooLongError": (400, "Your key is too long."),
    "MalformedXML": (400, "The XML that you provided was not well formed or did not validate against our schema."),
    "MetadataTooLarge": (400, "Your metadata headers exceed the maximum allowed metadata size."),
    "NoSuchBucket": (404, "The specified bucket does not exist."),
    "NoSuchKey": (404, "The specified key does not exist."),
    "NoSuchUpload": (404, "The specified multipart upload does not exist."),
    "NotImplemented": (501, "A header that you provided implies functionality that is not implemented."),
    "NotModified": (304, "Not modified."),
    "PathStyleRequestNotAllowed": (400, "Path-style requests are not allowed; use virtual-hosted-style."),
    "PreconditionFailed": (412, "At least one of the preconditions that you specified did not hold."),
    "QuotaExceeded": (403, "The request would exceed the storage quota."),
    "ServiceUnavailable": (503, "Service is unable to handle request."),
    "SlowDown": (503, "Please reduce your request rate."),
    "TooManyBuckets": (400, "You have attempted to create more buckets than allowed."),
    "XAmzContentSHA256Mismatch": (400, "The provided 'x-amz-content-sha256' header does not match what was computed."),
}
"""Status and message by code."""

HEADS = (HeadObject, HeadBucket)
"""Operations whose answers never have a body."""


def refusal(code: str, detail: str = "") -> Answer:
    """Return the answer that says no with a code of :data:`CODES`; ``detail`` is said instead of the code's words."""
    status, message = CODES[code]
    return Answer(status, code=code, message=detail or message)


def told(operation: Operation, answer: Answer) -> Answer:
    """Return an answer as its asker sees it.

    A refused HEAD has no body, nor has 304, and so neither code nor message.
    """
    bare = answer.status == 304 or (isinstance(operation, HEADS) and not answer.ok)
    return Answer(answer.status) if bare else answer


class Refused(OperationError):
    """The storage refuses a request, with a code and perhaps words of its own."""

    def __init__(self, code: str, detail: str = "") -> None:
        self.answer = refusal(code, detail)
        super().__init__(f"{code}: {self.answer.message}")
