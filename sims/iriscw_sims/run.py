"""Runs seeds one after the other, and sums up what came of them; ``iriscw sim run`` is the command around it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from iriscw_sims.nodes.world import NodesWorld
from iriscw_sims.world import Run, World


def run_seeds(seeds: Iterable[int], *, until_broken: bool = False, nodes: bool = False) -> Iterator[Run]:
    """Run each seed's own plan, and give what came of it; the first that breaks something may be the last.

    With ``nodes`` a seed draws a world of nodes, which freeze and thaw, and not a fleet.
    """
    for seed in seeds:
        run = (NodesWorld(seed) if nodes else World(seed)).run()
        yield run
        if run.violations and until_broken:
            return


def as_json(run: Run) -> dict[str, Any]:
    """Return a run as it stands in the output."""
    return {
        "seed": run.seed,
        "trace": run.trace,
        "simulated_s": round(run.simulated_s, 3),
        "steps": run.steps,
        "violations": list(run.violations),
    }


@attrs.define
class Totals:
    """The sum over runs."""

    seeds: int = 0
    simulated_s: float = 0.0
    steps: int = 0
    broken: list[int] = attrs.field(factory=list)
    """The seeds that broke an invariant."""
    fired: Counter[str] = attrs.field(factory=Counter)
    """How often each fault and chance came true."""

    def add(self, run: Run) -> None:
        """Count one more run."""
        self.seeds += 1
        self.simulated_s += run.simulated_s
        self.steps += run.steps
        self.fired.update(dict(run.fired))
        if run.violations:
            self.broken.append(run.seed)

    def pace(self, wall_s: float) -> str:
        """Say how much was simulated, and how fast."""
        per_s = 1 / max(wall_s, 1e-9)
        hours = f"{self.simulated_s / 3600:,.1f} simulated hours"
        speed = f"{self.seeds * per_s:.1f} seeds/s, {self.steps * per_s:,.0f} steps/s"
        return f"{self.seeds} seeds in {wall_s:.1f} s: {hours}, {self.steps:,} steps; {speed}"


def main(argv: list[str] | None = None) -> int:
    """Do what ``iriscw sim run`` does; give the exit code."""
    from iriscw.cli import main as command

    return command(["sim", "run", *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    sys.exit(main())
