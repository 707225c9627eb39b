"""The rate limit of requests (INV-F9), by reservation.

Theory of operation. The limit keeps one number: when the next request may leave if requests leave evenly
(the generic cell rate algorithm, the form of a token bucket without tokens to count). Who asks is told how long to
wait and *has* that place, whether it uses it or not; so nobody is woken in order to compete, and order is kept. All
in integer ns: nothing drifts.
"""

from __future__ import annotations

from iriscw._errors import InvalidArgument
from iriscw.runtime.vocabulary import SECOND

MOST_QPS = 1_000_000.0
"""More requests in a second than any client makes; keeps the interval from rounding to nothing."""


class RateLimit:
    """Lets ``burst`` requests go at once, and ``qps`` per second in the long run.

    Raises:
        InvalidArgument: ``qps`` or ``burst`` is not positive, or ``qps`` is beyond ``MOST_QPS``.
    """

    def __init__(self, qps: float, burst: int) -> None:
        if not 0 < qps <= MOST_QPS or burst < 1:
            raise InvalidArgument(f"a rate limit needs a qps in (0, {MOST_QPS:.0f}] and a burst >= 1")
        self._interval = round(SECOND / qps)
        self._slack = (burst - 1) * self._interval
        self._next: int | None = None

    def wait(self, now: int) -> int:
        """Tell how many ns it is until a request may leave; reserves nothing. ``now`` is monotonic, in ns."""
        return 0 if self._next is None else max(0, self._next - self._slack - now)

    def take(self, now: int) -> int:
        """Reserve the next place, and tell how many ns to wait for it. ``now`` is monotonic, in ns."""
        due = now if self._next is None else max(self._next, now)
        self._next = due + self._interval
        return max(0, due - self._slack - now)
