"""``sim replay --nodes``: one seed of a world of nodes again, told as it happened."""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import click

from iriscw.cli.outcome import CheckFailed
from iriscw.cli.output import emit, to_json, to_yaml, visible

if TYPE_CHECKING:
    from iriscw_sims.nodes.story import Event
    from iriscw_sims.timeline.selection import Selection

TRACE_LINES: Final = 500_000
"""Lines of the trace that are kept, the latest."""


def replay_nodes(seed: int, plan: object, selection: Selection, *, trace: bool, form: str) -> None:
    """Run it, and tell what was written down and what went wrong.

    Raises:
        CheckFailed: an invariant was violated.
    """
    from iriscw_sims.nodes.story import Story
    from iriscw_sims.nodes.swarm import NodesPlan
    from iriscw_sims.nodes.world import NodesWorld
    from iriscw_sims.plans import dump_plan
    from iriscw_sims.run import as_json
    from iriscw_sims.timeline.text import clock

    if plan is not None and not isinstance(plan, NodesPlan):
        raise click.UsageError("--nodes replays worlds of nodes, and this is the plan of a fleet")
    world = NodesWorld(seed, plan)
    if trace:
        world.simulation.trace = deque(world.simulation.trace, maxlen=TRACE_LINES)
    story = Story(world)
    made = world.run()
    chosen = [event for event in story.events if _wanted(event, selection)]
    steps = list(world.simulation.trace) if trace else []
    called = f"seed {seed}" + ("" if plan is None else ", its own plan")
    if form == "table":
        outcome = "broken" if made.violations else "held"
        emit(f"{called}: {outcome}; trace {made.trace}\n\n")
        emit("".join(f"{clock(event.at):>12}  {event.who:<20}  {visible(event.what)}\n" for event in chosen))
        emit("".join(f"{step}\n" for step in steps) + "".join(f"\n{visible(each)}\n" for each in made.violations))
    else:
        told = [{"at_s": event.at / 1_000_000_000, "who": event.who, "what": event.what} for event in chosen]
        report: dict[str, Any] = {**as_json(made), "plan": json.loads(dump_plan(world.plan)), "timeline": told}
        report.update({"trace_lines": steps} if trace else {})
        emit(to_json(report) if form == "json" else to_yaml(report))
    if made.violations:
        raise CheckFailed(f"{called} violates an invariant: {made.violations[0]}")


def _wanted(event: Event, selection: Selection) -> bool:
    named = not selection.only or any(each in event.who or each in event.what for each in selection.only)
    return named and (selection.since or 0) <= event.at and (selection.until is None or event.at <= selection.until)
