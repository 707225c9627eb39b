"""Times as the API writes them: RFC 3339 in UTC, to the second or to the microsecond."""

from __future__ import annotations

import datetime
import re
from functools import lru_cache

from iriscw.runtime.vocabulary import SECOND

_WRAP = 1 << 63
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_RFC3339 = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[Tt](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?(?:[Zz]|([+-])(\d{2}):(\d{2}))"
)

_MICRO = re.compile(r":\d\d\.\d{6}(?:[Zz]|[+-])")


@lru_cache(maxsize=1024)
def _written(second: int) -> str:
    return (_EPOCH + datetime.timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")


def go_duration(seconds: int) -> int:
    """Return seconds as Go's ``time.Duration`` of so many, ns: what does not fit into 64 bits wraps around."""
    return (seconds * SECOND + _WRAP) % (2 * _WRAP) - _WRAP


def written(now: int) -> str:
    """Return a time in ns since 1970 as ``metav1.Time`` writes it, to the second, cut off."""
    return _written(now // SECOND)


def written_micro(now: int) -> str:
    """Return a time in ns since 1970 as ``metav1.MicroTime`` writes it, to the microsecond, cut off."""
    return f"{_written(now // SECOND)[:-1]}.{now % SECOND // 1000:06d}Z"


def parsed(text: str) -> int | None:
    """Read RFC 3339 as ns since 1970, ``None`` if it is none."""
    found = _RFC3339.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in found.group(1, 2, 3, 4, 5, 6))
    try:
        at = datetime.datetime(year, month, day, hour, minute, second, tzinfo=datetime.UTC)
    except ValueError:
        return None
    delta = at - _EPOCH
    whole = delta.days * 86_400 + delta.seconds
    if found[8]:
        offset = int(found[9]) * 3600 + int(found[10]) * 60
        whole += offset if found[8] == "-" else -offset
    return whole * SECOND + int((found[7] or "0").ljust(9, "0"))


def micro(text: str) -> str | None:
    """Return a time as ``metav1.MicroTime`` writes it, ``None`` if ``text`` is not a time."""
    at = parsed(text) if _MICRO.search(text) else None
    return None if at is None else written_micro(at)
