"""A timeline as lines of text: when, who, what, why.

Theory of operation. Columns are as wide as what stands in them, up to a limit, so that a wide one does not push the
others off the screen; the last one, why, is never cut. Names of jobs and groups are whatever their users chose:
nothing in them may command the reader's terminal, so what cannot be shown is written as an escape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from iriscw.runtime.vocabulary import MILLISECOND
from iriscw_sims.timeline.model import FAULT, Event, Level, Timeline, Tone, kind_of

WIDEST_WHO = 44
WIDEST_WHAT = 52
"""Characters up to which a column makes room for its longest text; a longer one moves its own line only."""

_HEADS = ("TIME", "WHO", "WHAT", "WHY")

_SGR = {Tone.GOOD: "32", Tone.BAD: "33", Tone.FAULT: "35", Tone.BROKEN: "1;31"}
"""Colours of ECMA-48, by what an event means: green, yellow, magenta, bold red."""


def clock(at: int) -> str:
    """Write a moment: ``1:23.456``, with hours where there are some: ``2:01:23.456``."""
    minutes, milliseconds = divmod(at // MILLISECOND, 60_000)
    hours, minutes = divmod(minutes, 60)
    tail = f"{milliseconds / 1000:06.3f}"
    return f"{hours}:{minutes:02}:{tail}" if hours else f"{minutes}:{tail}"


def lines(timeline: Timeline, *, colour: bool = False) -> Iterator[str]:
    """Yield the lines of a timeline, a head first, without line feeds."""
    rows = [(event, _cells(event)) for event in timeline.events]
    widths = [
        max((len(cells[0]) for _, cells in rows), default=4),
        _width([cells[1] for _, cells in rows], WIDEST_WHO),
        _width([cells[2] for _, cells in rows], WIDEST_WHAT),
    ]
    yield _line(_HEADS, widths)
    if timeline.thinned:
        yield f"... {timeline.thinned} events and spans before {clock(timeline.thinned_until)} were let go for room ..."
    for event, cells in rows:
        line = _line(cells, widths)
        sgr = _SGR.get(event.tone, "1" if event.level is Level.LANDMARK else "")
        yield f"\x1b[{sgr}m{line}\x1b[0m" if colour and sgr else line


def _cells(event: Event) -> tuple[str, str, str, str]:
    # A fault's name is what happened; that it was a fault is who did it.
    who = FAULT if kind_of(event.subject) == FAULT else event.subject
    return clock(event.at), shown(who), shown(event.what), shown(event.why)


def _width(texts: list[str], most: int) -> int:
    return max((len(text) for text in texts if len(text) <= most), default=4)


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    at, who, what, why = cells
    return f"{at.rjust(widths[0])}  {who.ljust(widths[1])}  {what.ljust(widths[2])}  {why}".rstrip()


def shown(text: str) -> str:
    """Write a text on one line, what a terminal would obey as an escape."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def as_values(timeline: Timeline) -> Mapping[str, Any]:
    """Return a timeline as JSON has it: times in ns, enums as texts and numbers."""
    return {
        "ended_ns": timeline.ended,
        "healed_ns": timeline.healed,
        "violations": list(timeline.violations),
        "fired": dict(timeline.fired),
        "thinned": timeline.thinned,
        "thinned_until_ns": timeline.thinned_until,
        "events": [_event(event) for event in timeline.events],
        "lanes": [attrs.asdict(lane) for lane in timeline.lanes],
        "spans": [
            {
                "lane": span.lane,
                "state": span.state,
                "began_ns": span.began,
                "ended_ns": span.ended,
                "why": span.why,
                "end_why": span.end_why,
                "label": span.label,
                "outcome": span.outcome,
                "tone": span.tone.value,
                "cut": span.cut,
            }
            for span in timeline.spans
        ],
    }


def _event(event: Event) -> dict[str, Any]:
    return {
        "at_ns": event.at,
        "subject": event.subject,
        "what": event.what,
        "why": event.why,
        "level": event.level.name.lower(),
        "tone": event.tone.value,
        "about": list(event.about),
    }
