"""docs/from-iris.md: every name of ours that it puts beside one of Iris's exists, with the arguments that it shows."""

import ast
import inspect
import re
from pathlib import Path

import click
import pytest

import iriscw
from iriscw.cli.app import app
from iriscw.config.model import CoreweavePlatformConfig, ScaleGroupConfig
from iriscw.task.context import TaskContext
from iriscw.task.environment import CA_VARIABLE, AttemptFacts, port_variable, task_environment

PAGE = (Path(__file__).parents[1] / "docs" / "from-iris.md").read_text(encoding="utf-8")
ROOTS = {"iriscw": iriscw, "client": iriscw.Client, "job": iriscw.Job, "task": TaskContext}
VARIABLES = {
    *task_environment(AttemptFacts("", "", "", 0, 0), Path("/w")),
    CA_VARIABLE,
    port_variable("x").removesuffix("X"),
}


def rows():
    """Yield the rows of all tables, each as its three cells."""
    for line in PAGE.splitlines():
        cells = [each.strip() for each in line.strip("|").split(" | ")] if line.startswith("| ") else []
        if cells and cells[0] not in ("Iris", "---"):
            yield cells


ROWS = list(rows())
OURS = [each for cells in ROWS for each in re.findall(r"`([^`]+)`", cells[1])]
NAMES = sorted({each for each in OURS if each.partition(".")[0] in ROOTS})
COMMANDS = sorted({each for each in OURS if each.startswith("iriscw ")})
ELSEWHERE = sorted(set(re.findall(r"`(iriscw\.[^`]+)`", PAGE)))
"""Names in the text around the tables, too."""


def has(owner, name):
    """Tell whether something has a member; an instance's own are in its docstring."""
    return hasattr(owner, name) or re.search(rf"^\s+{name}: ", inspect.getdoc(owner) or "", re.MULTILINE)


def check(node):
    """Resolve an expression; give what it names, None for what only an instance has.

    Raises:
        LookupError: it names something that is not there.
    """
    match node:
        case ast.Name(id=name):
            return ROOTS[name]
        case ast.Attribute(value=value, attr=name):
            owner = check(value)
            if owner is iriscw.context:
                owner = TaskContext
            if not has(owner, name):
                raise LookupError(name)
            return getattr(owner, name, None)
        case ast.Call(func=function, keywords=keywords):
            called = check(function)
            known = inspect.signature(called).parameters
            for keyword in keywords:
                if keyword.arg not in known or known[keyword.arg].kind is inspect.Parameter.VAR_KEYWORD:
                    raise LookupError(keyword.arg)
            return called
    raise LookupError(ast.unparse(node))


def test_the_page_has_tables():
    """Rows have a cell of ours, and enough of them name something, or say that there is nothing."""
    assert {len(cells) for cells in ROWS} <= {2, 3}
    assert len(NAMES) > 30
    assert len(COMMANDS) > 10
    assert sum(cells[1] == "-" for cells in ROWS) > 5


@pytest.mark.parametrize("text", sorted({*NAMES, *ELSEWHERE}))
def test_names_exist(text):
    """As they stand there, with their keywords."""
    check(ast.parse(text, mode="eval").body)


@pytest.mark.parametrize("text", COMMANDS)
def test_commands_exist(text):
    """With their options."""
    command: click.Command = app
    words = text.split()[1:]
    while words and isinstance(command, click.Group):
        command = command.get_command(click.Context(command), words.pop(0))
        assert command is not None, text
    known = {option for parameter in command.params for option in parameter.opts}
    assert set(words) <= known


@pytest.mark.parametrize("text", sorted({each for each in OURS if each.startswith("IRIS")}))
def test_variables_exist(text):
    """A task finds them in its environment."""
    assert text in VARIABLES


def test_nothing_of_ours_is_passed_over():
    """What is neither a name nor a command nor a variable is a key of the configuration."""
    others = {each for each in OURS if each not in (*NAMES, *COMMANDS) and not each.startswith("IRIS")}
    sections = (ScaleGroupConfig, CoreweavePlatformConfig)
    assert others <= {field.name for section in sections for field in section.__attrs_attrs__}


@pytest.mark.parametrize(
    "text", ["iriscw.nope", "client.submit(f, nope=1)", "client.submit(kwargs=1)", "job.nope()", "task.nope", "other.x"]
)
def test_what_is_not_there_is_found(text):
    """The check sees names and keywords that do not exist."""
    with pytest.raises(LookupError):
        check(ast.parse(text, mode="eval").body)


def test_states_and_defaults_are_those_of_the_page():
    """The budgets' defaults, and the states that are named."""
    parameters = inspect.signature(iriscw.Client.submit).parameters
    shown = re.search(r"max_retries_failure=(\d+), max_retries_preemption=(\d+)", PAGE)
    assert [parameters[name].default for name in ("max_retries_failure", "max_retries_preemption")] == [
        int(each) for each in shown.groups()
    ]
    for name in ("WORKER_FAILED", "PREEMPTED"):
        assert f"`{name}`" in PAGE
        assert name in iriscw.TaskState.__members__
