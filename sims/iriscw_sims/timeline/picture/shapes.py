"""The pieces of the picture as SVG: bars, marks, curves.

Theory of operation. Whatever comes from a run (names, reasons) passes :func:`words`, which leaves nothing that HTML
obeys and nothing that cannot be shown. Colours are classes: the style sheet has them for a dark and for a light page.
A state belongs to a *family*; families are what the legend explains, so that a new state of the fleet's needs one word
here at most.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Final

from iriscw_sims.timeline.model import WAITING, Point, Span, Tone
from iriscw_sims.timeline.picture.scale import Scale, at_zoom, length
from iriscw_sims.timeline.text import clock, shown

FAMILIES: Final = {
    "wait": "waits",
    "ask": "asked for",
    "boot": "boots, builds",
    "init": "almost there",
    "up": "ready, runs",
    "good": "ended well",
    "bad": "failed, lost",
    "end": "on its way out, stopped",
    "down": "controller down, or stands still",
}
"""The families, as the legend names them."""

_FAMILY_OF: Final = {
    "pending": "wait",
    "requested": "ask",
    "creating": "ask",
    "assigned": "ask",
    "booting": "boot",
    "building": "boot",
    "boots": "boot",
    "starting": "boot",
    "initializing": "init",
    "ready": "up",
    "registered": "up",
    "running": "up",
    "in service": "up",
    "open": "up",
    "up": "up",
    "at max_slices": "wait",
    "draining": "end",
    "deleting": "end",
    "removing": "end",
    "ending": "end",
    "stopping": "end",
    "leaves": "end",
    "failed": "bad",
    "down": "down",
    "stands still": "down",
    "stalled": "bad",
    "full": "bad",
}
"""States that are not here are trouble: a group that takes no demand says why in its state."""

_ENDED_WELL: Final = ("succeeded",)
_STOPPED: Final = ("killed", "gang stopped", "unschedulable")

GLYPH_PX = 6.1
"""The width of a letter in a bar."""

BAR_PAD_PX = 8


def words(text: str) -> str:
    """Write a text so that it is only that, in an element and in an attribute."""
    return html.escape(shown(text), quote=True)


def lines(*texts: str) -> str:
    """Write a tip of several lines: who, what, why."""
    return "\n".join(words(text) for text in texts if text)


def family(span: Span) -> str:
    """Return the family of a span: what became of it, or else the state."""
    if span.state == WAITING:
        return "wait"
    if span.outcome in _ENDED_WELL:
        return "good"
    if span.tone in (Tone.BAD, Tone.BROKEN):
        return "bad"
    if span.outcome in _STOPPED:
        return "end"
    return _FAMILY_OF.get(span.state, "bad")


def bar(span: Span, scale: Scale, height: int, title: str) -> str:
    """Draw a span."""
    left, right = scale.share(span.began), scale.share(span.ended)
    width = max(right - left, LEAST_SHARE)
    kind = family(span)
    became = span.outcome and f"then {span.outcome}"
    tip = lines(
        title,
        " ".join(part for part in (span.label, span.state, became) if part),
        f"{clock(span.began)} to {clock(span.ended)}, {length(span.ended - span.began)}",
        f"began: {span.why}" if span.why else "",
        f"ended: {span.end_why}",
    )
    text = _name(span, kind)
    drawn = f'<rect class="b {kind}" x="{left:.3f}%" width="{width:.3f}%" y="1" height="{height - 2}" rx="2"/>'
    zoom = scale.zoom_for(right - left, len(text) * GLYPH_PX + BAR_PAD_PX) if height >= MIN_TEXT_HEIGHT else None
    if zoom is not None:
        shift = f'<svg x="{left:.3f}%" width="{right - left:.3f}%" height="{height}">'
        drawn += f'{shift}<text class="t {kind} {at_zoom(zoom)}" x="5" y="{height - 5}">{words(text)}</text></svg>'
    return f"<g class=s><title>{tip}</title>{drawn}</g>"


LEAST_SHARE = 0.15
"""Percent of the width that a bar has at least: what took no time can be seen, too."""

MIN_TEXT_HEIGHT = 15
"""Pixels of a bar below which no text fits into it."""


def _name(span: Span, kind: str) -> str:
    if kind == "wait":
        return span.outcome
    return span.outcome if span.outcome and span.outcome != "gone" else span.state


def cap(span: Span, scale: Scale, height: int) -> str:
    """Draw the end of what did not end well: a cross, so that colour is not all that says it."""
    if not span.outcome or span.tone is not Tone.BAD:
        return ""
    share, middle = scale.share(span.ended), height / 2
    path = f"M-3 {middle - 3}L3 {middle + 3}M-3 {middle + 3}L3 {middle - 3}"
    return f'<svg x="{share:.3f}%" overflow="visible" width="1" height="{height}"><path class="x" d="{path}"/></svg>'


def tick(share: float, height: int, tip: str, kind: str = "tick") -> str:
    """Draw a moment as a line."""
    top = f'y="2" height="{height - 4}"'
    return f'<g class=s><title>{tip}</title><rect class="{kind}" x="{share:.3f}%" width="2.5" {top} rx="1"/></g>'


def flag(share: float, height: int, tip: str, name: str, level: int | None, *, mirrored: bool, kind: str) -> str:
    """Draw a moment as a diamond with its name, at one of several heights; without a level it has no name."""
    y = height - 7 if level is None else 8 + level * 13
    text = ""
    if level is not None:
        side = 'x="-8" text-anchor="end"' if mirrored else 'x="8"'
        text = f'<text class="n {kind}" {side} y="{y + 3.5}">{words(name)}</text>'
    path = f'<path class="{kind}" d="M0 {y - 5}L5 {y}L0 {y + 5}L-5 {y}Z"/>'
    place = f'<svg x="{share:.3f}%" overflow="visible" width="1" height="{height}">'
    return f"<g class=s><title>{tip}</title>{place}{path}{text}</svg></g>"


def steps(values: Sequence[tuple[int, float]], scale: Scale, most: float, kind: str, *, filled: bool) -> str:
    """Draw a value over time that changes in steps, from the bottom up to ``most`` at the top; it keeps the last one.

    The path is in a box of 1000 by 100, which the chart stretches.
    """
    if not values or most <= 0:
        return ""
    parts: list[str] = []
    for at, value in values:
        x, y = scale.share(at) * 10, 100 - min(value / most, 1) * 100
        parts.append(f"H{x:.2f}" if parts else f"M{x:.2f} {100 if filled else y:.1f}")
        parts.append(f"V{y:.1f}")
    parts.append("H1000V100Z" if filled else "H1000")
    return f'<path class="{kind}" d="{"".join(parts)}" vector-effect="non-scaling-stroke"/>'


def slices_and_ready(points: Sequence[Point], scale: Scale) -> str:
    """Draw a group's figures: slices that there are, those that are ready, and how many are wanted."""
    most = max((max(each.slices, each.wanted) for each in points), default=0)
    curves = (
        steps([(each.at, each.slices) for each in points], scale, most, "c-all", filled=True)
        + steps([(each.at, each.ready) for each in points], scale, most, "c-ready", filled=True)
        + steps([(each.at, each.wanted) for each in points], scale, most, "c-wanted", filled=False)
    )
    return f'<svg viewBox="0 0 1000 100" preserveAspectRatio="none" width="100%" height="100%">{curves}</svg>'
