"""A plan of nodes as an assertion: run it, and fail with everything that is needed to understand it and to keep it."""

from __future__ import annotations

from pathlib import Path

from iriscw_sims.holding import commit_of
from iriscw_sims.nodes.swarm import NodesPlan, draw_nodes_plan
from iriscw_sims.nodes.world import NodesWorld
from iriscw_sims.plan_text import imports_for, pack, plan_text
from iriscw_sims.world import Run


def assert_holds(plan: NodesPlan) -> Run:
    """Run a plan and fail if it breaks an invariant.

    Args:
        plan: what to run.

    Returns:
        what came of it.

    Raises:
        AssertionError: an invariant is broken; the message says all.
        PlanInvalid: a value in the plan cannot be.
    """
    __tracebackhide__ = True  # pytest shows the test's own lines
    run = NodesWorld(plan.seed, plan).run()
    if run.violations:
        raise AssertionError(failure(plan, run))
    return run


def failure(plan: NodesPlan, run: Run) -> str:
    """Return the message of a failure."""
    text = plan_text(plan)
    commit = commit_of(Path(__file__).parent)
    where = f"seed {plan.seed}" + (f", commit {commit}" if commit else "")
    told, _, _ = run.report.partition("\n\nrepeat it:")
    keep = f"{imports_for(text)}\n\nPLAN = {text}"
    return (
        f"{run.violations[0]}\n({where})\n\nto keep it as a test:\n\n{keep}\n\n{told}\n\nrepeat it: {command(plan)}\n"
    )


def command(plan: NodesPlan) -> str:
    """Return the command that runs a plan again."""
    if plan == draw_nodes_plan(plan.seed):
        return f"iriscw sim replay --nodes {plan.seed}"
    return f"iriscw sim replay --plan {pack(plan)}"
