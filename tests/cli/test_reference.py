"""The command line's page."""

from pathlib import Path

from iriscw.cli.app import COMMANDS
from iriscw.cli.outcome import MEANINGS
from iriscw.cli.reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_page_is_what_the_commands_say():
    """docs/cli.md is the module's output: run `python -m iriscw.cli.reference > docs/cli.md` after a change."""
    assert PAGE.read_text(encoding="utf-8") == reference()


def test_everything_is_on_the_page():
    """Every command and every exit code is documented."""
    text = reference()
    assert [name for name in COMMANDS if f"\n## `iriscw {name}" not in text] == []
    assert [code for code in MEANINGS if f"| {code} |" not in text] == []
