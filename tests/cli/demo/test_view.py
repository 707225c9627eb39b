"""The demo's two views."""

import io

import pytest

from iriscw.cli.demo.view import LiveView, PlainView
from iriscw.client.model import AmountStatus, JobStatus, LogLine, SliceStatus, WorkerStatus
from iriscw.jobs.model import JobState, TaskState

WORKER = WorkerStatus("s1-0", "i", connected=True, capacity=AmountStatus(2000), committed=AmountStatus(500))
SLICE = SliceStatus("s1", "g", "READY", workers=(WORKER,))
STATUS = JobStatus("job-1", "u", "n", JobState.RUNNING, 1, 2, {TaskState.RUNNING: 2})


def tell(view):
    """Tell a view a bit of everything."""
    with view:
        view.slices([SLICE])
        view.slices([SLICE])
        view.job(STATUS)
        view.job(STATUS)
        view.throughput(2.5e6)
        view.log(LogLine(1, 0, "[bold]no markup[/bold]"))
        view.say("done [1]")


def test_plain_lines(capsys):
    """Each change is one line, and nothing is said twice."""
    tell(PlainView())
    lines = [line.split("s  ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert lines == ["slices: s1 READY", "job: RUNNING (2 RUNNING)", "task 1.0 | [bold]no markup[/bold]", "done [1]"]


def test_live_view_draws_everything():
    """The picture has slices, job, speed and the log, and what a task writes is no markup."""
    from rich.console import Console

    view = LiveView()
    tell(view)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(view._draw())
    text = console.export_text()
    for part in ("s1 READY", "0.5/2 CPU", "RUNNING  2 RUNNING", "2.5 MB/s", "1.0 | [bold]no markup[/bold]"):
        assert part in text


@pytest.mark.parametrize("height", [8, 12, 40])
def test_the_newest_line_is_always_seen(height):
    """On a terminal of few rows older lines go, and long ones are cut: the newest stays."""
    from rich.console import Console

    view = LiveView()
    view._console = console = Console(width=60, height=height, record=True, file=io.StringIO())
    with view:
        view.slices([SLICE, SLICE])
        view.job(STATUS)
        for number in range(20):
            view.log(LogLine(1, 0, f"line {number} " + 60 * "x"))
        console.print(view._draw())
    drawn = console.export_text().splitlines()
    assert len(drawn) < height
    assert "line 19" in drawn[-2]
    assert any("line 12" in line for line in drawn) is (height == 40)


def test_progress_is_told(capsys, monkeypatch):
    """The live view shows the latest; lines tell of it now and then."""
    live = LiveView()
    live.progress("3 of 9 files")
    from rich.console import Console

    console = Console(width=100, record=True, file=io.StringIO())
    console.print(live._draw())
    live.progress("")
    assert "3 of 9 files" in console.export_text()
    monkeypatch.setattr("iriscw.cli.demo.view.time.monotonic", iter([0.0, 5.0, 5.0, 5.5, 6.9, 7.0, 7.0]).__next__)
    plain = PlainView()
    for text in ("one", "two", "", "three"):
        plain.progress(text)
    said = [line.split("s  ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert said == ["one", "three"]


def test_the_second_act_has_a_picture_of_its_own(capsys):
    """Its title is told, its progress is drawn, and nothing of the cluster that is gone."""
    from rich.console import Console

    view = LiveView()
    tell(view)
    view.act("second")
    view.progress("freeze: writes the images")
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(view._draw())
    text = console.export_text()
    assert "freeze: writes the images" in text
    assert not any(part in text for part in ("slices", "s1 READY", "speed", "no markup"))
    PlainView().act("second")
    assert [line.split("s  ", 1)[1] for line in capsys.readouterr().out.splitlines()][-2:] == ["second", "second"]


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
