"""Run seeds from the command line: ``python -m iriscw_sims.run --seeds 100 --first 0 -o json``.

Exit code 0: no invariant was broken. 1: one was; the report of each such seed is on standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from typing import Any

from iriscw_sims.world import Run, World


def as_json(run: Run) -> dict[str, Any]:
    """Give a run as it stands in the output."""
    return {
        "seed": run.seed,
        "trace": run.trace,
        "simulated_s": round(run.simulated_s, 3),
        "violations": list(run.violations),
    }


def main(argv: list[str] | None = None) -> int:
    """Run the seeds that the arguments name; give the exit code."""
    parser = argparse.ArgumentParser(prog="python -m iriscw_sims.run", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--until-broken", action="store_true", help="stop at the first seed that breaks something")
    parser.add_argument("--faults", action="store_true", help="count how often each fault fired, on standard error")
    chosen = parser.parse_args(argv)
    began = time.monotonic()
    runs = []
    fired: Counter[str] = Counter()
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        run = World(seed).run()
        runs.append(as_json(run))
        fired.update(dict(run.fired))
        if run.report:
            sys.stderr.write(run.report + "\n")
        if chosen.output == "table":
            outcome = run.violations[0] if run.violations else "held"
            sys.stdout.write(f"{seed:>8}  {run.trace}  {run.simulated_s:9.1f} s  {run.steps:>7} steps  {outcome}\n")
        if run.violations and chosen.until_broken:
            break
    wall_s = round(time.monotonic() - began, 3)
    if chosen.output == "json":
        sys.stdout.write(json.dumps({"runs": runs, "wall_s": wall_s}) + "\n")
    if chosen.faults:
        sys.stderr.write("".join(f"{count:>8}  {name}\n" for name, count in sorted(fired.items())))
    return 1 if any(run["violations"] for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
