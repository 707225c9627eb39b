"""docs/getting-started.md: the commands and the methods that it puts side by side exist."""

import ast
import inspect
import re
from pathlib import Path

import click
import pytest

import iriscw
from iriscw import blocking
from iriscw.cli.app import app

PAGE = (Path(__file__).parents[1] / "docs" / "getting-started.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("\n## Commands and methods\n")[2].partition("\n## ")[0]
ROWS = [line.strip("|").split(" | ") for line in TABLE.splitlines() if line.startswith("| `")]
COMMANDS = [each for row in ROWS for each in re.findall(r"`iriscw ([^`]+)`", row[0])]
METHODS = sorted({each for row in ROWS for each in re.findall(r"`([^`]+)`", row[1])})
OWNERS = {"client": "Client", "job": "Job", "checkpoint": "Checkpoint", "Cluster": "Cluster"}


def test_the_table_is_found():
    """Each row has a command and a method."""
    assert len(ROWS) > 15
    assert {len(row) for row in ROWS} == {2}
    assert len(COMMANDS) == len(ROWS)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_exist(command):
    """Each command, and each of its own options."""
    found, words = app, command.partition(" -- ")[0].split()
    while isinstance(found, click.Group) and words and not words[0].startswith("-") and words[0].islower():
        found = found.get_command(click.Context(found), words.pop(0))
        assert found is not None
    options = {option for each in found.params for option in each.opts}
    assert {word for word in words if word.startswith("-")} <= options


def check(method, module):
    """Bind the arguments of a call as it is written; who has the method is in OWNERS."""
    call = ast.parse(method, mode="eval").body
    owner = getattr(module, OWNERS[call.func.value.id])
    bound = [] if inspect.ismethod(getattr(owner, call.func.attr)) else ["self"]
    given = [*bound, *map(ast.unparse, call.args)]
    inspect.signature(getattr(owner, call.func.attr)).bind(*given, **{each.arg: None for each in call.keywords})


@pytest.mark.parametrize("method", METHODS)
def test_methods_exist(method):
    """Each method takes what it is given there."""
    check(method, iriscw)


@pytest.mark.parametrize(
    "method", [*(each for each in METHODS if "checkpoint." not in each), "client.delete(checkpoint)"]
)
def test_blocking_methods_exist(method):
    """``iriscw.blocking`` has them too, but for the one that the page names."""
    check(method, blocking)
