"""``python -m iriscw_sims.tiering.pictures``: the table and the picture of docs/tiers.md, by replays.

A minute or two of CPU time. The pictures are drawn from the table, so they cannot say anything else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from iriscw.checkpoint.drivers.built_in import DISK, RAM
from iriscw.checkpoint.drivers.loading import REPOSITORY
from iriscw.checkpoint.tiering.model import TieringPolicy
from iriscw.checkpoint.tiering.policies import GreedyDual, LeastRecentlyUsed
from iriscw_sims.tiering.replay import Clairvoyant, Replayed, replay
from iriscw_sims.tiering.traces import GB, TRACES, Trace

SEED = 1
DOCS = Path(__file__).parents[3] / "docs"
PAGE, PICTURE = DOCS / "tiers.md", DOCS / "images" / "tiering.svg"

HEAD = "| trace | policy | waited | from RAM | from disk | from the repository | moved | copied in vain |\n"
TABLE = re.compile(re.escape(HEAD) + r"\| ---.*\n((?:\|.*\n)+)")
FONTS = "Helvetica, Arial, DejaVu Sans, sans-serif"
COLOURS = {"LRU": "#8ea3b8", "Greedy-Dual": "#2f6db5", "clairvoyant": "#c9b458"}
SHORT = {"LRU": "LRU", "Greedy-Dual": "G.-Dual", "clairvoyant": "clairv."}
TIERS = (("RAM", "#2f6db5"), (DISK, "#8ea3b8"), (REPOSITORY, "#d9dee4"))


@attrs.frozen
class Row:
    """One replay, as the table shows it."""

    trace: str
    policy: str
    waited_h: float
    hits: tuple[int, int, int]
    moved_tb: float
    stopped_tb: float

    @classmethod
    def of(cls, trace: Trace, policy: str, done: Replayed) -> Row:
        """Return the row of a replay."""
        hits = (done.hits.get(RAM, 0), done.hits.get(DISK, 0), done.hits.get(REPOSITORY, 0))
        waited = round(done.waited_s / 3600, 1)
        return cls(trace.name, policy, waited, hits, _tb(done.moved_bytes), _tb(done.stopped_bytes))

    @classmethod
    def read(cls, line: str) -> Row:
        """Return the row that a line of the table is."""
        trace, policy, waited, *rest = (cell.strip() for cell in line.strip("|\n").split("|"))
        numbers = [float(cell.split()[0]) for cell in (waited, *rest)]
        hits = (int(numbers[1]), int(numbers[2]), int(numbers[3]))
        return cls(trace, policy, numbers[0], hits, numbers[4], numbers[5])

    def __str__(self) -> str:
        """Return its line."""
        hits = " | ".join(str(each) for each in self.hits)
        moved = f"{self.moved_tb:.1f} TB | {self.stopped_tb:.1f} TB"
        return f"| {self.trace} | {self.policy} | {self.waited_h:.1f} h | {hits} | {moved} |\n"


def _tb(count: int) -> float:
    return round(count / GB / 1000, 1)


def policies_for(trace: Trace) -> dict[str, TieringPolicy]:
    """Return what is compared."""
    return {"LRU": LeastRecentlyUsed(), "Greedy-Dual": GreedyDual(), "clairvoyant": Clairvoyant(trace)}


def rows_of(page: str) -> list[Row]:
    """Read the table of a page."""
    found = TABLE.search(page)
    return [Row.read(line) for line in found.group(1).splitlines()] if found is not None else []


def drawn(rows: Sequence[Row]) -> str:
    """Return the picture: above how long requests waited, below which tier they found their checkpoint in."""
    most = max(row.waited_h for row in rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 520" font-family="{FONTS}" font-size="14">',
        "<title>Waiting and hits by tier: LRU, Greedy-Dual and a policy that knows the future</title>",
        '<rect width="960" height="520" rx="10" fill="#ffffff"/>',
        _text(30, 34, "hours that all requests waited together", bold=True),
        _text(30, 284, "where requests found their checkpoint", bold=True),
    ]
    for number, (name, colour) in enumerate(COLOURS.items()):
        parts += [_box(500 + 140 * number, 23, 12, 12, colour), _text(518 + 140 * number, 34, name)]
    for number, (name, colour) in enumerate(TIERS):
        parts += [_box(500 + 140 * number, 273, 12, 12, colour), _text(518 + 140 * number, 284, name)]
    traces = list(dict.fromkeys(row.trace for row in rows))
    for number, row in enumerate(rows):
        place = traces.index(row.trace)
        left = 50 + 228 * place + 62 * (number - next(i for i, one in enumerate(rows) if one.trace == row.trace))
        high = round(150 * row.waited_h / most)
        parts += [
            _box(left, 220 - high, 52, high, COLOURS[row.policy]),
            _text(left + 6, 214 - high, f"{row.waited_h:.1f}"),
        ]
        top = 300
        for hits, (_, colour) in zip(row.hits, TIERS, strict=True):
            height = round(170 * hits / sum(row.hits))
            parts.append(_box(left, top, 52, height, colour))
            top += height
        parts.append(_text(left + 2, 488, SHORT[row.policy]))
    for place, trace in enumerate(traces):
        parts += [_text(110 + 228 * place, 242, trace), _text(110 + 228 * place, 508, trace, bold=True)]
    return "\n".join([*parts, "</svg>", ""])


def _box(x: int, y: int, width: int, height: int, colour: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{colour}"/>'


def _text(x: int, y: int, text: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x}" y="{y}" fill="#26313c"{weight}>{text}</text>'


def replayed(make: Callable[[int], Trace], name: str) -> Row:
    """Replay a trace by the policy of this name."""
    trace = make(SEED)
    return Row.of(trace, name, replay(trace, policies_for(trace)[name]))


def main() -> None:
    """Replay, and write both."""
    rows = [replayed(make, name) for make in TRACES for name in COLOURS]
    page = PAGE.read_text("utf-8")
    lines = "".join(str(row) for row in rows)
    PAGE.write_text(TABLE.sub(lambda found: found.group().replace(found.group(1), lines), page), "utf-8")
    PICTURE.write_text(drawn(rows), "utf-8")


if __name__ == "__main__":
    main()
