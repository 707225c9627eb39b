"""``sim run``: many seeds, and which of them break an invariant."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from iriscw.cli.outcome import CheckFailed
from iriscw.cli.output import cell, emit, format_option, to_json, to_yaml
from iriscw.cli.sim.kinds import SEED, nodes_option, picture_option, write_picture

if TYPE_CHECKING:
    from iriscw_sims import Run
    from iriscw_sims.run import Totals

MOST_SEEDS: Final = 10_000_000
"""Seeds of one call: a day and more of one core."""

REPORTS: Final = 3
"""Broken seeds whose report is printed in full, a screenful or four each; ``sim replay`` shows any."""

BETWEEN_S: Final = 0.5
"""Seconds between two lines of progress."""


@click.command()
@click.option("--seeds", type=click.IntRange(1, MOST_SEEDS), default=10, show_default=True, help="How many runs.")
@click.option("--first", type=SEED, default=0, show_default=True, help="The first seed.")
@click.option("--until-broken", is_flag=True, help="Stop at the first seed that breaks an invariant.")
@click.option("--faults", is_flag=True, help="Count how often each fault came true, on standard error.")
@nodes_option
@picture_option
@format_option
def run(
    *, seeds: int, first: int, until_broken: bool, faults: bool, nodes: bool, picture: Path | None, form: str
) -> None:
    """Run so many seeds; the exit code is 1 if an invariant was violated.

    Each line is a seed: its trace (equal for equal runs), how long it took in its own time, and what was violated.
    Reports of the first three broken seeds stand on standard error; `iriscw sim replay` tells the story of any.
    --picture draws the first that is broken, or else the last.
    """
    from iriscw_sims.run import Totals, as_json, run_seeds

    if nodes and picture is not None:
        raise click.UsageError("--picture draws fleets, and --nodes runs none")
    began_s, totals = time.monotonic(), Totals()
    runs: list[dict[str, Any]] = []
    progress = SimProgress(seeds, silent=form == "table" and sys.stdout.isatty())
    for made in run_seeds(range(first, first + seeds), until_broken=until_broken, nodes=nodes):
        totals.add(made)
        progress.tell(totals)
        if form == "table":
            emit(run_line(made))
        else:
            runs.append(as_json(made))
        if made.report and len(totals.broken) <= REPORTS:
            progress.clear()
            click.echo(made.report, err=True)
    progress.clear()
    wall_s = round(time.monotonic() - began_s, 3)
    if form != "table":
        report = {"runs": runs, "wall_s": wall_s, "broken": totals.broken, "fired": dict(sorted(totals.fired.items()))}
        emit(to_json(report) if form == "json" else to_yaml(report))
    if faults:
        click.echo("".join(f"{count:>8}  {name}\n" for name, count in sorted(totals.fired.items())), err=True, nl=False)
    click.echo(totals.pace(wall_s), err=True)
    if picture is not None:
        _draw(picture, totals.broken[0] if totals.broken else first + totals.seeds - 1)
    if totals.broken:
        raise CheckFailed(_which(totals, nodes=nodes))


def run_line(made: Run) -> str:
    """Write one run."""
    outcome = cell(made.violations[0]) if made.violations else "held"
    return f"{made.seed:>8}  {made.trace}  {made.simulated_s:>9.1f} s  {made.steps:>8} steps  {outcome}\n"


def _which(totals: Totals, *, nodes: bool = False) -> str:
    first, *others = totals.broken
    more = f" and {len(others)} more" if others else ""
    verb = "violates" if not others else "violate"
    replay = "iriscw sim replay --nodes" if nodes else "iriscw sim replay"
    return f"seed {first}{more} {verb} an invariant; `{replay} {first}` tells the story"


def _draw(path: Path, seed: int) -> None:
    from iriscw_sims.timeline.picture.page import Caption, facts_of, page
    from iriscw_sims.timeline.watching import replay

    made, timeline = replay(seed)
    write_picture(path, page(timeline, Caption(f"seed {seed}", (*facts_of(timeline), f"trace {made.trace[:12]}"))))
    click.echo(f"seed {seed} is drawn in {path}", err=True)


class SimProgress:
    """One line on standard error that is written over and over, where that is a terminal."""

    def __init__(self, seeds: int, *, silent: bool) -> None:
        self._seeds = seeds
        self._silent = silent or not sys.stderr.isatty()
        self._next_s = time.monotonic() + BETWEEN_S
        self._shown = False

    def tell(self, totals: Totals) -> None:
        """Say how far it is, if it is time to."""
        if self._silent or time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + BETWEEN_S
        broken = f", {len(totals.broken)} broken" if totals.broken else ""
        self._write(f"\r{totals.seeds} of {self._seeds} seeds{broken} \x1b[K")
        self._shown = True

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            self._write("\r\x1b[K")
            self._shown = False

    def _write(self, text: Any) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
