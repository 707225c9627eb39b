"""``sim plan``: what a seed draws, as a file that can be changed and replayed."""

from __future__ import annotations

import difflib

import click

from iriscw.cli.output import emit
from iriscw.cli.sim.kinds import SEED, plan_option, read_plan


@click.command()
@click.argument("seed", type=SEED, required=False)
@plan_option
@click.option("--without", "kinds", multiple=True, metavar="KIND", help="Leave one kind of fault or chance out.")
def plan(*, seed: int | None, plan: str | None, kinds: tuple[str, ...]) -> None:
    """Write the plan of a seed as JSON: groups, jobs, faults with their moments, and rates of chances.

    A plan that is saved and changed runs with `iriscw sim replay --plan FILE`.
    """
    from iriscw_sims.plans import dump_plan
    from iriscw_sims.swarm import FAULTS, RATES, draw_plan

    known = (*FAULTS, *dict(RATES))
    for kind in kinds:
        if kind not in known:
            near = difflib.get_close_matches(kind, known, n=3, cutoff=0.4)
            meant = f": did you mean {' or '.join(map(repr, near))}?" if near else ""
            raise click.UsageError(f"there is no fault or chance {kind!r}{meant}")
    if (plan is None) == (seed is None):
        raise click.UsageError("name a SEED or a --plan")
    made = read_plan(plan) if plan is not None else draw_plan(seed or 0)
    for kind in kinds:
        made = made.without(kind)
    emit(dump_plan(made))
