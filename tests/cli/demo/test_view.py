"""The demo's two views."""

import io
import os
import pty
import sys
from pathlib import Path

import pytest
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parent))  # for screens

from screens import Screen

from iriscw.cli.demo.picture import TITLE, Killed
from iriscw.cli.demo.view import LiveView, PlainView, view_here
from iriscw.client.model import AmountStatus, AttemptStatus, JobStatus, LogLine, SliceStatus, TaskStatus, WorkerStatus
from iriscw.jobs.model import JobState, TaskState

WORKER = WorkerStatus("s1-0", "i", connected=True, capacity=AmountStatus(2000), committed=AmountStatus(500))
SLICE = SliceStatus("s1", "g", "READY", workers=(WORKER,))
STATUS = JobStatus("job-1", "u", "n", JobState.RUNNING, 1, 2, {TaskState.RUNNING: 2})
TASKS = [
    TaskStatus(
        f"t{n}", n, TaskState.RUNNING, attempts=(AttemptStatus("u", 0, TaskState.RUNNING, "s1-0"),), worker_id="w"
    )
    for n in range(2)
]
KILLED = Killed("worker", "s1-0", 77, "i", frozenset({(1, 0)}))
RED, GREEN = "1;31", "32"


def tell(view):
    """Tell a view a bit of everything, but for the end."""
    view.part("controller", "a:1  pid 5")
    view.slices([SLICE])
    view.slices([SLICE])
    view.job(STATUS, TASKS)
    view.job(STATUS, TASKS)
    view.throughput(2.5e6)
    view.log(LogLine(1, 0, "[bold]no markup[/bold]"))
    view.killed(KILLED)
    view.killed(Killed("controller", "a:1", 5))
    view.part("controller", "a:1  the next one")
    view.progress("3 of 9 files", 3, 9)
    view.checked("it is right", holds=True, tasks=[0], part="controller")
    view.checked("it is small", holds=False, tasks=[1])
    view.say("done [1]")


def live(columns=100, rows=40, **more):
    """Return a live view on a terminal of this size, and what it writes."""
    written = io.StringIO()
    environment = {"TERM": "xterm-256color", **more}
    console = Console(
        file=written,
        force_terminal=True,
        force_interactive=True,
        width=columns,
        height=rows,
        highlight=False,
        _environ=environment,
    )
    return LiveView(console), written


def screen_of(written, columns=100):
    """Return the screen after what was written."""
    screen = Screen(columns)
    screen.feed(written.getvalue())
    return screen


def without_clock(lines):
    """Leave the seconds at the beginning out."""
    return [line.split("s  ", 1)[1] for line in lines]


STEPS = [
    "SIGKILL to worker s1-0 (pid 77) while at work on task 1",
    "SIGKILL to controller a:1 (pid 5)",
    "ok: it is right",
    "NOT SO: it is small",
    "done [1]",
]


def test_plain_lines(capsys):
    """Each change is one line, and nothing is said twice."""
    with PlainView() as view:
        tell(view)
    lines = without_clock(capsys.readouterr().out.splitlines())
    told = ["slices: s1 READY", "job: RUNNING (2 RUNNING)", "task 1.0 | [bold]no markup[/bold]"]
    assert [line for line in lines if line != "3 of 9 files"] == told + STEPS


def test_the_live_view_has_steps_above_and_the_picture_below():
    """What was killed and what does not hold is red, what was checked green, and nothing else has a colour."""
    view, written = live()
    with view:
        tell(view)
        screen = screen_of(written)
        assert not screen.cursor_shown
    steps, picture = screen.seen[:5], screen.seen[5:]
    assert without_clock(steps) == STEPS
    assert picture[0].startswith(f"-- {TITLE} ---")
    assert [row.split()[0] for row in picture[1:]] == [
        "controller",
        "controller",
        "worker",
        "TASK",
        "0",
        "1",
        "job",
        "[########................]",
    ]
    red = [row for row, style in zip(screen.rows, screen.styles, strict=True) if style == RED]
    green = [row for row, style in zip(screen.rows, screen.styles, strict=True) if style == GREEN]
    assert [row.split()[0] for row in green] == [steps[2].split()[0], "controller", "0"]
    assert len(red) == 6
    assert all("KILLED" in row or "NOT SO" in row or "SIGKILL" in row for row in red)
    assert {*screen.styles} <= {RED, GREEN, "2", ""}


