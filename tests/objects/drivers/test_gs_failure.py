"""What Google's answers mean: a table."""

import json

import pytest

from iriscw.objects.drivers.failure import TEXT_LENGTH, NoStoreCredentials, NoSuchBucket, TryFailure
from iriscw.objects.drivers.gs_failure import answered, port_error
from iriscw.objects.ports import ObjectNotFound, StoreAccessDenied, StoreFull, StoreUnreachable
from iriscw_sims.objects.serve.google_answers import REASONS


def told(status: int, reason: str = "", message: str = "words") -> TryFailure:
    """Return the failure of an answer in Google's form."""
    errors = [{"reason": reason, "message": message}] if reason else []
    return answered(status, json.dumps({"error": {"code": status, "message": message, "errors": errors}}).encode())


@pytest.mark.parametrize(
    ("status", "reason", "certain", "passing"),
    [
        (429, "rateLimitExceeded", True, True),
        (403, "rateLimitExceeded", True, True),
        (403, "forbidden", True, False),
        (401, "authError", True, False),
        (404, "notFound", True, False),
        (412, "conditionNotMet", True, False),
        (400, "invalid", True, False),
        (302, "", True, False),
        (501, "notImplemented", True, False),
        (408, "", False, True),
        (500, "backendError", False, True),
        (502, "", False, True),
        (503, "backendError", False, True),
        (504, "", False, True),
    ],
)
def test_what_a_server_says(status: int, reason: str, certain: bool, passing: bool) -> None:
    """Certain only where nothing has happened for sure; passing where another try may help."""
    failure = told(status, reason)
    assert (failure.certain, failure.passing, failure.code) == (certain, passing, reason)
    assert len(told(status, reason, "w" * 10_000).said) == TEXT_LENGTH


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"error": "x"}', b'{"error": {"errors": 7}}', b"\xff\xfe", b"null"]
)
def test_answers_of_something_on_the_way(body: bytes) -> None:
    """Have a status and no reason."""
    assert answered(502, body).code == ""


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (told(403, "forbidden"), StoreAccessDenied),
        (told(401, "authError"), StoreAccessDenied),
        (told(302), StoreAccessDenied),
        (told(501), StoreAccessDenied),
        (told(403, "quotaExceeded"), StoreFull),
        (told(413, "uploadTooLarge"), StoreFull),
        (told(404, "notFound"), NoSuchBucket),
        (told(429, "rateLimitExceeded"), StoreUnreachable),
        (told(403, "userRateLimitExceeded"), StoreUnreachable),
        (told(400, "invalid"), StoreUnreachable),
        (told(500, "backendError"), StoreUnreachable),
        (TryFailure("silence"), StoreUnreachable),
        (TryFailure("none", certain=True, credentials=True), NoStoreCredentials),
        (TryFailure("in doubt", 403, "forbidden", certain=False), StoreUnreachable),
    ],
)
def test_the_ports_errors(failure: TryFailure, kind: type) -> None:
    """Each has one; a refusal after a doubt is told as the doubt."""
    error = port_error(failure, "reading 'k'")
    assert type(error) is kind
    assert "reading 'k'" in str(error)


def test_nothing_reads_as_absence() -> None:
    """INV-C11: no answer becomes absence here; only a method that asked for an object may say so."""
    for status, reason in REASONS.values():
        assert not isinstance(port_error(told(status, reason), "x"), ObjectNotFound)
