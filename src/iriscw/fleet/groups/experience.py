"""What a group has learned: how long boots take, and whether its slices live long enough to be worth their boot.

Churn, not bad luck. Exponential backoff alone punishes a single failure and makes capacity oscillate; the share
of slices in a window that died young says more. The thresholds are Iris's: window 30 minutes, at least 3 samples,
short-lived below 5 minutes; a churn of 20, 50, 80 percent allows all, half, a tenth, and nothing of what is
wanted.

A slice counts as short-lived if it failed soon after it was ready. One that was let go, used or not, does not: that
somebody changed their mind says nothing about the machines.
"""

from __future__ import annotations

from collections import deque

import attrs

from iriscw.runtime.vocabulary import SECOND

CHURN_WINDOW = 1800 * SECOND
SHORT_LIFE = 300 * SECOND
MIN_SAMPLES = 3
MAX_SAMPLES = 256
"""Lives remembered: with more in half an hour the share is known well enough."""

BOOTS_REMEMBERED = 15
"""An odd number, so that the median is one of them."""

SLOW_FACTOR_PERCENT = 150
"""A boot that takes longer than this share of the estimate is called slow."""


@attrs.define
class Experience:
    """The memory of one group. Times are monotonic ns; it starts empty with each incarnation."""

    boots: deque[int] = attrs.field(factory=lambda: deque(maxlen=BOOTS_REMEMBERED))
    lives: deque[tuple[int, bool]] = attrs.field(factory=lambda: deque(maxlen=MAX_SAMPLES))
    """When a life ended, and whether it was short."""

    def booted(self, duration: int) -> None:
        """Remember a boot that took ``duration`` ns from the request until ready."""
        self.boots.append(max(1, duration))

    def ended(self, now: int, *, lived: int, failed: bool) -> None:
        """Remember the end of a slice that had been ready for ``lived`` ns."""
        self.lives.append((now, failed and lived < SHORT_LIFE))

    def boot_estimate(self, default: int) -> int:
        """Return the median of the boots remembered, in ns."""
        return sorted(self.boots)[len(self.boots) // 2] if self.boots else default

    def slow_after(self, default: int) -> int:
        """Return the duration from which a boot is called slow, in ns."""
        return self.boot_estimate(default) * SLOW_FACTOR_PERCENT // 100

    def churn_percent(self, now: int) -> int:
        """Return the share of short lives within the window; 0 with too few samples."""
        while self.lives and self.lives[0][0] + CHURN_WINDOW <= now:
            self.lives.popleft()
        if len(self.lives) < MIN_SAMPLES:
            return 0
        return 100 * sum(short for _, short in self.lives) // len(self.lives)

    def allowed(self, wanted: int, now: int) -> int:
        """Return how many of ``wanted`` new slices the churn allows."""
        assert wanted >= 0
        churn = self.churn_percent(now)
        if churn < 20:
            return wanted
        if churn < 50:
            return -(-wanted // 2)
        if churn < 80:
            return -(-wanted // 10)
        return 0
