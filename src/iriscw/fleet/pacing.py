"""When to try again, and how often at most: backoff with jitter, and token buckets. Integers only."""

from __future__ import annotations

from random import Random

import attrs

from iriscw.runtime.vocabulary import SECOND

MAX_DOUBLINGS = 40
"""Beyond this every sensible maximum is reached."""

JITTER_PARTS = 4
"""A wait is drawn from its upper quarter, so that many that failed together do not return together."""

CREATES_BURST = 16
CREATES_PER_MINUTE = 16
"""Iris: 16 scale-ups a minute and group."""

REMOVALS_BURST = 32
REMOVALS_PER_MINUTE = 32
"""Iris: 32 scale-downs a minute and group."""


def backoff(in_a_row: int, first: int, longest: int, rng: Random) -> int:
    """Return the wait after ``in_a_row`` failures (1 for the first), in ns: doubling from ``first``, with
    jitter.

    The result lies between three quarters of the plain wait and the whole of it, and is at least 1.
    """
    assert in_a_row >= 1
    plain = min(longest, first << min(in_a_row - 1, MAX_DOUBLINGS))
    return max(1, plain - rng.randrange(plain // JITTER_PARTS + 1))


def time_of_day(wall: int, *, minutes: bool) -> str:
    """Return the time of day of a wall-clock time in ns, for people: UTC, rounded up to a second or a minute."""
    seconds = -(-wall // SECOND)
    if minutes:
        seconds = -(-seconds // 60) * 60
    hour, minute, second = seconds // 3600 % 24, seconds // 60 % 60, seconds % 60
    return f"{hour:02}:{minute:02}" if minutes else f"{hour:02}:{minute:02}:{second:02}"


@attrs.define
class TokenBucket:
    """At most ``burst`` at once, and one more every ``interval`` ns."""

    burst: int
    interval: int
    tokens: int = attrs.field()
    filled_at: int = 0
    """When the last token fell in."""

    @tokens.default
    def _full(self) -> int:
        return self.burst

    @classmethod
    def per_minute(cls, burst: int, rate: int) -> TokenBucket:
        """Return a full bucket that gains ``rate`` tokens a minute."""
        return cls(burst, 60 * SECOND // rate)

    def _refill(self, now: int) -> None:
        gained = (now - self.filled_at) // self.interval
        if self.tokens + gained >= self.burst:
            self.tokens, self.filled_at = self.burst, now
        elif gained > 0:
            self.tokens += gained
            self.filled_at += gained * self.interval

    def available(self, now: int) -> int:
        """Tell how many may be taken now."""
        self._refill(now)
        return self.tokens

    def take(self, count: int, now: int) -> int:
        """Take up to ``count``; give how many were taken."""
        self._refill(now)
        taken = min(count, self.tokens)
        self.tokens -= taken
        assert 0 <= self.tokens <= self.burst
        return taken

    def wait(self, now: int) -> int:
        """Return the time until one can be taken, in ns; 0 if one can be now."""
        self._refill(now)
        return 0 if self.tokens else self.filled_at + self.interval - now
