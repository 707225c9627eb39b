"""Takes down what happens, and keeps it within bounds.

Theory of operation. Whoever watches a run tells a :class:`Recorder` of events, of states that lanes enter and leave,
and of figures. A lane is in one state at a time: what enters one leaves the one before, so spans of a lane never
overlap. Entering the same state for the same reason changes nothing.

A run may last for a simulated year. Each kind of thing has a limit; where it is reached, what is oldest and matters
least is let go until a quarter of the room is free, and the timeline says so. So the cost of thinning is spread over
many events, and memory is flat. Counts of faults are never thinned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

import attrs

from iriscw.runtime.vocabulary import SECOND
from iriscw_sims.timeline.model import FAULT, Event, Lane, Level, Point, Span, Timeline, Tone, kind_of

MAX_EVENTS = 40_000
"""Events that are kept: about 10 MB. A busy seed of five minutes has 500; a browser shows ten thousand rows well."""

MAX_SPANS = 40_000
"""Spans that are kept."""

MAX_LANES = 20_000
"""Lanes that are kept: twice as many slices as one group may have."""

MAX_POINTS = 4_000
"""Points that are kept of each group's figures: more than a screen has columns."""

SHARE_FREED = 4
"""One in so many is let go when a limit is reached."""

Kept = TypeVar("Kept", Event, Span)


@attrs.define
class _Open:
    """A state that a lane is in."""

    state: str
    began: int
    why: str
    label: str


