"""docs/freezing.md shows the tables that the code walks: phases and gates. ``python test_tables.py`` prints them."""

import sys
from pathlib import Path

from iriscw.freeze import freezing, thawing
from iriscw.freeze.gates import FREEZE_GATES, LAZY_GATES, THAW_GATES
from iriscw.freeze.model import FreezePhase, ThawPhase

PAGE = Path(__file__).parents[2] / "docs" / "freezing.md"

TURNS = {
    "over": "ends; nothing was touched",
    "undo": "undone",
    "again": "taken again",
    "look": "who lives decides",
    "kill": "what came back is killed",
    "finish": "finished",
}


def freeze_table() -> str:
    """Draw the life of a freeze."""
    lines = [
        "| phase | what it does | then | then, if it runs on | after a failure | after a crash | if it runs on |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for phase, row in freezing.PHASES.items():
        turns = [TURNS[each.value] for each in (row.failed, row.crashed, row.crashed_running)]
        cells = [phase.value, row.does, row.then.value, row.then_running.value, *turns]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def thaw_table() -> str:
    """Draw the life of a thaw."""
    lines = ["| phase | what it does | then | after a failure | after a crash |", "| --- | --- | --- | --- | --- |"]
    for phase, row in thawing.PHASES.items():
        cells = [phase.value, row.does, row.then.value, TURNS[row.failed.value], TURNS[row.crashed.value]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def gate_table(gates) -> str:
    """Draw gates, in their order."""
    lines = ["| gate | asks for |", "| --- | --- |", *(f"| {gate.name} | {gate.wants} |" for gate in gates)]
    return "\n".join(lines)


TABLES = {
    "freeze": freeze_table,
    "thaw": thaw_table,
    "gates of a freeze": lambda: gate_table(FREEZE_GATES),
    "gates of a thaw": lambda: gate_table(THAW_GATES),
    "gates of a lazy thaw": lambda: gate_table(LAZY_GATES),
}


def test_the_page_shows_the_tables():
    """Each table stands on the page as the code has it."""
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name, draw in TABLES.items() if f"{draw()}\n" not in page] == []


def test_every_phase_has_a_row():
    """Only what owes nothing has none."""
    assert {*freezing.PHASES} == {*FreezePhase} - {FreezePhase.NEW, FreezePhase.OVER}
    assert {*thawing.PHASES} == {*ThawPhase} - {ThawPhase.NEW, ThawPhase.OVER}


if __name__ == "__main__":
    for title, draw_table in TABLES.items():
        sys.stdout.write(f"{title}\n\n{draw_table()}\n\n")
