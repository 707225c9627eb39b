"""``docs/internals/states.md`` says what the tables say; ``python tests/test_state_diagrams.py`` writes it anew."""

import enum
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from iriscw.checkpoint import moving
from iriscw.checkpoint.model import MovePhase
from iriscw.fleet.lifecycle import POD_TABLE, SLICE_TABLE, PodState, SliceState
from iriscw.freeze import freezing, thawing
from iriscw.freeze.model import FreezePhase, ThawPhase
from iriscw.worker.attempt import TRANSITIONS
from iriscw.worker.model import AttemptPhase

PAGE = Path(__file__).parents[1] / "docs" / "internals" / "states.md"

HEAD = """\
# State diagrams

<!-- Made by `python tests/test_state_diagrams.py`; a test compares. -->

The lives that are kept as tables, drawn from those tables. What does not stand on an arrow changes nothing. The text of
an arrow is an event, a record of the journal, or what became of a step.
"""

LIVING = ("checkpoint", "fleet", "freeze", "jobs", "nodes", "worker")
"""Packages with such tables."""

Arrow = tuple[enum.Enum, enum.Enum, str]


def of_events(table) -> Iterable[Arrow]:
    """Return the arrows of a table of states and events."""
    return [(state, then, event.value) for (state, event), then in table.items() if isinstance(then, enum.Enum)]


def of_records(table) -> Iterable[Arrow]:
    """Return the arrows of a table of states and records."""
    return [(state, then, record.__name__) for state, rows in table.items() for record, then in rows.items()]


def of_freeze() -> Iterable[Arrow]:
    """Yield the arrows of a freeze: what follows a step, and what its failure leads to."""
    for phase, row in freezing.PHASES.items():
        if row.then is row.then_running:
            yield phase, row.then, "done"
        else:
            yield phase, row.then, "done, it ends"
            yield phase, row.then_running, "done, it runs on"
        if row.failed is freezing.FreezeTurn.UNDO:
            yield phase, FreezePhase.UNDOING, "failed"
        elif row.failed is freezing.FreezeTurn.OVER:
            yield phase, FreezePhase.OVER, "failed"


def of_thaw() -> Iterable[Arrow]:
    """Yield the arrows of a thaw."""
    for phase, row in thawing.PHASES.items():
        for then in row.then:
            yield phase, then, "done"
        if row.failed is thawing.ThawTurn.KILL and phase is not ThawPhase.KILLING:
            yield phase, ThawPhase.KILLING, "failed"
        elif row.failed is thawing.ThawTurn.OVER:
            yield phase, ThawPhase.OVER, "failed"


def of_move() -> Iterable[Arrow]:
    """Yield the arrows of a move. What it was copied from stays where the copy is lost."""
    for phase, row in moving.PHASES.items():
        yield phase, row.then, "done"
        if row.failed is moving.MoveTurn.UNDO:
            yield phase, MovePhase.UNDOING, "failed"
    yield MovePhase.OPENING, MovePhase.DROPPING, "it is there, and nothing is to go"
    yield MovePhase.DROPPING, MovePhase.UNDOING, "the copy is lost"


DIAGRAMS = {
    "A slice": ("fleet.lifecycle.SLICE_TABLE", SliceState.REQUESTED, list(of_events(SLICE_TABLE))),
    "A worker's place in a slice": ("fleet.lifecycle.POD_TABLE", PodState.VACANT, list(of_events(POD_TABLE))),
    "An attempt on its worker": ("worker.attempt.TRANSITIONS", AttemptPhase.NEW, list(of_records(TRANSITIONS))),
    "A freeze": ("freeze.freezing.PHASES", FreezePhase.LOOKING, list(of_freeze())),
    "A move": ("checkpoint.moving.PHASES", MovePhase.OPENING, list(of_move())),
    "A thaw": ("freeze.thawing.PHASES", ThawPhase.OPENING, list(of_thaw())),
}


def diagram(first: enum.Enum, arrows: list[Arrow]) -> str:
    """Draw it, in Mermaid's words. Arrows between the same two states are one."""
    lines = [f"    [*] --> {first.name}"]
    texts: dict[tuple[enum.Enum, enum.Enum], list[str]] = {}
    for state, then, text in arrows:
        texts.setdefault((state, then), []).append(text.replace(":", ","))
    for (state, then), said in texts.items():
        lines.append(f"    {state.name} --> {then.name}: {' / '.join(dict.fromkeys(said))}")
    lasting = dict.fromkeys(then for _, then, _ in arrows if not any(state is then for state, _, _ in arrows))
    lines += [f"    {state.name} --> [*]" for state in lasting]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def page() -> str:
    """Return the page."""
    parts = [HEAD]
    for title, (table, first, arrows) in DIAGRAMS.items():
        parts.append(f"\n## {title}\n\nFrom `{table}`.\n\n{diagram(first, arrows)}\n")
    return "".join(parts)


def test_the_page_is_todays():
    """A state or an event that comes, goes or leads elsewhere changes the page."""
    assert PAGE.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("title", DIAGRAMS)
def test_every_state_is_reached_and_left(title):
    """From the first one on, and each leads to an end: what is drawn is the whole life."""
    _, first, arrows = DIAGRAMS[title]
    reached = {first}
    while more := {then for state, then, _ in arrows if state in reached} - reached:
        reached |= more
    named = {state for state, _, _ in arrows} | {then for _, then, _ in arrows}
    assert named == reached
    ends = {then for _, then, _ in arrows} - {state for state, _, _ in arrows}
    assert ends
    ending = set(ends)
    while more := {state for state, then, _ in arrows if then in ending} - ending:
        ending |= more
    assert named == ending


def test_every_table_of_a_life_is_drawn(sources):
    """A table with such a name in a pure module of a feature is on the page."""
    names = re.compile(r"^(TRANSITIONS|PHASES|[A-Z]+_TABLE): ", re.MULTILINE)
    found = {
        f"{source.module.removeprefix('iriscw.')}.{match[1]}"
        for source in sources
        if source.module.split(".")[1:2] in ([each] for each in LIVING)
        for match in names.finditer(source.text)
        if ".drivers." not in source.module
    }
    assert found == {table for table, _, _ in DIAGRAMS.values()}


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
