"""A plan as an assertion: run it, and fail with everything that is needed to understand it and to keep it.

Theory of operation. The message of a failure has, in this order: what was broken, by which seed and commit; the plan as
Python to paste into a test; the faults that fired and the last lines of the trace; one command that runs it again. A
plan that its seed draws is named by the seed; any other travels in the command itself, so that nothing has to be saved.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from iriscw_sims.plan_text import imports_for, pack, plan_text
from iriscw_sims.swarm import Plan, draw_plan
from iriscw_sims.world import Run, World


def assert_holds(plan: Plan) -> Run:
    """Run a plan and fail if it breaks an invariant.

    Returns:
        what came of it, for what a test wants to look at beside.

    Raises:
        AssertionError: an invariant is broken; the message says all.
    """
    run = World(plan.seed, plan).run()
    if run.violations:
        raise AssertionError(failure(plan, run))
    return run


def failure(plan: Plan, run: Run) -> str:
    """Give the message of a failure."""
    text = plan_text(plan)
    commit = commit_of(Path(__file__).parent)
    where = f"seed {plan.seed}" + (f", commit {commit}" if commit else "")
    told, _, _ = run.report.partition("\n\nrepeat it:")
    keep = f"{imports_for(text)}\n\nPLAN = {text}"
    return (
        f"{run.violations[0]}\n({where})\n\nto keep it as a test:\n\n{keep}\n\n{told}\n\nrepeat it: {command(plan)}\n"
    )


def command(plan: Plan) -> str:
    """Give the command that runs a plan again."""
    if plan == draw_plan(plan.seed):
        return f"python -m iriscw_sims.run --seeds 1 --first {plan.seed}"
    return f"python -m iriscw_sims.rerun {pack(plan)}"


def commit_of(folder: Path) -> str:
    """Give the commit that a folder's files are of, with a mark if they were changed; empty if nobody knows."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],  # noqa: S607 - the PATH is the user's
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
