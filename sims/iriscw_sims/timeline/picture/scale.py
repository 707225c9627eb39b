"""Where a time stands in the picture, and which times are written on its axis.

Theory of operation. All that depends on time is placed in percent of the chart's width, so that a browser can make the
chart wider, to zoom, without anything being drawn anew. What needs a certain width to be readable carries the zoom at
which it has it; the page shows it from there on.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from iriscw.runtime.vocabulary import SECOND

CHART_PX = 800
"""The chart's width on an ordinary screen, without zoom: what decides which texts have room."""

ZOOMS = (1, 2, 4, 8, 16)
"""Zooms from which on texts are shown."""

MAX_TICKS = 10
MAX_FINE_TICKS = 120

MINUTE, HOUR, DAY = 60 * SECOND, 3_600 * SECOND, 86_400 * SECOND

_STEPS = (
    *(step * SECOND for step in (1, 2, 5, 10, 15, 30)),
    *(step * MINUTE for step in (1, 2, 5, 10, 15, 30)),
    *(step * HOUR for step in (1, 2, 3, 6, 12)),
    *(step * DAY for step in (1, 2, 5, 10, 20, 50, 100)),
)


@attrs.frozen
class Scale:
    """From ``began`` to ``ended``, ns; never empty."""

    began: int
    ended: int

    @classmethod
    def over(cls, began: int, ended: int) -> Scale:
        """Return the scale of a stretch of time; an empty one lasts a second."""
        return cls(began, max(ended, began + SECOND))

    def share(self, at: int) -> float:
        """Return where a moment stands, in percent; moments outside stand at the edge."""
        within = min(max(at, self.began), self.ended)
        return (within - self.began) * 100 / (self.ended - self.began)

    def zoom_for(self, share: float, width_px: float) -> int | None:
        """Return the least zoom at which ``share`` percent are so wide; None if none is enough."""
        for zoom in ZOOMS:
            if share / 100 * CHART_PX * zoom >= width_px:
                return zoom
        return None

    def ticks(self) -> Iterator[tuple[int, bool]]:
        """Yield the moments to write on the axis, and whether each is shown without zoom, too."""
        coarse, fine = self._step(MAX_TICKS), self._step(MAX_FINE_TICKS)
        at = -(-self.began // fine) * fine
        while at <= self.ended:
            yield at, at % coarse == 0
            at += fine

    def _step(self, most: int) -> int:
        lasted = self.ended - self.began
        return next((step for step in _STEPS if lasted // step <= most), -(-lasted // most))


def at_zoom(zoom: int) -> str:
    """Return the class of what is shown from a zoom on; empty for what is always shown."""
    return "" if zoom == 1 else f"z{zoom}"


def short(at: int) -> str:
    """Write a moment of the axis: ``40 s``, ``1:20``, ``2:01:00``, ``3 d 04:00``."""
    seconds = at // SECOND
    if seconds < 60:
        return f"{seconds} s"
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, seconds = divmod(rest, 60)
    if days:
        return f"{days} d {hours:02}:{minutes:02}"
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def length(ns: int) -> str:
    """Write a length of time with the precision that people read: ``0.25 s``, ``12.4 s``, ``3 min 20 s``, ``2 h``."""
    seconds = ns / SECOND
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [f"{days} d"] if days else []
    parts += [f"{hours} h"] if hours else []
    parts += [f"{minutes} min"] if minutes and not days else []
    parts += [f"{left} s"] if left and not (hours or days) else []
    return " ".join(parts)
