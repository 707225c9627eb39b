"""When a session dials again. Pure.

A stream that ends is followed by another one after a pause, which doubles with each stream in a row that was never
welcomed and is drawn by the session's own source of luck: thousands of sessions that lost one controller in one moment
come back spread over the longest pause. A controller that turns a session away may say when to come back, and may say
never.
"""

from __future__ import annotations

import attrs

from iriscw.dialling.messages import Dial, Disconnected, TurnedAway
from iriscw.runtime.vocabulary import MILLISECOND, Context

FIRST_PAUSE_NS = 100 * MILLISECOND


@attrs.define(eq=False)
class Dialling:
    """The streams of a session so far.

    Args:
        longest_ns: The longest pause, but for one that the controller asks for.
    """

    longest_ns: int
    dials: int = 0
    failures: int = 0
    """Streams in a row that ended before they were welcomed."""
    turned_away: TurnedAway | None = None
    """What the controller said on the stream that is up, or when it said that it wants no other one."""

    @property
    def is_over(self) -> bool:
        """Whether no stream may follow."""
        return self.turned_away is not None and self.turned_away.retry_after_ns == 0

    def dial(self) -> Dial:
        """Return the session of the next stream."""
        self.dials += 1
        return Dial(self.dials)

    def ended(self, error: str, ctx: Context) -> Disconnected:
        """Return why the stream ended, and after how long to dial again."""
        self.failures += 1
        away = self.turned_away
        if away is not None:
            error = f"turned away ({away.reason}): {away.text}"
            if self.is_over:
                return Disconnected(error, 0)
        self.turned_away = None
        longest_ns = min(self.longest_ns, FIRST_PAUSE_NS << min(self.failures, 16))
        pause_ns = int(ctx.rng.uniform(longest_ns / 2, longest_ns))
        if away is not None:
            # As they were turned away together, they would come back together: spread them over half as long again.
            pause_ns += int(ctx.rng.uniform(away.retry_after_ns, 1.5 * away.retry_after_ns))
        return Disconnected(error, pause_ns)
