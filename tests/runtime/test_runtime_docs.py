"""The runtime's page: its code runs as it stands, and its figures are the code's."""

import builtins
import importlib.util
import re
import sys
from pathlib import Path

import pytest

from iriscw import errors, runtime
from iriscw.journal.port import DEFAULT_BOUND_BYTES, MAX_RECORD_BYTES
from iriscw.runtime import SECOND, Backoff, ChildSpec, Open, Supervision
from iriscw.runtime.behavior import DEFAULT_CAPACITY, DEFAULT_SHUTDOWN
from iriscw.runtime.dispatcher import SLOW_TURN, STEP_MESSAGES, STEP_TIME, THROUGHPUT
from iriscw.runtime.edge.reference import CHECKPOINT_EVERY, DEFAULT_ASK_TIMEOUT_S
from iriscw.runtime.edge.system import DEFAULT_GRACE_S
from iriscw.runtime.interpreter import MAX_COMMANDS, MAX_SESSION_ITEMS
from iriscw.testing.simulation.world import STEPS_WITHOUT_TIME

PAGE = Path(__file__).resolve().parents[2] / "docs" / "runtime.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def page():
    """The page's text."""
    return PAGE.read_text(encoding="utf-8")


def test_the_tutorial_runs(page, tmp_path):
    """All code of the page, in order, is one program that ends well; its asserts hold."""
    blocks = list(BLOCK.finditer(page))
    assert len(blocks) >= 6
    lines = [""] * page.count("\n")
    for block in blocks:
        first = page.count("\n", 0, block.start(1))
        for number, line in enumerate(block[1].splitlines()):
            lines[first + number] = line  # so that a traceback names the page's lines
    program = tmp_path / "runtime_tutorial.py"
    program.write_text("\n".join(lines), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(program.stem, program)
    module = importlib.util.module_from_spec(spec)
    sys.modules[program.stem] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[program.stem]


def row(page, start):
    """Return the cells of the table row that begins so."""
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {start} |")]
    return line


@pytest.mark.parametrize(
    ("start", "figures"),
    [
        ("messages in a mailbox", [DEFAULT_CAPACITY]),
        ("commands of one decision", [f"{MAX_COMMANDS:,}"]),
        ("items of a session", [Open("k", None).inbound, Open("k", None).outbound, f"{MAX_SESSION_ITEMS:,}"]),
        ("restarts", [Supervision().restarts, f"{Supervision().period // SECOND} s"]),
        ("stopping an actor", [f"{DEFAULT_SHUTDOWN // SECOND} s"]),
        ("stopping a system", [f"{DEFAULT_GRACE_S:g} s"]),
        ("an ask", [f"{DEFAULT_ASK_TIMEOUT_S:g} s"]),
        ("uncommitted bytes of the journal", [f"{DEFAULT_BOUND_BYTES >> 20} MiB"]),
        ("one record", [f"{MAX_RECORD_BYTES >> 20} MiB"]),
        ("a simulation at one instant", [f"{STEPS_WITHOUT_TIME:,}"]),
    ],
)
def test_the_limits_are_the_codes(page, start, figures):
    """Each limit in the table is the constant's value."""
    for figure in figures:
        assert str(figure) in row(page, start)


def test_figures_in_the_text(page):
    """Budgets and delays that the text names are the constants."""
    words = " ".join(page.split())
    assert f"at most {THROUGHPUT} messages before others" in words
    assert f"After {STEP_MESSAGES} messages or {STEP_TIME // 1_000_000} ms" in words
    assert f"Turns of {SLOW_TURN // 1_000_000} ms" in words
    assert f"Each {CHECKPOINT_EVERY}th yields" in words
    assert f"doubles up to {Backoff().maximum // SECOND} s" in words
    assert f"after a life of {Backoff().reset_after // SECOND} s" in words
    assert f"`shutdown_budget` ({ChildSpec('a', runtime.Behavior()).shutdown_budget // SECOND} s)" in words


def test_names_exist(page):
    """Errors and words in code marks exist: none was renamed behind the page's back."""
    elsewhere = {"InvalidRecord", "Livelock", "SimSystem", "SessionPort", "CancelledError", *vars(builtins)}
    text = BLOCK.sub("", page)
    for name in set(re.findall(r"`([A-Z][a-z]\w+)", text)) - elsewhere:
        assert hasattr(runtime, name) or hasattr(errors, name), name
