"""docs/freezing.md shows the tables that the code walks: phases and gates. ``python test_tables.py`` prints them."""

import sys
from functools import partial
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "catalogue"))

from catalogue_entry import Refused
from test_catalogue import ENTRIES

from iriscw.freeze import freezing, thawing
from iriscw.freeze.gates import FREEZE_GATES, LAZY_GATES, THAW_GATES, TREE_GATES
from iriscw.freeze.model import FreezePhase, ThawPhase
from iriscw.freeze.verdicts import VERDICTS, Verdict

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
        then = ", ".join(each.value for each in row.then)
        cells = [phase.value, row.does, then, TURNS[row.failed.value], TURNS[row.crashed.value]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def gate_table(gates) -> str:
    """Draw gates, in their order."""
    lines = ["| gate | asks for |", "| --- | --- |", *(f"| {gate.name} | {gate.wants} |" for gate in gates)]
    return "\n".join(lines)


def verdict_table(rows) -> str:
    """Draw what becomes of each thing of a kind."""
    lines = ["| what | verdict | |", "| --- | --- | --- |"]
    lines += [f"| {row.what} | {row.verdict.value} | {row.how} |".replace("|  |", "| |") for row in rows]
    return "\n".join(lines)


TABLES = {
    **{f"verdicts: {kind}": partial(verdict_table, rows) for kind, rows in VERDICTS},
    "freeze": freeze_table,
    "thaw": thaw_table,
    "gates of a freeze": lambda: gate_table((*TREE_GATES, *FREEZE_GATES)),
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


@pytest.mark.parametrize("row", [pytest.param(row, id=row.what) for _, rows in VERDICTS for row in rows])
def test_each_verdict_is_shown_by_a_real_program(row):
    """Each row names entries of the catalogue, which expect what it says."""
    entries = {entry.name: entry for entry in ENTRIES}
    shown = [entries[name] for name in row.entries]
    refusals = [isinstance(entry.verdict, Refused) for entry in shown]
    assert any(refusals) if row.verdict is Verdict.REFUSED else not all(refusals) or row.what in NOT_HERE


NOT_HERE = ("another user", "a terminal of somebody else")
"""What this machine may not have the right for, and what has tests of its own with a real shell."""


if __name__ == "__main__":
    for title, draw_table in TABLES.items():
        sys.stdout.write(f"{title}\n\n{draw_table()}\n\n")
