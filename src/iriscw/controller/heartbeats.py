"""How often workers beat: the more of them there are, the less often each, so that all together are bounded.

A heartbeat costs the controller the same whoever sends it, so what a fleet costs at rest is the number of its beats.
That is the controller's to bound, as Nomad's servers do it (``max_heartbeats_per_second``). Unlike there a longer
interval never makes a loss be noticed later: who has been silent for the timeout is lost, however often it beat before.
What becomes less is the room for a beat that is late, so there is a longest interval, and beyond it the rate grows.

A worker is told the interval with its Welcome, and another one with the answer to a heartbeat once it differs by more
than an eighth: workers come and go all the time, and that alone is no news.
"""

from __future__ import annotations

import attrs

MAX_HEARTBEATS_PER_S = 250
"""Of all workers together, as far as the longest interval allows."""

PROGRESS_MS = 1000
"""Between two reports of one worker on how far its attempts are: what people who watch notice."""

_NEWS = 8
"""An interval that differs by less than this part of it is none worth telling."""


@attrs.frozen
class Heartbeats:
    """The interval for each size of the fleet.

    Args:
        shortest_ms: of a small fleet.
        longest_ms: of any.
        per_s: how many heartbeats of all workers a second make the interval longer.
    """

    shortest_ms: int
    longest_ms: int
    per_s: int = MAX_HEARTBEATS_PER_S

    def interval_ms(self, workers: int) -> int:
        """Return how often each of so many workers beats."""
        return min(self.longest_ms, max(self.shortest_ms, 1000 * workers // self.per_s))

    def progress_ms(self, workers: int) -> int:
        """Return how long each of so many workers waits before it tells again how far its attempts are."""
        return max(PROGRESS_MS, 1000 * workers // self.per_s)

    def news_ms(self, told_ms: int, workers: int) -> int:
        """Return the interval that a worker is to be told, which was told ``told_ms``; 0 if that is good enough."""
        interval_ms = self.interval_ms(workers)
        return interval_ms if _NEWS * abs(interval_ms - told_ms) > told_ms else 0
