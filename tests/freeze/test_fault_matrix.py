"""docs/fault-matrix.md names tests, errors and invariants: each of them is there, and each row names a test."""

import ast
import functools
import re
from pathlib import Path

from iriscw import errors, files
from iriscw.agent import claims, errors as of_agents, local
from iriscw.checkpoint import model as of_checkpoints
from iriscw.freeze import carried, model
from iriscw.objects import ports as of_stores

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "fault-matrix.md"

TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
ERROR = re.compile(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`")
MODULES = (carried, errors, files, model, of_checkpoints, of_stores, of_agents, local, claims)
"""What has errors of a machine."""

IN_AN_END = {"GateRefused", "Interrupted"}
"""Kinds of ends that are no exceptions."""


@functools.cache
def named_in(path: Path) -> frozenset[str]:
    """Return the names of the tests in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return frozenset(node.name for node in functions if node.name.startswith("test_"))


def rows() -> list[str]:
    """Return the rows of all tables, without their heads."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    heads = [number - 1 for number, line in enumerate(lines) if line.startswith("| ---")]
    return [
        line
        for number, line in enumerate(lines)
        if line.startswith("| ") and number not in heads and not line.startswith("| ---")
    ]


def test_each_test_is_there():
    """A test that is renamed or removed leaves no claim behind."""
    named = TEST.findall(PAGE.read_text(encoding="utf-8"))
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (TESTS / path).exists() or not Path(path).name.startswith("test_") or name not in named_in(TESTS / path)
    ]
    assert missing == []
    assert len(named) > 100


def test_each_row_has_a_test():
    """And as many cells as the others of its table."""
    assert [row for row in rows() if not TEST.search(row)] == []
    assert {row.count(" | ") for row in rows()} <= {2, 3, 4}


def test_each_error_is_there():
    """What is said is an error that somebody can catch, or a kind of end."""
    known = {name for module in MODULES for name in dir(module)} | IN_AN_END
    assert [name for name in ERROR.findall(PAGE.read_text(encoding="utf-8")) if name not in known] == []


def test_each_invariant_has_a_row():
    """C1 to C15, in their order."""
    found = re.findall(r"(?m)^\| (C\d+) ", "\n".join(rows()))
    assert found == [f"C{number}" for number in range(1, 16)]
