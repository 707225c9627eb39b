"""When a group that has ``max_slices`` lets an idle slice go so that another can take its place: pure.

Theory of operation. Demand may find no room although slices stand idle: their workers run another Python than all that
waits asks for, and ``min_slices``, ``buffer_slices`` or the policy keep them. A new slice may be what is asked for,
or just like them. So the first that goes is a trial. While nothing is known of the one that comes for it, and when
that one turns out to be of no use either, the next waits for a pause that doubles, up to
:data:`~iriscw.fleet.newest.LONGEST_PAUSE`. Once
new ones are of use the others go without a pause.

A slice is *newer* if it became ready after the last trial began. Newer ones are of no use if one of them is named as
such, or if its workers say the same of themselves as those of a slice that is: it may be busy, and so not named. What
is known is forgotten with each incarnation of the group's actor.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from random import Random

import attrs

from iriscw.cloud.model import Attributes
from iriscw.fleet.model import DECIDED_BY_WORKERS
from iriscw.fleet.newest import LONGEST_PAUSE
from iriscw.fleet.pacing import backoff

Kind = tuple[tuple[object, ...], ...]
"""What the workers of a slice say of themselves that no group says of them."""


class Newcomers(enum.Enum):
    """What is known of the slices that came in the place of others."""

    NONE = "none went yet"
    PENDING = "none came yet"
    HELPED = "they can run what the others cannot"
    FAILED = "they cannot run what waits either"


@attrs.define
class Renewal:
    """What a group remembers of the slices that it let go for others."""

    tries: int = 0
    """How many went in a row without one that helped."""
    since: int | None = None
    """When the last trial began: monotonic ns."""
    until: int = 0
    """Until when the next waits: monotonic ns."""
    retry_at: int = 0
    """``until`` for people: wall-clock ns."""

    def trial(self, useless: Iterable[str], readied: Mapping[str, int], workers: Mapping[str, Kind]) -> Newcomers:
        """Say what came of it.

        Args:
            useless: slices that nothing that waits could use.
            readied: when each slice first became ready.
            workers: what is known of the workers of slices that are ready.
        """
        if self.since is None:
            return Newcomers.NONE
        newer = [name for name, at in readied.items() if at > self.since]
        if not newer:
            return Newcomers.PENDING
        named = dict.fromkeys(useless)
        bad = dict.fromkeys(workers[name] for name in named if name in workers)
        failed = any(name in named or workers.get(name) in bad for name in newer)
        return Newcomers.FAILED if failed else Newcomers.HELPED

    def begin(self, trial: Newcomers, now: int, wall: int, first: int, rng: Random) -> None:
        """Note that a slice goes; ``first`` is the shortest pause, in ns."""
        if trial is Newcomers.HELPED:
            self.tries = 0
            return
        self.tries += 1
        pause = backoff(self.tries, first, max(first, LONGEST_PAUSE), rng)
        self.since, self.until, self.retry_at = now, now + pause, wall + pause

    def may_begin(self, trial: Newcomers, now: int) -> bool:
        """Whether another slice may go."""
        return trial in (Newcomers.NONE, Newcomers.HELPED) or now >= self.until


def kind_of(workers: tuple[Attributes, ...]) -> Kind:
    """Return what the workers of a slice say of themselves."""
    return tuple(tuple(worker.get(name) for name in DECIDED_BY_WORKERS) for worker in workers)
