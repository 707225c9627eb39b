"""What the demo shows: a live view on a terminal, lines elsewhere. Both are told the same."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import attrs

from iriscw.cli.demo.picture import Killed, Part, PictureLine, PictureProgress, Scene, Tone, draw
from iriscw.cli.output import can_redraw, counts
from iriscw.client.model import JobStatus, LogLine, SliceStatus, TaskStatus

if TYPE_CHECKING:
    from rich.console import Console

PROGRESS_EVERY_S: Final = 1.0
"""How often lines tell of progress."""

STYLES: Final = {Tone.PLAIN: "", Tone.DIM: "dim", Tone.GOOD: "green", Tone.BAD: "bold red"}


class DemoView(Protocol):
    """Is told what happens."""

    def say(self, text: str) -> None:
        """A step of the story."""

    def act(self, title: str) -> None:
        """Another act begins: what was drawn of the one before goes."""

    def checked(self, claim: str, *, holds: bool, tasks: Collection[int] = (), part: str = "") -> None:
        """A claim was checked; ``tasks`` and ``part`` name what it is about."""

    def part(self, name: str, state: str) -> None:
        """What the controller, or the server, is now."""

    def killed(self, process: Killed) -> None:
        """A process was killed."""

    def slices(self, found: Sequence[SliceStatus]) -> None:
        """What machines there are now."""

    def job(self, status: JobStatus, tasks: Sequence[TaskStatus]) -> None:
        """Where the job and its tasks are now."""

    def log(self, line: LogLine) -> None:
        """A task wrote a line."""

    def throughput(self, bytes_per_s: float) -> None:
        """How fast the tasks read together, now."""

    def progress(self, text: str, done: int = 0, total: int = 0) -> None:
        """How far a step is that takes a while, of 0 if that is not known; empty when it is done."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None: ...


def view_here(*, plain: bool, environment: Mapping[str, str] = os.environ) -> DemoView:
    """Return the live view where standard output is a terminal that can redraw its lines, else lines."""
    return LiveView() if can_redraw(environment) and not plain else PlainView()


def check_line(claim: str, *, holds: bool) -> str:
    """Write a claim that was checked."""
    return f"{'ok' if holds else 'NOT SO'}: {claim}"


def kill_line(process: Killed) -> str:
    """Write that a process was killed."""
    at_work = ", ".join(str(index) for index, _ in sorted(process.attempts))
    while_at_work = f" while at work on task {at_work}" if at_work else ""
    return f"SIGKILL to {process.name} {process.what} (pid {process.pid}){while_at_work}"


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

    def checked(self, claim: str, *, holds: bool, tasks: Collection[int] = (), part: str = "") -> None:
        """Write the claim, and whether it holds."""
        self.say(check_line(claim, holds=holds))

    def part(self, name: str, state: str) -> None:
        """Leave it out: the steps have it."""

    def killed(self, process: Killed) -> None:
        """Write it."""
        self.say(kill_line(process))

    def _changed(self, what: str, text: str) -> None:
        if self._last.get(what) != text:
            self._last[what] = text
            self.say(f"{what}: {text}")

    def slices(self, found: Sequence[SliceStatus]) -> None:
        """Write the states if one has changed."""
        self._changed("slices", ", ".join(f"{each.slice_id} {each.state}" for each in found) or "none")

    def job(self, status: JobStatus, tasks: Sequence[TaskStatus]) -> None:
        """Write state and counts if they have changed."""
        self._changed("job", f"{status.shown_state} ({counts(status.shown_tasks)})")

    def log(self, line: LogLine) -> None:
        """Write the line."""
        self.say(f"task {line.task_index}.{line.attempt_number} | {line.text}")

    def throughput(self, bytes_per_s: float) -> None:
        """Leave it out: the tasks' own lines have it."""

    def progress(self, text: str, done: int = 0, total: int = 0) -> None:
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
    """Redraws a picture of the scene in place whenever it changes; the story's steps and checks stay above it.

    It draws in the thread that tells it: two threads that drew would leave pieces of a picture on the screen when its
    height changed between them.
    """

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self._began_s = time.monotonic()
        self._scene = Scene()
        self._console = console or Console(highlight=False)  # a colour says something here: numbers have none
        # It draws at once, so all that is drawn has to be there before.
        self._live = Live(get_renderable=self._draw, console=self._console, auto_refresh=False, transient=True)

    def _write(self, text: str, tone: Tone = Tone.PLAIN) -> None:
        from rich.text import Text

        clock = f"{time.monotonic() - self._began_s:5.1f}s  "
        self._console.print(Text.assemble((clock, "dim"), (text, STYLES[tone])))

    def _show(self, scene: Scene) -> None:
        if scene != self._scene:
            self._scene = scene
            self._live.refresh()

    def say(self, text: str) -> None:
        """Write it above the picture."""
        self._write(text)

    def act(self, title: str) -> None:
        """Write the title, and begin with an empty picture."""
        self._show(Scene())
        self._write(title)

    def checked(self, claim: str, *, holds: bool, tasks: Collection[int] = (), part: str = "") -> None:
        """Write the claim in green or red, and draw in green what it is about, if it holds."""
        self._write(check_line(claim, holds=holds), Tone.GOOD if holds else Tone.BAD)
        if holds:
            parts = tuple(attrs.evolve(each, checked=each.checked or each.name == part) for each in self._scene.parts)
            self._show(attrs.evolve(self._scene, checked=self._scene.checked | {*tasks}, parts=parts))

    def part(self, name: str, state: str) -> None:
        """Draw it from now on."""
        self._show(self._scene.with_part(Part(name, state)))

    def killed(self, process: Killed) -> None:
        """Write it in red, and draw it in red from now on."""
        self._write(kill_line(process), Tone.BAD)
        self._show(self._scene.with_killed(process))

    def slices(self, found: Sequence[SliceStatus]) -> None:
        """Draw them from now on."""
        self._show(attrs.evolve(self._scene, slices=tuple(found)))

    def job(self, status: JobStatus, tasks: Sequence[TaskStatus]) -> None:
        """Draw it from now on, with a row for each task."""
        self._show(attrs.evolve(self._scene, job=status, tasks=tuple(tasks)))

    def log(self, line: LogLine) -> None:
        """Draw it in the row of its task until that writes another."""
        self._show(attrs.evolve(self._scene, lines={**self._scene.lines, line.task_index: line}))

    def throughput(self, bytes_per_s: float) -> None:
        """Draw it from now on."""
        self._show(attrs.evolve(self._scene, bytes_per_s=bytes_per_s))

    def progress(self, text: str, done: int = 0, total: int = 0) -> None:
        """Draw it from now on."""
        self._show(attrs.evolve(self._scene, progress=PictureProgress(text, done, total)))

    def _draw(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        columns, rows = self._console.size
        lines = draw(self._scene, columns, rows - 1)  # the last row is the cursor's
        return Group(*(_styled(Text, line) for line in lines))

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Give the terminal back, without the picture."""
        self._scene = Scene()
        self._live.stop()


def _styled(text: Any, line: PictureLine) -> Any:
    return text(line.text, style=STYLES[line.tone], no_wrap=True, overflow="crop")
