"""The rows of the picture: who has one, how it is called, and what is drawn in it.

Theory of operation. Rows follow the lanes of the timeline, depth first: faults and the controller, then groups with
their slices and workers, then jobs with their tasks. Where there are more lanes than :data:`MAX_ROWS`, the deepest go
first (nodes, then workers, then tasks), and then the oldest; the page says how many.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import attrs

from iriscw_sims.timeline.model import (
    CONTROLLER,
    DISK,
    FAULT,
    WAITING,
    Event,
    Lane,
    Point,
    Span,
    Timeline,
    kind_of,
    name_of,
)
from iriscw_sims.timeline.picture.scale import CHART_PX, Scale
from iriscw_sims.timeline.picture.shapes import bar, cap, flag, lines, slices_and_ready, steps, tick, words
from iriscw_sims.timeline.text import clock

MAX_ROWS = 600
"""Rows of one picture: thirty screens. Browsers lay out ten times as many, people do not read them."""

MAX_SPANS_DRAWN = 10_000
"""Spans of one picture: 4 MB of SVG, which a browser shows within two seconds."""

MAX_MARKS = 4_000
"""Marks of faults: more than there are columns on a screen."""

_HEIGHTS = {CONTROLLER: 20, DISK: 16, "group": 40, "slice": 18, "node": 9, "worker": 11, "job": 20, "task": 16}
_DEEPEST_FIRST = ("node", "worker", "task", "slice", "job")

FLAG_LEVELS = 3
FLAG_GLYPH_PX = 5.8
FAULT_ROW_PX = 48


@attrs.frozen
class Row:
    """One row. ``label`` is HTML, ``drawn`` is SVG."""

    subject: str
    kind: str
    label: str
    height: int
    drawn: str


def section(kind: str, text: str) -> Row:
    """Return a heading between rows."""
    return Row("", f"section {kind}", f"<h2>{words(text)}</h2>", 26, "")


def fault_rows(timeline: Timeline, planned: Mapping[str, None], scale: Scale) -> Iterator[Row]:
    """Yield the row of planned faults, with their names where there is room, and the row of chances."""
    hits = [event for event in timeline.events if kind_of(event.subject) == FAULT]
    marks = [event for event in hits if name_of(event.subject) in planned][-MAX_MARKS:]
    ticks = [event for event in hits if name_of(event.subject) not in planned][-MAX_MARKS:]
    free = Places()
    turns = "".join(_turning_points(timeline, scale, free))
    if marks or turns:
        drawn = "".join(_flag(event, scale, free) for event in marks) + turns
        yield Row(FAULT, "faults", "<b>faults</b> <i>of the plan</i>", FAULT_ROW_PX, drawn)
    if ticks:
        drawn = "".join(tick(scale.share(each.at), 16, _tip(each)) for each in ticks)
        yield Row(FAULT, "faults", "<b>bad luck</b> <i>by chance</i>", 16, drawn)


class Places:
    """Finds places for names, so that none runs into another: several levels, and what is taken of each, in pixels."""

    def __init__(self) -> None:
        self._taken: list[list[tuple[float, float]]] = [[] for _ in range(FLAG_LEVELS)]

    def find(self, share: float, name: str) -> tuple[int | None, bool]:
        """Return the level for a name that stands at ``share`` percent (None: there is no place), and whether it stands
        left of its mark, because there is no room at its right.
        """
        at, width = share / 100 * CHART_PX, len(name) * FLAG_GLYPH_PX + 16
        mirrored = at + width > CHART_PX
        left, right = (at - width, at + 6) if mirrored else (at - 6, at + width)
        for level, taken in enumerate(self._taken):
            if all(right <= other_left or other_right <= left for other_left, other_right in taken):
                taken.append((left, right))
                return level, mirrored
        return None, mirrored


def _turning_points(timeline: Timeline, scale: Scale, free: Places) -> Iterator[str]:
    """Draw where an invariant broke, and where the faults ended."""
    turns = [(timeline.ended, "broken", text.partition(": ")[0] + " breaks") for text in timeline.violations[:1]]
    turns += [(timeline.healed, "heal", "all faults end")] if timeline.healed is not None else []
    for at, kind, name in turns:
        if scale.began <= at <= scale.ended:
            share = scale.share(at)
            level, mirrored = free.find(share, name)
            tip = lines(name, f"at {clock(at)}", *(timeline.violations if kind == "broken" else ()))
            yield flag(share, FAULT_ROW_PX, tip, name, level, mirrored=mirrored, kind=kind)


def _flag(event: Event, scale: Scale, free: Places) -> str:
    share, name = scale.share(event.at), name_of(event.subject)
    level, mirrored = free.find(share, name)
    return flag(share, FAULT_ROW_PX, _tip(event), name, level, mirrored=mirrored, kind="fault")


def _tip(event: Event) -> str:
    return lines(event.what, f"at {clock(event.at)}", event.why)


def lane_rows(timeline: Timeline, scale: Scale) -> tuple[list[Row], list[Row], list[Row]]:
    """Return the rows of the controller, of the fleet, and of the jobs."""
    shown = dict.fromkeys(lane.subject for lane in _fitting(timeline.lanes))
    spans = _by_lane(timeline, shown)
    points = dict(timeline.points)
    parts: dict[str, list[Row]] = {"controller": [], "fleet": [], "jobs": []}
    for lane in timeline.lanes:
        kind = kind_of(lane.subject)
        if lane.subject not in shown or (lane.subject == DISK and not spans.get(DISK)):
            continue
        part = "jobs" if kind in ("job", "task") else "controller" if kind in (CONTROLLER, DISK) else "fleet"
        row = _row(lane, kind, spans.get(lane.subject, []), points.get(lane.subject, ()), scale)
        named = _is_named(lane.subject, spans.get(lane.subject, []), timeline.violations)
        parts[part].append(attrs.evolve(row, kind=f"{kind} named") if named else row)
    return parts["controller"], parts["fleet"], parts["jobs"]


def _is_named(subject: str, spans: Sequence[Span], violations: Sequence[str]) -> bool:
    """Whether what was violated speaks of a lane's subject, or of an attempt in it."""
    uids = [uid for span in spans for uid in _UID.findall(span.label)]
    return any(text in violation for violation in violations for text in (name_of(subject), *uids))