@pytest.mark.parametrize("size", [(100, 40), (60, 24), (60, 8), (20, 5)])
def test_nothing_of_the_picture_is_left(size):
    """At its end, and when an act begins, the screen has the steps alone, however often the height has changed."""
    view, written = live(*size)
    with view:
        for number in range(3):
            tell(view)
            view.slices([SLICE] * number)
            view.act("another act")
            assert not any(TITLE in row for row in screen_of(written, size[0]).seen)
            view.part("server", "FROZEN")
            assert sum(TITLE in row for row in screen_of(written, size[0]).rows) == 1
    screen = screen_of(written, size[0])
    assert screen.cursor_shown
    assert not any(TITLE[:8] in row or "server" in row or "TRIES" in row for row in screen.rows)
    assert sum("done [1]" in row for row in screen.rows) == 3


def test_each_moment_has_one_picture():
    """However the heights change, there is never a piece of an earlier picture on the screen."""
    view, written = live(60, 20)
    with view:
        for slices in (1, 5, 0, 9, 2):
            view.slices([SLICE] * slices)
            view.say(f"{slices} slices")
            rows = screen_of(written, 60).seen
            assert sum(TITLE in row for row in rows) == bool(slices)
            assert sum("READY" in row for row in rows) == slices


def test_no_color_is_respected():
    """With NO_COLOR nothing is coloured, and the words say the same."""
    view, written = live(NO_COLOR="1")
    with view:
        tell(view)
        screen = screen_of(written)
    assert not any("31" in style or "32" in style for style in screen.styles)
    assert any("KILLED (pid 77)" in row for row in screen.rows)
    assert any(row.startswith("0 ") and "  CHECKED  " in row for row in screen.seen)


def test_what_is_drawn_at_first_is_nothing():
    """A view that was told nothing writes nothing that is seen."""
    view, written = live()
    with view:
        pass
    assert screen_of(written).seen == [""]


@pytest.mark.parametrize(
    ("term", "plain", "kind"),
    [("xterm", False, LiveView), ("xterm", True, PlainView), ("dumb", False, PlainView), (None, False, PlainView)],
)
def test_a_terminal_that_can_redraw_gets_the_live_view(term, plain, kind, monkeypatch):
    """`--plain`, a terminal that cannot, and one that nobody knows get lines."""
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb"), os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr("sys.stdout", terminal)
        environment = {} if term is None else {"TERM": term}
        assert type(view_here(plain=plain, environment=environment)) is kind


def test_without_a_terminal_there_are_lines(monkeypatch):
    """A pipe and a file get lines, whatever TERM says."""
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert type(view_here(plain=False, environment={"TERM": "xterm"})) is PlainView


def test_progress_is_told_now_and_then(capsys, monkeypatch):
    """Lines tell of it once in a while, and not of its end."""
    monkeypatch.setattr("iriscw.cli.demo.view.time.monotonic", iter([0.0, 5.0, 5.0, 5.5, 6.9, 7.0, 7.0]).__next__)
    plain = PlainView()
    for text in ("one", "two", "", "three"):
        plain.progress(text)
    assert without_clock(capsys.readouterr().out.splitlines()) == ["one", "three"]


@pytest.mark.parametrize("view", [PlainView, LiveView])
def test_views_give_the_terminal_back(view, capsys):
    """An error inside leaves no live view running."""

    def fail():
        with view() as shown:
            shown.say("before")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert "before" in capsys.readouterr().out
