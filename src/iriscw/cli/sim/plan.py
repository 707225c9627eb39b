"""``sim plan``: what a seed draws, as a file that can be changed and replayed."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from iriscw.cli.output import emit
from iriscw.cli.sim.kinds import SEED, nodes_option, plan_option, read_plan

if TYPE_CHECKING:
    from iriscw_sims import Plan
    from iriscw_sims.nodes.swarm import NodesPlan


@click.command()
@click.argument("seed", type=SEED, required=False)
@plan_option
@nodes_option
@click.option("--without", "kinds", multiple=True, metavar="KIND", help="Leave one kind of fault or chance out.")
def plan(*, seed: int | None, plan: str | None, nodes: bool, kinds: tuple[str, ...]) -> None:
    """Write the plan of a seed as JSON: groups, jobs, faults with their moments, and rates of chances.

    With --nodes: machines, workloads, what users ask for, faults and rates.

    A plan that is saved and changed runs with `iriscw sim replay --plan FILE`.
    """
    from iriscw_sims.nodes import swarm
    from iriscw_sims.plans import dump_plan
    from iriscw_sims.swarm import FAULTS, RATES, draw_plan

    if (plan is None) == (seed is None):
        raise click.UsageError("name a SEED or a --plan")
    draw: Callable[[int], Plan | NodesPlan] = swarm.draw_nodes_plan if nodes else draw_plan
    made = read_plan(plan) if plan is not None else draw(seed or 0)
    of_nodes = isinstance(made, swarm.NodesPlan)
    known = (*swarm.FAULTS, *dict(swarm.RATES)) if of_nodes else (*FAULTS, *dict(RATES))
    for kind in kinds:
        if kind not in known:
            near = difflib.get_close_matches(kind, known, n=3, cutoff=0.4)
            meant = f": did you mean {' or '.join(map(repr, near))}?" if near else ""
            raise click.UsageError(f"there is no fault or chance {kind!r}{meant}")
    for kind in kinds:
        made = made.without(kind)
    emit(dump_plan(made))
