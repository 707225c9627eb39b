"""``sim replay``: one seed again, told as a timeline, drawn as a picture."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from iriscw.cli.outcome import CheckFailed
from iriscw.cli.output import emit, format_option, to_json, to_yaml, visible
from iriscw.cli.sim.kinds import SEED, Moment, nodes_option, picture_option, plan_option, read_plan, write_picture
from iriscw.cli.sim.replay_nodes import replay_nodes

if TYPE_CHECKING:
    from iriscw_sims import Plan, Run, World
    from iriscw_sims.timeline.model import Timeline
    from iriscw_sims.timeline.selection import Selection

TRACE_LINES: Final = 500_000
"""Lines of the trace that --trace keeps, the latest: 60 MB; a seed has ten thousand."""


@click.command()
@click.argument("seed", type=SEED, required=False)
@nodes_option
@plan_option
@click.option(
    "--only",
    multiple=True,
    metavar="TEXT",
    help="Only what concerns a subject whose name holds this: slice/, iris-g0-a2b, job-x/3, controller, fault; "
    "may be repeated.",
)
@click.option("--from", "since", type=Moment(), help="From this moment of the run on, such as 90s or 1:30.5.")
@click.option("--to", "until", type=Moment(), help="Up to this moment.")
@click.option("--all", "details", is_flag=True, help="Details, too: every report, though nothing is in another state.")
@click.option("--trace", is_flag=True, help="The simulation's own trace of that time, too: every step.")
@picture_option
@format_option
def replay(
    *,
    seed: int | None,
    nodes: bool,
    plan: str | None,
    only: tuple[str, ...],
    since: int | None,
    until: int | None,
    details: bool,
    trace: bool,
    picture: Path | None,
    form: str,
) -> None:
    """Run a seed again and tell what happened: when, who, what, why. The exit code is 1 if an invariant was violated.

    A --plan runs with the seed that it names, or with SEED if both are given. The timeline shows what the controller's
    actors reported, what its disk says of jobs, what the cloud did, and all faults. WHO is what --only takes.
    """
    from iriscw_sims import Plan, World
    from iriscw_sims.timeline.model import Level
    from iriscw_sims.timeline.picture.page import Caption, facts_of, page
    from iriscw_sims.timeline.selection import Selection, select
    from iriscw_sims.timeline.watching import watch

    if since is not None and until is not None and until < since:
        raise click.UsageError("--to is before --from")
    selection = Selection(only, since, until, Level.DETAIL if details else Level.CHANGE)
    own = read_plan(plan) if plan is not None else None
    number = own.seed if seed is None and own is not None else seed
    if number is None:
        raise click.UsageError("name a SEED or a --plan")
    if nodes or not (own is None or isinstance(own, Plan)):
        if picture is not None:
            raise click.UsageError("--picture draws fleets, and this is a world of nodes")
        replay_nodes(number, own, selection, trace=trace, form=form)
        return
    world = World(number, own)
    if trace:
        world.simulation.trace = deque(world.simulation.trace, maxlen=TRACE_LINES)
    watcher = watch(world)
    try:
        made = world.run()
    except Exception:  # a bug: what led to it is worth more than ever
        emit("".join(_timeline_lines(select(watcher.finish(), selection))))
        raise
    whole = watcher.finish(made)
    chosen = select(whole, selection)
    said = _called(number, own)
    steps = list(_of_time(world, selection)) if trace else []
    if form == "table":
        emit("".join(_told(said, world, made, whole, chosen)) + "".join(f"{step}\n" for step in steps))
    else:
        report = {**_report(world, made, chosen), **({"trace_lines": steps} if trace else {})}
        emit(to_json(report) if form == "json" else to_yaml(report))
    if picture is not None:
        drawn = select(whole, Selection(only, since, until))
        caption = Caption(said, (*facts_of(whole), f"trace {made.trace[:12]}"))
        write_picture(picture, page(drawn, caption, since=since or 0))
        click.echo(f"{said} is drawn in {picture}", err=True)
    if made.violations:
        raise CheckFailed(f"{said} violates an invariant: {made.violations[0]}")


def _called(seed: int, own: Plan | None) -> str:
    from iriscw_sims import draw_plan

    if own is None:
        return f"seed {seed}"
    return f"seed {seed}, its own plan" if own == draw_plan(seed) else f"seed {seed}, another plan"


def _told(said: str, world: World, made: Run, whole: Timeline, chosen: Timeline) -> Iterator[str]:
    """Yield what people read: the run, its plan, the timeline, and what was violated."""
    from iriscw_sims.timeline.picture.page import facts_of

    outcome = "broken" if made.violations else "held"
    yield f"{said}: {outcome}; trace {made.trace}\n{'; '.join(facts_of(whole))}\n\n"
    yield from _plan_lines(world.plan, whole)
    yield "\n"
    yield from _timeline_lines(chosen)
    for violation in made.violations:
        yield f"\n{visible(violation)}\n"


def _timeline_lines(chosen: Timeline) -> Iterator[str]:
    from iriscw_sims.timeline.text import lines

    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return (f"{line}\n" for line in lines(chosen, colour=colour))


def _plan_lines(plan: Plan, whole: Timeline) -> Iterator[str]:
    """Yield the plan's faults, with what became of each, and the rates of its chances."""
    from iriscw_sims.swarm import RESTART_FAULTS
    from iriscw_sims.timeline.text import clock

    struck = dict.fromkeys((event.at, event.subject.partition("/")[2]) for event in whole.events)
    fired = dict(whole.fired)
    yield f"faults of the plan, which end at {clock(plan.safety)}:\n"
    for fault in plan.faults:
        hit = (fault.at, fault.kind) in struck
        missed = "found nothing to strike"
        if fault.kind in RESTART_FAULTS:
            missed = "later, when its moment came" if fired.get(fault.kind) else "its moment did not come"
        became = "" if hit else missed
        yield f"{clock(fault.at):>12}  {fault.kind:<44}  {became}".rstrip() + "\n"
    if not plan.faults:
        yield "        none\n"
    chances = ", ".join(f"{name} {rate / 10:g} %" for name, rate in plan.rates)
    yield f"chances: {chances or 'none'}\n"


def _report(world: World, made: Run, chosen: Timeline) -> dict[str, Any]:
    import json

    from iriscw_sims.plans import dump_plan
    from iriscw_sims.run import as_json
    from iriscw_sims.timeline.text import as_values

    return {**as_json(made), "plan": json.loads(dump_plan(world.plan)), "timeline": as_values(chosen)}


def _of_time(world: World, selection: Selection) -> Iterator[str]:
    """Yield the lines of the trace of the chosen time; each begins with its ns."""
    for line in world.simulation.trace:
        at = int(line.partition(" ")[0])
        if (selection.since or 0) <= at and (selection.until is None or at <= selection.until):
            yield line
