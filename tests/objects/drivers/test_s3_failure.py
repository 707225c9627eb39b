"""What failures mean: a table."""

import pytest

from iriscw.objects.drivers.failure import TEXT_LENGTH, AttemptFailed, NoStoreCredentials, NoSuchBucket, TryFailure
from iriscw.objects.drivers.s3_failure import answered, port_error
from iriscw.objects.ports import ObjectNotFound, StoreAccessDenied, StoreFull, StoreUnreachable
from iriscw_sims.objects.refusals import CODES


@pytest.mark.parametrize(
    ("status", "code", "certain", "passing"),
    [
        (503, "SlowDown", True, True),
        (503, "ServiceUnavailable", True, True),
        (503, "", False, True),  # of something on the way
        (429, "", True, True),
        (409, "ConditionalRequestConflict", True, True),
        (400, "RequestTimeout", True, True),
        (400, "InvalidRequest", True, False),
        (403, "AccessDenied", True, False),
        (404, "NoSuchKey", True, False),
        (412, "PreconditionFailed", True, False),
        (301, "PermanentRedirect", True, False),
        (500, "InternalError", False, True),
        (502, "", False, True),
        (504, "", False, True),
        (501, "NotImplemented", True, False),
        (200, "InternalError", False, True),
    ],
)
def test_what_a_server_says(status: int, code: str, certain: bool, passing: bool) -> None:
    """Certain only where nothing has happened for sure; passing where another try may help."""
    failure = answered(status, code, "words")
    assert (failure.certain, failure.passing) == (certain, passing)
    assert len(answered(status, code, "w" * 10_000).said) == TEXT_LENGTH


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (answered(403, "AccessDenied", ""), StoreAccessDenied),
        (answered(401, "", ""), StoreAccessDenied),
        (answered(403, "QuotaExceeded", ""), StoreFull),
        (answered(404, "NoSuchBucket", ""), NoSuchBucket),
        (answered(400, "PathStyleRequestNotAllowed", ""), StoreAccessDenied),
        (answered(501, "", ""), StoreAccessDenied),
        (answered(503, "SlowDown", ""), StoreUnreachable),
        (answered(500, "InternalError", ""), StoreUnreachable),
        (answered(418, "Teapot", ""), StoreUnreachable),
        (TryFailure("silence"), StoreUnreachable),
        (TryFailure("none", certain=True, credentials=True), NoStoreCredentials),
        (TryFailure("in doubt", 403, "AccessDenied", certain=False), StoreUnreachable),
    ],
)
def test_the_ports_errors(failure: TryFailure, kind: type) -> None:
    """Each has one; a refusal after a doubt is told as the doubt."""
    error = port_error(failure, "reading 'k'")
    assert type(error) is kind
    assert "reading 'k'" in str(error)


def test_nothing_reads_as_absence() -> None:
    """INV-C11: no code of S3's becomes absence here; only a method that asked for an object may say so."""
    for code, (status, message) in CODES.items():
        assert not isinstance(port_error(answered(status, code, message), "x"), ObjectNotFound)


def test_an_attempts_error_says_what_failed() -> None:
    """For logs, and for those who know only errors."""
    failed = AttemptFailed(answered(503, "SlowDown", "please"))
    assert str(failed) == "503 SlowDown: please"
