"""How long attempts were in the phases of suspensions, as ``/metrics`` shows it: counted since the start."""

from __future__ import annotations

import bisect
import collections
from collections.abc import Mapping
from typing import Any, Final

import attrs

from iriscw.jobs.keeping.messages import CheckpointMade, CheckpointMissed, GoesBack, PassedOver
from iriscw.jobs.model import Suspension
from iriscw.jobs.suspension.messages import CheckpointLeft, PhaseOver
from iriscw.runtime.vocabulary import SECOND

BOUNDS_S: Final = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 14400.0, 86400.0)
"""From a small process in RAM to a job that waits for GPUs for a day."""

OUTCOMES: Final = ("asked", "suspended", "undone", "resuming", "resumed", "unplaced", "ended")
"""See :class:`~iriscw.jobs.suspension.messages.PhaseOver`."""


COPIES: Final = {CheckpointMade: "made", CheckpointMissed: "missed", GoesBack: "gone_back", PassedOver: "passed_over"}
"""What becomes of checkpoints that are made of attempts while they run."""


@attrs.frozen
class Lasted:
    """How long a phase took that came to one outcome.

    Args:
        counts: how often, by the first of ``BOUNDS_S`` that was not exceeded; the last is for what exceeded all.
        sum_s: altogether.
    """

    counts: tuple[int, ...] = (0,) * (len(BOUNDS_S) + 1)
    sum_s: float = 0.0

    def with_one(self, lasted_s: float) -> Lasted:
        """Count one more."""
        at = bisect.bisect_left(BOUNDS_S, lasted_s)
        counts = (*self.counts[:at], self.counts[at] + 1, *self.counts[at + 1 :])
        return Lasted(counts, self.sum_s + lasted_s)


@attrs.frozen
class PhaseStatistics:
    """What :class:`Phases` counted.

    Args:
        outcomes: how often a phase was left for each outcome; of what ran: ``asked``.
        lasted: by phase and outcome; phases of what ran are not measured.
        left: checkpoints that nobody needs and that could not be removed.
        copies: checkpoints of attempts that run on, by what became of them.
    """

    outcomes: Mapping[str, int] = attrs.field(factory=dict)
    lasted: Mapping[tuple[str, str], Lasted] = attrs.field(factory=dict)
    left: int = 0
    copies: Mapping[str, int] = attrs.field(factory=dict)


class Phases:
    """Counts what is published of suspensions."""

    def __init__(self) -> None:
        self._outcomes: collections.Counter[str] = collections.Counter()
        self._lasted: dict[tuple[str, str], Lasted] = {}
        self._left = 0
        self._copies: collections.Counter[str] = collections.Counter()

    def notice(self, event: Any) -> None:
        """Take note of an event."""
        if isinstance(event, CheckpointLeft):
            self._left += 1
        elif type(event) in COPIES:
            self._copies[COPIES[type(event)]] += 1
        elif isinstance(event, PhaseOver):
            self._outcomes[event.outcome] += 1
            if event.phase is not Suspension.NONE:
                key = (event.phase.name.lower(), event.outcome)
                self._lasted[key] = self._lasted.get(key, Lasted()).with_one(event.lasted_ns / SECOND)

    def statistics(self) -> PhaseStatistics:
        """Return what was counted."""
        return PhaseStatistics(dict(self._outcomes), dict(self._lasted), self._left, dict(self._copies))
