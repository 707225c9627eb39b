"""A listing that is drawn anew: over itself on a terminal, one after the other elsewhere."""

import anyio

from iriscw.cli import watching as module
from iriscw.cli.watching import Screen, watch
from iriscw.proto.iriscw.v1 import JobsChange


class Client:
    """Says so many times that something may be new."""

    def __init__(self, changes):
        self.method_calls = self
        self.changes = changes

    async def stream(self, method, request, reply):
        assert method == "WatchJobs"
        for _ in range(self.changes):
            yield JobsChange()


def look_at(*found):
    """Find one after the other."""
    left = list(found)

    async def look():
        return left.pop(0)

    return look


def text(found, now_ms):
    """Draw it."""
    return f"{found}\n"


async def test_tables_follow_each_other_where_nothing_can_be_drawn_over(capsys):
    """Only those that differ, and without anything that moves a cursor."""
    await watch(Client(4), look_at("a", "a", "b", "b"), text)
    assert capsys.readouterr().out == "a\n\nb\n"


async def test_a_terminal_is_drawn_over(capsys, monkeypatch):
    """Each drawing begins where the one before did, and has what is new; ages grow in between."""
    monkeypatch.setattr(module, "can_redraw", lambda: True)
    monkeypatch.setattr(module, "AGES_S", 0.0)
    drawn, times = [], []

    def note(found, now_ms):
        drawn.append(found)
        times.append(now_ms)
        if drawn.count("b") == 3:
            tasks.cancel_scope.cancel()
        return text(found, now_ms)

    async with anyio.create_task_group() as tasks:
        await watch(Client(2), look_at("a", "a", "b"), note)
    out = capsys.readouterr().out
    assert out.startswith("\x1b[Ja\n\x1b[1F\x1b[J")
    assert out.endswith("b\n\x1b[1F\x1b[Jb\n")
    assert times == sorted(times)


def test_what_has_no_room_is_counted(capsys, monkeypatch):
    """A drawing that scrolls could not be drawn over."""
    monkeypatch.setenv("LINES", "5")
    monkeypatch.setenv("COLUMNS", "80")
    screen = Screen()
    screen.draw("1\n2\n3\n4\n5\n6\n")
    screen.draw("1\n")
    assert capsys.readouterr().out == "\x1b[J1\n2\n3\nand 3 more lines\n\x1b[4F\x1b[J1\n"
