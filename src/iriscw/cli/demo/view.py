"""What the demo shows: a live view on a terminal, lines elsewhere. Both are told the same."""

from __future__ import annotations

import collections
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Protocol, Self

from iriscw.cli.fleet import used
from iriscw.cli.output import counts
from iriscw.client.model import JobStatus, LogLine, SliceStatus

LOG_TAIL: Final = 8
"""Lines of the tasks' logs in the live view, where the terminal has room for them."""

FRAME_ROWS: Final = 3
"""Rows that the live view needs beside its content: its border, and the cursor's."""

PROGRESS_EVERY_S: Final = 1.0
"""How often lines tell of progress."""


class View(Protocol):
    """Is told what happens."""

    def say(self, text: str) -> None:
        """A step of the story."""

    def act(self, title: str) -> None:
        """Another act begins: what was drawn of the one before goes."""

    def slices(self, found: Sequence[SliceStatus]) -> None:
        """What machines there are now."""

    def job(self, status: JobStatus) -> None:
        """Where the job is now."""

    def log(self, line: LogLine) -> None:
        """A task wrote a line."""

    def throughput(self, bytes_per_s: float) -> None:
        """How fast the tasks read together, now."""

    def progress(self, text: str) -> None:
        """How far a step is that takes a while; empty when it is done."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None: ...


def slice_line(each: SliceStatus) -> str:
    """Write one slice in a few words."""
    return f"{each.slice_id} {each.state:13} {used(each)} in use" if each.workers else f"{each.slice_id} {each.state}"


class PlainView:
    """Writes lines, each with the seconds since the beginning; only what changed."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._last: dict[str, str] = {}
        self._progressed_s = 0.0

    def say(self, text: str) -> None:
        """Write it."""
        sys.stdout.write(f"{time.monotonic() - self._began_s:5.1f}s  {text}\n")
        sys.stdout.flush()

    def act(self, title: str) -> None:
        """Write the title."""
        self.say(title)

    def _changed(self, what: str, text: str) -> None:
        if self._last.get(what) != text:
            self._last[what] = text
            self.say(f"{what}: {text}")

    def slices(self, found: Sequence[SliceStatus]) -> None:
        """Write the states if one has changed."""
        self._changed("slices", ", ".join(f"{each.slice_id} {each.state}" for each in found) or "none")

    def job(self, status: JobStatus) -> None:
        """Write state and counts if they have changed."""
        self._changed("job", f"{status.state.value} ({counts(status.tasks)})")

    def log(self, line: LogLine) -> None:
        """Write the line."""
        self.say(f"task {line.task_index}.{line.attempt_number} | {line.text}")

    def throughput(self, bytes_per_s: float) -> None:
        """Leave it out: the tasks' own lines have it."""

    def progress(self, text: str) -> None:
        """Write it, if the last one was a while ago."""
        now_s = time.monotonic()
        if text and now_s - self._progressed_s >= PROGRESS_EVERY_S:
            self._progressed_s = now_s
            self.say(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Nothing has to be put back."""


class LiveView:
    """Redraws slices, tasks, throughput and the end of the logs in place; the story's steps stay above."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._began_s = time.monotonic()
        self._has_cluster = True
        self._slices: Sequence[SliceStatus] = ()
        self._status: JobStatus | None = None
        self._lines: collections.deque[LogLine] = collections.deque(maxlen=LOG_TAIL)
        self._rate = 0.0
        self._progress = ""
        self._console = Console()
        # It draws at once, so all that is drawn has to be there before.
        self._live = Live(get_renderable=self._draw, console=self._console, refresh_per_second=5, transient=True)

    def say(self, text: str) -> None:
        """Write it above the view."""
        self._console.print(f"[dim]{time.monotonic() - self._began_s:5.1f}s[/dim]  {_escaped(text)}")

    def act(self, title: str) -> None:
        """Write the title, and draw nothing from now on but progress: what follows has no machines and no job."""
        self.say(title)
        self._has_cluster = False

    def slices(self, found: Sequence[SliceStatus]) -> None:
        """Draw them from now on."""
        self._slices = found

    def job(self, status: JobStatus) -> None:
        """Draw it from now on."""
        self._status = status

    def log(self, line: LogLine) -> None:
        """Draw it while it is among the last."""
        self._lines.append(line)

    def throughput(self, bytes_per_s: float) -> None:
        """Draw it from now on."""
        self._rate = bytes_per_s

    def progress(self, text: str) -> None:
        """Draw it from now on."""
        self._progress = text

    def _draw(self) -> Any:
        from rich.panel import Panel
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        if not self._has_cluster:
            grid.add_row(Text(self._progress, no_wrap=True, overflow="ellipsis"))
            return Panel(grid, title="iriscw demo", expand=True)
        rows = [("slices", each) for each in map(slice_line, self._slices)] or [("slices", "none")]
        if self._status is not None:
            rows.append(("job", f"{self._status.state.value}  {counts(self._status.tasks)}"))
        rows.append(("speed", f"{self._rate / 1e6:.1f} MB/s"))
        if self._progress:
            rows.append(("check", self._progress))
        room = self._console.size.height - FRAME_ROWS - len(rows)  # what does not fit is cut below, where the news is
        newest = list(self._lines)[-room:] if room > 0 else []
        rows += [("log", f"{line.task_index}.{line.attempt_number} | {line.text}") for line in newest]
        named = ""
        for name, text in rows:  # one row each: a line too long for the terminal is cut, not wrapped
            grid.add_row(name if name != named else "", Text(text, no_wrap=True, overflow="ellipsis"))
            named = name
        return Panel(grid, title="iriscw demo", expand=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Give the terminal back."""
        self._live.stop()


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
