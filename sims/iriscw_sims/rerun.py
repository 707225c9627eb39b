"""Run one plan again, and make it smaller: ``python -m iriscw_sims.rerun WORD --shrink``.

``WORD`` is what a failure printed, or a file that holds a plan as Python, as it printed that. Exit code 0: no invariant
was broken. 1: one was, and the report is on standard error. With ``--shrink`` the plan that is left is on standard
output. ``--seed N`` takes the plan that a seed draws.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from iriscw._errors import InvalidArgument
from iriscw_sims.holding import command, failure
from iriscw_sims.plan_text import imports_for, plan_text, read_plan, unpack
from iriscw_sims.shrinking import MAX_RUNS, breaks_like, run_plan, shrink
from iriscw_sims.swarm import Plan, draw_plan


def main(argv: list[str] | None = None) -> int:
    """Run the plan that the arguments name; give the exit code."""
    parser = argparse.ArgumentParser(prog="python -m iriscw_sims.rerun", description=__doc__)
    parser.add_argument("plan", nargs="?", help="a word that a failure printed, or a file")
    parser.add_argument("--seed", type=int, help="the plan that this seed draws")
    parser.add_argument("--shrink", action="store_true", help="look for a smaller plan that breaks the same")
    parser.add_argument("--max-runs", type=int, default=MAX_RUNS, help="how many plans to try for that")
    chosen = parser.parse_args(argv)
    if (chosen.plan is None) == (chosen.seed is None):
        parser.error("name a plan or a seed")
    try:
        plan = draw_plan(chosen.seed) if chosen.plan is None else _named(chosen.plan)
    except (InvalidArgument, OSError) as error:
        parser.error(str(error))
    run = run_plan(plan)
    if not run.violations:
        sys.stdout.write(f"held  {run.trace}  {run.simulated_s:.1f} s  {run.steps} steps\n")
        return 0
    if chosen.shrink:
        plan = shrink(plan, breaks_like(run), max_runs=chosen.max_runs)
        run = run_plan(plan)
        text = plan_text(plan)
        sys.stdout.write(f"{imports_for(text)}\n\nPLAN = {text}\n\n# {command(plan)}\n")
    sys.stderr.write(failure(plan, run))
    return 1


def _named(name: str) -> Plan:
    path = Path(name)
    return read_plan(path.read_text(encoding="utf-8")) if path.suffix == ".py" else unpack(name)


if __name__ == "__main__":
    sys.exit(main())
