"""What servers and proxies answer becomes values, whatever it is."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st

from iriscw.cloud.drivers.kube.answers import TEXT_CHARS, decoded, event_of, refusal_event, retry_after_of
from iriscw.cloud.kube.messages import ApiResponse, ApiUnreachable
from iriscw.cloud.kube.refusals import answered, status_of_event
from iriscw.runtime.vocabulary import SECOND

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
DEEP = b"[" * 200_000


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0", 0),
        ("7", 7),
        (" 30 ", 30),
        ("Sat, 21 Nov 2026 12:00:10 GMT", 10),
        ("Sat, 21 Nov 2026 11:00:00 GMT", 0),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("9" * 400, None),
        ("²", None),
        ("Sat, 99 Nov 2026 12:00:10 GMT", None),
    ],
)
def test_retry_after(header, seconds):
    """Seconds or a date; what is neither says nothing, and the past means now."""
    assert retry_after_of({"Retry-After": header}, NOW) == (None if seconds is None else seconds * SECOND)


def test_a_date_is_by_the_senders_clock():
    """Ours may be wrong by hours."""
    headers = {"Retry-After": "Sat, 21 Nov 2026 09:00:05 GMT", "Date": "Sat, 21 Nov 2026 09:00:00 GMT"}
    assert retry_after_of(headers, NOW) == 5 * SECOND


@given(st.text(), st.text())
def test_no_header_breaks_it(header, date):
    """Headers are written by anybody."""
    found = retry_after_of({"Retry-After": header, "Date": date}, NOW)
    assert found is None or found >= 0


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", None),
        (b" \n", None),
        (b'{"a": 1}', {"a": 1}),
        (b"<html>502 Bad Gateway</html>", "<html>502 Bad Gateway</html>"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b'{"a": ', '{"a": '),
    ],
)
def test_bodies(data, found):
    """JSON as it is, all else as the beginning of its text."""
    assert decoded(data) == found


@given(st.binary())
def test_no_body_breaks_it(data):
    """Bodies are written by anybody."""
    decoded(data)


@pytest.mark.parametrize("data", [DEEP, b"9" * 10_000, b"x" * 10_000])
def test_what_no_parser_likes_is_text(data):
    """Nested too deeply, a number too long, a text without an end: kept short."""
    assert len(decoded(data)) <= TEXT_CHARS


@pytest.mark.parametrize("line", [b"1", b"[]", b"null", b"{", b"\xc3", DEEP, b"<html>"])
def test_a_line_that_is_no_event(line):
    """Nothing behind it can be trusted."""
    with pytest.raises(ApiUnreachable):
        event_of(line)


def test_a_refused_watch_is_one_event():
    """It says what the answer itself says, also when its body does not: the code, and how long to wait."""
    body = {"kind": "Status", "reason": "Expired", "message": "too old", "code": 410}
    for answer in (
        ApiResponse(410, body),
        ApiResponse(429, None, 1_500_000_000),
        ApiResponse(503, "<html>", 3 * SECOND),
        ApiResponse(500, {"details": "none", "code": 200, "message": "no"}, 0),
        ApiResponse(302, [1]),
    ):
        event = refusal_event(answer)
        assert event["type"] == "ERROR"
        told, itself = status_of_event(event["object"]), answered(answer)
        assert (told.code, told.reason, told.text) == (itself.code, itself.reason, itself.text)
        if answer.retry_after:
            assert told.retry_after == -(-answer.retry_after // SECOND) * SECOND
