"""docs/coreweave.md: its configuration works, its words are those of the code, its commands exist."""

import re
from pathlib import Path

import click
import pytest
from deploy_world import bodies

from iriscw.cli.app import app
from iriscw.config.load import parse_config
from iriscw.deploy.installation import installation_of

PAGE = (Path(__file__).parents[2] / "docs" / "coreweave.md").read_text(encoding="utf-8")
EXAMPLE, *_ = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
SHOWN = r"(?:^|`)iriscw ((?:[a-z]+ )+)(?:cluster\.yaml ?)?((?:--[a-z-]+(?: [A-Za-z0-9]+)? ?)*)"
COMMANDS = sorted({(words, options) for words, options in re.findall(SHOWN, PAGE, re.MULTILINE)})


def test_the_example_can_be_installed():
    """As it stands there; every object that it makes is in the page's table, by its name."""
    found = bodies(installation_of(parse_config(EXAMPLE)))
    table = PAGE.partition("## What is installed")[2].partition("\n## ")[0]
    for name in found:
        kind, _, short = name.partition("/")
        kind = kind.removesuffix("Binding") if kind.endswith("Binding") else kind
        assert re.search(rf"^\|[^|]*\b{kind}\b[^|]*\|[^|]*`{short}`", table, re.MULTILINE), name


@pytest.mark.parametrize(("words", "options"), COMMANDS)
def test_the_commands_exist(words, options):
    """With the options that are shown."""
    command: click.Command = app
    for word in words.split():
        if not isinstance(command, click.Group):
            break
        command = command.get_command(click.Context(command), word)
        assert command is not None, words
    known = {option for parameter in command.params for option in parameter.opts}
    assert {each for each in options.split() if each.startswith("--")} <= known


def test_what_is_said_while_it_waits_is_what_the_code_says():
    """The beginnings of sentences in the table stand in the source."""
    table = PAGE.partition("| it says |")[2].partition("\n\n")[0]
    said = [each for row in table.splitlines()[2:] for each in re.findall(r"`([^`]+)`", row.split("|")[1])]
    folder = Path(__file__).parents[2] / "src" / "iriscw"
    source = "".join(path.read_text(encoding="utf-8") for path in (folder / "deploy").glob("*.py"))
    source += (folder / "cloud" / "lifecycle.py").read_text(encoding="utf-8")
    ours = [each for each in said if " " in each]
    assert len(ours) >= 5
    for each in ours:
        words = re.split(r"\b[0N]\b|\b1\b|\.\.\.", each)
        assert all(part.strip() in source for part in words), each
