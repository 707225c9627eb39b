"""A server's request rate, bounded: so many a second, and a burst on top of that."""

from __future__ import annotations

from iriscw._errors import InvalidArgument
from iriscw.runtime.vocabulary import SECOND


class Throttle:
    """Counts requests against a rate.

    Args:
        requests_per_s: what is admitted in the long run; 0: everything.
        burst: how many may come at once.

    Raises:
        InvalidArgument: a negative rate, or no burst at all.
    """

    def __init__(self, requests_per_s: int, burst: int) -> None:
        if requests_per_s < 0 or burst < 1:
            raise InvalidArgument(f"no request rate: {requests_per_s} per second, burst {burst}")
        self._interval = SECOND // requests_per_s if requests_per_s else 0
        self._burst = burst
        self._free_at = 0
        """When a request would be admitted that has waited for all before it."""

    def admit(self, now: int) -> bool:
        """Admit a request at a time in ns, or tell that there are too many; refused ones count for nothing."""
        begun = max(self._free_at, now)
        if begun - now > (self._burst - 1) * self._interval:
            return False
        self._free_at = begun + self._interval
        return True
