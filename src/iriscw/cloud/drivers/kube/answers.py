"""What came back over HTTP, as values: bodies, ``Retry-After``, refusals as events.

Theory of operation. Between us and the API server stand proxies that answer in HTML, balancers that answer in
nothing, and tunnels that cut off. A body that is not JSON is kept as the beginning of its text, for people; whether an
answer makes sense is judged by who asked. Nothing here raises because of what somebody else wrote, but for an event of
a watch that cannot be read: behind that, nothing in its stream can be trusted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from iriscw.cloud.kube.messages import ApiResponse, ApiUnreachable
from iriscw.runtime.vocabulary import SECOND

TEXT_CHARS = 300
"""What is kept of an answer that is not JSON: the title of an error page stands within it."""

RETRY_AFTER_DIGITS = 9
"""Thirty years in seconds; what is longer is not a number of seconds."""


def decoded(data: bytes | bytearray) -> Any:
    """Read a body: JSON as Python has it, else the beginning of its text, or None if it is empty."""
    if not data or data.isspace():
        return None
    try:
        return json.loads(str(data, "utf-8"))
    except (ValueError, RecursionError):  # RecursionError: nested deeper than any object is
        return str(data[: 4 * TEXT_CHARS], "utf-8", "replace")[:TEXT_CHARS]


def event_of(line: bytes) -> Mapping[str, Any]:
    """Read one line of a watch.

    Raises:
        ApiUnreachable: it is not an event.
    """
    try:
        event = json.loads(str(line, "utf-8"))
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        raise ApiUnreachable("a watch told something that is not an event")
    return event


def retry_after_of(headers: Mapping[str, str], now: datetime) -> int | None:
    """Read ``Retry-After``, in ns: seconds, or a date, which is compared with the sender's own clock.

    Args:
        headers: Of the answer, whatever their case.
        now: The time, for senders who do not tell theirs (``Date``).
    """
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdecimal():
        return int(text) * SECOND if len(text) <= RETRY_AFTER_DIGITS else None
    due = _date(text)
    if due is None:
        return None
    return max(0, round((due - (_date(headers.get("Date", "")) or now)).total_seconds())) * SECOND


def _date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def refusal_event(answer: ApiResponse) -> Mapping[str, Any]:
    """Write a refused watch as the one ``ERROR`` event that the port promises, whatever the body was."""
    body = answer.body if isinstance(answer.body, dict) else {}
    status: dict[str, Any] = {"message": f"the server answered {answer.code}", **body, "code": answer.code}
    if answer.retry_after is not None:
        details = body.get("details")
        seconds = -(-answer.retry_after // SECOND)
        status["details"] = {**(details if isinstance(details, dict) else {}), "retryAfterSeconds": seconds}
    return {"type": "ERROR", "object": {"kind": "Status", "status": "Failure", **status}}
