"""What a terminal shows of a freeze: steps with a bar each, bytes where there are some, and the result below."""

import io
from contextlib import nullcontext

import pytest

from iriscw.cli import at_here
from iriscw.cli.freeze_shown import Done, progress

DONE = Done("ck-1", "frozen", 7, 2, "ram", 10_000_000, 0.5, {})


class Terminal(io.StringIO):
    """What a terminal is told."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Have both streams be one terminal of 100 columns."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")

    def connected():  # by the test itself: pytest has streams of its own for it
        made = Terminal()
        for name in ("sys.stdout", "sys.stderr"):
            monkeypatch.setattr(name, made)
        return made

    return connected


def last_frame(text, step):
    """Return the last line about a step."""
    return [line for line in text.replace("\r", "\n").splitlines() if step in line][-1]


def test_a_step_without_bytes_names_none(terminal):
    """It once was done with "1/1 bytes"; one that moves bytes says how many."""
    screen = terminal()
    with progress() as shown:
        shown.step("looks at the tree")
        shown.step("writes its memory")
        shown.bytes_done(5_000_000, 10_000_000)
        shown.step("ends it")
    text = screen.getvalue()
    assert "byte" not in last_frame(text, "looks at the tree")
    assert "byte" not in last_frame(text, "ends it")
    assert "MB" in last_frame(text, "writes its memory")


def test_the_result_stands_below_the_steps(terminal, monkeypatch):
    """And not above what it ended."""

    async def nothing(_local):
        return None

    async def work(_local, shown):
        shown.step("writes its memory")
        return DONE, None

    screen = terminal()
    monkeypatch.setattr(at_here, "_opened", lambda _given: nullcontext())
    monkeypatch.setattr(at_here, "_recover", nothing)
    at_here._run({}, work, "table")
    text = screen.getvalue()
    assert text.rindex("ck-1: frozen in 0.50 s") > text.rindex("writes its memory")
