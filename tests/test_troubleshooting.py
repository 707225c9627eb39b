"""The page that people find by what they see: each text that it quotes is one that iriscw writes, to the letter."""

import ast
import functools
import re
import sys
from pathlib import Path

import click
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for test_documented_errors

from iriscw.cli.app import app
from parsed import nodes, of_package
from test_documented_errors import errors_by_name

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
QUOTES = [
    line for block in re.findall(r"^```text\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE) for line in block.splitlines()
]
PROSE = re.sub(r"^```text\n.*?^```", "", PAGE, flags=re.DOTALL | re.MULTILINE)
COMMANDS = [*re.findall(r"^\$ (iriscw [^\n#]*)", PROSE, re.MULTILINE), *re.findall(r"`(iriscw\s[^`]*)`", PROSE)]
GAP = "…"
FORMATS = re.compile(r"%[sdg]|(?:\b\w+\|)(?=\w+ )")
"""Where a text that is filled in later has its gaps; and the plural before a singular, as in ``are|is too small``."""

KINDS_OF_ENDS = {"OutOfMemory", "SetupFailed", "SetupTimeout"}
"""What looks like an error's name on the page and is the kind of an attempt's end."""


def written(node):
    """Return the text that an expression makes, with a gap for each value in it; None for what is no text."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.FormattedValue(conversion=conversion):
            return f"'{GAP}'" if conversion == ord("r") else GAP
        case ast.JoinedStr(values=parts):
            return "".join(map(written, parts))
        case ast.BinOp(left=left, op=ast.Add(), right=right) if written(left) is not None:
            return written(left) + (written(right) or GAP)
        case _:
            return None


@functools.cache
def texts_of_the_source():
    """Return every text in the package; read once, and not by who only collects the tests."""
    found = set()
    for source in of_package():
        texts = map(written, nodes(source.tree))
        found.update(FORMATS.sub(lambda gap: GAP if gap[0][0] == "%" else "", text) for text in texts if text)
    return found


def is_written(quote):
    """Whether a text of the source has these words, and its gaps where the quote has them; it may begin before that."""
    return any(quote.removeprefix(GAP) in text for text in texts_of_the_source())


def test_the_texts_are_found():
    """What is searched has texts, what is quoted is some, and a text that nobody writes is not found."""
    assert len(texts_of_the_source()) > 1000
    assert len(QUOTES) > 40
    assert written(ast.parse('f"a {b} c" "d"', mode="eval").body) == "a … cd"
    assert written(ast.parse('f"a {b!r}" + c', mode="eval").body) == "a '…'…"
    assert not is_written("the controller is on fire: …")
    assert not is_written("no controller is known there")


def test_what_is_quoted_is_written():
    """Each line of a quote is in the source."""
    assert [quote for quote in QUOTES if not is_written(quote)] == []


def test_errors_on_the_page_exist():
    """Each name that looks like an error's is one."""
    named = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`", PAGE))
    assert len(named) > 20
    assert named - errors_by_name() == KINDS_OF_ENDS
    assert texts_of_the_source() >= KINDS_OF_ENDS


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_on_the_page_exist(command):
    """Each command, with each of its options."""
    words = command.split()[1:]
    found = app
    options = {option for each in found.params for option in each.opts}
    while words and isinstance(found, click.Group):
        word = words.pop(0)
        if word.startswith("-"):
            assert word in options, command
            continue
        found = found.get_command(click.Context(found), word)
        assert found is not None, command
        options = {option for each in found.params for option in each.opts}
    own = words[: words.index("--")] if "--" in words else words
    assert {word for word in own if word.startswith("-")} <= options, command


def test_options_that_stand_alone_exist():
    """Each is one of some command."""
    known, left = set(), [app]
    while left:
        command = left.pop()
        known.update(option for each in command.params for option in each.opts)
        if isinstance(command, click.Group):
            context = click.Context(command)
            left += [command.get_command(context, name) for name in command.list_commands(context)]
    named = set(re.findall(r"`(--[a-z-]+)", PROSE))
    assert len(named) > 10
    assert named - known == {"--privileged"}  # Docker's


def test_variables_on_the_page_are_read():
    """Each variable of ours is named in the source."""
    named = set(re.findall(r"`(IRIS\w+)`", PAGE))
    assert named
    assert all(any(name in text for text in texts_of_the_source()) for name in named)
