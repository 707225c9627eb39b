"""Parts of a timeline: of some subjects, of some time, of some weight.

Theory of operation. A subject is chosen by any part of its name: ``slice/``, ``iris-g0-a2b``, ``job-x/3``. An event
is chosen with its subject or with another that it concerns; a lane is chosen with those below and above it, so that a
picture of a slice has its workers, and its group to hang below.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from iriscw_sims.timeline.model import Event, Level, Timeline


@attrs.frozen
class Selection:
    """What is to be shown. Times are ns; None: as far as there is something."""

    only: tuple[str, ...] = ()
    """Texts of which one has to occur in the subject, or in one that is concerned; empty: everything."""
    since: int | None = None
    until: int | None = None
    level: Level = Level.CHANGE
    """The least that is shown."""

    def has(self, event: Event) -> bool:
        """Whether an event is to be shown."""
        in_time = (self.since is None or event.at >= self.since) and (self.until is None or event.at <= self.until)
        return in_time and event.level >= self.level and self.names((event.subject, *event.about))

    def names(self, subjects: Sequence[str]) -> bool:
        """Whether one of the subjects is chosen."""
        return not self.only or any(text in subject for text in self.only for subject in subjects)


def select(timeline: Timeline, selection: Selection) -> Timeline:
    """Return the chosen part of a timeline, spans cut at its edges."""
    since = selection.since if selection.since is not None else 0
    until = min(timeline.ended, selection.until if selection.until is not None else timeline.ended)
    lanes = _lanes(timeline, selection)
    return attrs.evolve(
        timeline,
        ended=max(until, since),
        events=tuple(event for event in timeline.events if selection.has(event)),
        lanes=tuple(lane for lane in timeline.lanes if lane.subject in lanes),
        spans=tuple(
            attrs.evolve(span, began=max(span.began, since), ended=min(span.ended, until))
            for span in timeline.spans
            if span.lane in lanes and span.ended >= since and span.began <= until
        ),
        points=tuple((lane, points) for lane, points in timeline.points if lane in lanes),
    )


def _lanes(timeline: Timeline, selection: Selection) -> dict[str, None]:
    """Return the chosen lanes, with all above and below them."""
    above = {lane.subject: lane.above for lane in timeline.lanes}
    chosen: dict[str, None] = {}
    for lane in timeline.lanes:  # a lane comes behind the one above it
        if selection.names((lane.subject,)) or lane.above in chosen:
            chosen[lane.subject] = None
    for subject in list(chosen):
        while subject := above.get(subject, ""):
            chosen[subject] = None
    return chosen