class Recorder:
    """Builds a :class:`Timeline`. Times given to it never go back by more than a stall of the controller."""

    def __init__(
        self,
        *,
        max_events: int = MAX_EVENTS,
        max_spans: int = MAX_SPANS,
        max_lanes: int = MAX_LANES,
        max_points: int = MAX_POINTS,
    ) -> None:
        self._max_events, self._max_spans, self._max_lanes = max_events, max_spans, max_lanes
        self._max_points = max_points
        self.fired: Counter[str] = Counter()
        self._events: list[Event] = []
        self._spans: list[Span] = []
        self._lanes: dict[str, Lane] = {}
        self._below: dict[str, dict[str, None]] = {}
        """The lanes that hang directly below each."""
        self._open: dict[str, _Open] = {}
        self._points: dict[str, list[Point]] = {}
        self._thinned = 0
        self._thinned_until = 0

    # Telling

    def event(
        self,
        at: int,
        subject: str,
        what: str,
        why: str = "",
        *,
        level: Level = Level.CHANGE,
        tone: Tone = Tone.PLAIN,
        about: tuple[str, ...] = (),
    ) -> None:
        """Take down that something happened."""
        self._events.append(Event(at, subject, what, why, level, tone, about))
        if len(self._events) > self._max_events:
            self._events = self._thin(self._events, lambda each: each.level, lambda each: each.at)

    def lane(self, subject: str, above: str = "", title: str = "") -> None:
        """Have a lane; one that is there stays as it is."""
        if subject not in self._lanes:
            self._lanes[subject] = Lane(subject, above, title)
            self._below.setdefault(above, {})[subject] = None
            if len(self._lanes) > self._max_lanes:
                self._forget_lanes()

    def __contains__(self, lane: str) -> bool:
        """Whether there is such a lane."""
        return lane in self._lanes

    def below(self, lane: str) -> list[str]:
        """Return the lanes that hang directly below one."""
        return list(self._below.get(lane, ()))

    def state(self, lane: str) -> str:
        """Return the state that a lane is in; empty if it is in none."""
        found = self._open.get(lane)
        return "" if found is None else found.state

    def enter(self, at: int, lane: str, state: str, why: str = "", *, label: str = "") -> bool:
        """Have a lane enter a state, and leave the one before; False if it is in that state already."""
        before = self._open.get(lane)
        if before is not None and (before.state, before.label) == (state, label):
            return False
        self.leave(at, lane, why or f"it is {state} now")
        self.lane(lane)
        self._open[lane] = _Open(state, at, why, label)
        return True

    def leave(self, at: int, lane: str, why: str, *, outcome: str = "", tone: Tone = Tone.PLAIN) -> bool:
        """Have a lane leave the state that it is in; False if it is in none. Needs a cause."""
        assert why, f"{lane} leaves {self.state(lane)!r} without a cause"
        before = self._open.pop(lane, None)
        if before is None:
            return False
        self._keep(before, at, lane, why, outcome=outcome, tone=tone)
        return True

    def _keep(
        self, was: _Open, at: int, lane: str, why: str, *, outcome: str = "", tone: Tone = Tone.PLAIN, cut: bool = False
    ) -> None:
        if at <= was.began and not outcome:
            return  # nobody could see it
        ended = max(at, was.began)
        self._spans.append(Span(lane, was.state, was.began, ended, was.why, why, was.label, outcome, tone, cut))
        if len(self._spans) > self._max_spans:
            self._spans = self._thin(self._spans, lambda each: each.tone is Tone.BROKEN, lambda each: each.ended)

    def fault(
        self,
        at: int,
        name: str,
        *,
        on: str = "",
        lasts: int = 0,
        planned: bool = True,
        level: Level = Level.CHANGE,
    ) -> None:
        """Take down that a fault came true, whom it hit and for how many ns, as far as that is known."""
        self.fired[name] += 1
        about = (on,) if on else ()
        what = f"{name}: {on}" if on else name
        why = "planned for this moment" if planned else "one of the plan's chances"
        why += f", for {lasts / SECOND:g} s" if lasts else ""
        self.event(at, f"{FAULT}/{name}", what, why, level=level, tone=Tone.FAULT, about=about)

    def point(self, lane: str, point: Point) -> None:
        """Take down a group's figures."""
        points = self._points.setdefault(lane, [])
        if points and attrs.evolve(points[-1], at=point.at) == point:
            return
        points.append(point)
        if len(points) > self._max_points:
            oldest = len(points) // 2
            kept = points[:oldest:2] + points[oldest:]
            self._let_go(len(points) - len(kept), points[oldest].at)
            self._points[lane] = kept

    # Keeping within bounds

    def _thin(self, things: list[Kept], weight: Callable[[Kept], int], at: Callable[[Kept], int]) -> list[Kept]:
        """Let one in four go: the lightest first, and among equals the oldest."""
        excess = len(things) // SHARE_FREED + 1
        ranked = sorted(range(len(things)), key=lambda index: (weight(things[index]), index))
        gone = dict.fromkeys(ranked[:excess])
        self._let_go(excess, max(at(things[index]) for index in gone))
        return [each for index, each in enumerate(things) if index not in gone]

    def _forget_lanes(self) -> None:
        """Let the oldest lanes go that are in no state, with their spans: what they stood for is over."""
        idle = [subject for subject in self._lanes if subject not in self._open and not self._below.get(subject)]
        excess = len(self._lanes) // SHARE_FREED + 1
        gone = dict.fromkeys(idle[:excess] or list(self._lanes)[-1:])
        for subject in gone:
            del self._below[self._lanes.pop(subject).above][subject]
            self._below.pop(subject, None)
            self._points.pop(subject, None)
        kept = [span for span in self._spans if span.lane not in gone]
        latest = max((span.ended for span in self._spans if span.lane in gone), default=self._thinned_until)
        self._let_go(len(self._spans) - len(kept) + len(gone), latest)
        self._spans = kept

    def _let_go(self, count: int, until: int) -> None:
        self._thinned += count
        self._thinned_until = max(self._thinned_until, until)

    # The end

    def finish(self, at: int, violations: Iterable[str] = (), *, healed: int | None = None) -> Timeline:
        """Close what is open, and give the whole."""
        for lane, was in self._open.items():
            self._keep(was, at, lane, "the run ended", cut=True)
        self._open.clear()
        return Timeline(
            ended=at,
            healed=healed,
            events=tuple(sorted(self._events, key=lambda event: event.at)),
            lanes=tuple(self._in_order()),
            spans=tuple(span for span in self._spans if span.lane in self._lanes),
            points=tuple((lane, tuple(points)) for lane, points in self._points.items()),
            fired=tuple(sorted(self.fired.items())),
            violations=tuple(violations),
            thinned=self._thinned,
            thinned_until=self._thinned_until,
        )

    def _in_order(self) -> Iterable[Lane]:
        """Yield the lanes depth first: in the order in which they were first seen, but what has a number by that."""
        roots = [lane.subject for lane in self._lanes.values() if lane.above not in self._lanes]
        waiting = roots[::-1]
        while waiting:
            subject = waiting.pop()
            yield self._lanes[subject]
            waiting.extend(sorted(self.below(subject), key=_number)[::-1])


def _number(subject: str) -> int:
    """Return the number that the name of a worker, a task or a node ends with.

    0 for others, which sort as they come.
    """
    tail = subject.replace("/", "-").rpartition("-")[2]
    numbered = kind_of(subject) in ("worker", "task", "node") and tail.isascii() and tail.isdigit()
    return int(tail) if numbered else 0