_UID = re.compile(r"\((\w+)\)")


def left_out(timeline: Timeline) -> list[str]:
    """Say what is not drawn for want of room; empty if all is."""
    rows = len(timeline.lanes) - len(_fitting(timeline.lanes))
    spans = len(timeline.spans) - MAX_SPANS_DRAWN
    said = [f"{rows} rows are left out"] if rows > 0 else []
    said += [f"the {spans} oldest spans are not drawn"] if spans > 0 else []
    if timeline.thinned:
        said.append(f"{timeline.thinned} things before {clock(timeline.thinned_until)} were let go while it ran")
    return said


def _fitting(lanes: Sequence[Lane]) -> list[Lane]:
    kept = list(lanes)
    for kind in _DEEPEST_FIRST:
        excess = len(kept) - MAX_ROWS
        if excess <= 0:
            break
        oldest = [lane.subject for lane in kept if kind_of(lane.subject) == kind][:excess]
        gone = dict.fromkeys(oldest)
        kept = [lane for lane in kept if lane.subject not in gone]
    return kept


def _by_lane(timeline: Timeline, shown: Mapping[str, None]) -> dict[str, list[Span]]:
    spans: dict[str, list[Span]] = {}
    for span in timeline.spans[-MAX_SPANS_DRAWN:]:
        if span.lane in shown:
            spans.setdefault(span.lane, []).append(span)
    return spans


def _row(lane: Lane, kind: str, spans: Sequence[Span], points: Sequence[Point], scale: Scale) -> Row:
    height = _HEIGHTS.get(kind, 16)
    if kind == "group":
        strip = "".join(bar(span, scale, 9, lane.subject) for span in spans)
        curve = f'<svg y="10" width="100%" height="{height - 12}">{slices_and_ready(points, scale)}</svg>'
        return Row(lane.subject, kind, _label(lane, kind), height, strip + curve)
    bars = "".join(bar(span, scale, height, lane.subject) for span in spans)
    caps = "".join(cap(span, scale, height) for span in spans)
    return Row(lane.subject, kind, _label(lane, kind), height, bars + caps)


def _label(lane: Lane, kind: str) -> str:
    """Name a row: what it is, and what tells it from the others beside it."""
    name, above = name_of(lane.subject), name_of(lane.above)
    if kind in (CONTROLLER, DISK):
        return f"<b>{words(kind)}</b>"
    if kind == "job":
        return f"<b>{words(lane.title or 'job')}</b> <i>{words(name)}</i>"
    own = name.rpartition("/")[2] if kind in ("task", "node") else name
    if above and kind in ("slice", "worker"):
        before, found, after = own.partition(f"{above}-")
        own = after if found else before
    return f"{words(kind)} <i>{words(own)}</i>" if kind != "group" else f"<b>group</b> <i>{words(own)}</i>"


def task_counts(timeline: Timeline, scale: Scale) -> Row | None:
    """Return the row that sums up all tasks: how many wait, and how many have an attempt; None without any."""
    changes: list[tuple[int, int, int]] = []
    for span in timeline.spans:
        if kind_of(span.lane) == "task":
            has_one = int(span.state != WAITING)
            changes += [(span.began, 1, has_one), (span.ended, -1, -has_one)]
    unfinished, live = 0, 0
    waits, lives = [(scale.began, 0)], [(scale.began, 0)]
    for at, more, more_live in sorted(changes):
        unfinished, live = unfinished + more, live + more_live
        waits.append((at, unfinished))
        lives.append((at, live))
    most = max((value for _, value in waits), default=0)
    if not most:
        return None
    curves = steps(waits, scale, most, "c-all", filled=True) + steps(lives, scale, most, "c-ready", filled=True)
    drawn = f'<svg viewBox="0 0 1000 100" preserveAspectRatio="none" width="100%" height="100%">{curves}</svg>'
    drawn += f"<title>tasks that wait or have an attempt: {most} at most</title>"
    return Row("", "sum", f"<b>all tasks</b> <i>up to {most}</i>", 34, drawn)
