"""A plan as an assertion: run it, and fail with everything that is needed to understand it and to keep it.

Theory of operation. The message of a failure has, in this order: what was broken, by which seed and commit; the plan as
Python to paste into a test; the faults that fired and the last lines of the trace; one command that runs it again. A
plan that its seed draws is named by the seed; any other travels in the command itself, so that nothing has to be saved.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from iriscw.fleet.policy import Policy
from iriscw_sims.outcome import Meter, Outcome
from iriscw_sims.plan_text import imports_for, pack, plan_text
from iriscw_sims.policies import Asked
from iriscw_sims.swarm import Plan, draw_plan
from iriscw_sims.world import Run, World


def assert_holds(plan: Plan, *, policy: Policy | None = None) -> Outcome:
    """Run a plan and fail if it breaks an invariant.

    Args:
        plan: what to run.
        policy: says how many slices each group should have. Default: the one that is built in.

    Returns:
        what came of it, with figures for what a test wants to assert beside.

    Raises:
        AssertionError: an invariant is broken, or the policy failed; the message says all.
    """
    __tracebackhide__ = True  # pytest shows the test's own lines
    world = World(plan.seed, plan, policy=policy)
    world.ends_with_policy = True
    meter = Meter(world)
    run = world.run()
    asked = world.policy
    if run.violations:
        cause = None if asked is None or asked.error is None else asked.error.with_traceback(asked.frames)
        raise AssertionError(failure(plan, run, asked)) from cause
    return meter.outcome(run)


def failure(plan: Plan, run: Run, policy: Asked | None = None) -> str:
    """Return the message of a failure."""
    text = plan_text(plan)
    commit = commit_of(Path(__file__).parent)
    where = f"seed {plan.seed}" + (f", commit {commit}" if commit else "")
    told, _, _ = run.report.partition("\n\nrepeat it:")
    keep = f"{imports_for(text)}\n\nPLAN = {text}"
    repeat = command(plan)
    if policy is not None:
        name = getattr(policy.policy, "__name__", "policy")
        told = f"what {name} answered last:\n{policy.told}\n\n{told}"
        repeat = f"assert_holds(PLAN, policy={name})"
    return f"{run.violations[0]}\n({where})\n\nto keep it as a test:\n\n{keep}\n\n{told}\n\nrepeat it: {repeat}\n"


def command(plan: Plan) -> str:
    """Return the command that runs a plan again."""
    if plan == draw_plan(plan.seed):
        return f"iriscw sim replay {plan.seed}"
    return f"python -m iriscw_sims.rerun {pack(plan)}"


def commit_of(folder: Path) -> str:
    """Return the commit that a folder's files are of, with a mark if they were changed; empty if nobody knows."""
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
