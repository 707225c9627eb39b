"""A plan as an assertion: run it, and fail with everything that is needed to understand it and to keep it.

Theory of operation. The message of a failure has, in this order: what was broken, by which seed and commit; the plan as
Python to paste into a test; the faults that fired and the last lines of the trace; one command that runs it again. A
plan that its seed draws is named by the seed; any other travels in the command itself, so that nothing has to be saved.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from iriscw.fleet.policy import Policy, RoutingPolicy
from iriscw_sims.outcome import Meter, Outcome
from iriscw_sims.plan_text import imports_for, pack, plan_text
from iriscw_sims.policies import Asked, AskedWhere
from iriscw_sims.swarm import Plan, draw_plan
from iriscw_sims.world import Run, World

NOBODY: Mapping[str, Asked | AskedWhere] = {}


def assert_holds(plan: Plan, *, policy: Policy | None = None, routing: RoutingPolicy | None = None) -> Outcome:
    """Run a plan and fail if it breaks an invariant.

    Args:
        plan: what to run.
        policy: says how many slices each group should have. Default: the one that is built in.
        routing: says which groups demand may go to. Default: the one that is built in.

    Returns:
        what came of it, with figures for what a test wants to assert beside.

    Raises:
        AssertionError: an invariant is broken, or a policy failed; the message says all.
    """
    __tracebackhide__ = True  # pytest shows the test's own lines
    world = World(plan.seed, plan, policy=policy, routing=routing)
    world.ends_with_policy = True
    meter = Meter(world)
    run = world.run()
    if run.violations:
        asked = {
            name: each for name, each in (("policy", world.policy), ("routing", world.routing)) if each is not None
        }
        errors = [each.error.with_traceback(each.frames) for each in asked.values() if each.error is not None]
        raise AssertionError(failure(plan, run, asked)) from (errors[0] if errors else None)
    return meter.outcome(run)


def failure(plan: Plan, run: Run, asked: Mapping[str, Asked | AskedWhere] = NOBODY) -> str:
    """Return the message of a failure; ``asked`` are policies by the argument that took them."""
    text = plan_text(plan)
    commit = commit_of(Path(__file__).parent)
    where = f"seed {plan.seed}" + (f", commit {commit}" if commit else "")
    told, _, _ = run.report.partition("\n\nrepeat it:")
    keep = f"{imports_for(text)}\n\nPLAN = {text}"
    repeat = command(plan)
    if asked:
        names = {argument: getattr(each.policy, "__name__", argument) for argument, each in asked.items()}
        answers = [f"what {names[argument]} answered last:\n{each.told}" for argument, each in asked.items()]
        told = "\n\n".join([*answers, told])
        given = ", ".join(f"{argument}={name}" for argument, name in names.items())
        repeat = f"assert_holds(PLAN, {given})"
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
